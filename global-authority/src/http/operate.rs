//! Switches and drills.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use cadastre_protocol::admin::Nothing;
use cadastre_protocol::operate::{DrillSchedule, DrillView, Drills, NewDrill, NewSwitch, SwitchView, Switches};
use cadastre_runtime::errand::Errand;
use cadastre_runtime::http::{Json, Path};

use super::{Answer, App, refuse};

#[utoipa::path(post, path = "/v1/switches", request_body = NewSwitch, responses((status = 201, body = SwitchView)))]
/// Move the home of a namespace, or of all that a region serves, to another region. It goes on by itself.
pub async fn new_switch(
    State(app): State<App>,
    headers: HeaderMap,
    Json(new): Json<NewSwitch>,
) -> Answer<(StatusCode, axum::Json<SwitchView>)> {
    let who = app.operator(&headers).await?;
    Ok((StatusCode::CREATED, axum::Json(app.authority().new_switch(&who, new).await.map_err(refuse)?)))
}

#[utoipa::path(get, path = "/v1/switches", responses((status = 200, body = Switches)))]
/// The newest switches.
pub async fn switches(State(app): State<App>, headers: HeaderMap) -> Answer<axum::Json<Switches>> {
    app.viewer(&headers).await?;
    Ok(axum::Json(app.authority().switches().await.map_err(refuse)?))
}

#[utoipa::path(get, path = "/v1/switches/{id}", params(("id" = String, Path)), responses((status = 200, body = SwitchView)))]
/// One switch, with its ledger.
pub async fn switch(
    State(app): State<App>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Answer<axum::Json<SwitchView>> {
    app.viewer(&headers).await?;
    Ok(axum::Json(app.authority().switch(&id).await.map_err(refuse)?))
}

#[utoipa::path(post, path = "/v1/switches/{id}/resume", params(("id" = String, Path)), request_body = Nothing, responses((status = 200, body = SwitchView)))]
/// Let a stopped switch go on.
pub async fn resume(
    State(app): State<App>,
    headers: HeaderMap,
    Path(id): Path<String>,
    Json(Nothing {}): Json<Nothing>,
) -> Answer<axum::Json<SwitchView>> {
    let who = app.operator(&headers).await?;
    Ok(axum::Json(app.authority().resume_switch(&who, &id).await.map_err(refuse)?))
}

#[utoipa::path(post, path = "/v1/switches/{id}/back-out", params(("id" = String, Path)), request_body = Nothing, responses((status = 200, body = SwitchView)))]
/// Put the homes back as they were before the switch.
pub async fn back_out(
    State(app): State<App>,
    headers: HeaderMap,
    Path(id): Path<String>,
    Json(Nothing {}): Json<Nothing>,
) -> Answer<axum::Json<SwitchView>> {
    let who = app.operator(&headers).await?;
    Ok(axum::Json(app.authority().back_out(&who, &id).await.map_err(refuse)?))
}

#[utoipa::path(post, path = "/v1/drills", request_body = NewDrill, responses((status = 201, body = DrillView)))]
/// Order a drill: a region's agents refuse their own uplink for a while. One at most.
pub async fn new_drill(
    State(app): State<App>,
    headers: HeaderMap,
    Json(new): Json<NewDrill>,
) -> Answer<(StatusCode, axum::Json<DrillView>)> {
    let who = app.operator(&headers).await?;
    Ok((StatusCode::CREATED, axum::Json(app.authority().new_drill(&who, new).await.map_err(refuse)?)))
}

#[utoipa::path(get, path = "/v1/drills", responses((status = 200, body = Drills)))]
/// The newest drills.
pub async fn drills(State(app): State<App>, headers: HeaderMap) -> Answer<axum::Json<Drills>> {
    app.viewer(&headers).await?;
    Ok(axum::Json(app.authority().drills().await.map_err(refuse)?))
}

#[utoipa::path(get, path = "/v1/drills/{id}", params(("id" = String, Path)), responses((status = 200, body = DrillView)))]
/// One drill, with its report once it ended.
pub async fn drill(
    State(app): State<App>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Answer<axum::Json<DrillView>> {
    app.viewer(&headers).await?;
    Ok(axum::Json(app.authority().drill(&id).await.map_err(refuse)?))
}

#[utoipa::path(put, path = "/v1/drills/schedule", request_body = DrillSchedule, responses((status = 200, body = DrillSchedule)))]
/// Repeat a drill: at `next_at`, and every so many hours. What cannot begin then is skipped, with its reason.
pub async fn set_schedule(
    State(app): State<App>,
    headers: HeaderMap,
    Json(new): Json<DrillSchedule>,
) -> Answer<axum::Json<DrillSchedule>> {
    let who = app.operator(&headers).await?;
    Ok(axum::Json(app.authority().set_schedule(&who, new).await.map_err(refuse)?))
}

#[utoipa::path(delete, path = "/v1/drills/schedule", responses((status = 200, body = Nothing)))]
/// Repeat nothing any more.
pub async fn remove_schedule(State(app): State<App>, headers: HeaderMap) -> Answer<axum::Json<Nothing>> {
    let who = app.operator(&headers).await?;
    app.authority().remove_schedule(&who).await.map_err(refuse)?;
    Ok(axum::Json(Nothing {}))
}

#[utoipa::path(post, path = "/v1/drills/{id}/abort", params(("id" = String, Path)), request_body = Nothing, responses((status = 200, body = DrillView)))]
/// End a drill before its time. Its agents are told; one that cannot be reached ends by itself.
pub async fn abort(
    State(app): State<App>,
    headers: HeaderMap,
    Path(id): Path<String>,
    Json(Nothing {}): Json<Nothing>,
) -> Answer<axum::Json<DrillView>> {
    let who = app.operator(&headers).await?;
    let view = app.authority().abort_drill(&who, &id).await.map_err(refuse)?;
    let agents = app.authority().errands_since(&view.region, Errand::EndDrill, view.made_at).await.map_err(refuse)?;
    app.0.peers.abort_drill(&agents).await;
    Ok(axum::Json(view))
}
