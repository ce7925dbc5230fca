//! Metrics, alerts and dashboards say the same: the document names every metric that the programs describe, the alert
//! rules and the Grafana dashboards use none that is not there, every alert has a runbook and a case of its own.
//!
//! Alerts are checked by promtool, with series that stand for each cause (`ops/prometheus/alerts_test.yml`);
//! `processes/alarms.rs` makes some of the causes in earnest. `CADASTRE_WRITE_DOCS=1` writes the document anew.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use cadastre_runtime::telemetry::{MetricDef, MetricKind};
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// What each program describes, by the heading that it has in the document.
fn described() -> [(&'static str, &'static [MetricDef]); 3] {
    [
        ("The authority", global_authority::METRICS),
        ("Agents", region_agent::metrics::METRICS),
        ("Both", cadastre_runtime::telemetry::METRICS),
    ]
}

const HEAD: &str = "# Metrics

At `/metrics` of every process, for Prometheus. This page is written from what the programs describe, and a test keeps both
in step. Alert rules are in `ops/prometheus/alerts.yml`, dashboards in `ops/grafana/`, what to do in
[operating](operating/alarms.md#alarms).

Labels are bounded: `region` (in a process that serves several; an agent's own otherwise), `namespace` (those of the
roster), `code` (those of [the protocol](protocol.md#error-codes)), `route` (the API's paths), `name` (database units). There
is none for services, instances, tokens or tenants. A gauge of seconds is -1 where nothing is issued, so nothing runs dry.

A refusal of a quota is `cadastre_ids_errors_total` with `code=\"rate_limited\"`; a conflict of identities (two copies of a
process) the same with `code=\"copy_found\"`, and at the authority `cadastre_fence_refusals_total`.
";

fn kind(kind: MetricKind) -> &'static str {
    match kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
    }
}

fn document() -> String {
    let mut text = HEAD.to_owned();
    for (heading, metrics) in described() {
        text.push_str(&format!("\n## {heading}\n\n| metric | kind | what |\n|---|---|---|\n"));
        let sorted: BTreeMap<&str, &MetricDef> = metrics.iter().map(|m| (m.name, m)).collect();
        for metric in sorted.values() {
            text.push_str(&format!("| `{}` | {} | {} |\n", metric.name, kind(metric.kind), metric.help));
        }
    }
    text + "\n## Programs with the client\n\n" + &read("shared/client/src/metrics.md")
}

#[test]
fn the_document_is_what_the_programs_describe() {
    let written = document();
    if std::env::var_os("CADASTRE_WRITE_DOCS").is_some() {
        std::fs::write(root().join("docs/metrics.md"), &written).unwrap();
    }
    let held = read("docs/metrics.md");
    let (held, written): (Vec<&str>, Vec<&str>) = (held.lines().collect(), written.lines().collect());
    let gone: Vec<_> = held.iter().filter(|line| !written.contains(line)).collect();
    let missing: Vec<_> = written.iter().filter(|line| !held.contains(line)).collect();
    assert!(
        held == written,
        "docs/metrics.md is behind: CADASTRE_WRITE_DOCS=1 cargo test -p tests --test metrics\n{gone:#?}\n{missing:#?}"
    );
}

/// Every name that a series may have: histograms have three.
fn series() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for metric in described().iter().flat_map(|(_, metrics)| metrics.iter()) {
        match metric.kind {
            MetricKind::Counter | MetricKind::Gauge => {
                names.insert(metric.name.to_owned());
            }
            MetricKind::Histogram => {
                names.extend(["bucket", "sum", "count"].map(|end| format!("{}_{end}", metric.name)));
            }
        }
    }
    names
}

/// The names of metrics in an expression.
fn used(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("cadastre_")).map(str::to_owned).collect()
}

fn promtool(arguments: &[&str], folder: &Path) {
    let output = Command::new("promtool").args(arguments).current_dir(folder).output();
    let output = output.expect("promtool (`ops/test` installs it)");
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "promtool {arguments:?}: {said}");
}

#[test]
fn rules_are_sound_and_every_alert_fires_on_its_cause() {
    let folder = root().join("ops/prometheus");
    promtool(&["check", "rules", "alerts.yml"], &folder);
    promtool(&["check", "config", "prometheus.yml"], &folder);
    promtool(&["test", "rules", "alerts_test.yml"], &folder);
}

/// The value of `key:` in each line that has it.
fn values<'a>(text: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| line.trim().trim_start_matches("- ").strip_prefix(key)).map(str::trim)
}

#[test]
fn every_alert_has_a_runbook_and_a_case_and_knows_its_metrics() {
    let (rules, cases, operating) =
        (read("ops/prometheus/alerts.yml"), read("ops/prometheus/alerts_test.yml"), read("docs/operating/alarms.md"));
    let alerts: Vec<&str> = values(&rules, "alert:").collect();
    let runbooks: Vec<&str> = values(&rules, "runbook_url:").collect();
    assert!(alerts.len() >= 20 && alerts.len() == runbooks.len(), "{alerts:?} {runbooks:?}");
    for (alert, runbook) in alerts.iter().zip(runbooks) {
        let anchor =
            runbook.strip_prefix("docs/operating/alarms.md#").expect("a runbook is in docs/operating/alarms.md");
        assert!(
            operating.contains(&format!("<a id=\"{anchor}\"></a>")),
            "{alert}: no {anchor} in docs/operating/alarms.md"
        );
        assert!(operating.contains(&format!("`{alert}`")), "docs/operating/alarms.md does not name {alert}");
        let fired = format!("alertname: {alert}\n        exp_alerts:\n");
        let quiet = format!("alertname: {alert}\n        exp_alerts: []");
        assert!(cases.contains(&fired) && cases.contains(&quiet), "{alert}: alerts_test.yml lacks a case of it");
    }
    let unknown: Vec<String> = used(&rules).difference(&series()).cloned().collect();
    assert!(unknown.is_empty(), "alerts on metrics that are not there: {unknown:?}");
}

#[test]
fn no_panel_shows_a_metric_that_is_not_there() {
    let mut rules = String::from("groups:\n- name: panels\n  rules:\n");
    let mut panels = 0;
    for file in std::fs::read_dir(root().join("ops/grafana")).unwrap().map(|f| f.unwrap().path()) {
        let board: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        for panel in board["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().unwrap() {
                let expression = target["expr"].as_str().unwrap();
                let unknown: Vec<String> = used(expression).difference(&series()).cloned().collect();
                assert!(
                    !used(expression).is_empty() && unknown.is_empty(),
                    "{}: {}: {unknown:?}",
                    file.display(),
                    panel["title"]
                );
                rules.push_str(&format!("  - record: panel:{panels}\n    expr: {}\n", serde_json::json!(expression)));
                panels += 1;
            }
        }
    }
    assert!(panels > 40, "{panels} queries");
    // Prometheus itself reads every query.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("panels.yml"), rules).unwrap();
    promtool(&["check", "rules", "--lint=none", "panels.yml"], folder.path());
}
