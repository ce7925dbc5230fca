//! The dev cluster's folders: its data, and its witnesses in a folder beside.
//!
//! ```text
//! DIR/                     LOCK, MARKER, dev.json, operator-token, dev.log
//! DIR/authority/ DIR/eu/   one folder per daemon
//! DIR-witness/             MARKER, one file per daemon
//! ```
//!
//! Invariants: one process at a time; a folder that does not carry the mark of `cadastre dev` is never
//! written to and never removed, so that a real daemon's folder is safe from `--reset`. Witnesses lie
//! beside the data so that a copy of the one is not a copy of the other.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use cadastre_core::ids::Name;
use cadastre_runtime::data_dir::{DataDir, DataDirError};

use super::file::{io, write_private};
use crate::error::CliError;

const MARKER: &str = "CADASTRE-DEV";
const MARKER_TEXT: &str =
    "Made by `cadastre dev`; removed by `cadastre dev --reset`. For trying things out, not for production.\n";
/// What a start leaves that was cut short at its very beginning.
const HALF_A_MARKER: &str = "CADASTRE-DEV.new";
const LOCK: &str = "LOCK";
const AUTHORITY: &str = "authority";

/// The folders, held by this process.
#[derive(Debug)]
pub struct Folder {
    data: DataDir,
    witness: PathBuf,
}

impl Folder {
    /// Takes the folder at `path`; with `reset`, empties it and its witnesses first and calls `say`.
    ///
    /// # Errors
    /// Where another process has it, or it was not made by `cadastre dev`.
    pub fn open(path: &Path, reset: bool, say: impl Fn(&str)) -> Result<Self, CliError> {
        if !may_be_ours(path)? {
            return Err(not_ours(path));
        }
        let data = DataDir::open(path).map_err(|error| refused(&error))?;
        let witness = beside(data.root());
        if !may_be_ours(&witness)? {
            return Err(not_ours(&witness));
        }
        if reset {
            let removed = empty(data.root())? | empty(&witness)?;
            say(&if removed {
                let (data, witness) = (data.root().display(), witness.display());
                format!("reset: removed the data in {data} and the witnesses in {witness}")
            } else {
                "reset: nothing was there to remove".to_owned()
            });
        }
        let fresh = !data.path(MARKER).exists();
        if fresh && witness.join(MARKER).exists() {
            return Err(CliError::failed(
                format!(
                    "{} is new, but its witnesses in {} are not: the data was lost or moved",
                    path.display(),
                    witness.display()
                ),
                "put the data back, or begin anew with `cadastre dev --reset`",
            ));
        }
        DirBuilder::new().recursive(true).mode(0o700).create(&witness).map_err(|error| io(&witness, &error))?;
        for folder in [data.root(), &witness] {
            write_private(&folder.join(MARKER), MARKER_TEXT)?;
        }
        Ok(Self { data, witness })
    }

    /// The data folder.
    pub fn root(&self) -> &Path {
        self.data.root()
    }

    /// A file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.data.path(name)
    }

    /// The authority's data folder and witness.
    pub fn authority(&self) -> (PathBuf, PathBuf) {
        (self.data.path(AUTHORITY), self.witness.join("authority.db"))
    }

    /// A region's data folder and witness.
    pub fn region(&self, name: &Name) -> (PathBuf, PathBuf) {
        (self.data.path(&format!("region-{name}")), self.witness.join(format!("region-{name}.db")))
    }
}

fn beside(data: &Path) -> PathBuf {
    let mut name = data.as_os_str().to_owned();
    name.push("-witness");
    PathBuf::from(name)
}

/// Not there, empty but for a lock, or marked.
fn may_be_ours(path: &Path) -> Result<bool, CliError> {
    if path.join(MARKER).exists() {
        return Ok(true);
    }
    match std::fs::read_dir(path) {
        Ok(entries) => {
            let ours = |entry: std::fs::DirEntry| entry.file_name() == LOCK || entry.file_name() == HALF_A_MARKER;
            Ok(entries.flatten().all(ours))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(io(path, &error)),
    }
}

fn not_ours(path: &Path) -> CliError {
    CliError::failed(
        format!("{} is not a folder of `cadastre dev`: it holds other things, and is left alone", path.display()),
        "choose another folder with --data DIR",
    )
}

fn refused(error: &DataDirError) -> CliError {
    match error {
        DataDirError::InUse { path, pid } => CliError::failed(
            format!("another `cadastre dev` (process {pid}) runs on {}", path.display()),
            format!(
                "use that one (its addresses are in {}), stop it, or run a second one with --data OTHER --base-port 0",
                path.join(super::file::NAME).display()
            ),
        ),
        DataDirError::Io { path, error } => io(path, error),
    }
}

/// Removes what is in a marked folder, but for its lock, the mark last: a reset that is cut short can be
/// repeated. Says whether anything was there.
fn empty(folder: &Path) -> Result<bool, CliError> {
    if !folder.join(MARKER).exists() {
        return Ok(false);
    }
    let entries = std::fs::read_dir(folder).map_err(|error| io(folder, &error))?;
    for entry in entries.flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        if name == LOCK || name == MARKER {
            continue;
        }
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let removed = if is_folder { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        removed.map_err(|error| io(&path, &error))?;
    }
    let marker = folder.join(MARKER);
    std::fs::remove_file(&marker).map_err(|error| io(&marker, &error))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path, reset: bool) -> Result<Folder, CliError> {
        Folder::open(path, reset, |_| {})
    }

    #[test]
    fn a_second_holder_is_told_what_to_do() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("c");
        let first = open(&path, false).unwrap();
        let error = open(&path, false).unwrap_err().to_string();
        assert!(error.contains("--base-port 0") && error.contains(&std::process::id().to_string()), "{error}");
        drop(first);
        open(&path, false).unwrap();
    }

    #[test]
    fn reset_removes_data_and_witnesses_of_ours_only() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("c");
        let folder = open(&path, false).unwrap();
        let (data, witness) = folder.region(&Name::new("eu").unwrap());
        std::fs::create_dir(&data).unwrap();
        std::fs::write(data.join("region.db"), "x").unwrap();
        std::fs::write(&witness, "x").unwrap();
        drop(folder);
        let folder = open(&path, true).unwrap();
        assert!(!data.exists() && !witness.exists() && folder.path(MARKER).exists());

        let other = temp.path().join("precious");
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join("authority.db"), "x").unwrap();
        for reset in [false, true] {
            assert!(open(&other, reset).unwrap_err().to_string().contains("left alone"));
        }
        assert_eq!(std::fs::read_dir(&other).unwrap().count(), 1);
    }

    #[test]
    fn lost_data_beside_used_witnesses_is_noticed() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("c");
        drop(open(&path, false).unwrap());
        std::fs::remove_dir_all(&path).unwrap();
        let error = open(&path, false).unwrap_err().to_string();
        assert!(error.contains("--reset"), "{error}");
        open(&path, true).unwrap();
    }
}
