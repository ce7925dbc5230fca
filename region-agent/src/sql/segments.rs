//! Segments: the ledger of what left the region's pool, and the thick clients that hold some.

use cadastre_core::ids::{AllocationId, BlockId, Epoch, GrantId, Incarnation, Name, RowId, SegmentId};
use cadastre_core::range::Range;
use cadastre_runtime::db::{DbError, Row, Tx, Value};

use super::{opt_parse, parse, range};

/// One carve into an instance's hands.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentRow {
    /// The segment.
    pub segment_id: SegmentId,
    /// In which namespace.
    pub namespace: Name,
    /// The grant that it came out of.
    pub grant_id: GrantId,
    /// The block that it came out of, where there is one.
    pub block_id: Option<BlockId>,
    /// What.
    pub range: Range,
    /// The service that it was carved for; none where an agent shares it among services.
    pub service: Option<Name>,
    /// A name for people.
    pub instance: Name,
    /// The process that holds it.
    pub incarnation: Incarnation,
    /// The request.
    pub allocation_id: AllocationId,
    /// How much was asked for.
    pub want: u64,
    /// Under which epoch.
    pub epoch: Epoch,
    /// When, milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The row of the region's mark that wrote it.
    pub mark_row: RowId,
}

macro_rules! select_segments {
    ($tail:literal) => {
        concat!(
            "SELECT segment_id, namespace, grant_id, block_id, lo, hi, service, instance, incarnation, \
             allocation_id, want, epoch, at_ms, mark_row FROM segments ",
            $tail
        )
    };
}

fn segment(row: &Row) -> Result<SegmentRow, DbError> {
    Ok(SegmentRow {
        segment_id: parse(row, 0)?,
        namespace: parse(row, 1)?,
        grant_id: parse(row, 2)?,
        block_id: opt_parse(row, 3)?,
        range: range(row, 4)?,
        service: opt_parse(row, 6)?,
        instance: parse(row, 7)?,
        incarnation: parse(row, 8)?,
        allocation_id: parse(row, 9)?,
        want: row.uint(10)?,
        epoch: Epoch(row.uint(11)?),
        at_ms: row.uint(12)?,
        mark_row: parse(row, 13)?,
    })
}

/// Writes a segment.
///
/// # Errors
/// `Unique` where its place or its request is known already.
pub async fn insert_segment(tx: &mut Tx, s: &SegmentRow) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO segments (segment_id, namespace, grant_id, block_id, lo, hi, service, instance, incarnation,
         allocation_id, want, epoch, at_ms, state, mark_row)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, 'open', $14)",
        &[
            s.segment_id.to_string().into(),
            s.namespace.as_str().into(),
            s.grant_id.to_string().into(),
            s.block_id.map(|b| b.to_string()).into(),
            Value::int(s.range.lo())?,
            Value::int(s.range.hi())?,
            s.service.as_ref().map(Name::as_str).into(),
            s.instance.as_str().into(),
            s.incarnation.to_string().into(),
            s.allocation_id.to_string().into(),
            Value::int(s.want)?,
            Value::int(s.epoch.0)?,
            Value::int(s.at_ms)?,
            s.mark_row.to_string().into(),
        ],
    )
    .await?;
    Ok(())
}

/// The segment of a request.
///
/// # Errors
/// Those of the store.
pub async fn segment_by_allocation(tx: &mut Tx, allocation: AllocationId) -> Result<Option<SegmentRow>, DbError> {
    let row = tx.query_opt(select_segments!("WHERE allocation_id = $1"), &[allocation.to_string().into()]).await?;
    row.as_ref().map(segment).transpose()
}

/// A segment.
///
/// # Errors
/// Those of the store.
pub async fn segment_by_id(tx: &mut Tx, id: SegmentId) -> Result<Option<SegmentRow>, DbError> {
    let row = tx.query_opt(select_segments!("WHERE segment_id = $1"), &[id.to_string().into()]).await?;
    row.as_ref().map(segment).transpose()
}

/// The segment that holds an ordinal.
///
/// # Errors
/// Those of the store.
pub async fn segment_of(tx: &mut Tx, namespace: &Name, ordinal: u64) -> Result<Option<SegmentRow>, DbError> {
    let row = tx
        .query_opt(
            select_segments!("WHERE namespace = $1 AND lo <= $2 ORDER BY lo DESC LIMIT 1"),
            &[namespace.as_str().into(), Value::int(ordinal)?],
        )
        .await?;
    let below = row.as_ref().map(segment).transpose()?;
    Ok(below.filter(|s| s.range.contains(ordinal)))
}

/// Segments that begin at or after `from`, in order, at most `limit`.
///
/// # Errors
/// Those of the store.
pub async fn segments_from(tx: &mut Tx, namespace: &Name, from: u64, limit: u32) -> Result<Vec<SegmentRow>, DbError> {
    let args = [namespace.as_str().into(), Value::int(from)?, limit.into()];
    let rows = tx.query(select_segments!("WHERE namespace = $1 AND lo >= $2 ORDER BY lo LIMIT $3"), &args).await?;
    rows.iter().map(segment).collect()
}

/// A process that takes segments, and the token that tells two copies of it apart.
#[derive(Clone, Debug, PartialEq)]
pub struct HolderRow {
    /// The process.
    pub incarnation: Incarnation,
    /// Its service.
    pub service: Name,
    /// Its name for people.
    pub instance: Name,
    /// What its next request presents.
    pub chain: String,
    /// What its last request presented: it presents that again where the answer was lost.
    pub previous_chain: String,
    /// When it last asked, milliseconds since the Unix epoch.
    pub seen_at_ms: u64,
    /// Two copies of it were found: it gets nothing more.
    pub ended: bool,
}

/// A holder.
///
/// # Errors
/// Those of the store.
pub async fn holder(tx: &mut Tx, incarnation: Incarnation) -> Result<Option<HolderRow>, DbError> {
    let row = tx
        .query_opt(
            "SELECT incarnation, service, instance, chain, previous_chain, seen_at_ms, ended FROM holders
             WHERE incarnation = $1",
            &[incarnation.to_string().into()],
        )
        .await?;
    row.map(|row| {
        Ok(HolderRow {
            incarnation: parse(&row, 0)?,
            service: parse(&row, 1)?,
            instance: parse(&row, 2)?,
            chain: row.text(3)?.to_owned(),
            previous_chain: row.text(4)?.to_owned(),
            seen_at_ms: row.uint(5)?,
            ended: row.bool(6)?,
        })
    })
    .transpose()
}

/// Writes a holder: new where `was` is `None`, else over exactly that chain.
///
/// # Errors
/// `Unique` or `Conflict` where another request of the same process was first.
pub async fn put_holder(tx: &mut Tx, was: Option<&HolderRow>, now: &HolderRow) -> Result<(), DbError> {
    let Some(was) = was else {
        tx.execute(
            "INSERT INTO holders (incarnation, service, instance, chain, previous_chain, seen_at_ms, ended)
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
            &[
                now.incarnation.to_string().into(),
                now.service.as_str().into(),
                now.instance.as_str().into(),
                now.chain.as_str().into(),
                now.previous_chain.as_str().into(),
                Value::int(now.seen_at_ms)?,
                now.ended.into(),
            ],
        )
        .await?;
        return Ok(());
    };
    let changed = tx
        .execute(
            "UPDATE holders SET chain = $1, previous_chain = $2, seen_at_ms = $3, ended = $4
             WHERE incarnation = $5 AND chain = $6 AND ended = 0",
            &[
                now.chain.as_str().into(),
                now.previous_chain.as_str().into(),
                Value::int(now.seen_at_ms)?,
                now.ended.into(),
                now.incarnation.to_string().into(),
                was.chain.as_str().into(),
            ],
        )
        .await?;
    if changed == 1 { Ok(()) } else { Err(DbError::Conflict) }
}

/// Forgets holders that did not ask since `before_ms`. Their segments stay in the ledger.
///
/// # Errors
/// Those of the store.
pub async fn forget_holders(tx: &mut Tx, before_ms: u64) -> Result<u64, DbError> {
    tx.execute("DELETE FROM holders WHERE seen_at_ms < $1 AND ended = 0", &[Value::int(before_ms)?]).await
}

/// Notes what a process of this region has unissued in memory: lost with it, if it stops without a word.
///
/// # Errors
/// Those of the store.
pub async fn put_in_hand(
    tx: &mut Tx,
    incarnation: Incarnation,
    namespace: &Name,
    ordinals: u64,
    now_ms: u64,
) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO in_hand (incarnation, namespace, ordinals, at_ms) VALUES ($1, $2, $3, $4)
         ON CONFLICT (incarnation, namespace) DO UPDATE SET ordinals = excluded.ordinals, at_ms = excluded.at_ms",
        &[incarnation.to_string().into(), namespace.as_str().into(), Value::int(ordinals)?, Value::int(now_ms)?],
    )
    .await?;
    Ok(())
}

/// A process that issues by itself took a segment: it has all of it in memory until it says something else.
///
/// # Errors
/// Those of the store.
pub async fn add_in_hand(
    tx: &mut Tx,
    incarnation: Incarnation,
    namespace: &Name,
    ordinals: u64,
    now_ms: u64,
) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO in_hand (incarnation, namespace, ordinals, at_ms) VALUES ($1, $2, $3, $4)
         ON CONFLICT (incarnation, namespace) DO UPDATE SET ordinals = in_hand.ordinals + excluded.ordinals, at_ms = excluded.at_ms",
        &[incarnation.to_string().into(), namespace.as_str().into(), Value::int(ordinals)?, Value::int(now_ms)?],
    )
    .await?;
    Ok(())
}

/// Forgets what a process had in memory: it has said itself what is lost.
///
/// # Errors
/// Those of the store.
pub async fn clear_in_hand(tx: &mut Tx, incarnation: Incarnation) -> Result<(), DbError> {
    tx.execute("DELETE FROM in_hand WHERE incarnation = $1", &[incarnation.to_string().into()]).await?;
    Ok(())
}

/// Takes what other processes had in memory when they were last heard of, before `before_ms`.
///
/// # Errors
/// Those of the store.
pub async fn take_in_hand(tx: &mut Tx, but: Incarnation, before_ms: u64) -> Result<Vec<(Name, u64)>, DbError> {
    let args = [but.to_string().into(), Value::int(before_ms)?];
    let rows =
        tx.query("SELECT namespace, ordinals FROM in_hand WHERE incarnation <> $1 AND at_ms <= $2", &args).await?;
    tx.execute("DELETE FROM in_hand WHERE incarnation <> $1 AND at_ms <= $2", &args).await?;
    rows.iter().map(|row| Ok((parse(row, 0)?, row.uint(1)?))).collect()
}
