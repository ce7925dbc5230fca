//! The gate: **row committed -> proof -> witness -> answer**, for first answers and replays alike.
//!
//! Each arrow is a step of its own, so that everything can happen in between: a crash, a restore, a
//! quarantine by another process, a loss of the witness. The verdict is the shipped
//! [`cadastre_core::continuity::gate`].

use cadastre_core::continuity::{Gate, GateView, WitnessMode, gate};

use super::marks::{Door, Mark, Marks, NS, ROSTER, contains, keep_higher, view};
use super::rules::Rule;
use super::state::{Flight, Ledger, Stage, Then, Violation, World};

impl World {
    /// Puts committed rows on their way.
    pub fn take_off(&mut self, authority: usize, marks: Marks, then: Then) {
        let flight = Flight { marks, stage: Stage::Committed, then, uncommitted: None };
        self.authorities[authority].flights.push(flight);
    }

    /// One step of one flight.
    pub fn step_gate(&mut self, authority: usize, flight: usize) {
        if flight >= self.authorities[authority].flights.len() {
            return;
        }
        let mut it = self.authorities[authority].flights.remove(flight);
        let next = match it.stage.clone() {
            Stage::Committed if self.proved(authority, &it) => Next::Stage(Stage::Proved),
            Stage::Committed => Next::Stage(Stage::Committed),
            Stage::Proved => Next::Stage(Stage::Read(self.witness.marks)),
            Stage::Read(read) => self.look(authority, &mut it, read),
            Stage::Raise(read) => self.raise(authority, &mut it, read),
        };
        match next {
            Next::Dropped => {}
            Next::Passed => {
                let followed = self.stores[self.authorities[authority].store].standby.is_some();
                if followed && !self.on_standby(authority, &it) {
                    self.violate(Violation::Broken("A2: an answer leaves before the standby has its row"));
                }
                self.passed(authority, it.then);
            }
            Next::Stage(stage) => {
                it.stage = stage;
                let at = flight.min(self.authorities[authority].flights.len());
                self.authorities[authority].flights.insert(at, it);
            }
        }
    }

    /// Whether every row is on the standby, where one is required.
    fn proved(&self, authority: usize, flight: &Flight) -> bool {
        !self.rules().has(Rule::SyncProof) || self.on_standby(authority, flight)
    }

    fn on_standby(&self, authority: usize, flight: &Flight) -> bool {
        if !self.setup.sync {
            return true;
        }
        let store = &self.stores[self.authorities[authority].store];
        let standby = store.standby.as_ref();
        flight.marks.iter().flatten().all(|m| standby.is_some_and(|s| s.has_row(m.row)))
    }

    /// Reads the store and judges.
    fn look(&mut self, authority: usize, flight: &mut Flight, read: Option<Marks>) -> Next {
        if flight.uncommitted.is_some() {
            return Next::Stage(Stage::Raise(read));
        }
        let mut raise = false;
        for scope in [NS, ROSTER] {
            let Some(ours) = flight.marks[scope] else { continue };
            match self.verdict(authority, scope, &ours, read) {
                Gate::Answer => {}
                Gate::Raise => raise = true,
                Gate::Drop => {
                    self.say(|| format!("  authority {authority}: the scope moved, the answer is dropped"));
                    return Next::Dropped;
                }
                // A process of the model does not remember what it let out: the verdict is the other one's.
                Gate::Anew(why) | Gate::Suspect(why) => {
                    self.quarantine(authority, false, why, &[]);
                    return Next::Dropped;
                }
                Gate::WentBack(why) => {
                    self.quarantine(authority, true, why, &[]);
                    return Next::Dropped;
                }
            }
        }
        if !raise || self.setup.mode == WitnessMode::None {
            return Next::Passed;
        }
        if !self.rules().has(Rule::WitnessBeforeAnswer) {
            let then = std::mem::replace(&mut flight.then, Then::Nothing);
            self.passed(authority, then);
        }
        Next::Stage(Stage::Raise(read))
    }

    fn verdict(&self, authority: usize, scope: usize, ours: &Mark, read: Option<Marks>) -> Gate {
        let rules = self.rules();
        let me = &self.authorities[authority];
        let ledger = &self.stores[me.store].ledger;
        let mode = if rules.has(Rule::WitnessHeeded) { self.setup.mode } else { self.heedless() };
        match judge(ledger, scope, ours, mode, read, me.may_fill, rules) {
            Gate::Drop | Gate::WentBack(_) if !rules.has(Rule::StoreReadAtGate) => Gate::Raise,
            Gate::Suspect(_) if !rules.has(Rule::EmptyWitnessNotRefilled) && read.is_none() => Gate::Raise,
            verdict => verdict,
        }
    }

    /// Without the rule, the witness is raised and otherwise not looked at.
    fn heedless(&self) -> WitnessMode {
        match self.setup.mode {
            WitnessMode::None => WitnessMode::None,
            WitnessMode::BestEffort | WitnessMode::Required => WitnessMode::BestEffort,
        }
    }

    /// Compare-and-set: nothing is written where the witness moved since it was read.
    fn raise(&mut self, authority: usize, flight: &mut Flight, read: Option<Marks>) -> Next {
        if self.witness.marks != read {
            return Next::Stage(Stage::Proved);
        }
        let store = self.authorities[authority].store;
        let mut marks = read.unwrap_or([None, None]);
        if read.is_none() {
            // Filled with the marks of every scope, and that is recorded.
            marks = self.stores[store].ledger.marks.map(Some);
            self.stores[store].ledger.has_witness = true;
            self.authorities[authority].may_fill = false;
            self.say(|| format!("  authority {authority} fills the empty witness"));
        }
        keep_higher(&mut marks, &flight.marks);
        self.witness.marks = Some(marks);
        if marks == self.stores[self.current].ledger.marks.map(Some) {
            self.witness.behind = false;
        }
        if let Some(committed) = flight.uncommitted.take() {
            self.commit_late(store, *committed);
        }
        // Done: a second look would find the witness at our mark.
        Next::Stage(Stage::Proved)
    }

    /// Only where a rule is out: the commit comes after the witness, and may fail.
    fn commit_late(&mut self, store: usize, committed: Ledger) {
        let now = &mut self.stores[store].ledger;
        let before = committed.rows.len().saturating_sub(2);
        if now.rows.last() == committed.rows.get(before) {
            *now = committed;
        }
    }

    fn passed(&mut self, authority: usize, then: Then) {
        match then {
            Then::Nothing => {}
            Then::Compose(request, reply) => self.compose(authority, *request, *reply),
            Then::Send(reply) => self.net.push(super::message::Message::Reply(reply)),
        }
    }

    /// Runs one flight to its end, as far as it goes by itself.
    pub fn fly(&mut self, authority: usize) {
        for _ in 0..24 {
            let store = self.authorities[authority].store;
            if self.setup.sync {
                self.replicate(store);
            }
            if self.authorities[authority].flights.is_empty() {
                return;
            }
            self.step_gate(authority, 0);
        }
    }
}

/// What one step came to.
enum Next {
    Stage(Stage),
    Dropped,
    Passed,
}

/// The shipped verdict for one scope.
fn judge(
    ledger: &Ledger,
    scope: usize,
    ours: &Mark,
    mode: WitnessMode,
    read: Option<Marks>,
    may_fill: bool,
    rules: super::rules::Rules,
) -> Gate {
    let now = view(ledger.door, &ledger.marks[scope], ledger.base[scope]);
    let named = read.and_then(|m| m[scope]);
    let (core_ours, core_named) = (ours.core(), named.map(|m| m.core()));
    let found = named.map(|m| ledger.is_current(scope, &m, rules));
    gate(&GateView {
        ours: &core_ours,
        now: &now,
        same_server: true,
        has_ours: ledger.has_row(ours.row),
        mode,
        witness_empty: read.is_none(),
        witness: core_named.as_ref().zip(found),
        witness_older: false,
        may_fill,
    })
}

impl Ledger {
    /// Whether this store is current with a mark: the shipped [`contains`], unless a rule is out.
    pub fn is_current(&self, scope: usize, mark: &Mark, rules: super::rules::Rules) -> bool {
        let ours = &self.marks[scope];
        if !rules.has(Rule::MarkNamesRow) {
            return ours.version() >= mark.version();
        }
        let base = match scope {
            _ if !rules.has(Rule::BaseRecorded) => 0,
            _ if !rules.has(Rule::ComparedWithBase) => ours.bound,
            _ => self.base[scope],
        };
        let door: Door = self.door;
        contains(&view(door, ours, base), mark, self.has_row(mark.row))
    }
}
