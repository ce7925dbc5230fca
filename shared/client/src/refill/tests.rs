//! The refill policy against a simulated clock and a simulated region.

use super::*;
use proptest::prelude::*;

/// The client's defaults.
fn defaults() -> RefillPolicy {
    policy((50, 100_000), 60_000, 15_000).unwrap()
}

/// A namespace in use: a cursor, and a region that answers after a while and suggests rates.
struct World {
    meter: Meter,
    now_ms: u64,
    active: u64,
    active_len: u64,
    standby: u64,
    issued: u64,
    arriving: Option<(u64, u64)>,
    rtt_ms: u64,
    /// What the region suggests, given the size of a segment.
    suggest: fn(u64, f64) -> f64,
    wrong: f64,
    /// IDs that could not be issued at once, and when the last one was missing.
    missed: u64,
    missed_at_ms: u64,
    asked: Vec<(u64, u64)>,
    carry: f64,
}

impl World {
    fn new(suggest: fn(u64, f64) -> f64, wrong: f64) -> World {
        World {
            meter: Meter::new(defaults()),
            now_ms: 1_000,
            active: 0,
            active_len: 0,
            standby: 0,
            issued: 0,
            arriving: None,
            rtt_ms: 50,
            suggest,
            wrong,
            missed: 0,
            missed_at_ms: 0,
            asked: vec![],
            carry: 0.0,
        }
    }

    fn left(&self) -> Left {
        Left { active: self.active, standby: self.standby, active_len: self.active_len, ..Left::default() }
    }

    /// Ten milliseconds at a rate.
    fn step(&mut self, rate: f64) {
        self.now_ms += 10;
        self.carry += rate / 100.0;
        let due = self.carry as u64;
        self.carry -= due as f64;
        let mut missing = due;
        while missing > 0 {
            if self.active == 0 {
                (self.active, self.active_len, self.standby) = (self.standby, self.standby, 0);
            }
            let taken = missing.min(self.active);
            if taken == 0 {
                break;
            }
            self.active -= taken;
            self.issued += taken;
            missing -= taken;
        }
        if missing > 0 {
            self.missed += missing;
            self.missed_at_ms = self.now_ms;
        }
        self.meter.sample(self.now_ms, self.issued);
        if let Some((at, size)) = self.arriving.filter(|(at, _)| *at <= self.now_ms) {
            let _ = at;
            self.arriving = None;
            if self.active == 0 {
                (self.active, self.active_len) = (size, size);
            } else {
                self.standby = size;
            }
            self.meter.installed(self.now_ms, size, (self.suggest)(size, self.wrong));
        }
        if self.arriving.is_none() && self.meter.low(self.left(), missing, self.now_ms) {
            let want = self.meter.want(missing, self.now_ms);
            self.asked.push((self.now_ms, want));
            self.arriving = Some((self.now_ms + self.rtt_ms, want));
        }
    }

    fn run(&mut self, seconds: u64, rate: f64) {
        for _ in 0..seconds * 100 {
            self.step(rate);
        }
    }

    /// Whether what it would ask for now lasts the target time at the rate, within a fifth.
    fn assert_settled(&self, rate: f64, what: &str) {
        let right = (rate * 60.0).clamp(50.0, 100_000.0);
        let want = self.meter.want(0, self.now_ms) as f64;
        assert!((right * 0.8..=right * 1.2).contains(&want), "{what}: asks for {want}, {right} would be right");
        let reckoned = self.meter.rate_per_second(self.now_ms);
        assert!((rate * 0.8..=rate * 1.2).contains(&reckoned), "{what}: reckons with {reckoned}, not {rate}");
    }
}

#[test]
fn from_a_rate_a_hundred_times_wrong_it_settles_within_three_minutes() {
    for rate in [10.0, 150.0, 1_000.0] {
        for wrong in [rate * 100.0, rate / 100.0] {
            let mut world = World::new(|_, wrong| wrong, wrong);
            world.run(180, rate);
            world.assert_settled(rate, &format!("{wrong} suggested for {rate}"));
            let (missed, at) = (world.missed, world.missed_at_ms);
            assert!(at < 61_000, "{wrong} for {rate}: {missed} missed, the last at {at} ms");
            world.run(600, rate);
            assert_eq!(world.missed, missed, "once settled nobody waits");
            world.assert_settled(rate, "and it stays so");
        }
    }
}

/// The region's own suggestion is made of the size it gave, and so of what was asked for: it must not feed
/// itself.
#[test]
fn a_suggestion_that_echoes_the_size_does_not_feed_itself() {
    let mut world = World::new(|size, _| size as f64 / 60.0, 0.0);
    world.run(180, 200.0);
    world.assert_settled(200.0, "an echo");
}

#[test]
fn a_step_up_does_not_stall_and_it_falls_back_afterwards() {
    let mut world = World::new(|size, _| size as f64 / 60.0, 0.0);
    world.run(300, 100.0);
    world.missed = 0;
    world.run(120, 1_000.0);
    assert_eq!(world.missed, 0, "ten times the rate in one step");
    world.assert_settled(1_000.0, "after the step");
    world.run(180, 20.0);
    world.assert_settled(20.0, "after it fell");
}

#[test]
fn the_first_segment_is_the_least_or_what_callers_wait_for() {
    let meter = Meter::new(defaults());
    assert_eq!((meter.want(0, 0), meter.want(200, 0), meter.want(1 << 40, 0)), (50, 200, 100_000));
    assert!(meter.low(Left::default(), 0, 0));
    assert_eq!(meter.look_again_ms(Left::default(), 0), None);
}

#[test]
fn a_suggestion_of_nonsense_counts_as_none() {
    for nonsense in [f64::NAN, f64::INFINITY, -5.0] {
        let mut meter = Meter::new(defaults());
        meter.sample(0, 0);
        meter.installed(0, 50, nonsense);
        assert_eq!(meter.want(0, 1), 50, "{nonsense}");
    }
}

proptest! {
    #[test]
    fn sizes_and_looks_stay_within_bounds(
        steps in prop::collection::vec((0u64..100_000, 0u64..1_000_000, 0u64..200_000, -1e9f64..1e12), 1..60),
        waited in 0u64..1 << 50,
    ) {
        let (mut meter, mut now, mut issued) = (Meter::new(defaults()), 0, 0);
        for (wait, used, size, suggested) in steps {
            now += wait;
            issued += used;
            meter.sample(now, issued);
            let want = meter.want(waited, now);
            prop_assert!((50..=100_000).contains(&want));
            let left = Left { active: size, standby: 0, active_len: size, ..Left::default() };
            prop_assert!(meter.low(Left { active: 0, ..left }, 0, now), "nothing left is always low");
            meter.installed(now, size, suggested);
            let look = meter.look_again_ms(left, now).unwrap();
            prop_assert!((2..=1_000).contains(&look));
            prop_assert!(meter.rate_per_second(now) >= 0.0);
        }
    }
}
