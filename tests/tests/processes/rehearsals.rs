//! Drills in which the region is heard throughout: its home is given away and comes back, its agents' clocks are wrong.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cadastre_client::Client;
use serde_json::{Value, json};
use tests::cluster::{Cluster, fixed};
use tests::ledger_of_ids::Exposed;
use tests::load::{Load, Plan};

use crate::drills::{look, order, until_state};
use crate::help::{assert_sound, metric, number, quick, take, until};
use crate::windows::{self, enter, events, sound};

/// Segments and headroom that no machine's callers use up at once.
async fn two() -> Cluster {
    let mut policy = fixed(200_000, 20_000);
    policy["region_max_held"] = json!("20000000");
    quick().region("eu").region("us").namespace_with("orders", policy).start().await
}

fn failover(seconds: u32) -> Value {
    json!({"kind": "failover", "region": "eu", "to": "us", "namespace": "orders", "for_seconds": seconds, "confirm": "eu"})
}

fn slow(cluster: &Cluster, region: &str) -> Plan {
    Plan::of(cluster, region, "orders").count(10).tasks(1).pause(Duration::from_millis(20))
}

async fn entry(cluster: &Cluster) -> Value {
    cluster.operate("GET", "/v1/namespaces/orders", None).await.unwrap_or_default()
}

async fn until_home(cluster: &Cluster, home: &Value) {
    until("the home is that", async || entry(cluster).await.get("home") == Some(home)).await;
}

/// As it was before anybody rehearsed anything.
async fn assert_as_before(cluster: &Cluster, exposed: &Exposed) {
    let now = entry(cluster).await;
    assert_eq!((&now["home"], now.get("leaving"), now.get("arriving")), (&Value::Null, None, None), "{now}");
    cluster.until_served("eu", "orders").await;
    take(cluster, "eu", "orders", 100, 10, exposed).await;
    take(cluster, "us", "orders", 100, 10, exposed).await;
    assert_sound(cluster, exposed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_home_is_away_for_as_long_as_it_says_and_comes_back() {
    let (cluster, exposed) = (two().await, Arc::new(Exposed::new()));
    let us = Load::start(slow(&cluster, "us"), Arc::clone(&exposed));
    let eu = Load::start(slow(&cluster, "eu"), Arc::clone(&exposed));
    assert!(eu.successes_within(20, Duration::from_secs(20)).await);
    let client = Client::builder().token(&*cluster.service_token).name("till").agent(&*cluster.region("eu").url);
    let orders = client.deadline(Duration::from_secs(30)).build().unwrap().namespace("orders").unwrap();
    exposed.record("client", &[orders.next().await.unwrap().get()]);
    let id = order(&cluster, failover(4)).await;
    until_home(&cluster, &json!(["us"])).await;
    // Nobody else moves it meanwhile.
    let other = json!({"namespace": "orders", "from": "us", "to": "eu"});
    let problem = cluster.operate("POST", "/v1/switches", Some(&other)).await.unwrap_err();
    assert!(problem.detail.contains("under way"), "{problem}");
    exposed.record("client", &[orders.next().await.unwrap().get()]);
    let ended = until_state(&cluster, &id, "ended").await;
    eu.stop().await;
    assert_eq!(us.stop().await.failures(), 0, "callers of the region that takes over never noticed");
    let report = &ended["report"];
    assert_eq!(report["verdict"], "passed", "{ended}");
    assert!(report["cut_seconds"].as_f64().unwrap() >= 4.0 && report["heal_seconds"].is_f64(), "{report}");
    for region in ["eu", "us"] {
        assert!(number(&report["regions"][region]["orders"]["issued"]) > 0, "{report}");
    }
    assert!(report["errors"]["not_home"].as_u64().is_some_and(|n| n > 0), "callers of eu were sent to us: {report}");
    assert_eq!(report["verified"]["ok"], true, "{report}");
    let lines = ended["lines"].to_string();
    for step in ["both regions watch", "switch: moved:", "away: us", "home: the homes", "eu knows"] {
        assert!(lines.contains(step), "{step}: {lines}");
    }
    let text = ended["markdown"].as_str().unwrap();
    assert!(text.contains("**passed**") && text.contains("At us:") && text.contains("failover of eu to us"), "{text}");
    assert_as_before(&cluster, &exposed).await;
}

/// The authority is killed as soon as each state is seen, with nobody at a terminal: it comes home by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_home_comes_back_though_the_authority_dies_on_the_way() {
    let (cluster, exposed) = (two().await, Arc::new(Exposed::new()));
    let us = Load::start(slow(&cluster, "us"), Arc::clone(&exposed));
    take(&cluster, "eu", "orders", 200, 10, &exposed).await;
    let id = order(&cluster, failover(3)).await;
    let (mut seen, bound) = (Vec::new(), Instant::now() + Duration::from_secs(120));
    let ended = loop {
        let now = look(&cluster, &id).await;
        assert!(Instant::now() < bound, "not ended after 120 s; seen {seen:?}: {now}");
        if now["state"] == "ended" {
            break now;
        }
        let at = format!("{} {}", now["state"], now["ends_at"].is_string());
        if now["state"].is_string() && !seen.contains(&at) {
            seen.push(at);
            cluster.authority.kill9();
            cluster.restart_authority().await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(seen.len() > 1, "{seen:?}");
    us.stop().await;
    assert_eq!(ended["report"]["verdict"], "passed", "{ended}");
    let switch = cluster.operate("GET", "/v1/switches", None).await.unwrap()["switches"].clone();
    assert_eq!((switch.as_array().unwrap().len(), &switch[0]["step"]), (1, &json!("backed_out")), "{switch}");
    assert_as_before(&cluster, &exposed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_is_aborted_and_what_cannot_be_is_refused() {
    let (cluster, exposed) = (two().await, Exposed::new());
    take(&cluster, "eu", "orders", 200, 10, &exposed).await;
    let with = |key: &str, value: Value| {
        let mut body = failover(60);
        body[key] = value;
        body
    };
    for (body, word) in [
        (with("confirm", Value::Null), "confirm"),
        (with("to", Value::Null), "to:"),
        (with("to", json!("eu")), "two regions"),
        (with("to", json!("mars")), "mars"),
        (with("namespace", json!("nothing")), "nothing"),
        (with("until_dry", json!(true)), "until_dry"),
        (with("clock_ms", json!(5)), "clock_ms"),
    ] {
        let problem = cluster.operate("POST", "/v1/drills", Some(&body)).await.unwrap_err();
        assert!((400..500).contains(&problem.status) && problem.detail.contains(word), "{body}: {problem}");
    }
    let id = order(&cluster, failover(600)).await;
    until_home(&cluster, &json!(["us"])).await;
    let path = format!("/v1/drills/{id}/abort");
    for _ in 0..2 {
        cluster.operate("POST", &path, Some(&json!({}))).await.unwrap();
    }
    let ended = until_state(&cluster, &id, "ended").await;
    assert_eq!(ended["report"]["verdict"], "aborted", "{ended}");
    // us goes away in the middle: the home does not wait for it.
    let id = order(&cluster, failover(600)).await;
    until_home(&cluster, &json!(["us"])).await;
    cluster.region("us").link.cut();
    until_home(&cluster, &Value::Null).await;
    take(&cluster, "eu", "orders", 100, 10, &exposed).await;
    cluster.region("us").link.heal();
    let ended = until_state(&cluster, &id, "ended").await;
    assert_eq!(ended["report"]["verdict"], "failed", "{ended}");
    assert!(ended["report"]["why"].to_string().contains("not been heard"), "{ended}");
    assert_as_before(&cluster, &exposed).await;
}

/// Asks until the drill ends, and keeps what came and what was refused.
async fn ask_through(cluster: &Cluster, id: &str, seen: &mut BTreeSet<i64>) -> (Value, BTreeSet<String>) {
    let (mut refusals, bound) = (BTreeSet::new(), Instant::now() + Duration::from_secs(150));
    loop {
        match cluster.ids("eu", "events", 10).await {
            Ok(ids) => enter(seen, ids),
            Err(problem) => {
                refusals.insert(problem.code);
            }
        }
        let now = look(cluster, id).await;
        if now["state"] == "ended" {
            return (now, refusals);
        }
        assert!(Instant::now() < bound, "not ended after 150 s: {now}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn clock(by_ms: i64, seconds: u32) -> Value {
    json!({"kind": "clock", "region": "eu", "clock_ms": by_ms, "for_seconds": seconds, "confirm": "eu"})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_read_wrong_is_noticed_and_goes_right_by_itself() {
    let cluster = windows::cluster().region("us").namespace("orders").start().await;
    let mut seen = BTreeSet::new();
    cluster.until_served("eu", "events").await;
    enter(&mut seen, cluster.ids("eu", "events", 100).await.unwrap());
    for (by_ms, refusal) in [(-30_000, "clock_rollback"), (3_600_000, "window_ended")] {
        let id = order(&cluster, clock(by_ms, 5)).await;
        let (ended, refusals) = ask_through(&cluster, &id, &mut seen).await;
        assert_eq!(ended["report"]["verdict"], "passed", "{ended}");
        assert!(refusals.contains(refusal), "{by_ms}: {refusals:?}");
        assert!(ended["report"]["errors"][refusal].as_u64().is_some_and(|n| n > 0), "{ended}");
        assert!(ended["lines"].to_string().contains("noticed: the region's clock is off by"), "{ended}");
        assert!(ended["markdown"].as_str().unwrap().contains("The clock was off"), "{ended}");
        // The drill ends once stamps are to be had again.
        cluster.until_served("eu", "events").await;
        enter(&mut seen, cluster.ids("eu", "events", 1_000).await.unwrap());
    }
    assert!(metric(&cluster.region("eu").url, "cadastre_clock_rollbacks_total", "events").await >= 1.0);
    for (body, word) in
        [(clock(0, 5), "clock_ms"), (clock(86_400_001, 5), "clock_ms"), (clock(i64::MIN, 5), "clock_ms")]
    {
        let problem = cluster.operate("POST", "/v1/drills", Some(&body)).await.unwrap_err();
        assert!(problem.status == 422 && problem.detail.contains(word), "{body}: {problem}");
    }
    sound(&cluster).await;
}

/// Nobody is left to end it, and numbers never stopped; later it is aborted at the authority.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_goes_right_though_nobody_is_left_and_when_it_is_told_to() {
    let builder = quick().region("eu").define(events(7, 3)).namespace_with("orders", fixed(20_000, 1_000));
    let cluster = builder.start().await;
    let mut seen = BTreeSet::new();
    cluster.until_served("eu", "events").await;
    enter(&mut seen, cluster.ids("eu", "events", 100).await.unwrap());
    cluster.ids("eu", "orders", 10).await.unwrap();
    let wrong = async || cluster.ids("eu", "events", 1).await.is_err_and(|problem| problem.code == "clock_rollback");
    let id = order(&cluster, clock(-3_600_000, 6)).await;
    until("stamps are refused", wrong).await;
    cluster.authority.kill9();
    cluster.ids("eu", "orders", 10).await.expect("numbers go on");
    until("stamps are to be had", async || cluster.ids("eu", "events", 1).await.is_ok()).await;
    enter(&mut seen, cluster.ids("eu", "events", 100).await.unwrap());
    cluster.restart_authority().await;
    until_state(&cluster, &id, "ended").await;
    let id = order(&cluster, clock(-3_600_000, 600)).await;
    until("stamps are refused", wrong).await;
    cluster.operate("POST", &format!("/v1/drills/{id}/abort"), Some(&json!({}))).await.unwrap();
    let ended = until_state(&cluster, &id, "ended").await;
    assert_eq!(ended["report"]["verdict"], "aborted", "{ended}");
    enter(&mut seen, cluster.ids("eu", "events", 1_000).await.unwrap());
    sound(&cluster).await;
}

/// What is due begins once; what cannot begin is skipped, and says why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_repeated_begins_once_and_is_skipped_with_its_reason() {
    let (cluster, exposed) = (two().await, Exposed::new());
    take(&cluster, "eu", "orders", 200, 10, &exposed).await;
    let now = crate::hand::now_ms();
    let put = |drill: Value, next_at: u64, hours: u32| json!({"drill": drill, "every_hours": hours, "next_at": next_at.to_string()});
    let cut = json!({"kind": "wan_cut", "region": "eu", "for_seconds": 2, "confirm": "eu"});
    let unsure = json!({"kind": "wan_cut", "region": "eu", "for_seconds": 2});
    for (body, word) in [
        (put(cut.clone(), now, 0), "every_hours"),
        (put(cut.clone(), 5, 168), "next_at"),
        (put(cut.clone(), u64::MAX, 168), "next_at"),
        (put(unsure, now, 168), "confirm"),
    ] {
        let problem = cluster.operate("PUT", "/v1/drills/schedule", Some(&body)).await.unwrap_err();
        assert!(problem.status == 422 && problem.detail.contains(word), "{body}: {problem}");
    }
    let all = async || cluster.operate("GET", "/v1/drills", None).await.unwrap_or_default();
    assert_eq!(all().await["schedule"], Value::Null);
    let set = async |drill: &Value, hours: u32| {
        let body = put(drill.clone(), crate::hand::now_ms(), hours);
        let set = cluster.operate("PUT", "/v1/drills/schedule", Some(&body)).await.unwrap();
        until("it is looked at", async || all().await["schedule"]["last"].is_string()).await;
        (number(&set["next_at"]), all().await)
    };
    let (next_at, begun) = set(&clock(-30_000, 600), 168).await;
    assert_eq!(
        (begun["drills"].as_array().unwrap().len(), &begun["drills"][0]["who"]),
        (1, &json!("schedule")),
        "{begun}"
    );
    let id = begun["drills"][0]["drill_id"].as_str().unwrap().to_owned();
    assert_eq!(begun["schedule"]["last"], json!(format!("begun: drill {id}")), "{begun}");
    assert_eq!(number(&begun["schedule"]["next_at"]), next_at + 168 * 3_600_000, "{begun}");
    // Due again while that one is under way.
    let (_, skipped) = set(&cut, 24).await;
    let why = skipped["schedule"]["last"].as_str().unwrap();
    assert!(why.starts_with("skipped:") && why.contains("one at most"), "{skipped}");
    cluster.operate("POST", &format!("/v1/drills/{id}/abort"), Some(&json!({}))).await.unwrap();
    until_state(&cluster, &id, "ended").await;
    // A day of the rate that was seen is more than a hundredth of what is held.
    let mut whole_day = cut.clone();
    (whole_day["for_seconds"], whole_day["share_percent"]) = (json!(86_400), json!(1));
    until("the rate is known", async || {
        let headroom = cluster.headroom().await;
        let regions = headroom["namespaces"][0]["regions"].as_array().cloned().unwrap_or_default();
        regions.iter().any(|r| r["region"] == "eu" && r["runway_at_peak_seconds"].is_u64())
    })
    .await;
    let (_, skipped) = set(&whole_day, 24).await;
    assert!(skipped["schedule"]["last"].as_str().unwrap().contains("headroom is too small"), "{skipped}");
    assert_eq!(skipped["drills"].as_array().unwrap().len(), 1, "{skipped}");
    let (_, begun) = set(&cut, 24).await;
    let id = begun["drills"][0]["drill_id"].as_str().unwrap().to_owned();
    let ended = until_state(&cluster, &id, "ended").await;
    assert_eq!(ended["report"]["verdict"], "passed", "{ended}");
    let skipped = all().await;
    cluster.authority.kill9();
    cluster.restart_authority().await;
    assert_eq!(all().await["schedule"], skipped["schedule"]);
    assert!(metric(&cluster.url, "cadastre_drill_passed", "kind=\"wan_cut\"").await >= 1.0);
    for _ in 0..2 {
        cluster.operate("DELETE", "/v1/drills/schedule", None).await.unwrap();
        assert_eq!(all().await["schedule"], Value::Null);
    }
    // And set once more, after it was removed.
    cluster.operate("PUT", "/v1/drills/schedule", Some(&put(cut, now + 3_600_000, 24))).await.unwrap();
    assert_eq!(all().await["schedule"]["every_hours"], 24);
    assert_sound(&cluster, &exposed).await;
}
