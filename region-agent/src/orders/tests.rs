//! Tests of what answers ask besides: above all that a cut ends.

use cadastre_core::drill::DrillKind;
use cadastre_core::ids::{ClusterId, Epoch, Incarnation, RegionId, RequestNo};
use cadastre_core::mark::Generation;
use cadastre_core::registry::RegionState;
use cadastre_protocol::link::Standing;
use cadastre_runtime::clock::Now;
use uuid::Uuid;

use super::*;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn id(n: u128) -> DrillId {
    DrillId(Uuid::from_u128(n))
}

fn answer(drill: Option<DrillOrder>) -> Answer {
    Answer {
        version: 1,
        cluster_id: ClusterId(Uuid::from_u128(1)),
        number: RequestNo(1),
        incarnation: Incarnation(Uuid::from_u128(2)),
        chain: String::new(),
        generation: Generation::default(),
        quarantined: false,
        testify_for: None,
        region: Standing { region_id: RegionId(1), epoch: Epoch(1), state: RegionState::Active },
        kept: None,
        marks: vec![],
        roster: vec![],
        confirmed: vec![],
        grants: vec![],
        clock_ms: 0,
        homes: vec![],
        expect: vec![],
        drill,
        drill_heard: None,
    }
}

fn order(n: u128, for_ms: u64, until_dry: Option<&str>) -> DrillOrder {
    let until_dry = until_dry.map(name);
    DrillOrder { drill_id: id(n), kind: DrillKind::WanCut, for_ms, share_percent: 50, until_dry, clock_ms: None }
}

fn holds(orders: u64, drill: u64) -> Holds {
    let hold = |held, rate| Hold { held, rate, issued: 1_000_000 - held };
    BTreeMap::from([(name("orders"), hold(orders, 1.0)), (name("drill"), hold(drill, 10.0))])
}

/// An answer that says that the agent's word on this drill was heard, and that it is still under way.
fn heard(order: DrillOrder) -> Answer {
    let id = order.drill_id;
    Answer { drill_heard: Some(id), ..answer(Some(order)) }
}

/// Ordered, said, heard, and cut off at 100.
fn cut(order: DrillOrder) -> Orders {
    let orders = Orders::default();
    orders.hear(&answer(Some(order.clone())), 0);
    assert!(!orders.is_cut(10, || holds(100, 100)), "not before it was said");
    assert!(orders.word(20).unwrap().running);
    assert!(!orders.is_cut(30, || holds(100, 100)), "nor before it was heard");
    assert!(orders.word(40).unwrap().running, "said again: the first may be lost");
    orders.hear(&heard(order), 50);
    assert!(orders.is_cut(100, || holds(100, 100)));
    orders
}

#[test]
fn a_cut_ends_by_itself_and_is_not_begun_again() {
    let orders = cut(order(1, 5_000, None));
    assert!(orders.is_cut(5_099, || holds(90, 90)));
    assert!(!orders.is_cut(5_100, || holds(90, 90)), "counted from when the cut began");
    assert!(orders.word(5_100).is_none(), "the last word waits for the way back and the ledger's check");
    orders.hear(&answer(Some(order(1, 9_000, None))), 5_400);
    assert!(!orders.is_cut(5_500, || holds(90, 90)), "the same drill, ordered once more by somebody late");
    orders.verified(Verdict { ok: true, checked: Default::default(), findings: vec![], unreachable: vec![] }, 5_500);
    let word = orders.word(5_600).unwrap();
    assert_eq!((word.running, word.ended_early.clone(), word.over_ms), (false, None, 300));
    assert_eq!(word.namespaces[&name("orders")].issued, 10);
    let mut heard = answer(Some(order(1, 9_000, None)));
    heard.drill_heard = Some(id(1));
    orders.hear(&heard, 5_700);
    assert!(orders.word(5_800).is_none() && !orders.is_cut(5_900, || holds(1, 1)));
    orders.hear(&answer(Some(order(2, 1_000, None))), 6_000);
    assert!(orders.word(6_100).unwrap().running, "another drill is");
}

#[test]
fn an_order_that_was_slept_over_is_not_begun() {
    let orders = Orders::default();
    orders.hear(&answer(Some(order(1, 5_000, None))), 0);
    assert!(orders.word(20).unwrap().running);
    let over = Answer { drill_heard: Some(id(1)), ..answer(None) };
    orders.hear(&over, 30);
    assert!(!orders.is_cut(40, || holds(100, 100)), "heard, but the drill is over by now");
    orders.hear(&heard(order(1, 5_000, None)), 50);
    assert!(!orders.is_cut(3_600_000, || holds(100, 100)));
    assert!(orders.shown().unwrap().ended_early.is_some());
}

#[test]
fn a_share_of_any_other_namespace_ends_it_and_the_drilled_one_may_run_dry() {
    let orders = cut(order(1, 60_000, Some("drill")));
    assert!(orders.is_cut(1_000, || holds(60, 1)));
    assert!(!orders.is_cut(2_000, || holds(60, 0)), "dry");
    assert_eq!(orders.shown().unwrap().namespaces[&name("drill")].dry_after_ms, Some(1_900));
    assert_eq!(orders.shown().unwrap().ended_early, None);
    let orders = cut(order(1, 60_000, Some("drill")));
    assert!(!orders.is_cut(1_000, || holds(49, 50)));
    assert!(orders.shown().unwrap().ended_early.unwrap().contains("orders"));
}

#[test]
fn somebody_at_the_agent_ends_it_in_every_phase() {
    let orders = Orders::default();
    assert!(!orders.abort(0, "nobody"));
    orders.hear(&answer(Some(order(1, 60_000, None))), 0);
    assert!(orders.abort(1, "early") && !orders.is_cut(2, || holds(1, 1)));
    let orders = cut(order(1, 60_000, None));
    orders.refused(Code::SegmentDry);
    assert!(orders.abort(200, "late") && !orders.abort(201, "twice"));
    assert!(!orders.is_cut(300, || holds(1, 1)));
    let word = orders.shown().unwrap();
    assert_eq!((word.errors["segment_dry"], word.ended_early.as_deref()), (1, Some("late")));
}

#[test]
fn the_last_word_does_not_wait_for_ever() {
    let orders = cut(order(1, 1_000, None));
    assert!(!orders.is_cut(1_000, || holds(1, 1)) && orders.wants_verdict());
    orders.hear(&answer(None), 1_100);
    assert!(orders.word(1_200).is_none());
    assert!(orders.word(1_000 + VERDICT_WITHIN_MS).is_some());
}

/// A drill that leaves the uplink free, begun at 100.
fn watch(order: DrillOrder) -> Orders {
    let orders = Orders::default();
    orders.hear(&answer(Some(order.clone())), 0);
    assert!(orders.word(20).unwrap().running);
    orders.hear(&heard(order), 50);
    assert!(!orders.is_cut(100, || holds(100, 100)), "the uplink stays free");
    orders
}

#[test]
fn a_clock_is_read_wrong_for_as_long_as_it_says_whoever_is_gone() {
    let drill = DrillOrder { kind: DrillKind::Clock, clock_ms: Some(-30_000), ..order(1, 5_000, None) };
    let orders = watch(drill.clone());
    let read = |mono_ms| orders.set_off.apply(Now { wall_ms: 1_000_000, mono_ms }).wall_ms;
    assert_eq!((read(101), read(5_099)), (970_000, 970_000));
    assert_eq!(read(5_100), 1_000_000, "with nobody having looked");
    assert!(!orders.is_cut(5_200, || holds(90, 90)) && orders.wants_verdict());
    let orders = watch(drill);
    assert!(orders.abort(200, "early"));
    assert_eq!(orders.set_off.apply(Now { wall_ms: 7, mono_ms: 201 }).wall_ms, 7);
}

#[test]
fn what_is_watched_ends_once_nobody_names_it_and_counts_through_refills() {
    let drill = DrillOrder { kind: DrillKind::Failover, ..order(1, 60_000, None) };
    let orders = watch(drill.clone());
    let more = |held| BTreeMap::from([(name("orders"), Hold { held, rate: 1.0, issued: 1_000_500 })]);
    assert!(!orders.is_cut(1_000, || more(5_000)));
    orders.refused(Code::NotHome);
    orders.hear(&answer(None), 2_000);
    orders.hear(&answer(Some(drill)), 4_000);
    orders.hear(&answer(None), 6_000);
    assert!(orders.shown().unwrap().running, "one authority that knows nothing yet ends nothing");
    orders.hear(&answer(None), 6_000 + UNNAMED_MS);
    let word = orders.shown().unwrap();
    assert_eq!((word.running, word.ended_early, word.errors["not_home"]), (false, None, 1));
    assert_eq!(word.namespaces[&name("orders")].issued, 600);
}
