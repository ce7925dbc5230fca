//! A definition that changes while requests are under way: every ordinal keeps the value that it always had, whatever a
//! request knew when it began.

use std::time::Duration;

use cadastre_runtime::clock::{Clock, SystemClock};
use cadastre_runtime::entropy::{Entropy, SystemEntropy};
use serde_json::{Value, json};
use tests::cluster::{Cluster, policy};
use tests::ledger_of_ids::Exposed;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::help::{quick, take, until};

/// A request of which only the first bytes of the body have been sent.
struct HalfSent {
    stream: TcpStream,
    rest: String,
}

impl HalfSent {
    async fn start(cluster: &Cluster, path: &str, body: &Value) -> Self {
        let url = cluster.region("eu").url.clone();
        let host = url.trim_start_matches("http://").to_owned();
        let body = body.to_string();
        let (first, rest) = body.split_at(5);
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{first}",
            cluster.service_token,
            body.len()
        );
        let mut stream = TcpStream::connect(&host).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        Self { stream, rest: rest.to_owned() }
    }

    async fn finish(mut self) -> Value {
        self.stream.write_all(self.rest.as_bytes()).await.unwrap();
        let mut text = String::new();
        self.stream.read_to_string(&mut text).await.unwrap();
        serde_json::from_str(text.split("\r\n\r\n").nth(1).unwrap()).unwrap()
    }
}

async fn redefine(cluster: &Cluster, start: i64) {
    let body = json!({"sequence": {"start": start.to_string()}});
    cluster.operate("PATCH", "/v1/namespaces/orders", Some(&body)).await.unwrap();
}

/// Takes ids until they are of the definition that begins at `start`.
async fn until_new(cluster: &Cluster, exposed: &Exposed, start: i64) {
    until("ids of the new definition", async || {
        take(cluster, "eu", "orders", 100, 50, exposed).await;
        exposed.highest().unwrap() >= start
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_began_before_a_new_definition_repeats_no_value() {
    let exposed = Exposed::new();
    let cluster = quick().region("eu").namespace_with("orders", policy(1_000, 50, 100, 20.0)).start().await;
    take(&cluster, "eu", "orders", 200, 50, &exposed).await;
    let segment = json!({
        "namespace": "orders", "allocation_id": SystemEntropy.uuid_v7(SystemClock.now().wall_ms).to_string(), "instance": "late",
        "incarnation": uuid::Uuid::from_u128(77).to_string(), "want": "50"
    });
    let mut late = Vec::new();
    for body in [json!({"namespace": "orders"}), json!({"namespace": "orders", "count": 3})] {
        late.push(HalfSent::start(&cluster, "/v1/ids", &body).await);
    }
    let ranges =
        HalfSent::start(&cluster, "/v1/ids", &json!({"namespace": "orders", "count": 3, "as": "ranges"})).await;
    let late_segment = HalfSent::start(&cluster, "/v1/segments", &segment).await;
    // Just above all that was granted: an ordinal of the new definition under the old one is somebody's value.
    let watermark: i64 =
        cluster.grants("orders").await.iter().map(|g| crate::help::number(&g["hi"])).max().unwrap().try_into().unwrap();
    let start = watermark + 11;
    redefine(&cluster, start).await;
    until_new(&cluster, &exposed, start + 1_000).await;
    for half in late {
        let answer = half.finish().await;
        let ids: Vec<i64> = match &answer["ids"] {
            Value::Null => vec![answer["id"].as_str().unwrap().parse().unwrap()],
            ids => ids.as_array().unwrap().iter().map(|id| id.as_str().unwrap().parse().unwrap()).collect(),
        };
        assert!(ids.iter().all(|id| *id >= start), "{answer}");
        exposed.record("late", &ids);
    }
    let answer = ranges.finish().await;
    let first: i64 = answer["ranges"][0]["first"].as_str().unwrap().parse().unwrap();
    exposed.record("late ranges", &[first, first + 1, first + 2]);
    let answer = late_segment.finish().await;
    let (lo, first) = (crate::help::number(&answer["lo"]), crate::help::number(&answer["first"]));
    let version = u64::try_from(watermark).unwrap();
    assert_eq!(first, lo - version + u64::try_from(start).unwrap(), "{answer}");
    exposed.assert_no_duplicates();
    assert!(cluster.verify().await.is_empty());
}
