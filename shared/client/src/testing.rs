//! A double of the agents, in memory, for the tests of programs that use this client.
//!
//! [`Client::in_memory`](crate::Client::in_memory) is enough for most: it issues 1, 2, 3 ... of any namespace. With
//! an [`InMemory`] of your own you choose where a namespace begins, and make agents slow or refuse:
//!
//! ```
//! use cadastre_client::testing::InMemory;
//!
//! # fn main() -> Result<(), cadastre_client::Error> {
//! let agents = InMemory::new();
//! agents.define("orders", 1_000, 10);
//! let client = agents.client()?;
//! assert_eq!(client.next_blocking("orders")?.get(), 1_000);
//!
//! agents.refuse(Some("exhausted"));
//! let error = client.next_blocking("invoices").unwrap_err();
//! assert_eq!((error.code(), error.retryable()), ("exhausted", false));
//! # Ok(())
//! # }
//! ```
//!
//! Several clients of one double never get the same ID. Not usable in a forked child, which would repeat its
//! parent's: there it is an error.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cadastre_core::ids::{Epoch, GrantId, Name, SegmentId};
use cadastre_core::layout::Layout;
use cadastre_core::sequence::Sequence;
use cadastre_protocol::error::{Code, Problem};
use cadastre_protocol::ids::{SegmentAnswer, SegmentRequest};
use cadastre_protocol::workers::WorkerAnswer;

use crate::client::Client;
use crate::conversation::Failure;
use crate::error::Error;
use crate::fork::Here;
use crate::system;

/// One region that never forgets, as long as the test runs. Clones share it.
#[derive(Clone)]
pub struct InMemory {
    shared: Arc<Shared>,
}

struct Shared {
    here: Here,
    state: Mutex<State>,
}

struct State {
    region: Name,
    sequences: BTreeMap<Name, (Sequence, u64)>,
    refusal: Option<Code>,
    delay: Duration,
    most: u64,
    answered: BTreeMap<String, SegmentAnswer>,
    requests: u64,
    workers: u32,
}

impl Default for InMemory {
    fn default() -> InMemory {
        InMemory::new()
    }
}

impl InMemory {
    /// An agent that issues 1, 2, 3 ... of any namespace.
    ///
    /// # Panics
    /// Never: the region's name is a constant.
    #[must_use]
    #[allow(clippy::expect_used)]
    pub fn new() -> InMemory {
        let state = State {
            region: Name::new("memory").expect("a name"),
            sequences: BTreeMap::new(),
            refusal: None,
            delay: Duration::ZERO,
            most: 1_000_000,
            answered: BTreeMap::new(),
            requests: 0,
            workers: 0,
        };
        InMemory { shared: Arc::new(Shared { here: Here::new(), state: Mutex::new(state) }) }
    }

    /// A client of it, with the builder's defaults.
    ///
    /// # Errors
    /// As [`Builder::build`](crate::Builder::build).
    pub fn client(&self) -> Result<Client, Error> {
        Client::builder().name("test").in_memory(self).build()
    }

    /// Lets a namespace begin at `start` in steps of `increment` (not 0; negative falls). Before its first use.
    ///
    /// # Panics
    /// Where the name, or the sequence, is not one.
    #[allow(clippy::panic)]
    pub fn define(&self, namespace: &str, start: i64, increment: i64) {
        let name = Name::new(namespace).unwrap_or_else(|error| panic!("{namespace}: {error}"));
        // No more values than ordinals: 2^63-1.
        let (min, max) = match increment {
            ..0 => (start.saturating_sub(i64::MAX - 1), start),
            0.. => (start, start.saturating_add(i64::MAX - 1)),
        };
        let sequence = Sequence::new(start, increment, min, max).unwrap_or_else(|error| panic!("{namespace}: {error}"));
        self.state().sequences.insert(name, (sequence, 0));
    }

    /// From now on every request is refused with this code of the protocol; `None` ends that. An unknown code is
    /// read as `internal`.
    pub fn refuse(&self, code: Option<&str>) {
        self.state().refusal = code.map(|code| Code::parse(code).unwrap_or(Code::Internal));
    }

    /// How long every answer takes from now on.
    pub fn delay(&self, delay: Duration) {
        self.state().delay = delay;
    }

    /// The most IDs that one segment has from now on.
    pub fn segments_of(&self, most: u64) {
        self.state().most = most.max(1);
    }

    /// Requests so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.state().requests
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker, from now on for an hour; every namespace is time-based for those who ask so.
    pub(crate) fn worker(&self, path: &str, method: &str) -> Result<WorkerAnswer, Failure> {
        if !self.shared.here.is() {
            let text = "the in-memory double is its process's own: a forked child would repeat its ids";
            return Err(Failure::Refused(Problem::new(Code::Forbidden, text)));
        }
        let mut state = self.state();
        state.requests += 1;
        if let Some(code) = state.refusal {
            return Err(Failure::Refused(Problem::new(code, "as the test wants it")));
        }
        if path.is_empty() && method == "POST" {
            state.workers += 1;
        }
        let layout = Layout::default();
        let worker = path.trim_start_matches('/').split('/').next().and_then(|n| n.parse().ok());
        let worker = worker.unwrap_or(state.workers.saturating_sub(1));
        if worker >= layout.workers() {
            return Err(Failure::Refused(Problem::new(Code::NoWorkerFree, "the double has no more workers")));
        }
        let clock = system::wall_ms();
        let (lo, hi) = (clock.saturating_sub(1_000), clock.saturating_add(3_600_000));
        let unit = |ms: u64| layout.unit_of(ms).unwrap_or(0);
        Ok(WorkerAnswer {
            window_id: system::uuid_v4(),
            worker,
            slot: 0,
            layout,
            lo: unit(lo),
            hi: unit(hi),
            from: lo,
            until: hi,
            renew_after_seconds: 1_200,
            region: state.region.clone(),
            epoch: Epoch(1),
            clock,
            chain: String::new(),
            replayed: false,
        })
    }

    pub(crate) async fn ask(&self, request: &SegmentRequest) -> Result<SegmentAnswer, Failure> {
        if !self.shared.here.is() {
            let text = "the in-memory double is its process's own: a forked child would repeat its ids";
            return Err(Failure::Refused(Problem::new(Code::Forbidden, text)));
        }
        let delay = self.state().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        self.state().answer(request).map_err(Failure::Refused)
    }
}

impl State {
    fn answer(&mut self, request: &SegmentRequest) -> Result<SegmentAnswer, Problem> {
        self.requests += 1;
        if let Some(code) = self.refusal {
            return Err(Problem::new(code, "as the test wants it"));
        }
        let key = request.allocation_id.to_string();
        if let Some(before) = self.answered.get(&key) {
            return Ok(SegmentAnswer { replayed: true, ..before.clone() });
        }
        let most = self.most;
        let (sequence, next) = self.sequences.entry(request.namespace.clone()).or_default();
        let want = std::num::NonZeroU64::new(request.want.min(most)).unwrap_or(std::num::NonZeroU64::MIN);
        let exhausted = || Problem::new(Code::Exhausted, "no number is left");
        let range = cadastre_core::range::Range::starting_at(*next, want, sequence.capacity()).ok_or_else(exhausted)?;
        let (first, last) = sequence.first_last(range).ok_or_else(exhausted)?;
        *next = range.hi();
        let answer = SegmentAnswer {
            segment_id: SegmentId(system::uuid_v4()),
            grant_id: GrantId(system::uuid_v4()),
            lo: range.lo(),
            hi: range.hi(),
            first,
            last,
            increment: sequence.increment(),
            region: self.region.clone(),
            epoch: Epoch(1),
            retry_until: u64::MAX >> 1,
            suggested_rate_per_second: range.len() as f64 / 60.0,
            chain: key.clone(),
            replayed: false,
        };
        self.answered.insert(key, answer.clone());
        Ok(answer)
    }
}
