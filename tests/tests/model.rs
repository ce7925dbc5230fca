//! What the long forms do not look at: every rule has its removal, and what was found stays found.
//!
//! The walks, the bounds and the removals themselves are `ops/test`'s stages, in an optimised build:
//! `cargo run -p tests --release --bin model -- check`, `... mutations`; see docs/model.md.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use tests::model::mutations::{MUTATIONS, SECOND_LINE};
use tests::model::pinned::{PINNED, Pinned};
use tests::model::rules::{Rule, Rules};
use tests::model::setup::Setup;
use tests::model::walk::{Found, random_action, run, timeline};

#[test]
fn the_same_seed_is_the_same_run_to_the_byte() {
    let once = || {
        let mut dice = tests::model::walk::Dice(99);
        let setup = Setup::random(7 << 8, Rules::all());
        let actions: Vec<_> = (0..200).map(|_| random_action(&mut dice)).collect();
        let world = run(setup, &actions, true, true);
        format!("{world:?}")
    };
    assert_eq!(once(), once());
}

#[test]
fn every_rule_is_taken_out_or_argued_for() {
    for rule in Rule::ALL {
        let taken = MUTATIONS.iter().filter(|m| m.rule == *rule).count();
        let argued = SECOND_LINE.iter().filter(|(r, _)| r == rule).count();
        assert_eq!(taken + argued, 1, "{}: {}", rule.name(), rule.closes());
    }
}

#[test]
fn what_was_found_is_found_again_and_mended() {
    for pinned in PINNED {
        let found = pinned.reproduce().unwrap();
        let mended = Pinned::mended(&found);
        let told = || timeline(&Found { setup: Setup { rules: Rules::all(), ..found.setup }, ..found.clone() });
        assert_eq!(mended, None, "{}\n{}", pinned.name, told());
    }
}
