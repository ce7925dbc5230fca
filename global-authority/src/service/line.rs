//! The number line of a namespace, to scale: who was granted what, at any length of the ledger.
//!
//! A stretch of few grants is shown whole, neighbours of one region and epoch together. A stretch of many is looked at
//! in equal steps: who holds the beginning of each. Both cost a bounded number of look-ups by index.

use cadastre_core::ids::Name;
use cadastre_core::mark::Scope;
use cadastre_core::namespace::NamespaceKind;
use cadastre_core::range::MAX_ORDINAL;
use cadastre_core::roster::Roster;
use cadastre_ledger::error::LedgerError;
use cadastre_ledger::sql as shared;
use cadastre_protocol::admin::{NumberLine, Stretch};
use cadastre_protocol::error::Code;
use cadastre_runtime::db::Tx;

use super::error::problem;
use super::{Authority, ServiceError};
use crate::sql::{self, Grant};

/// Grants that are shown one by one at most.
const MOST_GRANTS: u64 = 2_000;
/// Steps of a stretch that has more.
const STEPS: u64 = 300;

impl Authority {
    /// The line from `lo` to `hi`; without them all that was granted.
    ///
    /// # Errors
    /// `unknown_namespace`, `invalid_request` for an empty stretch, or those of the store.
    pub async fn line(&self, name: &Name, lo: Option<u64>, hi: Option<u64>) -> Result<NumberLine, ServiceError> {
        self.reload().await?;
        let known = self.known();
        let unknown = || problem(Code::UnknownNamespace, format!("there is no namespace {name}"));
        let entry = known.roster.namespace(name).filter(|e| !e.deleted).ok_or_else(unknown)?;
        let capacity = match (entry.kind, &entry.layout) {
            (NamespaceKind::Slot | NamespaceKind::Snowflake, Some(layout)) => layout.units(),
            _ => entry.definition.capacity(),
        };
        let wanted = name.clone();
        let read = self.continuity.db().read("line", move |tx| {
            let name = wanted.clone();
            Box::pin(async move {
                let watermark =
                    shared::scope(tx, &Scope::Namespace(name.clone())).await?.map_or(0, |s| s.view.mark.bound);
                let (from, to) = (lo.unwrap_or(0), hi.unwrap_or(watermark.max(1)).min(MAX_ORDINAL));
                if from >= to {
                    return Ok::<_, LedgerError>((watermark, from, to, None));
                }
                let (complete, grants) = stretch(tx, &name, from, to).await?;
                Ok((watermark, from, to, Some((complete, grants))))
            })
        });
        let (watermark, lo, hi, found) = read.await?;
        let Some((complete, stretches)) = found else {
            return Err(problem(Code::InvalidRequest, "lo must be below hi"));
        };
        let stretches = merge(&known.roster, stretches);
        Ok(NumberLine { namespace: name.clone(), lo, hi, watermark, capacity, complete, stretches })
    }
}

/// Every grant that reaches into `[lo, hi)`, cut to it; or where there are too many, one per step.
async fn stretch(tx: &mut Tx, name: &Name, lo: u64, hi: u64) -> Result<(bool, Vec<(u64, u64, Grant)>), LedgerError> {
    let first = sql::grant_at(tx, name, lo).await?;
    let after = first.as_ref().map_or(lo.checked_sub(1), |g| Some(g.range.lo()));
    let rest = sql::grants_page(tx, name, None, after, MOST_GRANTS).await?;
    let full = u64::try_from(rest.len()).is_ok_and(|n| n == MOST_GRANTS);
    if !full || rest.last().is_some_and(|g| g.range.lo() >= hi) {
        let all = first.into_iter().chain(rest).filter(|g| g.range.lo() < hi);
        return Ok((true, all.map(|g| (g.range.lo().max(lo), g.range.hi().min(hi), g)).collect()));
    }
    let step = ((hi - lo) / STEPS).max(1);
    let mut found = Vec::new();
    let mut at = lo;
    while at < hi {
        let end = at.saturating_add(step).min(hi);
        if let Some(grant) = sql::grant_at(tx, name, at).await? {
            found.push((at, end, grant));
        }
        at = end;
    }
    Ok((false, found))
}

/// Neighbours of one region and epoch together.
fn merge(roster: &Roster, parts: Vec<(u64, u64, Grant)>) -> Vec<Stretch> {
    let live = |g: &Grant| roster.region(&g.region).is_some_and(|r| r.epoch == g.epoch && r.state.may_issue());
    let mut merged: Vec<Stretch> = Vec::new();
    for (lo, hi, grant) in parts {
        match merged.last_mut() {
            Some(last) if last.hi == lo && last.region == grant.region && last.epoch == grant.epoch => {
                last.hi = hi;
                if last.grant_id != Some(grant.grant_id) {
                    last.grant_id = None;
                }
            }
            Some(_) | None => merged.push(Stretch {
                lo,
                hi,
                live: live(&grant),
                region: grant.region,
                epoch: grant.epoch,
                grant_id: Some(grant.grant_id),
            }),
        }
    }
    merged
}
