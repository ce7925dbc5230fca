//! A rehearsal that is repeated: when it is due, and whether there is room for it.
//!
//! Invariants: what was due is due once, whoever looks, and never for more than [`LATE_MS`]: a game day that was missed
//! does not begin in the middle of the next night.
//!
//! Absent on purpose: clocks, and what is rehearsed.

/// One that could not begin within so long is missed, in milliseconds.
pub const LATE_MS: u64 = 3_600_000;
/// The longest time between two, in hours: a year.
pub const MAX_HOURS: u32 = 366 * 24;

/// What follows from the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Later.
    NotYet,
    /// Now; the one after it is at this time.
    Now(u64),
    /// Its time went by while nobody was there to begin it; the next one is at this time.
    Missed(u64),
}

/// Whether one is due that is planned for `next_at_ms`. The next one is on the same beat, however late it is.
#[must_use]
pub fn due(next_at_ms: u64, every_hours: u32, now_ms: u64) -> Due {
    let Some(late_ms) = now_ms.checked_sub(next_at_ms) else { return Due::NotYet };
    let every_ms = u64::from(every_hours.max(1)) * 3_600_000;
    let after = next_at_ms.saturating_add((late_ms / every_ms).saturating_add(1).saturating_mul(every_ms));
    if late_ms <= LATE_MS { Due::Now(after) } else { Due::Missed(after) }
}

/// Whether what lasts `runway_seconds` at its peak is enough for a cut of `for_seconds` that may use a share of it.
#[must_use]
pub fn has_room(runway_seconds: Option<u64>, for_seconds: u32, share_percent: u32) -> bool {
    // At rate 0 nothing is used.
    runway_seconds.is_none_or(|runway| runway.saturating_mul(u64::from(share_percent)) / 100 >= u64::from(for_seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    #[test]
    fn it_is_due_once_on_its_beat_and_not_long_after() {
        assert_eq!(due(1_000, 24, 999), Due::NotYet);
        assert_eq!(due(1_000, 24, 1_000), Due::Now(1_000 + 24 * HOUR));
        assert_eq!(due(1_000, 24, 1_000 + LATE_MS), Due::Now(1_000 + 24 * HOUR));
        assert_eq!(due(1_000, 24, 1_001 + LATE_MS), Due::Missed(1_000 + 24 * HOUR));
        assert_eq!(due(1_000, 24, 1_000 + 50 * HOUR), Due::Missed(1_000 + 72 * HOUR));
        assert_eq!(due(0, 1, HOUR), Due::Now(2 * HOUR), "the one before is not made up for");
        assert_eq!(due(5, 0, u64::MAX), Due::Missed(u64::MAX), "whatever is stored, there is a next one");
    }

    #[test]
    fn a_cut_needs_room_in_its_share() {
        assert!(has_room(None, 600, 50));
        assert!(has_room(Some(1_200), 600, 50) && !has_room(Some(1_199), 600, 50));
        assert!(has_room(Some(u64::MAX), 600, 90));
    }
}
