//! The harness tried on itself: a judge that misses a duplicate, or a server that outlives its test,
//! would spoil every other test. The proxy has a file of its own.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::indexing_slicing)]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tests::ledger_of_ids::Exposed;
use tests::ports;
use tests::postgres::Postgres;
use tests::process::{Daemon, Spec, set_fake_clock};
use tests::redis::Redis;
use tests::scratch::Scratch;

async fn until(holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < end, "waited 10 s in vain");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn postgres_survives_kill_and_restart_with_what_was_committed() {
    let postgres = Postgres::start();
    let url = postgres.create_database("shop");
    assert!(url.starts_with("postgres://postgres@127.0.0.1:") && url.ends_with("/shop"));
    postgres.psql_in("shop", "CREATE TABLE t (n BIGINT); INSERT INTO t VALUES (7)");
    assert_eq!(postgres.psql("SHOW fsync"), "on");
    postgres.kill9();
    assert!(postgres.try_psql("shop", "SHOW port").is_err(), "a killed server answers nobody");
    postgres.restart();
    assert_eq!(postgres.psql_in("shop", "TABLE t"), "7");
    postgres.pause();
    let connect = std::net::TcpStream::connect(("127.0.0.1", postgres.port()));
    assert!(connect.is_ok(), "the kernel still accepts for a paused server");
    assert!(postgres.try_psql("shop", "SHOW port").is_err(), "but a paused server says nothing");
    postgres.resume();
    assert_eq!(postgres.psql_in("shop", "TABLE t"), "7");
    postgres.stop_fast();
    postgres.restart();
    assert_eq!(postgres.psql_in("shop", "TABLE t"), "7");
}

#[test]
fn shared_postgres_gives_each_test_its_own_database() {
    let (one, other) = (Postgres::shared().fresh_database(), Postgres::shared().fresh_database());
    assert_ne!(one, other);
    let name = one.rsplit('/').next().unwrap();
    assert_eq!(Postgres::shared().psql_in(name, "VALUES (current_database())"), name);
}

#[test]
fn redis_answers_and_keeps_what_it_acknowledged() {
    let redis = Redis::start();
    assert_eq!(redis.command(&["PING"]).unwrap(), "+PONG");
    assert_eq!(redis.command(&["INCR", "n"]).unwrap(), ":1");
    redis.kill9();
    assert!(redis.command(&["PING"]).is_err());
    redis.restart();
    assert_eq!(redis.command(&["INCR", "n"]).unwrap(), ":2");
}

#[tokio::test]
async fn daemon_is_killed_paused_terminated_and_its_output_kept() {
    let script = "echo data is $PLACE; trap 'exit 7' TERM; while :; do sleep 0.05; done";
    let spec = Spec::program("script", "/bin/sh").arg("-c").arg(script).env("PLACE", "{data}");
    let daemon = Daemon::start(spec.wrapped(&["env", "WRAPPED=1"]));
    until(|| daemon.log().contains(&daemon.data_folder().display().to_string())).await;
    daemon.pause();
    daemon.resume();
    assert!(daemon.is_alive());
    assert_eq!(daemon.terminate().await, 7);
    daemon.start_again();
    daemon.kill9();
    assert_eq!((daemon.is_alive(), daemon.exit_code()), (false, Some(137)));
}

#[tokio::test]
async fn strace_kills_a_daemon_at_the_sync_that_was_chosen() {
    let inject = "inject=fsync:signal=SIGKILL:when=2";
    let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync", "-e", inject];
    // `sync FILE` makes one fsync for each file; the second is its last.
    let spec = Spec::program("sync", "/bin/sync").arg("/etc/hostname").arg("/etc/passwd");
    let daemon = Daemon::start(spec.wrapped(&strace));
    assert!(daemon.ended_within(Duration::from_secs(20)).await);
    assert_eq!(daemon.exit_code(), Some(137), "{}", daemon.log());
}

#[tokio::test]
async fn fake_clock_moves_a_running_daemon() {
    let folder = Scratch::new("clock");
    let file = folder.path().join("offset");
    let script = "while :; do date +%Y; sleep 0.05; done";
    let daemon = Daemon::start(Spec::program("clock", "/bin/sh").arg("-c").arg(script).fake_clock(&file));
    let year = Command::new("date").arg("+%Y").output().unwrap().stdout;
    let year: u32 = String::from_utf8(year).unwrap().trim().parse().unwrap();
    until(|| daemon.log().contains(&year.to_string())).await;
    set_fake_clock(&file, "-3y");
    until(|| daemon.log().contains(&(year - 3).to_string())).await;
}

#[test]
fn nothing_survives_a_test_that_is_killed() {
    // This test runs itself once more as a process, lets that one start servers, and kills it.
    if std::env::var_os("HARNESS_VICTIM").is_some() {
        let (postgres, redis) = (Postgres::start(), Redis::start());
        postgres.pause();
        let folder = postgres.data_folder();
        println!("\nvictim {} {} {}", postgres.port(), redis.port(), folder.display());
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["nothing_survives_a_test_that_is_killed", "--exact", "--nocapture"])
        .env("HARNESS_VICTIM", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = std::io::BufReader::new(victim.stdout.take().unwrap());
    let mut lines = std::io::BufRead::lines(output).map(Result::unwrap);
    let line = lines.find(|line| line.starts_with("victim ")).unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    let listening = |port: &str| {
        let port: u16 = port.parse().unwrap();
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    };
    let folder = std::path::Path::new(words[3]);
    assert!(listening(words[1]) && listening(words[2]) && folder.exists(), "both servers are up");
    victim.kill().unwrap();
    victim.wait().unwrap();
    let until = Instant::now() + Duration::from_secs(15);
    while listening(words[1]) || listening(words[2]) || folder.exists() {
        assert!(Instant::now() < until, "something outlived the test that started it: {line}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn exposed_finds_a_planted_duplicate_among_many() {
    let exposed = Exposed::new();
    let began = Instant::now();
    for batch in 0..10_000i64 {
        let ids: Vec<i64> = (batch * 1000..(batch + 1) * 1000).collect();
        assert!(exposed.record(if batch % 2 == 0 { "eu" } else { "us" }, &ids).is_empty());
    }
    assert!(began.elapsed() < Duration::from_secs(20), "10^7 ids took {:?}", began.elapsed());
    exposed.assert_no_duplicates();
    let found = exposed.record("ap", &[10_000_000, 4_567_891, 10_000_001]);
    assert_eq!(found.len(), 1);
    let duplicate = (found[0].id, found[0].first.region.as_str(), found[0].second.region.as_str());
    assert_eq!(duplicate, (4_567_891, "us", "ap"));
    assert_eq!((exposed.total(), exposed.highest()), (10_000_003, Some(10_000_001)));
    assert_eq!(exposed.duplicates().0, 1);
}

#[test]
fn exposed_handles_any_numbers_and_twice_in_one_answer() {
    let exposed = Exposed::new();
    assert!(exposed.record("eu", &[i64::MIN, -1, 0, 63, 64, i64::MAX]).is_empty());
    assert_eq!(exposed.record("eu", &[5, 5]).len(), 1);
    assert_eq!(exposed.record("us", &[i64::MAX, i64::MIN, -1]).len(), 3);
    let scattered: Vec<i64> = (0..100_000i64).map(|n| 100 + (n * 7_919_777) % 1_000_003).collect();
    assert!(exposed.record("eu", &scattered).is_empty());
    assert!(exposed.contains(scattered[77]) && exposed.origin(scattered[77]).is_some());
    assert_eq!(exposed.record("us", &scattered[77..78])[0].first.region, "eu");
}

#[test]
#[should_panic(expected = "exposed twice")]
fn exposed_fails_the_test_that_asks() {
    let exposed = Exposed::new();
    exposed.record("eu", &[1]);
    exposed.record("us", &[1]);
    exposed.assert_no_duplicates();
}

#[test]
fn ports_are_never_handed_out_twice() {
    let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(|| [ports::free(), ports::free()])).collect();
    let mut all: Vec<u16> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 16);
}
