//! Metrics and alarms in earnest: a real Prometheus scrapes real processes by the shipped rules, while a region is cut
//! off, another one is fenced, a caller reports a duplicate, and the authority's store is put back.
//!
//! The rest of the alerts is fired by series that stand for their causes, see `tests/tests/metrics.rs`.

use cadastre_client::Client;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use tests::child::Managed;
use tests::cluster::{Cluster, fixed};
use tests::http;
use tests::ports;
use tests::scratch::Scratch;

use crate::help::{audit_of, metric, quick, until};

/// The names of series at `/metrics`, without what a histogram adds.
async fn exposed(url: &str) -> BTreeSet<String> {
    let (_, _, text) = http::get_json(&format!("{url}/metrics"), None).await;
    let types = text.as_str().unwrap().lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_processes_expose_is_described_and_callers_report_duplicates() {
    let builder = quick().region("eu").namespace_with("orders", fixed(1_000, 100));
    let cluster = builder.define(json!({"name": "events", "kind": "snowflake"})).start().await;
    let agent = cluster.region("eu").url.clone();
    let id = cluster.ids("eu", "orders", 1).await.unwrap()[0];
    let client =
        Client::builder().agent("http://127.0.0.1:1").agent(agent.as_str()).token(cluster.service_token.as_str());
    let client = client.name("checkout").build().unwrap();
    client.report_duplicate("orders", id, "unique key of table orders").await.unwrap();
    assert_eq!(metric(&agent, "cadastre_duplicates_reported_total", "orders").await, 1.0);
    let told = audit_of(&cluster.region("eu").agent.data_folder().join("region.db"), "duplicate_reported");
    assert_eq!(told, [format!("orders {id}: \"unique key of table orders\"")]);
    // One that nobody was given is noted too: somebody thinks that it is ours.
    let report = json!({"namespace": "orders", "id": "999999999999"});
    let url = format!("{agent}/v1/duplicates");
    let (status, _, noted) = http::post_json(&url, Some(&cluster.service_token), &report).await;
    assert_eq!((status, noted), (201, json!({"region": "eu", "ours": false})));
    for (body, code) in [
        (json!({"namespace": "orders", "id": "1.5"}), "invalid_request"),
        (json!({"namespace": "orders", "id": "1", "detail": "x".repeat(501)}), "invalid_request"),
        (json!({"namespace": "secret", "id": "1"}), "forbidden"),
    ] {
        let (_, _, problem) = http::post_json(&url, Some(&cluster.service_token), &body).await;
        assert_eq!(problem["code"], code, "{body}");
    }
    assert_eq!(metric(&agent, "cadastre_duplicates_reported_total", "").await, 2.0);

    let both = cadastre_runtime::telemetry::METRICS;
    let of = |own: &[cadastre_runtime::telemetry::MetricDef]| -> BTreeSet<String> {
        own.iter().chain(both).map(|m| m.name.to_owned()).collect()
    };
    until("gauges are published", async || metric(&cluster.url, "cadastre_watermark", "orders").await > 0.0).await;
    for (url, known) in [(&cluster.url, of(global_authority::METRICS)), (&agent, of(region_agent::metrics::METRICS))] {
        let shown = exposed(url).await;
        let unknown: Vec<_> = shown.difference(&known).collect();
        assert!(unknown.is_empty() && shown.len() > 12, "{url} exposes what nobody described: {unknown:?}");
    }
}

/// A Prometheus with the shipped rules over these processes.
struct Prometheus {
    url: String,
    _server: Managed,
    _folder: Scratch,
}

impl Prometheus {
    fn start(targets: &[&str]) -> Self {
        let (port, folder) = (ports::free(), Scratch::new("prometheus"));
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("ops/prometheus/alerts.yml");
        std::fs::copy(rules, folder.path().join("alerts.yml")).unwrap();
        let targets: Vec<&str> = targets.iter().map(|url| url.trim_start_matches("http://")).collect();
        let config = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["alerts.yml"],
            "scrape_configs": [{"job_name": "cadastre", "static_configs": [{"targets": targets}]}],
        });
        // YAML reads JSON.
        std::fs::write(folder.path().join("prometheus.yml"), config.to_string()).unwrap();
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let server = Managed::start("prometheus (`ops/test` installs it)", command, "KILL");
        Self { url: format!("http://127.0.0.1:{port}"), _server: server, _folder: folder }
    }

    /// Alerts whose condition holds: those that wait for their time (`pending`) and those that fire.
    async fn alerts(&self) -> Vec<(String, Value)> {
        let Ok((200, _, body)) = http::call("GET", &format!("{}/api/v1/alerts", self.url), None, None).await else {
            return Vec::new();
        };
        let all = body["data"]["alerts"].as_array().cloned().unwrap_or_default();
        all.into_iter().map(|a| (a["labels"]["alertname"].as_str().unwrap().to_owned(), a["labels"].clone())).collect()
    }

    async fn raises(&self, alert: &str, key: &str, value: &str) {
        until(&format!("{alert} is raised"), async || {
            self.alerts().await.iter().any(|(name, labels)| name == alert && (key.is_empty() || labels[key] == value))
        })
        .await;
    }
}

async fn fence(cluster: &Cluster, region: &str) {
    cluster.operate("POST", &format!("/v1/regions/{region}/fence"), Some(&json!({}))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_a_fence_a_duplicate_and_a_lost_store_raise_their_alarms() {
    let builder = quick().region("eu").region("us").namespace_with("orders", fixed(1_000, 100));
    let cluster = builder.authority_env("CADASTRE_WITNESS", "none").start().await;
    let (eu, us) = (cluster.region("eu"), cluster.region("us"));
    let prometheus = Prometheus::start(&[&cluster.url, &eu.url, &us.url]);
    until("it scrapes", async || {
        let asked = http::call("GET", &format!("{}/api/v1/query?query=sum(up)", prometheus.url), None, None).await;
        asked.is_ok_and(|(_, _, body)| body["data"]["result"][0]["value"][1] == "3")
    })
    .await;
    let quiet: Vec<String> = prometheus.alerts().await.into_iter().map(|(name, _)| name).collect();
    assert!(quiet.is_empty(), "a healthy cluster raises nothing: {quiet:?}");
    fence(&cluster, "us").await;
    prometheus.raises("CadastreRegionFenced", "region", "us").await;
    let report = json!({"namespace": "orders", "id": "1", "detail": "a test"});
    http::post_json(&format!("{}/v1/duplicates", eu.url), Some(&cluster.service_token), &report).await;
    prometheus.raises("CadastreDuplicateReported", "namespace", "orders").await;
    eu.link.cut();
    prometheus.raises("CadastreUplinkDown", "region", "eu").await;
    prometheus.raises("CadastreRegionSilent", "region", "eu").await;
    // Without a witness nobody can tell whether this is the newest store until the regions have spoken.
    cluster.authority.kill9();
    prometheus.raises("CadastreProcessDown", "", "").await;
    us.link.cut();
    cluster.restart_authority().await;
    prometheus.raises("CadastreQuarantined", "", "").await;
}
