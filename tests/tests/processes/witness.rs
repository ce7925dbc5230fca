//! The witness in a real Redis: gone, hanging, flushed, put back from older files, shared by what must not share
//! it; required and best-effort, of the authority and of the agents. Never a number twice.

use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tests::cluster::{Backend, Builder, Cluster, fixed, policy, random_token};
use tests::ledger_of_ids::Exposed;
use tests::load::{Load, Plan};
use tests::ports;
use tests::process::{Daemon, Spec};
use tests::redis::Redis;
use tests::scratch::Scratch;

use crate::hand::{code, ledger};
use crate::help::{
    assert_clean_log, assert_sound, at_rest, copy_folder, metric, put_back, quick, refuses_to_start, take, until,
    use_up,
};

fn on(redis: &Redis, mode: &str) -> Builder {
    let both = quick().region("eu").region("us").witness(&redis.url(), mode);
    both.namespace_with("orders", policy(2_000, 20, 100, 4.0))
}

async fn witness_of_authority(cluster: &Cluster) -> Value {
    cluster.operate("GET", "/v1/quarantines", None).await.unwrap()["witness"].clone()
}

async fn is_open(cluster: &Cluster) -> bool {
    let all = cluster.operate("GET", "/v1/quarantines", None).await;
    all.is_ok_and(|all| all["quarantines"].as_array().is_some_and(Vec::is_empty))
}

fn loads(cluster: &Cluster, exposed: &Arc<Exposed>) -> [Load; 2] {
    let plan = |region| Plan::of(cluster, region, "orders").tasks(2).pause(Duration::from_millis(5));
    ["eu", "us"].map(|region| Load::start(plan(region), exposed.clone()))
}

async fn each_succeeds(loads: &[Load], times: u64) {
    for load in loads {
        assert!(load.successes_within(times, Duration::from_secs(60)).await, "{:?}", load.report());
    }
}

/// Gone and hanging, required: nothing new leaves, what is in memory does; it goes on by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_required_one_that_is_gone_or_hangs_holds_everything_up_until_it_is_back() {
    let redis = Redis::with(&["--requirepass", "hidden-word"]);
    let url = redis.url().replace("redis://", "redis://:hidden-word@");
    let exposed = Arc::new(Exposed::new());
    let cluster = quick().region("eu").witness(&url, "required");
    let cluster = cluster.namespace_with("orders", fixed(1_000, 100)).start().await;
    for hangs in [true, false] {
        at_rest(&cluster, "eu", "orders").await;
        if hangs {
            redis.pause()
        } else {
            redis.kill9()
        }
        let granted = ledger(&cluster, "orders").await.len();
        let (_, problem) = use_up(&cluster, "eu", "orders", 50, &exposed).await;
        assert_eq!(problem.status, 503, "{problem}");
        assert!(problem.retry_after.is_some(), "{problem}");
        until("both say that it is down", async || {
            let agent = cluster.status("eu").await["witness"]["state"] == "down";
            agent && witness_of_authority(&cluster).await["state"] == "down"
        })
        .await;
        until("the metrics say so", async || {
            let agent = metric(&cluster.region("eu").url, "cadastre_witness_up", "eu").await;
            agent + metric(&cluster.url, "cadastre_witness_up", "").await < 0.5
        })
        .await;
        let refused = cluster.operate("POST", "/v1/regions", Some(&json!({"name": format!("r{hangs}")}))).await;
        let refused = refused.unwrap_err();
        assert_eq!(code(&refused), (503, "not_durable"), "{refused}");
        assert!(refused.retry_after.is_some() && !refused.detail.contains("hidden"), "{refused}");
        // At most what was committed before Redis was missed; none of it left.
        assert!(ledger(&cluster, "orders").await.len() <= granted + 1);
        if hangs {
            redis.resume()
        } else {
            redis.restart()
        }
        take(&cluster, "eu", "orders", 2_500, 50, &exposed).await;
        until("both say that it is back", async || {
            let agent = cluster.status("eu").await["witness"]["state"] == "ok";
            agent && witness_of_authority(&cluster).await["state"] == "ok"
        })
        .await;
        assert_eq!(cluster.status("eu").await["epoch"], 1, "nothing was doubted");
    }
    assert_sound(&cluster, &exposed).await;
    assert_clean_log(&cluster.authority, &["hidden-word"]);
    assert_clean_log(&cluster.region("eu").agent, &["hidden-word"]);
}

/// Gone, best-effort: everything goes on, a start included, and says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_best_effort_one_that_is_gone_or_flushed_is_an_alarm_and_ends_nothing() {
    let redis = Redis::start();
    let exposed = Arc::new(Exposed::new());
    let cluster = on(&redis, "best_effort").start().await;
    let running = loads(&cluster, &exposed);
    each_succeeds(&running, 50).await;
    redis.command(&["FLUSHALL"]).unwrap();
    let eu = &cluster.region("eu").agent;
    until("both say that it was empty", async || {
        [&cluster.authority, eu].iter().all(|daemon| daemon.log().contains("the witness is empty"))
    })
    .await;
    until("and have filled it again", async || {
        let agent = cluster.status("eu").await["witness"]["state"] == "ok";
        agent && witness_of_authority(&cluster).await["state"] == "ok"
    })
    .await;
    let keys = redis.command(&["KEYS", "cadastre:witness:*"]).unwrap();
    assert!(["authority", "region/eu", "region/us"].iter().all(|role| keys.contains(role)), "{keys}");
    each_succeeds(&running, 50).await;
    redis.kill9();
    until("the authority says that it is down", async || witness_of_authority(&cluster).await["state"] == "down").await;
    each_succeeds(&running, 400).await;
    assert!(is_open(&cluster).await && cluster.status("us").await["epoch"] == 1);
    // A start cannot be confirmed by it, and needs it as little: the regions testify.
    cluster.authority.kill9();
    cluster.restart_authority().await;
    until("testified", async || is_open(&cluster).await).await;
    cluster.region("eu").agent.kill9();
    cluster.restart_agent("eu").await;
    each_succeeds(&running, 400).await;
    for load in running {
        load.stop().await;
    }
    assert_sound(&cluster, &exposed).await;
}

/// Flushed, required: the authority waits for testimony, the regions burn what they held, and it is filled again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_required_one_that_is_flushed_is_found_and_healed_without_an_operator() {
    let redis = Redis::start();
    let exposed = Arc::new(Exposed::new());
    let cluster = on(&redis, "required").start().await;
    let running = loads(&cluster, &exposed);
    each_succeeds(&running, 50).await;
    for what in [&["DEL", "cadastre:witness:{cadastre:authority}"][..], &["FLUSHALL"]] {
        redis.command(what).unwrap();
        until("the witness is filled again", async || {
            let agents = ["eu", "us"].map(|region| cluster.status(region));
            let mut filled = witness_of_authority(&cluster).await["state"] == "ok";
            for agent in agents {
                filled &= agent.await["witness"]["state"] == "ok";
            }
            filled && is_open(&cluster).await
        })
        .await;
        each_succeeds(&running, 200).await;
    }
    for load in running {
        load.stop().await;
    }
    assert!(cluster.authority.log().contains("the required witness is empty"), "{}", cluster.authority.log());
    assert_sound(&cluster, &exposed).await;
}

/// Put back from older files, of both kinds that Redis writes: older marks stop nobody and end no doubt wrongly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn older_files_of_redis_put_back_repeat_nothing() {
    for options in [&[][..], &["--appendonly", "no"]] {
        let redis = Redis::with(options);
        let exposed = Arc::new(Exposed::new());
        let cluster = on(&redis, "required").start().await;
        let running = loads(&cluster, &exposed);
        each_succeeds(&running, 50).await;
        if !options.is_empty() {
            assert!(redis.command(&["SAVE"]).unwrap().contains("OK"));
        }
        let older = redis.files();
        redis.restart();
        each_succeeds(&running, 200).await;
        redis.put_back(&older);
        each_succeeds(&running, 200).await;
        // Judged by the older marks, every store is current all the same.
        redis.put_back(&older);
        cluster.authority.kill9();
        cluster.region("us").agent.kill9();
        cluster.restart_authority().await;
        cluster.restart_agent("us").await;
        each_succeeds(&running, 200).await;
        for load in running {
            load.stop().await;
        }
        assert_sound(&cluster, &exposed).await;
    }
}

/// The authority's store put back beside it: found at the start and healed by Redis alone, nobody else to ask.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_put_back_beside_it_heals_alone_before_any_grant() {
    let redis = Redis::start();
    let exposed = Exposed::new();
    let cluster = on(&redis, "required").start().await;
    cluster.authority.kill9();
    let copy = Scratch::new("backup");
    copy_folder(&cluster.authority.data_folder(), copy.path());
    cluster.restart_authority().await;
    for region in ["eu", "us"] {
        take(&cluster, region, "orders", 6_000, 100, &exposed).await;
    }
    cluster.operate("POST", "/v1/namespaces", Some(&json!({"name": "late", "kind": "range"}))).await.unwrap();
    let end = ledger(&cluster, "orders").await.last().unwrap().1;
    cluster.authority.kill9();
    put_back(copy.path(), &cluster.authority.data_folder());
    for region in cluster.regions() {
        region.link.cut();
    }
    cluster.restart_authority().await;
    until("Redis alone heals it", async || is_open(&cluster).await).await;
    assert!(cluster.authority.log().contains("went_back"), "{}", cluster.authority.log());
    let known = cluster.operate("GET", "/v1/namespaces", None).await.unwrap().to_string();
    assert!(known.contains("\"late\""), "the roster came back from Redis: {known}");
    let before = ledger(&cluster, "orders").await.len();
    for region in cluster.regions() {
        region.link.heal();
    }
    for region in ["eu", "us"] {
        take(&cluster, region, "orders", 6_000, 100, &exposed).await;
    }
    let grants = ledger(&cluster, "orders").await;
    assert!(grants[before..].iter().all(|(lo, _, _)| *lo >= end), "{grants:?}");
    assert_sound(&cluster, &exposed).await;
}

/// One authority more, on a store of its own or on a shared one.
fn authority(database: Option<&str>, witness: &str) -> (Daemon, String) {
    let port = ports::free();
    let mut spec = Spec::binary("global-authority")
        .env("CADASTRE_LISTEN", format!("127.0.0.1:{port}"))
        .env("CADASTRE_DATA", "{data}")
        .env("CADASTRE_BOOTSTRAP_TOKEN", random_token("cad_op_"))
        .env("CADASTRE_WITNESS", witness);
    if let Some(url) = database {
        spec = spec.env("CADASTRE_DATABASE_URL", url);
    }
    (Daemon::start(spec), format!("http://127.0.0.1:{port}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clusters_on_one_redis_need_two_names() {
    let redis = Redis::start();
    let (first, url) = authority(None, &redis.url());
    first.wait_ready(&format!("{url}/readyz")).await;
    let (second, _) = authority(None, &redis.url());
    refuses_to_start(&second, &["its witness was used before"]).await;
    let (third, url) = authority(None, &format!("{}?cluster=other", redis.url()));
    third.wait_ready(&format!("{url}/readyz")).await;
    // A used store of another cluster is told whose it is.
    third.change(|spec| spec.env("CADASTRE_WITNESS", redis.url()));
    third.start_again();
    refuses_to_start(&third, &["witness belongs to cadastre:witness:{cadastre:authority} of cluster"]).await;
}

/// Two authority processes over one database and one Redis, both asked all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_healthy_authorities_never_stop_each_other() {
    let redis = Redis::start();
    let exposed = Arc::new(Exposed::new());
    let cluster = on(&redis, "required").authority(Backend::Postgres).start().await;
    let (second, url) = authority(cluster.authority_database_url.as_deref(), &redis.url());
    second.wait_ready(&format!("{url}/readyz")).await;
    cluster.region("us").agent.change(|spec| spec.env("CADASTRE_AUTHORITY_URL", url.clone()));
    cluster.restart_agent("us").await;
    let running = loads(&cluster, &exposed);
    each_succeeds(&running, 1_500).await;
    for load in running {
        load.stop().await;
    }
    for daemon in [&cluster.authority, &second] {
        assert!(!daemon.log().contains("quarantine: nothing is given out"), "{}", daemon.log());
    }
    let by = |name| async move { metric(name, "cadastre_grants_total", "").await };
    let (one, two) = (by(&cluster.url).await, by(&url).await);
    assert!(one > 3.0 && two > 3.0, "both granted: {one}, {two}");
    assert_sound(&cluster, &exposed).await;
}
