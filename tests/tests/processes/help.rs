//! What the subjects share: waiting with a bound, reading what is held, using it up to the last id, and the
//! checks that every test ends with.

use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};
use tests::cluster::{Builder, Cluster};
use tests::http;
use tests::ledger_of_ids::Exposed;
use tests::ports;
use tests::process::{Daemon, Spec};
use tests::region::{Problem, Setup, agent_spec, ask_ids};

/// A cluster whose agents speak every second: what follows from a heartbeat follows sooner.
pub fn quick() -> Builder {
    Cluster::builder().agent_env("CADASTRE_HEARTBEAT_SECONDS", "1")
}

/// Whether the random tests are to be long.
pub fn soak() -> bool {
    std::env::var_os("CADASTRE_SOAK").is_some()
}

/// Waits until `holds` says so; fails with `what` after a minute.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds().await {
        assert!(Instant::now() < end, "waited a minute in vain: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A number that is written as a decimal string.
pub fn number(value: &Value) -> u64 {
    let text = value.as_str().unwrap_or_else(|| panic!("a decimal string: {value}"));
    text.parse().unwrap_or_else(|_| panic!("a decimal string: {value}"))
}

/// How one namespace stands at an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Stand {
    pub instance: u64,
    pub region: u64,
    pub rate: f64,
    pub runway_instance: Option<u64>,
    pub runway_region: Option<u64>,
    pub refill: String,
}

impl Stand {
    /// Ids that this region can still give out by itself, one agent on its store.
    pub fn held(&self) -> u64 {
        self.instance + self.region
    }

    /// Both runways are what is left at the shown rate: no more, and no less than a second less.
    pub fn assert_truthful(&self) {
        let seconds = |left: u64| (self.rate > 0.0).then(|| (left as f64 / self.rate) as u64);
        assert_eq!(self.runway_instance, seconds(self.instance), "{self:?}");
        assert_eq!(self.runway_region, seconds(self.held()), "{self:?}");
    }
}

/// What `GET /v1/status` of a region says of a namespace.
pub async fn stand(cluster: &Cluster, region: &str, namespace: &str) -> Stand {
    stand_in(&cluster.status(region).await, namespace)
}

/// The same out of an answer.
pub fn stand_in(status: &Value, namespace: &str) -> Stand {
    let all = status["namespaces"].as_array().unwrap();
    let own = all.iter().find(|it| it["namespace"] == namespace);
    let own = own.unwrap_or_else(|| panic!("no {namespace} in {status}"));
    Stand {
        instance: number(&own["left_in_instance"]),
        region: number(&own["left_in_region"]),
        rate: own["rate_per_second"].as_f64().unwrap(),
        runway_instance: own["runway_instance_seconds"].as_u64(),
        runway_region: own["runway_region_seconds"].as_u64(),
        refill: own["refill"].as_str().unwrap().to_owned(),
    }
}

/// Waits until the region has nothing under way in this namespace: a standby is there, and a grant in
/// reserve. What is held then changes only by being issued.
pub async fn at_rest(cluster: &Cluster, region: &str, namespace: &str) -> Stand {
    let mut last = (stand(cluster, region, namespace).await, Instant::now());
    until("the region comes to rest", async || {
        let now = stand(cluster, region, namespace).await;
        let same = (now.instance, now.region) == (last.0.instance, last.0.region);
        if !same || now.refill != "idle" {
            last = (now, Instant::now());
        }
        // Longer than two heartbeats: a grant that is wanted would have come.
        last.1.elapsed() > Duration::from_millis(2_600)
    })
    .await;
    last.0
}

/// Ids from a region as a caller gets them who waits for a refill as long as one may. A batch that is refused
/// half-way is a gap, and on a busy machine the default wait is short.
pub async fn patient_ids(cluster: &Cluster, region: &str, namespace: &str, count: u32) -> Result<Vec<i64>, Problem> {
    let request = http::client()
        .post(format!("{}/v1/ids", cluster.region(region).url))
        .bearer_auth(&cluster.service_token)
        .header("Cadastre-Timeout-Ms", "5000")
        .json(&serde_json::json!({"namespace": namespace, "count": count}));
    let answer = request.send().await.map_err(|error| Problem::connection(&error))?;
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    let body: Value = answer.json().await.map_err(|error| Problem::connection(&error))?;
    match body["ids"].as_array() {
        Some(ids) => Ok(ids.iter().map(|id| id.as_str().unwrap().parse().unwrap()).collect()),
        None => Err(Problem::of(status, &headers, &body)),
    }
}

/// Asks for ids until nothing comes any more, and enters them; how many came, and the refusal. No more than
/// `batch` at a time and never more than are in memory: a batch that is refused half-way would be a gap.
pub async fn use_up(cluster: &Cluster, region: &str, namespace: &str, batch: u32, exposed: &Exposed) -> (u64, Problem) {
    let mut got = 0;
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < end, "after a minute there is no end of {namespace}: {got} ids came");
        let in_memory = stand(cluster, region, namespace).await.instance;
        let count = u32::try_from(in_memory).unwrap().clamp(1, batch);
        match patient_ids(cluster, region, namespace, count).await {
            Ok(ids) => {
                exposed.record(region, &ids);
                got += ids.len() as u64;
            }
            // A carve may be under way while the tier above is well: the caller's wait was too short.
            Err(problem) if problem.detail.contains("under way") => {}
            Err(problem) => return (got, problem),
        }
    }
}

/// Takes exactly so many ids, in batches that may be refused for a moment.
pub async fn take(cluster: &Cluster, region: &str, namespace: &str, ids: u64, batch: u32, exposed: &Exposed) {
    let mut left = ids;
    let end = Instant::now() + Duration::from_secs(60);
    while left > 0 {
        let count = u32::try_from(left).unwrap_or(u32::MAX).min(batch);
        match patient_ids(cluster, region, namespace, count).await {
            Ok(ids) => {
                exposed.record(region, &ids);
                left -= ids.len() as u64;
            }
            Err(problem) => {
                assert!(Instant::now() < end, "{left} of {ids} ids of {namespace} do not come: {problem}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

/// Dry as a caller should learn of it: 503, a code that says so, and when to come back.
pub fn assert_dry(problem: &Problem) {
    assert_eq!((problem.status, problem.code.as_str()), (503, "segment_dry"), "{problem}");
    assert!(problem.retry_after.is_some_and(|seconds| seconds >= 1), "{problem:?}");
}

/// No part of the process fell over, and nothing that it printed is a secret.
pub fn assert_clean_log(daemon: &Daemon, secrets: &[&str]) {
    let log = daemon.log();
    assert!(!log.contains("panicked"), "a panic in the log:\n{log}");
    for secret in secrets {
        assert!(!log.contains(secret), "a secret in the log: {secret}");
    }
}

/// What must hold at every end: no duplicate, clean ledgers, no panic, no secret in any log.
pub async fn assert_sound(cluster: &Cluster, exposed: &Exposed) {
    exposed.assert_no_duplicates();
    let findings = cluster.verify().await;
    assert!(findings.is_empty(), "{findings:?}");
    let tokens: Vec<&str> = cluster.regions().filter_map(|region| region.registration["token"].as_str()).collect();
    let secrets = [tokens.as_slice(), &[&cluster.operator_token, &cluster.service_token]].concat();
    assert_clean_log(&cluster.authority, &secrets);
    for region in cluster.regions() {
        assert_clean_log(&region.agent, &secrets);
    }
}

/// One more agent: of a region of the cluster on its store, or of one that was registered since.
pub struct Extra {
    pub agent: Daemon,
    pub url: String,
}

/// Starts an agent that the cluster does not know of; it speaks to the authority directly.
pub fn extra_agent(cluster: &Cluster, name: &str, token: &str, change: impl FnOnce(Spec) -> Spec) -> Extra {
    let port = ports::free();
    let setup = Setup { name, token, authority_url: &cluster.url, database_url: None, port };
    let spec = agent_spec(&setup).env("CADASTRE_HEARTBEAT_SECONDS", "1");
    Extra { agent: Daemon::start(change(spec)), url: format!("http://127.0.0.1:{port}") }
}

impl Extra {
    /// Waits until it serves HTTP.
    pub async fn up(&self) {
        self.agent.wait_ready(&format!("{}/healthz", self.url)).await;
    }

    /// Ids from it.
    pub async fn ids(&self, cluster: &Cluster, namespace: &str, count: u32) -> Result<Vec<i64>, Problem> {
        ask_ids(&http::client(), &self.url, &cluster.service_token, namespace, count).await
    }

    /// Waits until it gives out ids, and enters the first.
    pub async fn serves(&self, cluster: &Cluster, source: &str, namespace: &str, exposed: &Exposed) {
        until("the agent serves", async || match self.ids(cluster, namespace, 1).await {
            Ok(ids) => {
                exposed.record(source, &ids);
                true
            }
            Err(_) => false,
        })
        .await;
    }

    /// Its status.
    pub async fn status(&self, cluster: &Cluster) -> Value {
        http::get_json(&format!("{}/v1/status", self.url), Some(&cluster.service_token)).await.2
    }
}

/// The token of a region of the cluster.
pub fn token_of<'a>(cluster: &'a Cluster, region: &str) -> &'a str {
    cluster.region(region).registration["token"].as_str().unwrap()
}

/// Registers a region; its token.
pub async fn register(cluster: &Cluster, region: &str) -> String {
    let answer = cluster.operate("POST", "/v1/regions", Some(&serde_json::json!({"name": region}))).await.unwrap();
    answer["token"].as_str().unwrap().to_owned()
}

/// One step of a region's life cycle; the epoch after it.
pub async fn step(cluster: &Cluster, region: &str, verb: &str, body: Value) -> Result<u64, Problem> {
    let answer = cluster.operate("POST", &format!("/v1/regions/{region}/{verb}"), Some(&body)).await?;
    Ok(answer["epoch"].as_u64().unwrap())
}

/// Waits until a daemon that must not start has ended; it says why, and not with success.
pub async fn refuses_to_start(daemon: &Daemon, why: &[&str]) {
    assert!(daemon.ended_within(Duration::from_secs(30)).await, "it started:\n{}", daemon.log());
    assert_eq!(daemon.exit_code(), Some(1), "{}", daemon.log());
    for word in why {
        assert!(daemon.log().contains(word), "it says {word:?}:\n{}", daemon.log());
    }
    assert_clean_log(daemon, &[]);
}

/// Copies a folder with what is in it.
pub fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Puts a folder's copy in its place.
pub fn put_back(copy: &Path, folder: &Path) {
    std::fs::remove_dir_all(folder).unwrap();
    copy_folder(copy, folder);
}

/// The audit records of one kind in an embedded store, oldest first. The store may be in use.
pub fn audit_of(store: &Path, what: &str) -> Vec<String> {
    let db = rusqlite::Connection::open(store).unwrap();
    db.busy_timeout(Duration::from_secs(10)).unwrap();
    let mut rows = db.prepare("SELECT detail FROM audit WHERE what = ?1 ORDER BY at_ms").unwrap();
    let details = rows.query_map([what], |row| row.get(0)).unwrap();
    details.map(Result::unwrap).collect()
}

/// A counter or gauge of a daemon's `/metrics`, summed over the lines that hold `labels`.
pub async fn metric(url: &str, name: &str, labels: &str) -> f64 {
    let (status, _, text) = http::get_json(&format!("{url}/metrics"), None).await;
    assert_eq!(status, 200, "{text}");
    let of = |line: &str| line.starts_with(name) && line.contains(labels);
    let values = text.as_str().unwrap().lines().filter(|line| of(line));
    values.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

/// Runs the operator's command; its exit code and all that it said.
pub fn cadastre(authority: &str, token: &str, words: &[&str]) -> (i32, String) {
    let mut command = std::process::Command::new(tests::process::built("cadastre"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CADASTRE_")) {
        command.env_remove(name);
    }
    let folder = tests::scratch::Scratch::new("cli");
    command.args(words).current_dir(folder.path()).stdin(std::process::Stdio::null());
    command.env("CADASTRE_AUTHORITY_URL", authority).env("CADASTRE_TOKEN", token);
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said =
        if output.stderr.is_empty() { text(&output.stdout) } else { text(&output.stdout) + &text(&output.stderr) };
    (output.status.code().unwrap_or(-1), said)
}
