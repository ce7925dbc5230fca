//! Time-based namespaces as they are run: windows of regions and workers, workers that are killed, paused and replaced,
//! regions that are recovered, stores that are put back.

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tests::cluster::{Builder, Cluster};
use tests::http;
use tests::region::Problem;
use tests::scratch::Scratch;

use crate::hand::{fresh, now_ms};
use crate::help::{assert_clean_log, copy_folder, number, put_back, quick, step, until};

/// Windows of six seconds, and a minute for a region that is cut off.
pub fn events(worker_bits: u32, region_bits: u32) -> Value {
    let layout = json!({"timestamp": 41, "region": region_bits, "worker": worker_bits, "sequence": 12});
    let policy = json!({"target_seconds": 6, "buffer_seconds": 2, "grant_target_seconds": 60});
    json!({"name": "events", "kind": "snowflake", "layout": layout, "policy": policy})
}

pub fn cluster() -> Builder {
    quick().region("eu").define(events(7, 3))
}

pub struct Id {
    pub unit: u64,
    pub slot: u64,
    pub worker: u64,
}

pub fn parts(id: i64, worker_bits: u32, region_bits: u32) -> Id {
    let id = u64::try_from(id).unwrap();
    let field = |shift: u32, bits: u32| (id >> shift) & ((1 << bits) - 1);
    Id {
        unit: id >> (12 + worker_bits + region_bits),
        slot: field(12 + worker_bits, region_bits),
        worker: field(12, worker_bits),
    }
}

/// A process that stamps by itself, played by hand.
pub struct Stamper {
    incarnation: String,
    chain: Option<String>,
    last: Value,
}

impl Stamper {
    pub fn new(n: u64) -> Self {
        Self { incarnation: format!("a8098c1a-f86e-41da-bd1a-{n:012x}"), chain: None, last: Value::Null }
    }

    async fn call(&mut self, cluster: &Cluster, method: &str, path: &str, more: Value) -> Result<Value, Problem> {
        let mut body = json!({"namespace": "events", "incarnation": self.incarnation, "instance": "hand"});
        body["chain"] = self.chain.clone().map_or(Value::Null, Value::String);
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let url = format!("{}/v1/workers{path}", cluster.region("eu").url);
        let answer = http::call(method, &url, Some(&cluster.service_token), Some(&body)).await;
        let (status, headers, value) = answer.map_err(|error| Problem::connection(&error))?;
        if !(200..300).contains(&status) {
            return Err(Problem::of(status, &headers, &value));
        }
        self.chain = Some(value["chain"].as_str().unwrap().to_owned());
        self.last = value.clone();
        Ok(value)
    }

    pub async fn take(&mut self, cluster: &Cluster, n: u64) -> Result<Value, Problem> {
        self.call(cluster, "POST", "", json!({"allocation_id": fresh(n)})).await
    }

    async fn renew(&mut self, cluster: &Cluster) -> Result<Value, Problem> {
        let path = format!("/{}/renew", self.last["worker"]);
        self.call(cluster, "POST", &path, json!({})).await
    }

    async fn end(&mut self, cluster: &Cluster, stamped_to: u64) -> Result<Value, Problem> {
        let path = format!("/{}", self.last["worker"]);
        self.call(cluster, "DELETE", &path, json!({"stamped_to": stamped_to.to_string()})).await
    }

    fn window(&self) -> (u64, u64) {
        (number(&self.last["lo"]), number(&self.last["hi"]))
    }
}

/// Enters ids and checks that none was there.
pub fn enter(seen: &mut BTreeSet<i64>, ids: Vec<i64>) {
    for id in ids {
        assert!(seen.insert(id), "{id} was issued twice");
    }
}

pub async fn sound(cluster: &Cluster) {
    let audit = cluster.audit().await;
    assert_eq!(audit["ok"], true, "{audit}");
    assert!(audit["checked"]["windows"].as_u64().unwrap() > 0, "{audit}");
    assert_clean_log(&cluster.authority, &[]);
    for region in cluster.regions() {
        assert_clean_log(&region.agent, &[]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_rise_in_two_regions_and_say_who_stamped_them() {
    let cluster = cluster().region("us").start().await;
    let mut seen = BTreeSet::new();
    for region in ["eu", "us"] {
        let mut last = 0;
        for count in [1, 1, 10_000, 3, 10_000] {
            let ids = cluster.ids(region, "events", count).await.unwrap();
            assert!(ids.windows(2).all(|pair| pair[0] < pair[1]) && ids[0] > last, "ids rise");
            last = *ids.last().unwrap();
            enter(&mut seen, ids);
        }
        let path = format!("/v1/origins/events/{last}");
        let origin = cluster.operate("GET", &path, None).await.unwrap();
        let said = parts(last, 7, 3);
        assert_eq!((origin["region"].as_str(), origin["partial"].as_bool()), (Some(region), Some(false)), "{origin}");
        assert_eq!(origin["decoded"]["worker"].as_u64(), Some(said.worker), "{origin}");
        assert!(now_ms().abs_diff(number(&origin["decoded"]["stamped_at"])) < 60_000, "{origin}");
        // Case 11: as a number it has no origin, also where it points into the time of somebody.
        let rounded = format!("/v1/origins/events/{}", (last as u64 | 0xff_f000) ^ 0x3_0000);
        let refused = cluster.operate("GET", &rounded, None).await.unwrap_err();
        assert_eq!(refused.code, "unknown_id", "{refused}");
    }
    let slots: BTreeSet<u64> = seen.iter().map(|id| parts(*id, 7, 3).slot).collect();
    assert_eq!(slots.len(), 2, "each region stamps in a slot of its own");
    sound(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_agent_stamps_nothing_of_its_old_window_and_goes_on() {
    let cluster = cluster().start().await;
    let mut seen = BTreeSet::new();
    enter(&mut seen, cluster.ids("eu", "events", 1_000).await.unwrap());
    let agent = &cluster.region("eu").agent;
    agent.pause();
    tokio::time::sleep(Duration::from_secs(8)).await;
    agent.resume();
    for _ in 0..50 {
        if let Ok(ids) = cluster.ids("eu", "events", 100).await {
            enter(&mut seen, ids);
        }
    }
    cluster.until_served("eu", "events").await;
    sound(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_is_one_process_at_a_time_and_a_late_renewal_is_refused() {
    // Two worker ids: the agent's own, and one.
    let cluster = quick().region("eu").define(events(1, 3)).start().await;
    let (mut first, mut second) = (Stamper::new(1), Stamper::new(2));
    first.take(&cluster, 1).await.unwrap();
    let (_, before) = first.window();
    tokio::time::sleep(Duration::from_millis(300)).await;
    first.renew(&cluster).await.unwrap();
    let (lo, hi) = first.window();
    assert!(hi > before && hi - lo > 5_000, "{lo} {before} {hi}");
    let refused = second.take(&cluster, 2).await.unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (503, "no_worker_free"), "{refused}");
    assert!(refused.retry_after.is_some_and(|seconds| (1..=8).contains(&seconds)), "{refused:?}");
    assert!(refused.detail.contains("the next window ends"), "{refused}");
    // The first one is stopped hard: nothing of its window is anybody else's before its end.
    until("the worker is free", async || {
        // The agent keeps its own.
        let _ = cluster.ids("eu", "events", 1).await;
        match second.take(&cluster, 3).await {
            Ok(_) => true,
            Err(refused) => {
                assert_eq!(refused.code, "no_worker_free", "{refused}");
                false
            }
        }
    })
    .await;
    assert_eq!(first.last["worker"], second.last["worker"]);
    assert!(second.window().0 >= hi, "the successor begins at or above its end");
    let refused = first.renew(&cluster).await.unwrap_err();
    assert_eq!(refused.code, "window_ended", "a late renewal: {refused}");
    // A true end frees it at once, once, and never below what was stamped.
    let (lo, _) = second.window();
    second.end(&cluster, lo + 100).await.unwrap();
    assert_eq!(second.window().1, lo + 100);
    assert_eq!(second.end(&cluster, lo + 1).await.unwrap_err().code, "window_ended");
    assert_eq!(second.renew(&cluster).await.unwrap_err().code, "window_ended");
    let mut third = Stamper::new(3);
    until("the clock is past the true end", async || {
        let _ = cluster.ids("eu", "events", 1).await;
        third.take(&cluster, 4).await.is_ok()
    })
    .await;
    assert!(third.window().0 >= lo + 100);
    sound(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_08_two_copies_of_a_stamper_are_found() {
    let cluster = cluster().start().await;
    let mut one = Stamper::new(1);
    let request = json!({"allocation_id": fresh(1)});
    let taken = one.call(&cluster, "POST", "", request.clone()).await.unwrap();
    // The same request again, its answer lost: the same window, once more.
    one.chain = None;
    let again = one.call(&cluster, "POST", "", request).await.unwrap();
    assert_eq!((&again["worker"], &again["lo"]), (&taken["worker"], &taken["lo"]));
    assert_eq!(again["replayed"], true);
    // A copy of the whole process goes on from the same token.
    let mut copy = Stamper { incarnation: one.incarnation.clone(), chain: one.chain.clone(), last: one.last.clone() };
    one.renew(&cluster).await.unwrap();
    one.renew(&cluster).await.unwrap();
    assert_eq!(copy.renew(&cluster).await.unwrap_err().code, "epoch_fenced");
    assert_eq!(one.renew(&cluster).await.unwrap_err().code, "epoch_fenced", "neither goes on");
    // Another process never gets at its worker, whatever it calls itself.
    let mut stranger = Stamper::new(2);
    stranger.last = one.last.clone();
    assert_eq!(stranger.renew(&cluster).await.unwrap_err().code, "window_ended");
    sound(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_07_pod_churn_never_reuses_a_worker_early() {
    let cluster = cluster().limits(json!({})).start().await;
    let mut windows: Vec<(u64, u64, u64)> = Vec::new();
    let (mut n, mut waited) = (0, 0);
    for _ in 0..2 {
        for _ in 0..100 {
            n += 1;
            let mut pod = Stamper::new(n);
            let end = Instant::now() + Duration::from_secs(60);
            while let Err(refused) = pod.take(&cluster, 1_000 + n).await {
                assert_eq!(refused.code, "no_worker_free", "{refused}");
                assert!(refused.retry_after.is_some(), "{refused:?}");
                assert!(Instant::now() < end, "it recovers by itself");
                waited += 1;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            let (lo, hi) = pod.window();
            windows.push((pod.last["worker"].as_u64().unwrap(), lo, hi));
        }
        // All of them are killed hard: nobody renews, nobody says goodbye.
    }
    windows.sort_unstable();
    for pair in windows.windows(2) {
        assert!(pair[0].0 != pair[1].0 || pair[0].2 <= pair[1].1, "{pair:?} overlap");
    }
    eprintln!("200 pods at 128 worker ids: waited {waited} times");
    sound(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovered_region_stamps_in_another_slot_and_a_full_layout_says_when() {
    // Two slots, and two regions in them.
    let mut body = events(7, 1);
    body["policy"]["grant_target_seconds"] = json!(15);
    let cluster = quick().region("eu").region("us").define(body).start().await;
    let mut seen = BTreeSet::new();
    let before = cluster.ids("eu", "events", 100).await.unwrap();
    let slot = parts(before[0], 7, 1).slot;
    enter(&mut seen, before);
    let mut old = Stamper::new(1);
    old.take(&cluster, 1).await.unwrap();
    // Cut off, its workers alive: what they hold is theirs until it ends.
    cluster.region("eu").link.cut();
    step(&cluster, "eu", "fence", json!({"reason": "test"})).await.unwrap();
    step(&cluster, "eu", "recover", json!({})).await.unwrap();
    if let Ok(ids) = cluster.ids("eu", "events", 100).await {
        enter(&mut seen, ids);
    }
    let (_, hi) = old.window();
    cluster.region("eu").link.heal();
    until("the old epoch's renewals are refused", async || {
        old.renew(&cluster).await.is_err_and(|refused| matches!(refused.code.as_str(), "epoch_fenced" | "layout_full"))
    })
    .await;
    let mut told = false;
    until("the region stamps again", async || match cluster.ids("eu", "events", 100).await {
        Ok(ids) => {
            let id = parts(ids[0], 7, 1);
            assert_eq!(id.slot, slot, "the other one is us's");
            assert!(id.unit >= hi, "it begins above everything that the old epoch may stamp");
            enter(&mut seen, ids);
            true
        }
        Err(refused) => {
            told |= refused.code == "layout_full";
            tokio::time::sleep(Duration::from_millis(200)).await;
            false
        }
    })
    .await;
    assert!(told, "it was told that no slot is free");
    sound(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_15_made_again_a_namespace_goes_on_where_its_windows_were() {
    let cluster = cluster().start().await;
    let mut seen = BTreeSet::new();
    let mut held = Stamper::new(1);
    held.take(&cluster, 1).await.unwrap();
    enter(&mut seen, cluster.ids("eu", "events", 1_000).await.unwrap());
    cluster.operate("DELETE", "/v1/namespaces/events", None).await.unwrap();
    until("the agent hears of it", async || cluster.ids("eu", "events", 1).await.is_err()).await;
    let other = json!({"name": "events", "kind": "snowflake", "layout": {"timestamp": 40, "region": 3, "worker": 8, "sequence": 12}});
    assert_eq!(cluster.operate("POST", "/v1/namespaces", Some(&other)).await.unwrap_err().code, "not_allowed");
    let range = json!({"name": "events"});
    assert_eq!(cluster.operate("POST", "/v1/namespaces", Some(&range)).await.unwrap_err().code, "not_allowed");
    cluster.operate("POST", "/v1/namespaces", Some(&json!({"name": "events", "kind": "snowflake"}))).await.unwrap();
    cluster.until_served("eu", "events").await;
    enter(&mut seen, cluster.ids("eu", "events", 1_000).await.unwrap());
    let mut next = Stamper::new(2);
    next.take(&cluster, 2).await.unwrap();
    assert!(next.last["worker"] != held.last["worker"] || next.window().0 >= held.window().1);
    sound(&cluster).await;
}

/// An authority's store of before a region had time, and before another one's was renewed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_that_a_restored_store_forgot_is_not_given_again() {
    let cluster = quick().region("eu").region("us").define(events(7, 3)).start().await;
    let mut seen = BTreeSet::new();
    let slots = async || {
        let shown = cluster.operate("GET", "/v1/namespaces/events", None).await.unwrap();
        let slots = shown["slots"].as_array().unwrap().clone();
        slots.iter().map(|s| (s["slot"].as_u64().unwrap(), number(&s["until"]))).collect::<Vec<_>>()
    };
    cluster.authority.kill9();
    let copy = Scratch::new("backup");
    copy_folder(&cluster.authority.data_folder(), copy.path());
    cluster.restart_authority().await;
    let old = slots().await;
    // A region more, with a slot and time that the copy does not know, and renewals of the others.
    step(&cluster, "us", "fence", json!({"reason": "test"})).await.unwrap();
    step(&cluster, "us", "recover", json!({})).await.unwrap();
    until("us stamps in another slot", async || {
        slots().await.len() == 3 && cluster.ids("us", "events", 1).await.is_ok_and(|ids| seen.insert(ids[0]))
    })
    .await;
    let first = cluster.ids("eu", "events", 1).await.unwrap();
    let own = parts(first[0], 7, 3).slot;
    enter(&mut seen, first);
    let until_ms = |all: &[(u64, u64)]| all.iter().find(|slot| slot.0 == own).map_or(0, |slot| slot.1);
    until("eu's time was renewed", async || until_ms(&slots().await) > until_ms(&old) + 3_000).await;
    for region in ["eu", "us"] {
        enter(&mut seen, cluster.ids(region, "events", 1_000).await.unwrap());
    }
    let before = slots().await;
    cluster.authority.kill9();
    put_back(copy.path(), &cluster.authority.data_folder());
    cluster.restart_authority().await;
    until("it knows again what was given", async || {
        let now = slots().await;
        now.len() == before.len() && now.iter().zip(&before).all(|(now, before)| now.1 >= before.1)
    })
    .await;
    for region in ["eu", "us"] {
        cluster.until_served(region, "events").await;
        enter(&mut seen, cluster.ids(region, "events", 1_000).await.unwrap());
    }
    sound(&cluster).await;
}
