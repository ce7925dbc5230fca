//! IDs as callers see them: a 64-bit number that is written as a decimal string.
//!
//! Invariant: JSON holds a string, never a number, in both directions: readers that hold numbers as doubles
//! round above 2^53 without a word. Absent on purpose: arithmetic, and reading anything out of the bits.

use std::fmt;
use std::str::FromStr;

use cadastre_core::decimal::{self, DecimalError};
use serde::{Deserialize, Serialize};

/// One ID. Serialised as a decimal string, `"492081"`; a JSON number is refused.
///
/// ```
/// use cadastre_client::Id;
///
/// let id: Id = "9007199254740993".parse()?;
/// assert_eq!(id.get(), 9_007_199_254_740_993);
/// assert_eq!(id.to_string(), "9007199254740993");
/// # Ok::<(), cadastre_client::ParseIdError>(())
/// ```
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Id(#[serde(with = "decimal::signed")] i64);

/// Not the one spelling of an ID: digits only, without leading zeros, spaces or a plus sign.
#[derive(Clone, Eq, PartialEq, Debug, thiserror::Error)]
#[error(transparent)]
pub struct ParseIdError(#[from] DecimalError);

impl Id {
    /// An ID that came from elsewhere, such as a column of a database.
    #[must_use]
    pub const fn new(value: i64) -> Id {
        Id(value)
    }

    /// The number, for a `BIGINT` column.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl From<Id> for i64 {
    fn from(id: Id) -> i64 {
        id.0
    }
}

impl From<i64> for Id {
    fn from(value: i64) -> Id {
        Id(value)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Id {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Id, ParseIdError> {
        Ok(Id(decimal::parse_signed(text)?))
    }
}

/// Consecutive IDs: `first`, `first + increment`, ... `len` of them.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) struct Stretch {
    pub(crate) first: i64,
    pub(crate) increment: i64,
    pub(crate) len: u64,
}

impl Stretch {
    /// Takes the first.
    pub(crate) fn pop(&mut self) -> Option<Id> {
        self.len = self.len.checked_sub(1)?;
        let id = Id(self.first);
        // Wraps only behind the last one, which is never handed out.
        self.first = self.first.wrapping_add(self.increment);
        Some(id)
    }
}

/// The IDs of one [`next_n`](crate::Namespace::next_n): an iterator in the order of issue.
///
/// IDs that are not taken out of it are gaps.
#[derive(Clone, Debug, Default)]
pub struct Ids {
    stretches: Vec<Stretch>,
    at: usize,
    left: usize,
}

impl Ids {
    pub(crate) fn new(stretches: Vec<Stretch>) -> Ids {
        let left = stretches.iter().fold(0_u64, |sum, s| sum.saturating_add(s.len));
        Ids { stretches, at: 0, left: usize::try_from(left).unwrap_or(usize::MAX) }
    }
}

impl Iterator for Ids {
    type Item = Id;

    fn next(&mut self) -> Option<Id> {
        loop {
            if let Some(id) = self.stretches.get_mut(self.at)?.pop() {
                self.left = self.left.saturating_sub(1);
                return Some(id);
            }
            self.at += 1;
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Ids {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_a_string_both_ways() {
        let id = Id::new(9_007_199_254_740_993);
        assert_eq!(serde_json::to_string(&id).unwrap(), "\"9007199254740993\"");
        assert_eq!(serde_json::from_str::<Id>("\"-5\"").unwrap(), Id::new(-5));
        for bad in ["5", "\"05\"", "\"+5\"", "\" 5\"", "\"9223372036854775808\"", "\"\"", "null"] {
            assert!(serde_json::from_str::<Id>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ids_end_at_the_edge_of_the_numbers() {
        let up = Stretch { first: i64::MAX - 1, increment: 1, len: 2 };
        let down = Stretch { first: i64::MIN + 10, increment: -10, len: 2 };
        let ids = Ids::new(vec![up, down]);
        assert_eq!(ids.len(), 4);
        let values: Vec<i64> = ids.map(Id::get).collect();
        assert_eq!(values, [i64::MAX - 1, i64::MAX, i64::MIN + 10, i64::MIN]);
    }
}
