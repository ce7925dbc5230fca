//! Every route against every kind of token: who may call what, for all that the documents of both daemons name.
//!
//! The table below is the whole of it. A route that is not in it fails the test, so that whoever adds one has to say who
//! may call it.

use serde_json::{Value, json};
use tests::cluster::fixed;
use tests::http;

use crate::help::quick;

/// Operator, viewer, service, region, in this order.
const ROLES: [&str; 4] = ["operator", "viewer", "service", "region"];

/// Who may call a route of the authority: letters of [`ROLES`].
fn at_the_authority(method: &str, path: &str) -> Option<&'static str> {
    Some(match (method, path) {
        (_, "/v1/grants" | "/v1/heartbeats") if method == "POST" => "r",
        ("GET", "/v1/origins/{namespace}/{id}") => "ovs",
        ("GET", "/v1/whoami" | "/v1/services" | "/v1/services/use") => "ov",
        ("GET", "/v1/operators") => "o",
        ("GET", "/v1/grants" | "/v1/headroom" | "/v1/quarantines" | "/v1/audit" | "/v1/overview") => "ov",
        ("GET", "/v1/overview/namespaces" | "/v1/namespaces/{name}/history" | "/v1/namespaces/{name}/line") => "ov",
        ("GET", "/v1/regions" | "/v1/regions/{name}/agents" | "/v1/regions/{name}/segments") => "ov",
        ("GET", "/v1/namespaces" | "/v1/namespaces/{name}" | "/v1/switches" | "/v1/switches/{id}") => "ov",
        ("GET", "/v1/drills" | "/v1/drills/{id}") => "ov",
        ("POST", "/v1/audit/verify") => "o",
        ("POST", "/v1/namespaces" | "/v1/services" | "/v1/operators" | "/v1/regions") => "o",
        ("PATCH" | "DELETE", "/v1/namespaces/{name}") | ("PATCH", "/v1/services/{name}") => "o",
        ("POST", "/v1/services/{name}/tokens" | "/v1/operators/{name}/tokens" | "/v1/regions/{name}/tokens") => "o",
        ("DELETE", "/v1/services/{name}/tokens/{id}" | "/v1/operators/{name}/tokens/{id}") => "o",
        ("DELETE", "/v1/regions/{name}/tokens/{id}") => "o",
        ("POST", "/v1/regions/{name}/drain" | "/v1/regions/{name}/fence") => "o",
        ("POST", "/v1/regions/{name}/recover" | "/v1/regions/{name}/retire") => "o",
        ("POST", "/v1/switches" | "/v1/switches/{id}/resume" | "/v1/switches/{id}/back-out") => "o",
        ("POST", "/v1/drills" | "/v1/drills/{id}/abort" | "/v1/quarantines/{namespace}/lift") => "o",
        ("PUT" | "DELETE", "/v1/drills/schedule") => "o",
        ("POST", "/v1/rebuild" | "/v1/rebuild/grants") => "o",
        _ => return None,
    })
}

/// The same at an agent.
fn at_an_agent(method: &str, path: &str) -> Option<&'static str> {
    Some(match (method, path) {
        ("POST", "/v1/ids" | "/v1/segments" | "/v1/workers" | "/v1/duplicates") => "s",
        ("POST", "/v1/segments/{segment_id}/return" | "/v1/workers/{worker}/renew") => "s",
        ("DELETE", "/v1/workers/{worker}") => "s",
        ("GET", "/v1/origins/{namespace}/{id}") => "ovs",
        ("GET", "/v1/status") => "ovsr",
        ("GET", "/v1/segments" | "/v1/grants" | "/v1/drills" | "/v1/services") => "ov",
        ("GET", "/v1/testimony") => "or",
        ("POST", "/v1/audit/verify") => "ov",
        ("POST", "/v1/drills/abort") => "o",
        _ => return None,
    })
}

/// A body that the route reads, and that changes nothing where it is allowed: what it makes is there, what it names is not.
fn harmless(path: &str) -> Value {
    match path {
        "/v1/namespaces" => json!({"name": "orders"}),
        "/v1/services" => json!({"name": "shop", "namespaces": ["orders"]}),
        "/v1/operators" => json!({"name": "eve", "role": "viewer"}),
        "/v1/regions" => json!({"name": "eu"}),
        "/v1/switches" => json!({"from": "none", "to": "nobody"}),
        "/v1/drills" => json!({"kind": "wan_cut", "region": "none", "for_seconds": 10}),
        "/v1/drills/schedule" => {
            json!({"drill": {"kind": "wan_cut", "region": "none", "for_seconds": 10}, "every_hours": 168})
        }
        "/v1/quarantines/{namespace}/lift" => json!({"bounds": {}, "old_store_stopped": false, "reason": ""}),
        "/v1/ids" | "/v1/segments" | "/v1/workers" => json!({"namespace": "orders"}),
        _ => json!({}),
    }
}

/// A path whose parts can be what they stand for, and do not exist (a namespace does).
fn filled(path: &str) -> String {
    let filled = path.replace("{namespace}", "orders").replace("{name}", "none").replace("{worker}", "99");
    let query = if path.ends_with("/grants") || path.ends_with("/segments") { "?namespace=orders" } else { "" };
    filled.replace("{id}", "1").replace("{segment_id}", "1") + query
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_route_answers_those_who_may_call_it_and_no_others() {
    let cluster = quick().region("eu").namespace_with("orders", fixed(1_000, 100)).start().await;
    cluster.operate("POST", "/v1/operators", Some(&json!({"name": "eve", "role": "viewer"}))).await.unwrap();
    let viewer = cluster.operate("POST", "/v1/operators/eve/tokens", Some(&json!({}))).await.unwrap();
    let tokens = [
        cluster.operator_token.as_str(),
        viewer["token"].as_str().unwrap(),
        cluster.service_token.as_str(),
        cluster.region("eu").registration["token"].as_str().unwrap(),
    ];
    let mut wrong = Vec::new();
    let agent = cluster.region("eu").url.clone();
    type Table = fn(&str, &str) -> Option<&'static str>;
    for (base, table) in [(&cluster.url, at_the_authority as Table), (&agent, at_an_agent)] {
        let all: Value = http::get_json(&format!("{base}/openapi.json"), None).await.2;
        for (path, calls) in all["paths"].as_object().unwrap().iter().filter(|(path, _)| path.starts_with("/v1/")) {
            for method in calls.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
                let Some(may) = table(&method, path) else {
                    wrong.push(format!("{method} {path}: who may call it? Say it in this test's table"));
                    continue;
                };
                let url = format!("{base}{}", filled(path));
                for (role, token) in ROLES.iter().zip(tokens) {
                    let body = (method != "GET").then(|| harmless(path));
                    let answer = http::call(&method, &url, Some(token), body.as_ref()).await.unwrap();
                    let allowed = may.contains(&role[..1]);
                    if (answer.0 == 403) == allowed || answer.0 == 401 {
                        wrong.push(format!("{method} {path} by {role}: {} {}", answer.0, answer.2));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// At the level that shows most, of every crate that is in the daemons, no token and no password is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_in_any_log_at_any_level() {
    let redis = tests::redis::Redis::with(&["--requirepass", "word-of-redis"]);
    let url = redis.url().replace("redis://", "redis://:word-of-redis@");
    let port = tests::ports::free();
    let builder = quick().authority(tests::cluster::Backend::Postgres).region("eu").witness(&url, "required");
    let builder = builder.authority_env("CADASTRE_LOG", "trace").agent_env("CADASTRE_LOG", "trace");
    let builder = builder.agent_env("CADASTRE_RESP_LISTEN", &format!("127.0.0.1:{port}"));
    let cluster = builder.namespace_with("orders", fixed(1_000, 100)).start().await;
    let mut secrets = vec!["word-of-redis".to_owned(), cluster.operator_token.clone(), cluster.service_token.clone()];
    for (path, name) in [("operators", "eve"), ("regions", "us"), ("services", "till")] {
        let body = match path {
            "operators" => json!({"name": name, "role": "viewer"}),
            "services" => json!({"name": name, "namespaces": ["orders"]}),
            _ => json!({"name": name}),
        };
        let made = cluster.operate("POST", &format!("/v1/{path}"), Some(&body)).await.unwrap();
        let token = cluster.operate("POST", &format!("/v1/{path}/{name}/tokens"), Some(&json!({}))).await.unwrap();
        secrets.extend([&made, &token].iter().filter_map(|answer| answer["token"].as_str().map(str::to_owned)));
    }
    secrets.push(cluster.region("eu").registration["token"].as_str().unwrap().to_owned());
    let unknown = "cad_svc_0123456789012345678901234567890123456789012345678901234567890123".to_owned();
    for token in secrets.iter().chain([&unknown]).filter(|secret| secret.starts_with("cad_")) {
        let status = http::get_json(&format!("{}/v1/status", cluster.region("eu").url), Some(token)).await;
        let who = http::get_json(&format!("{}/v1/whoami", cluster.url), Some(token)).await;
        assert!(status.0 > 0 && who.0 > 0);
        let words = format!("*2\r\n$4\r\nAUTH\r\n${}\r\n{token}\r\n*2\r\n$4\r\nINCR\r\n$6\r\norders\r\n", token.len());
        assert!(!http::raw(&format!("127.0.0.1:{port}"), words.as_bytes()).await.unwrap().is_empty());
    }
    cluster.ids("eu", "orders", 100).await.unwrap();
    cluster.operate("GET", "/v1/regions/eu/agents", None).await.unwrap();
    secrets.push(unknown);
    let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
    for daemon in [&cluster.authority, &cluster.region("eu").agent] {
        assert!(daemon.log().contains("TRACE"), "the level is on");
        crate::help::assert_clean_log(daemon, &secrets);
    }
}
