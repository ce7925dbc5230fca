//! How long to wait before the next try of a request that failed.
//!
//! Purpose: exponential back-off with full jitter, so that a thousand instances do not come back at once.
//!
//! Invariant: every wait is 1 ms to `max_ms`; nothing wraps, however many attempts failed.
//!
//! Who may change it: freely.
//!
//! Absent on purpose: a limit on attempts (the caller has a deadline), and a source of randomness.

use super::RefillError;

/// What is wrong with the settings of a [`Backoff`].
pub type BackoffError = RefillError;

/// Waits of a random part of `base_ms`, 2 x, 4 x ..., up to `max_ms`.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Backoff {
    base_ms: u64,
    max_ms: u64,
    attempt: u32,
}

impl Backoff {
    /// A back-off before its first failure; `1 <= base_ms <= max_ms`, in milliseconds.
    ///
    /// # Errors
    /// [`BackoffError`] naming the field that does not fit.
    pub const fn new(base_ms: u64, max_ms: u64) -> Result<Backoff, BackoffError> {
        if base_ms == 0 {
            return Err(RefillError { field: "base_ms", problem: "must be at least 1" });
        }
        if max_ms < base_ms {
            return Err(RefillError { field: "max_ms", problem: "must be at least base_ms" });
        }
        Ok(Backoff { base_ms, max_ms, attempt: 0 })
    }

    /// Failures since the last reset; stops at `u32::MAX`.
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The longest that the next wait can be, in milliseconds: `base_ms * 2^attempt`, at most `max_ms`.
    pub fn ceiling_ms(&self) -> u64 {
        let factor = 1u64.checked_shl(self.attempt).unwrap_or(u64::MAX);
        self.base_ms.saturating_mul(factor).min(self.max_ms)
    }

    /// Counts one failure, and says how long to wait: evenly `1 ..= ceiling_ms`, by a `random` that is even
    /// over all of `u64`.
    pub fn failed(&mut self, random: u64) -> u64 {
        let scaled = (u128::from(random) * u128::from(self.ceiling_ms())) >> 64;
        self.attempt = self.attempt.saturating_add(1);
        // Below the ceiling, a u64.
        u64::try_from(scaled).unwrap_or(self.max_ms - 1) + 1
    }

    /// After a success: the next failure is the first again.
    pub fn reset(&mut self) {
        self.attempt = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn settings_are_checked() {
        assert_eq!(Backoff::new(0, 5).unwrap_err().field, "base_ms");
        assert_eq!(Backoff::new(6, 5).unwrap_err().field, "max_ms");
    }

    #[test]
    fn it_doubles_to_the_limit_and_resets() {
        let mut backoff = Backoff::new(100, 5_000).unwrap();
        let ceilings: Vec<u64> = (0..8).map(|_| backoff.failed(u64::MAX)).collect();
        assert_eq!(ceilings, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        assert_eq!(backoff.attempt(), 8);
        backoff.reset();
        assert_eq!((backoff.attempt(), backoff.failed(0)), (0, 1));
    }

    proptest! {
        #[test]
        fn every_wait_is_within_bounds(base in 1u64.., more: u64, tries in 0usize..200, random: u64) {
            let max = base.saturating_add(more);
            let mut backoff = Backoff::new(base, max).unwrap();
            for _ in 0..tries {
                let ceiling = backoff.ceiling_ms();
                prop_assert!((base..=max).contains(&ceiling));
                prop_assert!((1..=ceiling).contains(&backoff.failed(random)));
                prop_assert!(backoff.ceiling_ms() >= ceiling);
            }
        }
    }
}
