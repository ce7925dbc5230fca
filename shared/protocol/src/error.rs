//! Error codes, and the problem body of RFC 9457.
//!
//! A code is for programs and never changes its meaning; a detail is for people and may. Whether a
//! retry helps is a property of the code, so that no caller guesses.

use serde::{Deserialize, Serialize};

use crate::operate::HomeAddress;

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident $text:literal $status:literal $retry:literal,)*) => {
        /// What went wrong, for programs.
        #[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
        pub enum Code { $($(#[$doc])* $variant,)* }

        impl Code {
            /// Every code, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The text on the wire.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// The HTTP status.
            #[must_use]
            pub fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }

            /// Whether the same request may succeed later.
            #[must_use]
            pub fn retryable(self) -> bool {
                match self { $(Self::$variant => $retry,)* }
            }

            /// Back from the text.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

codes! {
    /// No token, or one that nobody knows.
    Unauthenticated "unauthenticated" 401 false,
    /// A token of the wrong role, or a namespace that the caller is not admitted to.
    Forbidden "forbidden" 403 false,
    /// No such namespace.
    UnknownNamespace "unknown_namespace" 404 false,
    /// No such id was ever given out.
    UnknownId "unknown_id" 404 false,
    /// No such region, service, token, quarantine or path.
    NotFound "not_found" 404 false,
    /// The path exists, the method does not.
    MethodNotAllowed "method_not_allowed" 405 false,
    /// The same allocation id with other parameters.
    AllocationConflict "allocation_conflict" 409 false,
    /// The allocation id is too old to be known; make a new one.
    AllocationExpired "allocation_expired" 410 false,
    /// The caller's epoch was taken away.
    EpochFenced "epoch_fenced" 409 false,
    /// The namespace's home does not include this region.
    NotHome "not_home" 409 false,
    /// The answer was adopted before: the asker's store went back.
    AlreadyConfirmed "already_confirmed" 409 false,
    /// The store is not the one that is registered, or belongs to another cluster.
    WrongStore "wrong_store" 409 false,
    /// Two copies of this store, or of this process, are alive: this incarnation ends.
    CopyFound "copy_found" 409 false,
    /// A retired region's name stays taken.
    NameRetired "name_retired" 409 false,
    /// It exists already.
    AlreadyExists "already_exists" 409 false,
    /// Another drill is under way: there is one at most.
    DrillRunning "drill_running" 409 false,
    /// The life cycle has no such step from where it stands.
    NotAllowed "not_allowed" 409 false,
    /// Every slot of the layout belongs to a living region, or its windows have not ended.
    LayoutFull "layout_full" 409 true,
    /// The body or batch is above the stated limit.
    PayloadTooLarge "payload_too_large" 413 false,
    /// The request cannot be understood; the detail says what to send.
    InvalidRequest "invalid_request" 422 false,
    /// Above the service's limits.
    RateLimited "rate_limited" 429 true,
    /// The space is used up for good.
    Exhausted "exhausted" 503 false,
    /// Nothing left here right now; a refill is under way or the tier above is out of reach.
    SegmentDry "segment_dry" 503 true,
    /// The clock is behind the last id of a time-based namespace by more than is waited for.
    ClockRollback "clock_rollback" 503 true,
    /// The time that was given to this worker or region has ended; a renewal is under way or out of reach.
    WindowEnded "window_ended" 503 true,
    /// Every worker id of the region is taken; the answer says when the next one may be free.
    NoWorkerFree "no_worker_free" 503 true,
    /// The store may have gone back in time; nothing is given out until that is settled.
    Quarantined "quarantined" 503 true,
    /// The agent has not been confirmed yet what its store holds.
    StoreUnproven "store_unproven" 503 true,
    /// The namespace is frozen.
    Frozen "frozen" 503 true,
    /// The region holds as much as the policy lets it hold.
    HoldingLimit "holding_limit" 503 true,
    /// Written, but not proved to survive; the same request gets the answer once it is.
    NotDurable "not_durable" 503 true,
    /// The tier above, or the store, is out of reach.
    UpstreamUnavailable "upstream_unavailable" 503 true,
    /// The region is registered, draining, or waits for an established region to vouch for it.
    RegionNotReady "region_not_ready" 503 true,
    /// The process is stopping.
    ShuttingDown "shutting_down" 503 true,
    /// A fault of ours; the log has the request id.
    Internal "internal" 500 true,
}

impl Serialize for Code {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A newer peer may know codes that we do not: they are all treated as ours to retry.
        Ok(Self::parse(&String::deserialize(deserializer)?).unwrap_or(Self::Internal))
    }
}

/// The body of every error: `application/problem+json`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{}: {detail}", code.as_str())]
pub struct Problem {
    /// `urn:cadastre:problem:CODE`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The code in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// For programs.
    pub code: Code,
    /// For people: what is wrong and what to do.
    pub detail: String,
    /// When a retry may help, in seconds; also the `Retry-After` header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u32>,
    /// Of `not_home`: the regions that serve the namespace, and where.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub home: Vec<HomeAddress>,
}

impl Problem {
    /// A problem. Codes whose retry helps get a `Retry-After` of one second unless
    /// [`Self::retry_after`] says otherwise.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:cadastre:problem:{}", code.as_str()),
            title: code.as_str().replace('_', " "),
            status: code.status(),
            code,
            detail: detail.into(),
            retry_after_seconds: code.retryable().then_some(1),
            home: Vec::new(),
        }
    }

    /// Says where else to ask.
    #[must_use]
    pub fn at_home(mut self, home: Vec<HomeAddress>) -> Self {
        self.home = home;
        self
    }

    /// Says when to come back.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_seconds = Some(seconds.max(1));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_round_trips_and_final_ones_ask_for_no_retry() {
        for code in Code::ALL {
            assert_eq!(Code::parse(code.as_str()), Some(*code));
            assert_eq!(Problem::new(*code, "x").retry_after_seconds.is_some(), code.retryable());
        }
        assert!(!Code::Exhausted.retryable());
    }

    #[test]
    fn an_unknown_code_of_a_newer_peer_is_read_as_internal() {
        assert_eq!(serde_json::from_str::<Code>("\"brand_new\"").unwrap(), Code::Internal);
    }
}
