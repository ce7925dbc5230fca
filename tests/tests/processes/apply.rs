//! `cadastre apply`: a file, the difference, and the same file again.

use std::path::Path;

use serde_json::{Value, json};
use tests::cluster::Cluster;
use tests::scratch::Scratch;

use crate::help::{cadastre, quick};

fn example() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/apply/cluster.toml");
    file.canonicalize().unwrap().to_str().unwrap().to_owned()
}

fn apply(cluster: &Cluster, words: &[&str]) -> (i32, String) {
    cadastre(&cluster.url, &cluster.operator_token, &[&["apply"], words].concat())
}

async fn namespace(cluster: &Cluster, name: &str) -> Option<Value> {
    cluster.operate("GET", &format!("/v1/namespaces/{name}"), None).await.ok()
}

/// The run before died after its first call: what it made is there, and the rest is done now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_applied_after_a_run_that_died_and_then_there_is_nothing_to_do() {
    let cluster = quick().region("eu").start().await;
    let file = example();
    let body = json!({"name": "invoices", "policy": {"grant_size": "500000", "target_seconds": 30}});
    cluster.operate("POST", "/v1/namespaces", Some(&body)).await.unwrap();

    let (code, said) = apply(&cluster, &[&file, "--dry-run"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("namespace events") && said.contains("service billing"), "{said}");
    assert!(namespace(&cluster, "events").await.is_none(), "only looked");
    let (code, said) = apply(&cluster, &[&file]);
    assert_eq!(code, 2, "nobody is there to be asked: {said}");
    assert!(namespace(&cluster, "events").await.is_none(), "not agreed");

    let (code, said) = apply(&cluster, &[&file, "--yes"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("cadastre service token billing"), "{said}");
    assert_eq!(namespace(&cluster, "invoices").await.unwrap()["home"], json!(["eu"]));
    assert_eq!(namespace(&cluster, "events").await.unwrap()["kind"], "uuid_v7");

    for words in [&[&*file, "--yes", "--json"][..], &[&*file, "--dry-run", "--json"]] {
        let (code, said) = apply(&cluster, words);
        let answer: Value = serde_json::from_str(&said).unwrap();
        assert_eq!((code, &answer), (0, &json!({"changes": [], "same": 3, "applied": false})));
    }
    assert!(apply(&cluster, &[&file, "--yes"]).1.contains("nothing to do"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_thing_that_cannot_be_changed_and_nothing_is() {
    let cluster = quick().region("eu").start().await;
    let folder = Scratch::new("apply");
    let file = folder.path().join("cluster.json");
    let name = file.to_str().unwrap();
    let body = json!({"name": "invoices"});
    cluster.operate("POST", "/v1/namespaces", Some(&body)).await.unwrap();
    for (text, reason) in [
        (json!({"namespaces": {"aaa": {}, "invoices": {"kind": "uuid_v7"}}}), "never becomes uuid_v7"),
        (json!({"namespaces": {"aaa": {"home": ["mars"]}}}), "there is no mars"),
        (json!({"namespaces": {"aaa": {"frosen": true}}}), "frosen"),
    ] {
        std::fs::write(&file, text.to_string()).unwrap();
        let (code, said) = apply(&cluster, &[name, "--yes"]);
        assert!(code != 0 && said.contains(reason), "{code}: {said}");
        assert!(namespace(&cluster, "aaa").await.is_none(), "{said}");
    }
}
