//! The roster: who exists. Regions, namespaces, services, operators.
//!
//! It is one scope with marks of its own, and everybody keeps a copy: an authority that lost a week
//! learns from any region which regions, namespaces and revocations it has forgotten. So every entry
//! carries the (generation, seq) of the transaction that wrote it, and two rosters are united entry
//! by entry, the newest one each.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::decimal;
use crate::ids::{Epoch, Name, RegionId, StoreId};
use crate::mark::Generation;
use crate::namespace::{NamespaceEntry, NamespaceKind};
use crate::registry::RegionState;

/// The sort of thing an entry describes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A region.
    Region,
    /// A namespace.
    Namespace,
    /// A service that may ask for ids.
    Service,
    /// A person or script that operates, or only reads.
    Operator,
}

impl Kind {
    /// The word used in SQL and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Region => "region",
            Self::Namespace => "namespace",
            Self::Service => "service",
            Self::Operator => "operator",
        }
    }
}

/// What an entry says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// A region.
    Region(RegionEntry),
    /// A namespace.
    Namespace(NamespaceEntry),
    /// A service.
    Service(ServiceEntry),
    /// An operator or viewer.
    Operator(OperatorEntry),
}

impl Body {
    /// The sort of thing.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Region(_) => Kind::Region,
            Self::Namespace(_) => Kind::Namespace,
            Self::Service(_) => Kind::Service,
            Self::Operator(_) => Kind::Operator,
        }
    }
}

/// One versioned entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The generation that wrote it.
    pub generation: Generation,
    /// The roster's seq at that time.
    #[serde(with = "decimal::unsigned")]
    pub seq: u64,
    /// Its name, unique within its kind, for ever.
    pub name: Name,
    /// What it says.
    pub body: Body,
    /// The authority's seal, on what it sends to regions: they give it back when they testify, and cannot make one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
}

impl Entry {
    /// (generation, seq): the newest entry of a key wins.
    #[must_use]
    pub fn version(&self) -> (Generation, u64) {
        (self.generation, self.seq)
    }

    /// Kind and name.
    #[must_use]
    pub fn key(&self) -> (Kind, Name) {
        (self.body.kind(), self.name.clone())
    }
}

/// A region as the roster knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegionEntry {
    /// Its number.
    pub region_id: RegionId,
    /// Its present epoch.
    pub epoch: Epoch,
    /// Where it stands.
    pub state: RegionState,
    /// The store that its first authenticated call bound.
    pub store_id: Option<StoreId>,
    /// Whether no other region had ever been active when it became so. The first region needs nobody
    /// to vouch for it; see [`crate::continuity::may_have_first_grant`].
    pub founder: bool,
    /// Its tokens.
    pub tokens: Vec<TokenEntry>,
    /// An operator allowed the next unknown store to be bound.
    #[serde(default)]
    pub rejoin: bool,
}

/// A service: the authenticated caller of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceEntry {
    /// The namespaces it may ask for.
    pub namespaces: Vec<Name>,
    /// How much it may ask for.
    pub limits: Limits,
    /// Its tokens.
    pub tokens: Vec<TokenEntry>,
}

/// Per-service limits, kept by each agent; the last two by the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// IDs a second, over a second's burst; `None` is no limit.
    pub ids_per_second: Option<u32>,
    /// Requests at once; `None` is no limit.
    pub in_flight: Option<u32>,
    /// IDs in one request as a list; at most 10,000.
    pub batch: u32,
    /// Processes that take segments, in one region; `None` is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holders: Option<u32>,
    /// IDs that those may hold unissued, in one region; `None` is no limit.
    #[serde(with = "decimal::optional", skip_serializing_if = "Option::is_none")]
    pub held_ids: Option<u64>,
}

/// The largest `count` of one request that is answered as a list.
pub const MAX_LIST: u64 = 10_000;
/// The largest `count` of one request that is answered as ranges.
pub const MAX_RANGES: u64 = 10_000_000;

impl Default for Limits {
    fn default() -> Self {
        Self { ids_per_second: None, in_flight: None, batch: MAX_LIST as u32, holders: None, held_ids: None }
    }
}

/// Somebody who operates, or only looks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorEntry {
    /// Whether it may only read.
    pub viewer: bool,
    /// Its tokens.
    pub tokens: Vec<TokenEntry>,
}

/// A token: only its SHA-256 is ever stored. A revoked one stays listed, so that a restored store
/// cannot forget the revocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenEntry {
    /// Names the token in lists and revocations; not a secret.
    pub token_id: String,
    /// Lower-case hex SHA-256 of the whole token text.
    pub sha256: String,
    /// When it was made, milliseconds since the Unix epoch.
    pub made_at_ms: u64,
    /// When it was revoked.
    #[serde(default)]
    pub revoked_at_ms: Option<u64>,
}

/// Those of one kind. Copies share it until one of them is changed, and share the entries for ever.
type Shelf = Arc<BTreeMap<Name, Arc<Entry>>>;

/// All entries, by kind and name. A copy is cheap: a change of one namespace of ten thousand makes one new definition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Roster {
    kinds: BTreeMap<Kind, Shelf>,
}

impl Roster {
    /// The entry of a key.
    #[must_use]
    pub fn get(&self, kind: Kind, name: &Name) -> Option<&Entry> {
        self.kinds.get(&kind)?.get(name).map(AsRef::as_ref)
    }

    /// All entries, by kind and name.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.kinds.values().flat_map(|shelf| shelf.values()).map(AsRef::as_ref)
    }

    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Entry> {
        self.kinds.get(&kind).into_iter().flat_map(|shelf| shelf.values()).map(AsRef::as_ref)
    }

    /// All regions.
    pub fn regions(&self) -> impl Iterator<Item = (&Name, &RegionEntry)> {
        self.of_kind(Kind::Region).filter_map(|e| match &e.body {
            Body::Region(r) => Some((&e.name, r)),
            Body::Namespace(_) | Body::Service(_) | Body::Operator(_) => None,
        })
    }

    /// All namespaces, deleted ones included.
    pub fn namespaces(&self) -> impl Iterator<Item = (&Name, &NamespaceEntry)> {
        self.of_kind(Kind::Namespace).filter_map(|e| match &e.body {
            Body::Namespace(n) => Some((&e.name, n)),
            Body::Region(_) | Body::Service(_) | Body::Operator(_) => None,
        })
    }

    /// All services.
    pub fn services(&self) -> impl Iterator<Item = (&Name, &ServiceEntry)> {
        self.of_kind(Kind::Service).filter_map(|e| match &e.body {
            Body::Service(s) => Some((&e.name, s)),
            Body::Region(_) | Body::Namespace(_) | Body::Operator(_) => None,
        })
    }

    /// All entries that say who calls: everything but the namespaces.
    pub fn callers(&self) -> impl Iterator<Item = &Entry> {
        [Kind::Region, Kind::Service, Kind::Operator].into_iter().flat_map(|kind| self.of_kind(kind))
    }

    /// A region by name.
    #[must_use]
    pub fn region(&self, name: &Name) -> Option<&RegionEntry> {
        match self.get(Kind::Region, name).map(|e| &e.body) {
            Some(Body::Region(r)) => Some(r),
            _ => None,
        }
    }

    /// A namespace by name, deleted ones included.
    #[must_use]
    pub fn namespace(&self, name: &Name) -> Option<&NamespaceEntry> {
        match self.get(Kind::Namespace, name).map(|e| &e.body) {
            Some(Body::Namespace(n)) => Some(n),
            _ => None,
        }
    }

    /// Where a value lies: number lines and ordinals that may have given it out. Nobody has to have been granted them.
    #[must_use]
    pub fn places(&self, namespace: &Name, value: i64) -> Vec<(Name, u64)> {
        let Some(entry) = self.namespace(namespace) else { return Vec::new() };
        match (entry.kind, &entry.layout) {
            (NamespaceKind::Snowflake, Some(layout)) => {
                let line = |parts: crate::layout::Parts| (namespace.of_slot(parts.slot), parts.unit);
                layout.parts(value).map(line).into_iter().collect()
            }
            (NamespaceKind::Range, _) => {
                let ordinals = entry.definition.origin_ordinals(value);
                ordinals.into_iter().map(|ordinal| (namespace.clone(), ordinal)).collect()
            }
            (NamespaceKind::Snowflake | NamespaceKind::UuidV7 | NamespaceKind::Slot, _) => Vec::new(),
        }
    }

    /// Takes an entry if it is newer than the one held. Returns whether something changed.
    ///
    /// An epoch never falls and a retired region stays retired, even where the newer entry was
    /// written by a store that had forgotten them.
    pub fn unite(&mut self, entry: Entry) -> bool {
        let shelf = self.kinds.entry(entry.body.kind()).or_default();
        let Some(held) = shelf.get(&entry.name) else {
            Arc::make_mut(shelf).insert(entry.name.clone(), Arc::new(entry));
            return true;
        };
        let (mut newer, older) =
            if entry.version() > held.version() { (entry, held.as_ref()) } else { (held.as_ref().clone(), &entry) };
        let mut is_as_sealed = true;
        if let (Body::Region(n), Body::Region(o)) = (&mut newer.body, &older.body) {
            if o.epoch > n.epoch {
                n.epoch = o.epoch;
                is_as_sealed = false;
            }
            if o.state == RegionState::Retired && n.state != RegionState::Retired {
                n.state = RegionState::Retired;
                is_as_sealed = false;
            }
        }
        if !is_as_sealed || newer.seal.is_none() {
            let same = newer.version() == older.version() && newer.body == older.body;
            newer.seal = older.seal.clone().filter(|_| same);
        }
        if **held == newer {
            return false;
        }
        Arc::make_mut(shelf).insert(newer.name.clone(), Arc::new(newer));
        true
    }

    /// Takes every entry of `entries` that is newer. Returns whether something changed.
    pub fn unite_all(&mut self, entries: impl IntoIterator<Item = Entry>) -> bool {
        let mut changed = false;
        for entry in entries {
            // Every entry is taken, also after the first change: `any` would stop there.
            changed |= self.unite(entry);
        }
        changed
    }
}

impl FromIterator<Entry> for Roster {
    fn from_iter<I: IntoIterator<Item = Entry>>(entries: I) -> Self {
        let mut roster = Self::default();
        roster.unite_all(entries);
        roster
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(counter: u32, seq: u64, epoch: u64, state: RegionState) -> Entry {
        Entry {
            generation: Generation { counter, random: 0 },
            seq,
            name: Name::new("eu").unwrap(),
            body: Body::Region(RegionEntry {
                region_id: RegionId(1),
                epoch: Epoch(epoch),
                state,
                store_id: None,
                founder: true,
                tokens: vec![],
                rejoin: false,
            }),
            seal: None,
        }
    }

    #[test]
    fn the_newest_entry_wins_whatever_the_order() {
        let old = region(1, 4, 1, RegionState::Active);
        let new = region(1, 9, 2, RegionState::Fenced);
        for pair in [[old.clone(), new.clone()], [new.clone(), old]] {
            let roster: Roster = pair.into_iter().collect();
            assert_eq!(roster.entries().collect::<Vec<_>>(), vec![&new]);
        }
    }

    #[test]
    fn a_store_that_forgot_cannot_lower_an_epoch_or_revive_a_retired_region() {
        let lost = region(5, 20, 3, RegionState::Retired);
        let forgetful = region(6, 2, 1, RegionState::Active);
        for pair in [[lost.clone(), forgetful.clone()], [forgetful, lost]] {
            let roster: Roster = pair.into_iter().collect();
            let eu = roster.region(&Name::new("eu").unwrap()).unwrap();
            assert_eq!((eu.epoch, eu.state), (Epoch(3), RegionState::Retired));
        }
    }

    #[test]
    fn entries_survive_json() {
        let entry = region(1, 4, 1, RegionState::Active);
        let text = serde_json::to_string(&entry).unwrap();
        assert_eq!(serde_json::from_str::<Entry>(&text).unwrap(), entry);
    }
}
