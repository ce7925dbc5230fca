//! Carves: killed between commit and hand-out, cancelled everywhere, thick clients, blocks, batches.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use cadastre_core::ids::{AllocationId, Incarnation, Name};
use cadastre_core::range::Range;
use cadastre_core::roster::Limits;
use cadastre_protocol::error::Code;
use cadastre_runtime::entropy::{Entropy, SystemEntropy};
use region_agent::agent::Agent;
use region_agent::error::AgentError;
use region_agent::regional::{Carved, Order, Thick};
use region_agent::sql;
use uuid::Uuid;

use super::fake::name;
use super::rig::{EPOCH_MS, Rig, ask, read, refill, take, talk};

fn allocation() -> AllocationId {
    AllocationId::new(SystemEntropy.uuid_v7(EPOCH_MS)).unwrap()
}

fn order(want: u64) -> Order {
    Order {
        namespace: name("orders"),
        service: Some(name("shop")),
        instance: name("worker"),
        incarnation: Incarnation(Uuid::from_u128(5)),
        allocation_id: allocation(),
        want,
    }
}

async fn carve(agent: &Agent, order: &Order, chain: Option<&str>) -> Result<Carved, Code> {
    carve_above(agent, order, chain, 0).await
}

async fn carve_above(agent: &Agent, order: &Order, chain: Option<&str>, above: u64) -> Result<Carved, Code> {
    let thick = Thick {
        limits: Limits::default(),
        chain: chain.map(str::to_owned),
        next_chain: agent.pool.fresh_chain(),
        retention_ms: agent.ctx.times.retention_ms,
        most: 50,
        above,
        rate: Ok(u64::MAX),
    };
    agent.pool.carve(order, Some(thick)).await.map_err(|e: AgentError| e.to_problem().code)
}

async fn ledger(agent: &Agent, namespace: &'static str) -> Vec<Range> {
    let rows = read(agent.ctx.continuity.db(), move |tx| {
        Box::pin(async move { sql::segments_from(tx, &Name::new(namespace).unwrap(), 0, 10_000).await })
    });
    rows.await.iter().map(|s| s.range).collect()
}

fn disjoint(ranges: &[Range]) -> bool {
    ranges.windows(2).all(|pair| pair[0].hi() <= pair[1].lo())
}

#[tokio::test]
async fn what_was_committed_and_not_handed_out_is_a_gap_after_a_crash() {
    let rig = Rig::new();
    let agent = rig.joined().await;
    let before = take(&agent, "orders", 3).await.unwrap();
    let lost = agent.pool.carve(&order(20), None).await.unwrap().segment.range;
    drop(agent);
    let agent = rig.start_again().await;
    let after = take(&agent, "orders", 3).await.unwrap();
    assert!(after[0] > before[2] && after.iter().all(|id| !lost.contains(u64::try_from(*id).unwrap() - 1)));
    assert!(disjoint(&ledger(&agent, "orders").await));
}

/// Polls a future so often, with time in between for what runs detached, then drops it.
async fn drop_after<F: Future>(polls: usize, future: F) -> bool {
    let mut future = pin!(future);
    for _ in 0..polls {
        if future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(4)).await;
    }
    false
}

#[tokio::test]
async fn case_18_a_caller_may_go_away_at_every_await_of_a_carve() {
    let rig = Rig::new();
    let agent = rig.joined().await;
    let (mut finished, mut polls) = (false, 0);
    let mut orders = Vec::new();
    while !finished {
        polls += 1;
        assert!(polls < 100, "a carve ends");
        let one = Order { incarnation: Incarnation(Uuid::from_u128(polls as u128)), ..order(5) };
        finished = drop_after(polls, carve(&agent, &one, None)).await;
        orders.push(one);
    }
    assert!(polls > 2, "there are awaits to be dropped at");
    tokio::time::sleep(Duration::from_millis(100)).await;
    // Each retry gets the one segment of its request, or its first; nobody shares one.
    let mut ranges = Vec::new();
    for one in &orders {
        ranges.push(carve(&agent, one, None).await.unwrap().segment.range);
    }
    let distinct: BTreeSet<_> = ranges.iter().collect();
    assert_eq!(distinct.len(), orders.len());
    let rows = ledger(&agent, "orders").await;
    assert!(disjoint(&rows));
    assert_eq!(rows.len(), orders.len(), "no request carved twice");
}

#[tokio::test]
async fn case_18_the_conversation_may_be_dropped_at_every_await() {
    let (mut finished, mut polls) = (false, 0);
    while !finished {
        polls += 1;
        let rig = Rig::new();
        let agent = rig.start().await;
        agent.link.run_once().await;
        finished = drop_after(polls, agent.link.run_once()).await;
        tokio::time::sleep(Duration::from_millis(30)).await;
        talk(&agent).await;
        agent.pool.recount().await.unwrap();
        assert_eq!(agent.pool.left(&name("orders")), 1_000, "after {polls} polls");
        assert_eq!(rig.fake.with(|s| s.watermark[&name("orders")]), 1_000, "one range, ever");
        assert!(take(&agent, "orders", 1).await.is_ok());
    }
    assert!(polls > 2);
}

#[tokio::test]
async fn a_retry_gets_the_same_segment_and_a_changed_one_is_a_conflict() {
    let rig = Rig::new();
    let agent = rig.joined().await;
    let one = order(20);
    let first = carve(&agent, &one, None).await.unwrap();
    assert!(!first.replayed && first.segment.range.len() == 20);
    let again = carve(&agent, &one, Some(&first.chain)).await.unwrap();
    assert!(again.replayed && again.segment == first.segment);
    // The answer was lost: the token before is presented once more.
    assert!(carve(&agent, &one, Some(&first.chain)).await.unwrap().replayed);
    for other in [
        Order { want: 21, ..one.clone() },
        Order { namespace: name("blocky"), ..one.clone() },
        Order { incarnation: Incarnation(Uuid::from_u128(6)), ..one.clone() },
    ] {
        assert_eq!(carve(&agent, &other, None).await.unwrap_err(), Code::AllocationConflict);
    }
    assert_eq!(ledger(&agent, "orders").await.len(), 1);
    assert_eq!(carve(&agent, &order(1_000), None).await.unwrap().segment.range.len(), 50, "never above segment_max");
}

#[tokio::test]
async fn a_retry_after_an_agents_restart_still_gets_the_same_segment() {
    let rig = Rig::new();
    let agent = rig.joined().await;
    let one = order(20);
    let first = carve(&agent, &one, None).await.unwrap();
    drop(agent);
    let agent = rig.start_again().await;
    let again = carve(&agent, &one, None).await.unwrap();
    assert!(again.replayed && again.segment == first.segment);
}

#[tokio::test]
async fn after_retention_a_request_is_expired_known_or_not() {
    let rig = Rig::new();
    let agent = rig.joined().await;
    let (known, unknown) = (order(5), order(5));
    carve(&agent, &known, None).await.unwrap();
    rig.clock.advance(7 * 86_400_000 + 1);
    talk(&agent).await;
    assert_eq!(carve(&agent, &known, None).await.unwrap_err(), Code::AllocationExpired);
    assert_eq!(carve(&agent, &unknown, None).await.unwrap_err(), Code::AllocationExpired);
}

#[tokio::test]
async fn a_wrong_chain_token_ends_the_incarnation() {
    let rig = Rig::new();
    let agent = rig.joined().await;
    let first = carve(&agent, &order(5), None).await.unwrap();
    let second = carve(&agent, &order(5), Some(&first.chain)).await.unwrap();
    assert_ne!(first.chain, second.chain);
    let third = carve(&agent, &order(5), Some(&second.chain)).await.unwrap();
    // A copy that was resumed from an older image.
    assert_eq!(carve(&agent, &order(5), Some(&first.chain)).await.unwrap_err(), Code::EpochFenced);
    assert_eq!(carve(&agent, &order(5), Some(&third.chain)).await.unwrap_err(), Code::EpochFenced, "both end");
    assert_eq!(ledger(&agent, "orders").await.len(), 3);
}

#[tokio::test]
async fn a_segment_of_an_epoch_that_is_over_is_not_answered_again() {
    let rig = Rig::new();
    let agent = rig.joined().await;
    let one = order(5);
    carve(&agent, &one, None).await.unwrap();
    rig.fake.with(|s| s.epoch = s.epoch.next().unwrap());
    talk(&agent).await;
    assert_eq!(carve(&agent, &one, None).await.unwrap_err(), Code::EpochFenced);
}

#[tokio::test]
async fn services_have_blocks_of_their_own() {
    let rig = Rig::new();
    let agent = rig.joined().await;
    let own = take(&agent, "blocky", 30).await.unwrap();
    let other = Order { namespace: name("blocky"), service: Some(name("cart")), ..order(10) };
    let carved = carve(&agent, &other, None).await.unwrap();
    assert!(carved.segment.range.lo() >= 100, "not out of the other service's block");
    let rest = take(&agent, "blocky", 60).await.unwrap();
    assert!(own.iter().chain(&rest).all(|id| *id <= 100), "the block is used up before a second one is made");
    let more = take(&agent, "blocky", 30).await.unwrap();
    assert!(*more.last().unwrap() > 200, "the third block: {more:?}");
    let all = ledger(&agent, "blocky").await;
    assert!(disjoint(&all));
}

#[tokio::test]
async fn a_batch_crosses_segments_and_a_hopeless_one_takes_nothing() {
    let rig = Rig::new();
    let agent = rig.joined().await;
    take(&agent, "orders", 1).await.unwrap();
    refill(&agent).await;
    rig.fake.cut();
    talk(&agent).await;
    let left = || agent.issuer.standings()[&name("orders")].0.left;
    let before = left();
    assert_eq!(ask(&agent, "orders", 5_000).await, Err(Code::SegmentDry), "the region holds 1,000");
    assert_eq!(left(), before, "nothing was wasted");
    let ids = take(&agent, "orders", before).await.unwrap();
    assert_eq!(ids.len() as u64, before);
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
}

#[tokio::test]
async fn many_callers_get_every_id_once() {
    let rig = Rig::new();
    let agent = rig.joined().await;
    let mut tasks = Vec::new();
    for _ in 0..20 {
        let agent = Arc::clone(&agent);
        tasks.push(tokio::spawn(async move {
            let mut mine = Vec::new();
            for _ in 0..20 {
                if let Ok(ids) = take(&agent, "orders", 3).await {
                    mine.extend(ids);
                }
            }
            mine
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        let mine = task.await.unwrap();
        assert!(mine.windows(2).all(|pair| pair[0] < pair[1]), "rising for each caller");
        all.extend(mine);
    }
    let count = all.len();
    assert!(count > 100);
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len(), count, "no id twice");
}

#[tokio::test]
async fn forbidden_comes_before_unknown_and_unknown_is_said_to_the_admitted() {
    let rig = Rig::new();
    let agent = rig.joined().await;
    assert_eq!(ask(&agent, "secret", 1).await, Err(Code::Forbidden));
    assert_eq!(ask(&agent, "ghost", 1).await, Err(Code::UnknownNamespace));
}

/// A client that goes on from another region's range is given what lies above it, and the region asks for it though it
/// has plenty below. Nobody else loses anything by it.
#[tokio::test]
async fn a_client_that_was_given_more_elsewhere_gets_what_lies_above() {
    let rig = Rig::new();
    let agent = rig.joined().await;
    for (namespace, above) in [("orders", 400), ("orders", 5_000), ("blocky", 5_000)] {
        let one = Order { namespace: name(namespace), ..order(20) };
        rig.fake.with(|s| *s.watermark.entry(name(namespace)).or_default() = 6_000);
        let mut tries = 0;
        let carved = loop {
            match carve_above(&agent, &one, None, above).await {
                Ok(carved) => break carved,
                Err(code) => assert_eq!(code, Code::SegmentDry),
            }
            tries += 1;
            assert!(tries < 5, "{namespace} above {above} never comes");
            talk(&agent).await;
        };
        assert!(carved.segment.range.lo() >= above, "{:?}", carved.segment.range);
    }
    let below = carve(&agent, &order(5), None).await.unwrap();
    assert_eq!(below.segment.range.lo(), 0, "what lies below is there for the others");
    let rows = ledger(&agent, "orders").await;
    assert!(disjoint(&rows));
}

/// The network makes two of one request: both answers carry the same token, so that it does not matter which one the
/// client gets. With a fresh one each, the first would be wrong at the next request, and the client ended.
#[tokio::test]
async fn a_request_that_comes_twice_is_answered_with_one_token() {
    let rig = Rig::new();
    let agent = rig.joined().await;
    let first = carve(&agent, &order(5), None).await.unwrap();
    let twice = order(5);
    let one = carve(&agent, &twice, Some(&first.chain)).await.unwrap();
    let other = carve(&agent, &twice, Some(&first.chain)).await.unwrap();
    assert_eq!((&one.chain, &one.segment, other.replayed), (&other.chain, &other.segment, true));
    let next = carve(&agent, &order(5), Some(&one.chain)).await.unwrap();
    assert!(next.segment.range.lo() >= one.segment.range.hi());
    // Much later it is nobody's any more: a copy, or as good as one.
    assert_eq!(carve(&agent, &order(5), Some(&next.chain)).await.map(|c| c.replayed), Ok(false));
    assert_eq!(carve(&agent, &twice, Some(&first.chain)).await.unwrap_err(), Code::EpochFenced);
}
