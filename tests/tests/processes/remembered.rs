//! The roster goes back with the authority's store: what was registered, made, fenced and revoked after the backup is
//! neither lost nor used again, be it remembered by a witness or by the regions.

use serde_json::json;
use tests::cluster::{Cluster, fixed};
use tests::ledger_of_ids::Exposed;
use tests::scratch::Scratch;

use crate::hand::{code, ledger};
use crate::help::{assert_sound, copy_folder, extra_agent, put_back, quick, register, step, take, until};

async fn names(cluster: &Cluster, what: &str) -> Vec<String> {
    let answer = cluster.operate("GET", &format!("/v1/{what}"), None).await.unwrap();
    let rows = answer[what].as_array().cloned().unwrap_or_else(|| answer.as_array().cloned().unwrap());
    rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
}

async fn is_open(cluster: &Cluster) -> bool {
    let all = cluster.operate("GET", "/v1/quarantines", None).await.unwrap();
    all["quarantines"].as_array().unwrap().is_empty()
}

async fn the_roster_goes_back(witness: Option<&str>) {
    let exposed = Exposed::new();
    let mut builder = quick().region("eu").region("us").namespace_with("orders", fixed(1_000, 100));
    if let Some(witness) = witness {
        builder = builder.authority_env("CADASTRE_WITNESS", witness);
    }
    let cluster = builder.start().await;
    take(&cluster, "eu", "orders", 500, 50, &exposed).await;
    let token = cluster.operate("POST", "/v1/services/shop/tokens", Some(&json!({}))).await.unwrap();
    cluster.authority.kill9();
    let copy = Scratch::new("backup");
    copy_folder(&cluster.authority.data_folder(), copy.path());
    cluster.restart_authority().await;
    until("open", async || is_open(&cluster).await).await;

    let late = register(&cluster, "ap").await;
    let ap = extra_agent(&cluster, "ap", &late, |spec| spec);
    ap.serves(&cluster, "ap", "orders", &exposed).await;
    cluster.operate("POST", "/v1/namespaces", Some(&json!({"name": "late", "kind": "range"}))).await.unwrap();
    let id = token["token_id"].as_str().unwrap();
    cluster.operate("DELETE", &format!("/v1/services/shop/tokens/{id}"), None).await.unwrap();
    let fenced = step(&cluster, "us", "fence", json!({})).await.unwrap();
    until("the regions have heard of all of it", async || {
        let known = crate::help::token_of(&cluster, "eu");
        let url = format!("{}/v1/testimony", cluster.region("eu").url);
        let record = tests::http::get_json(&url, Some(known)).await.2.to_string();
        let revoked = !record.contains(&format!("\"{id}\"")) || record.contains("\"revoked_at_ms\":1");
        record.contains("\"late\"") && record.contains("\"ap\"") && record.contains("fenced") && revoked
    })
    .await;
    let end = ledger(&cluster, "orders").await.last().unwrap().1;

    cluster.authority.kill9();
    put_back(copy.path(), &cluster.authority.data_folder());
    cluster.restart_authority().await;
    until("healed", async || is_open(&cluster).await).await;
    assert!(names(&cluster, "regions").await.contains(&"ap".to_owned()), "a region made after the backup");
    assert!(names(&cluster, "namespaces").await.contains(&"late".to_owned()));
    let again = cluster.operate("POST", "/v1/regions", Some(&json!({"name": "ap"}))).await.unwrap_err();
    assert_eq!(code(&again), (409, "already_exists"), "its name and number are not used again");
    let services = cluster.operate("GET", "/v1/services", None).await.unwrap();
    let tokens = services["services"][0]["tokens"].as_array().unwrap();
    let revoked = tokens.iter().find(|token| token["token_id"] == id);
    assert!(revoked.is_some_and(|token| token["revoked"] == true), "a revoked token stays revoked: {services}");
    let us = cluster.operate("GET", "/v1/regions", None).await.unwrap().to_string();
    assert!(us.contains("\"fenced\""), "the fence stands: {us}");
    let next = step(&cluster, "us", "recover", json!({})).await.unwrap();
    assert!(next > fenced, "an epoch is not given out twice: {fenced}, {next}");
    for region in ["eu", "us"] {
        take(&cluster, region, "orders", 1_500, 50, &exposed).await;
    }
    ap.serves(&cluster, "ap", "orders", &exposed).await;
    let grants = ledger(&cluster, "orders").await;
    let new = grants.iter().filter(|(lo, _, _)| *lo >= end).count();
    assert!(new >= 2, "above all that was ever granted: {grants:?}");
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_roster_that_went_back_is_remembered_by_the_witness() {
    the_roster_goes_back(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_roster_that_went_back_is_remembered_by_the_regions() {
    the_roster_goes_back(Some("none")).await;
}
