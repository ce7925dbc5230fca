//! Segments for processes that issue by themselves: a repeated, late or foreign request leaves everything alone.

use cadastre_core::ids::AllocationId;
use serde_json::{Value, json};
use tests::cluster::{Cluster, fixed};
use tests::http;
use tests::ledger_of_ids::Exposed;
use tests::puppet::allocation;

use crate::hand::{fresh, now_ms};
use crate::help::{assert_sound, at_rest, audit_of, number, quick, step, take, until};

/// A thick client: one process of one instance.
struct Client<'a> {
    cluster: &'a Cluster,
    incarnation: uuid::Uuid,
    chain: Option<String>,
}

impl<'a> Client<'a> {
    fn new(cluster: &'a Cluster, n: u128) -> Self {
        Self { cluster, incarnation: uuid::Uuid::from_u128(n), chain: None }
    }

    fn order(&self, id: AllocationId, want: u64) -> Value {
        let mut order = json!({"namespace": "orders", "allocation_id": id.to_string(), "instance": "till",
            "incarnation": self.incarnation.to_string(), "want": want.to_string()});
        if let Some(chain) = &self.chain {
            order["chain"] = json!(chain);
        }
        order
    }

    /// Sends an order as it is.
    async fn send(&self, order: &Value) -> (u16, Value) {
        let url = format!("{}/v1/segments", self.cluster.region("eu").url);
        let (status, _, answer) = http::post_json(&url, Some(&self.cluster.service_token), order).await;
        (status, answer)
    }

    /// Asks as a client does, and takes the next token.
    async fn ask(&mut self, id: AllocationId, want: u64) -> Value {
        let (status, answer) = self.send(&self.order(id, want)).await;
        assert_eq!(status, 201, "{answer}");
        self.chain = answer["chain"].as_str().map(str::to_owned);
        answer
    }
}

fn range(segment: &Value) -> (u64, u64) {
    (number(&segment["lo"]), number(&segment["hi"]))
}

fn expose(exposed: &Exposed, segment: &Value) {
    let (first, last) = (number(&segment["first"]), number(&segment["last"]));
    exposed.record("segment", &(first as i64..=last as i64).collect::<Vec<_>>());
}

fn is(answer: &(u16, Value), status: u16, code: &str) {
    assert_eq!((answer.0, answer.1["code"].as_str()), (status, Some(code)), "{}", answer.1);
}

async fn cluster() -> (Cluster, Exposed) {
    (quick().region("eu").namespace_with("orders", fixed(1_000, 100)).start().await, Exposed::new())
}

/// What `GET /v1/segments` of the agent shows.
async fn carved(cluster: &Cluster) -> Value {
    let url = format!("{}/v1/segments?namespace=orders", cluster.region("eu").url);
    http::get_json(&url, Some(&cluster.operator_token)).await.2
}

#[tokio::test]
async fn a_repeated_request_is_the_same_segment_and_the_cursor_stays() {
    let (cluster, exposed) = cluster().await;
    let mut client = Client::new(&cluster, 1);
    let id = fresh(1);
    let order = client.order(id, 40);
    let first = client.ask(id, 40).await;
    assert_eq!((first["replayed"].as_bool(), range(&first).1 - range(&first).0), (Some(false), 40));
    expose(&exposed, &first);
    at_rest(&cluster, "eu", "orders").await;
    let before = carved(&cluster).await;
    for _ in 0..3 {
        let (status, again) = client.send(&order).await;
        assert_eq!(status, 201, "{again}");
        assert_eq!((range(&again), &again["segment_id"]), (range(&first), &first["segment_id"]));
        assert_eq!(again["replayed"], true);
        client.chain = again["chain"].as_str().map(str::to_owned);
    }
    assert_eq!(carved(&cluster).await, before, "a repeated answer leaves the ledger alone");
    // Late: after others were carved, and after a restart of the agent.
    let second = client.ask(fresh(2), 40).await;
    expose(&exposed, &second);
    cluster.restart_agent("eu").await;
    let late = client.ask(id, 40).await;
    assert_eq!((range(&late), late["replayed"].as_bool()), (range(&first), Some(true)));
    take(&cluster, "eu", "orders", 500, 10, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test]
async fn a_request_of_somebody_else_or_of_other_size_is_a_conflict() {
    let (cluster, exposed) = cluster().await;
    let mut client = Client::new(&cluster, 1);
    let id = fresh(1);
    expose(&exposed, &client.ask(id, 40).await);
    let before = carved(&cluster).await;
    is(&client.send(&client.order(id, 41)).await, 409, "allocation_conflict");
    let other = Client::new(&cluster, 2);
    is(&other.send(&other.order(id, 40)).await, 409, "allocation_conflict");
    let mut renamed = client.order(id, 40);
    renamed["instance"] = json!("desk");
    is(&client.send(&renamed).await, 409, "allocation_conflict");
    // The agent's own segments answer to nobody.
    let old = allocation(now_ms() - 8 * 86_400_000, 3);
    is(&client.send(&client.order(old, 40)).await, 410, "allocation_expired");
    assert_eq!(carved(&cluster).await["segments"], before["segments"]);
    take(&cluster, "eu", "orders", 200, 10, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}

/// The process before a restart comes back with a tail, or the wrong process does: recorded, and nothing moves.
#[tokio::test]
async fn a_tail_that_comes_back_late_is_recorded_and_changes_nothing() {
    let (cluster, exposed) = cluster().await;
    let mut client = Client::new(&cluster, 1);
    let segment = client.ask(fresh(1), 40).await;
    expose(&exposed, &segment);
    at_rest(&cluster, "eu", "orders").await;
    let before = carved(&cluster).await;
    let region = cluster.region("eu");
    let url = format!("{}/v1/segments/{}/return", region.url, segment["segment_id"].as_str().unwrap());
    for who in [client.incarnation, uuid::Uuid::from_u128(99)] {
        let tail = json!({"incarnation": who.to_string(), "next": (range(&segment).0 + 5).to_string()});
        let (status, _, answer) = http::post_json(&url, Some(&cluster.service_token), &tail).await;
        is(&(status, answer), 409, "not_allowed");
    }
    assert_eq!(carved(&cluster).await, before);
    let records = audit_of(&region.agent.data_folder().join("region.db"), "return_refused");
    assert_eq!(records.len(), 2, "{records:?}");
    assert!(records[1].contains("of another incarnation"), "{records:?}");
    take(&cluster, "eu", "orders", 200, 10, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test]
async fn a_segment_of_an_epoch_that_is_over_is_not_answered_again() {
    let (cluster, exposed) = cluster().await;
    let mut client = Client::new(&cluster, 1);
    let id = fresh(1);
    let order = client.order(id, 40);
    expose(&exposed, &client.ask(id, 40).await);
    step(&cluster, "eu", "fence", json!({})).await.unwrap();
    until("the agent hears of it", async || cluster.status("eu").await["state"] == "fenced").await;
    is(&client.send(&order).await, 409, "epoch_fenced");
    is(&client.send(&client.order(fresh(2), 40)).await, 409, "epoch_fenced");
    step(&cluster, "eu", "recover", json!({})).await.unwrap();
    cluster.until_served("eu", "orders").await;
    is(&client.send(&order).await, 409, "epoch_fenced");
    let fresh_one = client.ask(fresh(3), 40).await;
    assert_eq!(fresh_one["epoch"], 3);
    expose(&exposed, &fresh_one);
    take(&cluster, "eu", "orders", 200, 10, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}

/// The process forks after it was given a segment, and both go on with its incarnation and token. Our client notices a
/// fork by itself and lets the child begin anew (`shared/client/tests/fork.rs`): here is what the region sees of one
/// that does not. Nobody is given what another one has, and once both have asked,
/// neither is given anything more under that incarnation.
#[tokio::test]
async fn case_09_fork() {
    let (cluster, exposed) = cluster().await;
    let mut parent = Client::new(&cluster, 1);
    expose(&exposed, &parent.ask(fresh(1), 40).await);
    let mut children: Vec<Client> = (0..8)
        .map(|_| Client { cluster: &cluster, incarnation: parent.incarnation, chain: parent.chain.clone() })
        .collect();
    expose(&exposed, &parent.ask(fresh(2), 40).await);
    let mut refused = 0;
    for (n, child) in (10..).zip(&mut children) {
        let answer = child.send(&child.order(fresh(n), 40)).await;
        if answer.0 == 201 {
            expose(&exposed, &answer.1);
            child.chain = answer.1["chain"].as_str().map(str::to_owned);
        } else {
            is(&answer, 409, "epoch_fenced");
            assert!(answer.1["detail"].as_str().unwrap().contains("two copies"), "{}", answer.1);
            refused += 1;
        }
    }
    children.push(parent);
    for (n, process) in (20..).zip(&children) {
        let answer = process.send(&process.order(fresh(n), 40)).await;
        if answer.0 == 201 {
            expose(&exposed, &answer.1);
        } else {
            refused += 1;
        }
    }
    assert!(refused > 0, "it was found out");
    for (n, process) in (40..).zip(&children) {
        is(&process.send(&process.order(fresh(n), 40)).await, 409, "epoch_fenced");
    }
    // A child that begins anew, as it should have, gets a segment of its own.
    expose(&exposed, &Client::new(&cluster, 2).ask(fresh(60), 40).await);
    let records = audit_of(&cluster.region("eu").agent.data_folder().join("region.db"), "wrong_chain");
    assert!(!records.is_empty());
    take(&cluster, "eu", "orders", 100, 10, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}
