//! `cadastre apply`: namespaces and services as a file says.
//!
//! Invariant: nothing is asked of the authority before all of the file was compared with it, and what is not in
//! the file is left alone. Every step is an ordinary call that a second run finds done; so a run that died is
//! simply run again. Absent on purpose: deletion, and tokens (they are shown once).

mod plan;

use std::io::IsTerminal;
use std::path::Path;

use cadastre_protocol::admin::{NamespaceView, RegionView, ServiceView};
use serde_json::{Value, json};

use super::rows;
use crate::api::{Api, typed};
use crate::cli::{ApplyArgs, Common};
use crate::connect;
use crate::error::{CliError, Outcome};
use crate::show::table::Table;
use crate::show::{self, confirm};
use plan::{Call, Held, Plan, Wanted};

pub async fn run(common: &Common, args: ApplyArgs) -> Result<Outcome, CliError> {
    let wanted = read(&args.file)?;
    let api = connect::authority(common)?;
    let plan = planned(&wanted, &held(&api).await?)?;
    if !common.json {
        people(&plan);
    }
    if args.dry_run || plan.steps.is_empty() {
        if common.json {
            show::json(&answer(&plan, false));
        }
        return Ok(Outcome::found(!plan.steps.is_empty()));
    }
    agreed(&plan, args.sure.yes)?;
    // Somebody may have changed something while a person was reading.
    if planned(&wanted, &held(&api).await?)? != plan {
        let what = "what there is changed after the difference was shown; nothing was done";
        return Err(CliError::failed(what, "run it again and look at the new difference"));
    }
    for step in &plan.steps {
        match step.call {
            Call::Post => api.post(&step.path, &step.body).await?,
            Call::Patch => api.patch(&step.path, &step.body).await?,
        };
    }
    if common.json {
        show::json(&answer(&plan, true));
    } else {
        show::line("applied");
        for name in &plan.new_services {
            show::line(format!("{name} has no token yet: `cadastre service token {name}`"));
        }
    }
    Ok(Outcome::Done)
}

fn read(file: &Path) -> Result<Wanted, CliError> {
    let at = |why: String| CliError::usage(format!("{}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|e| at(e.to_string()))?;
    if file.extension().is_some_and(|it| it == "json") {
        return serde_json::from_str(&text).map_err(|e| at(e.to_string()));
    }
    toml::from_str(&text).map_err(|e| at(e.to_string()))
}

async fn held(api: &Api) -> Result<Held, CliError> {
    let namespaces: Vec<NamespaceView> = typed(rows(api.get("/v1/namespaces").await?, "namespaces"))?;
    let services: Vec<ServiceView> = typed(rows(api.get("/v1/services").await?, "services"))?;
    let regions: Vec<RegionView> = typed(rows(api.get("/v1/regions").await?, "regions"))?;
    Ok(Held {
        namespaces: namespaces.into_iter().map(|it| (it.name.clone(), it)).collect(),
        services: services.into_iter().map(|it| (it.name.clone(), it)).collect(),
        regions: regions.into_iter().map(|it| it.name).collect(),
    })
}

fn planned(wanted: &Wanted, held: &Held) -> Result<Plan, CliError> {
    plan::compare(wanted, held).map_err(|refusals| {
        let what = format!("the file cannot be applied, and nothing was changed:\n  {}", refusals.join("\n  "));
        CliError::failed(what, "correct the file")
    })
}

fn agreed(plan: &Plan, yes: bool) -> Result<(), CliError> {
    let is_person = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if !yes && !is_person {
        return Err(CliError::usage("nobody is there to be asked: add --yes, or --dry-run only to look"));
    }
    confirm(&format!("{} calls change what is listed above.", plan.steps.len()), yes)
}

fn people(plan: &Plan) {
    let mut table = Table::new(&["", "what", "setting", "from", "to"]);
    for line in &plan.lines {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        table.row(vec![
            if line.from.is_none() { "+" } else { "~" }.to_owned(),
            line.what.clone(),
            line.setting.clone(),
            line.from.as_ref().map(text).unwrap_or_default(),
            text(&line.to),
        ]);
    }
    table.print("nothing to do");
    show::line(format!("= {} as the file says already", plan.same));
}

fn answer(plan: &Plan, applied: bool) -> Value {
    json!({"changes": plan.lines, "same": plan.same, "applied": applied})
}
