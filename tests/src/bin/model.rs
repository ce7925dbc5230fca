//! The model from the command line: random walks, exhaustive bounds, mutations.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::indexing_slicing)]

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use clap::{Parser, Subcommand};
use tests::model::check::{BOUNDS, Bound, exhaust};
use tests::model::mutations::{FAMILIES, Family, MUTATIONS, Mutation, STEPS};
use tests::model::rules::{Rule, Rules};
use tests::model::walk::{Found, Walked, shorten, timeline, walk_with};

/// The model of the continuity rules.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Random walks; the same seed gives the same run.
    Random {
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How many walks.
        #[arg(long, default_value_t = 100_000)]
        runs: u64,
        /// How long each is, at most.
        #[arg(long, default_value_t = 160)]
        steps: usize,
        /// Rules that are taken out.
        #[arg(long)]
        without: Vec<Rule>,
        /// Only this sort of violation, by its name.
        #[arg(long)]
        only: Option<String>,
        /// Walks of this family, as `mutations` walks them: shared, bounds, members.
        #[arg(long)]
        family: Option<Family>,
        /// Go on after a violation and count.
        #[arg(long)]
        count: bool,
    },
    /// Every state within a bound.
    Exhaustive {
        /// Only this bound.
        #[arg(long)]
        bound: Option<String>,
        /// Rules that are taken out.
        #[arg(long)]
        without: Vec<Rule>,
    },
    /// Takes each rule out in turn and reports when that is found.
    Mutations {
        /// Only this rule.
        #[arg(long)]
        rule: Option<Rule>,
        /// Only those that must be found within so many walks.
        #[arg(long)]
        within: Option<u64>,
    },
    /// The bounds that fit into little memory, then random walks, until so many states were seen.
    Check {
        /// How many, in all.
        #[arg(long, default_value_t = 5_000_000)]
        states: u64,
    },
}

/// Threads of the long forms.
const JOBS: u64 = 2;

fn main() -> ExitCode {
    match Args::parse().verb {
        Verb::Random { seed, runs, steps, without, only, family, count } => {
            let rules = without.iter().fold(Rules::all(), |rules, rule| rules.without(*rule));
            let family = family.unwrap_or(Family::Any);
            let walk = |seed| walk_with(seed, steps, |dice| family.setup(dice, rules));
            random(seed, runs, only.as_deref(), count, walk)
        }
        Verb::Exhaustive { bound, without } => {
            let all = BOUNDS.iter().filter(|b| bound.as_deref().is_none_or(|n| n == b.name));
            exhaustive(all, &without).map_or(ExitCode::FAILURE, |_| ExitCode::SUCCESS)
        }
        Verb::Mutations { rule, within } => mutations(rule, within.unwrap_or(u64::MAX)),
        Verb::Check { states } => check(states),
    }
}

/// Walks the bounds; how many states they have, if nothing is wrong.
fn exhaustive<'a>(bounds: impl Iterator<Item = &'a Bound>, without: &[Rule]) -> Option<u64> {
    let (mut well, mut states) = (true, 0);
    for bound in bounds {
        let begin = Instant::now();
        let mut setup = (bound.setup)();
        setup.rules = without.iter().fold(setup.rules, |rules, rule| rules.without(*rule));
        let checked = exhaust(setup, true);
        states += checked.states as u64;
        let seconds = begin.elapsed().as_secs_f64();
        println!("{}: {} states, {seconds:.1} s: {}", bound.name, checked.states, bound.about);
        if let Some((property, actions)) = checked.found {
            well = false;
            println!("  violated: {property}: {actions:?}");
        } else if without.is_empty() && bound.states != checked.states {
            well = false;
            println!("  it has {} states by its description: the model changed, state the new number", bound.states);
        }
    }
    well.then_some(states)
}

fn check(states: u64) -> ExitCode {
    let begin = Instant::now();
    let Some(within_bounds) = exhaustive(BOUNDS.iter().filter(|b| b.routine), &[]) else { return ExitCode::FAILURE };
    let (seen, walks) = (AtomicU64::new(within_bounds), AtomicU64::new(0));
    let found = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(|| {
                while seen.load(Relaxed) < states {
                    let seed = walks.fetch_add(1, Relaxed) + 1;
                    let family = FAMILIES[seed as usize % FAMILIES.len()];
                    match walk_with(seed, STEPS, |dice| family.setup(dice, Rules::all())) {
                        Ok(walked) => {
                            seen.fetch_add(walked.steps, Relaxed);
                        }
                        Err(it) => {
                            *found.lock().unwrap() = Some((seed, it));
                            return;
                        }
                    }
                }
            });
        }
    });
    let (seen, seconds) = (seen.into_inner(), begin.elapsed().as_secs_f64());
    println!(
        "{seen} states: {within_bounds} within the bounds, the rest in {} random walks; {seconds:.1} s, {:.0} states/s",
        walks.into_inner(),
        seen as f64 / seconds
    );
    match found.into_inner().unwrap() {
        None => ExitCode::SUCCESS,
        Some((seed, it)) => {
            println!("seed {seed}");
            print!("{}", timeline(&shorten(&it)));
            ExitCode::FAILURE
        }
    }
}

fn mutations(only: Option<Rule>, within: u64) -> ExitCode {
    let chosen = |m: &&Mutation| m.within <= within && only.is_none_or(|rule| rule == m.rule);
    let all: Vec<_> = MUTATIONS.iter().filter(chosen).collect();
    let (begin, next, unfound) = (Instant::now(), AtomicUsize::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(|| {
                while let Some(mutation) = all.get(next.fetch_add(1, Relaxed)) {
                    let begin = Instant::now();
                    let (name, found) = (mutation.rule.name(), mutation.search());
                    let seconds = begin.elapsed().as_secs_f64();
                    match found {
                        Some((walks, found)) => {
                            let (within, violation) = (mutation.within, &found.violation);
                            println!(
                                "{name:24} found after {walks:>7} walks of {within:>7}, {seconds:5.1} s: {violation:?}"
                            );
                            if only.is_some() {
                                print!("{}", timeline(&shorten(&found)));
                            }
                        }
                        None => {
                            unfound.fetch_add(1, Relaxed);
                            println!("{name:24} NOT FOUND in {} walks, {seconds:.1} s", mutation.within);
                        }
                    }
                }
            });
        }
    });
    let (unfound, seconds) = (unfound.into_inner(), begin.elapsed().as_secs_f64());
    println!("{} removals, {unfound} not found, {seconds:.0} s", all.len());
    if unfound == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn random(
    seed: u64,
    runs: u64,
    only: Option<&str>,
    count: bool,
    walk: impl Fn(u64) -> Result<Walked, Box<Found>>,
) -> ExitCode {
    let begin = Instant::now();
    let (mut exposed, mut exits, mut found) = (0, [0u64; 4], 0u64);
    let mut kinds = std::collections::BTreeMap::<String, (u64, u64)>::new();
    for n in 0..runs {
        match walk(seed + n) {
            Ok(walked) => {
                exposed += walked.exposed;
                for (sum, one) in exits.iter_mut().zip(walked.exits) {
                    *sum += u64::from(one);
                }
            }
            Err(it) if only.is_some_and(|only| !format!("{:?}", it.violation).starts_with(only)) => {}
            Err(it) if count => {
                found += 1;
                let kind = format!("{:?}", it.violation);
                let kind = kind.split('(').next().unwrap_or_default().to_owned();
                kinds.entry(kind).or_insert((0, seed + n)).0 += 1;
            }
            Err(it) => {
                println!("seed {} after {} walks", seed + n, n + 1);
                print!("{}", timeline(&shorten(&it)));
                return ExitCode::FAILURE;
            }
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{runs} walks, {exposed} numbers exposed, exits 1 to 4 taken {exits:?} times, {found} violations {kinds:?}, \
         {seconds:.1} s, {:.0} walks/s",
        runs as f64 / seconds
    );
    if found == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
