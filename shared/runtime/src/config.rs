//! Settings: flags, then environment, then a TOML file, then defaults.
//!
//! Purpose: each program declares one struct of `Option` fields that clap fills (flags over
//! `CADASTRE_*`) and serde reads from TOML under the same names; [`load`] lays the four over one
//! another. Invariants: a key that the struct does not have is refused by name; what is accepted
//! but not supported is refused, never ignored; printing masks secrets. The fields must not use
//! `skip_serializing_if`: the keys of the serialised struct are the known keys (flattened structs
//! included, for which serde's own `deny_unknown_fields` does not work). Absent on purpose:
//! reloading while running.

pub mod environment;

use std::path::{Path, PathBuf};

use cadastre_core::durability::Policy;
use clap::{Args, ValueEnum};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::db::ConnectOptions;
use crate::tls::TlsArgs;
use crate::token::{Secret, SecretUrl, exposed};

/// What is wrong with the settings; always names the key.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file has a key that nobody knows.
    #[error("{key}: unknown setting in {}; known are: {known}", file.display())]
    UnknownKey {
        /// The key.
        key: String,
        /// Where it stands.
        file: PathBuf,
        /// The keys that exist.
        known: String,
    },
    /// The environment has a name that begins as ours do, and is none.
    #[error("{name}: there is no such setting; did you mean {nearest}?")]
    UnknownName {
        /// The name.
        name: String,
        /// The one that is nearest to it.
        nearest: &'static str,
    },
    /// A value that cannot be, alone or beside another.
    #[error("{key}: {reason}")]
    Impossible {
        /// The key.
        key: &'static str,
        /// Why, and what to do.
        reason: String,
    },
    /// A value of the wrong type.
    #[error("{key}: {reason}")]
    WrongType {
        /// The key.
        key: String,
        /// What serde says.
        reason: String,
    },
    /// The file cannot be read or is not TOML.
    #[error("{}: {reason}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: String,
    },
}

impl ConfigError {
    /// A value that cannot be.
    #[must_use]
    pub fn impossible(key: &'static str, reason: impl Into<String>) -> Self {
        Self::Impossible { key, reason: reason.into() }
    }
}

/// Where the file is, and whether to print and stop. Flatten with `#[serde(skip)]`.
#[derive(Args, Clone, Debug, Default)]
pub struct ConfigArgs {
    /// A TOML file with the same settings, dashes written as underscores.
    #[arg(long, env = "CADASTRE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print the settings that result, secrets masked, and stop.
    #[arg(long)]
    pub print_config: bool,
}

/// Lays `given` (flags and environment, as clap merged them) over `file` over `defaults`. Fields
/// that serde skips keep what a default has.
///
/// # Errors
/// [`ConfigError`] naming the key.
pub fn load<T: Serialize + DeserializeOwned>(given: &T, file: Option<&Path>, defaults: &T) -> Result<T, ConfigError> {
    let given = object(given)?;
    let mut merged = object(defaults)?;
    if let Some(file) = file {
        let table = read_file(file)?;
        for (key, value) in table {
            if !given.contains_key(&key) {
                let known = given.keys().cloned().collect::<Vec<_>>().join(", ");
                return Err(ConfigError::UnknownKey { key, file: file.to_owned(), known });
            }
            merged.insert(key.clone(), value);
            // One key at a time, so that a wrong type is told by its name.
            parse::<T>(&merged).map_err(|reason| ConfigError::WrongType { key, reason })?;
        }
    }
    merged.extend(given.into_iter().filter(|(_, value)| !value.is_null()));
    parse(&merged).map_err(|reason| ConfigError::WrongType { key: "settings".to_owned(), reason })
}

fn object<T: Serialize>(settings: &T) -> Result<Map<String, Value>, ConfigError> {
    match exposed(|| serde_json::to_value(settings)) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(ConfigError::impossible("settings", "not a table")),
        Err(error) => Err(ConfigError::impossible("settings", error.to_string())),
    }
}

fn parse<T: DeserializeOwned>(map: &Map<String, Value>) -> Result<T, String> {
    serde_json::from_value(Value::Object(map.clone())).map_err(|error| error.to_string())
}

fn read_file(file: &Path) -> Result<Map<String, Value>, ConfigError> {
    let fail = |reason: String| ConfigError::File { file: file.to_owned(), reason };
    let text = std::fs::read_to_string(file).map_err(|error| fail(error.to_string()))?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| fail(error.message().to_owned()))?;
    match serde_json::to_value(table) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(fail("not a table".to_owned())),
        Err(error) => Err(fail(error.to_string())),
    }
}

/// The settings as TOML, secrets masked; for `--print-config`.
///
/// # Errors
/// [`ConfigError::Impossible`] when they cannot be written as TOML (a fault of the struct).
pub fn print<T: Serialize>(settings: &T) -> Result<String, ConfigError> {
    toml::to_string_pretty(settings).map_err(|error| ConfigError::impossible("settings", error.to_string()))
}

/// Whether a witness must agree, or only raises alarms.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum WitnessMode {
    /// Nothing is answered without it.
    Required,
    /// It raises alarms and ends nothing.
    BestEffort,
}

/// Whether the server behind a store's address is watched.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Watch {
    /// Every unit of work learns on which server it runs.
    On,
    /// The engine does not tell.
    Off,
}

/// How a power-cut test weakens SQLite.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum WeakSynchronous {
    /// Loses the last commits at a power cut.
    Normal,
    /// May lose anything.
    Off,
}

/// Where the store is.
#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
pub struct StoreArgs {
    /// The data folder; one process at a time.
    #[arg(long, env = "CADASTRE_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The store: sqlite://PATH (default: a file in the data folder) or postgres://...
    #[arg(long, env = "CADASTRE_DATABASE_URL", value_name = "URL", hide_env_values = true)]
    pub database_url: Option<SecretUrl>,
    /// Who remembers how far the store had come: none, file:PATH or redis://...
    #[arg(long, env = "CADASTRE_WITNESS", value_name = "WHERE", hide_env_values = true)]
    pub witness: Option<SecretUrl>,
    /// Whether the witness must agree before anything is answered.
    #[arg(long, env = "CADASTRE_WITNESS_MODE")]
    pub witness_mode: Option<WitnessMode>,
    /// How many synchronous standbys a commit must have reached (PostgreSQL; 0: not asked).
    #[arg(long, env = "CADASTRE_REQUIRE_SYNC", value_name = "N")]
    pub require_sync: Option<u32>,
    /// Whether whoever promotes a standby chooses by what a quorum has: allows `ANY k (...)` of more names with require_sync.
    #[arg(long, env = "CADASTRE_QUORUM_AWARE", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub quorum_aware: Option<bool>,
    /// Whether the server's identity is watched (PostgreSQL). Off for engines without its system views: then a required
    /// witness must be set.
    #[arg(long, env = "CADASTRE_IDENTITY_WATCH")]
    pub identity_watch: Option<Watch>,
    /// Negative control of power-cut tests: ids WILL repeat.
    #[arg(long, hide = true)]
    pub unsafe_sqlite_synchronous: Option<WeakSynchronous>,
}

impl StoreArgs {
    /// Refuses what cannot be together.
    ///
    /// # Errors
    /// [`ConfigError::Impossible`] naming the key.
    pub fn check(&self) -> Result<(), ConfigError> {
        let postgres = self.database_url.as_ref().is_some_and(|url| url.reveal().starts_with("postgres"));
        if !postgres && self.require_sync.unwrap_or(0) > 0 {
            return Err(ConfigError::impossible(
                "require_sync",
                "an SQLite store has no standbys; use a postgres:// database_url or leave it at 0",
            ));
        }
        if self.identity_watch == Some(Watch::Off) {
            self.check_unwatched(postgres)?;
        }
        if postgres && self.unsafe_sqlite_synchronous.is_some() {
            return Err(ConfigError::impossible("unsafe_sqlite_synchronous", "is for an SQLite store"));
        }
        let none = self.witness.as_ref().is_some_and(|witness| witness.reveal() == "none");
        if none && self.witness_mode == Some(WitnessMode::Required) {
            return Err(ConfigError::impossible("witness_mode", "required, but witness is none"));
        }
        Ok(())
    }

    fn check_unwatched(&self, postgres: bool) -> Result<(), ConfigError> {
        let because = |reason: &str| Err(ConfigError::impossible("identity_watch", reason));
        if !postgres {
            return because("is for a postgres:// database_url; leave it unset for an SQLite store");
        }
        if self.require_sync.unwrap_or(0) > 0 {
            return because("off, but require_sync needs the server's system views; leave one of them unset");
        }
        let witness = self.witness.as_ref().is_some_and(|witness| witness.reveal() != "none");
        if !witness || self.witness_mode == Some(WitnessMode::BestEffort) {
            return because("off needs a required witness, or a store that went back would not be found: set witness");
        }
        Ok(())
    }

    /// How to open the store.
    #[must_use]
    pub fn connect_options(&self) -> ConnectOptions {
        let weaken_sqlite_synchronous = self.unsafe_sqlite_synchronous.map(|weak| match weak {
            WeakSynchronous::Normal => "PRAGMA synchronous=NORMAL",
            WeakSynchronous::Off => "PRAGMA synchronous=OFF",
        });
        ConnectOptions {
            weaken_sqlite_synchronous,
            watch: self.identity_watch != Some(Watch::Off),
            policy: Policy {
                standbys: self.require_sync.unwrap_or(0),
                quorum_aware: self.quorum_aware.unwrap_or(false),
            },
            ..ConnectOptions::default()
        }
    }
}

/// Where HTTP is served.
#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
pub struct HttpArgs {
    /// The address of the HTTP API.
    #[arg(long, env = "CADASTRE_LISTEN", value_name = "ADDRESS")]
    pub listen: Option<std::net::SocketAddr>,
    /// Over TLS.
    #[command(flatten)]
    #[serde(flatten)]
    pub tls: TlsArgs,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// What is told about the running process.
#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
pub struct TelemetryArgs {
    /// Token for /metrics (default: none is needed).
    #[arg(long, env = "CADASTRE_METRICS_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub metrics_token: Option<Secret>,
    /// Where traces would go.
    #[arg(long, env = "CADASTRE_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<String>,
    /// How log lines look.
    #[arg(long, env = "CADASTRE_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
    /// What is logged, as in RUST_LOG (default: info).
    #[arg(long, env = "CADASTRE_LOG", value_name = "FILTER")]
    pub log: Option<String>,
}

impl TelemetryArgs {
    /// Refuses what this version does not do.
    ///
    /// # Errors
    /// [`ConfigError::Impossible`] naming the key.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.otlp_endpoint.is_some() {
            return Err(ConfigError::impossible(
                "otlp_endpoint",
                "traces are not exported by this version; leave it unset and collect the log and /metrics",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
