//! The `cadastre` command: the dev cluster and every operator verb.
//!
//! | room | what |
//! |---|---|
//! | `cli` | verbs and flags, nothing else |
//! | `connect` | where the authority and the agents are, and with which token |
//! | `api` | one HTTP call, and what a refusal means |
//! | `verbs` | one file per noun: ask, then a table for people or the API's JSON |
//! | `show` | numbers, times and tables as people read them |
//! | `dev` | authority and regions in one process, and the demonstration |
//! | `bench` | our paths against peers, in one run |
//!
//! Invariant: whatever a verb does, it does over the public API; the command knows no store. Exit codes:
//! 0 done, 1 refused or found something, 2 wrong usage. Absent on purpose: rules of allocation (the
//! daemons have them), and a configuration file of its own.

mod api;
mod bench;
mod cli;
mod connect;
mod dev;
mod error;
mod show;
mod verbs;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Verb};
use error::{CliError, Outcome};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return report(&CliError::failed(format!("no threads: {error}"), "free some memory and try again"));
        }
    };
    match runtime.block_on(run(cli)) {
        Ok(outcome) => ExitCode::from(outcome.code()),
        Err(error) => report(&error),
    }
}

async fn run(cli: Cli) -> Result<Outcome, CliError> {
    api::believe(cli.common.tls());
    match cli.verb {
        None => dev::run(&cli.common, cli::DevArgs::default()).await,
        Some(Verb::Dev(args)) => dev::run(&cli.common, args).await,
        Some(verb) => verbs::run(&cli.common, verb).await,
    }
}

fn report(error: &CliError) -> ExitCode {
    eprintln!("cadastre: {error}");
    ExitCode::from(error.code())
}
