//! A failover that is rehearsed: a region's home is given to another one for a while, and brought back.
//!
//! ```text
//! ordered -> (both regions watch) -> leaving -> (moved, and known) -> away -> (time, or a fault) -> home -> over
//! ```
//!
//! Everything on the way is a switch that is held where the home has moved, and is backed out of in the end: nothing
//! here moves a home. Invariant: whatever happens once the switch has begun, what follows ends with it backed out.
//!
//! Absent on purpose: clocks, and what the regions' agents saw.

use crate::switch::Step;

/// A home that has not moved after this long is brought back, in milliseconds: there is not enough for both, or somebody
/// does not answer.
pub const MOVES_WITHIN_MS: u64 = 180_000;
/// Agents watch for this long besides the time that the home is away, in milliseconds.
pub const WATCH_MORE_MS: u64 = MOVES_WITHIN_MS + 120_000;

/// What is known of the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchFact {
    /// Where it stands.
    pub step: Step,
    /// Why it does not go on.
    pub stopped: Option<String>,
    /// Whether the region that is left knows, or cannot be told.
    pub settled: bool,
    /// Why the region that takes over may not keep the home.
    pub unfit: Option<String>,
}

/// What the next deed is decided from while the drill runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Somebody ended it.
    pub aborted: bool,
    /// Since it began to run.
    pub ran_ms: u64,
    /// Since the home was seen moved; none before.
    pub away_ms: Option<u64>,
    /// For how long it is to be away.
    pub for_ms: u64,
    /// The switch; none before it was begun.
    pub switch: Option<SwitchFact>,
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing yet.
    Wait,
    /// The switch is to begin.
    Begin,
    /// The home is away from now on.
    Away,
    /// It is brought back: in time or on somebody's word, or for a fault, which is told.
    Home(Option<String>),
}

/// What follows.
#[must_use]
pub fn next(facts: &Facts) -> Next {
    if facts.aborted {
        return Next::Home(None);
    }
    let Some(switch) = &facts.switch else { return Next::Begin };
    if let Some(why) = &switch.stopped {
        return Next::Home(Some(format!("the switch stopped: {why}")));
    }
    match switch.step {
        Step::BackedOut | Step::Done => {
            return Next::Home(Some("somebody backed out of the switch meanwhile".to_owned()));
        }
        Step::Moved => {}
        Step::Planned | Step::Drained | Step::Ready if facts.ran_ms > MOVES_WITHIN_MS => {
            return Next::Home(Some(format!("the home did not move within {} s", MOVES_WITHIN_MS / 1_000)));
        }
        Step::Planned | Step::Drained | Step::Ready => return Next::Wait,
    }
    if let Some(why) = &switch.unfit {
        return Next::Home(Some(why.clone()));
    }
    match facts.away_ms {
        Some(away_ms) if away_ms >= facts.for_ms => Next::Home(None),
        Some(_) => Next::Wait,
        None if switch.settled || facts.ran_ms > MOVES_WITHIN_MS => Next::Away,
        None => Next::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(step: Step) -> Facts {
        let switch = SwitchFact { step, stopped: None, settled: false, unfit: None };
        Facts { aborted: false, ran_ms: 10, away_ms: None, for_ms: 1_000, switch: Some(switch) }
    }

    fn with(step: Step, change: impl FnOnce(&mut Facts, &mut SwitchFact)) -> Next {
        let mut facts = at(step);
        let mut switch = facts.switch.take().unwrap();
        change(&mut facts, &mut switch);
        facts.switch = Some(switch);
        next(&facts)
    }

    #[test]
    fn it_begins_goes_away_and_comes_home_in_time() {
        assert_eq!(next(&Facts { switch: None, ..at(Step::Planned) }), Next::Begin);
        for step in [Step::Planned, Step::Drained, Step::Ready, Step::Moved] {
            assert_eq!(next(&at(step)), Next::Wait, "{step:?}");
        }
        assert_eq!(with(Step::Moved, |_, switch| switch.settled = true), Next::Away);
        assert_eq!(with(Step::Moved, |facts, _| facts.away_ms = Some(999)), Next::Wait);
        assert_eq!(with(Step::Moved, |facts, _| facts.away_ms = Some(1_000)), Next::Home(None));
    }

    #[test]
    fn whatever_goes_wrong_brings_it_home() {
        for step in [Step::Planned, Step::Drained, Step::Ready, Step::Moved, Step::BackedOut] {
            assert_eq!(with(step, |facts, _| facts.aborted = true), Next::Home(None), "{step:?}");
            let stopped = with(step, |_, switch| switch.stopped = Some("x".into()));
            assert!(matches!(stopped, Next::Home(Some(why)) if why.contains("stopped: x")), "{step:?}");
        }
        assert!(matches!(next(&at(Step::BackedOut)), Next::Home(Some(_))));
        let late = with(Step::Drained, |facts, _| facts.ran_ms = MOVES_WITHIN_MS + 1);
        assert!(matches!(late, Next::Home(Some(why)) if why.contains("180 s")));
        let unfit = with(Step::Moved, |_, switch| switch.unfit = Some("silent".into()));
        assert_eq!(unfit, Next::Home(Some("silent".to_owned())));
        // Nobody hears of the new home: it counts as away, so that its time runs.
        assert_eq!(with(Step::Moved, |facts, _| facts.ran_ms = MOVES_WITHIN_MS + 1), Next::Away);
    }
}
