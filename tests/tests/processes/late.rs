//! An answer that is on its way while the store that it was given by goes back, and heals.

use std::time::Duration;
use tests::cluster::{Backend, fixed};
use tests::ledger_of_ids::Exposed;
use tests::scratch::Scratch;

use crate::hand::ledger;
use crate::help::{assert_sound, at_rest, copy_folder, extra_agent, put_back, quick, take, token_of, until};
use crate::relay::{Mode, Relay};

/// One agent's answer was committed and is kept back. Meanwhile the authority's store is put back to a copy that lacks
/// it, the region's other agent testifies for the new generation, and is granted the same numbers. Then the answer comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_from_before_the_store_went_back_is_not_taken() {
    let exposed = Exposed::new();
    let builder = quick().region_on("eu", Backend::Postgres).authority_env("CADASTRE_WITNESS", "none");
    let cluster = builder.namespace_with("orders", fixed(1_000, 100)).start().await;
    let relay = Relay::start().await;
    relay.set(Mode::Primary(cluster.url.clone()));
    let first = &cluster.region("eu").agent;
    let url = relay.url.clone();
    first.change(move |spec| spec.env("CADASTRE_AUTHORITY_URL", url));
    cluster.restart_agent("eu").await;
    let database = cluster.region("eu").database_url.clone().unwrap();
    let second = extra_agent(&cluster, "eu", token_of(&cluster, "eu"), |s| s.env("CADASTRE_DATABASE_URL", database));
    second.serves(&cluster, "eu", "orders", &exposed).await;
    at_rest(&cluster, "eu", "orders").await;

    let copy = Scratch::new("backup");
    cluster.authority.pause();
    copy_folder(&cluster.authority.data_folder(), copy.path());
    cluster.authority.resume();
    second.agent.pause();
    relay.set(Mode::Hold(cluster.url.clone()));
    until("an answer with a grant is on its way", async || {
        if let Ok(ids) = cluster.ids("eu", "orders", 20).await {
            exposed.record("eu", &ids);
        }
        relay.held().is_some()
    })
    .await;
    let late = relay.held().unwrap()[0]["granted"].clone();

    cluster.authority.kill9();
    put_back(copy.path(), &cluster.authority.data_folder());
    second.agent.resume();
    cluster.restart_authority().await;
    let before = ledger(&cluster, "orders").await.len();
    let lo: u64 = late["lo"].as_str().unwrap_or_else(|| panic!("{late}")).parse().unwrap();
    until("the numbers of the late answer are granted again", async || {
        if let Ok(ids) = second.ids(&cluster, "orders", 20).await {
            exposed.record("eu", &ids);
        }
        ledger(&cluster, "orders").await.iter().skip(before).any(|(from, to, _)| (*from..*to).contains(&lo))
    })
    .await;
    relay.release(&cluster.url);
    until("the first agent says that it did not take it", async || {
        let log = first.log();
        log.contains("an answer was not taken") || log.contains("a late answer") || log.contains("no answer within")
    })
    .await;
    for _ in 0..4 {
        take(&cluster, "eu", "orders", 1_000, 50, &exposed).await;
        second.serves(&cluster, "eu", "orders", &exposed).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_sound(&cluster, &exposed).await;
}
