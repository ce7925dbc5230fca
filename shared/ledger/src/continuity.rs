//! The life of one store in one process: start, gate, quarantine, lift.
//!
//! State: the generation that this process verified, whether the store is open in it, and whether
//! this process may fill an empty witness. Everything else is rows. The verdicts are
//! [`cadastre_core::continuity`]'s; here is only the reading and the guarded writing around them.

use std::sync::{Arc, Mutex, PoisonError};

use cadastre_core::continuity::{self, ScopeState, ScopeView, Start, WitnessMode};
use cadastre_core::ids::{ClusterId, RowId, StoreId};
use cadastre_core::mark::{Generation, Mark, Scope, ScopeMark};
use cadastre_core::roster::Entry;
use cadastre_runtime::db::Db;

use crate::error::LedgerError;
use crate::sql::{self, ScopeRow, StoreRow};
use crate::witness::Marks;

mod gate;
mod lift;
mod lost;
mod standing;
mod trouble;
mod watch;

use lift::contained;
pub use lift::{contains_marks, lift};
pub use standing::{How, Parts, Standing};
use trouble::Trouble;

/// When a generation is opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Opens {
    /// In any case.
    Always,
    /// Unless another process did so on this server.
    OnAnotherServer,
}

/// See the module's documentation.
pub struct Continuity {
    parts: Parts,
    standing: Mutex<Standing>,
    trouble: Mutex<Trouble>,
    /// The highest mark of each scope that this process let out.
    passed: Mutex<Marks>,
    /// The server that was seen last, for people.
    server: Mutex<String>,
}

impl Continuity {
    /// For a store whose start was not judged yet: closed until [`Self::start`] says otherwise.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let standing = Standing { generation: Generation::default(), how: How::Suspect, may_fill: false };
        Self {
            parts,
            standing: Mutex::new(standing),
            trouble: Mutex::default(),
            passed: Mutex::default(),
            server: Mutex::default(),
        }
    }

    /// What this process holds to be true.
    #[must_use]
    pub fn standing(&self) -> Standing {
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stand(&self, standing: Standing) -> Standing {
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = standing;
        standing
    }

    /// The store's door.
    #[must_use]
    pub fn db(&self) -> &Db {
        &self.parts.db
    }

    /// How far the witness is believed.
    #[must_use]
    pub fn mode(&self) -> WitnessMode {
        self.parts.mode
    }

    /// A fresh row id.
    #[must_use]
    pub fn row_id(&self) -> RowId {
        RowId(self.parts.entropy.uuid_v4())
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.parts.clock.now().wall_ms
    }

    /// Makes an empty store this role's store, with one scope. Explicit: nothing calls it because a
    /// store happens to be empty.
    ///
    /// # Errors
    /// [`LedgerError::Refused`] where the witness was used before: then the store is not new, it is lost.
    pub async fn initialise(&self, cluster: Option<ClusterId>, first: Scope) -> Result<Standing, LedgerError> {
        if self.read_witness().await?.is_some() {
            return Err(LedgerError::Refused(format!(
                "the store is empty, but its witness was used before: this is a lost or restored store of {}, not a \
                 new one. Put the right store back; or, to begin a new cluster, move the witness away",
                self.parts.role
            )));
        }
        let generation = Generation::above([], self.random()).map_err(|e| LedgerError::Refused(e.to_string()))?;
        let mark = Mark { generation, seq: 1, row: self.row_id(), bound: 1 };
        let store = StoreRow {
            cluster_id: cluster,
            store_id: StoreId(self.parts.entropy.uuid_v4()),
            role: self.parts.role.clone(),
            session: 0,
            has_witness: false,
            promised: Generation::default(),
            place: String::new(),
            same_server: true,
        };
        let (now, scope) = (self.now_ms(), first.clone());
        self.parts
            .db
            .write("initialise", move |tx| {
                let (store, scope) = (store.clone(), scope.clone());
                Box::pin(async move {
                    sql::insert_store(tx, &store, now).await?;
                    sql::insert_scope(tx, &scope, &mark, "initialised", now).await
                })
            })
            .await?;
        self.claim(cluster).await?;
        self.fill_witness(Marks::from([(first, mark)])).await?;
        Ok(self.stand(Standing { generation, how: How::Initialised, may_fill: false }))
    }

    /// Judges the store at a start and opens a new generation: open where the required witness agrees,
    /// in quarantine otherwise.
    ///
    /// # Errors
    /// Those of the store and the witness.
    pub async fn start(&self) -> Result<Standing, LedgerError> {
        self.judge(Marks::new(), Opens::Always).await
    }

    /// See [`Self::start`]; `own` is what this process let out before.
    async fn judge(&self, own: Marks, opens: Opens) -> Result<Standing, LedgerError> {
        let marks = self.read_witness().await?;
        let mut seen: Vec<(Scope, Mark)> = marks.iter().flatten().map(|(s, m)| (s.clone(), *m)).collect();
        let witnessed = seen.len();
        seen.extend(own);
        let (rows, found, store) = self.look(seen.clone()).await?;
        if store.role != self.parts.role {
            return Err(LedgerError::Refused(format!(
                "this is the store of {}, not of {}",
                store.role, self.parts.role
            )));
        }
        self.claim(store.cluster_id).await?;
        let (found, own) = found.split_at(witnessed.min(found.len()));
        // Crashed between making the store and filling the witness: one row, nothing was ever exposed.
        let unborn =
            marks.is_none() && !store.has_witness && rows.len() == 1 && rows.iter().all(|r| r.view.mark.seq == 1);
        let found = marks.is_some().then_some(found);
        let verdict = match opens {
            Opens::Always if own.is_empty() => continuity::at_start(self.parts.mode, found),
            Opens::Always | Opens::OnAnotherServer => continuity::at_another_server(self.parts.mode, found, own),
        };
        let verdict = match verdict {
            Start::Suspect(_) if unborn => Start::Agreed,
            // A doubt that was not ended before this start is still a doubt, whatever the witness says now.
            Start::Agreed if rows.iter().any(|r| r.view.state == ScopeState::Back) => Start::WentBack,
            verdict => verdict,
        };
        let (state, how, reason) = match verdict {
            Start::Agreed if unborn => (ScopeState::Open, How::Initialised, ""),
            Start::Agreed => (ScopeState::Open, How::Witnessed, ""),
            Start::Suspect(why) => (ScopeState::Suspect, How::Suspect, why),
            Start::WentBack => (ScopeState::Back, How::WentBack, "somebody holds a row that this store lacks"),
        };
        let lost: Vec<(Scope, Mark)> =
            seen.iter().skip(witnessed).zip(own).filter(|(_, has)| !**has).map(|(mark, _)| mark.clone()).collect();
        let above = seen.iter().map(|(_, m)| m.generation).collect();
        let Some(marks) = self.open_generation(state, above, reason, opens, lost).await? else {
            // Another process saw the new server first, and opened the generation for all.
            return self.look_again().await;
        };
        let generation = marks.values().map(|m| m.generation).max().unwrap_or_default();
        self.stand(Standing { generation, how, may_fill: unborn });
        if how.is_open() {
            match self.pass(&marks.into_iter().collect::<Vec<_>>()).await {
                // Another process started at the same time and opened a generation above this one.
                Err(LedgerError::Closed(_)) => {
                    self.look_again().await?;
                }
                passed => passed?,
            }
        }
        tracing::info!(role = %self.parts.role, continuity = how.as_str(), %generation, reason, "store judged");
        Ok(self.standing())
    }

    /// Scopes, whether each of `marks` is contained, and the store's row, in one snapshot.
    async fn look(&self, marks: Vec<(Scope, Mark)>) -> Result<(Vec<ScopeRow>, Vec<bool>, StoreRow), LedgerError> {
        let look = self.parts.db.read("continuity_look", move |tx| {
            let marks = marks.clone();
            Box::pin(async move {
                let rows = sql::scopes(tx).await?;
                let found = contained(tx, &rows, &marks).await?;
                let store = sql::store(tx).await?;
                let store = store.ok_or_else(|| LedgerError::Refused("the store is not initialised".into()))?;
                Ok::<_, LedgerError>((rows, found, store, tx.server().to_owned()))
            })
        });
        let (rows, found, store, server) = look.await?;
        self.see(server);
        Ok((rows, found, store))
    }

    /// Writes a new generation over every scope, above all generations seen, with the given state, and on which server
    /// that was. In a quarantine nothing else moves; an open one is based on what the store holds. `lost` is kept:
    /// whatever ends the quarantine ends above it. `None` where another process had done so for this server.
    async fn open_generation(
        &self,
        state: ScopeState,
        above: Vec<Generation>,
        reason: &str,
        opens: Opens,
        lost: Vec<(Scope, Mark)>,
    ) -> Result<Option<Marks>, LedgerError> {
        let (random, now, reason) = (self.random(), self.now_ms(), reason.to_owned());
        let entropy = Arc::clone(&self.parts.entropy);
        self.parts
            .db
            .write("open_generation", move |tx| {
                let (above, reason, entropy) = (above.clone(), reason.clone(), Arc::clone(&entropy));
                let lost = lost.clone();
                Box::pin(async move {
                    if !sql::set_server(tx).await? && opens == Opens::OnAnotherServer {
                        return Ok(None);
                    }
                    for (scope, mark) in &lost {
                        sql::keep_mark(tx, scope, mark).await?;
                    }
                    let rows = sql::scopes(tx).await?;
                    let seen = above.iter().copied().chain(rows.iter().map(|r| r.view.generation));
                    let generation =
                        Generation::above(seen, random).map_err(|e| LedgerError::Refused(e.to_string()))?;
                    let mut marks = Marks::new();
                    for row in rows {
                        let old = row.view;
                        let seq = old.mark.seq + 1;
                        let bound = if row.scope == Scope::Roster { seq } else { old.mark.bound };
                        let mark = Mark { generation, seq, row: RowId(entropy.uuid_v4()), bound };
                        let base = if state == ScopeState::Open { mark.bound } else { old.base };
                        let view = ScopeView { state, generation, mark, base };
                        sql::reopen(tx, &row, &view, &reason, "generation", now).await?;
                        marks.insert(row.scope, mark);
                    }
                    Ok(Some(marks))
                })
            })
            .await
    }

    /// Puts every scope into quarantine, or turns a suspicion into proof. Returns the quarantine's
    /// generation.
    ///
    /// # Errors
    /// Those of the store and the witness.
    pub async fn quarantine(&self, back: bool, reason: &str, seen: Vec<Generation>) -> Result<Generation, LedgerError> {
        let witnessed = self.read_witness().await.ok().flatten();
        let above = witnessed.iter().flatten().map(|(_, m)| m.generation).chain(seen).collect();
        let (state, how) = if back { (ScopeState::Back, How::WentBack) } else { (ScopeState::Suspect, How::Suspect) };
        tracing::error!(role = %self.parts.role, back, reason, "quarantine: nothing is given out");
        let marks = self.open_generation(state, above, reason, Opens::Always, vec![]).await?.unwrap_or_default();
        let generation = marks.values().map(|m| m.generation).max().unwrap_or_default();
        self.stand(Standing { generation, how, may_fill: false });
        Ok(generation)
    }

    /// Looks again after a guard did not hold: another process may have opened a newer generation, or
    /// closed this one. Believes an open one if it contains what the witness names. On another server than
    /// the one that was verified it begins anew.
    ///
    /// # Errors
    /// Those of the store and the witness.
    pub async fn refresh(&self) -> Result<Standing, LedgerError> {
        match self.look_again().await {
            Err(LedgerError::AnotherServer) => self.begin_anew().await,
            result => result,
        }
    }

    /// As [`Self::refresh`], on the server that was verified only.
    async fn look_again(&self) -> Result<Standing, LedgerError> {
        let marks = self.read_witness().await?;
        let seen: Vec<(Scope, Mark)> = marks.into_iter().flatten().collect();
        let (rows, found, store) = self.look(seen).await?;
        if !store.same_server {
            return Err(LedgerError::AnotherServer);
        }
        let before = self.standing();
        let generation = rows.iter().map(|r| r.view.generation).max().unwrap_or_default();
        let closed = rows.iter().map(|r| r.view.state).find(|s| *s != ScopeState::Open);
        let how = match closed {
            Some(ScopeState::Back) => How::WentBack,
            Some(_) => How::Suspect,
            None if found.contains(&false) && self.parts.mode == WitnessMode::Required => {
                self.quarantine(true, "the witness names a row that this store lacks", vec![]).await?;
                return Ok(self.standing());
            }
            None if before.how.is_open() => before.how,
            None => How::Testified,
        };
        Ok(self.stand(Standing { generation, how, may_fill: before.may_fill && generation == before.generation }))
    }

    async fn roster_since(&self, version: (Generation, u64)) -> Result<Vec<Entry>, LedgerError> {
        let read = self.parts.db.read("witness_entries", move |tx| Box::pin(sql::roster_since(tx, version)));
        Ok(read.await?)
    }

    /// Fills an empty witness with the marks of every scope and the roster, and records that there is one.
    ///
    /// # Errors
    /// Those of the store and the witness.
    pub async fn fill_witness(&self, mut marks: Marks) -> Result<bool, LedgerError> {
        let Some(witness) = &self.parts.witness else { return Ok(true) };
        let (rows, _, _) = self.look(vec![]).await?;
        for row in rows {
            marks.insert(row.scope, row.view.mark);
        }
        let roster = self.roster_since((Generation::default(), 0)).await?;
        let filled = self.believed(witness.fill(marks, roster).await.map(Some))?.unwrap_or(true);
        self.parts.db.write("has_witness", |tx| Box::pin(sql::set_has_witness(tx))).await?;
        let standing = self.standing();
        self.stand(Standing { may_fill: false, ..standing });
        Ok(filled)
    }

    /// Unites what the witness knows of the roster into the store: knowledge only, nothing is given out on
    /// it before the quarantine ends. Returns whether something was news.
    ///
    /// # Errors
    /// Those of the store and the witness.
    pub async fn recall_roster(&self) -> Result<bool, LedgerError> {
        let Some(witness) = &self.parts.witness else { return Ok(false) };
        let entries = self.believed(witness.roster().await.map(Some))?.unwrap_or_default();
        let unite = self.parts.db.write("recall_roster", move |tx| {
            let entries = entries.clone();
            Box::pin(async move { sql::roster_unite(tx, &entries).await })
        });
        Ok(unite.await?)
    }

    /// All marks of the witness; `None` where there is none or it is empty.
    ///
    /// # Errors
    /// [`LedgerError::Witness`] where a required one cannot be read.
    pub async fn read_witness(&self) -> Result<Option<Marks>, LedgerError> {
        match &self.parts.witness {
            None => Ok(None),
            Some(witness) => self.believed(witness.read().await),
        }
    }

    /// After a transaction that lifted the quarantine (see [`lift`]) was committed: believes it, and
    /// brings the witness up to it. Only exits 3 and 4 may fill an empty one.
    ///
    /// # Errors
    /// Those of the store and the witness.
    pub async fn lifted(&self, how: How, marks: Vec<ScopeMark>) -> Result<(), LedgerError> {
        let generation = marks.iter().map(|m| m.mark.generation).max().unwrap_or_default();
        let may_fill = matches!(how, How::Testified | How::Stated | How::WentBack);
        self.stand(Standing { generation, how: if how.is_open() { how } else { How::Testified }, may_fill });
        let answers: Vec<(Scope, Mark)> = marks.into_iter().map(|m| (m.scope, m.mark)).collect();
        // The witness may hold rows of a history that is given up now: they lie at or below the base.
        self.pass(&answers).await
    }

    fn random(&self) -> u32 {
        u32::try_from(self.parts.entropy.u64() >> 32).unwrap_or(0)
    }
}
