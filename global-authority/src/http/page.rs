//! `GET /` and `/page/...`: the dashboard. Files of their own under `src/page/`, embedded; no build step.
//!
//! They hold no data: the browser asks the API that everybody uses, with the token that a person enters. Nothing is
//! loaded from elsewhere and no script stands in the page itself, so the policy can forbid both.

use axum::extract::Path;
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use cadastre_protocol::error::Code;
use cadastre_runtime::http::HttpProblem;

const HTML: &str = "text/html; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! files {
    ($($kind:ident $name:literal,)*) => {
        &[$(($name, $kind, include_str!(concat!("../page/", $name)))),*]
    };
}

/// Every file of the page.
const FILES: &[(&str, &str, &str)] = files! {
    HTML "index.html",
    SVG "icon.svg",
    CSS "style/base.css",
    CSS "style/parts.css",
    CSS "style/views.css",
    JS "main.js",
    JS "lib/api.js",
    JS "lib/dom.js",
    JS "lib/words.js",
    JS "lib/parts.js",
    JS "lib/session.js",
    JS "lib/confirm.js",
    JS "views/now.js",
    JS "views/headroom.js",
    JS "views/namespace.js",
    JS "views/line.js",
    JS "views/ledger.js",
    JS "views/regions.js",
    JS "views/region.js",
    JS "views/lookup.js",
    JS "views/services.js",
    JS "views/switches.js",
    JS "views/audit.js",
    JS "views/quarantine.js",
};

/// Only what is served here, no inline script or style, no frame, no form target.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'none'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'";

fn served(kind: &'static str, text: &'static str) -> Response {
    let headers: [(HeaderName, &str); 6] = [
        (header::CONTENT_TYPE, kind),
        // Asked for anew after an upgrade, without a version in every address.
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    (headers, text).into_response()
}

/// The page.
pub async fn page() -> Response {
    find("index.html")
}

/// One of its files.
pub async fn file(Path(name): Path<String>) -> Response {
    find(&name)
}

fn find(name: &str) -> Response {
    match FILES.iter().find(|(file, _, _)| *file == name) {
        Some((_, kind, text)) => served(kind, text),
        None => HttpProblem::new(Code::NotFound, "the page has no such file").into_response(),
    }
}
