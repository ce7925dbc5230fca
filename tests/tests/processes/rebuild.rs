//! The authority is lost for good, store and witness: made again from its regions by the operator's own command.

use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tests::cluster::{Cluster, fixed, random_token};
use tests::http;
use tests::ledger_of_ids::Exposed;
use tests::load::{Load, Plan};

use crate::hand::ledger;
use crate::help::{assert_sound, cadastre, quick, take, token_of, until};

/// What an agent's store knows, by an operator's or its region's token.
async fn testimony(cluster: &Cluster, token: &str) -> Value {
    let url = format!("{}/v1/testimony", cluster.region("eu").url);
    let (status, _, record) = http::get_json(&url, Some(token)).await;
    assert_eq!(status, 200, "{record}");
    record
}

/// Store and witness are gone; an empty authority of the same cluster starts in their place.
async fn lose(cluster: &Cluster, rebuilder: &str) {
    let record = testimony(cluster, &cluster.operator_token).await;
    assert_eq!(record, testimony(cluster, token_of(cluster, "eu")).await, "a region's own token shows as much");
    let id = record["cluster_id"].as_str().unwrap().to_owned();
    cluster.authority.kill9();
    let data = cluster.authority.data_folder();
    for folder in [data.clone(), data.with_file_name("data-witness")] {
        std::fs::remove_dir_all(&folder).unwrap();
    }
    std::fs::create_dir(&data).unwrap();
    cluster.authority.change(|spec| spec.env("CADASTRE_REBUILD", id).env("CADASTRE_BOOTSTRAP_TOKEN", rebuilder));
    cluster.restart_authority().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_that_was_lost_is_made_again_from_its_regions() {
    let exposed = Arc::new(Exposed::new());
    let builder = quick().region("eu").region("us").namespace_with("orders", fixed(1_000, 100)).namespace("other");
    let cluster = builder.start().await;
    for region in ["eu", "us"] {
        take(&cluster, region, "orders", 2_500, 50, &exposed).await;
    }
    cluster.operate("POST", "/v1/regions/us/fence", Some(&json!({}))).await.unwrap();
    cluster.operate("POST", "/v1/regions/us/recover", Some(&json!({}))).await.unwrap();
    take(&cluster, "us", "orders", 1_500, 50, &exposed).await;
    until("both know the newest roster", async || {
        cluster.status("eu").await["epoch"] == 1 && cluster.status("us").await["epoch"].as_u64() == Some(3)
    })
    .await;
    let before = ledger(&cluster, "orders").await;
    let loads = ["eu", "us"].map(|region| {
        Load::start(Plan::of(&cluster, region, "orders").tasks(1).pause(Duration::from_millis(10)), exposed.clone())
    });
    let rebuilder = random_token("cad_op_");
    lose(&cluster, &rebuilder).await;
    // It knows nobody, and so gives nothing out; the regions go on from what they hold.
    let ready = http::get_json(&format!("{}/readyz", cluster.url), None).await.2;
    assert_eq!(ready["status"], "quarantined", "{ready}");
    let refused = cluster.operate("GET", "/v1/quarantines", None).await.unwrap_err();
    assert_eq!(refused.status, 401, "the old operator is not known yet: {refused}");
    let eu = cluster.region("eu").url.as_str();
    let (code, said) = cadastre(&cluster.url, &rebuilder, &["rebuild", "--agent", eu]);
    assert_eq!(code, 2, "not without saying that the old one is stopped: {said}");
    let words =
        ["rebuild", "--agent", eu, "--agent-token", cluster.operator_token.as_str(), "--old-store-stopped", "--json"];
    let (code, said) = cadastre(&cluster.url, &rebuilder, &words);
    assert_eq!(code, 0, "{said}");
    let done: Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"));
    assert!(done["written"].as_u64() >= Some(before.len() as u64 - 2), "{done}");
    assert_eq!(done["refused"], json!([]), "{done}");
    for load in &loads {
        load.reset_gap();
        assert!(load.successes_within(100, Duration::from_secs(60)).await, "{:?}", load.report());
    }
    for load in loads {
        load.stop().await;
    }
    for region in ["eu", "us"] {
        take(&cluster, region, "orders", 2_500, 50, &exposed).await;
    }
    let after = ledger(&cluster, "orders").await;
    let mut missing: Vec<_> = before.iter().filter(|row| !after.contains(row)).collect();
    missing.retain(|(_, hi, _)| *hi > 0);
    assert!(missing.len() <= 2, "only what nobody had adopted yet is missing: {missing:?}");
    // A second time it finds nothing to do; and an ordinary start is one again.
    let (code, said) = cadastre(&cluster.url, &rebuilder, &words);
    let done: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &done["written"], &done["refused"]), (0, &json!(0), &json!([])), "{said}");
    cluster.restart_authority().await;
    take(&cluster, "us", "orders", 1_500, 50, &exposed).await;
    let (code, said) = cadastre(&cluster.url, &cluster.operator_token, &["verify"]);
    assert_eq!(code, 0, "the old operator is known again: {said}");
    assert_sound(&cluster, &exposed).await;
}

/// Only one region can be brought: what it remembers names the other one, and nothing is granted before that spoke.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuilt_authority_waits_for_a_region_that_is_cut_off() {
    let exposed = Exposed::new();
    let builder = quick().region("eu").region("us").namespace_with("orders", fixed(1_000, 100));
    let cluster = builder.start().await;
    for region in ["eu", "us"] {
        take(&cluster, region, "orders", 1_500, 50, &exposed).await;
    }
    cluster.region("us").link.cut();
    let rebuilder = random_token("cad_op_");
    lose(&cluster, &rebuilder).await;
    let (eu, region_token) = (cluster.region("eu").url.as_str(), token_of(&cluster, "eu"));
    let words = ["rebuild", "--agent", eu, "--agent-token", region_token, "--old-store-stopped", "--wait", "5"];
    let (code, said) = cadastre(&cluster.url, &rebuilder, &words);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("not everybody has testified: us"), "{said}");
    take(&cluster, "us", "orders", 200, 50, &exposed).await;
    cluster.region("us").link.heal();
    let (code, said) = cadastre(&cluster.url, &rebuilder, &words);
    assert_eq!(code, 0, "{said}");
    for region in ["eu", "us"] {
        take(&cluster, region, "orders", 2_500, 50, &exposed).await;
    }
    assert_sound(&cluster, &exposed).await;
}
