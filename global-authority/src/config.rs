//! What a person may set. Flags win over the environment, which wins over a TOML file.

use std::path::PathBuf;

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
        self.http.check()?;
        self.telemetry.check()?;
        if self.replay_retention_seconds.is_some_and(|s| s < 60) {
            return Err(ConfigError::impossible("replay_retention_seconds", "must be at least 60"));
        }
        Ok(())
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
