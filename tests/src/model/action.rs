//! Everything that can happen, as values: a run is a list of them.
//!
//! An action names what it acts on by a number that is taken modulo what there is, so that a run from
//! which some actions were taken out is still a run. An action that cannot happen changes nothing.

use cadastre_core::registry::RegionEvent;

use super::message::Message;
use super::setup::Cost;
use super::state::World;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// An agent sends a message; with a want where it has none pending; altered: another size under the same id.
    Send {
        region: u8,
        agent: u8,
        wants: bool,
        altered: bool,
    },
    /// A message arrives, at whichever authority.
    Deliver {
        message: u8,
        authority: u8,
    },
    /// A message arrives and is still on its way.
    Double {
        message: u8,
        authority: u8,
    },
    /// A message is lost.
    Lose {
        message: u8,
    },
    /// An answer goes one step through the gate.
    Gate {
        authority: u8,
        flight: u8,
    },
    /// An answer does not: its wait was cancelled, or its connection lost.
    Cancel {
        authority: u8,
        flight: u8,
    },
    /// A whole exchange: message, gate, answer.
    Round {
        region: u8,
        agent: u8,
        authority: u8,
    },
    /// The beginning of one: some steps of the gate; the answer is taken, or on its way.
    Part {
        region: u8,
        agent: u8,
        authority: u8,
        steps: u8,
        take: bool,
    },
    /// Carve.
    Carve {
        region: u8,
        agent: u8,
    },
    /// Carve and expose.
    Issue {
        region: u8,
        agent: u8,
    },
    /// Expose.
    Expose {
        region: u8,
        agent: u8,
    },
    /// A request deadline passes.
    Deadline,
    /// Backup, restore, standby, promotion.
    BackUp,
    Restore {
        living: bool,
    },
    Replicate {
        store: u8,
    },
    Promote {
        authority: u8,
        all: bool,
    },
    /// An authority process ends and starts.
    Restart {
        authority: u8,
        current: bool,
    },
    /// The witness.
    SaveWitness,
    LoseWitness,
    PutWitnessBack,
    /// A region's store and processes.
    BackUpRegion {
        region: u8,
    },
    PutRegionBack {
        region: u8,
    },
    CloneRegion {
        region: u8,
        whole: bool,
    },
    CopyProcess {
        region: u8,
        agent: u8,
    },
    RestartAgent {
        region: u8,
        agent: u8,
    },
    LoseRegionWitness {
        region: u8,
    },
    /// Operators.
    Register {
        authority: u8,
    },
    Retire {
        authority: u8,
        region: u8,
    },
    Fence {
        authority: u8,
        region: u8,
    },
    Recover {
        authority: u8,
        region: u8,
        new_store: bool,
    },
    Define {
        authority: u8,
    },
    StopOld {
        authority: u8,
    },
    StateBound {
        authority: u8,
        region: u8,
        from_backup: bool,
    },
    /// Stops the old store and states the bounds of all who are silent; after a deadline, or at once.
    StateAll {
        authority: u8,
        from_backup: bool,
        wait: bool,
    },
}

fn pick(n: u8, of: usize) -> Option<usize> {
    (of > 0).then(|| usize::from(n) % of)
}

impl World {
    /// Applies an action.
    pub fn apply(&mut self, action: Action) {
        use Action as A;
        let a = |n: u8, w: &Self| usize::from(n) % w.authorities.len();
        let r = |n: u8, w: &Self| usize::from(n) % w.existing();
        match action {
            A::Send { region, agent, wants, altered } => {
                let region = r(region, self);
                if let Some(agent) = self.agent(region, agent) {
                    self.send(region, agent, wants, altered);
                }
            }
            A::Deliver { message, authority } => self.deliver(message, a(authority, self), false),
            A::Double { message, authority } => self.deliver(message, a(authority, self), true),
            A::Lose { message } => {
                if let Some(n) = pick(message, self.net.len()) {
                    self.net.remove(n);
                    self.say(|| "a message is lost".to_owned());
                }
            }
            A::Gate { authority, flight } => {
                let authority = a(authority, self);
                if let Some(n) = pick(flight, self.authorities[authority].flights.len()) {
                    self.step_gate(authority, n);
                }
            }
            A::Cancel { authority, flight } => {
                let authority = a(authority, self);
                self.cancel(authority, flight);
            }
            A::Round { region, agent, authority } => {
                let region = r(region, self);
                if let Some(agent) = self.agent(region, agent) {
                    self.round(region, agent, a(authority, self), true);
                }
            }
            A::Part { region, agent, authority, steps, take } => {
                let region = r(region, self);
                if let Some(agent) = self.agent(region, agent) {
                    self.part(region, agent, a(authority, self), steps, take);
                }
            }
            A::Carve { region, agent } => {
                let region = r(region, self);
                if let Some(agent) = self.agent(region, agent) {
                    self.write_carve(region, agent);
                    self.carve(region, agent);
                }
            }
            A::Issue { region, agent } => {
                let region = r(region, self);
                if let Some(agent) = self.agent(region, agent) {
                    self.write_carve(region, agent);
                    self.carve(region, agent);
                    self.expose(region, agent);
                }
            }
            A::Expose { region, agent } => {
                let region = r(region, self);
                if let Some(agent) = self.agent(region, agent) {
                    self.expose(region, agent);
                }
            }
            A::Deadline => {
                self.now += 1;
                self.say(|| "a request deadline passes".to_owned());
            }
            other => self.apply_fault(other),
        }
    }

    fn cancel(&mut self, authority: usize, flight: u8) {
        if let Some(n) = pick(flight, self.authorities[authority].flights.len()) {
            self.authorities[authority].flights.remove(n);
            self.say(|| format!("  authority {authority}: an answer is dropped at its gate"));
        }
    }

    fn apply_fault(&mut self, action: Action) {
        use Action as A;
        let a = |n: u8, w: &Self| usize::from(n) % w.authorities.len();
        let r = |n: u8, w: &Self| usize::from(n) % w.existing();
        match action {
            A::BackUp => self.back_up(),
            A::Restore { living } => self.restore(living),
            A::Replicate { store } => {
                let store = usize::from(store) % self.stores.len();
                self.replicate(store);
            }
            A::Promote { authority, all } => self.promote(a(authority, self), all),
            A::Restart { authority, current } => {
                let authority = a(authority, self);
                let store = if current { self.current } else { self.authorities[authority].store };
                self.restart(authority, store);
            }
            A::SaveWitness => self.witness.saved = self.witness.marks,
            A::LoseWitness => self.lose_witness(),
            A::PutWitnessBack => self.put_witness_back(),
            A::BackUpRegion { region } => {
                let region = r(region, self);
                self.regions[region].backup = Some(self.regions[region].copies[0].clone());
            }
            A::PutRegionBack { region } => self.put_region_back(r(region, self)),
            A::CloneRegion { region, whole } => self.clone_region(r(region, self), whole),
            A::CopyProcess { region, agent } => {
                let region = r(region, self);
                if let Some(agent) = self.agent(region, agent) {
                    self.copy_process(region, agent);
                }
            }
            A::RestartAgent { region, agent } => {
                let region = r(region, self);
                if let Some(agent) = pick(agent, self.regions[region].agents.len()) {
                    self.restart_agent(region, agent);
                }
            }
            A::LoseRegionWitness { region } => self.lose_region_witness(r(region, self)),
            other => self.apply_operator(other),
        }
    }

    fn apply_operator(&mut self, action: Action) {
        use Action as A;
        let a = |n: u8, w: &Self| usize::from(n) % w.authorities.len();
        let r = |n: u8, w: &Self| usize::from(n) % w.existing();
        let authority = match action {
            A::Register { authority }
            | A::Retire { authority, .. }
            | A::Fence { authority, .. }
            | A::Recover { authority, .. }
            | A::Define { authority }
            | A::StopOld { authority }
            | A::StateAll { authority, .. }
            | A::StateBound { authority, .. } => a(authority, self),
            _ => return,
        };
        self.identify(authority);
        // An operator speaks to the store that is held to be the right one.
        if self.authorities[authority].store != self.current {
            return;
        }
        let faults = self.setup.faults;
        match action {
            A::Register { .. } if faults.members => self.register(authority),
            A::Retire { region, .. } if faults.members => self.retire(authority, r(region, self)),
            A::Fence { region, .. } if faults.epochs => {
                self.region_event(authority, r(region, self), RegionEvent::Fence, "an operator");
            }
            A::Recover { region, new_store, .. } if faults.epochs => {
                let region = r(region, self);
                if self.recover(authority, region, new_store) && new_store {
                    self.replace_region_store(region);
                }
            }
            A::Define { .. } if faults.definitions => self.define(authority),
            A::StopOld { .. } if faults.bounds => self.stop_old(authority),
            A::StateBound { region, from_backup, .. } if faults.bounds => {
                self.state_bound(authority, r(region, self), from_backup);
            }
            A::StateAll { from_backup, wait, .. } if faults.bounds => {
                self.stop_old(authority);
                self.now += u32::from(wait);
                for region in self.silent(authority) {
                    self.state_bound(authority, region, from_backup);
                }
            }
            _ => {}
        }
    }

    /// Regions are registered in their order.
    fn existing(&self) -> usize {
        self.regions.iter().filter(|r| r.exists).count().max(1)
    }

    /// The living agents of a region, by number.
    fn agent(&self, region: usize, n: u8) -> Option<usize> {
        let alive: Vec<usize> = (0..self.regions[region].agents.len())
            .filter(|a| self.regions[region].agents[*a].alive && !self.regions[region].retired)
            .collect();
        pick(n, alive.len()).map(|n| alive[n])
    }

    fn deliver(&mut self, message: u8, authority: usize, stays: bool) {
        let Some(n) = pick(message, self.net.len()) else { return };
        let message = if stays { self.net[n].clone() } else { self.net.remove(n) };
        match message {
            Message::Request(request) => {
                self.say(|| format!("authority {authority} hears {}", super::authority::speaker(&request)));
                self.hear_request(authority, request);
            }
            Message::Reply(reply) => self.hear_reply(*reply),
        }
    }

    /// An agent takes its own answers among the newest messages; others stay on their way.
    fn take_from(&mut self, region: usize, agent: usize, before: usize) {
        let newest = self.net.split_off(before);
        for message in newest {
            let me = &self.regions[region].agents[agent];
            match message {
                Message::Reply(reply)
                    if me.alive && reply.incarnation == me.incarnation && reply.number == me.number =>
                {
                    self.take(region, agent, *reply);
                }
                other => self.net.push(other),
            }
        }
    }

    /// A message and some steps of what it sets going; the rest stays where it is.
    fn part(&mut self, region: usize, agent: usize, authority: usize, steps: u8, take: bool) {
        let Some(request) = self.draft(region, agent, true, false) else { return };
        self.say(|| format!("{} agent {agent} speaks with authority {authority}", super::marks::name(region)));
        let before = self.net.len();
        self.hear_request(authority, request);
        for _ in 0..steps % 9 {
            let store = self.authorities[authority].store;
            if self.setup.sync && steps < 128 {
                self.replicate(store);
            }
            let last = self.authorities[authority].flights.len();
            if last > 0 {
                self.step_gate(authority, last - 1);
            }
        }
        if take {
            self.take_from(region, agent, before);
        }
    }

    /// A message, everything that it sets going, and its answer.
    pub fn round(&mut self, region: usize, agent: usize, authority: usize, wants: bool) {
        let Some(request) = self.draft(region, agent, wants, false) else { return };
        self.say(|| format!("{} agent {agent} speaks with authority {authority}", super::marks::name(region)));
        let held = std::mem::take(&mut self.authorities[authority].flights);
        let before = self.net.len();
        self.hear_request(authority, request);
        self.fly(authority);
        let mut flights = held;
        flights.append(&mut self.authorities[authority].flights);
        self.authorities[authority].flights = flights;
        self.take_from(region, agent, before);
    }
}

impl Action {
    /// What a small bound counts it as.
    #[must_use]
    pub fn cost(self) -> Option<Cost> {
        use Action as A;
        Some(match self {
            A::Gate { .. } | A::Deliver { .. } => return None,
            A::Send { .. }
            | A::Double { .. }
            | A::Lose { .. }
            | A::Cancel { .. }
            | A::Round { .. }
            | A::Part { .. } => Cost::Talk,
            A::Carve { .. } | A::Expose { .. } | A::Issue { .. } => Cost::Use,
            A::BackUp | A::Restore { .. } | A::Replicate { .. } | A::Promote { .. } | A::Restart { .. } => Cost::Store,
            A::SaveWitness | A::LoseWitness | A::PutWitnessBack => Cost::Witness,
            A::BackUpRegion { .. }
            | A::PutRegionBack { .. }
            | A::CloneRegion { .. }
            | A::CopyProcess { .. }
            | A::RestartAgent { .. }
            | A::LoseRegionWitness { .. } => Cost::Region,
            A::Register { .. }
            | A::Retire { .. }
            | A::Fence { .. }
            | A::Recover { .. }
            | A::Define { .. }
            | A::StopOld { .. }
            | A::StateBound { .. }
            | A::StateAll { .. }
            | A::Deadline => Cost::Operator,
        })
    }
}
