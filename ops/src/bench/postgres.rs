//! A throwaway PostgreSQL for the rows that need one: made in a second, gone with the bench.
//!
//! Invariant: every setting that makes a commit durable keeps its default, `fsync` above all. As root it runs as the
//! user `postgres` of the distribution's package, since PostgreSQL refuses to be root. Absent on purpose: anything
//! that a test needs (killing, pausing, going back in time; `tests/src/postgres.rs` has that).

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use cadastre_runtime::clock::Stopwatch;

use super::served::{answers, free_port};
use crate::error::CliError;

/// A stop may take so long.
const STOP_WITHIN: Duration = Duration::from_secs(20);
/// A standby attaches in so many seconds.
const ATTACHES_IN: f64 = 30.0;

/// What follows the server.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Standby {
    /// Nothing.
    None,
    /// One that every commit waits for.
    Synchronous,
}

/// A running server.
pub struct Postgres {
    server: Child,
    port: u16,
    _folder: TempDir,
}

impl Postgres {
    /// Makes and starts one.
    ///
    /// # Errors
    /// Where PostgreSQL is not installed, or does not start.
    pub async fn start() -> Result<Self, CliError> {
        let folder = tempfile::tempdir().map_err(failed)?;
        let binaries = binaries().ok_or_else(|| failed("initdb and postgres are not installed"))?;
        let data = folder.path().join("data");
        if geteuid().is_root() {
            run(Command::new("chown").arg("postgres").arg(folder.path())).await?;
        }
        let arguments = ["-A", "trust", "-N", "-U", "postgres", "-E", "UTF8", "--no-locale", "-D"];
        run(as_server_user(&binaries.join("initdb"), folder.path()).args(arguments).arg(&data)).await?;
        Self::launch(&binaries, folder).await
    }

    /// A standby of this one, for which every commit waits from now on.
    ///
    /// # Errors
    /// Where it does not start, or does not attach in time.
    pub async fn follower(&self) -> Result<Self, CliError> {
        let folder = tempfile::tempdir().map_err(failed)?;
        let binaries = binaries().ok_or_else(|| failed("pg_basebackup is not installed"))?;
        if geteuid().is_root() {
            run(Command::new("chown").arg("postgres").arg(folder.path())).await?;
        }
        let primary =
            format!("host=127.0.0.1 port={} user=postgres application_name={}", self.port, super::sql::FOLLOWER);
        let arguments = ["-X", "stream", "-c", "fast", "-R", "-d", &primary, "-D"];
        let mut copy = as_server_user(&binaries.join("pg_basebackup"), folder.path());
        run(copy.args(arguments).arg(folder.path().join("data"))).await?;
        let follower = Self::launch(&binaries, folder).await?;
        for statement in super::sql::WAIT_FOR_FOLLOWER {
            self.psql(statement).await?;
        }
        let watch = Stopwatch::start();
        while self.psql(super::sql::FOLLOWERS).await?.trim() != "1" {
            if watch.seconds() > ATTACHES_IN {
                return Err(failed("the standby does not become synchronous"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(follower)
    }

    async fn psql(&self, statement: &str) -> Result<String, CliError> {
        let output = Command::new("psql").args(["-X", "-A", "-t", "-c", statement, &self.url()]).output().await;
        let output = output.map_err(failed)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(failed(String::from_utf8_lossy(&output.stderr)))
    }

    async fn launch(binaries: &Path, folder: TempDir) -> Result<Self, CliError> {
        let data = folder.path().join("data");
        let port = free_port()?;
        let settings = [
            format!("port={port}"),
            format!("unix_socket_directories={}", folder.path().display()),
            "listen_addresses=127.0.0.1".to_owned(),
            "max_connections=200".to_owned(),
        ];
        let mut command = as_server_user(&binaries.join("postgres"), folder.path());
        command.arg("-D").arg(&data).args(settings.iter().flat_map(|it| ["-c", it]));
        let server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(failed)?;
        answers(port).await?;
        Ok(Self { server, port, _folder: folder })
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Stops it; its files go.
    pub async fn stop(mut self) {
        if let Some(id) = self.server.id().and_then(|id| i32::try_from(id).ok()) {
            // Sessions are ended, then the server.
            let _ = kill(Pid::from_raw(id), Signal::SIGINT);
        }
        if tokio::time::timeout(STOP_WITHIN, self.server.wait()).await.is_err() {
            let _ = self.server.kill().await;
        }
    }
}

/// The newest of Debian's places, else where PATH has them.
fn binaries() -> Option<PathBuf> {
    let complete = |folder: &PathBuf| ["initdb", "postgres"].iter().all(|name| folder.join(name).exists());
    let entries = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort_by(|one, other| other.cmp(one));
    let path = std::env::var_os("PATH").unwrap_or_default();
    versions.into_iter().map(|(_, folder)| folder).chain(std::env::split_paths(&path)).find(complete)
}

fn as_server_user(program: &Path, folder: &Path) -> Command {
    let mut command = if geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    for name in ["PGHOST", "PGPORT", "PGUSER", "PGDATABASE", "PGDATA", "PGOPTIONS", "PGSERVICE"] {
        command.env_remove(name);
    }
    command.env("LC_ALL", "C").current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
    command
}

async fn run(command: &mut Command) -> Result<(), CliError> {
    let output = command.output().await.map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr)))
}

fn failed(why: impl std::fmt::Display) -> CliError {
    CliError::failed(format!("PostgreSQL: {why}"), "install it; on Debian: apt-get install postgresql")
}
