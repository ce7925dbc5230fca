//! probe
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use std::time::{Duration, Instant};
use std::sync::Arc;
use tests::cluster::{Cluster, fixed};
use tests::mounts::{Disk, say};
use tests::ledger_of_ids::Exposed;
use tests::load::{Load,Plan};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probe() {
    let disk = Disk::new();
    let data = disk.path().join("data").display().to_string();
    let cluster = Cluster::builder().region("eu").agent_env("CADASTRE_DATA", &data).namespace_with("orders", fixed(1_000_000, 20)).start().await;
    let agent = &cluster.region("eu").agent;
    let exposed = Arc::new(Exposed::new());
    let load = Load::start(Plan::of(&cluster, "eu", "orders").count(10).tasks(2), exposed.clone());
    assert!(load.successes_within(20, Duration::from_secs(20)).await, "{}", agent.log());
    let t = Instant::now();
    disk.break_down();
    say(&format!("broke down in {:?}", t.elapsed()));
    say(&format!("ended {} {:?}", agent.ended_within(Duration::from_secs(8)).await, agent.exit_code()));
    say(&std::fs::read_to_string("/proc/mounts").unwrap().lines().filter(|l| l.contains("mount-")).collect::<Vec<_>>().join("\n"));
    say(agent.log().lines().last().unwrap());
    disk.repair();
    cluster.restart_agent("eu").await;
    say(&format!("more {}", load.successes_within(100, Duration::from_secs(20)).await));
    let before = exposed.highest();
    let cut = disk.cut();
    agent.kill9();
    load.stop().await;
    say(&format!("{:?}", exposed.duplicates()));
    let m = cut.mount();
    std::process::Command::new("sh").args(["-c", &format!("ls -lai {0}/data {0}/data-witness; rm -rf /tmp/pc/x; mkdir /tmp/pc/x; cp -r {0}/data {1}/live /tmp/pc/x/ 2>/dev/null; cp -r {1} /tmp/pc/x/live; cp -r {0}/data-witness /tmp/pc/x/witness; cp -r {1}-witness /tmp/pc/x/wlive", m.path().display(), data)]).status().unwrap();
    let c = rusqlite::Connection::open("/tmp/pc/x/data/region.db").unwrap();
    let end: i64 = c.query_row("SELECT COALESCE(MAX(hi), 0) FROM segments", [], |r| r.get(0)).unwrap();
    let c = rusqlite::Connection::open("/tmp/pc/x/live/region.db").unwrap();
    let live: i64 = c.query_row("SELECT COALESCE(MAX(hi), 0) FROM segments", [], |r| r.get(0)).unwrap();
    for w in ["/tmp/pc/x/witness", "/tmp/pc/x/wlive"] {
    let c = rusqlite::Connection::open(format!("{w}/region-eu.db")).unwrap();
    let w: String = c.query_row("SELECT group_concat(scope||' '||seq) FROM marks", [], |r| r.get(0)).unwrap_or_default(); say(&w); }
    say(&format!("exposed {before:?} stored {end} live {live}"));
}
