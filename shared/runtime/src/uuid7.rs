//! UUIDs of version 7 (RFC 9562), rising within this process: also within a millisecond, and where the clock goes back.
//!
//! Purpose: namespaces of kind `uuid_v7`. A counter of 42 bits that begins anew, at random in its lower half, with each
//! millisecond (method 1 of RFC 9562, section 6.2), and 32 random bits for each id. Nothing is coordinated: that two
//! processes never make the same one is only probable; docs/ids.md has the arithmetic. Absent on purpose: reading the
//! clock; and, where many are made at once, a generator in memory: their bits come from the operating system in one draw.

use std::sync::{Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::entropy;

/// The counter's bits.
const COUNTER_BITS: u32 = 42;
/// From so many on, their random bits are drawn at once.
const DRAWN: u64 = 16;
/// Ids whose random bits are drawn at once.
const PER_DRAW: usize = 1_024;
/// Random bytes of an id.
const BYTES: usize = 4;

/// What was given out last.
#[derive(Default)]
struct Last {
    ms: u64,
    counter: u64,
}

impl Last {
    /// The next place, above all those before.
    #[inline]
    fn step(&mut self, wall_ms: u64) {
        if wall_ms > self.ms {
            self.begin(wall_ms);
            return;
        }
        // The clock stands, or went back: the counter goes on.
        self.counter += 1;
        if self.counter >> COUNTER_BITS != 0 {
            self.begin(self.ms + 1);
        }
    }

    #[cold]
    fn begin(&mut self, ms: u64) {
        self.ms = ms;
        // The highest bit is left free: half of the counter is there to count.
        // The two bits above are the variant of what they were drawn as.
        self.counter = (random() as u64) << 2 >> (u64::BITS - COUNTER_BITS + 1);
    }

    /// Timestamp (48), version (4), counter (12), variant (2), counter (30), random (32).
    #[inline]
    fn id(&self, random: u32) -> Uuid {
        let (high, low) = (self.counter >> 30, self.counter & ((1 << 30) - 1));
        let first = (self.ms & ((1 << 48) - 1)) << 16 | 7 << 12 | high;
        let second = 0b10 << 62 | low << 32 | u64::from(random);
        Uuid::from_u64_pair(first, second)
    }
}

/// The crate's generator, seeded by the operating system and kept by the thread.
#[inline]
#[allow(clippy::disallowed_methods, reason = "the bits of one id, without a call to the system for each")]
fn random() -> u128 {
    Uuid::new_v4().as_u128()
}

/// One rising stream of UUIDs.
#[derive(Default)]
pub struct UuidSource {
    last: Mutex<Last>,
}

impl UuidSource {
    /// A stream that has given nothing out.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next one, as [`Self::take`].
    #[inline]
    pub fn next(&self, wall_ms: u64) -> Uuid {
        let random = random() as u32;
        let mut last = self.last();
        last.step(wall_ms);
        last.id(random)
    }

    /// The next ones, by the wall clock in milliseconds since the Unix epoch; all above those before.
    pub fn take(&self, wall_ms: u64, count: u64, mut each: impl FnMut(Uuid)) {
        if count < DRAWN {
            for _ in 0..count {
                each(self.next(wall_ms));
            }
            return;
        }
        let (mut left, mut drawn) = (count, [0_u8; PER_DRAW * BYTES]);
        while left > 0 {
            let part = usize::try_from(left).unwrap_or(PER_DRAW).min(PER_DRAW);
            let Some(bytes) = drawn.get_mut(..part * BYTES) else { return };
            entropy::fill(bytes);
            let mut last = self.last();
            for random in bytes.as_chunks::<BYTES>().0 {
                last.step(wall_ms);
                each(last.id(u32::from_le_bytes(*random)));
            }
            left -= part as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn they_rise_within_a_millisecond_and_when_the_clock_goes_back() {
        let source = UuidSource::new();
        let mut all = Vec::new();
        for wall_ms in [1_750_000_000_000, 1_750_000_000_001, 1_750_000_000_001, 1_749_000_000_000, 1_750_000_000_002] {
            for count in [1, 5_000, 15, 16, 1_024] {
                source.take(wall_ms, count, |uuid| all.push(uuid));
            }
            all.push(source.next(wall_ms));
        }
        assert_eq!(all.len(), 5 * 6_057);
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(all.iter().all(|uuid| uuid.get_version_num() == 7 && uuid.get_variant() == uuid::Variant::RFC4122));
        assert_eq!(all[0].as_u128() >> 80, 1_750_000_000_000);
    }

    #[test]
    fn the_random_bits_are_each_ids_own() {
        let source = UuidSource::new();
        let mut tails = BTreeSet::new();
        source.take(1_750_000_000_000, 4_000, |uuid| tails.extend([uuid.as_u128() as u32]));
        for _ in 0..4_000 {
            tails.insert(source.next(1_750_000_000_000).as_u128() as u32);
        }
        // Of 8,000 draws of 32 bits hardly any two are equal.
        assert!(tails.len() > 7_990, "{}", tails.len());
    }

    #[test]
    fn each_millisecond_begins_at_random_and_a_full_counter_goes_on_in_the_next_one() {
        let starts: BTreeSet<u128> = (0..100).map(|_| UuidSource::new().next(1).as_u128() >> 32).collect();
        assert_eq!(starts.len(), 100);
        let full = UuidSource { last: Mutex::new(Last { ms: 7, counter: (1 << COUNTER_BITS) - 2 }) };
        let ids = [full.next(7), full.next(7), full.next(7)];
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(ids.map(|id| id.as_u128() >> 80), [7, 8, 8]);
    }
}
