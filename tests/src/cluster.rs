//! An authority and its regions as real processes, each agent behind a proxy of its own, ready to serve.
//!
//! Built from the contract alone: the programs' environment and the documented HTTP bodies. What a test
//! kills, pauses or cuts it reaches through the public fields; `start_again` brings a part back with the
//! same data and address.

use crate::http;
use crate::ports;
use crate::postgres::Postgres;
use crate::process::{Daemon, Spec};
use crate::proxy::Proxy;
use crate::region::{Problem, Region, Setup, agent_spec, ask_ids};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Where a tier keeps its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Embedded, in the data folder.
    Sqlite,
    /// A new database on the test process's shared server.
    Postgres,
    /// A database of the caller's, such as one on a server that the test will kill.
    Url(String),
}

impl Backend {
    fn url(&self) -> Option<String> {
        match self {
            Self::Sqlite => None,
            Self::Postgres => Some(Postgres::shared().fresh_database()),
            Self::Url(url) => Some(url.clone()),
        }
    }
}

/// What a cluster is to be: see [`Cluster::builder`].
pub struct Builder {
    authority: Backend,
    regions: Vec<(String, Option<Backend>)>,
    region_backend: Backend,
    namespaces: Vec<Value>,
    limits: Option<Value>,
    authority_env: Vec<(String, String)>,
    agent_env: Vec<(String, String)>,
}

impl Builder {
    /// The authority's store (default: embedded).
    pub fn authority(mut self, backend: Backend) -> Self {
        self.authority = backend;
        self
    }

    /// The store of every region that has none of its own (default: embedded).
    pub fn regions_on(mut self, backend: Backend) -> Self {
        self.region_backend = backend;
        self
    }

    /// One more region.
    pub fn region(mut self, name: &str) -> Self {
        self.regions.push((name.to_owned(), None));
        self
    }

    /// One more region with a store of its own kind.
    pub fn region_on(mut self, name: &str, backend: Backend) -> Self {
        self.regions.push((name.to_owned(), Some(backend)));
        self
    }

    /// One more namespace of kind `range`, with the product's own defaults.
    pub fn namespace(self, name: &str) -> Self {
        self.define(json!({"name": name, "kind": "range"}))
    }

    /// The same with a policy, such as [`policy`] makes.
    pub fn namespace_with(self, name: &str, policy: Value) -> Self {
        self.define(json!({"name": name, "kind": "range", "policy": policy}))
    }

    /// One more namespace by the whole body of `POST /v1/namespaces`.
    pub fn define(mut self, body: Value) -> Self {
        self.namespaces.push(body);
        self
    }

    /// The limits of the service that the cluster's callers are (default: the product's).
    pub fn limits(mut self, limits: Value) -> Self {
        self.limits = Some(limits);
        self
    }

    /// One more variable for the authority.
    pub fn authority_env(mut self, name: &str, value: &str) -> Self {
        self.authority_env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// One more variable for every agent.
    pub fn agent_env(mut self, name: &str, value: &str) -> Self {
        self.agent_env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// `CADASTRE_WITNESS` and its mode for both tiers. `{data}` stands for each one's data folder.
    pub fn witness(self, witness: &str, mode: &str) -> Self {
        self.authority_env("CADASTRE_WITNESS", witness)
            .authority_env("CADASTRE_WITNESS_MODE", mode)
            .agent_env("CADASTRE_WITNESS", witness)
            .agent_env("CADASTRE_WITNESS_MODE", mode)
    }

    /// Starts everything and waits until every region hands out ids of every namespace.
    pub async fn start(self) -> Cluster {
        let operator_token = random_token("cad_op_");
        let database_url = self.authority.url();
        let port = ports::free();
        let mut spec = Spec::binary("global-authority")
            .env("CADASTRE_LISTEN", format!("127.0.0.1:{port}"))
            .env("CADASTRE_DATA", "{data}")
            .env("CADASTRE_BOOTSTRAP_TOKEN", operator_token.as_str());
        if let Some(url) = &database_url {
            spec = spec.env("CADASTRE_DATABASE_URL", url.as_str());
        }
        let mut cluster = Cluster {
            url: format!("http://127.0.0.1:{port}"),
            operator_token,
            service_token: String::new(),
            authority: Daemon::start(with_env(spec, &self.authority_env)),
            authority_database_url: database_url,
            regions: BTreeMap::new(),
            port,
        };
        cluster.authority.wait_ready(&format!("{}/readyz", cluster.url)).await;
        cluster.define(&self).await;
        // All agents start before the first is waited for.
        for (name, backend) in &self.regions {
            let backend = backend.as_ref().unwrap_or(&self.region_backend);
            let region = cluster.start_region(name, backend, &self.agent_env).await;
            cluster.regions.insert(name.clone(), region);
        }
        for region in cluster.regions.values() {
            region.agent.wait_ready(&format!("{}/healthz", region.url)).await;
            for namespace in self.namespaces.iter().filter(|body| body["kind"] != "uuid_v7") {
                let name = namespace["name"].as_str().expect("a namespace has a name");
                cluster.until_served(&region.name, name).await;
            }
        }
        cluster
    }
}

/// The part of a policy that tests vary. Small grants and segments make refills, and so faults, frequent:
/// a region grows to eight grants at most, however fast its callers are, and the buffer of a segment is a
/// quarter of its target.
pub fn policy(grant_size: u64, segment_min: u64, segment_max: u64, target_seconds: f64) -> Value {
    // The product counts whole seconds.
    let target = target_seconds.ceil().max(1.0) as u64;
    json!({
        "grant_size": grant_size.to_string(),
        "grant_max": (grant_size * 4).to_string(),
        "region_max_held": (grant_size * 8).to_string(),
        "segment_min": segment_min.to_string(),
        "segment_max": segment_max.to_string(),
        "target_seconds": target,
        "grant_target_seconds": target.max(60),
        "buffer_seconds": target / 4,
    })
}

/// One grant at a time: the region holds at least one and less than two of `grant` ordinals, and gives them
/// out in segments of exactly `segment`.
pub fn fixed(grant: u64, segment: u64) -> Value {
    json!({
        "grant_size": grant.to_string(),
        "grant_max": grant.to_string(),
        "region_max_held": (grant * 2).to_string(),
        "segment_min": segment.to_string(),
        "segment_max": segment.to_string(),
        "target_seconds": 1,
        "grant_target_seconds": 60,
        "buffer_seconds": 0,
    })
}

/// `prefix` and 64 hexadecimal digits.
pub fn random_token(prefix: &str) -> String {
    let mut bytes = [0; 32];
    let mut source = std::fs::File::open("/dev/urandom").expect("Linux has /dev/urandom");
    std::io::Read::read_exact(&mut source, &mut bytes).expect("and it is endless");
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{prefix}{digits}")
}

fn with_env(spec: Spec, env: &[(String, String)]) -> Spec {
    env.iter().fold(spec, |spec, (name, value)| spec.env(name, value.as_str()))
}

/// A running cluster.
pub struct Cluster {
    /// The authority itself, not through any proxy.
    pub url: String,
    /// May do everything at the authority.
    pub operator_token: String,
    /// Of the service `shop`, admitted to every namespace.
    pub service_token: String,
    /// The authority's process.
    pub authority: Daemon,
    /// None: embedded.
    pub authority_database_url: Option<String>,
    regions: BTreeMap<String, Region>,
    port: u16,
}

impl Cluster {
    /// An empty one: add regions and namespaces, then `start().await`.
    pub fn builder() -> Builder {
        Builder {
            authority: Backend::Sqlite,
            regions: Vec::new(),
            region_backend: Backend::Sqlite,
            namespaces: Vec::new(),
            limits: None,
            authority_env: Vec::new(),
            agent_env: Vec::new(),
        }
    }

    /// A region by name.
    pub fn region(&self, name: &str) -> &Region {
        self.regions.get(name).unwrap_or_else(|| panic!("no region {name} in this cluster"))
    }

    /// Every region, by name.
    pub fn regions(&self) -> impl Iterator<Item = &Region> {
        self.regions.values()
    }

    /// Brings the authority back after a kill and waits until it is ready.
    pub async fn restart_authority(&self) {
        self.authority.start_again();
        self.authority.wait_ready(&format!("{}/readyz", self.url)).await;
    }

    /// Brings an agent back after a kill and waits until it serves HTTP (cut off or not).
    pub async fn restart_agent(&self, region: &str) {
        let region = self.region(region);
        region.agent.start_again();
        region.agent.wait_ready(&format!("{}/healthz", region.url)).await;
    }

    /// Ids of a namespace from a region, as one caller would get them.
    pub async fn ids(&self, region: &str, namespace: &str, count: u32) -> Result<Vec<i64>, Problem> {
        let url = &self.region(region).url;
        ask_ids(&http::client(), url, &self.service_token, namespace, count).await
    }

    /// Waits until a region hands out an id of this namespace; the id is exposed and forgotten.
    pub async fn until_served(&self, region: &str, namespace: &str) {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let Err(problem) = self.ids(region, namespace, 1).await else {
                return;
            };
            let agent = &self.region(region).agent;
            assert!(agent.is_alive(), "the agent of {region} ended:\n{}", agent.log());
            assert!(Instant::now() < until, "{region} has no id of {namespace} after 60 s: {problem}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A call to the authority as operator; a refusal comes as its problem.
    pub async fn operate(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, Problem> {
        let url = format!("{}{path}", self.url);
        let answer = http::call(method, &url, Some(&self.operator_token), body).await;
        let (status, headers, value) = answer.map_err(|error| Problem::connection(&error))?;
        if (200..300).contains(&status) { Ok(value) } else { Err(Problem::of(status, &headers, &value)) }
    }

    async fn must(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let answer = self.operate(method, path, body).await;
        answer.unwrap_or_else(|problem| panic!("{method} {path}: {problem}"))
    }

    /// The product's own check of every invariant over its ledgers: the whole answer.
    pub async fn audit(&self) -> Value {
        self.must("POST", "/v1/audit/verify", Some(&json!({}))).await
    }

    /// Its findings, as `A1: detail`; empty is good.
    pub async fn verify(&self) -> Vec<String> {
        let audit = self.audit().await;
        let findings = audit["findings"].as_array().expect("findings are a list");
        assert_eq!(audit["ok"], findings.is_empty(), "`ok` and `findings` agree: {audit}");
        let word = |finding: &Value, key: &str| finding[key].as_str().unwrap_or("?").to_owned();
        findings.iter().map(|it| format!("{}: {}", word(it, "invariant"), word(it, "detail"))).collect()
    }

    /// `GET /v1/headroom`.
    pub async fn headroom(&self) -> Value {
        self.must("GET", "/v1/headroom", None).await
    }

    /// Every grant of a namespace, all pages.
    pub async fn grants(&self, namespace: &str) -> Vec<Value> {
        let mut grants = Vec::new();
        let mut page = String::new();
        loop {
            let answer = self.must("GET", &format!("/v1/grants?namespace={namespace}{page}"), None).await;
            grants.extend(answer["grants"].as_array().expect("grants are a list").iter().cloned());
            let next = match &answer["next"] {
                Value::Null => return grants,
                Value::String(next) => next.clone(),
                other => other.to_string(),
            };
            page = format!("&after={next}");
        }
    }

    /// `GET /v1/status` of a region's agent.
    pub async fn status(&self, region: &str) -> Value {
        let url = format!("{}/v1/status", self.region(region).url);
        let (status, _, value) = http::get_json(&url, Some(&self.service_token)).await;
        assert_eq!(status, 200, "GET {url}: {value}");
        value
    }

    async fn define(&mut self, builder: &Builder) {
        let mut names = Vec::new();
        for body in &builder.namespaces {
            self.must("POST", "/v1/namespaces", Some(body)).await;
            names.push(body["name"].clone());
        }
        let mut service = json!({"name": "shop", "namespaces": names});
        if let Some(limits) = &builder.limits {
            service["limits"] = limits.clone();
        }
        self.must("POST", "/v1/services", Some(&service)).await;
        let answer = self.must("POST", "/v1/services/shop/tokens", Some(&json!({}))).await;
        self.service_token = answer["token"].as_str().expect("a new token is shown").to_owned();
    }

    async fn start_region(&self, name: &str, backend: &Backend, env: &[(String, String)]) -> Region {
        let registration = self.must("POST", "/v1/regions", Some(&json!({"name": name}))).await;
        let token = registration["token"].as_str().expect("a new region's token is shown");
        let link = Proxy::start(self.port);
        let (database_url, port) = (backend.url(), ports::free());
        let authority_url = &link.url();
        let database = database_url.as_deref();
        let setup = Setup { name, token, authority_url, database_url: database, port };
        let agent = Daemon::start(with_env(agent_spec(&setup), env));
        let url = format!("http://127.0.0.1:{port}");
        Region { name: name.to_owned(), url, agent, link, database_url, registration: registration.clone() }
    }
}
