//! A namespace's home moves while callers are served: through killed authorities, a command that is killed, a region
//! that cannot be told, and answers that are lost. Nothing comes twice, and nobody is left without an answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cadastre_client::Client;
use serde_json::{Value, json};
use tests::cluster::{Cluster, fixed};
use tests::http;
use tests::ledger_of_ids::Exposed;
use tests::load::{Load, Plan};
use tests::process::{Daemon, Spec};

use crate::help::{assert_sound, quick, take, until};

/// What a region may hold stands above what any machine's callers use: a switch is refused where both need more.
async fn two() -> Cluster {
    let mut policy = fixed(20_000, 100);
    policy["region_max_held"] = json!("20000000");
    quick().region("eu").region("us").namespace_with("orders", policy).start().await
}

async fn begin(cluster: &Cluster, body: Value) -> Value {
    cluster.operate("POST", "/v1/switches", Some(&body)).await.unwrap()
}

fn eu_to_us() -> Value {
    json!({"namespace": "orders", "from": "eu", "to": "us"})
}

async fn look(cluster: &Cluster, switch: &Value) -> Option<Value> {
    let id = switch["switch_id"].as_str().unwrap();
    cluster.operate("GET", &format!("/v1/switches/{id}"), None).await.ok()
}

/// Waits for a step; the switch as it is then.
async fn until_step(cluster: &Cluster, switch: &Value, step: &str) -> Value {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let now = look(cluster, switch).await;
        if let Some(now) = now.as_ref().filter(|now| now["step"] == step) {
            return now.clone();
        }
        assert!(Instant::now() < until, "not {step} after 60 s: {now:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn home(cluster: &Cluster) -> Value {
    cluster.operate("GET", "/v1/namespaces/orders", None).await.unwrap()["home"].clone()
}

/// The whole problem of a caller of `eu`.
async fn refused(cluster: &Cluster) -> Option<Value> {
    let url = format!("{}/v1/ids", cluster.region("eu").url);
    let body = json!({"namespace": "orders"});
    let answer = http::call("POST", &url, Some(&cluster.service_token), Some(&body)).await.unwrap();
    (answer.0 != 200).then_some(answer.2)
}

/// Callers of eu are told where to go, over HTTP; those of us are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_home_moves_under_load_and_a_thick_client_follows() {
    let (cluster, exposed) = (two().await, Arc::new(Exposed::new()));
    let us = Load::start(Plan::of(&cluster, "us", "orders").count(10).tasks(2), Arc::clone(&exposed));
    let eu = Load::start(Plan::of(&cluster, "eu", "orders").count(10).tasks(2), Arc::clone(&exposed));
    // It knows one agent of eu, and nothing of us.
    let client = Client::builder().token(&*cluster.service_token).name("till").agent(&*cluster.region("eu").url);
    let orders = client.deadline(Duration::from_secs(30)).build().unwrap().namespace("orders").unwrap();
    exposed.record("client", &[orders.next().await.unwrap().get()]);
    assert!(eu.successes_within(50, Duration::from_secs(20)).await);
    let switch = begin(&cluster, eu_to_us()).await;
    let done = until_step(&cluster, &switch, "done").await;
    assert_eq!(done["from_knows"], true, "{done}");
    assert_eq!(home(&cluster).await, json!(["us"]));
    let problem = refused(&cluster).await.expect("eu is not the home any more");
    assert_eq!((problem["code"].as_str(), problem["status"].as_u64()), (Some("not_home"), Some(409)), "{problem}");
    until("the problem says where us is", async || {
        let problem = refused(&cluster).await.unwrap_or_default();
        problem["home"] == json!([{"region": "us", "urls": [cluster.region("us").url]}])
    })
    .await;
    // More than any segment that it took of eu has: it went on, and by itself.
    for _ in 0..1_000 {
        exposed.record("client", &[orders.next().await.unwrap().get()]);
    }
    let url = format!("{}/v1/segments?namespace=orders", cluster.region("us").url);
    let page: Value = http::get_json(&url, Some(&cluster.operator_token)).await.2;
    assert!(page["segments"].as_array().unwrap().iter().any(|s| s["instance"] == "till"), "{page}");
    assert!(us.successes_within(50, Duration::from_secs(20)).await);
    eu.stop().await;
    assert_eq!(us.stop().await.failures(), 0, "callers of the new home never noticed");
    // And back again: what eu held it still holds.
    let back = json!({"namespace": "orders", "from": "us", "to": "eu"});
    let switch = begin(&cluster, back).await;
    until_step(&cluster, &switch, "done").await;
    cluster.until_served("eu", "orders").await;
    assert_sound(&cluster, &exposed).await;
}

/// The authority is killed as soon as each step is seen, and once more while it comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_that_is_killed_at_each_step_goes_on_with_it() {
    let (cluster, exposed) = (two().await, Arc::new(Exposed::new()));
    let us = Load::start(Plan::of(&cluster, "us", "orders").count(10).tasks(2), Arc::clone(&exposed));
    let eu = Load::start(Plan::of(&cluster, "eu", "orders").count(10).tasks(2), Arc::clone(&exposed));
    assert!(eu.successes_within(50, Duration::from_secs(20)).await);
    // us cannot be asked to hold more, and so the switch stands where it is until it can.
    cluster.region("us").link.cut();
    let policy = json!({"policy": {"region_max_held": "2000000", "grant_max": "500000", "segment_min": "100000",
        "segment_max": "100000"}});
    cluster.operate("PATCH", "/v1/namespaces/orders", Some(&policy)).await.unwrap();
    let switch = begin(&cluster, eu_to_us()).await;
    assert_eq!(switch["step"], "planned", "{switch}");
    assert!(switch["waiting_for"].is_string() || switch["stopped"].is_string(), "{switch}");
    cluster.authority.kill9();
    cluster.restart_authority().await;
    cluster.region("us").link.heal();
    let id = switch["switch_id"].as_str().unwrap();
    let mut seen = Vec::new();
    let bound = Instant::now() + Duration::from_secs(90);
    loop {
        assert!(Instant::now() < bound, "not done after 90 s; seen {seen:?}: {:?}", look(&cluster, &switch).await);
        let Some(now) = look(&cluster, &switch).await else { continue };
        if now["stopped"].is_string() {
            // us was out of reach for longer than a region counts as live: a person lets it go on.
            let _ = cluster.operate("POST", &format!("/v1/switches/{id}/resume"), Some(&json!({}))).await;
        }
        let step = now["step"].as_str().unwrap().to_owned();
        if step == "done" {
            break;
        }
        if !seen.contains(&step) {
            seen.push(step);
            cluster.authority.kill9();
            cluster.restart_authority().await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(seen.contains(&"planned".to_owned()), "{seen:?}");
    assert_eq!(home(&cluster).await, json!(["us"]));
    until("eu says so", async || refused(&cluster).await.is_some_and(|p| p["code"] == "not_home")).await;
    let lines = look(&cluster, &switch).await.unwrap()["lines"].clone();
    for step in ["planned:", "drained:", "ready:", "moved:", "done:"] {
        let told = lines.as_array().unwrap().iter().filter(|l| l["text"].as_str().unwrap().starts_with(step)).count();
        assert_eq!(told, 1, "{step} once in {lines}");
    }
    eu.stop().await;
    us.stop().await;
    assert_sound(&cluster, &exposed).await;
}

/// Whoever watches may go away; answers to agents are lost meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_is_killed_leaves_a_switch_that_ends_by_itself() {
    let (cluster, exposed) = (two().await, Exposed::new());
    take(&cluster, "eu", "orders", 200, 10, &exposed).await;
    for region in cluster.regions() {
        region.link.lose_answers(3);
    }
    let command = ["switch", "--namespace", "orders", "--from", "eu", "--to", "us", "--yes"];
    let spec = Spec::binary("cadastre")
        .env("CADASTRE_AUTHORITY_URL", &*cluster.url)
        .env("CADASTRE_TOKEN", &*cluster.operator_token);
    let cli = Daemon::start(command.into_iter().fold(spec, |spec, arg| spec.arg(arg)));
    until("it was begun", async || {
        let all = cluster.operate("GET", "/v1/switches", None).await.unwrap();
        all["switches"].as_array().unwrap().len() == 1
    })
    .await;
    cli.kill9();
    let all = cluster.operate("GET", "/v1/switches", None).await.unwrap();
    until_step(&cluster, &all["switches"][0], "done").await;
    until("eu says so", async || refused(&cluster).await.is_some_and(|p| p["code"] == "not_home")).await;
    // The same once more: it is not eu's any more, and nothing changes.
    let problem = cluster.operate("POST", "/v1/switches", Some(&eu_to_us())).await.unwrap_err();
    assert_eq!((problem.status, problem.code.as_str()), (409, "not_allowed"), "{problem}");
    take(&cluster, "us", "orders", 200, 10, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}

/// eu is out of reach: its numbers need no fence, and it goes on with them until it hears.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_region_that_cannot_be_told_is_left_all_the_same() {
    let stamps = json!({"name": "events", "kind": "snowflake", "policy": {"grant_target_seconds": 120}});
    let builder = quick().region("eu").region("us").namespace_with("orders", fixed(20_000, 100)).define(stamps);
    let (cluster, exposed) = (builder.start().await, Exposed::new());
    take(&cluster, "eu", "orders", 200, 10, &exposed).await;
    cluster.region("eu").link.cut();
    // Until it counts as silent the switch waits for it; afterwards it is done without.
    let switch = begin(&cluster, json!({"from": "eu", "to": "us"})).await;
    let done = until_step(&cluster, &switch, "done").await;
    assert_eq!(done["from_knows"], false, "{done}");
    let end: u64 = done["windows_end_at"].as_str().expect("when its windows end").parse().unwrap();
    let made: u64 = done["made_at"].as_str().unwrap().parse().unwrap();
    assert!(end > made.saturating_sub(1_000) && end < made + 300_000, "{done}");
    assert!(done["lines"].to_string().contains("out of reach"), "{done}");
    take(&cluster, "eu", "orders", 200, 10, &exposed).await;
    take(&cluster, "us", "orders", 200, 10, &exposed).await;
    cluster.region("eu").link.heal();
    until("eu hears of it", async || refused(&cluster).await.is_some_and(|p| p["code"] == "not_home")).await;
    assert_sound(&cluster, &exposed).await;
}

/// What cannot be safe is refused with the reason, and what was begun is put back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_safe_is_refused_and_what_was_begun_is_put_back() {
    let (cluster, exposed) = (two().await, Exposed::new());
    for (body, status, word) in [
        (json!({"namespace": "orders", "from": "eu", "to": "eu"}), 409, "two regions"),
        (json!({"namespace": "orders", "from": "eu", "to": "mars"}), 404, "mars"),
        (json!({"namespace": "nothing", "from": "eu", "to": "us"}), 404, "nothing"),
        (json!({"namespace": "orders", "from": "eu", "to": "us", "fence": true}), 409, "whole region"),
        (json!({"namespace": "orders", "from": "eu", "to": "us", "hurry": 1}), 422, "hurry"),
    ] {
        let problem = cluster.operate("POST", "/v1/switches", Some(&body)).await.unwrap_err();
        assert!(problem.status == status && problem.detail.contains(word), "{body}: {problem}");
    }
    // us can never hold what both need.
    let policy = json!({"policy": {"region_max_held": "20000", "segment_min": "1000", "segment_max": "1000"}});
    cluster.operate("PATCH", "/v1/namespaces/orders", Some(&policy)).await.unwrap();
    cluster.operate("POST", "/v1/regions/us/drain", Some(&json!({}))).await.unwrap();
    let problem = cluster.operate("POST", "/v1/switches", Some(&eu_to_us())).await.unwrap_err();
    assert!(problem.detail.contains("draining"), "{problem}");
    cluster.operate("POST", "/v1/regions/us/recover", Some(&json!({}))).await.unwrap();
    cluster.until_served("us", "orders").await;
    // With us out of reach it waits or stops, and can be put back.
    cluster.region("us").link.cut();
    let policy = json!({"policy": {"region_max_held": "9000000", "grant_max": "900000", "segment_min": "60000",
        "segment_max": "60000"}});
    cluster.operate("PATCH", "/v1/namespaces/orders", Some(&policy)).await.unwrap();
    let switch = begin(&cluster, eu_to_us()).await;
    assert_eq!(switch["step"], "planned", "{switch}");
    let problem = cluster.operate("POST", "/v1/switches", Some(&eu_to_us())).await.unwrap_err();
    assert!(problem.detail.contains("under way"), "{problem}");
    let path = format!("/v1/switches/{}/back-out", switch["switch_id"].as_str().unwrap());
    for _ in 0..2 {
        let back = cluster.operate("POST", &path, Some(&json!({}))).await.unwrap();
        assert_eq!(back["step"], "backed_out", "{back}");
    }
    let now = cluster.operate("GET", "/v1/namespaces/orders", None).await.unwrap();
    assert_eq!((&now["home"], now.get("leaving"), now.get("arriving")), (&Value::Null, None, None), "{now}");
    cluster.region("us").link.heal();
    take(&cluster, "eu", "orders", 100, 10, &exposed).await;
    take(&cluster, "us", "orders", 100, 10, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}
