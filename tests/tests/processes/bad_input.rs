//! Bad input: a clear problem with the right code and status, no state changed, nobody falls over, and no
//! secret in a log, not even at the level for debugging.

use serde_json::{Value, json};
use tests::cluster::{Cluster, fixed};
use tests::http;
use tests::ledger_of_ids::Exposed;

use crate::hand::{Hand, code, fresh};
use crate::help::{assert_clean_log, assert_sound, at_rest, number, quick, take, until};

/// A cluster with everything that can be named wrongly, and its tokens by role.
struct Target {
    cluster: Cluster,
    viewer: String,
    region: String,
    exposed: Exposed,
}

async fn target() -> Target {
    let builder = quick().region("eu").namespace_with("orders", fixed(1_000, 100)).namespace("gone");
    let cluster = builder.agent_env("CADASTRE_LOG", "debug").authority_env("CADASTRE_LOG", "debug").start().await;
    cluster.operate("POST", "/v1/namespaces", Some(&json!({"name": "closed"}))).await.unwrap();
    cluster.operate("DELETE", "/v1/namespaces/gone", None).await.unwrap();
    cluster.operate("POST", "/v1/operators", Some(&json!({"name": "eve", "role": "viewer"}))).await.unwrap();
    let viewer = cluster.operate("POST", "/v1/operators/eve/tokens", Some(&json!({}))).await.unwrap();
    let exposed = Exposed::new();
    take(&cluster, "eu", "orders", 20, 10, &exposed).await;
    until("the agent hears of what was deleted", async || {
        cluster.ids("eu", "gone", 1).await.is_err_and(|problem| problem.code == "unknown_namespace")
    })
    .await;
    let region = cluster.region("eu").registration["token"].as_str().unwrap().to_owned();
    Target { viewer: viewer["token"].as_str().unwrap().to_owned(), region, cluster, exposed }
}

impl Target {
    /// Everything that bad input must not move.
    async fn state(&self) -> Vec<Value> {
        let stand = at_rest(&self.cluster, "eu", "orders").await;
        let mut all = vec![json!([stand.instance.to_string(), stand.region.to_string()])];
        all.push(json!(self.cluster.grants("orders").await));
        for path in ["/v1/namespaces", "/v1/services", "/v1/operators", "/v1/regions", "/v1/headroom"] {
            let mut value = self.cluster.operate("GET", path, None).await.unwrap();
            steady(&mut value);
            all.push(value);
        }
        let url = format!("{}/v1/segments?namespace=orders", self.cluster.region("eu").url);
        all.push(http::get_json(&url, Some(&self.cluster.operator_token)).await.2);
        all
    }

    async fn ends_as_it_was(&self, before: &[Value]) {
        let after = self.state().await;
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(after, before, "no state changed");
        }
        assert!(self.cluster.authority.is_alive() && self.cluster.region("eu").agent.is_alive());
        assert_sound(&self.cluster, &self.exposed).await;
        for daemon in [&self.cluster.authority, &self.cluster.region("eu").agent] {
            let log = daemon.log();
            assert!(log.contains("DEBUG"), "the log is at the level for debugging");
            assert_clean_log(daemon, &[&self.viewer, SECRET]);
        }
        // And both still do their work.
        take(&self.cluster, "eu", "orders", 10, 10, &self.exposed).await;
    }
}

/// Sent where a token would be, in a body, a header, a path: it may be one that was mistyped.
const SECRET: &str = "cad_svc_00aa11bb22cc33dd44ee55ff66aa77bb88cc99dd00ee11ff22aa33bb44cc55dd";

/// Takes out what moves with time alone.
fn steady(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, _| {
                !key.contains("seconds") && !key.contains("rate") && !key.contains("_at") && !key.contains("offset")
            });
            fields.values_mut().for_each(steady);
        }
        Value::Array(all) => all.iter_mut().for_each(steady),
        _ => {}
    }
}

/// One call with any body and one more header; asserts that it is refused as a problem is.
async fn refused(
    what: &str,
    call: (&str, &str, Option<&str>, &[u8]),
    header: Option<(&str, &str)>,
    expected: (u16, &str),
) {
    let (method, url, token, body) = call;
    let client = http::builder().build().unwrap();
    let mut request = client.request(method.parse().unwrap(), url).body(body.to_vec());
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    if let Some((name, value)) = header {
        request = request.header(name, value);
    }
    let answer = request.send().await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    let text = answer.text().await.unwrap();
    let problem: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{what}: {status}, no JSON: {text}"));
    assert_eq!((status, problem["code"].as_str().unwrap_or("?")), expected, "{what}: {text}");
    assert_eq!(headers["content-type"], "application/problem+json", "{what}");
    assert_eq!(problem["status"], status, "{what}: {text}");
    assert_eq!(problem["type"], format!("urn:cadastre:problem:{}", expected.1), "{what}: {text}");
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.len() > 5), "{what}: {text}");
    assert!(headers.contains_key("x-request-id"), "{what}");
    assert_eq!(headers.contains_key("retry-after"), status == 503 || status == 429, "{what}: {text}");
    assert!(!text.contains(SECRET), "{what}: {text}");
}

const INVALID: (u16, &str) = (422, "invalid_request");
const NOBODY: (u16, &str) = (401, "unauthenticated");
const FORBIDDEN: (u16, &str) = (403, "forbidden");

/// Bodies that are no request for ids, and what comes of them.
fn bad_ids() -> Vec<(String, (u16, &'static str))> {
    let counts = ["0", "-1", "-9223372036854775808", "1.5", "1e3", "\"10\"", "\"ten\"", "true", "[]", "{}", "NaN"];
    let more = ["10001", "10000001", "18446744073709551615", "18446744073709551616", "1e400"];
    let count = |n: &str| (format!(r#"{{"namespace":"orders","count":{n}}}"#), INVALID);
    let mut bodies: Vec<_> = counts.iter().chain(&more).map(|n| count(n)).collect();
    let ranges = ["0", "10000001", "18446744073709551616"];
    bodies.extend(ranges.map(|n| (format!(r#"{{"namespace":"orders","count":{n},"as":"ranges"}}"#), INVALID)));
    let shapes = [
        r#"{"namespace":"orders","as":"tuples"}"#,
        r#"{"namespace":"orders","cuont":5}"#,
        r#"{"namespace":"orders","namespace":"orders"}"#,
        r#"{"count":5}"#,
        r#"{"namespace":5}"#,
        r#"{"namespace":null}"#,
        r#"["orders"]"#,
        r#"{"namespace":"orders"} {"namespace":"orders"}"#,
        r#"{"namespace":"orders""#,
        "orders",
        "",
        "null",
        "\u{0}",
        "namespace=orders&count=5",
    ];
    bodies.extend(shapes.map(|text| (text.to_owned(), INVALID)));
    bodies.push((format!("{}5{}", "[".repeat(20_000), "]".repeat(20_000)), INVALID));
    let long = "n".repeat(300);
    let names =
        ["", " ", "a b", "Ünï", "../eu", "a/b", "a\u{0}b", "'; DROP TABLE grants; --", "${x}", "\u{202e}sredro"];
    for name in names.iter().chain(&[long.as_str()]) {
        bodies.push((json!({"namespace": name}).to_string(), INVALID));
    }
    for (name, expected) in [("closed", FORBIDDEN), ("nowhere", FORBIDDEN), ("gone", (404, "unknown_namespace"))] {
        bodies.push((json!({"namespace": name}).to_string(), expected));
    }
    let pad = " ".repeat(70_000);
    bodies.push((format!(r#"{{"namespace":"orders"{pad}}}"#), (413, "payload_too_large")));
    bodies
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_request_for_ids_is_refused_and_changes_nothing() {
    let target = target().await;
    let before = target.state().await;
    let (url, service) = (format!("{}/v1/ids", target.cluster.region("eu").url), target.cluster.service_token.as_str());
    for (body, expected) in bad_ids() {
        let what = body.get(..body.len().min(80)).unwrap_or("?").to_owned();
        refused(&what, ("POST", &url, Some(service), body.as_bytes()), None, expected).await;
    }
    refused("not text", ("POST", &url, Some(service), b"{\"namespace\":\"\xff\xfe\"}"), None, INVALID).await;
    let good = br#"{"namespace":"orders"}"#;
    for wait in ["soon", "-1", "5001", "1.5", "99999999999999999999", ""] {
        refused(wait, ("POST", &url, Some(service), good), Some(("Cadastre-Timeout-Ms", wait)), INVALID).await;
    }
    let tokens = [
        (None, NOBODY),
        (Some(""), NOBODY),
        (Some("x"), NOBODY),
        (Some(SECRET), NOBODY),
        (Some(target.cluster.operator_token.as_str()), FORBIDDEN),
        (Some(target.viewer.as_str()), FORBIDDEN),
        (Some(target.region.as_str()), FORBIDDEN),
    ];
    for (token, expected) in tokens {
        refused("a token of nobody or of another role", ("POST", &url, token, good), None, expected).await;
        // Who may not ask is not told what else is wrong.
        refused("and a bad body", ("POST", &url, token, b"{"), None, expected).await;
    }
    let basic = Some(("Authorization", "Basic b3JkZXJzOm9yZGVycw=="));
    refused("another scheme", ("POST", &url, None, good), basic, NOBODY).await;
    for method in ["GET", "PUT", "DELETE", "PATCH"] {
        refused(method, (method, &url, Some(service), b""), None, (405, "method_not_allowed")).await;
    }
    let nowhere = format!("{}/v1/{SECRET}", target.cluster.region("eu").url);
    refused("no such path", ("POST", &nowhere, Some(service), good), None, (404, "not_found")).await;
    target.ends_as_it_was(&before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_segment_request_or_origin_is_refused_and_changes_nothing() {
    let target = target().await;
    let before = target.state().await;
    let (agent, authority) = (target.cluster.region("eu").url.clone(), target.cluster.url.clone());
    let service = Some(target.cluster.service_token.as_str());
    let segments = format!("{agent}/v1/segments");
    let id = fresh(1).to_string();
    let some = "0190b2c4-0000-4000-8000-000000000000";
    let good =
        json!({"namespace": "orders", "allocation_id": id, "instance": "till", "incarnation": some, "want": "10"});
    let bent = [
        ("want", json!("0")),
        ("want", json!(10)),
        ("want", json!("-1")),
        ("want", json!("1.5")),
        ("want", json!("010")),
        ("want", json!("18446744073709551616")),
        ("allocation_id", json!(some)),
        ("allocation_id", json!("")),
        ("incarnation", json!("me")),
        ("instance", json!("a b")),
        ("surprise", json!(1)),
    ];
    for (field, value) in bent {
        let mut body = good.clone();
        body[field] = value;
        let what = format!("{field}: {}", body[field]);
        refused(&what, ("POST", &segments, service, body.to_string().as_bytes()), None, INVALID).await;
    }
    let mut body = good.clone();
    body["namespace"] = json!("closed");
    refused("not admitted", ("POST", &segments, service, body.to_string().as_bytes()), None, FORBIDDEN).await;
    let viewer = Some(target.viewer.as_str());
    refused("a viewer", ("POST", &segments, viewer, good.to_string().as_bytes()), None, FORBIDDEN).await;
    let back = format!("{agent}/v1/segments/{some}/return");
    let tail = json!({"incarnation": some, "next": "5"}).to_string();
    refused("nobody's segment", ("POST", &back, service, tail.as_bytes()), None, (404, "not_found")).await;
    // Through the eyes of a reader that holds numbers as doubles: rounded, and never attributed to anybody.
    let rounded = ["9.007199254740992e15", "9007199254740992.0", "1e3", "1E3", "01", "+1", "-0", "1%20", "0x10", "NaN"];
    for base in [&agent, &authority] {
        for id in rounded.iter().chain(&["9223372036854775808", "99999999999999999999", "%00", "1;"]) {
            let url = format!("{base}/v1/origins/orders/{id}");
            refused(id, ("GET", &url, service, b""), None, INVALID).await;
        }
        for id in ["9223372036854775807", "-1", "0", "9007199254740993"] {
            let url = format!("{base}/v1/origins/orders/{id}");
            refused(id, ("GET", &url, service, b""), None, (404, "unknown_id")).await;
        }
        let named = [("closed", FORBIDDEN), ("nowhere", FORBIDDEN), ("a%20b", INVALID), ("%2e%2e%2fx", INVALID)];
        for (namespace, expected) in named {
            let url = format!("{base}/v1/origins/{namespace}/1");
            refused(namespace, ("GET", &url, service, b""), None, expected).await;
        }
        refused("no token", ("GET", &format!("{base}/v1/origins/orders/1"), None, b""), None, NOBODY).await;
    }
    target.ends_as_it_was(&before).await;
}

/// Calls of the authority that only an operator may make.
const OPERATORS: [(&str, &str); 16] = [
    ("POST", "/v1/namespaces"),
    ("PATCH", "/v1/namespaces/orders"),
    ("DELETE", "/v1/namespaces/orders"),
    ("POST", "/v1/services"),
    ("PATCH", "/v1/services/shop"),
    ("POST", "/v1/services/shop/tokens"),
    ("DELETE", "/v1/services/shop/tokens/x"),
    ("POST", "/v1/operators"),
    ("POST", "/v1/operators/eve/tokens"),
    ("POST", "/v1/regions"),
    ("POST", "/v1/regions/eu/tokens"),
    ("POST", "/v1/regions/eu/drain"),
    ("POST", "/v1/regions/eu/fence"),
    ("POST", "/v1/regions/eu/recover"),
    ("POST", "/v1/regions/eu/retire"),
    ("POST", "/v1/audit/verify"),
];

/// A body that the call would take, were it an operator's.
fn acceptable(path: &str) -> Value {
    match path {
        "/v1/namespaces" => json!({"name": "more"}),
        "/v1/services" => json!({"name": "more", "namespaces": ["orders"]}),
        "/v1/operators" => json!({"name": "more", "role": "operator"}),
        "/v1/regions" => json!({"name": "more"}),
        _ => json!({}),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_of_another_role_does_nothing_at_the_authority() {
    let target = target().await;
    let before = target.state().await;
    let base = &target.cluster.url;
    let others = [
        (None, NOBODY),
        (Some(SECRET), NOBODY),
        (Some(target.viewer.as_str()), FORBIDDEN),
        (Some(target.cluster.service_token.as_str()), FORBIDDEN),
        (Some(target.region.as_str()), FORBIDDEN),
    ];
    for (method, path) in OPERATORS {
        for (token, expected) in others {
            let (url, body) = (format!("{base}{path}"), acceptable(path).to_string());
            refused(path, (method, &url, token, body.as_bytes()), None, expected).await;
        }
    }
    for path in ["/v1/headroom", "/v1/grants?namespace=orders", "/v1/regions", "/v1/quarantines", "/v1/namespaces"] {
        for (token, expected) in others.into_iter().filter(|(token, _)| *token != Some(target.viewer.as_str())) {
            refused(path, ("GET", &format!("{base}{path}"), token, b""), None, expected).await;
        }
    }
    target.ends_as_it_was(&before).await;
}

/// Bodies of `POST /v1/namespaces` that cannot be meant.
fn bad_namespaces() -> Vec<Value> {
    vec![
        json!({}),
        json!({"name": "a b"}),
        json!({"name": "x", "kind": "carrots"}),
        json!({"name": "x", "sequence": {"increment": "0"}}),
        json!({"name": "x", "sequence": {"increment": 1}}),
        json!({"name": "x", "sequence": {"min": "5", "max": "4"}}),
        json!({"name": "x", "sequence": {"start": "0", "min": "1"}}),
        json!({"name": "x", "sequence": {"min": "-9223372036854775808", "start": "-9223372036854775808"}}),
        json!({"name": "x", "policy": {"grant_size": 1000}}),
        json!({"name": "x", "policy": {"grant_size": "0"}}),
        json!({"name": "x", "policy": {"segment_min": "10", "segment_max": "9"}}),
        json!({"name": "x", "policy": {"target_seconds": 5, "buffer_seconds": 5}}),
        json!({"name": "x", "policy": {"target_seconds": 1.5}}),
        json!({"name": "x", "policy": {"floor_percent": 101}}),
        json!({"name": "x", "policy": {"surge_factor": 0}}),
        json!({"name": "x", "policy": {"segmnet_max": "9"}}),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_definition_is_refused_and_changes_nothing() {
    let target = target().await;
    let before = target.state().await;
    let base = &target.cluster.url;
    let operator = Some(target.cluster.operator_token.as_str());
    for body in bad_namespaces() {
        let url = format!("{base}/v1/namespaces");
        let text = body.to_string();
        refused(&text, ("POST", &url, operator, text.as_bytes()), None, INVALID).await;
    }
    let others = [
        ("/v1/services", json!({"name": "x", "namespaces": ["nowhere"]}), INVALID),
        ("/v1/services", json!({"name": "x", "namespaces": ["gone"]}), INVALID),
        ("/v1/services", json!({"name": "x", "namespaces": [], "limits": {"batch": 0}}), INVALID),
        ("/v1/services", json!({"name": "x", "namespaces": [], "limits": {"in_flight": 0}}), INVALID),
        ("/v1/services", json!({"name": "x", "namespaces": [], "limits": {"holders": 0}}), INVALID),
        ("/v1/services", json!({"name": "x", "namespaces": [], "limits": {"held_ids": "0"}}), INVALID),
        ("/v1/services", json!({"name": "x", "namespaces": [], "limits": {"held_ids": 5}}), INVALID),
        ("/v1/services", json!({"name": "x", "namespaces": [], "limits": {"ids_per_second": -1}}), INVALID),
        ("/v1/services", json!({"name": "shop", "namespaces": []}), (409, "already_exists")),
        ("/v1/services/nobody/tokens", json!({}), (404, "not_found")),
        ("/v1/operators", json!({"name": "x", "role": "king"}), INVALID),
        ("/v1/operators", json!({"name": "eve", "role": "operator"}), (409, "already_exists")),
        ("/v1/regions", json!({"name": "EU/1"}), INVALID),
        ("/v1/regions", json!({"name": "eu"}), (409, "already_exists")),
        ("/v1/regions/nowhere/fence", json!({}), (404, "not_found")),
        ("/v1/regions/eu/recover", json!({}), (409, "not_allowed")),
        ("/v1/regions/eu/fence", json!({"raeson": "x"}), INVALID),
        ("/v1/namespaces", json!({"name": "orders"}), (409, "already_exists")),
        ("/v1/namespaces", json!({"name": "gone", "sequence": {"max": "5"}}), (409, "not_allowed")),
        (
            "/v1/quarantines/orders/lift",
            json!({"bounds": {}, "old_store_stopped": true, "reason": "x"}),
            (409, "not_allowed"),
        ),
        ("/v1/audit/verify", json!({"repair": true}), INVALID),
    ];
    for (path, body, expected) in others {
        let (url, text) = (format!("{base}{path}"), body.to_string());
        refused(&format!("{path} {text}"), ("POST", &url, operator, text.as_bytes()), None, expected).await;
    }
    let url = format!("{base}/v1/namespaces/nowhere");
    refused("PATCH nowhere", ("PATCH", &url, operator, b"{}"), None, (404, "unknown_namespace")).await;
    let pages = [
        ("namespace=nowhere", (404, "unknown_namespace")),
        ("", INVALID),
        ("namespace=orders&after=x", INVALID),
        ("namespace=orders&limit=5", INVALID),
    ];
    for (query, expected) in pages {
        let url = format!("{base}/v1/grants?{query}");
        refused(query, ("GET", &url, operator, b""), None, expected).await;
    }
    target.ends_as_it_was(&before).await;
}

/// What the authority is told by somebody who holds a region's token and means no good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_message_of_an_agent_is_refused_and_changes_nothing() {
    let target = target().await;
    let mut hand = Hand::register(&target.cluster, "us").await;
    hand.beat().await;
    let before = target.state().await;
    let send = async |message: &Value| {
        let answer = http::call("POST", &hand.url, Some(&hand.token), Some(message)).await.unwrap();
        (answer.0, answer.2["code"].as_str().unwrap_or_default().to_owned())
    };
    let good = serde_json::to_value(hand.puppet.clone().message(vec![])).unwrap();
    let bent: [(&str, Value, (u16, &str)); 9] = [
        ("/version", json!(99), INVALID),
        ("/version", json!("1"), INVALID),
        ("/sender/region", json!("eu"), FORBIDDEN),
        ("/sender/store_id", json!("0190b2c4-0000-4000-8000-000000000000"), (409, "wrong_store")),
        ("/sender/cluster_id", json!("0190b2c4-0000-4000-8000-000000000000"), (409, "wrong_store")),
        ("/sender/number", json!(-1), INVALID),
        ("/sender/clock_ms", json!(5), INVALID),
        ("/words/promised", json!("x"), INVALID),
        ("/wants", json!([{"allocation_id": "x", "namespace": "orders", "want": "5"}]), INVALID),
    ];
    for (field, value, expected) in bent {
        let mut message = good.clone();
        *message.pointer_mut(field).unwrap() = value;
        let (status, code) = send(&message).await;
        assert_eq!((status, code.as_str()), expected, "{field}");
    }
    let mut message = good.clone();
    message["extra"] = json!(1);
    assert_eq!(send(&message).await.0, 422, "an unknown field");
    let wants: Vec<Value> =
        (0..257).map(|n| json!({"allocation_id": fresh(n).to_string(), "namespace": "orders", "want": "1"})).collect();
    let mut message = good.clone();
    message["wants"] = json!(wants);
    assert_eq!(send(&message).await, (413, "payload_too_large".to_owned()));
    // A stolen token cannot take more than the policy lets a region hold.
    let refused = hand.ask(fresh(1), "nowhere", 5).await.unwrap_err();
    assert_eq!(code(&refused), (404, "unknown_namespace"));
    target.ends_as_it_was(&before).await;
    let whole = hand.ask(fresh(2), "orders", u64::MAX >> 1).await;
    assert!(whole.is_err() || whole.is_ok_and(|granted| granted.hi - granted.lo <= 1_000), "grant_max holds");
}

/// Bytes that no HTTP client would send: an answer that is one, or a closed connection, and life goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_on_the_socket_harms_nobody() {
    let target = target().await;
    let before = target.state().await;
    let mut noise = Vec::new();
    let mut random = 1_u64;
    for _ in 0..4_096 {
        noise.extend_from_slice(&tests::sim::exec::splitmix(&mut random).to_le_bytes());
    }
    let line = "POST /v1/ids HTTP/1.1\r\nhost: x\r\n";
    let mut inputs: Vec<Vec<u8>> = vec![
        noise,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        b"*1\r\n$4\r\nPING\r\n".to_vec(),
        b"\x00\x00\x00\x08\x04\xd2\x16\x2f".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        b"GET /\r\n\r\n".to_vec(),
        b"\r\n\r\n\r\n".to_vec(),
        format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "a".repeat(200_000)).into_bytes(),
        format!("{line}x: {}\r\n\r\n", "b".repeat(900_000)).into_bytes(),
        format!("{line}{}\r\n", "y: 1\r\n".repeat(5_000)).into_bytes(),
    ];
    let tails = [
        "content-length: -5\r\n\r\n",
        "content-length: 99999999999999999999\r\n\r\n{}",
        "content-length: 5\r\ncontent-length: 6\r\n\r\n{}",
        "content-length: 4\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        "transfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n{}",
        "transfer-encoding: gzip\r\n\r\n{}",
        "content-length: 50\r\n\r\n{",
        "expect: 200-maybe\r\ncontent-length: 2\r\n\r\n{}",
    ];
    inputs.extend(tails.iter().map(|tail| format!("{line}{tail}").into_bytes()));
    let mut talks = Vec::new();
    for base in [&target.cluster.region("eu").url, &target.cluster.url] {
        for input in &inputs {
            let (address, input) = (base.trim_start_matches("http://").to_owned(), input.clone());
            talks.push(tokio::spawn(async move { (http::raw(&address, &input).await.unwrap(), input) }));
        }
    }
    for talk in talks {
        let (answer, input) = talk.await.unwrap();
        let text = String::from_utf8_lossy(&answer);
        let what = String::from_utf8_lossy(&input[..input.len().min(60)]).into_owned();
        assert!(!text.contains("200 OK"), "{what}: {text}");
        assert!(text.is_empty() || text.starts_with("HTTP/1."), "{what}: {text}");
    }
    target.ends_as_it_was(&before).await;
    let now = target.cluster.headroom().await;
    assert!(number(&now["namespaces"][0]["space_left"]) > 0);
}
