//! Who may call, how much, and whose block a number came from.

use serde_json::{Value, json};
use tests::cluster::{Backend, Cluster, fixed};
use tests::http;
use tests::ledger_of_ids::Exposed;
use tests::postgres::Postgres;
use tests::region::{Problem, ask_ids};

use crate::hand::code;
use crate::help::{assert_clean_log, assert_sound, number, quick, take, until};

/// A service with a token: `(token id, token)`.
async fn service(cluster: &Cluster, name: &str, limits: Value) -> (String, String) {
    let body = json!({"name": name, "namespaces": ["orders"], "limits": limits});
    cluster.operate("POST", "/v1/services", Some(&body)).await.unwrap();
    token(cluster, name).await
}

async fn token(cluster: &Cluster, name: &str) -> (String, String) {
    let answer = cluster.operate("POST", &format!("/v1/services/{name}/tokens"), Some(&json!({}))).await.unwrap();
    let text = |key: &str| answer[key].as_str().unwrap().to_owned();
    (text("token_id"), text("token"))
}

async fn ids(cluster: &Cluster, token: &str, count: u32) -> Result<Vec<i64>, Problem> {
    ask_ids(&http::client(), &cluster.region("eu").url, token, "orders", count).await
}

/// A token that was just made reaches the agent with its next heartbeat.
async fn until_known(cluster: &Cluster, token: &str) {
    let url = format!("{}/v1/status", cluster.region("eu").url);
    until("the agent knows the token", async || http::get_json(&url, Some(token)).await.0 == 200).await;
}

#[tokio::test]
async fn each_service_has_blocks_of_its_own_and_the_origin_names_it() {
    let exposed = Exposed::new();
    let mut policy = fixed(2_000, 50);
    policy["service_block"] = json!("200");
    let cluster = quick().region("eu").namespace_with("orders", policy).start().await;
    let (_, till) = service(&cluster, "till", json!({})).await;
    until_known(&cluster, &till).await;
    let mut by_service = [("shop", cluster.service_token.clone(), vec![]), ("till", till, vec![])];
    for _ in 0..30 {
        for (name, token, all) in &mut by_service {
            let mut got = Vec::new();
            until("ids come", async || match ids(&cluster, token, 20).await {
                Ok(ids) => {
                    got = ids;
                    true
                }
                Err(_) => false,
            })
            .await;
            exposed.record(name, &got);
            all.extend(got);
        }
    }
    let url = format!("{}/v1/segments?namespace=orders", cluster.region("eu").url);
    let page = http::get_json(&url, Some(&cluster.operator_token)).await.2;
    let holdings = page["holdings"].as_array().unwrap();
    for (name, token, all) in &by_service {
        let blocks: Vec<(u64, u64)> = holdings
            .iter()
            .filter(|it| it["service"] == *name)
            .map(|it| (number(&it["lo"]), number(&it["hi"])))
            .collect();
        assert!(blocks.len() >= 3 && blocks.iter().all(|(lo, hi)| hi - lo == 200), "{name}: {blocks:?}");
        let inside = |id: &i64| blocks.iter().any(|(lo, hi)| (*lo..*hi).contains(&u64::try_from(id - 1).unwrap()));
        assert!(all.iter().all(inside), "every id of {name} lies in a block of {name}");
        for id in [all[0], all[all.len() / 2], all[all.len() - 1]] {
            for base in [&cluster.region("eu").url, &cluster.url] {
                let origin = http::get_json(&format!("{base}/v1/origins/orders/{id}"), Some(token)).await.2;
                assert_eq!(origin["service"], *name, "{id}: {origin}");
                assert_eq!((&origin["region"], &origin["partial"]), (&json!("eu"), &json!(false)), "{origin}");
            }
        }
    }
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test]
async fn above_its_limits_a_service_is_refused_and_the_others_are_not() {
    let exposed = Exposed::new();
    let cluster = quick().region("eu").namespace_with("orders", fixed(1_000, 100)).start().await;
    let (_, slow) = service(&cluster, "slow", json!({"ids_per_second": 10})).await;
    let (_, small) = service(&cluster, "small", json!({"batch": 5})).await;
    until_known(&cluster, &small).await;
    until_known(&cluster, &slow).await;
    exposed.record("slow", &ids(&cluster, &slow, 10).await.unwrap());
    let refused = ids(&cluster, &slow, 10).await.unwrap_err();
    assert_eq!(code(&refused), (429, "rate_limited"), "{refused}");
    assert!(refused.retry_after.is_some());
    let refused = ids(&cluster, &slow, 11).await.unwrap_err();
    assert_eq!(code(&refused), (413, "payload_too_large"), "never, at this rate: {refused}");
    until("its second is over", async || match ids(&cluster, &slow, 5).await {
        Ok(ids) => {
            exposed.record("slow", &ids);
            true
        }
        Err(_) => false,
    })
    .await;
    exposed.record("small", &ids(&cluster, &small, 5).await.unwrap());
    let refused = ids(&cluster, &small, 6).await.unwrap_err();
    assert_eq!(code(&refused), (413, "payload_too_large"), "{refused}");
    take(&cluster, "eu", "orders", 50, 50, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}

/// One request of the service waits for a segment; a second one at the same time is one too many.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_request_too_many_at_once_is_refused() {
    let exposed = Exposed::new();
    let server = Postgres::shared();
    let builder = quick().region_on("eu", Backend::Postgres).namespace_with("orders", fixed(1_000, 100));
    let cluster = builder.start().await;
    let (_, one) = service(&cluster, "one", json!({"in_flight": 1})).await;
    until_known(&cluster, &one).await;
    let region = cluster.region("eu");
    let database = region.database_url.as_ref().unwrap().rsplit('/').next().unwrap().to_owned();
    let held = {
        let database = database.clone();
        let sql = "BEGIN; LOCK TABLE segments IN SHARE MODE; SELECT pg_sleep(2); COMMIT";
        tokio::task::spawn_blocking(move || server.psql_in(&database, sql))
    };
    let locks = "SELECT count(*) FROM pg_locks WHERE relation = 'segments'::regclass AND";
    let is = |how: &str| server.psql_in(&database, &format!("{locks} {how}")) != "0";
    until("the table is held", async || is("mode = 'ShareLock' AND granted")).await;
    let order = |n: u128| {
        json!({"namespace": "orders", "allocation_id": crate::hand::fresh(n as u64).to_string(), "instance": "till",
            "incarnation": uuid::Uuid::from_u128(n).to_string(), "want": "10"})
    };
    let url = format!("{}/v1/segments", region.url);
    let waiting = {
        let (url, token, order) = (url.clone(), one.clone(), order(5));
        tokio::spawn(async move { http::post_json(&url, Some(&token), &order).await.0 })
    };
    until("the first one waits", async || is("NOT granted")).await;
    let (status, _, problem) = http::post_json(&url, Some(&one), &order(6)).await;
    assert_eq!((status, problem["code"].as_str()), (429, Some("rate_limited")), "{problem}");
    held.await.unwrap();
    assert_eq!(waiting.await.unwrap(), 201);
    assert_eq!(http::post_json(&url, Some(&one), &order(7)).await.0, 201, "its place is free again");
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test]
async fn a_revoked_token_is_nobody_once_the_region_has_heard_of_it() {
    let exposed = Exposed::new();
    let cluster = quick().region("eu").namespace_with("orders", fixed(1_000, 100)).start().await;
    let (id, old) = service(&cluster, "till", json!({})).await;
    let (_, new) = token(&cluster, "till").await;
    until_known(&cluster, &new).await;
    until_known(&cluster, &old).await;
    let link = &cluster.region("eu").link;
    link.cut();
    cluster.operate("DELETE", &format!("/v1/services/till/tokens/{id}"), None).await.unwrap();
    exposed.record("till", &ids(&cluster, &old, 5).await.expect("cut off, the region cannot know"));
    link.heal();
    until("the region hears of it", async || match ids(&cluster, &old, 1).await {
        Ok(ids) => {
            exposed.record("till", &ids);
            false
        }
        Err(problem) => code(&problem) == (401, "unauthenticated"),
    })
    .await;
    exposed.record("till", &ids(&cluster, &new, 5).await.unwrap());
    // A restart while cut off: it still knows who is who, and who is nobody.
    link.cut();
    cluster.restart_agent("eu").await;
    exposed.record("till", &ids(&cluster, &new, 5).await.unwrap());
    take(&cluster, "eu", "orders", 20, 10, &exposed).await;
    for nobody in [&old, &tests::cluster::random_token("cad_svc_")] {
        assert_eq!(code(&ids(&cluster, nobody, 1).await.unwrap_err()), (401, "unauthenticated"));
    }
    link.heal();
    assert_sound(&cluster, &exposed).await;
    assert_clean_log(&cluster.region("eu").agent, &[&old, &new]);
    assert_clean_log(&cluster.authority, &[&old, &new]);
}

/// A region that was silent for too long lets nobody in: a revocation could not have reached it.
#[tokio::test]
async fn after_too_long_a_silence_nobody_is_let_in_until_the_authority_answers() {
    let exposed = Exposed::new();
    let builder = quick().region("eu").agent_env("CADASTRE_MAX_OFFLINE_AUTH_SECONDS", "4");
    let cluster = builder.namespace_with("orders", fixed(1_000, 100)).start().await;
    take(&cluster, "eu", "orders", 10, 10, &exposed).await;
    cluster.region("eu").link.cut();
    until("nobody is let in", async || match cluster.ids("eu", "orders", 1).await {
        Ok(ids) => {
            exposed.record("eu", &ids);
            false
        }
        Err(problem) => code(&problem) == (401, "unauthenticated"),
    })
    .await;
    cluster.region("eu").link.heal();
    cluster.until_served("eu", "orders").await;
    assert_sound(&cluster, &exposed).await;
}
