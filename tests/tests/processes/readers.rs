//! Processes and agents that read less than there is: they are given what they read, and nothing is defined, and no
//! region added, that one of them could not follow.

use cadastre_core::knows::Knows;
use serde_json::{Value, json};
use tests::cluster::{Cluster, fixed};
use tests::http;
use tests::process::set_fake_clock;
use tests::scratch::Scratch;

use crate::hand::{Hand, fresh};
use crate::help::{quick, until};

const SAFE: &str = "9007199254740991";

fn narrow() -> Value {
    json!({"version": "0.0.9-js", "knows": {"largest": SAFE, "kinds": ["range", "dates"], "layouts": 0}})
}

async fn ask(cluster: &Cluster, path: &str, namespace: &str, n: u64, program: Option<Value>) -> (u16, Value) {
    let mut body = json!({"namespace": namespace, "allocation_id": fresh(n).to_string(), "instance": format!("till-{n}"),
        "incarnation": uuid::Uuid::from_u128(u128::from(n)).to_string()});
    if path == "segments" {
        body["want"] = json!("10");
    }
    if let Some(program) = program {
        body["program"] = program;
    }
    let url = format!("{}/v1/{path}", cluster.region("eu").url);
    let (status, _, answer) = http::post_json(&url, Some(&cluster.service_token), &body).await;
    (status, answer)
}

async fn regions(cluster: &Cluster) -> Vec<Value> {
    let answer = cluster.operate("GET", "/v1/regions", None).await.unwrap();
    answer["regions"].as_array().unwrap().clone()
}

fn up_to(max: &str) -> Value {
    json!({"start": "1", "increment": "1", "min": "1", "max": max})
}

/// A client that parses JSON as JavaScript does: served where every value fits, refused elsewhere, and named to whoever
/// would widen what it reads.
#[tokio::test]
async fn a_client_that_reads_less_is_served_what_it_reads_and_nothing_is_widened_under_it() {
    let notes = json!({"name": "notes", "kind": "range", "sequence": up_to(SAFE), "policy": fixed(1_000, 100)});
    let events = json!({"name": "events", "kind": "snowflake"});
    let builder = quick().region("eu").namespace_with("orders", fixed(1_000, 100)).define(notes).define(events);
    let cluster = builder.start().await;
    // What it could not read it is not given.
    for (path, namespace, word) in
        [("segments", "orders", "9223372036854775807"), ("workers", "events", "kind snowflake")]
    {
        let (status, problem) = ask(&cluster, path, namespace, 1, Some(narrow())).await;
        assert_eq!((status, problem["code"].as_str()), (422, Some("invalid_request")), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(word), "{problem}");
    }
    for bad in [json!({"version": "1"}), json!({"version": "1", "knows": {"largest": 5, "kinds": [], "layouts": 0}})] {
        assert_eq!(ask(&cluster, "segments", "notes", 2, Some(bad)).await.0, 422);
    }
    assert!(regions(&cluster).await.iter().all(|region| region.get("read_less").is_none()));
    let (status, segment) = ask(&cluster, "segments", "notes", 3, Some(narrow())).await;
    assert_eq!(status, 201, "{segment}");
    // One that says nothing, or reads everything, is nobody's concern.
    let all = json!({"version": "1.0.0", "knows": Knows::all()});
    assert_eq!(ask(&cluster, "segments", "orders", 4, None).await.0, 201);
    assert_eq!(ask(&cluster, "segments", "orders", 5, Some(all)).await.0, 201);
    until("the authority heard of it", async || {
        regions(&cluster).await[0]["read_less"].as_array().is_some_and(|less| less.len() == 1)
    })
    .await;
    let less = regions(&cluster).await[0]["read_less"][0].clone();
    assert_eq!((less["instance"].as_str(), less["service"].as_str()), (Some("till-3"), Some("shop")), "{less}");
    assert_eq!(
        less["knows"],
        json!({"largest": SAFE, "kinds": ["range"], "layouts": 0}),
        "what this build knows of it"
    );
    // To widen what it reads is refused by its name; all else goes on.
    let next = "9007199254740992";
    let sequence = json!({"start": next, "increment": "1", "min": next, "max": "18014398509481983"});
    let wider = json!({"sequence": sequence});
    let problem = cluster.operate("PATCH", "/v1/namespaces/notes", Some(&wider)).await.unwrap_err();
    assert_eq!((problem.status, problem.code.as_str()), (409, "not_allowed"), "{problem}");
    for word in ["till-3", "eu", "0.0.9-js", SAFE, "notes"] {
        assert!(problem.detail.contains(word), "{word} in {problem}");
    }
    cluster.operate("PATCH", "/v1/namespaces/orders", Some(&json!({"policy": {"segment_min": "50"}}))).await.unwrap();
    cluster.operate("POST", "/v1/regions", Some(&json!({"name": "us"}))).await.unwrap();
    // The same instance comes back with newer software: nothing stands in the way any more.
    let all = json!({"version": "1.0.0", "knows": Knows::all()});
    let body = json!({"namespace": "notes", "allocation_id": fresh(6).to_string(), "instance": "till-3",
        "incarnation": uuid::Uuid::from_u128(6).to_string(), "want": "10", "program": all});
    let url = format!("{}/v1/segments", cluster.region("eu").url);
    assert_eq!(http::post_json(&url, Some(&cluster.service_token), &body).await.0, 201);
    until("the authority heard of that too", async || {
        regions(&cluster).await.iter().all(|region| region.get("read_less").is_none())
    })
    .await;
    cluster.operate("PATCH", "/v1/namespaces/notes", Some(&wider)).await.unwrap();
}

/// An agent that reads less: no region joins, and nothing that it does not know is defined, until it is newer.
#[tokio::test]
async fn an_agent_that_reads_less_holds_up_what_it_could_not_follow() {
    let cluster = quick().region("eu").namespace_with("orders", fixed(1_000, 100)).start().await;
    let mut old = Hand::register(&cluster, "ap").await;
    old.puppet.sender.version = "0.0.9".to_owned();
    old.puppet.sender.knows = Some(Knows { kinds: vec!["range".to_owned()], ..Knows::all() });
    old.beat().await;
    let events = json!({"name": "events", "kind": "snowflake"});
    let problem = cluster.operate("POST", "/v1/namespaces", Some(&events)).await.unwrap_err();
    assert_eq!((problem.status, problem.code.as_str()), (409, "not_allowed"), "{problem}");
    for word in ["agent", "ap", "0.0.9", "snowflake", "events"] {
        assert!(problem.detail.contains(word), "{word} in {problem}");
    }
    cluster.operate("POST", "/v1/regions", Some(&json!({"name": "us"}))).await.expect("it reads all that there is");
    // Then it cannot read all that there is any more.
    old.puppet.sender.knows = Some(Knows { largest: 1_000, ..Knows::all() });
    old.beat().await;
    let problem = cluster.operate("POST", "/v1/regions", Some(&json!({"name": "sa"}))).await.unwrap_err();
    assert!(problem.code == "not_allowed" && problem.detail.contains("up to 1000"), "{problem}");
    // An authority that is new here has it from the store.
    cluster.authority.kill9();
    cluster.restart_authority().await;
    let problem = cluster.operate("POST", "/v1/regions", Some(&json!({"name": "sa"}))).await.unwrap_err();
    assert!(problem.code == "not_allowed" && problem.detail.contains("up to 1000"), "{problem}");
    // It is updated, and everything goes on.
    old.puppet.sender.knows = Some(Knows::all());
    old.beat().await;
    cluster.operate("POST", "/v1/regions", Some(&json!({"name": "sa"}))).await.unwrap();
    cluster.operate("POST", "/v1/namespaces", Some(&events)).await.unwrap();
}

/// Who is silent counts for an hour, whatever the authority's clock did meanwhile: one that was a year ahead must not let
/// somebody count for a year.
#[tokio::test]
async fn who_is_silent_counts_for_an_hour() {
    let (folder, cluster) = (Scratch::new("clock"), quick().region("eu").namespace("orders").start().await);
    let file = folder.path().join("clock");
    cluster.authority.kill9();
    cluster.authority.change(|spec| spec.fake_clock(&file));
    cluster.restart_authority().await;
    let mut old = Hand::register(&cluster, "ap").await;
    old.puppet.sender.knows = Some(Knows { largest: 1_000, ..Knows::all() });
    let new = |name: &'static str| {
        let cluster = &cluster;
        async move { cluster.operate("POST", "/v1/regions", Some(&json!({"name": name}))).await.map_err(|p| p.code) }
    };
    old.beat().await;
    assert_eq!(new("r1").await.unwrap_err(), "not_allowed");
    set_fake_clock(&file, "+3500");
    assert_eq!(new("r1").await.unwrap_err(), "not_allowed", "not yet an hour");
    set_fake_clock(&file, "+2h");
    new("r1").await.unwrap();
    set_fake_clock(&file, "+366d");
    old.beat().await;
    assert_eq!(new("r2").await.unwrap_err(), "not_allowed");
    set_fake_clock(&file, "+3h");
    new("r2").await.unwrap();
    // It speaks once more.
    old.beat().await;
    assert_eq!(new("r3").await.unwrap_err(), "not_allowed");
}
