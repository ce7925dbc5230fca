//! `cadastre quarantine`: a store that may have gone back in time.

use std::collections::BTreeMap;

use cadastre_core::ids::Name;
use cadastre_protocol::admin::{Lift, Quarantines};
use serde_json::Value;

use super::{now_ms, print};
use crate::api::{Api, typed};
use crate::cli::{Common, LiftArgs, QuarantineVerb};
use crate::connect;
use crate::error::{CliError, Outcome};
use crate::show::human::{digits, moment};
use crate::show::table::Table;
use crate::show::{self, confirm};

pub async fn run(common: &Common, verb: QuarantineVerb) -> Result<Outcome, CliError> {
    let api = connect::authority(common)?;
    match verb {
        QuarantineVerb::List => print(common, api.get("/v1/quarantines").await?, list),
        QuarantineVerb::Lift(args) => lift(common, &api, args).await,
    }
}

fn list(answer: Value) -> Result<(), CliError> {
    let answer: Quarantines = typed(answer)?;
    show::line(format!("the authority's store is {}", answer.continuity));
    if answer.witness.state == "down" || answer.witness.state == "empty" {
        let why = answer.witness.last_error.map(|why| format!(": {why}")).unwrap_or_default();
        show::line(format!("its {} witness is {}{why}", answer.witness.mode.replace('_', "-"), answer.witness.state));
    }
    let mut table = Table::new(&["scope", "state", "since", "waits for", "why"]);
    for quarantine in answer.quarantines {
        let waits = if quarantine.waiting_for.is_empty() { "-".to_owned() } else { quarantine.waiting_for.join(", ") };
        let since = moment(quarantine.since, now_ms());
        table.row(vec![quarantine.scope, quarantine.state, since, waits, quarantine.reason]);
    }
    table.print("nothing is in quarantine");
    Ok(())
}

async fn lift(common: &Common, api: &Api, args: LiftArgs) -> Result<Outcome, CliError> {
    let mut bounds: BTreeMap<Name, u64> = BTreeMap::new();
    for (region, bound) in args.bounds {
        if bounds.insert(region.clone(), bound).is_some() {
            return Err(CliError::usage(format!("--bound: {region} is named twice")));
        }
    }
    if !args.old_store_stopped {
        return Err(CliError::usage(
            "a bound is only safe once the old store and its authorities are stopped: make sure of it, then say so with \
             --old-store-stopped",
        ));
    }
    let said: Vec<String> = bounds.iter().map(|(region, bound)| format!("{region} below {}", digits(*bound))).collect();
    let what = format!(
        "You state that all that was ever given out in {} lies, for {}, and that the old store and its authorities are \
         stopped.\nGrants go on above that. If either is wrong, numbers WILL be issued twice.",
        args.namespace,
        said.join(", ")
    );
    confirm(&what, args.sure.yes)?;
    let body = Lift { bounds, old_store_stopped: true, reason: args.reason };
    let answer = api.post(&format!("/v1/quarantines/{}/lift", args.namespace), &body).await?;
    print(common, answer, |_| {
        show::line("stated; the quarantine ends once every namespace is covered and a request's deadline has passed");
        show::line("next: `cadastre quarantine list`");
        Ok(())
    })
}
