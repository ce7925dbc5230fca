//! A dev cluster from its first start to its reset, and the verbs against it, with real processes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use common::{Dev, cadastre};
use serde_json::{Value, json};

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn file(folder: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join(".cadastre/dev.json")).unwrap()).unwrap()
}

#[test]
fn it_keeps_its_tokens_goes_on_after_a_stop_and_begins_anew_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path(), &[]);
    assert_eq!(dev.file, file(folder.path()), "--json prints dev.json");
    let mode = std::fs::metadata(folder.path().join(".cadastre/dev.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut ids: BTreeSet<String> = BTreeSet::new();
    let more = |dev: &Dev, ids: &mut BTreeSet<String>| {
        let answer = dev.json("ids orders --count 100 --region us");
        let fresh = answer["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned());
        fresh.for_each(|id| assert!(ids.insert(id.clone()), "{id} twice"));
    };
    more(&dev, &mut ids);

    let second = cadastre(folder.path()).args(["dev", "--base-port", "0"]).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second).contains("another `cadastre dev`"), "{}", text(&second));

    let first = dev.file.clone();
    assert_eq!(dev.stop(), Some(0));
    let dev = Dev::start(folder.path(), &[]);
    for key in ["/authority/operator_token", "/service_token", "/regions/0/region_token", "/regions/1/region_token"] {
        assert_eq!(dev.file.pointer(key), first.pointer(key), "{key} is kept");
    }
    more(&dev, &mut ids);
    assert_eq!(dev.stop(), Some(0));

    let dev = Dev::start(folder.path(), &["--reset"]);
    assert_ne!(dev.file["service_token"], first["service_token"]);
    assert_eq!(dev.json("grants orders")["grants"][0]["lo"], "0", "the numbers begin anew");
    assert_eq!(dev.stop(), Some(0));
}

#[test]
fn a_cut_that_is_typed_is_seen_by_status_and_doctor_and_ends_when_healed() {
    let folder = tempfile::tempdir().unwrap();
    let mut dev = Dev::start(folder.path(), &[]);
    dev.type_line("cut us");
    dev.until("status --region us", |status| status["uplink"]["state"] == "down");
    assert!(dev.json("ids orders --region us")["id"].is_string(), "it goes on");
    let doctor = dev.run("doctor");
    assert_eq!(doctor.status.code(), Some(1));
    assert!(text(&doctor).contains("the way to the authority is down"), "{}", text(&doctor));
    dev.type_line("heal us");
    dev.until("status --region us", |status| status["uplink"]["state"] == "up");
    assert_eq!(dev.run("doctor").status.code(), Some(0));
    assert_eq!(dev.stop(), Some(0));
}

#[test]
fn every_verb_has_a_table_json_and_honest_exit_codes() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path(), &[]);
    let good = [
        "namespace create invoices --max 1_000_000 --grant-size 5_000",
        "namespace list",
        "namespace show invoices",
        "namespace freeze invoices",
        "namespace unfreeze invoices",
        "namespace set invoices --floor-percent 20",
        "service create books --namespace invoices --batch 50",
        "service set books --in-flight 2",
        "service token books",
        "service list",
        "operator create ada --role viewer",
        "operator token ada",
        "operator list",
        "region create ap",
        "region token ap",
        "region list",
        "drain us",
        "recover us",
        "fence us --reason test",
        "recover us",
        "retire ap",
        "headroom",
        "grants orders",
        "grants orders --region eu",
        "ids orders -n 3 --as ranges",
        "origin orders 1",
        "status",
        "quarantine list",
        "verify",
        "namespace delete invoices",
    ];
    for line in good {
        let output = dev.run(line);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", text(&output));
        assert!(!output.stdout.is_empty(), "{line} says something");
    }
    let limits = dev.json("service list")["services"].as_array().unwrap()[0]["limits"].clone();
    assert_eq!(limits, json!({"ids_per_second": null, "in_flight": 2, "batch": 50}));
    for line in ["headroom", "namespace list", "region list", "verify", "status", "doctor --data .cadastre"] {
        assert!(dev.json(line).is_object() || dev.json(line).is_array(), "{line}");
    }
    let refused = [
        ("ids nowhere", "forbidden"),
        ("origin orders 999999999", "unknown_id"),
        ("namespace create orders", "already_exists"),
        ("region create ap", "name_retired"),
        ("recover eu", "not_allowed"),
        ("quarantine lift orders --bound eu=1 --old-store-stopped --reason x", "nothing is in quarantine"),
        ("headroom --authority http://127.0.0.1:1 --token x", "next: "),
    ];
    for (line, word) in refused {
        let output = dev.run(line);
        assert_eq!(output.status.code(), Some(1), "{line}: {}", text(&output));
        assert!(text(&output).contains(word), "{line}: {}", text(&output));
    }
    for line in ["namespace set orders", "headroom --authority http://127.0.0.1:1", "headroom --data nowhere", "grants"]
    {
        assert_eq!(dev.run(line).status.code(), Some(2), "{line}");
    }
    assert_eq!(dev.stop(), Some(0));
}

#[test]
fn a_store_that_is_put_back_is_found_out_and_a_live_authority_is_never_asked() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = cadastre(folder.path()).args(["drill", "restore"]).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(2), "{}", text(&nowhere));
    assert!(text(&nowhere).contains("backup-and-restore"), "{}", text(&nowhere));
    let dev = Dev::start(folder.path(), &[]);
    let live = dev.run("--authority http://127.0.0.1:9 drill restore");
    assert_eq!(live.status.code(), Some(2), "{}", text(&live));
    let mut ids: BTreeSet<String> = BTreeSet::new();
    let more = |ids: &mut BTreeSet<String>| {
        for region in ["eu", "us"] {
            let answer = dev.json(&format!("ids orders --count 100 --region {region}"));
            let fresh = answer["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned());
            fresh.for_each(|id| assert!(ids.insert(id.clone()), "{id} twice"));
        }
    };
    more(&mut ids);
    let told = dev.json("drill restore");
    assert_eq!(told["verdict"], "passed", "{told}");
    let lines = told["lines"].to_string();
    assert_eq!(lines.matches("found out by itself").count(), 2, "with its witness, and without: {told}");
    let log = std::fs::read_to_string(folder.path().join(".cadastre/dev.log")).unwrap();
    for found in ["somebody holds a row that this store lacks", "a region holds marks whose rows"] {
        assert!(log.contains(found), "{found}: by the witness, and by the regions alone");
    }
    more(&mut ids);
    assert_eq!(dev.json("verify")["ok"], true);
    let drills = dev.json("drill list")["drills"].clone();
    assert_eq!(
        (&drills[0]["kind"], &drills[0]["report"]["verdict"]),
        (&json!("restore"), &json!("passed")),
        "{drills}"
    );
    assert_eq!(dev.stop(), Some(0));
    // And on the store that it left.
    let dev = Dev::start(folder.path(), &[]);
    assert!(dev.json("ids orders --region us")["id"].is_string());
    assert_eq!(dev.stop(), Some(0));
}
