//! What is measured, through the `metrics` facade; `metrics.md` beside this file says what it means.
//!
//! Invariant: labels are bounded: namespaces, and the protocol's codes. Absent on purpose: a recorder.

use cadastre_core::ids::Name;

pub(crate) fn refilled(namespace: &Name, agent: usize, seconds: f64) {
    metrics::counter!("cadastre_client_refills_total", "namespace" => namespace.to_string(), "result" => "ok")
        .increment(1);
    metrics::histogram!("cadastre_client_refill_seconds", "namespace" => namespace.to_string()).record(seconds);
    metrics::gauge!("cadastre_client_agent").set(agent as f64);
}

pub(crate) fn refill_failed(namespace: &Name, code: &'static str) {
    metrics::counter!("cadastre_client_refills_total", "namespace" => namespace.to_string(), "result" => code)
        .increment(1);
}

pub(crate) fn duplicate(namespace: &Name) {
    metrics::counter!("cadastre_client_duplicates_total", "namespace" => namespace.to_string()).increment(1);
}

pub(crate) fn waited(namespace: &Name) {
    metrics::counter!("cadastre_client_waits_total", "namespace" => namespace.to_string()).increment(1);
}

pub(crate) fn burned(namespace: &Name, ids: u64) {
    if ids > 0 {
        metrics::counter!("cadastre_client_burned_total", "namespace" => namespace.to_string()).increment(ids);
    }
}

pub(crate) fn stands(namespace: &Name, issued: u64, rate_per_second: f64, left: u64) {
    metrics::counter!("cadastre_client_issued_total", "namespace" => namespace.to_string()).increment(issued);
    metrics::gauge!("cadastre_client_rate_per_second", "namespace" => namespace.to_string()).set(rate_per_second);
    metrics::gauge!("cadastre_client_left", "namespace" => namespace.to_string()).set(left as f64);
}

pub(crate) fn clock_offset(namespace: &Name, seconds: f64) {
    metrics::gauge!("cadastre_client_clock_offset_seconds", "namespace" => namespace.to_string()).set(seconds);
}
