//! The short way of the one request that comes a hundred thousand times a second.
//!
//! Purpose: the same manners as `finish` puts around every route (request id, refusal while stopping, metrics,
//! log), without a router, boxed layers and look-ups by name. Invariant: a caller cannot tell which way its
//! request went. Whoever answers here must not panic and bounds its body itself (`json_body` does). Absent on purpose:
//! everything that one path does not need; whatever is not it goes to the router.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::Response;
use cadastre_protocol::error::{Code, Problem};
use metrics::{Counter, Histogram};
use tower::Service;
use tracing::Instrument;

use super::{REQUEST_ID, RequestId, Shutdown, count, problem_response, request_id};
use crate::clock::Stopwatch;

/// What answers on the short way.
pub trait Short: Clone + Send + Sync + 'static {
    /// The path; only POST goes this way.
    const PATH: &'static str;

    /// The answer.
    fn answer(&self, request: Request) -> impl Future<Output = Response> + Send;
}

/// A router with a short way beside it. Cloned for every connection and request: one count each.
pub struct Lane<S>(Arc<Inner<S>>);

impl<S> Clone for Lane<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Inner<S> {
    short: S,
    router: Router,
    shutdown: Shutdown,
    answered: Counter,
    seconds: Histogram,
}

impl<S: Short> Lane<S> {
    /// A short way beside a router that has the manners of `finish`. To be made once metrics are set up.
    #[must_use]
    pub fn new(short: S, router: Router, shutdown: &Shutdown) -> Self {
        let answered = metrics::counter!("cadastre_http_requests_total", "route" => S::PATH, "method" => "POST", "status" => "200");
        let seconds = metrics::histogram!("cadastre_http_request_seconds", "route" => S::PATH);
        Self(Arc::new(Inner { short, router, shutdown: shutdown.clone(), answered, seconds }))
    }
}

impl<S: Short> Inner<S> {
    async fn short(&self, mut request: Request) -> Response {
        let watch = Stopwatch::start();
        let id = request_id::of(request.headers());
        let mut response = if self.shutdown.is_triggered() {
            problem_response(&Problem::new(Code::ShuttingDown, "this process is stopping; try another one"))
        } else if tracing::enabled!(tracing::Level::DEBUG) {
            let text = request_id::text(&id).to_owned();
            let span = tracing::info_span!("request", method = "POST", route = S::PATH, request_id = text);
            request.extensions_mut().insert(RequestId(text));
            self.short.answer(request).instrument(span).await
        } else {
            self.short.answer(request).await
        };
        self.note(&id, response.status(), watch.seconds());
        response.headers_mut().insert(REQUEST_ID, id);
        response
    }

    fn note(&self, id: &HeaderValue, status: StatusCode, seconds: f64) {
        if status == StatusCode::OK {
            self.answered.increment(1);
            self.seconds.record(seconds);
            return;
        }
        count(S::PATH.to_owned(), "POST", status, seconds);
        if status.is_server_error() && status != StatusCode::SERVICE_UNAVAILABLE {
            tracing::error!(
                route = S::PATH,
                request_id = request_id::text(id),
                status = status.as_u16(),
                seconds,
                "answered"
            );
        }
    }
}

impl<S: Short> Service<Request> for Lane<S> {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // A router is always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        if request.method() == Method::POST && request.uri().path() == S::PATH {
            let lane = Arc::clone(&self.0);
            return Box::pin(async move { Ok(lane.short(request).await) });
        }
        let mut router = self.0.router.clone();
        Box::pin(async move { Service::<Request>::call(&mut router, request).await })
    }
}
