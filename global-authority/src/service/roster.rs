//! The roster: reading it, and the one way to change it.

use std::sync::{Arc, PoisonError};

use cadastre_core::continuity::ScopeState;
use cadastre_core::ids::{Epoch, Name, RegionId};
use cadastre_core::mark::{Generation, Mark, Scope};
use cadastre_core::principal::TokenIndex;
use cadastre_core::roster::{Body, Entry, Kind, OperatorEntry, Roster, TokenEntry};
use cadastre_ledger::error::LedgerError;
use cadastre_ledger::sql as shared;
use cadastre_protocol::error::Code;
use cadastre_runtime::db::Tx;
use cadastre_runtime::token::{self, Prefix};

use super::error::problem;
use super::{Authority, ServiceError};
use crate::sql;

/// How often a change is decided anew because another process changed the roster in between.
const TRIES: usize = 8;

/// The roster, with the mark it was read at.
#[derive(Clone, Default)]
pub struct Known {
    /// Who exists.
    pub roster: Roster,
    /// Who calls.
    pub tokens: TokenIndex,
    /// The roster's mark.
    pub mark: Option<Mark>,
    /// Whether it was open then: in an open generation every change has the next seq, so what is newer than the mark is
    /// all that there is to read.
    pub open: bool,
}

/// What was read of the roster.
struct Read {
    /// Above which version; the whole roster where there is none.
    above: Option<(Generation, u64)>,
    entries: Vec<Entry>,
    mark: Option<Mark>,
    open: bool,
}

impl Known {
    /// The version up to which nothing has to be read again, where the roster stands at `mark` and is open.
    fn whole_up_to(&self, mark: &Mark) -> Option<(Generation, u64)> {
        let version = self.mark.filter(|_| self.open)?.version();
        (version.0 == mark.generation).then_some(version)
    }

    /// Takes what was read. Looks overtake one another: an older one changes nothing.
    fn take(&mut self, read: Read) {
        let Some(above) = read.above else {
            let roster: Roster = read.entries.into_iter().collect();
            *self = Self { tokens: TokenIndex::of(&roster), roster, mark: read.mark, open: read.open };
            return;
        };
        let reaches = |version: (Generation, u64)| above <= version && Some(version) < read.mark.map(|m| m.version());
        if !read.mark.and_then(|mark| self.whole_up_to(&mark)).is_some_and(reaches) {
            return;
        }
        let callers = read.entries.iter().any(|entry| entry.body.kind() != Kind::Namespace);
        self.roster.unite_all(read.entries);
        if callers {
            self.tokens = TokenIndex::of(&self.roster);
        }
        self.mark = read.mark;
    }
}

/// One changed entry, and what else the same transaction does.
#[derive(Clone)]
pub struct Change {
    /// The entry's name.
    pub name: Name,
    /// What it says from now on.
    pub body: Body,
    /// What goes with it.
    pub effect: Effect,
}

/// What goes with a changed entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Effect {
    /// Nothing.
    None,
    /// The namespace's scope is made, at watermark 0.
    NewScope,
    /// The namespace's scope is raised at this watermark: nobody holds an ordinal above it while a
    /// new definition version takes effect there.
    LockAt(u64),
    /// The region's epoch in every namespace: what it held is burned.
    RaiseEpoch(Epoch),
    /// The same for a region that is sent away where no witness is required: refused unless another region remembers
    /// the end of everything that it was ever granted.
    RetireRemembered(Epoch),
}

impl Authority {
    /// Reads what is new of the roster, if it moved since; all of it after a quarantine, in which testimony is united
    /// without a new mark and with entries of any age.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn reload(&self) -> Result<(), ServiceError> {
        let known = self.known();
        let (before, is_open, version) = (known.mark, known.open, known.mark.and_then(|m| known.whole_up_to(&m)));
        drop(known);
        let read = self
            .continuity
            .db()
            .read("roster", move |tx| {
                Box::pin(async move {
                    let scope = shared::scope(tx, &Scope::Roster).await?;
                    let open = scope.as_ref().is_some_and(|s| s.view.state == ScopeState::Open);
                    let mark = scope.map(|s| s.view.mark);
                    if open && is_open && mark.map(|m| m.row) == before.map(|m| m.row) {
                        return Ok::<_, LedgerError>(None);
                    }
                    let above = version.filter(|v| open && mark.is_some_and(|m| m.generation == v.0));
                    let entries = match above {
                        Some(version) => shared::roster_since(tx, version).await?,
                        None => shared::roster(tx).await?.entries().cloned().collect(),
                    };
                    Ok(Some(Read { above, entries, mark, open }))
                })
            })
            .await?;
        if let Some(read) = read {
            self.learn(read);
        }
        Ok(())
    }

    fn learn(&self, read: Read) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // In place where nobody looks at it just now.
        Arc::make_mut(&mut known).take(read);
    }

    /// The one way to change the roster: decide on what is known, write it guarded by the very roster
    /// that was decided on, pass the gate. `decide` may run several times.
    ///
    /// # Errors
    /// The decision's refusal, or those of the store.
    pub async fn change<T, D>(&self, who: &str, what: &'static str, decide: D) -> Result<T, ServiceError>
    where
        D: Fn(&Roster) -> Result<(Vec<Change>, T), ServiceError>,
    {
        self.change_in(ScopeState::Open, who, what, decide).await
    }

    /// As [`Self::change`], in a scope that is in `state`. In a quarantine only the epoch of a region whose
    /// store went back may rise: it must be able to burn, and to testify for what it holds then.
    ///
    /// # Errors
    /// The decision's refusal, or those of the store.
    pub(super) async fn change_in<T, D>(
        &self,
        state: ScopeState,
        who: &str,
        what: &'static str,
        decide: D,
    ) -> Result<T, ServiceError>
    where
        D: Fn(&Roster) -> Result<(Vec<Change>, T), ServiceError>,
    {
        for _ in 0..TRIES {
            self.reload().await?;
            let known = self.known();
            let (changes, out) = decide(&known.roster)?;
            if changes.is_empty() {
                return Ok(out);
            }
            match self.write_changes(known, state, changes, who, what).await {
                Ok(marks) => {
                    self.reload().await?;
                    if state == ScopeState::Open {
                        self.continuity.pass(&marks).await?;
                    }
                    return Ok(out);
                }
                Err(ServiceError::Stale) => {}
                // Another process of this authority may have opened a newer generation.
                Err(ServiceError::Ledger(LedgerError::Closed(scope))) => {
                    let open = self.continuity.refresh().await?.how.is_open();
                    if open != (state == ScopeState::Open) {
                        return Err(LedgerError::Closed(scope).into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Err(ServiceError::Stale)
    }

    async fn write_changes(
        &self,
        known: Arc<Known>,
        state: ScopeState,
        changes: Vec<Change>,
        who: &str,
        what: &'static str,
    ) -> Result<Vec<(Scope, Mark)>, ServiceError> {
        let verified = self.continuity.standing().generation;
        let (now, row) = (self.now_ms(), self.continuity.row_id());
        let audit = self.continuity.row_id();
        let rows: Vec<_> = changes.iter().map(|_| self.continuity.row_id()).collect();
        let who = who.to_owned();
        self.continuity
            .db()
            .write("roster_change", move |tx| {
                let (known, changes, who, rows) = (Arc::clone(&known), changes.clone(), who.clone(), rows.clone());
                Box::pin(async move {
                    let was = scope_in(tx, &Scope::Roster, state, verified).await?;
                    if Some(was.row) != known.mark.map(|m| m.row) {
                        return Err(ServiceError::Stale);
                    }
                    let mark = shared::raise_in(tx, state, &Scope::Roster, &was, was.seq + 1, row, what, now).await?;
                    let mut marks = vec![(Scope::Roster, mark)];
                    let mut names = Vec::new();
                    for (change, row) in changes.into_iter().zip(rows) {
                        names.push(format!("{} {}", change.body.kind().as_str(), change.name));
                        let held = known.roster.get(change.body.kind(), &change.name).map(Entry::version);
                        let entry = Entry {
                            generation: mark.generation,
                            seq: mark.seq,
                            name: change.name.clone(),
                            body: change.body,
                            seal: None,
                        };
                        shared::roster_put(tx, held, &entry).await?;
                        marks.extend(apply(tx, &change.name, change.effect, verified, row, what, now).await?);
                    }
                    shared::audit(tx, audit, now, &who, what, &names.join(", ")).await?;
                    Ok(marks)
                })
            })
            .await
    }

    /// Makes the first operator of an empty cluster.
    pub(super) async fn bootstrap(&self, secret: &str) -> Result<(), ServiceError> {
        check_bootstrap(secret)?;
        let token = TokenEntry {
            token_id: "bootstrap".to_owned(),
            sha256: token::sha256_hex(secret),
            made_at_ms: self.now_ms(),
            revoked_at_ms: None,
        };
        let name = Name::new("bootstrap").map_err(|e| ServiceError::refused(&e.to_string()))?;
        self.change("bootstrap", "operator", move |roster| {
            if roster.entries().next().is_some() {
                return Ok((vec![], ()));
            }
            let body = Body::Operator(OperatorEntry { viewer: false, tokens: vec![token.clone()] });
            Ok((vec![Change { name: name.clone(), body, effect: Effect::None }], ()))
        })
        .await
    }

    /// A fresh secret and the entry that is kept of it.
    pub(super) fn new_token(&self, prefix: Prefix) -> (String, TokenEntry) {
        let secret = token::make(prefix, self.entropy.bytes32());
        let id = self.entropy.uuid_v4().simple().to_string();
        let entry = TokenEntry {
            token_id: id.chars().take(12).collect(),
            sha256: token::sha256_hex(&secret),
            made_at_ms: self.now_ms(),
            revoked_at_ms: None,
        };
        (secret, entry)
    }
}

/// What the same transaction does for a changed entry.
async fn apply(
    tx: &mut Tx,
    name: &Name,
    effect: Effect,
    verified: Generation,
    row: cadastre_core::ids::RowId,
    what: &str,
    now: u64,
) -> Result<Option<(Scope, Mark)>, ServiceError> {
    let scope = Scope::Namespace(name.clone());
    match effect {
        Effect::None => Ok(None),
        Effect::NewScope => {
            let mark = Mark { generation: verified, seq: 1, row, bound: 0 };
            shared::insert_scope(tx, &scope, &mark, what, now).await?;
            Ok(Some((scope, mark)))
        }
        Effect::LockAt(watermark) => {
            let was = open_scope(tx, &scope, verified).await?;
            if was.bound != watermark {
                return Err(ServiceError::Stale);
            }
            let mark = shared::raise(tx, &scope, &was, watermark, row, what, now).await?;
            Ok(Some((scope, mark)))
        }
        Effect::RaiseEpoch(epoch) => {
            sql::raise_epoch(tx, name, epoch).await?;
            Ok(None)
        }
        Effect::RetireRemembered(epoch) => {
            // First: from here on nothing is granted to it, and what was granted is seen.
            sql::raise_epoch(tx, name, epoch).await?;
            super::memory::is_remembered(tx, name).await?;
            Ok(None)
        }
    }
}

/// The mark of a scope that is open in the generation that this process verified.
///
/// # Errors
/// [`LedgerError::Closed`].
pub async fn open_scope(tx: &mut Tx, scope: &Scope, verified: Generation) -> Result<Mark, LedgerError> {
    scope_in(tx, scope, ScopeState::Open, verified).await
}

async fn scope_in(tx: &mut Tx, scope: &Scope, state: ScopeState, verified: Generation) -> Result<Mark, LedgerError> {
    let row = shared::scope(tx, scope).await?;
    match row {
        Some(row) if row.is(state, verified) => Ok(row.view.mark),
        _ => Err(LedgerError::Closed(scope.to_string())),
    }
}

/// Whether a first operator's token is well made.
///
/// # Errors
/// Where it is not.
pub fn check_bootstrap(secret: &str) -> Result<(), ServiceError> {
    let well_made = secret
        .strip_prefix("cad_op_")
        .is_some_and(|hex| hex.len() == 64 && hex.chars().all(|c| c.is_ascii_hexdigit() && !c.is_ascii_uppercase()));
    if well_made {
        return Ok(());
    }
    Err(ServiceError::refused(
        "CADASTRE_BOOTSTRAP_TOKEN must be cad_op_ and 64 lower-case hex digits (256 random bits)",
    ))
}

/// The next number for a region: one above every one that was ever given.
///
/// # Errors
/// When there is none left.
pub fn next_region_id(roster: &Roster) -> Result<RegionId, ServiceError> {
    let highest = roster.regions().map(|(_, r)| r.region_id).max().unwrap_or_default();
    highest.next().map_err(|e| problem(Code::NotAllowed, e.to_string()))
}
