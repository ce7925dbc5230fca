//! Regions: the operator's registry, and the agents' link.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use cadastre_core::registry::RegionEvent;
use cadastre_core::roster::RegionEntry;
use cadastre_protocol::admin::{Named, NewRegion, NewToken, Nothing, RegionAction};
use cadastre_protocol::error::Code;
use cadastre_protocol::link::{self, Message};
use cadastre_runtime::http::{Json, Path};
use serde_json::{Value, json};

use super::{Answer, App, name, refuse};

#[utoipa::path(post, path = "/v1/heartbeats", responses((status = 200, description = "see docs/protocol.md; POST /v1/grants takes the same message, with wants")))]
/// A message of a region's agent: testimony, wants, and the answer to both.
pub async fn message(
    State(app): State<App>,
    headers: HeaderMap,
    Json(message): Json<Message>,
) -> Answer<axum::Json<link::Answer>> {
    let region = app.region(&headers).await?;
    match app.authority().message(&region, message).await {
        Ok(answer) => {
            answer.grants.iter().for_each(count_refusal);
            Ok(axum::Json(answer))
        }
        Err(error) => {
            let problem = refuse(error);
            if matches!(
                problem.0.code,
                Code::EpochFenced | Code::WrongStore | Code::CopyFound | Code::NotHome | Code::AlreadyConfirmed
            ) {
                metrics::counter!("cadastre_fence_refusals_total", "code" => problem.0.code.as_str()).increment(1);
            }
            Err(problem)
        }
    }
}

fn count_refusal(grant: &link::GrantAnswer) {
    if let link::GrantAnswer::Refused { problem, .. } = grant {
        metrics::counter!("cadastre_grant_refusals_total", "code" => problem.code.as_str()).increment(1);
    }
}

#[utoipa::path(post, path = "/v1/regions", request_body = Named, responses((status = 201, body = NewRegion)))]
/// Register a region; its token is shown once.
pub async fn new_region(
    State(app): State<App>,
    headers: HeaderMap,
    Json(new): Json<Named>,
) -> Answer<(StatusCode, axum::Json<NewRegion>)> {
    let who = app.operator(&headers).await?;
    Ok((StatusCode::CREATED, axum::Json(app.authority().new_region(&who, new.name).await.map_err(refuse)?)))
}

#[utoipa::path(post, path = "/v1/regions/{name}/tokens", params(("name" = String, Path)), request_body = Nothing, responses((status = 201, body = NewToken)))]
/// A further token of a region, for rotation. Shown once.
pub async fn new_token(
    State(app): State<App>,
    headers: HeaderMap,
    Path(which): Path<String>,
    Json(Nothing {}): Json<Nothing>,
) -> Answer<(StatusCode, axum::Json<NewToken>)> {
    let who = app.operator(&headers).await?;
    let token = app.authority().new_region_token(&who, &name(&which)?).await.map_err(refuse)?;
    Ok((StatusCode::CREATED, axum::Json(token)))
}

#[utoipa::path(get, path = "/v1/regions", responses((status = 200, description = "`regions`: a list of regions")))]
/// All regions, with their live agents.
pub async fn regions(State(app): State<App>, headers: HeaderMap) -> Answer<axum::Json<Value>> {
    app.viewer(&headers).await?;
    Ok(axum::Json(json!({ "regions": app.authority().regions().await.map_err(refuse)? })))
}

async fn step(
    app: &App,
    headers: &HeaderMap,
    which: &str,
    event: RegionEvent,
    action: &RegionAction,
) -> Answer<axum::Json<Value>> {
    let who = app.operator(headers).await?;
    let why = action.reason.as_deref().unwrap_or("by an operator");
    let entry = app.authority().region_event(&name(which)?, event, why, &who).await.map_err(refuse)?;
    Ok(standing(which, &entry))
}

fn standing(name: &str, entry: &RegionEntry) -> axum::Json<Value> {
    axum::Json(json!({
        "name": name, "region_id": entry.region_id, "epoch": entry.epoch, "state": entry.state,
    }))
}

#[utoipa::path(post, path = "/v1/regions/{name}/drain", params(("name" = String, Path)), request_body = RegionAction, responses((status = 200)))]
/// Let a region run out what it holds.
pub async fn drain(
    State(app): State<App>,
    headers: HeaderMap,
    Path(which): Path<String>,
    Json(action): Json<RegionAction>,
) -> Answer<axum::Json<Value>> {
    step(&app, &headers, &which, RegionEvent::Drain, &action).await
}

#[utoipa::path(post, path = "/v1/regions/{name}/fence", params(("name" = String, Path)), request_body = RegionAction, responses((status = 200)))]
/// Take a region's epoch away: it stops and burns when it learns of it, and gets nothing new from now on.
pub async fn fence(
    State(app): State<App>,
    headers: HeaderMap,
    Path(which): Path<String>,
    Json(action): Json<RegionAction>,
) -> Answer<axum::Json<Value>> {
    step(&app, &headers, &which, RegionEvent::Fence, &action).await
}

#[utoipa::path(post, path = "/v1/regions/{name}/recover", params(("name" = String, Path)), request_body = RegionAction, responses((status = 200)))]
/// Bring a region back under a new epoch; `new_store` lets it join with another store.
pub async fn recover(
    State(app): State<App>,
    headers: HeaderMap,
    Path(which): Path<String>,
    Json(action): Json<RegionAction>,
) -> Answer<axum::Json<Value>> {
    let who = app.operator(&headers).await?;
    let entry = app.authority().recover(&name(&which)?, &action, &who).await.map_err(refuse)?;
    Ok(standing(&which, &entry))
}

#[utoipa::path(post, path = "/v1/regions/{name}/retire", params(("name" = String, Path)), request_body = RegionAction, responses((status = 200)))]
/// End a region for good. Its name and number stay taken.
pub async fn retire(
    State(app): State<App>,
    headers: HeaderMap,
    Path(which): Path<String>,
    Json(_): Json<RegionAction>,
) -> Answer<axum::Json<Value>> {
    let who = app.operator(&headers).await?;
    let entry = app.authority().retire(&name(&which)?, &who).await.map_err(refuse)?;
    Ok(standing(&which, &entry))
}
