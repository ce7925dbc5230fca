//! What a person may set. Flags win over the environment, which wins over a TOML file.

use std::path::PathBuf;

use cadastre_core::ids::ClusterId;
use cadastre_runtime::config::{self, ConfigArgs, ConfigError, HttpArgs, StoreArgs, TelemetryArgs};
use cadastre_runtime::token::Secret;
use clap::Parser;
use serde::{Deserialize, Serialize};

/// The authority of Cadastre: grants large disjoint ranges to regions.
#[derive(Parser, Clone, Debug, Default, Serialize, Deserialize)]
#[command(name = "global-authority", version)]
#[serde(default)]
pub struct AuthorityConfig {
    /// File and printing.
    #[command(flatten)]
    #[serde(skip)]
    pub config: ConfigArgs,
    /// Store and witness.
    #[command(flatten)]
    #[serde(flatten)]
    pub store: StoreArgs,
    /// Where it listens.
    #[command(flatten)]
    #[serde(flatten)]
    pub http: HttpArgs,
    /// Logs and metrics.
    #[command(flatten)]
    #[serde(flatten)]
    pub telemetry: TelemetryArgs,
    /// The first operator's token (cad_op_ and 64 hex digits); begins a new cluster on an empty store.
    #[arg(long, env = "CADASTRE_BOOTSTRAP_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub bootstrap_token: Option<Secret>,
    /// The id of a cluster whose authority was lost for good: an empty store begins as its, in quarantine until its
    /// regions testified (see `cadastre rebuild`). Needs bootstrap_token.
    #[arg(long, env = "CADASTRE_REBUILD", value_name = "CLUSTER_ID")]
    pub rebuild: Option<String>,
    /// How long an unanswered grant may still be asked for, in seconds (default 604800: 7 days).
    #[arg(long, env = "CADASTRE_REPLAY_RETENTION_SECONDS", value_name = "SECONDS")]
    pub replay_retention_seconds: Option<u64>,
}

impl AuthorityConfig {
    /// The settings where nobody says otherwise.
    #[must_use]
    pub fn defaults() -> Self {
        let mut defaults = Self::default();
        defaults.store.data = Some(PathBuf::from(".cadastre"));
        defaults.http.listen = Some(std::net::SocketAddr::from(([127, 0, 0, 1], 7400)));
        defaults.replay_retention_seconds = Some(7 * 86_400);
        defaults
    }

    /// Lays what was given over the file over the defaults, and checks it.
    ///
    /// # Errors
    /// [`ConfigError`] naming the key.
    pub fn complete(self) -> Result<Self, ConfigError> {
        let mut merged = config::load(&self, self.config.config.as_deref(), &Self::defaults())?;
        merged.config = self.config;
        merged.check()?;
        Ok(merged)
    }

    fn check(&self) -> Result<(), ConfigError> {
        self.store.check()?;
        self.http.tls.check()?;
        self.telemetry.check()?;
        if self.rebuild()?.is_some() && self.bootstrap_token.is_none() {
            let reason = "needs bootstrap_token: the token of the operator who rebuilds";
            return Err(ConfigError::impossible("rebuild", reason));
        }
        if self.replay_retention_seconds.is_some_and(|s| s < 60) {
            return Err(ConfigError::impossible("replay_retention_seconds", "must be at least 60"));
        }
        Ok(())
    }

    /// The cluster that is rebuilt.
    ///
    /// # Errors
    /// [`ConfigError`] where it is no cluster's id.
    pub fn rebuild(&self) -> Result<Option<ClusterId>, ConfigError> {
        let parse = |text: &String| {
            let reason = "must be the cluster's id, as `GET /v1/testimony` of any of its agents tells it";
            text.parse().map_err(|_| ConfigError::impossible("rebuild", reason))
        };
        self.rebuild.as_ref().map(parse).transpose()
    }

    /// The data folder.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.store.data.clone().unwrap_or_else(|| PathBuf::from(".cadastre"))
    }

    /// The store's URL; a file in the data folder where none is given.
    #[must_use]
    pub fn database_url(&self) -> String {
        match &self.store.database_url {
            Some(url) => url.reveal().to_owned(),
            None => format!("sqlite://{}", self.data().join("authority.db").display()),
        }
    }
}
