//! Capacity arithmetic: what is left, how long it lasts, how much is needed.
//!
//! Purpose: one set of sums for headroom, forecasts, alerts, the planner and the dashboard, so that two
//! of them never tell an operator different dates.
//!
//! Invariant: pure and saturating. A rate that is negative, infinite or not a number is read as the
//! nearest rate that makes sense (0, or "at once"); nothing wraps and nothing panics.
//!
//! Who may change it: freely; no promise rests on a forecast. What is issued is bounded by watermarks.
//!
//! Absent on purpose: trends and seasons. A forecast is "at this rate", and the caller names the rate.
//!
//! Rates are ordinals per second, times are milliseconds, counts are ordinals.

/// A rate that can be calculated with: not a number and negative become 0, infinity stays.
pub(crate) fn sane_rate(rate_per_second: f64) -> f64 {
    if rate_per_second > 0.0 { rate_per_second } else { 0.0 }
}

/// Ordinals between the watermark and the capacity; 0 at or beyond the end.
pub const fn space_left(capacity: u64, next_unreserved: u64) -> u64 {
    capacity.saturating_sub(next_unreserved)
}

/// Share of the space that is still left, in percent, `0.0 ..= 100.0`; 0 for a space of nothing.
pub fn percent_left(capacity: u64, next_unreserved: u64) -> f64 {
    if capacity == 0 {
        return 0.0;
    }
    space_left(capacity, next_unreserved) as f64 * 100.0 / capacity as f64
}

/// Whole seconds that `left` ordinals last, rounded down; `None` (for ever) at rate 0.
///
/// Saturates at `u64::MAX`.
pub fn runway_seconds(left: u64, rate_per_second: f64) -> Option<u64> {
    let rate = sane_rate(rate_per_second);
    // A float-to-integer cast saturates.
    (rate > 0.0).then(|| (left as f64 / rate) as u64)
}

/// Milliseconds that `left` ordinals last, rounded down; `None` (for ever) at rate 0.
///
/// Saturates at `u64::MAX`.
pub fn runway_ms(left: u64, rate_per_second: f64) -> Option<u64> {
    let rate = sane_rate(rate_per_second);
    (rate > 0.0).then(|| (left as f64 / rate * 1_000.0) as u64)
}

/// When the space ends at this rate, on the clock of `now_ms`; `None` (never) at rate 0.
///
/// Saturates at `u64::MAX`, which a caller shows as "not in any foreseeable time".
pub fn space_ends_at(left: u64, rate_per_second: f64, now_ms: u64) -> Option<u64> {
    Some(now_ms.saturating_add(runway_ms(left, rate_per_second)?))
}

/// Ordinals that are used in `for_ms` at a rate, rounded up; saturates at `u64::MAX`.
pub fn needed(rate_per_second: f64, for_ms: u64) -> u64 {
    // Zero times infinity is not a number; nothing is needed for no time.
    if for_ms == 0 {
        return 0;
    }
    (sane_rate(rate_per_second) * (for_ms as f64 / 1_000.0)).ceil() as u64
}

/// Headroom that a region keeps: `for_ms` at its peak times `surge`; saturates at `u64::MAX`.
///
/// A `surge` below 1 is read as 1: headroom is never less than the peak asks for.
pub fn headroom_needed(peak_per_second: f64, surge: u32, for_ms: u64) -> u64 {
    needed(sane_rate(peak_per_second) * f64::from(surge.max(1)), for_ms)
}

/// How many ordinals are missing from `held` to the headroom that is needed; 0 when it is met.
pub fn shortfall(held: u64, peak_per_second: f64, surge: u32, for_ms: u64) -> u64 {
    headroom_needed(peak_per_second, surge, for_ms).saturating_sub(held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range::MAX_ORDINAL;
    use proptest::prelude::*;

    const ODD: [f64; 6] = [0.0, -0.0, -1.0, f64::NAN, f64::NEG_INFINITY, f64::MIN];

    #[test]
    fn odd_rates_never_end_and_need_nothing() {
        for rate in ODD {
            assert_eq!(runway_seconds(10, rate), None);
            assert_eq!(space_ends_at(10, rate, 5), None);
            assert_eq!(needed(rate, u64::MAX), 0);
            assert_eq!(headroom_needed(rate, 2, 1), 0);
        }
    }

    #[test]
    fn extremes_saturate() {
        assert_eq!(runway_seconds(u64::MAX, f64::MIN_POSITIVE), Some(u64::MAX));
        assert_eq!(runway_seconds(MAX_ORDINAL, f64::INFINITY), Some(0));
        assert_eq!(space_ends_at(u64::MAX, 1e-300, u64::MAX), Some(u64::MAX));
        assert_eq!(space_ends_at(0, 1e-300, 7), Some(7));
        assert_eq!(needed(f64::INFINITY, 1), u64::MAX);
        assert_eq!(needed(f64::INFINITY, 0), 0);
        assert_eq!(headroom_needed(f64::MAX, u32::MAX, u64::MAX), u64::MAX);
        assert_eq!(space_left(5, 9), 0);
        assert_eq!(percent_left(0, 0), 0.0);
        assert_eq!(percent_left(200, 150), 25.0);
        assert_eq!(percent_left(u64::MAX, 0), 100.0);
    }

    #[test]
    fn plain_sums() {
        assert_eq!(runway_seconds(1_000, 10.0), Some(100));
        assert_eq!(runway_seconds(999, 10.0), Some(99));
        assert_eq!(space_ends_at(1_000, 10.0, 500), Some(100_500));
        assert_eq!(needed(0.5, 1_000), 1);
        assert_eq!(headroom_needed(100.0, 2, 86_400_000), 17_280_000);
        assert_eq!(headroom_needed(100.0, 0, 1_000), 100);
        assert_eq!(shortfall(17_000_000, 100.0, 2, 86_400_000), 280_000);
        assert_eq!(shortfall(u64::MAX, 100.0, 2, 86_400_000), 0);
    }

    proptest! {
        #[test]
        fn more_left_lasts_longer(a: u64, b: u64, rate in 1e-6f64..1e9, now: u64) {
            let (less, more) = (a.min(b), a.max(b));
            prop_assert!(runway_seconds(less, rate) <= runway_seconds(more, rate));
            prop_assert!(space_ends_at(less, rate, now) >= Some(now));
        }

        #[test]
        fn what_is_needed_lasts(rate in 1e-3f64..1e6, seconds in 1u64..1_000_000) {
            let lasts = runway_ms(needed(rate, seconds * 1_000), rate).unwrap();
            // Doubles have 53 bits: allow one part in 2^40 and a millisecond.
            prop_assert!(lasts + 1 + seconds / 1_000_000 >= seconds * 1_000);
        }

        #[test]
        fn nothing_panics(left: u64, rate: f64, now: u64, surge: u32, ms: u64) {
            let _ = (space_ends_at(left, rate, now), shortfall(left, rate, surge, ms));
        }
    }
}
