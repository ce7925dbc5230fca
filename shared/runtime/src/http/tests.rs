//! Every way a request can be refused, and stopping, over real sockets where it matters.

use std::time::Duration;

use axum::body::Body;
use axum::routing::{get, post};
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;

use super::*;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ask {
    count: u32,
}

fn routes(shutdown: &Shutdown) -> Router {
    let router = Router::new()
        .route("/ask", post(|Json(ask): Json<Ask>| async move { ask.count.to_string() }))
        .route("/page", get(|Query(ask): Query<Ask>| async move { ask.count.to_string() }))
        .route("/panic", get(|| async { panic!("on purpose") as String }))
        .route(
            "/slow",
            get(|| async {
                tokio::time::sleep(Duration::from_millis(300)).await;
                "done"
            }),
        );
    finish(router, shutdown)
}

async fn call(request: Request) -> (u16, HeaderMap, String) {
    let response = routes(&Shutdown::new()).oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    (parts.status.as_u16(), parts.headers, String::from_utf8(body.to_vec()).unwrap())
}

async fn post_body(body: impl Into<Body>) -> (u16, HeaderMap, String) {
    call(Request::post("/ask").body(body.into()).unwrap()).await
}

#[tokio::test]
async fn every_bad_body_is_a_problem_with_a_reason() {
    assert_eq!(post_body("{\"count\":3}").await.2, "3");
    for (body, reason) in [
        ("", "a JSON body is needed"),
        ("{", "EOF"),
        ("[3]", "must be a JSON object"),
        ("{\"count\":\"3\"}", "invalid type"),
        ("{\"count\":3,\"more\":1}", "unknown field `more`"),
        ("{}", "missing field `count`"),
    ] {
        let (status, headers, text) = post_body(body).await;
        assert_eq!(status, 422, "{body}: {text}");
        assert_eq!(headers["content-type"], "application/problem+json");
        assert!(text.contains("invalid_request") && text.contains(reason), "{text}");
    }
    let (status, _, text) = post_body(vec![b' '; BODY_LIMIT + 1]).await;
    assert_eq!(status, 413, "{text}");
    assert!(text.contains("payload_too_large"));
    let (status, _, text) = call(Request::get("/page?count=x").body(Body::empty()).unwrap()).await;
    assert_eq!(status, 422, "{text}");
}

#[tokio::test]
async fn unknown_paths_wrong_methods_and_panics_are_problems() {
    for (method, path, expected, code) in [
        ("GET", "/nowhere", 404, "not_found"),
        ("DELETE", "/ask", 405, "method_not_allowed"),
        ("GET", "/panic", 500, "internal"),
    ] {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let (status, headers, text) = call(request).await;
        assert_eq!((status, headers["content-type"].to_str().unwrap()), (expected, "application/problem+json"));
        assert!(text.contains(code), "{text}");
        assert!(headers.contains_key(REQUEST_ID));
    }
}

#[tokio::test]
async fn a_request_id_goes_through_and_a_strange_one_is_replaced() {
    let ask = |id: &str| Request::get("/nowhere").header(REQUEST_ID, id).body(Body::empty()).unwrap();
    assert_eq!(call(ask("abc-1")).await.1[REQUEST_ID], "abc-1");
    assert_ne!(call(ask("a b")).await.1[REQUEST_ID], "a b");
    let long = "x".repeat(request_id::LIMIT + 1);
    assert_eq!(call(ask(&long)).await.1[REQUEST_ID].len(), 36);
}

#[test]
fn bearer_tokens_and_problem_headers() {
    let with = |text: &str| HeaderMap::from_iter([(header::AUTHORIZATION, text.parse().unwrap())]);
    assert_eq!(bearer(&with("Bearer cad_svc_1")), Some("cad_svc_1"));
    assert_eq!(bearer(&with("bearer  x ")), Some("x"));
    assert_eq!(bearer(&with("Basic x")), None);
    assert_eq!(bearer(&with("Bearer ")), None);
    let response = problem_response(&Problem::new(Code::SegmentDry, "x").retry_after(7));
    assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (503, &HeaderValue::from(7)));
    let last = problem_response(&Problem::new(Code::Exhausted, "x"));
    assert!(!last.headers().contains_key("retry-after"));
}

async fn send(stream: &mut TcpStream, path: &str) {
    let text = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn stopping_finishes_what_is_under_way_and_accepts_nothing_new() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = Shutdown::new();
    let server = tokio::spawn(serve(listener, None, routes(&shutdown), shutdown.clone(), Duration::from_secs(5)));
    let mut slow = TcpStream::connect(address).await.unwrap();
    send(&mut slow, "/slow").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    shutdown.trigger();
    let mut text = String::new();
    slow.read_to_string(&mut text).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("done"), "{text}");
    server.await.unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn stopping_is_bounded_and_a_late_request_is_told() {
    let shutdown = Shutdown::new();
    let app = routes(&shutdown);
    shutdown.trigger();
    let response = app.oneshot(Request::get("/slow").body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status().as_u16(), 503);

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = Shutdown::new();
    let server = tokio::spawn(serve(listener, None, routes(&shutdown), shutdown.clone(), Duration::from_millis(50)));
    let mut slow = TcpStream::connect(address).await.unwrap();
    send(&mut slow, "/slow").await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    shutdown.trigger();
    tokio::time::timeout(Duration::from_millis(200), server).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = Shutdown::new();
    let server = tokio::spawn(serve(listener, None, routes(&shutdown), shutdown.clone(), Duration::from_secs(1)));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(b"POST /ask HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\nconnection: close\r\n\r\n{")
        .await
        .unwrap();
    let mut text = String::new();
    let read = tokio::time::timeout(extract::BODY_WITHIN * 3, stream.read_to_string(&mut text)).await;
    read.unwrap().unwrap();
    assert!(text.starts_with("HTTP/1.1 422") && text.contains("did not arrive within"), "{text}");
    shutdown.trigger();
    server.await.unwrap().unwrap();
}
