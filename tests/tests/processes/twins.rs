//! A region's data folder copied **with** its witness, and both run, while the authority can be reached. The
//! copied witness vouches for the copied store; what gives the copy away is where it lies.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tests::cluster::{Cluster, policy, random_token};
use tests::ledger_of_ids::Exposed;
use tests::load::{Load, Plan};
use tests::scratch::Scratch;

use crate::hand::code;
use crate::help::{Extra, copy_folder, extra_agent, quick, take, token_of, until};

/// Data folder and witness folder, as they are at this moment.
fn copy(cluster: &Cluster, folder: &Scratch) -> PathBuf {
    let data = cluster.region("eu").agent.data_folder();
    let copy = folder.path().join("data");
    copy_folder(&data, &copy);
    copy_folder(&data.with_file_name("data-witness"), &folder.path().join("data-witness"));
    copy
}

/// An agent on a copy: the default witness lies beside it and is a copy too.
fn on(cluster: &Cluster, data: &Path) -> Extra {
    extra_agent(cluster, "eu", token_of(cluster, "eu"), |spec| spec.env("CADASTRE_DATA", data.display().to_string()))
}

/// Small segments, so that both carve all the time from what both hold.
async fn cluster() -> Cluster {
    quick().region("eu").namespace_with("orders", policy(1_000_000, 10, 50, 20.0)).start().await
}

/// Enters what the twin gives out, and starts it again when it ends, as a supervisor does.
async fn hammer(cluster: &Cluster, twin: &Extra, exposed: &Exposed, batches: usize) {
    let mut done = 0;
    until("the twin gave out enough", async || {
        if !twin.agent.is_alive() {
            twin.agent.start_again();
        }
        for _ in 0..10 {
            if let Ok(ids) = twin.ids(cluster, "orders", 20).await {
                exposed.record("twin", &ids);
                done += 1;
            }
        }
        done >= batches
    })
    .await;
}

fn callers(cluster: &Cluster, exposed: &Arc<Exposed>) -> Load {
    Load::start(Plan::of(cluster, "eu", "orders").tasks(2).pause(Duration::from_millis(2)), exposed.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_running_agents_folder_and_witness_repeats_nothing() {
    let exposed = Arc::new(Exposed::new());
    let cluster = cluster().await;
    let load = callers(&cluster, &exposed);
    assert!(load.successes_within(100, Duration::from_secs(60)).await);
    let folder = Scratch::new("twin");
    let twin = on(&cluster, &copy(&cluster, &folder));
    hammer(&cluster, &twin, &exposed, 200).await;
    load.stop().await;
    assert!(twin.status(&cluster).await["epoch"].as_u64() > Some(1), "{}", twin.agent.log());
    exposed.assert_no_duplicates();
    assert!(cluster.verify().await.is_empty());
}

/// Nobody was on the store when it was copied, so both are at home where they lie; the session tells them apart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_copies_of_a_folder_that_was_closed_in_order_repeat_nothing() {
    let exposed = Arc::new(Exposed::new());
    let cluster = cluster().await;
    take(&cluster, "eu", "orders", 500, 20, &exposed).await;
    cluster.region("eu").agent.terminate().await;
    let folder = Scratch::new("twin");
    let data = copy(&cluster, &folder);
    cluster.restart_agent("eu").await;
    let load = callers(&cluster, &exposed);
    assert!(load.successes_within(50, Duration::from_secs(60)).await);
    let twin = on(&cluster, &data);
    hammer(&cluster, &twin, &exposed, 200).await;
    assert!(twin.agent.log().contains("copies of this region's store are alive"), "{}", twin.agent.log());
    load.stop().await;
    exposed.assert_no_duplicates();
    assert!(cluster.verify().await.is_empty());
}

/// The same, and the second one is refused (a copy for another environment, with another token): the authority is
/// there, so it waits for its word instead of going on from what the copied witness vouches for.
#[tokio::test]
async fn a_copy_that_the_authority_refuses_carves_nothing() {
    let exposed = Exposed::new();
    let cluster = cluster().await;
    take(&cluster, "eu", "orders", 500, 20, &exposed).await;
    cluster.region("eu").agent.terminate().await;
    let folder = Scratch::new("twin");
    let data = copy(&cluster, &folder);
    cluster.restart_agent("eu").await;
    let stranger = random_token("cad_reg_");
    let twin = extra_agent(&cluster, "eu", &stranger, |spec| spec.env("CADASTRE_DATA", data.display().to_string()));
    twin.up().await;
    for _ in 0..20 {
        let refused = twin.ids(&cluster, "orders", 1).await.unwrap_err();
        assert_eq!(code(&refused), (503, "store_unproven"), "{refused}");
        take(&cluster, "eu", "orders", 20, 20, &exposed).await;
    }
    exposed.assert_no_duplicates();
    // The original was stopped and started again in its place: that costs nothing.
    assert_eq!(cluster.status("eu").await["epoch"], 1);
}

/// A folder that was closed in order may be moved, and keeps its epoch and what it holds; one whose process was
/// killed may be a copy of a store in use, and burns that. Killed and started in its place, it burns nothing.
#[tokio::test]
async fn a_folder_that_was_closed_moves_and_one_that_was_not_burns() {
    let exposed = Exposed::new();
    let cluster = cluster().await;
    take(&cluster, "eu", "orders", 500, 20, &exposed).await;
    let first = &cluster.region("eu").agent;
    first.kill9();
    cluster.restart_agent("eu").await;
    take(&cluster, "eu", "orders", 500, 20, &exposed).await;
    assert_eq!(cluster.status("eu").await["epoch"], 1, "killed and started again in its place");
    first.terminate().await;
    let folder = Scratch::new("moved");
    let moved = on(&cluster, &copy(&cluster, &folder));
    moved.serves(&cluster, "moved", "orders", &exposed).await;
    assert_eq!(moved.status(&cluster).await["epoch"], 1, "closed in order and moved");
    moved.agent.kill9();
    let again = Scratch::new("moved again");
    copy_folder(&folder.path().join("data"), &again.path().join("data"));
    copy_folder(&folder.path().join("data-witness"), &again.path().join("data-witness"));
    let last = on(&cluster, &again.path().join("data"));
    last.serves(&cluster, "last", "orders", &exposed).await;
    assert_eq!(last.status(&cluster).await["epoch"], 2, "killed and moved");
    assert!(last.agent.log().contains("everything below it is burned"), "{}", last.agent.log());
    exposed.assert_no_duplicates();
    assert!(cluster.verify().await.is_empty());
}

/// The folder without its witness, both cut off, both asked all the time: the copy is dry, whether it has an empty
/// witness or none, and the original goes on from what its witness vouches for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_without_the_witness_is_dry_while_both_are_cut_off() {
    let exposed = Arc::new(Exposed::new());
    let cluster = quick().region("eu").namespace_with("orders", policy(100_000, 10, 50, 20.0)).start().await;
    take(&cluster, "eu", "orders", 500, 20, &exposed).await;
    cluster.region("eu").agent.kill9();
    let folder = Scratch::new("twin");
    let data = folder.path().join("data");
    copy_folder(&cluster.region("eu").agent.data_folder(), &data);
    cluster.region("eu").link.cut();
    cluster.restart_agent("eu").await;
    let load = callers(&cluster, &exposed);
    assert!(load.successes_within(20, Duration::from_secs(60)).await, "the original goes on: {:?}", load.report());
    for witness in [None, Some("none")] {
        let twin = extra_agent(&cluster, "eu", token_of(&cluster, "eu"), |spec| {
            // Nobody answers there.
            let spec = spec.env("CADASTRE_AUTHORITY_URL", format!("http://127.0.0.1:{}", tests::ports::free()));
            let spec = spec.env("CADASTRE_DATA", data.display().to_string());
            witness.into_iter().fold(spec, |spec, witness| spec.env("CADASTRE_WITNESS", witness))
        });
        twin.up().await;
        for _ in 0..50 {
            let refused = twin.ids(&cluster, "orders", 20).await.unwrap_err();
            assert_eq!(code(&refused), (503, "store_unproven"), "{refused}");
        }
        assert!(load.successes_within(20, Duration::from_secs(60)).await);
    }
    load.stop().await;
    cluster.region("eu").link.heal();
    take(&cluster, "eu", "orders", 500, 20, &exposed).await;
    exposed.assert_no_duplicates();
    assert!(cluster.verify().await.is_empty());
}
