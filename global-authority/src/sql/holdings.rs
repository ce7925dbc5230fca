//! One row per (namespace, region): the fence of an epoch, and what is left where.

use cadastre_core::ids::{Epoch, Name, RegionId};
use cadastre_protocol::link::Usage;
use cadastre_runtime::db::{DbError, Row, Tx, Value};

use super::parse;

macro_rules! select_holdings {
    ($tail:literal) => {
        concat!(
            "SELECT namespace, region, epoch, granted, held_left, in_instances, carved, burned, rate_milli, \
             peak_milli, heard_at_ms FROM holdings ",
            $tail
        )
    };
}

/// What is known of one region's part of a namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct Holding {
    /// In which namespace.
    pub namespace: Name,
    /// Whose.
    pub region: Name,
    /// The epoch that may get grants.
    pub epoch: Epoch,
    /// Ordinals granted, ever.
    pub granted: u64,
    /// Ordinals that it can still carve, by its last word and what was granted since.
    pub left: u64,
    /// Ordinals in the segments of the agent that spoke last.
    pub in_instances: u64,
    /// Ordinals carved, ever.
    pub carved: u64,
    /// Ordinals burned, ever.
    pub burned: u64,
    /// IDs a second.
    pub rate: f64,
    /// The day's peak.
    pub peak: f64,
    /// When it last spoke of this namespace, milliseconds since the Unix epoch; 0 is never.
    pub heard_at_ms: u64,
}

fn holding(row: &Row) -> Result<Holding, DbError> {
    Ok(Holding {
        namespace: parse(row, 0)?,
        region: parse(row, 1)?,
        epoch: Epoch(row.uint(2)?),
        granted: row.uint(3)?,
        left: row.uint(4)?,
        in_instances: row.uint(5)?,
        carved: row.uint(6)?,
        burned: row.uint(7)?,
        rate: from_milli(row.uint(8)?),
        peak: from_milli(row.uint(9)?),
        heard_at_ms: row.uint(10)?,
    })
}

fn from_milli(milli: u64) -> f64 {
    milli as f64 / 1_000.0
}

fn to_milli(rate: f64) -> i64 {
    // A rate is shown and planned with, never used for safety: nonsense from a region becomes a bound.
    if rate.is_finite() { (rate * 1_000.0).clamp(0.0, 1e15) as i64 } else { 0 }
}

/// Every region's part of a namespace.
///
/// # Errors
/// Those of the store.
pub async fn holdings_in(tx: &mut Tx, namespace: &Name) -> Result<Vec<Holding>, DbError> {
    let rows = tx.query(select_holdings!("WHERE namespace = $1"), &[namespace.as_str().into()]).await?;
    rows.iter().map(holding).collect()
}

/// Every region's part of every namespace.
///
/// # Errors
/// Those of the store.
pub async fn holdings(tx: &mut Tx) -> Result<Vec<Holding>, DbError> {
    let rows = tx.query(select_holdings!("ORDER BY namespace, region"), &[]).await?;
    rows.iter().map(holding).collect()
}

/// Regions that hold a grant: they are established.
///
/// # Errors
/// Those of the store.
pub async fn established(tx: &mut Tx) -> Result<Vec<Name>, DbError> {
    let rows = tx.query("SELECT DISTINCT region FROM holdings WHERE granted > 0", &[]).await?;
    rows.iter().map(|row| parse(row, 0)).collect()
}

/// Makes a region's row in a namespace. The caller holds the region's roster row, so that no epoch
/// rises in between.
///
/// # Errors
/// `Unique` where it exists.
pub async fn insert_holding(
    tx: &mut Tx,
    namespace: &Name,
    region: &Name,
    region_id: RegionId,
    epoch: Epoch,
) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO holdings (namespace, region, region_id, epoch, granted, held_left, in_instances, carved, burned,
         rate_milli, peak_milli, heard_at_ms) VALUES ($1, $2, $3, $4, 0, 0, 0, 0, 0, 0, 0, 0)",
        &[namespace.as_str().into(), region.as_str().into(), i64::from(region_id.0).into(), Value::int(epoch.0)?],
    )
    .await?;
    Ok(())
}

/// The fence: adds a grant to a region's part, only under the present epoch. Returns whether it held.
///
/// # Errors
/// Those of the store.
pub async fn add_granted(
    tx: &mut Tx,
    namespace: &Name,
    region: &Name,
    epoch: Epoch,
    size: u64,
) -> Result<bool, DbError> {
    let changed = tx
        .execute(
            "UPDATE holdings SET granted = granted + $1, held_left = held_left + $1
             WHERE namespace = $2 AND region = $3 AND epoch = $4",
            &[Value::int(size)?, namespace.as_str().into(), region.as_str().into(), Value::int(epoch.0)?],
        )
        .await?;
    Ok(changed == 1)
}

/// Counts a grant that the region knows and this ledger had lost. What is left of it the region tells by itself.
///
/// # Errors
/// Those of the store.
pub async fn add_known(tx: &mut Tx, namespace: &Name, region: &Name, size: u64) -> Result<(), DbError> {
    tx.execute(
        "UPDATE holdings SET granted = granted + $1 WHERE namespace = $2 AND region = $3",
        &[Value::int(size)?, namespace.as_str().into(), region.as_str().into()],
    )
    .await?;
    Ok(())
}

/// Raises a region's epoch in every namespace: what it held under older ones is burned.
///
/// # Errors
/// Those of the store.
pub async fn raise_epoch(tx: &mut Tx, region: &Name, epoch: Epoch) -> Result<(), DbError> {
    tx.execute(
        "UPDATE holdings SET epoch = $1, burned = burned + held_left, held_left = 0, in_instances = 0, rate_milli = 0
         WHERE region = $2 AND epoch < $1",
        &[Value::int(epoch.0)?, region.as_str().into()],
    )
    .await?;
    Ok(())
}

/// What a region says about its own part. Believed for planning and for `region_max_held` only.
///
/// # Errors
/// Those of the store.
pub async fn put_usage(tx: &mut Tx, region: &Name, epoch: Epoch, usage: &Usage, now_ms: u64) -> Result<(), DbError> {
    let bounded = |n: u64| Value::int(n.min(i64::MAX as u64));
    tx.execute(
        "UPDATE holdings SET held_left = $1, in_instances = $2, carved = $3, burned = $4, rate_milli = $5,
         peak_milli = $6, heard_at_ms = $7 WHERE namespace = $8 AND region = $9 AND epoch = $10",
        &[
            bounded(usage.left)?,
            bounded(usage.in_instances)?,
            bounded(usage.carved)?,
            bounded(usage.burned)?,
            to_milli(usage.rate_per_second).into(),
            to_milli(usage.peak_per_second).into(),
            Value::int(now_ms)?,
            usage.namespace.as_str().into(),
            region.as_str().into(),
            Value::int(epoch.0)?,
        ],
    )
    .await?;
    Ok(())
}
