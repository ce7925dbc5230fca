//! Stamping: one worker's ids, out of its window, by its clock.
//!
//! Purpose: the path of one time-based id, for an agent and for a user's process alike. Invariant W1: every stamped unit
//! lies in the worker's window; a unit is never stamped once the cursor is past it, whatever the clock says later.
//!
//! Absent on purpose: reading the clock, waiting for it (the caller does, for a bounded time), and renewing.

use crate::layout::Layout;
use crate::range::Range;
use crate::segment::{Stamp, TimeCursor};

/// Why nothing was stamped.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NoStamp {
    /// The unit's ids are used up, or the clock went back: it has to go on for so many milliseconds first.
    #[error("the clock is {ms} ms behind the last id")]
    Behind {
        /// Until the next unit that can be stamped.
        ms: u64,
    },
    /// The clock is beyond the window, or the worker was closed.
    #[error("the worker's window has ended")]
    Ended,
    /// The clock is before the layout's epoch, or beyond its last unit.
    #[error("the clock is outside of the layout's time")]
    OutOfTime,
}

/// One worker of one slot, and where it stands in its window.
#[derive(Debug)]
pub struct Stamper {
    layout: Layout,
    slot: u32,
    worker: u32,
    cursor: TimeCursor,
}

impl Stamper {
    /// A stamper over a window, in units.
    #[must_use]
    pub fn new(layout: Layout, slot: u32, worker: u32, window: Range) -> Self {
        let positions = Range::new(layout.position(window.lo()), layout.position(window.hi()));
        // A window within the layout's units has positions within 63 bits.
        let cursor = TimeCursor::new(positions.unwrap_or(window));
        Self { layout, slot, worker, cursor }
    }

    /// The layout.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The region field of its ids.
    #[must_use]
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// The worker field of its ids.
    #[must_use]
    pub fn worker(&self) -> u32 {
        self.worker
    }

    /// Up to `max` places of the present unit.
    ///
    /// # Errors
    /// [`NoStamp`]; nothing was taken then.
    #[inline]
    pub fn take(&self, now_ms: u64, max: u64) -> Result<Range, NoStamp> {
        let unit = self.layout.unit_of(now_ms).ok_or(NoStamp::OutOfTime)?;
        if unit >= self.layout.units() {
            return Err(NoStamp::OutOfTime);
        }
        match self.cursor.take(self.layout.position(unit), self.layout.position(unit + 1), max) {
            Stamp::Taken(range) => Ok(range),
            Stamp::Ended => Err(NoStamp::Ended),
            Stamp::Ahead(position) => {
                let begins = self.layout.begins_ms(self.layout.unit_at(position));
                Err(NoStamp::Behind { ms: begins.saturating_sub(now_ms).max(1) })
            }
        }
    }

    /// One id.
    ///
    /// # Errors
    /// As [`Self::take`].
    #[inline]
    pub fn next(&self, now_ms: u64) -> Result<i64, NoStamp> {
        let place = self.take(now_ms, 1)?;
        self.id(place.lo()).ok_or(NoStamp::OutOfTime)
    }

    /// The id of a place that was taken.
    #[must_use]
    pub fn id(&self, position: u64) -> Option<i64> {
        self.layout.id(self.slot, self.worker, position)
    }

    /// The window was renewed up to this unit.
    pub fn extend(&self, end_unit: u64) {
        self.cursor.extend(self.layout.position(end_unit));
    }

    /// The window's end, in units.
    #[must_use]
    pub fn end_unit(&self) -> u64 {
        self.layout.unit_at(self.cursor.end())
    }

    /// The lowest unit that it will never stamp again, whatever happens: above all that it stamped. `None` once closed.
    #[must_use]
    pub fn above(&self) -> Option<u64> {
        self.cursor.next().map(|next| self.above_of(next))
    }

    /// Stops for good, and returns the true end: one past the last unit that was stamped. `None` the second time.
    #[must_use]
    pub fn close(&self) -> Option<u64> {
        self.cursor.close().map(|next| self.above_of(next))
    }

    fn above_of(&self, next: u64) -> u64 {
        next.div_ceil(self.layout.per_unit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: u64 = 1_735_689_600_000;

    fn stamper(lo_ms: u64, hi_ms: u64) -> Stamper {
        let layout = Layout::new([41, 3, 7, 12], 1, EPOCH).unwrap();
        Stamper::new(layout, 3, 17, Range::new(lo_ms, hi_ms).unwrap())
    }

    #[test]
    fn a_unit_gives_all_its_ids_and_then_the_next_one_is_waited_for() {
        let s = stamper(100, 200);
        assert_eq!(s.take(EPOCH + 120, 10_000).unwrap().len(), 4_096);
        assert_eq!(s.next(EPOCH + 120), Err(NoStamp::Behind { ms: 1 }));
        let parts = s.layout().parts(s.next(EPOCH + 121).unwrap()).unwrap();
        assert_eq!((parts.unit, parts.slot, parts.worker, parts.sequence), (121, 3, 17, 0));
    }

    #[test]
    fn a_clock_that_went_back_stamps_nothing_until_it_is_right() {
        let s = stamper(100, 50_000);
        let first = s.next(EPOCH + 40_000).unwrap();
        assert_eq!(s.next(EPOCH + 30_000), Err(NoStamp::Behind { ms: 10_000 }));
        assert!(s.next(EPOCH + 40_000).unwrap() > first);
        assert_eq!(s.next(EPOCH - 1), Err(NoStamp::OutOfTime));
    }

    #[test]
    fn nothing_at_or_after_the_windows_end_and_a_jump_ahead_costs_nothing() {
        let s = stamper(100, 200);
        s.next(EPOCH + 150).unwrap();
        // Case 03: a day forward is refused, and once the clock is right again it goes on at once.
        assert_eq!(s.next(EPOCH + 86_400_000), Err(NoStamp::Ended));
        assert_eq!(s.next(EPOCH + 200), Err(NoStamp::Ended));
        s.next(EPOCH + 151).unwrap();
        s.extend(300);
        assert_eq!(s.layout().parts(s.next(EPOCH + 299).unwrap()).unwrap().unit, 299);
        assert_eq!(s.next(EPOCH + 300), Err(NoStamp::Ended));
    }

    #[test]
    fn a_clock_before_the_window_waits_for_it() {
        assert_eq!(stamper(100, 200).next(EPOCH + 90), Err(NoStamp::Behind { ms: 10 }));
    }

    #[test]
    fn the_true_end_is_above_every_stamp_and_final() {
        let s = stamper(100, 200);
        s.next(EPOCH + 150).unwrap();
        assert_eq!(s.close(), Some(151));
        assert_eq!((s.close(), s.above()), (None, None));
        assert_eq!(s.next(EPOCH + 160), Err(NoStamp::Ended));
        assert_eq!(stamper(100, 200).close(), Some(100), "nothing was stamped");
    }

    /// A hundred million ids at the layout's full rate, over renewals: each once, rising, in the window.
    #[test]
    fn the_full_rate_of_the_layout_is_reached_and_never_repeats() {
        let s = stamper(0, 1_000);
        let (mut last, mut count, mut now) = (0, 0_u64, EPOCH);
        while count < 100_000_000 {
            match s.take(now, 1_000) {
                Ok(range) => {
                    let first = s.id(range.lo()).unwrap();
                    assert!(first > last);
                    last = s.id(range.hi() - 1).unwrap();
                    assert_eq!(last - first + 1, i64::try_from(range.len()).unwrap());
                    count += range.len();
                }
                Err(NoStamp::Behind { ms }) => now += ms,
                Err(NoStamp::Ended) => s.extend(s.end_unit() + 700),
                Err(NoStamp::OutOfTime) => panic!("out of time"),
            }
        }
        assert_eq!(count.div_ceil(now - EPOCH + 1), 4_096, "4,096 ids in each millisecond");
    }

    #[test]
    fn threads_never_share_a_stamp() {
        let s = stamper(0, 1_000);
        let all: Vec<Vec<i64>> = std::thread::scope(|scope| {
            let issue = |_| scope.spawn(|| (0..20_000).filter_map(|i| s.next(EPOCH + i / 20).ok()).collect::<Vec<_>>());
            (0..4).map(issue).collect::<Vec<_>>().into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(all.iter().all(|ids| ids.windows(2).all(|w| w[0] < w[1])));
        let mut ids: Vec<i64> = all.into_iter().flatten().collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }
}
