//! Whom a number was given to: the ledger's word, and the region's where it can be asked.

use cadastre_core::decimal::parse_signed;
use cadastre_core::ids::Name;
use cadastre_ledger::error::LedgerError;
use cadastre_protocol::admin::{GrantView, GrantsPage};
use cadastre_protocol::error::Code;
use cadastre_protocol::ids::{Decoded, Origin, OriginRange};

use super::error::problem;
use super::{Authority, ServiceError};
use crate::sql;

/// Rows of one page of the ledger.
pub const PAGE: u64 = 1_000;

impl Authority {
    /// The grant that holds an id. The caller completes it from the region, if it can be asked.
    ///
    /// # Errors
    /// `unknown_namespace`, `unknown_id`, `invalid_request` where the id is not a canonical decimal, or
    /// those of the store.
    pub async fn origin(&self, namespace: &Name, id: &str) -> Result<Origin, ServiceError> {
        let value = parse_signed(id).map_err(|e| {
            let text = format!("{id:?} is not an id: {e}. A number that JavaScript rounded has no origin");
            problem(Code::InvalidRequest, text)
        })?;
        self.reload().await?;
        let known = self.known();
        // A deleted namespace still says who was given what.
        let entry = known.roster.namespace(namespace);
        let entry =
            entry.ok_or_else(|| problem(Code::UnknownNamespace, format!("there is no namespace {namespace}")))?;
        let nobody = || problem(Code::UnknownId, format!("{id} was never granted in {namespace}"));
        for (line, ordinal) in known.roster.places(namespace, value) {
            let name = line.clone();
            let found = self
                .continuity
                .db()
                .read("origin", move |tx| {
                    let name = name.clone();
                    Box::pin(async move { Ok::<_, LedgerError>(sql::grant_at(tx, &name, ordinal).await?) })
                })
                .await?;
            if let Some(grant) = found {
                let range =
                    OriginRange { id: grant.grant_id.0, lo: grant.range.lo(), hi: grant.range.hi(), at: grant.at_ms };
                return Ok(Origin {
                    namespace: namespace.clone(),
                    id: id.to_owned(),
                    region: grant.region,
                    epoch: grant.epoch,
                    grant: range,
                    segment: None,
                    service: None,
                    instance: None,
                    incarnation: None,
                    at: grant.at_ms,
                    partial: true,
                    decoded: entry.layout.and_then(|layout| Decoded::of(&layout, value)),
                });
            }
        }
        Err(nobody())
    }

    /// A page of the ledger.
    ///
    /// # Errors
    /// `unknown_namespace`, or those of the store.
    pub async fn grants_page(
        &self,
        namespace: &Name,
        region: Option<Name>,
        after: Option<u64>,
    ) -> Result<GrantsPage, ServiceError> {
        self.reload().await?;
        if self.known().roster.namespace(namespace).is_none() {
            return Err(problem(Code::UnknownNamespace, format!("there is no namespace {namespace}")));
        }
        let name = namespace.clone();
        let rows = self
            .continuity
            .db()
            .read("grants_page", move |tx| {
                let (name, region) = (name.clone(), region.clone());
                Box::pin(async move {
                    Ok::<_, LedgerError>(sql::grants_page(tx, &name, region.as_ref(), after, PAGE).await?)
                })
            })
            .await?;
        let full = u64::try_from(rows.len()).unwrap_or(0) == PAGE;
        let next = if full { rows.last().map(|g| g.range.lo().to_string()) } else { None };
        let view = |g: sql::Grant| GrantView {
            grant_id: g.grant_id,
            namespace: g.namespace,
            allocation_id: g.allocation_id,
            lo: g.range.lo(),
            hi: g.range.hi(),
            region: g.region,
            epoch: g.epoch,
            at: g.at_ms,
            confirmed: g.confirmed_at_ms.is_some(),
        };
        Ok(GrantsPage { grants: rows.into_iter().map(view).collect(), next })
    }
}
