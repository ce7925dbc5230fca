//! Stopped in order: what is under way is finished, nothing new begins, and what is left is counted.

use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tests::cluster::{Backend, fixed, policy};
use tests::http;
use tests::ledger_of_ids::Exposed;
use tests::load::{Load, Plan};
use tests::postgres::Postgres;
use tests::puppet::want;

use crate::hand::{alone, fresh, granted, ledger};
use crate::help::{assert_sound, at_rest, number, quick, take, until};

#[tokio::test]
async fn what_was_left_in_memory_is_a_gap_and_is_counted() {
    let exposed = Exposed::new();
    let cluster = quick().region("eu").namespace_with("orders", fixed(1_000, 100)).start().await;
    take(&cluster, "eu", "orders", 37, 37, &exposed).await;
    let left = at_rest(&cluster, "eu", "orders").await;
    assert!(left.instance > 0);
    assert_eq!(cluster.region("eu").agent.terminate().await, 0);
    cluster.restart_agent("eu").await;
    take(&cluster, "eu", "orders", 1, 1, &exposed).await;
    until("headroom tells what was burned", async || {
        number(&cluster.headroom().await["namespaces"][0]["burned"]) == left.instance
    })
    .await;
    let now = at_rest(&cluster, "eu", "orders").await;
    assert_eq!(now.held() + 1, left.region, "and nothing else is gone");
    assert_eq!(cluster.authority.terminate().await, 0);
    cluster.restart_authority().await;
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_under_load_every_answer_that_left_counts() {
    let exposed = Arc::new(Exposed::new());
    let cluster = quick().region("eu").namespace_with("orders", policy(5_000, 100, 1_000, 1.0)).start().await;
    let load = Load::start(Plan::of(&cluster, "eu", "orders").tasks(6), exposed.clone());
    for _ in 0..4 {
        assert!(load.successes_within(50, Duration::from_secs(60)).await);
        assert_eq!(cluster.region("eu").agent.terminate().await, 0);
        cluster.restart_agent("eu").await;
    }
    assert!(load.successes_within(50, Duration::from_secs(60)).await);
    let met = load.stop().await;
    let known = ["connection", "shutting_down", "segment_dry"];
    assert!(met.errors.keys().all(|code| known.contains(&code.as_str())), "{met:?}");
    assert_sound(&cluster, &exposed).await;
}

/// Holds a table for so long that a process can be told to stop meanwhile.
fn hold(server: &'static Postgres, database: &str, table: &str) -> tokio::task::JoinHandle<String> {
    let sql = format!("BEGIN; LOCK TABLE {table} IN SHARE MODE; SELECT pg_sleep(2); COMMIT");
    let database = database.to_owned();
    tokio::task::spawn_blocking(move || server.psql_in(&database, &sql))
}

async fn until_count(server: &Postgres, database: &str, what: &str, sql: &str) {
    until(what, async || server.psql_in(database, sql) != "0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_told_to_stop_finishes_what_is_under_way() {
    let server = Postgres::shared();
    let builder = quick().region_on("eu", Backend::Postgres).namespace_with("orders", fixed(1_000, 100));
    let cluster = builder.start().await;
    let region = cluster.region("eu");
    let database = region.database_url.as_ref().unwrap().rsplit('/').next().unwrap();
    let held = hold(server, database, "segments");
    let locks = "SELECT count(*) FROM pg_locks WHERE relation = 'segments'::regclass AND";
    until_count(server, database, "the table is held", &format!("{locks} mode = 'ShareLock' AND granted")).await;
    let under_way = {
        let (url, token) = (format!("{}/v1/segments", region.url), cluster.service_token.clone());
        let order = json!({"namespace": "orders", "allocation_id": fresh(1).to_string(), "instance": "till",
            "incarnation": uuid::Uuid::from_u128(77).to_string(), "want": "10"});
        tokio::spawn(async move { http::post_json(&url, Some(&token), &order).await })
    };
    until_count(server, database, "the carve waits", &format!("{locks} NOT granted")).await;
    let code = {
        let stopping = region.agent.terminate();
        let new = async {
            until("nothing new is taken", async || match cluster.ids("eu", "orders", 1).await {
                Ok(_) => false,
                Err(problem) => ["shutting_down", "connection"].contains(&problem.code.as_str()),
            })
            .await;
        };
        tokio::join!(stopping, new).0
    };
    assert_eq!(code, 0, "{}", region.agent.log());
    held.await.unwrap();
    let (status, _, segment) = under_way.await.unwrap();
    assert_eq!(status, 201, "what was under way was answered: {segment}");
    cluster.restart_agent("eu").await;
    let exposed = Exposed::new();
    let (first, last) = (number(&segment["first"]), number(&segment["last"]));
    exposed.record("segment", &(first as i64..=last as i64).collect::<Vec<_>>());
    take(&cluster, "eu", "orders", 200, 10, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_that_is_told_to_stop_finishes_the_grant_that_is_under_way() {
    let server = Postgres::shared();
    let (cluster, mut eu) = alone(quick().authority(Backend::Postgres)).await;
    let database = cluster.authority_database_url.as_ref().unwrap().rsplit('/').next().unwrap();
    let held = hold(server, database, "grants");
    let locks = "SELECT count(*) FROM pg_locks WHERE relation = 'grants'::regclass AND";
    until_count(server, database, "the table is held", &format!("{locks} mode = 'ShareLock' AND granted")).await;
    let message = eu.puppet.message(vec![want(fresh(1), "orders", 10)]);
    let under_way = {
        let eu = eu.clone();
        tokio::spawn(async move { eu.send(&message).await })
    };
    until_count(server, database, "the grant waits", &format!("{locks} NOT granted")).await;
    assert_eq!(cluster.authority.terminate().await, 0, "{}", cluster.authority.log());
    held.await.unwrap();
    let answer = under_way.await.unwrap().unwrap();
    assert_eq!(granted(&answer).unwrap().hi, 10);
    cluster.restart_authority().await;
    assert_eq!(ledger(&cluster, "orders").await.len(), 1);
    assert!(cluster.verify().await.is_empty());
}
