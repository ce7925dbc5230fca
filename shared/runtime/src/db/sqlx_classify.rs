//! From the drivers' errors to ours.
//!
//! Purpose: one table of codes per engine. Invariants: branches on codes and kinds, never on text;
//! at COMMIT only codes that prove a rollback are definite, everything else is
//! [`DbError::Indeterminate`]; a failed fsync of an SQLite file stops the process. Absent on
//! purpose: retries.

use sqlx::error::ErrorKind;

use super::engine::EngineKind;
use super::error::DbError;

/// SQLITE_IOERR_FSYNC and SQLITE_IOERR_DIR_FSYNC.
const FAILED_FSYNC: [i32; 2] = [1034, 1290];

/// An error before COMMIT was sent: nothing was written.
pub(super) fn classify(kind: EngineKind, error: &sqlx::Error) -> DbError {
    match error {
        sqlx::Error::Database(inner) => {
            if inner.kind() == ErrorKind::UniqueViolation {
                return DbError::Unique;
            }
            let code = inner.code().unwrap_or_default();
            match kind {
                EngineKind::Sqlite => sqlite(code.parse().unwrap_or_default(), inner.message()),
                EngineKind::Postgres => postgres(&code, inner.message()),
            }
        }
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => DbError::Unavailable(error.to_string()),
        sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. } | sqlx::Error::AnyDriverError(_) => {
            DbError::Corrupt(error.to_string())
        }
        _ => DbError::Other(error.to_string()),
    }
}

/// An error of COMMIT itself.
pub(super) fn classify_commit(kind: EngineKind, error: &sqlx::Error) -> DbError {
    let ours = classify(kind, error);
    let definite = match (kind, error) {
        // The transaction is still open, or was rolled back: the log holds no commit frame.
        (EngineKind::Sqlite, sqlx::Error::Database(_)) => {
            matches!(ours, DbError::Conflict | DbError::Unique | DbError::Full | DbError::ReadOnly)
        }
        // Class 23: a deferred constraint. Class 40 without 40003 (completion unknown): rolled back.
        (EngineKind::Postgres, sqlx::Error::Database(inner)) => {
            let code = inner.code().unwrap_or_default();
            code.starts_with("23") || matches!(code.as_ref(), "40000" | "40001" | "40002" | "40P01")
        }
        _ => false,
    };
    if definite { ours } else { DbError::Indeterminate(error.to_string()) }
}

fn sqlite(code: i32, message: &str) -> DbError {
    if FAILED_FSYNC.contains(&code) {
        stop_after_failed_fsync(message);
    }
    match code & 0xff {
        5 | 6 => DbError::Conflict,
        8 => DbError::ReadOnly,
        13 => DbError::Full,
        11 | 26 => DbError::Corrupt(format!("(code {code}) {message}")),
        9 | 10 | 14 | 15 | 22 => DbError::Unavailable(format!("(code {code}) {message}")),
        _ => DbError::Other(format!("(code {code}) {message}")),
    }
}

fn postgres(code: &str, message: &str) -> DbError {
    let told = || format!("({code}) {message}");
    match code {
        "40001" | "40P01" | "55P03" => DbError::Conflict,
        // CREATE TABLE IF NOT EXISTS that lost a race.
        "42P07" => DbError::Unique,
        "53100" => DbError::Full,
        "25006" => DbError::ReadOnly,
        "57014" | "58030" => DbError::Unavailable(told()),
        "XX001" | "XX002" => DbError::Corrupt(told()),
        _ if ["08", "28", "3D", "53", "57"].iter().any(|class| code.starts_with(class)) => DbError::Unavailable(told()),
        _ => DbError::Other(told()),
    }
}

/// Stops the process at once. After a failed fsync the kernel may have dropped the pages and report
/// success the next time, so a retry would acknowledge what is not on the disk. A fresh process reads
/// the log back as the kernel shows it, and copies and syncs it before it builds on it (`settle_log`).
fn stop_after_failed_fsync(message: &str) -> ! {
    eprintln!(
        "cadastre: the disk refused to make a write durable ({message}). Stopping at once: carrying \
         on could acknowledge what is not on the disk. Check the disk, then start again."
    );
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_not_texts_decide() {
        assert_eq!(sqlite(5, "x"), DbError::Conflict);
        assert_eq!(sqlite(517, "busy snapshot"), DbError::Conflict);
        assert_eq!(sqlite(13, "x"), DbError::Full);
        assert_eq!(sqlite(1032, "read-only rollback"), DbError::ReadOnly);
        assert!(matches!(sqlite(266, "read"), DbError::Unavailable(_)));
        assert_eq!(postgres("40001", ""), DbError::Conflict);
        assert_eq!(postgres("25006", ""), DbError::ReadOnly);
        assert!(matches!(postgres("57P01", ""), DbError::Unavailable(_)));
        assert!(matches!(postgres("42P01", ""), DbError::Other(_)));
    }

    #[test]
    fn a_connection_lost_at_commit_is_indeterminate() {
        let lost = || sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into());
        assert!(matches!(classify(EngineKind::Postgres, &lost()), DbError::Unavailable(_)));
        for kind in [EngineKind::Postgres, EngineKind::Sqlite] {
            assert!(matches!(classify_commit(kind, &lost()), DbError::Indeterminate(_)));
        }
    }
}
