//! Planning a layout: which bits last for how long, and for how many.
//!
//! Every bit that time does not get doubles something else. A plan gives each demand the bits that it needs and what is
//! left over to one of them, so that the alternatives can be compared side by side; where the demands do not fit
//! together, it says how much of each one would.

use super::{ID_BITS, Layout, MAX_REGION_BITS, MAX_SEQUENCE_BITS, MAX_WORKER_BITS};

/// Milliseconds in a year of 365.25 days.
const YEAR_MS: u128 = 31_557_600_000;
/// Units that are tried, in milliseconds.
const UNITS: [u32; 3] = [1, 10, 100];

/// What a layout has to carry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Demand {
    /// Regions at a time.
    pub regions: u64,
    /// Workers of each region at a time.
    pub workers: u64,
    /// Years from the layout's epoch on.
    pub years: u64,
    /// Ids a second of one worker at its peak.
    pub peak_per_second: u64,
    /// Bits of the whole id: 63, or 53 where JavaScript reads it as a number.
    pub width: u32,
}

/// One demand, and the most of it that fits with the others as they are; 0 is none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lower {
    /// `regions`, `workers`, `years` or `peak`.
    pub demand: &'static str,
    /// The most that fits.
    pub to: u64,
}

/// Bits for `n` different values.
fn bits(n: u64) -> u32 {
    u64::BITS - n.max(1).saturating_sub(1).leading_zeros()
}

/// Bits of region, worker, sequence and timestamp that a demand needs, with units of `unit_ms`.
fn needed(demand: &Demand, unit_ms: u32) -> [u32; 4] {
    let per_unit = (u128::from(demand.peak_per_second) * u128::from(unit_ms)).div_ceil(1_000);
    let units = (u128::from(demand.years) * YEAR_MS).div_ceil(u128::from(unit_ms));
    let bits = |n: u128| bits(u64::try_from(n).unwrap_or(u64::MAX)).max(1);
    [bits(demand.regions.into()), bits(demand.workers.into()), bits(per_unit), bits(units)]
}

/// Layouts that carry a demand: for each unit of time, what is left over goes to time, to the sequence, to the workers
/// or to the regions. Those with the shortest unit come first.
#[must_use]
pub fn layouts(demand: &Demand, epoch_ms: u64) -> Vec<Layout> {
    let mut found: Vec<Layout> = Vec::new();
    for unit_ms in UNITS {
        let [region, worker, sequence, timestamp] = needed(demand, unit_ms);
        let Some(spare) = demand.width.min(ID_BITS).checked_sub(region + worker + sequence + timestamp) else {
            continue;
        };
        for to in 0..4 {
            let extra = |at: u32| if at == to { spare } else { 0 };
            let shared = [timestamp + extra(0), region + extra(3), worker + extra(2), sequence + extra(1)];
            // What a field cannot take goes to time.
            let over = |n: u32, most: u32| n.saturating_sub(most);
            let late = over(shared[1], MAX_REGION_BITS)
                + over(shared[2], MAX_WORKER_BITS)
                + over(shared[3], MAX_SEQUENCE_BITS);
            let all = [
                shared[0] + late,
                shared[1].min(MAX_REGION_BITS),
                shared[2].min(MAX_WORKER_BITS),
                shared[3].min(MAX_SEQUENCE_BITS),
            ];
            if let Ok(layout) = Layout::new(all, unit_ms, epoch_ms)
                && carries(&layout, demand)
                && !found.contains(&layout)
            {
                found.push(layout);
            }
        }
    }
    found
}

/// Whether a layout carries a demand.
#[must_use]
pub fn carries(layout: &Layout, demand: &Demand) -> bool {
    u64::from(layout.slots()) >= demand.regions
        && u64::from(layout.workers()) >= demand.workers
        && years(layout) >= demand.years
        && layout.bits().iter().sum::<u32>() <= demand.width
        && per_second(layout) >= u128::from(demand.peak_per_second)
}

/// Whole years from the layout's epoch to its end.
#[must_use]
pub fn years(layout: &Layout) -> u64 {
    let ms = u128::from(layout.units()) * u128::from(layout.unit_ms());
    u64::try_from(ms / YEAR_MS).unwrap_or(u64::MAX)
}

/// Ids a second of one worker, at most.
#[must_use]
pub fn per_second(layout: &Layout) -> u128 {
    u128::from(layout.per_unit()) * 1_000 / u128::from(layout.unit_ms())
}

/// Where nothing carries the demand: how much of each part would do, the others as they are.
#[must_use]
pub fn lower(demand: &Demand) -> Vec<Lower> {
    let fits = |demand: &Demand| !layouts(demand, 0).is_empty();
    let most = |with: &dyn Fn(u64) -> Demand, from: u64| {
        // The highest value that fits; what fits at n fits below it.
        let (mut low, mut high) = (0, from);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if fits(&with(middle)) { low = middle } else { high = middle - 1 }
        }
        low
    };
    vec![
        Lower { demand: "years", to: most(&|years| Demand { years, ..*demand }, demand.years) },
        Lower { demand: "regions", to: most(&|regions| Demand { regions, ..*demand }, demand.regions) },
        Lower { demand: "workers", to: most(&|workers| Demand { workers, ..*demand }, demand.workers) },
        Lower {
            demand: "peak",
            to: most(&|peak_per_second| Demand { peak_per_second, ..*demand }, demand.peak_per_second),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASSIC: Demand = Demand { regions: 8, workers: 128, years: 69, peak_per_second: 4_096_000, width: 63 };

    #[test]
    fn the_classic_demand_has_the_classic_layout() {
        let found = layouts(&CLASSIC, 0);
        assert!(found.iter().any(|l| l.bits() == [41, 3, 7, 12]), "{found:?}");
        assert!(found.iter().all(|l| carries(l, &CLASSIC)));
    }

    #[test]
    fn spare_bits_go_to_each_field_once() {
        let demand = Demand { regions: 2, workers: 16, years: 50, peak_per_second: 1_000, width: 63 };
        let found = layouts(&demand, 0);
        let unit_1: Vec<_> = found.iter().filter(|l| l.unit_ms() == 1).map(Layout::bits).collect();
        assert!(unit_1.len() >= 3, "{unit_1:?}");
        assert!(found.iter().all(|l| l.bits().iter().sum::<u32>() == 63));
    }

    /// Case 11: what a page reads as a number.
    #[test]
    fn a_53_bit_layout_states_its_life_and_rate() {
        let demand = Demand { regions: 2, workers: 8, years: 20, peak_per_second: 1_000, width: 53 };
        let found = layouts(&demand, 0);
        assert!(!found.is_empty());
        assert!(found.iter().all(|l| l.largest_id() < 1 << 53 && years(l) >= 20));
    }

    #[test]
    fn what_does_not_fit_says_how_much_would() {
        let demand = Demand { regions: 64, workers: 4_096, years: 200, peak_per_second: 10_000_000, width: 63 };
        assert!(layouts(&demand, 0).is_empty());
        let lower = lower(&demand);
        for Lower { demand: which, to } in lower {
            let with = match which {
                "years" => Demand { years: to, ..demand },
                "regions" => Demand { regions: to, ..demand },
                "workers" => Demand { workers: to, ..demand },
                _ => Demand { peak_per_second: to, ..demand },
            };
            assert!(to == 0 || !layouts(&with, 0).is_empty(), "{which} {to}");
        }
    }
}
