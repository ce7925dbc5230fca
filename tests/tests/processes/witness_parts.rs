//! The witness in a real Redis, where only a part of it is lost, where it is older than it was, or away when somebody
//! starts.

use std::sync::Arc;
use tests::cluster::{Builder, policy};
use tests::ledger_of_ids::Exposed;
use tests::redis::Redis;
use tests::scratch::Scratch;

use crate::hand::ledger;
use crate::help::{assert_sound, at_rest, copy_folder, put_back, quick, take, until};

const KEY: &str = "cadastre:witness:{cadastre:authority}";

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

/// The witness goes back under a running authority, and afterwards its store to the same moment. What was granted in
/// between was granted in a namespace that nobody asked for since: only the authority's own memory can tell in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_one_is_raised_again_before_the_store_goes_back_too() {
    let redis = Redis::start();
    let exposed = [("orders", Exposed::new()), ("quiet", Exposed::new())];
    let cluster = on(&redis).namespace_with("quiet", policy(2_000, 20, 100, 4.0)).start().await;
    let work = async |ids: u64| {
        for (namespace, exposed) in &exposed {
            take(&cluster, "eu", namespace, ids, 50, exposed).await;
            at_rest(&cluster, "eu", namespace).await;
        }
    };
    work(500).await;
    assert_eq!(redis.command(&["COPY", KEY, "older"]).unwrap(), ":1");
    let copy = Scratch::new("backup");
    cluster.authority.pause();
    copy_folder(&cluster.authority.data_folder(), copy.path());
    cluster.authority.resume();
    work(5_000).await;
    let newest = redis.command(&["HGETALL", KEY]).unwrap();
    assert_eq!(redis.command(&["COPY", "older", KEY, "REPLACE"]).unwrap(), ":1");
    assert_ne!(redis.command(&["HGETALL", KEY]).unwrap(), newest);
    until("it is found", async || cluster.authority.log().contains("names less than was let out")).await;
    let open = async || {
        let all = cluster.operate("GET", "/v1/quarantines", None).await;
        all.is_ok_and(|all| all["quarantines"].as_array().is_some_and(Vec::is_empty))
    };
    until("and the authority is open", open).await;
    assert!(!cluster.authority.log().contains("quarantine: nothing is given out"), "nobody was doubted");

    cluster.authority.kill9();
    put_back(copy.path(), &cluster.authority.data_folder());
    for region in cluster.regions() {
        region.link.cut();
    }
    cluster.restart_authority().await;
    until("Redis heals it, nobody else being heard", open).await;
    assert!(cluster.authority.log().contains("went_back"), "{}", cluster.authority.log());
    for region in cluster.regions() {
        region.link.heal();
    }
    work(5_000).await;
    take(&cluster, "us", "quiet", 5_000, 50, &exposed[1].1).await;
    for (_, exposed) in &exposed {
        assert_sound(&cluster, exposed).await;
    }
}
