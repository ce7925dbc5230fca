//! Switches and drills: one row each, and a ledger of what happened, line by line.
//!
//! A row is written over exactly the version that was read; a kind's turn is what two people who begin at the same
//! time meet. Absent on purpose: what a body means.

use cadastre_runtime::db::{DbError, Row, Tx, Value};

/// The tables.
pub(super) const OPERATION_TABLES: &[&str] = &[
    "CREATE TABLE operations (
        id TEXT PRIMARY KEY, kind TEXT NOT NULL, version BIGINT NOT NULL, is_over BIGINT NOT NULL,
        made_at_ms BIGINT NOT NULL, body TEXT NOT NULL)",
    "CREATE INDEX operations_live ON operations (kind, is_over, made_at_ms)",
    "CREATE INDEX operations_newest ON operations (kind, made_at_ms)",
    "CREATE TABLE operation_lines (
        id TEXT NOT NULL, place BIGINT NOT NULL, at_ms BIGINT NOT NULL, text TEXT NOT NULL, PRIMARY KEY (id, place))",
    "CREATE TABLE operation_turns (kind TEXT PRIMARY KEY, version BIGINT NOT NULL)",
];

macro_rules! select_operations {
    ($tail:literal) => {
        concat!("SELECT id, kind, version, is_over, made_at_ms, body FROM operations ", $tail)
    };
}

/// A switch, a drill, or the schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Names it.
    pub id: String,
    /// `switch`, `drill` or `schedule`.
    pub kind: String,
    /// Rises with every write.
    pub version: u64,
    /// Nothing follows.
    pub is_over: bool,
    /// When it was made, milliseconds since the Unix epoch.
    pub made_at_ms: u64,
    /// JSON.
    pub body: String,
}

impl Operation {
    /// One that was not written yet.
    #[must_use]
    pub fn new(kind: &str, id: &str, made_at_ms: u64) -> Self {
        let (id, kind, body) = (id.to_owned(), kind.to_owned(), String::new());
        Self { id, kind, version: 0, is_over: false, made_at_ms, body }
    }
}

fn operation(row: &Row) -> Result<Operation, DbError> {
    Ok(Operation {
        id: row.text(0)?.to_owned(),
        kind: row.text(1)?.to_owned(),
        version: row.uint(2)?,
        is_over: row.bool(3)?,
        made_at_ms: row.uint(4)?,
        body: row.text(5)?.to_owned(),
    })
}

/// One of them.
///
/// # Errors
/// Those of the store.
pub async fn operation_of(tx: &mut Tx, id: &str) -> Result<Option<Operation>, DbError> {
    let row = tx.query_opt(select_operations!("WHERE id = $1"), &[id.into()]).await?;
    row.as_ref().map(operation).transpose()
}

/// All of a kind that are not over, oldest first.
///
/// # Errors
/// Those of the store.
pub async fn live_operations(tx: &mut Tx, kind: &str) -> Result<Vec<Operation>, DbError> {
    let rows =
        tx.query(select_operations!("WHERE kind = $1 AND is_over = 0 ORDER BY made_at_ms"), &[kind.into()]).await?;
    rows.iter().map(operation).collect()
}

/// The newest of a kind.
///
/// # Errors
/// Those of the store.
pub async fn newest_operations(tx: &mut Tx, kind: &str, most: u64) -> Result<Vec<Operation>, DbError> {
    let rows = tx
        .query(
            select_operations!("WHERE kind = $1 ORDER BY made_at_ms DESC LIMIT $2"),
            &[kind.into(), Value::int(most)?],
        )
        .await?;
    rows.iter().map(operation).collect()
}

/// How often a kind was begun.
///
/// # Errors
/// Those of the store.
pub async fn turn(tx: &mut Tx, kind: &str) -> Result<u64, DbError> {
    let row = tx.query_opt("SELECT version FROM operation_turns WHERE kind = $1", &[kind.into()]).await?;
    row.map_or(Ok(0), |row| row.uint(0))
}

/// Takes the next turn of a kind: whoever read the same one fails.
///
/// # Errors
/// `Conflict` or `Unique` where somebody else was first.
pub async fn take_turn(tx: &mut Tx, kind: &str, seen: u64) -> Result<(), DbError> {
    let args = [kind.into(), Value::int(seen)?];
    let taken = if seen == 0 {
        tx.execute("INSERT INTO operation_turns (kind, version) VALUES ($1, $2 + 1)", &args).await?
    } else {
        tx.execute("UPDATE operation_turns SET version = version + 1 WHERE kind = $1 AND version = $2", &args).await?
    };
    if taken == 1 { Ok(()) } else { Err(DbError::Conflict) }
}

/// Writes one: new at version 0, else over exactly the version that it carries.
///
/// # Errors
/// `Conflict` or `Unique` where somebody else was first.
pub async fn put_operation(tx: &mut Tx, row: &Operation) -> Result<(), DbError> {
    let args = [
        row.id.as_str().into(),
        row.kind.as_str().into(),
        Value::int(row.version)?,
        i64::from(row.is_over).into(),
        Value::int(row.made_at_ms)?,
        row.body.as_str().into(),
    ];
    let written = if row.version == 0 {
        tx.execute(
            "INSERT INTO operations (id, kind, version, is_over, made_at_ms, body) VALUES ($1, $2, $3 + 1, $4, $5, $6)",
            &args,
        )
        .await?
    } else {
        tx.execute(
            "UPDATE operations SET version = version + 1, is_over = $4, made_at_ms = $5, body = $6
             WHERE id = $1 AND kind = $2 AND version = $3",
            &args,
        )
        .await?
    };
    if written == 1 { Ok(()) } else { Err(DbError::Conflict) }
}

/// Adds a line to an operation's ledger, behind the others.
///
/// # Errors
/// Those of the store.
pub async fn add_line(tx: &mut Tx, id: &str, at_ms: u64, text: &str) -> Result<(), DbError> {
    let last = tx
        .query_opt("SELECT place FROM operation_lines WHERE id = $1 ORDER BY place DESC LIMIT 1", &[id.into()])
        .await?;
    let place = last.map_or(Ok(0), |row| row.uint(0))? + 1;
    tx.execute(
        "INSERT INTO operation_lines (id, place, at_ms, text) VALUES ($1, $2, $3, $4)",
        &[id.into(), Value::int(place)?, Value::int(at_ms)?, text.into()],
    )
    .await?;
    Ok(())
}

/// An operation's first lines: when, and what.
///
/// # Errors
/// Those of the store.
pub async fn lines_of(tx: &mut Tx, id: &str, most: u64) -> Result<Vec<(u64, String)>, DbError> {
    let rows = tx
        .query(
            "SELECT at_ms, text FROM operation_lines WHERE id = $1 ORDER BY place LIMIT $2",
            &[id.into(), Value::int(most)?],
        )
        .await?;
    rows.iter().map(|row| Ok((row.uint(0)?, row.text(1)?.to_owned()))).collect()
}
