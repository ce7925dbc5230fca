//! A region's pool: grants, blocks and segments are all carved the same way.
//!
//! A holding is a range with a cursor: everything below `carved_to` was handed to somebody below,
//! everything from it up to the range's end is still to be handed out. A carve takes from the front
//! of the lowest holding that has something left, so that one process sees rising numbers; a carve
//! that the holding cannot fill is short, and delivered whole.

use std::num::NonZeroU64;

use uuid::Uuid;

use crate::range::Range;

/// A range that is being carved: a region's grant, or a service's block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Holding {
    /// The grant or block.
    pub id: Uuid,
    /// What it holds in all.
    pub range: Range,
    /// The first ordinal that is not handed out; between the range's ends, both included.
    pub carved_to: u64,
}

impl Holding {
    /// What is left of it.
    #[must_use]
    pub fn rest(&self) -> Option<Range> {
        Range::new(self.carved_to.max(self.range.lo()), self.range.hi()).ok()
    }

    /// Ordinals left.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.rest().map_or(0, |r| r.len())
    }
}

/// One carve, to be written with `carved_to` as its guard.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Carve {
    /// The holding it comes out of.
    pub from: Uuid,
    /// The holding's cursor before: the write succeeds only if it still stands there.
    pub was: u64,
    /// What is handed out; its end is the cursor afterwards.
    pub range: Range,
}

/// Takes up to `want` ordinals from the lowest of `holdings` that has something left.
#[must_use]
pub fn carve(holdings: &[Holding], want: u64) -> Option<Carve> {
    let lowest = holdings.iter().filter(|h| h.left() > 0).min_by_key(|h| h.range.lo())?;
    let (range, _) = lowest.rest()?.take_front(NonZeroU64::new(want).unwrap_or(NonZeroU64::MIN));
    Some(Carve { from: lowest.id, was: lowest.carved_to, range })
}

/// Ordinals left in all of them.
#[must_use]
pub fn left(holdings: &[Holding]) -> u64 {
    holdings.iter().fold(0, |sum, h| sum.saturating_add(h.left()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn holding(n: u128, lo: u64, hi: u64) -> Holding {
        Holding { id: Uuid::from_u128(n), range: Range::new(lo, hi).unwrap(), carved_to: lo }
    }

    #[test]
    fn a_short_last_carve_is_delivered_whole() {
        let mut pool = [holding(1, 0, 10)];
        pool[0].carved_to = 7;
        let carve = carve(&pool, 100).unwrap();
        assert_eq!((carve.was, carve.range), (7, Range::new(7, 10).unwrap()));
        pool[0].carved_to = 10;
        assert_eq!(super::carve(&pool, 1), None);
    }

    proptest! {
        /// Carving until dry hands out every ordinal of every grant once, in rising order.
        #[test]
        fn carves_tile_the_grants(lens in prop::collection::vec(1u64..50, 1..6), want in 1u64..20) {
            let mut lo = 0;
            let mut pool: Vec<Holding> = Vec::new();
            for (n, len) in lens.iter().enumerate() {
                pool.push(holding(n as u128, lo, lo + len));
                lo += len + 3;
            }
            pool.reverse();
            let total = left(&pool);
            let (mut seen, mut last) = (0, 0);
            while let Some(c) = carve(&pool, want) {
                prop_assert!(c.range.lo() >= last);
                last = c.range.hi();
                seen += c.range.len();
                let from = pool.iter_mut().find(|h| h.id == c.from).unwrap();
                prop_assert_eq!(from.carved_to, c.was);
                from.carved_to = c.range.hi();
            }
            prop_assert_eq!(seen, total);
        }
    }
}
