//! `cadastre status`: how an agent and the tiers above it are doing.

use cadastre_protocol::ids::Status;
use serde_json::Value;

use crate::api::typed;
use crate::cli::{Common, StatusArgs};
use crate::connect;
use crate::error::{CliError, Outcome};
use crate::show;
use crate::show::human::{ago, digits, offset, rate, runway};
use crate::show::table::Table;

/// One agent's JSON as it is; several as a list.
pub async fn run(common: &Common, args: StatusArgs) -> Result<Outcome, CliError> {
    let agents = connect::agents(common, args.agent.agent.as_deref(), args.agent.region.as_ref()).await?;
    let mut answers: Vec<Value> = Vec::new();
    let mut silent = false;
    for agent in &agents {
        match agent.api.get("/v1/status").await {
            Ok(answer) => answers.push(answer),
            Err(error) if agents.len() > 1 => {
                silent = true;
                eprintln!("cadastre: {}: {error}", agent.describe());
            }
            Err(error) => return Err(error),
        }
    }
    if common.json {
        match answers.as_slice() {
            [one] if agents.len() == 1 => show::json(one),
            _ => show::json(&Value::Array(answers)),
        }
    } else {
        for (index, answer) in answers.into_iter().enumerate() {
            if index > 0 {
                show::line("");
            }
            one(&typed(answer)?);
        }
    }
    Ok(Outcome::found(silent))
}

fn one(status: &Status) {
    let state = match (status.state, status.epoch) {
        (Some(state), Some(epoch)) => format!("{}, epoch {epoch}", state.as_str()),
        _ => "has not heard from its authority yet".to_owned(),
    };
    show::line(format!("{}: {state}{}", status.region, if status.quarantined { ", in quarantine" } else { "" }));
    let heard = status.uplink.last_answer_seconds.map_or_else(|| "no answer yet".to_owned(), ago);
    show::line(format!("  uplink {} ({heard}){}", status.uplink.state, because(status.uplink.last_error.as_deref())));
    let clock = status.clock_offset_ms.map(|ms| format!(", clock {} to the authority's", offset(ms)));
    let store_error = because(status.store.last_error.as_deref());
    show::line(format!(
        "  store {}, {}{}{store_error}",
        status.store.state,
        status.continuity,
        clock.unwrap_or_default()
    ));
    if status.witness.state == "down" || status.witness.state == "empty" {
        let why = because(status.witness.last_error.as_deref());
        show::line(format!("  witness {} ({}){why}", status.witness.state, status.witness.mode.replace('_', " ")));
    }
    let mut table = Table::new(&["namespace", ">ids/s", ">in agent", ">lasts", ">with region", ">lasts", "refill"]);
    for namespace in &status.namespaces {
        table.row(vec![
            namespace.namespace.to_string(),
            rate(namespace.rate_per_second),
            digits(namespace.left_in_instance),
            runway(namespace.runway_instance_seconds),
            digits(namespace.left_in_instance.saturating_add(namespace.left_in_region)),
            runway(namespace.runway_region_seconds),
            namespace.refill.replace('_', " "),
        ]);
    }
    for line in table.text("nothing was asked for yet").lines() {
        show::line(format!("  {line}"));
    }
}

fn because(error: Option<&str>) -> String {
    error.map(|error| format!(": {error}")).unwrap_or_default()
}
