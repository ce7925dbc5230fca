//! What services use of their limits here.

use axum::extract::State;
use axum::http::HeaderMap;
use cadastre_core::quota::{HOLDER_COUNTS_MS, InUse};
use cadastre_protocol::usage::{ServiceUse, ServicesUse};
use cadastre_runtime::http::bearer;

use super::{Answer, App, refuse};
use crate::error::AgentError;
use crate::sql;

#[utoipa::path(get, path = "/v1/services", responses((status = 200, body = ServicesUse)))]
/// What services with a limit use of it: rate and requests at this agent, processes and what they hold in its region
/// (operators and viewers).
pub async fn uses(State(app): State<App>, headers: HeaderMap) -> Answer<axum::Json<ServicesUse>> {
    let ctx = &app.agent().ctx;
    ctx.view().callers.viewer(bearer(&headers)).map_err(refuse)?;
    let since = ctx.now().wall_ms.saturating_sub(HOLDER_COUNTS_MS);
    let held = ctx.continuity.db().read("services_use", move |tx| {
        Box::pin(async move { Ok::<_, AgentError>(sql::held_by_service(tx, since).await?) })
    });
    let held = held.await.map_err(refuse)?;
    let view = ctx.view();
    let uses = view.callers.in_use().map(|(service, at_once)| {
        let (holders, held_ids) = held.get(service).copied().unwrap_or_default();
        ServiceUse::new(service.clone(), InUse { holders, held_ids, ..at_once })
    });
    let services = uses.collect();
    Ok(axum::Json(ServicesUse { services }))
}
