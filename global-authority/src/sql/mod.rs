//! The authority's own tables, and all SQL over them. The shared ones are the ledger crate's.
//!
//! A namespace's scope row is its hot row; `holdings` has one row per (namespace, region) and is what
//! fences an epoch, so that two namespaces share no row and two regions never wait for one another.

mod audit;
mod grants;
mod holdings;
mod knowers;
mod operations;
mod remembered;
mod seals;
mod sessions;
mod testimony;

use cadastre_ledger::sql::{SEAL_COLUMN, SERVER_COLUMN, SHARED_TABLES};
use cadastre_runtime::db::{DbError, Migration, Row};

pub use audit::*;
pub use grants::*;
pub use holdings::*;
pub use knowers::*;
pub use operations::*;
pub use remembered::*;
pub use seals::*;
pub use sessions::*;
pub use testimony::*;

/// The schema, in order.
pub const MIGRATIONS: &[Migration] = &[
    (1, "shared", SHARED_TABLES),
    (2, "authority", AUTHORITY_TABLES),
    (3, "remembered", remembered::REMEMBERED_TABLES),
    audit::AUDIT_PLACE,
    (5, "operations", operations::OPERATION_TABLES),
    (6, "server", SERVER_COLUMN),
    knowers::KNOWERS,
    (8, "seal", SEAL_COLUMN),
    seals::SEALS,
];

const AUTHORITY_TABLES: &[&str] = &[
    "CREATE TABLE holdings (
        namespace TEXT NOT NULL, region TEXT NOT NULL, region_id BIGINT NOT NULL, epoch BIGINT NOT NULL,
        granted BIGINT NOT NULL, held_left BIGINT NOT NULL, in_instances BIGINT NOT NULL, carved BIGINT NOT NULL,
        burned BIGINT NOT NULL, rate_milli BIGINT NOT NULL, peak_milli BIGINT NOT NULL, heard_at_ms BIGINT NOT NULL,
        PRIMARY KEY (namespace, region))",
    "CREATE TABLE grants (
        grant_id TEXT PRIMARY KEY, namespace TEXT NOT NULL, allocation_id TEXT NOT NULL, region TEXT NOT NULL,
        region_id BIGINT NOT NULL, epoch BIGINT NOT NULL, store_id TEXT NOT NULL, want BIGINT NOT NULL,
        lo BIGINT NOT NULL, hi BIGINT NOT NULL, generation BIGINT NOT NULL, mark_row TEXT NOT NULL,
        confirmed_at_ms BIGINT, at_ms BIGINT NOT NULL)",
    "CREATE UNIQUE INDEX grants_place ON grants (namespace, lo)",
    "CREATE UNIQUE INDEX grants_allocation ON grants (allocation_id, generation)",
    "CREATE INDEX grants_region ON grants (namespace, region, lo)",
    "CREATE TABLE sessions (
        region TEXT NOT NULL, store_id TEXT NOT NULL, session BIGINT NOT NULL, incarnation TEXT NOT NULL,
        number BIGINT NOT NULL, message TEXT NOT NULL, chain TEXT NOT NULL, previous_chain TEXT NOT NULL, url TEXT,
        version TEXT NOT NULL, clock_offset_ms BIGINT NOT NULL, heard_at_ms BIGINT NOT NULL, generation BIGINT NOT NULL,
        ended BIGINT NOT NULL,
        PRIMARY KEY (region, store_id, session))",
    "CREATE TABLE kept (
        region TEXT PRIMARY KEY, store_id TEXT NOT NULL, generation BIGINT NOT NULL, seq BIGINT NOT NULL,
        row_id TEXT NOT NULL, bound BIGINT NOT NULL, roster_generation BIGINT NOT NULL, roster_seq BIGINT NOT NULL,
        heard_at_ms BIGINT NOT NULL)",
    "CREATE TABLE testimonies (
        region TEXT PRIMARY KEY, generation BIGINT NOT NULL, epoch BIGINT NOT NULL, store_id TEXT NOT NULL,
        bounds TEXT NOT NULL, at_ms BIGINT NOT NULL)",
    "CREATE TABLE stated (
        region TEXT PRIMARY KEY, generation BIGINT NOT NULL, bounds TEXT NOT NULL, who TEXT NOT NULL,
        reason TEXT NOT NULL, at_ms BIGINT NOT NULL)",
    "CREATE TABLE overruled (
        generation BIGINT PRIMARY KEY, who TEXT NOT NULL, reason TEXT NOT NULL, at_ms BIGINT NOT NULL)",
];

fn parse<T: std::str::FromStr>(row: &Row, i: usize) -> Result<T, DbError> {
    row.text(i)?.parse().map_err(|_| DbError::Corrupt(format!("unreadable value in column {i}")))
}
