//! Contenders that carry the time: snowflakes against `ferroid`, UUIDs of version 7 against `uuid` with its `fast-rng`.
//!
//! Invariant: ours reads the machine's clock for each call, as every process that stamps does; `ferroid` comes with a
//! clock that a thread of its own moves on once a millisecond, and is used with that. Absent on purpose: a window that
//! ends within the bench.

use std::hint::{black_box, spin_loop};

use cadastre_core::layout::Layout;
use cadastre_core::range::Range;
use cadastre_core::stamp::Stamper;
use cadastre_runtime::clock::SystemClock;
use cadastre_runtime::uuid7::UuidSource;
use ferroid::generator::AtomicSnowflakeGenerator;
use ferroid::time::{MonotonicClock, UNIX_EPOCH};
use uuid::Uuid;

use super::Effort;
use super::in_process::race;
use super::rounds::{OURS, Result};

/// 2025-01-01T00:00:00Z.
const EPOCH_MS: u64 = 1_735_689_600_000;
/// The window that is stamped in, in milliseconds.
const WINDOW_MS: u64 = 3_600_000;
/// What the peer for time-based ids is called.
pub const FERROID: &str = "ferroid";
/// What the peer for UUIDs is called.
pub const UUID: &str = "uuid";

mod ids {
    ferroid::define_snowflake_id!(Ferroid12, u64, reserved: 1, timestamp: 41, machine_id: 10, sequence: 12);
    ferroid::define_snowflake_id!(Ferroid16, u64, reserved: 1, timestamp: 41, machine_id: 6, sequence: 16);
}

fn consume<T>(id: T) {
    black_box(id);
}

/// Ids a second of one worker, shared by all threads.
pub fn stamps(threads: usize, bits: u32, effort: Effort, into: &mut Result) {
    let Some(stamper) = stamper(bits) else { return };
    into.add(
        OURS,
        race(threads, effort, || {
            || {
                while stamper.next(SystemClock.wall_ms()).map(black_box).is_err() {
                    spin_loop();
                }
            }
        }),
    );
    let clock = MonotonicClock::<1>::with_epoch(UNIX_EPOCH);
    let theirs = if bits == 12 {
        let ids = AtomicSnowflakeGenerator::<ids::Ferroid12, _>::new(17, clock);
        race(threads, effort, || || consume(ids.next_id(|_| spin_loop())))
    } else {
        let ids = AtomicSnowflakeGenerator::<ids::Ferroid16, _>::new(17, clock);
        race(threads, effort, || || consume(ids.next_id(|_| spin_loop())))
    };
    into.add(FERROID, theirs);
}

fn stamper(bits: u32) -> Option<Stamper> {
    let layout = Layout::new([41, 2, 20 - bits, bits], 1, EPOCH_MS).ok()?;
    let unit = layout.unit_of(SystemClock.wall_ms())?;
    let window = Range::new(unit, unit + WINDOW_MS).ok()?;
    Some(Stamper::new(layout, 1, 3, window))
}

/// UUIDs a second of one source; ours so many in a call.
pub fn uuids(threads: usize, count: u64, effort: Effort, into: &mut Result) {
    let source = UuidSource::new();
    let calls = race(threads, effort, || {
        || {
            let now = SystemClock.wall_ms();
            if count == 1 {
                consume(source.next(now));
            } else {
                source.take(now, count, consume);
            }
        }
    });
    #[allow(clippy::cast_precision_loss)]
    into.add(OURS, calls * count as f64);
    #[allow(clippy::disallowed_methods, reason = "the peer is what people write")]
    let theirs = race(threads, effort, || || consume(Uuid::now_v7()));
    into.add(UUID, theirs);
}
