//! The agent's HTTP: parse, authenticate, call the front, map errors. No decision is made here.

mod drills;
mod duplicates;
mod ids;
mod ledger;
mod observe;
mod openapi;
mod origins;
mod record;
mod segments;
mod services;
mod workers;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use cadastre_core::ids::Name;
use cadastre_protocol::error::Code;
use cadastre_runtime::http::{HttpProblem, Shutdown, bearer, finish};
use cadastre_runtime::telemetry::Metrics;
use cadastre_runtime::token::{Secret, constant_time_eq};
use cadastre_runtime::uuid7::UuidSource;

use crate::agent::Agent;
use crate::error::{AgentError, problem, told};
use crate::front::{DEFAULT_WAIT, Front};
use crate::metrics::Asked;

pub use ledger::verdict;

/// Bounds how long a request waits for a refill.
pub const TIMEOUT_HEADER: &str = "cadastre-timeout-ms";
const DEFAULT_WAIT_MS: u64 = DEFAULT_WAIT.as_millis() as u64;
const MAX_WAIT_MS: u64 = 5_000;

/// What handlers share.
#[derive(Clone)]
pub struct App(Arc<Shared>);

struct Shared {
    front: Front,
    asked: Asked,
    uuids: UuidSource,
    metrics: Metrics,
    metrics_token: Option<Secret>,
}

type Answer<T> = Result<T, HttpProblem>;

/// Every error of the agent becomes a problem here.
fn refuse(error: AgentError) -> HttpProblem {
    HttpProblem(told(&error))
}

impl App {
    /// An app of an agent.
    #[must_use]
    pub fn new(agent: Arc<Agent>, metrics: Metrics, metrics_token: Option<Secret>) -> Self {
        let asked = Asked::new(&agent.ctx.me.region);
        Self(Arc::new(Shared { front: Front::new(agent), asked, uuids: UuidSource::new(), metrics, metrics_token }))
    }

    fn front(&self) -> &Front {
        &self.0.front
    }

    fn agent(&self) -> &Arc<Agent> {
        self.0.front.agent()
    }

    fn asked(&self) -> &Asked {
        &self.0.asked
    }

    fn may_scrape(&self, headers: &HeaderMap) -> Answer<()> {
        match &self.0.metrics_token {
            None => Ok(()),
            Some(wanted) if bearer(headers).is_some_and(|t| constant_time_eq(t, wanted.reveal())) => Ok(()),
            Some(_) => Err(refuse(problem(Code::Unauthenticated, "the metrics token is needed"))),
        }
    }
}

/// A name in a path or query; what cannot be a name cannot exist.
fn name(text: &str) -> Answer<Name> {
    Name::new(text).map_err(|e| HttpProblem::new(Code::InvalidRequest, format!("{text:?}: {e}")))
}

/// How long the caller is ready to wait.
fn wait(headers: &HeaderMap) -> Result<Duration, AgentError> {
    let Some(given) = headers.get(TIMEOUT_HEADER) else { return Ok(Duration::from_millis(DEFAULT_WAIT_MS)) };
    let ms = given.to_str().ok().and_then(|text| text.parse::<u64>().ok()).filter(|ms| *ms <= MAX_WAIT_MS);
    ms.map(Duration::from_millis).ok_or_else(|| {
        problem(Code::InvalidRequest, format!("{TIMEOUT_HEADER} must be 0 to {MAX_WAIT_MS} milliseconds"))
    })
}

/// All routes.
pub fn router(app: App, shutdown: &Shutdown) -> Router {
    let others = Router::new()
        .route("/v1/segments", post(segments::segment).get(ledger::segments))
        .route("/v1/segments/{segment_id}/return", post(segments::give_back))
        .route("/v1/workers", post(workers::take))
        .route("/v1/workers/{worker}/renew", post(workers::renew))
        .route("/v1/workers/{worker}", delete(workers::end))
        .route("/v1/origins/{namespace}/{id}", get(origins::origin))
        .route("/v1/duplicates", post(duplicates::report))
        .route("/v1/grants", get(record::grants))
        .route("/v1/testimony", get(record::testimony))
        .route("/v1/audit/verify", post(ledger::verify))
        .route("/v1/drills/abort", post(drills::abort))
        .route("/v1/drills", get(drills::drill))
        .route("/v1/services", get(services::uses))
        .route("/v1/status", get(observe::status))
        .route_layer(from_fn_with_state(app.clone(), callers_first));
    let routes = others
        // The way of every id; it looks itself before it reads.
        .route("/v1/ids", post(ids::ids))
        .route("/healthz", get(observe::healthz))
        .route("/readyz", get(observe::readyz))
        .route("/metrics", get(observe::metrics))
        .route("/openapi.json", get(openapi::document));
    finish(routes, shutdown).with_state(app)
}

/// Whoever is unknown hears that before its body or query is read.
async fn callers_first(State(app): State<App>, request: Request, next: Next) -> Response {
    match app.agent().ctx.view().callers.principal(bearer(request.headers())) {
        Ok(_) => next.run(request).await,
        Err(error) => refuse(error).into_response(),
    }
}
