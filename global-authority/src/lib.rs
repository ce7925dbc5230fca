//! The global authority: grants large disjoint ranges of a namespace to regions.
//!
//! | room | what |
//! |---|---|
//! | `config` | what a person may set |
//! | `http` | the API and the page: parse, authenticate, call the service, map errors, nothing else |
//! | `peers` | asking regions what only they know |
//! | `service` | the decisions around the store, one room per noun |
//! | `sql` | the authority's tables, and all SQL over them |

pub mod config;
mod http;
mod peers;
pub mod service;
pub mod sql;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cadastre_ledger::continuity::Parts;
use cadastre_ledger::witness::setting;
use cadastre_runtime::clock::{Stopwatch, SystemClock};
use cadastre_runtime::data_dir::DataDir;
use cadastre_runtime::db;
use cadastre_runtime::entropy::SystemEntropy;
use cadastre_runtime::http::{Shutdown, serve};
use cadastre_runtime::telemetry::{MetricDef, MetricKind, Metrics};
use metrics::Unit;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use config::AuthorityConfig;
use peers::Peers;
use service::{Authority, Settings, Spawn, trend};

/// How long requests that are under way may take once the process is stopping.
const STOP_WITHIN: Duration = Duration::from_secs(10);
/// How often the store's server and a quarantine are looked at when nobody speaks.
const SETTLE_EVERY: Duration = Duration::from_secs(1);

/// Every metric of the authority.
pub const METRICS: &[MetricDef] = &[
    metric("cadastre_grants_total", MetricKind::Counter, "Ranges granted, by namespace."),
    metric("cadastre_grant_refusals_total", MetricKind::Counter, "Wants of regions that got nothing, by code."),
    metric(
        "cadastre_fence_refusals_total",
        MetricKind::Counter,
        "Messages of agents that were refused because of who sent them: an old epoch, another store, a copy; by code.",
    ),
    metric("cadastre_quarantined", MetricKind::Gauge, "1 while the authority gives nothing out."),
    metric(
        "cadastre_witness_up",
        MetricKind::Gauge,
        "1 while the witness answers and holds marks; absent where there is none.",
    ),
    metric("cadastre_witness_failures_total", MetricKind::Counter, "Times that the witness could not be used."),
    metric("cadastre_space_left", MetricKind::Gauge, "Ordinals that can still be granted, by namespace."),
    metric("cadastre_watermark", MetricKind::Gauge, "Everything below was granted, by namespace (an ordinal)."),
    metric(
        "cadastre_space_used_ratio",
        MetricKind::Gauge,
        "Share of the space (of a layout: of its time) that is behind us, 0 to 1, by namespace.",
    ),
    metric(
        "cadastre_space_ends_seconds",
        MetricKind::Gauge,
        "How long the whole space lasts at the present rate, by namespace; -1 at rate 0.",
    ),
    metric(
        "cadastre_layout_ends_seconds",
        MetricKind::Gauge,
        "How long a layout's bits last, by time-based namespace.",
    ),
    metric("cadastre_issued_estimate", MetricKind::Gauge, "Ordinals that were probably issued, by namespace."),
    metric("cadastre_burned", MetricKind::Gauge, "Ordinals that will never be issued, by namespace."),
    metric("cadastre_burned_ratio", MetricKind::Gauge, "Share of what was granted that is burned, by namespace."),
    metric("cadastre_region_left", MetricKind::Gauge, "Ordinals a region can still carve, by namespace and region."),
    metric(
        "cadastre_runway_seconds",
        MetricKind::Gauge,
        "How long a region goes on alone at the rate seen, as the authority knows it, by namespace and region; -1 at rate 0.",
    ),
    metric("cadastre_runway_at_peak_seconds", MetricKind::Gauge, "The same at the day's peak."),
    metric("cadastre_window_seconds", MetricKind::Gauge, "How long a region may still stamp, by namespace and region."),
    metric(
        "cadastre_drill_passed",
        MetricKind::Gauge,
        "Whether the last drill that nobody ended early passed, by kind and region.",
    ),
    metric("cadastre_drill_ended_seconds", MetricKind::Gauge, "When it ended, in seconds since the Unix epoch."),
    metric(
        "cadastre_drill_heal_seconds",
        MetricKind::Gauge,
        "How long it took to heal afterwards; -1 where it did not.",
    ),
    metric("cadastre_region_heard_seconds", MetricKind::Gauge, "Seconds since a region's last message."),
    metric("cadastre_region_fenced", MetricKind::Gauge, "1 while a region is fenced and waits for recover."),
    metric("cadastre_agents", MetricKind::Gauge, "Live agents, by region."),
    metric(
        "cadastre_agent_clock_offset_seconds",
        MetricKind::Gauge,
        "The agents' clock that is farthest from the authority's: its difference, by region.",
    ),
    metric(
        "cadastre_verify_findings",
        MetricKind::Gauge,
        "What the last check of every invariant found. Anything but 0 is an emergency.",
    ),
];

const fn metric(name: &'static str, kind: MetricKind, help: &'static str) -> MetricDef {
    MetricDef { name, kind, unit: Unit::Count, help }
}

/// Why the authority did not start.
pub type StartError = Box<dyn std::error::Error + Send + Sync>;

/// A running authority.
pub struct RunningAuthority {
    address: SocketAddr,
    shutdown: Shutdown,
    server: JoinHandle<std::io::Result<()>>,
    authority: Arc<Authority>,
    _data: DataDir,
}

impl RunningAuthority {
    /// Where it is reached.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its service.
    #[must_use]
    pub fn service(&self) -> Arc<Authority> {
        Arc::clone(&self.authority)
    }

    /// Stops: what is under way finishes, nothing new begins.
    pub async fn shutdown(self) {
        self.shutdown.trigger();
        if let Err(error) = self.server.await {
            tracing::error!(%error, "the server ended badly");
        }
    }

    /// Waits until it stops by itself (a signal).
    ///
    /// # Errors
    /// When the listener failed.
    pub async fn wait(self) -> Result<(), StartError> {
        self.server.await??;
        Ok(())
    }
}

/// Starts an authority; `shutdown` ends it.
///
/// # Errors
/// When the settings, the store, the witness or the address cannot be used.
pub async fn start(config: AuthorityConfig, shutdown: Shutdown) -> Result<RunningAuthority, StartError> {
    let config = config.complete()?;
    let metrics = Metrics::install()?;
    metrics.describe(METRICS)?;
    let data = DataDir::open(config.data())?;
    let db = db::connect(&config.database_url(), config.store.connect_options()).await?;
    db::migrate(&db, sql::MIGRATIONS).await?;
    let (witness, mode) = setting::open(&config.store, &config.data(), "authority").await?;
    let parts = Parts {
        db,
        witness,
        mode,
        role: "authority".to_owned(),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
    };
    let settings = Settings {
        replay_retention_ms: config.replay_retention_seconds.unwrap_or(7 * 86_400).saturating_mul(1_000),
        rebuild: config.rebuild()?,
        ..Settings::default()
    };
    let spawn: Spawn = Arc::new(|work| {
        tokio::spawn(work);
    });
    let bootstrap = config.bootstrap_token.as_ref().map(|t| t.reveal());
    let authority = Authority::open(parts, settings, spawn, bootstrap).await?;
    let listen = config.http.listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 7400)));
    let listener = TcpListener::bind(listen).await.map_err(|e| format!("listen: {listen}: {e}"))?;
    let address = listener.local_addr()?;
    let certificates = config.http.tls.open()?;
    let trust = config.http.tls.client(certificates.as_ref())?;
    let peers = Peers::new(trust)?;
    let app = http::App::new(Arc::clone(&authority), peers, metrics, config.telemetry.metrics_token.clone());
    let router = http::router(app, &shutdown);
    let server = tokio::spawn(serve(listener, certificates, router, shutdown.clone(), STOP_WITHIN));
    tokio::spawn(settle_loop(Arc::clone(&authority), shutdown.clone()));
    tracing::info!(%address, continuity = authority.how().as_str(), "the authority serves");
    Ok(RunningAuthority { address, shutdown, server, authority, _data: data })
}

/// Looks at a quarantine, and takes samples of what is left, until the process stops.
async fn settle_loop(authority: Arc<Authority>, shutdown: Shutdown) {
    let mut rest = 0_u64;
    loop {
        tokio::select! {
            () = shutdown.wait() => return,
            () = tokio::time::sleep(SETTLE_EVERY) => {}
        }
        authority.tick().await;
        // A sample for the trend, also where nobody scrapes; less often where there is much to read.
        if rest > 0 {
            rest -= 1;
            continue;
        }
        let watch = Stopwatch::start();
        if let Err(error) = authority.publish_gauges().await {
            tracing::debug!(%error, "no gauges");
        }
        rest = trend::EVERY_SECONDS + (watch.seconds() * 20.0) as u64;
    }
}
