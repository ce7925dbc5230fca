//! `require_sync`: nothing is answered that the synchronous standby does not have, whatever the server acknowledged.
//! A wait that was cancelled and a weakened server look like success to their client; the gate is not fooled.

use cadastre_protocol::link::{FullTestimony, Message};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tests::cluster::{Backend, fixed};
use tests::ledger_of_ids::Exposed;
use tests::pair::Pair;
use tests::ports;
use tests::postgres::Postgres;
use tests::process::{Daemon, Spec};
use tests::puppet::want;
use tests::region::Problem;

use crate::hand::{Hand, alone, code, fresh, granted};
use crate::help::{
    assert_sound, at_rest, cadastre, extra_agent, metric, quick, refuses_to_start, take, token_of, until, use_up,
};

/// An authority on any server of the cluster's store.
fn authority(url: &str, change: impl FnOnce(Spec) -> Spec) -> (Daemon, String) {
    let port = ports::free();
    let spec = Spec::binary("global-authority")
        .env("CADASTRE_DATA", "{data}")
        .env("CADASTRE_LISTEN", format!("127.0.0.1:{port}"))
        .env("CADASTRE_DATABASE_URL", url)
        .env("CADASTRE_REQUIRE_SYNC", "1");
    (Daemon::start(change(spec)), format!("http://127.0.0.1:{port}"))
}

/// Cancels every wait for a standby, as an impatient operator would, until dropped.
struct Canceller(Arc<AtomicBool>, Option<std::thread::JoinHandle<()>>);

impl Canceller {
    fn start(server: &Arc<Pair>) -> Self {
        let (stop, server) = (Arc::new(AtomicBool::new(false)), Arc::clone(server));
        let stopped = Arc::clone(&stop);
        let sql = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        let work = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let _ = server.a.try_psql("postgres", sql);
                std::thread::sleep(Duration::from_millis(30));
            }
        });
        Self(stop, Some(work))
    }
}

impl Drop for Canceller {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        let _ = self.1.take().map(std::thread::JoinHandle::join);
    }
}

/// A detached standby: refills are refused at once, the region goes on from what it holds; then it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_standby_nothing_is_granted_and_regions_go_on() {
    let exposed = Exposed::new();
    let pair = Pair::synchronous();
    let builder = quick().authority(Backend::Url(pair.database("authority"))).region("eu");
    let builder = builder.authority_env("CADASTRE_REQUIRE_SYNC", "1");
    let cluster = builder.namespace_with("orders", fixed(1_000, 100)).start().await;
    take(&cluster, "eu", "orders", 1_500, 50, &exposed).await;
    let held = at_rest(&cluster, "eu", "orders").await.held();
    assert!(metric(&cluster.url, "cadastre_store_sync_standbys", "").await > 0.0);
    pair.detach();
    let before = pair.a.psql_in("authority", "SELECT count(*) FROM grants");
    let (got, problem) = use_up(&cluster, "eu", "orders", 50, &exposed).await;
    assert_eq!(got, held, "it goes on from what it holds");
    assert_eq!(code(&problem), (503, "segment_dry"), "{problem}");
    until("the refusal is named", async || cluster.authority.log().contains("not_durable")).await;
    assert_eq!(pair.a.psql_in("authority", "SELECT count(*) FROM grants"), before);
    until("doctor names it, with the cure", async || {
        let (code, said) = cadastre(&cluster.url, &cluster.operator_token, &["doctor"]);
        code == 1
            && said.contains("0 of 1 synchronous standbys are attached")
            && said.contains("bring the standby back")
    })
    .await;
    pair.attach();
    take(&cluster, "eu", "orders", 2_500, 50, &exposed).await;
    // A server that was set to ask for nobody, while everything runs.
    Pair::wait_for(&pair.a, "");
    // By a grant that is refused, not only by the look at the settings once a second.
    let refused = |line: &str| line.contains("name the synchronous standbys") && !line.contains("the store: ");
    until("it is noticed", async || cluster.authority.log().lines().any(refused)).await;
    Pair::wait_for(&pair.a, "FIRST 1 (b)");
    take(&cluster, "eu", "orders", 2_500, 50, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}

/// Every outcome of one message, whatever becomes of it: a message that is refused as a whole is a refusal too.
async fn outcome(hand: &mut Hand, message: &Message) -> Result<(u64, u64), Problem> {
    let answer = hand.send(message).await?;
    hand.puppet.hear(&answer);
    granted(&answer).map(|it| (it.lo, it.hi))
}

/// Speaks to an authority in quarantine as a region does, and asks for a range.
async fn testify_and_ask(eu: &mut Hand, given: &[(u64, u64)]) -> Option<(u64, u64)> {
    let message = eu.puppet.message(vec![want(fresh(5), "orders", 10)]);
    let answer = eu.send(&message).await.ok()?;
    eu.puppet.hear(&answer);
    if let Some(generation) = answer.testify_for {
        eu.puppet.words.promised = generation;
        let end = given.iter().map(|(_, hi)| *hi).max().unwrap_or(0);
        eu.puppet.testimony = Some(FullTestimony {
            generation,
            bounds: [("orders".parse().unwrap(), end)].into(),
            marks: eu.puppet.words.marks.clone(),
            roster: vec![],
        });
    }
    granted(&answer).map(|it| (it.lo, it.hi)).ok()
}

/// The primary is cut off from its standby and lives on; its clients are honest, cancel waits, weaken the server. None
/// of them gets an answer. The standby is promoted and grants: nothing was given twice, and the old one stays silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_isolated_primary_answers_neither_honest_nor_cancelling_nor_weakened_clients() {
    let pair = Arc::new(Pair::synchronous());
    pair.a.create_database("authority");
    let builder = quick().authority(Backend::Url(pair.a.url_of("authority")));
    let (cluster, mut eu) = alone(builder.authority_env("CADASTRE_REQUIRE_SYNC", "1")).await;
    let first = eu.ask(fresh(1), "orders", 10).await.unwrap();
    eu.adopt(&first).await;
    let mut given = vec![(first.lo, first.hi)];
    let refused = |result: Result<(u64, u64), Problem>| {
        let problem = result.expect_err("nothing may be answered that the standby lacks");
        assert_eq!(code(&problem), (503, "not_durable"), "{problem}");
    };
    let frozen = pair.freeze();
    // Honest: the commit waits until nobody waits for it any more.
    let message = eu.puppet.message(vec![want(fresh(2), "orders", 10)]);
    refused(outcome(&mut eu, &message).await);
    // Cancelled: the server says that it is committed, and it is, on this server alone.
    let canceller = Canceller::start(&pair);
    let id = fresh(3);
    let message = eu.puppet.message(vec![want(id, "orders", 10)]);
    refused(outcome(&mut eu, &message).await);
    let rows = format!("SELECT count(*) FROM grants WHERE allocation_id = '{id}'");
    until("the row is there, locally", async || pair.a.psql_in("authority", &rows) == "1").await;
    // The same request again finds the row, and is not answered from it.
    refused(outcome(&mut eu, &message).await);
    let later = eu.puppet.message(vec![want(id, "orders", 10)]);
    refused(outcome(&mut eu, &later).await);
    drop(canceller);
    // Weakened: nothing waits any more, and the server says so.
    Pair::wait_for(&pair.a, "");
    pair.a.psql("ALTER SYSTEM SET synchronous_commit = local");
    pair.a.psql("SELECT pg_reload_conf()");
    let message = eu.puppet.message(vec![want(fresh(4), "orders", 10)]);
    refused(outcome(&mut eu, &message).await);
    // The standby loses what lay in its socket, and is promoted, with a standby and an authority of its own.
    pair.b.psql("ALTER SYSTEM SET primary_conninfo = ''");
    Pair::wait_for(&pair.b, "FIRST 1 (c)");
    pair.lose(frozen);
    pair.promote();
    let c = Postgres::standby_of(&pair.b, "c");
    Pair::until_waited_for(&pair.b);
    let old = eu.clone();
    let (second, url) = authority(&pair.b.url_of("authority"), |spec| spec);
    second.wait_ready(&format!("{url}/readyz")).await;
    eu.url = format!("{url}/v1/grants");
    let lost = pair.b.psql_in("authority", &rows);
    assert_eq!(lost, "0", "the local row is lost for real");
    until("it is heard, testifies and is granted", async || {
        given.extend(testify_and_ask(&mut eu, &given).await);
        given.len() > 1
    })
    .await;
    for n in 6..10 {
        let more = eu.ask(fresh(n), "orders", 10).await.unwrap();
        given.push((more.lo, more.hi));
    }
    given.sort_unstable();
    assert!(given.windows(2).all(|two| two[0].1 <= two[1].0), "{given:?}");
    // The old one is still alive, and still says nothing.
    let mut old = old;
    let message = old.puppet.message(vec![want(fresh(20), "orders", 10)]);
    refused(outcome(&mut old, &message).await);
    drop((second, c, cluster));
}

/// Settings that prove nothing are refused at start, by what has to be changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_proves_nothing_is_refused_at_start() {
    let server = Postgres::start();
    let exposed = Exposed::new();
    let cluster = quick().region("eu").namespace_with("orders", fixed(1_000, 100)).start().await;
    server.psql("CREATE ROLE plain LOGIN");
    for (names, sync, words) in [
        ("", "1", &["require_sync", "name the synchronous standbys"][..]),
        ("*", "1", &["any client could be the standby"]),
        ("ANY 1 (b, c)", "1", &["quorum_aware"]),
        ("FIRST 1 (b, c)", "2", &["2 synchronous standbys are required"]),
        ("FIRST 1 (b)", "1", &["0 of 1 synchronous standbys are attached"]),
    ] {
        Pair::wait_for(&server, names);
        until("the setting holds", async || server.psql("SHOW synchronous_standby_names") == names).await;
        let url = server.url_of("postgres");
        let (bad, _) = authority(&url, |spec| spec.env("CADASTRE_REQUIRE_SYNC", sync));
        refuses_to_start(&bad, words).await;
        let token = token_of(&cluster, "eu");
        let agent = extra_agent(&cluster, "eu", token, |spec| {
            spec.env("CADASTRE_DATABASE_URL", &url).env("CADASTRE_REQUIRE_SYNC", sync)
        });
        refuses_to_start(&agent.agent, words).await;
    }
    let url = server.url_of("postgres").replace("postgres@", "plain@");
    let (bad, _) = authority(&url, |spec| spec);
    refuses_to_start(&bad, &["GRANT pg_read_all_stats"]).await;
    // Not watched, nothing would be found: a required witness must.
    let (bad, _) = authority(&server.url(), |spec| spec.env("CADASTRE_IDENTITY_WATCH", "off"));
    refuses_to_start(&bad, &["identity_watch", "require_sync"]).await;
    let unwatched = |spec: Spec| spec.env("CADASTRE_IDENTITY_WATCH", "off").env("CADASTRE_REQUIRE_SYNC", "0");
    let (bad, _) = authority(&server.url(), unwatched);
    refuses_to_start(&bad, &["identity_watch", "required witness"]).await;
    assert_sound(&cluster, &exposed).await;
}
