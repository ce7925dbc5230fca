//! `GET /v1/origins/{namespace}/{id}`: who was given a number.

use axum::extract::State;
use axum::http::HeaderMap;
use cadastre_core::decimal::parse_signed;
use cadastre_core::ids::Name;
use cadastre_protocol::error::Code;
use cadastre_protocol::ids::{Origin, OriginRange};
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
    let ordinal = settings.definition.origin_ordinals(value).first().copied().ok_or_else(unknown)?;
    let (grant, block, segment) = look_up(&app, namespace.clone(), ordinal).await.map_err(refuse)?;
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
    }))
}

type Found = (Option<GrantRow>, Option<BlockRow>, Option<SegmentRow>);

async fn look_up(app: &App, namespace: Name, ordinal: u64) -> Result<Found, AgentError> {
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
