//! What regions testified, and what an operator stated for silent ones, for one generation.

use std::collections::BTreeMap;

use cadastre_core::continuity::Testimony;
use cadastre_core::ids::{Epoch, Name};
use cadastre_core::mark::Generation;
use cadastre_protocol::link::bounds;
use cadastre_runtime::db::{DbError, Tx, Value};
use serde::{Deserialize, Serialize};

use super::parse;

#[derive(Serialize, Deserialize)]
struct Bounds(#[serde(with = "bounds")] BTreeMap<Name, u64>);

fn to_text(bounds: &BTreeMap<Name, u64>) -> Result<String, DbError> {
    serde_json::to_string(&Bounds(bounds.clone())).map_err(|e| DbError::Other(e.to_string()))
}

fn from_text(text: &str) -> Result<BTreeMap<Name, u64>, DbError> {
    let Bounds(bounds) = serde_json::from_str(text).map_err(|e| DbError::Corrupt(e.to_string()))?;
    Ok(bounds)
}

/// Keeps a region's complete testimony; a newer generation's replaces it.
///
/// # Errors
/// Those of the store.
pub async fn put_testimony(tx: &mut Tx, region: &Name, testimony: &Testimony, now_ms: u64) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO testimonies (region, generation, epoch, store_id, bounds, at_ms) VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (region) DO UPDATE SET generation = excluded.generation, epoch = excluded.epoch,
         store_id = excluded.store_id, bounds = excluded.bounds, at_ms = excluded.at_ms
         WHERE excluded.generation >= testimonies.generation",
        &[
            region.as_str().into(),
            testimony.generation.to_sql().into(),
            Value::int(testimony.epoch.0)?,
            testimony.store.to_string().into(),
            to_text(&testimony.bounds)?.into(),
            Value::int(now_ms)?,
        ],
    )
    .await?;
    Ok(())
}

/// Testimony by region, of any generation: the verdict compares.
///
/// # Errors
/// Those of the store.
pub async fn testimonies(tx: &mut Tx) -> Result<BTreeMap<Name, Testimony>, DbError> {
    let rows = tx.query("SELECT region, generation, epoch, store_id, bounds FROM testimonies", &[]).await?;
    rows.iter()
        .map(|row| {
            let testimony = Testimony {
                generation: Generation::from_sql(row.int(1)?),
                epoch: Epoch(row.uint(2)?),
                store: parse(row, 3)?,
                bounds: from_text(row.text(4)?)?,
            };
            Ok((parse(row, 0)?, testimony))
        })
        .collect()
}

/// Keeps the bounds that an operator stated for a silent region, for one generation.
///
/// # Errors
/// Those of the store.
pub async fn put_stated(
    tx: &mut Tx,
    region: &Name,
    generation: Generation,
    bounds: &BTreeMap<Name, u64>,
    who: &str,
    reason: &str,
    now_ms: u64,
) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO stated (region, generation, bounds, who, reason, at_ms) VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (region) DO UPDATE SET generation = excluded.generation, bounds = excluded.bounds,
         who = excluded.who, reason = excluded.reason, at_ms = excluded.at_ms",
        &[
            region.as_str().into(),
            generation.to_sql().into(),
            to_text(bounds)?.into(),
            who.into(),
            reason.into(),
            Value::int(now_ms)?,
        ],
    )
    .await?;
    Ok(())
}

/// Bounds that were stated for regions: generation and bounds by region.
///
/// # Errors
/// Those of the store.
pub async fn stated(tx: &mut Tx) -> Result<BTreeMap<Name, (Generation, BTreeMap<Name, u64>)>, DbError> {
    let rows = tx.query("SELECT region, generation, bounds FROM stated", &[]).await?;
    rows.iter().map(|row| Ok((parse(row, 0)?, (Generation::from_sql(row.int(1)?), from_text(row.text(2)?)?)))).collect()
}

/// Records that an operator vouches for this generation: the old store is stopped. It is the row of
/// no region, so that it also stands where there is no region to state a bound for.
///
/// # Errors
/// Those of the store.
pub async fn overrule(
    tx: &mut Tx,
    generation: Generation,
    who: &str,
    reason: &str,
    now_ms: u64,
) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO overruled (generation, who, reason, at_ms) VALUES ($1, $2, $3, $4)
         ON CONFLICT (generation) DO UPDATE SET who = excluded.who, reason = excluded.reason, at_ms = excluded.at_ms",
        &[generation.to_sql().into(), who.into(), reason.into(), Value::int(now_ms)?],
    )
    .await?;
    Ok(())
}

/// For which generation an operator vouched last, and when.
///
/// # Errors
/// Those of the store.
pub async fn overruled(tx: &mut Tx) -> Result<Option<(Generation, u64)>, DbError> {
    let rows = tx.query("SELECT generation, at_ms FROM overruled ORDER BY generation DESC LIMIT 1", &[]).await?;
    rows.first().map(|row| Ok((Generation::from_sql(row.int(0)?), row.uint(1)?))).transpose()
}
