//! A disk that is full, read-only or failing: refused with what to do, nothing lost, nothing given twice.
//!
//! While it lasts an agent goes on from what it has in memory and then says that it is dry; an authority
//! refuses grants, and its regions go on from what they hold. Readers are served all along. Once there is
//! room again everything goes on by itself. Only a failed fsync ends the process, on purpose: what it had
//! exposed before is there at the next start.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::indexing_slicing)]

use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tests::cluster::{Cluster, fixed};
use tests::http;
use tests::ledger_of_ids::Exposed;
use tests::load::{Load, Plan};
use tests::mounts::{Mount, available, say};
use tests::process::Daemon;
use tests::region::Problem;
use tests::scratch::Scratch;

/// Ids per call.
const COUNT: u32 = 10;
const MAKE_ROOM: &str = "disk is full: make room on it";
const FAILED_FSYNC: &str = "refused to make a write durable";
const READ_ONLY: &str = "read only: mount its file system writable";

/// Asks until it is refused; how many ids came, and the refusal.
async fn drain(cluster: &Cluster, region: &str, exposed: &Exposed) -> (u64, Problem) {
    let mut issued = 0;
    loop {
        match cluster.ids(region, "orders", COUNT).await {
            Ok(ids) => issued += exposed.record(region, &ids).is_empty() as u64 * u64::from(COUNT),
            Err(problem) => return (issued, problem),
        }
    }
}

/// Waits until ids of the tier above come again: more than memory can have had.
async fn goes_on(cluster: &Cluster, region: &str, exposed: &Exposed, more: u64) -> Duration {
    let (began, goal) = (Instant::now(), exposed.total() + more);
    while exposed.total() < goal {
        match cluster.ids(region, "orders", COUNT).await {
            Ok(ids) => drop(exposed.record(region, &ids)),
            Err(problem) => {
                assert!(began.elapsed() < Duration::from_secs(30), "{region} does not go on: {problem}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
    began.elapsed()
}

/// A refusal that a caller can wait out and a person can act on.
fn helps(problem: &Problem, advice: &str) {
    let seen = (problem.status, problem.retry_after.is_some(), problem.detail.contains(advice));
    assert_eq!(seen, (503, true, true), "{problem}");
}

async fn left_in_memory(cluster: &Cluster) -> u64 {
    let status = cluster.status("eu").await;
    status["namespaces"][0]["left_in_instance"].as_str().unwrap().parse().unwrap()
}

/// What an agent does while its store takes no writes: it issues what it has in memory, then is dry; it can
/// still be asked who was given what.
async fn agent_in_trouble(cluster: &Cluster, exposed: &Exposed, advice: &str) {
    let (region, token) = (cluster.region("eu"), Some(cluster.service_token.as_str()));
    let left = left_in_memory(cluster).await;
    let (issued, _) = drain(cluster, "eu", exposed).await;
    assert_eq!(issued, left / u64::from(COUNT) * u64::from(COUNT), "it issues exactly what it had in memory");
    // The first one may have been told before the refill had failed.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (issued, problem) = drain(cluster, "eu", exposed).await;
    assert_eq!((issued, problem.code.as_str()), (0, "segment_dry"), "{problem}");
    helps(&problem, advice);
    let highest = exposed.highest().unwrap();
    let (status, _, origin) = http::get_json(&format!("{}/v1/origins/orders/{highest}", region.url), token).await;
    assert_eq!((status, &origin["region"]), (200, &json!("eu")), "{origin}");
    let status: Value = cluster.status("eu").await;
    assert_eq!(status["store"]["state"], "down", "a read that succeeds does not hide it: {status}");
    assert!(status["store"]["last_error"].as_str().unwrap().contains(advice), "{status}");
    let (healthy, _, _) = http::get_json(&format!("{}/healthz", region.url), None).await;
    assert_eq!(healthy, 200);
}

/// Turns the disk read-only. A commit that is just under way fails in its fsync and ends the process, as it must;
/// so a quiet moment is waited for, and whether it was one is the answer.
async fn goes_on_read_only(disk: &Mount, daemon: &Daemon) -> bool {
    tokio::time::sleep(Duration::from_millis(400)).await;
    disk.turn_read_only();
    if !daemon.ended_within(Duration::from_millis(300)).await {
        return true;
    }
    say("a commit was under way as the disk turned read-only: the process ended");
    assert_eq!(daemon.exit_code(), Some(134), "{}", daemon.log());
    assert!(daemon.log().contains(FAILED_FSYNC), "{}", daemon.log());
    false
}

/// Starts it although it cannot work: it must end by itself, and say why.
async fn refuses_to_start(daemon: &Daemon, advice: &str) {
    daemon.kill9();
    let before = daemon.log().len();
    daemon.start_again();
    assert!(daemon.ended_within(Duration::from_secs(20)).await, "{}", daemon.log());
    let log = daemon.log();
    assert!(log[before..].contains(advice), "{}", &log[before..]);
    assert_eq!(daemon.exit_code(), Some(1), "{}", &log[before..]);
}

async fn nothing_was_lost(cluster: &Cluster, exposed: &Exposed) {
    exposed.assert_no_duplicates();
    let audit = cluster.audit().await;
    assert_eq!((&audit["ok"], &audit["unreachable"]), (&json!(true), &json!([])), "{audit}");
}

/// One region whose agent keeps what `env` says on a disk of the test's.
async fn agent_on(name: &str, value: &str) -> (Cluster, Exposed) {
    let builder = Cluster::builder().region("eu").agent_env(name, value);
    let cluster = builder.namespace_with("orders", fixed(100_000, 500)).start().await;
    let exposed = Exposed::new();
    goes_on(&cluster, "eu", &exposed, 100).await;
    (cluster, exposed)
}

/// Two regions whose authority keeps its data on a disk of the test's.
async fn authority_on(data: &str) -> (Cluster, Exposed) {
    let builder = Cluster::builder().region("eu").region("us").authority_env("CADASTRE_DATA", data);
    let cluster = builder.namespace_with("orders", fixed(2_000, 500)).start().await;
    let exposed = Exposed::new();
    for region in ["eu", "us"] {
        goes_on(&cluster, region, &exposed, 100).await;
    }
    (cluster, exposed)
}

/// What happens while an authority's store takes no writes.
async fn authority_in_trouble(cluster: &Cluster, exposed: &Exposed, advice: &str) {
    for region in ["eu", "us"] {
        // A grant may just have been on its way: dry is who stays dry.
        let held = drain(cluster, region, exposed).await.0;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let (more, problem) = drain(cluster, region, exposed).await;
        assert!((1_000..8_000).contains(&(held + more)), "{region} goes on from what it holds: {held} and {more}");
        assert_eq!((problem.code.as_str(), problem.retry_after.is_some()), ("segment_dry", true), "{problem}");
        // Its next message is told why; the very first one may have been told that a commit failed half way.
        let until = Instant::now() + Duration::from_secs(10);
        let told = |status: &Value| status["uplink"]["last_error"].as_str().is_some_and(|it| it.contains(advice));
        let mut status = cluster.status(region).await;
        while !told(&status) || status["uplink"]["state"] == "up" {
            assert!(Instant::now() < until, "{status}");
            tokio::time::sleep(Duration::from_millis(50)).await;
            status = cluster.status(region).await;
        }
    }
    let refused = cluster.operate("POST", "/v1/namespaces", Some(&json!({"name": "more"}))).await.unwrap_err();
    assert_eq!(refused.code, "upstream_unavailable", "{refused}");
    helps(&refused, advice);
    for path in ["/v1/headroom", "/v1/grants?namespace=orders", "/v1/quarantines", "/v1/origins/orders/5"] {
        cluster.operate("GET", path, None).await.unwrap_or_else(|problem| panic!("{path}: {problem}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_whose_disk_is_full_goes_on_from_memory() {
    if !available("an agent on a full disk") {
        return;
    }
    let disk = Mount::tmpfs("4m");
    let data = disk.path().join("data").display().to_string();
    let (cluster, exposed) = agent_on("CADASTRE_DATA", &data).await;
    let agent = &cluster.region("eu").agent;
    let mut waited = Vec::new();
    for _ in 0..3 {
        disk.fill();
        agent_in_trouble(&cluster, &exposed, MAKE_ROOM).await;
        disk.free();
        waited.push(goes_on(&cluster, "eu", &exposed, 600).await);
    }
    // And once with the process killed while the disk is full.
    disk.fill();
    agent_in_trouble(&cluster, &exposed, MAKE_ROOM).await;
    refuses_to_start(agent, MAKE_ROOM).await;
    disk.free();
    cluster.restart_agent("eu").await;
    goes_on(&cluster, "eu", &exposed, 600).await;
    nothing_was_lost(&cluster, &exposed).await;
    say(&format!(
        "an agent on a full disk: {} ids, none twice; with room again it went on after {waited:?}",
        exposed.total()
    ));
    agent.kill9();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_whose_witness_has_no_room_exposes_no_carve() {
    if !available("an agent whose witness's disk is full") {
        return;
    }
    let disk = Mount::tmpfs("2m");
    let witness = format!("file:{}", disk.path().join("witness.db").display());
    let (cluster, exposed) = agent_on("CADASTRE_WITNESS", &witness).await;
    disk.fill();
    let left = left_in_memory(&cluster).await;
    let (issued, _) = drain(&cluster, "eu", &exposed).await;
    assert_eq!(
        issued,
        left / u64::from(COUNT) * u64::from(COUNT),
        "a carve that the witness does not know stays inside"
    );
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (issued, problem) = drain(&cluster, "eu", &exposed).await;
    assert_eq!(issued, 0);
    helps(&problem, "the witness cannot be used");
    helps(&problem, MAKE_ROOM);
    disk.free();
    goes_on(&cluster, "eu", &exposed, 600).await;
    nothing_was_lost(&cluster, &exposed).await;
    cluster.region("eu").agent.kill9();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_whose_disk_is_full_grants_nothing_and_loses_nothing() {
    if !available("an authority on a full disk") {
        return;
    }
    let disk = Mount::tmpfs("8m");
    let (cluster, exposed) = authority_on(&disk.path().join("data").display().to_string()).await;
    let mut waited = Vec::new();
    for killed in [false, true] {
        disk.fill();
        authority_in_trouble(&cluster, &exposed, MAKE_ROOM).await;
        if killed {
            refuses_to_start(&cluster.authority, MAKE_ROOM).await;
        }
        disk.free();
        if killed {
            cluster.restart_authority().await;
        }
        for region in ["eu", "us"] {
            waited.push(goes_on(&cluster, region, &exposed, 3_000).await);
        }
    }
    nothing_was_lost(&cluster, &exposed).await;
    say(&format!("an authority on a full disk: {} ids, none twice; with room again {waited:?}", exposed.total()));
    cluster.authority.kill9();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_turns_read_only_stops_an_agent_and_loses_nothing() {
    if !available("an agent on a disk that turns read-only") {
        return;
    }
    let folder = Scratch::new("image");
    let image = folder.path().join("disk.img");
    let disk = Mount::ext4(&image);
    let (cluster, exposed) = agent_on("CADASTRE_DATA", &disk.path().join("data").display().to_string()).await;
    let agent = &cluster.region("eu").agent;
    if goes_on_read_only(&disk, agent).await {
        agent_in_trouble(&cluster, &exposed, READ_ONLY).await;
    }
    refuses_to_start(agent, "Read-only file system").await;
    drop(disk);
    // Repaired, and mounted read-only by mistake; then as it should be.
    let disk = Mount::ext4(&image);
    let data = disk.path().join("data").display().to_string();
    agent.change(|spec| spec.env("CADASTRE_DATA", data));
    disk.remount("ro");
    refuses_to_start(agent, "Read-only file system").await;
    disk.remount("rw");
    cluster.restart_agent("eu").await;
    goes_on(&cluster, "eu", &exposed, 600).await;
    nothing_was_lost(&cluster, &exposed).await;
    agent.kill9();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_turns_read_only_stops_grants_and_loses_nothing() {
    if !available("an authority on a disk that turns read-only") {
        return;
    }
    let folder = Scratch::new("image");
    let image = folder.path().join("disk.img");
    let disk = Mount::ext4(&image);
    let (cluster, exposed) = authority_on(&disk.path().join("data").display().to_string()).await;
    if goes_on_read_only(&disk, &cluster.authority).await {
        authority_in_trouble(&cluster, &exposed, READ_ONLY).await;
    }
    refuses_to_start(&cluster.authority, "Read-only file system").await;
    drop(disk);
    let disk = Mount::ext4(&image);
    let data = disk.path().join("data").display().to_string();
    cluster.authority.change(|spec| spec.env("CADASTRE_DATA", data));
    cluster.restart_authority().await;
    for region in ["eu", "us"] {
        goes_on(&cluster, region, &exposed, 3_000).await;
    }
    nothing_was_lost(&cluster, &exposed).await;
    cluster.authority.kill9();
}

/// Runs `daemon` under load until its nth fsync fails: it must end at once, and say why.
async fn ends_at_failed_fsync(daemon: &Daemon, nth: u32) {
    let before = daemon.log().len();
    let inject = format!("inject=fsync,fdatasync:error=EIO:when={nth}");
    let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e", &inject];
    daemon.change(|spec| spec.wrapped(&strace));
    daemon.start_again();
    assert!(
        daemon.ended_within(Duration::from_secs(60)).await,
        "fsync {nth} failed, and it goes on:\n{}",
        daemon.log()
    );
    let log = daemon.log();
    let told = &log[before..];
    assert!(told.contains(FAILED_FSYNC), "fsync {nth}: {told}");
    assert_eq!(daemon.exit_code(), Some(134), "fsync {nth}: it aborts: {told}");
    daemon.change(|spec| spec.wrapped(&[]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_fsync_ends_the_process_and_loses_nothing() {
    let builder = Cluster::builder().region("eu").namespace_with("orders", fixed(400, 50));
    let (cluster, exposed) = (builder.start().await, Arc::new(Exposed::new()));
    let plan = Plan::of(&cluster, "eu", "orders").count(COUNT).tasks(2).pause(Duration::from_millis(1));
    let load = Load::start(plan, exposed.clone());
    // Early ones hit the start itself, late ones a carve or a grant under load.
    for nth in [1, 3, 8, 20, 45] {
        assert!(load.successes_within(20, Duration::from_secs(30)).await);
        ends_at_failed_fsync(&cluster.region("eu").agent, nth).await;
        cluster.restart_agent("eu").await;
        assert!(load.successes_within(20, Duration::from_secs(30)).await);
        ends_at_failed_fsync(&cluster.authority, nth).await;
        cluster.restart_authority().await;
    }
    assert!(load.successes_within(100, Duration::from_secs(30)).await);
    load.stop().await;
    nothing_was_lost(&cluster, &exposed).await;
    say(&format!("10 failed fsyncs: each ended its process; {} ids, none twice", exposed.total()));
}
