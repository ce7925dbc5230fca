//! `POST /v1/duplicates`: a caller saw an ID twice. One report is enough to wake somebody up.
//!
//! It is written into the region's audit, counted, and logged as an error; nothing else happens. Whether it is true is
//! for people to find out: a retry of the caller's own, a row copied by a restore, or an ID that a program rounded look
//! the same from outside.

use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use cadastre_core::decimal::parse_signed;
use cadastre_core::ids::RowId;
use cadastre_ledger::sql as ledger;
use cadastre_protocol::duplicates::{DuplicateNoted, DuplicateReport, MAX_DETAIL};
use cadastre_protocol::error::Code;
use cadastre_runtime::http::{HttpProblem, Json, bearer};

use super::origins::look_up;
use super::{Answer, App, refuse};
use crate::error::AgentError;
use crate::metrics as meter;

#[utoipa::path(post, path = "/v1/duplicates", request_body = DuplicateReport, responses((status = 201, body = DuplicateNoted)))]
/// Tell that an ID came twice. Sending the same report again notes it again.
pub async fn report(State(app): State<App>, request: Request) -> Answer<(StatusCode, axum::Json<DuplicateNoted>)> {
    let ctx = &app.agent().ctx;
    let view = ctx.view();
    let service = view.callers.service(bearer(request.headers())).map_err(refuse)?;
    let Json(told) = Json::<DuplicateReport>::from_request(request, &()).await?;
    service.admits(&told.namespace).map_err(refuse)?;
    let bad = |text: String| HttpProblem::new(Code::InvalidRequest, text);
    let value = parse_signed(&told.id).map_err(|e| bad(format!("id {:?}: {e}", told.id)))?;
    let how = told.detail.unwrap_or_default();
    if how.chars().count() > MAX_DETAIL {
        return Err(bad(format!("detail: at most {MAX_DETAIL} characters")));
    }
    // Bounded by the service's own rate: a report costs a write.
    let _place = service.enter().map_err(refuse)?;
    service.spend(1, None).map_err(refuse)?;
    let places = view.roster.places(&told.namespace, value);
    let (row, now, who) = (RowId(ctx.entropy.uuid_v4()), ctx.now().wall_ms, service.name.clone());
    let detail = format!("{} {}: {how:?}", told.namespace, told.id);
    tracing::error!(namespace = %told.namespace, id = told.id, service = %service.name, "a caller reports a duplicate");
    meter::duplicate(&ctx.me.region, &told.namespace);
    let work = ctx.continuity.db().write("duplicate", move |tx| {
        let (who, detail) = (who.clone(), detail.clone());
        Box::pin(async move {
            Ok::<_, AgentError>(ledger::audit(tx, row, now, who.as_str(), "duplicate_reported", &detail).await?)
        })
    });
    ctx.note_store(work.await).map_err(refuse)?;
    let mut ours = false;
    for (line, ordinal) in places {
        ours |= look_up(&app, line, ordinal).await.map_err(refuse)?.0.is_some();
    }
    Ok((StatusCode::CREATED, axum::Json(DuplicateNoted { region: ctx.me.region.clone(), ours })))
}
