//! Whom a number was given to: by the ledgers, also when the region cannot be asked.

use serde_json::{Value, json};
use tests::cluster::{Cluster, fixed};
use tests::http;
use tests::ledger_of_ids::Exposed;

use crate::help::{assert_sound, at_rest, quick, take, until};

async fn origin(base: &str, token: &str, id: i64) -> (u16, Value) {
    let (status, _, body) = http::get_json(&format!("{base}/v1/origins/orders/{id}"), Some(token)).await;
    (status, body)
}

/// Every exposed id's origin names its region, its grant and its segment, at the authority and at the region.
async fn all_known(cluster: &Cluster, exposed: &[(&str, i64)]) {
    for (region, id) in exposed {
        for base in [&cluster.url, &cluster.region(region).url] {
            let (status, found) = origin(base, &cluster.service_token, *id).await;
            assert_eq!(status, 200, "{id}: {found}");
            assert_eq!((&found["region"], &found["id"]), (&json!(region), &json!(id.to_string())), "{found}");
            assert_eq!(found["partial"], false, "{found}");
            for part in ["grant", "segment"] {
                let (lo, hi) = (crate::help::number(&found[part]["lo"]), crate::help::number(&found[part]["hi"]));
                assert!((lo..hi).contains(&(*id as u64 - 1)), "{id} lies in its {part}: {found}");
            }
            assert!(found["incarnation"].is_string() && found["instance"].is_string(), "{found}");
        }
    }
}

#[tokio::test]
async fn an_origin_names_region_grant_and_segment_and_less_where_the_region_cannot_be_asked() {
    let exposed = Exposed::new();
    let builder = quick().region("eu").region("us").namespace_with("orders", fixed(1_000, 100));
    let cluster = builder.start().await;
    let mut some = Vec::new();
    for region in ["eu", "us"] {
        for _ in 0..3 {
            let ids = cluster.ids(region, "orders", 30).await.unwrap();
            exposed.record(region, &ids);
            some.extend([(region, ids[0]), (region, ids[29])]);
            take(&cluster, region, "orders", 200, 50, &exposed).await;
        }
    }
    all_known(&cluster, &some).await;
    // Granted and not yet carved: the grant alone.
    at_rest(&cluster, "us", "orders").await;
    let end = crate::hand::ledger(&cluster, "orders").await.into_iter().rfind(|(_, _, r)| r == "us");
    let last = i64::try_from(end.unwrap().1).unwrap();
    let (status, found) = origin(&cluster.region("us").url, &cluster.service_token, last).await;
    assert_eq!((status, &found["segment"], &found["region"]), (200, &Value::Null, &json!("us")), "{found}");
    // One region knows nothing of another one's numbers, and nobody of what was never granted.
    let (status, found) = origin(&cluster.region("us").url, &cluster.service_token, some[0].1).await;
    assert_eq!((status, &found["code"]), (404, &json!("unknown_id")), "{found}");
    let (status, found) = origin(&cluster.url, &cluster.service_token, 5_000_000).await;
    assert_eq!((status, &found["code"]), (404, &json!("unknown_id")), "{found}");
    // Gone: the ledger's word.
    cluster.region("us").agent.kill9();
    for (_, id) in some.iter().filter(|(region, _)| *region == "us") {
        let (status, found) = origin(&cluster.url, &cluster.service_token, *id).await;
        assert_eq!((status, &found["region"], &found["partial"]), (200, &json!("us"), &json!(true)), "{found}");
        assert_eq!(found["segment"], Value::Null);
    }
    cluster.restart_agent("us").await;
    until("the region can be asked again", async || {
        origin(&cluster.url, &cluster.service_token, some[6].1).await.1["partial"] == false
    })
    .await;
    all_known(&cluster, &some).await;
    // A region that was killed: what it lost in memory is a gap, and its origin is known like any other.
    assert_sound(&cluster, &exposed).await;
}
