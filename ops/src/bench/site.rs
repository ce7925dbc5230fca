//! A small cluster of the bench's own: an authority in this process, one agent as a process that can be started and
//! stopped at will.
//!
//! Invariant: the agent is started as its binary starts it, by a file of settings (`cadastre bench-agent`, so that one
//! binary is enough). Absent on purpose: what `dev` is for: several regions, switches, a folder that is kept.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use cadastre_core::ids::Name;
use cadastre_protocol::admin::{NewNamespace, NewService};
use cadastre_runtime::clock::{Clock, Stopwatch, SystemClock};
use cadastre_runtime::http::Shutdown;
use cadastre_runtime::token::{Secret, SecretUrl};
use global_authority::RunningAuthority;
use global_authority::config::AuthorityConfig;
use global_authority::service::Authority;
use global_authority::service::grants::Asker;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::caller::Caller;
use super::served::{free_port, this_program};
use crate::api::Api;
use crate::dev::setup;
use crate::error::CliError;

/// The namespace that there is from the beginning.
pub const NAMESPACE: &str = "orders";
const REGION: &str = "eu";
const SERVICE: &str = "shop";
/// How long something may take to come up.
const PATIENCE: f64 = 120.0;

/// See the module's documentation.
pub struct Site {
    folder: TempDir,
    database: Option<String>,
    require_sync: u32,
    operator: Secret,
    authority: Option<RunningAuthority>,
    authority_at: SocketAddr,
    /// Where the agent listens.
    pub agent_at: SocketAddr,
    /// The service's token.
    pub token: String,
    region_token: String,
    agent: Option<Child>,
}

impl Site {
    /// An authority on a file, or in this database, where a commit reaches so many synchronous standbys; no agent yet.
    ///
    /// # Errors
    /// Where it does not start.
    pub async fn start(database: Option<String>, require_sync: u32) -> Result<Self, CliError> {
        let folder = tempfile::tempdir().map_err(|e| failed(e.to_string()))?;
        let operator = setup::operator_token(&folder.path().join("operator-token"))?;
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let mut site = Self {
            folder,
            database,
            require_sync,
            operator,
            authority: None,
            authority_at: at(free_port()?),
            agent_at: at(free_port()?),
            token: String::new(),
            region_token: String::new(),
            agent: None,
        };
        site.start_authority().await?;
        let api = site.api()?;
        let namespace = setup::name(NAMESPACE)?;
        let new = NewNamespace::range(namespace.clone());
        api.post("/v1/namespaces", &new).await?;
        site.token = site.admit(SERVICE, vec![namespace]).await?;
        site.region_token = setup::region(&api, &setup::name(REGION)?).await?;
        Ok(site)
    }

    /// A service that is admitted to these; its token.
    ///
    /// # Errors
    /// A refusal, or no answer.
    pub async fn admit(&self, service: &str, namespaces: Vec<Name>) -> Result<String, CliError> {
        let new = NewService { name: setup::name(service)?, namespaces, limits: Default::default() };
        setup::service(&self.api()?, &new).await
    }

    /// What the authority shows of itself.
    ///
    /// # Errors
    /// Where it does not answer.
    pub async fn authority_metrics(&self) -> Result<String, CliError> {
        self.api()?.text("/metrics").await
    }

    fn api(&self) -> Result<Api, CliError> {
        Api::new(&format!("http://{}", self.authority_at), Some(self.operator.clone()))
    }

    /// Starts the authority, or starts it again.
    ///
    /// # Errors
    /// Where it does not start.
    pub async fn start_authority(&mut self) -> Result<(), CliError> {
        let mut config = AuthorityConfig::default();
        config.store.data = Some(self.folder.path().join("authority"));
        config.store.witness = Some(witness(&self.folder.path().join("authority-witness")));
        config.store.database_url = self.database.as_deref().map(SecretUrl::new);
        config.store.require_sync = Some(self.require_sync);
        config.http.listen = Some(self.authority_at);
        config.bootstrap_token = Some(self.operator.clone());
        let started = global_authority::start(config, Shutdown::new()).await.map_err(|e| failed(e.to_string()))?;
        self.authority = Some(started);
        Ok(())
    }

    /// Stops the authority: nobody listens there any more.
    pub async fn stop_authority(&mut self) {
        if let Some(authority) = self.authority.take() {
            authority.shutdown().await;
        }
    }

    /// The authority's service.
    ///
    /// # Errors
    /// Where it is stopped.
    pub fn authority(&self) -> Result<Arc<Authority>, CliError> {
        self.authority.as_ref().map(RunningAuthority::service).ok_or_else(|| failed("the authority is stopped"))
    }

    /// The region as one that asks for grants.
    ///
    /// # Errors
    /// Where it has not joined.
    pub fn asker(&self) -> Result<Asker, CliError> {
        let (name, known) = (setup::name(REGION)?, self.authority()?.known());
        let region = known.roster.region(&name).ok_or_else(|| failed("the region is unknown"))?;
        let store_id = region.store_id.ok_or_else(|| failed("the region has not joined"))?;
        let clock_ms = SystemClock.now().wall_ms;
        Ok(Asker { region: name, region_id: region.region_id, epoch: region.epoch, store_id, clock_ms })
    }

    /// Starts the agent; with another authority's address, it is cut off from its own.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub async fn start_agent(&mut self, authority: Option<SocketAddr>) -> Result<(), CliError> {
        let authority = authority.unwrap_or(self.authority_at);
        let (data, witness) = (self.folder.path().join(REGION), self.folder.path().join("eu-witness"));
        let settings = format!(
            "data = {data:?}\nwitness = \"file:{}\"\nlisten = \"{}\"\nauthority_url = \"http://{authority}\"\n\
             region = \"{REGION}\"\nregion_token = \"{}\"\n",
            witness.display(),
            self.agent_at,
            self.region_token
        );
        let file = self.folder.path().join("agent.toml");
        std::fs::write(&file, settings).map_err(|e| failed(e.to_string()))?;
        let log = std::fs::File::create(self.folder.path().join("agent.log")).map_err(|e| failed(e.to_string()))?;
        let mut command = Command::new(this_program()?);
        command.arg("bench-agent").arg(&file).stdin(Stdio::null()).stdout(log).stderr(Stdio::null()).kill_on_drop(true);
        self.agent = Some(command.spawn().map_err(|e| failed(e.to_string()))?);
        Ok(())
    }

    /// Stops the agent in order.
    pub async fn stop_agent(&mut self) {
        let Some(mut agent) = self.agent.take() else { return };
        if let Some(id) = agent.id().and_then(|id| i32::try_from(id).ok()) {
            let _ = kill(Pid::from_raw(id), Signal::SIGTERM);
        }
        if tokio::time::timeout(Duration::from_secs(20), agent.wait()).await.is_err() {
            let _ = agent.kill().await;
        }
    }

    /// The agent's process.
    #[must_use]
    pub fn agent_pid(&self) -> Option<u32> {
        self.agent.as_ref().and_then(Child::id)
    }

    /// A caller of the agent.
    #[must_use]
    pub fn caller(&self) -> Caller {
        Caller::new(self.agent_at, &self.token)
    }

    /// Waits for the agent's first id.
    ///
    /// # Errors
    /// Where none comes.
    pub async fn first_id(&self) -> Result<(), CliError> {
        self.id_of(NAMESPACE, &self.token).await
    }

    /// Waits for an id of a namespace.
    ///
    /// # Errors
    /// Where none comes.
    pub async fn id_of(&self, namespace: &str, token: &str) -> Result<(), CliError> {
        let (watch, mut caller) = (Stopwatch::start(), Caller::new(self.agent_at, token));
        let body = format!("{{\"namespace\":\"{namespace}\"}}");
        loop {
            let asked = caller.ask(&body).await;
            if matches!(asked, Ok(200)) {
                return Ok(());
            }
            if watch.seconds() > PATIENCE {
                return Err(failed(format!("no id of {namespace} came from the agent: {asked:?}")));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Stops both.
    pub async fn stop(mut self) {
        self.stop_agent().await;
        self.stop_authority().await;
    }
}

fn witness(path: &Path) -> SecretUrl {
    SecretUrl::new(format!("file:{}", path.display()))
}

fn failed(why: impl Into<String>) -> CliError {
    CliError::failed(why, "look at what else this machine is doing")
}
