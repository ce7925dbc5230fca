//! The invariants, each a named predicate over ledger rows.
//!
//! Tests, the simulator, `audit/verify` and the metrics all call these, so that what is checked in
//! CI is what an operator checks in production. A predicate returns findings in plain words; none
//! panics, whatever the rows hold.
//!
//! | name | says |
//! |---|---|
//! | A1 | grants of a namespace are disjoint and lie below its watermark |
//! | A2 | nothing is answered that has not passed the gate (held by the gate; counted by metrics) |
//! | A3 | no grant carries an epoch above its region's, nor a generation above its scope's |
//! | A4 | epochs, watermarks and definitions never go back |
//! | R1 | grant >= block >= segment, each level disjoint |
//! | R2 | a segment's row is durable before it is handed out: it lies below its holding's cursor |
//! | R3 | a late return or answer changes nothing (held by guarded writes; recorded in the audit) |
//! | I1 | a segment is installed once, by the incarnation that it was carved for |
//! | I2 | one process's ids rise strictly (fall strictly where the increment is negative) |
//! | C1 | a store in quarantine hands out nothing |

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::ids::{Epoch, RegionId};
use crate::mark::Generation;
use crate::range::Range;

/// One broken invariant.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// `A1` .. `C1`.
    pub invariant: String,
    /// What is wrong, for a person.
    pub detail: String,
}

fn finding(invariant: &str, detail: String) -> Finding {
    Finding { invariant: invariant.to_owned(), detail }
}

/// One grant, as a ledger has it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GrantRow {
    /// The grant.
    pub id: Uuid,
    /// Who holds it.
    pub region: RegionId,
    /// Under which epoch.
    pub epoch: Epoch,
    /// In which generation it was written.
    pub generation: Generation,
    /// What.
    pub range: Range,
}

/// One carve (a segment, or a block), as a region's ledger has it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CarveRow {
    /// The segment or block.
    pub id: Uuid,
    /// What it was carved from.
    pub from: Uuid,
    /// What.
    pub range: Range,
}

/// One holding that is carved, as a region's ledger has it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HoldingRow {
    /// The grant or block.
    pub id: Uuid,
    /// What it holds.
    pub range: Range,
    /// Its cursor.
    pub carved_to: u64,
}

/// A1: grants of one namespace are disjoint and lie below its watermark.
#[must_use]
pub fn a1_grants_disjoint(namespace: &str, watermark: u64, grants: &[GrantRow]) -> Vec<Finding> {
    let ranges: Vec<(Uuid, Range)> = grants.iter().map(|g| (g.id, g.range)).collect();
    let mut found = overlaps("A1", namespace, "grant", &ranges);
    found.extend(grants.iter().filter(|g| g.range.hi() > watermark).map(|g| {
        finding("A1", format!("{namespace}: grant {} ends at {}, above the watermark {watermark}", g.id, g.range.hi()))
    }));
    found
}

/// A3: no grant carries an epoch above its region's present one, nor a generation above its scope's.
#[must_use]
pub fn a3_epochs_known(
    namespace: &str,
    generation: Generation,
    epoch_of: impl Fn(RegionId) -> Option<Epoch>,
    grants: &[GrantRow],
) -> Vec<Finding> {
    let mut found = Vec::new();
    for g in grants {
        match epoch_of(g.region) {
            None => found.push(finding(
                "A3",
                format!("{namespace}: grant {} is of region {}, which the roster does not know", g.id, g.region),
            )),
            Some(epoch) if g.epoch > epoch => found.push(finding(
                "A3",
                format!(
                    "{namespace}: grant {} carries epoch {}, above region {}'s epoch {epoch}",
                    g.id, g.epoch, g.region
                ),
            )),
            Some(_) => {}
        }
        if g.generation > generation {
            found.push(finding(
                "A3",
                format!("{namespace}: grant {} is of generation {}, above {generation}", g.id, g.generation),
            ));
        }
    }
    found
}

/// A4: what only rises has not fallen.
#[must_use]
pub fn a4_never_back(what: &str, before: u64, now: u64) -> Vec<Finding> {
    if now >= before { vec![] } else { vec![finding("A4", format!("{what} fell from {before} to {now}"))] }
}

/// R1 and R2: every carve lies inside its holding and below the holding's cursor, and carves are
/// disjoint.
#[must_use]
pub fn r1_r2_carves(namespace: &str, holdings: &[HoldingRow], carves: &[CarveRow]) -> Vec<Finding> {
    let ranges: Vec<(Uuid, Range)> = carves.iter().map(|c| (c.id, c.range)).collect();
    let mut found = overlaps("R1", namespace, "carve", &ranges);
    let held: std::collections::BTreeMap<Uuid, &HoldingRow> = holdings.iter().map(|h| (h.id, h)).collect();
    for c in carves {
        match held.get(&c.from) {
            None => found
                .push(finding("R1", format!("{namespace}: carve {} comes from {}, which is not held", c.id, c.from))),
            Some(h) if !h.range.covers(&c.range) => {
                found.push(finding(
                    "R1",
                    format!("{namespace}: carve {} {:?} lies outside its holding {:?}", c.id, c.range, h.range),
                ));
            }
            Some(h) if c.range.hi() > h.carved_to => found.push(finding(
                "R2",
                format!(
                    "{namespace}: carve {} ends at {}, above its holding's cursor {}",
                    c.id,
                    c.range.hi(),
                    h.carved_to
                ),
            )),
            Some(_) => {}
        }
    }
    found
}

/// I2: the ordinals that one process issued rise strictly.
#[must_use]
pub fn i2_strictly_rising(process: &str, ordinals: &[u64]) -> Vec<Finding> {
    ordinals
        .windows(2)
        .filter_map(|pair| match pair {
            [a, b] if b <= a => Some(finding("I2", format!("{process} issued {b} after {a}"))),
            _ => None,
        })
        .collect()
}

/// Every pair of neighbours that overlaps, after sorting: enough to show any overlap at all.
fn overlaps(invariant: &str, namespace: &str, what: &str, ranges: &[(Uuid, Range)]) -> Vec<Finding> {
    let mut sorted = ranges.to_vec();
    sorted.sort_by_key(|(id, r)| (r.lo(), r.hi(), *id));
    let mut found = Vec::new();
    let mut widest: Option<(Uuid, Range)> = None;
    for (id, range) in sorted {
        if let Some((other, reach)) = widest.filter(|(_, reach)| reach.overlaps(&range)) {
            found.push(finding(
                invariant,
                format!(
                    "{namespace}: {what} {id} [{}, {}) overlaps {other} [{}, {})",
                    range.lo(),
                    range.hi(),
                    reach.lo(),
                    reach.hi()
                ),
            ));
        }
        if widest.is_none_or(|(_, reach)| range.hi() > reach.hi()) {
            widest = Some((id, range));
        }
    }
    found
}

/// W1, as far as a ledger shows it: windows of one worker are disjoint, and each lies in the region's time. `windows` is
/// in order of worker and place.
#[must_use]
pub fn w1_windows(line: &str, held: &[Range], windows: &[(u32, Range)]) -> Vec<Finding> {
    let mut held = held.to_vec();
    held.sort_unstable();
    let mut whole: Vec<Range> = Vec::new();
    for range in held {
        match whole.last_mut() {
            Some(last) if last.hi() == range.lo() => *last = Range::new(last.lo(), range.hi()).unwrap_or(range),
            _ => whole.push(range),
        }
    }
    let finding = |detail: String| Finding { invariant: "W1".into(), detail };
    let mut found = Vec::new();
    for (worker, window) in windows {
        if !whole.iter().any(|range| range.covers(window)) {
            found.push(finding(format!("{line}: window {window} of worker {worker} is not in the region's time")));
        }
    }
    for pair in windows.windows(2) {
        if let [(a, first), (b, second)] = pair
            && a == b
            && first.overlaps(second)
        {
            found.push(finding(format!("{line}: worker {a} has {first} and {second}, which overlap")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w1_names_a_window_that_overlaps_or_lies_outside() {
        let range = |lo, hi| Range::new(lo, hi).unwrap();
        let held = [range(10, 20), range(20, 30), range(50, 60)];
        assert!(w1_windows("e@0", &held, &[(0, range(15, 25)), (0, range(25, 30)), (1, range(15, 25))]).is_empty());
        assert_eq!(w1_windows("e@0", &held, &[(0, range(15, 25)), (0, range(24, 30))]).len(), 1);
        assert_eq!(w1_windows("e@0", &held, &[(0, range(25, 35))]).len(), 1);
        assert_eq!(w1_windows("e@0", &held, &[(0, range(25, 55))]).len(), 1);
    }

    fn grant(n: u128, lo: u64, hi: u64) -> GrantRow {
        GrantRow {
            id: Uuid::from_u128(n),
            region: RegionId(1),
            epoch: Epoch(1),
            generation: Generation::default(),
            range: Range::new(lo, hi).unwrap(),
        }
    }

    #[test]
    fn a1_sees_an_overlap_under_a_wide_grant() {
        assert!(a1_grants_disjoint("orders", 30, &[grant(1, 0, 10), grant(2, 10, 30)]).is_empty());
        let hidden = [grant(1, 0, 30), grant(2, 5, 6), grant(3, 20, 21)];
        assert_eq!(a1_grants_disjoint("orders", 30, &hidden).len(), 2);
        assert_eq!(a1_grants_disjoint("orders", 29, &[grant(1, 0, 30)]).len(), 1, "above the watermark");
    }

    #[test]
    fn a3_sees_unknown_regions_and_epochs_from_the_future() {
        let rows = [grant(1, 0, 10)];
        assert!(a3_epochs_known("orders", Generation::default(), |_| Some(Epoch(1)), &rows).is_empty());
        assert_eq!(a3_epochs_known("orders", Generation::default(), |_| Some(Epoch(0)), &rows).len(), 1);
        assert_eq!(a3_epochs_known("orders", Generation::default(), |_| None, &rows).len(), 1);
    }

    #[test]
    fn r1_and_r2_see_a_carve_out_of_place() {
        let id = Uuid::from_u128(1);
        let held = [HoldingRow { id, range: Range::new(0, 10).unwrap(), carved_to: 6 }];
        let carve = |n, from, lo, hi| CarveRow { id: Uuid::from_u128(n), from, range: Range::new(lo, hi).unwrap() };
        assert!(r1_r2_carves("orders", &held, &[carve(2, id, 0, 3), carve(3, id, 3, 6)]).is_empty());
        assert_eq!(r1_r2_carves("orders", &held, &[carve(2, id, 4, 8)])[0].invariant, "R2");
        assert_eq!(r1_r2_carves("orders", &held, &[carve(2, id, 8, 12)])[0].invariant, "R1");
        assert_eq!(r1_r2_carves("orders", &held, &[carve(2, Uuid::nil(), 0, 1)])[0].invariant, "R1");
    }

    #[test]
    fn i2_and_a4_see_a_step_back() {
        assert!(i2_strictly_rising("p", &[1, 2, 9]).is_empty());
        assert_eq!(i2_strictly_rising("p", &[1, 2, 2]).len(), 1);
        assert_eq!(a4_never_back("epoch of eu", 3, 2).len(), 1);
    }
}
