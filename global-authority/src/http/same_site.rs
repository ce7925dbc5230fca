//! Another site's page cannot make a browser change anything here.
//!
//! The API takes tokens from the `Authorization` header only, which a browser never sends by itself, so a forged
//! request carries none. This is the second fence: a browser says where a request comes from, and a change that comes
//! from another site is refused before its token is looked at. Programs send no such header and are not concerned.

use axum::extract::Request;
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use cadastre_protocol::error::Code;
use cadastre_runtime::http::HttpProblem;

/// Lets reads and what is not another site's pass.
pub async fn same_site(request: Request, next: Next) -> Response {
    if !request.method().is_safe() && request.method() != Method::OPTIONS && is_foreign(request.headers()) {
        let text = "a change that another site's page asks for is refused; open this authority's own page";
        return HttpProblem::new(Code::Forbidden, text).into_response();
    }
    next.run(request).await
}

/// Fetch metadata: `same-origin` is the page itself, `none` is a person; a header that is absent is a program's.
fn is_foreign(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").map(|value| value.as_bytes());
    !matches!(site, None | Some(b"same-origin" | b"none"))
}
