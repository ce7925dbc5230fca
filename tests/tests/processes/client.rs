//! The thick client against real agents that are killed, cut off, slow, fenced or do not know it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cadastre_client::{Client, Error, Namespace};
use serde_json::{Value, json};
use tests::cluster::{Cluster, fixed};
use tests::http;
use tests::ledger_of_ids::Exposed;
use tests::proxy::Proxy;

use crate::help::{assert_sound, audit_of, metric, number, quick, step, take, until};

/// Longer than anything here takes: a caller that fails with it waited in vain.
const PATIENT: Duration = Duration::from_secs(30);

fn client(agents: &[&str], token: &str) -> Client {
    let builder = Client::builder().token(token).name("till").deadline(PATIENT);
    agents.iter().fold(builder, |builder, agent| builder.agent(*agent)).build().unwrap()
}

async fn cluster(segment: u64) -> (Cluster, Exposed) {
    let cluster = quick().region("eu").namespace_with("orders", fixed(2_000, segment)).start().await;
    (cluster, Exposed::new())
}

/// A proxy between the client and an agent.
fn before(cluster: &Cluster, region: &str) -> Proxy {
    let url = &cluster.region(region).url;
    let proxy = Proxy::start(url.rsplit_once(':').unwrap().1.parse().unwrap());
    proxy.only_path(Some("/v1/segments"));
    proxy
}

/// What a region's ledger says that clients of our name were given, as `(lo, hi)`.
async fn given(cluster: &Cluster, region: &str) -> Vec<(u64, u64)> {
    let url = format!("{}/v1/segments?namespace=orders", cluster.region(region).url);
    let page: Value = http::get_json(&url, Some(&cluster.operator_token)).await.2;
    let all = page["segments"].as_array().unwrap_or_else(|| panic!("{page}"));
    let own = all.iter().filter(|segment| segment["instance"] == "till");
    own.map(|segment| (number(&segment["lo"]), number(&segment["hi"]))).collect()
}

/// Takes so many IDs one at a time, and enters them; they rise.
async fn next(orders: &Namespace, n: usize, exposed: &Exposed) -> Vec<i64> {
    let mut ids = Vec::new();
    for _ in 0..n {
        ids.push(orders.next().await.unwrap().get());
    }
    exposed.record("client", &ids);
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{ids:?}");
    ids
}

/// Eight threads while the agent is killed three times: every call gets its ID, each thread's rise, none comes
/// twice, also not with what the agent itself gives out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_threads_go_on_while_the_agent_is_killed_and_comes_back() {
    let (cluster, exposed) = cluster(100).await;
    let orders = client(&[&cluster.region("eu").url], &cluster.service_token).namespace("orders").unwrap();
    let stop = AtomicBool::new(false);
    let mut taken = 0;
    std::thread::scope(|scope| {
        let (stop, exposed) = (&stop, &exposed);
        let threads: Vec<_> = (0..8)
            .map(|n| {
                let orders = orders.clone();
                scope.spawn(move || {
                    let mut ids = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        ids.push(orders.next_blocking().unwrap().get());
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
                    exposed.record(&format!("thread {n}"), &ids);
                    ids.len()
                })
            })
            .collect();
        let handle = tokio::runtime::Handle::current();
        tokio::task::block_in_place(|| {
            handle.block_on(async {
                for pause_ms in [300, 800, 50] {
                    tokio::time::sleep(Duration::from_millis(400)).await;
                    cluster.region("eu").agent.kill9();
                    tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                    cluster.restart_agent("eu").await;
                    take(&cluster, "eu", "orders", 50, 10, exposed).await;
                }
                tokio::time::sleep(Duration::from_millis(400)).await;
            });
        });
        stop.store(true, Ordering::Relaxed);
        taken = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    });
    assert!(taken > 1_000, "{taken} IDs are too few to prove anything");
    assert_sound(&cluster, &exposed).await;
}

/// The agent carves and nobody hears of it: the same request again is given the same segment, so that nothing is
/// lost, and nothing is given twice.
#[tokio::test]
async fn a_lost_answer_is_asked_for_again_and_is_the_same_segment() {
    let (cluster, exposed) = cluster(60).await;
    let proxy = before(&cluster, "eu");
    let orders = client(&[&proxy.url()], &cluster.service_token).namespace("orders").unwrap();
    let mut ids = Vec::new();
    for _ in 0..4 {
        proxy.lose_answers(3);
        ids.extend(next(&orders, 100, &exposed).await);
    }
    let segments = given(&cluster, "eu").await;
    let mut carved = segments.iter().flat_map(|(lo, hi)| *lo..*hi).map(|ordinal| ordinal as i64 + 1);
    assert!(
        ids.iter().all(|id| carved.next() == Some(*id)),
        "no gap: every carved segment was used\n{segments:?}\n{ids:?}"
    );
    let count = proxy.count("/v1/segments");
    assert!(count.answered > count.delivered, "answers were lost: {count:?}");
    assert!(audit_of(&cluster.region("eu").agent.data_folder().join("region.db"), "wrong_chain").is_empty());
    assert_sound(&cluster, &exposed).await;
}

/// The network makes two of every request, then lets copies arrive when they are long answered. The former changes
/// nothing; the latter look like a copy of the process, and end its incarnation: the client gives up what it holds and
/// begins anew, and no caller notices.
#[tokio::test]
async fn requests_that_come_twice_or_much_later_do_not_stop_it() {
    let (cluster, exposed) = cluster(60).await;
    let proxy = before(&cluster, "eu");
    let store = cluster.region("eu").agent.data_folder().join("region.db");
    let orders = client(&[&proxy.url()], &cluster.service_token).namespace("orders").unwrap();
    let mut ids = next(&orders, 70, &exposed).await;
    proxy.duplicate_requests(1_000);
    ids.extend(next(&orders, 500, &exposed).await);
    assert_eq!(audit_of(&store, "wrong_chain").len(), 0, "two of one request are one");
    proxy.duplicate_requests(0);
    proxy.repeat_requests(3, Duration::from_millis(400));
    let end = Instant::now() + Duration::from_secs(60);
    while audit_of(&store, "wrong_chain").is_empty() {
        assert!(Instant::now() < end, "no copy is ever found");
        ids.extend(next(&orders, 70, &exposed).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    ids.extend(next(&orders, 300, &exposed).await);
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    assert_sound(&cluster, &exposed).await;
}

/// The first agent as long as it is well; another region's while it is not; and back. The order is strict all the
/// way, whichever region's ranges are the higher ones.
#[tokio::test]
async fn it_fails_over_to_a_second_region_and_back_in_strict_order() {
    let mut policy = fixed(2_000, 50);
    policy["region_max_held"] = json!("100000");
    let cluster = quick().region("eu").region("us").namespace_with("orders", policy).start().await;
    let exposed = Exposed::new();
    let urls = ["eu", "us"].map(|region| cluster.region(region).url.as_str());
    let orders = client(&urls, &cluster.service_token).namespace("orders").unwrap();
    let mut ids = next(&orders, 300, &exposed).await;
    assert_eq!(given(&cluster, "us").await, [], "never while the first is well");
    for round in 0..2 {
        cluster.region("eu").agent.kill9();
        let before = given(&cluster, "us").await.len();
        ids.extend(next(&orders, 300, &exposed).await);
        assert!(given(&cluster, "us").await.len() > before, "round {round}: the second region gave");
        cluster.restart_agent("eu").await;
        let before = given(&cluster, "eu").await.len();
        let end = Instant::now() + Duration::from_secs(60);
        while given(&cluster, "eu").await.len() < before + 3 {
            assert!(Instant::now() < end, "round {round}: it never goes back");
            ids.extend(next(&orders, 20, &exposed).await);
        }
        take(&cluster, "us", "orders", 100, 10, &exposed).await;
    }
    let there = given(&cluster, "us").await.len();
    ids.extend(next(&orders, 300, &exposed).await);
    assert_eq!(given(&cluster, "us").await.len(), there, "and stays with the first");
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "strictly rising over all of it");
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test]
async fn an_outage_is_survived_for_as_long_as_there_are_ids() {
    let (cluster, exposed) = cluster(200).await;
    let client = client(&[&cluster.region("eu").url], &cluster.service_token);
    let orders = client.namespace("orders").unwrap();
    client.ready().await.unwrap();
    let hasty = orders.clone().with_deadline(Duration::from_millis(400));
    for _ in 0..2 {
        next(&orders, 20, &exposed).await;
        // At rest: nothing under way that could still arrive.
        let mut held = 0;
        until("the standby is there", async || {
            let (before, now) = (std::mem::replace(&mut held, orders.left()), orders.left());
            tokio::time::sleep(Duration::from_millis(300)).await;
            now > 50 && before == now
        })
        .await;
        cluster.region("eu").agent.kill9();
        // A switch from one segment to the next loses one at most, per thread.
        next(&hasty, held as usize - 1, &exposed).await;
        let error = loop {
            match hasty.next().await {
                Ok(id) => exposed.record("client", &[id.get()]),
                Err(error) => break error,
            };
        };
        assert_eq!((error.code(), error.retryable()), ("upstream_unavailable", true), "{error}");
        cluster.restart_agent("eu").await;
        next(&orders, 100, &exposed).await;
    }
    assert_sound(&cluster, &exposed).await;
}

/// Uses up what is held, then gets this refusal at once, without waiting for the deadline.
async fn until_refused(orders: &Namespace, code: &str, exposed: &Exposed) -> Error {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let began = Instant::now();
        match orders.next().await {
            Ok(id) => exposed.record("client", &[id.get()]),
            Err(error) => {
                assert_eq!(error.code(), code, "{error}");
                assert!(began.elapsed() < PATIENT / 2, "it waited for what would not come");
                return error;
            }
        };
        assert!(Instant::now() < end, "{code} never comes");
    }
}

#[tokio::test]
async fn a_revoked_token_ends_with_what_is_held() {
    let (cluster, exposed) = cluster(60).await;
    let made = cluster.operate("POST", "/v1/services/shop/tokens", Some(&json!({}))).await.unwrap();
    let (id, token) = (made["token_id"].as_str().unwrap(), made["token"].as_str().unwrap());
    let status = format!("{}/v1/status", cluster.region("eu").url);
    until("the agent knows the token", async || http::get_json(&status, Some(token)).await.0 == 200).await;
    let orders = client(&[&cluster.region("eu").url], token).namespace("orders").unwrap();
    next(&orders, 100, &exposed).await;
    cluster.operate("DELETE", &format!("/v1/services/shop/tokens/{id}"), None).await.unwrap();
    until("the agent heard of it", async || http::get_json(&status, Some(token)).await.0 == 401).await;
    let error = until_refused(&orders, "unauthenticated", &exposed).await;
    assert!(!error.retryable() && !error.to_string().contains(token), "{error}");
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test]
async fn a_namespace_that_it_is_not_admitted_to_is_refused_at_once_until_it_is() {
    let (cluster, exposed) = cluster(60).await;
    cluster.operate("POST", "/v1/namespaces", Some(&json!({"name": "other"}))).await.unwrap();
    let client = client(&[&cluster.region("eu").url], &cluster.service_token);
    for name in ["other", "nowhere"] {
        let error = until_refused(&client.namespace(name).unwrap(), "forbidden", &exposed).await;
        assert!(!error.retryable(), "{error}");
    }
    let admitted = json!({"namespaces": ["orders", "other"]});
    cluster.operate("PATCH", "/v1/services/shop", Some(&admitted)).await.unwrap();
    until("it is admitted", async || client.next("other").await.is_ok()).await;
    next(&client.namespace("orders").unwrap(), 100, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test]
async fn two_clients_of_one_name_share_nothing() {
    let (cluster, exposed) = cluster(60).await;
    let own = || client(&[&cluster.region("eu").url], &cluster.service_token);
    let (one, other) = (own(), own());
    let (one, other) = (one.namespace("orders").unwrap(), other.namespace("orders").unwrap());
    for _ in 0..10 {
        next(&one, 37, &exposed).await;
        next(&other, 41, &exposed).await;
    }
    assert!(audit_of(&cluster.region("eu").agent.data_folder().join("region.db"), "wrong_chain").is_empty());
    assert_sound(&cluster, &exposed).await;
}

/// 200 tasks, segments of 50, an agent that takes 200 ms: one fetch in flight, everybody is served within the
/// deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_04_burst_on_a_tiny_segment() {
    let (cluster, exposed) = cluster(50).await;
    let proxy = before(&cluster, "eu");
    proxy.delay(100);
    let orders = client(&[&proxy.url()], &cluster.service_token).namespace("orders").unwrap();
    let tasks: Vec<_> = (0..200)
        .map(|_| {
            let orders = orders.clone();
            tokio::spawn(async move { orders.next().await })
        })
        .collect();
    let mut most = 0;
    while !tasks.iter().all(tokio::task::JoinHandle::is_finished) {
        let count = proxy.count("/v1/segments");
        most = most.max(count.seen - count.delivered);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for task in tasks {
        exposed.record("client", &[task.await.unwrap().unwrap().get()]);
    }
    assert_eq!((exposed.total(), most), (200, 1), "one fetch in flight");
    let seen = proxy.count("/v1/segments").seen;
    assert!((4..=7).contains(&seen), "{seen} requests for four segments and a standby");
    assert_sound(&cluster, &exposed).await;
}

/// The region is fenced and recovered: the client learns it with its next request, gives up what the old epoch gave,
/// and goes on under the new one, higher.
#[tokio::test]
async fn case_01_what_an_old_epoch_gave_is_given_up() {
    let (cluster, exposed) = cluster(60).await;
    let client = client(&[&cluster.region("eu").url], &cluster.service_token);
    let orders = client.namespace("orders").unwrap();
    let before = next(&orders, 70, &exposed).await;
    step(&cluster, "eu", "fence", json!({})).await.unwrap();
    until("the agent heard of it", async || cluster.status("eu").await["state"] == "fenced").await;
    until_refused(&orders, "epoch_fenced", &exposed).await;
    assert_eq!(orders.left(), 0);
    step(&cluster, "eu", "recover", json!({})).await.unwrap();
    cluster.until_served("eu", "orders").await;
    until("it goes on", async || orders.next().await.is_ok()).await;
    let after = next(&orders, 100, &exposed).await;
    assert!(before.last() < after.first());
    assert_sound(&cluster, &exposed).await;
}

/// What a client takes shows at the agent, and an idle one asks for nothing.
#[tokio::test]
async fn an_idle_client_asks_for_nothing() {
    let (cluster, exposed) = cluster(60).await;
    let proxy = before(&cluster, "eu");
    let client = client(&[&proxy.url()], &cluster.service_token);
    let orders = client.namespace("orders").unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(proxy.count("/v1/segments").seen, 0, "not before it is used");
    next(&orders, 10, &exposed).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let seen = proxy.count("/v1/segments").seen;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(proxy.count("/v1/segments").seen, seen);
    assert!(client.shutdown().await.unissued > 0);
    assert!(metric(&cluster.region("eu").url, "cadastre_", "").await > 0.0);
    assert_sound(&cluster, &exposed).await;
}
