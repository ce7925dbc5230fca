//! The example that a team would copy, run as it stands: a real public data set becomes rows of one table,
//! with ids from two regions, while answers get lost, an agent and the database are killed, and one region
//! is cut off until it is dry.
//!
//! The example's own check is the judge: every row once, ids unique and positive, each id's origin the right
//! region. `CADASTRE_SOAK=1` loads all 336,776 flights, otherwise the first 20,000.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::indexing_slicing)]

use serde_json::json;
use std::fs::File;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tests::cluster::{Cluster, fixed};
use tests::mounts::say;
use tests::postgres::Postgres;
use tests::process::{Daemon, Spec};
use tests::proxy::Proxy;

const PART: u64 = 20_000;
const ALL: u64 = 336_776;
/// Answers of each region's agent that its caller never sees.
const LOST: u64 = 5;

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/flights").canonicalize().expect("it is there")
}

/// The interpreter of a virtual environment with what the example requires. It is made once for one text of
/// the requirements.
fn python() -> PathBuf {
    let requirements = example().join("requirements.txt");
    let text = std::fs::read_to_string(&requirements).expect("the example has requirements");
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(&text);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("flights-{hash:016x}"));
    std::fs::create_dir_all(&folder).expect("cargo's folder for tests can be written");
    // Another run of this test may be making it.
    let lock = File::create(folder.join("lock")).expect("the folder is ours");
    lock.lock().expect("a file can be locked");
    let (venv, done) = (folder.join("venv"), folder.join("done"));
    let python = venv.join("bin/python");
    if !done.exists() {
        make_venv(&venv);
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--no-deps", "-r"]);
        let output = pip.arg(&requirements).output().expect("the virtual environment has a python");
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "the packages that the example requires cannot be installed (does pip reach a package registry?), so \
             it was not tried:\n{words}"
        );
        File::create(done).expect("the folder is ours");
    }
    python
}

fn make_venv(venv: &Path) {
    let whole = |python: &&str| {
        let asked = Command::new(python).args(["-c", "import ensurepip, venv"]).output();
        asked.is_ok_and(|output| output.status.success())
    };
    // The first python3 may be one without: then the distribution's.
    let python = ["python3", "/usr/bin/python3"].into_iter().find(whole);
    let python = python.expect("a python3 with venv is needed (Debian: python3-venv): `ops/test` installs it");
    let output = Command::new(python).args(["-m", "venv", "--clear"]).arg(venv).output().expect("it was just asked");
    assert!(output.status.success(), "no virtual environment: {}", String::from_utf8_lossy(&output.stderr));
}

/// A script of the example, with what it reads from the environment.
struct Script {
    python: PathBuf,
    env: Vec<(&'static str, String)>,
    rows: u64,
}

impl Script {
    fn start(&self, name: &str, arguments: &[&str]) -> Daemon {
        let script = example().join(name).display().to_string();
        let mut spec = Spec::program(name, &self.python).arg("-B").arg(script);
        spec = spec.arg("--rows").arg(self.rows.to_string());
        spec = arguments.iter().fold(spec, |spec, argument| spec.arg(*argument));
        Daemon::start(self.env.iter().fold(spec, |spec, (name, value)| spec.env(name, value.as_str())))
    }
}

/// What the loader tells of a region: flights, answers lost, refusals waited out, transactions done again.
fn told(log: &str, region: &str) -> [u64; 4] {
    let line = log.lines().find_map(|line| line.strip_prefix(region)).expect("the loader tells of each region");
    let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().unwrap_or_else(|numbers| panic!("four numbers: {numbers:?} in {line}"))
}

/// What can be hurt while the flights are loaded.
struct Stage {
    cluster: Cluster,
    postgres: Postgres,
    /// Between the loader and the agents of `eu` and `us`.
    callers: [Proxy; 2],
    rows: u64,
}

impl Stage {
    async fn new(rows: u64) -> Self {
        // Small ones, so that a cut region runs dry, and much is granted and carved on the way.
        let policy = fixed(rows / 10, rows / 200);
        let cluster = Cluster::builder().region("eu").region("us").namespace_with("flights", policy).start().await;
        let callers = ["eu", "us"].map(|name| {
            let (_, port) = cluster.region(name).url.rsplit_once(':').expect("a URL with a port");
            Proxy::start(port.parse().expect("a number"))
        });
        Self { cluster, postgres: Postgres::start(), callers, rows }
    }

    fn script(&self, python: PathBuf) -> Script {
        let [eu, us] = &self.callers;
        let env = vec![
            ("DATABASE_URL", self.postgres.url()),
            ("CADASTRE_AGENTS", format!("eu={},us={}", eu.url(), us.url())),
            ("CADASTRE_TOKEN", self.cluster.service_token.clone()),
            ("CADASTRE_AUTHORITY_URL", self.cluster.url.clone()),
            ("CADASTRE_VIEWER_TOKEN", self.cluster.operator_token.clone()),
        ];
        Script { python, env, rows: self.rows }
    }

    /// Waits until this share of the rows is in the table, and the loader still at work.
    async fn loaded(&self, loader: &Daemon, percent: u64) {
        let until = Instant::now() + Duration::from_secs(600);
        loop {
            let count = self.postgres.try_psql("postgres", "SELECT count(*) FROM flights");
            let count: u64 = count.ok().and_then(|count| count.parse().ok()).unwrap_or_default();
            if count * 100 >= self.rows * percent {
                assert!(count < self.rows, "it was done before anything happened");
                return;
            }
            assert!(loader.is_alive(), "the loader ended after {count} rows:\n{}", loader.log());
            assert!(Instant::now() < until, "{count} rows only:\n{}", loader.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until a region has nothing more.
    async fn dry(&self, region: &str) {
        let until = Instant::now() + Duration::from_secs(120);
        loop {
            match self.cluster.ids(region, "flights", 1).await {
                Err(problem) if problem.code == "segment_dry" => return,
                answer => assert!(Instant::now() < until, "{region} is cut off, and not dry: {answer:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn hurt(&self, loader: &Daemon) {
        let region = |name| self.cluster.region(name);
        self.loaded(loader, 5).await;
        for callers in &self.callers {
            callers.lose_answers(LOST);
        }
        self.loaded(loader, 10).await;
        region("us").agent.kill9();
        tokio::time::sleep(Duration::from_millis(300)).await;
        self.cluster.restart_agent("us").await;
        self.loaded(loader, 20).await;
        self.postgres.kill9();
        self.postgres.restart();
        self.loaded(loader, 30).await;
        region("eu").link.cut();
        // Cut off and killed: it starts without its authority, and goes on.
        region("eu").agent.kill9();
        self.cluster.restart_agent("eu").await;
        let delivered = self.callers[0].count("/v1/ids").delivered;
        self.dry("eu").await;
        assert!(self.callers[0].count("/v1/ids").delivered > delivered, "eu served its callers through the cut");
        tokio::time::sleep(Duration::from_millis(500)).await;
        region("eu").link.heal();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_flights_are_loaded_once_each_whatever_happens_on_the_way() {
    let python = tokio::task::spawn_blocking(python).await.expect("the example's environment is made");
    let rows = if std::env::var_os("CADASTRE_SOAK").is_some() { ALL } else { PART };
    let stage = Stage::new(rows).await;
    let script = stage.script(python);
    let began = Instant::now();
    let loader = script.start("load.py", &["--batch", if rows == ALL { "500" } else { "50" }]);
    stage.hurt(&loader).await;
    assert!(loader.ended_within(Duration::from_secs(900)).await, "the loader does not end:\n{}", loader.log());
    let loaded = loader.log();
    assert_eq!(loader.exit_code(), Some(0), "{loaded}");
    let took = began.elapsed();
    for (region, refusals) in [("eu", 1), ("us", 0)] {
        let [flights, lost, waited, again] = told(&loaded, region);
        assert!(flights == rows / 2 && lost >= LOST && waited >= refusals && again > 0, "{loaded}");
    }
    // Once more, as after a crash of the loader: nothing is inserted twice.
    let again = script.start("load.py", &["--batch", "1000"]);
    assert!(again.ended_within(Duration::from_secs(900)).await && again.exit_code() == Some(0), "{}", again.log());
    let check = script.start("check.py", &["--sample", "300"]);
    assert!(check.ended_within(Duration::from_secs(300)).await, "the check does not end");
    assert_eq!(check.exit_code(), Some(0), "{}", check.log());
    let audit = stage.cluster.audit().await;
    assert_eq!((&audit["ok"], &audit["unreachable"]), (&json!(true), &json!([])), "{audit}");
    say(&format!("flights, {:.1} s through all faults:\n{loaded}{}", took.as_secs_f64(), check.log()));
}
