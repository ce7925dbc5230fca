//! How fast ordinals are used: a sliding minute, and the peak of a day.
//!
//! Purpose: the one measure of demand, at every tier.
//!
//! Invariant: constant memory, constant work per record, whatever the clock does. Time that goes back is
//! read as the latest time that was seen; a jump ahead leaves the window empty, not stuck.
//!
//! Who may change it: freely; no promise rests on a rate.
//!
//! Absent on purpose: percentiles, trends and wall-clock time.

/// Seconds in the sliding window.
const WINDOW: u64 = 60;
/// Hours that a peak is remembered; one more bucket holds the hour under way.
const PEAK_HOURS: u64 = 24;
const HOUR: u64 = 3_600;

/// Ordinals used in the last 60 seconds, in buckets of one second, and the busiest second of 24 hours.
#[derive(Clone, Debug)]
pub struct RateWindow {
    /// One count per second, by second modulo the length.
    seconds: [u64; WINDOW as usize],
    /// The busiest finished second of each hour, by hour modulo the length.
    peaks: [u64; PEAK_HOURS as usize + 1],
    /// Latest time seen, and the first, in milliseconds; `None` before the first record.
    seen: Option<Seen>,
}

#[derive(Copy, Clone, Debug)]
struct Seen {
    first_ms: u64,
    latest_ms: u64,
}

impl Default for RateWindow {
    fn default() -> RateWindow {
        RateWindow::new()
    }
}

impl RateWindow {
    /// A window that has seen nothing.
    pub const fn new() -> RateWindow {
        RateWindow { seconds: [0; WINDOW as usize], peaks: [0; PEAK_HOURS as usize + 1], seen: None }
    }

    /// Counts `n` ordinals used at `now_ms`. Counts saturate.
    pub fn record(&mut self, now_ms: u64, n: u64) {
        let now_ms = self.advance(now_ms);
        let second = now_ms / 1_000;
        if let Some(bucket) = bucket(&mut self.seconds, second) {
            *bucket = bucket.saturating_add(n);
            let count = *bucket;
            if let Some(peak) = bucket_of_hour(&mut self.peaks, second) {
                *peak = count.max(*peak);
            }
        }
    }

    /// Ordinals per second over the last 60 seconds, or over the time seen while that is shorter (at least
    /// one second); 0 before the first record.
    pub fn rate_per_second(&self, now_ms: u64) -> f64 {
        let Some(seen) = self.seen else {
            return 0.0;
        };
        let now_ms = now_ms.max(seen.latest_ms);
        // The window: this second so far, and the 59 before it.
        let oldest = (now_ms / 1_000).saturating_sub(WINDOW - 1);
        let latest = seen.latest_ms / 1_000;
        let used = recent(&self.seconds, oldest, latest);
        let span_ms = now_ms - seen.first_ms.max(oldest * 1_000);
        used as f64 * 1_000.0 / span_ms.max(1_000) as f64
    }

    /// Ordinals used in the busiest second of the last 24 hours (whole hours: up to 25).
    ///
    /// It is held in full and then dropped, so that yesterday's peak still counts when today's is due.
    pub fn peak_per_second(&self, now_ms: u64) -> f64 {
        let Some(seen) = self.seen else {
            return 0.0;
        };
        let oldest = (now_ms.max(seen.latest_ms) / 1_000 / HOUR).saturating_sub(PEAK_HOURS);
        let latest = seen.latest_ms / 1_000 / HOUR;
        (oldest..=latest)
            .filter_map(|hour| self.peaks.get((hour % (PEAK_HOURS + 1)) as usize))
            .copied()
            .max()
            .unwrap_or(0) as f64
    }

    /// Moves on to `now_ms`, clearing what falls out; returns the time to count at, never before the latest.
    fn advance(&mut self, now_ms: u64) -> u64 {
        let Some(seen) = &mut self.seen else {
            self.seen = Some(Seen { first_ms: now_ms, latest_ms: now_ms });
            return now_ms;
        };
        let (was, now_ms) = (seen.latest_ms, now_ms.max(seen.latest_ms));
        seen.latest_ms = now_ms;
        clear(&mut self.seconds, was / 1_000, now_ms / 1_000);
        clear(&mut self.peaks, was / 1_000 / HOUR, now_ms / 1_000 / HOUR);
        now_ms
    }
}

/// The bucket of a time, in the ring's unit.
fn bucket(ring: &mut [u64], time: u64) -> Option<&mut u64> {
    let index = time % ring.len() as u64;
    ring.get_mut(index as usize)
}

fn bucket_of_hour(ring: &mut [u64], second: u64) -> Option<&mut u64> {
    bucket(ring, second / HOUR)
}

/// Clears the buckets of the times after `was`, up to `now`: at most the whole ring.
fn clear(ring: &mut [u64], was: u64, now: u64) {
    let steps = (now - was).min(ring.len() as u64);
    for back in 0..steps {
        if let Some(bucket) = bucket(ring, now - back) {
            *bucket = 0;
        }
    }
}

/// Sum of the seconds `oldest ..= latest`, which are at most the whole ring.
fn recent(ring: &[u64], oldest: u64, latest: u64) -> u64 {
    (oldest..=latest)
        .filter_map(|second| ring.get((second % WINDOW) as usize))
        .fold(0, |sum: u64, n| sum.saturating_add(*n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_short_time_is_not_divided_by_a_minute() {
        let mut window = RateWindow::new();
        assert_eq!((window.rate_per_second(5), window.peak_per_second(5)), (0.0, 0.0));
        window.record(10_000, 50);
        assert_eq!(window.rate_per_second(10_000), 50.0);
        window.record(12_000, 50);
        assert_eq!(window.rate_per_second(12_000), 50.0);
        assert_eq!(window.rate_per_second(20_000), 10.0);
    }

    #[test]
    fn a_minute_later_it_is_forgotten() {
        let mut window = RateWindow::new();
        window.record(0, 6_000);
        assert!((window.rate_per_second(59_999) - 100.0).abs() < 0.1);
        assert_eq!(window.rate_per_second(60_000), 0.0);
        assert_eq!(window.rate_per_second(u64::MAX), 0.0);
    }

    #[test]
    fn the_peak_is_held_for_a_day() {
        let (mut window, day) = (RateWindow::new(), 24 * HOUR * 1_000);
        window.record(0, 700);
        window.record(500, 200);
        window.record(1_000, 100);
        assert_eq!(window.peak_per_second(1_000), 900.0);
        window.record(day, 1);
        assert_eq!(window.peak_per_second(day), 900.0);
        assert_eq!(window.peak_per_second(day + HOUR * 1_000), 1.0);
        window.record(3 * day, 2);
        assert_eq!(window.peak_per_second(3 * day), 2.0);
        assert_eq!(window.peak_per_second(u64::MAX), 0.0);
    }

    #[test]
    fn a_clock_that_jumps() {
        let mut window = RateWindow::new();
        window.record(5_000, 10);
        window.record(u64::MAX, 30);
        assert_eq!(window.rate_per_second(u64::MAX), 30.0 / 59.0_f64.max(span_of_the_end()));
        // Back again: counted at the latest time seen.
        window.record(0, 30);
        assert_eq!(window.peak_per_second(0), 60.0);
        window.record(0, u64::MAX);
        assert!(window.rate_per_second(0) > 0.0);
    }

    /// Seconds from the start of the window's oldest second to the end of the number line.
    fn span_of_the_end() -> f64 {
        (u64::MAX - (u64::MAX / 1_000 - 59) * 1_000) as f64 / 1_000.0
    }

    proptest! {
        #[test]
        fn agrees_with_a_list(steps in prop::collection::vec((0u64..20_000, 0u64..100), 1..200)) {
            let (mut window, mut list, mut now) = (RateWindow::new(), Vec::new(), 0);
            for (wait, n) in steps {
                now += wait;
                window.record(now, n);
                list.push((now, n));
                let oldest = (now / 1_000).saturating_sub(59);
                let used: u64 = list.iter().filter(|(t, _)| t / 1_000 >= oldest).map(|(_, n)| n).sum();
                let span = (now - list[0].0.max(oldest * 1_000)).max(1_000);
                prop_assert_eq!(window.rate_per_second(now), used as f64 * 1_000.0 / span as f64);
                prop_assert!(window.peak_per_second(now) >= n as f64);
            }
        }

        #[test]
        fn no_clock_breaks_it(times: Vec<(u64, u64)>, ask: u64) {
            let mut window = RateWindow::new();
            for (now, n) in times {
                window.record(now, n);
                prop_assert!(window.rate_per_second(ask) >= 0.0);
                prop_assert!(window.peak_per_second(ask) >= 0.0);
            }
        }
    }
}
