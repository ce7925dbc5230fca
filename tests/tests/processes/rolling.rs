//! A roll-out: two authorities on one PostgreSQL and the agents of two regions are replaced one after the other under load, in
//! the order and by the signs that `docs/operating/upgrade.md` states. Callers with two agents see `shutting_down` and closed
//! connections of the one that is replaced, and nothing else; no number comes twice.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tests::cluster::{policy, random_token};
use tests::http;
use tests::ledger_of_ids::Exposed;
use tests::load::{Load, Plan, Report};
use tests::ports;
use tests::postgres::Postgres;
use tests::process::{Daemon, Spec};
use tests::redis::Redis;
use tests::region::{Setup, agent_spec, ask_ids};

use crate::help::until;

struct Process {
    url: String,
    daemon: Daemon,
}

impl Process {
    fn start(port: u16, spec: Spec) -> Self {
        Self { url: format!("http://127.0.0.1:{port}"), daemon: Daemon::start(spec) }
    }

    async fn ready(&self) {
        self.daemon.wait_ready(&format!("{}/readyz", self.url)).await;
    }

    /// SIGTERM, in order; the next process in its place; ready.
    async fn replace(&self) {
        assert_eq!(self.daemon.terminate().await, 0, "{}", self.daemon.log());
        self.daemon.start_again();
        self.ready().await;
    }
}

/// Two authorities and two agents of each of two regions, as deployed: PostgreSQL each, the witness in one Redis.
struct Fleet {
    authorities: Vec<Process>,
    agents: Vec<(String, Process)>,
    operator: String,
    service: String,
    _redis: Redis,
}

async fn post(url: &str, path: &str, token: &str, body: Value) -> Value {
    let (status, _, answer) = http::post_json(&format!("{url}{path}"), Some(token), &body).await;
    assert!((200..300).contains(&status), "{path}: {status} {answer}");
    answer
}

async fn fleet() -> Fleet {
    let (redis, operator) = (Redis::start(), random_token("cad_op_"));
    let witness = format!("{}/0?cluster=rolling", redis.url());
    let (store, server) = (Postgres::shared().fresh_database(), Postgres::shared());
    // Both begin on an empty store at once.
    let authority = |port: u16| {
        let spec = Spec::binary("global-authority")
            .env("CADASTRE_LISTEN", format!("127.0.0.1:{port}"))
            .env("CADASTRE_DATA", "{data}")
            .env("CADASTRE_DATABASE_URL", store.as_str())
            .env("CADASTRE_WITNESS", witness.as_str())
            .env("CADASTRE_BOOTSTRAP_TOKEN", operator.as_str());
        Process::start(port, spec)
    };
    let authorities = vec![authority(ports::free()), authority(ports::free())];
    for one in &authorities {
        until("it is ready, or was started again by its supervisor", async || {
            if !one.daemon.is_alive() {
                one.daemon.start_again();
            }
            http::client().get(format!("{}/readyz", one.url)).send().await.is_ok_and(|answer| answer.status() == 200)
        })
        .await;
    }
    let url = &authorities[0].url;
    let sizes = policy(20_000, 100, 2_000, 10.0);
    post(url, "/v1/namespaces", &operator, json!({"name": "orders", "kind": "range", "policy": sizes})).await;
    post(url, "/v1/services", &operator, json!({"name": "shop", "namespaces": ["orders"]})).await;
    let service =
        post(url, "/v1/services/shop/tokens", &operator, json!({})).await["token"].as_str().unwrap().to_owned();
    let both = authorities.iter().map(|it| it.url.as_str()).collect::<Vec<_>>().join(",");
    let mut agents = Vec::new();
    for region in ["eu", "us"] {
        let token =
            post(url, "/v1/regions", &operator, json!({"name": region})).await["token"].as_str().unwrap().to_owned();
        let database = server.fresh_database();
        for _ in 0..2 {
            let port = ports::free();
            let setup =
                Setup { name: region, token: &token, authority_url: &both, database_url: Some(&database), port };
            let spec = agent_spec(&setup).env("CADASTRE_WITNESS", witness.as_str());
            agents.push((region.to_owned(), Process::start(port, spec)));
        }
    }
    let fleet = Fleet { authorities, agents, operator, service, _redis: redis };
    for (region, agent) in &fleet.agents {
        until(&format!("{region} serves at {}", agent.url), async || {
            if !agent.daemon.is_alive() {
                agent.daemon.start_again();
            }
            ask_ids(&http::client(), &agent.url, &fleet.service, "orders", 1).await.is_ok()
        })
        .await;
    }
    fleet
}

fn load(fleet: &Fleet, region: &str, agent_url: &str, exposed: &Arc<Exposed>) -> Load {
    let plan = Plan {
        region: region.to_owned(),
        agent_url: agent_url.to_owned(),
        token: fleet.service.clone(),
        namespace: "orders".to_owned(),
        count: 2,
        tasks: 2,
        pause: Duration::from_millis(20),
    };
    Load::start(plan, Arc::clone(exposed))
}

/// What a caller of an agent that is replaced may be told, and nothing else.
fn assert_only_the_replacement_shows(report: &Report) {
    let allowed: BTreeSet<&str> = ["shutting_down", "connection"].into();
    assert!(report.errors.keys().all(|code| allowed.contains(code.as_str())), "{report:?}");
}

async fn goes_on(loads: &[Load]) {
    for load in loads {
        assert!(load.successes_within(40, Duration::from_secs(60)).await, "{:?}", load.report());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_process_is_replaced_under_load_and_nobody_is_told_more_than_stated() {
    let fleet = fleet().await;
    let exposed = Arc::new(Exposed::new());
    let loads: Vec<Load> = fleet.agents.iter().map(|(name, at)| load(&fleet, name, &at.url, &exposed)).collect();
    goes_on(&loads).await;

    // The authorities first. Agents have both addresses, callers are told nothing at all.
    for authority in &fleet.authorities {
        authority.replace().await;
        goes_on(&loads).await;
    }
    for load in &loads {
        assert_eq!(load.report().errors, Default::default(), "an authority that is replaced is no caller's concern");
    }
    let before = grants(&fleet).await;

    // The agents, one after the other. In each region somebody serves all the time.
    for (index, (region, agent)) in fleet.agents.iter().enumerate() {
        let stop = Arc::new(AtomicBool::new(false));
        let other = fleet.agents.iter().enumerate().find(|(at, (name, _))| name == region && *at != index).unwrap();
        let watched = watch_the_other(&fleet, region, &other.1.1.url, &stop, &exposed);
        agent.replace().await;
        stop.store(true, Ordering::Relaxed);
        assert!(watched.await.unwrap() > 0, "the other agent of {region} served meanwhile");
        goes_on(&loads).await;
    }
    let reports = stop(loads).await;
    reports.iter().for_each(assert_only_the_replacement_shows);
    until("grants go on after it", async || {
        let (name, agent) = &fleet.agents[0];
        let ids = ask_ids(&http::client(), &agent.url, &fleet.service, "orders", 1_000).await;
        ids.into_iter().for_each(|ids| drop(exposed.record(name, &ids)));
        grants(&fleet).await > before
    })
    .await;
    let verdict = post(&fleet.authorities[1].url, "/v1/audit/verify", &fleet.operator, json!({})).await;
    assert_eq!((&verdict["ok"], &verdict["unreachable"]), (&json!(true), &json!([])), "{verdict}");
    exposed.assert_no_duplicates();
}

async fn stop(loads: Vec<Load>) -> Vec<Report> {
    let mut reports = Vec::new();
    for load in loads {
        reports.push(load.stop().await);
    }
    reports
}

/// Asks an agent again and again, and panics where it refuses; how often it answered.
fn watch_the_other(
    fleet: &Fleet,
    region: &str,
    url: &str,
    stop: &Arc<AtomicBool>,
    exposed: &Arc<Exposed>,
) -> tokio::task::JoinHandle<u64> {
    let (region, url, token) = (region.to_owned(), url.to_owned(), fleet.service.clone());
    let (stop, exposed) = (Arc::clone(stop), Arc::clone(exposed));
    tokio::spawn(async move {
        let (mut answered, client) = (0, http::client());
        while !stop.load(Ordering::Relaxed) || answered == 0 {
            let ids = ask_ids(&client, &url, &token, "orders", 1).await;
            exposed.record(&region, &ids.unwrap_or_else(|problem| panic!("{url}: {problem}")));
            answered += 1;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        answered
    })
}

/// How many grants there are by now.
async fn grants(fleet: &Fleet) -> usize {
    let url = format!("{}/v1/grants?namespace=orders", fleet.authorities[0].url);
    let (_, _, page) = http::get_json(&url, Some(&fleet.operator)).await;
    page["grants"].as_array().map_or(0, Vec::len)
}
