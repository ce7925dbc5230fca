//! The model from the command line: random walks, exhaustive bounds, mutations.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};
use tests::model::rules::{Rule, Rules};
use tests::model::walk::{shorten, timeline, walk};

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
        /// Go on after a violation and count.
        #[arg(long)]
        count: bool,
    },
}

fn main() -> ExitCode {
    match Args::parse().verb {
        Verb::Random { seed, runs, steps, without, only, count } => {
            random(seed, runs, steps, &without, only.as_deref(), count)
        }
    }
}

fn random(seed: u64, runs: u64, steps: usize, without: &[Rule], only: Option<&str>, count: bool) -> ExitCode {
    let rules = without.iter().fold(Rules::all(), |rules, rule| rules.without(*rule));
    let begin = Instant::now();
    let (mut exposed, mut exits, mut found) = (0, [0u64; 4], 0u64);
    let mut kinds = std::collections::BTreeMap::<String, (u64, u64)>::new();
    for n in 0..runs {
        match walk(seed + n, steps, rules) {
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
