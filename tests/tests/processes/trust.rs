//! What the holder of one region's token cannot come to: another's role by testimony, another's token by an address.

use std::sync::{Arc, Mutex};

use cadastre_core::mark::Generation;
use cadastre_core::roster::Entry;
use cadastre_protocol::link::FullTestimony;
use serde_json::{Value, json};
use tests::http;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::hand::Hand;
use crate::help::{quick, until};

/// Whatever listens somewhere, and keeps what it is sent.
struct Listener {
    url: String,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Listener {
    async fn start() -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", socket.local_addr().unwrap());
        let heard = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&heard);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = socket.accept().await {
                let mut bytes = vec![0; 8_192];
                let read = stream.read(&mut bytes).await.unwrap_or(0);
                kept.lock().unwrap().push(String::from_utf8_lossy(&bytes[..read]).into_owned());
                let _ = stream.write_all(b"HTTP/1.1 500 no\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
            }
        });
        Self { url, heard }
    }

    fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

const FORGED: &str = "cad_op_5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e";

fn invented(kind: &str, body: Value, generation: Generation) -> Entry {
    let entry = json!({"generation": generation, "seq": "1000000", "name": "evil", "body": {kind: body}});
    serde_json::from_value(entry).unwrap()
}

fn token() -> Value {
    let sha256 = cadastre_runtime::token::sha256_hex(FORGED);
    json!({"token_id": "evil", "sha256": sha256, "made_at_ms": 0, "revoked_at_ms": null})
}

/// A region says that it saw a future of this authority, and testifies of an operator, a service and a region that never
/// were. With and without a witness nobody believes it, and its true testimony ends the quarantine.
#[tokio::test]
async fn a_region_cannot_testify_of_an_operator_that_never_was() {
    for mode in ["none", "file:{data}-witness"] {
        let cluster = quick().authority_env("CADASTRE_WITNESS", mode).start().await;
        let mut eu = Hand::register(&cluster, "eu").await;
        let answer = eu.beat().await;
        let ahead = Generation { counter: answer.generation.counter + 1, random: 7 };
        eu.puppet.words.promised = ahead;
        let (mut answer, mut told) = (eu.beat().await, 0);
        let limits = json!({"ids_per_second": null, "in_flight": null, "batch": 10_000});
        let region = json!({"region_id": 7, "epoch": 1, "state": "active", "store_id": null, "founder": true,
            "tokens": [token()], "rejoin": false});
        for (kind, body) in [
            ("operator", json!({"viewer": false, "tokens": [token()]})),
            ("service", json!({"namespaces": [], "limits": limits, "tokens": [token()]})),
            ("region", region),
        ] {
            let Some(generation) = answer.testify_for else { break };
            let mut lie = invented(kind, body, ahead);
            for seal in [None, Some("0".repeat(64))] {
                lie.seal = seal;
                eu.puppet.words.promised = generation;
                eu.puppet.testimony = Some(testimony(generation, vec![lie.clone()]));
                answer = eu.beat().await;
                assert!(answer.quarantined, "{mode}: it ends nothing");
                told += 1;
                assert!(cluster.authority.log().contains(&format!("what it says of {kind} evil")), "it is told");
                let who = http::get_json(&format!("{}/v1/whoami", cluster.url), Some(FORGED)).await;
                assert_eq!(who.0, 401, "{mode} {kind}: {}", who.2);
            }
        }
        // With a required witness that knows better it is over at once.
        assert_eq!(told, if mode == "none" { 6 } else { 0 }, "{mode}");
        if let Some(generation) = answer.testify_for {
            eu.puppet.words.promised = generation;
            eu.puppet.testimony = Some(testimony(generation, answer.roster.clone()));
            eu.beat().await;
        }
        until("the truth ends it", async || {
            let all = cluster.operate("GET", "/v1/quarantines", None).await.unwrap();
            all["quarantines"].as_array().unwrap().is_empty()
        })
        .await;
        let who = http::get_json(&format!("{}/v1/whoami", cluster.url), Some(FORGED)).await;
        assert_eq!(who.0, 401, "{mode}: {}", who.2);
        let all = cluster.operate("GET", "/v1/operators", None).await.unwrap();
        assert!(!all.to_string().contains("evil"), "{all}");
    }
}

fn testimony(generation: Generation, roster: Vec<Entry>) -> FullTestimony {
    FullTestimony { generation, bounds: Default::default(), marks: vec![], roster }
}

/// An agent says that it is reached at a place of its owner's: what comes there is worth nothing anywhere else.
#[tokio::test]
async fn an_address_that_an_agent_says_is_sent_nobodys_token() {
    let cluster = quick().region("eu").start().await;
    let thief = Listener::start().await;
    let mut mal = Hand::register(&cluster, "mal").await;
    mal.puppet.sender.url = Some(thief.url.clone());
    mal.puppet.sender.errand_key = Some("mine".to_owned());
    mal.beat().await;
    for (method, path, body) in [
        ("GET", "/v1/regions/mal/agents", None),
        ("GET", "/v1/regions/mal/segments?namespace=orders", None),
        ("POST", "/v1/audit/verify", Some(json!({}))),
    ] {
        let _ = cluster.operate(method, path, body.as_ref()).await;
    }
    let heard = thief.heard();
    assert!(heard.len() >= 3, "it was asked: {heard:?}");
    for request in &heard {
        for secret in [&cluster.operator_token, &cluster.service_token] {
            assert!(!request.contains(secret.as_str()), "{request}");
        }
    }
    // What it caught is good at no other agent, nor at the authority.
    let caught: Vec<&str> = heard.iter().filter_map(|request| request.split("Bearer ").nth(1)).collect();
    assert!(!caught.is_empty(), "{heard:?}");
    for token in caught.iter().filter_map(|rest| rest.split_whitespace().next()) {
        for url in [format!("{}/v1/status", cluster.region("eu").url), format!("{}/v1/whoami", cluster.url)] {
            let (status, _, answer) = http::get_json(&url, Some(token)).await;
            assert_eq!(status, 401, "{url}: {answer}");
        }
    }
    // The honest one is asked as before.
    let agents = cluster.operate("GET", "/v1/regions/eu/agents", None).await.unwrap();
    assert_eq!(agents["agents"][0]["status"]["region"], "eu", "{agents}");
}

/// Who is unknown hears that, whatever else is wrong with what it sends, and none of it is read.
#[tokio::test]
async fn an_unknown_caller_hears_that_first() {
    let cluster = quick().region("eu").start().await;
    let agent = cluster.region("eu").url.clone();
    for (base, document) in [(cluster.url.clone(), "authority"), (agent, "agent")] {
        let all: Value = http::get_json(&format!("{base}/openapi.json"), None).await.2;
        let mut tried = 0;
        for (path, calls) in all["paths"].as_object().unwrap().iter().filter(|(path, _)| path.starts_with("/v1/")) {
            let path = path.replace("{name}", "eu").replace(['{', '}'], "");
            for method in calls.as_object().unwrap().keys() {
                let method = method.to_uppercase();
                let body = (method != "GET").then(|| json!({"odd": true}));
                for token in [None, Some(FORGED)] {
                    let answer = http::call(&method, &format!("{base}{path}"), token, body.as_ref()).await.unwrap();
                    assert_eq!(
                        (answer.0, answer.2["code"].as_str()),
                        (401, Some("unauthenticated")),
                        "{document} {method} {path}: {}",
                        answer.2
                    );
                    tried += 1;
                }
            }
        }
        assert!(tried > 10, "{document}");
    }
    // A body that only a region may send so large is not taken from a service.
    let large = json!({"odd": "x".repeat(1 << 20)});
    let url = format!("{}/v1/heartbeats", cluster.url);
    let answer = http::call("POST", &url, Some(&cluster.service_token), Some(&large)).await.unwrap();
    assert_eq!((answer.0, answer.2["code"].as_str()), (403, Some("forbidden")), "{}", answer.2);
}

/// Tokens of regions and operators are taken back: at once at the authority, with the roster at agents.
#[tokio::test]
async fn tokens_of_regions_and_operators_are_rotated_and_taken_back() {
    let cluster = quick().region("eu").start().await;
    let mut hand = Hand::register(&cluster, "ap").await;
    hand.beat().await;
    let new = cluster.operate("POST", "/v1/regions/ap/tokens", Some(&json!({}))).await.unwrap();
    let old = std::mem::replace(&mut hand.token, new["token"].as_str().unwrap().to_owned());
    hand.beat().await;
    let regions = cluster.operate("GET", "/v1/regions", None).await.unwrap();
    let ap = regions["regions"].as_array().unwrap().iter().find(|r| r["name"] == "ap").unwrap().clone();
    let first = ap["tokens"][0]["token_id"].as_str().unwrap().to_owned();
    let path = format!("/v1/regions/ap/tokens/{first}");
    for _ in 0..2 {
        cluster.operate("DELETE", &path, None).await.unwrap();
    }
    hand.beat().await;
    let kept = std::mem::replace(&mut hand.token, old);
    let message = hand.puppet.message(vec![]);
    assert_eq!(hand.send(&message).await.unwrap_err().status, 401);
    hand.token = kept;
    assert_eq!(cluster.operate("DELETE", "/v1/regions/ap/tokens/nothing", None).await.unwrap_err().status, 404);
    // Operators: a second one, known at the agent too, until it is taken back.
    cluster.operate("POST", "/v1/operators", Some(&json!({"name": "ada", "role": "operator"}))).await.unwrap();
    let ada = cluster.operate("POST", "/v1/operators/ada/tokens", Some(&json!({}))).await.unwrap();
    let (id, token) = (ada["token_id"].as_str().unwrap(), ada["token"].as_str().unwrap());
    let status = format!("{}/v1/status", cluster.region("eu").url);
    until("the agent knows her", async || http::get_json(&status, Some(token)).await.0 == 200).await;
    cluster.operate("DELETE", &format!("/v1/operators/ada/tokens/{id}"), None).await.unwrap();
    let who = http::get_json(&format!("{}/v1/whoami", cluster.url), Some(token)).await;
    assert_eq!(who.0, 401, "{}", who.2);
    until("the agent does not know her any more", async || http::get_json(&status, Some(token)).await.0 == 401).await;
    // The last one stays.
    let all = cluster.operate("GET", "/v1/operators", None).await.unwrap();
    let own = all["operators"].as_array().unwrap().iter().find(|o| o["name"] == "bootstrap").unwrap().clone();
    let path = format!("/v1/operators/bootstrap/tokens/{}", own["tokens"][0]["token_id"].as_str().unwrap());
    let problem = cluster.operate("DELETE", &path, None).await.unwrap_err();
    assert_eq!((problem.status, problem.code.as_str()), (409, "not_allowed"), "{problem}");
}
