//! The proxy tried on itself: a fault that does not happen would let every other test pass for nothing.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::indexing_slicing)]

use axum::Router;
use axum::extract::{Request, State};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tests::proxy::{Direction, Proxy};
use tests::{http, ports};

/// What arrived at the small server behind the proxy: `METHOD path body`.
type Arrived = Arc<Mutex<Vec<String>>>;

async fn note(State(arrived): State<Arrived>, request: Request) -> String {
    let line = format!("{} {}", request.method(), request.uri().path());
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let line = format!("{line} {}", String::from_utf8_lossy(&body));
    let mut arrived = arrived.lock().unwrap();
    arrived.push(line);
    format!("{{\"number\":{}}}", arrived.len())
}

async fn behind_proxy() -> (Proxy, Arrived) {
    let arrived = Arrived::default();
    let app = Router::new().fallback(note).with_state(arrived.clone());
    let listener = tokio::net::TcpListener::bind(ports::free_addr()).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { axum::serve(listener, app).await });
    (Proxy::start(port), arrived)
}

/// The answer's number, or None where no answer came.
async fn ask(proxy: &Proxy, path: &str) -> Option<u64> {
    let client = tests::http::builder().timeout(Duration::from_millis(1500)).build().unwrap();
    ask_with(&client, proxy, path).await
}

async fn ask_with(client: &reqwest::Client, proxy: &Proxy, path: &str) -> Option<u64> {
    let url = format!("{}{path}", proxy.url());
    let body = serde_json::json!({"path": path});
    let (status, _, value) = http::call_with(client, "POST", &url, None, Some(&body)).await.ok()?;
    assert_eq!(status, 200);
    value["number"].as_u64()
}

fn arrivals(arrived: &Arrived) -> usize {
    arrived.lock().unwrap().len()
}

async fn until(holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < end, "waited 10 s in vain");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_healthy_link_passes_everything() {
    let (proxy, arrived) = behind_proxy().await;
    let client = http::client();
    for number in 1..=50 {
        assert_eq!(ask_with(&client, &proxy, "/v1/grants").await, Some(number));
    }
    assert_eq!(arrived.lock().unwrap()[0], "POST /v1/grants {\"path\":\"/v1/grants\"}");
    // An answer is counted as delivered after its last byte was written: the caller may be faster.
    until(|| proxy.count("/v1/grants").delivered == 50).await;
    let count = proxy.count("/v1/grants");
    assert_eq!((count.seen, count.forwarded, count.answered), (50, 50, 50));
    let (status, _, _) = http::get_json(&format!("{}/healthz?a=b", proxy.url()), None).await;
    assert_eq!((status, proxy.count("/healthz").seen), (200, 1));
}

#[tokio::test]
async fn chunks_are_undone_and_garbage_is_refused() {
    let (proxy, arrived) = behind_proxy().await;
    let head = "POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunked = format!("{head}3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    let answer = http::raw(&proxy.addr(), chunked.as_bytes()).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert_eq!(*arrived.lock().unwrap(), ["POST /c abcde"]);
    assert_eq!(http::raw(&proxy.addr(), b"\x00\x01 nonsense\n\n").await.unwrap(), b"");
    assert_eq!(ask(&proxy, "/still").await, Some(2));
}

#[tokio::test]
async fn lost_requests_never_arrive_and_lost_answers_do() {
    let (proxy, arrived) = behind_proxy().await;
    proxy.only_path(Some("/v1/grants"));
    proxy.lose_requests(2);
    proxy.lose_answers(1);
    assert_eq!(ask(&proxy, "/v1/heartbeats").await, Some(1), "the filter leaves other paths alone");
    assert_eq!(ask(&proxy, "/v1/grants").await, None);
    assert_eq!(ask(&proxy, "/v1/grants").await, None);
    assert_eq!(arrivals(&arrived), 1, "lost requests must not reach upstream");
    assert_eq!(ask(&proxy, "/v1/grants").await, None);
    assert_eq!(arrivals(&arrived), 2, "the request whose answer is lost was processed");
    assert_eq!(ask(&proxy, "/v1/grants").await, Some(3));
    let count = proxy.count("/v1/grants");
    assert_eq!((count.seen, count.forwarded, count.answered, count.delivered), (4, 2, 2, 1));
}

#[tokio::test]
async fn a_kept_connection_is_closed_by_a_counted_fault() {
    // A pooled connection must not make a client retry by itself and so hide the fault.
    let (proxy, arrived) = behind_proxy().await;
    let client = http::client();
    assert_eq!(ask_with(&client, &proxy, "/v1/grants").await, Some(1));
    proxy.lose_answers(1);
    assert_eq!(ask_with(&client, &proxy, "/v1/grants").await, None);
    assert_eq!((arrivals(&arrived), proxy.count("/v1/grants").seen), (2, 2));
}

#[tokio::test]
async fn duplicated_and_repeated_requests_arrive_twice() {
    let (proxy, arrived) = behind_proxy().await;
    proxy.duplicate_requests(1);
    assert!(ask(&proxy, "/v1/grants").await.is_some());
    until(|| arrivals(&arrived) == 2).await;
    proxy.repeat_requests(1, Duration::from_millis(150));
    assert_eq!(ask(&proxy, "/v1/grants").await, Some(3));
    assert_eq!(arrivals(&arrived), 3, "the repetition comes later");
    until(|| arrivals(&arrived) == 4).await;
    assert_eq!(ask(&proxy, "/v1/grants").await, Some(5));
}

#[tokio::test]
async fn a_cut_refuses_and_kills_and_heal_ends_it() {
    let (proxy, arrived) = behind_proxy().await;
    let mut kept = tokio::net::TcpStream::connect(proxy.addr()).await.unwrap();
    assert_eq!(ask(&proxy, "/one").await, Some(1));
    proxy.cut();
    let mut byte = [0; 1];
    let read = tokio::io::AsyncReadExt::read(&mut kept, &mut byte);
    let read = tokio::time::timeout(Duration::from_secs(5), read).await;
    assert!(matches!(read, Ok(Ok(0) | Err(_))), "an open connection is killed: {read:?}");
    until(|| std::net::TcpStream::connect(proxy.addr()).is_err()).await;
    assert_eq!(ask(&proxy, "/two").await, None);
    assert_eq!(arrivals(&arrived), 1);
    proxy.heal();
    until(|| std::net::TcpStream::connect(proxy.addr()).is_ok()).await;
    assert_eq!(ask(&proxy, "/three").await, Some(2));
}

#[tokio::test]
async fn a_hang_swallows_silently_both_ways_or_one() {
    let (proxy, arrived) = behind_proxy().await;
    proxy.hang();
    let asked = Instant::now();
    assert_eq!(ask(&proxy, "/one").await, None);
    assert!(asked.elapsed() > Duration::from_millis(1400), "only the client's own time limit ends it");
    assert_eq!(arrivals(&arrived), 0);
    proxy.heal();
    proxy.hang_one_way(Direction::Answers);
    assert_eq!(ask(&proxy, "/two").await, None);
    assert_eq!(arrivals(&arrived), 1, "the request went through");
    proxy.heal();
    assert_eq!(ask(&proxy, "/three").await, Some(2));
}

#[tokio::test]
async fn a_delay_works_each_way() {
    let (proxy, _arrived) = behind_proxy().await;
    proxy.delay(120);
    let asked = Instant::now();
    assert_eq!(ask(&proxy, "/one").await, Some(1));
    assert!(asked.elapsed() >= Duration::from_millis(240), "{:?}", asked.elapsed());
}
