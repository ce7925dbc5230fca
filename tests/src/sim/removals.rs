//! Every rule that is taken out of the simulated installation, and within how many runs that is found.
//!
//! Texts of the product's SQL stand here to be replaced. A test holds that each is still in the product,
//! so that a removal never quietly removes nothing.

use cadastre_core::continuity::WitnessMode;

use super::mutation::{LinkBend, Removal, Whose, WitnessBend};
use super::ops::Profile;

fn any(_: &Profile) -> bool {
    true
}

fn store_back(p: &Profile) -> bool {
    p.store_back
}

fn back_required(p: &Profile) -> bool {
    p.store_back && p.mode == WitnessMode::Required
}

fn back_unwitnessed(p: &Profile) -> bool {
    p.store_back && p.mode == WitnessMode::None
}

fn back_with_operators(p: &Profile) -> bool {
    back_unwitnessed(p) && p.operators
}

fn region_back(p: &Profile) -> bool {
    p.region_back
}

fn region_unwitnessed(p: &Profile) -> bool {
    !p.region_witness && p.network
}

fn shared(p: &Profile) -> bool {
    p.two_agents
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
        within: 200,
        ..PLAIN
    },
    Removal {
        name: "end_minus_step",
        rule: "the next lower bound is the stored old end",
        whose: Whose::Authority,
        sql: &[("SET seq = $1, row_id = $2, bound = $3", "SET seq = $1, row_id = $2, bound = $3 - 1")],
        within: 10,
        ..PLAIN
    },
    Removal {
        name: "worker_watermark_forgotten",
        rule: "a worker's next window begins at or above the end of its last one",
        whose: Whose::Regions,
        sql: &[
            ("SELECT worker, ends FROM workers", "SELECT worker, 0 AS ends FROM workers"),
            (" AND worker = $4 AND ends = $5", " AND worker = $4 AND ends >= $5"),
        ],
        within: 60,
        ..PLAIN
    },
    Removal {
        name: "quarantine_ignored",
        rule: "a store in quarantine gives nothing out",
        whose: Whose::Authority,
        sql: &[("SELECT scope, state, generation", "SELECT scope, 'open', generation"), (" AND state = $8", "")],
        shows: store_back,
        within: 50,
        ..PLAIN
    },
    Removal {
        name: "mark_without_its_row",
        rule: "a store is current with a mark only if it contains the row that the mark names",
        whose: Whose::Authority,
        sql: &[("SELECT seq FROM marks WHERE row_id = $1", "SELECT MAX(seq) FROM marks WHERE row_id <> $1")],
        shows: back_required,
        within: 40,
        ..PLAIN
    },
    Removal {
        name: "witness_forgets",
        rule: "a witness that is said to be raised is raised",
        witness: WitnessBend::Forgets,
        shows: back_required,
        // Whoever let something out looks whether it is still named, so nothing is ever served.
        wedges: true,
        within: 40,
        ..PLAIN
    },
    Removal {
        name: "start_is_no_suspicion",
        rule: "a store that nobody vouches for is in quarantine from its start until everybody was heard",
        whose: Whose::Authority,
        sql: &[("UPDATE scopes SET state = $1,", "UPDATE scopes SET state = 'open',")],
        shows: back_unwitnessed,
        within: 40,
        ..PLAIN
    },
    Removal {
        name: "testimony_without_bounds",
        rule: "a region testifies the highest ordinal that it ever held",
        link: LinkBend::NoBounds,
        shows: back_unwitnessed,
        wedges: true,
        within: 20,
        ..PLAIN
    },
    Removal {
        name: "testimony_of_any_generation",
        rule: "a testimony counts for the generation that was promised with it",
        whose: Whose::Authority,
        sql: &[(
            "SELECT region, generation, epoch, store_id, bounds FROM testimonies",
            "SELECT region, (SELECT MAX(generation) FROM scopes), epoch, store_id, bounds FROM testimonies",
        )],
        shows: back_unwitnessed,
        within: 40,
        ..PLAIN
    },
    Removal {
        name: "roster_not_testified",
        rule: "a region testifies whom it knows",
        link: LinkBend::NoRoster,
        shows: back_with_operators,
        wedges: true,
        within: 40,
        ..PLAIN
    },
    Removal {
        name: "lifted_at_its_own_bound",
        rule: "a quarantine is lifted past everything that anybody holds",
        whose: Whose::Authority,
        sql: &[("row_id = $4, bound = $5, base", "row_id = $4, bound = bound, base")],
        shows: store_back,
        within: 50,
        ..PLAIN
    },
    Removal {
        name: "lifted_without_a_base",
        rule: "a lift records what it was raised to as its base",
        whose: Whose::Authority,
        sql: &[("bound = $5, base = $6", "bound = $5, base = 0")],
        shows: store_back,
        wedges: true,
        within: 10,
        ..PLAIN
    },
    Removal {
        name: "region_mark_without_its_row",
        rule: "a region's store is proved current only by a row that it contains",
        whose: Whose::Regions,
        sql: &[("SELECT seq FROM marks WHERE row_id = $1", "SELECT MAX(seq) FROM marks WHERE row_id <> $1")],
        shows: region_back,
        within: 100,
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
        within: 10,
        ..PLAIN
    },
    Removal {
        name: "copies_are_at_home",
        rule: "a store that is opened in another place may be a copy of one in use",
        whose: Whose::Regions,
        sql: &[("ELSE place END", "ELSE $1 END")],
        shows: region_back,
        within: 250,
        ..PLAIN
    },
    Removal {
        name: "carve_not_durable",
        rule: "a carve is durable before a number of it is exposed",
        whose: Whose::Regions,
        lose_unsynced: true,
        shows: region_unwitnessed,
        within: 300,
        ..PLAIN
    },
    Removal {
        name: "segment_carved_twice",
        rule: "a carve moves the grant's cursor (the unique place of a segment, which closes the same, is out too)",
        whose: Whose::Regions,
        sql: &[
            ("UPDATE grants SET carved_to = $1", "UPDATE grants SET carved_to = carved_to"),
            ("CREATE UNIQUE INDEX segments_place", "CREATE INDEX segments_place"),
        ],
        within: 10,
        ..PLAIN
    },
    Removal {
        name: "carve_not_conditional",
        rule: "a carve moves the cursor only from where it was read (the region's mark and the unique place, too)",
        whose: Whose::Regions,
        sql: &[
            (" AND carved_to = $3 AND hi >= $1 AND epoch = $4 AND state = 'held'", ""),
            (" AND seq = $6 AND row_id = $7 AND bound <= $3", ""),
            ("CREATE UNIQUE INDEX segments_place", "CREATE INDEX segments_place"),
        ],
        shows: shared,
        within: 10,
        ..PLAIN
    },
];
