//! Every metric of an agent, described once, and the few lines that write each.
//!
//! Label sets are bounded: `region` (one per agent of the process), `namespace` (those of the roster) and
//! `code` (those of the contract). Absent on purpose: labels for services, instances and tokens.

use std::borrow::Cow;

use cadastre_core::ids::Name;
use cadastre_protocol::error::Code;
use cadastre_protocol::ids::WitnessStatus;
use cadastre_runtime::telemetry::{MetricDef, MetricKind};
use metrics::Unit;

const fn def(name: &'static str, kind: MetricKind, unit: Unit, help: &'static str) -> MetricDef {
    MetricDef { name, kind, unit, help }
}

use MetricKind::{Counter, Gauge, Histogram};

/// What this crate writes.
pub const METRICS: &[MetricDef] = &[
    def("cadastre_ids_issued_total", Counter, Unit::Count, "Ids issued by this agent's own segments, by namespace."),
    def(
        "cadastre_ids_request_seconds",
        Histogram,
        Unit::Seconds,
        "Duration of requests for ids, waiting for a refill included.",
    ),
    def("cadastre_ids_errors_total", Counter, Unit::Count, "Refused requests for ids and segments, by code."),
    def(
        "cadastre_ids_rate_per_second",
        Gauge,
        Unit::CountPerSecond,
        "Ids a second over the last minute, by namespace.",
    ),
    def("cadastre_instance_left_count", Gauge, Unit::Count, "Ids left in this agent's own segments, by namespace."),
    def(
        "cadastre_instance_runway_seconds",
        Gauge,
        Unit::Seconds,
        "How long this agent's own segments last at the present rate; -1 at rate 0.",
    ),
    def(
        "cadastre_region_left_count",
        Gauge,
        Unit::Count,
        "Ids of the region's grants that no segment holds, by namespace.",
    ),
    def(
        "cadastre_region_runway_seconds",
        Gauge,
        Unit::Seconds,
        "How long segments and grants last together at the present rate; -1 at rate 0.",
    ),
    def(
        "cadastre_clock_rollbacks_total",
        Counter,
        Unit::Count,
        "Requests for time-based ids that were refused because the clock is behind the last id, by namespace.",
    ),
    def("cadastre_refill_seconds", Histogram, Unit::Seconds, "Duration of a carve, its commit and its gate included."),
    def("cadastre_refills_total", Counter, Unit::Count, "Segments carved, by namespace."),
    def(
        "cadastre_refills_late_total",
        Counter,
        Unit::Count,
        "Refills that came after the segment was used up, by namespace.",
    ),
    def("cadastre_refill_failures_total", Counter, Unit::Count, "Refills that did not succeed, by code."),
    def(
        "cadastre_ids_burned_total",
        Counter,
        Unit::Count,
        "Ids given up: of older epochs, of stopped processes, or taken for a request that failed.",
    ),
    def("cadastre_grants_adopted_total", Counter, Unit::Count, "Grants adopted from the authority, by namespace."),
    def(
        "cadastre_overlaps_total",
        Counter,
        Unit::Count,
        "Ranges refused because they overlap what was held before. Anything but 0 is an emergency.",
    ),
    def(
        "cadastre_duplicates_reported_total",
        Counter,
        Unit::Count,
        "Ids that callers say came twice, by namespace. One is enough to wake somebody up.",
    ),
    def(
        "cadastre_authority_quarantined",
        Gauge,
        Unit::Count,
        "1 while the authority says that it is in quarantine: this region gets nothing new.",
    ),
    def("cadastre_region_epoch", Gauge, Unit::Count, "The region's epoch; 0 before the authority's first answer."),
    def("cadastre_clock_offset_seconds", Gauge, Unit::Seconds, "This agent's clock minus the authority's."),
    def("cadastre_store_up", Gauge, Unit::Count, "1 while the region's store answers."),
    def(
        "cadastre_store_proven",
        Gauge,
        Unit::Count,
        "1 while the store is known to be current; 0 while nothing is carved from it.",
    ),
    def(
        "cadastre_witness_up",
        Gauge,
        Unit::Count,
        "1 while the witness answers and holds marks; absent where there is none.",
    ),
    def("cadastre_witness_failures_total", Counter, Unit::Count, "Times that the witness could not be used."),
    def("cadastre_uplink_up", Gauge, Unit::Count, "1 while the authority answers this agent."),
    def(
        "cadastre_uplink_seconds",
        Histogram,
        Unit::Seconds,
        "Duration of a message to the authority that was answered.",
    ),
    def(
        "cadastre_uplink_failures_total",
        Counter,
        Unit::Count,
        "Messages to the authority that were not answered or were refused, by code.",
    ),
    def("cadastre_quota_redis_up", Gauge, Unit::Count, "1 while services' rates are shared through Redis."),
    def("cadastre_quota_agents", Gauge, Unit::Count, "Agents that share services' rates, as of the last answer."),
    def("cadastre_redis_connections", Gauge, Unit::Count, "Open connections of the Redis protocol."),
    def(
        "cadastre_redis_connections_refused_total",
        Counter,
        Unit::Count,
        "Connections of the Redis protocol that were closed at once, because too many were open.",
    ),
    def("cadastre_redis_commands_total", Counter, Unit::Count, "Commands of the Redis protocol, of every kind."),
    def(
        "cadastre_redis_faults_total",
        Counter,
        Unit::Count,
        "Connections of the Redis protocol that were closed because what came was no command.",
    ),
    def(
        "cadastre_redis_batch_seconds",
        Histogram,
        Unit::Seconds,
        "Duration of a batch of pipelined commands with requests for ids, waiting for a refill included.",
    ),
];

fn label(name: &Name) -> Cow<'static, str> {
    Cow::Owned(name.as_str().to_owned())
}

/// Ids were issued.
pub fn issued(region: &Name, namespace: &Name, n: u64) {
    metrics::counter!("cadastre_ids_issued_total", "region" => label(region), "namespace" => label(namespace))
        .increment(n);
}

/// Requests for ids: looked up once, as each of them is noted.
pub struct Asked {
    region: Name,
    seconds: metrics::Histogram,
}

impl Asked {
    /// Those of a region. To be made once metrics are set up.
    #[must_use]
    pub fn new(region: &Name) -> Self {
        let seconds = metrics::histogram!("cadastre_ids_request_seconds", "region" => label(region));
        Self { region: region.clone(), seconds }
    }

    /// One was answered or refused.
    pub fn note(&self, seconds: f64, code: Option<Code>) {
        self.seconds.record(seconds);
        if let Some(code) = code {
            refused(&self.region, code);
        }
    }
}

/// A request for ids was refused.
pub fn refused(region: &Name, code: Code) {
    metrics::counter!("cadastre_ids_errors_total", "region" => label(region), "code" => code.as_str()).increment(1);
}

/// The handles of the Redis door, fetched once: what is counted there is counted a million times a second.
pub struct Redis {
    /// Open connections.
    pub connections: metrics::Gauge,
    /// Connections above the limit.
    pub crowded: metrics::Counter,
    /// Commands.
    pub commands: metrics::Counter,
    /// Bytes that were no command.
    pub faults: metrics::Counter,
    /// Batches with requests for ids.
    pub seconds: metrics::Histogram,
}

impl Redis {
    /// The handles of a region's agent.
    #[must_use]
    pub fn new(region: &Name) -> Self {
        let r = label(region);
        Self {
            connections: metrics::gauge!("cadastre_redis_connections", "region" => r.clone()),
            crowded: metrics::counter!("cadastre_redis_connections_refused_total", "region" => r.clone()),
            commands: metrics::counter!("cadastre_redis_commands_total", "region" => r.clone()),
            faults: metrics::counter!("cadastre_redis_faults_total", "region" => r.clone()),
            seconds: metrics::histogram!("cadastre_redis_batch_seconds", "region" => r),
        }
    }
}

/// How a namespace stands at the instance tier.
pub fn instance(
    region: &Name,
    namespace: &Name,
    rate: f64,
    left: u64,
    runway: Option<u64>,
    region_runway: Option<u64>,
) {
    let (r, n) = (label(region), label(namespace));
    let seconds = |s: Option<u64>| s.map_or(-1.0, |s| s as f64);
    metrics::gauge!("cadastre_ids_rate_per_second", "region" => r.clone(), "namespace" => n.clone()).set(rate);
    metrics::gauge!("cadastre_instance_left_count", "region" => r.clone(), "namespace" => n.clone()).set(left as f64);
    metrics::gauge!("cadastre_instance_runway_seconds", "region" => r.clone(), "namespace" => n.clone())
        .set(seconds(runway));
    metrics::gauge!("cadastre_region_runway_seconds", "region" => r, "namespace" => n).set(seconds(region_runway));
}

/// What a namespace has left at the region tier.
pub fn region_left(region: &Name, namespace: &Name, left: u64) {
    metrics::gauge!("cadastre_region_left_count", "region" => label(region), "namespace" => label(namespace))
        .set(left as f64);
}

/// A refill succeeded.
pub fn refilled(region: &Name, namespace: &Name, seconds: f64, late: bool) {
    let (r, n) = (label(region), label(namespace));
    metrics::histogram!("cadastre_refill_seconds", "region" => r.clone()).record(seconds);
    metrics::counter!("cadastre_refills_total", "region" => r.clone(), "namespace" => n.clone()).increment(1);
    if late {
        metrics::counter!("cadastre_refills_late_total", "region" => r, "namespace" => n).increment(1);
    }
}

/// A refill did not succeed.
pub fn refill_failed(region: &Name, code: Code) {
    metrics::counter!("cadastre_refill_failures_total", "region" => label(region), "code" => code.as_str())
        .increment(1);
}

/// A caller was told that the clock is behind.
pub fn clock_rollback(region: &Name, namespace: &Name) {
    metrics::counter!("cadastre_clock_rollbacks_total", "region" => label(region), "namespace" => label(namespace))
        .increment(1);
}

/// Ids were given up.
pub fn burned(region: &Name, namespace: &Name, n: u64) {
    metrics::counter!("cadastre_ids_burned_total", "region" => label(region), "namespace" => label(namespace))
        .increment(n);
}

/// A grant was adopted.
pub fn adopted(region: &Name, namespace: &Name) {
    metrics::counter!("cadastre_grants_adopted_total", "region" => label(region), "namespace" => label(namespace))
        .increment(1);
}

/// A range was refused because it overlaps.
pub fn overlap(region: &Name, namespace: &Name) {
    metrics::counter!("cadastre_overlaps_total", "region" => label(region), "namespace" => label(namespace))
        .increment(1);
}

/// A caller says that an id came twice.
pub fn duplicate(region: &Name, namespace: &Name) {
    metrics::counter!("cadastre_duplicates_reported_total", "region" => label(region), "namespace" => label(namespace))
        .increment(1);
}

/// What the authority says of itself.
pub fn authority(region: &Name, quarantined: bool) {
    metrics::gauge!("cadastre_authority_quarantined", "region" => label(region)).set(f64::from(u8::from(quarantined)));
}

/// Makes the counters that must be seen at 0.
pub fn start(region: &Name) {
    metrics::counter!("cadastre_duplicates_reported_total", "region" => label(region), "namespace" => "").absolute(0);
    metrics::counter!("cadastre_overlaps_total", "region" => label(region), "namespace" => "").absolute(0);
}

/// How the tiers above are.
pub fn tiers(region: &Name, epoch: u64, store_up: bool, proven: bool, uplink_up: bool, offset_ms: Option<i64>) {
    let r = label(region);
    let one = |yes: bool| f64::from(u8::from(yes));
    metrics::gauge!("cadastre_region_epoch", "region" => r.clone()).set(epoch as f64);
    metrics::gauge!("cadastre_store_up", "region" => r.clone()).set(one(store_up));
    metrics::gauge!("cadastre_store_proven", "region" => r.clone()).set(one(proven));
    metrics::gauge!("cadastre_uplink_up", "region" => r.clone()).set(one(uplink_up));
    if let Some(ms) = offset_ms {
        metrics::gauge!("cadastre_clock_offset_seconds", "region" => r).set(ms as f64 / 1_000.0);
    }
}

/// Whether services' rates are shared, and among how many agents.
pub fn quota_exchange(region: &Name, up: bool, agents: usize) {
    metrics::gauge!("cadastre_quota_redis_up", "region" => label(region)).set(f64::from(u8::from(up)));
    metrics::gauge!("cadastre_quota_agents", "region" => label(region)).set(agents as f64);
}

/// How the witness of the region's store is.
pub fn witness(region: &Name, status: &WitnessStatus) {
    if status.mode == "none" {
        return;
    }
    let up = f64::from(u8::from(status.state == "ok"));
    metrics::gauge!("cadastre_witness_up", "region" => label(region)).set(up);
    metrics::counter!("cadastre_witness_failures_total", "region" => label(region)).absolute(status.failures);
}

/// A message was answered.
pub fn answered(region: &Name, seconds: f64) {
    metrics::histogram!("cadastre_uplink_seconds", "region" => label(region)).record(seconds);
}

/// A message was not answered, or refused.
pub fn unanswered(region: &Name, code: &'static str) {
    metrics::counter!("cadastre_uplink_failures_total", "region" => label(region), "code" => code).increment(1);
}
