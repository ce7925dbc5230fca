//! `POST /v1/segments`: ranges for processes that issue by themselves.

use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use cadastre_core::ids::{RowId, SegmentId};
use cadastre_ledger::sql as ledger;
use cadastre_protocol::error::Code;
use cadastre_protocol::ids::{ReturnRequest, SegmentAnswer, SegmentRequest};
use cadastre_runtime::http::{HttpProblem, Json, Path, bearer};

use super::{Answer, App, refuse};
use crate::error::AgentError;
use crate::sql;

#[utoipa::path(post, path = "/v1/segments", request_body = SegmentRequest, responses((status = 201, body = SegmentAnswer)))]
/// A segment for a process that issues by itself. A lost answer: send the same request again, and get the same
/// segment, until `retry_until`. Install it once, and never after a fork. Requests of one incarnation come one
/// after another; each presents the `chain` of the answer before it.
pub async fn segment(State(app): State<App>, request: Request) -> Answer<(StatusCode, axum::Json<SegmentAnswer>)> {
    let ctx = &app.agent().ctx;
    let token = bearer(request.headers()).map(ToOwned::to_owned);
    ctx.view().callers.service(token.as_deref()).map_err(refuse)?;
    let Json(asked) = Json::<SegmentRequest>::from_request(request, &()).await?;
    // A body may take long: what holds is what holds now.
    let view = ctx.view();
    let service = view.callers.service(token.as_deref()).map_err(refuse)?;
    app.front().admitted(&view, service, &asked.namespace).map_err(refuse)?;
    let _place = service.enter().map_err(refuse)?;
    let answer = app.front().segment(&view, service, asked).await.map_err(refuse)?;
    Ok((StatusCode::CREATED, axum::Json(answer)))
}

#[utoipa::path(post, path = "/v1/segments/{segment_id}/return", params(("segment_id" = String, Path)),
    request_body = ReturnRequest, responses((status = 409, description = "`not_allowed`: no namespace takes tails back in this version")))]
/// Give the tail of a segment back. No namespace is gap-sensitive in this version: the tail is a gap, the attempt
/// is recorded, and nothing changes.
pub async fn give_back(State(app): State<App>, Path(id): Path<String>, request: Request) -> Answer<()> {
    let ctx = &app.agent().ctx;
    let view = ctx.view();
    let service = view.callers.service(bearer(request.headers())).map_err(refuse)?;
    let Json(given) = Json::<ReturnRequest>::from_request(request, &()).await?;
    let unknown = || HttpProblem::new(Code::NotFound, "there is no such segment in this region");
    let id: SegmentId = id.parse().map_err(|_| unknown())?;
    let _place = service.enter().map_err(refuse)?;
    service.spend(1, None).map_err(refuse)?;
    let (row, now, who) = (RowId(ctx.entropy.uuid_v4()), ctx.now().wall_ms, service.name.clone());
    let work = ctx.continuity.db().write("segment_return", move |tx| {
        let (who, given) = (who.clone(), given.clone());
        Box::pin(async move {
            let known = sql::segment_by_id(tx, id).await?.filter(|s| s.service.as_ref() == Some(&who));
            if let Some(segment) = &known {
                let late = if segment.incarnation == given.incarnation { "" } else { " of another incarnation" };
                let detail = format!("segment {id}{late}: next {} by {}", given.next, given.incarnation);
                ledger::audit(tx, row, now, who.as_str(), "return_refused", &detail).await?;
            }
            Ok::<_, AgentError>(known.is_some())
        })
    });
    if !ctx.note_store(work.await).map_err(refuse)? {
        return Err(unknown());
    }
    let text = "this namespace takes no tails back: what is left of the segment is a gap. The attempt was recorded";
    Err(HttpProblem::new(Code::NotAllowed, text))
}
