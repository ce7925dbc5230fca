//! `cadastre verify`: every invariant over the ledgers. Ends with 1 when something is found. A region that
//! could not be asked is told, and is no finding: what was not looked at is not known to be wrong.

use cadastre_protocol::admin::{Nothing, Verdict};

use crate::api::typed;
use crate::cli::Common;
use crate::connect;
use crate::error::{CliError, Outcome};
use crate::show;
use crate::show::human::digits;

pub async fn run(common: &Common) -> Result<Outcome, CliError> {
    let answer = connect::authority(common)?.post("/v1/audit/verify", &Nothing {}).await?;
    if common.json {
        show::json(&answer);
    }
    let verdict: Verdict = typed(answer)?;
    if !common.json {
        people(&verdict);
    }
    Ok(Outcome::found(!verdict.ok || !verdict.findings.is_empty()))
}

fn people(verdict: &Verdict) {
    let checked = verdict.checked;
    let mut looked = format!("{} grants, {} segments", digits(checked.grants), digits(checked.segments));
    if checked.windows > 0 {
        looked.push_str(&format!(", {} time windows", digits(checked.windows)));
    }
    for finding in &verdict.findings {
        show::line(format!("{}: {}", finding.invariant, finding.detail));
    }
    if !verdict.findings.is_empty() {
        show::line(format!("{} found in {looked}", verdict.findings.len()));
        show::line("which numbers, and whose: `cadastre verify --blast-radius`");
        show::line(
            "next: freeze the namespaces that are named, and keep the stores as they are until it is understood",
        );
    } else if verdict.unreachable.is_empty() {
        show::line(format!("all is well: {looked}"));
    } else {
        show::line(format!("nothing is wrong in what could be looked at: {looked}"));
    }
    if !verdict.unreachable.is_empty() {
        show::line(format!("NOT looked at, because they do not answer: {}", verdict.unreachable.join(", ")));
        show::line("next: `cadastre doctor`, then verify again");
    }
}
