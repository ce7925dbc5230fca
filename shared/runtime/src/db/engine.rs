//! What a database must offer to stand behind the door.
//!
//! Purpose: one trait for SQLite, PostgreSQL and the simulator's in-memory store. Invariant: a
//! transaction is finished by `commit` or `rollback` alone; one that is dropped unfinished must
//! leave nothing written and no connection that a later unit could find inside a transaction.
//! Absent on purpose: autocommit statements, savepoints, types of any driver.

use async_trait::async_trait;
use cadastre_core::store_findings::Finding;

use super::error::DbError;
use super::value::{Row, Value};

/// Which SQL engine speaks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EngineKind {
    /// An embedded file (or the simulator's memory).
    Sqlite,
    /// A PostgreSQL-wire server.
    Postgres,
}

/// What a unit is going to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// One consistent snapshot; writes are refused.
    Read,
    /// May write; on SQLite it holds the write lock from the start.
    Write,
}

/// Which copy of the database this is: when any part changes, what was verified no longer holds.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Identity {
    /// PostgreSQL: the system identifier. SQLite: device and inode of the file. Empty if unknown.
    pub system: String,
    /// PostgreSQL: the timeline, when not in recovery. Empty if unknown.
    pub timeline: String,
    /// PostgreSQL: when the server started. Empty if unknown.
    pub started: String,
    /// Whether the server is a standby.
    pub in_recovery: bool,
}

impl Identity {
    /// What a store writes down of the server that it was verified on; empty where there is nothing to tell.
    #[must_use]
    pub fn token(&self) -> String {
        let role = if self.in_recovery { " in recovery" } else { "" };
        format!("{}/{}/{}{role}", self.system, self.timeline, self.started)
    }
}

/// A place in a server's log that holds everything which a unit could see.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Position {
    /// The server's log, in bytes.
    pub at: u64,
    /// Which server, see [`EngineTx::server`].
    pub server: String,
    /// Whether enough synchronous standbys had it already.
    pub proven: bool,
}

/// A database.
#[async_trait]
pub trait Engine: Send + Sync {
    /// Opens a transaction.
    async fn begin(&self, mode: Mode) -> Result<Box<dyn EngineTx>, DbError>;

    /// Which SQL it speaks.
    fn kind(&self) -> EngineKind;

    /// Whether a unit must run in a task of its own, which nobody cancels. True for everything
    /// with real connections; a simulator that runs inline says false.
    fn detaches(&self) -> bool;

    /// Which copy of the database it is, asked afresh.
    async fn identity(&self) -> Result<Identity, DbError>;

    /// Waits, up to a deadline, until enough synchronous standbys have the log up to `position`, on the same server.
    ///
    /// # Errors
    /// [`DbError::NotDurable`] where they do not.
    async fn prove(&self, position: &Position) -> Result<(), DbError> {
        let _ = position;
        Ok(())
    }

    /// What is wrong with how the store is set up, as it was when it was last observed.
    fn findings(&self) -> Vec<Finding> {
        Vec::new()
    }

    /// Shows in metrics how the server and its standbys are, and looks at its settings; turns to another server where this one is none any more.
    async fn observe(&self) {}
}

/// One open transaction.
#[async_trait]
pub trait EngineTx: Send {
    /// The server that this unit began on, as [`Identity::token`] of one that is watched; empty where nothing is
    /// watched.
    fn server(&self) -> &str {
        ""
    }

    /// The log's position now, where answers need a proof.
    async fn position(&mut self) -> Result<Option<Position>, DbError> {
        Ok(None)
    }

    /// Runs a statement and returns how many rows it affected.
    async fn execute(&mut self, sql: &'static str, args: &[Value]) -> Result<u64, DbError>;

    /// Runs a query and returns every row.
    async fn query(&mut self, sql: &'static str, args: &[Value]) -> Result<Vec<Row>, DbError>;

    /// Commits. An error other than [`DbError::Indeterminate`] means that nothing was written.
    async fn commit(self: Box<Self>) -> Result<(), DbError>;

    /// Gives up: nothing is written.
    async fn rollback(self: Box<Self>);
}
