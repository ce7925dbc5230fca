//! What goes wrong: copies put back, standbys promoted, witnesses lost, processes copied.
//!
//! The limits that the protocol states beside its promise are conditions here, by name, so that what
//! is excused can be read: a fault that a limit excuses simply does not happen.

use cadastre_core::continuity::WitnessMode;

use super::marks::{Door, name};
use super::rules::Rule;
use super::state::{Authority, RegionLedger, Store, World};

impl World {
    /// **Limit**: a required witness put back together with its store. The store goes back only when the
    /// witness is not itself behind.
    fn witness_is_behind(&self) -> bool {
        self.witness.behind
    }

    /// **Limit**: a witness put back while two copies of the store have live authorities, or while the
    /// store itself is back and nobody has settled it.
    fn two_copies_live(&self) -> bool {
        self.store_back || self.authorities.iter().any(|a| a.store != self.current)
    }

    /// **Limit**: a region without a witness put back to a copy younger than its last heartbeat. The
    /// authority must hold a row of the store that the copy lacks.
    fn younger_than_heartbeat(&self, region: usize) -> bool {
        let Some(backup) = &self.regions[region].backup else { return true };
        if self.setup.region_witness == WitnessMode::Required {
            return false;
        }
        let kept = self.stores[self.current].ledger.kept[region].as_ref().filter(|k| k.store == backup.store);
        kept.is_none_or(|k| backup.has_row(k.mark.row))
    }

    /// A backup of the authority's store is taken.
    pub fn back_up(&mut self) {
        self.backup = Some(self.stores[self.current].ledger.clone());
    }

    /// The standby catches up.
    pub fn replicate(&mut self, store: usize) {
        if let Some(it) = self.stores.get_mut(store)
            && it.standby.is_some()
        {
            it.standby = Some(it.ledger.clone());
        }
    }

    /// The store is put back to its backup; processes are restarted, or the database is restarted under them.
    pub fn restore(&mut self, living: bool) {
        if !self.setup.faults.store_back || self.witness_is_behind() {
            return;
        }
        let Some(backup) = self.backup.clone() else { return };
        let current = self.current;
        self.say(|| format!("RESTORE of store {current} to its backup, processes living: {living}"));
        self.stores[current].ledger = backup.clone();
        self.stores[current].standby = Some(backup);
        self.stores[current].started += 1;
        (self.lost, self.store_back) = (true, true);
        for n in 0..self.authorities.len() {
            if self.authorities[n].store == current && !living {
                self.restart(n, current);
            }
        }
    }

    /// A standby, as far as it has come, becomes the store; the old one and its processes may live on.
    pub fn promote(&mut self, authority: usize, all: bool) {
        if !self.setup.faults.promote || self.stores.len() > 2 || self.witness_is_behind() {
            return;
        }
        let Some(ledger) = self.stores[self.current].standby.take() else { return };
        let standby = Some(ledger.clone());
        self.backup = Some(ledger.clone());
        let started = 100 * u32::try_from(self.stores.len()).unwrap_or(1);
        self.stores.push(Store { ledger, standby, started });
        self.current = self.stores.len() - 1;
        (self.lost, self.store_back) = (true, true);
        let current = self.current;
        self.say(|| format!("PROMOTION of a standby as store {current}, old processes stopped: {all}"));
        for n in 0..self.authorities.len() {
            if n == authority || all {
                self.restart(n, current);
            }
        }
    }

    /// A process ends and another one starts in its place.
    pub fn restart(&mut self, authority: usize, store: usize) {
        self.authorities[authority] = Authority {
            store,
            started: 0,
            verified: Default::default(),
            door: Door::Suspect,
            may_fill: false,
            flights: vec![],
            read_before: None,
        };
        self.say(|| format!("restart of authority {authority} on store {store}"));
        self.start(authority);
    }

    /// The witness is lost.
    pub fn lose_witness(&mut self) {
        if self.setup.faults.witness_lost && self.setup.mode != WitnessMode::None {
            self.witness.marks = None;
            self.witness.behind = false;
            self.say(|| "the witness is LOST".to_owned());
        }
    }

    /// The witness is put back to older marks.
    pub fn put_witness_back(&mut self) {
        if !self.setup.faults.witness_back || self.two_copies_live() {
            return;
        }
        let Some(saved) = self.witness.saved else { return };
        self.witness.behind = saved != self.stores[self.current].ledger.marks.map(Some);
        self.witness.marks = Some(saved);
        self.say(|| "the witness is PUT BACK to older marks".to_owned());
    }

    /// A region's store is put back and its agents started anew.
    pub fn put_region_back(&mut self, region: usize) {
        if !self.setup.faults.region_back || !self.regions[region].exists || self.younger_than_heartbeat(region) {
            return;
        }
        let Some(backup) = self.regions[region].backup.clone() else { return };
        let Some(copy) = self.regions[region].copies.iter().position(|c| c.store == backup.store) else { return };
        for agent in self.regions[region].agents.iter_mut().filter(|a| a.copy == copy) {
            agent.alive = false;
        }
        self.regions[region].copies[copy] = backup;
        self.say(|| format!("the store of {} is PUT BACK", name(region)));
        self.start_agent(region, copy);
    }

    /// A copy of a region's embedded store is started beside it, its witness with it or not.
    ///
    /// **Limit**: two copies with a witness each, while the region is cut off. Here a copy in another place always
    /// waits for the authority's next epoch.
    pub fn clone_region(&mut self, region: usize, whole: bool) {
        let it = &self.regions[region];
        let may = self.setup.faults.region_clone && it.exists && it.copies.len() < 2;
        if !may || self.setup.shared || self.younger_than_heartbeat(region) {
            return;
        }
        let whole = whole && self.setup.region_witness == WitnessMode::Required;
        let of_now = Some(&it.copies[0]).filter(|_| whole).cloned();
        let Some(copied) = of_now.or_else(|| it.backup.clone()).filter(|b| b.store == it.copies[0].store) else {
            return;
        };
        let away = self.rules().has(Rule::CopyBurns);
        let it = &mut self.regions[region];
        it.copied_witness = whole.then_some(it.witness);
        it.copies.push(RegionLedger { away, ..copied });
        let copy = it.copies.len() - 1;
        self.say(|| format!("a COPY of the store of {} is started, with a copy of its witness: {whole}", name(region)));
        self.start_agent(region, copy);
    }

    /// A process is copied with its memory and its store, and both go on.
    ///
    /// **Limit**: one memory image resumed twice before either makes its next request: what it held then, and
    /// one replayed range, are excused.
    pub fn copy_process(&mut self, region: usize, agent: usize) {
        let it = &self.regions[region];
        let Some(me) = it.agents.get(agent).filter(|a| a.alive).cloned() else { return };
        if !self.setup.faults.twins || it.copies.len() > 1 || self.setup.shared {
            return;
        }
        let store = it.copies[me.copy].clone();
        let held = store.holdings.iter().map(|h| (h.carved_to, h.hi));
        let held: Vec<_> = held.chain(me.segment.iter().map(|s| (s.next, s.hi))).collect();
        self.exposed.excused.extend(held);
        let it = &mut self.regions[region];
        it.copied_pending = store.pending.iter().map(|p| p.allocation).collect();
        it.copies.push(store);
        let copy = it.copies.len() - 1;
        it.agents.push(super::state::Agent { copy, ..me });
        it.agents.iter_mut().for_each(|a| a.answered = false);
        it.heard.clear();
        self.say(|| format!("{} agent {agent} is COPIED with its memory and its store", name(region)));
    }

    /// A process of a region is killed, and one is started on its store.
    pub fn restart_agent(&mut self, region: usize, agent: usize) {
        let it = &mut self.regions[region];
        let Some(me) = it.agents.get_mut(agent).filter(|_| it.exists) else { return };
        let copy = me.copy;
        let was_alive = std::mem::replace(&mut me.alive, false);
        if was_alive || !self.regions[region].agents.iter().any(|a| a.alive && a.copy == copy) {
            self.say(|| format!("{} agent {agent} is killed", name(region)));
            self.start_agent(region, copy);
        }
    }

    /// A region's own witness is lost.
    pub fn lose_region_witness(&mut self, region: usize) {
        if self.setup.faults.region_witness_lost && self.regions[region].witness.take().is_some() {
            self.say(|| format!("the witness of {} is LOST", name(region)));
        }
    }

    /// The store of a region is gone for good: an empty one takes its place.
    pub fn replace_region_store(&mut self, region: usize) {
        self.regions[region].agents.clear();
        self.regions[region].heard.clear();
        let store = self.fresh();
        let empty = self.empty_region(store, None);
        self.regions[region].witness = (self.setup.region_witness == WitnessMode::Required).then_some(empty.mark);
        self.regions[region].backup = None;
        self.regions[region].copied_witness = None;
        self.regions[region].copies = vec![empty];
        self.say(|| format!("{} has an empty store {store}", name(region)));
        self.start_agent(region, 0);
    }
}
