//! Grants: replays, refusals, new ranges; one transaction and one mark for a whole message.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use cadastre_core::continuity::may_have_first_grant;
use cadastre_core::ids::RegionId;
use cadastre_core::namespace::{NamespaceEntry, Policy, decide_grant};
use cadastre_core::registry::RegionState;
use cadastre_core::sequence::Sequence;

use super::marks::{Door, Mark, NS, REGIONS, ROSTER, RegionRow, name};
use super::message::{Granted, Outcome, Request, Want};
use super::rules::Rule;
use super::state::{Grant, Ledger, Violation, World};

impl World {
    /// Answers every want of a message. Returns the mark that has to pass the gate, and, where a rule is
    /// out, what is committed only afterwards.
    pub fn grants(
        &mut self,
        authority: usize,
        row: RegionRow,
        request: &Request,
    ) -> (Vec<Outcome>, Option<Mark>, Option<Box<Ledger>>) {
        let later = || request.wants.iter().map(|_| Outcome::Later).collect::<Vec<_>>();
        let old_epoch = request.epoch != Some(row.epoch) && self.rules().has(Rule::EpochChecked);
        let closed = self.authorities[authority].door != Door::Open;
        if request.wants.is_empty() || closed || old_epoch || !row.life.0.gets_grants() || !request.proven {
            return (later(), None, None);
        }
        if !self.may_write(authority) {
            self.refresh(authority);
            if !self.may_write(authority) {
                return (later(), None, None);
            }
        }
        let store = self.authorities[authority].store;
        if self.stores[store].ledger.door != Door::Open {
            self.violate(Violation::Broken("A3: a closed store grants"));
        }
        if request.epoch != Some(row.epoch) {
            self.violate(Violation::Broken("A3: an old epoch is given something"));
        }
        let before = self.stores[store].ledger.clone_if(!self.rules().has(Rule::WitnessAfterCommit));
        let was = self.stores[store].ledger.marks[NS];
        let stale = self.authorities[authority].read_before.filter(|_| !self.rules().has(Rule::WatermarkConditional));
        let mut watermark = stale.unwrap_or(was.bound);
        self.authorities[authority].read_before = (!self.rules().has(Rule::WatermarkConditional)).then_some(watermark);
        let fresh = self.fresh();
        let begin = watermark;
        let mut outcomes = Vec::with_capacity(request.wants.len());
        for want in &request.wants {
            outcomes.push(self.one(authority, row, request, want, &mut watermark));
        }
        if watermark == begin {
            let replays = outcomes.iter().any(|o| matches!(o, Outcome::Granted(_)));
            return (outcomes, replays.then_some(was), None);
        }
        let mark = Mark { generation: was.generation, seq: was.seq + 1, row: fresh, bound: watermark };
        let ledger = &mut self.stores[store].ledger;
        ledger.marks[NS] = mark;
        ledger.rows.push(fresh);
        self.authorities[authority].read_before = (!self.rules().has(Rule::WatermarkConditional)).then_some(watermark);
        let uncommitted = before.map(|before| Box::new(std::mem::replace(&mut self.stores[store].ledger, before)));
        (outcomes, Some(mark), uncommitted)
    }

    /// The guard of every transaction: open, in the generation that this process verified.
    pub fn may_write(&self, authority: usize) -> bool {
        let me = &self.authorities[authority];
        let ledger = &self.stores[me.store].ledger;
        let guarded = self.rules().has(Rule::GuardByGeneration);
        !guarded || (ledger.door == Door::Open && ledger.generation() == me.verified)
    }

    /// One want: a replay, a refusal, or a new range from the watermark on.
    fn one(
        &mut self,
        authority: usize,
        row: RegionRow,
        request: &Request,
        want: &Want,
        watermark: &mut u32,
    ) -> Outcome {
        let store = self.authorities[authority].store;
        let ledger = &self.stores[store].ledger;
        // A row that was cancelled may stand beside the new one: the newest is the one that counts.
        if let Some(held) = ledger.grants.iter().rev().find(|g| g.allocation == want.allocation)
            && let held = held.clone()
            && let Some(outcome) = self.again(ledger.generation(), &held, request, want)
        {
            if let Outcome::Granted(g) = &outcome {
                if held.confirmed {
                    self.violation.get_or_insert(Violation::Broken("A3: a row is replayed that was confirmed"));
                }
                let line = format!("  authority {authority} replays {}..{} to {}", g.lo, g.hi, name(request.region));
                self.say(|| line);
            }
            return outcome;
        }
        if !ledger.established(request.region) && !self.first_grant(ledger, request.region, row) {
            return Outcome::Later;
        }
        let decided = decide_grant(u64::from(*watermark), namespace(), name(request.region), u64::from(want.want), 0);
        let Ok(range) = decided else { return Outcome::Later };
        let (lo, hi) = (range.lo() as u32, range.hi() as u32);
        let id = self.fresh();
        let ledger = &mut self.stores[store].ledger;
        let grant = Grant {
            id,
            allocation: want.allocation,
            region: request.region,
            epoch: request.epoch.unwrap_or(row.epoch),
            store: request.store,
            want: want.want,
            lo,
            hi,
            generation: ledger.generation(),
            confirmed: false,
            definitions: ledger.roster.definitions.from.clone(),
        };
        let granted = granted(&grant, false);
        ledger.grants.push(grant);
        *watermark = hi;
        self.say(|| format!("  authority {authority} grants {lo}..{hi} to {} (store {store})", name(request.region)));
        Outcome::Granted(granted)
    }

    /// A known request: conflict, confirmed before, replay; `None` where its row belongs to an older
    /// generation and was never confirmed: it is cancelled, and the asker gets a new range.
    fn again(
        &self,
        verified: cadastre_core::mark::Generation,
        held: &Grant,
        request: &Request,
        want: &Want,
    ) -> Option<Outcome> {
        let rules = self.rules();
        if held.region != request.region || held.store != request.store || held.want != want.want {
            return Some(Outcome::Conflict(want.allocation));
        }
        if held.confirmed && rules.has(Rule::ReplayUntilConfirmed) {
            return Some(Outcome::AlreadyConfirmed(want.allocation));
        }
        if Some(held.epoch) != request.epoch && rules.has(Rule::EpochChecked) {
            return Some(Outcome::Later);
        }
        let ours = held.generation == verified || !rules.has(Rule::ReplayInOwnGeneration);
        ours.then(|| Outcome::Granted(granted(held, true)))
    }

    /// The shipped verdict whether a region may have its first grant.
    fn first_grant(&self, ledger: &Ledger, region: usize, row: RegionRow) -> bool {
        let rules = self.rules();
        if !rules.has(Rule::FirstGrantWaits) {
            return true;
        }
        let vouches = |other: usize| {
            let Some(them) = ledger.roster.regions[other] else { return false };
            let stands = them.founder || ledger.established(other) || !rules.has(Rule::EstablishedVouches);
            let kept = ledger.kept[other].as_ref().filter(|k| Some(k.store) == them.store);
            let ours = |g| g == ledger.generation() || !rules.has(Rule::RosterOfGeneration);
            let holds = kept.is_some_and(|k| k.roster >= row.version && ours(k.roster.0));
            other != region && stands && holds
        };
        let named = (0..REGIONS).any(vouches);
        let established: BTreeSet<RegionId> =
            (0..REGIONS).filter(|n| ledger.established(*n)).map(|n| RegionId(n as u32)).collect();
        let stands = |r: &RegionRow| !matches!(r.life.0, RegionState::Retired);
        let lives =
            |n: usize| ledger.roster.regions[n].is_some_and(|r| stands(&r) && (r.founder || ledger.established(n)));
        let last = self.witnessed() && rules.has(Rule::SuccessorOfAll) && !(0..REGIONS).any(lives);
        may_have_first_grant(RegionId(region as u32), row.founder || last, named, true, &established)
    }
}

impl Ledger {
    fn clone_if(&self, wanted: bool) -> Option<Self> {
        wanted.then(|| self.clone())
    }

    /// Where the roster stands.
    pub fn roster_version(&self) -> super::marks::Version {
        self.marks[ROSTER].version()
    }
}

fn granted(grant: &Grant, replayed: bool) -> Granted {
    Granted {
        allocation: grant.allocation,
        grant: grant.id,
        lo: grant.lo,
        hi: grant.hi,
        epoch: grant.epoch,
        generation: grant.generation,
        replayed,
        definitions: grant.definitions.clone(),
    }
}

/// The one namespace: as wide as it gets, so that no size is clamped.
#[allow(clippy::expect_used)]
fn namespace() -> &'static NamespaceEntry {
    static NAMESPACE: OnceLock<NamespaceEntry> = OnceLock::new();
    NAMESPACE.get_or_init(|| {
        let sequence = Sequence::new(1, 1, 1, i64::MAX).expect("the widest sequence");
        NamespaceEntry::new(sequence, Policy::default())
    })
}
