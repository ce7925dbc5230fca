//! The manners that both HTTP servers share.
//!
//! Purpose: one shape of error, one way in and out. Invariants: every error leaves as
//! `application/problem+json` with a code; a rejected body never reaches a handler; neither headers
//! nor bodies are logged; once the process is stopping, a new request gets 503 `shutting_down` while
//! those under way finish within a bound. Absent on purpose: routes, authentication rules (who a
//! token belongs to is the daemon's), TLS.

mod extract;
mod failures;
mod lane;
mod request_id;
mod serve;
#[cfg(test)]
mod tests;

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use cadastre_protocol::error::{Code, Problem};
use tower_http::catch_panic::CatchPanicLayer;
use tracing::Instrument;

pub use extract::{Json, Path, Query, json_body};
use failures::Failures;
pub use lane::{Lane, Short};
pub use serve::{Shutdown, serve};

use crate::clock::Stopwatch;

/// No request body may be larger.
pub const BODY_LIMIT: usize = 64 * 1024;
/// In and out; made where the caller sends none.
pub const REQUEST_ID: &str = "x-request-id";

/// A problem as an HTTP answer: what handlers return as their error.
#[derive(Clone, Debug)]
pub struct HttpProblem(pub Problem);

impl HttpProblem {
    /// A problem of this code.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self(Problem::new(code, detail))
    }
}

impl From<Problem> for HttpProblem {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for HttpProblem {
    fn into_response(self) -> Response {
        problem_response(&self.0)
    }
}

/// The answer that tells of a problem.
#[must_use]
pub fn problem_response(problem: &Problem) -> Response {
    let status = StatusCode::from_u16(problem.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = serde_json::to_vec(problem).unwrap_or_default();
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if let Some(seconds) = problem.retry_after_seconds {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if problem.code == Code::Unauthenticated {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// The token of `Authorization: Bearer TOKEN`.
#[must_use]
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// The id of this request, as the log and the answer carry it; an extension of every request.
#[derive(Clone, Debug)]
pub struct RequestId(pub String);

/// Puts the shared manners around a daemon's routes. Call it last: routes added later lack them.
pub fn finish<S: Clone + Send + Sync + 'static>(router: Router<S>, shutdown: &Shutdown) -> Router<S> {
    router
        .fallback(|| async { HttpProblem::new(Code::NotFound, "no such path; /openapi.json lists them") })
        .method_not_allowed_fallback(|| async {
            HttpProblem::new(Code::MethodNotAllowed, "this path has no such method")
        })
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(CatchPanicLayer::custom(|_| {
            tracing::error!("a handler panicked");
            problem_response(&Problem::new(Code::Internal, "a fault of ours; the log has the request id"))
        }))
        .layer(from_fn_with_state(Failures::new(), Failures::bound))
        .layer(from_fn_with_state(shutdown.clone(), manners))
}

/// Request id, span, metrics, and the answer while stopping.
async fn manners(State(shutdown): State<Shutdown>, mut request: Request, next: Next) -> Response {
    let watch = Stopwatch::start();
    let id = request_id::of(request.headers());
    let id_text = request_id::text(&id).to_owned();
    let method = method_label(request.method());
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| "unmatched".to_owned(), |path| path.as_str().to_owned());
    let span = tracing::info_span!("request", method, route, request_id = id_text);
    request.extensions_mut().insert(RequestId(id_text));
    let answer = async {
        if shutdown.is_triggered() {
            problem_response(&Problem::new(Code::ShuttingDown, "this process is stopping; try another one"))
        } else {
            next.run(request).await
        }
    };
    let mut response = answer.instrument(span.clone()).await;
    let (status, seconds) = (response.status(), watch.seconds());
    span.in_scope(|| {
        if status.is_server_error() && status != StatusCode::SERVICE_UNAVAILABLE {
            tracing::error!(status = status.as_u16(), seconds, "answered");
        } else {
            tracing::debug!(status = status.as_u16(), seconds, "answered");
        }
    });
    count(route, method, status, seconds);
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// One more request.
fn count(route: String, method: &'static str, status: StatusCode, seconds: f64) {
    metrics::counter!("cadastre_http_requests_total", "route" => route.clone(), "method" => method, "status" => status.as_u16().to_string())
        .increment(1);
    metrics::histogram!("cadastre_http_request_seconds", "route" => route).record(seconds);
}

/// Callers may invent methods; a label may not grow with them.
fn method_label(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "HEAD" => "HEAD",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}
