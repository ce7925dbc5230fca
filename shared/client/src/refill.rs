//! When a namespace's standby is asked for, and how large: pure, time is an argument.
//!
//! Purpose: the core's refill policy, fed by samples. Nothing is counted per ID: the task that refills reads
//! now and then how far the cursor has come, and the difference is what was issued since.
//!
//! Invariant: constant memory and work; sizes stay within the bounds; a wrong rate, suggested or measured, costs
//! availability or ordinals, never a duplicate, and after a minute of own samples a suggestion counts for
//! nothing.
//!
//! Absent on purpose: requests, back-off, clocks, and what a segment is.

use cadastre_core::refill::{MAX_GROWTH, RateWindow, RefillError, RefillPolicy, RefillSettings};
use cadastre_core::segment::Left;

/// How long own samples have to be taken until a suggestion counts for nothing: the rate's window.
const WINDOW_MS: u64 = 60_000;
/// The shortest and the longest time between two looks at a cursor that is in use.
const LOOK_MS: (u64, u64) = (2, 1_000);

/// The settings of a thick client, in the core's terms.
///
/// # Errors
/// [`RefillError`] naming the field that does not fit.
pub fn policy(sizes: (u64, u64), target_ms: u64, buffer_ms: u64) -> Result<RefillPolicy, RefillError> {
    RefillPolicy::new(RefillSettings {
        min_size: sizes.0,
        max_size: sizes.1,
        target_ms,
        buffer_ms,
        floor_percent: 10,
        surge_factor: 1,
        // A share of the space is the region's business: it knows what is left, and cuts what is asked for.
        max_share_per_mille: 1_000,
    })
}

/// What came with the newest segment, and where the count stood.
#[derive(Copy, Clone, Debug)]
struct Last {
    size: u64,
    at_ms: u64,
    issued: u64,
}

/// The measure of one namespace's demand.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    policy: RefillPolicy,
    window: RateWindow,
    /// When the first sample was taken.
    since_ms: Option<u64>,
    /// The newest sample: when, and how many ordinals had been issued by then.
    sampled: (u64, u64),
    /// Ordinals a second between the two newest samples.
    momentary: f64,
    suggested: f64,
    last: Option<Last>,
}

impl Meter {
    pub(crate) fn new(policy: RefillPolicy) -> Meter {
        let window = RateWindow::new();
        Meter { policy, window, since_ms: None, sampled: (0, 0), momentary: 0.0, suggested: 0.0, last: None }
    }

    /// Notes how many ordinals have been issued in all by now.
    pub(crate) fn sample(&mut self, now_ms: u64, issued: u64) {
        let (before_ms, before) = self.sampled;
        // A look while the cursor switches may count a segment twice: the next look puts it right.
        let used = issued.saturating_sub(before);
        if self.since_ms.is_none() {
            self.since_ms = Some(now_ms);
            self.window.record(now_ms, 0);
        }
        self.window.record(now_ms, used);
        let span_ms = now_ms.saturating_sub(before_ms);
        if span_ms > 0 {
            self.momentary = used as f64 * 1_000.0 / span_ms as f64;
        }
        self.sampled = (now_ms.max(before_ms), issued.max(before));
    }

    /// Notes a segment that was installed, and the rate that came with it.
    pub(crate) fn installed(&mut self, now_ms: u64, size: u64, suggested_per_second: f64) {
        // A suggestion is a number from elsewhere: nonsense counts as none.
        self.suggested = if suggested_per_second.is_finite() { suggested_per_second.max(0.0) } else { 0.0 };
        self.last = Some(Last { size, at_ms: now_ms, issued: self.sampled.1 });
    }

    /// Ordinals a second: measured over the last minute; before there is a minute, the suggestion fills it up.
    pub(crate) fn rate_per_second(&self, now_ms: u64) -> f64 {
        let own = self.window.rate_per_second(now_ms);
        let seen_ms = self.since_ms.map_or(0, |since| now_ms.saturating_sub(since).min(WINDOW_MS));
        let share = seen_ms as f64 / WINDOW_MS as f64;
        own.max(own * share + self.suggested * (1.0 - share))
    }

    /// The measured rate alone, for metrics.
    pub(crate) fn measured_per_second(&self, now_ms: u64) -> f64 {
        self.window.rate_per_second(now_ms)
    }

    /// Whether a standby is wanted now. `waited_for` is what callers miss.
    pub(crate) fn low(&self, left: Left, waited_for: u64, now_ms: u64) -> bool {
        left.standby == 0 && left.active < self.threshold(left, now_ms).max(waited_for)
    }

    fn threshold(&self, left: Left, now_ms: u64) -> u64 {
        self.policy.threshold(left.active_len, self.rate_per_second(now_ms))
    }

    /// How many ordinals to ask for: the target time at the rate; more where the newest segment goes faster
    /// than that, at most [`MAX_GROWTH`] times its size, or callers wait for more. The first is the least, or what
    /// callers wait for: what a process holds when it ends is burned, so a storm of restarts must not burn much.
    pub(crate) fn want(&self, waited_for: u64, now_ms: u64) -> u64 {
        let bounds = self.policy.settings();
        let by_rate = match self.last {
            None => bounds.min_size,
            Some(last) => self.policy.next_size(self.rate_per_second(now_ms)).max(self.shown_by(last, now_ms)),
        };
        by_rate.max(waited_for).clamp(bounds.min_size, bounds.max_size)
    }

    /// What the use since the newest segment came shows: quicker than a rate over a minute. Once it lasted the
    /// target time the rate alone counts, or what was a burst then would be remembered for as long as it lasts.
    fn shown_by(&self, last: Last, now_ms: u64) -> u64 {
        let used = u128::from(self.sampled.1.saturating_sub(last.issued));
        let lasted_ms = now_ms.saturating_sub(last.at_ms).max(1);
        let target_ms = self.policy.settings().target_ms;
        if lasted_ms >= target_ms {
            return 0;
        }
        let shown = used * u128::from(target_ms) / u128::from(lasted_ms);
        u64::try_from(shown).unwrap_or(u64::MAX).min(last.size.saturating_mul(MAX_GROWTH))
    }

    /// How long until the cursor is to be looked at again: half the time until the standby is due at the present
    /// pace. `None` while nothing was ever installed: then callers that miss something say so.
    pub(crate) fn look_again_ms(&self, left: Left, now_ms: u64) -> Option<u64> {
        self.last?;
        if left.standby > 0 {
            return Some(LOOK_MS.1);
        }
        let pace = self.momentary.max(self.rate_per_second(now_ms)).max(0.001);
        let above = left.active.saturating_sub(self.threshold(left, now_ms));
        let half_ms = above as f64 * 500.0 / pace;
        // A float that is too large becomes the largest integer.
        Some((half_ms as u64).clamp(LOOK_MS.0, LOOK_MS.1))
    }
}

#[cfg(test)]
#[path = "refill/tests.rs"]
mod tests;
