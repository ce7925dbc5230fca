//! `cadastre switch`: begins one and shows its ledger as it grows. The authority carries it on by itself: whoever
//! watches may go away.

use std::time::Duration;

use cadastre_core::ids::Name;
use cadastre_core::switch::Step;
use cadastre_protocol::admin::Nothing;
use cadastre_protocol::operate::{Line, NewSwitch, SwitchView, Switches};
use serde_json::Value;

use super::{now_ms, print};
use crate::api::{Api, typed};
use crate::cli::{Common, SwitchArgs, SwitchVerb};
use crate::connect;
use crate::error::{CliError, Outcome};
use crate::show::human::moment;
use crate::show::table::Table;
use crate::show::{self, confirm};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub async fn run(common: &Common, args: SwitchArgs) -> Result<Outcome, CliError> {
    let api = connect::authority(common)?;
    match args.verb {
        None => begin(common, &api, args).await,
        Some(SwitchVerb::List) => print(common, api.get("/v1/switches").await?, list),
        Some(SwitchVerb::Show { id }) => {
            print(common, api.get(&path(&id)).await?, |answer| typed::<SwitchView>(answer).map(|view| show_all(&view)))
        }
        Some(SwitchVerb::Resume { id }) => {
            let answer = api.post(&format!("{}/resume", path(&id)), &Nothing {}).await?;
            follow(common, &api, answer).await
        }
        Some(SwitchVerb::BackOut { id }) => {
            let answer = api.post(&format!("{}/back-out", path(&id)), &Nothing {}).await?;
            follow(common, &api, answer).await
        }
    }
}

fn path(id: &str) -> String {
    format!("/v1/switches/{id}")
}

async fn begin(common: &Common, api: &Api, args: SwitchArgs) -> Result<Outcome, CliError> {
    let (Some(from), Some(to)) = (args.from, args.to) else {
        return Err(CliError::usage("--from and --to name the two regions"));
    };
    let what = args.namespace.as_ref().map_or_else(|| format!("all that {from} serves"), |name| format!("{name}"));
    let fence = if args.fence { format!("\n{from} is fenced: what it holds is never issued.") } else { String::new() };
    confirm(&format!("You move {what} from {from} to {to}: callers of {from} are sent there.{fence}"), args.sure.yes)?;
    let body = NewSwitch { namespace: args.namespace, from, to, fence: args.fence };
    let answer = api.post("/v1/switches", &body).await?;
    if args.no_wait {
        return print(common, answer, |answer| typed::<SwitchView>(answer).map(|view| show_all(&view)));
    }
    follow(common, api, answer).await
}

/// Shows lines as they come, until it is over or stopped.
async fn follow(common: &Common, api: &Api, mut answer: Value) -> Result<Outcome, CliError> {
    let (mut shown, mut lost, mut waits) = (0, false, None);
    loop {
        let view: SwitchView = typed(answer.clone())?;
        if !common.json {
            shown = show_lines(&view.lines, view.made_at, shown);
            if view.waiting_for != waits {
                waits.clone_from(&view.waiting_for);
                if let Some(waits) = &waits {
                    eprintln!("  waits: {waits}");
                }
            }
        }
        if view.step.is_over() || view.stopped.is_some() {
            return end(common, &answer, &view);
        }
        tokio::time::sleep(LOOK_EVERY).await;
        match api.get(&path(&view.switch_id.to_string())).await {
            Ok(next) => (answer, lost) = (next, false),
            Err(CliError::Unreachable { why, .. }) => {
                if !lost {
                    eprintln!(
                        "  the authority does not answer ({why}); the switch goes on once it is back. Ctrl-C leaves it be"
                    );
                }
                lost = true;
            }
            Err(error) => return Err(error),
        }
    }
}

fn end(common: &Common, answer: &Value, view: &SwitchView) -> Result<Outcome, CliError> {
    if common.json {
        show::json(answer);
    }
    match &view.stopped {
        None => Ok(Outcome::Done),
        Some(why) => {
            let id = view.switch_id;
            let next = format!("`cadastre switch resume {id}`, or `cadastre switch back-out {id}`");
            Err(CliError::failed(format!("the switch stopped: {why}"), next))
        }
    }
}

/// The lines behind the first `shown`; how many are shown then.
pub(super) fn show_lines(lines: &[Line], made_at: u64, shown: usize) -> usize {
    for line in lines.iter().skip(shown) {
        let seconds = line.at.saturating_sub(made_at) as f64 / 1_000.0;
        show::line(format!("{seconds:8.1} s  {}", line.text));
    }
    lines.len().max(shown)
}

fn show_all(view: &SwitchView) {
    show::line(format!("switch {}", view.switch_id));
    show_lines(&view.lines, view.made_at, 0);
    if let Some(waits) = &view.waiting_for {
        show::line(format!("waits: {waits}"));
    }
    if let Some(stopped) = &view.stopped {
        show::line(format!("stopped: {stopped}"));
    }
}

fn list(answer: Value) -> Result<(), CliError> {
    let answer: Switches = typed(answer)?;
    let mut table = Table::new(&["switch", "begun", "from", "to", "namespaces", "step"]);
    for switch in answer.switches {
        let names: Vec<&str> = switch.namespaces.iter().take(4).map(Name::as_str).collect();
        let more = switch.namespaces.len().saturating_sub(names.len());
        let names = if more > 0 { format!("{} and {more} more", names.join(", ")) } else { names.join(", ") };
        let step = match (&switch.stopped, switch.step) {
            (Some(_), step) => format!("{}, stopped", step.as_str()),
            (None, step @ (Step::Done | Step::BackedOut)) => step.as_str().replace('_', " "),
            (None, step) => step.as_str().to_owned(),
        };
        let begun = moment(switch.made_at, now_ms());
        table.row(vec![
            switch.switch_id.to_string(),
            begun,
            switch.from.to_string(),
            switch.to.to_string(),
            names,
            step,
        ]);
    }
    table.print("nothing was ever switched");
    Ok(())
}
