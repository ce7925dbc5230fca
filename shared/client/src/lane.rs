//! Where a namespace's IDs come from in this process: a chain of cursors, each with its mapping to values.
//!
//! Purpose: the path of one ID is one look at a cursor of the core and one multiplication. A cursor takes
//! segments for as long as they ascend and map to values in the same way. When the mapping changes (a new version
//! of the definition), or what a process holds must not be issued any more (its region's epoch is over), a new
//! lane is appended; whoever holds an older one walks on to it.
//!
//! Invariant: strictly rising ordinals over the whole chain. A lane that has a successor takes no segment any
//! more, and an issuer leaves it only after it found it used up *after* it saw the successor. So whoever takes from
//! the next lane knows that no ordinal of this one will be issued after his.
//!
//! Absent on purpose: fetching, waiting, rates, forks.

use std::sync::{Arc, OnceLock};

use cadastre_core::range::Range;
use cadastre_core::segment::{Cursor, InstallError, Left, Unissued};

use crate::id::{Id, Stretch};

/// How ordinals of a lane become values: `base + ordinal * increment`, modulo 2^64.
///
/// The true value of every ordinal of a segment fits an `i64`, so the remainder is exact although `base`, the value
/// that ordinal 0 would have, may lie outside.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub(crate) struct Mapping {
    base: i64,
    increment: i64,
}

impl Mapping {
    /// The mapping of a segment that begins at ordinal `lo` with value `first`.
    pub(crate) const fn new(lo: u64, first: i64, increment: i64) -> Mapping {
        Mapping { base: first.wrapping_sub(lo.cast_signed().wrapping_mul(increment)), increment }
    }

    #[inline]
    pub(crate) const fn value(self, ordinal: u64) -> i64 {
        self.base.wrapping_add(ordinal.cast_signed().wrapping_mul(self.increment))
    }

    pub(crate) const fn stretch(self, range: Range) -> Stretch {
        Stretch { first: self.value(range.lo()), increment: self.increment, len: range.len() }
    }
}

/// One cursor, its mapping, and the lane after it.
#[derive(Debug, Default)]
pub struct Lane {
    cursor: Cursor,
    /// Set before the first segment is installed.
    mapping: OnceLock<Mapping>,
    next: OnceLock<Arc<Lane>>,
}

impl Lane {
    /// The next ID of this lane or one after it, from memory.
    #[inline]
    pub fn one(&self) -> Option<Id> {
        match self.cursor.next() {
            Some(ordinal) => self.mapping.get().map(|m| Id::new(m.value(ordinal))),
            None => self.further(&|lane| lane.cursor.next().zip(lane.mapping.get()).map(|(o, m)| Id::new(m.value(o)))),
        }
    }

    /// Up to `max` consecutive IDs of this lane or one after it, from memory.
    pub(crate) fn many(&self, max: u64) -> Option<Stretch> {
        self.range(max).map(|(range, mapping)| mapping.stretch(range))
    }

    /// The same as ordinals, and how they become values.
    pub(crate) fn range(&self, max: u64) -> Option<(Range, Mapping)> {
        let take = |lane: &Lane| lane.cursor.next_n(max).zip(lane.mapping.get().copied());
        take(self).or_else(|| self.further(&take))
    }

    /// After this lane was found dry: once more if it has a successor by now (see the module), then on from there.
    #[cold]
    fn further<T>(&self, take: &dyn Fn(&Lane) -> Option<T>) -> Option<T> {
        let mut lane = self;
        loop {
            let next = lane.next.get()?;
            if let Some(taken) = take(lane) {
                return Some(taken);
            }
            lane = next;
            if let Some(taken) = take(lane) {
                return Some(taken);
            }
        }
    }

    /// Whether segments of this mapping can be installed here.
    pub(crate) fn fits(&self, mapping: Mapping) -> bool {
        *self.mapping.get_or_init(|| mapping) == mapping
    }

    /// Takes a segment; see [`Cursor::install`]. Only the last lane of a chain may.
    pub(crate) fn install(&self, segment: Range) -> Result<(), InstallError> {
        self.cursor.install(segment)
    }

    /// Appends a lane; the first one stays if there is one already.
    pub(crate) fn append(&self) -> Arc<Lane> {
        Arc::clone(self.next.get_or_init(Arc::default))
    }

    pub(crate) fn left(&self) -> Left {
        self.cursor.left()
    }

    /// Stops this lane for good; what it had left.
    pub(crate) fn close(&self) -> Unissued {
        self.cursor.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cadastre_core::range::MAX_ORDINAL;
    use cadastre_core::sequence::Sequence;
    use proptest::prelude::*;

    fn range(lo: u64, hi: u64) -> Range {
        Range::new(lo, hi).unwrap()
    }

    fn all(lane: &Lane) -> Vec<i64> {
        std::iter::from_fn(|| lane.one()).map(Id::get).collect()
    }

    #[test]
    fn an_old_handle_walks_on_over_a_new_version_and_a_closed_lane() {
        let first = Lane::default();
        assert_eq!(first.one(), None);
        assert!(first.fits(Mapping::new(0, 1, 1)));
        first.install(range(0, 3)).unwrap();
        assert!(!first.fits(Mapping::new(3, 100, 10)));
        let second = first.append();
        assert!(second.fits(Mapping::new(3, 100, 10)));
        second.install(range(3, 5)).unwrap();
        assert_eq!(all(&first), [1, 2, 3, 100, 110]);
        second.install(range(7, 9)).unwrap();
        second.close();
        let third = second.append();
        assert!(third.fits(Mapping::new(9, 160, 10)));
        third.install(range(9, 10)).unwrap();
        assert_eq!(first.many(50).map(|s| (s.first, s.len)), Some((160, 1)));
        assert_eq!((first.one(), first.many(1)), (None, None));
    }

    #[test]
    fn eight_threads_and_a_change_of_lanes_rise_strictly_and_repeat_nothing() {
        let first = Arc::new(Lane::default());
        assert!(first.fits(Mapping::new(0, 0, 1)));
        let mut last = Arc::clone(&first);
        let got: Vec<Vec<i64>> = std::thread::scope(|scope| {
            let issuers: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let mut got = Vec::new();
                        while got.last() != Some(&i64::MAX) && got.len() < 20_000 {
                            got.extend(first.one().map(Id::get));
                        }
                        got
                    })
                })
                .collect();
            // 8 x 20,000 are taken; what a switch loses is made up for.
            for n in 0..400_u64 {
                if n % 10 == 9 {
                    last = last.append();
                    assert!(last.fits(Mapping::new(0, 0, 1)));
                }
                while last.install(range(n * 500, n * 500 + 500)).is_err() {
                    std::thread::yield_now();
                    if issuers.iter().all(|i| i.is_finished()) {
                        break;
                    }
                }
            }
            issuers.into_iter().map(|i| i.join().unwrap()).collect()
        });
        for one in &got {
            assert!(one.windows(2).all(|pair| pair[0] < pair[1]), "each thread rises");
        }
        let mut whole: Vec<i64> = got.concat();
        whole.sort_unstable();
        assert!(whole.windows(2).all(|pair| pair[0] < pair[1]), "nothing twice");
    }

    proptest! {
        /// The mapping agrees with the core's, wherever a version begins.
        #[test]
        fn values_are_the_cores(start: i64, increment in -1_000_000i64..1_000_000, lo in 0u64..MAX_ORDINAL, n in 1u64..100) {
            let sequence = Sequence::new(start, increment, i64::MIN, i64::MAX);
            let Some((sequence, first)) = sequence.ok().and_then(|s| s.value_at(lo).map(|first| (s, first))) else {
                return Ok(());
            };
            let mapping = Mapping::new(lo, first, increment);
            for ordinal in lo..lo + n {
                if let Some(value) = sequence.value_at(ordinal) {
                    prop_assert_eq!(mapping.value(ordinal), value);
                }
            }
        }
    }
}
