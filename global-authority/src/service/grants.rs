//! Grants: one transaction for the wants of a turn (see `lanes`).
//!
//! A turn reads what it needs of all its wants, decides one after the other in memory, and writes all it decided: as
//! many statements for sixty wants as for one. What it read is guarded where it is written: the watermark by the mark
//! that it follows, a region's part by its epoch, a ledger row by its place and its allocation. A want that is refused
//! leaves its turn without disturbing the others.

use std::collections::BTreeMap;

use cadastre_core::continuity::may_have_first_grant;
use cadastre_core::ids::{AllocationId, Epoch, GrantId, Name, RegionId, RowId, StoreId};
use cadastre_core::mark::{Generation, Mark, Scope};
use cadastre_core::namespace::{NamespaceEntry, NamespaceKind, decide_grant};
use cadastre_core::range::Range;
use cadastre_core::registry::RegionState;
use cadastre_core::roster::{Body, Kind, RegionEntry};
use cadastre_ledger::error::LedgerError;
use cadastre_ledger::sql as shared;
use cadastre_protocol::error::{Code, Problem};
use cadastre_protocol::link::Granted;
use cadastre_runtime::db::{DbError, Tx};

use super::error::grant_problem;
use super::roster::open_scope;
use super::slots::window_for;
use super::{Authority, ServiceError};
use crate::sql;

/// Who asks, checked.
#[derive(Clone, Debug)]
pub struct Asker {
    /// The region.
    pub region: Name,
    /// Its number.
    pub region_id: RegionId,
    /// Its epoch.
    pub epoch: Epoch,
    /// Its store.
    pub store_id: StoreId,
    /// Its clock, milliseconds since the Unix epoch.
    pub clock_ms: u64,
}

/// One want on its way through a lane.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) asker: Asker,
    pub(super) allocation_id: AllocationId,
    pub(super) want: u64,
    /// The id that a grant gets.
    pub(super) grant_id: GrantId,
}

/// What the asker is told.
pub type Outcome = Result<Granted, Problem>;

impl Authority {
    /// One transaction for all these asks: what each of them is told, and the mark that has to pass the gate before.
    pub(super) async fn turn(&self, namespace: &Name, asks: Vec<Ask>) -> Result<(Vec<Outcome>, Mark), ServiceError> {
        let mut verified = self.continuity.standing();
        if !verified.how.is_open() {
            verified = self.continuity.refresh().await?;
        }
        let batch = Batch {
            namespace: namespace.clone(),
            asks,
            verified: verified.generation,
            row: self.continuity.row_id(),
            now_ms: self.now_ms(),
            retention_ms: self.settings.replay_retention_ms,
            live_ms: self.settings.live_ms,
        };
        match self.commit(batch.clone()).await {
            // Another process opened a newer generation: look again, once.
            Err(ServiceError::Ledger(LedgerError::Closed(_))) => {
                let standing = self.continuity.refresh().await?;
                self.commit(Batch { verified: standing.generation, ..batch }).await
            }
            done => done,
        }
    }

    async fn commit(&self, batch: Batch) -> Result<(Vec<Outcome>, Mark), ServiceError> {
        self.continuity
            .db()
            .write("grant", move |tx| {
                let batch = batch.clone();
                Box::pin(async move { batch.run(tx).await })
            })
            .await
    }
}

/// What one region holds of the namespace, as this turn read it and goes on with it.
#[derive(Clone, Copy, Debug)]
struct Part {
    epoch: Epoch,
    granted: u64,
    left: u64,
    /// By this turn.
    added: u64,
}

impl Part {
    fn of(held: &sql::Holding) -> Self {
        Self { epoch: held.epoch, granted: held.granted, left: held.left, added: 0 }
    }

    fn add(&mut self, size: u64) {
        for sum in [&mut self.granted, &mut self.left, &mut self.added] {
            *sum = sum.saturating_add(size);
        }
    }
}

/// What a turn knows and has decided, before any of it is written.
struct Draft {
    known: BTreeMap<AllocationId, sql::Grant>,
    parts: BTreeMap<Name, Part>,
    watermark: u64,
    made: Vec<sql::Grant>,
}

/// One transaction's work.
#[derive(Clone)]
struct Batch {
    namespace: Name,
    asks: Vec<Ask>,
    verified: Generation,
    row: RowId,
    now_ms: u64,
    retention_ms: u64,
    live_ms: u64,
}

impl Batch {
    async fn run(&self, tx: &mut Tx) -> Result<(Vec<Outcome>, Mark), ServiceError> {
        let scope = Scope::Namespace(self.namespace.clone());
        let entry = match shared::roster_get(tx, Kind::Namespace, &self.namespace).await?.map(|e| e.body) {
            Some(Body::Namespace(entry)) => entry,
            _ => {
                return Err(super::error::problem(
                    Code::UnknownNamespace,
                    format!("there is no namespace {}", self.namespace),
                ));
            }
        };
        let was = open_scope(tx, &scope, self.verified).await?;
        let ids: Vec<AllocationId> = self.asks.iter().map(|ask| ask.allocation_id).collect();
        let known = sql::grants_of(tx, &ids).await?;
        let parts = sql::holdings_in(tx, &self.namespace).await?.into_iter().map(|h| (h.region.clone(), Part::of(&h)));
        let mut draft = Draft { known, parts: parts.collect(), watermark: was.bound, made: Vec::new() };
        let mut outcomes = Vec::with_capacity(self.asks.len());
        for ask in &self.asks {
            outcomes.push(self.one(tx, &entry, ask, &mut draft).await?);
        }
        if draft.made.is_empty() {
            return Ok((outcomes, was));
        }
        self.write(tx, &draft).await?;
        let mark = shared::raise(tx, &scope, &was, draft.watermark, self.row, "grant", self.now_ms).await?;
        Ok((outcomes, mark))
    }

    /// All that was decided. The fence of an epoch is here: one that rose since the turn read it leaves the part
    /// untouched, and the turn begins again with what holds then.
    async fn write(&self, tx: &mut Tx, draft: &Draft) -> Result<(), ServiceError> {
        for (region, part) in draft.parts.iter().filter(|(_, part)| part.added > 0) {
            if !sql::add_granted(tx, &self.namespace, region, part.epoch, part.added).await? {
                return Err(DbError::Conflict.into());
            }
        }
        sql::insert_grants(tx, &draft.made).await?;
        Ok(())
    }

    /// One want: a replay, a refusal, or a new range from the watermark on.
    async fn one(
        &self,
        tx: &mut Tx,
        entry: &NamespaceEntry,
        ask: &Ask,
        draft: &mut Draft,
    ) -> Result<Outcome, ServiceError> {
        // The same id twice in one turn: the second finds the row that the first one made.
        if let Some(held) = draft.known.get(&ask.allocation_id) {
            if let Some(outcome) = self.again(ask, held) {
                if matches!(&outcome, Err(problem) if problem.code == Code::AlreadyConfirmed) {
                    let detail = format!(
                        "region {}, allocation {}, grant {}",
                        ask.asker.region, ask.allocation_id, held.grant_id
                    );
                    // The id that a new grant would have had.
                    let id = RowId(ask.grant_id.0);
                    shared::audit(tx, id, self.now_ms, "authority", "already_confirmed", &detail).await?;
                }
                return Ok(outcome);
            }
        } else if self.too_old(ask) {
            return Ok(Err(Problem::new(
                Code::AllocationExpired,
                "this allocation id is older than the replay retention and is not known; make a new one",
            )));
        }
        let held = match self.place(tx, ask, draft).await? {
            Ok(held) => held,
            Err(problem) => return Ok(Err(problem)),
        };
        let range = match self.decide(tx, entry, ask, draft.watermark, held).await? {
            Ok(range) => range,
            Err(problem) => return Ok(Err(problem)),
        };
        match draft.parts.get_mut(&ask.asker.region) {
            Some(part) if part.epoch == ask.asker.epoch => part.add(range.len()),
            Some(_) | None => return Ok(Err(fenced(ask))),
        }
        let grant = sql::Grant {
            grant_id: ask.grant_id,
            namespace: self.namespace.clone(),
            allocation_id: ask.allocation_id,
            region: ask.asker.region.clone(),
            region_id: ask.asker.region_id,
            epoch: ask.asker.epoch,
            store_id: ask.asker.store_id,
            want: ask.want,
            range,
            generation: self.verified,
            mark_row: self.row,
            confirmed_at_ms: None,
            at_ms: self.now_ms,
        };
        draft.watermark = range.hi();
        draft.known.insert(grant.allocation_id, grant.clone());
        let answer = granted(&grant, false);
        draft.made.push(grant);
        Ok(Ok(answer))
    }

    /// The range to give: ordinals of a sequence, or a window of a slot's time.
    async fn decide(
        &self,
        tx: &mut Tx,
        entry: &NamespaceEntry,
        ask: &Ask,
        watermark: u64,
        held: u64,
    ) -> Result<Result<Range, Problem>, ServiceError> {
        match (entry.kind, &entry.slot) {
            (NamespaceKind::Slot, Some(slot)) => {
                let clocks = (self.now_ms, self.now_ms.saturating_sub(self.live_ms));
                window_for(tx, &self.namespace, slot, &ask.asker, ask.want, watermark, clocks).await
            }
            (NamespaceKind::Range, _) => {
                let decided = decide_grant(watermark, entry, &ask.asker.region, ask.want, held);
                Ok(decided.map_err(|refusal| grant_problem(&refusal)))
            }
            (NamespaceKind::Snowflake | NamespaceKind::UuidV7 | NamespaceKind::Slot, _) => {
                let text =
                    format!("nothing is granted of {} itself: it is of kind {}", self.namespace, entry.kind.as_str());
                Ok(Err(Problem::new(Code::NotAllowed, text)))
            }
        }
    }

    /// A known allocation id: conflict, confirmed before, replay; `None` where its row belongs to an
    /// older generation and was never confirmed: it is cancelled, and the asker gets a new range.
    fn again(&self, ask: &Ask, held: &sql::Grant) -> Option<Outcome> {
        let same = held.namespace == self.namespace
            && held.region == ask.asker.region
            && held.store_id == ask.asker.store_id
            && held.want == ask.want;
        if !same {
            return Some(Err(Problem::new(
                Code::AllocationConflict,
                "this allocation id was used with another namespace, region, store or size; make a new one",
            )));
        }
        if held.confirmed_at_ms.is_some() {
            tracing::error!(region = %ask.asker.region, allocation_id = %ask.allocation_id, "asked again for a confirmed grant");
            return Some(Err(Problem::new(
                Code::AlreadyConfirmed,
                "this region confirmed the answer before: a store that asks again has gone back in time",
            )));
        }
        if held.epoch != ask.asker.epoch {
            return Some(Err(fenced(ask)));
        }
        (held.generation == self.verified).then(|| Ok(granted(held, true)))
    }

    /// Judged by the earlier of the two clocks: a clock that is ahead must not make every fresh id old.
    fn too_old(&self, ask: &Ask) -> bool {
        let now = self.now_ms.min(ask.asker.clock_ms);
        ask.allocation_id.made_at_ms() < now.saturating_sub(self.retention_ms)
    }

    /// What the region holds unissued; makes its row on its first want, if it may have a first grant.
    async fn place(&self, tx: &mut Tx, ask: &Ask, draft: &mut Draft) -> Result<Result<u64, Problem>, ServiceError> {
        let asker = &ask.asker;
        let held = draft.parts.get(&asker.region);
        if let Some(held) = held
            && held.granted > 0
        {
            return Ok(if held.epoch == asker.epoch { Ok(held.left) } else { Err(fenced(ask)) });
        }
        let missing = held.is_none();
        if let Some(problem) = self.first_grant(tx, asker).await? {
            return Ok(Err(problem));
        }
        if missing {
            sql::insert_holding(tx, &self.namespace, &asker.region, asker.region_id, asker.epoch).await?;
            draft.parts.insert(asker.region.clone(), Part { epoch: asker.epoch, granted: 0, left: 0, added: 0 });
        }
        Ok(Ok(0))
    }

    /// The first grant of a region waits until an established region holds the roster that names it.
    async fn first_grant(&self, tx: &mut Tx, asker: &Asker) -> Result<Option<Problem>, ServiceError> {
        let not_ready = |why: &str| Some(Problem::new(Code::RegionNotReady, why).retry_after(1));
        let Some(entry) = shared::roster_get(tx, Kind::Region, &asker.region).await? else {
            return Ok(not_ready("the region is not in the roster"));
        };
        let Body::Region(region) = &entry.body else { return Ok(not_ready("the region is not in the roster")) };
        if region.epoch != asker.epoch || region.store_id != Some(asker.store_id) || !region.state.gets_grants() {
            return Ok(Some(fenced_by(asker)));
        }
        // Holds the region's row until the commit: no epoch rises between this look and the new holding.
        shared::roster_touch(tx, &entry).await?;
        let kept = sql::kept(tx).await?;
        let established = sql::established(tx).await?;
        let roster = shared::roster(tx).await?;
        let ids = established.iter().filter_map(|name| roster.region(name)).map(|r| r.region_id).collect();
        let lives = |r: &RegionEntry| r.state.may_issue() || r.state == RegionState::Fenced;
        let vouches = |name: &Name, other: &RegionEntry| other.founder || established.contains(name);
        let named = roster.regions().any(|(name, other)| {
            *name != asker.region
                && vouches(name, other)
                && kept.get(name).is_some_and(|k| Some(k.store_id) == other.store_id && k.roster >= entry.version())
        });
        // Where everybody who could vouch is retired, the lowest of the living begins anew. It cannot be a
        // forgotten one: the last that remembered was only let go once the roster was held elsewhere.
        let alone = !roster.regions().any(|(name, other)| lives(other) && vouches(name, other));
        let first = roster.regions().filter(|(_, r)| lives(r)).map(|(_, r)| r.region_id).min();
        let founder = region.founder || (alone && first == Some(asker.region_id));
        // Passing the gate put the roster into the witness before the region was told that it is active.
        if may_have_first_grant(asker.region_id, founder, named, true, &ids) {
            return Ok(None);
        }
        Ok(not_ready(
            "a new region's first grant waits until a region that already holds grants has taken note of it (its next \
             heartbeats)",
        ))
    }
}

fn granted(grant: &sql::Grant, replayed: bool) -> Granted {
    Granted {
        allocation_id: grant.allocation_id,
        grant_id: grant.grant_id,
        namespace: grant.namespace.clone(),
        lo: grant.range.lo(),
        hi: grant.range.hi(),
        epoch: grant.epoch,
        generation: grant.generation,
        replayed,
    }
}

fn fenced(ask: &Ask) -> Problem {
    fenced_by(&ask.asker)
}

fn fenced_by(asker: &Asker) -> Problem {
    Problem::new(Code::EpochFenced, format!("epoch {} of region {} gets nothing new", asker.epoch, asker.region))
}
