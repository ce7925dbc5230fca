//! Worker windows: one watermark per (slot, worker), and who held which window.
//!
//! `workers` has the watermark; a window is only written together with a guarded move of it. Rows of `windows` are never
//! deleted: they are where a time-based id came from.

use cadastre_core::ids::{AllocationId, Epoch, Incarnation, Name, RowId};
use cadastre_core::range::Range;
use cadastre_runtime::db::{DbError, Row, Tx, Value};
use uuid::Uuid;

use super::{opt_parse, parse, range};

/// Tables of worker windows. `namespace` is the slot's number line (`events@3`).
pub(super) const TIME_TABLES: &[&str] = &[
    "CREATE TABLE workers (
        namespace TEXT NOT NULL, worker BIGINT NOT NULL, ends BIGINT NOT NULL, window_id TEXT NOT NULL,
        PRIMARY KEY (namespace, worker))",
    "CREATE TABLE windows (
        window_id TEXT PRIMARY KEY, namespace TEXT NOT NULL, worker BIGINT NOT NULL, lo BIGINT NOT NULL,
        hi BIGINT NOT NULL, service TEXT, instance TEXT NOT NULL, incarnation TEXT NOT NULL, allocation_id TEXT NOT NULL,
        epoch BIGINT NOT NULL, at_ms BIGINT NOT NULL, ended BIGINT NOT NULL, mark_row TEXT NOT NULL)",
    "CREATE UNIQUE INDEX windows_place ON windows (namespace, worker, lo)",
    "CREATE UNIQUE INDEX windows_allocation ON windows (allocation_id)",
];

/// A worker's window.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowRow {
    /// The window.
    pub window_id: Uuid,
    /// The slot's number line.
    pub line: Name,
    /// The worker.
    pub worker: u32,
    /// In units of the layout; a renewal moves its end.
    pub range: Range,
    /// For which service; none where the agent stamps itself.
    pub service: Option<Name>,
    /// A name for people.
    pub instance: Name,
    /// The process that holds it.
    pub incarnation: Incarnation,
    /// The request.
    pub allocation_id: AllocationId,
    /// Under which epoch.
    pub epoch: Epoch,
    /// When it was taken, milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Whether its holder stopped for good.
    pub ended: bool,
    /// The row of the region's own mark that gave it.
    pub mark_row: RowId,
}

macro_rules! select_windows {
    ($tail:literal) => {
        concat!(
            "SELECT w.window_id, w.namespace, w.worker, w.lo, w.hi, w.service, w.instance, w.incarnation, \
             w.allocation_id, w.epoch, w.at_ms, w.ended, w.mark_row FROM windows w ",
            $tail
        )
    };
}

fn window(row: &Row) -> Result<WindowRow, DbError> {
    Ok(WindowRow {
        window_id: parse(row, 0)?,
        line: parse(row, 1)?,
        worker: row.u32(2)?,
        range: range(row, 3)?,
        service: opt_parse(row, 5)?,
        instance: parse(row, 6)?,
        incarnation: parse(row, 7)?,
        allocation_id: parse(row, 8)?,
        epoch: Epoch(row.uint(9)?),
        at_ms: row.uint(10)?,
        ended: row.bool(11)?,
        mark_row: parse(row, 12)?,
    })
}

/// Every worker of a slot that ever had a window, and its watermark; `None` where its row cannot be read, so that one
/// damaged row does not stop the others.
///
/// # Errors
/// Those of the store.
pub async fn workers(tx: &mut Tx, line: &Name) -> Result<Vec<(u32, Option<u64>)>, DbError> {
    let rows = tx
        .query("SELECT worker, ends FROM workers WHERE namespace = $1 ORDER BY worker", &[line.as_str().into()])
        .await?;
    let mut all = Vec::with_capacity(rows.len());
    for row in &rows {
        match (row.u32(0), row.uint(1)) {
            (Ok(worker), ends) => all.push((worker, ends.ok())),
            (Err(error), _) => tracing::error!(%line, %error, "a row of workers cannot be read"),
        }
    }
    Ok(all)
}

/// Moves a worker's watermark from `was` to the end of a new window, and writes the window.
///
/// # Errors
/// `Conflict` or `Unique` where somebody else was first.
pub async fn take_worker(tx: &mut Tx, was: Option<u64>, w: &WindowRow) -> Result<(), DbError> {
    let (line, worker, id) = (w.line.as_str(), w.worker, w.window_id.to_string());
    let ends = Value::int(w.range.hi())?;
    let moved = match was {
        None => {
            let args = [line.into(), worker.into(), ends, id.as_str().into()];
            tx.execute("INSERT INTO workers (namespace, worker, ends, window_id) VALUES ($1, $2, $3, $4)", &args)
                .await?
        }
        Some(was) => {
            tx.execute(
                "UPDATE workers SET ends = $1, window_id = $2 WHERE namespace = $3 AND worker = $4 AND ends = $5",
                &[ends, id.as_str().into(), line.into(), worker.into(), Value::int(was)?],
            )
            .await?
        }
    };
    if moved != 1 {
        return Err(DbError::Conflict);
    }
    tx.execute(
        "INSERT INTO windows (window_id, namespace, worker, lo, hi, service, instance, incarnation, allocation_id, epoch,
         at_ms, ended, mark_row) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 0, $12)",
        &[
            id.as_str().into(),
            line.into(),
            worker.into(),
            Value::int(w.range.lo())?,
            Value::int(w.range.hi())?,
            w.service.as_ref().map(Name::as_str).into(),
            w.instance.as_str().into(),
            w.incarnation.to_string().into(),
            w.allocation_id.to_string().into(),
            Value::int(w.epoch.0)?,
            Value::int(w.at_ms)?,
            w.mark_row.to_string().into(),
        ],
    )
    .await?;
    Ok(())
}

/// Moves the end of a window, by its holder, who still is the last one of that worker: the watermark is the end that
/// was read. With `ended` it is the true end, accepted once.
///
/// # Errors
/// `Conflict` where the worker was taken by somebody else, or the window moved or ended meanwhile.
pub async fn move_end(tx: &mut Tx, w: &WindowRow, hi: u64, ended: bool) -> Result<(), DbError> {
    let id = w.window_id.to_string();
    let (was, hi) = (Value::int(w.range.hi())?, Value::int(hi)?);
    let worker = tx
        .execute(
            "UPDATE workers SET ends = $1 WHERE namespace = $2 AND worker = $3 AND ends = $4 AND window_id = $5",
            &[hi.clone(), w.line.as_str().into(), w.worker.into(), was.clone(), id.as_str().into()],
        )
        .await?;
    let window = tx
        .execute(
            "UPDATE windows SET hi = $1, ended = $2
             WHERE window_id = $3 AND hi = $4 AND ended = 0 AND incarnation = $5 AND epoch = $6",
            &[hi, ended.into(), id.as_str().into(), was, w.incarnation.to_string().into(), Value::int(w.epoch.0)?],
        )
        .await?;
    if (worker, window) == (1, 1) { Ok(()) } else { Err(DbError::Conflict) }
}

/// The window of a request.
///
/// # Errors
/// Those of the store.
pub async fn window_by_allocation(tx: &mut Tx, allocation: AllocationId) -> Result<Option<WindowRow>, DbError> {
    let row = tx.query_opt(select_windows!("WHERE w.allocation_id = $1"), &[allocation.to_string().into()]).await?;
    row.as_ref().map(window).transpose()
}

/// The newest window of a worker.
///
/// # Errors
/// Those of the store.
pub async fn window_of(tx: &mut Tx, line: &Name, worker: u32) -> Result<Option<WindowRow>, DbError> {
    let row = tx
        .query_opt(
            select_windows!("JOIN workers k ON k.window_id = w.window_id WHERE k.namespace = $1 AND k.worker = $2"),
            &[line.as_str().into(), worker.into()],
        )
        .await?;
    row.as_ref().map(window).transpose()
}

/// The window that holds a worker's unit.
///
/// # Errors
/// Those of the store.
pub async fn window_at(tx: &mut Tx, line: &Name, worker: u32, unit: u64) -> Result<Option<WindowRow>, DbError> {
    let row = tx
        .query_opt(
            select_windows!("WHERE w.namespace = $1 AND w.worker = $2 AND w.lo <= $3 ORDER BY w.lo DESC LIMIT 1"),
            &[line.as_str().into(), worker.into(), Value::int(unit)?],
        )
        .await?;
    let below = row.as_ref().map(window).transpose()?;
    Ok(below.filter(|w| w.range.contains(unit)))
}

/// Windows of a slot in order of worker and place, after `after`, at most `limit`.
///
/// # Errors
/// Those of the store.
pub async fn windows_from(
    tx: &mut Tx,
    line: &Name,
    (worker, lo): (u32, u64),
    limit: u32,
) -> Result<Vec<WindowRow>, DbError> {
    let args = [line.as_str().into(), worker.into(), Value::int(lo)?, limit.into()];
    let rows = tx
        .query(
            select_windows!(
                "WHERE w.namespace = $1 AND (w.worker > $2 OR (w.worker = $2 AND w.lo >= $3))
             ORDER BY w.worker, w.lo LIMIT $4"
            ),
            &args,
        )
        .await?;
    rows.iter().map(window).collect()
}

/// What the region was given of a slot's time under an epoch, up to the last end; windows that touch are one.
///
/// # Errors
/// Those of the store.
pub async fn time_held(tx: &mut Tx, line: &Name, epoch: Epoch) -> Result<Option<Range>, DbError> {
    // Each goes on from the one before, and one of a later day is enough to stamp in: a few are all that matter.
    let rows = tx
        .query(
            "SELECT lo, hi FROM grants WHERE namespace = $1 AND state = 'held' AND epoch = $2 ORDER BY lo DESC LIMIT 100",
            &[line.as_str().into(), Value::int(epoch.0)?],
        )
        .await?;
    let mut held: Option<Range> = None;
    for row in &rows {
        let below = range(row, 0)?;
        held = match held {
            None => Some(below),
            Some(above) if below.hi() == above.lo() => Range::new(below.lo(), above.hi()).ok(),
            Some(above) => return Ok(Some(above)),
        };
    }
    Ok(held)
}
