//! A half-open range of ordinals that is never empty.
//!
//! Purpose: every tier holds ranges, hands out disjoint parts and refills. This is the one type that
//! they are all made of, so that the arithmetic of "the next lower bound is the stored old end"
//! stands in one place.
//!
//! Invariant: `0 <= lo < hi <= MAX_ORDINAL`. The fields are private and both `new` and `Deserialize`
//! check it, so that an empty, inverted or overlong range cannot exist in a process, whoever sent it.
//! Splitting and taking never lose an ordinal and never name one twice.
//!
//! Who may change it: a change here is a change of the promise; read the property tests first.
//!
//! Absent on purpose: an empty range (use `Option<Range>`), union (two ranges that touch stay two, as
//! they were granted), iteration (an ordinal is issued by the cursor in `segment`, nowhere else), and
//! values (see `sequence`).

use std::fmt;
use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

use crate::decimal;

/// Largest end of a range: ordinals are `0 ..= MAX_ORDINAL - 1`, so a count of them fits an `i64`.
pub const MAX_ORDINAL: u64 = i64::MAX as u64;

/// Why two numbers are not a range.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum RangeError {
    /// `lo >= hi`: the range would hold nothing.
    #[error("an empty range: lo {lo} is not below hi {hi}")]
    Empty {
        /// The lower bound that was given.
        lo: u64,
        /// The upper bound that was given.
        hi: u64,
    },
    /// `hi > MAX_ORDINAL`.
    #[error("hi {hi} is above the largest ordinal end {MAX_ORDINAL}")]
    TooHigh {
        /// The upper bound that was given.
        hi: u64,
    },
}

/// The ordinals `lo <= o < hi`, at least one; on the wire `{"lo":"..","hi":".."}`.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub struct Range {
    lo: u64,
    hi: u64,
}

/// The unchecked form on the wire.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(with = "decimal::unsigned")]
    lo: u64,
    #[serde(with = "decimal::unsigned")]
    hi: u64,
}

impl TryFrom<Wire> for Range {
    type Error = RangeError;

    fn try_from(wire: Wire) -> Result<Range, RangeError> {
        Range::new(wire.lo, wire.hi)
    }
}

impl From<Range> for Wire {
    fn from(range: Range) -> Wire {
        Wire { lo: range.lo, hi: range.hi }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.lo, self.hi)
    }
}

impl Range {
    /// The ordinals `lo <= o < hi`.
    ///
    /// # Errors
    /// [`RangeError::Empty`] unless `lo < hi`; [`RangeError::TooHigh`] if `hi > MAX_ORDINAL`.
    pub const fn new(lo: u64, hi: u64) -> Result<Range, RangeError> {
        if lo >= hi {
            return Err(RangeError::Empty { lo, hi });
        }
        if hi > MAX_ORDINAL {
            return Err(RangeError::TooHigh { hi });
        }
        Ok(Range { lo, hi })
    }

    /// Up to `n` ordinals from `lo`, cut short at `limit` (exclusive; at most [`MAX_ORDINAL`]).
    ///
    /// `None` when nothing is left, `lo >= limit`. This is how a watermark is taken from: the next
    /// lower bound is the `hi` of the answer, also when it is shorter than `n`, never `lo + n`.
    pub fn starting_at(lo: u64, n: NonZeroU64, limit: u64) -> Option<Range> {
        let hi = lo.saturating_add(n.get()).min(limit).min(MAX_ORDINAL);
        Range::new(lo, hi).ok()
    }

    /// First ordinal in the range.
    pub const fn lo(&self) -> u64 {
        self.lo
    }

    /// One past the last ordinal in the range; at most [`MAX_ORDINAL`].
    pub const fn hi(&self) -> u64 {
        self.hi
    }

    /// Number of ordinals, `1 ..= MAX_ORDINAL`. There is no `is_empty`: it never is.
    #[allow(clippy::len_without_is_empty)]
    pub const fn len(&self) -> u64 {
        self.hi - self.lo
    }

    /// Whether `ordinal` lies in the range.
    pub const fn contains(&self, ordinal: u64) -> bool {
        self.lo <= ordinal && ordinal < self.hi
    }

    /// Whether every ordinal of `other` lies in the range.
    pub const fn covers(&self, other: &Range) -> bool {
        self.lo <= other.lo && other.hi <= self.hi
    }

    /// Whether any ordinal lies in both; ranges that only touch do not overlap.
    pub const fn overlaps(&self, other: &Range) -> bool {
        self.lo < other.hi && other.lo < self.hi
    }

    /// The ordinals that lie in both, `None` when there are none.
    pub fn intersection(&self, other: &Range) -> Option<Range> {
        Range::new(self.lo.max(other.lo), self.hi.min(other.hi)).ok()
    }

    /// The first `n` ordinals, and what is left; `n >= len` gives the whole and `None`.
    ///
    /// The two parts are disjoint, touch, and together are the range: a short last block is delivered
    /// whole, never rounded away.
    pub fn take_front(&self, n: NonZeroU64) -> (Range, Option<Range>) {
        if n.get() >= self.len() {
            return (*self, None);
        }
        // n < len, so lo < cut < hi and both parts are ranges.
        let cut = self.lo + n.get();
        let front = Range { lo: self.lo, hi: cut };
        let rest = Range { lo: cut, hi: self.hi };
        (front, Some(rest))
    }

    /// The parts below and from `ordinal` on; `None` unless both hold something, `lo < ordinal < hi`.
    pub fn split_at(&self, ordinal: u64) -> Option<(Range, Range)> {
        let below = Range::new(self.lo, ordinal).ok()?;
        let above = Range::new(ordinal, self.hi).ok()?;
        Some((below, above))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nz(n: u64) -> NonZeroU64 {
        NonZeroU64::new(n).unwrap()
    }

    /// Ranges near both ends of the line, and small ones that often meet.
    fn ranges() -> impl Strategy<Value = Range> {
        let near = (0u64..40, 1u64..20);
        let far = (MAX_ORDINAL - 60..MAX_ORDINAL - 20, 1u64..21);
        let any = (0u64..MAX_ORDINAL, 1u64..=MAX_ORDINAL);
        prop_oneof![near, far, any].prop_map(|(lo, n)| Range::new(lo, lo.saturating_add(n).min(MAX_ORDINAL)).unwrap())
    }

    #[test]
    fn the_ends_of_the_line() {
        let whole = Range::new(0, MAX_ORDINAL).unwrap();
        assert_eq!(whole.len(), MAX_ORDINAL);
        assert_eq!(Range::new(0, MAX_ORDINAL + 1), Err(RangeError::TooHigh { hi: MAX_ORDINAL + 1 }));
        assert!(Range::new(5, 5).is_err() && Range::new(6, 5).is_err());
        assert!(Range::new(u64::MAX, 0).is_err() && Range::new(0, u64::MAX).is_err());
        assert_eq!(whole.take_front(nz(u64::MAX)), (whole, None));
    }

    #[test]
    fn case_17_clamped_at_the_ceiling() {
        // A space that blocks of 10 do not divide: the short last block is whole, and then it is over.
        let (mut watermark, limit, mut lengths) = (MAX_ORDINAL - 25, MAX_ORDINAL, Vec::new());
        while let Some(range) = Range::starting_at(watermark, nz(10), limit) {
            assert_eq!(range.lo(), watermark);
            lengths.push(range.len());
            watermark = range.hi();
        }
        assert_eq!((lengths, watermark), (vec![10, 10, 5], MAX_ORDINAL));
        assert_eq!(Range::starting_at(u64::MAX, nz(u64::MAX), u64::MAX), None);
    }

    #[test]
    fn wire_is_decimal_strings_and_checked() {
        let range = Range::new(9_007_199_254_740_993, MAX_ORDINAL).unwrap();
        let json = r#"{"lo":"9007199254740993","hi":"9223372036854775807"}"#;
        assert_eq!(serde_json::to_string(&range).unwrap(), json);
        assert_eq!(serde_json::from_str::<Range>(json).unwrap(), range);
        for bad in [
            r#"{"lo":"5","hi":"5"}"#,
            r#"{"lo":"6","hi":"5"}"#,
            r#"{"lo":"0","hi":"9223372036854775808"}"#,
            r#"{"lo":"-1","hi":"5"}"#,
            r#"{"lo":0,"hi":5}"#,
            r#"{"lo":"0"}"#,
            r#"{"lo":"0","hi":"5","x":1}"#,
        ] {
            assert!(serde_json::from_str::<Range>(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn only_valid_ranges_exist(lo: u64, hi: u64) {
            prop_assert_eq!(Range::new(lo, hi).is_ok(), lo < hi && hi <= MAX_ORDINAL);
        }

        #[test]
        fn take_front_loses_and_repeats_nothing(range in ranges(), n in 1u64..50) {
            let (front, rest) = range.take_front(nz(n));
            prop_assert_eq!(front.lo(), range.lo());
            prop_assert_eq!(front.len(), n.min(range.len()));
            match rest {
                None => prop_assert_eq!(front, range),
                Some(rest) => {
                    prop_assert_eq!(rest.lo(), front.hi());
                    prop_assert_eq!(rest.hi(), range.hi());
                    prop_assert_eq!(front.len() + rest.len(), range.len());
                    prop_assert_eq!(range.split_at(rest.lo()), Some((front, rest)));
                }
            }
        }

        #[test]
        fn blocks_tile_the_range(lo in 0u64..MAX_ORDINAL - 5000, n in 1u64..5000, block in 1u64..700) {
            let range = Range::new(lo, lo + n).unwrap();
            let (mut left, mut end, mut total) = (Some(range), lo, 0);
            while let Some(now) = left {
                let (block, rest) = now.take_front(nz(block));
                prop_assert_eq!(block.lo(), end);
                (end, total, left) = (block.hi(), total + block.len(), rest);
            }
            prop_assert_eq!((end, total), (range.hi(), range.len()));
        }

        #[test]
        fn relations_agree(a in ranges(), b in ranges(), o in 0u64..60) {
            let both = a.intersection(&b);
            prop_assert_eq!(both.is_some(), a.overlaps(&b));
            prop_assert_eq!(a.overlaps(&b), b.overlaps(&a));
            prop_assert_eq!(a.covers(&b), both == Some(b));
            for o in [o, a.lo(), a.hi() - 1, a.hi(), b.lo(), b.hi() - 1, b.hi()] {
                let inside = a.contains(o) && b.contains(o);
                prop_assert_eq!(both.is_some_and(|r| r.contains(o)), inside);
            }
            for o in [o, a.lo(), a.lo() + 1, a.hi() - 1, a.hi(), u64::MAX] {
                let parts = a.split_at(o);
                prop_assert_eq!(parts.is_some(), a.lo() < o && o < a.hi());
                if let Some((below, above)) = parts {
                    prop_assert_eq!((below.lo(), below.hi()), (a.lo(), above.lo()));
                    prop_assert_eq!((above.lo(), above.hi()), (o, a.hi()));
                }
            }
        }

        #[test]
        fn round_trip(range in ranges()) {
            let json = serde_json::to_string(&range).unwrap();
            prop_assert_eq!(serde_json::from_str::<Range>(&json).unwrap(), range);
        }
    }
}
