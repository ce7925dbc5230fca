//! The issuing cursor of one (process, namespace): one active segment, one standby.
//!
//! Purpose: the path of one ID. It writes one cache line and reads another; nothing of it is ever saved.
//!
//! Invariant: an ordinal is issued at most once, only from a segment that was installed, each segment is
//! installed once (they must ascend), and whatever is issued after something else in happens-before order
//! is larger. Ordinals may be lost (see below), never repeated.
//!
//! Who may change it: only with the argument below, its tests and, better, a model checker in hand. It is
//! the only file with atomics.
//!
//! Absent on purpose: fetching (the caller refills), waiting (dry is `None`, at once), persistence, a
//! length limit, and knowledge of time, rates and forks.
//!
//! # State
//!
//! In a cache line of its own: `cursor`, the next ordinal itself. In another: `end`, one past the last ordinal of
//! the active segment. Behind a mutex: the standby, and the end of all that was installed. Issuers only ever raise
//! `cursor`; only the holder of the mutex sets it, or writes `end`. A *switch* makes the standby active. It
//! happens only when `cursor >= end`, which once true stays true until then, and it writes
//!
//! `cursor.swap(lo)` (Release), then `end = hi` (Release).
//!
//! (A plain store would do. With a swap every write of `cursor` is a read-modify-write, so that each names
//! the one before it; model checkers that do not order a racing store among the adds need that.)
//!
//! (Two lines, because an issuer reads `end` before it adds. In the line of `cursor`, which the others are writing,
//! that read would fetch the line once to share it and the add once more to own it; `end` alone is in every
//! processor's cache from one switch to the next. Nothing below depends on where the two lie.)
//!
//! Call the time from one switch's swap of `cursor` to the next one's, in the modification order of
//! `cursor`, a *turn*; turn k has the segment `[lo_k, hi_k)`, and segments ascend: `hi_k <= lo_j` for k < j.
//!
//! # One at a time: `next`
//!
//! `e = end` (Acquire), then `o = cursor.fetch_add(1)` (Acquire); `o` is issued iff `o < e`. Why that is right:
//!
//! - Let `e` be the end of turn k. Reading it acquires turn k's swap of `cursor`, so the add comes after
//!   that swap, in turn k or in a later one. (With the two writes the other way round, a thread that has
//!   overshot the old end could find its `o` below the new one, and `lo` would be issued twice.)
//! - The add is in turn k and `o < e`: `o` lies in segment k, and no other add of turn k returned it.
//! - The add is in a later turn j: `o >= lo_j >= hi_k = e`: not issued. That `o` of segment j is lost. It
//!   happens at most once per thread that was inside `next` during the switch: the thread then goes to the
//!   mutex, or sees another end, before it adds again. Nothing else is ever lost.
//! - So an issued ordinal belongs to one add of its own turn; segments of different turns are disjoint.
//! - Any pause between the two steps is harmless: nothing here is a tag that could come round again.
//! - Wrap: ends are below 2^63, so the adds of dry callers would need 2^63 more to come round, 2^62 to look closed,
//!   and a closed cursor 2^62 to come round: at 10^9 a second a century each.
//! - Order: if one call happened before another, its add comes first in the modification order. In one turn
//!   that means smaller; in an earlier turn too, as segments ascend.
//! - Nothing above needs more of the add than its place in the modification order of `cursor`. It is Acquire
//!   for the bound on the gap: an add that lands in turn j acquires its swap, and with it that a standby was
//!   there, so that the thread cannot take a stale look, think it is dry, and come back to lose another.
//!
//! # Many at a time: `next_n`
//!
//! `e = end` (Acquire), `c = cursor`; if `c < e`, `compare_exchange(c, c + n)` with `c + n <= e`. As above, `c`
//! is of the turn of `e`. Success means that `cursor` is still `c`; no later turn, nor the closed state, has a
//! value below `e`, so it is the same turn, and `[c, c + n)` was nobody else's. Nothing is lost or overshot,
//! which is why a gap-sensitive caller uses `next_n(1)`. The price is a retry when another thread got ahead.
//!
//! # Closing
//!
//! `cursor.swap(CLOSED)`, a number above every end, is the one moment: adds before it returned less than the
//! swap did, adds after it return no less than `CLOSED`. So the tail, from what the swap returned to the end,
//! is exact: nothing of it was or will be issued. No switch follows, as it needs the mutex and an open state.
//!
//! # When it is dry
//!
//! A thread that finds the segment used up looks at `standby_len` before it takes the mutex, so that callers
//! of a dry cursor do not queue. It may read 0 because another thread has just switched: that one wrote `end`
//! before `standby_len` (Release), so reading `end` again after it (Acquire) shows a change: try again.
//! In the middle of a switch `standby_len` is not yet 0: the thread waits on the mutex for those few stores.
//! Having seen the segment used up itself, it then finds it so under the mutex, or switched: no spinning.
//!
//! Every path is run through a model checker on every test run (`tests/tests/cursor_loom.rs`): that crate compiles this
//! very file with the checker's primitives in place of `crate::sync`.

use std::num::NonZeroU64;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::range::Range;
use crate::sync::{AtomicU64, Mutex, MutexGuard};

/// The cursor of a closed [`Cursor`]: 2^62 adds above every `end`, so that no crowd of dry callers of an open one gets
/// there, and as many below the wrap.
const CLOSED: u64 = 3 << 62;

/// Why a segment is not taken as the standby. The segment is not used; the caller still has it.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum InstallError {
    /// There is a standby already.
    #[error("a standby segment is installed already")]
    Occupied,
    /// The segment begins below the end of one that was installed before, so it may have been used.
    #[error("segment {segment} begins below {floor}, the end of what was installed before")]
    NotAscending {
        /// The segment that was refused.
        segment: Range,
        /// The lowest `lo` that is accepted.
        floor: u64,
    },
    /// The cursor is closed for good.
    #[error("the cursor is closed")]
    Closed,
}

/// What a closed cursor had left. Both parts are ordinals that were not and will not be issued here.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct Unissued {
    /// The end of the active segment; `None` when it was used up, or there was none.
    pub tail: Option<Range>,
    /// The whole standby, if there was one.
    pub standby: Option<Range>,
}

/// What is left, read without a lock: exact when nobody issues meanwhile, else a moment old.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct Left {
    /// Ordinals left in the active segment.
    pub active: u64,
    /// Ordinals in the standby; 0 when there is none.
    pub standby: u64,
    /// Length of the active segment when it was installed; 0 before the first.
    pub active_len: u64,
    /// The next ordinal of the active segment; 0 where `active` is.
    pub next: u64,
}

impl Left {
    /// Ordinals left in both.
    pub const fn total(&self) -> u64 {
        self.active.saturating_add(self.standby)
    }
}

/// The line that every issue writes; alone in it (two lines, as some processors fetch in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
struct Hot {
    /// The next ordinal; at or above `end` when used up, and from `CLOSED` up when closed.
    cursor: AtomicU64,
}

/// The line that every issue reads, and only an install, a switch and a close write.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shown {
    /// One past the last ordinal of the active segment.
    end: AtomicU64,
    /// Length of the standby: a hint, written under the mutex.
    standby_len: AtomicU64,
    /// Length of the active segment: for `left` only, written under the mutex.
    active_len: AtomicU64,
}

/// What the mutex guards.
#[derive(Debug, Default)]
struct Cold {
    standby: Option<Range>,
    /// End of the highest segment that was ever installed: the lowest `lo` of the next.
    floor: u64,
    closed: bool,
}

/// Issues each ordinal of the installed segments at most once, in ascending order; see the module.
///
/// Shared by reference between threads. After a fork it must not be used in the child: the caller, who
/// knows of forks, drops it there.
#[derive(Debug, Default)]
pub struct Cursor {
    hot: Hot,
    shown: Shown,
    cold: Mutex<Cold>,
}

/// What came of looking for something after the active segment was used up.
enum After {
    /// There may be something now.
    Retry,
    /// There is nothing until the next install.
    Dry,
}

impl Cursor {
    /// A cursor with nothing to issue.
    pub fn new() -> Cursor {
        Cursor::default()
    }

    /// The next ordinal; `None` when nothing is installed, all is used up, or the cursor is closed.
    ///
    /// Never waits for anything but a switch of a few stores under way. Across a switch each thread may
    /// lose one ordinal (a gap); [`Cursor::next_n`] never does.
    #[inline]
    pub fn next(&self) -> Option<u64> {
        loop {
            // This order; see the module.
            let end = self.shown.end.load(Acquire);
            let ordinal = self.hot.cursor.fetch_add(1, Acquire);
            if ordinal < end {
                return Some(ordinal);
            }
            if let After::Dry = self.after(end) {
                return None;
            }
        }
    }

    /// Up to `max` consecutive ordinals from the active segment; fewer at its end, `None` as for `next`
    /// (and for `max` 0). Loses nothing.
    pub fn next_n(&self, max: u64) -> Option<Range> {
        let max = NonZeroU64::new(max)?;
        loop {
            // This order; see the module.
            let end = self.shown.end.load(Acquire);
            let lo = self.hot.cursor.load(Relaxed);
            if let Some(taken) = Range::starting_at(lo, max, end) {
                let hi = taken.hi();
                if self.hot.cursor.compare_exchange_weak(lo, hi, Relaxed, Relaxed).is_ok() {
                    return Some(taken);
                }
            } else if let After::Dry = self.after(end) {
                return None;
            }
        }
    }

    /// Takes a segment as the standby, or as the active one if that is used up.
    ///
    /// # Errors
    /// [`InstallError`]; nothing has changed then.
    pub fn install(&self, segment: Range) -> Result<(), InstallError> {
        let mut cold = self.lock();
        if cold.closed {
            return Err(InstallError::Closed);
        }
        // Makes room first: the standby may have been waiting for the next issuer to switch to it.
        self.switch(&mut cold);
        if segment.lo() < cold.floor {
            let floor = cold.floor;
            return Err(InstallError::NotAscending { segment, floor });
        }
        if cold.standby.is_some() {
            return Err(InstallError::Occupied);
        }
        cold.floor = segment.hi();
        cold.standby = Some(segment);
        self.shown.standby_len.store(segment.len(), Release);
        self.switch(&mut cold);
        Ok(())
    }

    /// Stops issuing for good, and returns what was not issued.
    ///
    /// When it returns, no later call of `next` or `next_n` issues anything; a call that was under way may
    /// still return an ordinal, which is then not in the tail. The second time there is nothing left.
    pub fn close(&self) -> Unissued {
        let mut cold = self.lock();
        if cold.closed {
            return Unissued::default();
        }
        cold.closed = true;
        let cursor = self.hot.cursor.swap(CLOSED, Relaxed);
        let tail = Range::new(cursor, self.shown.end.load(Relaxed)).ok();
        self.shown.standby_len.store(0, Release);
        let standby = cold.standby.take();
        Unissued { tail, standby }
    }

    /// Whether it is closed: from the moment on that nothing is issued any more. Without a lock: no open cursor is as
    /// high as `CLOSED`, and nothing sets it after a close.
    pub fn is_closed(&self) -> bool {
        self.hot.cursor.load(Relaxed) >= CLOSED
    }

    /// End of the highest segment that was ever installed; a segment must not begin below it.
    pub fn floor(&self) -> u64 {
        self.lock().floor
    }

    /// What is left, without a lock; for refill decisions, not for accounting.
    ///
    /// While a switch is under way the new segment may be counted as both active and standby.
    pub fn left(&self) -> Left {
        let end = self.shown.end.load(Acquire);
        let cursor = self.hot.cursor.load(Relaxed);
        Left {
            next: if cursor < end { cursor } else { 0 },
            active: end.saturating_sub(cursor),
            standby: self.shown.standby_len.load(Acquire),
            active_len: self.shown.active_len.load(Relaxed),
        }
    }

    /// The slow path of an issuer that found all used up below `end`.
    fn after(&self, end: u64) -> After {
        if self.shown.standby_len.load(Acquire) == 0 {
            let same = self.shown.end.load(Acquire) == end;
            return if same { After::Dry } else { After::Retry };
        }
        // Whoever came first has switched already; then, or when a close came in between, look again.
        self.switch(&mut self.lock());
        After::Retry
    }

    /// Makes the standby active if the active segment is used up. The caller holds the mutex.
    fn switch(&self, cold: &mut Cold) {
        // Only holders of the mutex write `end`; `cursor` can only have risen since.
        let used_up = self.hot.cursor.load(Relaxed) >= self.shown.end.load(Relaxed);
        if cold.closed || !used_up {
            return;
        }
        let Some(segment) = cold.standby.take() else {
            return;
        };
        self.shown.active_len.store(segment.len(), Relaxed);
        // This order; see the module.
        self.hot.cursor.swap(segment.lo(), Release);
        self.shown.end.store(segment.hi(), Release);
        self.shown.standby_len.store(0, Release);
    }

    /// The critical sections do not panic, so a poisoned mutex cannot guard a half-made change.
    fn lock(&self) -> MutexGuard<'_, Cold> {
        self.cold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The cursor of one window of time: places of `unit << bits | n`, each issued at most once, in ascending order.
///
/// Unlike [`Cursor`] it has no standby: a window that is renewed goes on from its own end, so `end` only ever rises,
/// and whoever reads an older one stays below it. What is issued is what one compare-and-set moved `cursor` over, so
/// bound and stamp are taken in one step: a thread that was stopped between the look at the clock and here issues a
/// place of this window or nothing.
#[derive(Debug)]
pub struct TimeCursor {
    hot: Hot,
    /// Only a renewal writes it.
    end: AtomicU64,
}

/// What came of asking a [`TimeCursor`].
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Stamp {
    /// These places.
    Taken(Range),
    /// Everything up to this place is issued, and the clock is not that far.
    Ahead(u64),
    /// The clock is at or beyond the window's end, or the cursor is closed.
    Ended,
}

impl TimeCursor {
    /// A cursor over one window.
    pub fn new(window: Range) -> Self {
        Self { hot: Hot { cursor: AtomicU64::new(window.lo()) }, end: AtomicU64::new(window.hi()) }
    }

    /// Up to `max` places at or above `floor`, below `ceiling` and in the window. `max` 0 takes one.
    #[inline]
    pub fn take(&self, floor: u64, ceiling: u64, max: u64) -> Stamp {
        loop {
            let end = self.end.load(Acquire);
            let cursor = self.hot.cursor.load(Relaxed);
            let top = ceiling.min(end);
            let lo = cursor.max(floor);
            if lo < top {
                let hi = lo.saturating_add(max.max(1)).min(top);
                // Not weak: a failure says that somebody else moved it.
                if self.hot.cursor.compare_exchange(cursor, hi, Relaxed, Relaxed).is_ok()
                    && let Ok(taken) = Range::new(lo, hi)
                {
                    return Stamp::Taken(taken);
                }
            } else if floor >= end || cursor >= CLOSED {
                return Stamp::Ended;
            } else {
                return Stamp::Ahead(cursor);
            }
        }
    }

    /// The window was renewed up to `end`; an end below the present one changes nothing.
    pub fn extend(&self, end: u64) {
        self.end.fetch_max(end, Release);
    }

    /// Stops issuing for good. Returns one past the last place that was or still may be issued: no call that begins
    /// later issues anything. The second time it is `None`.
    pub fn close(&self) -> Option<u64> {
        let cursor = self.hot.cursor.swap(CLOSED, Relaxed);
        (cursor < CLOSED).then_some(cursor)
    }

    /// One past the last place that was issued; `None` once closed.
    pub fn next(&self) -> Option<u64> {
        let cursor = self.hot.cursor.load(Relaxed);
        (cursor < CLOSED).then_some(cursor)
    }

    /// The window's end.
    pub fn end(&self) -> u64 {
        self.end.load(Acquire)
    }
}
