//! The Redis protocol of an agent, byte by byte: who is let in, what is refused and how, what a client may hold,
//! and that an id is no less unique for having been asked for with INCR.

use serde_json::json;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tests::cluster::{Builder, Cluster, fixed, policy};
use tests::ledger_of_ids::Exposed;
use tests::load::{Load, Plan};
use tests::ports;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::help::{assert_clean_log, assert_sound, at_rest, metric, quick, until};

/// A cluster of one region whose agent also speaks Redis's protocol; and on which port.
pub async fn speaking(builder: Builder) -> (Cluster, u16) {
    let port = ports::free();
    let cluster = builder.region("eu").agent_env("CADASTRE_RESP_LISTEN", &format!("127.0.0.1:{port}")).start().await;
    (cluster, port)
}

/// A connection that sends what it is told to and reads line by line.
struct Wire {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Wire {
    async fn open(port: u16) -> Self {
        Self { stream: TcpStream::connect(("127.0.0.1", port)).await.unwrap(), read: Vec::new() }
    }

    async fn authenticated(port: u16, token: &str) -> Self {
        let mut wire = Self::open(port).await;
        assert_eq!(wire.ask(&format!("AUTH {token}")).await, "+OK");
        wire
    }

    async fn send(&mut self, bytes: &[u8]) {
        // The other end may have closed: what it said before is what counts.
        let _ = self.stream.write_all(bytes).await;
    }

    /// The next line; none where the connection was closed.
    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.read.windows(2).position(|two| two == b"\r\n") {
                let line = String::from_utf8(self.read[..end].to_vec()).expect("answers are text");
                self.read.drain(..end + 2);
                return Some(line);
            }
            let read = tokio::time::timeout(Duration::from_secs(40), self.stream.read_buf(&mut self.read)).await;
            if !matches!(read.expect("an answer, or the end, within 40 s"), Ok(1..)) {
                return None;
            }
        }
    }

    /// The first line of the answer to a plain line.
    async fn ask(&mut self, command: &str) -> String {
        self.send(format!("{command}\r\n").as_bytes()).await;
        self.line().await.unwrap_or_else(|| "closed".to_owned())
    }

    /// An id, however often the agent has to be asked.
    async fn id(&mut self, command: &str) -> i64 {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let answer = self.ask(command).await;
            if let Some(id) = answer.strip_prefix(':') {
                return id.parse().unwrap();
            }
            assert!(answer.starts_with("-SEGMENT_DRY") && Instant::now() < end, "{command}: {answer}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// The ids of `INCRBY namespace n` by its answer.
fn run(last: i64, n: i64) -> RangeInclusive<i64> {
    last - n + 1..=last
}

#[tokio::test]
async fn before_authentication_there_is_nothing_and_a_revoked_token_is_noticed() {
    let (cluster, port) = speaking(quick().namespace_with("orders", fixed(1_000, 100))).await;
    let exposed = Exposed::new();
    let token = &cluster.service_token;
    let region = cluster.region("eu").registration["token"].as_str().unwrap();
    let mut wire = Wire::open(port).await;
    for (command, answer) in [
        ("INCR orders", "-NOAUTH"),
        ("INCRBY orders 5", "-NOAUTH"),
        ("GET orders", "-NOAUTH"),
        ("PING", "-NOAUTH"),
        ("INFO", "-NOAUTH"),
        ("NOSUCH", "-NOAUTH"),
        ("HELLO 3", "-NOAUTH"),
        ("AUTH nonsense", "-WRONGPASS"),
        (&format!("AUTH other {token}"), "-WRONGPASS"),
        (&format!("AUTH {region}"), "-NOPERM"),
        (&format!("AUTH {}", cluster.operator_token), "-NOPERM"),
        (&format!("HELLO 3 AUTH shop {region}"), "-NOPERM"),
        (&format!("HELLO 4 AUTH shop {token}"), "-NOPROTO"),
        ("AUTH", "-ERR"),
        ("INCR orders", "-NOAUTH"),
        (&format!("AUTH default {token}"), "+OK"),
        ("PING", "+PONG"),
        ("AUTH nonsense", "-WRONGPASS"),
        ("PING", "+PONG"),
        ("RESET", "+RESET"),
        ("PING", "-NOAUTH"),
        (&format!("AUTH shop {token}"), "+OK"),
    ] {
        let told = wire.ask(command).await;
        assert_eq!(told.split(' ').next(), Some(answer), "{command}: {told}");
    }
    exposed.record("eu", &[wire.id("INCR orders").await]);
    // Of two tokens of the service, one is revoked; both have open connections.
    let made = cluster.operate("POST", "/v1/services/shop/tokens", Some(&json!({}))).await.unwrap();
    let second = made["token"].as_str().unwrap();
    let mut doomed = Wire::open(port).await;
    until("the agent hears of the token", async || doomed.ask(&format!("AUTH {second}")).await == "+OK").await;
    exposed.record("eu", &[doomed.id("INCR orders").await]);
    let path = format!("/v1/services/shop/tokens/{}", made["token_id"].as_str().unwrap());
    cluster.operate("DELETE", &path, None).await.unwrap();
    until("the open connection is refused", async || match doomed.ask("INCR orders").await.strip_prefix(':') {
        Some(id) => {
            exposed.record("eu", &[id.parse().unwrap()]);
            false
        }
        None => true,
    })
    .await;
    let told = doomed.ask("INCR orders").await;
    assert!(told.starts_with("-NOAUTH") && told.contains("not known any more"), "{told}");
    assert_eq!(doomed.ask(&format!("AUTH {token}")).await, "+OK");
    exposed.record("eu", &[doomed.id("INCR orders").await, wire.id("INCR orders").await]);
    assert_sound(&cluster, &exposed).await;
    assert_clean_log(&cluster.region("eu").agent, &[second]);
}

/// `(sent, the answers' beginnings)`; the connection is authenticated.
const BAD: &[(&[u8], &[&str])] = &[
    (b"SET orders 5\r\n", &["-ERR unknown command 'SET'"]),
    (b"INCR\r\n", &["-ERR wrong number of arguments for 'incr'"]),
    (b"INCR a b\r\n", &["-ERR wrong number of arguments for 'incr'"]),
    (b"INCRBY orders\r\n", &["-ERR wrong number of arguments for 'incrby'"]),
    (b"INCR nowhere\r\n", &["-NOPERM"]),
    (b"INCR a/b\r\n", &["-INVALID_REQUEST"]),
    (b"*2\r\n$4\r\nINCR\r\n$0\r\n\r\n", &["-INVALID_REQUEST"]),
    (b"*2\r\n$4\r\nINCR\r\n$4\r\n\r\n+x\r\n", &["-INVALID_REQUEST"]),
    (b"*2\r\n$4\r\nINCR\r\n$2\r\n\xff\x00\r\n", &["-INVALID_REQUEST"]),
    (b"INCRBY orders 0\r\n", &["-INVALID_REQUEST"]),
    (b"INCRBY orders -1\r\n", &["-INVALID_REQUEST"]),
    (b"INCRBY orders 1.5\r\n", &["-INVALID_REQUEST"]),
    (b"INCRBY orders 99999999999999999999\r\n", &["-INVALID_REQUEST"]),
    (b"INCRBY orders 10001\r\n", &["-PAYLOAD_TOO_LARGE"]),
    (b"INCRBY orders 101\r\n", &["-PAYLOAD_TOO_LARGE"]),
    (b"INCRBY twos 2\r\n", &["-INVALID_REQUEST"]),
    (b"INCRBY nowhere 2\r\n", &["-NOPERM"]),
    (b"GET orders\r\n", &["-ERR GET is refused"]),
    (b"SELECT 1\r\n", &["-ERR DB index is out of range"]),
    (b"CLIENT KILL x\r\n", &["-ERR unknown subcommand"]),
    (b"CLIENT SETNAME a\x01b\r\n", &["-ERR Client names"]),
    (b"HELLO 3 SETNAME\r\n", &["-ERR syntax error"]),
    (b"HELLO x\r\n", &["-NOPROTO"]),
    (b"COMMAND NOSUCH\r\n", &["-ERR unknown subcommand"]),
    (b"\r\n*0\r\n*-1\r\nPING\r\n", &["+PONG"]),
];

/// The same for what ends the connection.
const FATAL: &[&[u8]] = &[
    b"*x\r\n",
    b"*99999\r\n",
    b"*1\r\n:5\r\n",
    b"*1\r\n$-5\r\n",
    b"*1\r\n$99999\r\n",
    b"*2\r\n$4\r\nINCR\r\n$6\r\nordersINCR",
    b"INCR \"orders\"\r\n",
    b"\x16\x03\x01\x02\x00",
    b"POST /v1/ids HTTP/1.1\r\nHost: x\r\n\r\n",
];

#[tokio::test]
async fn bad_input_is_told_so_and_changes_nothing() {
    let twos = json!({"name": "twos", "kind": "range", "sequence": {"increment": "2"}});
    let builder = quick().namespace_with("orders", fixed(1_000, 100)).define(twos).agent_env("CADASTRE_LOG", "debug");
    let (cluster, port) = speaking(builder).await;
    let exposed = Exposed::new();
    let before = at_rest(&cluster, "eu", "orders").await;
    let mut wire = Wire::authenticated(port, &cluster.service_token).await;
    for (sent, answers) in BAD {
        wire.send(sent).await;
        for answer in *answers {
            let told = wire.line().await.expect("the connection goes on");
            assert!(told.starts_with(answer), "{}: {told}", String::from_utf8_lossy(sent));
        }
    }
    for sent in FATAL.iter().map(|sent| sent.to_vec()).chain([vec![b'a'; 70_000]]) {
        let mut wire = Wire::authenticated(port, &cluster.service_token).await;
        wire.send(b"PING\r\n").await;
        assert_eq!(wire.line().await.as_deref(), Some("+PONG"), "what came before is answered");
        wire.send(&sent).await;
        let told = wire.line().await.unwrap_or_else(|| "closed without a word".to_owned());
        let shown = String::from_utf8_lossy(sent.get(..40).unwrap_or(&sent)).into_owned();
        assert!(told.starts_with("-ERR Protocol error: "), "{shown}: {told}");
        assert_eq!(wire.line().await, None, "{shown}: the connection is closed");
    }
    let after = at_rest(&cluster, "eu", "orders").await;
    assert_eq!((after.instance, after.region), (before.instance, before.region), "nothing was taken");
    let first = wire.id("INCR twos").await;
    assert_eq!(wire.id("INCR twos").await, first + 2, "one by one they are given");
    assert!(metric(&cluster.region("eu").url, "cadastre_redis_faults_total", "").await >= FATAL.len() as f64);
    assert_sound(&cluster, &exposed).await;
}

/// Segments of 100, runs of 30 and 70: most segments end in a piece that is too short.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_comes_out_of_one_segment_whatever_happens_beside_it() {
    let (cluster, port) = speaking(quick().namespace_with("orders", fixed(5_000, 100))).await;
    let exposed = Arc::new(Exposed::new());
    let mut callers = tokio::task::JoinSet::new();
    for n in [1, 30, 70, 100] {
        let (exposed, token) = (exposed.clone(), cluster.service_token.clone());
        callers.spawn(async move {
            let mut wire = Wire::authenticated(port, &token).await;
            let mut before = 0;
            for _ in 0..40 {
                let ids = run(wire.id(&format!("INCRBY orders {n}")).await, n);
                assert!(*ids.start() > before, "{ids:?} after {before}");
                before = *ids.end();
                // Segments of this namespace begin at multiples of their size.
                assert_eq!((ids.start() - 1) / 100, (ids.end() - 1) / 100, "{ids:?} lie in one segment");
                exposed.record("redis", &ids.collect::<Vec<i64>>());
            }
        });
    }
    while let Some(done) = callers.join_next().await {
        done.unwrap();
    }
    assert_eq!(exposed.total(), 40 * 201);
    let lost = metric(&cluster.region("eu").url, "cadastre_ids_burned_total", "orders").await;
    assert!(lost > 0.0, "what was passed over is counted");
    assert_sound(&cluster, &exposed).await;
}

/// Pipelines of everything, until `until` says so or the connection ends.
async fn pipelines(port: u16, token: String, exposed: Arc<Exposed>, until: impl Fn() -> bool) -> u64 {
    let mut got = 0;
    let Ok(stream) = TcpStream::connect(("127.0.0.1", port)).await else { return 0 };
    let mut wire = Wire { stream, read: Vec::new() };
    if wire.ask(&format!("AUTH {token}")).await != "+OK" {
        return 0;
    }
    let batch = format!("{}INCRBY orders 7\r\nPING\r\n", "*2\r\n$4\r\nINCR\r\n$6\r\norders\r\n".repeat(40));
    let batch = format!("{batch}{}", "incr orders\r\n".repeat(9));
    while !until() {
        wire.send(batch.as_bytes()).await;
        for place in 0..51 {
            let Some(line) = wire.line().await else { return got };
            match (place, line.strip_prefix(':').map(|id| id.parse::<i64>().unwrap())) {
                (41, None) => assert_eq!(line, "+PONG", "answers come in order"),
                (40, Some(last)) => {
                    exposed.record("redis", &run(last, 7).collect::<Vec<i64>>());
                    got += 7;
                }
                (_, Some(id)) => {
                    exposed.record("redis", &[id]);
                    got += 1;
                }
                (_, None) => {
                    let known = ["-SEGMENT_DRY", "-SHUTTING_DOWN"].iter().any(|word| line.starts_with(word));
                    assert!(known, "{place}: {line}");
                }
            }
        }
    }
    got
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelines_beside_http_callers_also_cut_off_and_no_id_twice() {
    let builder = quick().namespace_with("orders", policy(20_000, 100, 1_000, 1.0));
    let (cluster, port) = speaking(builder).await;
    let exposed = Arc::new(Exposed::new());
    let load = Load::start(Plan::of(&cluster, "eu", "orders").tasks(3), exposed.clone());
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (token, stopped) = (cluster.service_token.clone(), stopped.clone());
        let exposed = exposed.clone();
        callers.spawn(async move { pipelines(port, token, exposed, || *stopped.borrow()).await });
    }
    assert!(load.successes_within(200, Duration::from_secs(60)).await);
    cluster.region("eu").link.cut();
    let mut late = Wire::authenticated(port, &cluster.service_token).await;
    exposed.record("redis", &[late.id("INCR orders").await]);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    cluster.region("eu").link.heal();
    until("ids come again", async || {
        late.ask("INCR orders").await.strip_prefix(':').is_some_and(|id| {
            exposed.record("redis", &[id.parse().unwrap()]);
            true
        })
    })
    .await;
    assert!(load.successes_within(200, Duration::from_secs(60)).await);
    stop.send_replace(true);
    let got: u64 = callers.join_all().await.into_iter().sum();
    load.stop().await;
    assert!(got > 1_000, "{got} ids over pipelines");
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_stopped_under_pipelines_no_id_comes_twice() {
    let builder = quick().namespace_with("orders", policy(20_000, 100, 1_000, 1.0));
    let (cluster, port) = speaking(builder).await;
    let exposed = Arc::new(Exposed::new());
    let mut idle = Wire::authenticated(port, &cluster.service_token).await;
    for kill in [true, false, true, false] {
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..4 {
            callers.spawn(pipelines(port, cluster.service_token.clone(), exposed.clone(), || false));
        }
        let before = exposed.total();
        until("ids come", async || exposed.total() > before + 2_000).await;
        if kill {
            cluster.region("eu").agent.kill9();
        } else {
            let began = Instant::now();
            assert_eq!(cluster.region("eu").agent.terminate().await, 0);
            assert!(began.elapsed() < Duration::from_secs(8), "nobody is waited for in vain: {:?}", began.elapsed());
        }
        assert_eq!(idle.line().await, None, "an idle connection is closed");
        let got: u64 = callers.join_all().await.into_iter().sum();
        assert!(got > 0);
        cluster.restart_agent("eu").await;
        idle = Wire::authenticated(port, &cluster.service_token).await;
        exposed.record("redis", &[idle.id("INCR orders").await]);
    }
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test]
async fn the_limits_of_a_service_hold_here_too() {
    let (cluster, port) = speaking(quick().namespace_with("orders", fixed(5_000, 500))).await;
    let exposed = Exposed::new();
    let limits = json!({"ids_per_second": 10, "batch": 5});
    let body = json!({"name": "slow", "namespaces": ["orders"], "limits": limits});
    cluster.operate("POST", "/v1/services", Some(&body)).await.unwrap();
    let made = cluster.operate("POST", "/v1/services/slow/tokens", Some(&json!({}))).await.unwrap();
    let mut wire = Wire::open(port).await;
    let auth = format!("AUTH slow {}", made["token"].as_str().unwrap());
    until("the agent hears of the token", async || wire.ask(&auth).await == "+OK").await;
    let told = wire.ask("INCRBY orders 6").await;
    assert!(told.starts_with("-PAYLOAD_TOO_LARGE"), "{told}");
    // A pipeline of 30: ten are within the rate, give or take what a second brings meanwhile.
    wire.send("INCR orders\r\n".repeat(30).as_bytes()).await;
    let mut answers = Vec::new();
    for _ in 0..30 {
        answers.push(wire.line().await.unwrap());
    }
    let ids: Vec<i64> = answers.iter().filter_map(|line| line.strip_prefix(':')?.parse().ok()).collect();
    assert!((10..20).contains(&ids.len()), "{answers:?}");
    let refused = |line: &String| line.starts_with("-RATE_LIMITED") && line.contains("retry after ");
    assert_eq!(answers.iter().filter(|line| refused(line)).count(), 30 - ids.len(), "{answers:?}");
    exposed.record("slow", &ids);
    let mut shop = Wire::authenticated(port, &cluster.service_token).await;
    exposed.record("shop", &[shop.id("INCR orders").await]);
    assert_sound(&cluster, &exposed).await;
}

/// Ten seconds each, so all at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_silent_or_does_not_read_is_closed() {
    let (cluster, port) = speaking(quick().namespace_with("orders", fixed(1_000, 100))).await;
    let token = cluster.service_token.clone();
    let mut silent = Wire::open(port).await;
    let mut chatty = Wire::open(port).await;
    let mut half = Wire::authenticated(port, &token).await;
    let mut deaf = Wire::authenticated(port, &token).await;
    let mut idle = Wire::authenticated(port, &token).await;
    half.send(b"*2\r\n$4\r\nINCR\r\n$600\r\nord").await;
    // Far more answers than the kernel takes for a client that reads nothing.
    let echo = format!("*2\r\n$4\r\nECHO\r\n$60000\r\n{}\r\n", "x".repeat(60_000));
    let flood = async {
        for _ in 0..2_000 {
            if deaf.stream.write_all(echo.as_bytes()).await.is_err() {
                return;
            }
        }
        panic!("120 MB were taken from a client that reads no answer");
    };
    let strangers = async {
        assert!(silent.line().await.is_some_and(|line| line.contains("authenticated in time")));
        assert_eq!(silent.line().await, None);
    };
    let chat = async {
        // Talking does not make one known.
        let mut told = String::new();
        while !told.contains("authenticated in time") {
            told = chatty.ask("PING").await;
            assert!(told.starts_with("-NOAUTH") || told.contains("authenticated in time"), "{told}");
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    let halves = async {
        let (mut from, mut to) = half.stream.split();
        let dribble = async {
            // Each byte is progress; a command that never ends is not.
            while to.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(700)).await;
            }
        };
        let mut told = String::new();
        tokio::join!(dribble, from.read_to_string(&mut told)).1.unwrap_or_default();
        assert!(told.contains("rest of a command"), "{told}");
    };
    let all = async { tokio::join!(flood, strangers, halves, chat) };
    tokio::time::timeout(Duration::from_secs(40), all).await.expect("each is closed after some ten seconds");
    assert_eq!(idle.ask("PING").await, "+PONG", "an idle caller is not");
    let url = cluster.region("eu").url.clone();
    until("one is left", async || metric(&url, "cadastre_redis_connections{", "").await == 1.0).await;
    assert_clean_log(&cluster.region("eu").agent, &[&token]);
}
