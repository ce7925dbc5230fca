//! The database door: the only way to a store.
//!
//! Purpose: every access is one named unit, a transaction that is begun, run, and committed or
//! rolled back as a whole, retried a bounded number of times on conflict, and metered.
//! Invariants: (1) on engines with connections a unit runs in its own task, so that a caller that
//! goes away (a dropped HTTP request, a timeout) can never leave a connection inside a transaction
//! or drop a COMMIT half-way; (2) a unit in which any statement failed is never committed, even if
//! the job swallows the error: PostgreSQL answers such a COMMIT with a silent rollback; (3) a
//! commit of unknown outcome is [`DbError::Indeterminate`] and never retried here. Change it with
//! the interleaving in hand. Absent on purpose: autocommit, nested units, access to a connection,
//! streaming results.

pub mod engine;
pub mod error;
mod hosts;
pub mod migrate;
mod postgres;
mod sqlx_classify;
pub mod sqlx_engine;
mod sqlx_setup;
mod sqlx_tx;
#[cfg(test)]
mod tests;
pub mod value;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use engine::{Engine, EngineKind, EngineTx, Identity, Mode, Position};
pub use error::DbError;
pub use migrate::{Migration, migrate};
pub use sqlx_engine::{ConnectOptions, connect};
pub use value::{Row, Value};

use cadastre_core::store_findings::Finding;

use crate::clock::Stopwatch;
use crate::entropy::{Entropy, SystemEntropy};

/// How often a unit is tried in all.
const TRIES: u32 = 5;
/// The first pause between two tries; it doubles, and up to as much again is added at random.
const FIRST_PAUSE_MS: u64 = 4;

/// After this long a unit is not tried again, whatever is left of its tries (lock and busy waits
/// are seconds each).
const PATIENCE_SECONDS: f64 = 3.0;

/// What a job returns: a boxed future that borrows the transaction.
pub type TxFuture<'a, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

/// An error that may hold a [`DbError`], so that the door can see conflicts.
pub trait TxError {
    /// The database error inside, if that is what it is.
    fn db(&self) -> Option<&DbError>;
}

impl TxError for DbError {
    fn db(&self) -> Option<&DbError> {
        Some(self)
    }
}

/// The open transaction as a job sees it.
pub struct Tx {
    inner: Box<dyn EngineTx>,
    kind: EngineKind,
    failed: Option<DbError>,
}

impl Tx {
    /// Which SQL is spoken, for the few statements that differ.
    #[must_use]
    pub fn kind(&self) -> EngineKind {
        self.kind
    }

    /// The server that this unit began on; empty where nothing is watched.
    #[must_use]
    pub fn server(&self) -> &str {
        self.inner.server()
    }

    /// A position of the server's log above everything that this unit can see; none where answers need no proof.
    ///
    /// # Errors
    /// Whatever the engine answers; the unit can then no longer commit.
    pub async fn position(&mut self) -> Result<Option<Position>, DbError> {
        let result = self.inner.position().await;
        self.note(result)
    }

    fn note<T>(&mut self, result: Result<T, DbError>) -> Result<T, DbError> {
        if let Err(error) = &result {
            self.failed.get_or_insert_with(|| error.clone());
        }
        result
    }

    /// Runs a statement; returns how many rows it affected, which is the concurrency check.
    ///
    /// # Errors
    /// Whatever the engine answers; the unit can then no longer commit.
    pub async fn execute(&mut self, sql: &'static str, args: &[Value]) -> Result<u64, DbError> {
        let result = self.inner.execute(sql, args).await;
        self.note(result)
    }

    /// Runs a query.
    ///
    /// # Errors
    /// Whatever the engine answers; the unit can then no longer commit.
    pub async fn query(&mut self, sql: &'static str, args: &[Value]) -> Result<Vec<Row>, DbError> {
        let result = self.inner.query(sql, args).await;
        self.note(result)
    }

    /// Runs a query that yields exactly one row.
    ///
    /// # Errors
    /// [`DbError::Corrupt`] for any other number of rows.
    pub async fn query_one(&mut self, sql: &'static str, args: &[Value]) -> Result<Row, DbError> {
        match self.query_opt(sql, args).await? {
            Some(row) => Ok(row),
            None => self.note(Err(DbError::Corrupt(format!("no row where one must be: {sql}")))),
        }
    }

    /// Runs a query that yields one row or none.
    ///
    /// # Errors
    /// [`DbError::Corrupt`] for more than one row.
    pub async fn query_opt(&mut self, sql: &'static str, args: &[Value]) -> Result<Option<Row>, DbError> {
        let mut rows = self.query(sql, args).await?;
        if rows.len() > 1 {
            return self.note(Err(DbError::Corrupt(format!("more than one row: {sql}"))));
        }
        Ok(rows.pop())
    }
}

/// A store, behind its door. Cheap to clone.
#[derive(Clone)]
pub struct Db {
    engine: Arc<dyn Engine>,
}

impl Db {
    /// A door before `engine`.
    #[must_use]
    pub fn new(engine: Arc<dyn Engine>) -> Self {
        Self { engine }
    }

    /// Which SQL is spoken.
    #[must_use]
    pub fn kind(&self) -> EngineKind {
        self.engine.kind()
    }

    /// Which copy of the database it is, asked afresh.
    ///
    /// # Errors
    /// [`DbError::Unavailable`] when it cannot be asked.
    pub async fn identity(&self) -> Result<Identity, DbError> {
        let engine = Arc::clone(&self.engine);
        self.detached(async move { engine.identity().await }).await?
    }

    /// Waits until enough synchronous standbys have the log up to `position`; at once where that is known.
    ///
    /// # Errors
    /// [`DbError::NotDurable`] where they do not within the deadline, or the server is another one by now.
    pub async fn prove(&self, position: &Position) -> Result<(), DbError> {
        if position.proven {
            return Ok(());
        }
        let (engine, position) = (Arc::clone(&self.engine), position.clone());
        self.detached(async move { engine.prove(&position).await }).await?
    }

    /// What is wrong with how the store is set up, as it was when it was last observed: no question to the store.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        self.engine.findings()
    }

    /// Shows in metrics how the server and its standbys are, and looks for the primary where there are several hosts.
    pub async fn observe(&self) {
        let engine = Arc::clone(&self.engine);
        // A panic in it was told by the runtime; the next look is a moment away.
        let _ = self.detached(async move { engine.observe().await }).await;
    }

    /// Runs `job` in a transaction that may write. The job may run several times.
    ///
    /// # Errors
    /// The job's error (nothing was written), or the store's.
    pub async fn write<T, E, J>(&self, name: &'static str, job: J) -> Result<T, E>
    where
        J: for<'a> Fn(&'a mut Tx) -> TxFuture<'a, T, E> + Send + Sync + 'static,
        T: Send + 'static,
        E: From<DbError> + TxError + Send + 'static,
    {
        self.unit(Unit { name, mode: Mode::Write }, job).await
    }

    /// Runs `job` in a transaction that sees one snapshot and may not write.
    ///
    /// # Errors
    /// The job's error, or the store's.
    pub async fn read<T, E, J>(&self, name: &'static str, job: J) -> Result<T, E>
    where
        J: for<'a> Fn(&'a mut Tx) -> TxFuture<'a, T, E> + Send + Sync + 'static,
        T: Send + 'static,
        E: From<DbError> + TxError + Send + 'static,
    {
        self.unit(Unit { name, mode: Mode::Read }, job).await
    }

    async fn unit<T, E, J>(&self, unit: Unit, job: J) -> Result<T, E>
    where
        J: for<'a> Fn(&'a mut Tx) -> TxFuture<'a, T, E> + Send + Sync + 'static,
        T: Send + 'static,
        E: From<DbError> + TxError + Send + 'static,
    {
        let engine = Arc::clone(&self.engine);
        self.detached(async move { run(engine.as_ref(), unit, &job).await }).await?
    }

    /// Runs `work` where nobody can cancel it, if the engine asks for that.
    async fn detached<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Result<T, DbError> {
        if !self.engine.detaches() {
            return Ok(work.await);
        }
        let span = tracing::Span::current();
        let task = tokio::spawn(tracing::Instrument::instrument(work, span));
        // Dropping this handle detaches the task; it does not cancel it. A panic inside may have
        // come after COMMIT was sent.
        task.await.map_err(|error| {
            DbError::Indeterminate(if error.is_panic() {
                "a unit panicked".to_owned()
            } else {
                "the runtime stopped".to_owned()
            })
        })
    }
}

#[derive(Clone, Copy)]
struct Unit {
    name: &'static str,
    mode: Mode,
}

/// Why a try failed, and whether another one may help.
struct Failure<E> {
    error: E,
    retry: bool,
    outcome: &'static str,
}

impl<E: From<DbError>> Failure<E> {
    fn store(error: DbError) -> Self {
        let (retry, outcome) = (error.is_retryable(), error.outcome());
        Self { error: error.into(), retry, outcome }
    }
}

/// All tries of one unit, metered.
async fn run<T, E, J>(engine: &dyn Engine, unit: Unit, job: &J) -> Result<T, E>
where
    J: for<'a> Fn(&'a mut Tx) -> TxFuture<'a, T, E> + Send + Sync,
    E: From<DbError> + TxError,
{
    let mut attempt = 1;
    let whole = Stopwatch::start();
    loop {
        let watch = Stopwatch::start();
        let result = once(engine, unit, job).await;
        let outcome = result.as_ref().map_or_else(|failure| failure.outcome, |_| "committed");
        meter(unit.name, outcome, watch.seconds(), attempt);
        let failure = match result {
            Ok(done) => return Ok(done),
            Err(failure) => failure,
        };
        let late = engine.detaches() && whole.seconds() > PATIENCE_SECONDS;
        if !failure.retry || attempt >= TRIES || late {
            return Err(failure.error);
        }
        if engine.detaches() {
            tokio::time::sleep(pause(attempt)).await;
        }
        attempt += 1;
    }
}

/// One try: begin, job, commit or rollback.
async fn once<T, E, J>(engine: &dyn Engine, unit: Unit, job: &J) -> Result<T, Failure<E>>
where
    J: for<'a> Fn(&'a mut Tx) -> TxFuture<'a, T, E> + Send + Sync,
    E: From<DbError> + TxError,
{
    let inner = engine.begin(unit.mode).await.map_err(Failure::store)?;
    let mut tx = Tx { inner, kind: engine.kind(), failed: None };
    let result = job(&mut tx).await;
    let Tx { inner, failed, .. } = tx;
    match (result, failed) {
        (Ok(value), None) => {
            inner.commit().await.map_err(Failure::store)?;
            Ok(value)
        }
        (Ok(_), Some(error)) => {
            inner.rollback().await;
            Err(Failure::store(error))
        }
        (Err(error), failed) => {
            inner.rollback().await;
            let seen = error.db().or(failed.as_ref());
            let retry = seen.is_some_and(DbError::is_retryable);
            let outcome = seen.map_or("refused", DbError::outcome);
            Err(Failure { error, retry, outcome })
        }
    }
}

fn pause(attempt: u32) -> Duration {
    let base = FIRST_PAUSE_MS << attempt.min(TRIES);
    Duration::from_millis(base + SystemEntropy.u64() % base)
}

fn meter(name: &'static str, outcome: &'static str, seconds: f64, attempt: u32) {
    metrics::counter!("cadastre_db_transactions_total", "name" => name, "outcome" => outcome).increment(1);
    metrics::histogram!("cadastre_db_transaction_seconds", "name" => name).record(seconds);
    tracing::debug!(name, outcome, seconds, attempt, "database unit");
}
