//! What regions remember of other scopes: the newest mark of each namespace that a region's store testified.

use cadastre_core::ids::{Name, StoreId};
use cadastre_core::mark::{Scope, ScopeMark};
use cadastre_runtime::db::{DbError, Tx, Value};

use super::parse;

/// Its table.
pub(super) const REMEMBERED_TABLES: &[&str] = &["CREATE TABLE remembered (
        region TEXT NOT NULL, scope TEXT NOT NULL, store_id TEXT NOT NULL, bound BIGINT NOT NULL,
        PRIMARY KEY (region, scope))"];

/// Notes what a region's store testified.
///
/// # Errors
/// Those of the store.
pub async fn remember(tx: &mut Tx, region: &Name, store: StoreId, mark: &ScopeMark) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO remembered (region, scope, store_id, bound) VALUES ($1, $2, $3, $4)
         ON CONFLICT (region, scope) DO UPDATE SET store_id = excluded.store_id, bound = excluded.bound",
        &[
            region.as_str().into(),
            mark.scope.to_string().into(),
            store.to_string().into(),
            Value::int(mark.mark.bound)?,
        ],
    )
    .await?;
    Ok(())
}

/// A region's store went back: what it remembered is not known any more.
///
/// # Errors
/// Those of the store.
pub async fn forget_remembered(tx: &mut Tx, region: &Name) -> Result<(), DbError> {
    tx.execute("DELETE FROM remembered WHERE region = $1", &[region.as_str().into()]).await?;
    Ok(())
}

/// Which regions' stores remember a scope, and up to which ordinal.
///
/// # Errors
/// Those of the store.
pub async fn remembers(tx: &mut Tx, scope: &Scope) -> Result<Vec<(Name, StoreId, u64)>, DbError> {
    let rows = tx
        .query("SELECT region, store_id, bound FROM remembered WHERE scope = $1", &[scope.to_string().into()])
        .await?;
    rows.iter().map(|row| Ok((parse(row, 0)?, parse(row, 1)?, row.uint(2)?))).collect()
}

/// Namespaces of which something was granted and that a region has not testified of, at most `limit`.
///
/// # Errors
/// Those of the store.
pub async fn untold(tx: &mut Tx, region: &Name, limit: u32) -> Result<Vec<Scope>, DbError> {
    let rows = tx
        .query(
            "SELECT s.scope FROM scopes s LEFT JOIN remembered r ON r.scope = s.scope AND r.region = $1
             WHERE s.bound > 0 AND s.scope LIKE 'ns/%' AND r.scope IS NULL LIMIT $2",
            &[region.as_str().into(), limit.into()],
        )
        .await?;
    rows.iter().map(|row| parse(row, 0)).collect()
}

/// The end of the highest range that a region was ever granted, by namespace.
///
/// # Errors
/// Those of the store.
pub async fn highest_granted(tx: &mut Tx, region: &Name) -> Result<Vec<(Name, u64)>, DbError> {
    let held =
        tx.query("SELECT namespace FROM holdings WHERE region = $1 AND granted > 0", &[region.as_str().into()]).await?;
    let mut all = Vec::with_capacity(held.len());
    for row in &held {
        let namespace: Name = parse(row, 0)?;
        let args = [namespace.as_str().into(), region.as_str().into()];
        let sql = "SELECT hi FROM grants WHERE namespace = $1 AND region = $2 ORDER BY lo DESC LIMIT 1";
        if let Some(newest) = tx.query_opt(sql, &args).await? {
            all.push((namespace, newest.uint(0)?));
        }
    }
    Ok(all)
}
