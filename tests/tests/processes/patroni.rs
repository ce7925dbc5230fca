//! The authority on three PostgreSQL nodes under Patroni, as shipped in `ops/patroni/`: the leader is killed under
//! load while a region is cut off, and grants go on with nobody's help.

use std::sync::Arc;
use std::time::{Duration, Instant};
use tests::cluster::{Backend, Cluster, fixed};
use tests::ledger_of_ids::Exposed;
use tests::load::{Load, Plan};
use tests::patroni::Patroni;

use crate::hand::ledger;
use crate::help::{assert_sound, quick, take, until};

async fn on(patroni: &Patroni) -> Cluster {
    let builder = quick().authority(Backend::Url(patroni.url())).region("eu").region("us");
    let builder = builder
        .authority_env("CADASTRE_REQUIRE_SYNC", "1")
        .authority_env("CADASTRE_WITNESS", "file:{data}/../witness.db")
        .authority_env("CADASTRE_WITNESS_MODE", "required");
    builder.namespace_with("orders", fixed(1_000, 100)).start().await
}

fn loads(cluster: &Cluster, exposed: &Arc<Exposed>) -> Vec<Load> {
    let start = |region| {
        Load::start(Plan::of(cluster, region, "orders").tasks(2).pause(Duration::from_millis(5)), Arc::clone(exposed))
    };
    vec![start("eu"), start("us")]
}

/// The end of the ledger; None while the store is out of reach.
async fn end(cluster: &Cluster) -> Option<u64> {
    cluster.operate("GET", "/v1/quarantines", None).await.ok()?;
    let headroom = cluster.operate("GET", "/v1/headroom", None).await.ok()?;
    headroom["namespaces"][0]["watermark"].as_str()?.parse().ok()
}

/// One region is cut off, the leader is killed. The other region is granted more; nobody is waited for, nobody asked.
async fn lose_the_leader(patroni: &Patroni, cluster: &Cluster, silent: &str, round: usize) {
    let known = ledger(cluster, "orders").await.last().unwrap().1;
    cluster.region(silent).link.cut();
    let old = patroni.leader().await;
    let killed = Instant::now();
    patroni.kill9(old);
    let new = patroni.leader().await;
    assert_ne!(new, old, "another node leads");
    let mut known = known;
    until("the authority has found it", async || end(cluster).await.map(|end| known = known.max(end)).is_some()).await;
    // Above what was under way when the leader died.
    until("grants go on", async || end(cluster).await.is_some_and(|end| end > known + 6_000)).await;
    let seconds = killed.elapsed().as_secs_f64();
    println!("round {round}: n{} leads, granted again {seconds:.1} s after the death of n{}", new + 1, old + 1);
    let open = cluster.operate("GET", "/v1/quarantines", None).await.unwrap();
    assert_eq!(open["quarantines"], serde_json::json!([]), "the witness settled it, with {silent} still silent");
    cluster.region(silent).link.heal();
    patroni.revive(old);
    patroni.until_whole().await;
}

async fn rounds(count: usize) {
    let exposed = Arc::new(Exposed::new());
    let patroni = Patroni::start().await;
    let cluster = on(&patroni).await;
    let loads = loads(&cluster, &exposed);
    for load in &loads {
        assert!(load.successes_within(300, Duration::from_secs(60)).await, "{:?}", load.report());
    }
    for round in 0..count {
        lose_the_leader(&patroni, &cluster, ["us", "eu"][round % 2], round).await;
    }
    for load in loads {
        load.stop().await;
    }
    for region in ["eu", "us"] {
        take(&cluster, region, "orders", 2_500, 50, &exposed).await;
    }
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patroni_promotes_under_load_with_a_region_cut_off_and_grants_go_on() {
    rounds(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "by hand: ten failovers, some seven minutes"]
async fn patroni_promotes_ten_times_under_load() {
    rounds(10).await;
}
