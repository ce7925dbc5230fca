//! One authority and its regions in this process, each region behind a switch of its own.
//!
//! Invariants: nothing here reaches into a daemon; they are started as their own binaries start them and
//! asked over HTTP. Agents stop before the authority, so that their last words are heard.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cadastre_core::ids::Name;
use cadastre_protocol::error::Code;
use cadastre_protocol::ids::IdsRequest;
use cadastre_runtime::clock::Stopwatch;
use cadastre_runtime::http::Shutdown;
use cadastre_runtime::token::{Secret, SecretUrl};
use global_authority::RunningAuthority;
use global_authority::config::AuthorityConfig;
use global_authority::service::Authority;
use region_agent::RunningAgent;
use region_agent::config::AgentConfig;

use super::file::{DevAuthority, DevFile, DevRegion};
use super::folder::Folder;
use super::progress::Progress;
use super::switch::Switch;
use super::{NAMESPACES, REGIONS, ports, setup};
use crate::api::Api;
use crate::error::CliError;

/// As often as an agent may speak: the second region's first grant waits for a word of the first.
const HEARTBEAT_SECONDS: u32 = 1;
/// How long regions may take until they issue.
const PATIENCE_SECONDS: f64 = 20.0;
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A running dev cluster.
pub struct Cluster {
    /// Addresses and tokens.
    pub file: DevFile,
    /// Whether this is the first start on its folder.
    pub fresh: bool,
    /// None while a drill replaces its store.
    authority: Option<RunningAuthority>,
    regions: Vec<Region>,
}

struct Region {
    name: Name,
    agent: RunningAgent,
    uplink: Switch,
}

impl Cluster {
    /// Starts everything; the first time also creates everything.
    ///
    /// # Errors
    /// Where a port, a folder or a store cannot be used.
    pub async fn start(folder: &Folder, base_port: u16, progress: &Progress) -> Result<Self, CliError> {
        let mut addresses = ports::choose(base_port, REGIONS.len())?.into_iter();
        let mut next = || addresses.next().unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
        progress.say("starting the authority");
        let known = DevFile::read(folder.root())?;
        let operator = match &known {
            Some(file) => Secret::new(file.authority.operator_token.clone()),
            None => setup::operator_token(&folder.path("operator-token"))?,
        };
        let authority = start_authority(folder, next(), &operator).await?;
        let api = Api::new(&authority.url(), Some(operator.clone()))?;
        let service_token = match &known {
            Some(file) => file.service_token.clone(),
            None => {
                progress.say("creating namespaces, a service and regions");
                setup::namespaces_and_service(&api).await.map_err(lost_token)?
            }
        };
        progress.say("starting the regions");
        let mut cluster = Self {
            file: DevFile {
                authority: DevAuthority { url: authority.url(), operator_token: operator.reveal().to_owned() },
                service_token,
                regions: Vec::new(),
            },
            fresh: known.is_none(),
            authority: Some(authority),
            regions: Vec::new(),
        };
        for name in REGIONS {
            let name = setup::name(name)?;
            let kept = known.iter().flat_map(|file| &file.regions).find(|region| region.name == name);
            let token = match kept {
                Some(region) => region.region_token.clone(),
                None => setup::region(&api, &name).await?,
            };
            cluster.add_region(folder, next(), name, token).await?;
        }
        Ok(cluster)
    }

    async fn add_region(
        &mut self,
        folder: &Folder,
        listen: SocketAddr,
        name: Name,
        token: String,
    ) -> Result<(), CliError> {
        let upstream = address_of(&self.file.authority.url)?;
        let uplink = Switch::start(upstream).await.map_err(|error| not_started("the switch", &error.to_string()))?;
        let (data, witness) = folder.region(&name);
        let mut config = AgentConfig::default();
        config.store.data = Some(data);
        config.store.witness = Some(witness_file(&witness));
        config.http.listen = Some(listen);
        config.resp_listen = Some(ports::resp(listen));
        config.authority_url = Some(uplink.url());
        config.region = Some(name.to_string());
        config.region_token = Some(Secret::new(token.clone()));
        config.heartbeat_seconds = Some(HEARTBEAT_SECONDS);
        let agent = region_agent::start(config, Shutdown::new()).await;
        let agent = agent.map_err(|error| not_started(&format!("region {name}"), &error.to_string()))?;
        self.file.regions.push(DevRegion {
            name: name.clone(),
            url: agent.url(),
            resp: agent.resp().map(|address| address.to_string()),
            pg: None,
            region_token: token,
        });
        self.regions.push(Region { name, agent, uplink });
        Ok(())
    }

    /// Waits until every region issues. What could not be had in time is told, one line each.
    ///
    /// # Errors
    /// When an address cannot be used (a fault of ours).
    pub async fn until_issuing(&self, progress: &Progress) -> Result<Vec<String>, CliError> {
        let watch = Stopwatch::start();
        let mut troubles = Vec::new();
        for region in &self.file.regions {
            progress.say(&format!("waiting for {} to issue", region.name));
            let api = Api::new(&region.url, Some(Secret::new(self.file.service_token.clone())))?;
            for namespace in NAMESPACES {
                let request = IdsRequest { namespace: setup::name(namespace)?, count: None, shape: None, tenant: None };
                while let Err(error) = api.post("/v1/ids", &request).await {
                    if is_lasting(error.refusal()) || watch.seconds() > PATIENCE_SECONDS {
                        troubles.push(format!("{} issues no {namespace}: {error}", region.name));
                        break;
                    }
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            }
        }
        Ok(troubles)
    }

    /// The switch in front of a region's uplink.
    pub fn uplink(&self, region: &Name) -> Option<&Switch> {
        self.regions.iter().find(|known| known.name == *region).map(|known| &known.uplink)
    }

    /// The authority's service, while it runs.
    pub fn service(&self) -> Option<Arc<Authority>> {
        self.authority.as_ref().map(RunningAuthority::service)
    }

    /// Whether the authority runs.
    pub fn is_up(&self) -> bool {
        self.authority.is_some()
    }

    /// The authority's generation; 0 while it does not run.
    pub fn generation(&self) -> u64 {
        self.service().map_or(0, |authority| u64::from(authority.generation().counter))
    }

    /// Stops the authority, and waits until nothing of this process has one of these open.
    ///
    /// # Errors
    /// When it does not let go.
    pub async fn stop_authority(&mut self, paths: &[&Path]) -> Result<(), CliError> {
        if let Some(authority) = self.authority.take() {
            authority.shutdown().await;
        }
        let watch = Stopwatch::start();
        while paths.iter().any(|path| is_open_here(path)) {
            if watch.seconds() > PATIENCE_SECONDS {
                return Err(not_started("the drill", "the authority's store is still open"));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Starts it again, where it was.
    ///
    /// # Errors
    /// Where a port, a folder or a store cannot be used.
    pub async fn start_authority_again(&mut self, folder: &Folder) -> Result<(), CliError> {
        let listen = address_of(&self.file.authority.url)?;
        let operator = Secret::new(self.file.authority.operator_token.clone());
        self.authority = Some(start_authority(folder, listen, &operator).await?);
        Ok(())
    }

    /// Stops everything in order.
    pub async fn shutdown(self) {
        let mut stopping = tokio::task::JoinSet::new();
        for region in self.regions {
            // Without the way up, an agent would wait for its last answer in vain.
            region.uplink.heal();
            stopping.spawn(async move {
                region.agent.shutdown().await;
                drop(region.uplink);
            });
        }
        stopping.join_all().await;
        if let Some(authority) = self.authority {
            authority.shutdown().await;
        }
    }
}

/// Whether this process has a file open below a path, or beside one.
fn is_open_here(path: &Path) -> bool {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return false };
    let prefix = path.display().to_string();
    open.flatten()
        .filter_map(|fd| std::fs::read_link(fd.path()).ok())
        .any(|file| file.display().to_string().starts_with(&prefix))
}

/// A refusal that no waiting ends.
fn is_lasting(code: Option<Code>) -> bool {
    matches!(code, Some(Code::EpochFenced | Code::Frozen | Code::NotHome | Code::Exhausted))
}

/// Only the folder itself knows the operator's token.
fn lost_token(error: CliError) -> CliError {
    match error.refusal() {
        Some(Code::Unauthenticated) => CliError::failed(
            "the operator's token of this data is lost: dev.json and operator-token are gone",
            "put one of them back, or begin anew with `cadastre dev --reset`",
        ),
        _ => error,
    }
}

async fn start_authority(folder: &Folder, listen: SocketAddr, operator: &Secret) -> Result<RunningAuthority, CliError> {
    let (data, witness) = folder.authority();
    super::restore::finish(&data)?;
    let mut config = AuthorityConfig::default();
    config.store.data = Some(data);
    config.store.witness = Some(witness_file(&witness));
    config.http.listen = Some(listen);
    config.bootstrap_token = Some(operator.clone());
    let started = global_authority::start(config, Shutdown::new()).await;
    started.map_err(|error| not_started("the authority", &error.to_string()))
}

fn witness_file(path: &std::path::Path) -> SecretUrl {
    SecretUrl::new(format!("file:{}", path.display()))
}

fn address_of(url: &str) -> Result<SocketAddr, CliError> {
    let text = url.strip_prefix("http://").unwrap_or(url);
    text.parse().map_err(|error| not_started("the authority", &format!("{url}: {error}")))
}

fn not_started(what: &str, why: &str) -> CliError {
    CliError::failed(
        format!("{what} did not start: {why}"),
        "if this data need not be kept, begin anew with `cadastre dev --reset`",
    )
}
