//! Each rule taken out, and within how many walks that must be found.
//!
//! The walks of a removal are of the family in which the rule matters; with all rules in, the same
//! walks find nothing (a test holds that).

use cadastre_core::continuity::WitnessMode;

use super::rules::{Rule, Rules};
use super::setup::{Faults, Setup};
use super::walk::{Found, walk_with};

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

/// Kinds of run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Everything that may go wrong, by chance.
    Any,
    /// The authority's stores, under each sort of witness.
    Central(WitnessMode),
    /// Regions' stores.
    Regional(WitnessMode, bool),
}

/// The longest walk of a mutation.
pub const STEPS: usize = 160;

impl Mutation {
    /// Looks for the removal: how many walks it took, and what was found.
    #[must_use]
    pub fn search(&self) -> Option<(u64, Found)> {
        let rules = self.with.iter().fold(Rules::all().without(self.rule), |rules, rule| rules.without(*rule));
        (1..=self.within).find_map(|n| {
            let found = walk_with(n, STEPS, |dice| self.family.setup(dice, rules)).err()?;
            Some((n, *found))
        })
    }
}

impl Family {
    /// The setup of one run.
    #[must_use]
    pub fn setup(self, dice: u64, rules: Rules) -> Setup {
        let any = Setup::random(dice, rules);
        let none = Faults::none();
        match self {
            Self::Any => any,
            Self::Central(mode) => {
                let f = any.faults;
                let faults = Faults {
                    store_back: true,
                    promote: f.promote,
                    witness_lost: f.witness_lost,
                    members: f.members,
                    epochs: f.epochs,
                    bounds: f.bounds,
                    definitions: f.definitions,
                    ..none
                };
                Setup { mode, faults, ..any }
            }
            Self::Regional(region_witness, shared) => {
                let f = any.faults;
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
pub const MUTATIONS: &[Mutation] = &[];
