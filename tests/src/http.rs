//! Asking over HTTP as a plain client would, with generous time limits.
//!
//! A client is made per call: a pooled connection belongs to the runtime of the test that opened it, and
//! a test wants to know about a fault itself rather than about a connection that was kept from before it.

use reqwest::header::HeaderMap;
use serde_json::Value;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A client with the harness's time limit.
pub fn client() -> reqwest::Client {
    builder().build().expect("a client can be built")
}

/// The same, to be changed. It believes nobody over TLS.
pub fn builder() -> reqwest::ClientBuilder {
    let nobody = cadastre_tls::nobody().expect("the algorithms are there");
    reqwest::Client::builder().tls_backend_preconfigured(nobody).timeout(Duration::from_secs(30)).no_proxy()
}

/// Status, headers and body of a call; an error is the lack of an answer.
pub type Answer = Result<(u16, HeaderMap, Value), reqwest::Error>;

/// One call of any method. A body that isn't JSON comes back as a JSON string.
pub async fn call(method: &str, url: &str, token: Option<&str>, body: Option<&Value>) -> Answer {
    call_with(&client(), method, url, token, body).await
}

/// The same with a client that the caller keeps, and its connections with it.
pub async fn call_with(
    client: &reqwest::Client,
    method: &str,
    url: &str,
    token: Option<&str>,
    body: Option<&Value>,
) -> Answer {
    let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method is a word");
    let mut request = client.request(method, url);
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    if let Some(body) = body {
        request = request.json(body);
    }
    let answer = request.send().await?;
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    let text = answer.text().await?;
    let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
    Ok((status, headers, value))
}

/// GET; panics where nothing answers.
pub async fn get_json(url: &str, token: Option<&str>) -> (u16, HeaderMap, Value) {
    let answer = call("GET", url, token, None).await;
    answer.unwrap_or_else(|error| panic!("GET {url}: {error:?}"))
}

/// POST; panics where nothing answers.
pub async fn post_json(url: &str, token: Option<&str>, body: &Value) -> (u16, HeaderMap, Value) {
    let answer = call("POST", url, token, Some(body)).await;
    answer.unwrap_or_else(|error| panic!("POST {url}: {error:?}"))
}

/// Writes these bytes to `addr` and returns what comes back until the other side closes, falls silent
/// for two seconds or has sent 1 MiB: for input that no HTTP client would send.
pub async fn raw(addr: &str, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(addr).await?;
    // A server may close in the middle of a flood: its answer still counts.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let mut part = [0; 8192];
    while answer.len() < 1 << 20 {
        match tokio::time::timeout(Duration::from_secs(2), stream.read(&mut part)).await {
            Ok(Ok(count)) if count > 0 => answer.extend_from_slice(&part[..count]),
            _ => break,
        }
    }
    Ok(answer)
}
