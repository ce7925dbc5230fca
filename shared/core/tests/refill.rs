//! The refill policy: bounds, growth and shrinking, and the small spaces.

// Clippy sees only `#[test]` functions as tests, not the helpers beside them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::num::NonZeroU64;

use cadastre_core::refill::{LastRange, MAX_GROWTH, RateWindow, RefillPolicy, RefillSettings, runway_seconds};
use proptest::prelude::*;

fn policy(change: impl FnOnce(&mut RefillSettings)) -> RefillPolicy {
    let mut settings = RefillSettings::default();
    change(&mut settings);
    RefillPolicy::new(settings).unwrap()
}

#[test]
fn settings_that_do_not_go_together_are_refused_by_name() {
    type Change = fn(&mut RefillSettings);
    let cases: [(&str, Change); 9] = [
        ("min_size", |s| s.min_size = 0),
        ("max_size", |s| s.max_size = 999),
        ("max_size", |s| s.max_size = u64::MAX),
        ("buffer_ms", |s| s.buffer_ms = 0),
        ("target_ms", |s| s.target_ms = s.buffer_ms),
        ("floor_percent", |s| s.floor_percent = 91),
        ("surge_factor", |s| s.surge_factor = 0),
        ("max_share_per_mille", |s| s.max_share_per_mille = 0),
        ("max_share_per_mille", |s| s.max_share_per_mille = 1_001),
    ];
    for (field, change) in cases {
        let mut settings = RefillSettings::default();
        change(&mut settings);
        assert_eq!(RefillPolicy::new(settings).unwrap_err().field, field);
    }
}

#[test]
fn refill_below_the_buffer_or_the_floor() {
    let policy = policy(|_| {});
    // 100 a second for 15 seconds is more than 10 % of 1,000.
    assert!(policy.should_refill(1_499, 1_000, 100.0));
    assert!(!policy.should_refill(1_500, 1_000, 100.0));
    // Idle: the floor.
    assert!(policy.should_refill(99, 1_000, 0.0));
    assert!(!policy.should_refill(100, 1_000, 0.0));
    // Whatever the rate and the floor, nothing left is a reason.
    assert!(policy.should_refill(0, 0, 0.0));
    assert!(!policy.should_refill(1, 1, 0.0));
    assert!(policy.should_refill(u64::MAX - 1, 1, f64::INFINITY));
    assert!(!policy.should_refill(1, 1, f64::NAN));
}

#[test]
fn sizes_last_the_target_time_at_the_surge() {
    let policy = policy(|_| {});
    assert_eq!(policy.next_size(0.0), 1_000);
    assert_eq!(policy.next_size(100.0), 12_000);
    assert_eq!(policy.next_size(1e12), 1_000_000);
    assert_eq!(policy.next_size(f64::NAN), 1_000);
    assert_eq!(runway_seconds(policy.next_size(100.0), 200.0), Some(60));
    assert_eq!(runway_seconds(5, 0.0), None);
}

/// Case 04: from segments of 100 to what a burst needs in a few steps, and back when it is over.
#[test]
fn case_04_burst_on_a_tiny_segment() {
    let policy = policy(|s| s.min_size = 100);
    let (per_ms, mut now, mut size, mut sizes) = (10, 0, 100, vec![100]);
    let mut window = RateWindow::new();
    while size < 600_000 {
        let lasted_ms = size / per_ms;
        now += lasted_ms;
        window.record(now, size);
        size = policy.next_size_after(LastRange { size, lasted_ms }, window.rate_per_second(now));
        assert!(size <= 1_000_000);
        sizes.push(size);
    }
    assert!(sizes.len() <= 8, "{sizes:?}");
    // Quiet: each lasts for hours, and the sizes go back to the least.
    for _ in 0..20 {
        now += 3_600_000;
        let last = LastRange { size, lasted_ms: 3_600_000 };
        size = policy.next_size_after(last, window.rate_per_second(now));
    }
    assert_eq!(size, 100);
}

/// Case 06: 200 restarts on a 32-bit space burn little, and less as the space shrinks.
#[test]
fn case_06_restart_storm_on_32_bit() {
    let policy = policy(|_| {});
    let space = (1u64 << 31) - 1;
    let mut left = space;
    for _ in 0..200 {
        left -= policy.after_restart(left).unwrap().get();
    }
    assert!(space - left <= 200_000);
    // A small space: at most a thousandth of what is left, at least 1, to the last one.
    let (mut left, mut before) = (50_000, u64::MAX);
    while let Some(size) = policy.after_restart(left) {
        assert!(size.get() <= (left / 1_000).max(1) && size.get() <= before);
        (left, before) = (left - size.get(), size.get());
    }
    assert_eq!(left, 0);
}

fn settings() -> impl Strategy<Value = RefillSettings> {
    (1u64..1 << 40, 0u64..1 << 40, 1u64..1 << 40, 1u64..1 << 40, 0u32..=90, 1u32..=100, 1u32..=1000).prop_map(
        |(min_size, more, buffer_ms, longer, floor_percent, surge_factor, max_share_per_mille)| RefillSettings {
            min_size,
            max_size: min_size + more,
            target_ms: buffer_ms + longer,
            buffer_ms,
            floor_percent,
            surge_factor,
            max_share_per_mille,
        },
    )
}

proptest! {
    #[test]
    fn sizes_stay_within_bounds(s in settings(), rate: f64, size: u64, lasted_ms: u64, left: u64) {
        let policy = RefillPolicy::new(s).unwrap();
        let bounds = s.min_size..=s.max_size;
        prop_assert!(bounds.contains(&policy.next_size(rate)));
        let next = policy.next_size_after(LastRange { size, lasted_ms }, rate);
        prop_assert!(bounds.contains(&next));
        let largest = policy.next_size(rate).max(size.saturating_mul(MAX_GROWTH));
        prop_assert!(next <= largest.max(s.min_size));
        let given = policy.within_space(next, left).map_or(0, NonZeroU64::get);
        prop_assert!(given <= left && given <= next);
        prop_assert_eq!(given == 0, left == 0);
        prop_assert!(policy.after_restart(left).map_or(0, NonZeroU64::get) <= s.min_size);
    }

    #[test]
    fn less_left_or_more_rate_never_stops_a_refill(
        s in settings(), left: u64, less: u64, size: u64, rate in 0f64..1e12, more in 0f64..1e12,
    ) {
        let policy = RefillPolicy::new(s).unwrap();
        if policy.should_refill(left, size, rate) {
            prop_assert!(policy.should_refill(left.min(less), size, rate));
            prop_assert!(policy.should_refill(left, size, rate + more));
        }
        prop_assert!(policy.should_refill(0, size, rate));
    }
}
