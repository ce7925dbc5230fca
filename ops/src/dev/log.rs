//! The daemons' log goes into a file: the terminal is for the person.
//!
//! Invariant: it holds no secret (the daemons log neither headers nor bodies). The log of the last start
//! is kept beside it.

use std::fs::File;
use std::path::Path;
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;

use super::file::io;
use crate::error::CliError;

/// Its name within the folder.
pub const NAME: &str = "dev.log";
/// What is logged, as in `RUST_LOG`, where it is not `info`.
const FILTER: &str = "CADASTRE_LOG";

/// Sends log lines to `DIR/dev.log`.
///
/// # Errors
/// When the file system says no, or the filter cannot be read.
pub fn start(folder: &Path) -> Result<(), CliError> {
    let path = folder.join(NAME);
    if path.exists() {
        let last = folder.join("dev.log.last");
        std::fs::rename(&path, &last).map_err(|error| io(&last, &error))?;
    }
    let file = File::create(&path).map_err(|error| io(&path, &error))?;
    let words = std::env::var(FILTER).unwrap_or_else(|_| "info".to_owned());
    let filter = EnvFilter::try_new(words).map_err(|error| CliError::usage(format!("{FILTER}: {error}")))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(Mutex::new(file));
    lines.try_init().map_err(|error| CliError::failed(error.to_string(), "this is a fault of ours"))
}
