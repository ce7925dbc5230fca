//! What the model found in the protocol or in what was shipped, kept as named reproductions.
//!
//! Each says which rule is at fault, leaves that rule out, and must still violate; with all rules in,
//! the same actions must not. A case that is no longer reproduced is a change of the model to be looked
//! at, not to be deleted.

use super::mutations::MUTATIONS;
use super::rules::{Rule, Rules};
use super::state::Violation;
use super::walk::{Found, run};

/// A hole that the model found.
#[derive(Clone, Copy, Debug)]
pub struct Pinned {
    /// Its name.
    pub name: &'static str,
    /// The rule that closes it. Without it stands what was shipped, or written, before.
    pub rule: Rule,
    /// The walk of the rule's removal that finds it.
    pub walk: u64,
    /// What was wrong, and the mend.
    pub story: &'static str,
}

/// All of them, in the order in which they were found.
pub const PINNED: &[Pinned] = &[
    Pinned {
        name: "the_last_region_that_could_vouch_retired",
        rule: Rule::SuccessorOfAll,
        walk: 12,
        story: "The founder retires before anyone else holds a grant. No region can be vouched for any more. Mend: where \
                no established region lives, a required witness that names the roster vouches.",
    },
    Pinned {
        name: "retired_for_the_sake_of_a_newcomer",
        rule: Rule::EstablishedRemains,
        walk: 12,
        story: "Without a witness, retire accepts any living region as the one that remembers, also one that never held a \
                grant and can therefore vouch for nobody. Mend: the one that remembers is established.",
    },
    Pinned {
        name: "a_colleague_taken_for_a_stranger",
        rule: Rule::LookBeforeDoubt,
        walk: 1,
        story: "One process opened a generation and a region promised it; the other process compares the promise with \
                what it remembers and puts everything into quarantine. Mend: read the rows before doubting.",
    },
    Pinned {
        name: "an_epoch_forgotten_for_ever",
        rule: Rule::EpochKept,
        walk: 658,
        story: "The authority forgot an epoch. The region's message is a proof; the required witness ends the quarantine \
                alone, without the region's roster; its next message is a proof again. Mend: keep the epoch at once.",
    },
    Pinned {
        name: "raised_to_a_witness_without_a_roster",
        rule: Rule::ExitTwoHoldsRoster,
        walk: 114,
        story: "The shipped witness has marks, not entries. Raised to it alone, the authority is past the roster's row and \
                has forgotten what stood in it: a definition, and values repeat. Mend: exit 2 only where the roster's row \
                is here, or a testimony of this generation holds the roster at or above the witness's mark.",
    },
    Pinned {
        name: "kept_by_the_one_who_is_in_doubt",
        rule: Rule::KeptUntilProven,
        walk: 73,
        story: "The authority answers with the row that it kept, and replaces it in the same transaction by that of the \
                store in doubt. The answer is lost; the next one names the store's own row, and it is confirmed. Mend: an \
                unproven message does not replace what is kept.",
    },
    Pinned {
        name: "lowered_by_a_late_colleague",
        rule: Rule::KeptNeverFalls,
        walk: 571,
        story: "Agents of a shared store overtake one another: a late message lowers the kept mark, and a store that was \
                put back in between is confirmed. Mend: of one store the higher mark is kept.",
    },
    Pinned {
        name: "issued_under_a_definition_that_a_restore_forgot",
        rule: Rule::GrantNamesDefinition,
        walk: 23_412,
        story: "A region without a grant is not asked for testimony. It keeps a definition that the restore forgot, and \
                later issues its first grant under it, alone: values repeat. Mend: a grant names its definition.",
    },
    Pinned {
        name: "a_bound_hidden_behind_a_newer_mark",
        rule: Rule::SeenKeepsBound,
        walk: 312,
        story: "Of what others know only the newest mark is kept. A mark of a history that was given up has an older \
                generation and a higher bound, is never contained, and every message of its holder is a proof. Mend: keep \
                the newer mark and the higher bound.",
    },
    Pinned {
        name: "nobody_is_established_any_more",
        rule: Rule::HolderIsEstablished,
        walk: 479_291,
        story: "Who is established is read from grants, and those were lost. Mend: who testifies a bound is established.",
    },
    Pinned {
        name: "united_but_never_told",
        rule: Rule::RosterOfGeneration,
        walk: 97_483,
        story: "An entry that a quarantine learned keeps its old version: it is never sent to a region that knows a newer \
                roster mark, and that region is taken to hold it. A new region gets its first grant, and the next restore \
                forgets it. Mend: to a sender whose roster mark is of another generation the whole roster is sent, and \
                only who testifies a roster mark of this generation vouches. (Stamping every entry anew at the lift is no \
                mend: what is old here would win over what is newer elsewhere.)",
    },
    Pinned {
        name: "a_new_store_that_knows_no_bound",
        rule: Rule::AnswersCarryMarks,
        walk: 26_912,
        story: "Answers carry marks of wanted namespaces only. A region that joined with a new store, or that stays when \
                another retires, knows the roster of its time and not how far the others were given; a restore grants \
                that anew. Mend: answers and heartbeats carry (in turns) the marks of every namespace.",
    },
    Pinned {
        name: "retired_with_what_only_it_knew",
        rule: Rule::RetireWaitsForMarks,
        walk: 3_321,
        story: "The shipped retire waits until another region holds the roster, not until it holds the marks of the \
                namespaces (the protocol's text asks for both). Mend: keep the namespace marks that a region testifies \
                and wait for them.",
    },
    Pinned {
        name: "a_bound_without_its_definition",
        rule: Rule::OperatorStatesDefinition,
        walk: 129,
        story: "Exit 4 states a bound in ordinals. The definition that only the silent region knew is forgotten, and the \
                values above the bound repeat. Mend: with the bound the operator states the definitions, or the namespace \
                is lifted only with a definition above every value that they could have reached.",
    },
    Pinned {
        name: "a_bound_right_when_stated",
        rule: Rule::BoundReadAfterWait,
        walk: 17_438,
        story: "The wait of one deadline came after the statement: an answer on its way made the stated bound wrong. Mend: \
                first the old store is said to be stopped, then a deadline, then bounds are accepted.",
    },
];

impl Pinned {
    /// Finds it again. Not shortened: what a shorter list comes to with all rules in is another question.
    ///
    /// # Errors
    /// Where its walk does not find it any more.
    pub fn reproduce(&self) -> Result<Found, String> {
        let mutation = MUTATIONS.iter().find(|m| m.rule == self.rule);
        let mutation = mutation.ok_or_else(|| format!("{} has no mutation", self.name))?;
        match mutation.walk(self.walk) {
            Ok(_) => {
                Err(format!("{} is not found any more: state the walk that `model -- mutations` names", self.name))
            }
            Err(found) => Ok(*found),
        }
    }

    /// What the same actions come to with all rules in.
    #[must_use]
    pub fn mended(found: &Found) -> Option<Violation> {
        let setup = super::setup::Setup { rules: Rules::all(), ..found.setup };
        run(setup, &found.actions, true, false).violation
    }
}
