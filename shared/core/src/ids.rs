//! Identifiers: newtypes, so that an epoch can never be passed where a session is meant.
//!
//! Counters have a checked `next`: an identity that would wrap is refused, never reused. Random ids
//! are made outside (see the entropy door of the runtime) and only carried here.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A counter ran out of numbers. With 63 bits this is an operator's mistake or a damaged row.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the {0} counter is at its end and is never reused")]
pub struct CounterEnded(pub &'static str);

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident, $inner:ty, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Ord, PartialOrd, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The following value; refused at the end of the SQL integer range.
            ///
            /// # Errors
            /// [`CounterEnded`] when there is no following value.
            pub fn next(self) -> Result<Self, CounterEnded> {
                match self.0.checked_add(1) {
                    Some(n) if i64::try_from(n).is_ok() => Ok(Self(n)),
                    _ => Err(CounterEnded($what)),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

counter!(
    /// A region's number in the registry. Never used again, not even after the region is retired.
    RegionId, u32, "region id"
);
counter!(
    /// Rises at fence, at recover, and when the region's store proved to have gone back. Starts at 1.
    Epoch, u64, "epoch"
);
counter!(
    /// One start of an agent on a store: the store hands them out in order.
    SessionNo, u64, "session"
);
counter!(
    /// The place of a request within its session. An older number is a late copy.
    RequestNo, u64, "request"
);

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0.hyphenated())
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self)
            }
        }
    };
}

random_id!(
    /// One switch of a home.
    SwitchId
);
random_id!(
    /// One drill.
    DrillId
);
random_id!(
    /// One Cadastre installation: made when its first authority store is initialised.
    ClusterId
);
random_id!(
    /// One store of a region (or of the authority). A copy carries the same id: sessions and marks tell copies apart.
    StoreId
);
random_id!(
    /// One process start. Segments and worker windows belong to the living incarnation.
    Incarnation
);
random_id!(
    /// The id of a mark row. Random, so that two histories of one store never agree by chance.
    RowId
);
random_id!(
    /// One range granted to a region.
    GrantId
);
random_id!(
    /// A carve whose holder is a service; segments of that service come out of it.
    BlockId
);
random_id!(
    /// One range handed to an instance.
    SegmentId
);

/// Names one request for a range, across every retry. A UUIDv7, so that its age can be read from it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash, Serialize)]
#[serde(transparent)]
pub struct AllocationId(Uuid);

/// Not a UUIDv7.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("an allocation id is a UUID of version 7: make a fresh one per range and keep it over retries")]
pub struct NotVersionSeven;

impl AllocationId {
    /// A request that nothing is kept of.
    pub const NONE: Self = Self(Uuid::nil());

    /// Accepts a UUIDv7 only.
    ///
    /// # Errors
    /// [`NotVersionSeven`] for any other UUID.
    pub fn new(id: Uuid) -> Result<Self, NotVersionSeven> {
        if id.get_version_num() == 7 { Ok(Self(id)) } else { Err(NotVersionSeven) }
    }

    /// When it was made, by its maker's clock, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn made_at_ms(self) -> u64 {
        u64::try_from(self.0.as_u128() >> 80).unwrap_or(0)
    }

    /// The UUID.
    #[must_use]
    pub fn uuid(self) -> Uuid {
        self.0
    }
}

impl<'de> Deserialize<'de> for AllocationId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(Uuid::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl FromStr for AllocationId {
    type Err = NotVersionSeven;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(Uuid::parse_str(text).map_err(|_| NotVersionSeven)?)
    }
}

impl fmt::Display for AllocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.hyphenated())
    }
}

/// The name of a namespace, region, service or instance: 1 to 128 of `A-Z a-z 0-9 _ - . :`, starting
/// with a letter or digit. It goes into URLs, SQL and metric labels, so nothing else is let in.
#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd, Hash, Serialize)]
#[serde(transparent)]
pub struct Name(String);

/// The longest [`Name`], in bytes; the product's own names of slots (`NAME@3`) may be longer by theirs.
pub const MAX_NAME_BYTES: usize = 128;
const MAX_SLOT_DIGITS: usize = 4;

/// Not a name.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a name has 1 to {MAX_NAME_BYTES} characters of A-Z a-z 0-9 _ - . : and starts with a letter or a digit")]
pub struct InvalidName;

impl Name {
    /// Checks and takes a name.
    ///
    /// # Errors
    /// [`InvalidName`] when it is empty, too long or has other characters.
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidName> {
        let text = text.into();
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
        let (plain, slot) = text.split_once('@').map_or((text.as_str(), None), |(plain, slot)| (plain, Some(slot)));
        let starts_well = plain.chars().next().is_some_and(|c| c.is_ascii_alphanumeric());
        let ends_well =
            slot.is_none_or(|s| s.len() <= MAX_SLOT_DIGITS && s.parse::<u32>().is_ok_and(|n| n.to_string() == s));
        if starts_well && ends_well && plain.len() <= MAX_NAME_BYTES && plain.chars().all(allowed) {
            Ok(Self(text))
        } else {
            Err(InvalidName)
        }
    }

    /// What the authority is called where it acts itself.
    #[must_use]
    pub fn authority() -> Self {
        Self("authority".to_owned())
    }

    /// The name of a slot's number line in a time-based namespace: `NAME@SLOT`. Only the product makes such names.
    #[must_use]
    pub fn of_slot(&self, slot: u32) -> Self {
        Self(format!("{}@{slot}", self.0))
    }

    /// Whether it is the name of a slot's number line.
    #[must_use]
    pub fn is_of_slot(&self) -> bool {
        self.0.contains('@')
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl FromStr for Name {
    type Err = InvalidName;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_checked() {
        assert_eq!(Epoch(1).next(), Ok(Epoch(2)));
        assert!(Epoch(i64::MAX as u64).next().is_err(), "beyond the SQL integer range");
        assert!(RegionId(u32::MAX).next().is_err());
    }

    #[test]
    fn only_version_seven_names_an_allocation() {
        let v7 = "01939d5b-7c00-7abc-8def-0123456789ab";
        assert_eq!(v7.parse::<AllocationId>().unwrap().made_at_ms(), 0x0193_9d5b_7c00);
        assert!("a8098c1a-f86e-41da-bd1a-00112444be1e".parse::<AllocationId>().is_err());
        assert!(serde_json::from_str::<AllocationId>("\"a8098c1a-f86e-41da-bd1a-00112444be1e\"").is_err());
    }

    #[test]
    fn names_are_checked_at_every_door() {
        for good in ["orders", "a", "9", "shop.orders", "Orders_2", "a:b-c", "a@0", "a@1023"] {
            assert!(Name::new(good).is_ok(), "{good}");
        }
        let long = "x".repeat(129);
        for bad in [
            "",
            "-a",
            ".a",
            "a b",
            "a/b",
            "ä",
            "a\n",
            "a'",
            "a@",
            "@1",
            "a@b",
            "a@01",
            "a@1@2",
            "a@12345",
            long.as_str(),
        ] {
            assert!(Name::new(bad).is_err(), "{bad:?}");
            assert!(serde_json::from_value::<Name>(serde_json::json!(bad)).is_err(), "{bad:?}");
        }
    }
}
