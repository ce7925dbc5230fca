//! Opening connections, and refusing weak ones.
//!
//! Purpose: every connection of a pool gets the settings that durability rests on, and each is read
//! back. Invariants: SQLite runs WAL with synchronous=FULL (measured: nothing reissued in 360 power
//! cuts, unlike every other combination); a PostgreSQL server with fsync or full_page_writes off is
//! refused and there is no way around that. Absent on purpose: pool sizes and timeouts from URLs.

use sqlx::{AnyConnection, Executor, Row as _};

use super::engine::EngineKind;
use super::error::DbError;
use super::sqlx_classify::classify;

/// SQLite's `PRAGMA synchronous` answers.
const SYNCHRONOUS_FULL: i64 = 2;

/// What one connection is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub kind: EngineKind,
    pub read_only: bool,
    pub weak_synchronous: Option<&'static str>,
}

/// Prepares a fresh connection; an error refuses it.
pub(super) async fn prepare(conn: &mut AnyConnection, setup: Setup) -> Result<(), sqlx::Error> {
    match setup.kind {
        EngineKind::Sqlite => prepare_sqlite(conn, setup).await,
        EngineKind::Postgres => prepare_postgres(conn).await,
    }
}

fn refuse(text: impl Into<String>) -> sqlx::Error {
    sqlx::Error::Configuration(text.into().into())
}

async fn prepare_sqlite(conn: &mut AnyConnection, setup: Setup) -> Result<(), sqlx::Error> {
    conn.execute("PRAGMA busy_timeout=5000").await?;
    conn.execute("PRAGMA journal_mode=WAL").await?;
    conn.execute("PRAGMA synchronous=FULL").await?;
    conn.execute("PRAGMA foreign_keys=ON").await?;
    // The automatic checkpoint swallows errors, a failed fsync included; the engine runs its own.
    conn.execute("PRAGMA wal_autocheckpoint=0").await?;
    let mode: String = pragma_text(conn, "PRAGMA journal_mode").await?;
    if mode != "wal" {
        return Err(refuse(format!("SQLite journal_mode is {mode}, must be wal: use a file on a local disk")));
    }
    if pragma_int(conn, "PRAGMA synchronous").await? != SYNCHRONOUS_FULL {
        return Err(refuse("SQLite does not accept synchronous=FULL"));
    }
    if pragma_int(conn, "PRAGMA foreign_keys").await? != 1 {
        return Err(refuse("SQLite does not accept foreign_keys=ON"));
    }
    if pragma_int(conn, "PRAGMA wal_autocheckpoint").await? != 0 {
        return Err(refuse("SQLite does not accept wal_autocheckpoint=0"));
    }
    if let Some(level) = setup.weak_synchronous {
        conn.execute(level).await?;
    }
    if setup.read_only {
        conn.execute("PRAGMA query_only=ON").await?;
    }
    Ok(())
}

/// Copies an SQLite log into its file and syncs that, before a process builds on it. After a failed fsync the
/// kernel shows what was never written, as long as it remembers it: a commit behind such a gap would be lost
/// with the next power cut. What was copied and synced is on the disk.
pub(super) async fn settle_log(conn: &mut AnyConnection) -> Result<(), sqlx::Error> {
    let row = conn.fetch_one("PRAGMA wal_checkpoint(PASSIVE)").await?;
    let (log, copied): (i64, i64) = (row.try_get(1)?, row.try_get(2)?);
    if copied < log {
        return Err(refuse(
            "the SQLite log cannot be copied into its file: another program has the store open, close it",
        ));
    }
    Ok(())
}

async fn pragma_int(conn: &mut AnyConnection, sql: &'static str) -> Result<i64, sqlx::Error> {
    conn.fetch_one(sql).await?.try_get(0)
}

async fn pragma_text(conn: &mut AnyConnection, sql: &'static str) -> Result<String, sqlx::Error> {
    conn.fetch_one(sql).await?.try_get(0)
}

async fn prepare_postgres(conn: &mut AnyConnection) -> Result<(), sqlx::Error> {
    conn.execute("SET synchronous_commit = on").await?;
    // Engines that only speak PostgreSQL's protocol may not know these two; they bound waiting, and
    // the engine bounds it a second time on its own side.
    for sql in
        ["SET idle_in_transaction_session_timeout = '15s'", "SET statement_timeout = '10s'", "SET lock_timeout = '5s'"]
    {
        match conn.execute(sql).await {
            Ok(_) | Err(sqlx::Error::Database(_)) => {}
            Err(error) => return Err(error),
        }
    }
    let commit = pragma_text(conn, "SELECT current_setting('synchronous_commit')").await?;
    if !matches!(commit.as_str(), "on" | "remote_apply") {
        return Err(refuse(format!("PostgreSQL: synchronous_commit is {commit}, must be on")));
    }
    Ok(())
}

/// Refuses a server whose settings can lose what it acknowledged.
pub(super) async fn refuse_weak_postgres(conn: &mut AnyConnection) -> Result<(), DbError> {
    for (name, sql) in [
        ("fsync", "SELECT COALESCE(current_setting('fsync', true), '')"),
        ("full_page_writes", "SELECT COALESCE(current_setting('full_page_writes', true), '')"),
    ] {
        let value = pragma_text(conn, sql).await.map_err(|error| classify(EngineKind::Postgres, &error))?;
        if value == "off" {
            return Err(DbError::Other(format!(
                "PostgreSQL runs with {name} = off: a crash could lose what it acknowledged and the \
                 same IDs would be given out again. Set {name} = on on the server; there is no way \
                 to run without it"
            )));
        }
    }
    Ok(())
}

/// Which engine a URL names, and the URL as the driver wants it.
pub(super) fn parse_url(url: &str) -> Result<(EngineKind, String), DbError> {
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        return Ok((EngineKind::Postgres, url.to_owned()));
    }
    if !url.starts_with("sqlite:") {
        return Err(DbError::Other("the database URL must begin with sqlite:// or postgres://".into()));
    }
    if url.contains(":memory:") || url.contains("mode=memory") {
        return Err(DbError::Other("an SQLite store must be a file: memory does not survive".into()));
    }
    if url.contains("immutable=") || url.contains("mode=ro") {
        return Err(DbError::Other("an SQLite store must be writable".into()));
    }
    let url = if url.contains("mode=") {
        url.to_owned()
    } else {
        format!("{url}{}mode=rwc", if url.contains('?') { '&' } else { '?' })
    };
    Ok((EngineKind::Sqlite, url))
}

/// The URL's password, replaced wherever a message repeats it.
pub(super) fn redact(url: &str, message: &str) -> String {
    let password = url
        .split_once("://")
        .and_then(|(_, rest)| rest.rsplit_once('@'))
        .and_then(|(login, _)| login.split_once(':'))
        .map(|(_, password)| password)
        .filter(|password| !password.is_empty());
    let text = message.replace(url, "the database URL");
    password.map_or(text.clone(), |password| text.replace(password, "***"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_that_cannot_hold_a_store_are_refused() {
        assert!(parse_url("mysql://x").is_err());
        assert!(parse_url("sqlite::memory:").is_err());
        assert!(parse_url("sqlite:///x?mode=ro").is_err());
        assert_eq!(parse_url("sqlite:///x").unwrap().1, "sqlite:///x?mode=rwc");
        assert_eq!(parse_url("postgres://h/d").unwrap().0, EngineKind::Postgres);
    }

    #[test]
    fn no_message_repeats_the_password() {
        let url = "postgres://me:hunter2@host/db";
        let text = redact(url, "cannot open postgres://me:hunter2@host/db with hunter2");
        assert!(!text.contains("hunter2"), "{text}");
    }
}
