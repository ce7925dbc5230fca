//! One open transaction of the `Any` driver.
//!
//! Purpose: bounded statements, COMMIT with an honest outcome, and a connection that goes back to
//! its pool only clean. Invariants: as in `sqlx_engine`, of which this is the other half; a wait
//! that is cut off closes the connection, since the protocol is then in an unknown place. Absent on
//! purpose: savepoints, streaming.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use cadastre_core::durability::Proof;
use sqlx::any::{Any, AnyRow, AnyTypeInfoKind};
use sqlx::pool::PoolConnection;
use sqlx::{AnyConnection, Executor, Row as _, ValueRef as _};

use super::engine::{EngineKind, EngineTx, Position};
use super::error::DbError;
use super::postgres;
use super::sqlx_classify::{classify, classify_commit};
use super::sqlx_engine::ConnectOptions;
use super::value::{Row, Value};

/// How many times its limit a COMMIT that nobody waits for any more may hold its connection.
const HANGING_COMMIT_FACTOR: u32 = 5;

pub(super) struct SqlxTx {
    pub(super) kind: EngineKind,
    /// None once the connection went back to its pool, cleanly.
    pub(super) conn: Option<PoolConnection<Any>>,
    pub(super) options: ConnectOptions,
    /// The server that it runs on, where that is watched.
    pub(super) server: String,
    /// Counts writing commits of an SQLite file; none where nothing is to be copied.
    pub(super) commits: Option<Arc<AtomicU32>>,
}

impl Drop for SqlxTx {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            // Not finished cleanly: closed, which rolls back, and never pooled.
            drop(conn.detach());
        }
    }
}

impl SqlxTx {
    fn conn(&mut self) -> Result<&mut PoolConnection<Any>, DbError> {
        self.conn.as_mut().ok_or_else(|| DbError::Unavailable("the connection was lost within this unit".into()))
    }

    /// Awaits `work` on the connection, bounded for servers. Cutting it off leaves the protocol in
    /// an unknown place, so the connection is closed then.
    async fn bounded<T>(
        &mut self,
        limit: Duration,
        work: impl AsyncFnOnce(&mut AnyConnection) -> Result<T, sqlx::Error>,
    ) -> Result<Result<T, sqlx::Error>, DbError> {
        let kind = self.kind;
        let conn = self.conn()?;
        if kind == EngineKind::Sqlite {
            return Ok(work(conn).await);
        }
        match tokio::time::timeout(limit, work(conn)).await {
            Ok(result) => Ok(result),
            Err(_) => {
                if let Some(conn) = self.conn.take() {
                    drop(conn.detach());
                }
                Err(DbError::Unavailable(format!("no answer from the store within {limit:?}")))
            }
        }
    }

    pub(super) async fn run(&mut self, sql: &'static str) -> Result<(), DbError> {
        let (kind, limit) = (self.kind, self.options.statement_timeout);
        self.bounded(limit, async |conn| conn.execute(sql).await.map(|_| ()))
            .await?
            .map_err(|error| classify(kind, &error))
    }

    /// Several statements in one round trip; every row that any of them yields.
    pub(super) async fn run_all(&mut self, sql: &'static str) -> Result<Vec<Row>, DbError> {
        let (kind, limit) = (self.kind, self.options.statement_timeout);
        let rows = self
            .bounded(limit, async |conn| conn.fetch_all(sql).await)
            .await?
            .map_err(|error| classify(kind, &error))?;
        rows.iter().map(|row| read_row(sql, row)).collect()
    }

    async fn rows(&mut self, sql: &'static str, args: &[Value]) -> Result<Vec<Row>, DbError> {
        let (kind, limit) = (self.kind, self.options.statement_timeout);
        let rows = self
            .bounded(limit, async |conn| bind(sql, args).fetch_all(conn).await)
            .await?
            .map_err(|error| classify(kind, &error))?;
        rows.iter().map(|row| read_row(sql, row)).collect()
    }

    /// COMMIT. Towards a server it runs in a task of its own: where the wait is cut off (standbys
    /// out of reach), the connection keeps its place in the pool a while longer, so that commits
    /// which hang on the server stay as few as the pool allows.
    async fn finish(self: Box<Self>) -> Result<Box<Self>, DbError> {
        let limit = self.options.commit_timeout;
        let mut done = if self.kind == EngineKind::Sqlite {
            self.send_commit().await?
        } else {
            let longest = limit.saturating_mul(HANGING_COMMIT_FACTOR);
            // Dropped at `longest`, the transaction closes its connection.
            let task = tokio::spawn(tokio::time::timeout(longest, self.send_commit()));
            match tokio::time::timeout(limit, task).await {
                Ok(Ok(Ok(answered))) => answered?,
                Ok(Ok(Err(_)) | Err(_)) | Err(_) => {
                    return Err(DbError::Indeterminate(format!("no answer within {limit:?}")));
                }
            }
        };
        done.checkpoint().await;
        Ok(done)
    }

    async fn send_commit(mut self: Box<Self>) -> Result<Box<Self>, DbError> {
        let kind = self.kind;
        let result = self.conn()?.execute("COMMIT").await;
        result.map_err(|error| classify_commit(kind, &error))?;
        Ok(self)
    }

    /// Copies SQLite's log into the file now and then. A failed fsync in it stops the process (see
    /// the classification); anything else only means that the log grows until the next time.
    async fn checkpoint(&mut self) {
        let Some(commits) = &self.commits else { return };
        let every = self.options.commits_per_checkpoint.max(1);
        if !commits.fetch_add(1, Ordering::Relaxed).wrapping_add(1).is_multiple_of(every) {
            return;
        }
        if let Err(error) = self.run("PRAGMA wal_checkpoint(PASSIVE)").await {
            tracing::warn!(%error, "the SQLite log could not be copied into the file");
        }
    }
}

#[async_trait]
impl EngineTx for SqlxTx {
    fn server(&self) -> &str {
        &self.server
    }

    async fn position(&mut self) -> Result<Option<Position>, DbError> {
        let policy = self.options.policy;
        if policy.standbys == 0 || self.server.is_empty() {
            return Ok(None);
        }
        let rows = self.rows(postgres::STANDBYS, &[]).await?;
        let (at, proof) = postgres::standing(&rows, policy, None)?;
        Ok(Some(Position { at, server: self.server.clone(), proven: proof == Proof::Proven }))
    }

    async fn execute(&mut self, sql: &'static str, args: &[Value]) -> Result<u64, DbError> {
        let (kind, limit) = (self.kind, self.options.statement_timeout);
        self.bounded(limit, async |conn| bind(sql, args).execute(conn).await)
            .await?
            .map(|done| done.rows_affected())
            .map_err(|error| classify(kind, &error))
    }

    async fn query(&mut self, sql: &'static str, args: &[Value]) -> Result<Vec<Row>, DbError> {
        self.rows(sql, args).await
    }

    async fn commit(self: Box<Self>) -> Result<(), DbError> {
        // Clean: back to the pool.
        drop(self.finish().await?.conn.take());
        Ok(())
    }

    async fn rollback(mut self: Box<Self>) {
        // Unanswered: dropped with the connection still inside, which closes it.
        if self.run("ROLLBACK").await.is_ok() {
            drop(self.conn.take());
        }
    }
}

fn bind(sql: &'static str, args: &[Value]) -> sqlx::query::Query<'static, Any, sqlx::any::AnyArguments> {
    let mut query = sqlx::query(sql);
    for arg in args {
        query = match arg {
            Value::Int(value) => query.bind(*value),
            Value::Text(value) => query.bind(value.clone()),
            Value::NullInt => query.bind(None::<i64>),
            Value::NullText => query.bind(None::<String>),
        };
    }
    query
}

fn read_row(sql: &'static str, row: &AnyRow) -> Result<Row, DbError> {
    let corrupt = |error: sqlx::Error| DbError::Corrupt(format!("{error}: {sql}"));
    let mut columns = Vec::with_capacity(row.len());
    for index in 0..row.len() {
        let value = row.try_get_raw(index).map_err(corrupt)?;
        let kind = value.type_info().kind();
        columns.push(match kind {
            _ if value.is_null() => Value::NullText,
            AnyTypeInfoKind::SmallInt | AnyTypeInfoKind::Integer | AnyTypeInfoKind::BigInt => {
                Value::Int(row.try_get(index).map_err(corrupt)?)
            }
            AnyTypeInfoKind::Text => Value::Text(row.try_get(index).map_err(corrupt)?),
            _ => {
                return Err(DbError::Corrupt(format!("column {index} is neither BIGINT nor TEXT ({kind:?}): {sql}")));
            }
        });
    }
    Ok(Row::new(sql, columns))
}
