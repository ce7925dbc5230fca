//! The tables of a file witness, and all SQL over them.

use cadastre_core::mark::{Generation, Mark, Scope};
use cadastre_runtime::db::{DbError, Migration, Row, Tx, Value};

use super::Marks;

pub(super) const MIGRATIONS: &[Migration] = &[(1, "witness", WITNESS_TABLES), (2, "seal", crate::sql::SEAL_COLUMN)];

const WITNESS_TABLES: &[&str] = &[
    "CREATE TABLE owner (id BIGINT PRIMARY KEY, role TEXT NOT NULL)",
    "CREATE TABLE marks (
        scope TEXT PRIMARY KEY, generation BIGINT NOT NULL, seq BIGINT NOT NULL, row_id TEXT NOT NULL,
        bound BIGINT NOT NULL)",
    // The same shape as in a store: the ledger's own functions read and unite it.
    crate::sql::ROSTER_TABLE,
];

pub(super) async fn owner(tx: &mut Tx) -> Result<Option<String>, DbError> {
    let row = tx.query_opt("SELECT role FROM owner WHERE id = 1", &[]).await?;
    row.map(|row| row.text(0).map(str::to_owned)).transpose()
}

pub(super) async fn set_owner(tx: &mut Tx, role: &str) -> Result<(), DbError> {
    tx.execute("INSERT INTO owner (id, role) VALUES (1, $1)", &[role.into()]).await?;
    Ok(())
}

fn mark(row: &Row) -> Result<(Scope, Mark), DbError> {
    let unreadable = |_| DbError::Corrupt("unreadable witness row".to_owned());
    let scope = row.text(0)?.parse().map_err(|_| DbError::Corrupt("unreadable witness scope".to_owned()))?;
    let mark = Mark {
        generation: Generation::from_sql(row.int(1)?),
        seq: row.uint(2)?,
        row: row.text(3)?.parse().map_err(unreadable)?,
        bound: row.uint(4)?,
    };
    Ok((scope, mark))
}

pub(super) async fn all(tx: &mut Tx) -> Result<Marks, DbError> {
    let rows = tx.query("SELECT scope, generation, seq, row_id, bound FROM marks", &[]).await?;
    rows.iter().map(mark).collect()
}

pub(super) async fn one(tx: &mut Tx, scope: &Scope) -> Result<Option<Mark>, DbError> {
    let row = tx
        .query_opt(
            "SELECT scope, generation, seq, row_id, bound FROM marks WHERE scope = $1",
            &[scope.to_string().into()],
        )
        .await?;
    Ok(row.as_ref().map(mark).transpose()?.map(|(_, mark)| mark))
}

pub(super) async fn put(tx: &mut Tx, scope: &Scope, mark: &Mark) -> Result<(), DbError> {
    let args = [
        scope.to_string().into(),
        mark.generation.to_sql().into(),
        Value::int(mark.seq)?,
        mark.row.to_string().into(),
        Value::int(mark.bound)?,
    ];
    tx.execute(
        "INSERT INTO marks (scope, generation, seq, row_id, bound) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (scope) DO UPDATE SET generation = excluded.generation, seq = excluded.seq,
         row_id = excluded.row_id, bound = excluded.bound",
        &args,
    )
    .await?;
    Ok(())
}
