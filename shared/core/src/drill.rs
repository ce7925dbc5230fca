//! Drills: a rehearsal of a bad night, on purpose, bounded, and ending by itself.
//!
//! A drill takes nothing away that safety rests on: it makes an agent refuse its own uplink, or read its clock wrong,
//! for a stated time. Here stand the bounds that an agent keeps whoever orders what, when it stops by itself, and how
//! a drill is judged. Invariants: a cut ends at its deadline by the monotonic clock of the very process that is cut
//! off, and at once where more than the stated share of any other namespace's headroom is gone.
//!
//! Absent on purpose: clocks, timers, and texts for reports.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::Name;
use crate::plan;

/// The longest drill, in seconds.
pub const MAX_SECONDS: u32 = 24 * 3_600;
/// The share of the headroom that a drill may use where nobody says otherwise, in percent.
pub const DEFAULT_SHARE_PERCENT: u32 = 50;
/// The most that a drill may be allowed to use, in percent.
pub const MAX_SHARE_PERCENT: u32 = 90;
/// The furthest that a clock is made to be read wrong, in milliseconds.
pub const MAX_CLOCK_MS: i64 = 86_400_000;

/// What is rehearsed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DrillKind {
    /// A region loses its way to the authority.
    WanCut,
    /// A region's namespaces move to another region and back; it can be reached throughout.
    Failover,
    /// A region's agents read their clocks wrong.
    Clock,
    /// The authority's store is put back to a copy. On a cluster of its own only.
    Restore,
}

impl DrillKind {
    /// The word in JSON, SQL and labels.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WanCut => "wan_cut",
            Self::Failover => "failover",
            Self::Clock => "clock",
            Self::Restore => "restore",
        }
    }

    /// Whether agents take part in it.
    #[must_use]
    pub fn is_of_agents(self) -> bool {
        match self {
            Self::WanCut | Self::Failover | Self::Clock => true,
            Self::Restore => false,
        }
    }

    /// Whether the region's agents refuse their uplink in it.
    #[must_use]
    pub fn cuts(self) -> bool {
        match self {
            Self::WanCut => true,
            Self::Failover | Self::Clock | Self::Restore => false,
        }
    }
}

/// Where a drill stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DrillState {
    /// The region's agents were not reached by the order yet.
    Ordered,
    /// It runs.
    Running,
    /// The time is over, or it was aborted; the region's agents have not all come back yet.
    Healing,
    /// It is over, and has a report.
    Ended,
}

impl DrillState {
    /// The word in JSON and SQL.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ordered => "ordered",
            Self::Running => "running",
            Self::Healing => "healing",
            Self::Ended => "ended",
        }
    }
}

/// How a drill went.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Callers were served, nothing was issued twice, and it healed.
    Passed,
    /// Something did not hold; the report says what.
    Failed,
    /// It was ended early, by a person or by its own bounds.
    Aborted,
}

impl Outcome {
    /// The word in JSON and labels.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Aborted => "aborted",
        }
    }
}

/// What one agent saw of one namespace while a drill ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Seen {
    /// IDs that were issued.
    #[serde(with = "crate::decimal::unsigned")]
    pub issued: u64,
    /// What was held when it began: the region's and the instance's.
    #[serde(with = "crate::decimal::unsigned")]
    pub held_at_first: u64,
    /// The least that was held.
    #[serde(with = "crate::decimal::unsigned")]
    pub least_held: u64,
    /// The shortest that what was held would have lasted at the rate seen; null at rate 0.
    pub least_runway_seconds: Option<u64>,
    /// At the beginning, how long it would last at the rate of then; null at rate 0.
    pub forecast_seconds: Option<u64>,
    /// When nothing was left, since the beginning; null where something was left to the end.
    pub dry_after_ms: Option<u64>,
    /// When it would have run dry at the rate seen, since the beginning; null at rate 0.
    pub would_be_dry_after_seconds: Option<u64>,
}

impl Seen {
    /// The beginning: `held` ordinals at a rate.
    #[must_use]
    pub fn first(held: u64, rate_per_second: f64) -> Self {
        let runway = plan::runway_seconds(held, rate_per_second);
        Self {
            held_at_first: held,
            least_held: held,
            least_runway_seconds: runway,
            forecast_seconds: runway,
            ..Self::default()
        }
    }

    /// A look, `after_ms` since the beginning: `held` now, and so many `issued` since then.
    pub fn look(&mut self, after_ms: u64, held: u64, issued: u64) {
        self.issued = self.issued.max(issued);
        self.least_held = self.least_held.min(held);
        let rate = if after_ms == 0 { 0.0 } else { self.issued as f64 * 1_000.0 / after_ms as f64 };
        let runway = plan::runway_seconds(held, rate);
        self.least_runway_seconds = match (self.least_runway_seconds, runway) {
            (Some(least), Some(now)) => Some(least.min(now)),
            (least, now) => least.or(now),
        };
        self.would_be_dry_after_seconds = plan::runway_seconds(held, rate).map(|r| r.saturating_add(after_ms / 1_000));
        if held == 0 && self.held_at_first > 0 && self.dry_after_ms.is_none() {
            self.dry_after_ms = Some(after_ms);
        }
    }

    /// The share of what was held at first that is gone, in percent.
    #[must_use]
    pub fn used_percent(&self) -> u64 {
        let used = u128::from(self.held_at_first.saturating_sub(self.least_held)) * 100;
        let share = used.checked_div(u128::from(self.held_at_first)).unwrap_or(0);
        u64::try_from(share).unwrap_or(100)
    }
}

/// Why an agent ends a drill by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Its time is over.
    InTime,
    /// The namespace that was to run dry did.
    Dry,
    /// A namespace used more than the drill may.
    Share(Name),
}

/// Whether a drill is over: its deadline, the dry namespace, or the share of any other one.
#[must_use]
pub fn is_over(
    after_ms: u64,
    for_ms: u64,
    seen: &BTreeMap<Name, Seen>,
    until_dry: Option<&Name>,
    share_percent: u32,
) -> Option<End> {
    if after_ms >= for_ms {
        return Some(End::InTime);
    }
    if until_dry.and_then(|name| seen.get(name)).is_some_and(|s| s.dry_after_ms.is_some()) {
        return Some(End::Dry);
    }
    let above = seen.iter().find(|(name, s)| Some(*name) != until_dry && s.used_percent() > u64::from(share_percent));
    above.map(|(name, _)| End::Share(name.clone()))
}

/// What a drill is judged by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// An operator, or the share, ended it early.
    pub aborted: Option<String>,
    /// Overlaps and duplicates: must be 0.
    pub overlaps: u64,
    /// Callers that were told that something other than the rehearsed namespace has nothing left, or worse.
    pub caller_errors: u64,
    /// Agents that did not come back.
    pub missing: u64,
    /// Something else that did not hold.
    pub broken: Vec<String>,
}

/// The verdict, and why.
#[must_use]
pub fn judge(kind: DrillKind, found: &Findings) -> (Outcome, Vec<String>) {
    let mut why = found.broken.clone();
    if found.overlaps > 0 {
        why.push(format!("{} overlaps or duplicates were found in the ledgers", found.overlaps));
    }
    if found.missing > 0 {
        why.push(format!("{} agents did not come back after the drill", found.missing));
    }
    if found.caller_errors > 0 {
        why.push(format!("callers were refused {} times", found.caller_errors));
    }
    if !why.is_empty() {
        return (Outcome::Failed, why);
    }
    match &found.aborted {
        Some(reason) => (Outcome::Aborted, vec![reason.clone()]),
        None => (Outcome::Passed, vec![format!("{}, and no number came twice", held(kind))]),
    }
}

/// What held where a drill passed.
fn held(kind: DrillKind) -> &'static str {
    match kind {
        DrillKind::WanCut => "callers were served throughout",
        DrillKind::Failover => "the other region served, the home is back",
        DrillKind::Clock => {
            "what could not be stamped was refused as such, the clock was noticed, it went on by itself"
        }
        DrillKind::Restore => "the old store was found out before it granted anything",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn a_cut_ends_at_its_deadline_whatever_else() {
        assert_eq!(is_over(10, 10, &BTreeMap::new(), None, 50), Some(End::InTime));
        assert_eq!(is_over(9, 10, &BTreeMap::new(), None, 50), None);
    }

    #[test]
    fn another_namespace_keeps_its_share_and_the_drilled_one_may_run_dry() {
        let mut seen =
            BTreeMap::from([(name("orders"), Seen::first(100, 1.0)), (name("drill"), Seen::first(100, 10.0))]);
        seen.get_mut(&name("drill")).unwrap().look(5_000, 20, 80);
        assert_eq!(is_over(5_000, 60_000, &seen, Some(&name("drill")), 50), None);
        assert_eq!(is_over(5_000, 60_000, &seen, None, 50), Some(End::Share(name("drill"))));
        seen.get_mut(&name("drill")).unwrap().look(10_000, 0, 100);
        assert_eq!(is_over(10_000, 60_000, &seen, Some(&name("drill")), 50), Some(End::Dry));
        seen.get_mut(&name("orders")).unwrap().look(10_000, 49, 51);
        assert_eq!(
            is_over(10_001, 60_000, &seen, Some(&name("elsewhere")), 100),
            None,
            "a hundred percent is never exceeded"
        );
        assert_eq!(is_over(10_001, 60_000, &seen, None, 50), Some(End::Share(name("drill"))));
    }

    #[test]
    fn the_forecast_is_of_the_beginning_and_the_least_of_the_whole() {
        let mut seen = Seen::first(1_000, 10.0);
        seen.look(10_000, 800, 200);
        seen.look(20_000, 900, 200);
        assert_eq!(seen.forecast_seconds, Some(100));
        assert_eq!(seen.least_runway_seconds, Some(40));
        assert_eq!((seen.least_held, seen.issued, seen.dry_after_ms), (800, 200, None));
        assert_eq!(seen.would_be_dry_after_seconds, Some(110));
        assert_eq!(seen.used_percent(), 20);
        assert_eq!(Seen::first(0, 5.0).used_percent(), 0);
    }

    #[test]
    fn what_did_not_hold_outweighs_an_early_end() {
        let mut found = Findings { aborted: Some("by a person".into()), ..Findings::default() };
        assert_eq!(judge(DrillKind::WanCut, &found).0, Outcome::Aborted);
        found.overlaps = 1;
        assert_eq!(judge(DrillKind::WanCut, &found).0, Outcome::Failed);
        assert_eq!(judge(DrillKind::WanCut, &Findings::default()).0, Outcome::Passed);
        assert_eq!(judge(DrillKind::WanCut, &Findings { missing: 1, ..Findings::default() }).0, Outcome::Failed);
        assert_eq!(judge(DrillKind::WanCut, &Findings { caller_errors: 1, ..Findings::default() }).0, Outcome::Failed);
    }
}
