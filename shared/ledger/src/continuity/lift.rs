//! Work on marks inside a caller's transaction: which are contained, and lifting a scope of a quarantine.

use cadastre_core::continuity::{self, ScopeState, ScopeView};
use cadastre_core::ids::RowId;
use cadastre_core::mark::{Generation, Mark, Scope, ScopeMark};
use cadastre_runtime::db::{DbError, Tx};

use crate::sql::{self, ScopeRow};

pub(super) async fn contained(tx: &mut Tx, rows: &[ScopeRow], marks: &[(Scope, Mark)]) -> Result<Vec<bool>, DbError> {
    let mut found = Vec::with_capacity(marks.len());
    for (scope, mark) in marks {
        let has_row = sql::has_row(tx, mark.row).await?;
        let view = rows.iter().find(|r| r.scope == *scope).map(|r| r.view);
        found.push(view.is_some_and(|view| continuity::contains(&view, mark, has_row)));
    }
    Ok(found)
}

/// Whether each mark is contained, in the caller's transaction. A scope that the store does not have
/// is not contained.
///
/// # Errors
/// Those of the store.
pub async fn contains_marks(tx: &mut Tx, marks: &[ScopeMark]) -> Result<Vec<bool>, DbError> {
    let mut found = Vec::with_capacity(marks.len());
    for ScopeMark { scope, mark } in marks {
        let has_row = sql::has_row(tx, mark.row).await?;
        let row = if has_row { None } else { sql::scope(tx, scope).await? };
        found.push(has_row || row.is_some_and(|row| continuity::contains(&row.view, mark, false)));
    }
    Ok(found)
}

/// Lifts one scope of a quarantine in the caller's transaction: open in the quarantine's own
/// generation, past `bound` and `seq`, with that as its base.
///
/// # Errors
/// `Conflict` where the scope moved since it was read.
pub async fn lift(
    tx: &mut Tx,
    was: &ScopeRow,
    generation: Generation,
    seq: u64,
    bound: u64,
    row: RowId,
    now_ms: u64,
) -> Result<ScopeMark, DbError> {
    let seq = was.view.mark.seq.max(seq) + 1;
    let bound = if was.scope == Scope::Roster { seq } else { was.view.mark.bound.max(bound) };
    let mark = Mark { generation, seq, row, bound };
    let view = ScopeView { state: ScopeState::Open, generation, mark, base: bound };
    sql::reopen(tx, was, &view, "", "lifted", now_ms).await?;
    Ok(ScopeMark { scope: was.scope.clone(), mark })
}
