//! Several agents over one regional PostgreSQL: each takes its own segments, any of them may die; one that slept through
//! a new epoch is refused by the store itself; and a store that went back while nobody can be asked.

use serde_json::{Value, json};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tests::cluster::{Backend, Cluster, fixed, policy};
use tests::http;
use tests::ledger_of_ids::Exposed;
use tests::load::{Load, Plan};
use tests::postgres::Postgres;
use tests::redis::Redis;
use tests::scratch::Scratch;

use crate::help::{Extra, assert_sound, extra_agent, metric, quick, step, take, token_of, until};

/// One more agent of `eu`, on the same store and witness.
fn another(cluster: &Cluster, witness: &str) -> Extra {
    let database = cluster.region("eu").database_url.clone().unwrap();
    extra_agent(cluster, "eu", token_of(cluster, "eu"), |spec| {
        spec.env("CADASTRE_DATABASE_URL", database).env("CADASTRE_WITNESS", witness)
    })
}

fn load_of(cluster: &Cluster, agent: &Extra, name: &str, exposed: &Arc<Exposed>) -> Load {
    let plan = Plan::of(cluster, "eu", "orders").tasks(2).pause(Duration::from_millis(2));
    Load::start(Plan { agent_url: agent.url.clone(), region: name.to_owned(), ..plan }, exposed.clone())
}

/// Segments of a namespace, as the region's ledger has them.
async fn segments(cluster: &Cluster, url: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let mut after = String::new();
    loop {
        let url = format!("{url}/v1/segments?namespace=orders{after}");
        let page = http::get_json(&url, Some(&cluster.operator_token)).await.2;
        all.extend(page["segments"].as_array().unwrap_or_else(|| panic!("{page}")).iter().cloned());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return all,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_agents_of_one_store_are_killed_in_turn_under_load_and_nothing_comes_twice() {
    let redis = Redis::start();
    let exposed = Arc::new(Exposed::new());
    let builder = quick().region_on("eu", Backend::Postgres).agent_env("CADASTRE_WITNESS", &redis.url());
    let cluster = builder.namespace_with("orders", policy(5_000, 20, 100, 2.0)).start().await;
    let others = [another(&cluster, &redis.url()), another(&cluster, &redis.url())];
    for other in &others {
        other.up().await;
    }
    let plan = Plan::of(&cluster, "eu", "orders").tasks(2).pause(Duration::from_millis(2));
    let mut loads = vec![Load::start(plan, exposed.clone())];
    for (agent, name) in others.iter().zip(["second", "third"]) {
        loads.push(load_of(&cluster, agent, name, &exposed));
    }
    for round in 0..9 {
        let agent = match round % 3 {
            0 => &cluster.region("eu").agent,
            n => &others[n - 1].agent,
        };
        tokio::time::sleep(Duration::from_millis(150)).await;
        agent.kill9();
        let one_of_the_others = &loads[(round + 1) % 3];
        assert!(one_of_the_others.successes_within(20, Duration::from_secs(60)).await, "the others go on");
        agent.start_again();
    }
    for load in &loads {
        assert!(load.successes_within(50, Duration::from_secs(60)).await, "{:?}", load.report());
    }
    for load in loads {
        load.stop().await;
    }
    assert_eq!(others[0].status(&cluster).await["epoch"], 1, "a restart keeps the epoch");
    assert_sound(&cluster, &exposed).await;
}

/// A worker id of the region's, taken by hand at one agent; renewed there later.
async fn worker(cluster: &Cluster, path: &str, chain: &Value) -> (u16, Value) {
    let mut body = json!({"namespace": "events", "instance": "hand", "chain": chain,
        "incarnation": "a8098c1a-f86e-41da-bd1a-000000000001"});
    if path.is_empty() {
        body["allocation_id"] = json!(crate::hand::fresh(77).to_string());
    }
    let url = format!("{}/v1/workers{path}", cluster.region("eu").url);
    let (status, _, answer) = http::post_json(&url, Some(&cluster.service_token), &body).await;
    (status, answer)
}

/// A sleeps while its region is fenced and recovered through B; cut off, it wakes and tries to go on as it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_slept_through_a_new_epoch_is_refused_by_the_store_and_written_down() {
    let redis = Redis::start();
    let server = Postgres::shared();
    let exposed = Arc::new(Exposed::new());
    let builder = quick().region_on("eu", Backend::Postgres).agent_env("CADASTRE_WITNESS", &redis.url());
    let layout = json!({"timestamp": 41, "region": 3, "worker": 7, "sequence": 12, "unit_ms": 1,
        "epoch_ms": "1735689600000"});
    let builder = builder.define(json!({"name": "events", "kind": "snowflake", "layout": layout}));
    let cluster = builder.namespace_with("orders", fixed(5_000, 100)).start().await;
    take(&cluster, "eu", "orders", 250, 50, &exposed).await;
    let other = another(&cluster, &redis.url());
    other.up().await;
    other.serves(&cluster, "other", "orders", &exposed).await;
    let (status, taken) = worker(&cluster, "", &Value::Null).await;
    assert_eq!(status, 201, "{taken}");
    let segment = segments(&cluster, &other.url).await.remove(0);
    let a = &cluster.region("eu").agent;
    cluster.region("eu").link.cut();
    a.pause();
    step(&cluster, "eu", "fence", json!({})).await.unwrap();
    step(&cluster, "eu", "recover", json!({})).await.unwrap();
    until("B is of the new epoch", async || other.status(&cluster).await["epoch"] == 3).await;
    other.serves(&cluster, "other", "orders", &exposed).await;
    a.resume();
    // The renewal of a window and the return of a tail, both of the old epoch.
    let (status, refused) = worker(&cluster, &format!("/{}/renew", taken["worker"]), &taken["chain"]).await;
    assert!(status >= 400, "a renewal of the old epoch: {refused}");
    let back = format!("{}/v1/segments/{}/return", cluster.region("eu").url, segment["segment_id"].as_str().unwrap());
    let tail = json!({"incarnation": segment["incarnation"], "next": segment["lo"]});
    let (status, _, refused) = http::post_json(&back, Some(&cluster.service_token), &tail).await;
    assert!(matches!(status, 404 | 409), "no tail is taken back: {refused}");
    // What it had in memory is its own; the next carve is not.
    take(&cluster, "eu", "orders", 600, 50, &exposed).await;
    let database = cluster.region("eu").database_url.clone().unwrap();
    let database = database.rsplit('/').next().unwrap();
    let late = server.psql_in(database, "SELECT count(*) FROM audit WHERE what = 'late_agent'");
    assert!(late.parse::<u64>().unwrap() >= 1, "it is written down:\n{}", a.log());
    let old = server.psql_in(
        database,
        "SELECT count(*) FROM segments WHERE epoch < 3 AND at_ms > (SELECT min(at_ms) FROM segments WHERE epoch = 3)",
    );
    assert_eq!(old, "0", "nothing was carved under the old epoch after the new one had begun");
    cluster.region("eu").link.heal();
    take(&cluster, "eu", "orders", 600, 50, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}

/// Stops the server, takes its files away, and starts it again.
fn backup(server: &Postgres) -> Scratch {
    let copy = Scratch::new("pg-copy");
    server.stop_fast();
    cp(&server.data_folder(), &copy.path().join("data"));
    server.restart();
    copy
}

/// With owners and modes.
fn cp(from: &std::path::Path, to: &std::path::Path) {
    assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_regions_postgres_that_fails_inside_a_cut_goes_on_and_one_that_went_back_is_dry_until_the_uplink_is_back() {
    let redis = Redis::start();
    let server = Postgres::start();
    let exposed = Arc::new(Exposed::new());
    let database = server.create_database("region");
    let builder =
        quick().region("us").region_on("eu", Backend::Url(database)).agent_env("CADASTRE_WITNESS", &redis.url());
    let cluster = builder.namespace_with("orders", fixed(5_000, 100)).start().await;
    let other = another(&cluster, &redis.url());
    other.up().await;
    take(&cluster, "eu", "orders", 500, 50, &exposed).await;
    // Agents stop first: sessions of a running one would hold the server up. B speaks to the authority directly, so it
    // is stopped for good.
    other.agent.kill9();
    cluster.region("eu").link.cut();
    until("it is cut off", async || cluster.status("eu").await["uplink"]["state"] != "up").await;
    server.kill9();
    server.restart();
    take(&cluster, "eu", "orders", 500, 50, &exposed).await;
    assert!(cluster.status("eu").await["uplink"]["state"] != "up", "nobody but the witness vouched for it");
    // An agent that starts now goes on too: the required witness names a row that the store contains.
    cluster.region("eu").agent.kill9();
    cluster.restart_agent("eu").await;
    take(&cluster, "eu", "orders", 500, 50, &exposed).await;
    let copy = backup(&server);
    take(&cluster, "eu", "orders", 500, 50, &exposed).await;
    server.stop_fast();
    std::fs::remove_dir_all(server.data_folder()).unwrap();
    cp(&copy.path().join("data"), &server.data_folder());
    server.restart();
    // What is in memory goes out; then the gate finds the row that is missing.
    until("it is dry", async || {
        match cluster.ids("eu", "orders", 10).await {
            Ok(ids) => {
                exposed.record("eu", &ids);
            }
            Err(problem) => assert_eq!(problem.status, 503, "{problem}"),
        }
        cluster.status("eu").await["continuity"] == "went_back"
    })
    .await;
    let problem = cluster.ids("eu", "orders", 1).await.unwrap_err();
    assert_eq!(problem.code, "store_unproven", "{problem}");
    until("the metric says so", async || metric(&cluster.region("eu").url, "cadastre_store_proven", "eu").await < 0.5)
        .await;
    // A restart does not help it: it stays dry while it is cut off.
    cluster.region("eu").agent.kill9();
    cluster.restart_agent("eu").await;
    assert!(cluster.ids("eu", "orders", 1).await.is_err());
    cluster.region("eu").link.heal();
    take(&cluster, "eu", "orders", 1_000, 50, &exposed).await;
    assert!(cluster.status("eu").await["epoch"].as_u64() > Some(1), "what it held was burned");
    assert_sound(&cluster, &exposed).await;
}
