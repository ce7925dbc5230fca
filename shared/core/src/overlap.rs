//! Which ranges two hold: the blast radius of a promise that was broken.
//!
//! Pure, and over whatever ledgers could be read. [`crate::invariant`] says that something is wrong; this says
//! which numbers, so that what was made with them can be found.

use crate::range::Range;

/// A range that two rows share.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Overlap {
    /// The numbers.
    pub range: Range,
    /// The row that begins first, by its place in what was given.
    pub first: usize,
    /// The other one.
    pub second: usize,
}

/// Every pair of rows that share numbers, in order of place.
#[must_use]
pub fn overlaps(rows: &[Range]) -> Vec<Overlap> {
    let mut order: Vec<(usize, Range)> = rows.iter().copied().enumerate().collect();
    order.sort_by_key(|(i, range)| (range.lo(), range.hi(), *i));
    let mut open: Vec<(usize, Range)> = Vec::new();
    let mut found = Vec::new();
    for (second, range) in order {
        open.retain(|(_, earlier)| earlier.hi() > range.lo());
        for (first, earlier) in &open {
            if let Ok(shared) = Range::new(range.lo(), range.hi().min(earlier.hi())) {
                found.push(Overlap { range: shared, first: *first, second });
            }
        }
        open.push((second, range));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(rows: &[(u64, u64)]) -> Vec<(u64, u64, usize, usize)> {
        let rows: Vec<Range> = rows.iter().map(|(lo, hi)| Range::new(*lo, *hi).unwrap()).collect();
        overlaps(&rows).iter().map(|o| (o.range.lo(), o.range.hi(), o.first, o.second)).collect()
    }

    #[test]
    fn neighbours_share_nothing() {
        assert!(shared(&[(10, 20), (0, 10), (20, 30)]).is_empty());
    }

    #[test]
    fn every_pair_is_found_also_one_inside_another() {
        assert_eq!(shared(&[(0, 100), (10, 20), (15, 30)]), [(10, 20, 0, 1), (15, 30, 0, 2), (15, 20, 1, 2)]);
        assert_eq!(shared(&[(5, 9), (5, 9)]), [(5, 9, 0, 1)]);
    }
}
