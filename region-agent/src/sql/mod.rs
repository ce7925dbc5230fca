//! The region's own tables, and all SQL over them. The shared ones are the ledger crate's.
//!
//! Guards are UPDATEs whose affected rows are counted. Every unit that carves, adopts, burns or makes a
//! block also raises the store's one scope, so that two of them never interleave. Rows of `grants`,
//! `blocks` and `segments` are never deleted: they are where an id came from.
//!
//! The partial indexes make "what is left" cost as much as there are holdings with something left, not
//! as many as there ever were.

mod held;
mod holdings;
mod link;
mod segments;
mod windows;

use cadastre_ledger::sql::{SEAL_COLUMN, SERVER_COLUMN, SHARED_TABLES};
use cadastre_runtime::db::{DbError, Migration, Row};

pub use held::*;
pub use holdings::*;
pub use link::*;
pub use segments::*;
pub use windows::*;

/// The schema, in order.
pub const MIGRATIONS: &[Migration] = &[
    (1, "shared", SHARED_TABLES),
    (2, "region", REGION_TABLES),
    (3, "held", HELD_TABLES),
    (4, "time", windows::TIME_TABLES),
    (5, "server", SERVER_COLUMN),
    (6, "seal", SEAL_COLUMN),
];

const REGION_TABLES: &[&str] = &[
    "CREATE TABLE standing (
        id BIGINT PRIMARY KEY, region_id BIGINT NOT NULL, epoch BIGINT NOT NULL, state TEXT NOT NULL,
        answered_at_ms BIGINT NOT NULL, superseded BIGINT NOT NULL)",
    "CREATE TABLE grants (
        grant_id TEXT PRIMARY KEY, namespace TEXT NOT NULL, lo BIGINT NOT NULL, hi BIGINT NOT NULL,
        carved_to BIGINT NOT NULL, epoch BIGINT NOT NULL, generation BIGINT NOT NULL, allocation_id TEXT NOT NULL,
        state TEXT NOT NULL, adopted_at_ms BIGINT NOT NULL, mark_row TEXT NOT NULL)",
    "CREATE UNIQUE INDEX grants_place ON grants (namespace, lo)",
    "CREATE UNIQUE INDEX grants_allocation ON grants (allocation_id)",
    "CREATE INDEX grants_left ON grants (namespace, lo) WHERE carved_to < hi",
    "CREATE TABLE blocks (
        block_id TEXT PRIMARY KEY, namespace TEXT NOT NULL, service TEXT NOT NULL, grant_id TEXT NOT NULL,
        lo BIGINT NOT NULL, hi BIGINT NOT NULL, carved_to BIGINT NOT NULL, epoch BIGINT NOT NULL, state TEXT NOT NULL,
        at_ms BIGINT NOT NULL)",
    "CREATE UNIQUE INDEX blocks_place ON blocks (namespace, lo)",
    "CREATE INDEX blocks_left ON blocks (namespace, service, lo) WHERE carved_to < hi",
    "CREATE TABLE segments (
        segment_id TEXT PRIMARY KEY, namespace TEXT NOT NULL, grant_id TEXT NOT NULL, block_id TEXT,
        lo BIGINT NOT NULL, hi BIGINT NOT NULL, service TEXT, instance TEXT NOT NULL, incarnation TEXT NOT NULL,
        allocation_id TEXT NOT NULL, want BIGINT NOT NULL, epoch BIGINT NOT NULL, at_ms BIGINT NOT NULL,
        state TEXT NOT NULL, mark_row TEXT NOT NULL)",
    "CREATE UNIQUE INDEX segments_place ON segments (namespace, lo)",
    "CREATE UNIQUE INDEX segments_allocation ON segments (allocation_id)",
    "CREATE TABLE pending (
        namespace TEXT PRIMARY KEY, allocation_id TEXT NOT NULL, want BIGINT NOT NULL, epoch BIGINT NOT NULL,
        made_at_ms BIGINT NOT NULL)",
    "CREATE TABLE confirms (allocation_id TEXT PRIMARY KEY, grant_id TEXT NOT NULL)",
    "CREATE TABLE holders (
        incarnation TEXT PRIMARY KEY, service TEXT NOT NULL, instance TEXT NOT NULL, chain TEXT NOT NULL,
        previous_chain TEXT NOT NULL, seen_at_ms BIGINT NOT NULL, ended BIGINT NOT NULL)",
    "CREATE TABLE in_hand (
        incarnation TEXT NOT NULL, namespace TEXT NOT NULL, ordinals BIGINT NOT NULL, at_ms BIGINT NOT NULL,
        PRIMARY KEY (incarnation, namespace))",
    "CREATE TABLE issued (namespace TEXT PRIMARY KEY, carved BIGINT NOT NULL, burned BIGINT NOT NULL)",
];

/// What services' own processes hold, for their limits.
const HELD_TABLES: &[&str] = &[
    "CREATE TABLE held (
        incarnation TEXT NOT NULL, namespace TEXT NOT NULL, service TEXT NOT NULL, newest BIGINT NOT NULL,
        earlier BIGINT NOT NULL, at_ms BIGINT NOT NULL, PRIMARY KEY (incarnation, namespace))",
    "CREATE INDEX held_service ON held (service, at_ms)",
    "CREATE INDEX holders_service ON holders (service, seen_at_ms)",
];

/// Still to be carved, or given up with its epoch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HoldState {
    /// It may be carved.
    Held,
    /// It belongs to an older epoch: nothing more comes out of it, ever.
    Burned,
}

impl HoldState {
    /// The word used in SQL and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Burned => "burned",
        }
    }

    fn parse(text: &str) -> Result<Self, DbError> {
        match text {
            "held" => Ok(Self::Held),
            "burned" => Ok(Self::Burned),
            _ => Err(DbError::Corrupt(format!("unknown holding state {text}"))),
        }
    }
}

fn parse<T: std::str::FromStr>(row: &Row, i: usize) -> Result<T, DbError> {
    row.text(i)?.parse().map_err(|_| DbError::Corrupt(format!("unreadable value in column {i}")))
}

fn opt_parse<T: std::str::FromStr>(row: &Row, i: usize) -> Result<Option<T>, DbError> {
    let text = row.opt_text(i)?;
    text.map(|t| t.parse().map_err(|_| DbError::Corrupt(format!("unreadable value in column {i}")))).transpose()
}

fn range(row: &Row, i: usize) -> Result<cadastre_core::range::Range, DbError> {
    cadastre_core::range::Range::new(row.uint(i)?, row.uint(i + 1)?).map_err(|e| DbError::Corrupt(e.to_string()))
}
