//! Rows over sockets: a development cluster of our own as a process, as it is shipped, with tokens, limits, metrics
//! and logs on; peers as processes beside it; wrk and redis-benchmark as the callers of both.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::{Child, Command};

use cadastre_protocol::admin::{NamespacePatch, PolicyPatch};
use cadastre_runtime::token::Secret;

use super::Effort;
use super::rounds::{OURS, Result as Measured};
use crate::api::Api;
use crate::dev::file::DevFile;
use crate::error::CliError;

/// Commands of a turn of redis-benchmark, for each second of load.
const RESP_PER_SECOND: u32 = 60_000;
/// How long a process may take to answer for the first time.
const START_WITHIN: Duration = Duration::from_secs(30);

/// What is asked, of whom, and how.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Load {
    /// One id a request, over so many connections: requests a second.
    HttpOne(u32),
    /// The same: the 99th percentile, in milliseconds.
    HttpOneP99(u32),
    /// So many ids a request as a list of strings, over 32 connections: ids a second.
    HttpLists(u32),
    /// So many ids a request as ranges, over 32 connections, and one id as a range: requests a second.
    HttpRanges(u32),
    /// INCR with so many commands in flight on each of 50 connections: requests a second.
    Resp(u32),
    /// The same: what the serving process used of the processor, in microseconds a command.
    RespCpu(u32),
}

/// The dev cluster's namespace that gets the policy of [`Served::widen`].
const WIDE: &str = "global";

/// What was started so far; everything ends with the bench.
#[derive(Default)]
pub struct Served {
    own: Option<Own>,
    axum: Option<(Child, String)>,
    redis: Option<(Child, u16)>,
}

struct Own {
    process: Child,
    file: DevFile,
    folder: TempDir,
}

impl Served {
    /// Runs a row.
    ///
    /// # Errors
    /// Where a process does not start, or a tool is missing.
    pub async fn run(&mut self, load: Load, effort: Effort) -> Result<Measured, CliError> {
        let mut result = Measured::default();
        // The first turn warms up: sizes and rates have to settle.
        for turn in 0..=effort.rounds {
            let mut sink = Measured::default();
            let into = if turn == 0 { &mut sink } else { &mut result };
            self.turn(load, effort, into).await?;
        }
        Ok(result)
    }

    async fn turn(&mut self, load: Load, effort: Effort, into: &mut Measured) -> Result<(), CliError> {
        let seconds = effort.load_seconds;
        match load {
            Load::HttpOne(connections) | Load::HttpOneP99(connections) => {
                let body = r#"{"namespace":"orders"}"#;
                let ours = self.wrk_own(body, connections, seconds).await?;
                let url = self.axum().await?;
                let theirs = wrk(&format!("{url}/v1/ids"), "none", body, connections, seconds).await?;
                let pick = |w: &Wrk| if matches!(load, Load::HttpOneP99(_)) { w.p99_ms } else { w.per_second };
                into.add(OURS, pick(&ours));
                into.add("bare axum", pick(&theirs));
            }
            Load::HttpLists(count) => {
                let body = format!(r#"{{"namespace":"orders","count":{count}}}"#);
                let ours = self.wrk_own(&body, 32, seconds).await?;
                into.add(OURS, ours.per_second * f64::from(count));
            }
            Load::HttpRanges(count) => {
                self.widen().await?;
                let body = |count| format!(r#"{{"namespace":"{WIDE}","count":{count},"as":"ranges"}}"#);
                let many = self.wrk_own(&body(count), 32, seconds).await?;
                let one = self.wrk_own(&body(1), 32, seconds).await?;
                into.add(OURS, many.per_second);
                into.add("count 1", one.per_second);
            }
            Load::Resp(pipeline) | Load::RespCpu(pipeline) => {
                let is_cpu = matches!(load, Load::RespCpu(_));
                for (name, (per_second, cpu)) in self.resp(pipeline, seconds).await? {
                    into.add(name, if is_cpu { cpu } else { per_second });
                }
            }
        }
        Ok(())
    }

    /// Ours and Redis: requests a second, and microseconds of the processor a request. Ours is the whole cluster's process.
    async fn resp(&mut self, pipeline: u32, seconds: u32) -> Result<[(&'static str, (f64, f64)); 2], CliError> {
        let requests = RESP_PER_SECOND * pipeline.min(8) * seconds;
        let own = self.own().await?;
        let (token, pid) = (own.file.service_token.clone(), own.process.id());
        let address = own.file.regions.first().and_then(|r| r.resp.clone());
        let port = address.and_then(|a| a.rsplit(':').next()?.parse::<u16>().ok());
        let port = port.ok_or_else(|| CliError::failed("the agent has no Redis address", "look at dev.json"))?;
        let ours = redis_benchmark((port, pid), Some(&token), pipeline, requests).await?;
        let theirs = redis_benchmark(self.redis().await?, None, pipeline, requests).await?;
        Ok([(OURS, ours), ("redis-server", theirs)])
    }

    /// Gives a namespace segments that outlast a commit, as whoever asks for hundreds of millions a second would.
    async fn widen(&mut self) -> Result<(), CliError> {
        let authority = self.own().await?.file.authority.clone();
        let api = Api::new(&authority.url, Some(Secret::new(&authority.operator_token)))?;
        let policy = PolicyPatch { segment_max: Some(10_000_000), ..PolicyPatch::default() };
        let patch = NamespacePatch { policy: Some(policy), ..NamespacePatch::default() };
        api.patch(&format!("/v1/namespaces/{WIDE}"), &patch).await?;
        Ok(())
    }

    async fn wrk_own(&mut self, body: &str, connections: u32, seconds: u32) -> Result<Wrk, CliError> {
        let own = self.own().await?;
        let url = own.file.regions.first().map(|r| r.url.clone()).unwrap_or_default();
        wrk(&format!("{url}/v1/ids"), &own.file.service_token, body, connections, seconds).await
    }

    async fn own(&mut self) -> Result<&Own, CliError> {
        if self.own.is_none() {
            self.own = Some(Own::start().await?);
        }
        self.own.as_ref().ok_or_else(|| CliError::failed("the cluster is gone", "run the bench again"))
    }

    async fn axum(&mut self) -> Result<String, CliError> {
        if let Some((_, url)) = &self.axum {
            return Ok(url.clone());
        }
        let port = free_port()?;
        let process = spawn(Command::new(this_program()?).args(["bench-peer", &format!("127.0.0.1:{port}")]))?;
        answers(port).await?;
        let url = format!("http://127.0.0.1:{port}");
        self.axum = Some((process, url.clone()));
        Ok(url)
    }

    async fn redis(&mut self) -> Result<(u16, Option<u32>), CliError> {
        if let Some((process, port)) = &self.redis {
            return Ok((*port, process.id()));
        }
        let port = free_port()?;
        let number = port.to_string();
        let arguments = ["--port", &number, "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"];
        let process = spawn(Command::new("redis-server").args(arguments))?;
        answers(port).await?;
        let pid = process.id();
        self.redis = Some((process, port));
        Ok((port, pid))
    }

    /// Stops what was started.
    pub async fn stop(self) {
        for mut process in [self.axum.map(|a| a.0), self.redis.map(|r| r.0)].into_iter().flatten() {
            let _ = process.kill().await;
        }
        if let Some(mut own) = self.own {
            let _ = own.process.kill().await;
            drop(own.folder);
        }
    }
}

impl Own {
    async fn start() -> Result<Self, CliError> {
        let folder =
            tempfile::tempdir().map_err(|e| CliError::failed(e.to_string(), "make room for temporary files"))?;
        let data = folder.path().join("dev");
        let mut command = Command::new(this_program()?);
        command.args(["dev", "--base-port", "0", "--data"]).arg(&data);
        let process = spawn(&mut command)?;
        let started = tokio::time::timeout(START_WITHIN, async {
            loop {
                if let Ok(Some(file)) = DevFile::read(&data) {
                    return file;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        let file = started.await.map_err(|_| CliError::failed("the cluster did not start", "try `cadastre dev`"))?;
        Ok(Self { process, file, folder })
    }
}

/// What wrk said.
struct Wrk {
    per_second: f64,
    p99_ms: f64,
}

async fn wrk(url: &str, token: &str, body: &str, connections: u32, seconds: u32) -> Result<Wrk, CliError> {
    let script = script(token, body)?;
    let (connections, seconds) = (format!("-c{connections}"), format!("-d{seconds}s"));
    let mut command = Command::new("wrk");
    command.args(["-t1", &connections, &seconds, "--latency", "-s"]).arg(script.path()).arg(url);
    let text = output(&mut command, "wrk").await?;
    if let Some(line) = text.lines().find(|line| line.contains("Non-2xx")) {
        return Err(CliError::failed(format!("wrk: {}", line.trim()), "look at the agent's log"));
    }
    let after = |word: &str| text.lines().find_map(|line| line.trim().strip_prefix(word).map(str::trim));
    let per_second = after("Requests/sec:").and_then(|v| v.parse().ok());
    let p99_ms = after("99%").and_then(milliseconds);
    match (per_second, p99_ms) {
        (Some(per_second), Some(p99_ms)) => Ok(Wrk { per_second, p99_ms }),
        _ => Err(CliError::failed(format!("wrk's answer cannot be read:\n{text}"), "try another version of wrk")),
    }
}

fn script(token: &str, body: &str) -> Result<tempfile::NamedTempFile, CliError> {
    use std::io::Write;
    let text = format!(
        "wrk.method = \"POST\"\nwrk.body = '{body}'\nwrk.headers[\"content-type\"] = \"application/json\"\n\
         wrk.headers[\"authorization\"] = \"Bearer {token}\"\n"
    );
    let written = tempfile::Builder::new().suffix(".lua").tempfile().and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        Ok(file)
    });
    written.map_err(|e| CliError::failed(e.to_string(), "make room for temporary files"))
}

/// `1.60ms`, `850.00us`, `1.20s`.
fn milliseconds(text: &str) -> Option<f64> {
    let at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(at);
    let factor = match unit {
        "us" => 1e-3,
        "ms" => 1.0,
        "s" => 1e3,
        _ => return None,
    };
    number.parse::<f64>().ok().map(|n| n * factor)
}

/// Requests a second, and what the process that serves them used of the processor, in microseconds a request.
async fn redis_benchmark(
    (port, pid): (u16, Option<u32>),
    token: Option<&str>,
    pipeline: u32,
    requests: u32,
) -> Result<(f64, f64), CliError> {
    let before = super::page::cpu_seconds(pid)?;
    let mut command = Command::new("redis-benchmark");
    command.args(["-p", &port.to_string(), "-c", "50", "-P", &pipeline.to_string(), "-n", &requests.to_string(), "-q"]);
    if let Some(token) = token {
        command.args(["-a", token]);
    }
    let text = output(command.args(["INCR", "orders"]), "redis-benchmark").await?;
    let figure = text.split(['\r', '\n']).find_map(|line| {
        let (before, _) = line.split_once(" requests per second")?;
        before.rsplit(' ').next()?.parse::<f64>().ok()
    });
    let figure = figure.ok_or_else(|| {
        CliError::failed(format!("redis-benchmark's answer cannot be read:\n{text}"), "try another version of it")
    })?;
    let used = super::page::cpu_seconds(pid)? - before;
    Ok((figure, used * 1e6 / f64::from(requests)))
}

/// This binary.
///
/// # Errors
/// Where the system does not say.
pub fn this_program() -> Result<PathBuf, CliError> {
    std::env::current_exe().map_err(|e| CliError::failed(e.to_string(), "start cadastre by its path"))
}

fn spawn(command: &mut Command) -> Result<Child, CliError> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    quiet.spawn().map_err(|e| CliError::failed(format!("{name}: {e}"), format!("install {name}")))
}

async fn output(command: &mut Command, name: &str) -> Result<String, CliError> {
    let missing = |e: std::io::Error| {
        CliError::failed(format!("{name}: {e}"), format!("install it; on Debian: apt-get install {}", package(name)))
    };
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await.map_err(missing)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(CliError::failed(
        format!("{name} failed:\n{text}{}", String::from_utf8_lossy(&output.stderr)),
        "look at its words",
    ))
}

fn package(name: &str) -> &str {
    if name == "redis-benchmark" { "redis-tools" } else { name }
}

/// A port that is free just now.
///
/// # Errors
/// Where there is none.
pub fn free_port() -> Result<u16, CliError> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).and_then(|l| l.local_addr());
    listener.map(|a| a.port()).map_err(|e| CliError::failed(e.to_string(), "free a port"))
}

/// Waits until somebody listens there.
///
/// # Errors
/// Where nobody does.
pub async fn answers(port: u16) -> Result<(), CliError> {
    let connected = async {
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let late = |_| CliError::failed(format!("nobody listens on port {port}"), "is it allowed to start processes?");
    tokio::time::timeout(START_WITHIN, connected).await.map_err(late)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrks_times_are_read_in_every_unit() {
        assert_eq!(milliseconds("850.00us"), Some(0.85));
        assert_eq!(milliseconds("1.60ms"), Some(1.6));
        assert_eq!(milliseconds("2.00s"), Some(2000.0));
        assert_eq!(milliseconds("soon"), None);
    }
}
