//! The files that a cluster is deployed with (`ops/systemd`, `ops/docker`, `ops/kubernetes`): what they name exists, what
//! they promise stands in them, and the real programs start with the settings that stand in them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod containers;
mod manifests;
mod start;
mod units;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cadastre_runtime::config::environment;
use serde_json::Value;

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every document of a YAML file.
fn yaml(path: &str) -> Vec<Value> {
    let documents = serde_saphyr::from_multiple::<Value>(&read(path));
    documents.unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All of these files, by their path.
fn files() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for folder in ["ops/systemd", "ops/docker", "ops/kubernetes"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            // What an operator wrote beside them is none of ours.
            let theirs = name.ends_with(".env") || name.ends_with(".password");
            if !theirs {
                let path = format!("{folder}/{name}");
                found.push((path.clone(), read(&path)));
            }
        }
    }
    assert!(found.len() >= 14, "{found:?}");
    found
}

fn words<'a>(text: &'a str, of: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(of).map(|(at, _)| {
        let rest = &text[at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-' && c != '/');
        &rest[..end.unwrap_or(rest.len())]
    })
}

#[test]
fn every_setting_is_one_that_the_programs_read() {
    let mut seen = BTreeSet::new();
    for (path, text) in files() {
        for name in words(&text, "CADASTRE_") {
            assert!(environment::NAMES.contains(&name), "{path}: {name} is no setting");
            seen.insert(name.to_owned());
        }
    }
    assert!(seen.len() >= 12, "{seen:?}");
}

#[test]
fn every_program_and_every_flag_is_there() {
    let mut seen = BTreeSet::new();
    for (path, text) in files() {
        for word in words(&text, "/usr/local/bin/") {
            let name = word.trim_start_matches("/usr/local/bin/");
            assert!(name.is_empty() || tests::process::built(name).exists(), "{path}: {word}");
            seen.insert(name.to_owned());
        }
    }
    for (program, flags) in [("global-authority", &["--listen"][..]), ("cadastre", &["probe"])] {
        assert!(seen.contains(program), "{seen:?}");
        let help = std::process::Command::new(tests::process::built(program)).arg("--help").output().unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        assert!(flags.iter().all(|flag| help.contains(flag)), "{program}: {help}");
    }
}

/// Where the programs listen by default is where these files look for them.
#[test]
fn every_port_is_one_that_the_programs_listen_on() {
    let defaults = [
        global_authority::config::AuthorityConfig::defaults().http.listen.unwrap().port(),
        region_agent::config::AgentConfig::defaults().http.listen.unwrap().port(),
    ];
    assert_eq!(defaults, [7400, 7410]);
    for (path, text) in files() {
        for at in text.match_indices(":74").map(|(at, _)| at + 1) {
            let digits: String = text[at..].chars().take_while(char::is_ascii_digit).collect();
            // 7420 is a port of the host's in compose.yml, for a second agent.
            assert!(["7400", "7410", "7411", "7420"].contains(&digits.as_str()), "{path}: {digits}");
        }
    }
}

/// Secrets stand by reference, or are empty.
#[test]
fn no_secret_stands_in_them() {
    for (path, text) in files() {
        for prefix in ["cad_op_", "cad_reg_", "cad_svc_", "cad_view_"] {
            for (at, _) in text.match_indices(prefix) {
                let next = text[at + prefix.len()..].chars().next();
                assert!(next.is_none_or(|c| !c.is_ascii_hexdigit()), "{path}: a token");
            }
        }
        for line in text.lines().filter(|line| line.contains("TOKEN=") || line.contains("PASSWORD=")) {
            let value = line.split_once('=').unwrap().1;
            assert!(value.is_empty(), "{path}: {line}");
        }
    }
}
