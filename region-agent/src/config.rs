//! What a person may set. Flags win over the environment, which wins over a TOML file.

use std::net::SocketAddr;
use std::path::PathBuf;

use cadastre_core::ids::Name;
use cadastre_runtime::config::{self, ConfigArgs, ConfigError, HttpArgs, StoreArgs, TelemetryArgs};
use cadastre_runtime::token::{Secret, SecretUrl};
use clap::Parser;
use serde::{Deserialize, Serialize};

/// Heartbeats may be this far apart, in seconds.
const HEARTBEATS: std::ops::RangeInclusive<u32> = 1..=60;

/// One agent of a region: carves segments from the region's grants and issues ids.
#[derive(Parser, Clone, Debug, Default, Serialize, Deserialize)]
#[command(name = "region-agent", version)]
#[serde(default)]
pub struct AgentConfig {
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
    /// The authority; several addresses of one authority with commas between, tried in turn.
    #[arg(long, env = "CADASTRE_AUTHORITY_URL", value_name = "URL[,URL]")]
    pub authority_url: Option<String>,
    /// The region's name.
    #[arg(long, env = "CADASTRE_REGION", value_name = "NAME")]
    pub region: Option<String>,
    /// The region's token, as `cadastre region create` showed it.
    #[arg(long, env = "CADASTRE_REGION_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub region_token: Option<Secret>,
    /// Where callers reach this agent (default: the address that it listens on).
    #[arg(long, env = "CADASTRE_ADVERTISE_URL", value_name = "URL")]
    pub advertise_url: Option<String>,
    /// Seconds between two heartbeats (default 2).
    #[arg(long, env = "CADASTRE_HEARTBEAT_SECONDS", value_name = "SECONDS")]
    pub heartbeat_seconds: Option<u32>,
    /// How long services' tokens are good without any word from the authority (default 604800: 7 days).
    #[arg(long, env = "CADASTRE_MAX_OFFLINE_AUTH_SECONDS", value_name = "SECONDS")]
    pub max_offline_auth_seconds: Option<u64>,
    /// The address of the Redis protocol (default: off).
    #[arg(long, env = "CADASTRE_RESP_LISTEN", value_name = "ADDRESS")]
    pub resp_listen: Option<SocketAddr>,
    /// Redis through which a region's agents share services' rates (default: off, each agent keeps them by itself).
    #[arg(long, env = "CADASTRE_QUOTA_REDIS", value_name = "URL", hide_env_values = true)]
    pub quota_redis: Option<SecretUrl>,
    /// The PostgreSQL protocol; not in this version.
    #[arg(long, env = "CADASTRE_PG_LISTEN", value_name = "ADDRESS")]
    pub pg_listen: Option<String>,
}

impl AgentConfig {
    /// The settings where nobody says otherwise.
    #[must_use]
    pub fn defaults() -> Self {
        let mut defaults = Self::default();
        defaults.store.data = Some(PathBuf::from(".cadastre"));
        defaults.http.listen = Some(SocketAddr::from(([127, 0, 0, 1], 7410)));
        defaults.heartbeat_seconds = Some(2);
        defaults.max_offline_auth_seconds = Some(7 * 86_400);
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
        if self.resp_listen.is_some_and(|resp| resp.port() != 0 && self.http.listen == Some(resp)) {
            return Err(ConfigError::impossible(
                "resp_listen",
                "is the address of the HTTP API (listen); choose another",
            ));
        }
        if self.pg_listen.is_some() {
            let reason = "this protocol is not part of this version; leave it unset and use HTTP";
            return Err(ConfigError::impossible("pg_listen", reason));
        }
        if self.quota_redis.as_ref().is_some_and(|url| !is_redis(url)) {
            let reason =
                "must be redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE] (TLS is left to a proxy in this version)";
            return Err(ConfigError::impossible("quota_redis", reason));
        }
        if !HEARTBEATS.contains(&self.heartbeat_seconds()) {
            return Err(ConfigError::impossible("heartbeat_seconds", "must be 1 to 60"));
        }
        if self.max_offline_auth_seconds.is_some_and(|s| s < u64::from(self.heartbeat_seconds())) {
            let reason = "must not be shorter than heartbeat_seconds, or nobody is ever let in";
            return Err(ConfigError::impossible("max_offline_auth_seconds", reason));
        }
        if self.config.print_config {
            return Ok(());
        }
        self.region()?;
        if self.addresses().is_empty() {
            return Err(ConfigError::impossible("authority_url", "is needed: where the authority is reached"));
        }
        if let Some(other) = self.addresses().iter().find(|a| !["http://", "https://"].iter().any(|s| a.starts_with(s)))
        {
            let reason = format!("{other:?} must begin with https:// or http://");
            return Err(ConfigError::impossible("authority_url", reason));
        }
        if self.region_token.is_none() {
            return Err(ConfigError::impossible("region_token", "is needed: `cadastre region create` shows it once"));
        }
        Ok(())
    }

    /// The region's name.
    ///
    /// # Errors
    /// [`ConfigError`] where it is missing or no name.
    pub fn region(&self) -> Result<Name, ConfigError> {
        let text =
            self.region.clone().ok_or_else(|| ConfigError::impossible("region", "is needed: the region's name"))?;
        Name::new(text).map_err(|e| ConfigError::impossible("region", e.to_string()))
    }

    /// The authority's addresses, in order.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        let text = self.authority_url.as_deref().unwrap_or_default();
        text.split(',').map(str::trim).filter(|a| !a.is_empty()).map(str::to_owned).collect()
    }

    /// Seconds between two heartbeats.
    #[must_use]
    pub fn heartbeat_seconds(&self) -> u32 {
        self.heartbeat_seconds.unwrap_or(2)
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
            None => format!("sqlite://{}", self.data().join("region.db").display()),
        }
    }
}

fn is_redis(url: &SecretUrl) -> bool {
    url.reveal().starts_with("redis://") && redis::Client::open(url.reveal()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(flags: &[&str]) -> Result<AgentConfig, ConfigError> {
        let base =
            ["region-agent", "--authority-url", "http://a:1, http://b:2", "--region", "eu", "--region-token", "t"];
        AgentConfig::parse_from([&base, flags].concat()).complete()
    }

    #[test]
    fn what_cannot_be_is_refused_by_the_keys_name() {
        assert_eq!(given(&[]).unwrap().addresses(), ["http://a:1", "http://b:2"]);
        for (flags, key) in [
            (["--resp-listen", "127.0.0.1:7410"], "resp_listen"),
            (["--pg-listen", "127.0.0.1:1"], "pg_listen"),
            (["--heartbeat-seconds", "0"], "heartbeat_seconds"),
            (["--max-offline-auth-seconds", "1"], "max_offline_auth_seconds"),
            (["--require-sync", "1"], "require_sync"),
            (["--quota-redis", "rediss://h:1"], "quota_redis"),
            (["--quota-redis", "redis://h:port"], "quota_redis"),
        ] {
            let error = given(&flags).unwrap_err().to_string();
            assert!(error.starts_with(key), "{error}");
        }
        let nobody = AgentConfig::parse_from(["region-agent"]).complete().unwrap_err().to_string();
        assert!(nobody.starts_with("region:"), "{nobody}");
    }

    #[test]
    fn the_printed_settings_hide_the_token() {
        let flags = ["--resp-listen", "127.0.0.1:7411", "--quota-redis", "redis://me:hidden@h:6379/1"];
        let text = config::print(&given(&flags).unwrap()).unwrap();
        assert!(text.contains("quota_redis = \"redis://me:***@h:6379/1\"") && !text.contains("hidden"), "{text}");
        assert!(text.contains("resp_listen = \"127.0.0.1:7411\""), "{text}");
        assert!(text.contains("region = \"eu\"") && text.contains("region_token = \"***\""), "{text}");
    }
}
