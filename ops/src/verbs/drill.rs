//! `cadastre drill`: orders one, shows what happens while it runs, and its report.

use std::time::Duration;

use cadastre_core::drill::{DrillKind, DrillState, Outcome as Verdict};
use cadastre_core::ids::Name;
use cadastre_protocol::admin::Nothing;
use cadastre_protocol::operate::{DrillSchedule, DrillView, Drills, NewDrill};
use cadastre_runtime::entropy::{Entropy, SystemEntropy};
use serde_json::Value;

use super::switch::show_lines;
use super::{now_ms, print};
use crate::api::{Api, typed};
use crate::cli::{ClockArgs, Common, DrillVerb, FailoverArgs, HowArgs, ScheduleVerb, ScheduledDrill, WanCutArgs};
use crate::connect;
use crate::dev::file::write_private;
use crate::dev::restore::{self, Told};
use crate::error::{CliError, Outcome};
use crate::show::human::moment;
use crate::show::table::Table;
use crate::show::{self, confirm};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Looks until a dev cluster takes an order that is for it.
const TAKEN_WITHIN_LOOKS: u32 = 40;
/// Looks between two words that it still runs.
const SAY_EVERY: u32 = 20;

pub async fn run(common: &Common, verb: DrillVerb) -> Result<Outcome, CliError> {
    if matches!(verb, DrillVerb::Restore) {
        return restore(common).await;
    }
    let api = connect::authority(common)?;
    match verb {
        DrillVerb::Restore => restore(common).await,
        DrillVerb::WanCut(args) => order(common, &api, wan_cut(args)).await,
        DrillVerb::Failover(args) => order(common, &api, failover(args)).await,
        DrillVerb::Clock(args) => order(common, &api, clock(args)).await,
        DrillVerb::Schedule(verb) => schedule(common, &api, verb).await,
        DrillVerb::List => print(common, api.get("/v1/drills").await?, list),
        DrillVerb::Show { id } => print(common, api.get(&path(&id)).await?, |answer| {
            let view: DrillView = typed(answer)?;
            match view.markdown {
                Some(report) => show::line(report),
                None => {
                    show_lines(&view.lines, view.made_at, 0);
                }
            }
            Ok(())
        }),
        DrillVerb::Abort { id } => {
            let answer = api.post(&format!("{}/abort", path(&id)), &Nothing {}).await?;
            follow(common, &api, answer).await
        }
    }
}

fn path(id: &str) -> String {
    format!("/v1/drills/{id}")
}

fn new(kind: DrillKind, region: &Name, for_seconds: u32) -> NewDrill {
    NewDrill {
        kind,
        region: region.clone(),
        for_seconds,
        confirm: None,
        to: None,
        namespace: None,
        until_dry: false,
        share_percent: None,
        clock_ms: None,
    }
}

fn wan_cut(args: WanCutArgs) -> (NewDrill, HowArgs, String) {
    let question = format!(
        "Every agent of {} refuses its own uplink for {} s. Callers are served from what it holds; what is revoked \
         meanwhile reaches it afterwards.",
        args.region, args.for_seconds
    );
    let body = NewDrill {
        namespace: args.namespace,
        until_dry: args.until_dry,
        share_percent: Some(args.share),
        ..new(DrillKind::WanCut, &args.region, args.for_seconds)
    };
    (body, args.how, question)
}

fn failover(args: FailoverArgs) -> (NewDrill, HowArgs, String) {
    let what = args.namespace.as_ref().map_or_else(|| "all that it serves".to_owned(), Name::to_string);
    let question = format!(
        "{} sends its callers to {} for {what}, for {} s, and is the home again afterwards. Callers that do not follow are \
         refused there (not_home).",
        args.region, args.to, args.for_seconds
    );
    let body = NewDrill {
        namespace: args.namespace,
        to: Some(args.to),
        ..new(DrillKind::Failover, &args.region, args.for_seconds)
    };
    (body, args.how, question)
}

fn clock(args: ClockArgs) -> (NewDrill, HowArgs, String) {
    let question = format!(
        "Every agent of {} reads its clock wrong by {:+} s for {} s. Time-based ids are refused there meanwhile \
         (clock_rollback, window_ended), and after a clock that was ahead until what it stamped has come to pass. Numbers \
         go on.",
        args.region,
        args.by / 1_000,
        args.for_seconds
    );
    let body = NewDrill { clock_ms: Some(args.by), ..new(DrillKind::Clock, &args.region, args.for_seconds) };
    (body, args.how, question)
}

/// Asks the dev cluster of the folder, by a file that nothing else reads, and tells what it tells.
async fn restore(common: &Common) -> Result<Outcome, CliError> {
    let folder = connect::dev_only(common).map_err(|_| {
        CliError::usage(
            "`drill restore` replaces an authority's store by an old copy of it: it is held on a running `cadastre dev` only, \
             which owns that store, and never on a live authority. What to do with a live one that was put back: \
             docs/operating/backup-and-restore.md",
        )
    })?;
    let order = SystemEntropy.uuid_v4().to_string();
    let path = folder.join(restore::ASKED);
    write_private(&path, &order)?;
    let (mut shown, mut looks, mut told) = (0, 0_u32, Told::default());
    while told.verdict.is_none() {
        tokio::time::sleep(LOOK_EVERY).await;
        looks += 1;
        let text = std::fs::read_to_string(folder.join(restore::TOLD)).unwrap_or_default();
        told = serde_json::from_str(&text).ok().filter(|told: &Told| told.asked == order).unwrap_or_default();
        for line in told.lines.iter().skip(shown).filter(|_| !common.json) {
            show::line(format!("  {line}"));
        }
        shown = told.lines.len().max(shown);
        if told.asked.is_empty() && looks > TAKEN_WITHIN_LOOKS {
            let _ = std::fs::remove_file(&path);
            return Err(CliError::failed(
                format!("no `cadastre dev` runs on {}", folder.display()),
                "start one with `cadastre dev`, in another terminal",
            ));
        }
    }
    if common.json {
        show::json(&serde_json::to_value(&told).unwrap_or_default());
    } else {
        let verdict = told.verdict.map_or("", Verdict::as_str);
        show::line(format!("\n{verdict}: {}; the report is in `cadastre drill list`", told.why.join("; ")));
    }
    Ok(if told.verdict == Some(Verdict::Passed) { Outcome::Done } else { Outcome::Found })
}

async fn schedule(common: &Common, api: &Api, verb: ScheduleVerb) -> Result<Outcome, CliError> {
    let (every_hours, in_seconds, drill) = match verb {
        ScheduleVerb::List => {
            let listed = api.get("/v1/drills").await?.get("schedule").cloned().unwrap_or_default();
            return print(common, listed, show_schedule);
        }
        ScheduleVerb::Remove => {
            return print(common, api.delete("/v1/drills/schedule").await?, |_| {
                show::line("nothing is repeated any more");
                Ok(())
            });
        }
        ScheduleVerb::Set { every_hours, in_seconds, drill } => (every_hours, in_seconds, drill),
    };
    let (mut drill, how, question) = match drill {
        ScheduledDrill::WanCut(args) => wan_cut(args),
        ScheduledDrill::Failover(args) => failover(args),
        ScheduledDrill::Clock(args) => clock(args),
    };
    if !how.sure.yes && how.confirm.is_none() {
        confirm(&format!("Every {every_hours} h, with nobody asked again: {question}"), false)?;
    }
    drill.confirm = Some(how.confirm.unwrap_or_else(|| drill.region.to_string()));
    let next_at = in_seconds.map(|seconds| now_ms() + u64::from(seconds) * 1_000);
    let body = DrillSchedule { drill, every_hours, next_at, last_at: None, last: None };
    print(common, api.put("/v1/drills/schedule", &body).await?, show_schedule)
}

fn show_schedule(answer: Value) -> Result<(), CliError> {
    let Some(schedule) = typed::<Option<DrillSchedule>>(answer)? else {
        show::line("nothing is repeated: `cadastre drill schedule set wan-cut --region REGION --for 60s`");
        return Ok(());
    };
    let DrillSchedule { drill, every_hours, next_at, last_at, last } = schedule;
    let at = |ms: Option<u64>| ms.map_or_else(|| "-".to_owned(), |ms| moment(ms, now_ms()));
    let kind = drill.kind.as_str().replace('_', "-");
    show::line(format!("{kind} of {} every {every_hours} h; next {}", drill.region, at(next_at)));
    if let Some(last) = last {
        show::line(format!("last, {}: {last}", at(last_at)));
    }
    Ok(())
}

/// Orders one, and shows how it goes.
async fn order(common: &Common, api: &Api, what: (NewDrill, HowArgs, String)) -> Result<Outcome, CliError> {
    let (mut body, how, question) = what;
    if !how.sure.yes && how.confirm.is_none() {
        confirm(&question, false)?;
    }
    body.confirm = Some(how.confirm.unwrap_or_else(|| body.region.to_string()));
    let answer = api.post("/v1/drills", &body).await?;
    if how.no_wait {
        return print(common, answer, |answer| {
            let view: DrillView = typed(answer)?;
            show::line(format!("drill {}; see `cadastre drill show {}`", view.drill_id, view.drill_id));
            Ok(())
        });
    }
    follow(common, api, answer).await
}

/// Shows lines as they come, and the report at the end.
async fn follow(common: &Common, api: &Api, mut answer: Value) -> Result<Outcome, CliError> {
    let (mut shown, mut looks, mut lost) = (0, 0_u32, false);
    loop {
        let view: DrillView = typed(answer.clone())?;
        if !common.json {
            shown = show_lines(&view.lines, view.made_at, shown);
            looks += 1;
            if looks.is_multiple_of(SAY_EVERY)
                && let Some(end) = view.ends_at
            {
                eprintln!("  {}: {} s to go", view.state.as_str(), end.saturating_sub(now_ms()) / 1_000);
            }
        }
        if view.state == DrillState::Ended {
            return end(common, &answer, view);
        }
        tokio::time::sleep(LOOK_EVERY).await;
        match api.get(&path(&view.drill_id.to_string())).await {
            Ok(next) => (answer, lost) = (next, false),
            Err(CliError::Unreachable { why, .. }) => {
                if !lost {
                    eprintln!("  the authority does not answer ({why}); the drill ends by itself");
                }
                lost = true;
            }
            Err(error) => return Err(error),
        }
    }
}

fn end(common: &Common, answer: &Value, view: DrillView) -> Result<Outcome, CliError> {
    if common.json {
        show::json(answer);
    } else if let Some(report) = view.markdown {
        show::line(format!("\n{report}"));
    }
    match view.report.map(|report| report.verdict) {
        Some(Verdict::Failed) => Ok(Outcome::Found),
        Some(Verdict::Passed | Verdict::Aborted) | None => Ok(Outcome::Done),
    }
}

fn list(answer: Value) -> Result<(), CliError> {
    let answer: Drills = typed(answer)?;
    let mut table = Table::new(&["drill", "ordered", "what", "region", "state", "verdict"]);
    for drill in answer.drills {
        let verdict = drill.report.as_ref().map_or("-", |report| report.verdict.as_str());
        table.row(vec![
            drill.drill_id.to_string(),
            moment(drill.made_at, now_ms()),
            drill.kind.as_str().replace('_', "-"),
            drill.region.to_string(),
            drill.state.as_str().to_owned(),
            verdict.to_owned(),
        ]);
    }
    table.print("no drill was ever held: `cadastre drill wan-cut --region REGION --for 60s`");
    Ok(())
}
