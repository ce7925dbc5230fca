//! The data folder, held by one process at a time.
//!
//! Purpose: two daemons on one folder would each believe that the store is theirs. Invariant: the
//! lock is the kernel's (it ends with the process, however that ends) and is held as long as the
//! value lives; the pid in the file is only for the message. Absent on purpose: breaking a lock.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// Another process has it.
    #[error("{} is in use by process {pid}: stop it first, or choose another folder", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
        /// Who says to hold it.
        pid: String,
    },
    /// The file system says no.
    #[error("{}: {error}", path.display())]
    Io {
        /// What was touched.
        path: PathBuf,
        /// The reason.
        error: std::io::Error,
    },
}

/// A folder that this process holds.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    // Held for its lock.
    _lock: File,
}

impl DataDir {
    /// Makes the folder if need be (readable by its owner alone) and takes it.
    ///
    /// # Errors
    /// [`DataDirError::InUse`] naming the process that has it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, DataDirError> {
        let path = path.as_ref();
        let io = |at: &Path| {
            let at = at.to_owned();
            move |error| DataDirError::Io { path: at, error }
        };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io(path))?;
        let path = path.canonicalize().map_err(io(path))?;
        let lock_path = path.join("LOCK");
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock_path)
            .map_err(io(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                lock.read_to_string(&mut pid).map_err(io(&lock_path))?;
                let pid = pid.trim();
                let pid = if pid.is_empty() { "unknown" } else { pid }.to_owned();
                return Err(DataDirError::InUse { path, pid });
            }
            Err(TryLockError::Error(error)) => return Err(io(&lock_path)(error)),
        }
        write_pid(&mut lock).map_err(io(&lock_path))?;
        Ok(Self { path, _lock: lock })
    }

    /// The folder itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.path
    }

    /// A file in it.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

fn write_pid(lock: &mut File) -> std::io::Result<()> {
    lock.set_len(0)?;
    lock.seek(SeekFrom::Start(0))?;
    writeln!(lock, "{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_second_holder_is_refused_with_the_pid_of_the_first() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("a/b");
        let first = DataDir::open(&folder).unwrap();
        assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        let error = DataDir::open(&folder).unwrap_err();
        assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
        assert!(first.path("store.db").ends_with("a/b/store.db"));
        drop(first);
        DataDir::open(&folder).unwrap();
    }
}
