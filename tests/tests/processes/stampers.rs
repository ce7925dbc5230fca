//! The thick client on a time-based namespace: real agents that are killed, cut off, fenced, and a client that stops.

use std::time::{Duration, Instant};

use cadastre_client::{Client, Error, Stamps};
use serde_json::json;
use std::collections::BTreeSet;
use tests::cluster::Cluster;

use crate::help::{assert_clean_log, quick, step, until};

/// Windows of six seconds.
async fn cluster() -> Cluster {
    let policy = json!({"target_seconds": 6, "buffer_seconds": 2, "grant_target_seconds": 60});
    let events = json!({"name": "events", "kind": "snowflake", "policy": policy});
    quick().region("eu").region("us").define(events).start().await
}

fn client(cluster: &Cluster, regions: &[&str]) -> Client {
    let builder = Client::builder().token(&cluster.service_token).name("till").deadline(Duration::from_secs(20));
    regions.iter().fold(builder, |builder, region| builder.agent(&cluster.region(region).url)).build().unwrap()
}

/// Takes so many, rising from `last` on.
async fn take(events: &Stamps, n: usize, last: &mut i64, seen: &mut BTreeSet<i64>) -> Result<(), Error> {
    for _ in 0..n {
        let id = events.next().await?.get();
        assert!(id > *last, "{id} is not above {last}");
        assert!(seen.insert(id), "{id} twice");
        *last = id;
    }
    Ok(())
}

async fn sound(cluster: &Cluster) {
    let audit = cluster.audit().await;
    assert_eq!(audit["ok"], true, "{audit}");
    assert_clean_log(&cluster.authority, &[]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_stamps_from_memory_renews_by_itself_and_two_clients_share_nothing() {
    let cluster = cluster().await;
    let (one, two) = (client(&cluster, &["eu"]), client(&cluster, &["eu"]));
    let (first, second) = (one.stamps("events").unwrap(), two.stamps("events").unwrap());
    let (mut seen, mut a, mut b) = (BTreeSet::new(), 0, 0);
    let end = Instant::now() + Duration::from_secs(10);
    // Past the first window's end: renewals came in time, so nobody waited for an agent.
    while Instant::now() < end {
        take(&first, 200, &mut a, &mut seen).await.unwrap();
        take(&second, 200, &mut b, &mut seen).await.unwrap();
        seen.extend(cluster.ids("eu", "events", 10).await.unwrap());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(first.is_ready() && second.is_ready());
    // Stopped, its worker is free at once: with a true end, the next one begins right above it.
    one.shutdown().await;
    assert_eq!(first.next().await.unwrap_err().code(), "shutting_down");
    assert_eq!(first.try_next(), None);
    take(&second, 5_000, &mut b, &mut seen).await.unwrap();
    let origin = cluster.operate("GET", &format!("/v1/origins/events/{b}"), None).await.unwrap();
    assert_eq!((origin["service"].as_str(), origin["instance"].as_str()), (Some("shop"), Some("till")), "{origin}");
    sound(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_off_it_stops_at_its_windows_end_by_itself_and_goes_on_in_another_region() {
    let cluster = cluster().await;
    let alone = client(&cluster, &["eu"]).stamps("events").unwrap().with_deadline(Duration::from_millis(300));
    let both = client(&cluster, &["eu", "us"]).stamps("events").unwrap();
    let (mut seen, mut a, mut b) = (BTreeSet::new(), 0, 0);
    take(&alone, 100, &mut a, &mut seen).await.unwrap();
    take(&both, 100, &mut b, &mut seen).await.unwrap();
    cluster.region("eu").agent.kill9();
    let cut = Instant::now();
    let refused = loop {
        match take(&alone, 10, &mut a, &mut seen).await {
            Ok(()) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => break error,
        }
    };
    let lasted = cut.elapsed();
    assert!(
        refused.retryable() && lasted > Duration::from_secs(2) && lasted < Duration::from_secs(8),
        "{lasted:?} {refused}"
    );
    // The other one has another region's agent, and its ids go on rising.
    take(&both, 1_000, &mut b, &mut seen).await.unwrap();
    cluster.restart_agent("eu").await;
    until("it goes on by itself", async || take(&alone, 1, &mut a, &mut seen).await.is_ok()).await;
    take(&alone, 500, &mut a, &mut seen).await.unwrap();
    sound(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_region_stops_its_stampers_and_a_recovered_one_gives_another_slot() {
    let cluster = cluster().await;
    let events = client(&cluster, &["eu"]).stamps("events").unwrap();
    let (mut seen, mut last) = (BTreeSet::new(), 0);
    take(&events, 100, &mut last, &mut seen).await.unwrap();
    let slot = |id: i64| (id >> 19) & 7;
    let before = slot(last);
    step(&cluster, "eu", "fence", json!({"reason": "test"})).await.unwrap();
    step(&cluster, "eu", "recover", json!({})).await.unwrap();
    until("it stamps in the new epoch's slot", async || {
        tokio::time::sleep(Duration::from_millis(50)).await;
        take(&events, 1, &mut last, &mut seen).await.is_ok() && slot(last) != before
    })
    .await;
    take(&events, 1_000, &mut last, &mut seen).await.unwrap();
    let missing = client(&cluster, &["eu"]).stamps("nowhere").unwrap().with_deadline(Duration::from_secs(2));
    assert_eq!(missing.next().await.unwrap_err().code(), "forbidden");
    sound(&cluster).await;
}
