//! When to ask above for a new range, and for how much: one policy for three tiers.
//!
//! Purpose: an instance refills from its region, a region from the authority, by the same rules: a sliding
//! window gives the rate; refill when what is left would not last the buffer time, or is below a share of
//! the last range; size the next range to last the target time.
//!
//! Invariant: pure. Time is `now_ms`, of a monotonic clock; the random number is an argument; memory is
//! constant. A wrong answer here costs availability or ordinals, never a duplicate.
//!
//! Who may change it: anybody who keeps the sizes within their bounds and the burst tests passing.
//!
//! Absent on purpose: one outstanding request per tier and keeping its allocation id (the caller's), and any
//! knowledge of what a range is.

mod backoff;
mod rate;

use std::num::NonZeroU64;

pub use self::backoff::{Backoff, BackoffError};
pub use self::rate::RateWindow;
pub use crate::plan::runway_seconds;
use crate::plan::{needed, sane_rate};
use crate::range::MAX_ORDINAL;

/// A range may grow to at most this many times the one before it.
pub const MAX_GROWTH: u64 = 4;

/// A setting that is out of bounds, or does not go with another.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct RefillError {
    /// The field of [`RefillSettings`] that has to change.
    pub field: &'static str,
    /// What it must be.
    pub problem: &'static str,
}

/// The settings of a [`RefillPolicy`], unchecked. `Default` is a region's for its segments.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct RefillSettings {
    /// Least ordinals asked for, `1 ..= max_size`; a small space may still give fewer.
    pub min_size: u64,
    /// Most ordinals asked for, at most `MAX_ORDINAL`.
    pub max_size: u64,
    /// How long a range should last, in milliseconds; above `buffer_ms`.
    pub target_ms: u64,
    /// Refill when what is left lasts less than this, in milliseconds.
    pub buffer_ms: u64,
    /// Refill at the latest when less than this share of the last range is left, `0 ..= 90` percent.
    pub floor_percent: u32,
    /// The size is for the rate times this, `1 ..= 100`.
    pub surge_factor: u32,
    /// A range is at most this share of the space that is left, `1 ..= 1000` per mille (and at least 1).
    pub max_share_per_mille: u32,
}

impl Default for RefillSettings {
    fn default() -> RefillSettings {
        RefillSettings {
            min_size: 1_000,
            max_size: 1_000_000,
            target_ms: 60_000,
            buffer_ms: 15_000,
            floor_percent: 10,
            surge_factor: 2,
            max_share_per_mille: 1,
        }
    }
}

/// The range before: how many ordinals, and how many milliseconds from its first use to its last.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct LastRange {
    /// Ordinals that it held.
    pub size: u64,
    /// Milliseconds that it lasted; 0 is read as 1.
    pub lasted_ms: u64,
}

/// When to refill, and how much to ask for. Its settings go together.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct RefillPolicy {
    settings: RefillSettings,
}

impl RefillPolicy {
    /// Checks the settings, and how they relate.
    ///
    /// # Errors
    /// [`RefillError`] naming the first field that does not fit.
    pub fn new(settings: RefillSettings) -> Result<RefillPolicy, RefillError> {
        let s = &settings;
        let checks = [
            (s.min_size >= 1, "min_size", "must be at least 1"),
            (s.max_size >= s.min_size, "max_size", "must be at least min_size"),
            (s.max_size <= MAX_ORDINAL, "max_size", "must be at most 2^63-1"),
            (s.buffer_ms >= 1, "buffer_ms", "must be at least 1"),
            (s.target_ms > s.buffer_ms, "target_ms", "must be above buffer_ms, or every range is refilled as it comes"),
            (s.floor_percent <= 90, "floor_percent", "must be at most 90, or every range is refilled as it comes"),
            ((1..=100).contains(&s.surge_factor), "surge_factor", "must be 1 to 100"),
            ((1..=1000).contains(&s.max_share_per_mille), "max_share_per_mille", "must be 1 to 1000"),
        ];
        match checks.into_iter().find(|(holds, _, _)| !holds) {
            Some((_, field, problem)) => Err(RefillError { field, problem }),
            None => Ok(RefillPolicy { settings }),
        }
    }

    /// The settings that were checked.
    pub const fn settings(&self) -> &RefillSettings {
        &self.settings
    }

    /// Ordinals left below which to refill, at a rate per second and for a last range of a size; at least 1.
    pub fn threshold(&self, size_of_current: u64, rate_per_second: f64) -> u64 {
        let buffer = needed(rate_per_second, self.settings.buffer_ms);
        let percent = u128::from(self.settings.floor_percent);
        let floor = (u128::from(size_of_current) * percent).div_ceil(100);
        // A share of at most 90 %, so it fits.
        buffer.max(u64::try_from(floor).unwrap_or(u64::MAX)).max(1)
    }

    /// Whether to refill now: `left` counts what is held and not issued, a standby included.
    pub fn should_refill(&self, left: u64, size_of_current: u64, rate_per_second: f64) -> bool {
        left < self.threshold(size_of_current, rate_per_second)
    }

    /// Ordinals that last the target time at the rate times the surge factor, within `min_size ..= max_size`.
    pub fn next_size(&self, rate_per_second: f64) -> u64 {
        let surge = f64::from(self.settings.surge_factor);
        self.clamp(needed(sane_rate(rate_per_second) * surge, self.settings.target_ms))
    }

    /// As `next_size`, and by what the last range showed, which is quicker than a rate over a minute.
    ///
    /// Used up faster than the target: larger in proportion, at most [`MAX_GROWTH`] times. Slower: what the
    /// rate asks for, but no less than half, so that one quiet minute does not undo a day of growth.
    pub fn next_size_after(&self, last: LastRange, rate_per_second: f64) -> u64 {
        let steady = self.next_size(rate_per_second);
        let (size, lasted) = (u128::from(last.size), u128::from(last.lasted_ms.max(1)));
        let target = u128::from(self.settings.target_ms);
        let shown =
            if lasted < target { (size * target / lasted).min(size * u128::from(MAX_GROWTH)) } else { size / 2 };
        self.clamp(steady.max(u64::try_from(shown).unwrap_or(u64::MAX)))
    }

    /// The first size of a new process: the least. What the last one held is burned, so a storm of restarts
    /// must not burn large ranges; who needs more grows within a few steps.
    pub fn after_restart(&self, space_left: u64) -> Option<NonZeroU64> {
        self.within_space(self.settings.min_size, space_left)
    }

    /// A size cut to the largest share of the space that is left, at least 1; `None` when nothing is left.
    ///
    /// Never more than is left: towards its end a space is handed out in ever smaller parts, to the last.
    pub fn within_space(&self, size: u64, space_left: u64) -> Option<NonZeroU64> {
        let share = u128::from(space_left) * u128::from(self.settings.max_share_per_mille) / 1000;
        let share = u64::try_from(share).unwrap_or(u64::MAX).max(1);
        NonZeroU64::new(size.max(1).min(share).min(space_left))
    }

    fn clamp(&self, size: u64) -> u64 {
        // `new` has checked that min_size <= max_size.
        size.max(self.settings.min_size).min(self.settings.max_size)
    }
}
