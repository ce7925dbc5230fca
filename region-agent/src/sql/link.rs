//! Where the region stands, and what is on its way to or from the authority.

use cadastre_core::ids::{AllocationId, Epoch, GrantId, Name, RegionId};
use cadastre_core::mark::Generation;
use cadastre_core::registry::RegionState;
use cadastre_protocol::link::Confirm;
use cadastre_runtime::db::{DbError, Row, Tx, Value};

use super::parse;

const STATES: [RegionState; 5] =
    [RegionState::Registered, RegionState::Active, RegionState::Draining, RegionState::Fenced, RegionState::Retired];

/// What the authority last said about this region; absent before its first answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StandingRow {
    /// The region's number.
    pub region_id: RegionId,
    /// Its epoch. It never falls.
    pub epoch: Epoch,
    /// Its state.
    pub state: RegionState,
    /// When the authority last answered, milliseconds since the Unix epoch.
    pub answered_at_ms: u64,
    /// Another copy of this store was found alive: nothing is carved until the authority answers again.
    pub superseded: bool,
}

/// Where the region stands.
///
/// # Errors
/// Those of the store.
pub async fn standing(tx: &mut Tx) -> Result<Option<StandingRow>, DbError> {
    let row = tx
        .query_opt("SELECT region_id, epoch, state, answered_at_ms, superseded FROM standing WHERE id = 1", &[])
        .await?;
    row.map(|row| {
        let state = row.text(2)?;
        let state = STATES.into_iter().find(|s| s.as_str() == state);
        Ok(StandingRow {
            region_id: RegionId(row.u32(0)?),
            epoch: Epoch(row.uint(1)?),
            state: state.ok_or_else(|| DbError::Corrupt("unknown region state".into()))?,
            answered_at_ms: row.uint(3)?,
            superseded: row.bool(4)?,
        })
    })
    .transpose()
}

/// Writes where the region stands; an epoch below the stored one changes nothing.
///
/// # Errors
/// `Conflict` where the stored epoch is higher.
pub async fn put_standing(tx: &mut Tx, s: &StandingRow) -> Result<(), DbError> {
    let args = [
        s.region_id.0.into(),
        Value::int(s.epoch.0)?,
        s.state.as_str().into(),
        Value::int(s.answered_at_ms)?,
        s.superseded.into(),
    ];
    let written = tx
        .execute(
            "INSERT INTO standing (id, region_id, epoch, state, answered_at_ms, superseded)
             VALUES (1, $1, $2, $3, $4, $5)
             ON CONFLICT (id) DO UPDATE SET region_id = excluded.region_id, epoch = excluded.epoch,
             state = excluded.state, answered_at_ms = excluded.answered_at_ms, superseded = excluded.superseded
             WHERE standing.epoch <= excluded.epoch",
            &args,
        )
        .await?;
    if written == 1 { Ok(()) } else { Err(DbError::Conflict) }
}

/// Notes that another copy of this store is alive, so that a restart does not carve.
///
/// # Errors
/// Those of the store.
pub async fn set_superseded(tx: &mut Tx) -> Result<(), DbError> {
    tx.execute("UPDATE standing SET superseded = 1 WHERE id = 1", &[]).await?;
    Ok(())
}

/// A request for a grant that is not answered yet.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingRow {
    /// In which namespace; one request each.
    pub namespace: Name,
    /// Names the request over every retry.
    pub allocation_id: AllocationId,
    /// How much is asked for.
    pub want: u64,
    /// Under which epoch.
    pub epoch: Epoch,
    /// When it was first made, milliseconds since the Unix epoch.
    pub made_at_ms: u64,
}

fn one_pending(row: &Row) -> Result<PendingRow, DbError> {
    Ok(PendingRow {
        namespace: parse(row, 0)?,
        allocation_id: parse(row, 1)?,
        want: row.uint(2)?,
        epoch: Epoch(row.uint(3)?),
        made_at_ms: row.uint(4)?,
    })
}

/// Every request on its way.
///
/// # Errors
/// Those of the store.
pub async fn pending(tx: &mut Tx) -> Result<Vec<PendingRow>, DbError> {
    let rows = tx
        .query("SELECT namespace, allocation_id, want, epoch, made_at_ms FROM pending ORDER BY namespace", &[])
        .await?;
    rows.iter().map(one_pending).collect()
}

/// Stores a request before it is sent for the first time. Returns whether it is the one on its way now;
/// another agent of the same store may have been first.
///
/// # Errors
/// Those of the store.
pub async fn insert_pending(tx: &mut Tx, p: &PendingRow) -> Result<bool, DbError> {
    let made = tx
        .execute(
            "INSERT INTO pending (namespace, allocation_id, want, epoch, made_at_ms) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (namespace) DO NOTHING",
            &[
                p.namespace.as_str().into(),
                p.allocation_id.to_string().into(),
                Value::int(p.want)?,
                Value::int(p.epoch.0)?,
                Value::int(p.made_at_ms)?,
            ],
        )
        .await?;
    Ok(made == 1)
}

/// Clears a request, returning it if it was still on its way.
///
/// # Errors
/// Those of the store.
pub async fn take_pending(tx: &mut Tx, allocation: AllocationId) -> Result<Option<PendingRow>, DbError> {
    let row = tx
        .query_opt(
            "SELECT namespace, allocation_id, want, epoch, made_at_ms FROM pending WHERE allocation_id = $1",
            &[allocation.to_string().into()],
        )
        .await?;
    let Some(row) = row else { return Ok(None) };
    let cleared = tx.execute("DELETE FROM pending WHERE allocation_id = $1", &[allocation.to_string().into()]).await?;
    if cleared == 1 { one_pending(&row).map(Some) } else { Err(DbError::Conflict) }
}

/// Notes an adopted answer until the authority acknowledges it.
///
/// # Errors
/// Those of the store.
pub async fn insert_confirm(tx: &mut Tx, allocation: AllocationId, grant: GrantId) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO confirms (allocation_id, grant_id) VALUES ($1, $2)",
        &[allocation.to_string().into(), grant.to_string().into()],
    )
    .await?;
    Ok(())
}

/// Answers that were adopted and not yet acknowledged, at most `limit`.
///
/// # Errors
/// Those of the store.
pub async fn confirms(tx: &mut Tx, limit: u32) -> Result<Vec<Confirm>, DbError> {
    let rows = tx
        .query("SELECT allocation_id, grant_id FROM confirms ORDER BY allocation_id LIMIT $1", &[limit.into()])
        .await?;
    rows.iter().map(|row| Ok(Confirm { allocation_id: parse(row, 0)?, grant_id: parse(row, 1)? })).collect()
}

/// Forgets an acknowledged answer.
///
/// # Errors
/// Those of the store.
pub async fn acknowledge(tx: &mut Tx, allocation: AllocationId) -> Result<(), DbError> {
    tx.execute("DELETE FROM confirms WHERE allocation_id = $1", &[allocation.to_string().into()]).await?;
    Ok(())
}

/// The version of the newest roster entry.
///
/// # Errors
/// Those of the store.
pub async fn roster_version(tx: &mut Tx) -> Result<(Generation, u64), DbError> {
    let row =
        tx.query_opt("SELECT generation, seq FROM roster ORDER BY generation DESC, seq DESC LIMIT 1", &[]).await?;
    match row {
        None => Ok((Generation::default(), 0)),
        Some(row) => Ok((Generation::from_sql(row.int(0)?), row.uint(1)?)),
    }
}
