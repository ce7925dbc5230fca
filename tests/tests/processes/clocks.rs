//! Time-based namespaces under clocks that are set back, ahead, and come to the end of the bits.

use serde_json::json;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tests::http;
use tests::process::set_fake_clock;
use tests::scratch::Scratch;

use crate::hand::now_ms;
use crate::help::{metric, number, quick};
use crate::windows::{Stamper, cluster, enter, parts, sound};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_02_a_clock_set_back_is_told_and_heals_by_itself() {
    let folder = Scratch::new("clock");
    let file = folder.path().join("clock");
    let cluster = cluster().namespace("orders").start().await;
    let agent = &cluster.region("eu").agent;
    agent.change(|spec| spec.fake_clock(&file));
    cluster.restart_agent("eu").await;
    cluster.until_served("eu", "events").await;
    let mut seen = BTreeSet::new();
    enter(&mut seen, cluster.ids("eu", "events", 100).await.unwrap());
    set_fake_clock(&file, "-8h");
    let asked = Instant::now();
    let refused = cluster.ids("eu", "events", 1).await.unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (503, "clock_rollback"), "{refused}");
    assert!(refused.retry_after.is_some_and(|seconds| (1..=60).contains(&seconds)), "{refused:?}");
    assert!(asked.elapsed() < Duration::from_secs(5), "it is told, not waited for");
    cluster.ids("eu", "orders", 10).await.expect("other namespaces go on");
    let url = &cluster.region("eu").url;
    let (status, _, body) = http::get_json(&format!("{url}/readyz"), None).await;
    assert_eq!(status, 503, "{body}");
    assert!(body["detail"].as_str().unwrap().contains("events"), "{body}");
    assert!(metric(url, "cadastre_clock_rollbacks_total", "events").await >= 1.0);
    // A second, and it is waited for or told; never stamped twice.
    set_fake_clock(&file, "-1");
    if let Ok(ids) = cluster.ids("eu", "events", 100).await {
        enter(&mut seen, ids);
    }
    set_fake_clock(&file, "+0");
    cluster.until_served("eu", "events").await;
    enter(&mut seen, cluster.ids("eu", "events", 10_000).await.unwrap());
    let (status, _, body) = http::get_json(&format!("{url}/readyz"), None).await;
    assert_eq!(status, 200, "{body}");
    sound(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_03_a_day_forward_is_never_stamped_and_leaves_nothing_behind() {
    let folder = Scratch::new("clock");
    let file = folder.path().join("clock");
    let cluster = cluster().start().await;
    cluster.region("eu").agent.change(|spec| spec.fake_clock(&file));
    cluster.restart_agent("eu").await;
    cluster.until_served("eu", "events").await;
    let mut seen = BTreeSet::new();
    enter(&mut seen, cluster.ids("eu", "events", 100).await.unwrap());
    for jump in ["+1d", "+90", "+5d"] {
        set_fake_clock(&file, jump);
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end {
            let refused = cluster.ids("eu", "events", 1).await.unwrap_err();
            assert_eq!(refused.code, "window_ended", "{jump}: {refused}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        set_fake_clock(&file, "+0");
        let right = Instant::now();
        cluster.until_served("eu", "events").await;
        assert!(right.elapsed() < Duration::from_secs(5), "it goes on at once");
    }
    let ids = cluster.ids("eu", "events", 1_000).await.unwrap();
    let epoch_ms = 1_735_689_600_000;
    assert!(ids.iter().all(|id| parts(*id, 7, 3).unit + epoch_ms < now_ms() + 2_000), "nothing of the future");
    enter(&mut seen, ids);
    let shown = cluster.operate("GET", "/v1/namespaces/events", None).await.unwrap();
    assert!(number(&shown["slots"][0]["until"]) < now_ms() + 62_000, "{shown}");
    sound(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_set_back_an_agent_repeats_nothing() {
    let folder = Scratch::new("clock");
    let file = folder.path().join("clock");
    let cluster = cluster().start().await;
    cluster.region("eu").agent.change(|spec| spec.fake_clock(&file));
    let mut seen = BTreeSet::new();
    for clock in ["+0", "-1", "-8h", "+0", "+1d", "-2", "+0"] {
        cluster.region("eu").agent.kill9();
        set_fake_clock(&file, clock);
        cluster.restart_agent("eu").await;
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end {
            if let Ok(ids) = cluster.ids("eu", "events", 500).await {
                enter(&mut seen, ids);
            }
        }
    }
    set_fake_clock(&file, "+0");
    cluster.until_served("eu", "events").await;
    enter(&mut seen, cluster.ids("eu", "events", 500).await.unwrap());
    assert!(seen.len() > 1_000, "{}", seen.len());
    sound(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_a_year_ahead_gives_no_time_of_the_future_and_nothing_is_wedged() {
    let folder = Scratch::new("clock");
    let file = folder.path().join("clock");
    let cluster = cluster().region("us").start().await;
    cluster.authority.change(|spec| spec.fake_clock(&file));
    set_fake_clock(&file, "+365d");
    cluster.authority.start_again();
    cluster.authority.wait_ready(&format!("{}/readyz", cluster.url)).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut seen = BTreeSet::new();
    enter(&mut seen, cluster.ids("eu", "events", 100).await.unwrap());
    let shown = cluster.operate("GET", "/v1/namespaces/events", None).await.unwrap();
    for slot in shown["slots"].as_array().unwrap() {
        assert!(number(&slot["until"]) < now_ms() + 65_000, "{shown}");
    }
    set_fake_clock(&file, "+0");
    tokio::time::sleep(Duration::from_secs(5)).await;
    for region in ["eu", "us"] {
        enter(&mut seen, cluster.ids(region, "events", 1_000).await.unwrap());
    }
    sound(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_10_the_last_hour_of_the_bits_is_known_and_its_end_is_an_error() {
    // 2^15 units of a second each are nine hours; they end in eight seconds.
    let ends_ms = now_ms() + 8_000;
    let layout = json!({"timestamp": 15, "region": 3, "worker": 7, "sequence": 12, "unit_ms": 1_000,
        "epoch_ms": (ends_ms - 32_768_000).to_string()});
    let policy = json!({"target_seconds": 6, "buffer_seconds": 2, "grant_target_seconds": 60});
    let body = json!({"name": "events", "kind": "snowflake", "layout": layout, "policy": policy});
    let cluster = quick().region("eu").define(body).start().await;
    let headroom = cluster.headroom().await;
    assert_eq!(
        number(&headroom["namespaces"][0]["space_ends_at"]).div_ceil(1_000),
        ends_ms.div_ceil(1_000),
        "{headroom}"
    );
    let mut seen = BTreeSet::new();
    let refused = loop {
        match cluster.ids("eu", "events", 10).await {
            Ok(ids) => enter(&mut seen, ids),
            Err(refused) if now_ms() > ends_ms + 500 => break refused,
            Err(_) => {}
        }
        assert!(now_ms() < ends_ms + 20_000, "its end is an error");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!((refused.code.as_str(), refused.retry_after), ("exhausted", None), "{refused}");
    assert!(seen.iter().all(|id| *id > 0), "never a negative number");
    let mut late = Stamper::new(1);
    assert_eq!(late.take(&cluster, 1).await.unwrap_err().code, "exhausted");
}
