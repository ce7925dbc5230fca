//! Drills: a region refuses its own uplink on purpose, callers do not notice, and it heals whoever is gone meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::cluster::{Cluster, fixed};
use tests::http;
use tests::ledger_of_ids::Exposed;
use tests::load::{Load, Plan};

use crate::help::{assert_sound, quick, take, until};

async fn one() -> Cluster {
    let builder = quick().region("eu").region("us").namespace_with("orders", fixed(100_000, 100));
    builder.namespace_with("rehearsal", fixed(1_000, 100)).start().await
}

fn cut(seconds: u32) -> Value {
    json!({"kind": "wan_cut", "region": "eu", "for_seconds": seconds, "confirm": "eu"})
}

pub async fn order(cluster: &Cluster, body: Value) -> String {
    let drill = cluster.operate("POST", "/v1/drills", Some(&body)).await.unwrap();
    drill["drill_id"].as_str().unwrap().to_owned()
}

pub async fn look(cluster: &Cluster, id: &str) -> Value {
    cluster.operate("GET", &format!("/v1/drills/{id}"), None).await.unwrap_or_default()
}

pub async fn until_state(cluster: &Cluster, id: &str, state: &str) -> Value {
    let bound = Instant::now() + Duration::from_secs(90);
    loop {
        let now = look(cluster, id).await;
        if now["state"] == state {
            return now;
        }
        assert!(Instant::now() < bound, "not {state} after 90 s: {now}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn uplink(cluster: &Cluster) -> Value {
    cluster.status("eu").await["uplink"].clone()
}

async fn until_cut(cluster: &Cluster) {
    until("the agent refuses its uplink", async || {
        uplink(cluster).await["last_error"].as_str().is_some_and(|e| e.contains("drill"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_under_load_ends_by_itself_and_has_a_report() {
    let (cluster, exposed) = (one().await, Arc::new(Exposed::new()));
    let plan = Plan::of(&cluster, "eu", "orders").count(10).tasks(2).pause(Duration::from_millis(20));
    let eu = Load::start(plan, Arc::clone(&exposed));
    assert!(eu.successes_within(20, Duration::from_secs(20)).await);
    let wrong = json!({"kind": "wan_cut", "region": "eu", "for_seconds": 5});
    let problem = cluster.operate("POST", "/v1/drills", Some(&wrong)).await.unwrap_err();
    assert!(problem.status == 422 && problem.detail.contains("confirm"), "{problem}");
    let id = order(&cluster, cut(4)).await;
    let problem = cluster.operate("POST", "/v1/drills", Some(&cut(4))).await.unwrap_err();
    assert_eq!((problem.status, problem.code.as_str()), (409, "drill_running"), "{problem}");
    until_cut(&cluster).await;
    let before = cluster.region("eu").link.count("/v1/heartbeats").delivered;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(cluster.region("eu").link.count("/v1/heartbeats").delivered, before, "nothing was sent");
    let ended = until_state(&cluster, &id, "ended").await;
    let report = &ended["report"];
    assert_eq!(report["verdict"], "passed", "{ended}");
    assert!(report["cut_seconds"].as_f64().unwrap() <= 4.5, "{report}");
    assert!(report["heal_seconds"].as_f64().is_some_and(|s| s < 10.0), "{report}");
    let orders = &report["namespaces"]["orders"];
    let issued: u64 = orders["issued"].as_str().unwrap().parse().unwrap();
    assert!(issued > 0 && orders["dry_after_ms"].is_null() && orders["least_runway_seconds"].is_u64(), "{orders}");
    assert_eq!((&report["verified"]["ok"], &report["errors"]), (&json!(true), &json!({})), "{report}");
    assert!(report["verified"]["checked"]["segments"].as_u64().unwrap() > 0, "the region's ledger too: {report}");
    let text = ended["markdown"].as_str().unwrap();
    assert!(text.contains("**passed**") && text.contains("| orders |") && text.contains("## Timeline"), "{text}");
    // During the cut nobody was refused, as the report says. Beside it a busy machine may refill too late for somebody.
    let others: Vec<String> = eu.stop().await.errors.into_keys().filter(|code| code != "segment_dry").collect();
    assert!(others.is_empty(), "{others:?}");
    assert_eq!(uplink(&cluster).await["state"], "up");
    assert_sound(&cluster, &exposed).await;
}

/// The authority dies during the cut, and with it everybody who could end it; later an agent is restarted in one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_ends_though_nobody_is_left_to_end_it() {
    let (cluster, exposed) = (one().await, Exposed::new());
    let id = order(&cluster, cut(3)).await;
    until_cut(&cluster).await;
    cluster.authority.kill9();
    take(&cluster, "eu", "orders", 100, 10, &exposed).await;
    until("the agent tries its uplink again, and nobody answers", async || {
        let error = uplink(&cluster).await["last_error"].as_str().unwrap_or_default().to_owned();
        !error.contains("drill") && !error.is_empty()
    })
    .await;
    cluster.restart_authority().await;
    let ended = until_state(&cluster, &id, "ended").await;
    assert_eq!(ended["report"]["verdict"], "passed", "{ended}");
    // A restart forgets the cut; the drill that goes on takes the new process, too, for what is left of its time.
    let id = order(&cluster, cut(6)).await;
    until_cut(&cluster).await;
    cluster.region("eu").agent.kill9();
    cluster.restart_agent("eu").await;
    until("it is back in time", async || uplink(&cluster).await["state"] == "up").await;
    take(&cluster, "eu", "orders", 100, 10, &exposed).await;
    let path = format!("/v1/drills/{id}/abort");
    cluster.operate("POST", &path, Some(&json!({}))).await.unwrap();
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_is_aborted_through_the_authority_and_at_the_agent() {
    let (cluster, exposed) = (one().await, Exposed::new());
    let id = order(&cluster, cut(600)).await;
    until_cut(&cluster).await;
    let path = format!("/v1/drills/{id}/abort");
    for _ in 0..2 {
        cluster.operate("POST", &path, Some(&json!({}))).await.unwrap();
    }
    let ended = until_state(&cluster, &id, "ended").await;
    assert_eq!(ended["report"]["verdict"], "aborted", "{ended}");
    assert_eq!(uplink(&cluster).await["state"], "up");
    let id = order(&cluster, cut(600)).await;
    until_cut(&cluster).await;
    let url = format!("{}/v1/drills/abort", cluster.region("eu").url);
    let stranger = http::call("POST", &url, Some(&cluster.service_token), Some(&json!({}))).await.unwrap();
    assert_eq!((stranger.0, &stranger.2["code"]), (403, &json!("forbidden")));
    let answer = http::call("POST", &url, Some(&cluster.operator_token), Some(&json!({}))).await.unwrap();
    assert_eq!((answer.0, &answer.2["aborted"]), (200, &json!(true)));
    let ended = until_state(&cluster, &id, "ended").await;
    assert_eq!(ended["report"]["verdict"], "aborted", "{ended}");
    assert!(ended["report"]["why"].to_string().contains("at the agent"), "{ended}");
    take(&cluster, "eu", "orders", 100, 10, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}

/// The drilled namespace runs dry, and the others keep their share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_runs_dry_and_the_time_is_compared_with_the_forecast() {
    let (cluster, exposed) = (one().await, Arc::new(Exposed::new()));
    // One at a time: a batch would leave a rest that is smaller than it.
    let plan = Plan::of(&cluster, "eu", "rehearsal").count(1).tasks(1).pause(Duration::from_millis(2));
    let load = Load::start(plan, Arc::clone(&exposed));
    assert!(load.successes_within(50, Duration::from_secs(20)).await);
    let mut body = cut(60);
    body["until_dry"] = json!(true);
    body["namespace"] = json!("rehearsal");
    let id = order(&cluster, body).await;
    let ended = until_state(&cluster, &id, "ended").await;
    load.stop().await;
    let report = &ended["report"];
    assert_eq!(report["verdict"], "passed", "{ended}");
    let seen = &report["namespaces"]["rehearsal"];
    assert!(seen["dry_after_ms"].is_u64() && seen["least_held"] == "0", "{seen}");
    assert!(seen["forecast_seconds"].is_u64(), "there is a forecast to compare with: {seen}");
    assert!(report["cut_seconds"].as_f64().unwrap() < 60.0, "{report}");
    assert_sound(&cluster, &exposed).await;
}
