//! What the simulator's long forms do not look at: that a seed is a run, that what is taken out is there,
//! and what was found before.
//!
//! The seeds and the removals themselves are `ops/test`'s stages, in an optimised build: `cargo run -p tests
//! --release --bin simulate`; see docs/reliability.md.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use tests::sim::mutation;
use tests::sim::pinned::PINNED;
use tests::sim::run::run;

#[test]
fn the_same_seed_gives_the_same_run_to_the_byte() {
    let (one, two) = (run(17, 40, None), run(17, 40, None));
    assert_eq!(one.trace, two.trace);
    assert_eq!((one.exposed, one.messages, one.virtual_ms), (two.exposed, two.messages, two.virtual_ms));
    assert!(one.exposed > 100 && one.by_clients > 100, "hardly anything was issued:\n{}", one.trace.join("\n"));
}

/// A text that is no longer the product's would be taken out without effect.
#[test]
fn every_text_that_is_taken_out_is_the_products() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut product = String::new();
    for sources in ["shared/ledger/src", "global-authority/src/sql", "region-agent/src/sql"] {
        read_all(&root.join(sources), &mut product);
    }
    for rule in mutation::ALL {
        for (text, _) in rule.sql {
            assert!(product.contains(text), "{}: nothing in the product reads {text:?}", rule.name);
        }
    }
}

fn read_all(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_all(&path, text);
        } else {
            text.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn what_was_found_and_mended_stays_mended() {
    for pinned in PINNED {
        let outcome = pinned.run();
        assert_eq!(outcome.failure, None, "{}\n{}", pinned.name, outcome.trace.join("\n"));
    }
}
