//! The id of a request, as the log and the answer carry it.
//!
//! Purpose: the caller's own id where it sends a sane one, else one that no other request has. Invariant: what is
//! echoed can be a header. Absent on purpose: a question to the operating system for each request; a thread asks
//! once and counts on from there. A request id names a line in a log and guards nothing.

use std::cell::Cell;

use axum::http::{HeaderMap, HeaderValue};
use uuid::Uuid;

use super::REQUEST_ID;
use crate::entropy::{Entropy, SystemEntropy};

/// A caller's request id longer than this is replaced.
pub(super) const LIMIT: usize = 128;

thread_local! {
    static NEXT: Cell<u128> = Cell::new(SystemEntropy.uuid_v4().as_u128());
}

/// The request's id, as it is echoed: the caller's without a copy.
pub(super) fn of(headers: &HeaderMap) -> HeaderValue {
    let theirs = headers.get(REQUEST_ID).filter(|id| (1..=LIMIT).contains(&id.len()));
    theirs.filter(|id| id.as_bytes().iter().all(u8::is_ascii_graphic)).cloned().unwrap_or_else(fresh)
}

/// The same for the log: visible characters of ASCII only.
pub(super) fn text(id: &HeaderValue) -> &str {
    id.to_str().unwrap_or_default()
}

fn fresh() -> HeaderValue {
    let id = NEXT.with(|next| {
        let id = next.get();
        next.set(id.wrapping_add(1));
        id
    });
    let mut text = Uuid::encode_buffer();
    let text = Uuid::from_u128(id).hyphenated().encode_lower(&mut text);
    // Hexadecimal digits and hyphens can be a header.
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("-"))
}
