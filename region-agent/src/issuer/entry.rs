//! One issuing place: a namespace, or a service in one where it has blocks of its own.
//!
//! The path of an id is [`Entry::one`] or [`Entry::many`]: the cursor's atomics, then a short look at the
//! meter, which counts the rate and notices that a standby is wanted. Nothing here waits or fetches.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cadastre_core::ids::{Epoch, Name};
use cadastre_core::namespace::NamespaceEntry;
use cadastre_core::range::Range;
use cadastre_core::refill::{Backoff, LastRange, RateWindow};
use cadastre_core::segment::{Cursor, Left, Unissued};
use tokio::sync::Notify;

use crate::error::AgentError;
use crate::regional::Order;
use crate::sizing;

/// The first wait after a failed refill, and the longest.
const BACKOFF_MS: (u64, u64) = (50, 5_000);

/// How the next segment is coming along.
#[derive(Clone, Debug)]
pub enum Refill {
    /// Nothing is wanted.
    Idle,
    /// The refill loop is to start one.
    Wanted,
    /// One is under way.
    InFlight,
    /// The last one failed; the next is tried at this time of the monotonic clock.
    BackingOff {
        /// When.
        until_ms: u64,
        /// Why it failed.
        why: AgentError,
    },
}

impl Refill {
    /// The word shown in status.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Wanted | Self::InFlight => "in_flight",
            Self::BackingOff { .. } => "backing_off",
        }
    }
}

/// What the mutex guards.
struct Meter {
    window: RateWindow,
    refill: Refill,
    backoff: Option<Backoff>,
    /// The order of the last try: repeated verbatim until it is answered.
    order: Option<Order>,
    /// The newest segment: its size, and when it came.
    last: Option<(u64, u64)>,
    /// What all waiting callers together miss just now.
    waited_for: u64,
    /// Issued and not yet reported.
    unreported: u64,
    /// Callers found nothing since the last segment came.
    dry: bool,
}

/// How an entry is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Standing {
    /// Ids a second over the last minute.
    pub rate: f64,
    /// The busiest second of the last day.
    pub peak: f64,
    /// Unissued ordinals in its segments.
    pub left: u64,
    /// What waiting callers miss.
    pub waited_for: u64,
}

/// See the module's documentation.
pub struct Entry {
    /// In which namespace.
    pub namespace: Name,
    /// For which service; none where all services share it.
    pub service: Option<Name>,
    /// Under which epoch its segments were carved.
    pub epoch: Epoch,
    /// Told after every refill, done or failed.
    pub changed: Notify,
    cursor: Cursor,
    /// No segment may begin below: what this process issued before lies there.
    floor: u64,
    meter: Mutex<Meter>,
}

impl Entry {
    /// An entry with nothing to issue. After a change of epoch it goes on above what `before` ever held.
    #[must_use]
    pub fn new(namespace: Name, service: Option<Name>, epoch: Epoch, before: Option<&Self>) -> Self {
        let meter = Meter {
            window: before.map_or_else(RateWindow::new, |b| b.meter().window.clone()),
            refill: Refill::Idle,
            backoff: Backoff::new(BACKOFF_MS.0, BACKOFF_MS.1).ok(),
            order: None,
            last: None,
            waited_for: 0,
            unreported: 0,
            dry: false,
        };
        let floor = before.map_or(0, |b| b.floor.max(b.cursor.floor()));
        Self {
            namespace,
            service,
            epoch,
            changed: Notify::new(),
            cursor: Cursor::new(),
            floor,
            meter: Mutex::new(meter),
        }
    }

    fn meter(&self) -> MutexGuard<'_, Meter> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next ordinal, from memory.
    #[must_use]
    pub fn one(&self) -> Option<u64> {
        self.cursor.next()
    }

    /// Up to `want` ordinals, from memory; returns how many.
    pub fn many(&self, want: u64, into: &mut Vec<Range>) -> u64 {
        let mut taken = 0;
        while taken < want {
            let Some(range) = self.cursor.next_n(want - taken) else { break };
            taken += range.len();
            into.push(range);
        }
        taken
    }

    /// Up to `want` ordinals that follow one another in one segment; fewer at its end.
    #[must_use]
    pub fn run(&self, want: u64) -> Option<Range> {
        self.cursor.next_n(want)
    }

    /// What is left in memory.
    #[must_use]
    pub fn left(&self) -> Left {
        self.cursor.left()
    }

    /// Whether it issues nothing any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.cursor.is_closed()
    }

    /// Stops it for good; returns how many ordinals are lost with it.
    pub fn close(&self) -> u64 {
        let Unissued { tail, standby } = self.cursor.close();
        self.changed.notify_waiters();
        tail.map_or(0, |r| r.len()) + standby.map_or(0, |r| r.len())
    }

    /// Counts what was issued. True where a refill is wanted from now on.
    pub fn note(&self, settings: &NamespaceEntry, taken: u64, now_ms: u64) -> bool {
        let left = self.cursor.left();
        let mut meter = self.meter();
        meter.window.record(now_ms, taken);
        meter.unreported = meter.unreported.saturating_add(taken);
        meter.want(settings, left, now_ms)
    }

    /// Counts what a caller misses, for as long as it waits; and whether a refill is wanted from now on.
    pub fn miss(&self, settings: &NamespaceEntry, missing: u64, now_ms: u64) -> (Missing<'_>, bool) {
        let left = self.cursor.left();
        let mut meter = self.meter();
        meter.waited_for = meter.waited_for.saturating_add(missing);
        meter.dry |= meter.last.is_some();
        let wanted = meter.want(settings, left, now_ms);
        drop(meter);
        (Missing { entry: self, missing }, wanted)
    }

    /// How the next segment is coming along.
    #[must_use]
    pub fn refill(&self) -> Refill {
        self.meter().refill.clone()
    }

    /// Tries again at once what is waiting for a later try; true where there was something.
    pub fn kick(&self) -> bool {
        let mut meter = self.meter();
        let waits = matches!(meter.refill, Refill::BackingOff { .. });
        if waits {
            meter.refill = Refill::Wanted;
        }
        drop(meter);
        self.changed.notify_waiters();
        waits
    }

    /// Claims the refill, if one is to be started now: there is one in flight at most.
    pub fn claim(&self, now_ms: u64) -> bool {
        let mut meter = self.meter();
        let due = match &meter.refill {
            Refill::Wanted => true,
            Refill::BackingOff { until_ms, .. } => *until_ms <= now_ms,
            Refill::Idle | Refill::InFlight => false,
        };
        if due {
            meter.refill = Refill::InFlight;
        }
        due
    }

    /// When a failed refill is to be tried again, where one is.
    #[must_use]
    pub fn due_ms(&self) -> Option<u64> {
        match self.meter().refill {
            Refill::BackingOff { until_ms, .. } => Some(until_ms),
            Refill::Idle | Refill::Wanted | Refill::InFlight => None,
        }
    }

    /// The order to carve: the one that was not answered, or a new one of a fresh size.
    #[must_use]
    pub fn order(&self, settings: &NamespaceEntry, space: u64, now_ms: u64, make: impl FnOnce(u64) -> Order) -> Order {
        let mut meter = self.meter();
        if let Some(order) = &meter.order {
            return order.clone();
        }
        let last = meter.last.map(|(size, at)| LastRange { size, lasted_ms: now_ms.saturating_sub(at) });
        let rate = meter.window.rate_per_second(now_ms);
        let order = make(sizing::next_segment(settings, last, rate, meter.waited_for, space));
        meter.order = Some(order.clone());
        order
    }

    /// Installs a carved segment. `Ok` says whether callers had found nothing before; `Err` how many
    /// ordinals are lost because the entry was closed meanwhile or the segment lies below what was issued.
    ///
    /// # Errors
    /// The number of ordinals that will not be issued.
    pub fn filled(&self, settings: &NamespaceEntry, segment: Range, now_ms: u64) -> Result<bool, u64> {
        let installed = segment.lo() >= self.floor && self.cursor.install(segment).is_ok();
        let left = self.cursor.left();
        let mut meter = self.meter();
        let late = std::mem::take(&mut meter.dry);
        meter.order = None;
        if let Some(backoff) = &mut meter.backoff {
            backoff.reset();
        }
        meter.last = Some((segment.len(), now_ms));
        meter.refill = if installed && meter.low(settings, left, now_ms) { Refill::Wanted } else { Refill::Idle };
        drop(meter);
        self.changed.notify_waiters();
        if installed { Ok(late) } else { Err(segment.len()) }
    }

    /// Notes a failed refill. An order whose fate is open stays; a decided one is made anew.
    pub fn failed(&self, why: AgentError, random: u64, now_ms: u64) {
        let mut meter = self.meter();
        if matches!(why, AgentError::Problem(_) | AgentError::RegionDry(_)) {
            meter.order = None;
        }
        let wait = meter.backoff.as_mut().map_or(BACKOFF_MS.1, |b| b.failed(random));
        meter.refill = Refill::BackingOff { until_ms: now_ms.saturating_add(wait), why };
        drop(meter);
        self.changed.notify_waiters();
    }

    /// How it is doing.
    #[must_use]
    pub fn standing(&self, now_ms: u64) -> Standing {
        let left = self.cursor.left().total();
        let meter = self.meter();
        let (rate, peak) = (meter.window.rate_per_second(now_ms), meter.window.peak_per_second(now_ms));
        Standing { rate, peak, left, waited_for: meter.waited_for }
    }

    /// What was issued since this was last asked.
    pub fn unreported(&self) -> u64 {
        std::mem::take(&mut self.meter().unreported)
    }
}

/// A caller that waits; it is counted until this is dropped.
pub struct Missing<'a> {
    entry: &'a Entry,
    missing: u64,
}

impl Drop for Missing<'_> {
    fn drop(&mut self) {
        let mut meter = self.entry.meter();
        meter.waited_for = meter.waited_for.saturating_sub(self.missing);
    }
}

impl Meter {
    /// Asks for a refill, if one is needed and none is under way.
    fn want(&mut self, settings: &NamespaceEntry, left: Left, now_ms: u64) -> bool {
        let wanted = matches!(self.refill, Refill::Idle) && self.low(settings, left, now_ms);
        if wanted {
            self.refill = Refill::Wanted;
        }
        wanted
    }

    /// Whether a standby is wanted.
    fn low(&self, settings: &NamespaceEntry, left: Left, now_ms: u64) -> bool {
        if left.standby > 0 {
            return false;
        }
        let rate = self.window.rate_per_second(now_ms);
        left.active < sizing::segment_threshold(settings, left.active_len, rate).max(self.waited_for)
    }
}
