//! Limits of services: tenants of one, agents of one region, processes that hold ids.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::cluster::{Backend, Cluster};
use tests::http;
use tests::ledger_of_ids::Exposed;
use tests::process::Spec;
use tests::redis::Redis;
use tests::region::Problem;

use crate::hand::{code, fresh};
use crate::help::{assert_clean_log, assert_sound, extra_agent, metric, number, quick, token_of, until};

/// A service with a token.
async fn service(cluster: &Cluster, name: &str, limits: Value) -> String {
    let body = json!({"name": name, "namespaces": ["orders"], "limits": limits});
    cluster.operate("POST", "/v1/services", Some(&body)).await.unwrap();
    let answer = cluster.operate("POST", &format!("/v1/services/{name}/tokens"), Some(&json!({}))).await.unwrap();
    let token = answer["token"].as_str().unwrap().to_owned();
    known(&cluster.region("eu").url, &token).await;
    token
}

/// A token that was just made reaches an agent with its next heartbeat.
async fn known(agent: &str, token: &str) {
    let url = format!("{agent}/v1/status");
    until("the agent knows the token", async || http::get_json(&url, Some(token)).await.0 == 200).await;
}

/// A caller of one agent: how much it got, and how often it was refused.
#[derive(Clone)]
struct Caller {
    agent: String,
    token: String,
    tenant: Option<&'static str>,
    count: u32,
    pause: Duration,
    exposed: Arc<Exposed>,
}

#[derive(Debug, Default)]
struct Got {
    ids: u64,
    refused: u64,
    last: Option<Problem>,
}

impl Caller {
    async fn once(&self, client: &reqwest::Client) -> Result<usize, Problem> {
        let mut body = json!({"namespace": "orders", "count": self.count});
        if let Some(tenant) = self.tenant {
            body["tenant"] = json!(tenant);
        }
        let url = format!("{}/v1/ids", self.agent);
        let answer = http::call_with(client, "POST", &url, Some(&self.token), Some(&body)).await;
        let (status, headers, value) = answer.map_err(|error| Problem::connection(&error))?;
        let Some(ids) = value["ids"].as_array().filter(|_| status == 200) else {
            return Err(Problem::of(status, &headers, &value));
        };
        let ids: Vec<i64> = ids.iter().map(|id| id.as_str().unwrap().parse().unwrap()).collect();
        self.exposed.record("eu", &ids);
        Ok(ids.len())
    }

    async fn run(self, lasting: Duration) -> Got {
        let (client, end, mut got) = (http::client(), Instant::now() + lasting, Got::default());
        while Instant::now() < end {
            match self.once(&client).await {
                Ok(ids) => got.ids += ids as u64,
                Err(problem) if problem.code == "rate_limited" => {
                    got.refused += 1;
                    got.last = Some(problem);
                }
                // A refill that is late on a busy machine; what this is about are limits.
                Err(problem) => assert!(problem.status == 503, "{problem}"),
            }
            tokio::time::sleep(self.pause).await;
        }
        got
    }
}

fn caller(
    cluster: &Cluster,
    token: &str,
    tenant: Option<&'static str>,
    (count, pause_ms): (u32, u64),
    exposed: &Arc<Exposed>,
) -> Caller {
    Caller {
        agent: cluster.region("eu").url.clone(),
        token: token.to_owned(),
        tenant,
        count,
        pause: Duration::from_millis(pause_ms),
        exposed: Arc::clone(exposed),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_noisy_tenant_or_service_does_not_starve_another_one() {
    let exposed = Arc::new(Exposed::new());
    let cluster = quick().region("eu").namespace("orders").start().await;
    let shop = service(&cluster, "till", json!({"ids_per_second": 500})).await;
    let other = service(&cluster, "other", json!({"ids_per_second": 500})).await;
    let lasting = Duration::from_secs(6);
    let noisy = tokio::spawn(caller(&cluster, &shop, Some("noisy"), (50, 1), &exposed).run(lasting));
    let unnamed = tokio::spawn(caller(&cluster, &shop, None, (5, 100), &exposed).run(lasting));
    let quiet = tokio::spawn(caller(&cluster, &shop, Some("quiet"), (5, 100), &exposed).run(lasting));
    let neighbour = caller(&cluster, &other, None, (10, 50), &exposed).run(lasting).await;
    let (noisy, unnamed, quiet) = (noisy.await.unwrap(), unnamed.await.unwrap(), quiet.await.unwrap());
    assert!(noisy.refused > 0 && noisy.ids >= 1_000, "what is left over is the noisy one's: {noisy:?}");
    let problem = noisy.last.unwrap();
    assert!(problem.detail.contains("tenant noisy") || problem.detail.contains("till"), "{problem}");
    assert!(problem.retry_after.is_some(), "{problem}");
    for (who, got) in [("quiet", quiet), ("unnamed", unnamed), ("neighbour", neighbour)] {
        assert!(got.refused == 0 && got.ids >= 100, "{who}: {got:?}");
    }
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test]
async fn a_label_that_is_none_is_refused_with_what_to_send() {
    let exposed = Arc::new(Exposed::new());
    let cluster = quick().region("eu").namespace("orders").start().await;
    let url = format!("{}/v1/ids", cluster.region("eu").url);
    for tenant in [json!(""), json!("a b"), json!("x".repeat(65)), json!(7)] {
        let body = json!({"namespace": "orders", "tenant": tenant});
        let (status, _, problem) = http::post_json(&url, Some(&cluster.service_token), &body).await;
        assert_eq!((status, problem["code"].as_str()), (422, Some("invalid_request")), "{tenant}: {problem}");
        assert!(tenant == 7 || problem["detail"].as_str().unwrap().contains("64 characters"), "{problem}");
    }
    let body = json!({"namespace": "orders", "tenant": "x".repeat(64)});
    let (status, _, answer) = http::post_json(&url, Some(&cluster.service_token), &body).await;
    assert_eq!(status, 200, "no limit, no share: {answer}");
    exposed.record("eu", &[answer["id"].as_str().unwrap().parse().unwrap()]);
    assert_sound(&cluster, &exposed).await;
}

/// One segment for a process; its length, or the refusal.
async fn segment(cluster: &Cluster, token: &str, process: u128, n: u64, want: u64) -> Result<u64, Problem> {
    let order = json!({"namespace": "orders", "allocation_id": fresh(n).to_string(), "instance": "till",
        "incarnation": uuid::Uuid::from_u128(process).to_string(), "want": want.to_string()});
    let url = format!("{}/v1/segments", cluster.region("eu").url);
    let answer = http::call("POST", &url, Some(token), Some(&order)).await;
    let (status, headers, value) = answer.map_err(|error| Problem::connection(&error))?;
    if status != 201 {
        return Err(Problem::of(status, &headers, &value));
    }
    Ok(number(&value["hi"]) - number(&value["lo"]))
}

/// A segment counts against the rate as it is used: what processes took ahead within a minute is not there for others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn segments_count_against_the_rate_of_their_service() {
    let exposed = Arc::new(Exposed::new());
    let cluster = quick().region("eu").namespace("orders").start().await;
    let token = service(&cluster, "mixed", json!({"ids_per_second": 100})).await;
    let url = format!("{}/v1/segments", cluster.region("eu").url);
    let first = json!({"namespace": "orders", "allocation_id": fresh(1).to_string(), "instance": "till",
        "incarnation": uuid::Uuid::from_u128(1).to_string(), "want": "100000"});
    let (status, _, granted) = http::post_json(&url, Some(&token), &first).await;
    assert_eq!(status, 201, "{granted}");
    assert_eq!(number(&granted["hi"]) - number(&granted["lo"]), 3_000, "half of a minute's worth: {granted}");

    // 50 a second of the 100 are left for those who ask one request at a time.
    let got = caller(&cluster, &token, None, (5, 1), &exposed).run(Duration::from_secs(4)).await;
    assert!((100..=300).contains(&got.ids), "4 seconds at 50 a second: {got:?}");

    let (mut all, mut refusal) = (3_000, None);
    for process in 2..40 {
        match segment(&cluster, &token, process, process as u64, 100_000).await {
            Ok(ids) => all += ids,
            Err(problem) => {
                refusal = Some(problem);
                break;
            }
        }
    }
    let refusal = refusal.expect("a minute's worth is all there is");
    assert_eq!(code(&refusal), (429, "rate_limited"), "{refusal}");
    assert!(refusal.detail.contains("taken ahead") && refusal.retry_after.is_some(), "{refusal}");
    assert!((5_800..=6_000).contains(&all), "{all} of 6,000");
    // What was carved before is found again, whatever is left of the rate.
    let (status, _, again) = http::post_json(&url, Some(&token), &first).await;
    assert_eq!((status, &again["lo"], &again["replayed"]), (201, &granted["lo"], &json!(true)), "{again}");
    // No other service pays for it.
    segment(&cluster, &cluster.service_token, 99, 300, 300).await.unwrap();
    assert_sound(&cluster, &exposed).await;
}

async fn held(cluster: &Cluster, exposed: &Arc<Exposed>) {
    let two = service(cluster, "two", json!({"holders": 2})).await;
    for (process, n) in [(1, 1), (2, 2), (1, 3)] {
        segment(cluster, &two, process, n, 10).await.unwrap();
    }
    let refused = segment(cluster, &two, 3, 4, 10).await.unwrap_err();
    assert_eq!(code(&refused), (429, "rate_limited"), "{refused}");
    assert!(refused.detail.contains("`holders`") && refused.detail.contains("2 processes"), "{refused}");
    assert_eq!(refused.retry_after, Some(60), "{refused}");
    segment(cluster, &two, 2, 5, 10).await.expect("one that counts goes on");
    cluster.operate("PATCH", "/v1/services/two", Some(&json!({"limits": {"holders": 3}}))).await.unwrap();
    until("the higher limit is known", async || segment(cluster, &two, 3, 6, 10).await.is_ok()).await;

    let full = service(cluster, "full", json!({"held_ids": "1000"})).await;
    let (mut all, mut refusal) = (0, None);
    for process in 10..40 {
        match segment(cluster, &full, process, 100 + process as u64, 300).await {
            Ok(ids) => all += ids,
            Err(problem) => {
                refusal = Some(problem);
                break;
            }
        }
    }
    let refusal = refusal.expect("at some point nothing is free");
    assert_eq!(code(&refusal), (429, "rate_limited"), "{refusal}");
    assert!(refusal.detail.contains("`held_ids` of 1000"), "{refusal}");
    assert!((900..=1_000).contains(&all), "{all} are held");
    // The first process has used what it had, or it would not ask.
    let more = segment(cluster, &full, 10, 200, 300).await.unwrap();
    assert!(more > 0, "{more}");
    // Other services are not touched, nor is this one's POST /v1/ids.
    segment(cluster, &cluster.service_token, 99, 300, 300).await.unwrap();
    let asked = caller(cluster, &full, None, (5, 1), exposed);
    assert_eq!(asked.once(&http::client()).await.unwrap(), 5);
}

#[tokio::test]
async fn processes_and_what_they_hold_are_bounded_on_sqlite() {
    let exposed = Arc::new(Exposed::new());
    let cluster = quick().region("eu").namespace("orders").start().await;
    held(&cluster, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test]
async fn processes_and_what_they_hold_are_bounded_on_postgres() {
    let exposed = Arc::new(Exposed::new());
    let cluster = quick().region_on("eu", Backend::Postgres).namespace("orders").start().await;
    held(&cluster, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}

/// Two agents of one region give a service no more together than one would alone; without Redis each goes on with
/// its half.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_of_a_region_share_a_rate_through_redis_and_go_on_without() {
    let exposed = Arc::new(Exposed::new());
    let redis = Redis::start();
    let guarded = || redis.command(&["CONFIG", "SET", "requirepass", "hush-hush"]).unwrap();
    guarded();
    let url = format!("redis://:hush-hush@127.0.0.1:{}", redis.port());
    let builder = quick().region_on("eu", Backend::Postgres).agent_env("CADASTRE_QUOTA_REDIS", &url);
    let cluster = builder.namespace("orders").start().await;
    let database = cluster.region("eu").database_url.clone().unwrap();
    let same =
        |spec: Spec| spec.env("CADASTRE_DATABASE_URL", database.as_str()).env("CADASTRE_QUOTA_REDIS", url.as_str());
    let second = extra_agent(&cluster, "eu", token_of(&cluster, "eu"), same);
    second.up().await;
    let token = service(&cluster, "till", json!({"ids_per_second": 400})).await;
    known(&second.url, &token).await;
    let first = cluster.region("eu").url.clone();
    for agent in [&first, &second.url] {
        until("both are heard of", async || metric(agent, "cadastre_quota_agents", "").await == 2.0).await;
    }
    let both = async |lasting: u64| {
        let lasting = Duration::from_secs(lasting);
        let here = caller(&cluster, &token, None, (10, 1), &exposed);
        let there = Caller { agent: second.url.clone(), ..here.clone() };
        let (a, b) = (tokio::spawn(here.run(lasting)), tokio::spawn(there.run(lasting)));
        (a.await.unwrap(), b.await.unwrap())
    };
    // The shares find their level, and what was saved up is spent.
    both(4).await;
    let (a, b) = both(6).await;
    let all = a.ids + b.ids;
    assert!((1_600..=3_000).contains(&all), "6 seconds at 400 a second: {a:?} and {b:?}");
    assert!(a.ids.min(b.ids) >= 600, "both are asked as much: {a:?} and {b:?}");
    let problem = a.last.unwrap();
    assert!(problem.detail.contains("400 ids a second in this region"), "{problem}");

    // One agent alone gets what the other does not want.
    let alone = caller(&cluster, &token, None, (10, 1), &exposed);
    alone.clone().run(Duration::from_secs(5)).await;
    let got = alone.run(Duration::from_secs(4)).await;
    assert!((1_100..=2_000).contains(&got.ids), "nearly all of 4 seconds at 400: {got:?}");

    redis.kill9();
    until("it is noticed", async || metric(&first, "cadastre_quota_redis_up", "").await == 0.0).await;
    until("there too", async || metric(&second.url, "cadastre_quota_redis_up", "").await == 0.0).await;
    both(2).await;
    let (a, b) = both(5).await;
    for got in [&a, &b] {
        assert!((700..=1_300).contains(&got.ids), "5 seconds at a half of 400: {a:?} and {b:?}");
    }
    redis.restart();
    guarded();
    until("it goes on", async || metric(&first, "cadastre_quota_redis_up", "").await == 1.0).await;
    assert_sound(&cluster, &exposed).await;
    assert_clean_log(&cluster.region("eu").agent, &["hush-hush"]);
}

/// What is used of the limits is told: rates of callers and of processes, requests, processes and what they hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_used_of_the_limits_is_told() {
    let cluster = quick().region("eu").namespace("orders").start().await;
    let limits = json!({"ids_per_second": 100_000, "in_flight": 8, "holders": 2, "held_ids": "1000000"});
    let token = service(&cluster, "till", limits).await;
    service(&cluster, "free", json!({})).await;
    let uses = async || cluster.operate("GET", "/v1/services/use", None).await.unwrap();
    let of = |all: &Value| all["uses"].as_array().unwrap().iter().find(|u| u["service"] == "till").cloned();
    let idle = of(&uses().await).unwrap();
    assert_eq!(
        (&idle["region"], &idle["holders"], idle["share"].as_f64()),
        (&json!("eu"), &json!(0), Some(0.0)),
        "{idle}"
    );
    let agent = cluster.region("eu").url.clone();
    let order = json!({"namespace": "orders", "allocation_id": fresh(1).to_string(), "instance": "a",
        "incarnation": uuid::Uuid::from_u128(7).to_string(), "want": "100"});
    let (status, _, answer) = http::post_json(&format!("{agent}/v1/segments"), Some(&token), &order).await;
    assert_eq!(status, 201, "{answer}");
    let held = of(&uses().await).unwrap();
    assert_eq!((&held["holders"], &held["nearest"], held["share"].as_f64()), (&json!(1), &json!("holders"), Some(0.5)));
    assert!(number(&held["held_ids"]) >= 1, "{held}");
    until("the rate is told", async || {
        let body = json!({"namespace": "orders", "count": 100});
        let _ = http::post_json(&format!("{agent}/v1/ids"), Some(&token), &body).await;
        of(&uses().await).unwrap()["ids_per_second"].as_f64() > Some(5.0)
    })
    .await;
    let all = uses().await;
    assert!(all["uses"].as_array().unwrap().iter().all(|u| u["service"] != "free"), "it has no limit: {all}");
    assert_eq!(all["unheard"], json!([]));
    cluster.region("eu").agent.pause();
    let paused = uses().await;
    cluster.region("eu").agent.resume();
    assert_eq!((&paused["uses"], &paused["unheard"][0]["region"]), (&json!([]), &json!("eu")), "{paused}");
}
