//! The client as a program sees it, against the in-memory double.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::disallowed_methods)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use cadastre_client::testing::InMemory;
use cadastre_client::{Client, Id, MAX_BATCH};

fn rising(ids: &[i64]) -> bool {
    ids.windows(2).all(|pair| pair[0] < pair[1])
}

#[test]
fn blocking_code_needs_no_runtime() {
    let client = Client::in_memory().unwrap();
    client.namespace("orders").unwrap();
    client.ready_blocking().unwrap();
    let mut ids: Vec<i64> = (0..5_000).map(|_| client.next_blocking("orders").unwrap().get()).collect();
    ids.extend(client.next_n_blocking("orders", 50_000).unwrap().map(Id::get));
    assert!(rising(&ids) && ids.len() == 55_000 && ids[0] == 1);
    assert_eq!(client.next_blocking("other").unwrap().get(), 1, "namespaces have nothing in common");
}

#[test]
fn a_batch_has_bounds() {
    let orders = Client::in_memory().unwrap().namespace("orders").unwrap();
    for n in [0, MAX_BATCH + 1] {
        assert_eq!(orders.next_n_blocking(n).unwrap_err().code(), "invalid_request");
    }
    assert_eq!(Client::in_memory().unwrap().namespace("two words").unwrap_err().code(), "invalid_request");
}

#[test]
fn a_negative_increment_falls_strictly_over_segments_and_batches() {
    let agents = InMemory::new();
    agents.define("down", 1_000_000, -7);
    agents.segments_of(13);
    let down = agents.client().unwrap().namespace("down").unwrap();
    let mut ids: Vec<i64> = (0..500).map(|_| down.next_blocking().unwrap().get()).collect();
    ids.extend(down.next_n_blocking(500).unwrap().map(Id::get));
    assert_eq!(ids[0], 1_000_000);
    assert!(ids.windows(2).all(|pair| pair[0] > pair[1] && (pair[0] - pair[1]) % 7 == 0));
}

#[test]
fn eight_threads_over_tiny_segments_rise_together_and_repeat_nothing() {
    let agents = InMemory::new();
    agents.segments_of(50);
    let orders = agents.client().unwrap().namespace("orders").unwrap().with_deadline(Duration::from_secs(20));
    // What one thread was given before it told another one is lower than what that one asks for afterwards.
    let seen = std::sync::Mutex::new(0);
    let all: Vec<Vec<i64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let mut mine = vec![];
                    for _ in 0..2_000 {
                        let before = *seen.lock().unwrap();
                        let id = orders.next_blocking().unwrap().get();
                        assert!(id > before, "{id} after {before}");
                        let mut highest = seen.lock().unwrap();
                        *highest = id.max(*highest);
                        mine.push(id);
                    }
                    mine
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(all.iter().all(|ids| rising(ids)));
    let mut whole = all.concat();
    whole.sort_unstable();
    assert!(rising(&whole) && whole.len() == 16_000);
}

#[test]
fn chunks_rise_each_for_itself_and_repeat_nothing() {
    let orders = Client::in_memory().unwrap().namespace("orders").unwrap().with_deadline(Duration::from_secs(20));
    let all: Vec<Vec<i64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let mut mine = orders.chunks(64);
                scope.spawn(move || (0..5_000).map(|_| mine.next_blocking().unwrap().get()).collect::<Vec<_>>())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(all.iter().all(|ids| rising(ids)));
    let mut whole = all.concat();
    whole.sort_unstable();
    assert!(rising(&whole));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_comes_at_once_and_heals_by_itself() {
    let agents = InMemory::new();
    let client = agents.client().unwrap();
    let orders = client.namespace("orders").unwrap().with_deadline(Duration::from_secs(30));
    agents.refuse(Some("forbidden"));
    let began = Instant::now();
    let error = orders.next().await.unwrap_err();
    assert_eq!((error.code(), error.retryable()), ("forbidden", false));
    assert!(began.elapsed() < Duration::from_secs(5), "it did not wait for its deadline");
    agents.refuse(None);
    let healed = loop {
        match orders.next().await {
            Ok(id) => break id,
            Err(error) => assert_eq!(error.code(), "forbidden"),
        }
        assert!(began.elapsed() < Duration::from_secs(30), "it never heals");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(healed.get(), 1);
}

#[tokio::test]
async fn what_is_held_is_issued_while_the_agents_refuse() {
    let agents = InMemory::new();
    agents.segments_of(60);
    let client = agents.client().unwrap();
    let orders = client.namespace("orders").unwrap().with_deadline(Duration::from_millis(300));
    client.ready().await.unwrap();
    agents.refuse(Some("upstream_unavailable"));
    let held = orders.left();
    assert!(held >= 50);
    for _ in 0..held {
        orders.next().await.unwrap();
    }
    let error = orders.next().await.unwrap_err();
    assert!(error.retryable(), "{error}");
    agents.refuse(None);
    let patient = orders.with_deadline(Duration::from_secs(20));
    assert!(patient.next().await.unwrap().get() > held as i64);
}

/// One fetch in flight, whoever waits; nobody fails within the deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_04_burst_on_a_tiny_segment() {
    let agents = InMemory::new();
    agents.segments_of(50);
    agents.delay(Duration::from_millis(100));
    let client = agents.client().unwrap();
    let orders = Arc::new(client.namespace("orders").unwrap().with_deadline(Duration::from_secs(20)));
    let tasks: Vec<_> = (0..200)
        .map(|_| {
            let orders = Arc::clone(&orders);
            tokio::spawn(async move { orders.next().await })
        })
        .collect();
    let mut ids = vec![];
    for task in tasks {
        ids.push(task.await.unwrap().unwrap().get());
    }
    ids.sort_unstable();
    assert_eq!(ids, (1..=200).collect::<Vec<i64>>());
    assert!((4..=6).contains(&agents.requests()), "{} requests for four segments and a standby", agents.requests());
}

#[tokio::test]
async fn a_caller_that_gives_up_loses_nothing_and_a_deadline_says_so() {
    let agents = InMemory::new();
    agents.delay(Duration::from_millis(400));
    let orders = agents.client().unwrap().namespace("orders").unwrap().with_deadline(Duration::from_millis(50));
    let error = orders.next().await.unwrap_err();
    assert_eq!((error.code(), error.retryable()), ("segment_dry", true));
    assert!(tokio::time::timeout(Duration::from_millis(1), orders.next()).await.is_err());
    let patient = orders.with_deadline(Duration::from_secs(20));
    assert_eq!(patient.next().await.unwrap().get(), 1);
}

#[tokio::test]
async fn after_a_shutdown_nothing_is_issued() {
    let agents = InMemory::new();
    let client = agents.client().unwrap();
    let orders = client.namespace("orders").unwrap();
    let mut chunk = orders.chunks(10);
    orders.next().await.unwrap();
    let summary = client.clone().shutdown().await;
    assert!(summary.unissued >= 49, "{summary:?}");
    for error in [
        orders.next().await.unwrap_err(),
        orders.next_blocking().unwrap_err(),
        chunk.next().await.unwrap_err(),
        client.next("orders").await.unwrap_err(),
        client.next("another").await.unwrap_err(),
        client.ready().await.unwrap_err(),
    ] {
        assert_eq!((error.code(), error.retryable()), ("shutting_down", false));
    }
    assert_eq!(client.shutdown().await.unissued, 0);
    assert!(agents.client().unwrap().next("orders").await.unwrap().get() > 50, "what was left is a gap");
}

#[tokio::test]
async fn a_namespace_that_nobody_uses_is_not_asked_for_and_one_that_was_named_is() {
    let agents = InMemory::new();
    let client = agents.client().unwrap();
    let _unused = client.namespace("unused").unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(agents.requests(), 0);
    let named = Client::builder().name("t").namespace("orders").in_memory(&agents).build().unwrap();
    named.ready().await.unwrap();
    assert!(named.namespace("orders").unwrap().try_next().is_some());
}

#[test]
fn of_ten_thousand_namespaces_only_those_in_use_are_asked_for() {
    let agents = InMemory::new();
    let client = agents.client().unwrap();
    let all: Vec<_> = (0..10_000).map(|n| client.namespace(&format!("n{n}")).unwrap()).collect();
    for one in all.iter().step_by(100) {
        for n in 1..=20 {
            assert_eq!(one.next_blocking().unwrap().get(), n);
        }
    }
    let asked = agents.requests();
    assert!((100..=300).contains(&asked), "{asked} requests for a hundred in use");
}

/// A program may make its client before its runtime, and keep it for the next one.
#[test]
fn a_client_outlives_the_runtime() {
    let client = Client::in_memory().unwrap();
    for _ in 0..2 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let taken = runtime.block_on(async { client.next_n("orders", 500).await.unwrap().count() });
        assert_eq!(taken, 500);
    }
}

#[test]
fn stamps_rise_over_threads_and_two_clients_of_a_double_differ() {
    let agents = InMemory::new();
    let (one, two) = (agents.client().unwrap(), agents.client().unwrap());
    let all: Vec<Vec<i64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = [&one, &one, &two, &two]
            .map(|client| {
                scope.spawn(|| {
                    let events = client.stamps("events").unwrap();
                    (0..20_000).map(|_| events.next_blocking().unwrap().get()).collect::<Vec<_>>()
                })
            })
            .into_iter()
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(all.iter().all(|ids| rising(ids)));
    let mut ids: Vec<i64> = all.into_iter().flatten().collect();
    ids.sort_unstable();
    assert!(rising(&ids), "none twice");
    one.shutdown_blocking();
    assert_eq!(one.stamps("events").unwrap_err().code(), "shutting_down");
    agents.refuse(Some("no_worker_free"));
    let error = agents.client().unwrap().stamps("events").unwrap().next_blocking().unwrap_err();
    assert_eq!((error.code(), error.retryable()), ("no_worker_free", true));
}
