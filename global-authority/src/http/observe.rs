//! What is left, who was given what, whether it all holds together, and how the process is.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use cadastre_core::decimal::parse_unsigned;
use cadastre_core::range::MAX_ORDINAL;
use cadastre_protocol::admin::{GrantsPage, Headroom, Lift, Nothing, Quarantines, Verdict};
use cadastre_protocol::error::Code;
use cadastre_protocol::ids::Origin;
use cadastre_runtime::errand::Errand;
use cadastre_runtime::http::{HttpProblem, Json, Path, Query};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;

use super::{Answer, App, name, refuse};

/// Of which namespace.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct HeadroomQuery {
    /// Of this namespace only.
    namespace: Option<String>,
}

#[utoipa::path(get, path = "/v1/headroom", params(HeadroomQuery), responses((status = 200, body = Headroom)))]
/// What is left of every namespace (or of one), by region.
pub async fn headroom(
    State(app): State<App>,
    headers: HeaderMap,
    Query(query): Query<HeadroomQuery>,
) -> Answer<axum::Json<Headroom>> {
    app.viewer(&headers).await?;
    let only = query.namespace.as_deref().map(name).transpose()?;
    Ok(axum::Json(app.authority().headroom_of(only.as_ref()).await.map_err(refuse)?))
}

/// Which part of the ledger.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct GrantsQuery {
    namespace: String,
    region: Option<String>,
    after: Option<String>,
}

#[utoipa::path(get, path = "/v1/grants", params(GrantsQuery), responses((status = 200, body = GrantsPage)))]
/// The ledger of grants, in order of place; pass `next` as `after` to go on.
pub async fn grants(
    State(app): State<App>,
    headers: HeaderMap,
    Query(query): Query<GrantsQuery>,
) -> Answer<axum::Json<GrantsPage>> {
    app.viewer(&headers).await?;
    let region = query.region.as_deref().map(name).transpose()?;
    let after = match query.after.as_deref().map(parse_unsigned) {
        None => None,
        Some(Ok(after)) if after <= MAX_ORDINAL => Some(after),
        Some(Ok(_)) => {
            return Err(HttpProblem::new(Code::InvalidRequest, format!("after: must be at most \"{MAX_ORDINAL}\"")));
        }
        Some(Err(e)) => return Err(HttpProblem::new(Code::InvalidRequest, format!("after: {e}"))),
    };
    let page = app.authority().grants_page(&name(&query.namespace)?, region, after).await.map_err(refuse)?;
    Ok(axum::Json(page))
}

#[utoipa::path(get, path = "/v1/origins/{namespace}/{id}", params(("namespace" = String, Path), ("id" = String, Path)), responses((status = 200, body = Origin)))]
/// Whom a number was given to. It never says that an object with this number exists.
pub async fn origin(
    State(app): State<App>,
    headers: HeaderMap,
    Path((namespace, id)): Path<(String, String)>,
) -> Answer<axum::Json<Origin>> {
    let namespace = name(&namespace)?;
    app.reader_of(&headers, &namespace).await?;
    let known = app.authority().origin(&namespace, &id).await.map_err(refuse)?;
    let agents = app.authority().errands(&known.region, Errand::Read).await.map_err(refuse)?;
    let fuller = app.0.peers.origin(&agents, namespace.as_str(), &id).await;
    match fuller {
        // Of a time-based id the grant says little: the region had that time, and nobody need have stamped it. A number
        // that JavaScript rounded is nobody's.
        Some(Err(problem)) if known.decoded.is_some() && problem.code == Code::UnknownId => Err(HttpProblem(problem)),
        // The ledger has the last word on whose it is: an agent that says otherwise is not believed.
        Some(Ok(fuller)) if fuller.grant.id == known.grant.id && fuller.id == known.id => Ok(axum::Json(fuller)),
        Some(_) | None => Ok(axum::Json(known)),
    }
}

#[utoipa::path(post, path = "/v1/audit/verify", request_body = Nothing, responses((status = 200, body = Verdict)))]
/// Check every invariant over the ledgers, the regions' included where they can be asked.
pub async fn verify(
    State(app): State<App>,
    headers: HeaderMap,
    Json(Nothing {}): Json<Nothing>,
) -> Answer<axum::Json<Verdict>> {
    app.operator(&headers).await?;
    let mut verdict = app.authority().verify().await.map_err(refuse)?;
    for region in app.authority().regions().await.map_err(refuse)? {
        let agents = app.authority().errands(&region.name, Errand::Read).await.map_err(refuse)?;
        match app.0.peers.verify(&agents).await {
            Some(theirs) => {
                verdict.checked.segments += theirs.checked.segments;
                verdict.checked.windows += theirs.checked.windows;
                verdict.findings.extend(theirs.findings);
            }
            None if region.state.may_issue() => verdict.unreachable.push(region.name.to_string()),
            None => {}
        }
    }
    verdict.ok = verdict.findings.is_empty();
    metrics::gauge!("cadastre_verify_findings").set(verdict.findings.len() as f64);
    Ok(axum::Json(verdict))
}

#[utoipa::path(get, path = "/v1/quarantines", responses((status = 200, body = Quarantines)))]
/// What gives nothing out because the store may have gone back, and what is missing to end that.
pub async fn quarantines(State(app): State<App>, headers: HeaderMap) -> Answer<axum::Json<Quarantines>> {
    app.viewer(&headers).await?;
    Ok(axum::Json(app.authority().quarantines().await.map_err(refuse)?))
}

#[utoipa::path(post, path = "/v1/quarantines/{namespace}/lift", params(("namespace" = String, Path)), request_body = Lift, responses((status = 200, body = Quarantines)))]
/// State bounds for silent regions. They count once they cover every namespace, one request deadline later.
pub async fn lift(
    State(app): State<App>,
    headers: HeaderMap,
    Path(namespace): Path<String>,
    Json(lift): Json<Lift>,
) -> Answer<axum::Json<Quarantines>> {
    let who = app.operator(&headers).await?;
    app.authority().state_bounds(&who, &name(&namespace)?, lift).await.map_err(refuse)?;
    Ok(axum::Json(app.authority().quarantines().await.map_err(refuse)?))
}

#[utoipa::path(get, path = "/healthz", responses((status = 200)))]
/// 200 while the process serves.
pub async fn healthz() -> axum::Json<Value> {
    axum::Json(json!({ "status": "ok" }))
}

#[utoipa::path(get, path = "/readyz", responses((status = 200), (status = 503)))]
/// 200 while the store answers. A quarantine is shown, and does not take the authority out of service:
/// its regions must be able to testify.
pub async fn readyz(State(app): State<App>) -> Response {
    let authority = app.authority();
    match authority.store_answers().await {
        Ok(()) => axum::Json(json!({
            "status": if authority.is_open() { "ready" } else { "quarantined" },
            "continuity": authority.how().as_str(),
        }))
        .into_response(),
        Err(error) => {
            let body = json!({ "status": "not_ready", "detail": error.to_problem().detail });
            (StatusCode::SERVICE_UNAVAILABLE, axum::Json(body)).into_response()
        }
    }
}

#[utoipa::path(get, path = "/metrics", responses((status = 200)))]
/// Prometheus text.
pub async fn metrics(State(app): State<App>, headers: HeaderMap) -> Answer<Response> {
    app.may_scrape(&headers)?;
    if let Err(error) = app.authority().publish_gauges().await {
        tracing::debug!(%error, "no gauges");
    }
    let text = app.0.metrics.render();
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}
