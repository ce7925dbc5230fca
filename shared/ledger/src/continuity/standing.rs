//! What a process holds to be true of its store, and what it needs to find out.

use std::sync::Arc;

use cadastre_core::continuity::WitnessMode;
use cadastre_core::mark::Generation;
use cadastre_runtime::clock::Clock;
use cadastre_runtime::db::Db;
use cadastre_runtime::entropy::Entropy;

use crate::witness::Witness;

/// What a [`Continuity`] is made of.
#[derive(Clone)]
pub struct Parts {
    /// The store.
    pub db: Db,
    /// The witness, where there is one.
    pub witness: Option<Arc<dyn Witness>>,
    /// How far it is believed.
    pub mode: WitnessMode,
    /// `authority` or `region/NAME`.
    pub role: String,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
}

/// How this process came to believe, or doubt, its store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum How {
    /// It made it.
    Initialised,
    /// The required witness names rows that it contains.
    Witnessed,
    /// Everyone who could hold something testified (a region: the authority confirmed it).
    Testified,
    /// An operator stated what the silent ones hold.
    Stated,
    /// Nobody has confirmed it yet.
    Suspect,
    /// It went back.
    WentBack,
}

impl How {
    /// The word shown in status.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initialised => "initialised",
            Self::Witnessed => "witnessed",
            Self::Testified => "testified",
            Self::Stated => "stated",
            Self::Suspect => "unproven",
            Self::WentBack => "went_back",
        }
    }

    /// Whether the store may give anything out.
    #[must_use]
    pub fn is_open(self) -> bool {
        match self {
            Self::Initialised | Self::Witnessed | Self::Testified | Self::Stated => true,
            Self::Suspect | Self::WentBack => false,
        }
    }
}

/// What this process holds to be true of its store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Standing {
    /// The generation that it verified.
    pub generation: Generation,
    /// How.
    pub how: How,
    /// Whether it may fill an empty witness.
    pub may_fill: bool,
}
