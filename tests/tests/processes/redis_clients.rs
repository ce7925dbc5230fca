//! Real Redis clients, unchanged, at an agent: redis-cli, the `redis` crate and redis-py, in both versions of the
//! protocol. Where one of them is missing the test fails and says what to install.

use redis::{Client, Commands, Connection, RedisResult, Value};
use std::path::{Path, PathBuf};
use std::process::Command;
use tests::cluster::fixed;
use tests::ledger_of_ids::Exposed;

use crate::help::{assert_clean_log, assert_sound, quick};
use crate::resp::speaking;

/// What redis-cli prints for one command.
fn cli(port: u16, token: &str, words: &[&str]) -> String {
    let port = port.to_string();
    let arguments = ["-p", port.as_str(), "-a", token, "--no-auth-warning"];
    let output = Command::new("redis-cli").args(arguments).args(words).output();
    let output = output.expect("redis-cli is needed (Debian: redis-tools): `ops/test` installs it");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_cli_works_as_it_is() {
    let (cluster, port) = speaking(quick().namespace_with("orders", fixed(1_000, 100))).await;
    let exposed = Exposed::new();
    let token = &cluster.service_token;
    let id = |words: &[&str]| {
        let told = cli(port, token, words);
        told.parse::<i64>().unwrap_or_else(|_| panic!("{words:?}: {told}"))
    };
    let first = id(&["INCR", "orders"]);
    assert_eq!(id(&["-3", "--user", "shop", "INCR", "orders"]), first + 1);
    assert_eq!(id(&["INCRBY", "orders", "10"]), first + 11, "the last of ten");
    assert_eq!(id(&["--user", "default", "INCR", "orders"]), first + 12);
    exposed.record("eu", &(first..=first + 12).collect::<Vec<i64>>());
    for (words, answer) in [
        (&["PING"][..], "PONG"),
        (&["-3", "PING", "hi"], "hi"),
        (&["ECHO", "a b"], "a b"),
        (&["SELECT", "0"], "OK"),
        (&["CLIENT", "SETNAME", "me"], "OK"),
        (&["COMMAND", "COUNT"], "13"),
        (&["COMMAND", "DOCS"], ""),
        (&["-3", "COMMAND", "DOCS"], ""),
        (&["GET", "orders"], "ERR GET is refused: a namespace has no present value."),
        (&["INCR", "nowhere"], "NOPERM service shop is not admitted to namespace nowhere"),
        (&["DEL", "orders"], "ERR unknown command 'DEL'"),
    ] {
        let told = cli(port, token, words);
        assert!(told == answer || (answer.len() > 20 && told.starts_with(answer)), "{words:?}: {told}");
    }
    assert!(cli(port, "nonsense", &["INCR", "orders"]).contains("NOAUTH"));
    let info = cli(port, token, &["INFO"]);
    for part in ["redis_version:7", "region:eu", "uplink:up", "service:shop", "loading:0"] {
        assert!(info.contains(part), "{part} in {info}");
    }
    assert!(!cli(port, token, &["INFO", "server"]).contains("region:"), "one section");
    let hello = cli(port, token, &["-3", "HELLO", "3"]);
    assert!(hello.contains("server cadastre") && hello.contains("proto 3"), "{hello}");
    assert_sound(&cluster, &exposed).await;
}

/// What a service would write against a Redis that counts for it.
fn talk(mut connection: Connection, exposed: &Exposed) -> RedisResult<()> {
    let first: i64 = connection.incr("orders", 1)?;
    let last: i64 = connection.incr("orders", 50)?;
    exposed.record("redis-rs", &[first]);
    exposed.record("redis-rs", &(last - 49..=last).collect::<Vec<i64>>());
    let mut pipeline = redis::pipe();
    for _ in 0..500 {
        pipeline.cmd("INCR").arg("orders");
    }
    let ids: Vec<i64> = pipeline.query(&mut connection)?;
    assert!(ids.windows(2).all(|two| two[0] < two[1]), "they rise in the order that they were asked for in");
    exposed.record("redis-rs", &ids);
    let refused: RedisResult<Value> = connection.get("orders");
    assert!(refused.unwrap_err().to_string().contains("GET is refused"));
    let refused = connection.incr::<_, _, i64>("nowhere", 1).unwrap_err();
    assert_eq!(refused.code(), Some("NOPERM"), "{refused}");
    let refused = connection.incr::<_, _, i64>("orders", 20_000).unwrap_err();
    assert_eq!(refused.code(), Some("PAYLOAD_TOO_LARGE"), "{refused}");
    assert_eq!(redis::cmd("PING").query::<String>(&mut connection)?, "PONG");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_redis_crate_works_in_both_versions() {
    let (cluster, port) = speaking(quick().namespace_with("orders", fixed(100_000, 10_000))).await;
    let exposed = Exposed::new();
    let token = &cluster.service_token;
    for login in [format!(":{token}"), format!("shop:{token}"), format!("default:{token}")] {
        for version in ["resp2", "resp3"] {
            let client = Client::open(format!("redis://{login}@127.0.0.1:{port}/0?protocol={version}")).unwrap();
            let connection = client.get_connection().unwrap_or_else(|error| panic!("{version}: {error}"));
            talk(connection, &exposed).unwrap_or_else(|error| panic!("{version}: {error}"));
        }
    }
    for wrong in [format!("redis://127.0.0.1:{port}/"), format!("redis://till:{token}@127.0.0.1:{port}/")] {
        let refused = Client::open(wrong).unwrap().get_connection().map(|mut c| c.incr::<_, _, i64>("orders", 1));
        assert!(!matches!(refused, Ok(Ok(_))), "without its own token nobody gets an id");
    }
    assert_sound(&cluster, &exposed).await;
}

/// The interpreter of a virtual environment with redis-py, made once.
fn python() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("redis-py-8");
    std::fs::create_dir_all(&folder).expect("cargo's folder for tests can be written");
    let lock = std::fs::File::create(folder.join("lock")).expect("the folder is ours");
    lock.lock().expect("a file can be locked");
    let (venv, done) = (folder.join("venv"), folder.join("done"));
    let python = venv.join("bin/python");
    if !done.exists() {
        let run = |command: &mut Command, what: &str| {
            let output = command.output().unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        };
        // The first python3 may be one without `venv`: then the distribution's.
        let whole = |python: &&str| {
            let asked = Command::new(python).args(["-c", "import ensurepip, venv"]).output();
            asked.is_ok_and(|output| output.status.success())
        };
        let base = ["python3", "/usr/bin/python3"].into_iter().find(whole);
        let base = base.expect("a python3 with venv is needed (Debian: python3-venv): `ops/test` installs it");
        run(Command::new(base).args(["-m", "venv", "--clear"]).arg(&venv), "a virtual environment");
        let pip = ["-m", "pip", "install", "--disable-pip-version-check", "--quiet", "redis"];
        run(Command::new(&python).args(pip), "redis-py (does pip reach a package registry?)");
        std::fs::File::create(done).expect("the folder is ours");
    }
    python
}

const SCRIPT: &str = r#"
import sys, redis
port, token = int(sys.argv[1]), sys.argv[2]
for protocol in (2, 3):
    for user in (None, "shop", "default"):
        r = redis.Redis(port=port, username=user, password=token, protocol=protocol, client_name="test")
        assert r.ping()
        print(r.incr("orders"))
        last = r.incrby("orders", 5)
        for id in range(last - 4, last + 1): print(id)
        with r.pipeline(transaction=False) as p:
            for _ in range(100): p.incr("orders")
            for id in p.execute(): print(id)
        assert r.info()["region"] == "eu"
        assert r.client_getname() in ("test", b"test")
        try: r.get("orders"); raise SystemExit("GET was answered")
        except redis.ResponseError as e: assert "GET is refused" in str(e), e
        try: r.incr("nowhere"); raise SystemExit("an id of nowhere")
        except redis.exceptions.NoPermissionError: pass
try: redis.Redis(port=port).ping(); raise SystemExit("let in")
except redis.AuthenticationError: pass
try: redis.Redis(port=port, password="nonsense").ping(); raise SystemExit("let in")
except redis.AuthenticationError: pass
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_py_works_in_both_versions() {
    let (cluster, port) = speaking(quick().namespace_with("orders", fixed(100_000, 10_000))).await;
    let exposed = Exposed::new();
    let output = Command::new(python()).args(["-c", SCRIPT, &port.to_string(), &cluster.service_token]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let ids: Vec<i64> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(ids.len(), 6 * 106);
    exposed.record("redis-py", &ids);
    assert_sound(&cluster, &exposed).await;
    assert_clean_log(&cluster.region("eu").agent, &[]);
}
