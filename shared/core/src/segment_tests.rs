//! The cursor against a plain model of it, and its edges. Threads are in the model checker's tests.

use std::num::NonZeroU64;

use crate::range::Range;
use crate::segment::*;
use proptest::prelude::*;

fn range(lo: u64, hi: u64) -> Range {
    Range::new(lo, hi).unwrap()
}

#[test]
fn nothing_installed_is_dry() {
    let cursor = Cursor::new();
    assert_eq!((cursor.next(), cursor.next_n(5)), (None, None));
    assert_eq!(cursor.left(), Left::default());
    assert_eq!(cursor.close(), Unissued::default());
}

#[test]
fn a_segment_is_installed_once_and_only_upwards() {
    let cursor = Cursor::new();
    cursor.install(range(10, 20)).unwrap();
    for (lo, hi) in [(10, 20), (0, 10), (19, 30)] {
        let error = cursor.install(range(lo, hi)).unwrap_err();
        assert!(matches!(error, InstallError::NotAscending { floor: 20, .. }));
    }
    cursor.install(range(20, 21)).unwrap();
    assert_eq!(cursor.install(range(30, 40)), Err(InstallError::Occupied));
    assert_eq!(cursor.floor(), 21);
}

#[test]
fn after_close_nothing_is_issued_or_installed() {
    let cursor = Cursor::new();
    cursor.install(range(0, 10)).unwrap();
    cursor.install(range(20, 30)).unwrap();
    assert_eq!(cursor.next_n(4), Some(range(0, 4)));
    let tail = Some(range(4, 10));
    let standby = Some(range(20, 30));
    assert_eq!(cursor.close(), Unissued { tail, standby });
    assert_eq!((cursor.next(), cursor.next_n(1)), (None, None));
    assert_eq!(cursor.install(range(40, 50)), Err(InstallError::Closed));
    assert_eq!(cursor.close(), Unissued::default());
    assert!(cursor.is_closed());
    assert_eq!(cursor.left().total(), 0);
}

#[test]
fn the_last_ordinal_of_the_line() {
    let cursor = Cursor::new();
    let end = crate::range::MAX_ORDINAL;
    cursor.install(range(end - 2, end)).unwrap();
    assert_eq!(cursor.next_n(u64::MAX), Some(range(end - 2, end)));
    for _ in 0..1_000 {
        assert_eq!(cursor.next(), None);
    }
    assert!(!cursor.is_closed());
    assert_eq!(cursor.close(), Unissued::default());
}

#[derive(Clone, Debug)]
enum Step {
    Next,
    NextN(u64),
    Install(u64, u64),
    Close,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        20 => Just(Step::Next),
        10 => (0u64..9).prop_map(Step::NextN),
        8 => (0u64..4, 1u64..12).prop_map(|(skip, len)| Step::Install(skip, len)),
        1 => Just(Step::Close),
    ];
    prop::collection::vec(step, 0..120)
}

proptest! {
    /// Alone, the cursor is two queues of ordinals, and loses nothing.
    #[test]
    fn alone_it_is_two_queues(steps in steps()) {
        let cursor = Cursor::new();
        let (mut active, mut standby, mut floor) = (None::<Range>, None::<Range>, 0);
        let mut closed = false;
        for step in steps {
            if active.is_none() && !matches!(step, Step::Close | Step::NextN(0)) {
                active = standby.take();
            }
            match step {
                Step::Next => {
                    let front = active.map(|a| a.take_front(NonZeroU64::MIN));
                    prop_assert_eq!(cursor.next(), front.map(|(f, _)| f.lo()));
                    active = front.and_then(|(_, rest)| rest);
                }
                Step::NextN(n) => match NonZeroU64::new(n) {
                    None => prop_assert_eq!(cursor.next_n(n), None),
                    Some(n) => {
                        let front = active.map(|a| a.take_front(n));
                        prop_assert_eq!(cursor.next_n(n.get()), front.map(|(f, _)| f));
                        active = front.and_then(|(_, rest)| rest);
                    }
                },
                Step::Install(skip, len) => {
                    let segment = range(floor + skip, floor + skip + len);
                    let expected = if closed {
                        Err(InstallError::Closed)
                    } else if standby.is_some() {
                        Err(InstallError::Occupied)
                    } else {
                        Ok(())
                    };
                    prop_assert_eq!(cursor.install(segment), expected);
                    if expected.is_ok() {
                        floor = segment.hi();
                        if active.is_none() { active = Some(segment) } else { standby = Some(segment) }
                    }
                }
                Step::Close => {
                    let left = Unissued { tail: active.take(), standby: standby.take() };
                    prop_assert_eq!(cursor.close(), left);
                    closed = true;
                }
            }
            let total = active.map_or(0, |a| a.len()) + standby.map_or(0, |s| s.len());
            prop_assert_eq!(cursor.left().total(), total);
        }
    }
}
