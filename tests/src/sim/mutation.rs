//! Rules taken out, one at a time, from outside: the product is not touched.
//!
//! A guard that is SQL is taken out of the text on its way to the engine; a promise or a testimony that
//! is a message is taken out of the message; a witness that is ignored is one that forgets what it was
//! told. Each removal must be found within its number of seeds, or either the simulator or the rule is
//! not needed. What cannot be taken out from outside is taken out of the model (`tests::model`).

use cadastre_core::continuity::WitnessMode;
use cadastre_core::mark::Generation;
use cadastre_protocol::link::Message;

use super::ops::Profile;

/// Whose stores are bent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Whose {
    /// The authority's.
    Authority,
    /// The regions'.
    Regions,
    /// All.
    All,
}

/// How messages are bent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LinkBend {
    /// Not at all.
    None,
    /// Without marks and without what was promised.
    NoMarks,
    /// Testimony says that nothing was ever held.
    NoBounds,
    /// Every store says that it is proved current and never went back.
    NeverBack,
}

/// How witnesses are bent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WitnessBend {
    /// Not at all.
    None,
    /// It says that it was raised, and was not.
    Forgets,
    /// An empty one passes for one that agrees.
    EmptyAgrees,
}

/// A rule that is taken out.
#[derive(Debug)]
pub struct Removal {
    /// What it is called.
    pub name: &'static str,
    /// The rule, in a sentence.
    pub rule: &'static str,
    /// Whose SQL is rewritten.
    pub whose: Whose,
    /// Which text becomes which.
    pub sql: &'static [(&'static str, &'static str)],
    /// How messages are bent.
    pub link: LinkBend,
    /// How the authority's witness is bent.
    pub witness: WitnessBend,
    /// Whether commits are acknowledged before they are durable, and the power is cut now and then.
    pub lose_unsynced: bool,
    /// Whether it shows as somebody who is never served again, not as a duplicate.
    pub wedges: bool,
    /// The runs in which it can show.
    pub shows: fn(&Profile) -> bool,
    /// Of those, within how many it must be found.
    pub within: u64,
}

/// A removal, by reference: there is one of each.
pub type Mutation = &'static Removal;

fn any(_: &Profile) -> bool {
    true
}

fn store_back(p: &Profile) -> bool {
    p.store_back
}

fn back_required(p: &Profile) -> bool {
    p.store_back && p.mode == WitnessMode::Required
}

fn region_back(p: &Profile) -> bool {
    p.region_back
}

const PLAIN: Removal = Removal {
    name: "",
    rule: "",
    whose: Whose::All,
    sql: &[],
    link: LinkBend::None,
    witness: WitnessBend::None,
    lose_unsynced: false,
    wedges: false,
    shows: any,
    within: 200,
};

/// Every rule that is taken out.
pub static ALL: &[Removal] = &[
    Removal {
        name: "watermark_not_conditional",
        rule: "a watermark moves only from the row that was read",
        whose: Whose::Authority,
        sql: &[
            (" AND seq = $6 AND row_id = $7 AND bound <= $3", ""),
            ("CREATE UNIQUE INDEX grants_place", "CREATE INDEX grants_place"),
        ],
        ..PLAIN
    },
    Removal {
        name: "end_minus_step",
        rule: "the next lower bound is the stored old end",
        whose: Whose::Authority,
        sql: &[("SET seq = $1, row_id = $2, bound = $3", "SET seq = $1, row_id = $2, bound = $3 - 1")],
        ..PLAIN
    },
    Removal {
        name: "quarantine_ignored",
        rule: "a store in quarantine gives nothing out",
        whose: Whose::Authority,
        sql: &[("SELECT scope, state, generation", "SELECT scope, 'open', generation"), (" AND state = $8", "")],
        shows: store_back,
        ..PLAIN
    },
    Removal {
        name: "mark_without_its_row",
        rule: "a store is current with a mark only if it contains the row that the mark names",
        whose: Whose::Authority,
        sql: &[("SELECT seq FROM marks WHERE row_id = $1", "SELECT MAX(seq) FROM marks WHERE row_id <> $1")],
        shows: back_required,
        ..PLAIN
    },
    Removal {
        name: "witness_forgets",
        rule: "the witness is raised before the answer leaves",
        witness: WitnessBend::Forgets,
        shows: back_required,
        ..PLAIN
    },
    Removal {
        name: "region_mark_without_its_row",
        rule: "a region's store is proved current only by a row that it contains",
        whose: Whose::Regions,
        sql: &[("SELECT seq FROM marks WHERE row_id = $1", "SELECT MAX(seq) FROM marks WHERE row_id <> $1")],
        shows: region_back,
        ..PLAIN
    },
    Removal {
        name: "burn_keeps_the_grants",
        rule: "a store that went back burns what it held",
        whose: Whose::Regions,
        sql: &[(
            "UPDATE grants SET state = 'burned' WHERE state = 'held' AND epoch < $1",
            "UPDATE grants SET epoch = $1 WHERE epoch < $1",
        )],
        shows: region_back,
        ..PLAIN
    },
];

impl Removal {
    /// Bends a message on its way.
    pub fn bend(&self, message: &mut Message) {
        match self.link {
            LinkBend::None => {}
            LinkBend::NoMarks => {
                message.words.marks.clear();
                message.words.promised = Generation::default();
            }
            LinkBend::NoBounds => {
                message.words.marks.clear();
                if let Some(testimony) = &mut message.testimony {
                    testimony.bounds.values_mut().for_each(|bound| *bound = 0);
                    testimony.marks.clear();
                }
            }
            LinkBend::NeverBack => {
                message.words.store_went_back = false;
                message.words.proven = true;
            }
        }
    }
}
