//! How large a segment or a grant is asked for: the core's refill policy with a namespace's settings.
//!
//! Pure. A wrong answer here costs availability or ordinals, never a duplicate.

use std::num::NonZeroU64;

use cadastre_core::layout::Layout;
use cadastre_core::namespace::{NamespaceEntry, Policy};
use cadastre_core::plan;
use cadastre_core::refill::{LastRange, RefillPolicy, RefillSettings};
use cadastre_core::window::CLOCK_BOUND_MS;

use crate::regional::Pool;

/// What the core's policy lets a factor be.
const MAX_SURGE: u32 = 100;
/// A grant is at most this share of what is left of a small space, in per mille.
const GRANT_SHARE: u32 = 10;
/// A segment, likewise.
const SEGMENT_SHARE: u32 = 1;
/// A region keeps at most one part in so many of what is left of a space in stock.
const SPACE_HELD: u64 = 10;
/// So much it may keep of any space: ten of the longest lists.
const SMALL_HELD: u64 = 100_000;

/// The policy for segments; `None` where the core refuses the settings, and then the least is asked for.
#[must_use]
pub fn segments(policy: &Policy) -> Option<RefillPolicy> {
    RefillPolicy::new(RefillSettings {
        min_size: policy.segment_min,
        max_size: policy.segment_max,
        target_ms: u64::from(policy.target_seconds) * 1_000,
        buffer_ms: (u64::from(policy.buffer_seconds) * 1_000).max(1),
        floor_percent: policy.floor_percent,
        surge_factor: 1,
        max_share_per_mille: SEGMENT_SHARE,
    })
    .ok()
}

/// The policy for grants, likewise.
#[must_use]
pub fn grants(policy: &Policy) -> Option<RefillPolicy> {
    let target_ms = u64::from(policy.grant_target_seconds) * 1_000;
    RefillPolicy::new(RefillSettings {
        min_size: policy.grant_size,
        max_size: policy.grant_max,
        target_ms,
        buffer_ms: (u64::from(policy.buffer_seconds) * 1_000).clamp(1, target_ms.saturating_sub(1).max(1)),
        floor_percent: policy.floor_percent,
        surge_factor: policy.surge_factor.clamp(1, MAX_SURGE),
        max_share_per_mille: GRANT_SHARE,
    })
    .ok()
}

/// The size of an instance's next segment: by its rate and how long the last one lasted; the least for a
/// new process, whose last one was burned. Callers that wait for more are given more, within the bounds.
#[must_use]
pub fn next_segment(entry: &NamespaceEntry, last: Option<LastRange>, rate: f64, waited_for: u64, space: u64) -> u64 {
    let Some(policy) = segments(&entry.policy) else { return entry.policy.segment_min.max(1) };
    let size = last.map_or(entry.policy.segment_min, |last| policy.next_size_after(last, rate));
    let size = size.max(waited_for.min(entry.policy.segment_max));
    policy.within_space(size, space).map_or(1, NonZeroU64::get)
}

/// The most that a thick client is given at once.
#[must_use]
pub fn largest_segment(entry: &NamespaceEntry, space: u64) -> u64 {
    let policy = segments(&entry.policy);
    policy.and_then(|p| p.within_space(entry.policy.segment_max, space)).map_or(1, NonZeroU64::get)
}

/// Whether an instance asks for its standby now.
#[must_use]
pub fn segment_threshold(entry: &NamespaceEntry, size_of_current: u64, rate: f64) -> u64 {
    segments(&entry.policy).map_or(1, |p| p.threshold(size_of_current, rate))
}

/// The most that a region holds unissued, where `space` ordinals are granted to nobody: what the policy says, and
/// a tenth of the space. Otherwise a burst of seconds makes a region take one hundredth after the other of a
/// small space for an outage that it will never need to survive, and the others find nothing.
fn most_held(policy: &Policy, space: u64) -> u64 {
    policy.region_max_held.min((space / SPACE_HELD).max(SMALL_HELD))
}

/// Below this the region asks for a grant: what the outage that is to be survived takes at the peak, and
/// never less than one grant ahead; at most half of what it may hold.
#[must_use]
pub fn grant_floor(entry: &NamespaceEntry, pool: &Pool, peak: f64, space: u64) -> u64 {
    let policy = &entry.policy;
    let threshold = grants(policy).map_or(0, |p| p.threshold(pool.last_grant, peak));
    let headroom = plan::headroom_needed(peak, policy.surge_factor, u64::from(policy.grant_target_seconds) * 1_000);
    let floor = headroom.max(threshold).max(policy.grant_size);
    floor.min(most_held(policy, space) / 2).min(policy.grant_max).max(1)
}

/// How much to ask for, where the region holds `held` (its instances' included) and callers wait for
/// `waited_for`; `None` where it holds enough (and nobody needs what lies above it), or all that it may.
#[must_use]
pub fn grant_want(
    entry: &NamespaceEntry,
    pool: &Pool,
    held: u64,
    waited_for: u64,
    peak: f64,
    space: u64,
) -> Option<u64> {
    if pool.wanted_above == 0 && pool.totals.left >= grant_floor(entry, pool, peak, space).max(waited_for) {
        return None;
    }
    let needed = waited_for.max(pool.wanted_above).min(entry.policy.region_max_held);
    let room = most_held(&entry.policy, space).max(needed).saturating_sub(held);
    let by_rate = grants(&entry.policy).filter(|_| pool.last_grant > 0);
    let size = by_rate.map_or(entry.policy.grant_size, |p| p.next_size(peak));
    let size = size.max(waited_for).max(pool.wanted_above).min(entry.policy.grant_max);
    (room > 0).then(|| size.min(room))
}

/// How many units of time to ask for, where a slot's time ends at unit `ends`; `None` where it lasts long enough. A
/// region that is cut off may stamp for `grant_target_seconds`: one part in 24 of that is asked for at a time, or what
/// passes between two heartbeats.
#[must_use]
pub fn window_want(layout: &Layout, policy: &Policy, ends: u64, now_ms: u64, heartbeat_ms: u64) -> Option<u64> {
    let length_ms = u64::from(policy.grant_target_seconds) * 1_000;
    let step_ms = (length_ms / 24).max(heartbeat_ms * 2).min(length_ms / 2);
    let enough_ms = now_ms.saturating_add(length_ms - step_ms);
    // A little more: a first window begins a little in the past.
    let want = layout.units_for(length_ms) + 2 * layout.units_for(CLOCK_BOUND_MS);
    (ends < layout.units() && layout.begins_ms(ends) < enough_ms).then_some(want)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::Totals;
    use cadastre_core::sequence::Sequence;

    /// What is left of a wide space.
    const ROOMY: u64 = u64::MAX >> 1;

    fn entry(policy: Policy) -> NamespaceEntry {
        NamespaceEntry::new(Sequence::default(), policy)
    }

    fn pool(left: u64, last_grant: u64) -> Pool {
        Pool { totals: Totals { left, ..Totals::default() }, last_grant, ..Pool::default() }
    }

    #[test]
    fn the_defaults_are_accepted() {
        assert_eq!(segments(&Policy::default()).unwrap().settings().max_size, 1_000_000);
        assert_eq!(grants(&Policy::default()).unwrap().settings().min_size, 1_000_000);
    }

    #[test]
    fn one_grant_is_kept_ahead_and_a_full_region_asks_for_nothing() {
        let e = entry(Policy::default());
        assert_eq!(grant_want(&e, &pool(0, 0), 0, 0, 0.0, ROOMY), Some(1_000_000));
        assert_eq!(grant_want(&e, &pool(1_000_000, 1_000_000), 1_000_000, 0, 0.0, ROOMY), None);
        assert_eq!(grant_want(&e, &pool(999_000, 1_000_000), 999_000, 0, 0.0, ROOMY), Some(1_000_000));
        // A day at a peak of 1,000 a second, twice over.
        assert_eq!(grant_want(&e, &pool(999_000, 1_000_000), 999_000, 0, 1_000.0, ROOMY), Some(172_800_000));
    }

    #[test]
    fn what_may_be_held_is_never_asked_beyond() {
        let e = entry(Policy { grant_size: 1_000, region_max_held: 1_500, ..Policy::default() });
        assert_eq!(grant_want(&e, &pool(700, 1_000), 1_000, 0, 0.0, ROOMY), Some(500));
        assert_eq!(grant_want(&e, &pool(800, 1_000), 1_000, 0, 0.0, ROOMY), None);
        assert_eq!(grant_want(&e, &pool(0, 1_000), 1_500, 0, 0.0, ROOMY), None);
    }

    #[test]
    fn what_is_wanted_above_all_that_is_left_is_asked_for_though_enough_is_left() {
        let e = entry(Policy { grant_size: 1_000, region_max_held: 2_500, ..Policy::default() });
        let pool = Pool { wanted_above: 70, ..pool(1_000, 1_000) };
        assert_eq!(grant_want(&e, &pool, 1_000, 0, 0.0, ROOMY), Some(1_000));
        assert_eq!(grant_want(&e, &pool, 2_500, 0, 0.0, ROOMY), None, "never beyond what may be held");
    }

    #[test]
    fn a_small_space_is_handed_out_in_small_parts() {
        let e = entry(Policy::default());
        assert_eq!(next_segment(&e, None, 1e9, 0, 10_000), 10);
        assert_eq!(next_segment(&e, None, 0.0, 0, 0), 1);
        assert_eq!(largest_segment(&e, u64::MAX >> 1), 1_000_000);
    }

    #[test]
    fn a_burst_does_not_take_a_small_space() {
        let e = entry(Policy::default());
        let (space, peak) = (1 << 31, 140_000.0);
        let a_tenth = 214_748_364;
        assert_eq!(grant_want(&e, &pool(a_tenth / 2, 20_000_000), a_tenth / 2, 0, peak, space), None);
        assert!(grant_want(&e, &pool(a_tenth / 2 - 1, 20_000_000), a_tenth / 2, 0, peak, space).is_some());
        assert!(grant_want(&e, &pool(0, 20_000_000), a_tenth, 0, peak, space).is_none());
        // Callers who wait are served all the same, to the last number.
        assert_eq!(grant_want(&e, &pool(0, 20), 100_000, 300_000, 0.0, 500_000), Some(200_000));
        assert_eq!(grant_want(&e, &pool(0, 20), 0, 3, 0.0, 2), Some(100_000));
    }
}
