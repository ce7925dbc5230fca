//! The only file of the client that reads clocks and draws randomness.
//!
//! The daemons have theirs in `cadastre-runtime`; this crate goes into users' programs and does not bring a web
//! server and two databases with it for that. Invariant: the monotonic reading never falls; every draw asks
//! the operating system, as a generator in memory would be repeated by a fork. Absent on purpose: timers.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[cfg(any(target_os = "linux", target_os = "android"))]
use nix::time::{ClockId, clock_gettime};
use uuid::{Builder, Uuid};

/// Milliseconds since some moment; never falls, and counts the time that the machine was suspended. Measures deadlines
/// and rates.
pub(crate) fn mono_ms() -> u64 {
    u64::try_from(since_boot().as_millis()).unwrap_or(u64::MAX)
}

/// The monotonic clock that goes on through a suspend; where the kernel has none, the one that stands still meanwhile.
#[allow(clippy::disallowed_methods, reason = "this file is where clocks are read")]
fn since_boot() -> Duration {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Ok(time) = clock_gettime(ClockId::CLOCK_BOOTTIME) {
        return time.into();
    }
    ORIGIN.get_or_init(Instant::now).elapsed()
}

/// Milliseconds since 1970, as the machine believes: what time-based ids are stamped with.
#[allow(clippy::disallowed_methods, reason = "this file is where clocks are read")]
#[inline]
pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A random UUID.
pub(crate) fn uuid_v4() -> Uuid {
    Builder::from_random_bytes(draw()).into_uuid()
}

/// A random UUID that carries the time.
pub(crate) fn uuid_v7() -> Uuid {
    Builder::from_unix_timestamp_millis(wall_ms(), &draw()).into_uuid()
}

/// 64 random bits.
pub(crate) fn random() -> u64 {
    u64::from_le_bytes(draw())
}

#[allow(clippy::disallowed_methods, reason = "this file is where randomness is drawn")]
fn draw<const N: usize>() -> [u8; N] {
    let mut bytes = [0_u8; N];
    if let Err(error) = getrandom::fill(&mut bytes) {
        eprintln!("cadastre: the operating system gives no entropy ({error}); stopping, because ids could repeat");
        std::process::abort();
    }
    bytes
}
