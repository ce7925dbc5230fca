//! Three PostgreSQL nodes under Patroni and etcd, from the shipped `ops/patroni/node.yml`, on loopback.
//!
//! Only its placeholders are filled in: names, addresses, folders, passwords. `ops/test` installs Patroni and etcd.

use crate::child::{Managed, kill_tree};
use crate::http;
use crate::ports;
use crate::postgres::{as_server_user, binaries, own_folder};
use crate::scratch::Scratch;
use nix::unistd::Pid;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const CONFIGURATION: &str = include_str!("../../ops/patroni/node.yml");
/// Where `ops/test` puts Patroni: a place that the server's user may enter.
const INSTALLED: &str = "/var/cache/cadastre-test/patroni/bin/patroni";
const PASSWORD: &str = "patroni-of-a-test";
/// A failover takes some 20 seconds as configured; this only ends a hang.
const BOUND: Duration = Duration::from_secs(120);

/// The running nodes.
pub struct Patroni {
    nodes: Vec<Node>,
    // After the nodes that ask it.
    _etcd: Managed,
    _etcd_folder: Scratch,
}

struct Node {
    name: String,
    port: u16,
    rest: u16,
    patroni: Mutex<Option<Managed>>,
    folder: Scratch,
}

impl Patroni {
    /// Three nodes, one of them the leader with a synchronous standby and two members streaming; the database
    /// `cadastre` belongs to the user `cadastre`, who has what docs/engines.md asks for and no more.
    pub async fn start() -> Self {
        let (etcd, etcd_folder, client) = etcd();
        let nodes: Vec<Node> = (1..=3).map(|number| Node::new(&format!("n{number}"), client)).collect();
        let patroni = Self { nodes, _etcd: etcd, _etcd_folder: etcd_folder };
        for node in &patroni.nodes {
            node.launch();
        }
        let leader = patroni.leader().await;
        for sql in [
            format!("CREATE ROLE cadastre LOGIN PASSWORD '{PASSWORD}'"),
            "GRANT pg_read_all_stats TO cadastre".to_owned(),
            "CREATE DATABASE cadastre OWNER cadastre".to_owned(),
        ] {
            // In strict mode this waits for the first synchronous standby.
            patroni.until("the first commits", async || patroni.nodes[leader].psql(&sql)).await;
        }
        patroni.until_whole().await;
        patroni
    }

    /// The one URL that a daemon is given: every host of the cluster.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        format!("postgres://cadastre:{PASSWORD}@{}/cadastre", hosts.join(","))
    }

    /// Which node Patroni says is the primary.
    pub async fn leader(&self) -> usize {
        let mut found = None;
        self.until("there is a leader", async || {
            for (at, node) in self.nodes.iter().enumerate() {
                if node.is("primary").await {
                    found = Some(at);
                }
            }
            found.is_some()
        })
        .await;
        found.expect("it was just found")
    }

    /// SIGKILL to a node's Patroni and to every process of its PostgreSQL.
    pub fn kill9(&self, node: usize) {
        self.nodes[node].kill9();
    }

    /// Starts a node's Patroni again: what becomes of it is Patroni's business.
    pub fn revive(&self, node: usize) {
        self.nodes[node].launch();
    }

    /// Waits until one node leads, the two others follow it and one of them is waited for.
    pub async fn until_whole(&self) {
        self.until("one leads and two follow", async || {
            let (mut leaders, mut followers, mut waited_for) = (0, 0, 0);
            for node in &self.nodes {
                leaders += usize::from(node.is("primary").await);
                followers += usize::from(node.is("replica").await);
                waited_for += usize::from(node.is("synchronous").await);
            }
            (leaders, followers, waited_for) == (1, 2, 1)
        })
        .await;
    }

    async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let end = Instant::now() + BOUND;
        while !holds().await {
            let logs = || self.nodes.iter().map(Node::log).collect::<Vec<_>>().join("\n---\n");
            assert!(Instant::now() < end, "not within {BOUND:?}: {what}\n{}", logs());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

impl Node {
    fn new(name: &str, etcd: u16) -> Self {
        let (port, rest, folder) = (ports::free(), ports::free(), Scratch::new("patroni"));
        own_folder(folder.path());
        let node = Self { name: name.to_owned(), port, rest, patroni: Mutex::new(None), folder };
        std::fs::write(node.folder.path().join("node.yml"), node.configuration(etcd)).expect("the folder is ours");
        node
    }

    fn configuration(&self, etcd: u16) -> String {
        let data = format!("  data_dir: {}", self.data().display());
        let sockets = format!("  parameters:\n    unix_socket_directories: {}", self.folder.path().display());
        let filled = [
            ("NODE", self.name.clone()),
            ("ETCD", format!("127.0.0.1:{etcd}")),
            ("PASSWORD", PASSWORD.to_owned()),
            ("ADDRESS:8008", format!("127.0.0.1:{}", self.rest)),
            ("ADDRESS:5432", format!("127.0.0.1:{}", self.port)),
            ("  data_dir: /var/lib/postgresql/cadastre", format!("{data}\n{sockets}")),
            ("/usr/lib/postgresql/15/bin", binaries().display().to_string()),
        ];
        filled.iter().fold(CONFIGURATION.to_owned(), |text, (placeholder, value)| {
            assert!(text.contains(placeholder), "ops/patroni/node.yml has no {placeholder}");
            text.replace(placeholder, value)
        })
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn log(&self) -> String {
        let text = std::fs::read_to_string(self.folder.path().join("patroni.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        format!("{}:\n{}", self.name, lines[lines.len().saturating_sub(25)..].join("\n"))
    }

    fn launch(&self) {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.folder.path().join("patroni.log"));
        let log = log.expect("the log can be written");
        let mut command = as_server_user(&program(), self.folder.path());
        // It keeps its password file there, one for each node.
        command.env("HOME", self.folder.path());
        command.arg("node.yml").stdout(Stdio::null()).stderr(log);
        // Told to end, Patroni stops its server too.
        let patroni = Managed::start("Patroni", command, "TERM");
        *self.patroni.lock().unwrap_or_else(|broken| broken.into_inner()) = Some(patroni);
    }

    fn kill9(&self) {
        let patroni = self.patroni.lock().unwrap_or_else(|broken| broken.into_inner()).take();
        // First the one that would start the other again.
        if let Some(patroni) = patroni {
            patroni.kill9();
        }
        let file = std::fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        if let Some(pid) = file.lines().next().and_then(|line| line.trim().parse().ok()) {
            kill_tree(Pid::from_raw(pid));
        }
    }

    /// Whether its REST says that it is this.
    async fn is(&self, role: &str) -> bool {
        let url = format!("http://127.0.0.1:{}/{role}", self.rest);
        http::call("GET", &url, None, None).await.is_ok_and(|(status, _, _)| status == 200)
    }

    fn psql(&self, sql: &str) -> bool {
        let url = format!("postgres://postgres:{PASSWORD}@127.0.0.1:{}/postgres", self.port);
        let mut command = as_server_user(&binaries().join("psql"), self.folder.path());
        command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", sql, &url]).env("PGCONNECT_TIMEOUT", "5");
        let output = command.output().expect("psql starts");
        let words = String::from_utf8_lossy(&output.stderr);
        output.status.success() || words.contains("already exists")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill9();
    }
}

fn etcd() -> (Managed, Scratch, u16) {
    let (client, peer, folder) = (ports::free(), ports::free(), Scratch::new("etcd"));
    let (client_url, peer_url) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    let log = std::fs::File::create(folder.path().join("etcd.log")).expect("the folder is ours");
    let mut command = Command::new("etcd");
    command.args(["--name", "one", "--initial-cluster", &format!("one={peer_url}"), "--data-dir"]);
    command.arg(folder.path().join("data"));
    command.args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url]);
    command.args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    (Managed::start("etcd (Debian: etcd-server; `ops/test` installs it)", command, "KILL"), folder, client)
}

fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join("patroni"));
    let mut places = std::iter::once(PathBuf::from(INSTALLED)).chain(on_path);
    places.find(|it| it.exists()).expect("Patroni is needed: `ops/test` installs it")
}
