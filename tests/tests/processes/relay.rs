//! An address of the authority that does not always answer as it should: not the primary, or with an answer
//! that it gave before.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// What it does with the next request.
#[derive(Clone, Debug, Default)]
pub enum Mode {
    /// 503: another one is the primary.
    #[default]
    Standby,
    /// Passes it on to this authority, and the answer back.
    Primary(String),
    /// Passes it on, and gives back the answer before the one that came: once, then it is a primary.
    Stale(String),
    /// A primary, until an answer carries a grant: that one is kept back until [`Relay::release`].
    Hold(String),
}

/// A running relay; it ends with the test's runtime.
#[derive(Clone, Default)]
pub struct Relay {
    pub url: String,
    mode: Arc<Mutex<Mode>>,
    asked: Arc<Mutex<u64>>,
    last: Arc<Mutex<Option<(StatusCode, Bytes)>>>,
    held: Arc<Mutex<Option<Value>>>,
    released: Arc<Notify>,
}

impl Relay {
    /// One that is no primary yet.
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind(tests::ports::free_addr()).await.unwrap();
        let relay = Self { url: format!("http://{}", listener.local_addr().unwrap()), ..Self::default() };
        let app = Router::new().fallback(handle).with_state(relay.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        relay
    }

    /// From the next request on.
    pub fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
    }

    /// Whether the answer before was given once more.
    pub fn is_primary(&self) -> bool {
        matches!(*self.mode.lock().unwrap(), Mode::Primary(_))
    }

    /// The grants of the answer that is kept back.
    pub fn held(&self) -> Option<Value> {
        self.held.lock().unwrap().clone()
    }

    /// Lets it go on its way; from now on it is a primary of this authority.
    pub fn release(&self, primary: &str) {
        self.set(Mode::Primary(primary.to_owned()));
        self.released.notify_one();
    }

    /// Requests so far.
    pub fn asked(&self) -> u64 {
        *self.asked.lock().unwrap()
    }
}

async fn handle(State(relay): State<Relay>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    *relay.asked.lock().unwrap() += 1;
    let mode = relay.mode.lock().unwrap().clone();
    let holds = matches!(mode, Mode::Hold(_));
    let (primary, stale) = match mode {
        Mode::Standby => {
            let problem = json!({"type": "urn:cadastre:problem:upstream_unavailable", "title": "not primary",
                "status": 503, "code": "upstream_unavailable", "detail": "this one is not the primary"});
            return (StatusCode::SERVICE_UNAVAILABLE, axum::Json(problem)).into_response();
        }
        Mode::Primary(primary) | Mode::Hold(primary) => (primary, false),
        Mode::Stale(primary) => (primary, true),
    };
    let bearer = headers[header::AUTHORIZATION].to_str().unwrap();
    let request = tests::http::client().post(format!("{primary}{uri}")).body(body);
    let Ok(answer) = request.header("authorization", bearer).send().await else {
        return StatusCode::BAD_GATEWAY.into_response();
    };
    let fresh = (StatusCode::from_u16(answer.status().as_u16()).unwrap(), answer.bytes().await.unwrap());
    let grants = serde_json::from_slice::<Value>(&fresh.1).unwrap_or_default()["grants"].clone();
    if holds && grants.as_array().is_some_and(|all| !all.is_empty()) {
        *relay.held.lock().unwrap() = Some(grants);
        relay.released.notified().await;
    }
    let before = relay.last.lock().unwrap().replace(fresh.clone());
    match before {
        Some(before) if stale => {
            relay.set(Mode::Primary(primary));
            before.into_response()
        }
        _ => fresh.into_response(),
    }
}
