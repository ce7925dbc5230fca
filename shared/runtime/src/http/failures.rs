//! Whoever tries tokens one after the other is slowed down.
//!
//! Invariant: nobody with a right token notices. Only answers that would say *unauthenticated* anyway are counted, all
//! sources together (a proxy may stand before all of them), so the memory is bounded by itself.

use std::num::NonZeroU32;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use cadastre_protocol::error::{Code, Problem};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

use super::problem_response;

/// Failures a second in the long run.
const PER_SECOND: NonZeroU32 = NonZeroU32::MIN.saturating_add(19);
/// And at once.
const AT_ONCE: NonZeroU32 = NonZeroU32::MIN.saturating_add(299);

/// See the module's documentation.
#[derive(Clone)]
pub(super) struct Failures(Arc<DefaultDirectRateLimiter>);

impl Failures {
    pub(super) fn new() -> Self {
        Self(Arc::new(RateLimiter::direct(Quota::per_second(PER_SECOND).allow_burst(AT_ONCE))))
    }

    pub(super) async fn bound(State(failures): State<Self>, request: Request, next: Next) -> Response {
        let response = next.run(request).await;
        if response.status() != StatusCode::UNAUTHORIZED || failures.0.check().is_ok() {
            return response;
        }
        metrics::counter!("cadastre_auth_failures_refused_total").increment(1);
        let text = "too many requests with no token, or a wrong one; those with a right one are served";
        problem_response(&Problem::new(Code::RateLimited, text).retry_after(1))
    }
}
