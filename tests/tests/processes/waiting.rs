//! A caller waits for a refill that is under way for as long as it said, and for nothing else.

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tests::cluster::{Backend, Cluster, fixed};
use tests::http;
use tests::ledger_of_ids::Exposed;
use tests::postgres::Postgres;

use crate::help::{assert_sound, at_rest, quick, take, until};

async fn ask(cluster: &Cluster, wait: Option<&str>) -> (u16, Value, Duration) {
    let began = Instant::now();
    let mut request = http::client().post(format!("{}/v1/ids", cluster.region("eu").url));
    if let Some(wait) = wait {
        request = request.header("Cadastre-Timeout-Ms", wait);
    }
    let body = json!({"namespace": "orders", "count": 1});
    let answer = request.bearer_auth(&cluster.service_token).json(&body).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap(), began.elapsed())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_waits_for_a_refill_as_long_as_it_said() {
    let exposed = Exposed::new();
    let server = Postgres::shared();
    let builder = quick().region_on("eu", Backend::Postgres).namespace_with("orders", fixed(1_000, 100));
    let cluster = builder.start().await;
    let database = cluster.region("eu").database_url.as_ref().unwrap().rsplit('/').next().unwrap().to_owned();
    let left = at_rest(&cluster, "eu", "orders").await.instance;
    let held = {
        let database = database.clone();
        let sql = "BEGIN; LOCK TABLE segments IN SHARE MODE; SELECT pg_sleep(3); COMMIT";
        tokio::task::spawn_blocking(move || server.psql_in(&database, sql))
    };
    let locked =
        "SELECT count(*) FROM pg_locks WHERE relation = 'segments'::regclass AND mode = 'ShareLock' AND granted";
    until("the table is held", async || server.psql_in(&database, locked) == "1").await;
    take(&cluster, "eu", "orders", left, 10, &exposed).await;
    let patient = ask(&cluster, Some("5000"));
    let others = async {
        for wait in [Some("0"), None, Some("100")] {
            let (status, answer, took) = ask(&cluster, wait).await;
            assert_eq!((status, answer["code"].as_str()), (503, Some("segment_dry")), "{wait:?}: {answer}");
            assert!(took < Duration::from_secs(2), "{wait:?} took {took:?}");
        }
    };
    let ((status, answer, _), ()) = tokio::join!(patient, others);
    assert_eq!(status, 200, "the refill came before its time was over: {answer}");
    let id: i64 = answer["ids"][0].as_str().unwrap().parse().unwrap();
    exposed.record("eu", &[id]);
    held.await.unwrap();
    take(&cluster, "eu", "orders", 200, 10, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}
