//! Long random walks, fast, and the same for the same seed; a walk that fails is shortened and told.

use super::action::Action;
use super::rules::Rules;
use super::setup::Setup;
use super::state::{Violation, World};

/// Splitmix64: the whole run follows from its seed.
#[derive(Clone, Copy, Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.roll() >> 11) % n
    }

    fn byte(&mut self) -> u8 {
        (self.roll() >> 40) as u8
    }

    fn coin(&mut self) -> bool {
        self.roll() >> 63 == 1
    }
}

/// A walk that violated something.
#[derive(Clone, Debug)]
pub struct Found {
    pub setup: Setup,
    pub actions: Vec<Action>,
    pub violation: Violation,
}

/// The result of a walk without a violation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Walked {
    pub exposed: u64,
    pub steps: u64,
    pub exits: [u32; 4],
}

/// A random action; exchanges and uses are far more frequent than faults.
pub fn random_action(dice: &mut Dice) -> Action {
    use Action as A;
    let (x, y, z) = (dice.byte(), dice.byte(), dice.byte());
    let c = dice.coin();
    match dice.below(100) {
        0..24 => A::Round { region: x, agent: y, authority: z },
        24..28 => A::Part { region: x, agent: y, authority: z, steps: dice.byte(), take: c },
        28..46 => A::Issue { region: x, agent: y },
        46..49 => A::Carve { region: x, agent: y },
        49..52 => A::Expose { region: x, agent: y },
        52..57 => A::Send { region: x, agent: y, wants: true, altered: z < 3 },
        57..64 => A::Deliver { message: x, authority: y },
        64..65 => A::Double { message: x, authority: y },
        65..66 => A::Lose { message: x },
        66..75 => A::Gate { authority: x, flight: y },
        75..76 => A::Cancel { authority: x, flight: y },
        76..77 => A::Deadline,
        77..80 => A::Replicate { store: x },
        80..82 => A::BackUp,
        82..84 => A::Restore { living: c },
        84..85 => A::Promote { authority: x, all: c },
        85..86 => A::Restart { authority: x, current: c },
        86..88 => witness(c, x),
        88..90 => A::BackUpRegion { region: x },
        90..92 => A::PutRegionBack { region: x },
        92..94 => region_fault(x, y, z),
        94..95 => A::Register { authority: x },
        _ => operator(x, y, z, c),
    }
}

/// Where a run is about something that takes many steps to come about, its steps are more frequent.
fn biased(dice: &mut Dice, setup: &Setup) -> Action {
    let (authority, region, c, d) = (dice.byte(), dice.byte(), dice.coin(), dice.coin());
    match dice.below(40) {
        0 if setup.faults.bounds => Action::StateAll { authority, from_backup: region & 3 == 0, wait: c },
        1 if setup.faults.members => Action::Register { authority },
        2 if setup.faults.store_back && c => Action::Restore { living: c && d },
        4 if setup.faults.definitions => Action::Define { authority },
        3 if setup.faults.bounds || setup.shared => {
            Action::Part { region, agent: authority, authority, steps: 8, take: false }
        }
        _ => random_action(dice),
    }
}

fn witness(c: bool, x: u8) -> Action {
    match x % 3 {
        0 => Action::LoseWitness,
        1 if c => Action::PutWitnessBack,
        _ => Action::SaveWitness,
    }
}

fn region_fault(region: u8, agent: u8, z: u8) -> Action {
    match z % 5 {
        0 => Action::CloneRegion { region, whole: agent & 1 == 0 },
        1 => Action::CopyProcess { region, agent },
        2 => Action::LoseRegionWitness { region },
        _ => Action::RestartAgent { region, agent },
    }
}

fn operator(authority: u8, region: u8, z: u8, c: bool) -> Action {
    match z % 12 {
        0 | 1 => Action::Retire { authority, region },
        2 => Action::Fence { authority, region },
        3 | 4 => Action::Recover { authority, region, new_store: c },
        5 | 6 => Action::Define { authority },
        7 => Action::StopOld { authority },
        8..11 => Action::StateAll { authority, from_backup: region & 3 == 0, wait: c },
        _ => Action::StateBound { authority, region, from_backup: c },
    }
}

/// Runs a list of actions; at its end, where wanted, the world comes to rest.
#[must_use]
pub fn run(setup: Setup, actions: &[Action], rest: bool, told: bool) -> World {
    let mut world = World::new(setup);
    if told {
        world.log.0 = Some(vec![]);
    }
    for action in actions {
        world.apply(*action);
        if world.violation.is_some() {
            return world;
        }
    }
    if rest {
        world.come_to_rest();
    }
    world
}

/// One walk of a seed.
///
/// # Errors
/// What it found.
pub fn walk(seed: u64, steps: usize, rules: Rules) -> Result<Walked, Box<Found>> {
    walk_with(seed, steps, |dice| Setup::random(dice, rules))
}

/// One walk of a seed in a setup that depends on the seed.
///
/// # Errors
/// What it found.
pub fn walk_with(seed: u64, steps: usize, setup: impl Fn(u64) -> Setup) -> Result<Walked, Box<Found>> {
    let mut dice = Dice(seed);
    let setup = setup(dice.roll());
    let steps = steps / 2 + dice.below(steps as u64 / 2 + 1) as usize;
    let mut world = World::new(setup);
    let mut actions = Vec::with_capacity(steps);
    while actions.len() < steps && world.violation.is_none() {
        let action = biased(&mut dice, &setup);
        actions.push(action);
        world.apply(action);
    }
    if world.violation.is_none() {
        world.come_to_rest();
    }
    match world.violation {
        Some(violation) => Err(Box::new(Found { setup, actions, violation })),
        None => {
            let exposed = world.exposed.by.iter().filter(|b| **b != 0).count() as u64;
            Ok(Walked { exposed, steps: actions.len() as u64, exits: world.log.1 })
        }
    }
}

fn same_kind(a: &Violation, b: &Violation) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}

/// Takes out of a failing walk whatever it does not need (delta debugging).
#[must_use]
pub fn shorten(found: &Found) -> Found {
    let mut found = found.clone();
    let fails = |actions: &[Action]| {
        let world = run(found.setup, actions, true, false);
        world.violation.is_some_and(|v| same_kind(&v, &found.violation))
    };
    let mut size = found.actions.len().max(1).div_ceil(2);
    let mut kept = found.actions.clone();
    loop {
        let (mut at, mut shorter) = (0, false);
        while at < kept.len() {
            let end = (at + size).min(kept.len());
            let mut fewer = kept.clone();
            fewer.drain(at..end);
            if fails(&fewer) {
                kept = fewer;
                shorter = true;
            } else {
                at += size;
            }
        }
        if size == 1 && !shorter {
            break;
        }
        size = if size == 1 { 1 } else { size.div_ceil(2) };
    }
    found.actions = kept;
    found
}

/// The timeline of a failing walk, as a person reads it.
#[must_use]
pub fn timeline(found: &Found) -> String {
    let world = run(found.setup, &found.actions, true, true);
    let s = &found.setup;
    let mut text = format!(
        "{:?} after {} actions; witness {:?}, regions' witness {:?}, synchronous standby {}, shared store {}\n",
        found.violation,
        found.actions.len(),
        s.mode,
        s.region_witness,
        s.sync,
        s.shared
    );
    let lines = world.log.0.unwrap_or_default();
    let stop = lines.iter().position(|l| l.starts_with("---")).map_or(lines.len(), |at| at + 60);
    let last = lines.len().saturating_sub(3);
    for (_, line) in lines.iter().enumerate().filter(|(n, _)| *n < stop || *n >= last) {
        text.push_str("  ");
        text.push_str(line);
        text.push('\n');
    }
    text
}
