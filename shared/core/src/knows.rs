//! What a process can read: which kinds, which form of layouts, and how large a value.
//!
//! Agents say it with every message to the authority, processes that issue by themselves with every request to an agent.
//! Nobody is given what it cannot read: an agent refuses such a process, and nothing is defined, and no region added,
//! that an agent or a process heard of lately could not follow; the refusal names each. Who says nothing is of the first
//! version, which knew what [`Knows::first`] says. Uniqueness does not rest on it: a wrong word here can make a reader
//! stumble, never an id come twice.

use serde::{Deserialize, Serialize};

use crate::decimal;
use crate::ids::Name;
use crate::namespace::{NamespaceEntry, NamespaceKind};

/// The newest form of layouts: timestamp, region, worker, sequence from the top, 63 bits in all.
const LAYOUTS: u32 = 1;
/// Whoever was not heard of for so long does not count any more, in milliseconds: an hour. A process that comes back later
/// is refused by its agent, so a short time loses nothing but the warning.
pub const COUNTS_MS: u64 = 3_600_000;
/// Of so many processes an agent speaks at once, and so many it remembers; the others take turns.
pub const CLIENTS_PER_MESSAGE: usize = 64;
/// An agent remembers so many processes that know less than it does.
pub const CLIENTS_REMEMBERED: usize = 1_024;

/// See the module's documentation.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Knows {
    /// The largest value that it takes, included.
    #[serde(with = "decimal::unsigned")]
    pub largest: u64,
    /// The kinds of namespaces: `range`, `snowflake`, `uuid_v7`.
    pub kinds: Vec<String>,
    /// The newest form of layouts that it can take apart; 0 is none.
    pub layouts: u32,
}

impl Knows {
    /// All of this build.
    #[must_use]
    pub fn all() -> Self {
        Self::first()
    }

    /// What the first version knew, and whoever says nothing.
    #[must_use]
    pub fn first() -> Self {
        let kinds = [NamespaceKind::Range, NamespaceKind::Snowflake, NamespaceKind::UuidV7];
        let kinds = kinds.iter().map(|kind| kind.as_str().to_owned()).collect();
        Self { largest: i64::MAX as u64, kinds, layouts: LAYOUTS }
    }

    /// What of it concerns this build: kinds that it does not know are left out, so that what is kept is bounded.
    #[must_use]
    pub fn here(&self) -> Self {
        let kinds = Self::all().kinds.into_iter().filter(|kind| self.kinds.contains(kind)).collect();
        Self { largest: self.largest, kinds, layouts: self.layouts.min(LAYOUTS) }
    }

    /// Whether it reads whatever this build can give out.
    #[must_use]
    pub fn is_all(&self) -> bool {
        let all = Self::all();
        self.largest >= all.largest && self.layouts >= all.layouts && all.kinds.iter().all(|k| self.kinds.contains(k))
    }

    /// What a namespace could give out that it does not read; for people.
    #[must_use]
    pub fn lacks(&self, entry: &NamespaceEntry) -> Option<String> {
        if !self.kinds.iter().any(|kind| kind == entry.kind.as_str()) {
            return Some(format!("knows nothing of kind {}", entry.kind.as_str()));
        }
        if entry.layout.is_some() && self.layouts < LAYOUTS {
            return Some(format!("knows layouts up to form {}, and this one is of form {LAYOUTS}", self.layouts));
        }
        let largest = entry.largest_value();
        (largest > self.largest)
            .then(|| format!("takes values up to {}, and this namespace could give out {largest}", self.largest))
    }
}

/// A process, or an agent, and what it knows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Knower {
    /// Who, for people.
    pub who: String,
    /// The only namespace that it reads; an agent reads all.
    pub only: Option<Name>,
    /// What it said.
    pub knows: Knows,
}

/// Those who could not follow, each with the reason and the namespace.
pub fn left_behind<'a>(
    knowers: &[Knower],
    namespaces: impl Iterator<Item = (&'a Name, &'a NamespaceEntry)>,
) -> Vec<String> {
    let mut found = Vec::new();
    for (name, entry) in namespaces.filter(|(_, entry)| entry.is_public() && !entry.deleted) {
        for knower in knowers.iter().filter(|knower| knower.only.as_ref().is_none_or(|only| only == name)) {
            if let Some(lack) = knower.knows.lacks(entry) {
                found.push(format!("{} {lack} ({name})", knower.who));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use crate::namespace::Policy;
    use crate::sequence::Sequence;

    const SAFE: u64 = (1 << 53) - 1;

    fn up_to(largest: u64) -> Knows {
        Knows { largest, ..Knows::all() }
    }

    fn range(max: u64) -> NamespaceEntry {
        let sequence = Sequence::new(1, 1, 1, i64::try_from(max).unwrap()).unwrap();
        NamespaceEntry::new(sequence, Policy::default())
    }

    #[test]
    fn this_build_and_the_first_read_everything() {
        let events = NamespaceEntry::snowflake(Layout::default(), Policy::default()).unwrap();
        for knows in [Knows::all(), Knows::first()] {
            assert!(knows.is_all());
            assert_eq!(knows.lacks(&range(i64::MAX as u64)), None);
            assert_eq!(knows.lacks(&events), None);
            assert_eq!(knows.lacks(&NamespaceEntry::uuid_v7(Policy::default())), None);
        }
    }

    #[test]
    fn a_value_a_kind_or_a_layout_that_is_not_known_is_named() {
        let events = NamespaceEntry::snowflake(Layout::default(), Policy::default()).unwrap();
        assert_eq!(up_to(SAFE).lacks(&range(SAFE)), None);
        assert!(up_to(SAFE).lacks(&range(SAFE + 1)).unwrap().contains("9007199254740992"));
        assert!(up_to(SAFE).lacks(&events).unwrap().contains("up to 9007199254740991"));
        assert_eq!(up_to(0).lacks(&NamespaceEntry::uuid_v7(Policy::default())), None, "no number at all");
        let numbers = Knows { kinds: vec!["range".to_owned()], ..Knows::all() };
        assert!(numbers.lacks(&events).unwrap().contains("kind snowflake"));
        assert!(Knows { layouts: 0, ..Knows::all() }.lacks(&events).unwrap().contains("form 1"));
    }

    #[test]
    fn what_this_build_does_not_know_is_not_kept() {
        let told = Knows { kinds: vec!["range".to_owned(), "dates".to_owned()], layouts: 9, ..Knows::all() };
        assert_eq!(told.here(), Knows { kinds: vec!["range".to_owned()], layouts: 1, ..Knows::all() });
    }

    #[test]
    fn a_process_is_asked_of_its_own_namespace_only() {
        let (orders, notes) = (Name::new("orders").unwrap(), Name::new("notes").unwrap());
        let (wide, hidden) = (range(SAFE + 1), NamespaceEntry { deleted: true, ..range(SAFE + 1) });
        let till = Knower { who: "till".to_owned(), only: Some(orders.clone()), knows: up_to(SAFE) };
        let agent = Knower { who: "eu".to_owned(), only: None, knows: up_to(SAFE) };
        let knowers = [till, agent];
        let found = left_behind(&knowers, [(&orders, &wide), (&notes, &wide)].into_iter());
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("till takes") && found[0].ends_with("(orders)"), "{found:?}");
        assert!(left_behind(&knowers, [(&orders, &hidden)].into_iter()).is_empty());
    }
}
