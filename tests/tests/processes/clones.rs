//! Two copies of what must be one: a data folder that was copied, a backup of a region's store that was put
//! back, with and without a witness.

use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tests::cluster::{Backend, Cluster, fixed};
use tests::ledger_of_ids::Exposed;
use tests::load::{Load, Plan};
use tests::scratch::Scratch;

use crate::hand::code;
use crate::help::{
    Extra, assert_clean_log, assert_sound, at_rest, audit_of, copy_folder, extra_agent, put_back, quick, step, take,
    token_of, until,
};

/// Copies of a region's data folder and witness folder, made while its agent is stopped.
struct Copies {
    folder: Scratch,
}

impl Copies {
    fn of(cluster: &Cluster, region: &str) -> Self {
        let data = cluster.region(region).agent.data_folder();
        let folder = Scratch::new("copies");
        copy_folder(&data, &folder.path().join("data"));
        copy_folder(&data.with_file_name("data-witness"), &folder.path().join("data-witness"));
        Self { folder }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }
}

/// An agent on the copied folder: the default witness lies beside it and is a copy too.
fn twin(cluster: &Cluster, copies: &Copies) -> Extra {
    let data = copies.data().display().to_string();
    extra_agent(cluster, "eu", token_of(cluster, "eu"), |spec| spec.env("CADASTRE_DATA", data))
}

/// Enters whatever it gives out until it ends; how it ended.
async fn until_it_ends(cluster: &Cluster, twin: &Extra, exposed: &Exposed) -> Option<i32> {
    until("the twin is found out and ends", async || {
        if let Ok(ids) = twin.ids(cluster, "orders", 5).await {
            exposed.record("twin", &ids);
        }
        !twin.agent.is_alive()
    })
    .await;
    twin.agent.exit_code()
}

/// As a supervisor does: starts the agent again when it ends. A store that was put back comes with a session
/// number that was used since the copy was made, so it is taken for a second copy, once per start since then;
/// after that it is known for what it is.
async fn supervised_until_served(cluster: &Cluster, region: &str, exposed: &Exposed) {
    until("the region serves", async || {
        let agent = &cluster.region(region).agent;
        if !agent.is_alive() {
            assert!(agent.log().contains("two copies of this region's store"), "{}", agent.log());
            agent.start_again();
        }
        match cluster.ids(region, "orders", 1).await {
            Ok(ids) => {
                exposed.record(region, &ids);
                true
            }
            Err(_) => false,
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_08_twins_on_a_copied_folder_are_found_and_the_second_one_ends() {
    let exposed = Arc::new(Exposed::new());
    let cluster = quick().region("eu").namespace_with("orders", fixed(2_000, 100)).start().await;
    take(&cluster, "eu", "orders", 150, 10, &exposed).await;
    cluster.region("eu").agent.kill9();
    let copies = Copies::of(&cluster, "eu");
    cluster.restart_agent("eu").await;
    let load =
        Load::start(Plan::of(&cluster, "eu", "orders").tasks(2).pause(Duration::from_millis(5)), exposed.clone());
    assert!(load.successes_within(20, Duration::from_secs(60)).await);
    let twin = twin(&cluster, &copies);
    let code = until_it_ends(&cluster, &twin, &exposed).await;
    let own = i32::from(region_agent::CopyFound::EXIT_CODE);
    assert_eq!(code, Some(own), "a supervisor must not start it again: {}", twin.agent.log());
    assert!(twin.agent.log().contains("copies of this region's store are alive"), "{}", twin.agent.log());
    let records = audit_of(&cluster.authority.data_folder().join("authority.db"), "copy_found");
    assert!(!records.is_empty());
    assert!(load.successes_within(100, Duration::from_secs(60)).await, "the first one goes on");
    load.stop().await;
    assert_sound(&cluster, &exposed).await;
    assert_clean_log(&twin.agent, &[token_of(&cluster, "eu")]);
}

/// Nothing is derived from host, address or process number: an agent without an identity is none, and one with
/// an empty folder and the same token is a stranger.
#[tokio::test]
async fn case_08_twins_without_an_identity_are_nobody() {
    let exposed = Exposed::new();
    let cluster = quick().region("eu").namespace_with("orders", fixed(1_000, 100)).start().await;
    take(&cluster, "eu", "orders", 10, 10, &exposed).await;
    let nameless = extra_agent(&cluster, "", token_of(&cluster, "eu"), |spec| spec);
    crate::help::refuses_to_start(&nameless.agent, &["region"]).await;
    let stranger = extra_agent(&cluster, "eu", token_of(&cluster, "eu"), |spec| spec);
    stranger.up().await;
    until("the stranger is told", async || stranger.agent.log().contains("wrong_store")).await;
    let refused = stranger.ids(&cluster, "orders", 1).await.unwrap_err();
    assert!([401, 503].contains(&refused.status), "{refused}");
    take(&cluster, "eu", "orders", 10, 10, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}

/// A backup of the region's store is put back beside its witness: the witness knows.
#[tokio::test]
async fn a_region_whose_store_was_put_back_burns_what_it_held_and_takes_the_next_epoch() {
    let exposed = Exposed::new();
    let cluster = quick().region("eu").namespace_with("orders", fixed(1_000, 100)).start().await;
    take(&cluster, "eu", "orders", 10, 10, &exposed).await;
    at_rest(&cluster, "eu", "orders").await;
    cluster.region("eu").agent.kill9();
    let copies = Copies::of(&cluster, "eu");
    cluster.restart_agent("eu").await;
    take(&cluster, "eu", "orders", 700, 10, &exposed).await;
    let agent = &cluster.region("eu").agent;
    agent.kill9();
    put_back(&copies.data(), &agent.data_folder());
    // Cut off it cannot know what else it gave out, and gives out nothing.
    cluster.region("eu").link.cut();
    cluster.restart_agent("eu").await;
    for _ in 0..20 {
        let refused = cluster.ids("eu", "orders", 1).await.unwrap_err();
        assert_eq!(code(&refused), (503, "store_unproven"), "{refused}");
    }
    assert_eq!(cluster.status("eu").await["continuity"], "went_back");
    cluster.region("eu").link.heal();
    supervised_until_served(&cluster, "eu", &exposed).await;
    assert_eq!(cluster.status("eu").await["epoch"], 2);
    take(&cluster, "eu", "orders", 1_500, 50, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}

/// A region without a witness, and a copy of its folder from before it issued: what came since then was heard of by
/// the authority. Its agent is dead.
async fn used_since_the_copy(exposed: &Exposed) -> (Cluster, Scratch) {
    let builder = quick().region("eu").agent_env("CADASTRE_WITNESS", "none");
    let cluster = builder.namespace_with("orders", fixed(1_000, 100)).start().await;
    // The copy holds grants.
    take(&cluster, "eu", "orders", 10, 10, exposed).await;
    at_rest(&cluster, "eu", "orders").await;
    let agent = &cluster.region("eu").agent;
    agent.kill9();
    let copies = Scratch::new("copies");
    copy_folder(&agent.data_folder(), copies.path());
    cluster.restart_agent("eu").await;
    cluster.until_served("eu", "orders").await;
    take(&cluster, "eu", "orders", 700, 10, exposed).await;
    at_rest(&cluster, "eu", "orders").await;
    agent.kill9();
    (cluster, copies)
}

/// The same without any witness: the authority remembers what it heard of the store.
#[tokio::test]
async fn without_a_witness_the_authority_finds_a_regions_store_that_was_put_back() {
    let exposed = Exposed::new();
    let (cluster, copies) = used_since_the_copy(&exposed).await;
    let agent = &cluster.region("eu").agent;
    put_back(copies.path(), &agent.data_folder());
    agent.start_again();
    supervised_until_served(&cluster, "eu", &exposed).await;
    assert_eq!(cluster.status("eu").await["epoch"], 2);
    take(&cluster, "eu", "orders", 1_500, 50, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}

/// The answer that names what is kept of the store is lost: the store's own word must not have taken its place.
#[tokio::test]
async fn a_lost_answer_does_not_let_a_store_that_was_put_back_confirm_itself() {
    let exposed = Exposed::new();
    let (cluster, copies) = used_since_the_copy(&exposed).await;
    let agent = &cluster.region("eu").agent;
    // Into the same files, as a volume that is rolled back: the place does not give it away.
    for file in std::fs::read_dir(copies.path()).unwrap().map(Result::unwrap) {
        let into = agent.data_folder().join(file.file_name());
        std::fs::write(into, std::fs::read(file.path()).unwrap()).unwrap();
    }
    for file in std::fs::read_dir(agent.data_folder()).unwrap().map(Result::unwrap) {
        if !copies.path().join(file.file_name()).exists() {
            std::fs::remove_file(file.path()).unwrap();
        }
    }
    cluster.region("eu").link.lose_answers(2);
    agent.start_again();
    supervised_until_served(&cluster, "eu", &exposed).await;
    assert_eq!(cluster.status("eu").await["epoch"], 2, "{}", agent.log());
    take(&cluster, "eu", "orders", 1_500, 50, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}

/// Two agents with folders of their own on one SQLite file: not two writers of one region, whatever happens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_agent_on_the_same_file_makes_no_duplicate() {
    let exposed = Arc::new(Exposed::new());
    let cluster = quick().region("eu").namespace_with("orders", fixed(2_000, 100)).start().await;
    let load =
        Load::start(Plan::of(&cluster, "eu", "orders").tasks(2).pause(Duration::from_millis(5)), exposed.clone());
    assert!(load.successes_within(20, Duration::from_secs(60)).await);
    let file = cluster.region("eu").agent.data_folder().join("region.db");
    let second = extra_agent(&cluster, "eu", token_of(&cluster, "eu"), |spec| {
        spec.env("CADASTRE_DATABASE_URL", format!("sqlite://{}", file.display()))
    });
    let first = &cluster.region("eu").agent;
    until("one of the two ends", async || {
        if let Ok(ids) = second.ids(&cluster, "orders", 5).await {
            exposed.record("second", &ids);
        }
        !first.is_alive() || !second.agent.is_alive()
    })
    .await;
    load.stop().await;
    second.agent.kill9();
    cluster.restart_agent("eu").await;
    cluster.until_served("eu", "orders").await;
    take(&cluster, "eu", "orders", 1_500, 50, &exposed).await;
    exposed.assert_no_duplicates();
    assert!(cluster.verify().await.is_empty());
}

/// A (epoch 1) holds half a segment; B takes over with another store (epoch 2) and issues; then A again.
#[tokio::test]
async fn case_01_re_promoted_agent() {
    let exposed = Exposed::new();
    let cluster = quick().region("eu").region_on("us", Backend::Sqlite).namespace_with("orders", fixed(1_000, 100));
    let cluster = cluster.start().await;
    take(&cluster, "eu", "orders", 150, 10, &exposed).await;
    let held = at_rest(&cluster, "eu", "orders").await;
    let highest = exposed.highest().unwrap();
    let a = &cluster.region("eu").agent;
    a.pause();
    let new_store = json!({"new_store": true, "reason": "B takes over"});
    step(&cluster, "eu", "recover", new_store.clone()).await.unwrap();
    let b = extra_agent(&cluster, "eu", token_of(&cluster, "eu"), |spec| spec);
    b.up().await;
    b.serves(&cluster, "b", "orders", &exposed).await;
    let epoch_b = b.status(&cluster).await["epoch"].as_u64().unwrap();
    assert!(epoch_b > 1);
    for _ in 0..30 {
        exposed.record("b", &b.ids(&cluster, "orders", 10).await.unwrap());
    }
    b.agent.kill9();
    step(&cluster, "eu", "recover", new_store).await.unwrap();
    a.resume();
    until("A is back under the next epoch", async || {
        // What it still has of its own epoch was given to nobody else.
        if let Ok(ids) = cluster.ids("eu", "orders", 1).await {
            exposed.record("eu", &ids);
        }
        cluster.status("eu").await["epoch"].as_u64().unwrap() > epoch_b
    })
    .await;
    cluster.until_served("eu", "orders").await;
    let fresh = cluster.ids("eu", "orders", 10).await.unwrap();
    exposed.record("eu", &fresh);
    let above = highest + i64::try_from(held.held()).unwrap() - 10;
    assert!(fresh[0] > above, "A dropped what an older epoch gave it: {fresh:?}, {highest} and {held:?} before");
    until("it is counted as burned", async || {
        let all = cluster.headroom().await;
        crate::help::number(&all["namespaces"][0]["burned"]) > 0
    })
    .await;
    take(&cluster, "eu", "orders", 1_500, 50, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}
