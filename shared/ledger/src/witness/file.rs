//! A witness in a file: a small SQLite database of its own, on another disk where there is one.
//!
//! Its durability is the store's own (WAL, synchronous FULL), because an answer that left on the word
//! of a witness that then forgot it is the very fault that it is there to find.

use std::path::Path;

use async_trait::async_trait;
use cadastre_core::mark::Scope;
use cadastre_core::roster::Entry;
use cadastre_runtime::db::{self, ConnectOptions, Db, DbError};

use super::{Marks, Raise, Witness, WitnessError, sql};
use crate::sql as shared;

/// Marks in a SQLite file.
pub struct FileWitness {
    db: Db,
    role: String,
}

fn unavailable(error: DbError) -> WitnessError {
    WitnessError::Unavailable(error.to_string())
}

impl FileWitness {
    /// Opens or makes the file. `role` names the store that it watches: `authority`, `region/eu`.
    ///
    /// # Errors
    /// [`WitnessError::WrongOwner`] where it watches another store.
    pub async fn open(path: &Path, role: &str) -> Result<Self, WitnessError> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)
                .map_err(|e| WitnessError::Unavailable(format!("cannot make {}: {e}", folder.display())))?;
        }
        let url = format!("sqlite://{}", path.display());
        let db = db::connect(&url, ConnectOptions::default()).await.map_err(unavailable)?;
        Self::over(db, role).await
    }

    /// A witness over an open database.
    ///
    /// # Errors
    /// [`WitnessError::WrongOwner`] where it watches another store.
    pub async fn over(db: Db, role: &str) -> Result<Self, WitnessError> {
        db::migrate(&db, sql::MIGRATIONS).await.map_err(unavailable)?;
        let wanted = role.to_owned();
        let found = db
            .write("witness_owner", move |tx| {
                let wanted = wanted.clone();
                Box::pin(async move {
                    if let Some(found) = sql::owner(tx).await? {
                        return Ok::<_, DbError>(found);
                    }
                    sql::set_owner(tx, &wanted).await?;
                    Ok(wanted)
                })
            })
            .await
            .map_err(unavailable)?;
        if found == role {
            Ok(Self { db, role: role.to_owned() })
        } else {
            Err(WitnessError::WrongOwner { found, wanted: role.to_owned() })
        }
    }

    /// Whose witness it is.
    #[must_use]
    pub fn role(&self) -> &str {
        &self.role
    }
}

#[async_trait]
impl Witness for FileWitness {
    async fn read(&self) -> Result<Option<Marks>, WitnessError> {
        let marks = self.db.read("witness_read", |tx| Box::pin(sql::all(tx))).await.map_err(unavailable)?;
        Ok((!marks.is_empty()).then_some(marks))
    }

    async fn read_some(&self, scopes: &[Scope]) -> Result<Option<Marks>, WitnessError> {
        let scopes = scopes.to_vec();
        self.db
            .read("witness_read", move |tx| {
                let scopes = scopes.clone();
                Box::pin(async move {
                    let mut marks = Marks::new();
                    for scope in scopes {
                        if let Some(mark) = sql::one(tx, &scope).await? {
                            marks.insert(scope, mark);
                        }
                    }
                    let empty = marks.is_empty() && sql::all(tx).await?.is_empty();
                    Ok::<_, DbError>((!empty).then_some(marks))
                })
            })
            .await
            .map_err(unavailable)
    }

    async fn raise(&self, raises: Vec<Raise>, roster: Vec<Entry>) -> Result<bool, WitnessError> {
        self.db
            .write("witness_raise", move |tx| {
                let (raises, roster) = (raises.clone(), roster.clone());
                Box::pin(async move {
                    for raise in &raises {
                        if sql::one(tx, &raise.scope).await? != raise.was {
                            return Ok(false);
                        }
                    }
                    for raise in &raises {
                        if raise.was.is_none_or(|was| raise.now.is_above(&was)) {
                            sql::put(tx, &raise.scope, &raise.now).await?;
                        }
                    }
                    shared::roster_unite(tx, &roster).await?;
                    Ok::<_, DbError>(true)
                })
            })
            .await
            .map_err(unavailable)
    }

    async fn fill(&self, marks: Marks, roster: Vec<Entry>) -> Result<bool, WitnessError> {
        self.db
            .write("witness_fill", move |tx| {
                let (marks, roster) = (marks.clone(), roster.clone());
                Box::pin(async move {
                    if !sql::all(tx).await?.is_empty() {
                        return Ok(false);
                    }
                    for (scope, mark) in &marks {
                        sql::put(tx, scope, mark).await?;
                    }
                    shared::roster_unite(tx, &roster).await?;
                    Ok::<_, DbError>(true)
                })
            })
            .await
            .map_err(unavailable)
    }

    async fn roster(&self) -> Result<Vec<Entry>, WitnessError> {
        let roster = self.db.read("witness_roster", |tx| Box::pin(shared::roster(tx))).await.map_err(unavailable)?;
        Ok(roster.entries().cloned().collect())
    }
}
