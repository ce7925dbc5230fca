//! What else one could write instead of the cursor, and a bare HTTP server: the peers that are code.
//!
//! Each does less than ours: no close, no fence, no standby that is installed while others issue. They show what
//! the machine can do, and what is paid for the rest.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};

/// A shared counter and nothing else.
#[derive(Debug, Default)]
pub struct Bare(AtomicI64);

impl Bare {
    /// The next number.
    #[inline]
    pub fn next(&self) -> i64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    /// The first of `n` numbers.
    #[inline]
    pub fn take(&self, n: i64) -> i64 {
        self.0.fetch_add(n, Ordering::Relaxed)
    }
}

/// A counter with an end, as segments are written elsewhere.
#[derive(Debug)]
pub struct Segment {
    cursor: AtomicU64,
    end: u64,
}

impl Segment {
    fn new() -> Self {
        Self { cursor: AtomicU64::new(0), end: u64::MAX >> 1 }
    }

    #[inline]
    fn next(&self) -> Option<u64> {
        let taken = self.cursor.fetch_add(1, Ordering::Relaxed);
        (taken < self.end).then_some(taken)
    }
}

/// A segment behind an atomic pointer; the old ones are never freed.
#[derive(Debug)]
pub struct ByPointer(AtomicPtr<Segment>);

impl Default for ByPointer {
    fn default() -> Self {
        Self(AtomicPtr::new(Box::into_raw(Box::new(Segment::new()))))
    }
}

impl ByPointer {
    /// The next number.
    #[inline]
    #[allow(unsafe_code, reason = "the peer is what people write: a pointer that is never freed")]
    pub fn next(&self) -> Option<u64> {
        let segment = self.0.load(Ordering::Acquire);
        if ptr::eq(segment, ptr::null()) {
            return None;
        }
        // SAFETY: it was made by `Box::into_raw` and is never freed.
        unsafe { &*segment }.next()
    }
}

/// A segment behind `arc-swap`.
#[derive(Debug)]
pub struct BySwap(ArcSwap<Segment>);

impl Default for BySwap {
    fn default() -> Self {
        Self(ArcSwap::from_pointee(Segment::new()))
    }
}

impl BySwap {
    /// The next number.
    #[inline]
    pub fn next(&self) -> Option<u64> {
        self.0.load().next()
    }
}

/// `axum` with JSON in and JSON out, and a counter: no token, no limits, no metrics.
///
/// # Errors
/// Where the address cannot be used.
pub async fn bare_axum(address: SocketAddr) -> std::io::Result<()> {
    #[derive(serde::Deserialize)]
    struct Ask {
        namespace: String,
    }
    #[derive(serde::Serialize)]
    struct Answer {
        id: String,
    }
    type Counters = Arc<BTreeMap<String, Bare>>;
    async fn ids(State(counters): State<Counters>, Json(ask): Json<Ask>) -> Json<Answer> {
        let id = counters.get(&ask.namespace).map_or(0, Bare::next);
        Json(Answer { id: id.to_string() })
    }
    let counters: Counters = Arc::new(BTreeMap::from([("orders".to_owned(), Bare::default())]));
    let router = Router::new().route("/v1/ids", post(ids)).with_state(counters);
    axum::serve(tokio::net::TcpListener::bind(address).await?, router).await
}
