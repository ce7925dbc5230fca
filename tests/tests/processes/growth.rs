//! What a grant, a headroom read, an origin look-up and a carve cost with short and with long ledgers: a measurement,
//! run on purpose, up to `CADASTRE_ROWS` rows (1,000,000) (`cargo test -p tests --release --test processes growth -- --ignored --nocapture`). That none of
//! their queries reads a ledger from end to end is tested in `plans.rs`.

use std::time::Instant;

use serde_json::json;
use tests::cluster::{Backend, Cluster};
use tests::http;
use tests::postgres::Postgres;

use crate::hand::{Hand, fresh};
use crate::help::quick;

const ROUNDS: u64 = 60;

/// Rows of the authority's ledger in a namespace, far above its watermark: `{numbers}` and `{id}` are the engine's.
const GRANTS: &str =
    "INSERT INTO grants SELECT '10000000-0000-4000-8000-' || {id}, 'bulk', '01939d5b-7c00-7abc-8def-' || {id}, 'eu',
    1, 1, '20000000-0000-4000-8000-000000000000', 10, 1000000000 + i * 10, 1000000010 + i * 10, 1,
    '30000000-0000-4000-8000-' || {id}, 1, i FROM {numbers}";
const MARKS: &str =
    "INSERT INTO marks SELECT '30000000-0000-4000-8000-' || {id}, 'ns/bulk', 1, i, i, 'grant', i FROM {numbers}";
const SEGMENTS: &str =
    "INSERT INTO segments SELECT '40000000-0000-4000-8000-' || {id}, 'bulk', '10000000-0000-4000-8000-' || {id}, NULL,
    1000000000 + i * 10, 1000000010 + i * 10, 'x', 'i', '50000000-0000-4000-8000-000000000000',
    '01939d5b-7c00-7abc-8def-' || {id}, 10, 1, i, 'open', '30000000-0000-4000-8000-' || {id} FROM {numbers}";
const REGION_GRANTS: &str = "INSERT INTO grants SELECT '10000000-0000-4000-8000-' || {id}, 'bulk', 1000000000 + i * 10, 1000000010 + i * 10,
    1000000010 + i * 10, 1, 1, '01939d5b-7c00-7abc-8def-' || {id}, 'held', i, '30000000-0000-4000-8000-' || {id} FROM {numbers}";

fn fill(database: Option<&str>, file: &std::path::Path, table: &str, from: u64, to: u64) {
    let with = |numbers: &str, id: &str| table.replace("{numbers}", numbers).replace("{id}", id);
    match database {
        Some(url) => {
            let numbers = format!("generate_series({from}, {to}) i");
            let name = url.rsplit('/').next().unwrap();
            Postgres::shared().psql_in(name, &with(&numbers, "lpad(i::text, 12, '0')"));
        }
        None => {
            let db = rusqlite::Connection::open(file).unwrap();
            db.busy_timeout(std::time::Duration::from_secs(60)).unwrap();
            let numbers = format!(
                "(WITH RECURSIVE n (i) AS (SELECT {from} UNION ALL SELECT i + 1 FROM n WHERE i < {to}) SELECT i FROM n)"
            );
            db.execute_batch(&with(&numbers, "printf('%012d', i)")).unwrap();
        }
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

async fn timed(mut work: impl AsyncFnMut(u64)) -> f64 {
    let mut all = Vec::new();
    for round in 0..ROUNDS {
        let begun = Instant::now();
        work(round).await;
        all.push(begun.elapsed().as_secs_f64() * 1_000.0);
    }
    median(all)
}

async fn authority(cluster: &Cluster, hand: &mut Hand, rows: u64) -> [f64; 3] {
    let grant = timed(async |n| {
        hand.ask(fresh(rows + n), "bulk", 10).await.unwrap();
    })
    .await;
    let headroom = timed(async |_| {
        cluster.headroom().await;
    })
    .await;
    let origin = timed(async |n| {
        let id = 1_000_000_011 + (n * 7_919 % rows) * 10;
        let url = format!("{}/v1/origins/bulk/{id}", cluster.url);
        let (status, _, origin) = http::get_json(&url, Some(&cluster.operator_token)).await;
        assert_eq!((status, origin["region"].as_str()), (200, Some("eu")), "{origin}");
    })
    .await;
    [grant, headroom, origin]
}

async fn carve(cluster: &Cluster, rows: u64) -> f64 {
    timed(async |n| {
        let order = json!({"namespace": "orders", "allocation_id": fresh(rows + n).to_string(), "instance": "till",
            "incarnation": uuid::Uuid::from_u128(u128::from(rows + n)).to_string(), "want": "10"});
        let url = format!("{}/v1/segments", cluster.region("us").url);
        let (status, _, answer) = http::post_json(&url, Some(&cluster.service_token), &order).await;
        assert_eq!(status, 201, "{answer}");
    })
    .await
}

async fn measure(name: &str, backend: fn() -> Backend, builder: tests::cluster::Builder) {
    let cluster = builder.region_on("us", backend()).namespace("orders").start().await;
    let define = json!({"name": "bulk", "kind": "range"});
    cluster.operate("POST", "/v1/namespaces", Some(&define)).await.unwrap();
    let mut hand = Hand::register(&cluster, "eu").await;
    hand.beat().await;
    let mut until_granted = 0;
    while hand.ask(fresh(until_granted), "bulk", 10).await.is_err() {
        until_granted += 1;
        assert!(until_granted < 100);
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let store = cluster.authority.data_folder().join("authority.db");
    let (mut from, us) = (1, cluster.region("us"));
    let region = us.agent.data_folder().join("region.db");
    println!("| {name}, rows | grant | headroom | origin | carve | agent's start |");
    let most = std::env::var("CADASTRE_ROWS").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000_000_u64);
    for rows in [10_000, most] {
        for table in [GRANTS, MARKS] {
            fill(cluster.authority_database_url.as_deref(), &store, table, from, rows);
        }
        for table in [SEGMENTS, MARKS] {
            fill(us.database_url.as_deref(), &region, table, from, rows);
        }
        let grants = rows.min(100_000);
        fill(us.database_url.as_deref(), &region, REGION_GRANTS, from, grants);
        from = rows + 1;
        for url in [&cluster.authority_database_url, &us.database_url].into_iter().flatten() {
            let name = url.rsplit('/').next().unwrap();
            // What the server has to do after so many rows at once is not what a grant costs.
            for sql in ["VACUUM ANALYZE", "CHECKPOINT"] {
                Postgres::shared().psql_in(name, sql);
            }
        }
        let [grant, headroom, origin] = authority(&cluster, &mut hand, rows).await;
        let carve = carve(&cluster, rows).await;
        // The first start after the rows were written copies them out of SQLite's log.
        us.agent.kill9();
        cluster.restart_agent("us").await;
        us.agent.kill9();
        let begun = Instant::now();
        cluster.restart_agent("us").await;
        let start = begun.elapsed().as_secs_f64() * 1_000.0;
        println!(
            "| {rows} ({grants} of them grants of the region) | {grant:.2} ms | {headroom:.2} ms | {origin:.2} ms | {carve:.2} ms | {start:.0} ms |"
        );
        cluster.until_served("us", "orders").await;
    }
}

#[tokio::test]
#[ignore = "a measurement"]
async fn costs_do_not_grow_on_sqlite() {
    measure("SQLite", || Backend::Sqlite, quick()).await;
}

#[tokio::test]
#[ignore = "a measurement"]
async fn costs_do_not_grow_on_postgres() {
    measure("PostgreSQL", || Backend::Postgres, quick().authority(Backend::Postgres)).await;
}

/// Processor time in milliseconds and memory in MiB of the process that works in a folder.
fn usage(folder: &std::path::Path) -> (u64, u64) {
    let of = |id: &str, file: &str| std::fs::read(format!("/proc/{id}/{file}")).unwrap_or_default();
    let here = format!("CADASTRE_DATA={}", folder.display());
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|e| e.unwrap().file_name().into_string().ok());
    let ours = |id: &String| of(id, "environ").split(|b| *b == 0).any(|entry| entry == here.as_bytes());
    let id = processes.filter(ours).last().expect("it runs");
    let stat = String::from_utf8(of(&id, "stat")).unwrap();
    let ticks = stat.rsplit_once(')').unwrap().1.split_whitespace().skip(11).take(2).map(|t| t.parse::<u64>().unwrap());
    let pages = String::from_utf8(of(&id, "statm")).unwrap();
    (ticks.sum::<u64>() * 10, pages.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 256)
}

async fn idle(cluster: &Cluster, what: &str) {
    let eu = cluster.region("eu");
    let folders = [cluster.authority.data_folder(), eu.agent.data_folder()];
    let before = [usage(&folders[0]), usage(&folders[1])];
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    let after = [usage(&folders[0]), usage(&folders[1])];
    let mut lines = [0, 0];
    for (n, url) in [&cluster.url, &eu.url].into_iter().enumerate() {
        let text = http::get_json(&format!("{url}/metrics"), None).await.2;
        lines[n] = text.as_str().unwrap().lines().filter(|line| !line.starts_with('#')).count();
    }
    let cpu = |n: usize| (after[n].0 - before[n].0) as f64 / 100.0;
    println!(
        "{what}: authority {:.1} % of a core, {} MiB, {} series; agent {:.1} %, {} MiB, {} series",
        cpu(0),
        after[0].1,
        lines[0],
        cpu(1),
        after[1].1,
        lines[1]
    );
}

/// `CADASTRE_NAMESPACES` of them (1,000).
#[tokio::test]
#[ignore = "a measurement"]
async fn many_namespaces() {
    let all: u64 = std::env::var("CADASTRE_NAMESPACES").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000);
    let cluster = tests::cluster::Cluster::builder().region("eu").namespace("orders").start().await;
    idle(&cluster, "one namespace").await;
    let begun = Instant::now();
    for n in 0..all {
        let body = json!({"name": format!("n{n}"), "kind": "range"});
        let round = Instant::now();
        cluster.operate("POST", "/v1/namespaces", Some(&body)).await.unwrap();
        if (n + 1) % (all / 10) == 0 {
            println!(
                "{} namespaces after {:.1} s; the last took {:.1} ms",
                n + 1,
                begun.elapsed().as_secs_f64(),
                round.elapsed().as_secs_f64() * 1_000.0
            );
        }
    }
    idle(&cluster, "none of them used").await;
    println!(
        "headroom: {:.1} ms",
        timed(async |_| {
            cluster.headroom().await;
        })
        .await
    );
    let begun = Instant::now();
    for service in 0..10 {
        let names: Vec<String> = (0..all / 10).map(|n| format!("n{}", service * (all / 10) + n)).collect();
        let body = json!({"name": format!("s{service}"), "namespaces": names});
        cluster.operate("POST", "/v1/services", Some(&body)).await.unwrap();
    }
    loop {
        let headroom = cluster.headroom().await;
        let granted =
            headroom["namespaces"].as_array().unwrap().iter().filter(|n| n["regions"][0]["granted"] != "0").count()
                as u64;
        if granted > all {
            break;
        }
        assert!(begun.elapsed().as_secs() < 600, "{granted} have a grant");
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    println!("a first grant in each of them: {:.1} s", begun.elapsed().as_secs_f64());
    idle(&cluster, "all of them admitted").await;
}
