//! Is anything wrong: how well a region can go on alone, judged for the dashboard, the CLI and alerts alike.
//!
//! Purpose: one judgement, so that no two of them call the same runway by different names.
//!
//! Invariant: pure; a region that was not heard for a while is judged by what it may have left now, not by its
//! last word. Levels are ordered, so the worst of many is their maximum.
//!
//! Who may change it: freely; nothing that keeps IDs unique reads it.
//!
//! Absent on purpose: texts. What a person reads is put together where it is shown.

use serde::{Deserialize, Serialize};

use crate::namespace::Policy;
use crate::registry::RegionState;

/// An agent speaks every two seconds; after so long a region counts as silent.
pub const SILENT_SECONDS: u64 = 15;
/// However long an outage a policy wants to survive, a person looks below this, in seconds.
const WATCH_SECONDS: u64 = 4 * 3_600;
/// And acts below this.
const ACT_SECONDS: u64 = 15 * 60;
/// How long the whole space must last before a person looks, in milliseconds.
const SPACE_WATCH_MS: u64 = 365 * 86_400_000;
/// And acts.
const SPACE_ACT_MS: u64 = 30 * 86_400_000;

/// How bad it is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Ord, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Nothing to do.
    #[default]
    Ok,
    /// Somebody should look at it by day.
    Watch,
    /// Somebody has to act now.
    Act,
}

/// Why a region's part of a namespace is not well.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Its epoch was taken away; it waits for recover.
    Fenced,
    /// Nothing can be carved any more.
    NothingLeft,
    /// The time that it was given has ended.
    TimeEnded,
    /// It runs dry soon.
    DrySoon,
    /// It holds less than its policy wants.
    Short,
    /// It was not heard for a while.
    Silent,
    /// It gets nothing new.
    Draining,
}

/// Below which runway a region is looked at, and acted upon.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Thresholds {
    /// In seconds.
    pub watch_seconds: u64,
    /// In seconds.
    pub act_seconds: u64,
}

impl Thresholds {
    /// Those of a policy. Right before a refill a region holds `floor_percent` of the outage that it is meant to
    /// survive, and that is no news; half of it is. A namespace of short outages is judged by them.
    #[must_use]
    pub fn of(policy: &Policy) -> Self {
        let outage = u64::from(policy.grant_target_seconds);
        let watch_seconds = (outage * u64::from(policy.floor_percent.max(1)) / 200).min(WATCH_SECONDS);
        Self { watch_seconds, act_seconds: (watch_seconds / 4).min(ACT_SECONDS) }
    }
}

/// How a region stands in one namespace, as it was last heard.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// The region's state.
    pub state: RegionState,
    /// Ordinals granted to it, ever.
    pub granted: u64,
    /// Ordinals that it can still carve.
    pub left: u64,
    /// How long that lasts at the rate seen; none at rate 0.
    pub runway_seconds: Option<u64>,
    /// How long it lasts at the peak.
    pub at_peak_seconds: Option<u64>,
    /// Since its last message; none where it never spoke.
    pub heard_seconds: Option<u64>,
    /// Whether what it holds is time: given for as long as the policy says, and renewed with every few heartbeats.
    pub is_time: bool,
    /// Whether the namespace's home is elsewhere: nobody is served here, and what it holds may run out.
    pub is_elsewhere: bool,
}

/// A verdict.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Outlook {
    /// How bad it is.
    pub level: Level,
    /// Why, where it is not well.
    pub why: Option<Why>,
    /// How long it lasts by now at the rate seen: a silent region went on issuing.
    pub runway_seconds: Option<u64>,
    /// The same at the peak.
    pub at_peak_seconds: Option<u64>,
}

/// Judges a region's part of a namespace.
#[must_use]
pub fn judge(s: &Standing, limits: Thresholds) -> Outlook {
    if s.is_elsewhere {
        return Outlook { level: Level::Ok, why: None, runway_seconds: None, at_peak_seconds: None };
    }
    let silent = s.heard_seconds.is_some_and(|quiet| quiet >= SILENT_SECONDS);
    let since = if silent && !s.is_time { s.heard_seconds.unwrap_or(0) } else { 0 };
    let by_now = |seconds: Option<u64>| seconds.map(|s| s.saturating_sub(since));
    let (runway_seconds, at_peak_seconds) = (by_now(s.runway_seconds), by_now(s.at_peak_seconds));
    let soonest = [runway_seconds, at_peak_seconds].into_iter().flatten().min();
    let (level, why) = match s.state {
        RegionState::Fenced => (Level::Watch, Some(Why::Fenced)),
        RegionState::Registered | RegionState::Retired => (Level::Ok, None),
        RegionState::Active | RegionState::Draining if s.is_time => time_of(s, silent),
        RegionState::Active | RegionState::Draining => number_of(s, limits, soonest, silent),
    };
    Outlook { level, why, runway_seconds, at_peak_seconds }
}

/// Of time only its end is news.
fn time_of(s: &Standing, silent: bool) -> (Level, Option<Why>) {
    match s.runway_seconds {
        Some(0) => (Level::Act, Some(Why::TimeEnded)),
        Some(_) | None if silent => (Level::Watch, Some(Why::Silent)),
        Some(_) | None if s.state == RegionState::Draining => (Level::Watch, Some(Why::Draining)),
        Some(_) | None => (Level::Ok, None),
    }
}

fn number_of(s: &Standing, limits: Thresholds, soonest: Option<u64>, silent: bool) -> (Level, Option<Why>) {
    let draining = s.state == RegionState::Draining;
    if s.left == 0 && s.granted > 0 {
        return (if draining { Level::Watch } else { Level::Act }, Some(Why::NothingLeft));
    }
    match soonest {
        Some(seconds) if seconds < limits.act_seconds => (Level::Act, Some(Why::DrySoon)),
        Some(seconds) if seconds < limits.watch_seconds => (Level::Watch, Some(Why::Short)),
        Some(_) | None if silent => (Level::Watch, Some(Why::Silent)),
        Some(_) | None if draining => (Level::Watch, Some(Why::Draining)),
        Some(_) | None => (Level::Ok, None),
    }
}

/// Judges the whole space of a namespace: when it ends at the rate seen (or by the layout), against now.
#[must_use]
pub fn judge_space(left: u64, ends_at_ms: Option<u64>, now_ms: u64) -> Level {
    let lasts = ends_at_ms.map(|at| at.saturating_sub(now_ms));
    match lasts {
        _ if left == 0 => Level::Act,
        Some(ms) if ms < SPACE_ACT_MS => Level::Act,
        Some(ms) if ms < SPACE_WATCH_MS => Level::Watch,
        Some(_) | None => Level::Ok,
    }
}

/// Whether a runway grows.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trend {
    /// It grows.
    Rising,
    /// It stays about the same.
    Steady,
    /// It shrinks.
    Falling,
}

/// The trend of samples, oldest first; none where there are too few. Halves are compared, since a runway falls
/// between any two grants and jumps with each.
#[must_use]
pub fn trend(samples: impl ExactSizeIterator<Item = u64> + Clone) -> Option<Trend> {
    let half = samples.len() / 2;
    if half < 2 {
        return None;
    }
    let mean = |sum: f64| sum / half as f64;
    let before = mean(samples.clone().take(half).map(|s| s as f64).sum());
    let since = mean(samples.clone().skip(samples.len() - half).map(|s| s as f64).sum());
    Some(match since - before {
        change if change > before * 0.05 => Trend::Rising,
        change if change < -before * 0.05 => Trend::Falling,
        _ => Trend::Steady,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(runway: Option<u64>) -> Standing {
        Standing {
            state: RegionState::Active,
            granted: 10,
            left: 5,
            runway_seconds: runway,
            at_peak_seconds: runway,
            heard_seconds: Some(1),
            is_time: false,
            is_elsewhere: false,
        }
    }

    #[test]
    fn where_nobody_is_served_nothing_runs_dry() {
        let empty = Standing { left: 0, is_elsewhere: true, ..at(Some(0)) };
        let seen = judge(&empty, Thresholds::of(&Policy::default()));
        assert_eq!((seen.level, seen.why, seen.runway_seconds), (Level::Ok, None, None));
    }

    #[test]
    fn a_day_of_outage_is_watched_below_seventy_two_minutes() {
        let limits = Thresholds::of(&Policy::default());
        assert_eq!((limits.watch_seconds, limits.act_seconds), (4_320, 900));
        let level = |runway| judge(&at(runway), limits).level;
        assert_eq!(level(None), Level::Ok);
        assert_eq!(level(Some(4_320)), Level::Ok);
        assert_eq!(level(Some(4_319)), Level::Watch);
        assert_eq!(level(Some(899)), Level::Act);
        let short = Thresholds::of(&Policy { grant_target_seconds: 60, ..Policy::default() });
        assert_eq!(judge(&at(Some(100)), short).level, Level::Ok);
    }

    #[test]
    fn a_silent_region_is_judged_by_what_it_may_have_left_now() {
        let limits = Thresholds::of(&Policy::default());
        let silent = Standing { heard_seconds: Some(4_000), ..at(Some(4_500)) };
        let seen = judge(&silent, limits);
        assert_eq!((seen.level, seen.why, seen.runway_seconds), (Level::Act, Some(Why::DrySoon), Some(500)));
        let idle = Standing { heard_seconds: Some(4_000), ..at(None) };
        assert_eq!(judge(&idle, limits).why, Some(Why::Silent));
    }

    #[test]
    fn states_and_ends_are_named() {
        let limits = Thresholds::of(&Policy::default());
        let why = |s: Standing| (judge(&s, limits).level, judge(&s, limits).why);
        let fenced = Standing { state: RegionState::Fenced, ..at(Some(1)) };
        assert_eq!(why(fenced), (Level::Watch, Some(Why::Fenced)));
        let empty = Standing { left: 0, ..at(None) };
        assert_eq!(why(empty), (Level::Act, Some(Why::NothingLeft)));
        assert_eq!(why(Standing { granted: 0, ..empty }), (Level::Ok, None), "nobody asked for it yet");
        let drained = Standing { state: RegionState::Draining, ..empty };
        assert_eq!(why(drained), (Level::Watch, Some(Why::NothingLeft)));
        let ended = Standing { is_time: true, ..at(Some(0)) };
        assert_eq!(why(ended), (Level::Act, Some(Why::TimeEnded)));
        let retired = Standing { state: RegionState::Retired, ..empty };
        assert_eq!(why(retired), (Level::Ok, None));
    }

    #[test]
    fn the_space_is_watched_a_year_ahead() {
        let day = 86_400_000;
        assert_eq!(judge_space(0, None, 0), Level::Act);
        assert_eq!(judge_space(1, None, 0), Level::Ok);
        assert_eq!(judge_space(1, Some(29 * day), 0), Level::Act);
        assert_eq!(judge_space(1, Some(364 * day), 0), Level::Watch);
        assert_eq!(judge_space(1, Some(u64::MAX), 0), Level::Ok);
    }

    #[test]
    fn a_trend_compares_halves() {
        let of = |samples: &[u64]| trend(samples.iter().copied());
        assert_eq!(of(&[1, 2, 3]), None);
        assert_eq!(of(&[100, 100, 100, 101]), Some(Trend::Steady));
        assert_eq!(of(&[100, 100, 80, 80]), Some(Trend::Falling));
        assert_eq!(of(&[0, 0, 0, 9]), Some(Trend::Rising));
    }
}
