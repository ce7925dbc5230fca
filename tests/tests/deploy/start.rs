//! The real programs, started with the settings as they stand in the files: only addresses, folders and servers are this
//! test's own.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use tests::cluster::random_token;
use tests::http;
use tests::ports;
use tests::postgres::Postgres;
use tests::process::{Daemon, Spec, built};
use tests::redis::Redis;
use tests::scratch::Scratch;

use crate::{containers, manifests, read};

/// The settings with the places of this test: a port of loopback, folders under `folder`.
fn here(mut settings: BTreeMap<String, String>, folder: &Path, port: u16) -> BTreeMap<String, String> {
    for value in settings.values_mut() {
        *value = value.replace("/var/lib/", &format!("{}/", folder.display()));
    }
    settings.insert("CADASTRE_LISTEN".to_owned(), format!("127.0.0.1:{port}"));
    settings.remove("POD_NAME");
    settings
}

async fn start(program: &str, settings: &BTreeMap<String, String>) -> Daemon {
    let spec = settings.iter().fold(Spec::binary(program), |spec, (name, value)| spec.env(name, value.as_str()));
    let daemon = Daemon::start(spec);
    daemon.wait_ready(&format!("http://{}/healthz", settings["CADASTRE_LISTEN"])).await;
    daemon
}

fn set(settings: &mut BTreeMap<String, String>, pairs: &[(&str, &str)]) {
    settings.extend(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
}

/// The authority's first steps, and the token of its region `eu`.
async fn region_token(url: &str, operator: &str) -> String {
    let post = async |path: &str, body: serde_json::Value| {
        let (status, _, answer) = http::post_json(&format!("{url}{path}"), Some(operator), &body).await;
        assert!((200..300).contains(&status), "{path}: {status} {answer}");
        answer
    };
    post("/v1/namespaces", json!({"name": "orders", "kind": "range"})).await;
    post("/v1/services", json!({"name": "shop", "namespaces": ["orders"]})).await;
    post("/v1/regions", json!({"name": "eu"})).await["token"].as_str().unwrap().to_owned()
}

/// What the image's health check does, until it is well.
async fn probe(url: &str) {
    for _ in 0..600 {
        let asked = Command::new(built("cadastre")).args(["probe", url]).output().unwrap();
        if asked.status.success() {
            return;
        }
        assert_eq!(asked.status.code(), Some(1), "{}", String::from_utf8_lossy(&asked.stderr));
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("{url} is not ready after a minute");
}

/// Starts both programs with these settings, up to `/readyz`; whatever is wrong in a file shows here.
async fn both(authority: BTreeMap<String, String>, agent: BTreeMap<String, String>, operator: &str) {
    let _authority = start("global-authority", &authority).await;
    let url = format!("http://{}", authority["CADASTRE_LISTEN"]);
    probe(&format!("{url}/readyz")).await;
    let token = region_token(&url, operator).await;
    let mut agent = agent;
    set(&mut agent, &[("CADASTRE_AUTHORITY_URL", &url), ("CADASTRE_REGION_TOKEN", &token)]);
    let running = start("region-agent", &agent).await;
    probe(&format!("http://{}/readyz", agent["CADASTRE_LISTEN"])).await;
    // In order, within the time that the files grant.
    assert_eq!(running.terminate().await, 0, "{}", running.log());
}

#[tokio::test]
async fn the_containers_of_compose_start_with_what_stands_there() {
    let (folder, operator) = (Scratch::new("compose"), random_token("cad_op_"));
    for name in ["authority", "authority-witness", "eu", "eu-witness"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    // Each container has its own /var/lib.
    let own = |service: &str| {
        let settings = here(containers::environment(service), folder.path(), ports::free());
        let lay = |text: String| {
            let witness = format!("{}/cadastre-witness", folder.path().display());
            let data = format!("{}/cadastre", folder.path().display());
            text.replace(&witness, &format!("{}/{service}-witness", folder.path().display()))
                .replace(&data, &format!("{}/{service}", folder.path().display()))
        };
        settings.into_iter().map(|(name, value)| (name, lay(value))).collect::<BTreeMap<_, _>>()
    };
    let mut authority = own("authority");
    let database = Postgres::shared().fresh_database();
    set(&mut authority, &[("CADASTRE_DATABASE_URL", &database), ("CADASTRE_BOOTSTRAP_TOKEN", &operator)]);
    both(authority, own("eu"), &operator).await;
    for witness in ["authority-witness/authority.db", "eu-witness/region.db", "eu/region.db"] {
        assert!(folder.path().join(witness).exists(), "{witness}");
    }
}

#[tokio::test]
async fn the_pods_of_kubernetes_start_with_what_stands_there() {
    let (folder, operator, redis) = (Scratch::new("pods"), random_token("cad_op_"), Redis::start());
    let all = manifests::objects();
    let of = |kind: &str| all.iter().find(|it| it["kind"] == kind).unwrap().clone();
    let secrets = || {
        let url = Postgres::shared().fresh_database();
        let list = [("database-url", url), ("witness", redis.url()), ("bootstrap-token", operator.clone())];
        let mut map = BTreeMap::from(list);
        map.insert("region-token", String::new());
        map
    };
    let settings = |kind: &str, name: &str| {
        let own = folder.path().join(name);
        std::fs::create_dir(&own).unwrap();
        here(manifests::environment(&of(kind), &secrets()), &own, ports::free())
    };
    both(settings("Deployment", "authority"), settings("StatefulSet", "eu"), &operator).await;
}

/// The examples of systemd's files, with what a person has to fill in filled in; the switched-off lines are settings too.
#[tokio::test]
async fn the_units_start_with_what_their_examples_say() {
    let (folder, operator) = (Scratch::new("units"), random_token("cad_op_"));
    std::fs::create_dir(folder.path().join("cadastre")).unwrap();
    let settings = |unit: &str, example: &str| {
        let text = read(&format!("ops/systemd/{unit}")) + &read(&format!("ops/systemd/{example}"));
        let lines = text.lines().map(|line| line.trim_start_matches("Environment="));
        let pairs = lines.filter(|line| line.starts_with("CADASTRE_")).filter_map(|line| line.split_once('='));
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.replace("%i", "eu")));
        here(pairs.collect(), folder.path(), ports::free())
    };
    let mut authority = settings("global-authority.service", "authority.env.example");
    set(&mut authority, &[("CADASTRE_BOOTSTRAP_TOKEN", &operator)]);
    both(authority, settings("region-agent@.service", "region.env.example"), &operator).await;
    // The witness lies in the unit's second folder without being told.
    assert!(folder.path().join("cadastre/authority-witness/authority.db").exists());
    assert!(folder.path().join("cadastre/region-eu-witness/region-eu.db").exists());
}
