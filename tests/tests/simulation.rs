//! The simulator, in its short form: some seeds, the same run twice, and a few removals that must be
//! found. `ops/test` runs the long form with the release binary; see docs/reliability.md.

use tests::sim::mutation;
use tests::sim::run::{hunt, run};

/// Seeds and operations of the short form.
const SEEDS: u64 = 24;
const STEPS: usize = 40;

#[test]
fn no_seed_exposes_an_id_twice_or_leaves_a_region_unserved() {
    std::thread::scope(|scope| {
        for half in 0..2 {
            scope.spawn(move || {
                for seed in (1..=SEEDS).filter(|s| s % 2 == half) {
                    let outcome = run(seed, STEPS, None);
                    let trace = || outcome.trace.join("\n");
                    assert_eq!(outcome.failure, None, "seed {seed} steps {STEPS}:\n{}", trace());
                    assert!(outcome.exposed > 100, "seed {seed} hardly issued anything:\n{}", trace());
                }
            });
        }
    });
}

#[test]
fn the_same_seed_gives_the_same_run_to_the_byte() {
    for seed in [5, 17] {
        let (one, two) = (run(seed, STEPS, None), run(seed, STEPS, None));
        assert_eq!(one.trace, two.trace);
        assert_eq!((one.exposed, one.messages, one.virtual_ms), (two.exposed, two.messages, two.virtual_ms));
    }
}

#[test]
fn rules_that_are_taken_out_are_missed() {
    for name in ["end_minus_step", "mark_without_its_row", "burn_keeps_the_grants"] {
        let rule = mutation::ALL.iter().find(|r| r.name == name).unwrap();
        let found = hunt(rule, 1, 60);
        assert!(found.is_some(), "{name}: not found within {} runs", rule.within);
    }
}
