//! The model from the command line: random walks, exhaustive bounds, mutations.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};
use tests::model::check::{BOUNDS, exhaust};
use tests::model::mutations::{Family, MUTATIONS};
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
    },
}

fn main() -> ExitCode {
    match Args::parse().verb {
        Verb::Random { seed, runs, steps, without, only, family, count } => {
            let rules = without.iter().fold(Rules::all(), |rules, rule| rules.without(*rule));
            let family = family.unwrap_or(Family::Any);
            let walk = |seed| walk_with(seed, steps, |dice| family.setup(dice, rules));
            random(seed, runs, only.as_deref(), count, walk)
        }
        Verb::Exhaustive { bound, without } => exhaustive(bound.as_deref(), &without),
        Verb::Mutations { rule } => mutations(rule),
    }
}

fn exhaustive(name: Option<&str>, without: &[Rule]) -> ExitCode {
    let mut well = true;
    for bound in BOUNDS.iter().filter(|b| name.is_none_or(|n| n == b.name)) {
        let begin = Instant::now();
        let mut setup = (bound.setup)();
        setup.rules = without.iter().fold(setup.rules, |rules, rule| rules.without(*rule));
        let checked = exhaust(setup, true);
        let seconds = begin.elapsed().as_secs_f64();
        println!("{}: {} states, {seconds:.1} s: {}", bound.name, checked.states, bound.about);
        if let Some((property, actions)) = checked.found {
            well = false;
            println!("  violated: {property}: {actions:?}");
        } else if without.is_empty() && bound.states != 0 && bound.states != checked.states {
            well = false;
            println!("  it has {} states by its description: the model changed, state the new number", bound.states);
        }
    }
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn mutations(only: Option<Rule>) -> ExitCode {
    let mut unfound = 0;
    for mutation in MUTATIONS.iter().filter(|m| only.is_none_or(|rule| rule == m.rule)) {
        match mutation.search() {
            Some((walks, found)) => {
                println!(
                    "{:24} found after {walks:>7} walks of {:>7}: {:?}",
                    mutation.rule.name(),
                    mutation.within,
                    found.violation
                );
                if only.is_some() {
                    print!("{}", timeline(&shorten(&found)));
                }
            }
            None => {
                unfound += 1;
                println!("{:24} NOT FOUND in {} walks", mutation.rule.name(), mutation.within);
            }
        }
    }
    println!("{unfound} removals not found");
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
