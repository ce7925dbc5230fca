//! A request lost, an answer lost, either twice, late, bent or from somebody else: one range, ever.

use std::time::Duration;
use tests::cluster::{Backend, Cluster, fixed};
use tests::http;
use tests::ledger_of_ids::Exposed;
use tests::proxy::{Direction, Proxy};
use tests::puppet::{allocation, want};

use crate::hand::{Hand, alone, audit, code, fresh, granted, ledger, now_ms, second};
use crate::help::{assert_sound, at_rest, number, quick, take, until};
use crate::relay::{Mode, Relay};

/// Every grant of the authority's ledger is held by the region, and the other way round: `(lo, hi)` in order.
async fn ledgers_agree(cluster: &Cluster, namespace: &str) -> Vec<(u64, u64)> {
    let url = format!("{}/v1/segments?namespace={namespace}", cluster.region("eu").url);
    let (status, _, page) = http::get_json(&url, Some(&cluster.operator_token)).await;
    assert_eq!(status, 200, "{page}");
    let holdings = page["holdings"].as_array().unwrap();
    let held: Vec<(u64, u64)> = holdings.iter().map(|h| (number(&h["lo"]), number(&h["hi"]))).collect();
    let given: Vec<(u64, u64)> = ledger(cluster, namespace).await.into_iter().map(|(lo, hi, _)| (lo, hi)).collect();
    assert_eq!(given, held, "what the authority gave is what the region has");
    let mut end = 0;
    for (lo, hi) in &given {
        assert_eq!(*lo, end, "no hole below the watermark: no range was given and forgotten: {given:?}");
        end = *hi;
    }
    given
}

/// Uses up more than a grant while `fault` does its worst, `times` times, and compares the ledgers.
async fn through(cluster: &Cluster, exposed: &Exposed, what: &str, times: u64, fault: impl Fn(&Proxy)) {
    let link = &cluster.region("eu").link;
    link.only_path(Some("/v1/grants"));
    for _ in 0..times {
        let before = ledger(cluster, "orders").await.len();
        fault(link);
        take(cluster, "eu", "orders", 1_000, 50, exposed).await;
        until(what, async || ledger(cluster, "orders").await.len() > before).await;
        at_rest(cluster, "eu", "orders").await;
        ledgers_agree(cluster, "orders").await;
    }
    link.heal();
}

async fn what_the_network_does(backend: Backend) {
    let exposed = Exposed::new();
    let builder = quick().authority(backend.clone()).regions_on(backend).region("eu");
    let cluster = builder.namespace_with("orders", fixed(1_000, 100)).start().await;
    at_rest(&cluster, "eu", "orders").await;
    let link = &cluster.region("eu").link;
    through(&cluster, &exposed, "a grant after lost answers", 1, |link| link.lose_answers(3)).await;
    let seen = link.count("/v1/grants");
    assert!(seen.answered >= seen.delivered + 3, "answers were lost: {seen:?}");
    through(&cluster, &exposed, "a grant after lost requests", 1, |link| link.lose_requests(3)).await;
    let seen = link.count("/v1/grants");
    assert!(seen.seen >= seen.forwarded + 3, "requests were lost: {seen:?}");
    through(&cluster, &exposed, "a grant that was asked for twice at once", 1, |link| link.duplicate_requests(5)).await;
    let again = |link: &Proxy| link.repeat_requests(5, Duration::from_millis(700));
    through(&cluster, &exposed, "a grant whose request comes again", 1, again).await;
    let seen = link.count("/v1/grants");
    assert!(seen.forwarded > seen.seen - 3, "requests came twice: {seen:?}");
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_the_network_does_to_a_request_is_one_range_on_sqlite() {
    what_the_network_does(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_the_network_does_to_a_request_is_one_range_on_postgres() {
    what_the_network_does(Backend::Postgres).await;
}

/// The authority commits, nobody hears of it, the agent dies: the next one sends the same request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_survives_its_agent() {
    let exposed = Exposed::new();
    let cluster = quick().region("eu").namespace_with("orders", fixed(1_000, 100)).start().await;
    at_rest(&cluster, "eu", "orders").await;
    let link = &cluster.region("eu").link;
    link.hang_one_way(Direction::Answers);
    let before = ledger(&cluster, "orders").await.len();
    take(&cluster, "eu", "orders", 1_050, 50, &exposed).await;
    until("a grant that nobody heard of", async || ledger(&cluster, "orders").await.len() > before).await;
    cluster.region("eu").agent.kill9();
    let unheard = cluster.grants("orders").await.last().unwrap().clone();
    assert_eq!(unheard["confirmed"], false);
    link.heal();
    cluster.restart_agent("eu").await;
    at_rest(&cluster, "eu", "orders").await;
    ledgers_agree(&cluster, "orders").await;
    let grants = cluster.grants("orders").await;
    let same = grants.iter().find(|g| g["allocation_id"] == unheard["allocation_id"]).unwrap();
    assert_eq!((&same["lo"], &same["confirmed"]), (&unheard["lo"], &true.into()), "adopted by the next process");
    assert_sound(&cluster, &exposed).await;
}

/// An answer that was given before comes once more, in the place of another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_comes_twice_is_heard_once() {
    let exposed = Exposed::new();
    let cluster = quick().region("eu").namespace_with("orders", fixed(1_000, 100)).start().await;
    at_rest(&cluster, "eu", "orders").await;
    let relay = Relay::start().await;
    relay.set(Mode::Primary(cluster.url.clone()));
    let agent = &cluster.region("eu").agent;
    agent.kill9();
    let url = relay.url.clone();
    agent.change(move |spec| spec.env("CADASTRE_AUTHORITY_URL", url));
    cluster.restart_agent("eu").await;
    for _ in 0..4 {
        let before = ledger(&cluster, "orders").await.len();
        take(&cluster, "eu", "orders", 1_000, 50, &exposed).await;
        until("a grant", async || ledger(&cluster, "orders").await.len() > before).await;
        // Now the last answer may be the one that carries the grant, or the heartbeat after it.
        relay.set(Mode::Stale(cluster.url.clone()));
        until("it came again", async || relay.is_primary()).await;
        at_rest(&cluster, "eu", "orders").await;
        ledgers_agree(&cluster, "orders").await;
    }
    assert!(agent.is_alive());
    assert_sound(&cluster, &exposed).await;
}

async fn the_same_request_again(backend: Backend) {
    let (cluster, mut eu) = alone(quick().authority(backend)).await;
    let id = fresh(1);
    let message = eu.puppet.message(vec![want(id, "orders", 700)]);
    let first = granted(&eu.send(&message).await.unwrap()).unwrap();
    assert!(!first.replayed);
    // The answer was lost: to the letter, and as part of the next message.
    let again = granted(&eu.send(&message).await.unwrap()).unwrap();
    let later = eu.ask(id, "orders", 700).await.unwrap();
    for one in [&again, &later] {
        assert!(one.replayed);
        assert_eq!((one.lo, one.hi, one.grant_id), (first.lo, first.hi, first.grant_id));
    }
    assert_eq!(ledger(&cluster, "orders").await, [(0, 700, "eu".to_owned())]);
    // Eight copies at once, of a fresh request.
    let message = eu.puppet.message(vec![want(fresh(2), "orders", 50)]);
    let copies: Vec<_> = (0..8)
        .map(|_| {
            let (eu, message) = (eu.clone(), message.clone());
            tokio::spawn(async move { eu.send(&message).await })
        })
        .collect();
    for copy in copies {
        let one = granted(&copy.await.unwrap().unwrap()).unwrap();
        assert_eq!((one.lo, one.hi), (700, 750));
    }
    assert_eq!(ledger(&cluster, "orders").await.len(), 2);
    assert!(cluster.verify().await.is_empty());
}

#[tokio::test]
async fn the_same_request_again_is_the_same_range_on_sqlite() {
    the_same_request_again(Backend::Sqlite).await;
}

#[tokio::test]
async fn the_same_request_again_is_the_same_range_on_postgres() {
    the_same_request_again(Backend::Postgres).await;
}

#[tokio::test]
async fn an_allocation_id_with_other_parameters_is_a_conflict() {
    let (cluster, mut eu) = alone(quick().namespace("parcels")).await;
    let mut us = second(&cluster, &mut eu, "us").await;
    us.ask(fresh(9), "orders", 5).await.unwrap();
    let id = fresh(1);
    let first = eu.ask(id, "orders", 700).await.unwrap();
    let before = ledger(&cluster, "orders").await;
    for (size, namespace) in [(701, "orders"), (1, "orders"), (700, "parcels")] {
        let refused = eu.ask(id, namespace, size).await.unwrap_err();
        assert_eq!(code(&refused), (409, "allocation_conflict"), "{namespace} {size}");
        assert_eq!(refused.retry_after, None, "final");
    }
    let refused = us.ask(id, "orders", 700).await.unwrap_err();
    assert_eq!(code(&refused), (409, "allocation_conflict"), "another region");
    assert_eq!(ledger(&cluster, "orders").await, before);
    assert!(ledger(&cluster, "parcels").await.is_empty());
    // Whoever it belongs to still gets it.
    assert_eq!(eu.ask(id, "orders", 700).await.unwrap().lo, first.lo);
}

#[tokio::test]
async fn another_store_of_the_region_is_refused() {
    let (cluster, mut eu) = alone(quick()).await;
    let id = fresh(1);
    eu.ask(id, "orders", 10).await.unwrap();
    let mut stranger = Hand::of(&cluster, "eu", &eu.token);
    stranger.puppet.sender.cluster_id = eu.puppet.sender.cluster_id;
    stranger.puppet.sender.epoch = eu.puppet.sender.epoch;
    let message = stranger.puppet.message(vec![want(id, "orders", 10)]);
    let refused = stranger.send(&message).await.unwrap_err();
    assert_eq!(code(&refused), (409, "wrong_store"), "{refused}");
    assert!(refused.detail.contains("--new-store"), "it says what to do: {refused}");
    assert_eq!(ledger(&cluster, "orders").await.len(), 1);
}

#[tokio::test]
async fn asking_again_for_what_was_confirmed_is_refused_and_recorded() {
    let (cluster, mut eu) = alone(quick()).await;
    let id = fresh(1);
    let first = eu.ask(id, "orders", 10).await.unwrap();
    eu.adopt(&first).await;
    assert_eq!(cluster.grants("orders").await[0]["confirmed"], true);
    let refused = eu.ask(id, "orders", 10).await.unwrap_err();
    assert_eq!(code(&refused), (409, "already_confirmed"), "{refused}");
    assert_eq!(ledger(&cluster, "orders").await.len(), 1);
    let records = audit(&cluster, "already_confirmed");
    assert!(records.len() == 1 && records[0].contains(&id.to_string()), "{records:?}");
}

#[tokio::test]
async fn an_unknown_id_beyond_the_retention_is_expired() {
    let builder = quick().authority_env("CADASTRE_REPLAY_RETENTION_SECONDS", "60");
    let (cluster, mut eu) = alone(builder).await;
    let old = allocation(now_ms() - 61_000, 1);
    let refused = eu.ask(old, "orders", 10).await.unwrap_err();
    assert_eq!(code(&refused), (410, "allocation_expired"), "{refused}");
    assert_eq!(refused.retry_after, None, "final");
    let young = allocation(now_ms() - 30_000, 2);
    eu.ask(young, "orders", 10).await.unwrap();
    assert_eq!(ledger(&cluster, "orders").await.len(), 1);
}

/// A network can keep a packet: what comes after its time says nothing and changes nothing.
#[tokio::test]
async fn an_older_message_of_the_same_process_is_dropped() {
    let (cluster, mut eu) = alone(quick()).await;
    let late = eu.puppet.message(vec![want(fresh(1), "orders", 10)]);
    eu.ask(fresh(2), "orders", 20).await.unwrap();
    let refused = eu.send(&late).await.unwrap_err();
    assert_eq!(code(&refused), (409, "not_allowed"), "{refused}");
    assert_eq!(ledger(&cluster, "orders").await, [(0, 20, "eu".to_owned())]);
    // And its sender is none the worse for it.
    eu.ask(fresh(3), "orders", 5).await.unwrap();
    assert!(audit(&cluster, "copy_found").is_empty());
}

/// The process before the last one of an embedded store: not late but alive, which must not be.
#[tokio::test]
async fn an_old_incarnation_that_returns_is_refused_and_recorded() {
    let (cluster, mut old) = alone(quick()).await;
    old.ask(fresh(1), "orders", 10).await.unwrap();
    let mut new = Hand { puppet: old.puppet.restarted(), ..old.clone() };
    new.ask(fresh(2), "orders", 20).await.unwrap();
    let before = ledger(&cluster, "orders").await;
    for wants in [vec![], vec![want(fresh(1), "orders", 10)], vec![want(fresh(3), "orders", 10)]] {
        let message = old.puppet.message(wants);
        assert_eq!(code(&old.send(&message).await.unwrap_err()), (409, "copy_found"));
    }
    assert_eq!(ledger(&cluster, "orders").await, before);
    assert_eq!(audit(&cluster, "copy_found").len(), 3);
    new.ask(fresh(4), "orders", 5).await.unwrap();
}

/// A process that was copied while it ran (a fork, a resumed memory image): one of the two is found at its
/// next request, and neither goes on under that incarnation.
#[tokio::test]
async fn two_copies_of_one_process_are_found_at_the_next_request() {
    let (cluster, mut one) = alone(quick()).await;
    one.ask(fresh(1), "orders", 10).await.unwrap();
    let mut other = one.clone();
    one.ask(fresh(2), "orders", 10).await.unwrap();
    one.ask(fresh(3), "orders", 10).await.unwrap();
    other.puppet.message(vec![]);
    other.puppet.message(vec![]);
    let message = other.puppet.message(vec![want(fresh(4), "orders", 10)]);
    assert_eq!(code(&other.send(&message).await.unwrap_err()), (409, "copy_found"));
    let message = one.puppet.message(vec![want(fresh(5), "orders", 10)]);
    assert_eq!(code(&one.send(&message).await.unwrap_err()), (409, "copy_found"), "nobody knows which is which");
    assert_eq!(ledger(&cluster, "orders").await.len(), 3);
    assert_eq!(audit(&cluster, "copy_found").len(), 2);
    // A start takes the next session, and all is well.
    let mut fresh_start = Hand { puppet: one.puppet.restarted(), ..one };
    fresh_start.ask(fresh(6), "orders", 10).await.unwrap();
}
