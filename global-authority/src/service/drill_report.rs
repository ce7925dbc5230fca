//! A drill's report: from what the agents saw, as JSON and as Markdown.

use std::collections::BTreeMap;
use std::fmt::Write;

use cadastre_core::drill::{self, DrillKind, Seen};
use cadastre_core::ids::Name;
use cadastre_protocol::admin::Verdict;
use cadastre_protocol::operate::{DrillReport, DrillView};

use super::drill_rules::{findings, of_region, united};
use super::drills::Drill;

/// The report of a drill that is over.
pub(super) fn report(body: &Drill, mut verified: Verdict) -> DrillReport {
    let mut errors: BTreeMap<String, u64> = BTreeMap::new();
    for (code, n) in body.words.values().flat_map(|word| &word.errors) {
        *errors.entry(code.clone()).or_default() += n;
    }
    for word in body.words.values() {
        let Some(theirs) = &word.verified else { continue };
        verified.checked.segments += theirs.checked.segments;
        verified.checked.windows += theirs.checked.windows;
        verified.findings.extend(theirs.findings.iter().cloned());
    }
    verified.ok = verified.findings.is_empty();
    if !body.words.is_empty() && body.words.values().all(|word| word.verified.is_none()) {
        verified.unreachable.push(body.order.region.to_string());
    }
    let overlaps = u64::try_from(verified.findings.len()).unwrap_or(u64::MAX);
    let (verdict, why) = drill::judge(body.order.kind, &findings(body, &errors, overlaps));
    let seconds = |ms: u64| ms as f64 / 1_000.0;
    let back = body.words.values().filter(|word| !word.running);
    let (cut_seconds, heal_seconds) = match (body.away.since, body.away.until, body.away.home_at) {
        (since, Some(until), home_at) => {
            let away = since.map_or(0.0, |since| seconds(until.saturating_sub(since)));
            (away, home_at.map(|at| seconds(at.saturating_sub(until))))
        }
        _ => {
            let cut = seconds(body.words.values().map(|word| word.ran_ms).max().unwrap_or(0));
            (cut, back.map(|word| word.over_ms).max().map(seconds))
        }
    };
    let both = body.order.to.iter().chain([&body.order.region]).filter(|_| body.order.to.is_some());
    let regions = both.map(|region| (region.clone(), of_region(body, region))).collect();
    DrillReport {
        verdict,
        why,
        cut_seconds,
        heal_seconds,
        namespaces: united(body.words.values()),
        regions,
        errors,
        verified,
    }
}

/// The report for people; none before the end.
pub(super) fn markdown(view: &DrillView) -> Option<String> {
    let report = view.report.as_ref()?;
    let mut text = String::new();
    // Writing into a string does not fail.
    let _ = write_all(&mut text, view, report);
    Some(text)
}

fn write_all(text: &mut String, view: &DrillView, report: &DrillReport) -> std::fmt::Result {
    let verified = &report.verified;
    let to = view.to.as_ref().map_or_else(String::new, |to| format!(" to {to}"));
    let off = view.clock_ms.map_or_else(String::new, |ms| format!(" by {:+.1} s", ms as f64 / 1_000.0));
    writeln!(text, "# Drill: {} of {}{to}{off}\n", view.kind.as_str(), view.region)?;
    writeln!(text, "Verdict: **{}**: {}.\n", report.verdict.as_str(), report.why.join("; "))?;
    let heal = report.heal_seconds.map_or_else(|| "not seen".to_owned(), |s| format!("{s:.1} s"));
    let what = match view.kind {
        DrillKind::WanCut => "Cut off",
        DrillKind::Failover => "The home was away",
        DrillKind::Clock => "The clock was off",
        DrillKind::Restore => "The store was put back",
    };
    writeln!(text, "{what} for {:.1} s of {} s; healed after {heal}.\n", report.cut_seconds, view.for_seconds)?;
    if report.regions.is_empty() {
        seen_table(text, &report.namespaces)?;
    }
    for (region, namespaces) in &report.regions {
        writeln!(text, "At {region}:\n")?;
        seen_table(text, namespaces)?;
    }
    writeln!(text, "Callers were refused:\n")?;
    if report.errors.is_empty() {
        writeln!(text, "- never")?;
    }
    for (code, n) in &report.errors {
        writeln!(text, "- {code}: {n}")?;
    }
    let checked = verified.checked;
    writeln!(
        text,
        "\nLedgers checked after the heal: {} grants, {} segments, {} windows; {} findings.\n",
        checked.grants,
        checked.segments,
        checked.windows,
        verified.findings.len()
    )?;
    writeln!(text, "## Timeline\n")?;
    for line in &view.lines {
        writeln!(text, "- {} ms: {}", line.at.saturating_sub(view.made_at), line.text)?;
    }
    Ok(())
}

fn seen_table(text: &mut String, namespaces: &BTreeMap<Name, Seen>) -> std::fmt::Result {
    writeln!(
        text,
        "| namespace | issued | held at first | least held | least runway | would have run dry | ran dry | forecast |"
    )?;
    writeln!(text, "|---|---|---|---|---|---|---|---|")?;
    let seconds = |s: Option<u64>| s.map_or_else(|| "-".to_owned(), |s| format!("{s} s"));
    for (name, seen) in namespaces {
        let dry = seen.dry_after_ms.map_or_else(|| "-".to_owned(), |ms| format!("after {:.1} s", ms as f64 / 1_000.0));
        writeln!(
            text,
            "| {name} | {} | {} | {} | {} | {} | {dry} | {} |",
            seen.issued,
            seen.held_at_first,
            seen.least_held,
            seconds(seen.least_runway_seconds),
            seconds(seen.would_be_dry_after_seconds),
            seconds(seen.forecast_seconds),
        )?;
    }
    writeln!(text)
}
