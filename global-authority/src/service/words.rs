//! What people read of what is wrong: one sentence each, with what to do.

use cadastre_core::ids::Name;
use cadastre_core::outlook::{Level, Why};
use cadastre_core::registry::RegionState;
use cadastre_protocol::admin::{Cell, NamespaceOutlook, Quarantines, RegionView, Trouble};

use super::overview::{is_regional, is_silent};

fn trouble(level: Level, kind: &str, text: String) -> Trouble {
    Trouble { level, kind: kind.to_owned(), region: None, namespace: None, seconds: None, text }
}

/// A duration for people, two units at most.
#[must_use]
pub fn lasting(seconds: u64) -> String {
    const YEAR: u64 = 365 * 86_400;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match seconds {
        s if s >= 100 * YEAR => "over 100 years".to_owned(),
        s if s >= 2 * YEAR => format!("{} years", s / YEAR),
        _ if days >= 10 => format!("{days} d"),
        _ if days > 0 => format!("{days} d {hours} h"),
        _ if hours > 0 => format!("{hours} h {minutes} min"),
        s if minutes > 0 => format!("{minutes} min {} s", s % 60),
        s => format!("{s} s"),
    }
}

/// A quarantine: nothing new is granted.
pub(super) fn of_quarantine(quarantines: &Quarantines) -> Vec<Trouble> {
    let Some(first) = quarantines.quarantines.first() else { return Vec::new() };
    let waits = match first.waiting_for.as_slice() {
        [] => "It is being settled.".to_owned(),
        names => format!("It waits for {}.", names.join(", ")),
    };
    let text = format!("Quarantine: nothing new is granted; regions go on from what they hold. {waits}");
    vec![trouble(Level::Act, "quarantine", text)]
}

/// What is wrong with a region as a whole.
pub(super) fn of_region(region: &RegionView) -> Option<Trouble> {
    let name = &region.name;
    let (kind, text) = if region.state == RegionState::Fenced {
        let text = format!("Region {name} is fenced: it issues nothing until an operator recovers it.");
        ("region_fenced", text)
    } else if is_silent(region) {
        let quiet = lasting(region.last_heard_seconds.unwrap_or(0));
        ("region_silent", format!("Region {name} has been silent for {quiet}; it goes on from what it holds."))
    } else if region.state == RegionState::Draining {
        ("region_draining", format!("Region {name} is draining: it gets nothing new and runs out what it holds."))
    } else {
        return None;
    };
    Some(Trouble { region: Some(name.clone()), ..trouble(Level::Watch, kind, text) })
}

/// What is wrong with a region's part of a namespace, beside what its region says of it already.
pub(super) fn of_cell(namespace: &Name, cell: &Cell) -> Option<Trouble> {
    let why = cell.why.filter(|why| !is_regional(*why))?;
    let region = &cell.region;
    let (soonest, rate) = match (cell.runway_seconds, cell.runway_at_peak_seconds) {
        (Some(now), Some(peak)) if peak < now => (Some(peak), "at its peak rate"),
        (None, Some(peak)) => (Some(peak), "at its peak rate"),
        (now, _) => (now, "at the present rate"),
    };
    let lasts = lasting(soonest.unwrap_or(0));
    let (kind, text) = match why {
        Why::NothingLeft => ("nothing_left", format!("Region {region} has nothing left of {namespace}.")),
        Why::TimeEnded => {
            let text = format!("Region {region} stamps nothing of {namespace}: the time that it was given has ended.");
            ("time_ended", text)
        }
        Why::DrySoon | Why::Short => {
            let kind = if why == Why::Short { "short" } else { "dry_soon" };
            let text = format!("Region {region} runs dry of {namespace} in {lasts} {rate} unless it gets a grant.");
            (kind, text)
        }
        Why::Fenced | Why::Silent | Why::Draining => return None,
    };
    let (region, namespace) = (Some(region.clone()), Some(namespace.clone()));
    let seconds = soonest.or(Some(0));
    Some(Trouble { region, namespace, seconds, ..trouble(cell.level, kind, text) })
}

/// The whole space of a namespace ends.
pub(super) fn of_space(row: &NamespaceOutlook, now_ms: u64) -> Option<Trouble> {
    if row.space_level == Level::Ok {
        return None;
    }
    let name = &row.name;
    let seconds = row.space_ends_at.map(|at| at.saturating_sub(now_ms) / 1_000);
    let text = match seconds {
        _ if row.space_left == 0 => format!("{name} is used up: nothing more can ever be granted."),
        Some(seconds) => format!("The whole space of {name} ends in {} at the present rate.", lasting(seconds)),
        None => format!("The whole space of {name} is nearly used up."),
    };
    Some(Trouble { namespace: Some(name.clone()), seconds, ..trouble(row.space_level, "space_ends", text) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        let read = [0, 59, 61, 3_700, 90_000, 864_000, 63_072_000, u64::MAX].map(lasting);
        assert_eq!(read, ["0 s", "59 s", "1 min 1 s", "1 h 1 min", "1 d 1 h", "10 d", "2 years", "over 100 years"]);
    }
}
