//! UUIDs of version 7 (RFC 9562), rising within this process: also within a millisecond, and where the clock goes back.
//!
//! Purpose: namespaces of kind `uuid_v7`. The maintained crate's counter does it (42 bits, seeded anew each millisecond,
//! method 1 of RFC 9562, section 6.2). Nothing is coordinated: that two processes never make the same one is only probable;
//! docs/ids.md has the arithmetic.

use std::sync::{Mutex, PoisonError};

use uuid::{ContextV7, Timestamp, Uuid};

/// One rising stream of UUIDs.
#[derive(Default)]
pub struct UuidSource {
    context: Mutex<ContextV7>,
}

impl UuidSource {
    /// A stream that has given nothing out.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The next ones, by the wall clock in milliseconds since the Unix epoch; all above those before.
    pub fn take(&self, wall_ms: u64, count: u64, mut each: impl FnMut(Uuid)) {
        let context = self.context.lock().unwrap_or_else(PoisonError::into_inner);
        let nanos = u32::try_from(wall_ms % 1_000).unwrap_or(0) * 1_000_000;
        for _ in 0..count {
            each(Uuid::new_v7(Timestamp::from_unix(&*context, wall_ms / 1_000, nanos)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_rise_within_a_millisecond_and_when_the_clock_goes_back() {
        let source = UuidSource::new();
        let mut all = Vec::new();
        for wall_ms in [1_750_000_000_000, 1_750_000_000_001, 1_750_000_000_001, 1_749_000_000_000, 1_750_000_000_002] {
            source.take(wall_ms, 5_000, |uuid| all.push(uuid));
        }
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(all.iter().all(|uuid| uuid.get_version_num() == 7));
        assert_eq!(all[0].as_u128() >> 80, 1_750_000_000_000);
    }
}
