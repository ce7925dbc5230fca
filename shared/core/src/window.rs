//! Time is a range too: windows of time-based namespaces.
//!
//! Each (namespace, slot) has a watermark at the authority, and each (namespace, slot, worker) one in the region, both in
//! whole units of the layout. A holder takes a window `[t0, t1)` above the watermark, exactly as a segment is taken from
//! a grant, and stamps only units inside it. So no clock decides whether ids are unique: a worker that was paused or
//! whose clock went back stamps its own window, and whoever comes after it begins at or above that window's end.
//!
//! Clocks decide availability only, and here is all that they decide: a window ends no later than the earlier of the
//! granter's and the asker's clock plus the policy's length, so that a clock that runs ahead stores nothing far in
//! the future; and a window that does not go on from the holder's own begins no more than [`CLOCK_BOUND_MS`] above the
//! clock that it is judged by.
//!
//! Absent on purpose: reading clocks, and storing anything.

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, Name};
use crate::layout::Layout;
use crate::range::Range;

/// How far clocks may be apart before it matters, in milliseconds.
pub const CLOCK_BOUND_MS: u64 = 1_000;

/// How far an asker's clock may be from the one that it is compared with, in milliseconds: a process that wants to become
/// a worker from its agent's, a region from the middle of everybody's. Its request may have been on its way for a while.
pub const ASKER_CLOCK_BOUND_MS: u64 = 5_000;

/// A slot of a time-based namespace, and who stamps in it: the roster's entry of the slot's own number line.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slot {
    /// The namespace.
    pub of: Name,
    /// The region field of its ids.
    pub number: u32,
    /// The region that stamps in it.
    pub region: Name,
    /// Under this epoch: the next one takes another slot, as workers of this one may be alive and cut off.
    pub epoch: Epoch,
}

/// Why there is no window.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum WindowRefusal {
    /// The bits of the timestamp are used up, for good.
    #[error("the layout's timestamp is at its end: move to a new namespace with another layout")]
    LayoutEnded,
    /// The clock is before the layout's epoch.
    #[error("the clock is before the layout's epoch")]
    BeforeEpoch,
    /// Everything up to then is given: the clocks have to reach it.
    #[error("time is given out until {until_ms} (milliseconds since the Unix epoch), and the clocks are behind that")]
    GivenUntil {
        /// When there is something to give again, milliseconds since the Unix epoch.
        until_ms: u64,
    },
    /// The asker's clock is too far from the others'.
    #[error(
        "this region's clock is {} ms {} most clocks: set it right (at most {ASKER_CLOCK_BOUND_MS} ms are allowed)",
        off_ms.unsigned_abs(), if *off_ms > 0 { "ahead of" } else { "behind" }
    )]
    ClockOff {
        /// How far ahead, in milliseconds; negative behind.
        off_ms: i64,
    },
}

/// What a region's window is decided by.
#[derive(Clone, Copy, Debug)]
pub struct RegionAsk {
    /// Everything below was given to somebody.
    pub watermark: u64,
    /// Whether the newest window of the slot is the asker's own, under its present epoch: then this one goes on from it.
    pub goes_on: bool,
    /// The authority's clock, milliseconds since the Unix epoch.
    pub granter_ms: u64,
    /// The asker's clock.
    pub asker_ms: u64,
    /// The median of all regions' clocks, where any was heard.
    pub median_ms: Option<u64>,
    /// The median of those and the authority's own.
    pub middle_ms: Option<u64>,
    /// How long a region that is cut off may stamp.
    pub length_ms: u64,
    /// At most so many units.
    pub want: u64,
}

/// The window to give a region. The slot's next watermark is its end.
///
/// # Errors
/// [`WindowRefusal`]; nothing is to be written then.
pub fn region_window(layout: &Layout, ask: &RegionAsk) -> Result<Range, WindowRefusal> {
    if let Some(middle) = ask.middle_ms.filter(|middle| ask.asker_ms.abs_diff(*middle) > ASKER_CLOCK_BOUND_MS) {
        let off_ms = i64::try_from(i128::from(ask.asker_ms) - i128::from(middle)).unwrap_or(i64::MAX);
        return Err(WindowRefusal::ClockOff { off_ms });
    }
    let together = ask.granter_ms.min(ask.asker_ms);
    let judged_ms = ask.median_ms.map_or(together, |median| together.min(median.saturating_add(CLOCK_BOUND_MS)));
    window(layout, ask.watermark, ask.goes_on, judged_ms, ask.length_ms, ask.want)
}

/// A window above `watermark`, judged by one clock.
fn window(
    layout: &Layout,
    watermark: u64,
    goes_on: bool,
    judged_ms: u64,
    length_ms: u64,
    want: u64,
) -> Result<Range, WindowRefusal> {
    if watermark >= layout.units() {
        return Err(WindowRefusal::LayoutEnded);
    }
    let now = layout.unit_of(judged_ms).ok_or(WindowRefusal::BeforeEpoch)?;
    if now >= layout.units() {
        return Err(WindowRefusal::LayoutEnded);
    }
    // A little into the past, where nobody was given it: a stamper whose clock is a little behind need not wait.
    let begin = now.saturating_sub(layout.units_for(CLOCK_BOUND_MS));
    // What was given by a clock that was behind is not caught up with piece by piece.
    let (lo, latest) = if goes_on && watermark >= begin {
        (watermark, u64::MAX)
    } else {
        (watermark.max(begin), now.saturating_add(layout.units_for(CLOCK_BOUND_MS)))
    };
    let end = now.saturating_add(layout.units_for(length_ms)).min(layout.units());
    let hi = end.min(lo.saturating_add(want.max(1)));
    let given = WindowRefusal::GivenUntil { until_ms: layout.begins_ms(lo) };
    if lo > latest {
        return Err(given);
    }
    Range::new(lo, hi).map_err(|_| given)
}

/// The middle one of the regions' clocks; the lower of two.
#[must_use]
pub fn median(mut clocks_ms: Vec<u64>) -> Option<u64> {
    clocks_ms.sort_unstable();
    clocks_ms.get(clocks_ms.len().checked_sub(1)? / 2).copied()
}

/// How a slot stands, at the authority.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SlotStanding {
    /// Its number.
    pub number: u32,
    /// Whether whoever it was given to may still ask for windows: then it is not free, whatever the time.
    pub living: bool,
    /// One past the last unit that was given in it.
    pub ends: u64,
}

/// The slot for a region that has none under its epoch: one that was never used, else the free one whose windows
/// ended first.
///
/// # Errors
/// When the next one is free, in milliseconds since the Unix epoch; `None` where all belong to living regions.
pub fn choose_slot(layout: &Layout, used: &[SlotStanding], now_ms: u64) -> Result<u32, Option<u64>> {
    let unused = (0..layout.slots()).find(|n| used.iter().all(|s| s.number != *n));
    if let Some(number) = unused {
        return Ok(number);
    }
    let ended = used.iter().filter(|s| !s.living).min_by_key(|s| (s.ends, s.number));
    let Some(first) = ended else { return Err(None) };
    let now = layout.unit_of(now_ms).unwrap_or(0);
    if first.ends <= now { Ok(first.number) } else { Err(Some(layout.begins_ms(first.ends))) }
}

/// What a worker's window is decided by, in its region.
#[derive(Clone, Copy, Debug)]
pub struct WorkerAsk {
    /// The region's clock, milliseconds since the Unix epoch.
    pub granter_ms: u64,
    /// The asker's clock, where it said it.
    pub asker_ms: Option<u64>,
    /// How long one that is cut off from its region may stamp.
    pub length_ms: u64,
    /// What the region was given, up to its end; windows that touch are one.
    pub held: Range,
    /// Nothing below is of use to the asker: it stamped that itself, as another worker.
    pub above: u64,
}

impl WorkerAsk {
    fn judged_ms(&self) -> u64 {
        self.asker_ms.map_or(self.granter_ms, |asker| asker.min(self.granter_ms))
    }

    fn within(&self, layout: &Layout, watermark: u64, goes_on: bool) -> Result<Range, WindowRefusal> {
        let above = if goes_on { watermark } else { watermark.max(self.held.lo()).max(self.above) };
        let whole = window(layout, above, goes_on, self.judged_ms(), self.length_ms, u64::MAX)?;
        let given = WindowRefusal::GivenUntil { until_ms: layout.begins_ms(self.held.hi()) };
        whole.intersection(&self.held).filter(|w| w.lo() == whole.lo()).ok_or(given)
    }
}

/// The worker to give a newcomer, and its window: the one that has been free longest, an unused one first. `used` has
/// every worker that ever had a window, with its watermark; one whose row cannot be read is `None`, and not free.
///
/// # Errors
/// When the next one may be free, in milliseconds since the Unix epoch, or why the region can give no window at all.
pub fn choose_worker(
    layout: &Layout,
    used: &[(u32, Option<u64>)],
    ask: &WorkerAsk,
) -> Result<(u32, Range), WorkerRefusal> {
    let fresh = (0..layout.workers()).find(|n| used.iter().all(|(used, _)| used != n));
    if let Some(worker) = fresh {
        return Ok((worker, ask.within(layout, 0, false)?));
    }
    let first = used.iter().filter_map(|(n, ends)| ends.map(|ends| (ends, *n))).min();
    let Some((ends, worker)) = first else { return Err(WorkerRefusal::NoneFree { until_ms: None }) };
    let now = layout.unit_of(ask.judged_ms()).ok_or(WindowRefusal::BeforeEpoch)?;
    if ends > now {
        return Err(WorkerRefusal::NoneFree { until_ms: Some(layout.begins_ms(ends)) });
    }
    Ok((worker, ask.within(layout, ends, false)?))
}

/// Why nobody becomes a worker.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum WorkerRefusal {
    /// Every worker id is somebody's.
    #[error("every worker id is taken")]
    NoneFree {
        /// When the first window ends, unless it is renewed; none where no row could be read.
        until_ms: Option<u64>,
    },
    /// The region has no time to give.
    #[error(transparent)]
    Window(#[from] WindowRefusal),
}

/// The new end of a window that is renewed by its holder; the caller's guard is that the watermark still is `hi`.
///
/// # Errors
/// [`WindowRefusal::GivenUntil`] where it would not grow: the region's own window has to be renewed first.
pub fn renewed(layout: &Layout, hi: u64, ask: &WorkerAsk) -> Result<u64, WindowRefusal> {
    ask.within(layout, hi, true).map(|window| window.hi())
}

/// Whether a renewal is due: a third of the length has passed.
#[must_use]
pub fn is_due(layout: &Layout, hi: u64, now_ms: u64, length_ms: u64) -> bool {
    now_ms.saturating_add(length_ms - length_ms / 3) >= layout.begins_ms(hi)
}

/// The watermark after a true end: one past the last unit that was stamped, within the window, of which one unit is
/// given up at least.
#[must_use]
pub fn true_end(window: Range, said: u64) -> u64 {
    said.clamp(window.lo() + 1, window.hi())
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
