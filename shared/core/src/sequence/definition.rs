//! The history of a namespace's sequences.
//!
//! Purpose: a definition can change while ranges are out. The new version begins at `next_unreserved`,
//! so that nobody holds ordinals above it, and every ordinal keeps the value that it always had.
//!
//! Invariant: versions are numbered 1, 2, 3 ..., begin in ascending order within the one before, and no
//! value of a granted ordinal comes again under a later version. A definition that breaks this cannot be
//! built, by serde neither.
//!
//! Who may change it: the mapping of an existing version may never change, for its values are out there.
//!
//! Absent on purpose: removing or editing a version, and the watermark itself (in `namespace`).

use serde::{Deserialize, Serialize};

use super::progression::first_common_value;
use super::{MAX_VERSIONS, Sequence, SequenceError};
use crate::decimal;
use crate::range::{MAX_ORDINAL, Range};

/// One sequence of a namespace, and the ordinal from which on it is in force.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DefinitionVersion {
    version: u32,
    #[serde(with = "decimal::unsigned")]
    from: u64,
    sequence: Sequence,
}

impl DefinitionVersion {
    /// 1 for the first, then 2, 3 ...
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// First ordinal that it applies to; that ordinal has the value `sequence().start()`.
    pub const fn from(&self) -> u64 {
        self.from
    }

    /// The sequence, whose own ordinal 0 is the namespace's ordinal `from`.
    pub const fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// One past the last ordinal that has a value under it, were it the last version.
    fn end(&self) -> u64 {
        self.from.saturating_add(self.sequence.capacity())
    }
}

/// The history of a namespace's sequences: never empty, ordered, and never forgetting one.
///
/// Version `v` applies to the ordinals from its `from` up to the next version's `from`; their value is
/// `sequence.start + (ordinal - from) * increment`.
#[derive(Clone, Eq, PartialEq, Debug, Serialize, Deserialize)]
#[serde(try_from = "WireDefinition", into = "WireDefinition")]
pub struct Definition {
    /// The versions before the last, oldest first.
    past: Vec<DefinitionVersion>,
    last: DefinitionVersion,
}

/// The unchecked form on the wire.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireDefinition {
    versions: Vec<DefinitionVersion>,
}

impl TryFrom<WireDefinition> for Definition {
    type Error = SequenceError;

    /// Builds the history again, version by version, with every check of `append`.
    fn try_from(wire: WireDefinition) -> Result<Definition, SequenceError> {
        let mut versions = wire.versions.into_iter();
        let first = versions.next().ok_or(SequenceError::BadHistory)?;
        let mut definition = Definition::first(first.sequence);
        if definition.last != first {
            return Err(SequenceError::BadHistory);
        }
        for version in versions {
            definition = definition.append(version.from, version.sequence)?;
            if definition.last != version {
                return Err(SequenceError::BadHistory);
            }
        }
        Ok(definition)
    }
}

impl From<Definition> for WireDefinition {
    fn from(definition: Definition) -> WireDefinition {
        let mut versions = definition.past;
        versions.push(definition.last);
        WireDefinition { versions }
    }
}

impl Definition {
    /// A namespace's first definition: version 1, from ordinal 0.
    pub const fn first(sequence: Sequence) -> Definition {
        Definition { past: Vec::new(), last: DefinitionVersion { version: 1, from: 0, sequence } }
    }

    /// The history with one more version, in force from `next_unreserved` on.
    ///
    /// `next_unreserved` is the watermark: every ordinal below it may have been granted, none at or above
    /// it has, and the caller's transaction holds it still. Ordinals that the version before it would
    /// have had from there on are never issued under it, so their values are free.
    ///
    /// # Errors
    /// [`SequenceError::Repeats`] if the new sequence has any value of any ordinal below
    /// `next_unreserved`, under whatever version; [`SequenceError::TooWide`] if its last ordinal would be
    /// above `MAX_ORDINAL`; [`SequenceError::NoOrdinalsLeft`]; [`SequenceError::Backwards`], [`SequenceError::BeyondCapacity`] if
    /// `next_unreserved` does not lie within the current version; [`SequenceError::TooManyVersions`].
    pub fn append(&self, next_unreserved: u64, sequence: Sequence) -> Result<Definition, SequenceError> {
        let from = next_unreserved;
        let (last, capacity) = (self.last.from, self.capacity());
        if from < last {
            return Err(SequenceError::Backwards { from, last });
        }
        if from > capacity {
            return Err(SequenceError::BeyondCapacity { from, capacity });
        }
        if self.past.len() + 2 > MAX_VERSIONS {
            return Err(SequenceError::TooManyVersions);
        }
        sequence.fits(MAX_ORDINAL.saturating_sub(from))?;
        self.refuse_repeats(from, sequence)?;
        let mut past = self.past.clone();
        past.push(self.last);
        let version = self.last.version.saturating_add(1);
        let last = DefinitionVersion { version, from, sequence };
        Ok(Definition { past, last })
    }

    /// Compares the whole new sequence with the ordinals below `next_unreserved` of each version.
    fn refuse_repeats(&self, next_unreserved: u64, sequence: Sequence) -> Result<(), SequenceError> {
        let Some(new) = sequence.values(sequence.capacity()) else {
            return Ok(());
        };
        let mut end = next_unreserved;
        for old in self.versions().rev() {
            let granted = old.sequence.values(end.saturating_sub(old.from));
            if let Some(value) = granted.and_then(|granted| first_common_value(granted, new)) {
                // A value of a sequence, hence within i64.
                let value = i64::try_from(value).unwrap_or(i64::MAX);
                let version = old.version;
                return Err(SequenceError::Repeats { value, version });
            }
            end = old.from;
        }
        Ok(())
    }

    /// All versions, oldest first; at least one, at most [`MAX_VERSIONS`].
    pub fn versions(&self) -> impl DoubleEndedIterator<Item = &DefinitionVersion> {
        self.past.iter().chain(std::iter::once(&self.last))
    }

    /// The version in force for ordinals that nobody holds yet.
    pub const fn current(&self) -> &DefinitionVersion {
        &self.last
    }

    /// Highest usable ordinal, exclusive; at most `MAX_ORDINAL`. Every ordinal below it has a value.
    pub fn capacity(&self) -> u64 {
        self.last.end().min(MAX_ORDINAL)
    }

    /// The highest value of any ordinal under any version; 0 where all are negative.
    pub fn largest_value(&self) -> u64 {
        let highest = |v: &DefinitionVersion| {
            let sequence = v.sequence();
            let last = sequence.value_at(sequence.capacity().saturating_sub(1));
            if sequence.increment() > 0 { last } else { Some(sequence.start()) }
        };
        self.versions().filter_map(highest).max().and_then(|n| u64::try_from(n).ok()).unwrap_or(0)
    }

    /// The version that applies to an ordinal. Every ordinal has one; at or above the capacity it is the
    /// current version, which has no value for it.
    pub fn version_of(&self, ordinal: u64) -> &DefinitionVersion {
        self.versions().rfind(|version| version.from <= ordinal).unwrap_or(&self.last)
    }

    /// The value of an ordinal; `None` at or above the capacity.
    pub fn value_at(&self, ordinal: u64) -> Option<i64> {
        let version = self.version_of(ordinal);
        version.sequence.value_at(ordinal.checked_sub(version.from)?)
    }

    /// The values of a range's first and last ordinal; `None` unless all of it has values and lies within
    /// one version (see [`Definition::clip`]).
    pub fn first_last(&self, range: Range) -> Option<(i64, i64)> {
        if self.clip(range) != range {
            return None;
        }
        Some((self.value_at(range.lo())?, self.value_at(range.hi() - 1)?))
    }

    /// The ordinals that have the value, in ascending order: none or one, as values do not repeat.
    /// Whether that ordinal was ever granted is for the ledger to say.
    pub fn origin_ordinals(&self, value: i64) -> Vec<u64> {
        self.versions()
            .filter_map(|version| {
                let ordinal = version.from.checked_add(version.sequence.ordinal_of(value)?)?;
                (self.version_of(ordinal) == version).then_some(ordinal)
            })
            .collect()
    }

    /// The front part of a range that lies within one version, so that old and new never mix in a
    /// segment. It does not look at the capacity: a range is granted below it.
    pub fn clip(&self, range: Range) -> Range {
        self.versions()
            .find(|version| version.from > range.lo())
            .and_then(|next| range.split_at(next.from))
            .map_or(range, |(front, _)| front)
    }
}
