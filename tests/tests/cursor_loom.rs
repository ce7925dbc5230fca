//! The issuing cursor under a model checker: every interleaving of a few threads, within a bound of preemptions, with
//! the memory model's reorderings.
//!
//! The file under test is the shipped one, compiled here with loom's primitives.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use loom::sync::Arc;
use loom::thread;

mod sync {
    pub use loom::sync::atomic::AtomicU64;
    pub use loom::sync::{Mutex, MutexGuard};
}
mod range {
    pub use cadastre_core::range::Range;
}
#[path = "../../shared/core/src/segment.rs"]
#[allow(dead_code)]
mod segment;

use range::Range;
use segment::{Cursor, Stamp, TimeCursor};

fn r(lo: u64, hi: u64) -> Range {
    Range::new(lo, hi).unwrap()
}

/// With `CADASTRE_SOAK` set one preemption deeper, for minutes.
fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    let deeper = usize::from(std::env::var_os("CADASTRE_SOAK").is_some());
    builder.preemption_bound = Some(preemptions + deeper);
    builder.max_branches = 10_000;
    builder.check(model);
}

/// A cursor with these two segments.
fn with(active: Range, standby: Range) -> Arc<Cursor> {
    let cursor = Arc::new(Cursor::new());
    cursor.install(active).unwrap();
    cursor.install(standby).unwrap();
    cursor
}

/// Nothing twice, nothing that was not installed, each thread rising, and at most so much lost.
fn verify(taken: &[Vec<u64>], installed: Range, may_lose: u64) {
    assert!(taken.iter().all(|one| one.windows(2).all(|pair| pair[0] < pair[1])), "{taken:?}");
    let mut all: Vec<u64> = taken.concat();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count, "twice: {taken:?}");
    assert!(all.iter().all(|ordinal| installed.contains(*ordinal)), "{taken:?}");
    let lost = installed.len() - u64::try_from(count).unwrap();
    assert!(lost <= may_lose, "{lost} lost of {installed}: {taken:?}");
}

fn spawn(cursor: &Arc<Cursor>, take: impl FnOnce(&Cursor) -> Vec<u64> + 'static) -> thread::JoinHandle<Vec<u64>> {
    let cursor = Arc::clone(cursor);
    thread::spawn(move || take(&cursor))
}

fn all(cursor: &Cursor) -> Vec<u64> {
    std::iter::from_fn(|| cursor.next()).collect()
}

fn some(cursor: &Cursor, calls: usize) -> Vec<u64> {
    (0..calls).filter_map(|_| cursor.next()).collect()
}

fn all_by(cursor: &Cursor, n: u64) -> Vec<u64> {
    std::iter::from_fn(|| cursor.next_n(n)).flat_map(|range| range.lo()..range.hi()).collect()
}

fn join(threads: Vec<thread::JoinHandle<Vec<u64>>>) -> Vec<Vec<u64>> {
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

#[test]
fn two_threads_drain_two_segments() {
    check(4, || {
        let cursor = with(r(0, 1), r(1, 4));
        let threads = (0..2).map(|_| spawn(&cursor, all)).collect();
        verify(&join(threads), r(0, 4), 2);
    });
}

#[test]
fn three_threads_around_a_switch() {
    check(3, || {
        let cursor = with(r(0, 1), r(1, 3));
        let threads = (0..2).map(|_| spawn(&cursor, |c| some(c, 2))).collect();
        let mine = some(&cursor, 1);
        let mut taken = join(threads);
        taken.push(mine);
        verify(&taken, r(0, 3), 3);
    });
}

#[test]
fn many_at_a_time_loses_nothing() {
    check(4, || {
        let cursor = with(r(0, 2), r(2, 5));
        let threads = (1..3).map(|n| spawn(&cursor, move |c| all_by(c, n))).collect();
        verify(&join(threads), r(0, 5), 0);
    });
}

#[test]
fn one_and_many_at_a_time() {
    check(3, || {
        let cursor = with(r(0, 1), r(1, 4));
        let threads = vec![spawn(&cursor, |c| all_by(c, 2)), spawn(&cursor, all)];
        verify(&join(threads), r(0, 4), 1);
    });
}

#[test]
fn an_installer_beside_issuers() {
    check(2, || {
        let cursor = Arc::new(Cursor::new());
        cursor.install(r(0, 1)).unwrap();
        let threads = (0..2).map(|_| spawn(&cursor, |c| some(c, 2))).collect();
        cursor.install(r(1, 2)).unwrap();
        let third = cursor.install(r(2, 4)).is_ok();
        let mut taken = join(threads);
        taken.push(all(&cursor));
        verify(&taken, r(0, if third { 4 } else { 2 }), 4);
    });
}

#[test]
fn what_close_returns_was_not_and_will_not_be_issued() {
    check(3, || {
        let cursor = with(r(0, 1), r(1, 4));
        let many = |c: &Cursor| c.next_n(2).map(|range| (range.lo()..range.hi()).collect()).unwrap_or_default();
        let threads = vec![spawn(&cursor, |c| some(c, 2)), spawn(&cursor, many)];
        let left = cursor.close();
        assert_eq!((cursor.next(), cursor.next_n(3)), (None, None));
        assert!(cursor.install(r(10, 11)).is_err());
        let mut taken = join(threads);
        taken.extend([left.tail, left.standby].into_iter().flatten().map(|part| (part.lo()..part.hi()).collect()));
        verify(&taken, r(0, 4), 2);
    });
}

#[test]
fn whoever_sees_it_closed_is_given_nothing_more() {
    check(3, || {
        let cursor = with(r(0, 1), r(1, 4));
        let look = |c: &Cursor| {
            let mut got = some(c, 1);
            if c.is_closed() {
                assert_eq!((c.next(), c.next_n(1)), (None, None));
            } else {
                got.extend(some(c, 1));
            }
            got
        };
        let threads = vec![spawn(&cursor, look), spawn(&cursor, |c| some(c, 2))];
        let left = cursor.close();
        assert!(cursor.is_closed());
        let mut taken = join(threads);
        taken.extend([left.tail, left.standby].into_iter().flatten().map(|part| (part.lo()..part.hi()).collect()));
        verify(&taken, r(0, 4), 2);
    });
}

#[test]
fn whoever_comes_after_an_install_is_served() {
    check(3, || {
        let cursor = with(r(0, 1), r(1, 6));
        let threads = (0..2).map(|_| spawn(&cursor, |c| vec![c.next().unwrap()])).collect();
        assert!(cursor.next().is_some());
        join(threads);
    });
}

/// What a thread stamps whose look at the clock is `floor` and `ceiling`, however long ago that was.
fn stamps(cursor: &TimeCursor, looks: &[(u64, u64)]) -> Vec<u64> {
    let mut taken = Vec::new();
    for (floor, ceiling) in looks {
        if let Stamp::Taken(range) = cursor.take(*floor, *ceiling, 2) {
            taken.extend(range.lo()..range.hi());
        }
    }
    taken
}

/// A window [0, 4) that is renewed to 8 and given up: nothing is stamped twice, nothing beyond the renewal, and nothing
/// at or above the true end that the close returned: that is the next holder's.
#[test]
fn a_window_is_stamped_once_and_its_true_end_is_true() {
    check(3, || {
        let cursor = Arc::new(TimeCursor::new(r(0, 4)));
        let (one, two) = (Arc::clone(&cursor), Arc::clone(&cursor));
        let first = thread::spawn(move || stamps(&one, &[(0, 4), (4, 8)]));
        let second = thread::spawn(move || stamps(&two, &[(2, 4), (6, 8)]));
        cursor.extend(8);
        let end = cursor.close();
        assert_eq!(cursor.close(), None);
        assert_eq!(cursor.take(0, 4, 1), Stamp::Ended);
        let taken = vec![first.join().unwrap(), second.join().unwrap()];
        assert!(taken.concat().iter().all(|place| end.is_some_and(|end| *place < end)), "{taken:?} {end:?}");
        verify(&taken, r(0, 8), 8);
    });
}
