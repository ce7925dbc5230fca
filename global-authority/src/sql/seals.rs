//! The key under which this authority seals what it tells regions of the roster.

use cadastre_runtime::db::{DbError, Migration, Tx};

/// One row, written once; every process of the authority shares it, and a copy of the store has it too.
pub(super) const SEALS: Migration = (
    9,
    "seals",
    &[
        "CREATE TABLE seals (id BIGINT PRIMARY KEY, seal_key TEXT NOT NULL)",
        // With what the authority signs when it asks an agent something.
        "ALTER TABLE sessions ADD COLUMN errand_key TEXT",
    ],
);

/// The key, where there is one.
///
/// # Errors
/// Those of the store.
pub async fn seal_key(tx: &mut Tx) -> Result<Option<String>, DbError> {
    let row = tx.query_opt("SELECT seal_key FROM seals WHERE id = 1", &[]).await?;
    row.map(|row| row.text(0).map(str::to_owned)).transpose()
}

/// Writes the key where there is none yet.
///
/// # Errors
/// Those of the store.
pub async fn make_seal_key(tx: &mut Tx, key: &str) -> Result<(), DbError> {
    tx.execute("INSERT INTO seals (id, seal_key) VALUES (1, $1) ON CONFLICT (id) DO NOTHING", &[key.into()]).await?;
    Ok(())
}
