//! Agents, and processes of services, that read less than this authority could let anybody give out.

use cadastre_runtime::db::{DbError, Migration, Row, Tx, Value};

/// The table: an agent has empty words for namespace and service.
pub(super) const KNOWERS: Migration = (
    7,
    "knowers",
    &[
        "CREATE TABLE knowers (
        region TEXT NOT NULL, namespace TEXT NOT NULL, service TEXT NOT NULL, instance TEXT NOT NULL,
        version TEXT NOT NULL, knows TEXT NOT NULL, heard_at_ms BIGINT NOT NULL,
        PRIMARY KEY (region, namespace, service, instance))",
        "CREATE INDEX knowers_heard ON knowers (heard_at_ms)",
    ],
);

/// One of them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KnowerRow {
    /// Region, namespace, service, instance.
    pub key: [String; 4],
    /// Its software.
    pub version: String,
    /// What it said of itself, as JSON.
    pub knows: String,
    /// When, milliseconds since the Unix epoch.
    pub heard_at_ms: u64,
}

fn knower(row: &Row) -> Result<KnowerRow, DbError> {
    let text = |i| row.text(i).map(str::to_owned);
    let key = [text(0)?, text(1)?, text(2)?, text(3)?];
    Ok(KnowerRow { key, version: text(4)?, knows: text(5)?, heard_at_ms: row.uint(6)? })
}

/// Those who were heard of from `since_ms` to `until_ms`, `most` at most: a clock that was ahead wrote what is later.
///
/// # Errors
/// Those of the store.
pub async fn knowers(tx: &mut Tx, since_ms: u64, until_ms: u64, most: u64) -> Result<Vec<KnowerRow>, DbError> {
    let rows = tx
        .query(
            "SELECT region, namespace, service, instance, version, knows, heard_at_ms FROM knowers
             WHERE heard_at_ms >= $1 AND heard_at_ms <= $2 ORDER BY heard_at_ms DESC LIMIT $3",
            &[Value::int(since_ms)?, Value::int(until_ms)?, Value::int(most)?],
        )
        .await?;
    rows.iter().map(knower).collect()
}

/// Keeps what one said.
///
/// # Errors
/// Those of the store.
pub async fn put_knower(tx: &mut Tx, row: &KnowerRow) -> Result<(), DbError> {
    let [region, namespace, service, instance] = &row.key;
    tx.execute(
        "INSERT INTO knowers (region, namespace, service, instance, version, knows, heard_at_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (region, namespace, service, instance) DO UPDATE SET version = excluded.version,
         knows = excluded.knows, heard_at_ms = excluded.heard_at_ms",
        &[
            region.as_str().into(),
            namespace.as_str().into(),
            service.as_str().into(),
            instance.as_str().into(),
            row.version.as_str().into(),
            row.knows.as_str().into(),
            Value::int(row.heard_at_ms)?,
        ],
    )
    .await?;
    Ok(())
}

/// One reads everything now.
///
/// # Errors
/// Those of the store.
pub async fn forget_knower(tx: &mut Tx, key: &[String; 4]) -> Result<(), DbError> {
    let args: Vec<Value> = key.iter().map(|part| part.as_str().into()).collect();
    tx.execute("DELETE FROM knowers WHERE region = $1 AND namespace = $2 AND service = $3 AND instance = $4", &args)
        .await?;
    Ok(())
}

/// Those who were not heard of since `before_ms` are gone.
///
/// # Errors
/// Those of the store.
pub async fn forget_knowers(tx: &mut Tx, before_ms: u64) -> Result<(), DbError> {
    tx.execute("DELETE FROM knowers WHERE heard_at_ms < $1", &[Value::int(before_ms)?]).await?;
    Ok(())
}
