//! The ledger of grants.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use cadastre_core::ids::{AllocationId, Epoch, GrantId, Name, RegionId, RowId, StoreId};
use cadastre_core::mark::Generation;
use cadastre_core::range::Range;
use cadastre_runtime::db::{DbError, EngineKind, Row, Tx, Value};

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

/// The newest row of each of many allocations, in one round trip. A look-up of its own for each of them, so that no plan
/// reads the whole ledger; SQLite knows neither the function nor the join, and has no round trips.
const NEWEST_OF_EACH: &str = "SELECT grant_id, namespace, allocation_id, region, region_id, epoch, store_id, want, lo, hi, \
     generation, mark_row, confirmed_at_ms, at_ms FROM unnest(string_to_array($1, ',')) AS asked (id) CROSS JOIN LATERAL \
     (SELECT * FROM grants WHERE allocation_id = asked.id ORDER BY generation DESC LIMIT 1) AS newest";

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

/// As many rows as one statement takes, and the shorter statements for the rest: few texts, so that a server prepares
/// each of them once.
const ROWS: [usize; 4] = [64, 16, 4, 1];
/// The same for look-ups: sixty-four in one statement look so costly to PostgreSQL that it starts parallel workers.
const LOOK_UPS: [usize; 3] = [16, 4, 1];
/// Columns of a ledger row.
const COLUMNS: usize = 14;

/// A look-up for each, put together: with a list in one look-up a server that has planned for a short ledger goes on
/// reading all of it when it is long.
static SELECTS: LazyLock<[String; 3]> = LazyLock::new(|| {
    LOOK_UPS.map(|rows| {
        let one = |n| format!("{} WHERE allocation_id = ${n}", select_grants!(""));
        (1..=rows).map(one).collect::<Vec<_>>().join(" UNION ALL ")
    })
});

static INSERTS: LazyLock<[String; 4]> = LazyLock::new(|| {
    let text = "INSERT INTO grants (grant_id, namespace, allocation_id, region, region_id, epoch, store_id, want, lo, hi, \
                generation, mark_row, confirmed_at_ms, at_ms) VALUES";
    ROWS.map(|rows| {
        let rows: Vec<String> = (0..rows).map(|row| places(row * COLUMNS + 1, COLUMNS)).collect();
        format!("{text} {}", rows.join(", "))
    })
});

/// `($3, $4, $5)`.
fn places(from: usize, count: usize) -> String {
    let places: Vec<String> = (from..from + count).map(|n| format!("${n}")).collect();
    format!("({})", places.join(", "))
}

/// The items in parts for which there is a text, largest first.
fn parts<'i, 't, T>(mut items: &'i [T], sizes: &[usize], texts: &'t [String]) -> Vec<(&'i [T], &'t str)> {
    let mut parts = Vec::new();
    for (rows, text) in sizes.iter().zip(texts) {
        while let Some((part, rest)) = items.split_at_checked(*rows) {
            parts.push((part, text.as_str()));
            items = rest;
        }
    }
    parts
}

/// The newest row of each of these allocations that has one.
///
/// # Errors
/// Those of the store.
pub async fn grants_of(tx: &mut Tx, allocations: &[AllocationId]) -> Result<BTreeMap<AllocationId, Grant>, DbError> {
    let mut newest: BTreeMap<AllocationId, Grant> = BTreeMap::new();
    if tx.kind() == EngineKind::Postgres && allocations.len() > 1 {
        let ids: Vec<String> = allocations.iter().map(ToString::to_string).collect();
        for row in tx.query(NEWEST_OF_EACH, &[ids.join(",").into()]).await? {
            let row = grant(&row)?;
            newest.insert(row.allocation_id, row);
        }
        return Ok(newest);
    }
    for (part, text) in parts(allocations, &LOOK_UPS, SELECTS.as_slice()) {
        let ids: Vec<Value> = part.iter().map(|id| id.to_string().into()).collect();
        for row in tx.query(text, &ids).await? {
            let row = grant(&row)?;
            let older = newest.get(&row.allocation_id).is_some_and(|held| held.generation > row.generation);
            if !older {
                newest.insert(row.allocation_id, row);
            }
        }
    }
    Ok(newest)
}

/// Writes ledger rows.
///
/// # Errors
/// `Unique` where a place or an allocation is taken.
pub async fn insert_grants(tx: &mut Tx, grants: &[Grant]) -> Result<(), DbError> {
    for (part, text) in parts(grants, &ROWS, INSERTS.as_slice()) {
        let mut values = Vec::with_capacity(part.len() * COLUMNS);
        for grant in part {
            values.extend(columns(grant)?);
        }
        tx.execute(text, &values).await?;
    }
    Ok(())
}

fn columns(g: &Grant) -> Result<[Value; COLUMNS], DbError> {
    Ok([
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
    ])
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
    let found = grant_below(tx, namespace, ordinal.saturating_add(1)).await?;
    Ok(found.filter(|g| g.range.contains(ordinal)))
}

/// The grant that begins highest below `end`: the only one of a sound ledger that can reach into a range that
/// ends there.
///
/// # Errors
/// Those of the store.
pub async fn grant_below(tx: &mut Tx, namespace: &Name, end: u64) -> Result<Option<Grant>, DbError> {
    let rows = tx
        .query(
            select_grants!("WHERE namespace = $1 AND lo < $2 ORDER BY lo DESC LIMIT 1"),
            &[namespace.as_str().into(), Value::int(end)?],
        )
        .await?;
    rows.first().map(grant).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_of_rows_has_its_texts() {
        for count in 0..200_usize {
            let items = vec![(); count];
            let parts = parts(&items, &ROWS, INSERTS.as_slice());
            assert_eq!(parts.iter().map(|(part, _)| part.len()).sum::<usize>(), count);
            for (part, text) in parts {
                assert!(text.ends_with(&format!("${})", part.len() * COLUMNS)), "{text}");
            }
        }
        assert!(SELECTS.iter().zip(LOOK_UPS).all(|(text, rows)| text.ends_with(&format!("allocation_id = ${rows}"))));
    }
}
