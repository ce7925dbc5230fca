//! Logs and metrics of the process.
//!
//! Purpose: one log subscriber, one Prometheus recorder, each metric described exactly once.
//! Invariants: every name begins with `cadastre_`; a name described twice with another meaning is
//! refused; nothing here logs a header or a body. Absent on purpose: an exporter of traces, and a
//! listener of its own (`/metrics` is a route of the daemon).

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use metrics::Unit;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;

/// What can go wrong while setting up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The log filter cannot be read.
    #[error("log: {0}")]
    Filter(String),
    /// Somebody else installed a subscriber or recorder first.
    #[error("telemetry is set up already: {0}")]
    Twice(String),
    /// A metric without the prefix, or described twice with another meaning.
    #[error("metric {0}")]
    Metric(String),
}

/// How a metric moves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MetricKind {
    /// Only up.
    Counter,
    /// Up and down.
    Gauge,
    /// A distribution.
    Histogram,
}

/// One metric, for `/metrics` and for the reference in the documentation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MetricDef {
    /// Its name.
    pub name: &'static str,
    /// How it moves.
    pub kind: MetricKind,
    /// In what it is counted.
    pub unit: Unit,
    /// What it tells, in one sentence.
    pub help: &'static str,
}

/// The metrics that this crate writes.
pub const METRICS: &[MetricDef] = &[
    MetricDef {
        name: "cadastre_tls_reload_failed",
        kind: MetricKind::Gauge,
        unit: Unit::Count,
        help: "1 while changed certificates cannot be used and the ones before are served; absent before the first change.",
    },
    MetricDef {
        name: "cadastre_tls_handshakes_failed_total",
        kind: MetricKind::Counter,
        unit: Unit::Count,
        help: "Connections that made no TLS handshake: no certificate where one is asked for, one that is not believed, none in time.",
    },
    MetricDef {
        name: "cadastre_db_transactions_total",
        kind: MetricKind::Counter,
        unit: Unit::Count,
        help: "Database units by name and outcome; a retried try counts as conflict.",
    },
    MetricDef {
        name: "cadastre_db_transaction_seconds",
        kind: MetricKind::Histogram,
        unit: Unit::Seconds,
        help: "Duration of one try of a database unit, waiting for a connection included.",
    },
    MetricDef {
        name: "cadastre_store_proof_seconds",
        kind: MetricKind::Histogram,
        unit: Unit::Seconds,
        help: "How long answers waited for synchronous standbys beyond their commit, by outcome.",
    },
    MetricDef {
        name: "cadastre_store_sync_standbys",
        kind: MetricKind::Gauge,
        unit: Unit::Count,
        help: "Synchronous standbys attached to the store's server.",
    },
    MetricDef {
        name: "cadastre_store_standby_lag_bytes",
        kind: MetricKind::Gauge,
        unit: Unit::Bytes,
        help: "Log that the last of the attached standbys has not flushed.",
    },
    MetricDef {
        name: "cadastre_store_in_recovery",
        kind: MetricKind::Gauge,
        unit: Unit::Count,
        help: "1 while the store's server is a standby.",
    },
    MetricDef {
        name: "cadastre_auth_failures_refused_total",
        kind: MetricKind::Counter,
        unit: Unit::Count,
        help: "Requests without a right token that were put off, since there were too many of them.",
    },
    MetricDef {
        name: "cadastre_http_requests_total",
        kind: MetricKind::Counter,
        unit: Unit::Count,
        help: "HTTP requests by route, method and status.",
    },
    MetricDef {
        name: "cadastre_http_request_seconds",
        kind: MetricKind::Histogram,
        unit: Unit::Seconds,
        help: "Duration of HTTP requests by route.",
    },
];

/// Bounds of every histogram whose name ends in `_seconds`: from 50 microseconds to 10 seconds.
const SECONDS: &[f64] = &[
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.02, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0,
];

/// Sends log lines to standard error.
///
/// # Errors
/// [`TelemetryError`] for a filter that cannot be read, or when called twice.
pub fn init_log(format: LogFormat, filter: Option<&str>) -> Result<(), TelemetryError> {
    let filter = EnvFilter::try_new(filter.unwrap_or("info,sqlx::postgres::notice=error"))
        .map_err(|error| TelemetryError::Filter(error.to_string()))?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    }
    .map_err(|error| TelemetryError::Twice(error.to_string()))
}

/// The process's metrics.
#[derive(Clone)]
pub struct Metrics {
    handle: PrometheusHandle,
}

static METRICS_HANDLE: OnceLock<Option<Metrics>> = OnceLock::new();
static DESCRIBED: Mutex<BTreeMap<&'static str, MetricDef>> = Mutex::new(BTreeMap::new());

impl Metrics {
    /// The recorder of this process, installed by the first call; several daemons in one process
    /// share it.
    ///
    /// # Errors
    /// [`TelemetryError::Twice`] when another recorder is in place.
    pub fn install() -> Result<Self, TelemetryError> {
        let installed = METRICS_HANDLE.get_or_init(|| {
            let recorder = PrometheusBuilder::new()
                .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), SECONDS)
                .ok()?
                .build_recorder();
            let handle = recorder.handle();
            metrics::set_global_recorder(recorder).ok()?;
            Some(Self { handle })
        });
        let metrics = installed.clone().ok_or_else(|| TelemetryError::Twice("another metrics recorder".to_owned()))?;
        metrics.describe(METRICS)?;
        Ok(metrics)
    }

    /// Describes metrics; saying the same again changes nothing.
    ///
    /// # Errors
    /// [`TelemetryError::Metric`] for a name without the prefix or with two meanings.
    pub fn describe(&self, defs: &[MetricDef]) -> Result<(), TelemetryError> {
        let mut described = DESCRIBED.lock().unwrap_or_else(PoisonError::into_inner);
        for def in defs {
            if !def.name.starts_with("cadastre_") {
                return Err(TelemetryError::Metric(format!("{} must begin with cadastre_", def.name)));
            }
            match described.get(def.name) {
                Some(known) if known == def => continue,
                Some(_) => {
                    return Err(TelemetryError::Metric(format!("{} has two meanings", def.name)));
                }
                None => {}
            }
            described.insert(def.name, *def);
            match def.kind {
                MetricKind::Counter => metrics::describe_counter!(def.name, def.unit, def.help),
                MetricKind::Gauge => metrics::describe_gauge!(def.name, def.unit, def.help),
                MetricKind::Histogram => metrics::describe_histogram!(def.name, def.unit, def.help),
            }
        }
        Ok(())
    }

    /// Everything that was described so far, by name.
    #[must_use]
    pub fn described() -> Vec<MetricDef> {
        DESCRIBED.lock().unwrap_or_else(PoisonError::into_inner).values().copied().collect()
    }

    /// Histograms collect samples until they are drained; where nobody scrapes, this has to be called.
    pub fn upkeep(&self) {
        self.handle.run_upkeep();
    }

    /// The text for `/metrics`.
    #[must_use]
    pub fn render(&self) -> String {
        self.upkeep();
        self.handle.render()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_described_once_and_seconds_have_buckets() {
        let metrics = Metrics::install().unwrap();
        let same = Metrics::install().unwrap();
        let def = MetricDef {
            name: "cadastre_test_seconds",
            kind: MetricKind::Histogram,
            unit: Unit::Seconds,
            help: "A test.",
        };
        metrics.describe(&[def]).unwrap();
        same.describe(&[def]).unwrap();
        assert!(same.describe(&[MetricDef { help: "Another.", ..def }]).is_err());
        assert!(same.describe(&[MetricDef { name: "other_total", ..def }]).is_err());
        metrics::histogram!("cadastre_test_seconds").record(0.003);
        let text = metrics.render();
        assert!(text.contains("# HELP cadastre_test_seconds A test."), "{text}");
        assert!(text.contains("cadastre_test_seconds_bucket{le=\"0.005\"} 1"), "{text}");
        assert!(Metrics::described().len() > METRICS.len());
    }
}
