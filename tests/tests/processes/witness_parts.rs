//! The witness in a real Redis, where only a part of it is lost, or where it is away when somebody starts.

use std::sync::Arc;
use tests::cluster::{Builder, policy};
use tests::ledger_of_ids::Exposed;
use tests::redis::Redis;

use crate::hand::ledger;
use crate::help::{assert_sound, at_rest, quick, take, until};

fn on(redis: &Redis) -> Builder {
    let both = quick().region("eu").region("us").witness(&redis.url(), "required");
    both.namespace_with("orders", policy(2_000, 20, 100, 4.0))
}

/// One region's key is flushed: that region alone burns what it held, and nobody else is doubted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_regions_key_is_flushed_and_it_alone_burns() {
    let redis = Redis::start();
    let exposed = Arc::new(Exposed::new());
    let cluster = on(&redis).start().await;
    for region in ["eu", "us"] {
        take(&cluster, region, "orders", 500, 50, &exposed).await;
        at_rest(&cluster, region, "orders").await;
    }
    let keys = redis.command(&["KEYS", "cadastre:witness:*"]).unwrap();
    let key = keys.split_whitespace().find(|it| it.contains("eu")).unwrap_or_else(|| panic!("eu's among {keys}"));
    cluster.region("eu").agent.kill9();
    redis.command(&["DEL", key]).unwrap();
    cluster.restart_agent("eu").await;
    until("eu's epoch rises", async || cluster.status("eu").await["epoch"].as_u64() > Some(1)).await;
    for region in ["eu", "us"] {
        take(&cluster, region, "orders", 3_000, 50, &exposed).await;
    }
    assert_eq!(cluster.status("us").await["epoch"], 1, "nobody doubted us");
    assert!(!cluster.authority.log().contains("quarantine: nothing is given out"), "nor the authority");
    assert_eq!(cluster.status("eu").await["witness"]["state"], "ok", "it was filled again");
    assert_sound(&cluster, &exposed).await;
}

/// Required, and away at a start: both tiers end with the reason, and start once it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_required_one_that_is_away_at_a_start_is_named_and_the_next_start_goes_on() {
    let redis = Redis::start();
    let exposed = Arc::new(Exposed::new());
    let cluster = on(&redis).start().await;
    take(&cluster, "eu", "orders", 500, 50, &exposed).await;
    at_rest(&cluster, "eu", "orders").await;
    let before = ledger(&cluster, "orders").await.len();
    redis.kill9();
    for daemon in [&cluster.authority, &cluster.region("eu").agent] {
        daemon.kill9();
        daemon.start_again();
        until("it ends", async || !daemon.is_alive()).await;
        assert_eq!(daemon.exit_code(), Some(1), "{}", daemon.log());
        assert!(daemon.log().contains("witness"), "it names the reason: {}", daemon.log());
    }
    redis.restart();
    cluster.restart_authority().await;
    cluster.restart_agent("eu").await;
    assert!(ledger(&cluster, "orders").await.len() >= before);
    for region in ["eu", "us"] {
        take(&cluster, region, "orders", 3_000, 50, &exposed).await;
    }
    assert_sound(&cluster, &exposed).await;
}
