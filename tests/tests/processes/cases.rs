//! What happened to users of other systems, each as a small run here. Cases 01 and 08 are in `clones`, 09 in
//! `segments`, 18 in `cancelled`.

use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tests::cluster::{Backend, Cluster, fixed};
use tests::http;
use tests::ledger_of_ids::Exposed;
use tests::postgres::Postgres;
use tests::region::ask_ids;

use crate::hand::{Hand, alone, code, fresh, ledger};
use crate::help::{
    assert_clean_log, assert_dry, assert_sound, at_rest, extra_agent, number, quick, register, step, take, token_of,
    until, use_up,
};
use crate::relay::{Mode, Relay};

/// Processor time of a process, all threads, in hundredths of a second.
fn ticks(pid: u32) -> u64 {
    let line = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = line.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// The process that holds a data folder.
fn process_of(folder: &std::path::Path) -> u32 {
    let lock = std::fs::read_to_string(folder.join("LOCK")).unwrap();
    lock.trim().parse().unwrap()
}

async fn sizes(cluster: &Cluster) -> Vec<u64> {
    let url = format!("{}/v1/segments?namespace=orders", cluster.region("eu").url);
    let page = http::get_json(&url, Some(&cluster.operator_token)).await.2;
    page["segments"].as_array().unwrap().iter().map(|it| number(&it["hi"]) - number(&it["lo"])).collect()
}

/// A thousand callers at once, segments of 100, every carve delayed by 200 ms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_04_burst_on_a_tiny_segment() {
    let exposed = Arc::new(Exposed::new());
    let server = Postgres::shared();
    let mut policy = fixed(100_000, 100);
    policy["segment_max"] = json!("5000");
    let builder = quick().region_on("eu", Backend::Postgres).namespace_with("orders", policy);
    let cluster = builder.start().await;
    let database = cluster.region("eu").database_url.as_ref().unwrap().rsplit('/').next().unwrap().to_owned();
    at_rest(&cluster, "eu", "orders").await;
    server.psql_in(
        &database,
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM pg_sleep(0.2); RETURN NEW; END $$;
         CREATE TRIGGER slow BEFORE INSERT ON segments FOR EACH ROW EXECUTE FUNCTION slow()",
    );
    let pid = process_of(&cluster.region("eu").agent.data_folder());
    let (before, began) = (ticks(pid), Instant::now());
    let client = http::client();
    let callers: Vec<_> = (0..1_000)
        .map(|_| {
            let request = client
                .post(format!("{}/v1/ids", cluster.region("eu").url))
                .bearer_auth(&cluster.service_token)
                .header("Cadastre-Timeout-Ms", "5000")
                .json(&json!({"namespace": "orders", "count": 1}));
            let exposed = exposed.clone();
            tokio::spawn(async move {
                let answer = request.send().await.unwrap();
                let (status, body) = (answer.status().as_u16(), answer.json::<serde_json::Value>().await.unwrap());
                assert_eq!(status, 200, "nobody is told that it is not ready: {body}");
                let ids: Vec<i64> =
                    body["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().parse().unwrap()).collect();
                exposed.record("eu", &ids);
            })
        })
        .collect();
    let mut most = 0;
    while exposed.total() < 1_000 && began.elapsed() < Duration::from_secs(30) {
        let carving =
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()";
        most = most.max(server.psql_in(&database, carving).parse::<u32>().unwrap());
    }
    for caller in callers {
        caller.await.unwrap();
    }
    assert_eq!(most, 1, "one carve in flight");
    let (used, took) = (ticks(pid) - before, began.elapsed());
    assert!(used < 500, "{used} hundredths of a second of processor time in {took:?}: somebody spins");
    let grown = sizes(&cluster).await;
    let largest = *grown.iter().max().unwrap();
    assert!(largest > 200, "sizes grow with the callers that wait: {grown:?}");
    server.psql_in(&database, "DROP TRIGGER slow ON segments");
    // Seldom a caller from here on: what is in memory lasts longer than its target, and the next one is smaller.
    until("sizes shrink again", async || {
        tokio::time::sleep(Duration::from_secs(6)).await;
        let left = crate::help::stand(&cluster, "eu", "orders").await.instance;
        take(&cluster, "eu", "orders", left.max(1), 5_000, &exposed).await;
        *sizes(&cluster).await.last().unwrap() < largest
    })
    .await;
    assert_sound(&cluster, &exposed).await;
}

/// Two authorities on different empty stores, the region configured to the stranger and back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_14_two_authorities() {
    let exposed = Exposed::new();
    let cluster = quick().region("eu").namespace_with("orders", fixed(1_000, 100)).start().await;
    let stranger = quick().namespace_with("orders", fixed(1_000, 100)).start().await;
    let other_token = register(&stranger, "eu").await;
    take(&cluster, "eu", "orders", 50, 10, &exposed).await;
    let agent = &cluster.region("eu").agent;
    agent.kill9();
    let (url, token) = (stranger.url.clone(), other_token.clone());
    agent.change(move |spec| spec.env("CADASTRE_AUTHORITY_URL", url).env("CADASTRE_REGION_TOKEN", token));
    cluster.restart_agent("eu").await;
    until("the stranger is refused", async || cluster.status("eu").await["uplink"]["state"] == "refused").await;
    let error = cluster.status("eu").await["uplink"]["last_error"].to_string();
    assert!(error.contains("belongs to cluster") && error.contains("empty data folder"), "it says how: {error}");
    // It goes on from what the right one gave it, to the last id, and takes nothing of the other one.
    let held = at_rest(&cluster, "eu", "orders").await.held();
    let (got, problem) = use_up(&cluster, "eu", "orders", 50, &exposed).await;
    assert_eq!(got, held);
    assert_dry(&problem);
    assert!(ledger(&stranger, "orders").await.is_empty());
    agent.kill9();
    let (url, token) = (cluster.region("eu").link.url(), token_of(&cluster, "eu").to_owned());
    agent.change(move |spec| spec.env("CADASTRE_AUTHORITY_URL", url).env("CADASTRE_REGION_TOKEN", token));
    cluster.restart_agent("eu").await;
    cluster.until_served("eu", "orders").await;
    assert_clean_log(agent, &[&other_token]);
    assert_sound(&cluster, &exposed).await;
}

/// A namespace is deleted and made again while an old holder is alive and cut off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_15_dropped_and_made_again() {
    let exposed = Exposed::new();
    let builder = quick().region("eu").region("us").namespace_with("orders", fixed(1_000, 100));
    let cluster = builder.namespace_with("parcels", fixed(1_000, 100)).start().await;
    take(&cluster, "us", "orders", 50, 10, &exposed).await;
    let held = at_rest(&cluster, "eu", "orders").await.held();
    let before = ledger(&cluster, "orders").await;
    cluster.region("eu").link.cut();
    cluster.operate("DELETE", "/v1/namespaces/orders", None).await.unwrap();
    until("nothing more is issued of it", async || {
        cluster.ids("us", "orders", 1).await.is_err_and(|problem| code(&problem) == (404, "unknown_namespace"))
    })
    .await;
    // The old holder cannot know, and its numbers are its own.
    take(&cluster, "eu", "orders", held / 2, 10, &exposed).await;
    let again = cluster.operate("POST", "/v1/namespaces", Some(&json!({"name": "orders"}))).await.unwrap();
    assert_eq!(number(&again["watermark"]), before.last().unwrap().1, "it goes on where it was");
    take(&cluster, "us", "orders", 2_500, 50, &exposed).await;
    cluster.region("eu").link.heal();
    take(&cluster, "eu", "orders", 2_500, 50, &exposed).await;
    let after = ledger(&cluster, "orders").await;
    assert_eq!(after[..before.len()], before, "the ledger goes on as well");
    // Two namespaces share nothing: the same numbers, ledgers and limits of their own.
    let parcels = Exposed::new();
    take(&cluster, "eu", "parcels", 500, 50, &parcels).await;
    take(&cluster, "us", "parcels", 500, 50, &parcels).await;
    parcels.assert_no_duplicates();
    assert_eq!(ledger(&cluster, "parcels").await.first().unwrap().0, 0);
    // A retired region's name, token and epoch.
    let token = token_of(&cluster, "us").to_owned();
    let epoch = step(&cluster, "us", "retire", json!({})).await.unwrap();
    assert!(epoch > 1, "epochs go on upwards: {epoch}");
    let refused = cluster.operate("POST", "/v1/regions", Some(&json!({"name": "us"}))).await.unwrap_err();
    assert_eq!(code(&refused), (409, "name_retired"));
    let mut old = Hand::of(&cluster, "us", &token);
    let message = old.puppet.message(vec![]);
    let refused = old.send(&message).await.unwrap_err();
    assert!([401, 403].contains(&refused.status), "{refused}");
    assert_sound(&cluster, &exposed).await;
}

/// Every address answers "not primary".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_16_never_the_leader() {
    let exposed = Exposed::new();
    let cluster = quick().region("eu").namespace_with("orders", fixed(1_000, 100)).start().await;
    let held = at_rest(&cluster, "eu", "orders").await;
    let (one, two) = (Relay::start().await, Relay::start().await);
    let agent = &cluster.region("eu").agent;
    agent.kill9();
    let addresses = format!("{},{}", one.url, two.url);
    agent.change(move |spec| spec.env("CADASTRE_AUTHORITY_URL", addresses));
    cluster.restart_agent("eu").await;
    let (got, problem) = use_up(&cluster, "eu", "orders", 50, &exposed).await;
    assert_eq!(got, held.region);
    assert_dry(&problem);
    let status = cluster.status("eu").await;
    assert!(["never", "down"].contains(&status["uplink"]["state"].as_str().unwrap()), "{status}");
    assert!(status["uplink"]["last_error"].to_string().contains("not the primary"), "{status}");
    // Retries are bounded, with callers or without: both addresses once per round, rounds with pauses.
    let asked = || [one.asked(), two.asked()];
    let (before, began) = (asked(), Instant::now());
    while began.elapsed() < Duration::from_secs(4) {
        let _ = cluster.ids("eu", "orders", 1).await;
    }
    let after = asked();
    for n in 0..2 {
        let rounds = after[n] - before[n];
        assert!((1..=40).contains(&rounds), "{rounds} rounds in 4 s");
    }
    two.set(Mode::Primary(cluster.url.clone()));
    cluster.until_served("eu", "orders").await;
    take(&cluster, "eu", "orders", 1_500, 50, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}

/// A space that no size divides is granted to its last number: each grant begins where the last one ended.
#[tokio::test]
async fn case_17_clamped_at_the_ceiling_by_hand() {
    let sequence = json!({"start": "10", "increment": "7", "min": "10", "max": "5000"});
    let (cluster, mut eu) = alone(quick().define(json!({"name": "odd", "kind": "range", "sequence": sequence}))).await;
    let capacity = (5_000 - 10) / 7 + 1;
    let (mut end, mut sizes) = (0, Vec::new());
    for n in 0.. {
        match eu.ask(fresh(n), "odd", 500).await {
            Ok(granted) => {
                assert_eq!(granted.lo, end, "the stored end");
                end = granted.hi;
                sizes.push(granted.hi - granted.lo);
            }
            Err(refused) => {
                assert_eq!((code(&refused), refused.retry_after), ((503, "exhausted"), None), "{refused}");
                break;
            }
        }
    }
    assert_eq!(end, capacity, "in full: {sizes:?}");
    assert!(sizes.windows(2).all(|pair| pair[1] <= pair[0]) && sizes.last() == Some(&1), "{sizes:?}");
    assert!(cluster.verify().await.is_empty());
}

/// The same with a real agent: every value of a small space once, and then `exhausted`, with no word of later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_17_clamped_at_the_ceiling() {
    let exposed = Exposed::new();
    let sequence = json!({"start": "100", "increment": "3", "min": "100", "max": "700"});
    let cluster = quick().region("eu").define(json!({"name": "small", "kind": "range", "sequence": sequence}));
    let cluster = cluster.start().await;
    let values: BTreeSet<i64> = (100..=700).step_by(3).collect();
    let mut seen = BTreeSet::new();
    let client = http::client();
    let url = &cluster.region("eu").url;
    let mut refused = None;
    // More than there is at all is no reason to say that nothing is left.
    let early = ask_ids(&client, url, &cluster.service_token, "small", 1_000).await.unwrap_err();
    assert_ne!(early.code, "exhausted", "{early}");
    until("the space is used up", async || {
        match ask_ids(&client, url, &cluster.service_token, "small", 1).await {
            Ok(ids) => {
                exposed.record("eu", &ids);
                seen.extend(ids);
            }
            Err(problem) => refused = Some(problem),
        }
        refused.as_ref().is_some_and(|problem| problem.code == "exhausted")
    })
    .await;
    let refused = refused.unwrap();
    assert_eq!((refused.status, refused.retry_after), (503, None), "{refused}");
    assert!(seen.is_subset(&values), "only values of the definition: {seen:?}");
    // The id that showed that the cluster was ready was exposed to the harness.
    let missing: Vec<&i64> = values.difference(&seen).collect();
    assert_eq!(missing, [&100], "every other one came");
    assert_eq!(ledger(&cluster, "small").await.last().unwrap().1, values.len() as u64);
    let again = extra_agent(&cluster, "us", &register(&cluster, "us").await, |spec| spec);
    again.up().await;
    until("a new region is told the same", async || {
        again.ids(&cluster, "small", 1).await.is_err_and(|problem| problem.code == "exhausted")
    })
    .await;
    assert_sound(&cluster, &exposed).await;
}
