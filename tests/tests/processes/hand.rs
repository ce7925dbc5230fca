//! An agent played by hand over HTTP: the messages that the shipped agent would never send, to the authority
//! as it is run. Every message goes on a connection of its own.

use cadastre_core::ids::AllocationId;
use cadastre_protocol::link::{Answer, GrantAnswer, Granted, Message};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};
use tests::cluster::Cluster;
use tests::http;
use tests::puppet::{Puppet, allocation, want};
use tests::region::Problem;

/// A region that is played by hand.
#[derive(Clone)]
pub struct Hand {
    pub puppet: Puppet,
    pub token: String,
    pub url: String,
}

/// Milliseconds since the Unix epoch.
pub fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// A fresh allocation id; `n` tells those of one test apart.
pub fn fresh(n: u64) -> AllocationId {
    allocation(now_ms(), n)
}

impl Hand {
    /// Registers a region; it has not spoken yet.
    pub async fn register(cluster: &Cluster, region: &str) -> Self {
        let body = json!({"name": region});
        let answer = cluster.operate("POST", "/v1/regions", Some(&body)).await.unwrap();
        Self::of(cluster, region, answer["token"].as_str().unwrap())
    }

    /// Plays a region that is registered.
    pub fn of(cluster: &Cluster, region: &str, token: &str) -> Self {
        let url = format!("{}/v1/grants", cluster.url);
        Self { puppet: Puppet::new(region, now_ms()), token: token.to_owned(), url }
    }

    /// Sends a message and returns what came back, unheard.
    pub async fn send(&self, message: &Message) -> Result<Answer, Problem> {
        let body = serde_json::to_value(message).unwrap();
        let answer = http::call("POST", &self.url, Some(&self.token), Some(&body)).await;
        let (status, headers, value) = answer.map_err(|error| Problem::connection(&error))?;
        if status != 200 {
            return Err(Problem::of(status, &headers, &value));
        }
        Ok(serde_json::from_value(value).unwrap())
    }

    /// A heartbeat, heard.
    pub async fn beat(&mut self) -> Answer {
        let message = self.puppet.message(vec![]);
        let answer = self.send(&message).await.unwrap();
        self.puppet.hear(&answer);
        answer
    }

    /// Asks for a range and hears the answer.
    pub async fn ask(&mut self, id: AllocationId, namespace: &str, ordinals: u64) -> Result<Granted, Problem> {
        let message = self.puppet.message(vec![want(id, namespace, ordinals)]);
        let answer = self.send(&message).await.unwrap();
        self.puppet.hear(&answer);
        // What was confirmed once is not said again.
        self.puppet.words.confirms.clear();
        granted(&answer)
    }

    /// Adopts a range as an agent does, and says so.
    pub async fn adopt(&mut self, granted: &Granted) {
        self.puppet.adopt(granted);
        self.beat().await;
        self.puppet.words.confirms.clear();
    }
}

/// The outcome of an answer's one want.
pub fn granted(answer: &Answer) -> Result<Granted, Problem> {
    match answer.grants.first().expect("one answer per want") {
        GrantAnswer::Granted(granted) => Ok(granted.clone()),
        GrantAnswer::Refused { problem, .. } => Err(Problem {
            status: problem.status,
            code: problem.code.as_str().to_owned(),
            detail: problem.detail.clone(),
            retry_after: problem.retry_after_seconds.map(u64::from),
        }),
    }
}

/// Status and code of a refusal.
pub fn code(problem: &Problem) -> (u16, &str) {
    (problem.status, problem.code.as_str())
}

/// An authority with one namespace and a region that is played by hand and has joined.
pub async fn alone(builder: tests::cluster::Builder) -> (Cluster, Hand) {
    let cluster = builder.namespace("orders").start().await;
    let mut eu = Hand::register(&cluster, "eu").await;
    eu.beat().await;
    (cluster, eu)
}

/// A second region that may be granted something: the first one has taken note of it.
pub async fn second(cluster: &Cluster, first: &mut Hand, region: &str) -> Hand {
    let mut other = Hand::register(cluster, region).await;
    other.beat().await;
    first.beat().await;
    first.beat().await;
    other
}

/// The ledger of a namespace as `(lo, hi, region)`, in order of place.
pub async fn ledger(cluster: &Cluster, namespace: &str) -> Vec<(u64, u64, String)> {
    let number = |value: &Value| value.as_str().unwrap().parse::<u64>().unwrap();
    let grants = cluster.grants(namespace).await;
    grants.iter().map(|g| (number(&g["lo"]), number(&g["hi"]), g["region"].as_str().unwrap().to_owned())).collect()
}

/// What the authority's own log of events says of this kind, oldest first (embedded store).
pub fn audit(cluster: &Cluster, what: &str) -> Vec<String> {
    crate::help::audit_of(&cluster.authority.data_folder().join("authority.db"), what)
}
