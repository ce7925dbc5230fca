//! Marks: the smallest thing that tells two histories of one store apart.
//!
//! A store that went back in time looks healthy from inside: the identifiers, the schema, even the
//! rows are right, they are merely yesterday's. So every transaction that could expose something
//! writes a row with a **random** id and raises its scope's sequence; the (generation, seq, row id,
//! bound) of the newest such row is the scope's mark. Everyone who sees a mark keeps it. A store is
//! current with a mark only if it **contains the row that the mark names**: a number alone would let
//! a restored store count past the number it lost.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::decimal;
use crate::ids::{CounterEnded, InvalidName, Name, RowId};

/// What a mark speaks about. Scopes share no row, so that one namespace never waits for another.
#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub enum Scope {
    /// Who exists: regions, namespaces, services, operators.
    Roster,
    /// The watermark of one namespace at the authority.
    Namespace(Name),
    /// Everything that one region's store carved, adopted or burned.
    Region,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Roster => f.write_str("roster"),
            Self::Region => f.write_str("region"),
            Self::Namespace(name) => write!(f, "ns/{name}"),
        }
    }
}

/// Not a scope.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a scope is `roster`, `region` or `ns/NAME`")]
pub struct InvalidScope;

impl From<InvalidName> for InvalidScope {
    fn from(_: InvalidName) -> Self {
        Self
    }
}

impl FromStr for Scope {
    type Err = InvalidScope;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "roster" => Ok(Self::Roster),
            "region" => Ok(Self::Region),
            _ => Ok(Self::Namespace(Name::new(text.strip_prefix("ns/").ok_or(InvalidScope)?)?)),
        }
    }
}

impl Serialize for Scope {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Scope {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// One stretch of a store's history in which nobody had reason to doubt it. Ordered by its counter;
/// the random part tells two generations apart that were opened with the same counter.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Ord, PartialOrd, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generation {
    /// Rises with every start, identity change, empty witness and proof.
    pub counter: u32,
    /// Drawn from the operating system when the generation is opened (31 bits: a JSON number).
    pub random: u32,
}

impl Generation {
    /// A generation above every one of `seen`, with the random part `random`.
    ///
    /// # Errors
    /// [`CounterEnded`] after 2^32 generations.
    pub fn above(seen: impl IntoIterator<Item = Self>, random: u32) -> Result<Self, CounterEnded> {
        let highest = seen.into_iter().map(|g| g.counter).max().unwrap_or(0);
        let counter = highest.checked_add(1).ok_or(CounterEnded("generation"))?;
        Ok(Self { counter, random: random >> 1 })
    }

    /// As one SQL integer that sorts as the generation does.
    #[must_use]
    pub fn to_sql(self) -> i64 {
        (i64::from(self.counter) << 31) | i64::from(self.random & 0x7fff_ffff)
    }

    /// Back from [`Self::to_sql`].
    #[must_use]
    pub fn from_sql(n: i64) -> Self {
        let counter = u32::try_from(n >> 31).unwrap_or(u32::MAX);
        Self { counter, random: u32::try_from(n & 0x7fff_ffff).unwrap_or(0) }
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:08x}", self.counter, self.random)
    }
}

/// The newest row of a scope, as somebody saw it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// The generation that wrote the row.
    pub generation: Generation,
    /// The row's place in the scope's history.
    #[serde(with = "decimal::unsigned")]
    pub seq: u64,
    /// The row.
    pub row: RowId,
    /// What could be exposed up to here: the watermark of a namespace (an ordinal, exclusive); 0 elsewhere.
    #[serde(with = "decimal::unsigned")]
    pub bound: u64,
}

impl Mark {
    /// The order of marks of one scope: generation first, because a new generation starts from
    /// everything that was known, whatever the older one counted to.
    #[must_use]
    pub fn version(&self) -> (Generation, u64) {
        (self.generation, self.seq)
    }

    /// Whether this mark is newer than `other`.
    #[must_use]
    pub fn is_above(&self, other: &Self) -> bool {
        self.version() > other.version()
    }
}

/// A scope and its mark: what is sent, kept and testified.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScopeMark {
    /// What the mark speaks about.
    pub scope: Scope,
    /// The mark.
    pub mark: Mark,
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn mark(counter: u32, seq: u64) -> Mark {
        Mark { generation: Generation { counter, random: 5 }, seq, row: RowId(Uuid::from_u128(9)), bound: 0 }
    }

    #[test]
    fn generation_comes_before_seq() {
        assert!(mark(2, 1).is_above(&mark(1, 900)));
        assert!(mark(1, 2).is_above(&mark(1, 1)));
        assert!(!mark(1, 1).is_above(&mark(1, 1)));
    }

    #[test]
    fn a_generation_survives_sql_and_sorts_there() {
        let low = Generation { counter: 1, random: 0x7fff_ffff };
        let high = Generation { counter: 2, random: 0 };
        assert!(low < high && low.to_sql() < high.to_sql());
        for g in [low, high, Generation { counter: u32::MAX, random: 3 }] {
            assert_eq!(Generation::from_sql(g.to_sql()), g);
        }
    }

    #[test]
    fn a_new_generation_is_above_all_that_were_seen() {
        let seen = [Generation { counter: 4, random: 1 }, Generation { counter: 9, random: 0x7fff_ffff }];
        let next = Generation::above(seen, u32::MAX).unwrap();
        assert!(seen.iter().all(|g| *g < next));
        assert!(Generation::above([Generation { counter: u32::MAX, random: 0 }], 1).is_err());
    }

    #[test]
    fn scopes_round_trip_as_text() {
        for text in ["roster", "region", "ns/orders"] {
            assert_eq!(text.parse::<Scope>().unwrap().to_string(), text);
        }
        assert!("ns/".parse::<Scope>().is_err());
        assert!("orders".parse::<Scope>().is_err());
    }
}
