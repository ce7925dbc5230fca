//! What a namespace can be: kinds, layouts, readers, and UUIDs.

use serde_json::json;
use tests::http;

use crate::hand::fresh;
use crate::help::quick;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_that_cannot_be_is_refused_with_the_field() {
    let cluster =
        quick().region("eu").namespace("orders").define(json!({"name": "keys", "kind": "uuid_v7"})).start().await;
    let layout =
        |bits: [u32; 4]| json!({"timestamp": bits[0], "region": bits[1], "worker": bits[2], "sequence": bits[3]});
    let cases = [
        (json!({"name": "a", "kind": "snowflake", "layout": layout([42, 3, 7, 12])}), "63"),
        (json!({"name": "a", "kind": "snowflake", "layout": layout([41, 0, 7, 12])}), "region"),
        (json!({"name": "a", "kind": "snowflake", "sequence": {}}), "sequence"),
        (json!({"name": "a", "kind": "range", "layout": layout([41, 3, 7, 12])}), "layout"),
        (json!({"name": "a", "kind": "slot"}), "kind"),
        (json!({"name": "a@1"}), "name"),
        (json!({"name": "a", "readers": [{"name": "page", "up_to": "9007199254740991"}]}), "page"),
        (json!({"name": "a", "kind": "snowflake", "readers": [{"name": "till", "up_to": "2147483647"}]}), "till"),
    ];
    for (body, word) in cases {
        let refused = cluster.operate("POST", "/v1/namespaces", Some(&body)).await.unwrap_err();
        assert_eq!((refused.status, refused.code.as_str()), (422, "invalid_request"), "{body}: {refused}");
        assert!(refused.detail.contains(word), "{body}: {refused}");
    }
    let narrow =
        json!({"name": "b", "sequence": {"max": "2147483647"}, "readers": [{"name": "till", "up_to": "2147483647"}]});
    cluster.operate("POST", "/v1/namespaces", Some(&narrow)).await.unwrap();
    let wider = json!({"sequence": {"start": "2147483648", "max": "9223372036854775807", "min": "1"}});
    let refused = cluster.operate("PATCH", "/v1/namespaces/b", Some(&wider)).await.unwrap_err();
    assert!(refused.detail.contains("till"), "{refused}");
    // UUIDs: rising in one process, and no numbers.
    let url = format!("{}/v1/ids", cluster.region("eu").url);
    let ask = json!({"namespace": "keys", "count": 10_000});
    let mut all: Vec<String> = Vec::new();
    for _ in 0..3 {
        let (status, _, body) = http::call("POST", &url, Some(&cluster.service_token), Some(&ask)).await.unwrap();
        assert_eq!(status, 200, "{body}");
        all.extend(body["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()));
    }
    assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
    let worker = json!({"namespace": "orders", "incarnation": "a8098c1a-f86e-41da-bd1a-00112444be1e", "instance": "i",
        "allocation_id": fresh(1)});
    let url = format!("{}/v1/workers", cluster.region("eu").url);
    let (status, _, body) = http::call("POST", &url, Some(&cluster.service_token), Some(&worker)).await.unwrap();
    assert_eq!((status, body["code"].as_str()), (422, Some("invalid_request")), "{body}");
}
