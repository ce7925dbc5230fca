//! The load generator tried on a small agent that is made to stumble: successes, refusals by code, lost
//! answers, gaps, and a duplicate that only the ledger can see.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::indexing_slicing)]

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Json, Router, routing::post};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tests::ledger_of_ids::Exposed;
use tests::load::{Load, Plan};
use tests::ports;
use tests::proxy::Proxy;

/// The next id, and whether the agent is dry.
type Agent = Arc<Mutex<(i64, bool)>>;

async fn ids(State(agent): State<Agent>, Json(body): Json<Value>) -> (StatusCode, Json<Value>) {
    let mut agent = agent.lock().unwrap();
    if agent.1 {
        let problem = json!({"code": "segment_dry", "detail": "no id left"});
        return (StatusCode::SERVICE_UNAVAILABLE, Json(problem));
    }
    let count = body["count"].as_i64().unwrap();
    let ids: Vec<String> = (agent.0..agent.0 + count).map(|id| id.to_string()).collect();
    agent.0 += count;
    (StatusCode::OK, Json(json!({"ids": ids})))
}

async fn start() -> (Agent, Proxy, Plan) {
    let agent = Agent::default();
    let app = Router::new().route("/v1/ids", post(ids)).with_state(agent.clone());
    let listener = tokio::net::TcpListener::bind(ports::free_addr()).await.unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap().port());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let plan = Plan {
        region: "eu".to_owned(),
        agent_url: proxy.url(),
        token: "cad_svc_test".to_owned(),
        namespace: "orders".to_owned(),
        count: 7,
        tasks: 4,
        pause: Duration::from_millis(1),
    };
    (agent, proxy, plan)
}

#[tokio::test]
async fn load_counts_what_callers_meet() {
    let (agent, proxy, plan) = start().await;
    let exposed = Arc::new(Exposed::new());
    let load = Load::start(plan, exposed.clone());
    assert!(load.successes_within(50, Duration::from_secs(10)).await);
    agent.lock().unwrap().1 = true;
    tokio::time::sleep(Duration::from_millis(300)).await;
    agent.lock().unwrap().1 = false;
    assert!(load.successes_within(10, Duration::from_secs(10)).await);
    proxy.lose_answers(2);
    assert!(load.successes_within(50, Duration::from_secs(10)).await);
    let report = load.stop().await;
    assert!(report.errors["segment_dry"] > 4, "{report:?}");
    assert_eq!((report.errors["connection"], report.errors.len()), (2, 2), "{report:?}");
    assert!(report.longest_gap >= Duration::from_millis(250), "{report:?}");
    assert_eq!((report.ids, report.successes * 7), (exposed.total(), exposed.total()));
    assert_eq!(agent.lock().unwrap().0 as u64, report.ids + 14, "two answers of 7 were lost");
    exposed.assert_no_duplicates();
}

#[tokio::test]
async fn an_agent_that_goes_back_is_caught() {
    let (agent, _proxy, plan) = start().await;
    let exposed = Arc::new(Exposed::new());
    let load = Load::start(plan, exposed.clone());
    assert!(load.successes_within(20, Duration::from_secs(10)).await);
    agent.lock().unwrap().0 -= 30;
    assert!(load.successes_within(20, Duration::from_secs(10)).await);
    load.stop().await;
    assert_eq!(exposed.duplicates().0, 30);
}
