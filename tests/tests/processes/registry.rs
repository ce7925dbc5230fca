//! The life of regions, with their agents alive, cut off and gone.

use serde_json::json;
use std::sync::Arc;
use tests::cluster::{Backend, Cluster, fixed};
use tests::ledger_of_ids::Exposed;
use tests::load::{Load, Plan};

use crate::hand::{code, ledger};
use crate::help::{
    assert_dry, assert_sound, at_rest, extra_agent, quick, register, step, take, token_of, until, use_up,
};

async fn two_regions() -> (Cluster, Exposed) {
    let builder = quick().region("eu").region("us").namespace_with("orders", fixed(1_000, 100));
    (builder.start().await, Exposed::new())
}

/// What the authority says of a region.
async fn view(cluster: &Cluster, region: &str) -> serde_json::Value {
    let all = cluster.operate("GET", "/v1/regions", None).await.unwrap();
    let found = all["regions"].as_array().unwrap().iter().find(|it| it["name"] == region).cloned();
    found.unwrap_or_else(|| panic!("no {region} in {all}"))
}

async fn until_state(cluster: &Cluster, region: &str, state: &str) {
    until("the agent hears of it", async || cluster.status(region).await["state"] == state).await;
}

#[tokio::test]
async fn a_drained_region_issues_what_it_holds_and_gets_nothing_new() {
    let (cluster, exposed) = two_regions().await;
    let held = at_rest(&cluster, "us", "orders").await.held();
    assert_eq!(step(&cluster, "us", "drain", json!({"reason": "out of use"})).await.unwrap(), 1, "the epoch stays");
    until_state(&cluster, "us", "draining").await;
    let (got, problem) = use_up(&cluster, "us", "orders", 50, &exposed).await;
    assert_eq!(got, held);
    assert_dry(&problem);
    assert!(problem.detail.contains("draining"), "it says why: {problem}");
    take(&cluster, "eu", "orders", 1_500, 50, &exposed).await;
    let before = ledger(&cluster, "orders").await.iter().filter(|(_, _, region)| region == "us").count();
    assert_eq!(step(&cluster, "us", "recover", json!({})).await.unwrap(), 2);
    cluster.until_served("us", "orders").await;
    let after = ledger(&cluster, "orders").await.iter().filter(|(_, _, region)| region == "us").count();
    assert!(after > before, "and gets something again");
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test]
async fn a_fenced_region_goes_on_while_cut_off_stops_when_it_hears_and_comes_back_two_epochs_later() {
    let (cluster, exposed) = two_regions().await;
    let held = at_rest(&cluster, "eu", "orders").await.held();
    cluster.region("eu").link.cut();
    assert_eq!(step(&cluster, "eu", "fence", json!({"reason": "cut off"})).await.unwrap(), 2);
    assert_eq!(view(&cluster, "eu").await["state"], "fenced");
    // Its numbers are harmless: they are its own, and stay so.
    take(&cluster, "eu", "orders", held / 2, 10, &exposed).await;
    take(&cluster, "us", "orders", 2_500, 50, &exposed).await;
    cluster.region("eu").link.heal();
    until("it hears of it and stops", async || match cluster.ids("eu", "orders", 1).await {
        Ok(ids) => {
            exposed.record("eu", &ids);
            false
        }
        Err(problem) => code(&problem) == (409, "epoch_fenced"),
    })
    .await;
    take(&cluster, "us", "orders", 1_500, 50, &exposed).await;
    assert_eq!(step(&cluster, "eu", "recover", json!({})).await.unwrap(), 3, "epoch + 2 in all");
    cluster.until_served("eu", "orders").await;
    assert_eq!(cluster.status("eu").await["epoch"], 3);
    take(&cluster, "eu", "orders", 1_500, 50, &exposed).await;
    let burned = crate::help::number(&cluster.headroom().await["namespaces"][0]["burned"]);
    assert!(burned > 0, "what it held is burned");
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fenced_and_recovered_under_load_nothing_comes_twice() {
    let (cluster, exposed) = two_regions().await;
    let exposed = Arc::new(exposed);
    let loads = ["eu", "us"].map(|region| Load::start(Plan::of(&cluster, region, "orders").tasks(3), exposed.clone()));
    let mut epoch = 1;
    for round in 0..6 {
        assert!(loads[0].successes_within(30, std::time::Duration::from_secs(60)).await, "round {round}");
        if round % 2 == 0 {
            cluster.region("eu").link.cut();
        }
        epoch += 1;
        assert_eq!(step(&cluster, "eu", "fence", json!({})).await.unwrap(), epoch);
        epoch += 1;
        assert_eq!(step(&cluster, "eu", "recover", json!({})).await.unwrap(), epoch);
        cluster.region("eu").link.heal();
    }
    for load in loads {
        load.stop().await;
    }
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test]
async fn a_retired_region_is_gone_for_good_and_its_name_stays_taken() {
    let (cluster, exposed) = two_regions().await;
    take(&cluster, "us", "orders", 30, 10, &exposed).await;
    step(&cluster, "us", "retire", json!({})).await.unwrap();
    assert_eq!(view(&cluster, "us").await["state"], "retired");
    let again = cluster.operate("POST", "/v1/regions", Some(&json!({"name": "us"}))).await.unwrap_err();
    assert_eq!(code(&again), (409, "name_retired"), "{again}");
    for verb in ["drain", "fence", "recover", "retire"] {
        let refused = step(&cluster, "us", verb, json!({})).await.unwrap_err();
        assert_eq!(code(&refused), (409, "not_allowed"), "{verb}: {refused}");
    }
    until("its agent is told", async || cluster.status("us").await["uplink"]["state"] == "refused").await;
    let before = ledger(&cluster, "orders").await.iter().filter(|(_, _, region)| region == "us").count();
    // It may use up what is its own; nobody else is given that, and it is given no more.
    use_up(&cluster, "us", "orders", 50, &exposed).await;
    take(&cluster, "eu", "orders", 2_500, 50, &exposed).await;
    let after = ledger(&cluster, "orders").await.iter().filter(|(_, _, region)| region == "us").count();
    assert_eq!(after, before);
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test]
async fn another_store_joins_only_after_an_operator_said_so() {
    let (cluster, exposed) = two_regions().await;
    take(&cluster, "us", "orders", 30, 10, &exposed).await;
    let us = cluster.region("us");
    us.agent.kill9();
    std::fs::remove_dir_all(us.agent.data_folder()).unwrap();
    std::fs::create_dir(us.agent.data_folder()).unwrap();
    cluster.restart_agent("us").await;
    until("the stranger is refused and told what to do", async || {
        let status = cluster.operate("GET", "/v1/regions", None).await;
        let log = us.agent.log();
        status.is_ok() && log.contains("wrong_store") && log.contains("--new-store")
    })
    .await;
    let refused = cluster.ids("us", "orders", 1).await.unwrap_err();
    assert!(refused.status == 503 || refused.status == 401, "it gives nothing out: {refused}");
    assert_eq!(view(&cluster, "us").await["epoch"], 1);
    step(&cluster, "us", "recover", json!({"new_store": true, "reason": "its disk is gone"})).await.unwrap();
    cluster.until_served("us", "orders").await;
    let epoch = view(&cluster, "us").await["epoch"].as_u64().unwrap();
    assert!(epoch > 1, "{epoch}");
    take(&cluster, "us", "orders", 1_500, 50, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test]
async fn the_first_grant_of_a_new_region_waits_until_an_old_one_has_taken_note_of_it() {
    let exposed = Exposed::new();
    let cluster = quick().region("eu").namespace_with("orders", fixed(1_000, 100)).start().await;
    at_rest(&cluster, "eu", "orders").await;
    cluster.region("eu").link.cut();
    let token = register(&cluster, "us").await;
    let us = extra_agent(&cluster, "us", &token, |spec| spec);
    us.up().await;
    until("it is active and waits", async || {
        let us = view(&cluster, "us").await;
        us["state"] == "active" && us["waiting_for"].is_string()
    })
    .await;
    // It asks with every heartbeat, and is told why it gets nothing.
    tokio::time::sleep(std::time::Duration::from_millis(2_500)).await;
    let refused = us.ids(&cluster, "orders", 1).await.unwrap_err();
    assert_dry(&refused);
    assert!(refused.detail.contains("first grant"), "{refused}");
    assert!(ledger(&cluster, "orders").await.iter().all(|(_, _, region)| region == "eu"));
    cluster.region("eu").link.heal();
    us.serves(&cluster, "us", "orders", &exposed).await;
    assert_eq!(view(&cluster, "us").await["waiting_for"], serde_json::Value::Null);
    take(&cluster, "eu", "orders", 100, 10, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}

/// Two agents of one store are one region: one epoch, one pool, disjoint segments; either may go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_agents_of_one_store_share_its_epoch_and_nothing_else() {
    let exposed = Arc::new(Exposed::new());
    let builder = quick().region_on("eu", Backend::Postgres).namespace_with("orders", fixed(5_000, 100));
    let cluster = builder.start().await;
    let database = cluster.region("eu").database_url.clone().unwrap();
    let other =
        extra_agent(&cluster, "eu", token_of(&cluster, "eu"), |spec| spec.env("CADASTRE_DATABASE_URL", &database));
    other.up().await;
    other.serves(&cluster, "other", "orders", &exposed).await;
    let one = Load::start(Plan::of(&cluster, "eu", "orders"), exposed.clone());
    let plan = Plan { agent_url: other.url.clone(), region: "other".to_owned(), ..Plan::of(&cluster, "eu", "orders") };
    let two = Load::start(plan, exposed.clone());
    for load in [&one, &two] {
        assert!(load.successes_within(100, std::time::Duration::from_secs(60)).await);
    }
    cluster.region("eu").agent.kill9();
    assert!(two.successes_within(100, std::time::Duration::from_secs(60)).await, "the other one goes on");
    cluster.restart_agent("eu").await;
    assert!(one.successes_within(100, std::time::Duration::from_secs(60)).await);
    for load in [one, two] {
        load.stop().await;
    }
    assert_eq!(other.status(&cluster).await["epoch"], 1);
    assert_sound(&cluster, &exposed).await;
}
