//! SQLite and PostgreSQL behind the door, through sqlx's `Any` driver.
//!
//! Purpose: one SQL text (`$1` to `$n`, BIGINT and TEXT) on both. Invariants: BEGIN, COMMIT and
//! ROLLBACK are ours, never the driver's guard (its dropped future leaves a pooled connection inside
//! a transaction); a connection goes back to its pool only after a COMMIT or ROLLBACK that the server
//! answered, any other is closed; a second fence rolls back before a connection is lent. SQLite has
//! one writing connection, so that units queue fairly instead of polling for the lock, and a few
//! that may only read. Waits on a server are bounded on our side too, and a connection whose wait
//! was cut is closed. Absent on purpose: autocommit, savepoints, LISTEN, any other type of column.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use cadastre_core::durability::Policy;
use cadastre_core::store_findings::{self, FileFacts, Finding, Severity};
use sqlx::any::{Any, AnyPoolOptions};
use sqlx::pool::PoolConnection;
use sqlx::{AnyConnection, AnyPool, ConnectOptions as _, Connection as _, Executor, Row as _};

use super::Db;
use super::engine::{Engine, EngineKind, EngineTx, Identity, Mode, Position};
use super::error::DbError;
use super::hosts::Hosts;
use super::postgres;
use super::sqlx_classify::classify;
use super::sqlx_setup::{Setup, parse_url, prepare, redact, refuse_weak_postgres, settle_log};
use super::sqlx_tx::SqlxTx;

/// How to open a store.
#[derive(Clone, Copy, Debug)]
pub struct ConnectOptions {
    /// Connections to a PostgreSQL server, or reading connections of an SQLite file.
    pub max_connections: u32,
    /// How long a unit waits for a connection.
    pub acquire_timeout: Duration,
    /// How long one statement of a server may take on our side (above its own `statement_timeout`).
    pub statement_timeout: Duration,
    /// How long a COMMIT may wait (for synchronous standbys) before its outcome counts as unknown.
    pub commit_timeout: Duration,
    /// Every how many writing commits the SQLite log is copied into the file.
    pub commits_per_checkpoint: u32,
    /// Whether a server is asked who it is with every unit. Off for engines without PostgreSQL's system views.
    pub watch: bool,
    /// What must be proven of a commit before it is answered.
    pub policy: Policy,
    /// The negative control of power-cut tests: a whole `PRAGMA synchronous=...` statement that
    /// weakens SQLite. Ids WILL repeat after a power cut.
    pub weaken_sqlite_synchronous: Option<&'static str>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            max_connections: 8,
            acquire_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(12),
            commit_timeout: Duration::from_secs(12),
            commits_per_checkpoint: 500,
            watch: true,
            policy: Policy::default(),
            weaken_sqlite_synchronous: None,
        }
    }
}

/// Opens a store: `sqlite://PATH` or `postgres://...`.
///
/// # Errors
/// [`DbError::Unavailable`] when it cannot be reached, [`DbError::Other`] naming the setting when
/// the server or file is too weak to promise anything.
pub async fn connect(url: &str, options: ConnectOptions) -> Result<Db, DbError> {
    Ok(Db::new(Arc::new(SqlxEngine::open(url, options).await?)))
}

/// The file that was opened, and what `stat` said then.
struct SqliteFile {
    path: PathBuf,
    device_inode: (u64, u64),
}

impl SqliteFile {
    fn stat(path: &PathBuf) -> Result<(u64, u64), DbError> {
        let meta =
            std::fs::metadata(path).map_err(|error| DbError::Unavailable(format!("{}: {error}", path.display())))?;
        Ok((meta.dev(), meta.ino()))
    }

    /// SQLite would go on writing to a file that was moved away or replaced, and all of it would be
    /// gone after the next start.
    fn unchanged(&self) -> Result<(), DbError> {
        if Self::stat(&self.path)? == self.device_inode {
            return Ok(());
        }
        Err(DbError::Unavailable(format!(
            "{} was replaced while it was open: restart this process",
            self.path.display()
        )))
    }
}

pub(super) struct SqlxEngine {
    kind: EngineKind,
    pub(super) writers: AnyPool,
    pub(super) readers: AnyPool,
    file: Option<SqliteFile>,
    hosts: Arc<Hosts>,
    options: ConnectOptions,
    commits: Arc<AtomicU32>,
    findings: Mutex<Vec<Finding>>,
}

impl SqlxEngine {
    pub(super) async fn open(url: &str, options: ConnectOptions) -> Result<Self, DbError> {
        sqlx::any::install_default_drivers();
        let (kind, full) = parse_url(url)?;
        if let Some(level) = options.weaken_sqlite_synchronous {
            tracing::warn!(level, "UNSAFE: SQLite is weakened for a test; ids WILL repeat after a power cut");
        }
        let setup = Setup { kind, read_only: false, weak_synchronous: options.weaken_sqlite_synchronous };
        let hosts = match kind {
            EngineKind::Sqlite => Hosts::of("", false),
            EngineKind::Postgres => Hosts::of(&full, options.watch),
        };
        let first = if hosts.several() { hosts.primary().await? } else { full.as_str() };
        let writers = pool(first, setup, &options, kind).await?;
        let readers = match kind {
            EngineKind::Sqlite => pool(&full, Setup { read_only: true, ..setup }, &options, kind).await?,
            EngineKind::Postgres => writers.clone(),
        };
        let commits = Arc::new(AtomicU32::new(0));
        let (hosts, findings) = (Arc::clone(&hosts), Mutex::default());
        let engine = Self { kind, file: None, hosts, writers, readers, options, commits, findings };
        match kind {
            EngineKind::Sqlite => engine.with_file().await,
            EngineKind::Postgres => {
                let mut conn = engine.acquire(Mode::Write).await?;
                refuse_weak_postgres(&mut conn).await?;
                drop(conn);
                engine.refuse_unwatchable().await?;
                Ok(engine)
            }
        }
    }

    /// Asks SQLite itself which file it opened.
    async fn with_file(mut self) -> Result<Self, DbError> {
        let mut conn = self.acquire(Mode::Read).await?;
        let row = conn
            .fetch_one("SELECT file FROM pragma_database_list WHERE name = 'main'")
            .await
            .map_err(|error| classify(self.kind, &error))?;
        let path: String = row.try_get(0).map_err(|error| classify(self.kind, &error))?;
        drop(conn);
        let path = PathBuf::from(path);
        // The settings were read back when the connection was made, and are no one else's to change.
        let mut conn = self.acquire(Mode::Write).await?;
        let facts = file_facts(&mut conn, &path).await.map_err(|error| classify(self.kind, &error))?;
        drop(conn);
        self.found(store_findings::of_file(&facts));
        self.file = Some(SqliteFile { device_inode: SqliteFile::stat(&path)?, path });
        Ok(self)
    }

    async fn acquire(&self, mode: Mode) -> Result<PoolConnection<Any>, DbError> {
        let pool = match mode {
            Mode::Read => &self.readers,
            Mode::Write => &self.writers,
        };
        let acquired = pool.acquire().await.map_err(|error| classify(self.kind, &error));
        if acquired.is_ok() || !self.hosts.several() {
            return acquired;
        }
        self.hosts.follow(pool).await?;
        pool.acquire().await.map_err(|error| classify(self.kind, &error))
    }

    /// A standby among several hosts: this connection is given up, and the next ones go to the primary.
    async fn leave(&self, tx: SqlxTx) -> DbError {
        drop(tx);
        self.hosts.follow(&self.writers).await.err().unwrap_or(DbError::ReadOnly)
    }

    fn begin_sql(&self, mode: Mode) -> &'static str {
        match (self.kind, mode) {
            (EngineKind::Sqlite, Mode::Write) => "BEGIN IMMEDIATE",
            (EngineKind::Sqlite, Mode::Read) => "BEGIN",
            (EngineKind::Postgres, mode) => postgres::begin_sql(mode, self.watched(), self.options.policy),
        }
    }

    /// Whether units learn which server they run on.
    pub(super) fn watched(&self) -> bool {
        self.kind == EngineKind::Postgres && self.options.watch
    }

    /// What was found: told in the log when it changes, and kept for whoever asks.
    pub(super) fn found(&self, findings: Vec<Finding>) {
        let mut known = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
        for new in findings.iter().filter(|new| !known.iter().any(|old| old.setting == new.setting)) {
            match new.severity {
                Severity::Bad => tracing::error!(setting = new.setting, cure = %new.cure, "the store: {}", new.detail),
                Severity::Warning => {
                    tracing::warn!(setting = new.setting, cure = %new.cure, "the store: {}", new.detail)
                }
            }
        }
        *known = findings;
    }

    /// How it was opened.
    pub(super) fn options(&self) -> &ConnectOptions {
        &self.options
    }
}

async fn pool(url: &str, setup: Setup, options: &ConnectOptions, kind: EngineKind) -> Result<AnyPool, DbError> {
    let explain = |error: sqlx::Error| match classify(kind, &error) {
        DbError::Other(text) => DbError::Other(redact(url, &text)),
        DbError::Unavailable(text) => DbError::Unavailable(redact(url, &text)),
        other => other,
    };
    let parsed = url.parse::<sqlx::any::AnyConnectOptions>().map_err(explain)?;
    let parsed = parsed.disable_statement_logging();
    let embedded = kind == EngineKind::Sqlite;
    let single_writer = embedded && !setup.read_only;
    let pool = AnyPoolOptions::new()
        .max_connections(if single_writer { 1 } else { options.max_connections.max(1) })
        .acquire_timeout(options.acquire_timeout)
        // The fence below is a round trip already, and finds a dead connection.
        .test_before_acquire(false)
        .idle_timeout((!embedded).then_some(Duration::from_secs(600)))
        .max_lifetime((!embedded).then_some(Duration::from_secs(1800)))
        .after_connect(move |conn, _| Box::pin(prepare(conn, setup)))
        .before_acquire(move |conn, _| Box::pin(fence(conn, kind)));
    // The first connection by hand: the pool would retry a refused setting until its timeout and
    // then tell only of the timeout.
    let first = async {
        let mut conn = AnyConnection::connect_with(&parsed).await?;
        let mut result = prepare(&mut conn, setup).await;
        if single_writer && result.is_ok() {
            result = settle_log(&mut conn).await;
        }
        conn.close().await.ok();
        result
    };
    tokio::time::timeout(options.acquire_timeout, first)
        .await
        .map_err(|_| DbError::Unavailable("no answer while connecting".into()))?
        .map_err(explain)?;
    pool.connect_with(parsed).await.map_err(explain)
}

/// What an embedded store says about itself, on its writing connection.
async fn file_facts(conn: &mut AnyConnection, path: &Path) -> Result<FileFacts, sqlx::Error> {
    let journal_mode = conn.fetch_one("PRAGMA journal_mode").await?.try_get(0)?;
    let synchronous = conn.fetch_one("PRAGMA synchronous").await?.try_get(0)?;
    let file_system = nix::sys::statfs::statfs(path).ok().and_then(|of| u64::try_from(of.filesystem_type().0).ok());
    Ok(FileFacts { journal_mode, synchronous, file_system })
}

/// The second fence: whatever an earlier borrower left open is rolled back before the connection
/// is lent again. On SQLite a ROLLBACK that succeeds means that there was something: close it.
async fn fence(conn: &mut AnyConnection, kind: EngineKind) -> Result<bool, sqlx::Error> {
    match (kind, conn.execute("ROLLBACK").await) {
        (EngineKind::Sqlite, Ok(_)) => Ok(false),
        (EngineKind::Sqlite, Err(sqlx::Error::Database(_))) | (EngineKind::Postgres, Ok(_)) => Ok(true),
        (_, Err(error)) => Err(error),
    }
}

#[async_trait]
impl Engine for SqlxEngine {
    async fn begin(&self, mode: Mode) -> Result<Box<dyn EngineTx>, DbError> {
        if let Some(file) = &self.file {
            file.unchanged()?;
        }
        let conn = self.acquire(mode).await?;
        let mut tx = SqlxTx {
            kind: self.kind,
            conn: Some(conn),
            options: self.options,
            server: String::new(),
            commits: (mode == Mode::Write && self.kind == EngineKind::Sqlite).then(|| Arc::clone(&self.commits)),
        };
        let rows = tx.run_all(self.begin_sql(mode)).await?;
        if self.watched() {
            let row = rows.first().ok_or_else(|| DbError::Corrupt("no identity row".into()))?;
            let identity = postgres::identity(row)?;
            if identity.in_recovery && self.hosts.several() {
                return Err(self.leave(tx).await);
            }
            if mode == Mode::Write
                && let Err(refused) = postgres::may_write(row, &identity, self.options.policy)
            {
                Box::new(tx).rollback().await;
                return Err(refused);
            }
            tx.server = identity.token();
        }
        Ok(Box::new(tx))
    }

    fn kind(&self) -> EngineKind {
        self.kind
    }

    fn detaches(&self) -> bool {
        true
    }

    async fn identity(&self) -> Result<Identity, DbError> {
        if let Some(file) = &self.file {
            let (device, inode) = SqliteFile::stat(&file.path)?;
            return Ok(Identity { system: format!("{device}:{inode}"), ..Identity::default() });
        }
        if !self.watched() {
            return Ok(Identity::default());
        }
        let mut tx = self.begin(Mode::Read).await?;
        let result = tx.query(postgres::WHO, &[]).await;
        tx.rollback().await;
        let rows = result?;
        postgres::identity(rows.first().ok_or_else(|| DbError::Corrupt("no identity row".into()))?)
    }

    async fn prove(&self, position: &Position) -> Result<(), DbError> {
        self.wait_for_standbys(position).await
    }

    fn findings(&self) -> Vec<Finding> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn observe(&self) {
        if self.watched()
            && let Err(error) = self.show_standbys().await
        {
            tracing::debug!(%error, "nothing is seen of the store's standbys");
        }
    }
}
