//! Many agents of one store, all dry when it returns: one carve each, bounded retries, no second collapse.
//!
//! Twenty processes, or 64 with `CADASTRE_SOAK=1`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tests::cluster::{Backend, Cluster, fixed};
use tests::http;
use tests::ledger_of_ids::Exposed;
use tests::load::{Load, Plan};
use tests::postgres::{Options, Postgres};

use crate::help::{Extra, assert_sound, extra_agent, metric, quick, soak, token_of, until};

/// Tries of a carve's transaction so far, whatever became of them.
async fn tries(agent: &Extra) -> u64 {
    metric(&agent.url, "cadastre_db_transactions_total", "name=\"region_carve\"").await as u64
}

/// Segments of the ledger by incarnation.
async fn segments(cluster: &Cluster) -> BTreeMap<String, usize> {
    let url = format!("{}/v1/segments?namespace=orders", cluster.region("eu").url);
    let page = http::get_json(&url, Some(&cluster.operator_token)).await.2;
    assert_eq!(page["next"], serde_json::Value::Null);
    let mut all = BTreeMap::new();
    for segment in page["segments"].as_array().unwrap() {
        *all.entry(segment["incarnation"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    all
}

/// The most carves that wait at the same time, while no segment can be written for three seconds.
async fn one_carve_each(server: &Postgres, database: &str) -> usize {
    let sql = "BEGIN; LOCK TABLE segments IN SHARE MODE; SELECT pg_sleep(3); COMMIT";
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
        AND (query LIKE 'UPDATE grants SET carved_to%' OR query LIKE 'INSERT INTO segments%')";
    let mut most = 0;
    std::thread::scope(|threads| {
        let held = threads.spawn(|| server.psql_in(database, sql));
        while !held.is_finished() {
            most = most.max(server.psql_in(database, waiting).parse().unwrap());
        }
    });
    most
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_dry_agents_do_not_run_down_the_store_that_returns() {
    let count = if soak() { 64 } else { 20 };
    let exposed = Arc::new(Exposed::new());
    let server = Postgres::with(Options { settings: vec!["max_connections=700".to_owned()], ..Options::default() });
    let database = server.create_database("region");
    let builder = quick().region_on("eu", Backend::Url(database.clone()));
    let cluster = builder.namespace_with("orders", fixed(100_000, 50)).start().await;
    let agents: Vec<Extra> = (0..count)
        .map(|_| {
            extra_agent(&cluster, "eu", token_of(&cluster, "eu"), |spec| {
                spec.env("CADASTRE_DATABASE_URL", &database).env("CADASTRE_HEARTBEAT_SECONDS", "4")
            })
        })
        .collect();
    let t0 = std::time::Instant::now();
    for (i, agent) in agents.iter().enumerate() {
        eprintln!("STAGE up {i} {:?}", t0.elapsed());
        agent.up().await;
        agent.serves(&cluster, "agent", "orders", &exposed).await;
    }
    eprintln!("STAGE pause {:?}", t0.elapsed());
    server.pause();
    let plan = |agent: &Extra| {
        let plan = Plan { agent_url: agent.url.clone(), ..Plan::of(&cluster, "eu", "orders") };
        Load::start(plan.tasks(2).count(5).pause(Duration::from_millis(20)), exposed.clone())
    };
    let loads: Vec<Load> = agents.iter().map(plan).collect();
    until("every agent is dry", async || {
        loads.iter().all(|load| load.report().errors.get("segment_dry").is_some_and(|n| *n > 20))
    })
    .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut before = Vec::new();
    for agent in &agents {
        before.push(tries(agent).await);
    }
    // Nobody works for a moment after it is back: what is seen is the agents' own refills.
    for load in loads {
        load.stop().await;
    }
    eprintln!("STAGE resume {:?}", t0.elapsed());
    server.resume();
    for agent in &agents {
        agent.serves(&cluster, "agent", "orders", &exposed).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    eprintln!("STAGE served {:?}", t0.elapsed());
    let carved = segments(&cluster).await;
    for (agent, before) in agents.iter().zip(before) {
        let after = tries(agent).await;
        assert!(after - before <= 60, "{} tries of one agent's carve", after - before);
    }
    // Two at the beginning, one that was wanted when the store went, one or two more.
    assert!(carved.len() > count && carved.values().all(|n| *n <= 6), "{carved:?}");
    let loads: Vec<Load> = agents.iter().map(plan).collect();
    eprintln!("STAGE one {:?}", t0.elapsed());
    let most = one_carve_each(&server, "region").await;
    assert!((2..=count + 1).contains(&most), "{most} carves of {count} agents at once");
    for load in &loads {
        assert!(load.successes_within(5, Duration::from_secs(60)).await, "{:?}", load.report());
    }
    for load in loads {
        load.stop().await;
    }
    assert_sound(&cluster, &exposed).await;
}
