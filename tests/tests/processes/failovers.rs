//! The server behind a store's address becomes another one, under living processes: a standby that was promoted, a
//! copy that was put back, a dump in another cluster. Found before any grant, healed without a person wherever the
//! holders can testify, and no number twice.

use serde_json::Value;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tests::cluster::{Backend, Builder, Cluster, fixed};
use tests::ledger_of_ids::Exposed;
use tests::load::{Load, Plan};
use tests::pair::Pair;
use tests::postgres::Postgres;
use tests::scratch::Scratch;
use tests::switch::Switch;

use crate::hand::ledger;
use crate::help::{assert_sound, at_rest, number, quick, take, until, use_up};

async fn quarantines(cluster: &Cluster) -> Value {
    // The store may be out of reach for a moment.
    cluster.operate("GET", "/v1/quarantines", None).await.unwrap_or_default()
}

async fn is_open(cluster: &Cluster) -> bool {
    quarantines(cluster).await["quarantines"].as_array().is_some_and(Vec::is_empty)
}

async fn server(cluster: &Cluster) -> String {
    quarantines(cluster).await["server"].as_str().unwrap_or_default().to_owned()
}

fn two_regions(authority: String) -> Builder {
    let builder = quick().authority(Backend::Url(authority)).region("eu").region("us");
    builder.namespace_with("orders", fixed(1_000, 100))
}

fn loads(cluster: &Cluster, exposed: &Arc<Exposed>) -> Vec<Load> {
    let start = |region| {
        Load::start(Plan::of(cluster, region, "orders").tasks(2).pause(Duration::from_millis(5)), Arc::clone(exposed))
    };
    vec![start("eu"), start("us")]
}

async fn stop(loads: Vec<Load>) {
    for load in loads {
        load.stop().await;
    }
}

async fn highest(cluster: &Cluster) -> u64 {
    ledger(cluster, "orders").await.last().unwrap().1
}

/// The primary dies under load, its synchronous standby is promoted: nobody has to do anything. The old one comes
/// back, and whoever is sent to it is given nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_synchronous_standby_is_promoted_under_load_and_the_old_primary_gives_nothing() {
    let exposed = Arc::new(Exposed::new());
    let pair = Pair::synchronous();
    let builder = two_regions(pair.database("authority")).authority_env("CADASTRE_REQUIRE_SYNC", "1");
    let cluster = builder.start().await;
    let before = server(&cluster).await;
    let loads = loads(&cluster, &exposed);
    for load in &loads {
        assert!(load.successes_within(300, Duration::from_secs(60)).await, "{:?}", load.report());
    }
    let known = highest(&cluster).await;
    Pair::wait_for(&pair.b, "FIRST 1 (c)");
    pair.fail_over();
    until("another server is seen", async || server(&cluster).await.contains("/00000002/")).await;
    assert_ne!(server(&cluster).await, before);
    // Alone it gives nothing either: it has no standby.
    let c = Postgres::standby_of(&pair.b, "c");
    until("both regions have testified", async || is_open(&cluster).await).await;
    until("granted on the new timeline", async || highest(&cluster).await > known + 4_000).await;
    // The old one is back, and the authority is sent to it: it waits for a standby that it has not.
    pair.a.restart();
    pair.address.turn(pair.a.port());
    until("it is refused", async || cluster.authority.log().contains("0 of 1 synchronous standbys")).await;
    let url = pair.a.psql_in("authority", "SELECT MAX(hi) FROM grants");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(pair.a.psql_in("authority", "SELECT MAX(hi) FROM grants"), url, "nothing is written there");
    pair.address.turn(pair.b.port());
    let known = highest(&cluster).await;
    until("the right one again", async || is_open(&cluster).await && highest(&cluster).await > known + 2_000).await;
    stop(loads).await;
    assert_sound(&cluster, &exposed).await;
    drop(c);
}

/// No load balancer: the authority is given both hosts, and follows whichever is the primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_two_hosts_in_its_url_the_authority_follows_the_primary_by_itself() {
    let exposed = Arc::new(Exposed::new());
    let pair = Pair::asynchronous();
    pair.a.create_database("authority");
    // The standby first: it is passed over.
    let url = format!("postgres://postgres@127.0.0.1:{},127.0.0.1:{}/authority", pair.b.port(), pair.a.port());
    let cluster = two_regions(url).start().await;
    take(&cluster, "eu", "orders", 1_500, 50, &exposed).await;
    let known = highest(&cluster).await;
    pair.fail_over();
    until("it has found the new primary", async || server(&cluster).await.contains("/00000002/")).await;
    until("both have testified", async || is_open(&cluster).await).await;
    for region in ["eu", "us"] {
        take(&cluster, region, "orders", 2_500, 50, &exposed).await;
    }
    assert!(highest(&cluster).await > known);
    assert_sound(&cluster, &exposed).await;
}

/// The standby lacked some grants. The living authority knows what it let out, so it is proof and not only suspicion;
/// a region that is cut off holds everything up, issues meanwhile, and then it goes on by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_asynchronous_standby_that_lagged_waits_for_a_silent_region_and_then_goes_on() {
    let exposed = Arc::new(Exposed::new());
    let pair = Pair::asynchronous();
    let cluster = two_regions(pair.database("authority")).start().await;
    for region in ["eu", "us"] {
        take(&cluster, region, "orders", 1_500, 50, &exposed).await;
        at_rest(&cluster, region, "orders").await;
    }
    pair.detach();
    let seen = ledger(&cluster, "orders").await;
    for region in ["eu", "us"] {
        take(&cluster, region, "orders", 2_500, 50, &exposed).await;
        at_rest(&cluster, region, "orders").await;
    }
    let end = highest(&cluster).await;
    let lost = ledger(&cluster, "orders").await.len() - seen.len();
    assert!(lost >= 4, "the standby lacks {lost} grants");
    cluster.region("us").link.cut();
    pair.fail_over();
    until("us alone is waited for", async || {
        let all = quarantines(&cluster).await;
        all["quarantines"][0]["waiting_for"] == serde_json::json!(["us"])
    })
    .await;
    let all = quarantines(&cluster).await;
    assert_eq!(all["quarantines"][0]["state"], "back", "it knows what it let out itself: {all}");
    assert_eq!(ledger(&cluster, "orders").await, seen, "what the standby had, and nothing new");
    // Both issue what they hold, the silent one too.
    for region in ["eu", "us"] {
        let held = at_rest(&cluster, region, "orders").await.held();
        let (got, _) = use_up(&cluster, region, "orders", 50, &exposed).await;
        assert_eq!(got, held, "{region}");
    }
    assert_eq!(ledger(&cluster, "orders").await, seen, "nothing is granted");
    cluster.region("us").link.heal();
    until("both have testified", async || is_open(&cluster).await).await;
    for region in ["eu", "us"] {
        take(&cluster, region, "orders", 2_500, 50, &exposed).await;
    }
    let grants = ledger(&cluster, "orders").await;
    assert!(grants[seen.len()..].iter().all(|(lo, _, _)| *lo >= end), "above everything that was granted: {grants:?}");
    assert_sound(&cluster, &exposed).await;
}

/// A cold copy of the data folder is put back: same system, same timeline, another start.
async fn put_back(authority: impl FnOnce(Builder) -> Builder, alone: bool) {
    let exposed = Arc::new(Exposed::new());
    let server = Postgres::start();
    let address = Switch::to(server.port());
    server.create_database("authority");
    let cluster = authority(two_regions(address.url_of("authority"))).start().await;
    take(&cluster, "eu", "orders", 1_500, 50, &exposed).await;
    server.stop_fast();
    let copy = Scratch::new("cold");
    let into = copy.path().join("data");
    assert!(Command::new("cp").arg("-a").arg(server.data_folder()).arg(&into).status().unwrap().success());
    server.restart();
    until("a restart is judged like a start", async || is_open(&cluster).await).await;
    for region in ["eu", "us"] {
        take(&cluster, region, "orders", 2_500, 50, &exposed).await;
        at_rest(&cluster, region, "orders").await;
    }
    let end = highest(&cluster).await;
    if alone {
        cluster.region("us").link.cut();
    }
    server.stop_fast();
    std::fs::remove_dir_all(server.data_folder()).unwrap();
    assert!(Command::new("cp").arg("-a").arg(&into).arg(server.data_folder()).status().unwrap().success());
    server.restart();
    until("it was found", async || cluster.authority.log().matches("judging anew").count() >= 2).await;
    until("it is healed", async || is_open(&cluster).await).await;
    cluster.region("us").link.heal();
    for region in ["eu", "us"] {
        take(&cluster, region, "orders", 2_500, 50, &exposed).await;
    }
    let grants = ledger(&cluster, "orders").await;
    assert!(grants.last().unwrap().0 >= end, "{grants:?} after {end}");
    let mut sorted: Vec<(u64, u64)> = grants.iter().map(|(lo, hi, _)| (*lo, *hi)).collect();
    sorted.sort_unstable();
    assert!(sorted.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{sorted:?}");
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cold_copy_put_back_under_a_living_authority_is_healed_by_testimony() {
    put_back(|builder| builder, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cold_copy_put_back_is_healed_by_the_witness_alone_while_a_region_is_silent() {
    put_back(|builder| builder.authority_env("CADASTRE_WITNESS", "file:{data}/../witness.db"), true).await;
}

/// A region's own database becomes another one: a dump that lacks what was carved since, in a cluster of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_of_a_regions_store_in_another_cluster_burns_what_it_held() {
    let exposed = Arc::new(Exposed::new());
    let (one, other) = (Postgres::start(), Postgres::start());
    let address = Switch::to(one.port());
    one.create_database("region");
    let builder = quick().region_on("eu", Backend::Url(address.url_of("region")));
    let cluster = builder.namespace_with("orders", fixed(5_000, 100)).start().await;
    take(&cluster, "eu", "orders", 500, 50, &exposed).await;
    other.restore(&one, "region");
    take(&cluster, "eu", "orders", 1_500, 50, &exposed).await;
    address.turn(other.port());
    until("its epoch rises", async || cluster.status("eu").await["epoch"] == 2).await;
    let status = cluster.status("eu").await;
    assert_eq!(status["continuity"], "confirmed", "{status}");
    take(&cluster, "eu", "orders", 1_500, 50, &exposed).await;
    let burned = number(&cluster.headroom().await["namespaces"][0]["burned"]);
    assert!(burned > 0, "what it held is a gap");
    assert_sound(&cluster, &exposed).await;
}

/// The same of the authority's: another system identifier.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_of_the_authoritys_store_in_another_cluster_is_raised_past_everything() {
    let exposed = Arc::new(Exposed::new());
    let (one, other) = (Postgres::start(), Postgres::start());
    let address = Switch::to(one.port());
    one.create_database("authority");
    let cluster = two_regions(address.url_of("authority")).start().await;
    take(&cluster, "eu", "orders", 1_500, 50, &exposed).await;
    other.restore(&one, "authority");
    for region in ["eu", "us"] {
        take(&cluster, region, "orders", 2_500, 50, &exposed).await;
        at_rest(&cluster, region, "orders").await;
    }
    let end = highest(&cluster).await;
    address.turn(other.port());
    until("it was found", async || cluster.authority.log().contains("judging anew")).await;
    until("it is healed", async || is_open(&cluster).await).await;
    let seen = ledger(&cluster, "orders").await.len();
    for region in ["eu", "us"] {
        take(&cluster, region, "orders", 2_500, 50, &exposed).await;
    }
    let grants = ledger(&cluster, "orders").await;
    assert!(grants[seen..].iter().all(|(lo, _, _)| *lo >= end), "{grants:?} after {end}");
    assert_sound(&cluster, &exposed).await;
}
