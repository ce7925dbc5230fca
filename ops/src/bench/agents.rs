//! One agent as a process: how soon it issues, and how much memory it takes.
//!
//! Invariant: its store is warm: it has joined, holds a grant, and was stopped in order. Absent on purpose: a first
//! start on an empty store, which waits for the authority by its nature.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

use cadastre_core::ids::Name;
use cadastre_core::namespace::{NamespaceEntry, Policy};
use cadastre_core::roster::Body;
use cadastre_core::sequence::Sequence;
use cadastre_runtime::clock::Stopwatch;
use cadastre_runtime::http::Shutdown;
use cadastre_runtime::telemetry;
use global_authority::service::roster::{Change, Effect};
use region_agent::config::AgentConfig;

use super::Effort;
use super::rounds::{OURS, Result as Measured};
use super::served::free_port;
use super::site::Site;
use crate::dev::setup;
use crate::error::CliError;

/// Namespaces made in one transaction.
const AT_ONCE: u32 = 1_000;
const HOT_SERVICE: &str = "hot";

/// Who answers at the authority's address when the agent starts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Authority {
    /// The authority.
    There,
    /// Nobody: a connection is refused.
    Refused,
    /// A connection is made, and nothing ever comes.
    Silent,
}

/// From exec to the first id, in milliseconds.
///
/// # Errors
/// Where something does not start.
pub async fn start(who: Authority, effort: Effort) -> Result<Measured, CliError> {
    let mut site = Site::start(None, 0).await?;
    site.start_agent(None).await?;
    site.first_id().await?;
    site.stop_agent().await;
    let silent = TcpListener::bind(("127.0.0.1", 0)).and_then(|l| Ok((l.local_addr()?, l)));
    let (silent, _listener) = silent.map_err(|e| CliError::failed(e.to_string(), "free a port"))?;
    let address = match who {
        Authority::There => None,
        Authority::Refused => Some(SocketAddr::from(([127, 0, 0, 1], free_port()?))),
        Authority::Silent => Some(silent),
    };
    let mut measured = Measured::default();
    for turn in 0..=effort.rounds {
        let watch = Stopwatch::start();
        site.start_agent(address).await?;
        site.first_id().await?;
        if turn > 0 {
            measured.add(OURS, watch.seconds() * 1e3);
        }
        site.stop_agent().await;
    }
    site.stop().await;
    Ok(measured)
}

/// The resident memory of an agent that knows so many namespaces, of which it has issued in so many, in megabytes.
///
/// # Errors
/// Where something does not start.
pub async fn memory(namespaces: u32, hot: u32, effort: Effort) -> Result<Measured, CliError> {
    let mut site = Site::start(None, 0).await?;
    let names = (0..namespaces).map(|n| setup::name(&format!("space-{n}"))).collect::<Result<Vec<_>, _>>()?;
    let authority = site.authority()?;
    for some in names.chunks(AT_ONCE as usize) {
        let made = authority.change("bench", "namespace", |_| Ok((some.iter().map(namespace).collect(), ())));
        made.await.map_err(|e| CliError::failed(e.to_string(), "this is a fault of the bench"))?;
    }
    let hot: Vec<Name> = names.into_iter().take(hot as usize).collect();
    let token = site.admit(HOT_SERVICE, hot.clone()).await?;
    let mut measured = Measured::default();
    for _ in 0..effort.rounds.min(3) {
        site.start_agent(None).await?;
        for name in hot.iter().collect::<BTreeSet<_>>() {
            site.id_of(name.as_str(), &token).await?;
        }
        tokio::time::sleep(std::time::Duration::from_secs(u64::from(effort.load_seconds))).await;
        measured.add(OURS, resident(site.agent_pid())?);
        site.stop_agent().await;
    }
    site.stop().await;
    Ok(measured)
}

/// What each of so many idle namespaces adds to the resident memory of an agent, in bytes: the same agent with them and
/// without, each started anew.
///
/// # Errors
/// Where something does not start.
pub async fn idle(namespaces: u32, effort: Effort) -> Result<Measured, CliError> {
    let (without, with) = (memory(1, 1, effort).await?.ours(), memory(1 + namespaces, 1, effort).await?.ours());
    let mut measured = Measured::default();
    measured.add(OURS, (with - without) * 1e6 / f64::from(namespaces));
    Ok(measured)
}

/// An agent in this process until it is told to stop: what the `region-agent` binary does with a file of settings.
///
/// # Errors
/// Where it does not start, or ends badly.
pub async fn serve(settings: PathBuf) -> Result<(), CliError> {
    let mut config = AgentConfig::default();
    config.config.config = Some(settings);
    let run = async {
        let config = config.complete()?;
        telemetry::init_log(config.telemetry.log_format.unwrap_or_default(), config.telemetry.log.as_deref())?;
        region_agent::start(config, Shutdown::on_signals()?).await?.wait().await
    };
    run.await.map_err(|error| CliError::failed(error.to_string(), "look at its settings"))
}

fn namespace(name: &Name) -> Change {
    let entry = NamespaceEntry::new(Sequence::default(), Policy::default());
    Change { name: name.clone(), body: Body::Namespace(entry), effect: Effect::NewScope }
}

fn resident(pid: Option<u32>) -> Result<f64, CliError> {
    let status = pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/status")).ok());
    let line = status.as_ref().and_then(|s| s.lines().find_map(|line| line.strip_prefix("VmRSS:")));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    let missing = || CliError::failed("the agent's memory cannot be read", "this row needs Linux");
    Ok(kilobytes.ok_or_else(missing)? * 1_024.0 / 1e6)
}
