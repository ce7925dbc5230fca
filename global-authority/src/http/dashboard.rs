//! What the dashboard asks beside the API that everybody uses: aggregates, the number line, agents' own word, the audit.

use axum::extract::State;
use axum::http::HeaderMap;
use cadastre_core::decimal::parse_unsigned;
use cadastre_core::outlook::Level;
use cadastre_core::principal::Principal;
use cadastre_core::range::MAX_ORDINAL;
use cadastre_protocol::admin::{
    AgentsView, AuditPage, History, NamespacesPage, NumberLine, OperatorRole, Overview, WhoAmI,
};
use cadastre_protocol::error::Code;
use cadastre_protocol::usage::UseOfLimits;
use cadastre_runtime::errand::Errand;
use cadastre_runtime::http::{HttpProblem, Path, Query};
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

use super::{Answer, App, forbidden, name, refuse};
use crate::service::overview::Wanted;
use crate::service::usage;

/// Rows of a page of the matrix where nobody says how many.
const ROWS: usize = 25;
/// Entries of a page of the audit where nobody says how many.
const ENTRIES: u64 = 50;

#[utoipa::path(get, path = "/v1/whoami", responses((status = 200, body = WhoAmI)))]
/// Whose token this is: an operator's or a viewer's.
pub async fn whoami(State(app): State<App>, headers: HeaderMap) -> Answer<axum::Json<WhoAmI>> {
    match app.caller(&headers).await? {
        Principal::Operator(name) => Ok(axum::Json(WhoAmI { name, role: OperatorRole::Operator })),
        Principal::Viewer(name) => Ok(axum::Json(WhoAmI { name, role: OperatorRole::Viewer })),
        other => Err(forbidden(&other, "a viewer's or an operator's token is needed")),
    }
}

#[utoipa::path(get, path = "/v1/overview", responses((status = 200, body = Overview)))]
/// Is anything wrong, and which region runs dry first. Put together at most once a second.
pub async fn overview(State(app): State<App>, headers: HeaderMap) -> Answer<axum::Json<Overview>> {
    app.viewer(&headers).await?;
    Ok(axum::Json(app.authority().overview().await.map_err(refuse)?))
}

/// Which rows of the matrix.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct RowsQuery {
    /// Only names that contain this.
    matching: Option<String>,
    /// Only `watch` and worse, or only `act`.
    #[param(value_type = Option<String>)]
    level: Option<Level>,
    /// By name instead of worst first.
    #[serde(default)]
    by_name: bool,
    /// Rows before the page.
    #[serde(default)]
    offset: usize,
    /// Rows of the page (25; at most 200).
    limit: Option<usize>,
}

#[utoipa::path(get, path = "/v1/overview/namespaces", params(RowsQuery), responses((status = 200, body = NamespacesPage)))]
/// A page of the matrix of namespaces and regions, worst first.
pub async fn namespaces(
    State(app): State<App>,
    headers: HeaderMap,
    Query(query): Query<RowsQuery>,
) -> Answer<axum::Json<NamespacesPage>> {
    app.viewer(&headers).await?;
    let wanted = Wanted {
        matching: query.matching.filter(|text| !text.is_empty()),
        at_least: query.level.unwrap_or_default(),
        by_name: query.by_name,
        offset: query.offset,
        limit: query.limit.unwrap_or(ROWS),
    };
    Ok(axum::Json(app.authority().overview_namespaces(&wanted).await.map_err(refuse)?))
}

#[utoipa::path(get, path = "/v1/namespaces/{name}/history", params(("name" = String, Path)), responses((status = 200, body = History)))]
/// Runways of the last minutes, by region; kept in memory only.
pub async fn history(
    State(app): State<App>,
    headers: HeaderMap,
    Path(which): Path<String>,
) -> Answer<axum::Json<History>> {
    app.viewer(&headers).await?;
    Ok(axum::Json(app.authority().history(&name(&which)?)))
}

/// Which part of the number line.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct LineQuery {
    /// First ordinal (0).
    lo: Option<String>,
    /// End, exclusive (what was granted).
    hi: Option<String>,
}

#[utoipa::path(get, path = "/v1/namespaces/{name}/line", params(("name" = String, Path), LineQuery), responses((status = 200, body = NumberLine)))]
/// Who holds what of a number line, to scale. Of a time-based namespace each slot (`NAME@SLOT`) is a line.
pub async fn line(
    State(app): State<App>,
    headers: HeaderMap,
    Path(which): Path<String>,
    Query(query): Query<LineQuery>,
) -> Answer<axum::Json<NumberLine>> {
    app.viewer(&headers).await?;
    let (lo, hi) = (ordinal("lo", query.lo.as_deref())?, ordinal("hi", query.hi.as_deref())?);
    Ok(axum::Json(app.authority().line(&name(&which)?, lo, hi).await.map_err(refuse)?))
}

fn ordinal(key: &str, text: Option<&str>) -> Answer<Option<u64>> {
    match text.map(parse_unsigned) {
        None => Ok(None),
        Some(Ok(ordinal)) if ordinal <= MAX_ORDINAL => Ok(Some(ordinal)),
        Some(Ok(_)) => Err(HttpProblem::new(Code::InvalidRequest, format!("{key}: must be at most \"{MAX_ORDINAL}\""))),
        Some(Err(error)) => Err(HttpProblem::new(Code::InvalidRequest, format!("{key}: {error}"))),
    }
}

#[utoipa::path(get, path = "/v1/regions/{name}/agents", params(("name" = String, Path)), responses((status = 200, body = AgentsView)))]
/// What each live agent of a region says of itself: uplink, store, witness, clock.
pub async fn agents(
    State(app): State<App>,
    headers: HeaderMap,
    Path(which): Path<String>,
) -> Answer<axum::Json<AgentsView>> {
    app.viewer(&headers).await?;
    let wanted = name(&which)?;
    let regions = app.authority().regions().await.map_err(refuse)?;
    let region = regions.into_iter().find(|r| r.name == wanted);
    let region = region.ok_or_else(|| HttpProblem::new(Code::NotFound, format!("there is no region {which}")))?;
    let agents = app.authority().errands(&region.name, Errand::Read).await.map_err(refuse)?;
    Ok(axum::Json(AgentsView { agents: app.0.peers.statuses(agents).await }))
}

#[utoipa::path(get, path = "/v1/services/use", responses((status = 200, body = UseOfLimits)))]
/// What services use of their limits, by region, the nearest to a limit first; asked of the agents just now.
pub async fn uses(State(app): State<App>, headers: HeaderMap) -> Answer<axum::Json<UseOfLimits>> {
    app.viewer(&headers).await?;
    let mut said = Vec::new();
    for region in app.authority().regions().await.map_err(refuse)? {
        let agents = app.authority().errands(&region.name, Errand::Read).await.map_err(refuse)?;
        let asked = app.clone();
        said.push((region.name, tokio::spawn(async move { asked.0.peers.uses(agents).await })));
    }
    let mut heard = Vec::new();
    for (region, asked) in said {
        heard.push((region, asked.await.unwrap_or_default()));
    }
    Ok(axum::Json(usage::of_limits(&app.authority().known().roster, heard)))
}

/// Which part of a region's ledger.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct SegmentsQuery {
    /// Of which namespace.
    namespace: String,
    /// `next` of the page before.
    after: Option<String>,
}

#[utoipa::path(get, path = "/v1/regions/{name}/segments", params(("name" = String, Path), SegmentsQuery), responses((status = 200, description = "As `GET /v1/segments` of an agent")))]
/// A page of a region's own ledger, asked of one of its agents.
pub async fn segments(
    State(app): State<App>,
    headers: HeaderMap,
    Path(which): Path<String>,
    Query(query): Query<SegmentsQuery>,
) -> Answer<axum::Json<Value>> {
    app.viewer(&headers).await?;
    let (region, namespace) = (name(&which)?, name(&query.namespace)?);
    let after = ordinal("after", query.after.as_deref())?;
    let agents = app.authority().errands(&region, Errand::Read).await.map_err(refuse)?;
    match app.0.peers.segments(&agents, &namespace, after).await {
        Some(Ok(page)) => Ok(axum::Json(page)),
        Some(Err(problem)) => Err(HttpProblem(problem)),
        None => {
            let text = format!("no agent of region {region} can be asked for its ledger just now");
            Err(HttpProblem::new(Code::UpstreamUnavailable, text))
        }
    }
}

/// Which part of the audit.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct AuditQuery {
    /// `next` of the page before.
    before: Option<String>,
    /// Entries of the page (50; at most 500).
    limit: Option<u64>,
}

#[utoipa::path(get, path = "/v1/audit", params(AuditQuery), responses((status = 200, body = AuditPage)))]
/// Who did what, newest first.
pub async fn audit(
    State(app): State<App>,
    headers: HeaderMap,
    Query(query): Query<AuditQuery>,
) -> Answer<axum::Json<AuditPage>> {
    app.viewer(&headers).await?;
    let page = app.authority().audit_page(query.before.as_deref(), query.limit.unwrap_or(ENTRIES));
    Ok(axum::Json(page.await.map_err(refuse)?))
}
