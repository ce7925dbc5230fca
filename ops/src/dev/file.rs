//! `DIR/dev.json`: where the dev cluster is and its tokens, for the CLI and for scripts.
//!
//! Invariant: only its owner can read it, and a reader sees a whole file or none (it is renamed into
//! place). Its tokens are kept from start to start; addresses are those of the present start.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use cadastre_core::ids::Name;
use serde::{Deserialize, Serialize};

use crate::error::CliError;

/// Its name within the folder.
pub const NAME: &str = "dev.json";

/// See the module's documentation.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct DevFile {
    /// The authority.
    pub authority: DevAuthority,
    /// The token of service `shop`, admitted to every namespace.
    pub service_token: String,
    /// The regions.
    pub regions: Vec<DevRegion>,
}

/// The authority.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct DevAuthority {
    /// Its address.
    pub url: String,
    /// May do everything.
    pub operator_token: String,
}

/// One region.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct DevRegion {
    /// Its name.
    pub name: Name,
    /// Its agent's HTTP address.
    pub url: String,
    /// Its agent's Redis address, where it speaks that.
    pub resp: Option<String>,
    /// Its agent's PostgreSQL address, where it speaks that.
    pub pg: Option<String>,
    /// Its agent's token.
    pub region_token: String,
}

impl DevFile {
    /// The file in `folder`; `None` where there is none.
    ///
    /// # Errors
    /// Where it is there and cannot be used.
    pub fn read(folder: &Path) -> Result<Option<Self>, CliError> {
        let path = folder.join(NAME);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            Err(error) => {
                let next = "run as the user who started `cadastre dev`, or name another folder with --data";
                return Err(CliError::failed(format!("{}: {error}", path.display()), next));
            }
        };
        serde_json::from_str(&text).map(Some).map_err(|error| {
            let next = "delete it: `cadastre dev` makes a new one, with new tokens, on the same data";
            CliError::failed(format!("{} cannot be read: {error}", path.display()), next)
        })
    }

    /// Writes it into `folder`.
    ///
    /// # Errors
    /// When the file system says no.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, CliError> {
        let text =
            serde_json::to_string_pretty(self).map_err(|e| CliError::failed(e.to_string(), "a fault of ours"))?;
        write_private(&folder.join(NAME), &(text + "\n"))
    }
}

/// Writes a file that only its owner can read; it is there whole or not at all.
///
/// # Errors
/// When the file system says no.
pub fn write_private(path: &Path, text: &str) -> Result<PathBuf, CliError> {
    let fresh = path.with_extension("new");
    let written = || {
        // What an earlier try left may have other permissions.
        match std::fs::remove_file(&fresh) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&fresh, path)
    };
    written().map_err(|error| io(path, &error))?;
    Ok(path.to_owned())
}

/// A refusal of the file system.
pub fn io(path: &Path, error: &std::io::Error) -> CliError {
    let next = "make room or give yourself the right to write there, or choose another folder with --data";
    CliError::failed(format!("{}: {error}", path.display()), next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn example() -> DevFile {
        DevFile {
            authority: DevAuthority { url: "http://127.0.0.1:7400".into(), operator_token: "cad_op_x".into() },
            service_token: "cad_svc_x".into(),
            regions: vec![DevRegion {
                name: Name::new("eu").unwrap(),
                url: "http://127.0.0.1:7410".into(),
                resp: None,
                pg: None,
                region_token: "cad_reg_x".into(),
            }],
        }
    }

    #[test]
    fn it_has_the_keys_that_scripts_rely_on_and_one_reader() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(DevFile::read(folder.path()).unwrap(), None);
        let path = example().write(folder.path()).unwrap();
        example().write(folder.path()).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(DevFile::read(folder.path()).unwrap(), Some(example()));
        let json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!(json["authority"]["operator_token"], "cad_op_x");
        assert_eq!(json["regions"][0]["pg"], serde_json::Value::Null);
        assert!(json["regions"][0].as_object().unwrap().contains_key("resp"));
    }

    #[test]
    fn a_damaged_file_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(NAME), "{").unwrap();
        let error = DevFile::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("delete it"), "{error}");
    }
}
