//! Power cuts on the embedded stores: what was exposed before the power went is on the disk after it.
//!
//! A `kill -9` cannot show a missing fsync: the kernel still writes what the process left behind. So the
//! store lies on a disk whose content can be had as of any instant (see [`tests::mounts`]), and each cut is
//! judged twice: by the store's own rows, and by starting the shipped program on what the disk held. Every
//! life of a process ends with a cut that counts: the process is killed, and the next one lives on from that
//! disk, under the same load, with a ledger of everything that was ever exposed.
//!
//! The last life is cut while SQLite copies its log into the file, the one moment at which the order of two
//! files' writes counts.
//!
//! A disk that fails, is repaired and then loses its power is worse: after a failed fsync the kernel shows what
//! was never written, as long as it remembers it. A process that built upon that would lose all it exposed.
//!
//! The negative controls run the same cuts with SQLite's durability weakened. They must lose something: that
//! proves that these tests can fail.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::indexing_slicing)]

use serde_json::{Value, json};
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tests::cluster::{Cluster, fixed};
use tests::http;
use tests::ledger_of_ids::Exposed;
use tests::load::{Load, Plan};
use tests::mounts::{Cut, Disk, available, say};
use tests::ports;
use tests::process::{Daemon, Spec};
use tests::region::{Setup, agent_spec, ask_ids};
use tests::scratch::Scratch;

/// Lives of the process with the shipped settings, and cuts in each before the one that ends it.
const LIVES: usize = 6;
const CUTS: usize = 10;
/// Which of the lives lasts until the log is copied.
const LONG_LIFE: usize = LIVES - 1;
/// Failures of the disk, each followed by a repair and two cuts.
const BREAKDOWNS: usize = 4;
/// Cuts of the negative control.
const WEAK_CUTS: usize = 20;
/// `2^63 - 1`: the ordinals of a namespace that is defined by the defaults.
const CAPACITY: i64 = i64::MAX;

/// What the cuts of one test came to.
#[derive(Default)]
struct Tally {
    cuts: usize,
    losses: Vec<String>,
}

impl Tally {
    fn judge(&mut self, verdict: Result<(), String>) {
        self.cuts += 1;
        self.losses.extend(verdict.err());
    }

    fn tell(&self, what: &str, exposed: &Exposed, began: Instant) {
        let (total, duplicates) = (exposed.total(), exposed.duplicates().0);
        say(&format!(
            "power cuts of {what}: {} cuts, {} losses; {total} ids exposed, {duplicates} twice; {:.1} s",
            self.cuts,
            self.losses.len(),
            began.elapsed().as_secs_f64()
        ));
    }
}

/// A random moment, so that cuts fall anywhere within a commit.
async fn a_moment() {
    let random = RandomState::new().hash_one(0) % 60_000;
    tokio::time::sleep(Duration::from_micros(2_000 + random)).await;
}

/// Whether the rows that the disk held reach as far as what was exposed. An id `n` of the default definition
/// is the ordinal `n - 1`, so it lies below an end `hi` exactly if `n <= hi`.
fn stored(cut: &Cut, file: &str, table: &str, exposed: i64) -> Result<(), String> {
    let (mounted, copy) = (cut.mount(), Scratch::new("copy"));
    // SQLite would begin to recover the store where the program has to.
    for part in ["", "-wal"] {
        let name = format!("{file}{part}");
        let _ = std::fs::copy(mounted.path().join("data").join(&name), copy.path().join(&name));
    }
    match end_of(&copy.path().join(file), table) {
        Ok(end) if end >= exposed => Ok(()),
        Ok(end) => Err(format!("{exposed} was exposed, but the store had come to {end} only")),
        Err(error) => Err(format!("{exposed} was exposed, but the store cannot be read: {error}")),
    }
}

fn end_of(file: &Path, table: &str) -> rusqlite::Result<i64> {
    let store = rusqlite::Connection::open(file)?;
    let sql = format!("SELECT COALESCE(MAX(hi), 0) FROM {table} WHERE namespace = 'orders'");
    store.query_row(&sql, [], |row| row.get(0))
}

/// Starts an agent on what the disk held, cut off from its authority: it must find its store sound, and give
/// out nothing that was exposed.
async fn agent_goes_on(cluster: &Cluster, cut: &Cut, port: u16, exposed: i64) -> Result<(), String> {
    let mounted = cut.mount();
    let token = cluster.region("eu").registration["token"].as_str().unwrap();
    let nowhere = "http://127.0.0.1:9";
    let setup = Setup { name: "eu", token, authority_url: nowhere, database_url: None, port };
    let data = mounted.path().join("data").display().to_string();
    let agent = Daemon::start(agent_spec(&setup).env("CADASTRE_DATA", data));
    let url = format!("http://127.0.0.1:{port}");
    agent.wait_ready(&format!("{url}/healthz")).await;
    let (_, _, status) = http::get_json(&format!("{url}/v1/status"), Some(&cluster.service_token)).await;
    if status["continuity"] != "witnessed" {
        return Err(format!("{exposed} was exposed; after the cut the store is {}", status["continuity"]));
    }
    // More than a segment, so that what it carves itself is seen too.
    let (client, until) = (http::client(), Instant::now() + Duration::from_secs(20));
    let mut ids = Vec::new();
    while ids.len() < 60 {
        match ask_ids(&client, &url, &cluster.service_token, "orders", 20).await {
            Ok(more) => ids.extend(more),
            Err(problem) if Instant::now() < until && problem.retry_after.is_some() => a_moment().await,
            Err(problem) => return Err(format!("nothing comes out after the cut: {problem}")),
        }
    }
    let lowest = ids.into_iter().min().unwrap_or_default();
    if lowest <= exposed {
        return Err(format!("{exposed} was exposed, and after the cut it went on with {lowest}"));
    }
    Ok(())
}

/// Starts an authority on what the disk held: it must find its store sound, and grant above all that was
/// exposed.
async fn authority_goes_on(cluster: &Cluster, cut: &Cut, port: u16, exposed: i64) -> Result<(), String> {
    let mounted = cut.mount();
    let data = mounted.path().join("data").display().to_string();
    let spec = Spec::binary("global-authority").env("CADASTRE_LISTEN", format!("127.0.0.1:{port}"));
    let authority = Daemon::start(spec.env("CADASTRE_DATA", data));
    let url = format!("http://127.0.0.1:{port}");
    authority.wait_ready(&format!("{url}/readyz")).await;
    let token = Some(cluster.operator_token.as_str());
    let (_, _, ready) = http::get_json(&format!("{url}/readyz"), token).await;
    let (_, _, headroom) = http::get_json(&format!("{url}/v1/headroom"), token).await;
    let left = headroom["namespaces"][0]["space_left"].as_str().and_then(|left| left.parse::<i64>().ok());
    let left = left.ok_or_else(|| format!("no namespace is left after the cut: {headroom}"))?;
    if ready["status"] != "ready" {
        return Err(format!("{exposed} was exposed; after the cut the authority is {}", ready["status"]));
    }
    if CAPACITY - left < exposed {
        return Err(format!("{exposed} was exposed, and after the cut it grants from {} on", CAPACITY - left));
    }
    Ok(())
}

/// A cluster whose agent of `eu`, or whose authority, keeps store and witness on `disk`.
async fn cluster_on(disk: &Disk, agent: bool) -> Cluster {
    let data = disk.path().join("data").display().to_string();
    let builder = Cluster::builder().region("eu");
    let builder = if agent {
        builder.agent_env("CADASTRE_DATA", &data).namespace_with("orders", fixed(1_000_000, 20))
    } else {
        builder.region("us").authority_env("CADASTRE_DATA", &data).namespace_with("orders", fixed(200, 50))
    };
    builder.start().await
}

fn keeps_on(daemon: &Daemon, disk: &Disk) {
    let data = disk.path().join("data").display().to_string();
    daemon.change(|spec| spec.env("CADASTRE_DATA", data));
}

/// Callers that use up a segment with every other call, so that most calls are answered out of a fresh carve.
fn callers(cluster: &Cluster, region: &str, exposed: &Arc<Exposed>) -> Load {
    Load::start(Plan::of(cluster, region, "orders").count(10).tasks(2), exposed.clone())
}

/// Cuts at random moments under load, each with the highest id that was exposed before it.
async fn cuts(disk: &Disk, exposed: &Exposed, number: usize) -> Vec<(i64, Cut)> {
    let mut cuts = Vec::new();
    for _ in 0..number {
        a_moment().await;
        let before = exposed.highest().expect("something was exposed");
        cuts.push((before, disk.cut()));
    }
    cuts
}

/// The same, from the moment on at which SQLite begins to copy its log into the file.
async fn cuts_at_checkpoint(disk: &Disk, file: &str, exposed: &Exposed) -> Vec<(i64, Cut)> {
    let file = disk.path().join("data").join(file);
    let written = || std::fs::metadata(&file).and_then(|it| it.modified()).expect("the store is there");
    let (was, until) = (written(), Instant::now() + Duration::from_secs(90));
    while written() == was {
        assert!(Instant::now() < until, "the log of {} is not copied into it", file.display());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let cut = |_| (exposed.highest().expect("something was exposed"), disk.cut());
    (0..CUTS).map(cut).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_loses_no_carve_that_it_exposed() {
    if !available("power cuts of an agent") {
        return;
    }
    let (began, port) = (Instant::now(), ports::free());
    let mut disk = Disk::new();
    let cluster = cluster_on(&disk, true).await;
    let (agent, exposed, mut tally) = (&cluster.region("eu").agent, Arc::new(Exposed::new()), Tally::default());
    for life in 0..LIVES {
        let load = callers(&cluster, "eu", &exposed);
        assert!(load.successes_within(20, Duration::from_secs(20)).await, "{}", agent.log());
        let taken = if life == LONG_LIFE {
            cuts_at_checkpoint(&disk, "region.db", &exposed).await
        } else {
            cuts(&disk, &exposed, CUTS).await
        };
        // The cut that ends this life: whatever reaches a caller from now on was sent before it.
        agent.pause();
        let last = disk.cut();
        agent.kill9();
        load.stop().await;
        for (before, cut) in taken {
            let verdict = stored(&cut, "region.db", "segments", before);
            let verdict = if verdict.is_ok() { agent_goes_on(&cluster, &cut, port, before).await } else { verdict };
            tally.judge(verdict);
        }
        tally.judge(stored(&last, "region.db", "segments", exposed.highest().unwrap()));
        disk.power_on(last);
        keeps_on(agent, &disk);
        cluster.restart_agent("eu").await;
        cluster.until_served("eu", "orders").await;
    }
    tally.tell("an agent", &exposed, began);
    exposed.assert_no_duplicates();
    assert!(tally.losses.is_empty(), "{:#?}", tally.losses);
    assert_eq!(cluster.verify().await, Vec::<String>::new());
    agent.kill9();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_loses_no_grant_that_it_exposed() {
    if !available("power cuts of an authority") {
        return;
    }
    let (began, port) = (Instant::now(), ports::free());
    let mut disk = Disk::new();
    let cluster = cluster_on(&disk, false).await;
    let (exposed, mut tally) = (Arc::new(Exposed::new()), Tally::default());
    let loads = [callers(&cluster, "eu", &exposed), callers(&cluster, "us", &exposed)];
    for life in 0..LIVES {
        for load in &loads {
            assert!(load.successes_within(20, Duration::from_secs(30)).await, "{}", cluster.authority.log());
        }
        let taken = if life == LONG_LIFE {
            cuts_at_checkpoint(&disk, "authority.db", &exposed).await
        } else {
            cuts(&disk, &exposed, CUTS).await
        };
        // Regions live on through this one, and what they hold is what they were granted before it.
        cluster.authority.pause();
        let last = disk.cut();
        cluster.authority.kill9();
        for (before, cut) in taken {
            let verdict = stored(&cut, "authority.db", "grants", before);
            let sound = verdict.is_ok();
            tally.judge(if sound { authority_goes_on(&cluster, &cut, port, before).await } else { verdict });
        }
        tally.judge(stored(&last, "authority.db", "grants", exposed.highest().unwrap()));
        disk.power_on(last);
        keeps_on(&cluster.authority, &disk);
        cluster.restart_authority().await;
    }
    for load in loads {
        assert!(load.successes_within(20, Duration::from_secs(30)).await, "{}", cluster.authority.log());
        load.stop().await;
    }
    tally.tell("an authority", &exposed, began);
    exposed.assert_no_duplicates();
    assert!(tally.losses.is_empty(), "{:#?}", tally.losses);
    let audit: Value = cluster.audit().await;
    assert_eq!((&audit["ok"], &audit["unreachable"]), (&json!(true), &json!([])), "{audit}");
    cluster.authority.kill9();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_exposed_after_a_failed_disk_was_repaired_is_not_lost() {
    if !available("power cuts after a failed disk") {
        return;
    }
    let (began, port, mut tally) = (Instant::now(), ports::free(), Tally::default());
    let exposed = Arc::new(Exposed::new());
    let disk = Disk::new();
    let cluster = cluster_on(&disk, true).await;
    let agent = &cluster.region("eu").agent;
    let load = callers(&cluster, "eu", &exposed);
    for _ in 0..BREAKDOWNS {
        assert!(load.successes_within(20, Duration::from_secs(20)).await, "{}", agent.log());
        disk.break_down();
        assert!(agent.ended_within(Duration::from_secs(30)).await, "it goes on without its disk:\n{}", agent.log());
        assert_eq!(agent.exit_code(), Some(134), "it aborts:\n{}", agent.log());
        disk.repair();
        cluster.restart_agent("eu").await;
        assert!(load.successes_within(50, Duration::from_secs(20)).await, "{}", agent.log());
        for (before, cut) in cuts(&disk, &exposed, 2).await {
            let verdict = stored(&cut, "region.db", "segments", before);
            let verdict = if verdict.is_ok() { agent_goes_on(&cluster, &cut, port, before).await } else { verdict };
            tally.judge(verdict);
        }
    }
    load.stop().await;
    tally.tell("an agent whose disk had failed before", &exposed, began);
    exposed.assert_no_duplicates();
    assert!(tally.losses.is_empty(), "{:#?}", tally.losses);
    agent.kill9();
}

/// Cuts of a store whose SQLite is weakened to `level`; what they came to.
async fn weakened(level: &str, agent: bool) -> Tally {
    let (began, disk) = (Instant::now(), Disk::new());
    let cluster = cluster_on(&disk, agent).await;
    let (what, daemon, file, table) = if agent {
        ("an agent", &cluster.region("eu").agent, "region.db", "segments")
    } else {
        ("an authority", &cluster.authority, "authority.db", "grants")
    };
    daemon.change(|spec| spec.arg("--unsafe-sqlite-synchronous").arg(level));
    if agent {
        cluster.restart_agent("eu").await
    } else {
        cluster.restart_authority().await
    }
    cluster.until_served("eu", "orders").await;
    let (exposed, mut tally) = (Arc::new(Exposed::new()), Tally::default());
    let load = callers(&cluster, "eu", &exposed);
    assert!(load.successes_within(100, Duration::from_secs(30)).await, "{}", daemon.log());
    for (before, cut) in cuts(&disk, &exposed, WEAK_CUTS).await {
        tally.judge(stored(&cut, file, table, before));
    }
    load.stop().await;
    daemon.kill9();
    tally.tell(&format!("{what} with synchronous={level}"), &exposed, began);
    tally
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_weakened_store_loses_what_it_exposed() {
    if !available("the negative control of power cuts") {
        return;
    }
    for (level, agent) in [("off", true), ("off", false), ("normal", true)] {
        let Tally { cuts, losses } = weakened(level, agent).await;
        assert!(!losses.is_empty(), "{cuts} cuts with synchronous={level} lost nothing: these tests prove nothing");
    }
}
