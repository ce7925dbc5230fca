//! The demonstration as a newcomer runs it: exit code 0, one object at the end, nothing twice.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::cadastre;
use serde_json::Value;

#[test]
fn a_cut_region_goes_on_and_nothing_is_issued_twice() {
    let folder = tempfile::tempdir().unwrap();
    let output = cadastre(folder.path())
        .args(["dev", "--demo", "--json", "--seconds", "6", "--base-port", "0"])
        .env("TMPDIR", folder.path())
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    let last = out.lines().last().expect("it ends with one object");
    let verdict: Value = serde_json::from_str(last).unwrap();
    for region in ["eu", "us"] {
        assert!(verdict["issued"][region].as_u64().unwrap() > 0, "{verdict}");
    }
    assert!(verdict["issued_during_cut"].as_u64().unwrap() > 0, "{verdict}");
    assert_eq!((&verdict["duplicates"], &verdict["overlaps"]), (&0.into(), &0.into()), "{verdict}");
    assert_eq!(verdict["verdict"], "ok", "{verdict}");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "its folder is gone: {left:?}");
}
