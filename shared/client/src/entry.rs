//! One namespace in one process: its lanes, its demand, and how its next segment is coming along.
//!
//! Issuers touch only the lanes. The mutex here is taken by callers who found nothing, and by the worker.
//!
//! Invariants: one refill is in flight at most; a segment is installed only at or above everything that was ever
//! installed here (so none is installed twice); once closed, nothing is issued or installed.
//!
//! Absent on purpose: requests, tasks, clocks.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cadastre_core::ids::{Epoch, Name};
use cadastre_core::refill::{Backoff, RefillPolicy};
use cadastre_core::segment::{Left, Unissued};
use tokio::sync::Notify;

use crate::conversation::Segment;
use crate::error::Error;
use crate::lane::Lane;
use crate::metrics;
use crate::refill::Meter;

/// The first wait after a failed refill, and the longest, in milliseconds.
const BACKOFF_MS: (u64, u64) = (50, 5_000);

/// How often the pace is sampled while a refill is under way, in milliseconds.
const SAMPLE_MS: u64 = 250;

/// How often an agent that is dry is asked again before another region's is, while nobody waits.
const PATIENT_TRIES: u32 = 3;

/// Wakes everybody who waits, in threads and in tasks.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    tasks: Notify,
    count: Mutex<u64>,
    threads: Condvar,
}

impl Turn {
    /// Wakes all.
    pub(crate) fn next(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.threads.notify_all();
        self.tasks.notify_waiters();
    }

    /// For tasks: enable it before looking, then wait.
    pub(crate) fn task(&self) -> tokio::sync::futures::Notified<'_> {
        self.tasks.notified()
    }

    /// For threads: read it before looking, then [`Self::wait`].
    pub(crate) fn count(&self) -> u64 {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the count is another one, or the time is over.
    pub(crate) fn wait(&self, seen: u64, longest: Duration) {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.threads.wait_timeout_while(count, longest, |count| *count == seen);
    }
}

#[derive(Clone, Debug)]
enum Refill {
    /// Nothing is wanted.
    Idle,
    /// The worker is to start one.
    Wanted,
    /// One is under way.
    InFlight,
    /// The last one failed.
    BackingOff { until_ms: u64, why: Error },
}

/// What the mutex guards.
struct State {
    meter: Meter,
    /// Lanes that may have something; the last one takes segments. Never empty.
    lanes: Vec<Arc<Lane>>,
    /// Where the two newest segments came from.
    sources: [Option<(Name, Epoch)>; 2],
    /// Ordinals that were installed and not given up.
    installed: u64,
    /// End of the highest segment ever installed.
    floor: u64,
    refill: Refill,
    backoff: Option<Backoff>,
    waited_for: u64,
    /// Of what was issued: already in the metrics.
    reported: u64,
    /// Somebody wanted an ID, or will: one that nobody uses is not refilled.
    used: bool,
    closed: bool,
}

/// See the module.
pub struct Entry {
    /// The namespace.
    pub name: Name,
    /// After every refill, done or failed, and at the close.
    pub(crate) changed: Turn,
    state: Mutex<State>,
}

/// What the worker found at one look.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Look {
    /// A refill was claimed: it is to be carried out now.
    pub claimed: bool,
    /// When to look again, in milliseconds from now.
    pub again_ms: Option<u64>,
}

impl Entry {
    /// Nothing is held, and nobody wants anything.
    pub fn new(name: Name, policy: RefillPolicy) -> Entry {
        let state = State {
            meter: Meter::new(policy),
            lanes: vec![Arc::default()],
            sources: [None, None],
            installed: 0,
            floor: 0,
            refill: Refill::Idle,
            backoff: Backoff::new(BACKOFF_MS.0, BACKOFF_MS.1).ok(),
            waited_for: 0,
            reported: 0,
            used: false,
            closed: false,
        };
        Entry { name, changed: Turn::default(), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lane where issuers begin.
    pub fn lane(&self) -> Arc<Lane> {
        self.state().lanes.first().cloned().unwrap_or_default()
    }

    /// What is in memory.
    pub fn left(&self) -> u64 {
        self.state().left().total()
    }

    /// Whether callers wait.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.state().waited_for > 0
    }

    /// Whether an agent that has nothing just now may be asked again first: nobody waits, and it was not asked often.
    pub(crate) fn has_time(&self) -> bool {
        let state = self.state();
        state.waited_for == 0 && state.backoff.as_ref().is_some_and(|b| b.attempt() < PATIENT_TRIES)
    }

    /// Counts what a caller misses until the result is dropped, and asks for a refill. The worker is to be woken.
    pub fn miss(&self, missing: u64, now_ms: u64) -> Missing<'_> {
        let mut state = self.state();
        state.waited_for = state.waited_for.saturating_add(missing);
        state.used = true;
        state.look(now_ms);
        Missing { entry: self, missing }
    }

    /// Asks for the first segment before anybody needs one. The worker is to be woken.
    pub fn warm_up(&self, now_ms: u64) {
        let mut state = self.state();
        state.used = true;
        state.look(now_ms);
    }

    /// Whether a caller who found nothing should wait: a refill is under way, or will be tried in time.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn outlook(&self, now_ms: u64, deadline_ms: u64) -> Result<(), Error> {
        let mut state = self.state();
        if state.closed {
            return Err(closed());
        }
        state.look(now_ms);
        match &state.refill {
            Refill::BackingOff { until_ms, why } if !why.retryable() || *until_ms >= deadline_ms => Err(why.clone()),
            Refill::Idle | Refill::Wanted | Refill::InFlight | Refill::BackingOff { .. } => Ok(()),
        }
    }

    /// Why a caller whose deadline came got nothing.
    pub(crate) fn why(&self) -> String {
        match &self.state().refill {
            Refill::BackingOff { why, .. } => why.to_string(),
            Refill::Idle | Refill::Wanted | Refill::InFlight => "the agent has not answered yet".to_owned(),
        }
    }

    /// The worker's look: samples, and claims a refill that is to be started.
    pub fn look(&self, now_ms: u64) -> Look {
        let mut state = self.state();
        if state.closed {
            return Look::default();
        }
        state.look(now_ms);
        let claimed = matches!(state.refill, Refill::Wanted);
        let mut again_ms = state.meter.look_again_ms(state.left(), now_ms);
        if claimed {
            state.refill = Refill::InFlight;
        }
        match &state.refill {
            // Past its time it waits for somebody who wants it: that one wakes the worker.
            Refill::BackingOff { until_ms, .. } => {
                again_ms = Some(until_ms.saturating_sub(now_ms)).filter(|ms| *ms > 0)
            }
            // Its end wakes the worker; until then only the pace is sampled.
            Refill::InFlight => again_ms = again_ms.map(|_| SAMPLE_MS),
            Refill::Idle | Refill::Wanted => {}
        }
        Look { claimed, again_ms }
    }

    /// What to ask for: how much, and from where on.
    pub(crate) fn need(&self, now_ms: u64) -> (u64, u64) {
        let state = self.state();
        (state.meter.want(state.waited_for, now_ms), state.floor)
    }

    /// Installs a segment. `Err` is how many ordinals are lost because it could not be.
    ///
    /// # Errors
    /// The length of the segment.
    pub(crate) fn filled(&self, segment: &Segment, now_ms: u64) -> Result<(), u64> {
        let mut state = self.state();
        state.sample(now_ms);
        let installed = state.install(segment);
        if installed {
            state.meter.installed(now_ms, segment.range.len(), segment.suggested_rate_per_second);
        }
        if let Some(backoff) = &mut state.backoff {
            backoff.reset();
        }
        state.refill = Refill::Idle;
        state.look(now_ms);
        drop(state);
        self.changed.next();
        if installed { Ok(()) } else { Err(segment.range.len()) }
    }

    /// Notes a failed refill.
    pub(crate) fn failed(&self, why: Error, random: u64, now_ms: u64) {
        let mut state = self.state();
        let wait_ms = state.backoff.as_mut().map_or(BACKOFF_MS.1, |b| b.failed(random));
        let limited = why.code() == "rate_limited";
        let asked_ms = why.retry_after().filter(|_| limited).map_or(0, |after| after.as_millis());
        let wait_ms = wait_ms.max(u64::try_from(asked_ms).unwrap_or(u64::MAX));
        state.refill = Refill::BackingOff { until_ms: now_ms.saturating_add(wait_ms), why };
        drop(state);
        self.changed.next();
    }

    /// Gives up all that came from a region under an epoch below `epoch`, or all there is; how much it was.
    pub(crate) fn give_up(&self, below: Option<(&Name, Epoch)>) -> u64 {
        let mut state = self.state();
        let older =
            |source: &(Name, Epoch)| below.is_none_or(|(region, epoch)| source.0 == *region && source.1 < epoch);
        if !state.sources.iter().flatten().any(older) {
            return 0;
        }
        let lost = state.close_lanes();
        let fresh = state.lanes.last().map(|last| last.append()).unwrap_or_default();
        state.lanes = vec![fresh];
        state.sources = [None, None];
        lost
    }

    /// Stops for good; how many ordinals were left.
    pub(crate) fn close(&self) -> u64 {
        let mut state = self.state();
        state.closed = true;
        let lost = state.close_lanes();
        drop(state);
        self.changed.next();
        lost
    }

    /// Writes the metrics.
    pub(crate) fn report(&self, now_ms: u64) {
        let mut state = self.state();
        if state.installed == 0 {
            return;
        }
        state.sample(now_ms);
        let (issued, left) = (state.issued(), state.left().total());
        let fresh = issued.saturating_sub(state.reported);
        state.reported = state.reported.max(issued);
        let rate = state.meter.measured_per_second(now_ms);
        drop(state);
        metrics::stands(&self.name, fresh, rate, left);
    }
}

pub(crate) fn closed() -> Error {
    Error::closed("it was shut down")
}

/// A caller that waits; it is counted until this is dropped.
pub struct Missing<'a> {
    entry: &'a Entry,
    missing: u64,
}

impl Drop for Missing<'_> {
    fn drop(&mut self) {
        let mut state = self.entry.state();
        state.waited_for = state.waited_for.saturating_sub(self.missing);
    }
}

impl State {
    /// All lanes as one: what is beyond the active segment counts as standby.
    fn left(&self) -> Left {
        let mut lanes = self.lanes.iter().map(|lane| lane.left()).filter(|left| left.total() > 0);
        let first = lanes.next().unwrap_or_default();
        lanes.fold(first, |all, more| Left { standby: all.standby.saturating_add(more.total()), ..all })
    }

    fn issued(&self) -> u64 {
        self.installed.saturating_sub(self.left().total())
    }

    fn sample(&mut self, now_ms: u64) {
        let issued = self.issued();
        self.meter.sample(now_ms, issued);
    }

    /// Samples, and wants a refill if it is time for one.
    fn look(&mut self, now_ms: u64) {
        self.sample(now_ms);
        let due = match &self.refill {
            Refill::Idle => true,
            // What nobody would answer otherwise is tried again only for somebody who waits for it.
            Refill::BackingOff { until_ms, why } => *until_ms <= now_ms && (why.retryable() || self.waited_for > 0),
            Refill::Wanted | Refill::InFlight => false,
        };
        if due {
            let low = self.meter.low(self.left(), self.waited_for, now_ms);
            self.refill = if low && self.used && !self.closed { Refill::Wanted } else { Refill::Idle };
        }
    }

    fn install(&mut self, segment: &Segment) -> bool {
        if self.closed || segment.range.lo() < self.floor {
            return false;
        }
        let Some(last) = self.lanes.last() else { return false };
        let lane = if last.fits(segment.mapping) { Arc::clone(last) } else { last.append() };
        if !lane.fits(segment.mapping) || lane.install(segment.range).is_err() {
            return false;
        }
        if !Arc::ptr_eq(&lane, last) {
            self.lanes.push(lane);
        }
        // A lane with a successor takes nothing more: once used up it is done with.
        let last = self.lanes.len() - 1;
        let mut at = 0;
        self.lanes.retain(|lane| {
            at += 1;
            at > last || lane.left().total() > 0
        });
        self.floor = segment.range.hi();
        self.installed = self.installed.saturating_add(segment.range.len());
        self.sources.swap(0, 1);
        self.sources[1] = Some((segment.region.clone(), segment.epoch));
        true
    }

    /// Closes every lane; what they had left counts as never installed.
    fn close_lanes(&mut self) -> u64 {
        let mut lost = 0_u64;
        for lane in &self.lanes {
            let Unissued { tail, standby } = lane.close();
            lost = lost.saturating_add(tail.map_or(0, |r| r.len()) + standby.map_or(0, |r| r.len()));
        }
        self.installed = self.installed.saturating_sub(lost);
        lost
    }
}

#[cfg(test)]
#[path = "entry/tests.rs"]
mod tests;
