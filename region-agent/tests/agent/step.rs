//! The shipped issuer's entry under simulated time: a step of the load from 6,510 to 60,000 IDs a second, with a
//! store that takes 200 ms for a carve, at every phase of a segment's life.

use cadastre_core::ids::{AllocationId, Epoch, Incarnation};
use cadastre_core::namespace::{NamespaceEntry, Policy};
use cadastre_core::range::Range;
use cadastre_core::sequence::Sequence;
use cadastre_runtime::entropy::{Entropy, SystemEntropy};
use region_agent::issuer::Entry;
use region_agent::regional::Order;
use uuid::Uuid;

use super::fake::name;

const STEP_MS: u64 = 10;
const STORE_MS: u64 = 200;
const SPACE: u64 = i64::MAX as u64;

struct World {
    entry: Entry,
    settings: NamespaceEntry,
    now_ms: u64,
    /// The next ordinal that the region carves.
    cursor: u64,
    arriving: Option<(u64, u64)>,
    owed: f64,
    missed: u64,
    newest: u64,
    store_ms: u64,
}

impl World {
    fn new(store_ms: u64) -> Self {
        Self {
            entry: Entry::new(name("orders"), None, Epoch(1), None),
            settings: NamespaceEntry::new(Sequence::default(), Policy::default()),
            now_ms: 1_000,
            cursor: 0,
            arriving: None,
            owed: 0.0,
            missed: 0,
            newest: 0,
            store_ms,
        }
    }

    fn order(&self, want: u64) -> Order {
        Order {
            namespace: name("orders"),
            service: None,
            instance: name("agent"),
            incarnation: Incarnation(Uuid::from_u128(1)),
            allocation_id: AllocationId::new(SystemEntropy.uuid_v7(self.now_ms)).unwrap(),
            want,
        }
    }

    fn step(&mut self, rate: f64) {
        self.now_ms += STEP_MS;
        if let Some((at, size)) = self.arriving.filter(|(at, _)| *at <= self.now_ms) {
            assert!(at <= self.now_ms);
            self.arriving = None;
            let segment = Range::new(self.cursor, self.cursor + size).unwrap();
            self.cursor += size;
            self.newest = size;
            self.entry.filled(&self.settings, segment, self.now_ms).unwrap();
        }
        self.owed += rate * STEP_MS as f64 / 1_000.0;
        let due = self.owed as u64;
        self.owed -= due as f64;
        let taken = self.entry.many(due, &mut Vec::new());
        self.entry.note(&self.settings, taken, self.now_ms);
        let missing = due - taken;
        self.missed += missing;
        // Those callers give up at the next step.
        let _waiting = (missing > 0).then(|| self.entry.miss(&self.settings, missing, self.now_ms));
        if self.entry.claim(self.now_ms) {
            assert!(self.arriving.is_none(), "one at a time");
            let order = self.entry.order(&self.settings, SPACE, self.now_ms, |want| self.order(want));
            assert!((1_000..=1_000_000).contains(&order.want), "{}", order.want);
            self.arriving = Some((self.now_ms + self.store_ms, order.want));
        }
    }

    fn run(&mut self, ms: u64, rate: f64) -> u64 {
        let before = self.missed;
        for _ in 0..ms / STEP_MS {
            self.step(rate);
        }
        self.missed - before
    }
}

#[test]
fn a_step_from_6_510_to_60_000_a_second_makes_nobody_wait_and_it_falls_back_afterwards() {
    // A segment lasts 60 seconds.
    for phase in (0..60_000).step_by(1_700) {
        let mut world = World::new(STORE_MS);
        world.run(240_000 + phase, 6_510.0);
        assert!((330_000..=470_000).contains(&world.newest), "a minute at 6,510: {}", world.newest);
        assert_eq!(world.run(90_000, 60_000.0), 0, "nobody waits (phase {phase} ms)");
        assert_eq!(world.newest, 1_000_000, "as large as may be (phase {phase} ms)");
        assert_eq!(world.run(420_000, 6_510.0), 0, "nor when it is over (phase {phase} ms)");
        assert!(world.newest <= 470_000, "a minute at 6,510 again: {} (phase {phase} ms)", world.newest);
    }
}

/// What the test above would see if the buffer were too small for the store: one of 5 seconds makes callers wait.
#[test]
fn a_store_that_is_slower_than_the_buffer_is_noticed() {
    let waited = (0..60_000).step_by(1_700).any(|phase| {
        let mut world = World::new(5_000);
        world.run(240_000 + phase, 6_510.0);
        world.run(90_000, 60_000.0) > 0
    });
    assert!(waited);
}
