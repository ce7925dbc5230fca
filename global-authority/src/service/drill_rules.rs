//! Drills by kind: what goes with an order, what agents' words mean, and what a drill is judged by.

use std::collections::BTreeMap;

use cadastre_core::drill::{self, DrillKind, Findings, Seen};
use cadastre_core::ids::Name;
use cadastre_protocol::error::Code;
use cadastre_protocol::operate::{DrillWord, NewDrill};

use super::drills::{BACK_WITHIN_MS, Drill};

/// A clock that is further off is noticed by the authority, in milliseconds.
pub(super) const NOTICED_FROM_MS: u64 = 5_000;

/// Whether a drill concerns the agents of a region.
pub(super) fn takes_part(order: &NewDrill, region: &Name) -> bool {
    order.kind.is_of_agents() && (order.region == *region || order.to.as_ref() == Some(region))
}

/// What goes with a kind.
pub(super) fn fits_kind(new: &NewDrill) -> Result<(), String> {
    let kind = new.kind.as_str();
    if new.to.is_some() != (new.kind == DrillKind::Failover) {
        return Err(format!(
            "to: a failover names the region that takes over, and nothing else does; this is a {kind}"
        ));
    }
    if new.clock_ms.is_some() != (new.kind == DrillKind::Clock) {
        return Err(format!("clock_ms: a clock drill says how far off, and nothing else does; this is a {kind}"));
    }
    if new.clock_ms.is_some_and(|ms| ms == 0 || ms.unsigned_abs() > drill::MAX_CLOCK_MS.unsigned_abs()) {
        return Err(format!("clock_ms must not be 0, and {} at most either way", drill::MAX_CLOCK_MS));
    }
    if new.until_dry && new.kind != DrillKind::WanCut {
        return Err(format!("until_dry goes with a wan_cut; this is a {kind}"));
    }
    if new.namespace.is_some() && matches!(new.kind, DrillKind::Clock | DrillKind::Restore) {
        return Err(format!("namespace does not go with a {kind}"));
    }
    match new.kind {
        DrillKind::Restore => Err(NOT_ON_A_LIVE_ONE.to_owned()),
        DrillKind::WanCut | DrillKind::Failover | DrillKind::Clock => Ok(()),
    }
}

/// Why a store is put back on a cluster of its own only.
const NOT_ON_A_LIVE_ONE: &str = "kind: restore puts an authority's store back to a copy, which no live authority does to \
    itself; hold it on a cluster of `cadastre dev` (`cadastre drill restore`), and see docs/operating/backup-and-restore.md";

/// What an agent's first word on a drill means.
pub(super) fn first_word(kind: DrillKind) -> &'static str {
    match kind {
        DrillKind::WanCut => "it refuses its uplink from now on",
        DrillKind::Clock => "it reads its clock wrong from now on",
        DrillKind::Failover | DrillKind::Restore => "it watches what its callers are told",
    }
}

/// How long agents may take after the end. A clock that was ahead lets its callers wait for what it stamped meanwhile.
pub(super) fn back_within_ms(body: &Drill) -> u64 {
    let ahead = body.order.clock_ms.and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0);
    BACK_WITHIN_MS.saturating_add(ahead)
}

/// Of a failover: what a region's agents saw.
pub(super) fn of_region(body: &Drill, region: &Name) -> BTreeMap<Name, Seen> {
    let theirs = body.words.iter().filter(|(key, _)| body.regions.get(*key) == Some(region));
    united(theirs.map(|(_, word)| word))
}

/// Agents' words on one namespace as one: what was issued adds up, the rest is the worst.
pub(super) fn united<'a>(words: impl IntoIterator<Item = &'a DrillWord>) -> BTreeMap<Name, Seen> {
    let mut all: BTreeMap<Name, Seen> = BTreeMap::new();
    for (name, seen) in words.into_iter().flat_map(|word| &word.namespaces) {
        let Some(sum) = all.get_mut(name) else {
            all.insert(name.clone(), seen.clone());
            continue;
        };
        let least = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
        sum.issued = sum.issued.saturating_add(seen.issued);
        sum.held_at_first = sum.held_at_first.max(seen.held_at_first);
        sum.least_held = sum.least_held.min(seen.least_held);
        sum.least_runway_seconds = least(sum.least_runway_seconds, seen.least_runway_seconds);
        sum.forecast_seconds = least(sum.forecast_seconds, seen.forecast_seconds);
        sum.dry_after_ms = least(sum.dry_after_ms, seen.dry_after_ms);
        sum.would_be_dry_after_seconds = least(sum.would_be_dry_after_seconds, seen.would_be_dry_after_seconds);
    }
    all
}

/// What the drill is judged by.
pub(super) fn findings(body: &Drill, errors: &BTreeMap<String, u64>, overlaps: u64) -> Findings {
    // What a caller did wrong is no fault of the region's; that the drilled namespace runs dry is the drill.
    let counts = |code: &str| {
        let known = Code::parse(code);
        let is_drill = match body.order.kind {
            DrillKind::WanCut => body.order.until_dry && known == Some(Code::SegmentDry),
            // Callers of a clock that is wrong are told so.
            DrillKind::Clock => matches!(known, Some(Code::ClockRollback | Code::WindowEnded)),
            DrillKind::Failover | DrillKind::Restore => false,
        };
        known.is_some_and(|c| c.status() >= 500) && !is_drill
    };
    let early = body.words.values().find_map(|word| word.ended_early.clone());
    let mut broken = body.broken.clone();
    if body.order.until_dry && body.aborted.is_none() && early.is_none() {
        let dry = body.order.namespace.as_ref().and_then(|name| united(body.words.values()).remove(name));
        if dry.is_none_or(|seen| seen.dry_after_ms.is_none()) {
            broken.push("the namespace did not run dry in the time that was given".to_owned());
        }
    }
    let whole_ms = u64::from(body.order.for_seconds) * 1_000;
    let to_the_end = body.aborted.is_none() && early.is_none();
    let cuts = to_the_end && body.order.kind != DrillKind::Failover && !body.order.until_dry;
    if let Some(short) = body.words.values().find(|word| cuts && !word.running && word.ran_ms < whole_ms * 4 / 5) {
        broken.push(format!("at an agent it lasted {} of {whole_ms} ms only", short.ran_ms));
    }
    if body.words.values().any(|word| !word.running && word.verified.is_none()) {
        broken.push("an agent did not say what the check of its region's ledger found".to_owned());
    }
    if cuts && body.order.clock_ms.is_some_and(|ms| ms.unsigned_abs() > NOTICED_FROM_MS) && !body.noticed {
        broken.push("nobody noticed that the region's clock was off".to_owned());
    }
    if let Some(to) = body.order.to.as_ref().filter(|_| to_the_end && broken.is_empty())
        && of_region(body, to).iter().all(|(name, seen)| !body.away.moved.contains(name) || seen.issued == 0)
    {
        broken.push(format!("nothing was issued at {to}: nobody asked there, so nothing was rehearsed"));
    }
    Findings {
        aborted: body.aborted.clone().or(early),
        overlaps,
        caller_errors: errors.iter().filter(|(code, _)| counts(code)).map(|(_, n)| *n).sum(),
        missing: body.words.values().filter(|word| word.running).count() as u64,
        broken,
    }
}
