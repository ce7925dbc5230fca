//! Exhaustive checking at small bounds, with stateright.
//!
//! The state is the whole [`World`]; an action is applied at every place where it can be applied, and
//! each sort of action is bounded by the setup's budget. Numbers drawn in another order are another state
//! here, which makes the space larger than it need be, never smaller.

use cadastre_core::continuity::WitnessMode;
use stateright::{Checker, Model, Property};

use super::action::Action;
use super::message::Message;
use super::setup::{Cost, Faults, Setup};
use super::state::{Violation, World};

/// A bound by name.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// Its name.
    pub name: &'static str,
    /// What it looks at.
    pub about: &'static str,
    /// The setup, with its budget.
    pub setup: fn() -> Setup,
    /// How many states it has.
    pub states: usize,
    /// Whether every run of `ops/test` walks it; the others take minutes.
    pub routine: bool,
}

/// The bounds. Budgets are for messages, uses, stores, witnesses, regions, operators.
pub const BOUNDS: &[Bound] = &[
    Bound {
        name: "tiny",
        about: "one region, no witness: the store is put back",
        setup: tiny,
        states: 24_259,
        routine: true,
    },
    Bound {
        name: "restore",
        about: "one region, a required witness: the store is put back under living processes, messages are lost and late",
        setup: restore,
        states: 534_648,
        routine: false,
    },
    Bound {
        name: "unwitnessed",
        about: "one region, no witness: a standby that lags is promoted while the old authority lives on",
        setup: unwitnessed,
        states: 32_097,
        routine: true,
    },
    Bound {
        name: "witness",
        about: "one region, a required witness that is lost while the store is put back",
        setup: witness,
        states: 450_585,
        routine: false,
    },
    Bound {
        name: "region",
        about: "one region without a witness: its store is put back, its agents are killed",
        setup: region,
        states: 249_008,
        routine: true,
    },
    Bound {
        name: "pair",
        about: "two regions, no witness: a standby that lags is promoted, and one region is silent",
        setup: pair,
        states: 1_122,
        routine: true,
    },
    Bound {
        name: "members",
        about: "a region retires, another is registered, the store is put back, no witness",
        setup: members,
        states: 8_562,
        routine: true,
    },
];

fn tiny() -> Setup {
    let faults = Faults { store_back: true, ..Faults::none() };
    Setup { mode: WitnessMode::None, faults, budget: [2, 1, 2, 0, 0, 0], ..Setup::calm() }
}

fn restore() -> Setup {
    let faults = Faults { store_back: true, ..Faults::none() };
    Setup { faults, budget: [2, 2, 1, 0, 0, 0], ..Setup::calm() }
}

fn unwitnessed() -> Setup {
    let faults = Faults { promote: true, ..Faults::none() };
    Setup { mode: WitnessMode::None, authorities: 2, faults, budget: [2, 1, 1, 0, 0, 0], ..Setup::calm() }
}

fn pair() -> Setup {
    let faults = Faults { promote: true, ..Faults::none() };
    Setup { mode: WitnessMode::None, active: 2, faults, budget: [1, 2, 1, 0, 0, 0], ..Setup::calm() }
}

fn witness() -> Setup {
    let faults = Faults { store_back: true, witness_lost: true, ..Faults::none() };
    Setup { faults, budget: [2, 1, 1, 1, 0, 0], ..Setup::calm() }
}

fn region() -> Setup {
    let faults = Faults { region_back: true, ..Faults::none() };
    Setup { faults, mode: WitnessMode::None, budget: [2, 3, 0, 0, 3, 0], ..Setup::calm() }
}

fn members() -> Setup {
    let faults = Faults { store_back: true, members: true, ..Faults::none() };
    Setup { faults, active: 2, mode: WitnessMode::None, budget: [1, 1, 1, 0, 0, 1], ..Setup::calm() }
}

/// The world, as stateright walks it.
#[derive(Clone, Copy, Debug)]
pub struct Exhaustive {
    /// The setup.
    pub setup: Setup,
    /// Whether whole exchanges are one action; otherwise a message, its gate and its answer are many.
    pub rounds: bool,
}

impl Model for Exhaustive {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.setup)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.violation.is_some() {
            return;
        }
        self.talk(world, actions);
        self.breakage(world, actions);
        let spent = |cost: Cost| world.spent[cost as usize] >= self.setup.budget[cost as usize];
        actions.retain(|a| a.cost().is_none_or(|cost| !spent(cost)));
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        next.apply(action);
        if next == *world {
            return None;
        }
        if let Some(cost) = action.cost() {
            next.spent[cost as usize] += 1;
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no value is exposed twice", |_, world: &World| {
                !matches!(world.violation, Some(Violation::Duplicate(_)))
            }),
            Property::always("no proof is claimed where nothing went back", |_, world: &World| {
                !matches!(world.violation, Some(Violation::FalseAlarm))
            }),
            Property::sometimes("something is exposed after a quarantine", |_, world: &World| {
                world.exposed.by.iter().filter(|b| **b != 0).count() > 1
            }),
        ]
    }
}

impl Exhaustive {
    fn talk(&self, world: &World, actions: &mut Vec<Action>) {
        for region in 0..world.regions.len() as u8 {
            let it = &world.regions[usize::from(region)];
            let alive = it.agents.iter().filter(|a| a.alive).count() as u8;
            for agent in (0..alive).filter(|_| it.exists) {
                if self.rounds {
                    for authority in 0..world.authorities.len() as u8 {
                        actions.push(Action::Round { region, agent, authority });
                    }
                }
                actions.push(Action::Send { region, agent, wants: true, altered: false });
                actions.push(Action::Issue { region, agent });
            }
        }
        for message in 0..world.net.len() as u8 {
            let to = match world.net[usize::from(message)] {
                Message::Request(_) => world.authorities.len() as u8,
                Message::Reply(_) => 1,
            };
            for authority in 0..to {
                actions.push(Action::Deliver { message, authority });
                actions.push(Action::Double { message, authority });
            }
        }
        for authority in 0..world.authorities.len() as u8 {
            if let Some(flights) = world.authorities.get(usize::from(authority)).map(|a| a.flights.len()) {
                actions.extend((0..flights as u8).map(|flight| Action::Gate { authority, flight }));
            }
        }
    }

    fn breakage(&self, world: &World, actions: &mut Vec<Action>) {
        use Action as A;
        let faults = self.setup.faults;
        if faults.store_back {
            actions.extend([A::Restore { living: true }, A::Restore { living: false }]);
        }
        if faults.promote {
            actions.extend([A::Promote { authority: 0, all: false }, A::Replicate { store: world.current as u8 }]);
        }
        actions.extend([A::LoseWitness, A::Deadline]);
        for region in 0..world.regions.len() as u8 {
            if world.regions[usize::from(region)].exists {
                actions.extend([A::BackUpRegion { region }, A::PutRegionBack { region }]);
                actions.extend([A::RestartAgent { region, agent: 0 }, A::Retire { authority: 0, region }]);
            }
        }
        actions.push(A::Register { authority: 0 });
    }
}

/// Threads of a check.
const THREADS: usize = 2;

/// What an exhaustive check came to.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Distinct states.
    pub states: usize,
    /// The violated property and the shortest way there.
    pub found: Option<(&'static str, Vec<Action>)>,
}

/// Checks a setup to its bound, breadth first, so that what is found is as short as it can be.
#[must_use]
pub fn exhaust(setup: Setup, rounds: bool) -> Checked {
    let checker = Exhaustive { setup, rounds }.checker().threads(THREADS).spawn_bfs().join();
    let states = checker.unique_state_count();
    let discoveries = checker.discoveries();
    let bad = discoveries.into_iter().find(|(name, _)| !name.starts_with("something"));
    Checked { states, found: bad.map(|(name, path)| (name, path.into_actions())) }
}
