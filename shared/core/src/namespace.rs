//! A namespace: its definition, its policy, and the authority's one decision, the grant.
//!
//! The decision moves a watermark: everything below it was given to somebody, everything at or above
//! it to nobody. **The new lower bound is the stored old end**, never "end minus step": where the last
//! range is clamped at the ceiling, a step subtracted from it would point into what was granted.

use serde::{Deserialize, Serialize};

use crate::decimal;
use crate::ids::Name;
use crate::layout::Layout;
use crate::range::Range;
use crate::sequence::{Definition, Sequence, SequenceError};
use crate::window::Slot;

/// What sort of ids a namespace has.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NamespaceKind {
    /// Values of a sequence definition.
    #[default]
    Range,
    /// Time, region, worker and sequence in 63 bits. Nothing is granted of it itself: each of its slots has a number
    /// line of its own.
    Snowflake,
    /// UUIDs of RFC 9562, version 7: no coordination, and unique only with all probability.
    UuidV7,
    /// The number line of one slot of a `snowflake` namespace: its ordinals are units of time. Made by the authority,
    /// never by an operator, and shown with its namespace.
    Slot,
}

impl NamespaceKind {
    /// The word used in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Range => "range",
            Self::Snowflake => "snowflake",
            Self::UuidV7 => "uuid_v7",
            Self::Slot => "slot",
        }
    }
}

/// A namespace as the roster knows it. Its watermark is not here: it changes with every grant and
/// stands in the namespace's own scope.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamespaceEntry {
    /// The sort of ids.
    pub kind: NamespaceKind,
    /// How an ordinal becomes a value.
    pub definition: Definition,
    /// Sizes and times.
    pub policy: Policy,
    /// No new ranges, at any tier.
    #[serde(default)]
    pub frozen: bool,
    /// Hidden and frozen; a create of the same name goes on at the watermark.
    #[serde(default)]
    pub deleted: bool,
    /// The regions that may issue here; `None` is all of them.
    #[serde(default)]
    pub home: Option<Vec<Name>>,
    /// Regions that a switch is about to leave: they go on with what they hold, and are granted nothing new.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaving: Vec<Name>,
    /// Regions that a switch is about to move to: they are granted what they will need, and issue nothing yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arriving: Vec<Name>,
    /// How the bits of a time-based id are shared; it never changes. Of kinds `snowflake` and `slot`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<Layout>,
    /// Whose slot it is. Of kind `slot`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<Box<Slot>>,
    /// Who reads its ids, and up to which value each can.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readers: Vec<Reader>,
}

/// A program, a column or a format that takes the ids, and the largest value that it takes: 2^31-1, 2^53-1 (whatever
/// parses JSON as JavaScript does), 2^63-1.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reader {
    /// A name for people.
    pub name: Name,
    /// The largest value, included.
    #[serde(with = "decimal::unsigned")]
    pub up_to: u64,
}

/// Sizes and times of one namespace. The defaults suit 64-bit ids at up to 10^5 a second and region.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// Ordinals in a region's first grant; later ones follow its rate.
    #[serde(with = "decimal::unsigned")]
    pub grant_size: u64,
    /// The most that one grant may hold, whoever asks.
    #[serde(with = "decimal::unsigned")]
    pub grant_max: u64,
    /// The most that a region may hold unissued: a stolen region token cannot eat the space.
    #[serde(with = "decimal::unsigned")]
    pub region_max_held: u64,
    /// The least that a segment holds.
    #[serde(with = "decimal::unsigned")]
    pub segment_min: u64,
    /// The most that a segment holds.
    #[serde(with = "decimal::unsigned")]
    pub segment_max: u64,
    /// How long a segment should last, in seconds.
    pub target_seconds: u32,
    /// How long a grant should last at the peak rate, in seconds: the WAN outage to be survived.
    pub grant_target_seconds: u32,
    /// A refill starts when what is left would last no longer than this, in seconds.
    pub buffer_seconds: u32,
    /// Headroom is kept for the peak rate times this.
    pub surge_factor: u32,
    /// A refill starts at the latest when this share of the last range is left, in percent.
    pub floor_percent: u32,
    /// Ordinals in a block per service; 0 lets all services of a region share its grants.
    #[serde(with = "decimal::unsigned")]
    pub service_block: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            grant_size: 1_000_000,
            grant_max: 100_000_000_000,
            region_max_held: 200_000_000_000,
            segment_min: 1_000,
            segment_max: 1_000_000,
            target_seconds: 60,
            grant_target_seconds: 86_400,
            buffer_seconds: 15,
            surge_factor: 2,
            floor_percent: 10,
            service_block: 0,
        }
    }
}

/// A relation between settings that cannot hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy.{field}: {problem}")]
pub struct PolicyError {
    /// The setting's name.
    pub field: &'static str,
    /// What to do about it.
    pub problem: &'static str,
}

impl Policy {
    /// The defaults where they fit `capacity`: no size above a hundredth of a small space.
    #[must_use]
    pub fn fitting(mut self, capacity: u64) -> Self {
        let share = (capacity / 100).max(1);
        self.grant_max = self.grant_max.min(capacity.max(1));
        self.grant_size = self.grant_size.min(share).min(self.grant_max);
        // Above the first grant where the space is wide: later grants follow the rate, and so do segments.
        self.segment_max = self.segment_max.min(share);
        self.segment_min = self.segment_min.min(self.segment_max);
        self
    }

    /// Checks every relation between the settings.
    ///
    /// # Errors
    /// [`PolicyError`] with the name of the setting that is out of place.
    pub fn check(&self) -> Result<(), PolicyError> {
        let rules: [(bool, &'static str, &'static str); 13] = [
            (self.grant_size >= 1, "grant_size", "must be at least 1"),
            (self.grant_size <= self.grant_max, "grant_size", "must not exceed grant_max"),
            (self.grant_max <= crate::range::MAX_ORDINAL, "grant_max", "must not exceed 2^63-1"),
            (self.region_max_held <= crate::range::MAX_ORDINAL, "region_max_held", "must not exceed 2^63-1"),
            (self.service_block <= crate::range::MAX_ORDINAL, "service_block", "must not exceed 2^63-1"),
            (self.region_max_held >= self.grant_size, "region_max_held", "must hold at least one grant_size"),
            (self.segment_min >= 1, "segment_min", "must be at least 1"),
            (self.segment_min <= self.segment_max, "segment_min", "must not exceed segment_max"),
            (self.segment_max <= 1 << 32, "segment_max", "must not exceed 2^32"),
            (self.target_seconds > self.buffer_seconds, "target_seconds", "must exceed buffer_seconds"),
            (
                self.grant_target_seconds >= self.target_seconds,
                "grant_target_seconds",
                "must be at least target_seconds",
            ),
            ((1..=1_000).contains(&self.surge_factor), "surge_factor", "must be 1 to 1000"),
            (self.floor_percent <= 90, "floor_percent", "must be at most 90"),
        ];
        match rules.into_iter().find(|(holds, _, _)| !holds) {
            None => Ok(()),
            Some((_, field, problem)) => Err(PolicyError { field, problem }),
        }
    }
}

impl NamespaceEntry {
    /// A live namespace of kind `range`.
    #[must_use]
    pub fn new(sequence: Sequence, policy: Policy) -> Self {
        Self {
            kind: NamespaceKind::Range,
            definition: Definition::first(sequence),
            policy,
            frozen: false,
            deleted: false,
            home: None,
            leaving: Vec::new(),
            arriving: Vec::new(),
            layout: None,
            slot: None,
            readers: Vec::new(),
        }
    }

    /// A live namespace of kind `snowflake`. Its ordinals are units of time.
    ///
    /// # Errors
    /// Those of the sequence of units; a layout that exists has none.
    pub fn snowflake(layout: Layout, policy: Policy) -> Result<Self, SequenceError> {
        let last = i64::try_from(layout.units() - 1).unwrap_or(i64::MAX - 1);
        let units = Sequence::new(0, 1, 0, last)?;
        Ok(Self { kind: NamespaceKind::Snowflake, layout: Some(layout), ..Self::new(units, policy) })
    }

    /// A live namespace of kind `uuid_v7`.
    #[must_use]
    pub fn uuid_v7(policy: Policy) -> Self {
        Self { kind: NamespaceKind::UuidV7, ..Self::new(Sequence::default(), policy) }
    }

    /// The number line of one of its slots.
    #[must_use]
    pub fn slot_line(&self, slot: Slot) -> Self {
        Self {
            kind: NamespaceKind::Slot,
            home: Some(vec![slot.region.clone()]),
            slot: Some(Box::new(slot)),
            ..self.clone()
        }
    }

    /// Whether it is one that operators make and services ask for.
    #[must_use]
    pub fn is_public(&self) -> bool {
        self.kind != NamespaceKind::Slot
    }

    /// The first reader that could be given a value which it does not take.
    #[must_use]
    pub fn overwhelmed(&self) -> Option<&Reader> {
        let largest = self.largest_value();
        self.readers.iter().find(|reader| reader.up_to < largest)
    }

    /// The highest value that it could ever give out, whoever is granted what and when.
    #[must_use]
    pub fn largest_value(&self) -> u64 {
        match (self.kind, &self.layout) {
            (NamespaceKind::UuidV7, _) => 0,
            (_, Some(layout)) => layout.largest_id(),
            (_, None) => self.definition.largest_value(),
        }
    }

    /// Whether `region` may issue here.
    #[must_use]
    pub fn is_home(&self, region: &Name) -> bool {
        self.home.as_ref().is_none_or(|regions| regions.contains(region))
    }

    /// Whether `region` may hold ranges of it, or time: it issues here, or is about to.
    ///
    /// # Errors
    /// Why not.
    pub fn may_hold(&self, region: &Name) -> Result<(), GrantRefusal> {
        if !self.is_home(region) && !self.arriving.contains(region) {
            return Err(GrantRefusal::NotHome);
        }
        if self.leaving.contains(region) {
            return Err(GrantRefusal::Leaving);
        }
        Ok(())
    }
}

/// Why there is no grant.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum GrantRefusal {
    /// The space is used up, for good.
    #[error("every number of this namespace has been granted")]
    Exhausted,
    /// Frozen or deleted.
    #[error("this namespace is frozen: nothing new is granted")]
    Frozen,
    /// The region holds all that the policy lets it hold.
    #[error("the region holds {held} unissued, and region_max_held is {limit}")]
    HoldsEnough {
        /// Unissued ordinals it holds.
        held: u64,
        /// The policy's limit.
        limit: u64,
    },
    /// The region is outside the namespace's home.
    #[error("the namespace's home does not include this region")]
    NotHome,
    /// A switch is about to leave the region.
    #[error("the namespace is about to leave this region: it goes on with what it holds")]
    Leaving,
}

/// The range to grant to a region that asks for `want` ordinals and holds `held` unissued ones,
/// when everything below `watermark` is given. The next watermark is the range's end.
///
/// # Errors
/// [`GrantRefusal`]; nothing is to be written then.
pub fn decide_grant(
    watermark: u64,
    namespace: &NamespaceEntry,
    region: &Name,
    want: u64,
    held: u64,
) -> Result<Range, GrantRefusal> {
    if namespace.frozen || namespace.deleted {
        return Err(GrantRefusal::Frozen);
    }
    namespace.may_hold(region)?;
    let left = namespace.definition.capacity().saturating_sub(watermark);
    if left == 0 {
        return Err(GrantRefusal::Exhausted);
    }
    let limit = namespace.policy.region_max_held;
    let room = limit.saturating_sub(held);
    if room == 0 {
        return Err(GrantRefusal::HoldsEnough { held, limit });
    }
    let small_space = (left / 100).max(1);
    let size = want.max(1).min(namespace.policy.grant_max).min(room).min(small_space);
    let whole = Range::new(watermark, watermark + size.min(left)).map_err(|_| GrantRefusal::Exhausted)?;
    Ok(namespace.definition.clip(whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn namespace(max: i64) -> NamespaceEntry {
        let sequence = Sequence::new(1, 1, 1, max).unwrap();
        NamespaceEntry::new(sequence, Policy { grant_max: 1 << 40, ..Policy::default() })
    }

    fn eu() -> Name {
        Name::new("eu").unwrap()
    }

    #[test]
    fn defaults_hold_together() {
        Policy::default().check().unwrap();
        for capacity in [1, 5, 99, 1_000, 1 << 31, u64::MAX >> 1] {
            Policy::default().fitting(capacity).check().unwrap();
        }
    }

    #[test]
    fn an_impossible_relation_names_its_setting() {
        let policy = Policy { segment_min: 9, segment_max: 8, ..Policy::default() };
        assert_eq!(policy.check().unwrap_err().field, "segment_min");
    }

    #[test]
    fn a_reader_that_takes_too_little_is_named() {
        let mut ns = namespace(i64::from(i32::MAX) + 1);
        ns.readers.push(Reader { name: Name::new("till").unwrap(), up_to: i32::MAX as u64 });
        assert_eq!(ns.overwhelmed().map(|r| r.name.as_str()), Some("till"));
        ns.definition = namespace(i64::from(i32::MAX)).definition;
        assert_eq!(ns.overwhelmed(), None);
        let layout = Layout::new([41, 3, 7, 12], 1, 0).unwrap();
        let mut events = NamespaceEntry::snowflake(layout, Policy::default()).unwrap();
        events.readers.push(Reader { name: Name::new("page").unwrap(), up_to: (1 << 53) - 1 });
        assert!(events.overwhelmed().is_some());
        events.layout = Some(Layout::new([41, 2, 3, 7], 10, 0).unwrap());
        assert_eq!(events.overwhelmed(), None);
    }

    #[test]
    fn refusals_say_why() {
        let mut ns = namespace(1_000);
        assert_eq!(decide_grant(1_000, &ns, &eu(), 5, 0), Err(GrantRefusal::Exhausted));
        ns.policy.region_max_held = 10;
        assert!(matches!(decide_grant(0, &ns, &eu(), 5, 10), Err(GrantRefusal::HoldsEnough { .. })));
        ns.home = Some(vec![Name::new("us").unwrap()]);
        assert_eq!(decide_grant(0, &ns, &eu(), 5, 0), Err(GrantRefusal::NotHome));
        ns.arriving.push(eu());
        assert!(decide_grant(0, &ns, &eu(), 5, 0).is_ok() && !ns.is_home(&eu()));
        (ns.home, ns.leaving) = (None, vec![eu()]);
        assert_eq!(decide_grant(0, &ns, &eu(), 5, 0), Err(GrantRefusal::Leaving));
        ns.deleted = true;
        assert_eq!(decide_grant(0, &ns, &eu(), 5, 0), Err(GrantRefusal::Frozen));
    }

    proptest! {
        /// Case: clamped at the ceiling. Granting until the end gives every ordinal once and the
        /// remainder whole, for spaces that no grant size divides.
        #[test]
        fn grants_tile_the_space(max in 1i64..5_000, want in 1u64..700) {
            let ns = namespace(max);
            let mut watermark = 0;
            loop {
                match decide_grant(watermark, &ns, &eu(), want, 0) {
                    Ok(range) => {
                        prop_assert_eq!(range.lo(), watermark);
                        watermark = range.hi();
                    }
                    Err(refusal) => {
                        prop_assert_eq!(refusal, GrantRefusal::Exhausted);
                        break;
                    }
                }
            }
            prop_assert_eq!(watermark, u64::try_from(max).unwrap());
        }

        /// The whole number line: no watermark makes it panic, wrap or leave the capacity.
        #[test]
        fn any_watermark_is_safe(watermark in 0u64..=u64::MAX, want in 0u64..=u64::MAX, held in 0u64..=u64::MAX) {
            let ns = namespace(i64::MAX);
            if let Ok(range) = decide_grant(watermark, &ns, &eu(), want, held) {
                prop_assert_eq!(range.lo(), watermark);
                prop_assert!(range.hi() <= ns.definition.capacity());
            }
        }
    }
}
