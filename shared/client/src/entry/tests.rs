//! One namespace without a worker: what is wanted, who waits, what is given up.

use super::*;
use crate::lane::Mapping;
use crate::refill;
use cadastre_core::range::Range;
use cadastre_protocol::error::{Code, Problem};

fn entry() -> Entry {
    Entry::new(Name::new("orders").unwrap(), refill::policy((50, 100_000), 60_000, 15_000).unwrap())
}

fn segment(lo: u64, len: u64, region: &str, epoch: u64) -> Segment {
    Segment {
        range: Range::new(lo, lo + len).unwrap(),
        mapping: Mapping::new(0, 1, 1),
        region: Name::new(region).unwrap(),
        epoch: Epoch(epoch),
        suggested_rate_per_second: 1.0,
        epoch_rose: false,
    }
}

fn dry() -> Error {
    crate::ErrorKind::Refused(Problem::new(Code::SegmentDry, "x")).into()
}

fn forbidden() -> Error {
    crate::ErrorKind::Refused(Problem::new(Code::Forbidden, "x")).into()
}

#[test]
fn nobody_asks_before_an_id_is_needed_and_then_one_refill_is_in_flight() {
    let entry = entry();
    assert_eq!(entry.look(0), Look::default());
    let waiting: Vec<_> = (0..200).map(|_| entry.miss(1, 5)).collect();
    assert!(entry.look(6).claimed);
    assert_eq!(entry.need(6), (200, 0));
    assert!(!entry.look(7).claimed, "one is under way");
    entry.filled(&segment(0, 50, "eu", 1), 10).unwrap();
    assert!(entry.look(11).claimed, "they miss more than came");
    drop(waiting);
    entry.filled(&segment(50, 500, "eu", 1), 20).unwrap();
    assert!(!entry.look(21).claimed, "a standby is there");
    assert_eq!(entry.left(), 550);
}

#[test]
fn a_caller_waits_only_while_more_can_come_in_time() {
    let entry = entry();
    let _one = entry.miss(1, 0);
    assert!(entry.look(0).claimed);
    assert!(entry.outlook(1, 1_000).is_ok(), "one is under way");
    entry.failed(dry(), u64::MAX, 10);
    assert!(entry.outlook(11, 1_000).is_ok(), "it is tried again at 60");
    assert_eq!(entry.outlook(11, 60), Err(dry()), "too late for this one");
    assert!(!entry.look(59).claimed && entry.look(60).claimed);
    entry.failed(forbidden(), u64::MAX, 70);
    assert_eq!(entry.outlook(71, 100_000), Err(forbidden()), "at once: nobody would answer otherwise");
}

#[test]
fn an_agent_that_is_dry_is_asked_again_first_while_nobody_waits() {
    let entry = entry();
    entry.warm_up(0);
    for n in 0..3 {
        assert!(entry.has_time(), "after {n} tries");
        let one = entry.miss(1, 0);
        assert!(!entry.has_time(), "somebody waits");
        drop(one);
        entry.failed(dry(), 0, 0);
    }
    assert!(!entry.has_time());
    entry.filled(&segment(0, 50, "eu", 1), 10).unwrap();
    assert!(entry.has_time());
}

#[test]
fn what_is_refused_for_good_is_tried_again_only_for_somebody_who_waits() {
    let entry = entry();
    let one = entry.miss(1, 0);
    assert!(entry.look(0).claimed);
    entry.failed(forbidden(), 0, 0);
    drop(one);
    assert_eq!(entry.look(60_000), Look::default(), "nor does the worker look in vain");
    let _two = entry.miss(1, 60_001);
    assert!(entry.outlook(60_001, 61_000).is_ok() && entry.look(60_001).claimed);
}

#[test]
fn nothing_is_installed_twice_or_below() {
    let entry = entry();
    entry.filled(&segment(100, 50, "eu", 1), 0).unwrap();
    assert_eq!(entry.filled(&segment(100, 50, "eu", 1), 0), Err(50));
    assert_eq!(entry.filled(&segment(0, 40, "us", 1), 0), Err(40));
    assert_eq!(entry.give_up(None), 50);
    assert_eq!(entry.filled(&segment(100, 50, "eu", 1), 0), Err(50), "not after it was given up either");
    entry.filled(&segment(150, 50, "eu", 1), 0).unwrap();
}

#[test]
fn case_01_only_what_an_older_epoch_of_that_region_gave_is_given_up() {
    let entry = entry();
    let old = entry.lane();
    entry.filled(&segment(0, 50, "eu", 7), 0).unwrap();
    assert_eq!(old.one().map(i64::from), Some(1));
    let (eu, us) = (Name::new("eu").unwrap(), Name::new("us").unwrap());
    assert_eq!(entry.give_up(Some((&us, Epoch(9)))), 0);
    assert_eq!(entry.give_up(Some((&eu, Epoch(7)))), 0);
    assert_eq!(entry.give_up(Some((&eu, Epoch(8)))), 49);
    assert_eq!((entry.left(), old.one()), (0, None));
    entry.filled(&segment(200, 50, "eu", 8), 0).unwrap();
    assert_eq!(old.one().map(i64::from), Some(201), "an old handle walks on");
}

#[test]
fn a_new_version_of_the_definition_waits_behind_the_old_one() {
    let entry = entry();
    let handle = entry.lane();
    entry.filled(&segment(0, 2, "eu", 1), 0).unwrap();
    let tens = Segment { mapping: Mapping::new(2, 100, 10), ..segment(2, 2, "eu", 1) };
    entry.filled(&tens, 1).unwrap();
    assert_eq!(entry.left(), 4);
    let ids: Vec<i64> = (0..4).filter_map(|_| handle.one()).map(i64::from).collect();
    assert_eq!(ids, [1, 2, 100, 110]);
    assert_eq!((entry.left(), handle.one()), (0, None));
}

#[test]
fn closed_is_closed() {
    let entry = entry();
    entry.filled(&segment(0, 50, "eu", 1), 0).unwrap();
    assert_eq!((entry.close(), entry.close()), (50, 0));
    assert_eq!(entry.filled(&segment(50, 50, "eu", 1), 0), Err(50));
    let _one = entry.miss(1, 0);
    assert!(!entry.look(1).claimed);
    assert_eq!(entry.outlook(1, 1_000).unwrap_err().code(), "shutting_down");
}
