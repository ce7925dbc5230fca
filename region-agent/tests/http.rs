//! The process from outside, with nobody above it: what is refused, and how.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use cadastre_runtime::http::Shutdown;
use clap::Parser;
use region_agent::config::AgentConfig;
use region_agent::{RunningAgent, start};
use serde_json::Value;

fn config(folder: &std::path::Path) -> AgentConfig {
    let data = folder.join("data").display().to_string();
    // Port 9 answers nobody.
    let flags = [
        "region-agent",
        "--data",
        &data,
        "--listen",
        "127.0.0.1:0",
        "--authority-url",
        "http://127.0.0.1:9",
        "--region",
        "eu",
        "--region-token",
        "cad_reg_x",
    ];
    AgentConfig::parse_from(flags)
}

fn client() -> reqwest::Client {
    let trust = cadastre_runtime::tls::TlsArgs::default().client(None).unwrap();
    reqwest::Client::builder().tls_backend_preconfigured(trust).build().unwrap()
}

async fn call(agent: &RunningAgent, method: &str, path: &str, body: &str) -> (u16, Option<String>, Value) {
    let request = client().request(method.parse().unwrap(), format!("{}{path}", agent.url()));
    let answer = request.body(body.to_owned()).bearer_auth("cad_svc_nobody").send().await.unwrap();
    let status = answer.status().as_u16();
    let kind = answer.headers().get("content-type").map(|v| v.to_str().unwrap().to_owned());
    (status, kind, serde_json::from_str(&answer.text().await.unwrap()).unwrap_or(Value::Null))
}

#[tokio::test]
async fn a_region_without_an_authority_serves_and_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let agent = start(config(folder.path()), Shutdown::new()).await.unwrap();
    assert_eq!(call(&agent, "GET", "/healthz", "").await.0, 200);
    let (status, kind, body) = call(&agent, "GET", "/readyz", "").await;
    assert_eq!((status, kind.as_deref()), (503, Some("application/problem+json")));
    assert_eq!(body["code"], "upstream_unavailable");
    for (method, path, status, code) in [
        ("POST", "/v1/ids", 401, "unauthenticated"),
        ("POST", "/v1/segments", 401, "unauthenticated"),
        ("GET", "/v1/segments?namespace=orders", 401, "unauthenticated"),
        ("GET", "/v1/origins/orders/1", 401, "unauthenticated"),
        ("GET", "/v1/status", 401, "unauthenticated"),
        ("POST", "/v1/audit/verify", 401, "unauthenticated"),
        ("DELETE", "/v1/ids", 405, "method_not_allowed"),
        ("POST", "/v1/workers", 401, "unauthenticated"),
        ("POST", "/v1/nothing", 404, "not_found"),
        ("GET", "/%00%ff", 404, "not_found"),
    ] {
        let (got, kind, body) = call(&agent, method, path, "").await;
        assert_eq!((got, body["code"].as_str()), (status, Some(code)), "{method} {path}: {body}");
        assert_eq!(kind.as_deref(), Some("application/problem+json"), "{method} {path}");
    }
    let (_, _, document) = call(&agent, "GET", "/openapi.json", "").await;
    for path in
        ["/v1/ids", "/v1/segments", "/v1/segments/{segment_id}/return", "/v1/origins/{namespace}/{id}", "/v1/status"]
    {
        assert!(document["paths"][path].is_object(), "{path}");
    }
    assert!(document["paths"]["/v1/ids"]["post"].to_string().contains("no idempotency key"));
    let second = start(config(folder.path()), Shutdown::new()).await.err().unwrap().to_string();
    assert!(second.contains("in use by process"), "{second}");
    agent.shutdown().await;
    start(config(folder.path()), Shutdown::new()).await.unwrap().shutdown().await;
}
