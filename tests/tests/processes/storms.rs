//! An agent that is killed and started over and over, on a small number space: what each process held in memory is
//! lost, so each must hold little at first, and what was lost must not be shown as issued.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tests::cluster::Cluster;
use tests::ledger_of_ids::Exposed;
use tests::load::{Load, Plan};

use crate::help::{assert_sound, at_rest, number, quick, soak, take, until};

/// The space: 2^31 - 1 numbers.
const LAST: i64 = i32::MAX as i64;

/// What headroom says of the one namespace.
async fn headroom(cluster: &Cluster) -> Value {
    cluster.headroom().await["namespaces"][0].clone()
}

/// Sizes of the segments that one process was given, in their order.
async fn newest_sizes(cluster: &Cluster, count: usize) -> Vec<u64> {
    let url = format!("{}/v1/segments?namespace=orders", cluster.region("eu").url);
    let page = tests::http::get_json(&url, Some(&cluster.operator_token)).await.2;
    let sizes: Vec<u64> =
        page["segments"].as_array().unwrap().iter().map(|it| number(&it["hi"]) - number(&it["lo"])).collect();
    sizes[sizes.len().saturating_sub(count)..].to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_06_a_restart_storm_does_not_burn_a_small_space() {
    let exposed = Arc::new(Exposed::new());
    let sequence = json!({"start": "1", "increment": "1", "min": "1", "max": LAST.to_string()});
    let policy = json!({"grant_size": "1000000", "segment_min": "100", "segment_max": "1000000", "target_seconds": 60});
    let body = json!({"name": "orders", "kind": "range", "sequence": sequence, "policy": policy});
    let cluster = quick().region("eu").define(body).start().await;
    // Busy first, so that segments grow far above what 20 ids in a second are sized for (a minute of them).
    let load = Load::start(Plan::of(&cluster, "eu", "orders").tasks(2).count(50), exposed.clone());
    assert!(load.successes_within(1_500, Duration::from_secs(60)).await);
    load.stop().await;
    let grown = newest_sizes(&cluster, 1).await[0];
    assert!(grown > 10_000, "segments grew with the rate: {grown}");
    at_rest(&cluster, "eu", "orders").await;
    let restarts: u64 = if soak() { 200 } else { 12 };
    let mut burned = 0;
    for n in 0..restarts {
        cluster.region("eu").agent.kill9();
        cluster.restart_agent("eu").await;
        cluster.until_served("eu", "orders").await;
        take(&cluster, "eu", "orders", 20, 10, &exposed).await;
        let sizes = newest_sizes(&cluster, 1).await;
        assert!(sizes[0] <= 1_500, "restart {n}: a new process begins small, whatever its predecessor had: {sizes:?}");
        if n == 0 {
            at_rest(&cluster, "eu", "orders").await;
            burned = number(&headroom(&cluster).await["burned"]);
        }
    }
    at_rest(&cluster, "eu", "orders").await;
    until("the loss is told", async || number(&headroom(&cluster).await["burned"]) > burned).await;
    let now = headroom(&cluster).await;
    let lost = number(&now["burned"]) - burned;
    assert!(lost <= restarts * 2_000, "{lost} lost by {restarts} restarts");
    let issued = number(&now["issued_estimate"]);
    let handed_out = exposed.total();
    // A killed process is known as of its last heartbeat, and batches that reached nobody are issued all the same.
    let close = issued + restarts * 30 >= handed_out && issued <= handed_out + 5_000;
    assert!(close, "what was lost is not shown as issued: {issued} of {handed_out}: {now}");
    assert_sound(&cluster, &exposed).await;
}
