//! Cut off: issuing goes on for exactly what is held, the runway shown is the runway there is, and healing is
//! nobody's work.

use std::time::{Duration, Instant};
use tests::cluster::{Backend, Cluster, fixed};
use tests::ledger_of_ids::Exposed;
use tests::postgres::Postgres;

use crate::help::{assert_dry, assert_sound, at_rest, patient_ids, quick, stand, take, until, use_up};

async fn cut_off(authority: Backend, store: Backend) {
    let exposed = Exposed::new();
    let builder = quick().authority(authority).regions_on(store).region("eu");
    let cluster = builder.namespace_with("orders", fixed(1_000, 100)).start().await;
    let held = at_rest(&cluster, "eu", "orders").await.held();
    assert!((1_000..=2_000).contains(&held), "{held}");
    cluster.region("eu").link.cut();
    let (mut got, mut runways) = (0, Vec::new());
    while got < held / 2 {
        let ids = patient_ids(&cluster, "eu", "orders", 50).await.unwrap();
        exposed.record("eu", &ids);
        got += 50;
        // A carve moves ordinals from one tier to the other: between the two they are in neither.
        until("status counts down by what was issued", async || {
            let now = stand(&cluster, "eu", "orders").await;
            now.assert_truthful();
            now.held() == held - got
        })
        .await;
        runways.push(stand(&cluster, "eu", "orders").await.runway_region.unwrap());
    }
    assert!(runways.first() > runways.last(), "{runways:?}");
    let (rest, problem) = use_up(&cluster, "eu", "orders", 50, &exposed).await;
    assert_eq!(got + rest, held, "issued exactly what status showed at the cut");
    assert_dry(&problem);
    let now = stand(&cluster, "eu", "orders").await;
    assert_eq!((now.held(), now.runway_region), (0, Some(0)), "{now:?}");
    assert_eq!(cluster.status("eu").await["uplink"]["state"], "down");
    refuses_fast(&cluster).await;
    cluster.region("eu").link.heal();
    cluster.until_served("eu", "orders").await;
    assert!(at_rest(&cluster, "eu", "orders").await.held() >= 1_000, "and it has a reserve again");
    assert_sound(&cluster, &exposed).await;
}

/// A dry region with a dead uplink keeps nobody waiting, however long they would.
async fn refuses_fast(cluster: &Cluster) {
    let began = Instant::now();
    let client = tests::http::builder().build().unwrap();
    for _ in 0..20 {
        let request = client
            .post(format!("{}/v1/ids", cluster.region("eu").url))
            .bearer_auth(&cluster.service_token)
            .header("Cadastre-Timeout-Ms", "5000")
            .json(&serde_json::json!({"namespace": "orders"}));
        assert_eq!(request.send().await.unwrap().status(), 503);
    }
    assert!(began.elapsed() < Duration::from_secs(5), "20 refusals took {:?}: somebody waited", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_region_issues_exactly_what_status_shows_on_sqlite() {
    cut_off(Backend::Sqlite, Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_region_issues_exactly_what_status_shows_on_postgres() {
    cut_off(Backend::Postgres, Backend::Postgres).await;
}

/// A region's store that can be taken away and given back while the agent runs.
enum Store {
    /// Renamed away: SQLite would go on writing to it, and the product must notice.
    File,
    /// Every process of the server stopped: connections stay open and nothing answers.
    Server(Postgres),
}

impl Store {
    fn backend(&self) -> Backend {
        match self {
            Self::File => Backend::Sqlite,
            Self::Server(server) => Backend::Url(server.create_database("region")),
        }
    }

    fn out(&self, cluster: &Cluster) {
        match self {
            Self::File => {
                let file = cluster.region("eu").agent.data_folder().join("region.db");
                std::fs::rename(&file, file.with_extension("away")).unwrap();
            }
            Self::Server(server) => server.pause(),
        }
    }

    fn back(&self, cluster: &Cluster) {
        match self {
            Self::File => {
                let file = cluster.region("eu").agent.data_folder().join("region.db");
                std::fs::rename(file.with_extension("away"), &file).unwrap();
            }
            Self::Server(server) => server.resume(),
        }
    }
}

/// The authority goes, the agent is restarted, its store goes: at every tier exactly what is shown.
async fn tier_by_tier(store: Store) {
    let exposed = Exposed::new();
    let builder = quick().region_on("eu", store.backend()).witness("file:{data}-seen/witness.db", "required");
    let cluster = builder.namespace_with("orders", fixed(1_000, 100)).start().await;
    take(&cluster, "eu", "orders", 230, 10, &exposed).await;
    let held = at_rest(&cluster, "eu", "orders").await;
    cluster.authority.kill9();
    take(&cluster, "eu", "orders", 200, 10, &exposed).await;
    let now = at_rest(&cluster, "eu", "orders").await;
    assert_eq!(now.held(), held.held() - 200, "the region is its own master");
    // A restart burns what was in memory, and nothing else; the first answer needs nobody.
    cluster.region("eu").agent.kill9();
    cluster.restart_agent("eu").await;
    take(&cluster, "eu", "orders", 10, 10, &exposed).await;
    let after = at_rest(&cluster, "eu", "orders").await;
    assert_eq!(after.held() + 10, now.region, "cut off and restarted, it issues what its store holds");
    store.out(&cluster);
    let (got, problem) = use_up(&cluster, "eu", "orders", 10, &exposed).await;
    assert_eq!(got, after.instance);
    assert_dry(&problem);
    until("status says that the store is down", async || cluster.status("eu").await["store"]["state"] == "down").await;
    store.back(&cluster);
    take(&cluster, "eu", "orders", after.region, 10, &exposed).await;
    let (none, problem) = use_up(&cluster, "eu", "orders", 10, &exposed).await;
    assert_eq!(none, 0, "and with its store all that was in the region");
    assert_dry(&problem);
    cluster.restart_authority().await;
    cluster.until_served("eu", "orders").await;
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tier_by_tier_exactly_the_runway_shown_on_sqlite() {
    tier_by_tier(Store::File).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tier_by_tier_exactly_the_runway_shown_on_postgres() {
    tier_by_tier(Store::Server(Postgres::start())).await;
}

/// Without a witness nobody but the authority can say that the store is current.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_while_cut_off_without_a_witness_it_is_dry_until_the_authority_answers() {
    let exposed = Exposed::new();
    let builder = quick().region_on("eu", Backend::Postgres).namespace_with("orders", fixed(1_000, 100));
    let cluster = builder.start().await;
    take(&cluster, "eu", "orders", 50, 10, &exposed).await;
    cluster.region("eu").link.cut();
    cluster.restart_agent("eu").await;
    let problem = cluster.ids("eu", "orders", 1).await.unwrap_err();
    assert_eq!((problem.status, problem.code.as_str()), (503, "store_unproven"), "{problem}");
    assert!(problem.retry_after.is_some());
    assert_eq!(cluster.status("eu").await["continuity"], "unproven");
    cluster.region("eu").link.heal();
    cluster.until_served("eu", "orders").await;
    assert_eq!(cluster.status("eu").await["continuity"], "confirmed");
    assert_sound(&cluster, &exposed).await;
}

/// A link that swallows everything is the worst cut: nobody says that it is one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_cut_is_noticed_and_keeps_nobody_waiting() {
    let exposed = Exposed::new();
    let cluster = quick().region("eu").namespace_with("orders", fixed(1_000, 100)).start().await;
    let held = at_rest(&cluster, "eu", "orders").await.held();
    cluster.region("eu").link.hang();
    let (got, problem) = use_up(&cluster, "eu", "orders", 50, &exposed).await;
    assert_eq!(got, held);
    assert_dry(&problem);
    until("status says that the authority does not answer", async || {
        cluster.status("eu").await["uplink"]["state"] == "down"
    })
    .await;
    refuses_fast(&cluster).await;
    cluster.region("eu").link.heal();
    cluster.until_served("eu", "orders").await;
    assert_sound(&cluster, &exposed).await;
}
