//! Marks, rosters and definitions, small enough to be hashed, and their way into the shipped types.
//!
//! The model keeps numbers where the product keeps UUIDs and texts. Whatever is judged is turned into
//! the product's own types first, so that the product's own verdicts are what is checked.

use std::sync::OnceLock;

use cadastre_core::continuity::{self, ScopeState, ScopeView};
use cadastre_core::ids::{Epoch, Name, RegionId, RowId, StoreId};
use cadastre_core::mark::{Generation, Mark as CoreMark};
use cadastre_core::registry::RegionState;
use cadastre_core::roster::{Body, Entry, RegionEntry, Roster as CoreRoster};
use uuid::Uuid;

/// A number that is drawn once: a row, a store, an incarnation, a request, a token.
pub type Id = u32;
/// (generation, seq).
pub type Version = (Generation, u32);
/// The most regions.
pub const REGIONS: usize = 3;
/// The namespace's scope.
pub const NS: usize = 0;
/// The roster's scope.
pub const ROSTER: usize = 1;

/// See [`CoreMark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    /// The generation that wrote the row.
    pub generation: Generation,
    /// Its place.
    pub seq: u32,
    /// The row.
    pub row: Id,
    /// What could be exposed up to here.
    pub bound: u32,
}

impl Mark {
    /// As the product has it.
    #[must_use]
    pub fn core(&self) -> CoreMark {
        let row = RowId(Uuid::from_u128(u128::from(self.row)));
        CoreMark { generation: self.generation, seq: u64::from(self.seq), row, bound: u64::from(self.bound) }
    }

    /// The order of marks of one scope.
    #[must_use]
    pub fn version(&self) -> Version {
        (self.generation, self.seq)
    }
}

impl std::fmt::Display for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "g{}/{} row {} bound {}", self.generation.counter, self.seq, self.row, self.bound)
    }
}

/// Marks of namespace and roster, where known.
pub type Marks = [Option<Mark>; 2];

/// Keeps the higher mark of each scope.
pub fn keep_higher(held: &mut Marks, heard: &Marks) {
    for (held, heard) in held.iter_mut().zip(heard) {
        if heard.is_some_and(|h| held.is_none_or(|k| h.version() > k.version())) {
            *held = *heard;
        }
    }
}

/// Keeps the higher mark of each scope, and of both the higher bound: the newer one need not be.
pub fn keep_known(held: &mut Marks, heard: &Marks) {
    let bounds = [0, 1].map(|s| [held[s], heard[s]].into_iter().flatten().map(|m| m.bound).max());
    keep_higher(held, heard);
    for (mark, bound) in held.iter_mut().zip(bounds) {
        if let (Some(mark), Some(bound)) = (mark, bound) {
            mark.bound = bound;
        }
    }
}

/// Whether a store gives anything out; hashed, unlike [`ScopeState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Door {
    /// It does.
    Open,
    /// Nobody has confirmed it.
    Suspect,
    /// It went back.
    Back,
}

impl Door {
    /// As the product has it.
    #[must_use]
    pub fn core(self) -> ScopeState {
        match self {
            Self::Open => ScopeState::Open,
            Self::Suspect => ScopeState::Suspect,
            Self::Back => ScopeState::Back,
        }
    }
}

/// A scope of a store, as the product's verdicts see it.
#[must_use]
pub fn view(door: Door, mark: &Mark, base: u32) -> ScopeView {
    ScopeView { state: door.core(), generation: mark.generation, mark: mark.core(), base: u64::from(base) }
}

/// The shipped verdict whether a store is current with a mark.
#[must_use]
pub fn contains(view: &ScopeView, mark: &Mark, has_row: bool) -> bool {
    continuity::contains(view, &mark.core(), has_row)
}

/// A region's life, with a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life(pub RegionState);

impl std::hash::Hash for Life {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.0 as u8).hash(state);
    }
}

/// A region as the roster has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionRow {
    /// When this was written.
    pub version: Version,
    /// Its epoch.
    pub epoch: Epoch,
    /// Its life.
    pub life: Life,
    /// Its store.
    pub store: Option<Id>,
    /// Whether it was active while no other region had ever been.
    pub founder: bool,
    /// Whether the next unknown store may be bound.
    pub rejoin: bool,
}

/// The ordinals at which the second and later definitions begin. Under definition `k` (from 0) an ordinal
/// `o` has the value `o + k`: no value repeats as long as old and new never overlap, and one repeats at
/// once where they do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Definitions {
    /// When this was written.
    pub version: Version,
    /// Where each later definition begins.
    pub from: Vec<u32>,
}

impl Definitions {
    /// The value of an ordinal.
    #[must_use]
    pub fn value(&self, ordinal: u32) -> u32 {
        ordinal + u32::try_from(self.from.iter().filter(|f| **f <= ordinal).count()).unwrap_or(0)
    }
}

/// Who exists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Roster {
    /// The regions.
    pub regions: [Option<RegionRow>; REGIONS],
    /// How ordinals become values.
    pub definitions: Definitions,
}

impl Roster {
    /// Takes what is newer, entry by entry, by the shipped union.
    pub fn unite(&mut self, other: &Self) {
        for (n, theirs) in other.regions.iter().enumerate() {
            let (Some(theirs), Some(ours)) = (theirs, self.regions.get_mut(n)) else { continue };
            if ours.as_ref() == Some(theirs) {
                continue;
            }
            let mut both = CoreRoster::default();
            both.unite_all(ours.iter().map(|row| entry(n, row)));
            both.unite(entry(n, theirs));
            *ours = both.entries().next().and_then(row);
        }
        if other.definitions.version > self.definitions.version {
            self.definitions = other.definitions.clone();
        }
    }

    /// The entries written after `version`; the others are left out.
    #[must_use]
    pub fn since(&self, version: Version) -> Self {
        let mut newer = self.clone();
        for row in &mut newer.regions {
            *row = row.filter(|r| r.version > version);
        }
        newer
    }

    /// As the product has it.
    #[must_use]
    pub fn core(&self) -> CoreRoster {
        self.regions.iter().enumerate().filter_map(|(n, row)| row.as_ref().map(|row| entry(n, row))).collect()
    }
}

/// The name of a region.
#[must_use]
pub fn name(region: usize) -> &'static Name {
    static NAMES: OnceLock<Vec<Name>> = OnceLock::new();
    let names = NAMES.get_or_init(|| ["eu", "us", "ap"].into_iter().filter_map(|n| Name::new(n).ok()).collect());
    &names[region]
}

/// The region of a name.
#[must_use]
pub fn region_named(wanted: &Name) -> Option<usize> {
    (0..REGIONS).find(|n| name(*n) == wanted)
}

fn entry(region: usize, row: &RegionRow) -> Entry {
    let (generation, seq) = row.version;
    let body = Body::Region(RegionEntry {
        region_id: RegionId(region as u32),
        epoch: row.epoch,
        state: row.life.0,
        store_id: row.store.map(store_id),
        founder: row.founder,
        tokens: vec![],
        rejoin: row.rejoin,
    });
    Entry { generation, seq: u64::from(seq), name: name(region).clone(), body, seal: None }
}

fn row(entry: &Entry) -> Option<RegionRow> {
    let Body::Region(region) = &entry.body else { return None };
    Some(RegionRow {
        version: (entry.generation, u32::try_from(entry.seq).ok()?),
        epoch: region.epoch,
        life: Life(region.state),
        store: region.store_id.and_then(|s| u32::try_from(s.0.as_u128()).ok()),
        founder: region.founder,
        rejoin: region.rejoin,
    })
}

/// A store's id as the product has it.
#[must_use]
pub fn store_id(store: Id) -> StoreId {
    StoreId(Uuid::from_u128(u128::from(store)))
}
