//! The ledger of grants.

use cadastre_core::ids::{AllocationId, Epoch, GrantId, Name, RegionId, RowId, StoreId};
use cadastre_core::mark::Generation;
use cadastre_core::range::Range;
use cadastre_runtime::db::{DbError, Row, Tx, Value};

use super::parse;

macro_rules! select_grants {
    ($tail:literal) => {
        concat!(
            "SELECT grant_id, namespace, allocation_id, region, region_id, epoch, store_id, want, lo, hi, \
             generation, mark_row, confirmed_at_ms, at_ms FROM grants ",
            $tail
        )
    };
}

/// One row of the ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// The grant.
    pub grant_id: GrantId,
    /// In which namespace.
    pub namespace: Name,
    /// The request.
    pub allocation_id: AllocationId,
    /// To whom.
    pub region: Name,
    /// To whom, by number.
    pub region_id: RegionId,
    /// Under which epoch.
    pub epoch: Epoch,
    /// To which store.
    pub store_id: StoreId,
    /// What was asked for.
    pub want: u64,
    /// What was given.
    pub range: Range,
    /// In which generation.
    pub generation: Generation,
    /// The mark of the transaction.
    pub mark_row: RowId,
    /// When the region said that it adopted it.
    pub confirmed_at_ms: Option<u64>,
    /// When.
    pub at_ms: u64,
}

fn grant(row: &Row) -> Result<Grant, DbError> {
    Ok(Grant {
        grant_id: parse(row, 0)?,
        namespace: parse(row, 1)?,
        allocation_id: parse(row, 2)?,
        region: parse(row, 3)?,
        region_id: RegionId(row.u32(4)?),
        epoch: Epoch(row.uint(5)?),
        store_id: parse(row, 6)?,
        want: row.uint(7)?,
        range: Range::new(row.uint(8)?, row.uint(9)?).map_err(|e| DbError::Corrupt(e.to_string()))?,
        generation: Generation::from_sql(row.int(10)?),
        mark_row: parse(row, 11)?,
        confirmed_at_ms: row.opt_uint(12)?,
        at_ms: row.uint(13)?,
    })
}

/// The newest row of an allocation.
///
/// # Errors
/// Those of the store.
pub async fn grant_of(tx: &mut Tx, allocation: AllocationId) -> Result<Option<Grant>, DbError> {
    let rows = tx
        .query(
            select_grants!("WHERE allocation_id = $1 ORDER BY generation DESC LIMIT 1"),
            &[allocation.to_string().into()],
        )
        .await?;
    rows.first().map(grant).transpose()
}

/// Writes a ledger row.
///
/// # Errors
/// `Unique` where the place or the allocation is taken.
pub async fn insert_grant(tx: &mut Tx, g: &Grant) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO grants (grant_id, namespace, allocation_id, region, region_id, epoch, store_id, want, lo, hi,
         generation, mark_row, confirmed_at_ms, at_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
        &[
            g.grant_id.to_string().into(),
            g.namespace.as_str().into(),
            g.allocation_id.to_string().into(),
            g.region.as_str().into(),
            i64::from(g.region_id.0).into(),
            Value::int(g.epoch.0)?,
            g.store_id.to_string().into(),
            Value::int(g.want)?,
            Value::int(g.range.lo())?,
            Value::int(g.range.hi())?,
            g.generation.to_sql().into(),
            g.mark_row.to_string().into(),
            Value::opt_int(g.confirmed_at_ms)?,
            Value::int(g.at_ms)?,
        ],
    )
    .await?;
    Ok(())
}

/// Takes note that a region adopted a row of the generation `generation`. Returns whether it was one.
///
/// # Errors
/// Those of the store.
pub async fn confirm(
    tx: &mut Tx,
    region: &Name,
    allocation: AllocationId,
    grant: GrantId,
    generation: Generation,
    now_ms: u64,
) -> Result<bool, DbError> {
    let changed = tx
        .execute(
            "UPDATE grants SET confirmed_at_ms = $1 WHERE grant_id = $2 AND allocation_id = $3 AND region = $4
             AND generation <= $5 AND confirmed_at_ms IS NULL",
            &[
                Value::int(now_ms)?,
                grant.to_string().into(),
                allocation.to_string().into(),
                region.as_str().into(),
                generation.to_sql().into(),
            ],
        )
        .await?;
    Ok(changed == 1)
}

/// A page of the ledger in order of place.
///
/// # Errors
/// Those of the store.
pub async fn grants_page(
    tx: &mut Tx,
    namespace: &Name,
    region: Option<&Name>,
    after: Option<u64>,
    limit: u64,
) -> Result<Vec<Grant>, DbError> {
    // Two texts, so that each one is answered by its index at any length of the ledger.
    let after = Value::int(after.map_or(0, |lo| lo.saturating_add(1)))?;
    let rows = match region {
        None => {
            tx.query(
                select_grants!("WHERE namespace = $1 AND lo >= $2 ORDER BY lo LIMIT $3"),
                &[namespace.as_str().into(), after, Value::int(limit)?],
            )
            .await?
        }
        Some(region) => {
            tx.query(
                select_grants!("WHERE namespace = $1 AND region = $2 AND lo >= $3 ORDER BY lo LIMIT $4"),
                &[namespace.as_str().into(), region.as_str().into(), after, Value::int(limit)?],
            )
            .await?
        }
    };
    rows.iter().map(grant).collect()
}

/// The grant that begins highest.
///
/// # Errors
/// Those of the store.
pub async fn newest_grant(tx: &mut Tx, namespace: &Name) -> Result<Option<Grant>, DbError> {
    let args = [namespace.as_str().into()];
    let row = tx.query_opt(select_grants!("WHERE namespace = $1 ORDER BY lo DESC LIMIT 1"), &args).await?;
    row.as_ref().map(grant).transpose()
}

/// The grant that holds an ordinal.
///
/// # Errors
/// Those of the store.
pub async fn grant_at(tx: &mut Tx, namespace: &Name, ordinal: u64) -> Result<Option<Grant>, DbError> {
    let rows = tx
        .query(
            select_grants!("WHERE namespace = $1 AND lo <= $2 ORDER BY lo DESC LIMIT 1"),
            &[namespace.as_str().into(), Value::int(ordinal)?],
        )
        .await?;
    let found = rows.first().map(grant).transpose()?;
    Ok(found.filter(|g| g.range.contains(ordinal)))
}
