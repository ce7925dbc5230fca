//! Who did what: the audit, read back. It is written with the change that it tells of.

use cadastre_runtime::db::{DbError, Migration, Row, Tx, Value};

/// Newest first, by page, at any length.
pub(super) const AUDIT_PLACE: Migration = (4, "audit_place", &["CREATE INDEX audit_place ON audit (at_ms, id)"]);

/// One entry.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AuditRow {
    /// Names it.
    pub id: String,
    /// When, milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Who.
    pub who: String,
    /// What.
    pub what: String,
    /// To what, and why.
    pub detail: String,
}

fn entry(row: &Row) -> Result<AuditRow, DbError> {
    Ok(AuditRow {
        id: row.text(0)?.to_owned(),
        at_ms: row.uint(1)?,
        who: row.text(2)?.to_owned(),
        what: row.text(3)?.to_owned(),
        detail: row.text(4)?.to_owned(),
    })
}

/// Entries before a place, newest first.
///
/// # Errors
/// Those of the store.
pub async fn audit_before(tx: &mut Tx, before: (u64, &str), limit: u64) -> Result<Vec<AuditRow>, DbError> {
    let rows = tx
        .query(
            "SELECT id, at_ms, who, what, detail FROM audit WHERE (at_ms, id) < ($1, $2)
             ORDER BY at_ms DESC, id DESC LIMIT $3",
            &[Value::int(before.0)?, before.1.into(), Value::int(limit)?],
        )
        .await?;
    rows.iter().map(entry).collect()
}
