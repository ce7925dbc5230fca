//! What operators do, and the one way to change the roster.
//!
//! Operators do what the protocol lets them: they may be slow, and read a bound from a copy that went
//! back itself; they do not lie about a live old store. A wrong bound that nothing contradicts is among
//! the stated limits and does not occur here.

use cadastre_core::ids::Epoch;
use cadastre_core::registry::{RegionEvent, RegionState};

use super::marks::{Door, Id, Life, Mark, Marks, NS, REGIONS, ROSTER, RegionRow, Roster, name};
use super::rules::Rule;
use super::state::{Then, World};

impl World {
    /// Decides on the roster as it is, writes it guarded, and sends it through the gate.
    fn change(&mut self, authority: usize, lock: bool, decide: impl FnOnce(&mut Roster, u32) -> bool) -> bool {
        if self.authorities[authority].door != Door::Open || !self.may_write(authority) {
            return false;
        }
        let rows = [self.fresh(), self.fresh()];
        let store = self.authorities[authority].store;
        let ledger = &mut self.stores[store].ledger;
        let was = ledger.marks[ROSTER];
        let seq = was.seq + 1;
        let mut roster = ledger.roster.clone();
        if !decide(&mut roster, ledger.marks[NS].bound) {
            return false;
        }
        let version = (was.generation, seq);
        stamp(&mut roster, &ledger.roster, version);
        ledger.roster = roster;
        ledger.marks[ROSTER] = Mark { generation: was.generation, seq, row: rows[ROSTER], bound: seq };
        if lock {
            let ns = ledger.marks[NS];
            ledger.marks[NS] = Mark { seq: ns.seq + 1, row: rows[NS], ..ns };
            ledger.rows.push(rows[NS]);
        }
        ledger.rows.push(rows[ROSTER]);
        let marks: Marks = [lock.then_some(ledger.marks[NS]), Some(ledger.marks[ROSTER])];
        self.take_off(authority, marks, Then::Nothing);
        true
    }

    /// Registers the next region.
    pub fn register(&mut self, authority: usize) {
        let Some(region) = (0..REGIONS).find(|n| !self.regions[*n].exists) else { return };
        let done = self.change(authority, false, |roster, _| {
            if roster.regions[region].is_some() {
                return false;
            }
            roster.regions[region] = Some(RegionRow {
                version: Default::default(),
                epoch: Epoch(1),
                life: Life(RegionState::Registered),
                store: None,
                founder: false,
                rejoin: false,
            });
            true
        });
        if done {
            self.regions[region].exists = true;
            self.say(|| format!("operator registers {}", name(region)));
        }
    }

    /// Binds a store to a region.
    pub fn join(&mut self, authority: usize, region: usize, store: Id, event: RegionEvent) {
        let done = self.change(authority, false, |roster, _| {
            let first = roster.regions.iter().flatten().all(|r| r.life.0 == RegionState::Registered);
            let Some(row) = &mut roster.regions[region] else { return false };
            let Ok((state, epoch)) = row.life.0.after(event, row.epoch) else { return false };
            (row.life, row.epoch, row.store) = (Life(state), epoch, Some(store));
            row.rejoin = false;
            row.founder |= first;
            true
        });
        if done {
            self.say(|| format!("  {} joins with store {store}", name(region)));
        }
    }

    /// One step of a region's life, by the shipped life cycle.
    pub fn region_event(&mut self, authority: usize, region: usize, event: RegionEvent, why: &str) -> bool {
        let done = self.change(authority, false, |roster, _| {
            let Some(row) = &mut roster.regions[region] else { return false };
            let Ok((state, epoch)) = row.life.0.after(event, row.epoch) else { return false };
            (row.life, row.epoch) = (Life(state), epoch);
            true
        });
        if done {
            self.say(|| format!("  authority {authority}: {event:?} of {}: {why}", name(region)));
        }
        done
    }

    /// Brings a region back, with leave for another store where the old one is gone for good.
    pub fn recover(&mut self, authority: usize, region: usize, new_store: bool) -> bool {
        let done = self.change(authority, false, |roster, _| {
            let Some(row) = &mut roster.regions[region] else { return false };
            if !(new_store && row.life.0.may_issue()) {
                let Ok((state, epoch)) = row.life.0.after(RegionEvent::Recover, row.epoch) else { return false };
                (row.life, row.epoch) = (Life(state), epoch);
            }
            row.rejoin = new_store;
            true
        });
        if done {
            self.say(|| format!("operator recovers {}, new store: {new_store}", name(region)));
        }
        done
    }

    /// Ends a region for good, once another holds what it holds.
    pub fn retire(&mut self, authority: usize, region: usize) {
        let ledger = &self.stores[self.authorities[authority].store].ledger;
        let Some(row) = ledger.roster.regions[region] else { return };
        let rules = self.rules();
        let (roster, namespace) = (ledger.roster_version(), ledger.marks[NS].version());
        let held = |other: usize| {
            let them = ledger.roster.regions[other];
            let lives = them.is_some_and(|r| r.life.0.may_issue());
            let stands = them.is_some_and(|r| r.founder) || ledger.established(other);
            let lives = lives && (stands || !rules.has(Rule::EstablishedRemains));
            let kept = ledger.kept[other].as_ref();
            let marks = !rules.has(Rule::RetireWaitsForMarks) || kept.is_some_and(|k| k.namespace >= namespace);
            other != region && lives && kept.is_some_and(|k| k.roster >= roster) && marks
        };
        let free = row.life.0 == RegionState::Registered || !rules.has(Rule::RetireWaits);
        if !free && !self.witnessed() && !(0..REGIONS).any(held) {
            return;
        }
        if self.region_event(authority, region, RegionEvent::Retire, "retired by an operator") {
            self.regions[region].retired = true;
        }
    }

    /// A new definition takes effect.
    pub fn define(&mut self, authority: usize) {
        let locked = self.rules().has(Rule::DefinitionLocked);
        let done = self.change(authority, true, |roster, watermark| {
            // Without the rule the watermark was read some time before.
            let from = if locked { watermark } else { watermark.saturating_sub(3) };
            let above = roster.definitions.from.last().is_none_or(|last| *last <= from);
            if above {
                roster.definitions.from.push(from);
                roster.definitions.version = (cadastre_core::mark::Generation::default(), u32::MAX);
            }
            above
        });
        if done {
            self.say(|| "operator changes the definition".to_owned());
        }
    }

    /// An operator stops the old store and every process on it, for good.
    pub fn stop_old(&mut self, authority: usize) {
        let current = self.current;
        if self.authorities[authority].store != current || self.authorities[authority].door == Door::Open {
            return;
        }
        for n in 0..self.authorities.len() {
            if self.authorities[n].store != current {
                self.authorities[n].store = current;
                self.authorities[n].flights.clear();
                self.start(n);
            }
        }
        self.refresh(authority);
        let generation = self.authorities[authority].verified;
        let at = self.now;
        self.stores[current].ledger.stopped = Some((generation, at));
        self.say(|| "operator: the old store and its authorities are stopped".to_owned());
    }

    /// An operator states the bound of a silent region: what it holds, or what a copy that went back says.
    pub fn state_bound(&mut self, authority: usize, region: usize, from_backup: bool) {
        self.settle(authority);
        let me = &self.authorities[authority];
        let ledger = &self.stores[me.store].ledger;
        if me.door == Door::Open || me.store != self.current || ledger.roster.regions[region].is_none() {
            return;
        }
        let rules = self.rules();
        let stopped = ledger.stopped.filter(|(g, _)| *g == me.verified || !rules.has(Rule::StatedOfGeneration));
        let Some((_, at)) = stopped else { return };
        let early = self.now <= at && rules.has(Rule::BoundReadAfterWait) && rules.has(Rule::OperatorWaits);
        if early {
            return;
        }
        let it = &self.regions[region];
        let truth = it.ever;
        let known = self.known_bound(ledger);
        let read = if from_backup { it.backup.as_ref().map_or(0, |b| b.top) } else { truth.max(known) };
        // Read from a copy that went back, and nothing contradicts it: among the limits.
        let limit = from_backup && read >= known && read < truth;
        if limit || (read < known && rules.has(Rule::StatedAboveKnown)) {
            return;
        }
        let generation = me.verified;
        if rules.has(Rule::OperatorStatesDefinition) {
            let known = it.copies.iter().map(|c| c.roster.definitions.clone()).max_by_key(|d| d.version);
            let ours = &mut self.stores[self.current].ledger.roster.definitions;
            if let Some(known) = known.filter(|d| d.version > ours.version) {
                *ours = known;
            }
        }
        self.stores[self.current].ledger.stated[region] = Some((generation, read));
        self.say(|| format!("operator states the bound {read} for {}", name(region)));
    }
}

/// Entries that changed bear the version of the transaction.
fn stamp(roster: &mut Roster, before: &Roster, version: super::marks::Version) {
    for (now, was) in roster.regions.iter_mut().zip(&before.regions) {
        if let Some(row) = now
            && Some(&*row) != was.as_ref()
        {
            row.version = version;
        }
    }
    if roster.definitions.version != before.definitions.version {
        roster.definitions.version = version;
    }
}
