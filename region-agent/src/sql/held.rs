//! What a service's own processes hold: how many there are, and about how much they have unissued.
//!
//! A row of `held` is the newest segment of a process in a namespace, and the one before, of which a quarter is taken
//! to be left; see the core's `quota`. What counts is younger than a time that the caller gives.

use std::collections::BTreeMap;

use cadastre_core::ids::{Incarnation, Name};
use cadastre_runtime::db::{DbError, Tx, Value};

/// Processes of a service that asked since `since_ms`, but for one, and when the first of them last did.
///
/// # Errors
/// Those of the store.
pub async fn other_holders(
    tx: &mut Tx,
    service: &Name,
    but: Incarnation,
    since_ms: u64,
) -> Result<(u64, Option<u64>), DbError> {
    let row = tx
        .query_opt(
            "SELECT COUNT(*), MIN(seen_at_ms) FROM holders
             WHERE service = $1 AND seen_at_ms >= $2 AND ended = 0 AND incarnation <> $3",
            &[service.as_str().into(), Value::int(since_ms)?, but.to_string().into()],
        )
        .await?;
    let Some(row) = row else { return Ok((0, None)) };
    let count = row.uint(0)?;
    Ok((count, if count == 0 { None } else { Some(row.uint(1)?) }))
}

/// Processes that count, and what they have unissued, as of `since_ms`, by service.
///
/// # Errors
/// Those of the store.
pub async fn held_by_service(tx: &mut Tx, since_ms: u64) -> Result<BTreeMap<Name, (u64, u64)>, DbError> {
    let mut all = BTreeMap::<Name, (u64, u64)>::new();
    let since = [Value::int(since_ms)?];
    let sql = "SELECT service, COUNT(*) FROM holders WHERE seen_at_ms >= $1 AND ended = 0 GROUP BY service";
    for row in tx.query(sql, &since).await? {
        all.entry(super::parse(&row, 0)?).or_default().0 = row.uint(1)?;
    }
    let sql = "SELECT service, CAST(COALESCE(SUM(newest + earlier / 4), 0) AS BIGINT) FROM held WHERE at_ms >= $1
               GROUP BY service";
    for row in tx.query(sql, &since).await? {
        all.entry(super::parse(&row, 0)?).or_default().1 = row.uint(1)?;
    }
    Ok(all)
}

/// What the processes of a service have unissued, all but what `who` has in `namespace`, as of `since_ms`.
///
/// # Errors
/// Those of the store.
pub async fn held_by_others(
    tx: &mut Tx,
    service: &Name,
    who: (Incarnation, &Name),
    since_ms: u64,
) -> Result<u64, DbError> {
    let row = tx
        .query_opt(
            "SELECT CAST(COALESCE(SUM(newest + earlier / 4), 0) AS BIGINT) FROM held
             WHERE service = $1 AND at_ms >= $2 AND NOT (incarnation = $3 AND namespace = $4)",
            &[service.as_str().into(), Value::int(since_ms)?, who.0.to_string().into(), who.1.as_str().into()],
        )
        .await?;
    row.map_or(Ok(0), |row| row.uint(0))
}

/// The newest segment of a process in a namespace: how many ordinals it has.
///
/// # Errors
/// Those of the store.
pub async fn newest_held(tx: &mut Tx, incarnation: Incarnation, namespace: &Name) -> Result<u64, DbError> {
    let row = tx
        .query_opt(
            "SELECT newest FROM held WHERE incarnation = $1 AND namespace = $2",
            &[incarnation.to_string().into(), namespace.as_str().into()],
        )
        .await?;
    row.map_or(Ok(0), |row| row.uint(0))
}

/// A process got a segment: what it got before is the earlier one now.
///
/// # Errors
/// Those of the store.
pub async fn put_held(
    tx: &mut Tx,
    incarnation: Incarnation,
    (namespace, service): (&Name, &Name),
    ordinals: u64,
    now_ms: u64,
) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO held (incarnation, namespace, service, newest, earlier, at_ms) VALUES ($1, $2, $3, $4, 0, $5)
         ON CONFLICT (incarnation, namespace) DO UPDATE SET earlier = held.newest, newest = excluded.newest,
         at_ms = excluded.at_ms",
        &[
            incarnation.to_string().into(),
            namespace.as_str().into(),
            service.as_str().into(),
            Value::int(ordinals)?,
            Value::int(now_ms)?,
        ],
    )
    .await?;
    Ok(())
}

/// Forgets what was taken before `before_ms`.
///
/// # Errors
/// Those of the store.
pub async fn forget_held(tx: &mut Tx, before_ms: u64) -> Result<u64, DbError> {
    tx.execute("DELETE FROM held WHERE at_ms < $1", &[Value::int(before_ms)?]).await
}
