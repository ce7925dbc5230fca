//! Contenders without a network: threads that take ids as fast as they can for a moment.

use std::hint::black_box;
use std::num::NonZeroU64;
use std::sync::Barrier;
use std::sync::Mutex;
use std::time::Duration;

use cadastre_core::chunks::Chunks;
use cadastre_core::range::Range;
use cadastre_core::segment::Cursor;
use cadastre_runtime::clock::Stopwatch;

use super::Effort;
use super::peers::{Bare, ByPointer, BySwap};
use super::rounds::{OURS, Result};
use super::stamped;

/// Ids between two looks at the clock.
const BURST: u64 = 4_096;
/// What a thread takes at a time where order across threads does not matter.
const CHUNK: u64 = 1_024;
/// The length of the segments that ours is filled with: a minute's worth at 16,667 ids/s.
const SEGMENT: u64 = 1_000_000;

/// Which contenders a row compares.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Contenders {
    /// One strictly ascending stream for all threads.
    Strict,
    /// Chunks for each thread.
    Chunks,
    /// Time-based ids with so many bits of sequence, one worker for all threads.
    Stamps(u32),
    /// UUIDs of version 7, so many in a call.
    Uuids(u64),
}

/// Runs every contender in turns.
#[must_use]
pub fn run(threads: usize, contenders: Contenders, effort: Effort) -> Result {
    let mut result = Result::default();
    // The first turn warms the machine up and does not count.
    for turn in 0..=effort.rounds {
        let mut sink = Result::default();
        let into = if turn == 0 { &mut sink } else { &mut result };
        match contenders {
            Contenders::Strict => strict(threads, effort, into),
            Contenders::Chunks => chunks(threads, effort, into),
            Contenders::Stamps(bits) => stamped::stamps(threads, bits, effort, into),
            Contenders::Uuids(count) => stamped::uuids(threads, count, effort, into),
        }
    }
    result
}

fn strict(threads: usize, effort: Effort, into: &mut Result) {
    let ours = filled();
    into.add(
        OURS,
        race(threads, effort, || {
            let ours = &ours;
            move || next_or_fill(ours)
        }),
    );
    let bare = Bare::default();
    into.add(
        "fetch_add",
        race(threads, effort, || {
            || {
                black_box(bare.next());
            }
        }),
    );
    let pointer = ByPointer::default();
    into.add(
        "AtomicPtr segment",
        race(threads, effort, || {
            || {
                black_box(pointer.next());
            }
        }),
    );
    let swap = BySwap::default();
    into.add(
        "ArcSwap segment",
        race(threads, effort, || {
            || {
                black_box(swap.next());
            }
        }),
    );
}

fn chunks(threads: usize, effort: Effort, into: &mut Result) {
    let ours = filled();
    let size = NonZeroU64::new(CHUNK).unwrap_or(NonZeroU64::MIN);
    into.add(
        OURS,
        race(threads, effort, || {
            let cursor = &ours;
            let mut mine = Chunks::new(cursor, size);
            move || {
                while mine.next().map(black_box).is_none() {
                    fill(cursor);
                }
            }
        }),
    );
    let bare = Bare::default();
    into.add(
        "thread-local chunk",
        race(threads, effort, || {
            let bare = &bare;
            let (mut next, mut end) = (0, 0);
            move || {
                if next == end {
                    next = bare.take(1_024);
                    end = next + 1_024;
                }
                black_box(next);
                next += 1;
            }
        }),
    );
}

/// A cursor with an active segment and a standby.
fn filled() -> Cursor {
    let cursor = Cursor::new();
    fill(&cursor);
    fill(&cursor);
    cursor
}

/// Whoever finds nothing installs the next two segments: what a prefetching refill does ahead of time.
#[cold]
fn fill(cursor: &Cursor) {
    let lo = cursor.floor();
    if let Ok(next) = Range::new(lo, lo + SEGMENT) {
        // Refused where another thread was first: then there is one.
        let _ = cursor.install(next);
    }
}

fn next_or_fill(cursor: &Cursor) {
    while cursor.next().map(black_box).is_none() {
        fill(cursor);
    }
}

/// Ids a second of all threads together.
pub(super) fn race<F: FnMut()>(threads: usize, effort: Effort, make: impl Fn() -> F + Sync) -> f64 {
    let (gate, total) = (Barrier::new(threads), Mutex::new(0.0));
    let turn = Duration::from_millis(effort.turn_ms).as_secs_f64();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut take = make();
                gate.wait();
                let watch = Stopwatch::start();
                let mut taken = 0_u64;
                while watch.seconds() < turn {
                    // Four in one turn of the loop. An id out of a chunk takes one cycle; in a loop of that length half of
                    // the figure would be whether the compiler happened to lay it across two lines of code.
                    for _ in 0..BURST / 4 {
                        take();
                        take();
                        take();
                        take();
                    }
                    taken += BURST;
                }
                #[allow(clippy::cast_precision_loss)]
                let rate = taken as f64 / watch.seconds();
                *total.lock().unwrap_or_else(std::sync::PoisonError::into_inner) += rate;
            });
        }
    });
    total.into_inner().unwrap_or_default()
}
