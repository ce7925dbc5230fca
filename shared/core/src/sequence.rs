//! Which value an ordinal stands for.
//!
//! Purpose: interval arithmetic everywhere else is on ordinals, `0, 1, 2 ...`. A [`Sequence`] maps them
//! to values, `start + ordinal * increment` within `min` and `max`; a [`Definition`] is the history of a
//! namespace's sequences, each in force from one ordinal on.
//!
//! Invariant: every ordinal below the capacity has exactly one value, and no two granted ordinals have
//! the same one, under whatever versions. Arithmetic is in `i128` and never wraps. A definition that
//! breaks this cannot be built, by serde neither.
//!
//! Who may change it: the mapping of an existing version may never change, for its values are out there.
//! A new version is appended at `next_unreserved`, in the transaction that locks it.
//!
//! Absent on purpose: the current position (a watermark in `namespace`), cycling (a sequence that starts
//! again issues duplicates), and enumeration (whether two versions meet is computed, see
//! `progression`).

mod definition;
mod progression;

use serde::{Deserialize, Serialize};

pub use self::definition::{Definition, DefinitionVersion};
use self::progression::Progression;

use crate::decimal;
use crate::range::{MAX_ORDINAL, Range};

/// Most versions that a definition can have; bounds the work of checking one.
pub const MAX_VERSIONS: usize = 256;

/// Why a sequence or a new version of a definition is refused.
#[derive(Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum SequenceError {
    /// `increment` is 0: every ordinal would have the same value.
    #[error("increment must not be 0")]
    ZeroIncrement,
    /// `min > max`.
    #[error("min {min} is above max {max}")]
    MinAboveMax {
        /// The smallest value that was given.
        min: i64,
        /// The largest value that was given.
        max: i64,
    },
    /// `start` lies outside of `min ..= max`.
    #[error("start {start} is outside of {min} to {max}")]
    StartOutside {
        /// The first value that was given.
        start: i64,
        /// The smallest value that was given.
        min: i64,
        /// The largest value that was given.
        max: i64,
    },
    /// More ordinals than fit: the ends of all ranges must stay at or below `MAX_ORDINAL`.
    #[error("too many values for 63-bit ordinals: the {bound} that fits is {fits}")]
    TooWide {
        /// Which bound has to move: "largest max" or "smallest min".
        bound: &'static str,
        /// The widest value of that bound that fits.
        fits: i64,
    },
    /// A value that a granted ordinal already has would be issued again.
    #[error("value {value} of version {version} could be issued again")]
    Repeats {
        /// One of the values that both versions have.
        value: i64,
        /// The older version that has it.
        version: u32,
    },
    /// The new version would begin below the current one: the watermark went back.
    #[error("a version that begins at {from} is below the one before it, which begins at {last}")]
    Backwards {
        /// Where the new version would begin.
        from: u64,
        /// Where the version before it begins.
        last: u64,
    },
    /// The new version would begin where the current one has no values any more.
    #[error("a version that begins at {from} leaves ordinals without a value from {capacity} on")]
    BeyondCapacity {
        /// Where the new version would begin.
        from: u64,
        /// First ordinal that has no value under the versions before it.
        capacity: u64,
    },
    /// Version numbers must be 1, 2, 3 ... and the first must begin at ordinal 0.
    #[error("versions must be numbered from 1 without gaps, and the first must begin at ordinal 0")]
    BadHistory,
    /// Every ordinal is granted: nothing is left for a new version.
    #[error("every ordinal of the namespace is granted, nothing is left for a new version")]
    NoOrdinalsLeft,
    /// More than [`MAX_VERSIONS`] versions.
    #[error("a definition cannot have more than {MAX_VERSIONS} versions")]
    TooManyVersions,
}

/// An arithmetic sequence of at most `MAX_ORDINAL` values: `start`, `start + increment`, ... as long as
/// `min <= value <= max`.
///
/// On the wire all four are decimal strings and may be left out: `increment` is 1, `min` is 1, `max` is
/// 2^63-1, and `start` is `min` when ascending, `max` when descending.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub struct Sequence {
    start: i64,
    increment: i64,
    min: i64,
    max: i64,
}

/// The unchecked form on the wire.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(with = "decimal::optional_signed", default)]
    start: Option<i64>,
    #[serde(with = "decimal::signed", default = "one")]
    increment: i64,
    #[serde(with = "decimal::signed", default = "one")]
    min: i64,
    #[serde(with = "decimal::signed", default = "largest")]
    max: i64,
}

const fn one() -> i64 {
    1
}

const fn largest() -> i64 {
    i64::MAX
}

impl TryFrom<Wire> for Sequence {
    type Error = SequenceError;

    fn try_from(wire: Wire) -> Result<Sequence, SequenceError> {
        let start = wire.start.unwrap_or(if wire.increment < 0 { wire.max } else { wire.min });
        Sequence::new(start, wire.increment, wire.min, wire.max)
    }
}

impl From<Sequence> for Wire {
    fn from(sequence: Sequence) -> Wire {
        Wire { start: Some(sequence.start), increment: sequence.increment, min: sequence.min, max: sequence.max }
    }
}

impl Default for Sequence {
    /// 1, 2, 3 ... 2^63-1.
    fn default() -> Sequence {
        Sequence { start: 1, increment: 1, min: 1, max: i64::MAX }
    }
}

impl Sequence {
    /// The sequence from `start` in steps of `increment`, within `min ..= max`.
    ///
    /// # Errors
    /// [`SequenceError::ZeroIncrement`], [`SequenceError::MinAboveMax`], [`SequenceError::StartOutside`],
    /// or [`SequenceError::TooWide`] (more than `MAX_ORDINAL` values) naming the widest bound that fits.
    pub fn new(start: i64, increment: i64, min: i64, max: i64) -> Result<Sequence, SequenceError> {
        if increment == 0 {
            return Err(SequenceError::ZeroIncrement);
        }
        if min > max {
            return Err(SequenceError::MinAboveMax { min, max });
        }
        if start < min || start > max {
            return Err(SequenceError::StartOutside { start, min, max });
        }
        let sequence = Sequence { start, increment, min, max };
        sequence.fits(MAX_ORDINAL)?;
        Ok(sequence)
    }

    /// The first value, of ordinal 0.
    pub const fn start(&self) -> i64 {
        self.start
    }

    /// The step from one ordinal to the next; never 0, negative when descending.
    pub const fn increment(&self) -> i64 {
        self.increment
    }

    /// No value is below it.
    pub const fn min(&self) -> i64 {
        self.min
    }

    /// No value is above it.
    pub const fn max(&self) -> i64 {
        self.max
    }

    /// Number of values, `1 ..= MAX_ORDINAL`: ordinals at or above it have none.
    pub fn capacity(&self) -> u64 {
        // `new` has checked that it fits.
        u64::try_from(self.count()).unwrap_or(MAX_ORDINAL)
    }

    /// The value of an ordinal; `None` at or above the capacity.
    pub fn value_at(&self, ordinal: u64) -> Option<i64> {
        if ordinal >= self.capacity() {
            return None;
        }
        // |ordinal * increment| <= 2^63 * 2^63, far inside i128.
        let value = i128::from(self.start) + i128::from(ordinal) * i128::from(self.increment);
        i64::try_from(value).ok()
    }

    /// The ordinal that has the value; `None` if no ordinal has it.
    pub fn ordinal_of(&self, value: i64) -> Option<u64> {
        let distance = i128::from(value) - i128::from(self.start);
        let increment = i128::from(self.increment);
        if distance % increment != 0 {
            return None;
        }
        let ordinal = u64::try_from(distance / increment).ok()?;
        (ordinal < self.capacity()).then_some(ordinal)
    }

    /// The values of a range's first and last ordinal; `None` unless all of it has values.
    ///
    /// `first > last` when descending.
    pub fn first_last(&self, range: Range) -> Option<(i64, i64)> {
        let last = self.value_at(range.hi() - 1)?;
        Some((self.value_at(range.lo())?, last))
    }

    /// Values that the bounds allow, from `start` on; may exceed `MAX_ORDINAL` before `new` has checked.
    fn count(&self) -> i128 {
        let (start, increment) = (i128::from(self.start), i128::from(self.increment));
        let edge = i128::from(if increment > 0 { self.max } else { self.min });
        (edge - start) / increment + 1
    }

    /// Refuses more than `most` values, naming the widest bound that has no more.
    fn fits(&self, most: u64) -> Result<(), SequenceError> {
        let most = i128::from(most);
        if self.count() <= most {
            return Ok(());
        }
        if most == 0 {
            return Err(SequenceError::NoOrdinalsLeft);
        }
        // The first value that would be too many, and the bound just before it. As count > most >= 1, it
        // lies beyond start and not beyond the edge, so both are within i64.
        let increment = i128::from(self.increment);
        let beyond = i128::from(self.start) + most * increment;
        let (bound, fits) = if increment > 0 { ("largest max", beyond - 1) } else { ("smallest min", beyond + 1) };
        let fits = i64::try_from(fits).unwrap_or(self.start);
        Err(SequenceError::TooWide { bound, fits })
    }

    /// The first `count` values (at most the capacity) as a progression.
    fn values(&self, count: u64) -> Option<Progression> {
        let last = self.value_at(count.min(self.capacity()).checked_sub(1)?)?;
        let (start, last) = (i128::from(self.start), i128::from(last));
        Some(Progression { first: start.min(last), last: start.max(last), step: i128::from(self.increment).abs() })
    }
}
