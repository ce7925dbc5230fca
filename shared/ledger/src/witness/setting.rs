//! From the setting to the witness: `none`, `file:PATH`, `redis://...`, and what is meant where nothing is said.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cadastre_core::continuity::WitnessMode;
use cadastre_runtime::clock::SystemClock;
use cadastre_runtime::config::{ConfigError, StoreArgs, WitnessMode as Setting};

use super::{FileWitness, RedisWitness, Witness, WitnessError, redis};

/// How often a start asks for a required witness in Redis, and how long it waits in between: some ten seconds.
const START_TRIES: usize = 10;
const START_PAUSE: Duration = Duration::from_secs(1);

/// Why there is no witness where one was asked for.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// The setting cannot be.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The witness cannot be used.
    #[error("witness: {0}")]
    Witness(#[from] WitnessError),
}

/// Opens the witness that the settings ask for. An embedded store without a setting gets a required
/// file in a folder beside `data`; a server without one gets none, and the log says what that means.
///
/// # Errors
/// [`SettingError`].
pub async fn open(
    store: &StoreArgs,
    data: &Path,
    role: &str,
) -> Result<(Option<Arc<dyn Witness>>, WitnessMode), SettingError> {
    let embedded = store.database_url.as_ref().is_none_or(|url| url.reveal().starts_with("sqlite"));
    let mode = match store.witness_mode {
        Some(Setting::BestEffort) => WitnessMode::BestEffort,
        Some(Setting::Required) | None => WitnessMode::Required,
    };
    let path = match store.witness.as_ref().map(|w| w.reveal()) {
        None if embedded => beside(data, role),
        None => {
            if store.witness_mode == Some(Setting::Required) {
                return Err(ConfigError::impossible("witness_mode", "required, but no witness is set").into());
            }
            tracing::warn!(
                role,
                "no witness: a restored backup, a cloned disk or a standby that lagged is only found when the other side \
                 speaks, and every start waits for it. Set CADASTRE_WITNESS"
            );
            return Ok((None, WitnessMode::None));
        }
        Some("none") => return Ok((None, WitnessMode::None)),
        Some(setting) if setting.starts_with("redis") => {
            let witness = in_redis(setting, role, mode).await?;
            tracing::info!(role, address = ?store.witness, key = witness.key(), ?mode, "witness");
            return Ok((Some(Arc::new(witness)), mode));
        }
        Some(setting) => match setting.strip_prefix("file:") {
            Some(path) if !path.is_empty() => PathBuf::from(path),
            _ => {
                let reason = "must be none, file:PATH or redis://HOST";
                return Err(ConfigError::impossible("witness", reason).into());
            }
        },
    };
    let witness = FileWitness::open(&path, role).await?;
    tracing::info!(role, path = %path.display(), ?mode, "witness");
    Ok((Some(Arc::new(witness)), mode))
}

/// A required one has to answer before its store is judged: a start waits for it, for a while.
async fn in_redis(setting: &str, role: &str, mode: WitnessMode) -> Result<RedisWitness, SettingError> {
    let address = redis::Address::parse(setting).map_err(|reason| ConfigError::impossible("witness", reason))?;
    let witness = RedisWitness::new(address, role, Arc::new(SystemClock));
    for tries in 1.. {
        match witness.read_some(&[]).await {
            Ok(_) => break,
            Err(error) if mode == WitnessMode::BestEffort => {
                tracing::error!(role, %error, "the best-effort witness cannot be used");
                return Ok(witness);
            }
            Err(error) if tries >= START_TRIES => return Err(error.into()),
            Err(error) => tracing::warn!(role, %error, "the required witness does not answer; the start waits for it"),
        }
        tokio::time::sleep(START_PAUSE).await;
    }
    for weakness in witness.weaknesses().await {
        tracing::warn!(role, "witness: {weakness}");
    }
    Ok(witness)
}

/// A folder beside the data folder, so that a copy of the one is not a copy of the other.
fn beside(data: &Path, role: &str) -> PathBuf {
    let mut folder = data.as_os_str().to_owned();
    folder.push("-witness");
    PathBuf::from(folder).join(format!("{}.db", role.replace('/', "-")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_lies_beside_the_data_folder() {
        assert_eq!(beside(Path::new("/x/.cadastre"), "region/eu"), Path::new("/x/.cadastre-witness/region-eu.db"));
    }

    #[tokio::test]
    async fn what_cannot_be_is_refused_by_name() {
        for wrong in ["rediss://h", "redis://me:hidden@h:port", "redis://h?replica=1", "file:", "etcd://h"] {
            let args = StoreArgs { witness: Some(wrong.parse().unwrap()), ..StoreArgs::default() };
            let error = open(&args, Path::new("x"), "authority").await.err().unwrap().to_string();
            assert!(error.starts_with("witness: must be") && !error.contains("hidden"), "{error}");
        }
    }
}
