//! The caller goes away in the middle of a call: nothing that was acknowledged is lost, no connection stays
//! inside a transaction, no range is given twice.

use serde_json::{Value, json};
use std::time::Duration;
use tests::cluster::{Backend, Cluster, policy};
use tests::http;
use tests::ledger_of_ids::Exposed;
use tests::postgres::Postgres;
use tests::puppet::{allocation, want};
use tests::sim::exec::splitmix;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::hand::{Hand, alone, fresh, ledger, now_ms, second};
use crate::help::{assert_sound, number, quick, soak, take, until};

/// A request as bytes.
fn request(path: &str, token: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n");
    format!("{head}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Sends a part of it, or all and waits for a moment, perhaps reads a few bytes of the answer; then is gone,
/// with or without a farewell.
async fn go_away(url: &str, bytes: &[u8], random: &mut u64) {
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).await.unwrap();
    let whole = !splitmix(random).is_multiple_of(4);
    let part = if whole { bytes.len() } else { usize::try_from(splitmix(random)).unwrap() % bytes.len() };
    stream.write_all(&bytes[..part]).await.unwrap();
    tokio::time::sleep(Duration::from_micros(splitmix(random) % 25_000)).await;
    if splitmix(random).is_multiple_of(3) {
        let mut some = [0; 16];
        let _ = tokio::time::timeout(Duration::from_millis(5), stream.read(&mut some)).await;
    }
    if splitmix(random).is_multiple_of(2) {
        // A reset: what was not read is not waited for.
        stream.set_zero_linger().unwrap();
    }
}

/// A thick client's request.
fn order(n: u64, want: u64) -> Value {
    let incarnation = uuid::Uuid::from_u128(u128::from(n) + (7 << 64));
    json!({"namespace": "orders", "allocation_id": allocation(now_ms(), n).to_string(), "instance": "till",
        "incarnation": incarnation.to_string(), "want": want.to_string()})
}

/// The segment that a request gets, however often it is sent.
async fn segment(cluster: &Cluster, order: &Value) -> Value {
    let url = format!("{}/v1/segments", cluster.region("eu").url);
    loop {
        let (status, _, answer) = http::post_json(&url, Some(&cluster.service_token), order).await;
        if status == 201 {
            return answer;
        }
        assert_eq!(status, 503, "{answer}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Nobody's transaction is open for longer than a unit takes.
async fn nothing_stays_open(server: &Postgres) {
    let open = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'
        AND now() - xact_start > interval '1 second'";
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    until("no connection stays inside a transaction", async || server.psql(open) == "0").await;
}

async fn at_random(authority: Backend, store: Backend, times: u64) {
    let exposed = Exposed::new();
    let builder = quick().authority(authority).region_on("eu", store);
    let cluster = builder.namespace_with("orders", policy(5_000, 20, 100, 1.0)).start().await;
    let mut hand = Hand::register(&cluster, "us").await;
    until("the region by hand is vouched for", async || {
        hand.beat().await;
        hand.ask(fresh(0), "orders", 1).await.is_ok()
    })
    .await;
    let mut random = now_ms();
    println!("goes away at random: {random}");
    let agent = cluster.region("eu").url.clone();
    let (mut orders, mut asked) = (Vec::new(), Vec::new());
    for n in 1..=times {
        match n % 3 {
            0 => {
                let body = json!({"namespace": "orders", "count": 1 + splitmix(&mut random) % 50});
                go_away(&agent, &request("/v1/ids", &cluster.service_token, &body), &mut random).await;
            }
            1 => {
                let body = order(n, 1 + splitmix(&mut random) % 100);
                go_away(&agent, &request("/v1/segments", &cluster.service_token, &body), &mut random).await;
                orders.push(body);
            }
            _ => {
                let id = fresh(n);
                let message = hand.puppet.message(vec![want(id, "orders", 10)]);
                let bytes = request("/v1/grants", &hand.token, &serde_json::to_value(&message).unwrap());
                go_away(&cluster.url, &bytes, &mut random).await;
                asked.push(id);
            }
        }
        // The honest callers in between get what is theirs.
        take(&cluster, "eu", "orders", 5, 5, &exposed).await;
    }
    for order in &orders {
        let one = segment(&cluster, order).await;
        let again = segment(&cluster, order).await;
        assert_eq!((&one["lo"], &one["hi"], &one["segment_id"]), (&again["lo"], &again["hi"], &again["segment_id"]));
        assert_eq!(again["replayed"], true);
        let (first, last) = (number(&one["first"]), number(&one["last"]));
        exposed.record("segment", &(first as i64..=last as i64).collect::<Vec<_>>());
    }
    for id in &asked {
        let one = hand.ask(*id, "orders", 10).await.unwrap();
        exposed.record("grant by hand", &(one.lo as i64 + 1..=one.hi as i64).collect::<Vec<_>>());
    }
    let mine = ledger(&cluster, "orders").await.into_iter().filter(|(_, _, region)| region == "us").count();
    assert_eq!(mine, asked.len() + 1, "one row per request, however it was sent");
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_go_away_at_random_lose_nothing_and_leave_nothing_on_postgres() {
    let server = Postgres::start();
    let store = |name: &str| Backend::Url(server.create_database(name));
    at_random(store("authority"), store("region"), if soak() { 3_000 } else { 150 }).await;
    nothing_stays_open(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_go_away_at_random_lose_nothing_on_sqlite() {
    at_random(Backend::Sqlite, Backend::Sqlite, if soak() { 3_000 } else { 150 }).await;
}

/// Sends `bytes` while the table cannot be written, goes away once the statement waits for it, and returns
/// when the table is free again.
async fn go_away_inside(server: &'static Postgres, database: &str, table: &str, url: &str, bytes: &[u8]) {
    let sql = format!("BEGIN; LOCK TABLE {table} IN SHARE MODE; SELECT pg_sleep(2); COMMIT");
    let database = database.to_owned();
    let locked = {
        let database = database.clone();
        tokio::task::spawn_blocking(move || server.psql_in(&database, &sql))
    };
    let granted = format!(
        "SELECT count(*) FROM pg_locks WHERE relation = '{table}'::regclass AND mode = 'ShareLock' AND granted"
    );
    until("the table is locked", async || server.psql_in(&database, &granted) == "1").await;
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let waits = format!("SELECT count(*) FROM pg_locks WHERE relation = '{table}'::regclass AND NOT granted");
    until("the statement waits for the table", async || server.psql_in(&database, &waits) != "0").await;
    drop(stream);
    locked.await.unwrap();
}

fn database_of(url: &str) -> &str {
    url.rsplit('/').next().unwrap()
}

/// In the middle of the carve's transaction: it is finished without its caller, and found by the retry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_18_cancelled_in_the_middle_of_a_carve_it_is_finished_without_its_caller() {
    let exposed = Exposed::new();
    let server = Postgres::shared();
    let builder = quick().region_on("eu", Backend::Postgres).namespace_with("orders", policy(5_000, 20, 100, 1.0));
    let cluster = builder.start().await;
    let region = cluster.region("eu");
    let database = database_of(region.database_url.as_ref().unwrap());
    for n in 0..3 {
        let order = order(n, 30);
        let bytes = request("/v1/segments", &cluster.service_token, &order);
        go_away_inside(server, database, "segments", &region.url, &bytes).await;
        until("the carve is committed", async || {
            let id = order["allocation_id"].as_str().unwrap();
            server.psql_in(database, &format!("SELECT count(*) FROM segments WHERE allocation_id = '{id}'")) == "1"
        })
        .await;
        let found = segment(&cluster, &order).await;
        assert_eq!(found["replayed"], true, "{found}");
        exposed
            .record("segment", &(number(&found["first"]) as i64..=number(&found["last"]) as i64).collect::<Vec<_>>());
    }
    take(&cluster, "eu", "orders", 200, 10, &exposed).await;
    nothing_stays_open(server).await;
    assert_sound(&cluster, &exposed).await;
}

/// The same of a grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_18_cancelled_in_the_middle_of_a_grant_it_is_finished_without_its_asker() {
    let server = Postgres::shared();
    let (cluster, mut eu) = alone(quick().authority(Backend::Postgres)).await;
    second(&cluster, &mut eu, "us").await;
    let database = database_of(cluster.authority_database_url.as_ref().unwrap()).to_owned();
    for n in 0..3 {
        let id = fresh(n);
        let message = eu.puppet.message(vec![want(id, "orders", 10)]);
        let bytes = request("/v1/grants", &eu.token, &serde_json::to_value(&message).unwrap());
        go_away_inside(server, &database, "grants", &cluster.url, &bytes).await;
        until("the grant is committed", async || {
            server.psql_in(&database, &format!("SELECT count(*) FROM grants WHERE allocation_id = '{id}'")) == "1"
        })
        .await;
        let found = eu.ask(id, "orders", 10).await.unwrap();
        assert!(found.replayed);
        assert_eq!((found.lo, found.hi), (n * 10, n * 10 + 10));
    }
    assert_eq!(ledger(&cluster, "orders").await.len(), 3);
    nothing_stays_open(server).await;
    assert!(cluster.verify().await.is_empty());
}
