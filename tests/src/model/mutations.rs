//! Each rule taken out, and within how many walks that must be found.
//!
//! The walks of a removal are of the family in which the rule matters; with all rules in, the same
//! walks find nothing (a test holds that).

use cadastre_core::continuity::WitnessMode;

use super::rules::{Rule, Rules};
use super::setup::{Faults, Setup};
use super::walk::{Found, Walked, walk_with};
use {Family as F, Rule as R, WitnessMode::None as No, WitnessMode::Required};

/// One rule that is taken out.
#[derive(Clone, Copy, Debug)]
pub struct Mutation {
    /// The rule.
    pub rule: Rule,
    /// Further rules that are out too, because each of them closes the same interleaving.
    pub with: &'static [Rule],
    /// In which kind of run.
    pub family: Family,
    /// Within how many walks it must be found.
    pub within: u64,
}

/// Kinds of run: which faults there are for certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Everything that may go wrong, by chance.
    Any,
    /// The authority's stores go back, under one sort of witness.
    Central(WitnessMode),
    /// And several agents share each region's store.
    Shared,
    /// And operators state bounds.
    Bounds,
    /// And definitions change.
    Definitions,
    /// And regions come, go and change their stores.
    Members,
    /// Regions' stores go back: their own witness, and whether several agents share one.
    Regional(WitnessMode, bool),
}

/// The kinds that are walked with all rules in, in turns.
pub const FAMILIES: &[Family] = &[
    F::Any,
    F::Any,
    F::Central(Required),
    F::Shared,
    F::Bounds,
    F::Definitions,
    F::Members,
    F::Regional(No, false),
    F::Regional(No, true),
    F::Regional(Required, false),
];

/// The longest walk of a mutation.
pub const STEPS: usize = 160;

impl Mutation {
    /// Looks for the removal: how many walks it took, and what was found.
    #[must_use]
    pub fn search(&self) -> Option<(u64, Found)> {
        (1..=self.within).find_map(|n| Some((n, *self.walk(n).err()?)))
    }

    /// One walk without the rule.
    ///
    /// # Errors
    /// What it found.
    pub fn walk(&self, n: u64) -> Result<Walked, Box<Found>> {
        let rules = self.with.iter().fold(Rules::all().without(self.rule), |rules, rule| rules.without(*rule));
        walk_with(n, STEPS, |dice| self.family.setup(dice, rules))
    }
}

impl std::str::FromStr for Family {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "any" => Ok(Self::Any),
            "shared" => Ok(Self::Shared),
            "bounds" => Ok(Self::Bounds),
            "members" => Ok(Self::Members),
            "definitions" => Ok(Self::Definitions),
            _ => Err("one of any, shared, bounds, definitions, members".to_owned()),
        }
    }
}

impl Family {
    /// The setup of one run.
    #[must_use]
    pub fn setup(self, dice: u64, rules: Rules) -> Setup {
        let any = Setup::random(dice, rules);
        let (f, none) = (any.faults, Faults::none());
        match self {
            Self::Any => any,
            Self::Central(mode) => {
                let faults = Faults { store_back: true, promote: f.promote, witness_lost: f.witness_lost, ..none };
                Setup { mode, faults, ..any }
            }
            Self::Shared => {
                let faults = Faults { store_back: true, promote: f.promote, ..none };
                Setup { mode: WitnessMode::None, shared: true, active: 2, batch: 1, faults, ..any }
            }
            Self::Bounds => {
                let faults = Faults { store_back: true, promote: f.promote, bounds: true, ..none };
                Setup { mode: WitnessMode::None, active: 2, batch: 1, faults, ..any }
            }
            Self::Definitions => {
                let faults = Faults { store_back: true, members: true, definitions: true, ..none };
                Setup { mode: WitnessMode::None, batch: 1, faults, ..any }
            }
            Self::Members => {
                let faults = Faults { store_back: true, promote: f.promote, members: true, epochs: f.epochs, ..none };
                Setup { mode: WitnessMode::None, active: 1, faults, batch: 1, ..any }
            }
            Self::Regional(region_witness, shared) => {
                let faults = Faults {
                    region_back: true,
                    region_clone: !shared && f.region_clone,
                    twins: !shared && f.twins,
                    region_witness_lost: f.region_witness_lost,
                    ..none
                };
                Setup { region_witness, shared, faults, ..any }
            }
        }
    }
}

const fn one(rule: Rule, family: Family, within: u64) -> Mutation {
    Mutation { rule, with: &[], family, within }
}

/// All removals.
pub const MUTATIONS: &[Mutation] = &[
    one(R::WatermarkConditional, F::Any, 50),
    one(R::GuardByGeneration, F::Any, 20),
    one(R::SyncProof, F::Any, 50),
    one(R::WitnessBeforeAnswer, F::Central(Required), 2_000),
    one(R::WitnessAfterCommit, F::Any, 20),
    one(R::WitnessHeeded, F::Any, 50_000),
    one(R::EmptyWitnessNotRefilled, F::Central(Required), 10_000),
    one(R::StoreReadAtGate, F::Any, 2_000),
    one(R::IdentityChecked, F::Any, 500),
    one(R::ReplayUntilConfirmed, F::Regional(No, true), 20),
    one(R::ReplayInOwnGeneration, F::Any, 20),
    one(R::EpochChecked, F::Any, 100),
    one(R::EpochKept, F::Any, 2_000),
    one(R::AdoptOnlyPending, F::Any, 200),
    one(R::PromiseKept, F::Shared, 5_000),
    one(R::MarkNamesRow, F::Any, 500),
    one(R::LookBeforeDoubt, F::Any, 20),
    one(R::SeenKeepsBound, F::Members, 1_000),
    one(R::ComparedWithBase, F::Any, 500),
    one(R::BaseRecorded, F::Any, 50),
    one(R::AnswersCarryMarks, F::Members, 100_000),
    one(R::FirstGrantWaits, F::Members, 2_000),
    one(R::EstablishedVouches, F::Members, 50_000),
    one(R::RosterOfGeneration, F::Members, 300_000),
    one(R::HolderIsEstablished, F::Members, 1_500_000),
    one(R::SuccessorOfAll, F::Any, 50),
    one(R::EstablishedRemains, F::Members, 50),
    one(R::RetireWaits, F::Members, 20),
    one(R::RetireWaitsForMarks, F::Members, 10_000),
    one(R::StartIsSuspect, F::Any, 1_000),
    one(R::GenerationAboveWitness, F::Any, 200_000),
    one(R::TestimonyComplete, F::Any, 500),
    one(R::TestimonyOfGeneration, F::Central(No), 1_000),
    one(R::StatedOfGeneration, F::Bounds, 5_000),
    one(R::OperatorWaits, F::Bounds, 5_000),
    one(R::BoundReadAfterWait, F::Bounds, 100_000),
    one(R::StatedAboveKnown, F::Bounds, 500),
    one(R::OperatorStatesDefinition, F::Any, 500),
    one(R::ExitTwoHoldsRoster, F::Any, 500),
    one(R::UnprovenStart, F::Regional(No, false), 20),
    one(R::HolderWentBack, F::Any, 500),
    one(R::KeptUntilProven, F::Regional(No, true), 500),
    one(R::KeptNeverFalls, F::Regional(No, true), 2_000),
    one(R::EmptyWitnessBurns, F::Regional(Required, false), 20_000),
    one(R::BurnDropsPending, F::Any, 20),
    one(R::CarveDurable, F::Any, 20),
    one(R::CarveConditional, F::Any, 20),
    one(R::CopyBurns, F::Regional(Required, false), 100),
    one(R::SessionsNumbered, F::Regional(No, false), 100),
    one(R::ChainChecked, F::Regional(No, false), 200),
    Mutation { with: &[R::GrantNamesDefinition], ..one(R::DefinitionLocked, F::Definitions, 20) },
    one(R::GrantNamesDefinition, F::Definitions, 100_000),
];

/// Rules whose removal no walk finds, and why they stand all the same.
pub const SECOND_LINE: &[(Rule, &str)] = &[
    (
        R::EmptyWitnessReopens,
        "Found once, when epochs were not yet kept at once and a witness was enough without its roster; 400,000 walks \
         with the witness lost find nothing since. It stands: testimony given before the loss says nothing of what \
         another copy granted on the witness's word, and the rule costs one comparison.",
    ),
    (
        R::MarksHeard,
        "Where a store's identity is checked and every start is suspect, a store that went back is found before a region \
         speaks. It is the only line where an engine has no identity to show, and it names the rows in the audit.",
    ),
    (
        R::UnknownRegionHeard,
        "A forgotten region cannot hold what is granted anew: its first grant waited for others. To be told at once that \
         something is missing is worth the line; to be put into quarantine by every message of a stranger is not.",
    ),
];
