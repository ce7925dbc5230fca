//! From the setting to the witness: `none`, `file:PATH`, and what is meant where nothing is said.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cadastre_core::continuity::WitnessMode;
use cadastre_runtime::config::{ConfigError, StoreArgs, WitnessMode as Setting};

use super::{FileWitness, Witness, WitnessError};

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
        Some(setting) => match setting.strip_prefix("file:") {
            Some(path) if !path.is_empty() => PathBuf::from(path),
            _ => {
                let reason = "must be none or file:PATH in this version";
                return Err(ConfigError::impossible("witness", reason).into());
            }
        },
    };
    let witness = FileWitness::open(&path, role).await?;
    tracing::info!(role, path = %path.display(), ?mode, "witness");
    Ok((Some(Arc::new(witness)), mode))
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
        let args = StoreArgs { witness: Some("redis://h".parse().unwrap()), ..StoreArgs::default() };
        let error = open(&args, Path::new("x"), "authority").await.err().unwrap().to_string();
        assert!(error.starts_with("witness:"), "{error}");
    }
}
