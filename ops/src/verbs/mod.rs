//! Every verb but `dev`: one file per noun.
//!
//! Each asks the API, prints its JSON with `--json`, and otherwise a table. Invariant: what a person is
//! shown is in the JSON too. Absent on purpose: anything that the API does not offer to everybody.

mod apply;
mod blast;
mod doctor;
mod drill;
mod grants;
mod headroom;
mod ids;
mod layout;
mod namespace;
mod operator;
mod origin;
mod probe;
mod quarantine;
mod rebuild;
mod region;
mod service;
mod status;
mod switch;
mod verify;

use serde_json::Value;

use crate::bench;
use crate::cli::{Common, Verb};
use crate::error::{CliError, Outcome};
use crate::show;

/// Does what the verb says.
///
/// # Errors
/// Where it was refused, nobody answered, or the command line cannot be meant.
pub async fn run(common: &Common, verb: Verb) -> Result<Outcome, CliError> {
    match verb {
        Verb::Dev(args) => crate::dev::run(common, args).await,
        Verb::Namespace(verb) => namespace::run(common, verb).await,
        Verb::Region(verb) => region::run(common, verb).await,
        Verb::Drain(step) => region::step(common, region::Step::Drain, step, false).await,
        Verb::Fence(step) => region::step(common, region::Step::Fence, step, false).await,
        Verb::Recover(args) => region::step(common, region::Step::Recover, args.step, args.new_store).await,
        Verb::Retire(step) => region::step(common, region::Step::Retire, step, false).await,
        Verb::Service(verb) => service::run(common, verb).await,
        Verb::Operator(verb) => operator::run(common, verb).await,
        Verb::Apply(args) => apply::run(common, args).await,
        Verb::Ids(args) => ids::run(common, args).await,
        Verb::Headroom => headroom::run(common).await,
        Verb::Grants(args) => grants::run(common, args).await,
        Verb::Origin(args) => origin::run(common, args).await,
        Verb::Status(args) => status::run(common, args).await,
        Verb::Verify(args) if args.blast_radius => blast::run(common).await,
        Verb::Verify(_) => verify::run(common).await,
        Verb::Rebuild(args) => rebuild::run(common, args).await,
        Verb::Quarantine(verb) => quarantine::run(common, verb).await,
        Verb::Switch(args) => switch::run(common, args).await,
        Verb::Drill(verb) => drill::run(common, verb).await,
        Verb::Doctor => doctor::run(common).await,
        Verb::Probe { urls } => probe::run(common, &urls).await,
        Verb::Layout(args) => layout::run(common, &args),
        Verb::Bench(args) => bench::run(common, args).await,
        Verb::BenchAgent { config } => {
            bench::agents::serve(config).await?;
            Ok(Outcome::Done)
        }
        Verb::BenchPeer { address } => {
            let failed = |e: std::io::Error| CliError::failed(e.to_string(), "name a free address");
            bench::peers::bare_axum(address).await.map_err(failed)?;
            Ok(Outcome::Done)
        }
    }
}

/// The rows of a list: under its name.
pub fn rows(mut answer: Value, name: &str) -> Value {
    match answer.get_mut(name) {
        Some(rows) => rows.take(),
        None => answer,
    }
}

/// Prints the JSON, or what `people` makes of it.
///
/// # Errors
/// Those of `people`.
fn print(
    common: &Common,
    answer: Value,
    people: impl FnOnce(Value) -> Result<(), CliError>,
) -> Result<Outcome, CliError> {
    if common.json {
        show::json(&answer);
    } else {
        people(answer)?;
    }
    Ok(Outcome::Done)
}

/// A secret that is shown once.
fn print_token(common: &Common, answer: Value, whose: &str) -> Result<Outcome, CliError> {
    print(common, answer, |answer| {
        let token: cadastre_protocol::admin::NewToken = crate::api::typed(answer)?;
        show::line(token.token);
        eprintln!("The token of {whose} with the id {}; it is shown only this once.", token.token_id);
        Ok(())
    })
}

/// How tokens are told apart in a list: `a1b2c3 (revoked)`.
fn token_words(tokens: &[cadastre_protocol::admin::TokenView], now_ms: u64) -> String {
    let word = |token: &cadastre_protocol::admin::TokenView| {
        let age = show::human::moment(token.made_at, now_ms);
        if token.revoked { format!("{} (revoked)", token.token_id) } else { format!("{} ({age})", token.token_id) }
    };
    tokens.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// The wall clock of this machine.
fn now_ms() -> u64 {
    use cadastre_runtime::clock::{Clock, SystemClock};
    SystemClock.now().wall_ms
}
