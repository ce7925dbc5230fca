//! Who did what, read back by page.

use cadastre_ledger::error::LedgerError;
use cadastre_protocol::admin::{AuditEntry, AuditPage};
use cadastre_protocol::error::Code;

use super::error::problem;
use super::{Authority, ServiceError};
use crate::sql::{self, AuditRow};

/// The most entries of a page.
pub const MOST: u64 = 500;

impl Authority {
    /// Entries before `before` (a `next` of an earlier page), newest first.
    ///
    /// # Errors
    /// `invalid_request` where `before` is no place, or those of the store.
    pub async fn audit_page(&self, before: Option<&str>, limit: u64) -> Result<AuditPage, ServiceError> {
        let (at_ms, id) = match before {
            None => (i64::MAX.unsigned_abs(), String::new()),
            Some(text) => place(text)
                .ok_or_else(|| problem(Code::InvalidRequest, "before: pass the `next` of an earlier page"))?,
        };
        let limit = limit.clamp(1, MOST);
        let read = self.continuity.db().read("audit_page", move |tx| {
            let id = id.clone();
            Box::pin(async move { Ok::<_, LedgerError>(sql::audit_before(tx, (at_ms, &id), limit).await?) })
        });
        let rows = read.await?;
        let full = u64::try_from(rows.len()).is_ok_and(|n| n == limit);
        let next = rows.last().filter(|_| full).map(|last| format!("{}:{}", last.at_ms, last.id));
        Ok(AuditPage { entries: rows.into_iter().map(view).collect(), next })
    }
}

/// `TIME:ID`, as [`AuditPage::next`] is written.
fn place(text: &str) -> Option<(u64, String)> {
    let (at, id) = text.split_once(':')?;
    let at: u64 = at.parse().ok().filter(|at| i64::try_from(*at).is_ok())?;
    (!id.is_empty() && id.len() <= 64).then(|| (at, id.to_owned()))
}

fn view(row: AuditRow) -> AuditEntry {
    AuditEntry { id: row.id, at: row.at_ms, who: row.who, what: row.what, detail: row.detail }
}
