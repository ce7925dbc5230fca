//! The only file that reads clocks.
//!
//! Purpose: time is handed to everything else as an argument. Invariant: the monotonic reading
//! never falls within a process and never leaves it; the wall reading may do anything. Absent on
//! purpose: timers, and any rule about what time means (that is core's).

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[cfg(any(target_os = "linux", target_os = "android"))]
use nix::time::{ClockId, clock_gettime};

/// One reading of both clocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Now {
    /// Milliseconds since 1970, as the machine believes.
    pub wall_ms: u64,
    /// Milliseconds since some moment; never falls, and counts the time that the machine was suspended.
    pub mono_ms: u64,
}

/// Where time comes from.
pub trait Clock: Send + Sync {
    /// Reads both clocks.
    fn now(&self) -> Now;
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl SystemClock {
    /// The wall clock alone: what an id is stamped with.
    #[allow(clippy::disallowed_methods, reason = "this file is where clocks are read")]
    #[inline]
    #[must_use]
    pub fn wall_ms(self) -> u64 {
        // A clock before 1970 reads as 1970: the rules treat it as a clock that went back.
        millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }
}

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this file is where clocks are read")]
    fn now(&self) -> Now {
        Now { wall_ms: self.wall_ms(), mono_ms: millis(since_boot()) }
    }
}

/// The monotonic clock that goes on while the machine is suspended: an answer that waited through a night in a closed
/// laptop is late. Where the kernel has none, the one that stands still meanwhile.
#[allow(clippy::disallowed_methods, reason = "this file is where clocks are read")]
fn since_boot() -> Duration {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Ok(time) = clock_gettime(ClockId::CLOCK_BOOTTIME) {
        return time.into();
    }
    ORIGIN.get_or_init(Instant::now).elapsed()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// How far this process reads its wall clock wrong on purpose, and until when. Invariant: it ends at its deadline by the
/// monotonic clock with nobody doing anything, and the monotonic reading is never touched.
#[derive(Debug, Default)]
pub struct SetOff {
    off_ms: AtomicI64,
    until_mono_ms: AtomicU64,
}

impl SetOff {
    /// Reads the wall clock wrong by so much until then.
    pub fn set(&self, off_ms: i64, until_mono_ms: u64) {
        self.until_mono_ms.store(until_mono_ms, Ordering::SeqCst);
        self.off_ms.store(off_ms, Ordering::SeqCst);
    }

    /// Reads it right again.
    pub fn clear(&self) {
        self.off_ms.store(0, Ordering::SeqCst);
    }

    /// What is read where a clock shows this.
    #[inline]
    #[must_use]
    pub fn apply(&self, now: Now) -> Now {
        let off_ms = self.off_ms.load(Ordering::Relaxed);
        if off_ms == 0 || now.mono_ms >= self.until_mono_ms.load(Ordering::SeqCst) {
            return now;
        }
        Now { wall_ms: now.wall_ms.saturating_add_signed(off_ms), ..now }
    }
}

/// A clock that stands where it was put; for tests. Clones share the hands.
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    hands: Arc<(AtomicU64, AtomicU64)>,
}

impl ManualClock {
    /// A clock at these readings.
    #[must_use]
    pub fn new(now: Now) -> Self {
        let clock = Self::default();
        clock.set_wall(now.wall_ms);
        clock.hands.1.store(now.mono_ms, Ordering::SeqCst);
        clock
    }

    /// Puts the wall clock anywhere, back included.
    pub fn set_wall(&self, wall_ms: u64) {
        self.hands.0.store(wall_ms, Ordering::SeqCst);
    }

    /// Lets time pass on both clocks.
    pub fn advance(&self, ms: u64) {
        self.hands.0.fetch_add(ms, Ordering::SeqCst);
        self.hands.1.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Now {
        Now { wall_ms: self.hands.0.load(Ordering::SeqCst), mono_ms: self.hands.1.load(Ordering::SeqCst) }
    }
}

/// Measures how long something took, for metrics, logs and giving up on retries: no rule of
/// allocation may depend on it.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts it.
    #[allow(clippy::disallowed_methods, reason = "this file is where clocks are read")]
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Seconds since the start.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_monotonic_reading_never_falls() {
        let first = SystemClock.now();
        let second = SystemClock.now();
        assert!(second.mono_ms >= first.mono_ms);
        assert!(first.wall_ms > 1_600_000_000_000);
    }

    #[test]
    fn a_clock_that_is_set_off_is_right_again_by_itself() {
        let off = SetOff::default();
        let at = |mono_ms| Now { wall_ms: 10_000, mono_ms };
        assert_eq!(off.apply(at(5)), at(5));
        off.set(-3_000, 100);
        assert_eq!(off.apply(at(99)), Now { wall_ms: 7_000, mono_ms: 99 });
        assert_eq!(off.apply(at(100)), at(100), "at its deadline");
        off.set(60_000, 200);
        assert_eq!(off.apply(at(150)).wall_ms, 70_000);
        off.clear();
        assert_eq!(off.apply(at(150)), at(150));
    }

    #[test]
    fn a_manual_clock_jumps_back_on_the_wall_alone() {
        let clock = ManualClock::new(Now { wall_ms: 1_000, mono_ms: 50 });
        let other = clock.clone();
        clock.advance(10);
        other.set_wall(7);
        assert_eq!(clock.now(), Now { wall_ms: 7, mono_ms: 60 });
    }
}
