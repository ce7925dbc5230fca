//! `audit/verify`: the invariants over the whole ledger, with the predicates that the tests use.

use cadastre_core::ids::Name;
use cadastre_core::invariant::{self, Finding, GrantRow};
use cadastre_core::mark::Scope;
use cadastre_ledger::error::LedgerError;
use cadastre_ledger::sql as shared;
use cadastre_protocol::admin::{Checked, Verdict};

use super::{Authority, ServiceError};
use crate::sql;

/// Rows read at once: the ledger may be long, and the store has other work.
const PAGE: u64 = 10_000;

impl Authority {
    /// Checks the authority's own ledger. The caller adds what the regions' ledgers say.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn verify(&self) -> Result<Verdict, ServiceError> {
        self.reload().await?;
        let known = self.known();
        let mut findings = Vec::new();
        let mut checked = Checked::default();
        let names: Vec<Name> = known.roster.namespaces().map(|(name, _)| name.clone()).collect();
        for name in names {
            // The watermark is read after the rows: one that grows meanwhile is never reported.
            let grants = self.all_grants(&name).await?;
            let rows = if name.is_of_slot() { &mut checked.windows } else { &mut checked.grants };
            *rows += u64::try_from(grants.len()).unwrap_or(0);
            let Some((watermark, generation, granted)) = self.totals(&name).await? else {
                findings.push(Finding { invariant: "A4".into(), detail: format!("{name} has no watermark") });
                continue;
            };
            findings.extend(invariant::a1_grants_disjoint(name.as_str(), watermark, &grants));
            let epoch_of = |id| known.roster.regions().find(|(_, r)| r.region_id == id).map(|(_, r)| r.epoch);
            findings.extend(invariant::a3_epochs_known(name.as_str(), generation, epoch_of, &grants));
            if granted > watermark {
                let detail = format!("{name}: {granted} ordinals were granted below the watermark {watermark}");
                findings.push(Finding { invariant: "A1".into(), detail });
            }
        }
        Ok(Verdict { ok: findings.is_empty(), checked, findings, unreachable: vec![] })
    }

    async fn all_grants(&self, namespace: &Name) -> Result<Vec<GrantRow>, ServiceError> {
        let mut all = Vec::new();
        let mut after = None;
        loop {
            let name = namespace.clone();
            let page = self
                .continuity
                .db()
                .read("verify", move |tx| {
                    let name = name.clone();
                    Box::pin(async move { Ok::<_, LedgerError>(sql::grants_page(tx, &name, None, after, PAGE).await?) })
                })
                .await?;
            let done = u64::try_from(page.len()).unwrap_or(0) < PAGE;
            after = page.last().map(|g| g.range.lo());
            all.extend(page.iter().map(|g| GrantRow {
                id: g.grant_id.0,
                region: g.region_id,
                epoch: g.epoch,
                generation: g.generation,
                range: g.range,
            }));
            if done {
                return Ok(all);
            }
        }
    }

    /// Watermark, generation, and the sum of what was granted.
    async fn totals(
        &self,
        namespace: &Name,
    ) -> Result<Option<(u64, cadastre_core::mark::Generation, u64)>, ServiceError> {
        let name = namespace.clone();
        let found = self
            .continuity
            .db()
            .read("verify_totals", move |tx| {
                let name = name.clone();
                Box::pin(async move {
                    let row = shared::scope(tx, &Scope::Namespace(name.clone())).await?;
                    let held = sql::holdings(tx).await?;
                    let granted =
                        held.iter().filter(|h| h.namespace == name).fold(0_u64, |n, h| n.saturating_add(h.granted));
                    Ok::<_, LedgerError>(row.map(|r| (r.view.mark.bound, r.view.generation, granted)))
                })
            })
            .await?;
        Ok(found)
    }
}
