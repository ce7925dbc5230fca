//! An authority that was lost, made again: what its regions know is brought by an operator.

use axum::extract::State;
use axum::http::HeaderMap;
use cadastre_protocol::admin::Quarantines;
use cadastre_protocol::rebuild::{GrantsBack, GrantsTaken, RegionRecord};
use cadastre_runtime::http::Json;

use super::{Answer, App, refuse};

#[utoipa::path(post, path = "/v1/rebuild", request_body = RegionRecord, responses((status = 200, body = Quarantines)))]
/// Take what a region's store knows (`GET /v1/testimony` of its agent), so that the region can speak here. Only in a
/// quarantine. At most 16 MiB.
pub async fn record(
    State(app): State<App>,
    headers: HeaderMap,
    Json(record): Json<RegionRecord>,
) -> Answer<axum::Json<Quarantines>> {
    let who = app.operator(&headers).await?;
    app.authority().take_record(&who, record).await.map_err(refuse)?;
    Ok(axum::Json(app.authority().quarantines().await.map_err(refuse)?))
}

#[utoipa::path(post, path = "/v1/rebuild/grants", request_body = GrantsBack, responses((status = 200, body = GrantsTaken)))]
/// Write rows of a region's ledger (`GET /v1/grants` of its agent) that this authority's ledger lacks. It changes
/// nothing about what is given out. At most 1,000 rows.
pub async fn grants(
    State(app): State<App>,
    headers: HeaderMap,
    Json(back): Json<GrantsBack>,
) -> Answer<axum::Json<GrantsTaken>> {
    let who = app.operator(&headers).await?;
    Ok(axum::Json(app.authority().take_grants(&who, back).await.map_err(refuse)?))
}
