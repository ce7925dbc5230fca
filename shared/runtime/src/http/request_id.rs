//! The id of a request, as the log and the answer carry it.
//!
//! Purpose: the caller's own id where it sends a sane one, else one that no other request has. Invariant: what is
//! echoed can be a header. Absent on purpose: a question to the operating system for each request; a thread asks
//! once and counts on from there. A request id names a line in a log and guards nothing.

use std::cell::Cell;

use axum::http::HeaderMap;
use uuid::Uuid;

use super::REQUEST_ID;
use crate::entropy::{Entropy, SystemEntropy};

/// A caller's request id longer than this is replaced.
pub(super) const LIMIT: usize = 128;

thread_local! {
    static NEXT: Cell<u128> = Cell::new(SystemEntropy.uuid_v4().as_u128());
}

/// The request's id.
pub(super) fn of(headers: &HeaderMap) -> String {
    headers
        .get(REQUEST_ID)
        .and_then(|value| value.to_str().ok())
        .filter(|id| !id.is_empty() && id.len() <= LIMIT)
        .filter(|id| id.bytes().all(|byte| byte.is_ascii_graphic()))
        .map_or_else(|| Uuid::from_u128(fresh()).to_string(), ToOwned::to_owned)
}

fn fresh() -> u128 {
    NEXT.with(|next| {
        let id = next.get();
        next.set(id.wrapping_add(1));
        id
    })
}
