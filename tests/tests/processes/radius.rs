//! `cadastre verify --blast-radius`: an overlap that was planted in the stores is listed with its holders.

use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use tests::cluster::fixed;
use tests::ledger_of_ids::Exposed;

use crate::help::{cadastre, quick, take};

fn plant(store: &Path, sql: &str) {
    let db = rusqlite::Connection::open(store).unwrap();
    db.busy_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(db.execute(sql, []).unwrap(), 1, "{sql}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planted_overlaps_are_listed_with_holders_and_times() {
    let exposed = Exposed::new();
    let builder = quick().region("eu").region("us").namespace_with("orders", fixed(1_000, 100));
    let cluster = builder.start().await;
    take(&cluster, "eu", "orders", 500, 50, &exposed).await;
    let ask = |flags: &[&str]| {
        let words = [&["verify", "--blast-radius"], flags].concat();
        cadastre(&cluster.url, &cluster.operator_token, &words)
    };
    let (code, said) = ask(&["--json"]);
    let answer: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &answer["overlaps"], &answer["unread"]), (0, &json!([]), &json!([])), "{said}");
    // Half of eu's first grant is another region's as well, and a segment of it another process's.
    plant(
        &cluster.authority.data_folder().join("authority.db"),
        "INSERT INTO grants SELECT 'ffffffff-0000-4000-8000-000000000001', namespace,
         '01939d5a-1000-7abc-8def-0123456789ab', 'us', 2, 1, store_id, want, lo + 500, hi, generation, mark_row,
         confirmed_at_ms, at_ms FROM grants WHERE region = 'eu' ORDER BY lo LIMIT 1",
    );
    plant(
        &cluster.region("eu").agent.data_folder().join("region.db"),
        "INSERT INTO segments (segment_id, namespace, grant_id, block_id, lo, hi, service, instance, incarnation,
         allocation_id, want, epoch, at_ms, state, mark_row)
         SELECT 'ffffffff-0000-4000-8000-000000000002', namespace, grant_id, block_id, lo + 90, hi, service, 'twin',
         'ffffffff-0000-4000-8000-000000000003', '01939d5a-1000-7abc-8def-0123456789ac', want, epoch, at_ms, state, mark_row
         FROM segments ORDER BY lo LIMIT 1",
    );
    let (code, said) = ask(&["--json"]);
    assert_eq!(code, 1, "{said}");
    let answer: Value = serde_json::from_str(&said).unwrap();
    let overlaps = answer["overlaps"].as_array().unwrap();
    let of = |level: &str| overlaps.iter().find(|it| it["level"] == level).unwrap_or_else(|| panic!("{said}"));
    let grant = of("grant");
    let regions = [&grant["first"]["region"], &grant["second"]["region"]];
    assert!(regions.contains(&&json!("eu")) && regions.contains(&&json!("us")), "{grant}");
    let number = |value: &Value| value.as_str().unwrap().parse::<i64>().unwrap();
    assert_eq!(number(&grant["hi"]) - number(&grant["lo"]), 500, "{grant}");
    assert_eq!(number(&grant["first_id"]), number(&grant["lo"]) + 1, "ids, not ordinals: {grant}");
    assert!(number(&grant["first"]["at"]) > 1_700_000_000_000, "{grant}");
    let segment = of("segment");
    assert_eq!(number(&segment["hi"]) - number(&segment["lo"]), 10, "{segment}");
    assert!(segment["second"]["holder"].as_str().unwrap().contains("twin"), "{segment}");
    let (code, table) = ask(&[]);
    assert_eq!(code, 1, "{table}");
    for word in ["orders", "segment", "grant", "eu epoch 1", "us epoch 1", "next: freeze"] {
        assert!(table.contains(word), "{word}: {table}");
    }
    assert!(!cluster.verify().await.is_empty(), "and verify finds it too");
}
