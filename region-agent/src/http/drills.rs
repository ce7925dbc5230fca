//! A drill, as this agent holds it: whoever is near can look at it, and end it.

use axum::extract::State;
use axum::http::HeaderMap;
use cadastre_core::principal::Principal;
use cadastre_protocol::admin::Nothing;
use cadastre_protocol::error::Code;
use cadastre_protocol::operate::DrillWord;
use cadastre_runtime::http::{Json, bearer};
use serde_json::{Value, json};

use super::{Answer, App, refuse};
use crate::error::problem;

#[utoipa::path(get, path = "/v1/drills", responses((status = 200, body = DrillWord), (status = 404)))]
/// The drill that is under way here, with what it came to so far (operators and viewers).
pub async fn drill(State(app): State<App>, headers: HeaderMap) -> Answer<axum::Json<DrillWord>> {
    let ctx = &app.agent().ctx;
    ctx.view().callers.viewer(bearer(&headers)).map_err(refuse)?;
    let word = ctx.orders.shown().ok_or_else(|| refuse(problem(Code::NotFound, "no drill is under way here")))?;
    Ok(axum::Json(word))
}

#[utoipa::path(post, path = "/v1/drills/abort", request_body = Nothing, responses((status = 200)))]
/// End the drill at once (operators). Where there is none, nothing changes.
pub async fn abort(
    State(app): State<App>,
    headers: HeaderMap,
    Json(Nothing {}): Json<Nothing>,
) -> Answer<axum::Json<Value>> {
    let ctx = &app.agent().ctx;
    let view = ctx.view();
    let who = match view.callers.principal(bearer(&headers)).map_err(refuse)? {
        who @ Principal::Operator(_) => who.describe(),
        other => {
            let text = format!("an operator's token is needed; this is the token of {}", other.describe());
            return Err(refuse(problem(Code::Forbidden, text)));
        }
    };
    let aborted = ctx.orders.abort(ctx.now().mono_ms, &format!("aborted by {who} at the agent"));
    ctx.link_wake.notify_one();
    Ok(axum::Json(json!({ "aborted": aborted })))
}
