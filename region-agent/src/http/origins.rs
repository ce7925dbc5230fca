//! `GET /v1/origins/{namespace}/{id}`: who was given a number.

use axum::extract::State;
use axum::http::HeaderMap;
use cadastre_core::decimal::parse_signed;
use cadastre_core::ids::Name;
use cadastre_protocol::error::Code;
use cadastre_protocol::ids::{Decoded, Origin, OriginRange};
use cadastre_runtime::http::{HttpProblem, Path, bearer};

use super::{Answer, App, name, refuse};
use crate::error::AgentError;
use crate::sql::{self, BlockRow, GrantRow, SegmentRow};

#[utoipa::path(get, path = "/v1/origins/{namespace}/{id}", params(("namespace" = String, Path), ("id" = String, Path)),
    responses((status = 200, body = Origin), (status = 404, description = "`unknown_id`: this region was never granted it")))]
/// Whom a number was given to. It never says that an object with this number exists.
pub async fn origin(
    State(app): State<App>,
    headers: HeaderMap,
    Path((namespace, id)): Path<(String, String)>,
) -> Answer<axum::Json<Origin>> {
    let ctx = &app.agent().ctx;
    let view = ctx.view();
    let namespace = name(&namespace)?;
    view.callers.reader_of(bearer(&headers), &namespace).map_err(refuse)?;
    let known = view.roster.namespace(&namespace);
    let settings =
        known.ok_or_else(|| HttpProblem::new(Code::UnknownNamespace, format!("there is no namespace {namespace}")))?;
    let value = parse_signed(&id).map_err(|e| HttpProblem::new(Code::InvalidRequest, format!("id {id:?}: {e}")))?;
    let unknown = || HttpProblem::new(Code::UnknownId, format!("region {} was never granted {id}", ctx.me.region));
    let (line, ordinal) = view.roster.places(&namespace, value).into_iter().next().ok_or_else(unknown)?;
    if let Some(layout) = settings.layout {
        let decoded = Decoded::of(&layout, value).ok_or_else(unknown)?;
        return stamped(&app, namespace, id, line, ordinal, decoded).await;
    }
    let (grant, block, segment) = look_up(&app, line, ordinal).await.map_err(refuse)?;
    let grant = grant.ok_or_else(unknown)?;
    let service = segment.as_ref().and_then(|s| s.service.clone()).or(block.map(|b| b.service));
    Ok(axum::Json(Origin {
        namespace,
        id,
        region: ctx.me.region.clone(),
        epoch: segment.as_ref().map_or(grant.epoch, |s| s.epoch),
        at: segment.as_ref().map_or(grant.adopted_at_ms, |s| s.at_ms),
        grant: OriginRange {
            id: grant.grant_id.0,
            lo: grant.range.lo(),
            hi: grant.range.hi(),
            at: grant.adopted_at_ms,
        },
        service: service.map(|s| s.to_string()),
        instance: segment.as_ref().map(|s| s.instance.to_string()),
        incarnation: segment.as_ref().map(|s| s.incarnation),
        segment: segment.map(|s| OriginRange { id: s.segment_id.0, lo: s.range.lo(), hi: s.range.hi(), at: s.at_ms }),
        partial: false,
        decoded: None,
    }))
}

/// Who held a worker at a time.
async fn stamped(
    app: &App,
    namespace: Name,
    id: String,
    line: Name,
    unit: u64,
    decoded: Decoded,
) -> Answer<axum::Json<Origin>> {
    let ctx = &app.agent().ctx;
    let worker = decoded.worker;
    let read = ctx.continuity.db().read("origin_window", move |tx| {
        let line = line.clone();
        Box::pin(async move {
            let grant = sql::grant_of(tx, &line, unit).await?;
            Ok::<_, AgentError>((grant, sql::window_at(tx, &line, worker, unit).await?))
        })
    });
    let unknown = |what: &str| HttpProblem::new(Code::UnknownId, format!("region {} {what} {id}", ctx.me.region));
    let (grant, window) = ctx.note_read(read.await).map_err(refuse)?;
    let grant = grant.ok_or_else(|| unknown("was never given the time of"))?;
    let window = window.ok_or_else(|| unknown("had nobody who could have stamped"))?;
    Ok(axum::Json(Origin {
        namespace,
        region: ctx.me.region.clone(),
        epoch: window.epoch,
        grant: OriginRange {
            id: grant.grant_id.0,
            lo: grant.range.lo(),
            hi: grant.range.hi(),
            at: grant.adopted_at_ms,
        },
        segment: Some(OriginRange {
            id: window.window_id,
            lo: window.range.lo(),
            hi: window.range.hi(),
            at: window.at_ms,
        }),
        service: window.service.map(|s| s.to_string()),
        instance: Some(window.instance.to_string()),
        incarnation: Some(window.incarnation),
        at: window.at_ms,
        partial: false,
        decoded: Some(decoded),
        id,
    }))
}

type Found = (Option<GrantRow>, Option<BlockRow>, Option<SegmentRow>);

pub(super) async fn look_up(app: &App, namespace: Name, ordinal: u64) -> Result<Found, AgentError> {
    let ctx = &app.agent().ctx;
    let read = ctx.continuity.db().read("origin", move |tx| {
        let namespace = namespace.clone();
        Box::pin(async move {
            let grant = sql::grant_of(tx, &namespace, ordinal).await?;
            let block = sql::block_of(tx, &namespace, ordinal).await?;
            Ok::<_, AgentError>((grant, block, sql::segment_of(tx, &namespace, ordinal).await?))
        })
    });
    ctx.note_read(read.await)
}
