//! What the region's store knows of the cluster, for an authority that was lost and is made again, and for whoever
//! looks for ranges that two hold.
//!
//! Invariant: it reads, and promises nothing; a region testifies in its conversation with the authority only.

use axum::extract::State;
use axum::http::HeaderMap;
use cadastre_core::decimal::parse_unsigned;
use cadastre_core::ids::RegionId;
use cadastre_core::mark::ScopeMark;
use cadastre_core::principal::Principal;
use cadastre_core::range::MAX_ORDINAL;
use cadastre_ledger::sql as ledger;
use cadastre_protocol::error::Code;
use cadastre_protocol::rebuild::{AdoptedGrant, AdoptedPage, RegionRecord};
use cadastre_runtime::http::{HttpProblem, Query, bearer};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Answer, App, name, refuse};
use crate::error::{AgentError, problem};
use crate::sql;

/// Rows of a page.
const PAGE: u32 = 1_000;

#[utoipa::path(get, path = "/v1/testimony", responses((status = 200, body = RegionRecord)))]
/// All that the region's store knows of the cluster, the hashes of tokens included (operators, and the region's own
/// token).
pub async fn testimony(State(app): State<App>, headers: HeaderMap) -> Answer<axum::Json<RegionRecord>> {
    let ctx = &app.agent().ctx;
    let view = ctx.view();
    match view.callers.principal(bearer(&headers)).map_err(refuse)? {
        Principal::Operator(_) => {}
        Principal::Region(region) if *region == ctx.me.region => {}
        Principal::Region(_) | Principal::Viewer(_) | Principal::Service(_) => {
            return Err(refuse(problem(Code::Forbidden, "an operator's token is needed, or this region's own")));
        }
    }
    let (region, epoch) = (ctx.me.region.clone(), view.epoch());
    let read = ctx.continuity.db().read("record", move |tx| {
        let region = region.clone();
        Box::pin(async move {
            let store = ledger::store(tx).await?.ok_or(AgentError::Moved)?;
            let marks = ledger::seen_marks(tx).await?;
            let roster = ledger::roster(tx).await?;
            Ok::<_, AgentError>(RegionRecord {
                cluster_id: store.cluster_id,
                region,
                epoch,
                store_id: store.store_id,
                promised: store.promised,
                bounds: sql::bounds(tx).await?,
                marks: marks.into_iter().map(|(scope, mark)| ScopeMark { scope, mark }).collect(),
                roster: roster.entries().cloned().collect(),
            })
        })
    });
    Ok(axum::Json(ctx.note_read(read.await).map_err(refuse)?))
}

/// Which part of the ledger.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct GrantsQuery {
    /// Of which namespace.
    namespace: String,
    /// `next` of the page before.
    after: Option<String>,
}

#[utoipa::path(get, path = "/v1/grants", params(GrantsQuery), responses((status = 200, body = AdoptedPage)))]
/// Every grant that the region adopted in a namespace, burned ones included (operators and viewers).
pub async fn grants(
    State(app): State<App>,
    headers: HeaderMap,
    Query(query): Query<GrantsQuery>,
) -> Answer<axum::Json<AdoptedPage>> {
    let ctx = &app.agent().ctx;
    let view = ctx.view();
    view.callers.viewer(bearer(&headers)).map_err(refuse)?;
    let from = match query.after.as_deref().map(parse_unsigned) {
        None => 0,
        Some(Ok(after)) if after <= MAX_ORDINAL => after,
        Some(Ok(_) | Err(_)) => return Err(HttpProblem::new(Code::InvalidRequest, "after: is no ordinal")),
    };
    let namespace = name(&query.namespace)?;
    let read = ctx.continuity.db().read("record_grants", move |tx| {
        let namespace = namespace.clone();
        Box::pin(
            async move { Ok::<_, AgentError>(sql::grants_between(tx, &namespace, from, MAX_ORDINAL, PAGE).await?) },
        )
    });
    let rows = ctx.note_read(read.await).map_err(refuse)?;
    let full = u32::try_from(rows.len()).unwrap_or(PAGE) >= PAGE;
    let next = rows.last().filter(|_| full).map(|g| g.range.hi().to_string());
    let grants = rows.into_iter().map(|g| AdoptedGrant {
        grant_id: g.grant_id,
        namespace: g.namespace,
        allocation_id: g.allocation_id,
        lo: g.range.lo(),
        hi: g.range.hi(),
        epoch: g.epoch,
        generation: g.generation,
        at: g.adopted_at_ms,
    });
    Ok(axum::Json(AdoptedPage {
        region: ctx.me.region.clone(),
        region_id: view.standing.map_or(RegionId(0), |s| s.region_id),
        store_id: ctx.me.store_id,
        grants: grants.collect(),
        next,
    }))
}
