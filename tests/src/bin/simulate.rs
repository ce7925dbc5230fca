//! `simulate --seed N --steps M`: runs of the shipped services in a simulated world.

// The simulator's own speed is told in real time.
#![allow(clippy::disallowed_methods)]

use std::time::Instant;

use clap::Parser;
use tests::sim::mutation::{self, Mutation};
use tests::sim::ops::operations;
use tests::sim::run::{hunt, run, run_ops, shorten};

/// Runs of the shipped services over simulated time, disks, network, clocks and operators.
#[derive(Parser)]
struct Args {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds, from the first on.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Operations of a run.
    #[arg(long, default_value_t = 60)]
    steps: usize,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    jobs: u64,
    /// Print the timeline of each run.
    #[arg(long)]
    trace: bool,
    /// Do not shorten a failure.
    #[arg(long)]
    whole: bool,
    /// Take a rule out.
    #[arg(long)]
    without: Option<String>,
    /// Take every rule out in turn, and say after how many runs each removal is found.
    #[arg(long)]
    mutations: bool,
}

fn main() -> std::process::ExitCode {
    let args = Args::parse();
    let without = match &args.without {
        None => None,
        Some(name) => match mutation::ALL.iter().find(|m| m.name == name) {
            Some(mutation) => Some(mutation),
            None => {
                eprintln!(
                    "no rule {name}; there are: {}",
                    mutation::ALL.iter().map(|m| m.name).collect::<Vec<_>>().join(", ")
                );
                return std::process::ExitCode::from(2);
            }
        },
    };
    if args.mutations {
        return hunt_all(&args, without);
    }
    let began = Instant::now();
    let jobs = args.jobs.clamp(1, 64);
    let results: Vec<Totals> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs)
            .map(|job| {
                let args = &args;
                scope.spawn(move || work(args, job, jobs, without))
            })
            .collect();
        workers.into_iter().map(|w| w.join().unwrap_or_default()).collect()
    });
    let total = results.into_iter().fold(Totals::default(), Totals::plus);
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{} seeds in {seconds:.1} s ({:.1} seeds/s); {:.0} s of virtual time ({:.0} x real time); {} ids ({} by clients), {} messages; {} failed",
        total.seeds,
        total.seeds as f64 / seconds,
        total.virtual_ms as f64 / 1e3,
        total.virtual_ms as f64 / 1e3 / seconds,
        total.exposed,
        total.by_clients,
        total.messages,
        total.failed,
    );
    if total.failed == 0 { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}

/// Takes every rule out in turn.
fn hunt_all(args: &Args, only: Option<Mutation>) -> std::process::ExitCode {
    let rules: Vec<Mutation> = mutation::ALL.iter().filter(|r| only.is_none_or(|o| o.name == r.name)).collect();
    let began = Instant::now();
    let next = std::sync::Mutex::new(0_usize);
    let missed = std::sync::Mutex::new(0_usize);
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.clamp(1, 64) {
            scope.spawn(|| {
                loop {
                    let n = {
                        let mut next = next.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                        *next += 1;
                        *next - 1
                    };
                    let Some(rule) = rules.get(n) else { return };
                    match hunt(rule, args.seed, args.steps) {
                        Some((seed, runs)) => {
                            println!("{:<28} found after {runs} runs (seed {seed}): {}", rule.name, rule.rule)
                        }
                        None => {
                            println!("{:<28} NOT FOUND within {} runs: {}", rule.name, rule.within, rule.rule);
                            *missed.lock().unwrap_or_else(std::sync::PoisonError::into_inner) += 1;
                        }
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().unwrap_or(1);
    println!("{} removals, {missed} not found, {:.0} s", rules.len(), began.elapsed().as_secs_f64());
    if missed == 0 { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}

#[derive(Default)]
struct Totals {
    seeds: u64,
    virtual_ms: u64,
    exposed: usize,
    by_clients: usize,
    messages: u64,
    failed: u64,
}

impl Totals {
    fn plus(mut self, other: Self) -> Self {
        self.seeds += other.seeds;
        self.virtual_ms += other.virtual_ms;
        self.exposed += other.exposed;
        self.by_clients += other.by_clients;
        self.messages += other.messages;
        self.failed += other.failed;
        self
    }
}

fn work(args: &Args, job: u64, jobs: u64, without: Option<Mutation>) -> Totals {
    let mut totals = Totals::default();
    for seed in (args.seed..args.seed + args.seeds).filter(|s| s % jobs == job) {
        let outcome = run(seed, args.steps, without);
        totals.seeds += 1;
        totals.virtual_ms += outcome.virtual_ms;
        totals.exposed += outcome.exposed;
        totals.by_clients += outcome.by_clients;
        totals.messages += outcome.messages;
        let Some(failure) = outcome.failure else {
            if args.trace {
                println!("{}", outcome.trace.join("\n"));
            }
            continue;
        };
        totals.failed += 1;
        println!("seed {seed} steps {}: {failure:?}", args.steps);
        if args.whole {
            if args.trace {
                println!("{}", outcome.trace.join("\n"));
            }
            continue;
        }
        let short = shorten(seed, operations(seed, args.steps), &failure, without);
        println!("shortened to {} operations:", short.len());
        for op in &short {
            println!("    Op {{ kind: Kind::{:?}, seed: {:#x} }},", op.kind, op.seed);
        }
        println!("{}", run_ops(seed, &short, without).trace.join("\n"));
    }
    totals
}
