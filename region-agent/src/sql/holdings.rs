//! Grants and blocks: what is carved, and how much was.

use std::collections::BTreeMap;

use cadastre_core::ids::{AllocationId, BlockId, Epoch, GrantId, Name, RowId};
use cadastre_core::mark::Generation;
use cadastre_core::pool::{Carve, Holding};
use cadastre_core::range::Range;
use cadastre_runtime::db::{DbError, Row, Tx, Value};

use super::{HoldState, parse, range};

/// Holdings with something left that one carve looks at; the lowest is the one that is carved.
const LOOK: i64 = 4;

/// A grant, as this region adopted it.
#[derive(Clone, Debug, PartialEq)]
pub struct GrantRow {
    /// The grant.
    pub grant_id: GrantId,
    /// In which namespace.
    pub namespace: Name,
    /// What.
    pub range: Range,
    /// Everything below was handed out.
    pub carved_to: u64,
    /// Under which epoch.
    pub epoch: Epoch,
    /// The authority's generation that wrote it.
    pub generation: Generation,
    /// The request that it answers.
    pub allocation_id: AllocationId,
    /// Held or burned.
    pub state: HoldState,
    /// When it was adopted, milliseconds since the Unix epoch.
    pub adopted_at_ms: u64,
    /// The row of the region's own mark that adopted it.
    pub mark_row: RowId,
}

/// A carve whose holder is a service.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockRow {
    /// The block.
    pub block_id: BlockId,
    /// In which namespace.
    pub namespace: Name,
    /// Whose.
    pub service: Name,
    /// The grant that it was carved from.
    pub grant_id: GrantId,
    /// What.
    pub range: Range,
    /// Everything below was handed out.
    pub carved_to: u64,
    /// Under which epoch.
    pub epoch: Epoch,
    /// Held or burned.
    pub state: HoldState,
    /// When it was made, milliseconds since the Unix epoch.
    pub at_ms: u64,
}

macro_rules! select_grants {
    ($tail:literal) => {
        concat!(
            "SELECT grant_id, namespace, lo, hi, carved_to, epoch, generation, allocation_id, state, \
             adopted_at_ms, mark_row FROM grants ",
            $tail
        )
    };
}

macro_rules! select_blocks {
    ($tail:literal) => {
        concat!(
            "SELECT block_id, namespace, service, grant_id, lo, hi, carved_to, epoch, state, at_ms FROM blocks ",
            $tail
        )
    };
}

fn grant(row: &Row) -> Result<GrantRow, DbError> {
    Ok(GrantRow {
        grant_id: parse(row, 0)?,
        namespace: parse(row, 1)?,
        range: range(row, 2)?,
        carved_to: row.uint(4)?,
        epoch: Epoch(row.uint(5)?),
        generation: Generation::from_sql(row.int(6)?),
        allocation_id: parse(row, 7)?,
        state: HoldState::parse(row.text(8)?)?,
        adopted_at_ms: row.uint(9)?,
        mark_row: parse(row, 10)?,
    })
}

fn block(row: &Row) -> Result<BlockRow, DbError> {
    Ok(BlockRow {
        block_id: parse(row, 0)?,
        namespace: parse(row, 1)?,
        service: parse(row, 2)?,
        grant_id: parse(row, 3)?,
        range: range(row, 4)?,
        carved_to: row.uint(6)?,
        epoch: Epoch(row.uint(7)?),
        state: HoldState::parse(row.text(8)?)?,
        at_ms: row.uint(9)?,
    })
}

/// Adopts a grant.
///
/// # Errors
/// `Unique` where its place, its id or its request is known already.
pub async fn insert_grant(tx: &mut Tx, g: &GrantRow) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO grants (grant_id, namespace, lo, hi, carved_to, epoch, generation, allocation_id, state,
         adopted_at_ms, mark_row) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        &[
            g.grant_id.to_string().into(),
            g.namespace.as_str().into(),
            Value::int(g.range.lo())?,
            Value::int(g.range.hi())?,
            Value::int(g.carved_to)?,
            Value::int(g.epoch.0)?,
            g.generation.to_sql().into(),
            g.allocation_id.to_string().into(),
            g.state.as_str().into(),
            Value::int(g.adopted_at_ms)?,
            g.mark_row.to_string().into(),
        ],
    )
    .await?;
    Ok(())
}

/// Makes a block.
///
/// # Errors
/// Those of the store.
pub async fn insert_block(tx: &mut Tx, b: &BlockRow) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO blocks (block_id, namespace, service, grant_id, lo, hi, carved_to, epoch, state, at_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        &[
            b.block_id.to_string().into(),
            b.namespace.as_str().into(),
            b.service.as_str().into(),
            b.grant_id.to_string().into(),
            Value::int(b.range.lo())?,
            Value::int(b.range.hi())?,
            Value::int(b.carved_to)?,
            Value::int(b.epoch.0)?,
            b.state.as_str().into(),
            Value::int(b.at_ms)?,
        ],
    )
    .await?;
    Ok(())
}

/// The lowest grants of this epoch that have something left, all of it at or above `above`.
///
/// # Errors
/// Those of the store.
pub async fn grants_left(tx: &mut Tx, namespace: &Name, above: u64, epoch: Epoch) -> Result<Vec<Holding>, DbError> {
    let rows = tx
        .query(
            select_grants!(
                "WHERE namespace = $1 AND carved_to < hi AND carved_to >= $4 AND state = 'held' AND epoch = $2
             ORDER BY lo LIMIT $3"
            ),
            &[namespace.as_str().into(), Value::int(epoch.0)?, LOOK.into(), Value::int(above)?],
        )
        .await?;
    rows.iter()
        .map(|row| grant(row).map(|g| Holding { id: g.grant_id.0, range: g.range, carved_to: g.carved_to }))
        .collect()
}

/// The lowest blocks of a service and epoch that have something left, all of it at or above `above`; each with its
/// grant.
///
/// # Errors
/// Those of the store.
pub async fn blocks_left(
    tx: &mut Tx,
    namespace: &Name,
    service: &Name,
    above: u64,
    epoch: Epoch,
) -> Result<Vec<BlockRow>, DbError> {
    let rows = tx
        .query(
            select_blocks!(
                "WHERE namespace = $1 AND service = $2 AND carved_to < hi AND carved_to >= $5 AND state = 'held'
             AND epoch = $3 ORDER BY lo LIMIT $4"
            ),
            &[
                namespace.as_str().into(),
                service.as_str().into(),
                Value::int(epoch.0)?,
                LOOK.into(),
                Value::int(above)?,
            ],
        )
        .await?;
    rows.iter().map(block).collect()
}

/// Moves a grant's cursor from where it was read to the end of the carve.
///
/// # Errors
/// `Conflict` where the cursor, the epoch or the state moved meanwhile: nothing was carved.
pub async fn carve_grant(tx: &mut Tx, carve: &Carve, epoch: Epoch) -> Result<(), DbError> {
    let moved = tx
        .execute(
            "UPDATE grants SET carved_to = $1
             WHERE grant_id = $2 AND carved_to = $3 AND hi >= $1 AND epoch = $4 AND state = 'held'",
            &[
                Value::int(carve.range.hi())?,
                carve.from.to_string().into(),
                Value::int(carve.was)?,
                Value::int(epoch.0)?,
            ],
        )
        .await?;
    if moved == 1 { Ok(()) } else { Err(DbError::Conflict) }
}

/// As [`carve_grant`], of a block.
///
/// # Errors
/// `Conflict` where the cursor, the epoch or the state moved meanwhile: nothing was carved.
pub async fn carve_block(tx: &mut Tx, carve: &Carve, epoch: Epoch) -> Result<(), DbError> {
    let moved = tx
        .execute(
            "UPDATE blocks SET carved_to = $1
             WHERE block_id = $2 AND carved_to = $3 AND hi >= $1 AND epoch = $4 AND state = 'held'",
            &[
                Value::int(carve.range.hi())?,
                carve.from.to_string().into(),
                Value::int(carve.was)?,
                Value::int(epoch.0)?,
            ],
        )
        .await?;
    if moved == 1 { Ok(()) } else { Err(DbError::Conflict) }
}

/// A grant that this store ever held and that overlaps `range`. What is stored is disjoint, so only the
/// last one that begins below the range's end can.
///
/// # Errors
/// Those of the store.
pub async fn overlapping_grant(tx: &mut Tx, namespace: &Name, range: Range) -> Result<Option<GrantRow>, DbError> {
    let row = tx
        .query_opt(
            select_grants!("WHERE namespace = $1 AND lo < $2 ORDER BY lo DESC LIMIT 1"),
            &[namespace.as_str().into(), Value::int(range.hi())?],
        )
        .await?;
    let below = row.as_ref().map(grant).transpose()?;
    Ok(below.filter(|g| g.range.overlaps(&range)))
}

/// The grant that holds an ordinal.
///
/// # Errors
/// Those of the store.
pub async fn grant_of(tx: &mut Tx, namespace: &Name, ordinal: u64) -> Result<Option<GrantRow>, DbError> {
    let row = tx
        .query_opt(
            select_grants!("WHERE namespace = $1 AND lo <= $2 ORDER BY lo DESC LIMIT 1"),
            &[namespace.as_str().into(), Value::int(ordinal)?],
        )
        .await?;
    let below = row.as_ref().map(grant).transpose()?;
    Ok(below.filter(|g| g.range.contains(ordinal)))
}

/// The block that holds an ordinal.
///
/// # Errors
/// Those of the store.
pub async fn block_of(tx: &mut Tx, namespace: &Name, ordinal: u64) -> Result<Option<BlockRow>, DbError> {
    let row = tx
        .query_opt(
            select_blocks!("WHERE namespace = $1 AND lo <= $2 ORDER BY lo DESC LIMIT 1"),
            &[namespace.as_str().into(), Value::int(ordinal)?],
        )
        .await?;
    let below = row.as_ref().map(block).transpose()?;
    Ok(below.filter(|b| b.range.contains(ordinal)))
}

/// Grants that reach into `[from, to)`, in order, at most `limit`.
///
/// # Errors
/// Those of the store.
pub async fn grants_between(
    tx: &mut Tx,
    namespace: &Name,
    from: u64,
    to: u64,
    limit: u32,
) -> Result<Vec<GrantRow>, DbError> {
    let args = [namespace.as_str().into(), Value::int(from)?, Value::int(to)?, limit.into()];
    let rows =
        tx.query(select_grants!("WHERE namespace = $1 AND hi > $2 AND lo < $3 ORDER BY lo LIMIT $4"), &args).await?;
    rows.iter().map(grant).collect()
}

/// Blocks that reach into `[from, to)`, in order, at most `limit`.
///
/// # Errors
/// Those of the store.
pub async fn blocks_between(
    tx: &mut Tx,
    namespace: &Name,
    from: u64,
    to: u64,
    limit: u32,
) -> Result<Vec<BlockRow>, DbError> {
    let args = [namespace.as_str().into(), Value::int(from)?, Value::int(to)?, limit.into()];
    let rows =
        tx.query(select_blocks!("WHERE namespace = $1 AND hi > $2 AND lo < $3 ORDER BY lo LIMIT $4"), &args).await?;
    rows.iter().map(block).collect()
}

/// How one namespace stands in the store.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Totals {
    /// Ordinals of held grants and blocks that no segment has.
    pub left: u64,
    /// Ordinals carved into segments, ever.
    pub carved: u64,
    /// Ordinals given up, ever.
    pub burned: u64,
}

/// How every namespace stands, without looking at used-up holdings.
///
/// # Errors
/// Those of the store.
pub async fn totals(tx: &mut Tx, epoch: Epoch) -> Result<BTreeMap<Name, Totals>, DbError> {
    let mut all: BTreeMap<Name, Totals> = BTreeMap::new();
    for row in tx.query("SELECT namespace, carved, burned FROM issued", &[]).await? {
        let one = all.entry(parse(&row, 0)?).or_default();
        (one.carved, one.burned) = (row.uint(1)?, row.uint(2)?);
    }
    let epoch = Value::int(epoch.0)?;
    let grants = tx
        .query(
            "SELECT namespace, CAST(SUM(hi - carved_to) AS BIGINT) FROM grants
             WHERE carved_to < hi AND state = 'held' AND epoch = $1 GROUP BY namespace",
            std::slice::from_ref(&epoch),
        )
        .await?;
    let blocks = tx
        .query(
            "SELECT namespace, CAST(SUM(hi - carved_to) AS BIGINT) FROM blocks
             WHERE carved_to < hi AND state = 'held' AND epoch = $1 GROUP BY namespace",
            &[epoch],
        )
        .await?;
    for row in grants.iter().chain(&blocks) {
        let one = all.entry(parse(row, 0)?).or_default();
        one.left = one.left.saturating_add(row.uint(1)?);
    }
    Ok(all)
}

/// What one namespace has left in this epoch.
///
/// # Errors
/// Those of the store.
pub async fn left_of(tx: &mut Tx, namespace: &Name, epoch: Epoch) -> Result<u64, DbError> {
    let args = [namespace.as_str().into(), Value::int(epoch.0)?];
    let grants = tx
        .query_one(
            "SELECT CAST(COALESCE(SUM(hi - carved_to), 0) AS BIGINT) FROM grants
             WHERE namespace = $1 AND carved_to < hi AND state = 'held' AND epoch = $2",
            &args,
        )
        .await?;
    let blocks = tx
        .query_one(
            "SELECT CAST(COALESCE(SUM(hi - carved_to), 0) AS BIGINT) FROM blocks
             WHERE namespace = $1 AND carved_to < hi AND state = 'held' AND epoch = $2",
            &args,
        )
        .await?;
    Ok(grants.uint(0)?.saturating_add(blocks.uint(0)?))
}

/// Counts what was carved or burned.
///
/// # Errors
/// Those of the store.
pub async fn count(tx: &mut Tx, namespace: &Name, carved: u64, burned: u64) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO issued (namespace, carved, burned) VALUES ($1, $2, $3)
         ON CONFLICT (namespace) DO UPDATE SET carved = issued.carved + excluded.carved,
         burned = issued.burned + excluded.burned",
        &[namespace.as_str().into(), Value::int(carved)?, Value::int(burned)?],
    )
    .await?;
    Ok(())
}

/// Burns every grant and block of an epoch below `epoch`, and drops what was asked for under one.
/// Returns how many ordinals were left in them, by namespace.
///
/// # Errors
/// Those of the store.
pub async fn burn_below(tx: &mut Tx, epoch: Epoch) -> Result<BTreeMap<Name, u64>, DbError> {
    let mut burned: BTreeMap<Name, u64> = BTreeMap::new();
    let epoch = Value::int(epoch.0)?;
    let below = std::slice::from_ref(&epoch);
    let grants = tx
        .query(
            "SELECT namespace, CAST(SUM(hi - carved_to) AS BIGINT) FROM grants
             WHERE carved_to < hi AND state = 'held' AND epoch < $1 GROUP BY namespace",
            below,
        )
        .await?;
    let blocks = tx
        .query(
            "SELECT namespace, CAST(SUM(hi - carved_to) AS BIGINT) FROM blocks
             WHERE carved_to < hi AND state = 'held' AND epoch < $1 GROUP BY namespace",
            below,
        )
        .await?;
    for row in grants.iter().chain(&blocks) {
        let sum = burned.entry(parse(row, 0)?).or_default();
        *sum = sum.saturating_add(row.uint(1)?);
    }
    tx.execute("UPDATE grants SET state = 'burned' WHERE state = 'held' AND epoch < $1", below).await?;
    tx.execute("UPDATE blocks SET state = 'burned' WHERE state = 'held' AND epoch < $1", below).await?;
    tx.execute("DELETE FROM pending WHERE epoch < $1", below).await?;
    for (namespace, sum) in &burned {
        count(tx, namespace, 0, *sum).await?;
    }
    Ok(burned)
}

/// Per namespace, the highest grant that this store ever held. Grants never overlap, so the one that begins last ends
/// last. Goes from one namespace to the next in the index of places, and looks at one grant in each.
///
/// # Errors
/// Those of the store.
pub async fn highest_grants(tx: &mut Tx) -> Result<BTreeMap<Name, Range>, DbError> {
    let rows = tx
        .query(
            "WITH RECURSIVE names (namespace) AS (
                 SELECT MIN(namespace) FROM grants
                 UNION ALL
                 SELECT (SELECT MIN(g.namespace) FROM grants g WHERE g.namespace > names.namespace) FROM names
                 WHERE names.namespace IS NOT NULL)
             SELECT g.namespace, g.lo, g.hi FROM names JOIN grants g ON g.namespace = names.namespace
             AND g.lo = (SELECT MAX(h.lo) FROM grants h WHERE h.namespace = names.namespace)",
            &[],
        )
        .await?;
    rows.iter().map(|row| Ok((parse(row, 0)?, range(row, 1)?))).collect()
}

/// Per namespace, the end of the highest grant that this store ever held.
///
/// # Errors
/// Those of the store.
pub async fn bounds(tx: &mut Tx) -> Result<BTreeMap<Name, u64>, DbError> {
    Ok(highest_grants(tx).await?.into_iter().map(|(name, range)| (name, range.hi())).collect())
}
