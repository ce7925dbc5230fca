//! `cadastre doctor`: everything that can be wrong, looked at from here, with the cure.
//!
//! Invariant: it changes nothing, and one part that does not answer never hides the others. Ends with 1
//! when something is bad; a warning alone is no failure.

use cadastre_core::registry::RegionState;
use cadastre_protocol::admin::{Quarantines, RegionView};
use cadastre_protocol::ids::{Status, StoreFinding, WitnessStatus};
use serde::Serialize;
use serde_json::{Value, json};

use super::{now_ms, rows};
use crate::api::{Api, typed};
use crate::cli::Common;
use crate::connect::{self, Agent};
use crate::error::{CliError, Outcome};
use crate::show;
use crate::show::human::{ago, duration, offset};

/// A clock that is further off than this is worth a word, in milliseconds.
const CLOCK_MS: u64 = 1_000;
/// A region that was silent for this long is worth a word, in seconds.
const SILENT_SECONDS: u64 = 30;
/// A runway below this is worth a word, in seconds.
const SHORT_RUNWAY_SECONDS: u64 = 60;

/// How a check ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Grade {
    Good,
    Warning,
    Bad,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
struct Check {
    what: String,
    grade: Grade,
    detail: String,
    cure: Option<String>,
}

#[derive(Default)]
struct Findings(Vec<Check>);

impl Findings {
    fn good(&mut self, what: &str, detail: impl Into<String>) {
        self.0.push(Check { what: what.to_owned(), grade: Grade::Good, detail: detail.into(), cure: None });
    }

    fn wrong(&mut self, grade: Grade, what: &str, detail: impl Into<String>, cure: impl Into<String>) {
        self.0.push(Check { what: what.to_owned(), grade, detail: detail.into(), cure: Some(cure.into()) });
    }

    fn error(&mut self, what: &str, error: &CliError) {
        let (detail, cure) = match error {
            CliError::Unreachable { url, why } => {
                let cure = "start it, or look at what lies between here and there (address, firewall)".to_owned();
                (format!("{url} does not answer: {why}"), cure)
            }
            CliError::Refused(refusal) => (refusal.detail.clone(), format!("see the code: {}", refusal.code)),
            CliError::Failed { what, next } => (what.clone(), next.clone()),
            CliError::Usage(text) => (text.clone(), "give the missing flag".to_owned()),
        };
        self.wrong(Grade::Bad, what, detail, cure);
    }
}

pub async fn run(common: &Common) -> Result<Outcome, CliError> {
    let authority = connect::authority(common)?;
    let mut findings = Findings::default();
    if serves(&mut findings, "authority", &authority).await {
        match authority.get("/v1/quarantines").await.and_then(typed) {
            Ok(answer) => quarantines(&mut findings, &answer),
            Err(error) => findings.error("authority's store", &error),
        }
        match authority.get("/v1/regions").await.and_then(|answer| typed(rows(answer, "regions"))) {
            Ok(answer) => regions(&mut findings, answer),
            Err(error) => findings.error("regions", &error),
        }
    }
    match connect::agents(common, None, None).await {
        Ok(agents) => {
            for agent in agents {
                one_agent(&mut findings, &agent).await;
            }
        }
        Err(error) => findings.error("agents", &error),
    }
    Ok(print(common, &findings.0))
}

fn print(common: &Common, checks: &[Check]) -> Outcome {
    let count = |grade: Grade| checks.iter().filter(|check| check.grade == grade).count();
    let (bad, warnings) = (count(Grade::Bad), count(Grade::Warning));
    if common.json {
        show::json(&json!({"ok": bad == 0, "checks": checks}));
        return Outcome::found(bad > 0);
    }
    let width = checks.iter().map(|check| check.what.len()).max().unwrap_or(0);
    for check in checks {
        let mark = match check.grade {
            Grade::Good => "ok  ",
            Grade::Warning => "warn",
            Grade::Bad => "BAD ",
        };
        show::line(format!("{mark}  {:<width$}  {}", check.what, check.detail));
        if let Some(cure) = &check.cure {
            show::line(format!("      {:<width$}  -> {cure}", ""));
        }
    }
    show::line(match (bad, warnings) {
        (0, 0) => "all is well".to_owned(),
        (0, n) => format!("nothing is bad; {n} to look at"),
        (n, _) => format!("{n} bad"),
    });
    Outcome::found(bad > 0)
}

/// Whether it answers at all; with its version, readiness and clock.
async fn serves(findings: &mut Findings, what: &str, api: &Api) -> bool {
    let answer = match api.probe("/healthz").await {
        Ok(answer) => answer,
        Err(error) => {
            findings.error(what, &error);
            return false;
        }
    };
    if !answer.status().is_success() {
        let detail = format!("{}/healthz answers {}", api.url(), answer.status());
        findings.wrong(Grade::Bad, what, detail, "is it Cadastre that listens there?");
        return false;
    }
    let version = version(api).await;
    match version.as_deref() {
        Some(version) if version != env!("CARGO_PKG_VERSION") => {
            let detail = format!("version {version}, this command is {}", env!("CARGO_PKG_VERSION"));
            findings.wrong(Grade::Warning, what, detail, "use the `cadastre` of its version");
        }
        known => findings.good(what, format!("{} serves, version {}", api.url(), known.unwrap_or("unknown"))),
    }
    ready(findings, what, api).await;
    true
}

async fn version(api: &Api) -> Option<String> {
    let document: Value = api.get("/openapi.json").await.ok()?;
    document.pointer("/info/version")?.as_str().map(str::to_owned)
}

async fn ready(findings: &mut Findings, what: &str, api: &Api) {
    let answer = match api.probe("/readyz").await {
        Ok(answer) => answer,
        Err(error) => return findings.error(what, &error),
    };
    if answer.status().is_success() {
        return;
    }
    let status = answer.status();
    let body: Value = answer.json().await.unwrap_or_default();
    let detail =
        body.get("detail").and_then(Value::as_str).map_or_else(|| format!("/readyz answers {status}"), str::to_owned);
    findings.wrong(Grade::Bad, what, format!("not ready: {detail}"), "see the lines below, and its log");
}

/// A required witness that cannot be used stops answers; one that is only asked for its word does not.
fn witness(findings: &mut Findings, what: &str, status: &WitnessStatus) {
    let grade = if status.mode == "required" { Grade::Bad } else { Grade::Warning };
    match (status.mode.as_str(), status.state.as_str()) {
        ("none", _) => {
            let detail = "it has no witness: a restored backup, a cloned disk or a standby that lagged is only found when \
                          the other side speaks";
            let cure = "set CADASTRE_WITNESS to a place in another failure domain";
            findings.wrong(Grade::Warning, what, detail, cure);
        }
        (mode, "down") => {
            let why = status.last_error.as_deref().unwrap_or("no reason given");
            let stops =
                if grade == Grade::Bad { "nothing new is given out until it is back" } else { "it goes on without" };
            let detail = format!("its {} witness cannot be used ({stops}): {why}", mode.replace('_', "-"));
            findings.wrong(grade, what, detail, "look at the witness: its disk, or its Redis and the way there");
        }
        (mode, "empty") => {
            let detail = format!("its {} witness is empty: it was flushed, or lost", mode.replace('_', "-"));
            let cure = "find out who emptied it; a required one is filled once the other side has spoken, a best-effort one \
                        at the next start";
            findings.wrong(grade, what, detail, cure);
        }
        _ => {}
    }
}

/// How the store is set up, as the daemon that uses it sees it.
fn store(findings: &mut Findings, what: &str, found: &[StoreFinding]) {
    for one in found {
        let grade = if one.grade == "bad" { Grade::Bad } else { Grade::Warning };
        findings.wrong(grade, what, &one.detail, &one.cure);
    }
}

fn quarantines(findings: &mut Findings, answer: &Quarantines) {
    let what = "authority's store";
    store(findings, what, &answer.store_findings);
    witness(findings, what, &answer.witness);
    if answer.quarantines.is_empty() && answer.witness.state == "ok" {
        findings.good(what, format!("proved current ({})", answer.continuity));
    }
    for quarantine in &answer.quarantines {
        let since = ago(now_ms().saturating_sub(quarantine.since) / 1_000);
        let detail = format!(
            "{} is in quarantine ({}), since {since}: {}",
            quarantine.scope, quarantine.state, quarantine.reason
        );
        let cure = if quarantine.waiting_for.is_empty() {
            "wait for the regions to testify; `cadastre quarantine list` shows whom it waits for".to_owned()
        } else {
            let names = quarantine.waiting_for.join(", ");
            format!("bring back {names}; only if that cannot be: `cadastre quarantine lift --help`")
        };
        findings.wrong(Grade::Bad, what, detail, cure);
    }
}

fn regions(findings: &mut Findings, regions: Vec<RegionView>) {
    if regions.is_empty() {
        findings.wrong(Grade::Warning, "regions", "there are none", "`cadastre region create NAME`");
    }
    for region in regions.iter().filter(|region| region.state != RegionState::Retired) {
        let what = format!("region {}", region.name);
        let state = format!("{}, epoch {}", region.state.as_str(), region.epoch);
        let heard = region.last_heard_seconds;
        match (&region.waiting_for, heard) {
            (Some(waits), _) => {
                findings.wrong(Grade::Warning, &what, format!("{state}, waits for {waits}"), state_cure(region));
            }
            (None, Some(silent)) if silent > SILENT_SECONDS => {
                let detail = format!("{state}, silent for {}", duration(silent));
                let cure = "it goes on with what it holds; look at its agent and the way from there to the authority";
                findings.wrong(Grade::Bad, &what, detail, cure);
            }
            (None, heard) => findings.good(&what, format!("{state}, heard {}", heard.map_or("never".to_owned(), ago))),
        }
        for agent in region.agents.iter().filter(|agent| agent.clock_offset_ms.unsigned_abs() > CLOCK_MS) {
            let detail = format!("an agent's clock is {} to the authority's", offset(agent.clock_offset_ms));
            findings.wrong(Grade::Warning, &what, detail, "look at time synchronisation on both hosts");
        }
    }
}

fn state_cure(region: &RegionView) -> String {
    let name = &region.name;
    match region.state {
        RegionState::Registered => format!("start its agent with CADASTRE_REGION={name} and its token"),
        RegionState::Draining | RegionState::Fenced => format!("`cadastre recover {name}` brings it back"),
        RegionState::Active | RegionState::Retired => "wait for the heartbeats of the other regions".to_owned(),
    }
}

async fn one_agent(findings: &mut Findings, agent: &Agent) {
    let what = agent.region.as_ref().map_or_else(|| "agent".to_owned(), |region| format!("agent of {region}"));
    if !serves(findings, &what, &agent.api).await {
        return;
    }
    match agent.api.get("/v1/status").await.and_then(typed) {
        Ok(status) => agent_status(findings, &what, &status),
        Err(error) => findings.error(&what, &error),
    }
}

fn agent_status(findings: &mut Findings, what: &str, status: &Status) {
    let before = findings.0.len();
    if status.uplink.state != "up" {
        let why = status.uplink.last_error.as_deref().unwrap_or("no reason given");
        let detail = format!("the way to the authority is {}: {why}", status.uplink.state);
        findings.wrong(
            Grade::Bad,
            what,
            detail,
            "it goes on with what it holds; look at the network and the authority",
        );
    }
    if status.store.state != "ok" {
        let why = status.store.last_error.as_deref().unwrap_or("no reason given");
        let cure = "it goes on with the segments in memory; look at the database, its disk and its log";
        findings.wrong(Grade::Bad, what, format!("its store is {}: {why}", status.store.state), cure);
    }
    store(findings, what, &status.store.findings);
    witness(findings, what, &status.witness);
    if matches!(status.continuity.as_str(), "unproven" | "went_back") || status.quarantined {
        let detail = format!("its store is {}, so it carves nothing", status.continuity);
        findings.wrong(
            Grade::Bad,
            what,
            detail,
            "it is settled once the authority answers; see `cadastre quarantine list`",
        );
    }
    let issues = status.state.is_some_and(RegionState::may_issue);
    for namespace in status.namespaces.iter().filter(|_| issues) {
        let short = namespace.runway_region_seconds.filter(|left| *left < SHORT_RUNWAY_SECONDS);
        if let Some(left) = short {
            let detail = format!("{} lasts {} more", namespace.namespace, duration(left));
            let cure = "a refill should be under way; if the way to the authority is down, it ends dry";
            findings.wrong(Grade::Warning, what, detail, cure);
        }
    }
    if findings.0.len() == before {
        findings.good(what, format!("uplink up, store ok, {}", status.continuity));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_is_cut_off_is_bad_and_says_what_goes_on() {
        let status = json!({"region": "eu", "epoch": 1, "state": "active",
            "incarnation": "a8098c1a-f86e-41da-bd1a-00112444be1e",
            "uplink": {"state": "down", "last_answer_seconds": 9, "last_error": "connection refused"},
            "store": {"state": "ok", "last_error": null}, "continuity": "witnessed", "quarantined": false,
            "clock_offset_ms": 0, "namespaces": [{"namespace": "orders", "rate_per_second": 10.0,
                "left_in_instance": "5", "left_in_region": "5", "runway_instance_seconds": 0,
                "runway_region_seconds": 1, "refill": "backing_off"}]});
        let mut findings = Findings::default();
        agent_status(&mut findings, "agent of eu", &serde_json::from_value(status).unwrap());
        let grades: Vec<Grade> = findings.0.iter().map(|check| check.grade).collect();
        assert_eq!(grades, [Grade::Bad, Grade::Warning]);
        assert!(findings.0[0].detail.contains("connection refused"));
        assert!(findings.0[1].detail.contains("orders lasts 1 s more"));
    }
}
