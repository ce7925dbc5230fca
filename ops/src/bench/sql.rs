//! The peer of the grants: what one would write without lanes, a transaction per grant on one hot row.
//!
//! Invariant: it is as quick as such a transaction can be: one statement, so that the row is held from there to the
//! commit and no longer. It keeps a ledger row, as ours does, and nothing else of what ours keeps.

use cadastre_runtime::db::{DbError, Tx};

/// What the synchronous standby is called.
pub const FOLLOWER: &str = "follower";
/// From now on commits wait for it.
pub const WAIT_FOR_FOLLOWER: [&str; 2] =
    ["ALTER SYSTEM SET synchronous_standby_names = 'follower'", "SELECT pg_reload_conf()"];
/// How many commits wait for.
pub const FOLLOWERS: &str = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";

/// Makes the row and the ledger.
///
/// # Errors
/// Those of the store.
pub async fn make(tx: &mut Tx) -> Result<(), DbError> {
    tx.execute("CREATE TABLE bench_hot (namespace TEXT PRIMARY KEY, watermark BIGINT NOT NULL)", &[]).await?;
    tx.execute("CREATE TABLE bench_ledger (lo BIGINT PRIMARY KEY, hi BIGINT NOT NULL, region TEXT NOT NULL)", &[])
        .await?;
    tx.execute("INSERT INTO bench_hot (namespace, watermark) VALUES ('orders', 0)", &[]).await?;
    Ok(())
}

/// Grants so many ordinals.
///
/// # Errors
/// Those of the store.
pub async fn grant(tx: &mut Tx, want: i64) -> Result<(), DbError> {
    tx.execute(
        "WITH taken AS (UPDATE bench_hot SET watermark = watermark + $1 WHERE namespace = 'orders' RETURNING watermark)
         INSERT INTO bench_ledger (lo, hi, region) SELECT watermark - $1, watermark, 'eu' FROM taken",
        &[want.into()],
    )
    .await?;
    Ok(())
}
