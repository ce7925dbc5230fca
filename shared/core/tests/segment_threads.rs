//! The cursor under threads: nothing twice, each thread upwards, the gaps counted and bounded.

// Clippy sees only `#[test]` functions as tests, not the helpers beside them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cadastre_core::range::Range;
use cadastre_core::segment::{Cursor, InstallError, Unissued};

/// One run: the parts each thread was issued, what was installed, and what `close` gave back.
struct Run {
    issued: Vec<Vec<Range>>,
    installed: Vec<Range>,
    unissued: Unissued,
}

/// `threads` issuers, each taking `batch(thread)` at a time (0: one by `next`), while the main thread
/// installs `segments` segments of the lengths that `length` gives, and then closes in their midst.
fn run(threads: usize, segments: u64, length: fn(u64) -> u64, batch: fn(usize) -> u64) -> Run {
    let (cursor, done) = (Cursor::new(), AtomicBool::new(false));
    let mut installed = Vec::new();
    thread::scope(|scope| {
        let issuers: Vec<_> = (0..threads)
            .map(|i| {
                let (cursor, done) = (&cursor, &done);
                scope.spawn(move || issue(cursor, done, batch(i)))
            })
            .collect();
        let mut lo = 0;
        for n in 0..segments {
            // Some adjacent, some with a hole between: overshoot must not reach into either.
            let segment = Range::new(lo + n % 3, lo + n % 3 + length(n)).unwrap();
            while let Err(error) = cursor.install(segment) {
                assert_eq!(error, InstallError::Occupied);
                thread::yield_now();
            }
            installed.push(segment);
            lo = segment.hi();
        }
        let unissued = cursor.close();
        done.store(true, Ordering::Release);
        let issued = issuers.into_iter().map(|issuer| issuer.join().unwrap()).collect();
        Run { issued, installed, unissued }
    })
}

fn issue(cursor: &Cursor, done: &AtomicBool, batch: u64) -> Vec<Range> {
    let mut parts = Vec::new();
    loop {
        let last = done.load(Ordering::Acquire);
        let part = match batch {
            0 => cursor.next().map(|o| Range::new(o, o + 1).unwrap()),
            n => cursor.next_n(n),
        };
        match part {
            Some(part) => parts.push(part),
            None if last => return parts,
            None => thread::yield_now(),
        }
    }
}

/// Checks a run and returns how many ordinals were lost.
fn check(run: &Run) -> u64 {
    for parts in &run.issued {
        assert!(parts.windows(2).all(|w| w[0].hi() <= w[1].lo()), "a thread stepped back");
    }
    let mut all: Vec<Range> = run.issued.iter().flatten().copied().collect();
    all.extend(run.unissued.tail);
    all.extend(run.unissued.standby);
    all.sort_unstable();
    assert!(all.windows(2).all(|w| w[0].hi() <= w[1].lo()), "an ordinal was issued twice");
    let mut segments = run.installed.iter().peekable();
    for part in &all {
        while segments.next_if(|s| s.hi() <= part.lo()).is_some() {}
        assert!(segments.peek().is_some_and(|s| s.covers(part)), "{part} was not installed");
    }
    let total = |ranges: &[Range]| ranges.iter().map(Range::len).sum::<u64>();
    total(&run.installed) - total(&all)
}

#[test]
fn one_by_one_with_bounded_gaps() {
    for (threads, segments, length) in [
        (2, 20_000, (|_| 1) as fn(u64) -> u64),
        (4, 20_000, |n| 1 + n % 7),
        (8, 2_000, |n| 1 + n * n % 300),
        (3, 20, |_| 50_000),
    ] {
        let run = run(threads, segments, length, |_| 0);
        let lost = check(&run);
        assert!(lost <= threads as u64 * segments, "{lost} lost");
    }
}

#[test]
fn batches_lose_nothing() {
    for (threads, length) in [(2, (|_| 1) as fn(u64) -> u64), (4, |n| 1 + n % 50), (8, |_| 777)] {
        let run = run(threads, 3_000, length, |i| 1 + i as u64 * 3);
        assert_eq!(check(&run), 0);
    }
}

#[test]
fn singles_and_batches_together() {
    let run = run(6, 5_000, |n| 1 + n % 90, |i| if i % 2 == 0 { 0 } else { i as u64 });
    assert!(check(&run) <= 3 * 5_000);
}

#[test]
fn close_in_full_flight_is_exact() {
    for _ in 0..300 {
        let cursor = Cursor::new();
        cursor.install(Range::new(0, 1 << 40).unwrap()).unwrap();
        let (top, tail) = thread::scope(|scope| {
            let issuers: Vec<_> = (0..2)
                .map(|i| {
                    let cursor = &cursor;
                    scope.spawn(move || {
                        let mut top = None;
                        while let Some(part) = match i {
                            0 => cursor.next().map(|o| Range::new(o, o + 1).unwrap()),
                            _ => cursor.next_n(3),
                        } {
                            top = Some(part.hi());
                        }
                        top
                    })
                })
                .collect();
            thread::yield_now();
            let tail = cursor.close().tail.unwrap();
            (issuers.into_iter().filter_map(|i| i.join().unwrap()).max(), tail)
        });
        // The tail begins exactly where the highest issued part ends.
        assert_eq!(tail.lo(), top.unwrap_or(0));
        assert_eq!(tail.hi(), 1 << 40);
    }
}
