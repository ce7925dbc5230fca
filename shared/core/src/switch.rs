//! A switch: the home of a namespace moves from one region to another, step by step.
//!
//! ```text
//! planned -> drained -> ready -> moved -> done
//!    \________\__________\________\______________ backed_out
//! ```
//!
//! Nothing here makes anything safe that was not: regions issue from their own ranges, and a home only says who is
//! asked. What the steps keep is that callers find ids: `to` holds enough for both **before** anything changes
//! (asked and checked at `planned`, checked again at `drained`), and `from` is told last. Each step is decided from
//! facts that are read anew, so that it may be repeated after a crash, by another process or by another person.
//!
//! Absent on purpose: clocks, texts for a region that is fenced by hand, and the moving itself.

use serde::{Deserialize, Serialize};

use crate::ids::Name;
use crate::namespace::Policy;
use crate::plan;
use crate::registry::RegionState;

/// Where a switch stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Written down; `to` is asked to hold enough for both.
    Planned,
    /// `from` is given nothing new in these namespaces (or was fenced); it goes on with what it holds.
    Drained,
    /// `to` holds enough for both.
    Ready,
    /// The home is another one; `from` may not know yet.
    Moved,
    /// `from` knows, or cannot be told and is harmless.
    Done,
    /// Everything is as it was before.
    BackedOut,
}

impl Step {
    /// The word in SQL, JSON and text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Drained => "drained",
            Self::Ready => "ready",
            Self::Moved => "moved",
            Self::Done => "done",
            Self::BackedOut => "backed_out",
        }
    }

    /// Whether nothing follows.
    #[must_use]
    pub fn is_over(self) -> bool {
        match self {
            Self::Done | Self::BackedOut => true,
            Self::Planned | Self::Drained | Self::Ready | Self::Moved => false,
        }
    }
}

/// What is known of one of the two regions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RegionFact {
    /// Its state.
    pub state: RegionState,
    /// Whether it was heard lately.
    pub live: bool,
}

/// What is known of one namespace of the switch.
#[derive(Clone, Debug, PartialEq)]
pub struct NamespaceFact {
    /// Which.
    pub name: Name,
    /// Whether its home is still what it was when the switch was made.
    pub home_is_before: bool,
    /// Whether its home is what this switch makes it.
    pub home_is_after: bool,
    /// What `to` lacks to hold enough for both.
    pub shortfall: Shortfall,
    /// Whether it was deleted since.
    pub deleted: bool,
}

/// What a region lacks to take over.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Shortfall {
    /// Nothing.
    None,
    /// It has fewer ordinals than both may need.
    Ordinals {
        /// Held, unissued.
        held: u64,
        /// For both, at their peaks and the surge factor, until the next grant is there.
        needed: u64,
    },
    /// It has no time window that lasts.
    Time,
    /// There is not so much left to be granted: it can never be met.
    Never {
        /// What it could hold at most.
        possible: u64,
        /// What both may need.
        needed: u64,
    },
}

/// All that a step is decided from.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// The authority is in quarantine: nothing changes.
    pub quarantined: bool,
    /// The region that is left.
    pub from: RegionFact,
    /// The region that takes over.
    pub to: RegionFact,
    /// Whether `from` holds the roster that says so.
    pub from_knows: bool,
    /// A rehearsal: once the home has moved it is held there, to be backed out of.
    pub rehearsed: bool,
    /// Every namespace of the switch.
    pub namespaces: Vec<NamespaceFact>,
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Do what leads to this step, and write it down.
    Go(Step),
    /// Nothing yet; why.
    Wait(String),
    /// It cannot go on safely, or the ground has changed: a person resumes or backs out.
    Stop(String),
    /// It is over.
    Over,
}

/// Ordinals that a region needs at hand to serve both: their peaks together, times the surge factor, for twice the
/// time in which a refill is due, and never less than one segment.
#[must_use]
pub fn needed(policy: &Policy, peak_of_both_per_second: f64) -> u64 {
    let for_ms = u64::from(policy.buffer_seconds).saturating_add(u64::from(policy.target_seconds)) * 1_000;
    plan::headroom_needed(peak_of_both_per_second, policy.surge_factor, for_ms).max(policy.segment_min)
}

/// What a region lacks that holds `held` ordinals, may hold `most`, and needs `needed`; `space` is granted to nobody.
#[must_use]
pub fn shortfall(held: u64, needed: u64, most: u64, space: u64) -> Shortfall {
    let possible = held.saturating_add(space).min(most.max(held));
    if held >= needed {
        Shortfall::None
    } else if possible < needed {
        Shortfall::Never { possible, needed }
    } else {
        Shortfall::Ordinals { held, needed }
    }
}

/// What follows from where a switch stands.
#[must_use]
pub fn next(step: Step, facts: &Facts) -> Next {
    if step.is_over() {
        return Next::Over;
    }
    if facts.quarantined {
        return Next::Wait("the authority is in quarantine: no home moves until it is lifted".to_owned());
    }
    if let Some(gone) = facts.namespaces.iter().find(|n| n.deleted) {
        return Next::Stop(format!("namespace {} was deleted since: back out", gone.name));
    }
    match step {
        Step::Planned | Step::Drained | Step::Ready => before_the_move(step, facts),
        Step::Moved => after_the_move(facts),
        Step::Done | Step::BackedOut => Next::Over,
    }
}

fn before_the_move(step: Step, facts: &Facts) -> Next {
    // The roster is the last word: a store that was put back may have forgotten the step, not the home.
    if !facts.namespaces.is_empty() && facts.namespaces.iter().all(|n| n.home_is_after) {
        return Next::Go(Step::Moved);
    }
    if let Some(other) = facts.namespaces.iter().find(|n| !n.home_is_before) {
        return Next::Stop(format!("the home of {} was changed by somebody else since: back out", other.name));
    }
    if let Err(why) = may_take_over(facts.to) {
        return Next::Stop(why);
    }
    match facts.namespaces.iter().find_map(|n| lacks(&n.name, &n.shortfall)) {
        Some(Ok(waits)) => return Next::Wait(waits),
        Some(Err(never)) => return Next::Stop(never),
        None => {}
    }
    match step {
        Step::Planned => Next::Go(Step::Drained),
        Step::Drained => Next::Go(Step::Ready),
        Step::Ready | Step::Moved | Step::Done | Step::BackedOut => Next::Go(Step::Moved),
    }
}

fn after_the_move(facts: &Facts) -> Next {
    if let Some(other) = facts.namespaces.iter().find(|n| !n.home_is_after) {
        return Next::Stop(format!("the home of {} was changed by somebody else since: back out", other.name));
    }
    let harmless = facts.from_knows || !facts.from.live;
    if harmless && facts.rehearsed {
        return Next::Wait("a drill holds it here, and brings the home back".to_owned());
    }
    if harmless {
        return Next::Go(Step::Done);
    }
    Next::Wait("the region that is left has not taken note of the new home yet".to_owned())
}

/// Whether a region may become the home of what another one served.
///
/// # Errors
/// Why not, for people.
pub fn may_take_over(to: RegionFact) -> Result<(), String> {
    if !to.state.gets_grants() {
        return Err(format!("the region that is to take over is {}: recover it first", to.state.as_str()));
    }
    if !to.live {
        return Err(
            "the region that is to take over has not been heard lately: nobody can say what it holds".to_owned()
        );
    }
    Ok(())
}

fn lacks(name: &Name, shortfall: &Shortfall) -> Option<Result<String, String>> {
    match shortfall {
        Shortfall::None => None,
        Shortfall::Ordinals { held, needed } => Some(Ok(format!(
            "{name}: the region that takes over holds {held} and needs {needed} for both; it was asked to"
        ))),
        Shortfall::Time => {
            Some(Ok(format!("{name}: the region that takes over has no time window yet; it was asked to")))
        }
        Shortfall::Never { possible, needed } => Some(Err(format!(
            "{name}: the region that takes over can hold {possible} at most, and both need {needed}: raise region_max_held, \
             or move to a wider namespace"
        ))),
    }
}

#[cfg(test)]
#[path = "switch_tests.rs"]
mod tests;
