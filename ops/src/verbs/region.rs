//! `cadastre region`, and the operator's hand on a region's life cycle.

use cadastre_core::ids::Name;
use cadastre_protocol::admin::{AgentView, Named, NewRegion, Nothing, RegionAction, RegionView};
use serde_json::{Value, json};

use super::{now_ms, print, print_token, rows, token_words};
use crate::api::typed;
use crate::cli::{Common, RegionStep, RegionVerb};
use crate::connect;
use crate::error::{CliError, Outcome};
use crate::show::human::{ago, offset};
use crate::show::table::Table;
use crate::show::{self, confirm};

pub async fn run(common: &Common, verb: RegionVerb) -> Result<Outcome, CliError> {
    let api = connect::authority(common)?;
    match verb {
        RegionVerb::Create { name } => print(common, api.post("/v1/regions", &Named { name }).await?, created),
        RegionVerb::List => print(common, api.get("/v1/regions").await?, list),
        RegionVerb::Token { name } => {
            let answer = api.post(&format!("/v1/regions/{name}/tokens"), &Nothing {}).await?;
            print_token(common, answer, &format!("region {name}"))
        }
        RegionVerb::Revoke { name, token_id } => {
            let answer = api.delete(&format!("/v1/regions/{name}/tokens/{token_id}")).await?;
            print(common, answer, |_| {
                show::line(format!(
                    "token {token_id} of region {name} is revoked: an agent that still uses it goes on from what it holds, \
                     and is answered nothing more"
                ));
                Ok(())
            })
        }
        RegionVerb::Tokens { name } => {
            let mut all: Vec<RegionView> = typed(rows(api.get("/v1/regions").await?, "regions"))?;
            all.retain(|region| region.name == name);
            let missing = || CliError::failed(format!("there is no region {name}"), "see `cadastre region list`");
            let region = all.pop().ok_or_else(missing)?;
            print(common, json!({ "tokens": region.tokens }), |_| {
                show::line(token_words(&region.tokens, now_ms()));
                Ok(())
            })
        }
    }
}

/// A step of the life cycle.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    Drain,
    Fence,
    Recover,
    Retire,
}

impl Step {
    fn word(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Fence => "fence",
            Self::Recover => "recover",
            Self::Retire => "retire",
        }
    }

    /// What will happen, before a person says yes.
    fn means(self, region: &Name, new_store: bool) -> String {
        match self {
            Self::Drain => {
                format!("{region} gets no new ranges and goes on issuing what it holds. `cadastre recover` ends it.")
            }
            Self::Fence => format!(
                "{region} loses its epoch: it stops issuing when it hears of it (a cut-off region goes on until then), and all \
                 that it holds is a gap for ever. `cadastre recover {region}` lets it begin anew."
            ),
            Self::Recover if new_store => format!(
                "{region} comes back with a new epoch, and the next store that its agent presents is taken for its own. What the \
                 old store held is a gap for ever; make sure that nobody starts an agent on it again."
            ),
            Self::Recover => format!("{region} comes back with a new epoch. What it held before is a gap for ever."),
            Self::Retire => format!(
                "{region} ends for good: no agent of it is answered any more, what it holds is a gap for ever, and its name \
                 stays taken. There is no way back."
            ),
        }
    }
}

pub async fn step(common: &Common, step: Step, args: RegionStep, new_store: bool) -> Result<Outcome, CliError> {
    let api = connect::authority(common)?;
    confirm(&step.means(&args.region, new_store), args.sure.yes)?;
    let path = format!("/v1/regions/{}/{}", args.region, step.word());
    let answer = api.post(&path, &RegionAction { reason: args.reason, new_store }).await?;
    print(common, answer, |answer| {
        let word = |key: &str| answer.get(key).map(|value| value.as_str().map_or(value.to_string(), str::to_owned));
        match (word("state"), word("epoch")) {
            (Some(state), Some(epoch)) => show::line(format!("{} is {state}, at epoch {epoch}", args.region)),
            _ => show::line(format!("{}: done", args.region)),
        }
        Ok(())
    })
}

fn created(answer: Value) -> Result<(), CliError> {
    let region: NewRegion = typed(answer)?;
    show::line(&region.token);
    eprintln!(
        "The token of region {} (number {}); it is shown only this once. Start its agent with CADASTRE_REGION={} and \
         CADASTRE_REGION_TOKEN set to it.",
        region.name, region.region_id, region.name
    );
    Ok(())
}

fn list(answer: Value) -> Result<(), CliError> {
    let regions: Vec<RegionView> = typed(rows(answer, "regions"))?;
    let mut table =
        Table::new(&["region", ">nr", "state", ">epoch", "heard", "agent", "version", ">clock", "waits for"]);
    for region in &regions {
        let heard = region.last_heard_seconds.map_or_else(|| "never".to_owned(), ago);
        let mut row = vec![
            region.name.to_string(),
            region.region_id.to_string(),
            region.state.as_str().to_owned(),
            region.epoch.to_string(),
            heard,
        ];
        row.extend(region.agents.first().map_or_else(|| vec!["-".to_owned(), String::new(), String::new()], agent));
        row.push(region.waiting_for.clone().unwrap_or_default());
        table.row(row);
        for further in region.agents.iter().skip(1) {
            let mut row = vec![String::new(); 5];
            row.extend(agent(further));
            row.push(String::new());
            table.row(row);
        }
    }
    table.print("no regions yet: `cadastre region create NAME`");
    read_less(&regions);
    Ok(())
}

/// Those who could not follow a wider definition, where there are any.
fn read_less(regions: &[RegionView]) {
    let mut table =
        Table::new(&["reads less", "region", "service", "namespace", "version", ">up to", "kinds", "heard"]);
    let mut found = false;
    for region in regions {
        for one in &region.read_less {
            found = true;
            table.row(vec![
                one.instance.clone(),
                region.name.to_string(),
                one.service.clone().unwrap_or_else(|| "(agent)".to_owned()),
                one.namespace.clone().unwrap_or_else(|| "(all)".to_owned()),
                one.version.clone(),
                one.knows.largest.to_string(),
                one.knows.kinds.join(" "),
                ago(one.last_heard_seconds),
            ]);
        }
    }
    if found {
        table.print("");
    }
}

fn agent(agent: &AgentView) -> Vec<String> {
    let place = agent.url.clone().unwrap_or_else(|| agent.incarnation.clone());
    vec![place, agent.version.clone(), offset(agent.clock_offset_ms)]
}
