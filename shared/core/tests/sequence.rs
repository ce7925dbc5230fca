//! Sequences and definitions against a naive loop in `i128`, at both ends of the number line.

// Clippy sees only `#[test]` functions as tests, not the helpers beside them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use cadastre_core::range::{MAX_ORDINAL, Range};
use cadastre_core::sequence::{Definition, MAX_VERSIONS, Sequence, SequenceError};
use proptest::prelude::*;

/// Every value of a sequence with at most `most` of them, by the loop that anyone would write.
fn naive(start: i64, increment: i64, min: i64, max: i64, most: usize) -> Vec<i64> {
    let mut values = Vec::new();
    let mut value = i128::from(start);
    while i128::from(min) <= value && value <= i128::from(max) && values.len() < most {
        values.push(i64::try_from(value).unwrap());
        value += i128::from(increment);
    }
    values
}

/// A window of the line, at either end or around zero, and a sequence inside it.
fn small() -> impl Strategy<Value = Sequence> {
    let base = prop_oneof![Just(i64::MIN), Just(i64::MAX - 300), Just(-150), Just(1)];
    (base, 0i64..=300, 0i64..=300, 0i64..=300, 1i64..=40, any::<bool>()).prop_map(|(base, a, b, c, step, down)| {
        let mut points = [base + a, base + b, base + c];
        points.sort_unstable();
        Sequence::new(points[1], if down { -step } else { step }, points[0], points[2]).unwrap()
    })
}

fn anything() -> impl Strategy<Value = (i64, i64, i64, i64)> {
    let edge = || prop_oneof![any::<i64>(), Just(i64::MIN), Just(i64::MAX), -3i64..3];
    (edge(), edge(), edge(), edge())
}

proptest! {
    #[test]
    fn every_value_agrees_with_the_loop(s in small()) {
        let values = naive(s.start(), s.increment(), s.min(), s.max(), 1000);
        prop_assert_eq!(s.capacity(), values.len() as u64);
        for (ordinal, value) in values.iter().enumerate() {
            prop_assert_eq!(s.value_at(ordinal as u64), Some(*value));
            prop_assert_eq!(s.ordinal_of(*value), Some(ordinal as u64));
        }
        for beyond in [s.capacity(), s.capacity() + 1, MAX_ORDINAL, u64::MAX] {
            prop_assert_eq!(s.value_at(beyond), None);
        }
        for value in s.min()..=s.max() {
            prop_assert_eq!(s.ordinal_of(value).is_some(), values.contains(&value));
        }
        let whole = Range::new(0, s.capacity()).unwrap();
        prop_assert_eq!(s.first_last(whole), Some((values[0], values[values.len() - 1])));
        prop_assert_eq!(s.first_last(Range::new(0, s.capacity() + 1).unwrap()), None);
    }

    #[test]
    fn whatever_is_built_holds_its_word((start, increment, min, max) in anything(), o: u64) {
        match Sequence::new(start, increment, min, max) {
            Ok(s) => {
                let (capacity, last) = (s.capacity(), s.value_at(s.capacity() - 1).unwrap());
                prop_assert!((1..=MAX_ORDINAL).contains(&capacity));
                prop_assert!(min <= last && last <= max);
                prop_assert_eq!(s.ordinal_of(last), Some(capacity - 1));
                let next = i128::from(last) + i128::from(increment);
                prop_assert!(next < i128::from(min) || next > i128::from(max));
                let o = o % capacity;
                let value = i128::from(start) + i128::from(o) * i128::from(increment);
                prop_assert_eq!(s.value_at(o).map(i128::from), Some(value));
                let json = serde_json::to_string(&s).unwrap();
                prop_assert_eq!(serde_json::from_str::<Sequence>(&json).unwrap(), s);
            }
            Err(SequenceError::ZeroIncrement) => prop_assert_eq!(increment, 0),
            Err(SequenceError::MinAboveMax { .. }) => prop_assert!(min > max),
            Err(SequenceError::StartOutside { .. }) => prop_assert!(start < min || start > max),
            Err(SequenceError::TooWide { fits, .. }) => {
                // What it names fits exactly, and one more does not.
                let build = |edge| if increment > 0 {
                    Sequence::new(start, increment, min, edge)
                } else {
                    Sequence::new(start, increment, edge, max)
                };
                prop_assert_eq!(build(fits).unwrap().capacity(), MAX_ORDINAL);
                prop_assert!(build(fits + increment.signum()).is_err());
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    /// Any history that is accepted has no value twice; any that is refused for repeating has one.
    #[test]
    fn accepted_histories_never_repeat(
        first in small(),
        changes in prop::collection::vec((small(), 0u64..=100), 1..5),
    ) {
        let mut definition = Definition::first(first);
        let mut watermark = 0;
        for (sequence, percent) in changes {
            watermark += (definition.capacity() - watermark) * percent / 100;
            let mut granted: Vec<i64> =
                (0..watermark).map(|o| definition.value_at(o).unwrap()).collect();
            let new = naive(sequence.start(), sequence.increment(), sequence.min(), sequence.max(), 1000);
            let meets = new.iter().any(|value| granted.contains(value));
            match definition.append(watermark, sequence) {
                Ok(next) => {
                    prop_assert!(!meets);
                    let kept: Vec<i64> = (0..watermark).map(|o| next.value_at(o).unwrap()).collect();
                    prop_assert_eq!(&kept, &granted, "old values moved");
                    definition = next;
                }
                Err(SequenceError::Repeats { value, .. }) => {
                    prop_assert!(granted.contains(&value) && new.contains(&value));
                    continue;
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
            granted.extend(new);
            prop_assert_eq!(definition.capacity(), granted.len() as u64);
            for (o, value) in granted.iter().enumerate() {
                prop_assert_eq!(definition.value_at(o as u64), Some(*value));
                prop_assert_eq!(definition.origin_ordinals(*value), vec![o as u64]);
            }
            prop_assert_eq!(definition.value_at(definition.capacity()), None);
        }
        let json = serde_json::to_string(&definition).unwrap();
        prop_assert_eq!(serde_json::from_str::<Definition>(&json).unwrap(), definition);
    }

    #[test]
    fn clip_keeps_versions_apart(froms in prop::collection::vec(0u64..50, 1..5), lo in 0u64..300, n in 1u64..300) {
        let mut definition = Definition::first(Sequence::new(1, 1, 1, 100).unwrap());
        let mut from = 0;
        for (i, step) in froms.iter().enumerate() {
            from += step;
            let start = 1000 * (i as i64 + 1);
            definition = definition.append(from, Sequence::new(start, 1, start, start + 99).unwrap()).unwrap();
        }
        let range = Range::new(lo, lo + n).unwrap();
        let front = definition.clip(range);
        prop_assert_eq!(front.lo(), lo);
        prop_assert!(range.covers(&front));
        let version = definition.version_of(lo).version();
        for o in lo..lo + n {
            prop_assert_eq!(definition.version_of(o).version() == version, front.contains(o));
        }
        if front.hi() <= definition.capacity() {
            let ends = (definition.value_at(lo).unwrap(), definition.value_at(front.hi() - 1).unwrap());
            prop_assert_eq!(definition.first_last(front), Some(ends));
        }
        if front != range {
            prop_assert_eq!(definition.first_last(range), None);
        }
    }
}

#[test]
fn defaults_on_the_wire() {
    let ascending: Sequence = serde_json::from_str("{}").unwrap();
    assert_eq!(ascending, Sequence::default());
    assert_eq!(ascending.capacity(), MAX_ORDINAL);
    assert_eq!(ascending.first_last(Range::new(0, MAX_ORDINAL).unwrap()), Some((1, i64::MAX)));
    let from_min: Sequence = serde_json::from_str(r#"{"min":"500"}"#).unwrap();
    assert_eq!(from_min.start(), 500);
    let down: Sequence = serde_json::from_str(r#"{"increment":"-1"}"#).unwrap();
    assert_eq!((down.start(), down.capacity()), (i64::MAX, MAX_ORDINAL));
    let wide = serde_json::from_str::<Sequence>(r#"{"min":"0"}"#).unwrap_err().to_string();
    assert!(wide.contains("largest max that fits is 9223372036854775806"), "{wide}");
    for bad in [r#"{"start":1}"#, r#"{"increment":"0"}"#, r#"{"cycle":"1"}"#, r#"{"min":"7","max":"6"}"#] {
        assert!(serde_json::from_str::<Sequence>(bad).is_err(), "{bad}");
    }
}

#[test]
fn the_whole_signed_line_is_too_wide_and_says_by_how_much() {
    let up = Sequence::new(i64::MIN, 1, i64::MIN, i64::MAX).unwrap_err();
    assert_eq!(up, SequenceError::TooWide { bound: "largest max", fits: -2 });
    let down = Sequence::new(i64::MAX, -1, i64::MIN, i64::MAX).unwrap_err();
    assert_eq!(down, SequenceError::TooWide { bound: "smallest min", fits: 1 });
    // 2^63 even numbers are one too many as well; in steps of three the whole line fits.
    let two = Sequence::new(i64::MIN, 2, i64::MIN, i64::MAX).unwrap_err();
    assert_eq!(two, SequenceError::TooWide { bound: "largest max", fits: i64::MAX - 2 });
    assert!(Sequence::new(i64::MIN, 3, i64::MIN, i64::MAX).is_ok());
    let longest = Sequence::new(i64::MAX, i64::MIN, i64::MIN, i64::MAX).unwrap();
    assert_eq!((longest.value_at(1), longest.capacity()), (Some(-1), 2));
}

/// Case 13: what is a block of 50 to one reader is 50 ordinals here, whatever the increment.
#[test]
fn case_13_block_is_not_increment() {
    let by_one = Definition::first(Sequence::default());
    let by_fifty = Definition::first(Sequence::new(1, 50, 1, i64::MAX).unwrap());
    let block = Range::new(50, 100).unwrap();
    assert_eq!(by_one.first_last(block), Some((51, 100)));
    assert_eq!(by_fifty.first_last(block), Some((2501, 4951)));
    // Going over from one to the other cannot repeat a value, whichever way.
    let next = Sequence::new(101, 50, 1, i64::MAX).unwrap();
    assert_eq!(by_one.append(100, next).unwrap().value_at(100), Some(101));
    let inside = Sequence::new(51, 50, 1, i64::MAX).unwrap();
    let repeats = SequenceError::Repeats { value: 51, version: 1 };
    assert_eq!(by_one.append(100, inside).unwrap_err(), repeats);
    assert!(by_fifty.append(100, Sequence::new(2, 50, 1, i64::MAX).unwrap()).is_ok());
}

#[test]
fn append_refuses_what_would_leave_the_line() {
    let one = Definition::first(Sequence::default());
    assert_eq!(
        one.append(1_000, Sequence::default()).unwrap_err(),
        SequenceError::TooWide { bound: "largest max", fits: i64::MAX - 1_000 }
    );
    assert_eq!(one.append(MAX_ORDINAL, Sequence::default()).unwrap_err(), SequenceError::NoOrdinalsLeft);
    let small = Definition::first(Sequence::new(1, 1, 1, 10).unwrap());
    let more = Sequence::new(11, 1, 11, 20).unwrap();
    assert_eq!(small.append(11, more).unwrap_err(), SequenceError::BeyondCapacity { from: 11, capacity: 10 });
    let wider = small.append(10, more).unwrap();
    assert_eq!(wider.capacity(), 20);
    assert_eq!(wider.append(9, more).unwrap_err(), SequenceError::Backwards { from: 9, last: 10 });
    // Nothing granted yet: the same values again are no repetition.
    assert!(small.append(0, Sequence::default()).is_ok());
}

#[test]
fn histories_are_checked_on_the_wire() {
    let version = |n: u32, from: u64, start: u64| {
        format!(r#"{{"version":{n},"from":"{from}","sequence":{{"start":"{start}","max":"{}"}}}}"#, start + 99)
    };
    let history = |versions: &[String]| format!(r#"{{"versions":[{}]}}"#, versions.join(","));
    let good = history(&[version(1, 0, 1), version(2, 10, 11), version(3, 10, 500)]);
    let definition: Definition = serde_json::from_str(&good).unwrap();
    assert_eq!(definition.value_at(9), Some(10));
    assert_eq!((definition.value_at(10), definition.version_of(10).version()), (Some(500), 3));
    for bad in [
        vec![],
        vec![version(2, 0, 1)],
        vec![version(1, 5, 1)],
        vec![version(1, 0, 1), version(3, 10, 11)],
        vec![version(1, 0, 1), version(2, 10, 10)],
        vec![version(1, 0, 1), version(2, 10, 11), version(3, 9, 500)],
    ] {
        assert!(serde_json::from_str::<Definition>(&history(&bad)).is_err(), "{bad:?}");
    }
}

#[test]
fn the_longest_history_is_bounded_and_quick() {
    let mut definition = Definition::first(Sequence::new(0, 1, 0, 0).unwrap());
    for n in 1..MAX_VERSIONS as u64 {
        let value = n as i64;
        definition = definition.append(n, Sequence::new(value, 1, 0, value).unwrap()).unwrap();
    }
    let next = Sequence::new(1_000, 1, 0, 1_000).unwrap();
    assert_eq!(definition.append(definition.capacity(), next).unwrap_err(), SequenceError::TooManyVersions);
    let json = serde_json::to_string(&definition).unwrap();
    assert_eq!(serde_json::from_str::<Definition>(&json).unwrap(), definition);
}
