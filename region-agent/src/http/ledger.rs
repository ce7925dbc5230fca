//! The region's ledger, paged, and its own check of the invariants over it.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::HeaderMap;
use cadastre_core::decimal::{self, parse_unsigned};
use cadastre_core::ids::{BlockId, Epoch, GrantId, Incarnation, Name, RegionId, SegmentId};
use cadastre_core::invariant::{self, CarveRow, Finding, HoldingRow};
use cadastre_core::range::{MAX_ORDINAL, Range};
use cadastre_protocol::admin::{Checked, Nothing, Verdict};
use cadastre_protocol::error::Code;
use cadastre_runtime::http::{HttpProblem, Json, Query, bearer};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Answer, App, name, refuse};
use crate::context::Context;
use crate::error::AgentError;
use crate::sql::{self, BlockRow, GrantRow, SegmentRow};

/// Rows of a page that is answered.
const PAGE: u32 = 1_000;
/// Rows that are checked at once.
const CHECKED_PAGE: u32 = 10_000;

/// Which part of the ledger.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct SegmentsQuery {
    /// Of which namespace.
    namespace: String,
    /// `next` of the page before.
    after: Option<String>,
}

/// `GET /v1/segments`: segments in order of place, and every grant and block that reaches into the stretch
/// between the page's beginning and its end (so a holding may be on several pages).
#[derive(Serialize, ToSchema)]
pub struct SegmentsPage {
    /// What is carved.
    holdings: Vec<HoldingView>,
    /// What was carved out of it.
    segments: Vec<SegmentView>,
    /// Pass as `after` to go on; null at the end.
    next: Option<String>,
}

/// A grant or a block.
#[derive(Serialize, ToSchema)]
pub struct HoldingView {
    /// The grant, or the grant that the block was carved from.
    #[schema(value_type = String)]
    grant_id: GrantId,
    /// The block, where it is one.
    #[schema(value_type = Option<String>)]
    block_id: Option<BlockId>,
    /// The block's service.
    #[schema(value_type = Option<String>)]
    service: Option<Name>,
    /// First ordinal.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    lo: u64,
    /// End, exclusive.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    hi: u64,
    /// Everything below was handed out.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    carved_to: u64,
    /// Its epoch.
    #[schema(value_type = u64)]
    epoch: Epoch,
    /// `held` or `burned`.
    state: &'static str,
}

/// A segment.
#[derive(Serialize, ToSchema)]
pub struct SegmentView {
    /// The segment.
    #[schema(value_type = String)]
    segment_id: SegmentId,
    /// Its grant.
    #[schema(value_type = String)]
    grant_id: GrantId,
    /// Its block, where it came out of one.
    #[schema(value_type = Option<String>)]
    block_id: Option<BlockId>,
    /// First ordinal.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    lo: u64,
    /// End, exclusive.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    hi: u64,
    /// Its epoch.
    #[schema(value_type = u64)]
    epoch: Epoch,
    /// The service that it was carved for; null where an agent shares it.
    #[schema(value_type = Option<String>)]
    service: Option<Name>,
    /// The instance that holds it.
    #[schema(value_type = String)]
    instance: Name,
    /// Its incarnation.
    #[schema(value_type = String)]
    incarnation: Incarnation,
    /// When it was carved, milliseconds since the Unix epoch.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    at: u64,
}

/// One stretch of the ledger.
struct Stretch {
    grants: Vec<GrantRow>,
    blocks: Vec<BlockRow>,
    segments: Vec<SegmentRow>,
    /// Where the next stretch begins.
    next: Option<u64>,
}

/// The segments from `from` on, at most `limit`, and the holdings of that stretch of the number line.
async fn stretch(ctx: &Context, namespace: &Name, from: u64, limit: u32) -> Result<Stretch, AgentError> {
    let namespace = namespace.clone();
    let read = ctx.continuity.db().read("ledger_page", move |tx| {
        let namespace = namespace.clone();
        Box::pin(async move {
            let segments = sql::segments_from(tx, &namespace, from, limit).await?;
            let full = u32::try_from(segments.len()).unwrap_or(limit) >= limit;
            let next = segments.last().filter(|_| full).map(|s| s.range.hi());
            let to = next.unwrap_or(MAX_ORDINAL);
            let grants = sql::grants_between(tx, &namespace, from, to, limit.saturating_mul(2)).await?;
            let blocks = sql::blocks_between(tx, &namespace, from, to, limit.saturating_mul(2)).await?;
            Ok::<_, AgentError>(Stretch { grants, blocks, segments, next })
        })
    });
    ctx.note_read(read.await)
}

#[utoipa::path(get, path = "/v1/segments", params(SegmentsQuery), responses((status = 200, body = SegmentsPage)))]
/// The region's ledger of one namespace (operators and viewers).
pub async fn segments(
    State(app): State<App>,
    headers: HeaderMap,
    Query(query): Query<SegmentsQuery>,
) -> Answer<axum::Json<SegmentsPage>> {
    app.agent().ctx.view().callers.viewer(bearer(&headers)).map_err(refuse)?;
    let from = match query.after.as_deref().map(parse_unsigned) {
        None => 0,
        Some(Ok(after)) if after <= MAX_ORDINAL => after,
        Some(Ok(after)) => return Err(HttpProblem::new(Code::InvalidRequest, format!("after: {after} is no ordinal"))),
        Some(Err(e)) => return Err(HttpProblem::new(Code::InvalidRequest, format!("after: {e}"))),
    };
    let page = stretch(&app.agent().ctx, &name(&query.namespace)?, from, PAGE).await.map_err(refuse)?;
    let grants = page.grants.into_iter().map(|g| HoldingView {
        grant_id: g.grant_id,
        block_id: None,
        service: None,
        lo: g.range.lo(),
        hi: g.range.hi(),
        carved_to: g.carved_to,
        epoch: g.epoch,
        state: g.state.as_str(),
    });
    let blocks = page.blocks.into_iter().map(|b| HoldingView {
        grant_id: b.grant_id,
        block_id: Some(b.block_id),
        service: Some(b.service),
        lo: b.range.lo(),
        hi: b.range.hi(),
        carved_to: b.carved_to,
        epoch: b.epoch,
        state: b.state.as_str(),
    });
    let segments = page.segments.into_iter().map(|s| SegmentView {
        segment_id: s.segment_id,
        grant_id: s.grant_id,
        block_id: s.block_id,
        lo: s.range.lo(),
        hi: s.range.hi(),
        epoch: s.epoch,
        service: s.service,
        instance: s.instance,
        incarnation: s.incarnation,
        at: s.at_ms,
    });
    let next = page.next.map(|n| n.to_string());
    Ok(axum::Json(SegmentsPage { holdings: grants.chain(blocks).collect(), segments: segments.collect(), next }))
}

#[utoipa::path(post, path = "/v1/audit/verify", request_body = Nothing, responses((status = 200, body = Verdict)))]
/// Check R1 and R2, and that grants are disjoint, over this region's ledger (operators and viewers). The
/// authority calls it for its own verify.
pub async fn verify(
    State(app): State<App>,
    headers: HeaderMap,
    Json(Nothing {}): Json<Nothing>,
) -> Answer<axum::Json<Verdict>> {
    app.agent().ctx.view().callers.viewer(bearer(&headers)).map_err(refuse)?;
    Ok(axum::Json(verdict(&app.agent().ctx).await.map_err(refuse)?))
}

/// The invariants over this region's ledger.
///
/// # Errors
/// Those of the store.
pub async fn verdict(ctx: &Context) -> Result<Verdict, AgentError> {
    let read = ctx.continuity.db().read("ledger_names", |tx| Box::pin(sql::bounds(tx)));
    let names: BTreeMap<Name, u64> = ctx.note_read(read.await.map_err(AgentError::from))?;
    let region = ctx.view().standing.map_or(RegionId(0), |s| s.region_id);
    let mut findings = Vec::new();
    let mut checked = Checked::default();
    for name in names.keys() {
        let mut from = Some(0);
        let mut last: Option<SegmentRow> = None;
        while let Some(at) = from {
            let page = stretch(ctx, name, at, CHECKED_PAGE).await?;
            checked.segments += page.segments.len() as u64;
            findings.extend(check(name, region, &page, last.as_ref()));
            from = page.next;
            last = page.segments.into_iter().next_back();
        }
        if name.is_of_slot() {
            let windows = windows(ctx, name).await?;
            checked.windows += windows.len() as u64;
            let grants = stretch(ctx, name, 0, CHECKED_PAGE).await?.grants;
            let held: Vec<Range> = grants.iter().map(|g| g.range).collect();
            findings.extend(invariant::w1_windows(&format!("{name} in region {region}"), &held, &windows));
        }
    }
    Ok(Verdict { ok: findings.is_empty(), checked, findings, unreachable: vec![] })
}

/// Every worker window of a slot, by worker and place.
async fn windows(ctx: &Context, line: &Name) -> Result<Vec<(u32, Range)>, AgentError> {
    let (mut all, mut from) = (Vec::new(), (0, 0));
    loop {
        let line = line.clone();
        let read = ctx.continuity.db().read("ledger_windows", move |tx| {
            let line = line.clone();
            Box::pin(async move { Ok::<_, AgentError>(sql::windows_from(tx, &line, from, CHECKED_PAGE).await?) })
        });
        let page = ctx.note_read(read.await)?;
        let Some(last) = page.last() else { return Ok(all) };
        from = (last.worker, last.range.lo() + 1);
        all.extend(page.iter().map(|w| (w.worker, w.range)));
    }
}

/// The predicates of core over one stretch; `before` is the last segment of the stretch before.
fn check(name: &Name, region: RegionId, page: &Stretch, before: Option<&SegmentRow>) -> Vec<Finding> {
    let name = format!("{name} in region {region}");
    let grants: Vec<invariant::GrantRow> = page
        .grants
        .iter()
        .map(|g| invariant::GrantRow {
            id: g.grant_id.0,
            region,
            epoch: g.epoch,
            generation: g.generation,
            range: g.range,
        })
        .collect();
    let mut found = invariant::a1_grants_disjoint(&name, MAX_ORDINAL, &grants);
    let holdings: Vec<HoldingRow> = page
        .grants
        .iter()
        .map(|g| HoldingRow { id: g.grant_id.0, range: g.range, carved_to: g.carved_to })
        .chain(page.blocks.iter().map(|b| HoldingRow { id: b.block_id.0, range: b.range, carved_to: b.carved_to }))
        .collect();
    let carve = |s: &SegmentRow| CarveRow {
        id: s.segment_id.0,
        from: s.block_id.map_or(s.grant_id.0, |b| b.0),
        range: s.range,
    };
    // Blocks and the segments that come straight out of grants are one level; segments out of blocks the next.
    let direct = page.segments.iter().filter(|s| s.block_id.is_none()).map(carve);
    let blocks = page.blocks.iter().map(|b| CarveRow { id: b.block_id.0, from: b.grant_id.0, range: b.range });
    found.extend(invariant::r1_r2_carves(&name, &holdings, &direct.chain(blocks).collect::<Vec<_>>()));
    let nested: Vec<CarveRow> = page.segments.iter().filter(|s| s.block_id.is_some()).map(carve).collect();
    found.extend(invariant::r1_r2_carves(&name, &holdings, &nested));
    if let (Some(before), Some(first)) = (before, page.segments.first())
        && before.range.overlaps(&first.range)
    {
        let detail = format!("{name}: segment {} overlaps {}", before.segment_id, first.segment_id);
        found.push(Finding { invariant: "R1".into(), detail });
    }
    found
}
