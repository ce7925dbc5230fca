//! An address of the authority that does not always answer as it should: not the primary, or with an answer
//! that it gave before.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::sync::{Arc, Mutex};

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
}

/// A running relay; it ends with the test's runtime.
#[derive(Clone, Default)]
pub struct Relay {
    pub url: String,
    mode: Arc<Mutex<Mode>>,
    asked: Arc<Mutex<u64>>,
    last: Arc<Mutex<Option<(StatusCode, Bytes)>>>,
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

    /// Requests so far.
    pub fn asked(&self) -> u64 {
        *self.asked.lock().unwrap()
    }
}

async fn handle(State(relay): State<Relay>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    *relay.asked.lock().unwrap() += 1;
    let mode = relay.mode.lock().unwrap().clone();
    let (primary, stale) = match mode {
        Mode::Standby => {
            let problem = json!({"type": "urn:cadastre:problem:upstream_unavailable", "title": "not primary",
                "status": 503, "code": "upstream_unavailable", "detail": "this one is not the primary"});
            return (StatusCode::SERVICE_UNAVAILABLE, axum::Json(problem)).into_response();
        }
        Mode::Primary(primary) => (primary, false),
        Mode::Stale(primary) => (primary, true),
    };
    let bearer = headers[header::AUTHORIZATION].to_str().unwrap();
    let request = reqwest::Client::new().post(format!("{primary}{uri}")).body(body);
    let Ok(answer) = request.header("authorization", bearer).send().await else {
        return StatusCode::BAD_GATEWAY.into_response();
    };
    let fresh = (StatusCode::from_u16(answer.status().as_u16()).unwrap(), answer.bytes().await.unwrap());
    let before = relay.last.lock().unwrap().replace(fresh.clone());
    match before {
        Some(before) if stale => {
            relay.set(Mode::Primary(primary));
            before.into_response()
        }
        _ => fresh.into_response(),
    }
}
