//! One agent of a region: carves segments from the region's grants and issues ids, cut off or not.
//!
//! ```text
//! http -> front -> issuer            the path of an id: memory only
//!                  issuer <- pool    a carve: decided in core, committed, through the gate, then installed
//!                            pool <- link <-> authority      one message at a time, over the wide area
//! ```
//!
//! | room | what |
//! |---|---|
//! | [`config`] | what a person may set |
//! | [`agent`] | a store opened and judged, and the parts put together |
//! | [`context`] | what the parts share: who, store, what is known, how the tiers above are |
//! | [`issuer`] | the instance tier: cursors, prefetch, who waits |
//! | [`stamps`] | the instance tier of time-based namespaces: workers and their windows |
//! | [`regional`] | the region tier: grants, blocks, segments, worker windows |
//! | [`link`], [`uplink`] | the conversation with the authority, and its HTTP form |
//! | [`orders`] | what answers ask of the agent besides: other regions' addresses, a switch to come, a drill |
//! | [`auth`] | callers, by the roster that the region keeps |
//! | [`limits`], [`quota`] | what services may take, and how the region's agents share it |
//! | [`front`], `thick` | what every protocol's door calls: ids, and segments for processes that issue by themselves |
//! | `http` | the HTTP door |
//! | `resp` | the Redis door |
//! | [`sizing`] | how much to ask for |
//! | [`sql`] | the region's tables, and all SQL over them |
//! | [`loops`] | timers and tasks |
//! | [`metrics`] | every metric |
//!
//! Nothing is global but the process's metrics recorder: several agents may live in one process.

pub mod agent;
pub mod auth;
pub mod config;
pub mod context;
pub mod error;
pub mod front;
mod http;
pub mod issuer;
pub mod knowers;
pub mod limits;
pub mod link;
pub mod loops;
pub mod metrics;
pub mod orders;
pub mod quota;
pub mod regional;
mod resp;
pub mod sizing;
pub mod sql;
pub mod stamps;
mod thick;
pub mod uplink;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cadastre_ledger::continuity::Parts;
use cadastre_ledger::witness::setting;
use cadastre_runtime::clock::SystemClock;
use cadastre_runtime::data_dir::DataDir;
use cadastre_runtime::db::{self, EngineKind};
use cadastre_runtime::entropy::SystemEntropy;
use cadastre_runtime::http::{Lane, Shutdown, serve};
use cadastre_runtime::telemetry::Metrics;
use cadastre_runtime::token::Secret;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use agent::{Agent, Setup};
use config::AgentConfig;
use context::Times;
use quota::Exchange;
use uplink::HttpUplink;

/// How long requests that are under way may take once the process is stopping.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// Why the agent did not start, or ended.
pub type StartError = Box<dyn std::error::Error + Send + Sync>;

/// It must not go on, and nobody may start it again by itself: another copy of its store or process is alive. Two copies
/// that a supervisor starts again and again take turns, and each turn burns what the region holds (decision 0042).
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CopyFound(pub String);

impl CopyFound {
    /// What the process ends with, so that a supervisor can tell it from a start that failed.
    pub const EXIT_CODE: u8 = 3;
}

/// A running agent.
pub struct RunningAgent {
    address: SocketAddr,
    resp: Option<SocketAddr>,
    agent: Arc<Agent>,
    shutdown: Shutdown,
    server: JoinHandle<std::io::Result<()>>,
    resp_server: Option<JoinHandle<()>>,
    loops: Vec<JoinHandle<()>>,
    _data: DataDir,
}

impl RunningAgent {
    /// Where it is reached.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where it speaks the Redis protocol.
    #[must_use]
    pub fn resp(&self) -> Option<SocketAddr> {
        self.resp
    }

    /// The agent.
    #[must_use]
    pub fn agent(&self) -> Arc<Agent> {
        Arc::clone(&self.agent)
    }

    /// Stops: what is under way finishes, nothing new begins, what is left in memory is a gap.
    pub async fn shutdown(self) {
        self.shutdown.trigger();
        if let Err(error) = self.finish().await {
            tracing::error!(%error, "the agent ended badly");
        }
    }

    /// Waits until it stops by itself: a signal, or this incarnation's end.
    ///
    /// # Errors
    /// When the listener failed, or this incarnation must not go on (another copy of it is alive).
    pub async fn wait(self) -> Result<(), StartError> {
        let ended = tokio::select! {
            () = self.shutdown.wait() => None,
            why = self.agent.ctx.ended() => Some(why),
        };
        self.shutdown.trigger();
        self.finish().await?;
        match ended {
            None => Ok(()),
            Some(why) => Err(CopyFound(why).into()),
        }
    }

    async fn finish(self) -> Result<(), StartError> {
        let served = self.server.await;
        if let Some(server) = self.resp_server {
            server.await?;
        }
        for work in self.loops {
            // A message that is under way is not waited for: its answer would not be used.
            work.abort();
        }
        self.agent.close().await;
        served??;
        Ok(())
    }
}

/// Starts an agent; `shutdown` ends it.
///
/// # Errors
/// When the settings, the store, the witness or the address cannot be used. The authority need not be there.
pub async fn start(config: AgentConfig, shutdown: Shutdown) -> Result<RunningAgent, StartError> {
    let config = config.complete()?;
    let region = config.region()?;
    let recorder = Metrics::install()?;
    recorder.describe(metrics::METRICS)?;
    metrics::start(&region);
    let data = DataDir::open(config.data())?;
    let db = db::connect(&config.database_url(), config.store.connect_options()).await?;
    let role = agent::role(&region);
    let (witness, mode) = setting::open(&config.store, &config.data(), &role).await?;
    let parts = Parts { db, witness, mode, role, clock: Arc::new(SystemClock), entropy: Arc::new(SystemEntropy) };
    let listen = config.http.listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 7410)));
    let listener = TcpListener::bind(listen).await.map_err(|e| format!("listen: {listen}: {e}"))?;
    let address = listener.local_addr()?;
    let resp_listener = match config.resp_listen {
        Some(listen) => Some(TcpListener::bind(listen).await.map_err(|e| format!("resp_listen: {listen}: {e}"))?),
        None => None,
    };
    let resp = resp_listener.as_ref().map(TcpListener::local_addr).transpose()?;
    let times = Times {
        heartbeat_ms: u64::from(config.heartbeat_seconds()) * 1_000,
        offline_auth_ms: config.max_offline_auth_seconds.unwrap_or(7 * 86_400).saturating_mul(1_000),
        ..Times::default()
    };
    let certificates = config.http.tls.open()?;
    let trust = config.http.tls.client(certificates.as_ref())?;
    let scheme = if certificates.is_some() { "https" } else { "http" };
    let url = config.advertise_url.clone().unwrap_or_else(|| format!("{scheme}://{address}"));
    let token = config.region_token.clone().unwrap_or_else(|| Secret::new(""));
    let uplink = HttpUplink::new(config.addresses(), token, Duration::from_millis(times.deadline_ms), trust)?;
    let setup = Setup { region, url: Some(url), times, place: place(&parts.db).await? };
    let agent = Arc::new(Agent::open(parts, setup, Arc::new(uplink)).await?);
    // Nothing is carved before the authority was asked: the first callers need not hear of that.
    agent.link.run_once().await;
    let samples = tokio::spawn(loops::samples(recorder.clone(), shutdown.clone()));
    let app = http::App::new(Arc::clone(&agent), recorder, config.telemetry.metrics_token.clone());
    let service = Lane::new(app.clone(), http::router(app, &shutdown), &shutdown);
    let resp_server = resp_listener
        .map(|listener| resp::start(listener, certificates.clone(), Arc::clone(&agent), shutdown.clone(), STOP_WITHIN))
        .transpose()?;
    let server = tokio::spawn(serve(listener, certificates, service, shutdown.clone(), STOP_WITHIN));
    let mut loops = vec![
        tokio::spawn(loops::heartbeats(Arc::clone(&agent), shutdown.clone())),
        tokio::spawn(loops::refills(Arc::clone(&agent), shutdown.clone())),
        tokio::spawn(loops::windows(Arc::clone(&agent), shutdown.clone())),
        tokio::spawn(loops::housekeeping(Arc::clone(&agent), shutdown.clone())),
        tokio::spawn(loops::witness(Arc::clone(&agent), shutdown.clone())),
        tokio::spawn(loops::watch(Arc::clone(&agent), shutdown.clone())),
        samples,
    ];
    if let Some(url) = &config.quota_redis {
        let exchange = Exchange::new(url, Arc::clone(&agent.ctx)).map_err(|e| format!("quota_redis: {e}"))?;
        loops.push(tokio::spawn(loops::quotas(exchange, shutdown.clone())));
    }
    let redis = resp.map_or_else(|| "off".to_owned(), |address| address.to_string());
    tracing::info!(%address, redis, region = %agent.ctx.me.region, "the agent serves");
    Ok(RunningAgent { address, resp, agent, shutdown, server, resp_server, loops, _data: data })
}

/// Where an embedded store lies: its file, and this start of the machine. A copied folder is another file; a copied
/// disk has the same file numbers, and is another machine's, or of another start of this one.
async fn place(db: &db::Db) -> Result<String, StartError> {
    if db.kind() != EngineKind::Sqlite {
        return Ok(String::new());
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Ok(format!("{} {}", db.identity().await?.system, boot.trim()))
}
