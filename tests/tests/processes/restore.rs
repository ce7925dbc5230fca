//! A backup of the authority's store is put back: found before any grant, healed by whoever remembers, and no
//! number twice.

use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tests::cluster::{Cluster, fixed};
use tests::ledger_of_ids::Exposed;
use tests::load::{Load, Plan};
use tests::region::Problem;
use tests::scratch::Scratch;

use crate::hand::{code, ledger};
use crate::help::{assert_sound, at_rest, copy_folder, number, put_back, quick, take, until, use_up};

/// A cold copy of the authority's store, and then so much work that both regions were granted more.
async fn backup(cluster: &Cluster, exposed: &Exposed) -> Scratch {
    for region in ["eu", "us"] {
        at_rest(cluster, region, "orders").await;
    }
    cluster.authority.kill9();
    let copy = Scratch::new("backup");
    copy_folder(&cluster.authority.data_folder(), copy.path());
    cluster.restart_authority().await;
    let before = ledger(cluster, "orders").await.len();
    for region in ["eu", "us"] {
        take(cluster, region, "orders", 2_500, 50, exposed).await;
        at_rest(cluster, region, "orders").await;
    }
    assert!(ledger(cluster, "orders").await.len() > before + 2, "grants that the copy does not know");
    copy
}

async fn restore(cluster: &Cluster, copy: &Scratch) {
    cluster.authority.kill9();
    put_back(copy.path(), &cluster.authority.data_folder());
    cluster.restart_authority().await;
}

async fn quarantines(cluster: &Cluster) -> Value {
    cluster.operate("GET", "/v1/quarantines", None).await.unwrap()
}

fn is_open(quarantines: &Value) -> bool {
    quarantines["quarantines"].as_array().unwrap().is_empty()
}

async fn lift(cluster: &Cluster, body: &Value) -> Result<Value, Problem> {
    cluster.operate("POST", "/v1/quarantines/orders/lift", Some(body)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn put_back_beside_its_witness_it_heals_alone_before_any_grant() {
    let exposed = Arc::new(Exposed::new());
    let builder = quick().region("eu").region("us").namespace_with("orders", fixed(1_000, 100));
    let cluster = builder.start().await;
    let copy = backup(&cluster, &exposed).await;
    let end = ledger(&cluster, "orders").await.last().unwrap().1;
    // Nobody but the witness can tell it anything.
    for region in cluster.regions() {
        region.link.cut();
    }
    restore(&cluster, &copy).await;
    until("the witness alone heals it", async || is_open(&quarantines(&cluster).await)).await;
    assert_eq!(quarantines(&cluster).await["continuity"], "witnessed");
    assert!(cluster.authority.log().contains("went_back"), "it was found at the start");
    let known = ledger(&cluster, "orders").await.len();
    let loads = ["eu", "us"].map(|region| Load::start(Plan::of(&cluster, region, "orders").tasks(2), exposed.clone()));
    for region in cluster.regions() {
        region.link.heal();
    }
    for load in &loads {
        assert!(load.successes_within(400, Duration::from_secs(60)).await, "{:?}", load.report());
    }
    for load in loads {
        load.stop().await;
    }
    let grants = ledger(&cluster, "orders").await;
    assert!(grants[known..].iter().all(|(lo, _, _)| *lo >= end), "above everything that was ever granted: {grants:?}");
    assert_sound(&cluster, &exposed).await;
}

/// A cluster whose authority has no witness, its store put back while `us` is cut off.
async fn unwitnessed(exposed: &Exposed) -> Cluster {
    let builder = quick().region("eu").region("us").authority_env("CADASTRE_WITNESS", "none");
    let cluster = builder.namespace_with("orders", fixed(1_000, 100)).start().await;
    let copy = backup(&cluster, exposed).await;
    cluster.region("us").link.cut();
    restore(&cluster, &copy).await;
    until("eu has testified and us is waited for", async || {
        let all = quarantines(&cluster).await;
        all["quarantines"].as_array().unwrap().first().is_some_and(|it| it["waiting_for"] == json!(["us"]))
    })
    .await;
    cluster
}

/// While it waits: regions issue what they hold and get nothing; nothing can be changed; readiness stays, so
/// that regions reach it.
async fn holds(cluster: &Cluster, exposed: &Exposed) {
    let before = ledger(cluster, "orders").await;
    let held = at_rest(cluster, "eu", "orders").await.held();
    let (got, problem) = use_up(cluster, "eu", "orders", 50, exposed).await;
    assert_eq!(got, held);
    assert_eq!(code(&problem), (503, "segment_dry"), "{problem}");
    assert_eq!(cluster.status("eu").await["quarantined"], true);
    let refused = cluster.operate("POST", "/v1/regions", Some(&json!({"name": "ap"}))).await.unwrap_err();
    assert_eq!(code(&refused), (503, "quarantined"), "{refused}");
    assert_eq!(ledger(cluster, "orders").await, before, "no grant in quarantine");
    let ready = tests::http::get_json(&format!("{}/readyz", cluster.url), None).await;
    assert_eq!((ready.0, &ready.2["status"]), (200, &json!("quarantined")));
    assert!(!is_open(&quarantines(cluster).await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_witness_it_waits_until_both_regions_have_testified() {
    let exposed = Exposed::new();
    let cluster = unwitnessed(&exposed).await;
    holds(&cluster, &exposed).await;
    cluster.region("us").link.heal();
    until("both have testified", async || is_open(&quarantines(&cluster).await)).await;
    for region in ["eu", "us"] {
        cluster.until_served(region, "orders").await;
        take(&cluster, region, "orders", 2_500, 50, &exposed).await;
    }
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_states_the_bound_of_a_silent_region_and_its_return_is_no_duplicate() {
    let exposed = Exposed::new();
    let cluster = unwitnessed(&exposed).await;
    holds(&cluster, &exposed).await;
    let known = ledger(&cluster, "orders").await.last().unwrap().1;
    // Not without saying that the old store is stopped, and not below what is known.
    let mut body = json!({"bounds": {"us": "20000"}, "old_store_stopped": false, "reason": "us is lost"});
    assert_eq!(code(&lift(&cluster, &body).await.unwrap_err()), (422, "invalid_request"));
    body["old_store_stopped"] = json!(true);
    body["bounds"] = json!({"us": (known - 1).to_string()});
    let refused = lift(&cluster, &body).await.unwrap_err();
    assert_eq!(code(&refused), (422, "invalid_request"), "{refused}");
    assert!(refused.detail.contains("lies below"), "{refused}");
    assert!(!is_open(&quarantines(&cluster).await));
    body["bounds"] = json!({"us": "20000"});
    lift(&cluster, &body).await.unwrap();
    until("one request deadline later it is open", async || is_open(&quarantines(&cluster).await)).await;
    cluster.until_served("eu", "orders").await;
    let first = ledger(&cluster, "orders").await.into_iter().find(|(lo, _, _)| *lo >= known).unwrap();
    assert!(first.0 >= 20_000, "above the stated bound: {first:?}");
    take(&cluster, "eu", "orders", 1_500, 50, &exposed).await;
    // The silent region issued all the while, below its bound.
    take(&cluster, "us", "orders", 500, 50, &exposed).await;
    cluster.region("us").link.heal();
    until("it is heard again", async || cluster.status("us").await["uplink"]["state"] == "up").await;
    take(&cluster, "us", "orders", 2_500, 50, &exposed).await;
    take(&cluster, "eu", "orders", 1_500, 50, &exposed).await;
    assert!(is_open(&quarantines(&cluster).await));
    let burned = number(&cluster.headroom().await["namespaces"][0]["burned"]);
    assert!(burned > 0, "what was raised over is counted");
    assert_sound(&cluster, &exposed).await;
}
