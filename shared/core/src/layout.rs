//! The layout of time-based ids: how 63 bits are shared among time, region, worker and sequence.
//!
//! Purpose: every id of a `snowflake` namespace is `unit | slot | worker | n`, highest bits first, where `unit` counts
//! the layout's units of time since its epoch. The arithmetic of that, and of how long it lasts, stands here once.
//!
//! Invariant: an id is a positive `i64`; a unit, slot, worker or place that does not fit its field is an error and never
//! spills into the next one. Two layouts that differ never belong to one namespace: ids of both would mix.
//!
//! Absent on purpose: clocks (time is an argument), who may stamp what (`window`), and the cursor (`segment`).

pub mod plan;

use serde::{Deserialize, Serialize};

use crate::decimal;

/// Bits of a positive `i64`.
pub const ID_BITS: u32 = 63;
/// The most bits for regions: their windows are looked through one by one.
pub const MAX_REGION_BITS: u32 = 10;
/// The most bits for workers: a region looks through them one by one.
pub const MAX_WORKER_BITS: u32 = 16;
/// The most bits for the sequence: ids of one unit that are never used are a loss of all of them.
pub const MAX_SEQUENCE_BITS: u32 = 22;
/// The longest unit, in milliseconds: nobody wants to wait longer for the next one.
pub const MAX_UNIT_MS: u32 = 1_000;

/// See the module's documentation. `serde` checks what it reads, so that a layout that cannot be does not exist.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub struct Layout {
    timestamp: u32,
    region: u32,
    worker: u32,
    sequence: u32,
    unit_ms: u32,
    epoch_ms: u64,
}

/// The unchecked form on the wire.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    timestamp: u32,
    region: u32,
    worker: u32,
    sequence: u32,
    #[serde(default = "one")]
    unit_ms: u32,
    #[serde(default = "year_2025", with = "decimal::unsigned")]
    epoch_ms: u64,
}

fn one() -> u32 {
    1
}

/// 2025-01-01T00:00:00Z.
fn year_2025() -> u64 {
    1_735_689_600_000
}

/// A field that is out of place, and what to do about it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("layout.{field}: {problem}")]
pub struct LayoutError {
    /// The field's name.
    pub field: &'static str,
    /// What to do about it.
    pub problem: String,
}

/// What an id says about itself. Nobody has to have been given it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Parts {
    /// Units since the layout's epoch.
    pub unit: u64,
    /// The region field: a slot of the registry, not a region's number.
    pub slot: u32,
    /// The worker.
    pub worker: u32,
    /// Its place among the worker's ids of that unit.
    pub sequence: u64,
}

impl TryFrom<Wire> for Layout {
    type Error = LayoutError;

    fn try_from(wire: Wire) -> Result<Self, LayoutError> {
        let Wire { timestamp, region, worker, sequence, unit_ms, epoch_ms } = wire;
        let wrong = |field, problem: String| LayoutError { field, problem };
        let within = |field: &'static str, bits: u32, most: u32| match bits {
            0 => Err(wrong(field, "needs at least one bit".to_owned())),
            n if n > most => Err(wrong(field, format!("has {n} bits, and at most {most} make sense"))),
            _ => Ok(()),
        };
        within("timestamp", timestamp, ID_BITS)?;
        within("region", region, MAX_REGION_BITS)?;
        within("worker", worker, MAX_WORKER_BITS)?;
        within("sequence", sequence, MAX_SEQUENCE_BITS)?;
        let sum = timestamp + region + worker + sequence;
        if sum > ID_BITS {
            let over = sum - ID_BITS;
            let problem = format!("all fields have {sum} bits together, and an id has {ID_BITS}: take {over} away");
            return Err(wrong("timestamp", problem));
        }
        if !(1..=MAX_UNIT_MS).contains(&unit_ms) {
            return Err(wrong("unit_ms", format!("must be 1 to {MAX_UNIT_MS}")));
        }
        // Its end has to be a date that can be told.
        if u128::from(epoch_ms) + (u128::from(unit_ms) << timestamp) > u128::from(u64::MAX >> 1) {
            let problem = "ends in hundreds of millions of years: give bits to the other fields";
            return Err(wrong("timestamp", problem.to_owned()));
        }
        Ok(Self { timestamp, region, worker, sequence, unit_ms, epoch_ms })
    }
}

impl From<Layout> for Wire {
    fn from(l: Layout) -> Self {
        let Layout { timestamp, region, worker, sequence, unit_ms, epoch_ms } = l;
        Self { timestamp, region, worker, sequence, unit_ms, epoch_ms }
    }
}

impl Default for Layout {
    /// 41 bits of milliseconds since 2025, 3 of region, 7 of worker, 12 of sequence: 69.7 years.
    fn default() -> Self {
        Self { timestamp: 41, region: 3, worker: 7, sequence: 12, unit_ms: one(), epoch_ms: year_2025() }
    }
}

impl Layout {
    /// A layout of these bits.
    ///
    /// # Errors
    /// [`LayoutError`] with the field that is out of place.
    pub fn new(bits: [u32; 4], unit_ms: u32, epoch_ms: u64) -> Result<Self, LayoutError> {
        let [timestamp, region, worker, sequence] = bits;
        Wire { timestamp, region, worker, sequence, unit_ms, epoch_ms }.try_into()
    }

    /// Bits of timestamp, region, worker and sequence.
    #[must_use]
    pub fn bits(&self) -> [u32; 4] {
        [self.timestamp, self.region, self.worker, self.sequence]
    }

    /// The length of a unit, in milliseconds.
    #[must_use]
    pub fn unit_ms(&self) -> u64 {
        u64::from(self.unit_ms)
    }

    /// Units that can be stamped; one past the last.
    #[must_use]
    pub fn units(&self) -> u64 {
        1 << self.timestamp
    }

    /// Slots for regions.
    #[must_use]
    pub fn slots(&self) -> u32 {
        1 << self.region
    }

    /// Workers of one slot.
    #[must_use]
    pub fn workers(&self) -> u32 {
        1 << self.worker
    }

    /// Bits of the place within a unit.
    #[must_use]
    pub fn sequence_bits(&self) -> u32 {
        self.sequence
    }

    /// Ids of one worker in one unit.
    #[must_use]
    pub fn per_unit(&self) -> u64 {
        1 << self.sequence
    }

    /// The highest id that it can make, whoever stamps it and when.
    #[must_use]
    pub fn largest_id(&self) -> u64 {
        u64::MAX >> (64 - (self.timestamp + self.region + self.worker + self.sequence))
    }

    /// The unit of a time, in milliseconds since the Unix epoch; `None` before the layout's epoch. It may lie beyond
    /// the last one, which no window does.
    #[must_use]
    pub fn unit_of(&self, wall_ms: u64) -> Option<u64> {
        Some(wall_ms.checked_sub(self.epoch_ms)? / self.unit_ms())
    }

    /// When a unit begins, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn begins_ms(&self, unit: u64) -> u64 {
        self.epoch_ms.saturating_add(unit.saturating_mul(self.unit_ms()))
    }

    /// When the last unit ends, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn ends_ms(&self) -> u64 {
        self.begins_ms(self.units())
    }

    /// As many units as cover so many milliseconds.
    #[must_use]
    pub fn units_for(&self, ms: u64) -> u64 {
        ms.div_ceil(self.unit_ms()).max(1)
    }

    /// The place of a worker's cursor where a unit begins: unit and place within it are one number.
    #[must_use]
    pub fn position(&self, unit: u64) -> u64 {
        unit << self.sequence
    }

    /// The unit that a place of the cursor lies in.
    #[must_use]
    pub fn unit_at(&self, position: u64) -> u64 {
        position >> self.sequence
    }

    /// The id at a place of the cursor of a slot's worker; `None` where a field does not fit.
    #[must_use]
    pub fn id(&self, slot: u32, worker: u32, position: u64) -> Option<i64> {
        let unit = self.unit_at(position);
        if unit >= self.units() || slot >= self.slots() || worker >= self.workers() {
            return None;
        }
        let place = position & (self.per_unit() - 1);
        let high = (unit << self.region | u64::from(slot)) << self.worker | u64::from(worker);
        i64::try_from(high << self.sequence | place).ok()
    }

    /// What an id says; `None` where no id of this layout looks so.
    #[must_use]
    pub fn parts(&self, id: i64) -> Option<Parts> {
        let id = u64::try_from(id).ok().filter(|id| *id <= self.largest_id())?;
        let field = |shift: u32, bits: u32| (id >> shift) & ((1 << bits) - 1);
        Some(Parts {
            unit: id >> (self.sequence + self.worker + self.region),
            slot: u32::try_from(field(self.sequence + self.worker, self.region)).ok()?,
            worker: u32::try_from(field(self.sequence, self.worker)).ok()?,
            sequence: field(0, self.sequence),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn classic() -> Layout {
        Layout::new([41, 3, 7, 12], 1, 1_735_689_600_000).unwrap()
    }

    #[test]
    fn the_classic_layout_is_what_the_plans_say() {
        let layout = classic();
        assert_eq!((layout.slots(), layout.workers(), layout.per_unit()), (8, 128, 4_096));
        let years = (layout.ends_ms() - layout.begins_ms(0)) as f64 / (365.25 * 86_400_000.0);
        assert!((69.6..69.8).contains(&years), "{years}");
        assert_eq!(layout.largest_id(), i64::MAX as u64);
    }

    #[test]
    fn a_layout_that_cannot_be_names_its_field() {
        let field = |bits, unit| Layout::new(bits, unit, 0).unwrap_err().field;
        assert_eq!(field([41, 0, 7, 12], 1), "region");
        assert_eq!(field([41, 3, 0, 12], 1), "worker");
        assert_eq!(field([41, 3, 7, 0], 1), "sequence");
        assert_eq!(field([42, 3, 7, 12], 1), "timestamp");
        assert_eq!(field([41, 3, 7, 12], 0), "unit_ms");
        assert_eq!(field([0, 3, 7, 12], 1), "timestamp");
        assert!(serde_json::from_str::<Layout>(r#"{"timestamp":41,"region":3,"worker":7,"sequence":13}"#).is_err());
    }

    #[test]
    fn what_does_not_fit_is_no_id() {
        let layout = classic();
        assert_eq!(layout.id(8, 0, 0), None);
        assert_eq!(layout.id(0, 128, 0), None);
        assert_eq!(layout.id(0, 0, layout.position(layout.units())), None);
        assert_eq!(layout.parts(-1), None);
        assert!(layout.id(7, 127, layout.position(layout.units()) - 1).is_some_and(|id| id == i64::MAX));
    }

    #[test]
    fn a_clock_before_the_epoch_has_no_unit() {
        assert_eq!(classic().unit_of(1_735_689_599_999), None);
        assert_eq!(classic().unit_of(1_735_689_600_000), Some(0));
    }

    proptest! {
        /// Every field comes back out of the id, ids of one worker rise with the cursor, and none is negative.
        #[test]
        fn fields_never_spill(t in 1u32..42, r in 1u32..11, w in 1u32..11, s in 1u32..13, unit in any::<u64>(),
                              slot in any::<u32>(), worker in any::<u32>(), n in any::<u64>()) {
            prop_assume!(t + r + w + s <= ID_BITS);
            let layout = Layout::new([t, r, w, s], 1, 0).unwrap();
            let (unit, slot, worker, n) =
                (unit % layout.units(), slot % layout.slots(), worker % layout.workers(), n % layout.per_unit());
            let position = layout.position(unit) + n;
            let id = layout.id(slot, worker, position).unwrap();
            prop_assert!(id >= 0);
            prop_assert_eq!(layout.parts(id), Some(Parts { unit, slot, worker, sequence: n }));
            if let Some(next) = layout.id(slot, worker, position + 1) {
                prop_assert!(next > id);
            }
        }
    }
}
