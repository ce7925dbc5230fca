//! A store that may have gone back: start, doubt, testimony, the four exits, the lift.
//!
//! Verdicts are the shipped ones ([`at_start`], [`exit`], [`raise_to`]); here is what surrounds them.

use std::collections::BTreeMap;

use cadastre_core::continuity::{
    Exit, QuarantineView, Start, Testimony as CoreTestimony, WitnessMode, at_start, exit, raise_to,
};
use cadastre_core::ids::RegionId;
use cadastre_core::mark::Generation;

use super::marks::{
    Door, Mark, Marks, NS, REGIONS, ROSTER, Roster, keep_higher, keep_known, name, region_named, store_id,
};
use super::rules::{Rule, Rules};
use super::state::{Ledger, Testimony, Then, Violation, World};

impl Ledger {
    /// Keeps what others know of this store.
    pub fn keep_seen(&mut self, heard: &Marks, rules: Rules) {
        if rules.has(Rule::SeenKeepsBound) {
            keep_known(&mut self.seen, heard);
        } else {
            keep_higher(&mut self.seen, heard);
        }
    }
}

impl World {
    fn ledger(&mut self, authority: usize) -> &mut Ledger {
        let store = self.authorities[authority].store;
        &mut self.stores[store].ledger
    }

    fn ledger_of(&self, authority: usize) -> &Ledger {
        &self.stores[self.authorities[authority].store].ledger
    }

    /// Judges the store at a start.
    pub fn start(&mut self, authority: usize) {
        let store = self.authorities[authority].store;
        self.authorities[authority].started = self.stores[store].started;
        self.authorities[authority].may_fill = false;
        self.authorities[authority].read_before = None;
        let rules = self.rules();
        let ledger = &self.stores[store].ledger;
        let named = self.witness.marks;
        let found: Option<Vec<bool>> = named.map(|marks| {
            let scopes = [NS, ROSTER].into_iter();
            scopes.filter_map(|s| marks[s].map(|m| ledger.is_current(s, &m, rules))).collect()
        });
        let mut verdict = match at_start(self.setup.mode, found.as_deref()) {
            // A doubt that was not ended before this start is still a doubt.
            Start::Agreed if ledger.door == Door::Back => Start::WentBack,
            verdict => verdict,
        };
        if !rules.has(Rule::EmptyWitnessNotRefilled) && self.setup.mode == WitnessMode::Required && named.is_none() {
            self.witness.marks = Some(ledger.marks.map(Some));
            verdict = Start::Agreed;
        }
        if !rules.has(Rule::StartIsSuspect) && matches!(verdict, Start::Suspect(_)) {
            verdict = Start::Agreed;
        }
        let (door, why) = match verdict {
            Start::Agreed => (Door::Open, "the witness agrees"),
            Start::Suspect(why) => (Door::Suspect, why),
            Start::WentBack => (Door::Back, "the witness names a row that this store lacks"),
        };
        self.say(|| format!("  authority {authority} judges store {store} at its start: {door:?}, {why}"));
        self.alarm(door);
        let marks = self.open_generation(authority, door, &[]);
        if door == Door::Open {
            self.take_off(authority, marks, Then::Nothing);
        }
    }

    /// Proof is only ever claimed where something was put back.
    fn alarm(&mut self, door: Door) {
        if door == Door::Back && !self.lost && self.violation.is_none() {
            self.violation = Some(Violation::FalseAlarm);
        }
    }

    /// A new generation above all that were seen, over every scope.
    fn open_generation(&mut self, authority: usize, door: Door, seen: &[Generation]) -> Marks {
        let witnessed: Vec<Generation> = self.witness.marks.iter().flatten().flatten().map(|m| m.generation).collect();
        let heeded = self.rules().has(Rule::GenerationAboveWitness);
        let random = self.fresh();
        let rows = [self.fresh(), self.fresh()];
        let empty = self.witness.marks.is_none();
        let ledger = self.ledger(authority);
        let above = seen.iter().copied().chain([ledger.generation()]);
        let above = above.chain(witnessed.into_iter().filter(|_| heeded));
        let generation = Generation::above(above, random << 1).unwrap_or_default();
        for scope in [NS, ROSTER] {
            let old = ledger.marks[scope];
            let seq = old.seq + 1;
            let bound = if scope == ROSTER { seq } else { old.bound };
            ledger.marks[scope] = Mark { generation, seq, row: rows[scope], bound };
            ledger.rows.push(rows[scope]);
            if door == Door::Open {
                ledger.base[scope] = bound;
            }
        }
        (ledger.door, ledger.opened_empty) = (door, empty);
        let marks = ledger.marks.map(Some);
        let me = &mut self.authorities[authority];
        (me.verified, me.door) = (generation, door);
        marks
    }

    /// Puts everything into quarantine, or turns a suspicion into proof.
    pub fn quarantine(&mut self, authority: usize, back: bool, why: &str, seen: &[Generation]) {
        self.alarm(if back { Door::Back } else { Door::Suspect });
        let door = if back { Door::Back } else { Door::Suspect };
        self.open_generation(authority, door, seen);
        self.authorities[authority].may_fill = false;
        let generation = self.authorities[authority].verified.counter;
        self.say(|| format!("  authority {authority}: quarantine, generation {generation}: {why}"));
    }

    /// Quarantine because of a message, unless it is one already for as good a reason.
    pub fn doubt(&mut self, authority: usize, back: bool, why: &str, seen: Generation) {
        let me = &self.authorities[authority];
        let known = me.door != Door::Open && seen <= me.verified && (!back || me.door == Door::Back);
        if !known {
            let back = back || me.door == Door::Back;
            self.quarantine(authority, back, why, &[seen]);
        }
    }

    /// Looks again at the rows: another process may have closed, lifted, or opened a generation.
    pub fn refresh(&mut self, authority: usize) {
        let rules = self.rules();
        let ledger = self.ledger_of(authority);
        let (generation, door) = (ledger.generation(), ledger.door);
        let named = self.witness.marks.unwrap_or([None, None]);
        let lacks = [NS, ROSTER].iter().any(|s| named[*s].is_some_and(|m| !ledger.is_current(*s, &m, rules)));
        let required = self.setup.mode == WitnessMode::Required && rules.has(Rule::WitnessHeeded);
        if door == Door::Open && lacks && required {
            self.quarantine(authority, true, "the witness names a row that this store lacks", &[]);
            return;
        }
        let me = &mut self.authorities[authority];
        me.may_fill &= generation == me.verified;
        (me.verified, me.door) = (generation, door);
    }

    /// Takes a complete testimony for the generation that was asked for.
    pub fn testify(&mut self, authority: usize, region: usize, testimony: &Testimony) {
        let rules = self.rules();
        let me = &self.authorities[authority];
        if me.door == Door::Open {
            return;
        }
        if testimony.generation != me.verified && rules.has(Rule::TestimonyOfGeneration) {
            return;
        }
        let ledger = self.ledger(authority);
        ledger.keep_seen(&testimony.marks, rules);
        ledger.roster.unite(&testimony.roster);
        ledger.testimony[region] = Some(testimony.clone());
        self.say(|| format!("  authority {authority} has the testimony of {}: {}", name(region), testimony.bound));
    }

    /// Ends the quarantine if it may end.
    pub fn settle(&mut self, authority: usize) {
        if self.authorities[authority].door == Door::Open {
            return;
        }
        self.refresh(authority);
        if self.authorities[authority].door == Door::Open {
            return;
        }
        let lost = self.witness.marks.is_none() && !self.ledger_of(authority).opened_empty;
        if lost && self.setup.mode == WitnessMode::Required && self.rules().has(Rule::EmptyWitnessReopens) {
            let back = self.authorities[authority].door == Door::Back;
            return self.quarantine(authority, back, "the witness was lost", &[]);
        }
        let verdict = self.judge(authority);
        match verdict {
            Exit::ByWitness | Exit::RaisedToWitness => self.lift(authority, false, &verdict),
            Exit::ByTestimony | Exit::ByOperator => self.lift(authority, true, &verdict),
            Exit::Reopen => {
                let back = self.authorities[authority].door == Door::Back;
                self.quarantine(authority, back, "the witness is of a higher generation", &[]);
            }
            Exit::Waiting { .. } => {}
        }
    }

    /// The shipped verdict on the evidence.
    fn judge(&self, authority: usize) -> Exit {
        let rules = self.rules();
        let me = &self.authorities[authority];
        let (ledger, generation) = (self.ledger_of(authority), me.verified);
        let named = self.witness.marks;
        let roster = ledger.roster.core();
        let of_generation = |t: &&Testimony| t.generation == generation || !rules.has(Rule::TestimonyOfGeneration);
        let mut testimony = BTreeMap::new();
        for (n, t) in ledger.testimony.iter().enumerate() {
            let Some(t) = t.as_ref().filter(of_generation) else { continue };
            let bounds = BTreeMap::from([(name(0).clone(), u64::from(t.bound))]);
            let core = CoreTestimony { epoch: t.epoch, store: store_id(t.store), generation, bounds };
            testimony.insert(RegionId(n as u32), core);
        }
        let waited = self.waited(ledger, generation);
        let stated = self.stated(ledger, generation, waited);
        let current = |m: Marks| [NS, ROSTER].iter().all(|s| m[*s].is_none_or(|m| ledger.is_current(*s, &m, rules)));
        let highest = |m: Marks| m.iter().flatten().map(|m| m.generation).max().unwrap_or_default();
        let above = |g: Generation| if rules.has(Rule::GenerationAboveWitness) { g } else { Generation::default() };
        let verdict = exit(&QuarantineView {
            generation,
            went_back: ledger.door == Door::Back,
            mode: self.setup.mode,
            witness: named.map(|m| (above(highest(m)), current(m))),
            roster: &roster,
            testimony: &testimony,
            stated: &stated,
            witness_has_marks: named.is_some_and(|m| self.holds_roster(ledger, generation, m[ROSTER])),
            overruled: waited,
        });
        match verdict {
            Exit::Waiting { silent } if !rules.has(Rule::TestimonyComplete) && !testimony.is_empty() => {
                let _ = silent;
                Exit::ByTestimony
            }
            verdict => verdict,
        }
    }

    /// Whether the roster that the witness names is known here: its row, or all that was written up to it by
    /// the word of a region that holds it.
    fn holds_roster(&self, ledger: &Ledger, generation: Generation, named: Option<Mark>) -> bool {
        let Some(named) = named else { return false };
        if !self.rules().has(Rule::ExitTwoHoldsRoster) || ledger.is_current(ROSTER, &named, self.rules()) {
            return true;
        }
        let heard = ledger.testimony.iter().flatten().filter(|t| t.generation == generation);
        heard.filter_map(|t| t.marks[ROSTER]).any(|m| m.version() >= named.version())
    }

    /// Whether an operator's word is old enough.
    fn waited(&self, ledger: &Ledger, generation: Generation) -> bool {
        let rules = self.rules();
        ledger.stopped.is_some_and(|(g, at)| {
            let of_generation = g == generation || !rules.has(Rule::StatedOfGeneration);
            of_generation && (self.now > at || !rules.has(Rule::OperatorWaits))
        })
    }

    fn stated(
        &self,
        ledger: &Ledger,
        generation: Generation,
        waited: bool,
    ) -> BTreeMap<RegionId, BTreeMap<cadastre_core::ids::Name, u64>> {
        let kept = !self.rules().has(Rule::StatedOfGeneration);
        let mut stated = BTreeMap::new();
        for (n, word) in ledger.stated.iter().enumerate() {
            let Some((g, bound)) = word else { continue };
            if waited && (*g == generation || kept) {
                stated.insert(RegionId(n as u32), BTreeMap::from([(name(0).clone(), u64::from(*bound))]));
            }
        }
        stated
    }

    /// The highest ordinal that anybody is known to hold.
    pub fn known_bound(&self, ledger: &Ledger) -> u32 {
        let marks = [self.witness.marks.and_then(|m| m[NS]), ledger.seen[NS]];
        let marks = marks.into_iter().flatten().map(|m| u64::from(m.bound));
        let testified = ledger.testimony.iter().flatten().map(|t| u64::from(t.bound));
        let stated = ledger.stated.iter().flatten().map(|(_, bound)| u64::from(*bound));
        let bound = raise_to(u64::from(ledger.marks[NS].bound), marks.chain(testified).chain(stated));
        u32::try_from(bound).unwrap_or(u32::MAX)
    }

    /// One transaction: past everything that is known, and that as the generation's base.
    fn lift(&mut self, authority: usize, may_fill: bool, by: &Exit) {
        let bound = self.known_bound(self.ledger_of(authority));
        let rows = [self.fresh(), self.fresh()];
        let named = self.witness.marks.unwrap_or([None, None]);
        let generation = self.authorities[authority].verified;
        let holders = self.rules().has(Rule::HolderIsEstablished);
        let ledger = self.ledger(authority);
        for (held, testimony) in ledger.held.iter_mut().zip(&ledger.testimony) {
            *held |= holders && testimony.as_ref().is_some_and(|t| t.bound > 0);
        }
        let entries = entries_seq(&ledger.roster);
        for scope in [NS, ROSTER] {
            let heard = [named[scope], ledger.seen[scope]].into_iter().flatten().map(|m| m.seq).max();
            let floor = if scope == ROSTER { entries } else { 0 };
            let seq = ledger.marks[scope].seq.max(heard.unwrap_or(0)).max(floor) + 1;
            let bound = if scope == ROSTER { seq } else { bound };
            ledger.marks[scope] = Mark { generation, seq, row: rows[scope], bound };
            ledger.base[scope] = bound;
            ledger.rows.push(rows[scope]);
        }
        ledger.door = Door::Open;
        let marks = ledger.marks.map(Some);
        let me = &mut self.authorities[authority];
        (me.door, me.may_fill) = (Door::Open, may_fill);
        self.store_back = false;
        self.lifted(by);
        self.say(|| format!("  authority {authority} lifts the quarantine at {bound}: {by:?}"));
        self.take_off(authority, marks, Then::Nothing);
    }

    fn lifted(&mut self, by: &Exit) {
        let at = match by {
            Exit::ByWitness => 0,
            Exit::RaisedToWitness => 1,
            Exit::ByTestimony => 2,
            Exit::ByOperator => 3,
            Exit::Reopen | Exit::Waiting { .. } => return,
        };
        self.log.1[at] += 1;
    }

    /// Regions that a quarantine waits for.
    #[must_use]
    pub fn silent(&self, authority: usize) -> Vec<usize> {
        match self.judge(authority) {
            Exit::Waiting { silent } => silent.iter().filter_map(region_named).collect(),
            _ => vec![],
        }
    }
}

fn entries_seq(roster: &Roster) -> u32 {
    let regions = (0..REGIONS).filter_map(|n| roster.regions[n]).map(|r| r.version.1);
    regions.chain([roster.definitions.version.1]).max().unwrap_or(0)
}
