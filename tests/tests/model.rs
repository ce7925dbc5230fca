//! The model, in quick forms: random walks, small exhaustive bounds, removals that are found soon.
//!
//! The long forms are `cargo run -p tests --release --bin model -- random|exhaustive|mutations`; see
//! docs/model.md.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use tests::model::check::{BOUNDS, exhaust};
use tests::model::mutations::{Family, MUTATIONS, Mutation, SECOND_LINE};
use tests::model::pinned::{PINNED, Pinned, clean};
use tests::model::rules::{Rule, Rules};
use tests::model::setup::Setup;
use tests::model::walk::{random_action, run, shorten, timeline, walk};

/// Walks of one test; a debug build does some hundred a second.
const WALKS: u64 = 3_000;

#[test]
fn with_all_rules_no_walk_finds_anything() {
    for seed in 1..=WALKS {
        if let Err(found) = walk(seed, 160, Rules::all()) {
            panic!("seed {seed}\n{}", timeline(&shorten(&found)));
        }
    }
}

#[test]
fn the_families_of_the_removals_find_nothing_either() {
    for family in [Family::Shared, Family::Bounds, Family::Members] {
        if let Err(found) = clean(family, WALKS / 6) {
            panic!("{family:?}\n{}", timeline(&shorten(&found)));
        }
    }
}

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

/// Removals that are found within so few walks are looked for here; the others by the long form.
const SOON: u64 = 400;

#[test]
fn removals_that_are_found_soon_are_found() {
    let soon = |m: &&Mutation| Mutation { within: SOON, ..**m }.search().is_some();
    let found: Vec<_> = MUTATIONS.iter().filter(soon).map(|m| m.rule.name()).collect();
    assert!(found.len() >= 15, "only {} removals are found soon: {found:?}", found.len());
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
    let quick = |p: &&Pinned| MUTATIONS.iter().any(|m| m.rule == p.rule && m.within <= SOON);
    for pinned in PINNED.iter().filter(quick) {
        let found = pinned.reproduce().unwrap();
        assert_eq!(Pinned::mended(&found), None, "{}\n{}", pinned.name, timeline(&found));
    }
}

#[test]
fn a_small_bound_is_walked_whole() {
    let bound = BOUNDS.iter().find(|b| b.name == "tiny").unwrap();
    let checked = exhaust((bound.setup)(), true);
    assert_eq!(checked.found, None);
    assert_eq!(checked.states, bound.states, "the model changed: state the new number");
}
