//! What a run has: how many of each, which faults, which rules, and how much of each action.

use cadastre_core::continuity::WitnessMode;

use super::rules::Rules;

/// Sorts of action that small bounds count.
pub const COSTS: usize = 6;

/// What a small bound counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// A message or its loss.
    Talk,
    /// A number exposed or carved.
    Use,
    /// The authority's stores.
    Store,
    /// The authority's witness.
    Witness,
    /// A region's store or process.
    Region,
    /// An operator.
    Operator,
}

/// How much of each [`Cost`] a small bound allows; `u8::MAX` is no bound.
pub type Budget = [u8; COSTS];

/// Which things may go wrong in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// The authority's store is put back to an older copy, and under living processes too.
    pub store_back: bool,
    /// A standby that lags is promoted while the old store and its authorities live on.
    pub promote: bool,
    /// The witness is lost.
    pub witness_lost: bool,
    /// The witness is put back to older marks.
    pub witness_back: bool,
    /// A region's store is put back.
    pub region_back: bool,
    /// A region's embedded store is copied, and both are started.
    pub region_clone: bool,
    /// A region's process is copied with its memory.
    pub twins: bool,
    /// A region's own witness is lost.
    pub region_witness_lost: bool,
    /// Regions are registered and retired.
    pub members: bool,
    /// Fence, recover, new stores.
    pub epochs: bool,
    /// An operator states bounds.
    pub bounds: bool,
    /// Definitions change.
    pub definitions: bool,
}

/// A run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// How far the authority's witness is believed.
    pub mode: WitnessMode,
    /// And each region's own.
    pub region_witness: WitnessMode,
    /// Whether a synchronous standby is required.
    pub sync: bool,
    /// Authority processes.
    pub authorities: usize,
    /// Regions that are active from the beginning.
    pub active: usize,
    /// Whether several agents share a region's store.
    pub shared: bool,
    /// Agents of each region where they share.
    pub agents: usize,
    /// Wants in one message.
    pub batch: usize,
    /// What may go wrong.
    pub faults: Faults,
    /// What holds.
    pub rules: Rules,
    /// How much may happen.
    pub budget: Budget,
}

impl std::hash::Hash for Setup {
    /// A setup never changes within a run, so it tells no two states apart.
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

impl Setup {
    /// Nothing goes wrong, one region, one authority.
    #[must_use]
    pub fn calm() -> Self {
        Self {
            mode: WitnessMode::Required,
            region_witness: WitnessMode::None,
            sync: false,
            authorities: 1,
            active: 1,
            shared: false,
            agents: 1,
            batch: 1,
            faults: Faults::none(),
            rules: Rules::all(),
            budget: [u8::MAX; COSTS],
        }
    }

    /// A random setup. Each family of faults is there or not, so that long runs of few faults occur too.
    ///
    /// The limits that the protocol states are kept here: where a region's store goes back, the
    /// authority's does too only if each has a required witness that is never lost ("store, witness and
    /// all live holders losing the same grants").
    #[must_use]
    pub fn random(dice: u64, rules: Rules) -> Self {
        let bit = |n: u32| dice >> n & 1 == 1;
        let mode = match dice % 5 {
            0 | 1 => WitnessMode::None,
            2 => WitnessMode::BestEffort,
            _ => WitnessMode::Required,
        };
        let regional = bit(8);
        let region_witness = if bit(9) { WitnessMode::Required } else { WitnessMode::None };
        let both = mode == WitnessMode::Required && region_witness == WitnessMode::Required && bit(10);
        let central = !regional || both;
        let shared = bit(11);
        let faults = Faults {
            store_back: central && bit(12),
            promote: central && bit(13),
            witness_lost: !both && bit(14),
            witness_back: !both && bit(15),
            region_back: regional && bit(16),
            region_clone: regional && bit(17) && !shared,
            twins: regional && bit(18) && !shared && bit(27),
            region_witness_lost: regional && bit(19) && !both,
            members: bit(20),
            epochs: bit(21),
            bounds: !regional && bit(22),
            definitions: bit(23),
        };
        Self {
            mode,
            region_witness,
            sync: bit(24) && bit(25),
            authorities: 1 + usize::from(!bit(26)),
            active: 1 + (dice >> 28) as usize % 2,
            shared,
            agents: 2,
            batch: 1 + usize::from(bit(30) && bit(31)),
            faults,
            rules,
            budget: [u8::MAX; COSTS],
        }
    }
}

impl Faults {
    /// None.
    #[must_use]
    pub fn none() -> Self {
        Self {
            store_back: false,
            promote: false,
            witness_lost: false,
            witness_back: false,
            region_back: false,
            region_clone: false,
            twins: false,
            region_witness_lost: false,
            members: false,
            epochs: false,
            bounds: false,
            definitions: false,
        }
    }
}
