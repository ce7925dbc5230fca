//! Liveness: the faults stop, everyone can be reached, and every live region gets a fresh grant.
//!
//! What only an operator can do is left to one after half of the rounds: recover who is fenced, state
//! the bound of a region whose own store went back in the middle of a quarantine. A region that gets
//! nothing even then is a wedge.

use cadastre_core::registry::RegionState;

use super::marks::{Door, REGIONS, RegionRow};
use super::state::{Violation, World};

/// Rounds of everyone speaking once.
pub const ROUNDS: usize = 24;

impl World {
    /// Lets the world come to rest and judges it.
    pub fn come_to_rest(&mut self) {
        self.say(|| "--- the faults stop".to_owned());
        self.now += 1;
        self.net.clear();
        let current = self.current;
        for n in 0..self.authorities.len() {
            self.authorities[n].flights.clear();
            if self.authorities[n].store != current {
                self.restart(n, current);
            }
        }
        self.setup.faults.bounds = true;
        let before: Vec<u32> = self.regions.iter().map(|r| r.adopted).collect();
        for round in 0..ROUNDS {
            for region in 0..REGIONS {
                self.settle_region(region, round);
                if self.violation.is_some() {
                    return;
                }
            }
            if round >= ROUNDS / 3 && round % 4 == 0 {
                self.operator_helps();
            }
            if (0..REGIONS).all(|n| self.regions[n].adopted > before[n] || !self.lives(n)) {
                return;
            }
        }
        let left = (0..REGIONS).find(|n| self.regions[*n].adopted <= before[*n] && self.lives(*n));
        self.violation = left.map(Violation::Wedge);
    }

    /// Who should get something: in the roster, not retired; alive by its own store.
    fn lives(&self, region: usize) -> bool {
        let ledger = &self.stores[self.current].ledger;
        let it = &self.regions[region];
        let listed = ledger.roster.regions[region];
        // A region whose registration is lost altogether is told so, and has to be registered again.
        let life = listed.map(|r| r.life.0);
        it.exists && !it.retired && !matches!(life, None | Some(RegionState::Retired))
    }

    fn settle_region(&mut self, region: usize, round: usize) {
        let authority = round % self.authorities.len();
        self.fly_all();
        let it = &self.regions[region];
        if !it.exists || it.retired {
            return;
        }
        // Of copies that live side by side one is left; supervisors start what ended.
        let Some(agent) = it.agents.iter().position(|a| a.alive) else {
            let copy = it.copies.len() - 1;
            self.start_agent(region, copy);
            return;
        };
        for other in agent + 1..it.agents.len() {
            if !self.setup.shared {
                self.regions[region].agents[other].alive = false;
            }
        }
        // What it holds is used up, so that it asks.
        self.round(region, agent, authority, true);
    }

    fn operator_helps(&mut self) {
        for authority in 0..self.authorities.len() {
            if self.authorities[authority].door == Door::Open {
                for region in 0..REGIONS {
                    let row = self.stores[self.current].ledger.roster.regions[region];
                    if row.is_some_and(|r| matches!(r.life.0, RegionState::Fenced | RegionState::Draining)) {
                        self.recover(authority, region, false);
                    }
                    // That it was retired was forgotten.
                    if self.regions[region].retired && row.is_some_and(|r| r.life.0 != RegionState::Retired) {
                        self.retire(authority, region);
                    }
                    // The leave to join with a new store was forgotten.
                    let store = self.regions[region].copies.last().map(|c| c.store);
                    let row = self.stores[self.current].ledger.roster.regions[region];
                    let waits = |r: &RegionRow| r.store.is_some() && r.store != store && !r.rejoin;
                    if self.lives(region) && row.is_some_and(|r| waits(&r)) {
                        self.recover(authority, region, true);
                    }
                }
                self.fly_all();
                continue;
            }
            self.settle(authority);
            self.stop_old(authority);
            self.now += 1;
            for region in self.silent(authority) {
                let it = &self.regions[region];
                let back = it.copies.iter().any(|c| c.door == Door::Back);
                let mute = it.copies.iter().all(|c| c.standing.is_none());
                let bound = self.stores[self.current].ledger.roster.regions[region].and_then(|r| r.store);
                let other = it.copies.iter().all(|c| Some(c.store) != bound);
                if back || mute || other || it.retired || !it.exists {
                    self.state_bound(authority, region, false);
                }
            }
            self.settle(authority);
            self.fly_all();
        }
    }

    /// Nobody pauses any more.
    fn fly_all(&mut self) {
        for authority in 0..self.authorities.len() {
            self.fly(authority);
        }
    }
}
