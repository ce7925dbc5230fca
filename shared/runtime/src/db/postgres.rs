//! What a PostgreSQL server says about itself: which one it is, and how far its standbys are.
//!
//! Purpose: the statements for that, and reading their rows. Invariants: a unit learns on which server it runs with its
//! first round trip, on its own connection, so that no answer about one server is taken for another's; a position is
//! read after the unit's snapshot, so that it lies above everything that the unit can see; a server in recovery begins
//! no writing unit. What follows from it is decided in `cadastre_core::durability` and by whoever opened the store.
//! Absent on purpose: reading any of it from a second connection and believing it for this one.

use std::time::Duration;

use cadastre_core::durability::{Policy, Proof, Settings, Standby, proof, weakness};
use cadastre_core::store_findings::{self, ServerFacts};

use super::engine::{Engine, Identity, Mode, Position};
use super::error::DbError;
use super::sqlx_engine::SqlxEngine;
use super::value::Row;
use crate::clock::Stopwatch;

/// How long an answer waits for its proof. Below the time that an agent waits for its answer.
const PROOF_SECONDS: f64 = 3.0;
/// Pauses between two looks at the standbys, in milliseconds: from, to.
const PROOF_PAUSE_MS: (u64, u64) = (2, 64);

macro_rules! begin_read {
    () => {
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    };
}

macro_rules! begin_write {
    () => {
        "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = on"
    };
}

macro_rules! who {
    () => {
        "SELECT (SELECT system_identifier::text FROM pg_control_system()), \
         CASE WHEN pg_is_in_recovery() THEN '' \
              ELSE substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) END, \
         EXTRACT(EPOCH FROM pg_postmaster_start_time())::text, \
         CASE WHEN pg_is_in_recovery() THEN 1 ELSE 0 END::bigint"
    };
}

macro_rules! settings {
    () => {
        "current_setting('synchronous_standby_names'), current_setting('fsync'), current_setting('full_page_writes')"
    };
}

/// Who it is, alone.
pub(super) const WHO: &str = who!();

/// The first round trip of a unit.
pub(super) fn begin_sql(mode: Mode, watched: bool, policy: Policy) -> &'static str {
    match (mode, watched, policy.standbys) {
        (Mode::Read, false, _) => begin_read!(),
        (Mode::Write, false, _) => begin_write!(),
        (Mode::Read, true, _) => concat!(begin_read!(), "; ", who!()),
        (Mode::Write, true, 0) => concat!(begin_write!(), "; ", who!()),
        (Mode::Write, true, _) => concat!(
            begin_write!(),
            "; ",
            who!(),
            ", ",
            settings!(),
            ", (SELECT COUNT(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state IN ('sync', 'quorum'))"
        ),
    }
}

/// The log's position, and the synchronous standbys, one a row.
pub(super) const STANDBYS: &str = concat!(
    "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint, ",
    settings!(),
    ", COALESCE(r.application_name, ''), (r.flush_lsn - '0/0'::pg_lsn)::bigint FROM (SELECT 1) AS one \
     LEFT JOIN pg_stat_replication AS r ON r.state = 'streaming' AND r.sync_state IN ('sync', 'quorum')"
);

/// For metrics: how many are synchronous, and by how much the last of all standbys lags.
const LAG: &str = "SELECT COUNT(*) FILTER (WHERE sync_state IN ('sync', 'quorum')), \
     COALESCE(MAX(pg_current_wal_insert_lsn() - flush_lsn), 0)::bigint \
     FROM pg_stat_replication WHERE state = 'streaming'";

/// What it is set to, and how many speak with it. Of `synchronous_commit` what other sessions get: ours set it.
const FACTS: &str = concat!(
    "SELECT ",
    settings!(),
    ", current_setting('wal_level'), \
     (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'), \
     current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint, \
     (SELECT COUNT(*) FROM pg_stat_activity WHERE backend_type = 'client backend')"
);

/// Whether the role may see the standbys' positions, and the settings.
const MAY_SEE: &str = "SELECT CASE WHEN pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') THEN 1 ELSE 0 END::bigint, \
     current_setting('synchronous_standby_names'), current_setting('fsync'), current_setting('full_page_writes')";

/// Reads the row of `who`.
pub(super) fn identity(row: &Row) -> Result<Identity, DbError> {
    Ok(Identity {
        system: row.text(0)?.to_owned(),
        timeline: row.text(1)?.to_owned(),
        started: row.text(2)?.to_owned(),
        in_recovery: row.bool(3)?,
    })
}

fn settings(row: &Row, from: usize) -> Result<Settings, DbError> {
    Ok(Settings {
        standby_names: row.text(from)?.to_owned(),
        fsync: row.text(from + 1)?.to_owned(),
        full_page_writes: row.text(from + 2)?.to_owned(),
    })
}

fn server(row: &Row, attached: u32) -> Result<ServerFacts, DbError> {
    Ok(ServerFacts {
        settings: settings(row, 0)?,
        wal_level: row.text(3)?.to_owned(),
        synchronous_commit: row.text(4)?.to_owned(),
        connections: row.u32(5)?,
        connected: row.u32(6)?,
        attached,
    })
}

/// Whether a writing unit may begin, by the row of its first round trip. A commit that nobody can confirm would hang.
pub(super) fn may_write(row: &Row, identity: &Identity, policy: Policy) -> Result<(), DbError> {
    if identity.in_recovery {
        return Err(DbError::ReadOnly);
    }
    if policy.standbys == 0 {
        return Ok(());
    }
    if let Some(why) = weakness(policy, &settings(row, 4)?) {
        return Err(DbError::NotDurable(why));
    }
    let attached = row.u32(7)?;
    if attached < policy.standbys {
        return Err(DbError::NotDurable(format!(
            "{attached} of {} synchronous standbys are attached to the store's server",
            policy.standbys
        )));
    }
    Ok(())
}

/// The log's position, and what the standbys have of `wanted`, or of that position.
pub(super) fn standing(rows: &[Row], policy: Policy, wanted: Option<u64>) -> Result<(u64, Proof), DbError> {
    let first = rows.first().ok_or_else(|| DbError::Corrupt("no row about the standbys".into()))?;
    if let Some(why) = weakness(policy, &settings(first, 1)?) {
        return Err(DbError::NotDurable(why));
    }
    let at = first.uint(0)?;
    let mut standbys = Vec::new();
    for row in rows {
        let flushed = row.opt_int(5)?.and_then(|n| u64::try_from(n).ok());
        standbys.push(Standby { name: row.text(4)?.to_owned(), flushed });
    }
    Ok((at, proof(policy, wanted.unwrap_or(at), &standbys)))
}

impl SqlxEngine {
    /// Refuses a server that does not say who it is, or is set to prove nothing.
    pub(super) async fn refuse_unwatchable(&self) -> Result<(), DbError> {
        let (watched, policy) = (self.watched(), self.options().policy);
        if !watched {
            return Ok(());
        }
        let mut tx = self.begin(Mode::Read).await.map_err(|error| match error {
            DbError::Other(text) => DbError::Other(format!(
                "the store's server does not say who it is ({text}). On an engine without PostgreSQL's system views set \
                 CADASTRE_IDENTITY_WATCH=off, which needs a required witness"
            )),
            other => other,
        })?;
        if policy.standbys == 0 {
            tx.rollback().await;
            return Ok(());
        }
        let rows = tx.query(MAY_SEE, &[]).await;
        tx.rollback().await;
        let rows = rows?;
        let row = rows.first().ok_or_else(|| DbError::Corrupt("no row about settings".into()))?;
        if let Some(why) = weakness(policy, &settings(row, 1)?) {
            return Err(DbError::Other(format!("require_sync: {why}")));
        }
        if !row.bool(0)? {
            return Err(DbError::Other(
                "require_sync: this database user may not see the standbys' positions: GRANT pg_read_all_stats to it"
                    .into(),
            ));
        }
        Ok(())
    }

    async fn look_at_standbys(&self, position: &Position) -> Result<Proof, DbError> {
        let mut tx = self.begin(Mode::Read).await?;
        if tx.server() != position.server {
            tx.rollback().await;
            return Err(DbError::NotDurable("the store's server is another one by now".into()));
        }
        let rows = tx.query(STANDBYS, &[]).await;
        tx.rollback().await;
        Ok(standing(&rows?, self.options().policy, Some(position.at))?.1)
    }

    pub(super) async fn wait_for_standbys(&self, position: &Position) -> Result<(), DbError> {
        let watch = Stopwatch::start();
        let mut pause = PROOF_PAUSE_MS.0;
        loop {
            let found = self.look_at_standbys(position).await;
            let waited = watch.seconds();
            let failed = match found {
                Ok(Proof::Proven) => None,
                Err(DbError::NotDurable(why)) => Some(why),
                Ok(Proof::Missing(missing)) if waited >= PROOF_SECONDS => Some(format!(
                    "{missing} of {} synchronous standbys did not confirm it within {PROOF_SECONDS} s",
                    self.options().policy.standbys
                )),
                Err(error) if waited >= PROOF_SECONDS => Some(error.to_string()),
                Ok(Proof::Missing(_)) | Err(_) => {
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                    pause = (pause * 2).min(PROOF_PAUSE_MS.1);
                    continue;
                }
            };
            let outcome = if failed.is_none() { "proven" } else { "not_durable" };
            metrics::histogram!("cadastre_store_proof_seconds", "outcome" => outcome).record(waited);
            return failed.map_or(Ok(()), |why| Err(DbError::NotDurable(why)));
        }
    }

    /// The gauges of a server and its standbys. Where there is nothing to see (no right, no views), none.
    pub(super) async fn show_standbys(&self) -> Result<(), DbError> {
        let mut tx = self.begin(Mode::Read).await?;
        let recovering = tx.server().ends_with(" in recovery");
        let rows = if recovering { Ok(Vec::new()) } else { tx.query(LAG, &[]).await };
        let facts = if recovering || rows.is_err() { Ok(Vec::new()) } else { tx.query(FACTS, &[]).await };
        tx.rollback().await;
        metrics::gauge!("cadastre_store_in_recovery").set(f64::from(u8::from(recovering)));
        if let Some(row) = rows?.first() {
            let attached = row.u32(0)?;
            if let Some(facts) = facts?.first() {
                let options = self.options();
                self.found(store_findings::of_server(
                    options.policy,
                    options.max_connections,
                    &server(facts, attached)?,
                ));
            }
            metrics::gauge!("cadastre_store_sync_standbys").set(f64::from(attached));
            #[allow(clippy::cast_precision_loss)] // shown to people
            metrics::gauge!("cadastre_store_standby_lag_bytes").set(row.uint(1)? as f64);
        }
        if recovering { Err(DbError::ReadOnly) } else { Ok(()) }
    }
}
