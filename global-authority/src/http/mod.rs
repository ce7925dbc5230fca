//! The authority's HTTP: parse, authenticate, call the service, map errors. No decision is made here.

mod admin;
mod dashboard;
mod observe;
mod openapi;
mod operate;
mod page;
mod rebuild;
mod regions;
mod same_site;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::HeaderMap;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use cadastre_core::ids::Name;
use cadastre_core::principal::Principal;
use cadastre_protocol::error::{Code, Problem};
use cadastre_protocol::link::MAX_LINK_BYTES;
use cadastre_runtime::http::{HttpProblem, Shutdown, bearer, finish};
use cadastre_runtime::telemetry::Metrics;
use cadastre_runtime::token::{Secret, constant_time_eq};

use crate::peers::Peers;
use crate::service::{Authority, ServiceError};

/// What handlers share.
#[derive(Clone)]
pub struct App(Arc<Shared>);

struct Shared {
    authority: Arc<Authority>,
    peers: Peers,
    metrics: Metrics,
    metrics_token: Option<Secret>,
}

type Answer<T> = Result<T, HttpProblem>;

/// Every service error becomes a problem here, and is logged here where it is ours.
fn refuse(error: ServiceError) -> HttpProblem {
    let problem = error.to_problem();
    if !matches!(error, ServiceError::Problem(_)) {
        tracing::warn!(code = problem.code.as_str(), %error, "refused");
    }
    HttpProblem(problem)
}

impl App {
    /// An app of an authority that asks agents through `peers`.
    #[must_use]
    pub fn new(authority: Arc<Authority>, peers: Peers, metrics: Metrics, metrics_token: Option<Secret>) -> Self {
        Self(Arc::new(Shared { authority, peers, metrics, metrics_token }))
    }

    fn authority(&self) -> &Arc<Authority> {
        &self.0.authority
    }

    async fn caller(&self, headers: &HeaderMap) -> Answer<Principal> {
        let token = bearer(headers).ok_or_else(|| refuse(ServiceError::unauthenticated()))?;
        self.authority().authenticate(token).await.map_err(refuse)
    }

    /// An operator; the words that the audit names it by.
    async fn operator(&self, headers: &HeaderMap) -> Answer<String> {
        match self.caller(headers).await? {
            principal @ Principal::Operator(_) => Ok(principal.describe()),
            other => Err(forbidden(&other, "an operator's token is needed")),
        }
    }

    /// An operator or a viewer.
    async fn viewer(&self, headers: &HeaderMap) -> Answer<()> {
        match self.caller(headers).await? {
            Principal::Operator(_) | Principal::Viewer(_) => Ok(()),
            other => Err(forbidden(&other, "a viewer's or an operator's token is needed")),
        }
    }

    /// A region's agent.
    async fn region(&self, headers: &HeaderMap) -> Answer<Name> {
        match self.caller(headers).await? {
            Principal::Region(name) => Ok(name),
            other => Err(forbidden(&other, "a region's token is needed")),
        }
    }

    /// Whoever may know where ids of `namespace` come from.
    async fn reader_of(&self, headers: &HeaderMap, namespace: &Name) -> Answer<()> {
        match self.caller(headers).await? {
            Principal::Operator(_) | Principal::Viewer(_) => Ok(()),
            Principal::Service(name) if self.authority().admits(&name, namespace) => Ok(()),
            other => Err(forbidden(&other, "not admitted to this namespace")),
        }
    }

    fn may_scrape(&self, headers: &HeaderMap) -> Answer<()> {
        match &self.0.metrics_token {
            None => Ok(()),
            Some(wanted) if bearer(headers).is_some_and(|t| constant_time_eq(t, wanted.reveal())) => Ok(()),
            Some(_) => Err(refuse(ServiceError::unauthenticated())),
        }
    }
}

fn forbidden(who: &Principal, why: &str) -> HttpProblem {
    HttpProblem(Problem::new(Code::Forbidden, format!("{why}; this is the token of {}", who.describe())))
}

/// A name in a path; what cannot be a name cannot exist.
fn name(text: &str) -> Answer<Name> {
    Name::new(text).map_err(|e| HttpProblem::new(Code::InvalidRequest, format!("{text:?}: {e}")))
}

/// All routes.
pub fn router(app: App, shutdown: &Shutdown) -> Router {
    let link = Router::new()
        .route("/v1/grants", post(regions::message))
        .route("/v1/heartbeats", post(regions::message))
        .route_layer(from_fn_with_state(app.clone(), regions_first));
    let rebuild = Router::new()
        .route("/v1/rebuild", post(rebuild::record))
        .route("/v1/rebuild/grants", post(rebuild::grants))
        .route_layer(from_fn_with_state(app.clone(), operators_first));
    let link = link.merge(rebuild).layer(DefaultBodyLimit::max(MAX_LINK_BYTES));
    let admin = Router::new()
        .route("/v1/namespaces", post(admin::new_namespace).get(admin::namespaces))
        .route(
            "/v1/namespaces/{name}",
            get(admin::namespace).patch(admin::patch_namespace).delete(admin::delete_namespace),
        )
        .route("/v1/services", post(admin::new_service).get(admin::services))
        .route("/v1/services/{name}", axum::routing::patch(admin::patch_service))
        .route("/v1/services/{name}/tokens", post(admin::new_service_token))
        .route("/v1/services/{name}/tokens/{id}", delete(admin::revoke_service_token))
        .route("/v1/operators", post(admin::new_operator).get(admin::operators))
        .route("/v1/operators/{name}/tokens", post(admin::new_operator_token))
        .route("/v1/operators/{name}/tokens/{id}", delete(admin::revoke_operator_token))
        .route("/v1/regions", post(regions::new_region).get(regions::regions))
        .route("/v1/regions/{name}/tokens", post(regions::new_token))
        .route("/v1/regions/{name}/tokens/{id}", delete(admin::revoke_region_token))
        .route("/v1/regions/{name}/drain", post(regions::drain))
        .route("/v1/regions/{name}/fence", post(regions::fence))
        .route("/v1/regions/{name}/recover", post(regions::recover))
        .route("/v1/regions/{name}/retire", post(regions::retire));
    let observe = Router::new()
        .route("/v1/headroom", get(observe::headroom))
        .route("/v1/grants", get(observe::grants))
        .route("/v1/origins/{namespace}/{id}", get(observe::origin))
        .route("/v1/audit/verify", post(observe::verify))
        .route("/v1/switches", post(operate::new_switch).get(operate::switches))
        .route("/v1/switches/{id}", get(operate::switch))
        .route("/v1/switches/{id}/resume", post(operate::resume))
        .route("/v1/switches/{id}/back-out", post(operate::back_out))
        .route("/v1/drills", post(operate::new_drill).get(operate::drills))
        .route("/v1/drills/schedule", put(operate::set_schedule).delete(operate::remove_schedule))
        .route("/v1/drills/{id}", get(operate::drill))
        .route("/v1/drills/{id}/abort", post(operate::abort))
        .route("/v1/quarantines", get(observe::quarantines))
        .route("/v1/quarantines/{namespace}/lift", post(observe::lift))
        .route("/healthz", get(observe::healthz))
        .route("/readyz", get(observe::readyz))
        .route("/metrics", get(observe::metrics))
        .route("/openapi.json", get(openapi::document))
        .route("/", get(page::page))
        .route("/page/{*file}", get(page::file));
    let dashboard = Router::new()
        .route("/v1/whoami", get(dashboard::whoami))
        .route("/v1/overview", get(dashboard::overview))
        .route("/v1/overview/namespaces", get(dashboard::namespaces))
        .route("/v1/namespaces/{name}/history", get(dashboard::history))
        .route("/v1/namespaces/{name}/line", get(dashboard::line))
        .route("/v1/regions/{name}/agents", get(dashboard::agents))
        .route("/v1/regions/{name}/segments", get(dashboard::segments))
        .route("/v1/services/use", get(dashboard::uses))
        .route("/v1/audit", get(dashboard::audit));
    let all = link.merge(admin).merge(observe).merge(dashboard);
    let all = all.layer(from_fn_with_state(app.clone(), callers_first));
    finish(all.layer(from_fn(same_site::same_site)), shutdown).with_state(app)
}

/// Whoever is unknown hears that before anything that it sent is read: neither its body nor its query.
async fn callers_first(State(app): State<App>, request: Request, next: Next) -> Response {
    if request.uri().path().starts_with("/v1/")
        && let Err(problem) = app.caller(request.headers()).await
    {
        return problem.into_response();
    }
    next.run(request).await
}

/// Bodies of this size are read of regions only.
async fn regions_first(State(app): State<App>, request: Request, next: Next) -> Response {
    match app.region(request.headers()).await {
        Ok(_) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// And of operators.
async fn operators_first(State(app): State<App>, request: Request, next: Next) -> Response {
    match app.operator(request.headers()).await {
        Ok(_) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}
