//! Schema versions.
//!
//! Purpose: brings a store to the schema that this program knows. Invariants: each migration is
//! one transaction together with its row in `schema_version`; migrations are only ever appended;
//! a schema newer than this program is refused. Absent on purpose: downgrades (put back a backup).

use super::{Db, DbError, TxFuture};

/// A version, its name, and the statements that lead to it from the version before.
pub type Migration = (u32, &'static str, &'static [&'static str]);

/// Brings the store up to the last of `list`, which must be in rising order from version 1.
///
/// # Errors
/// [`DbError::NewerSchema`] when the store is ahead; [`DbError::Other`] for a list with gaps.
pub async fn migrate(db: &Db, list: &'static [Migration]) -> Result<(), DbError> {
    if let Some((position, _)) = (1_u32..).zip(list).find(|(position, migration)| *position != migration.0) {
        return Err(DbError::Other(format!("migration {position} is missing from the list")));
    }
    let known = u32::try_from(list.len()).unwrap_or(u32::MAX);
    create_table(db).await?;
    if is_anothers(db, list).await? {
        // Whoever reads its role next says whose it is; nothing of ours is put into it.
        return Ok(());
    }
    let found = current(db).await?;
    if found > known {
        return Err(DbError::NewerSchema { found, known });
    }
    for migration in list.iter().filter(|migration| migration.0 > found) {
        apply(db, *migration).await?;
        tracing::info!(version = migration.0, name = migration.1, "schema migrated");
    }
    Ok(())
}

async fn create_table(db: &Db) -> Result<(), DbError> {
    db.write("schema_table", |tx| -> TxFuture<'_, (), DbError> {
        Box::pin(async move {
            tx.execute(
                "CREATE TABLE IF NOT EXISTS schema_version \
                 (version BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL)",
                &[],
            )
            .await?;
            Ok(())
        })
    })
    .await
    .or_else(|error| match error {
        // Two processes of one PostgreSQL store may race to create it: one gets a unique violation
        // in the catalog. The table is there either way.
        DbError::Unique => Ok(()),
        other => Err(other),
    })
}

/// Whether the steps that were taken are not the first ones of `list`: it is the store of another program.
async fn is_anothers(db: &Db, list: &[Migration]) -> Result<bool, DbError> {
    let names: Vec<(u32, &'static str)> = list.iter().map(|(version, name, _)| (*version, *name)).collect();
    db.read("schema_names", move |tx| -> TxFuture<'_, bool, DbError> {
        let names = names.clone();
        Box::pin(async move {
            let rows = tx.query("SELECT version, name FROM schema_version ORDER BY version", &[]).await?;
            for row in &rows {
                let version = row.u32(0)?;
                let ours = names.iter().find(|(known, _)| *known == version);
                if ours.is_some_and(|(_, name)| row.text(1).is_ok_and(|text| text != *name)) {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    })
    .await
}

async fn current(db: &Db) -> Result<u32, DbError> {
    db.read("schema_read", |tx| -> TxFuture<'_, u32, DbError> {
        Box::pin(async move { tx.query_one("SELECT COALESCE(MAX(version), 0) FROM schema_version", &[]).await?.u32(0) })
    })
    .await
}

/// Applies one migration unless another process did so since: the row comes first, and its key
/// lets only one of them through.
async fn apply(db: &Db, migration: Migration) -> Result<(), DbError> {
    let (version, name, statements) = migration;
    let result = db
        .write("schema_migrate", move |tx| -> TxFuture<'_, (), DbError> {
            Box::pin(async move {
                tx.execute(
                    "INSERT INTO schema_version (version, name) VALUES ($1, $2)",
                    &[version.into(), name.into()],
                )
                .await?;
                for statement in statements {
                    tx.execute(statement, &[]).await?;
                }
                Ok(())
            })
        })
        .await;
    match result {
        Err(DbError::Unique) if current(db).await? >= version => Ok(()),
        other => other,
    }
}
