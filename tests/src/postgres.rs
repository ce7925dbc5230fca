//! A throwaway PostgreSQL: made in about a second, killed, paused and started again at will.
//!
//! Its files live in the test's own folder and every setting that makes a commit durable keeps its
//! default, `fsync` above all, unless the caller says otherwise. PostgreSQL refuses to run as root: then
//! it runs as the user `postgres` of the distribution's package, through `setpriv`.
//!
//! The common use is one server for the whole test process and a new database for each test:
//! `Postgres::shared().fresh_database()`. A test that kills or pauses starts one of its own.

use crate::child::Managed;
use crate::ports;
use crate::scratch::Scratch;
use nix::sys::signal::Signal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

const BOUND: Duration = Duration::from_secs(60);

/// How the server differs from a plain one.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only for tests whose claims have nothing to do with durability.
    pub without_fsync: bool,
    /// `name=value`, as on the command line.
    pub settings: Vec<String>,
}

/// A running (or killed, or paused) server of our own.
pub struct Postgres {
    options: Options,
    binaries: PathBuf,
    port: u16,
    server: Mutex<Option<Managed>>,
    databases: AtomicU32,
    // Last: removed after the server that writes in it is gone.
    folder: Scratch,
}

impl Postgres {
    /// A server with PostgreSQL's own defaults for durability.
    pub fn start() -> Self {
        Self::with(Options::default())
    }

    /// The one server that tests of this process share. Never kill or pause it.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// A server with other settings.
    pub fn with(options: Options) -> Self {
        let postgres = Self::not_yet(options);
        postgres.make_data();
        postgres.launch();
        postgres
    }

    /// A standby that streams from `primary` under a name.
    pub fn standby_of(primary: &Self, name: &str) -> Self {
        let standby = Self::not_yet(primary.options.clone());
        own_folder(standby.folder.path());
        let output = as_server_user(&standby.binaries.join("pg_basebackup"), standby.folder.path())
            .args(["-X", "stream", "-c", "fast", "--no-sync", "-d", &primary.url(), "-D"])
            .arg(standby.data_folder())
            .output()
            .expect("pg_basebackup starts");
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "pg_basebackup: {words}");
        let follow = format!("primary_conninfo = '{}'\n", Self::conninfo(primary, name));
        let auto = standby.data_folder().join("postgresql.auto.conf");
        let mut text = std::fs::read_to_string(&auto).unwrap_or_default();
        text.push_str(&follow);
        std::fs::write(auto, text).expect("the copy is ours");
        std::fs::write(standby.data_folder().join("standby.signal"), "").expect("the copy is ours");
        standby.launch();
        standby
    }

    /// How a standby of this name reaches a primary.
    pub fn conninfo(primary: &Self, name: &str) -> String {
        format!("host=127.0.0.1 port={} user=postgres application_name={name}", primary.port)
    }

    fn not_yet(options: Options) -> Self {
        Self {
            options,
            binaries: binaries(),
            port: ports::free(),
            server: Mutex::new(None),
            databases: AtomicU32::new(0),
            folder: Scratch::new("pg"),
        }
    }

    /// The URL of the database `postgres`.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// The URL of a database of this server, made or not.
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The TCP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The data folder; copy it back to let the store go back in time (stop the server first).
    pub fn data_folder(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Makes an empty database; its URL.
    pub fn create_database(&self, name: &str) -> String {
        self.psql(&format!("CREATE DATABASE \"{name}\""));
        self.url_of(name)
    }

    /// An empty database that no other test has.
    pub fn fresh_database(&self) -> String {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        self.create_database(&format!("fresh_{number}"))
    }

    /// What `psql` prints for this SQL in the database `postgres`: unaligned, rows only.
    pub fn psql(&self, sql: &str) -> String {
        self.psql_in("postgres", sql)
    }

    /// The same in another database.
    pub fn psql_in(&self, database: &str, sql: &str) -> String {
        self.try_psql(database, sql).unwrap_or_else(|error| panic!("psql: {error}\n{sql}\n{}", self.log()))
    }

    /// The same; psql's words where it fails.
    pub fn try_psql(&self, database: &str, sql: &str) -> Result<String, String> {
        let output = plain(Command::new(self.binaries.join("psql")))
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql, &self.url_of(database)])
            .env("PGCONNECT_TIMEOUT", "5")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("psql does not start: {error}"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned());
        }
        Err(String::from_utf8_lossy(&output.stderr).trim_end().to_owned())
    }

    /// A fast shutdown: sessions are ended, a checkpoint is written.
    pub fn stop_fast(&self) {
        if let Some(server) = self.take() {
            server.resume();
            server.signal(Signal::SIGINT);
            assert!(server.wait(BOUND), "PostgreSQL does not stop:\n{}", self.log());
        }
    }

    /// Another server's database put into this one, as `pg_dump | psql` does.
    pub fn restore(&self, from: &Self, database: &str) {
        let dump = Command::new(self.binaries.join("pg_dump")).args(["-d", &from.url_of(database)]).output();
        let dump = dump.expect("pg_dump starts");
        assert!(dump.status.success(), "pg_dump: {}", String::from_utf8_lossy(&dump.stderr));
        let file = self.folder.path().join("dump.sql");
        std::fs::write(&file, dump.stdout).expect("the folder is ours");
        self.create_database(database);
        let url = self.url_of(database);
        let mut psql = plain(Command::new(self.binaries.join("psql")));
        let done = psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", &url, "-f"]).arg(&file).output();
        let done = done.expect("psql starts");
        assert!(done.status.success(), "psql: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// SIGKILL to every process of the server: what was not yet written is lost to it.
    pub fn kill9(&self) {
        if let Some(server) = self.take() {
            server.kill9();
        }
    }

    /// Stops it fast if it runs, starts it (recovery included) and waits until it answers.
    pub fn restart(&self) {
        self.stop_fast();
        self.launch();
    }

    /// SIGSTOP to every process of the server: connections stay open and nothing answers.
    pub fn pause(&self) {
        self.each(Managed::pause);
    }

    /// SIGCONT to the same.
    pub fn resume(&self) {
        self.each(Managed::resume);
    }

    /// What the server has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }

    fn take(&self) -> Option<Managed> {
        self.server.lock().unwrap_or_else(|broken| broken.into_inner()).take()
    }

    fn each(&self, act: impl FnOnce(&Managed)) {
        if let Some(server) = &*self.server.lock().unwrap_or_else(|broken| broken.into_inner()) {
            act(server);
        }
    }

    fn make_data(&self) {
        own_folder(self.folder.path());
        let output = as_server_user(&self.binaries.join("initdb"), self.folder.path())
            .args(["-A", "trust", "-N", "-U", "postgres", "-E", "UTF8", "--no-locale"])
            .arg("-D")
            .arg(self.data_folder())
            .output()
            .expect("initdb starts");
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "initdb: {words}");
    }

    fn launch(&self) {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log_path());
        let log = log.expect("the log can be written");
        let mut command = as_server_user(&self.binaries.join("postgres"), self.folder.path());
        command.arg("-D").arg(self.data_folder()).args(self.settings().iter().flat_map(|it| ["-c", it]));
        command.stdout(Stdio::null()).stderr(log);
        // SIGQUIT: the postmaster takes its children with it, which have groups of their own.
        let server = Managed::start("PostgreSQL", command, "QUIT");
        self.wait_until_it_answers(&server);
        *self.server.lock().unwrap_or_else(|broken| broken.into_inner()) = Some(server);
    }

    fn settings(&self) -> Vec<String> {
        let mut settings = vec![
            format!("port={}", self.port),
            format!("unix_socket_directories={}", self.folder.path().display()),
            "listen_addresses=127.0.0.1".to_owned(),
            "max_connections=200".to_owned(),
            "shared_buffers=32MB".to_owned(),
        ];
        if self.options.without_fsync {
            settings.push("fsync=off".to_owned());
        }
        settings.extend(self.options.settings.iter().cloned());
        settings
    }

    fn wait_until_it_answers(&self, server: &Managed) {
        let until = Instant::now() + BOUND;
        while self.try_psql("postgres", "SELECT 1").is_err() {
            assert!(server.is_alive(), "PostgreSQL ended at start:\n{}", self.log());
            assert!(Instant::now() < until, "PostgreSQL does not answer:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(30));
        }
    }
}

/// Gives a folder to the user that the server runs as.
pub(crate) fn own_folder(folder: &Path) {
    if nix::unistd::geteuid().is_root() {
        let own = Command::new("chown").arg("postgres").arg(folder).status();
        let made = own.is_ok_and(|status| status.success());
        assert!(made, "running as root, PostgreSQL needs the user `postgres` (package postgresql)");
    }
}

/// The folder of the server's binaries: the newest of Debian's places, else where PATH has them.
pub(crate) fn binaries() -> PathBuf {
    let complete = |folder: &PathBuf| ["initdb", "postgres", "psql"].iter().all(|name| folder.join(name).exists());
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut versions: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin")))
        })
        .collect();
    versions.sort_by(|one, other| other.cmp(one));
    let path = std::env::var_os("PATH").unwrap_or_default();
    versions
        .into_iter()
        .map(|(_, folder)| folder)
        .chain(std::env::split_paths(&path))
        .find(complete)
        .expect("PostgreSQL's initdb, postgres and psql are needed: `ops/test` installs them")
}

/// A command as the user that the server runs as, in a folder which that user can enter.
pub(crate) fn as_server_user(program: &Path, folder: &Path) -> Command {
    let mut command = if nix::unistd::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    command.current_dir(folder).stdin(Stdio::null());
    plain(command)
}

/// Nothing of the caller's own PostgreSQL settings, and English.
fn plain(mut command: Command) -> Command {
    for name in ["PGHOST", "PGPORT", "PGUSER", "PGDATABASE", "PGDATA", "PGOPTIONS", "PGSERVICE"] {
        command.env_remove(name);
    }
    command.env("LC_ALL", "C");
    command
}
