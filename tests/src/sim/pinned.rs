//! What the simulator found in the product, kept as short lists of operations.
//!
//! Each failed before its mend, with just these operations; with the product as it is they must come to
//! nothing. A seed's randomness is part of the case: where the product asks for more of it, the same list is
//! another run, so a case says what to look at, not what a version was proved to be free of.

use super::ops::{Kind, Op};
use super::run::{Outcome, run_ops};

/// A hole that the simulator found.
#[derive(Clone, Copy, Debug)]
pub struct Pinned {
    /// Its name.
    pub name: &'static str,
    /// What was wrong, and the mend.
    pub story: &'static str,
    /// The seed, for its profile.
    pub seed: u64,
    /// What happens.
    pub ops: &'static [Op],
}

impl Pinned {
    /// Runs it.
    #[must_use]
    pub fn run(&self) -> Outcome {
        run_ops(self.seed, self.ops, None)
    }
}

/// All of them.
pub const PINNED: &[Pinned] = &[
    Pinned {
        name: "a_token_that_came_by_testimony",
        story: "A region is registered, then the authority's store goes back. Testimony names the region and its token, but roster \
                entries that are united inside a quarantine move no mark, and what had not moved was not read again: the \
                region was a stranger, was never heard, and the quarantine waited for it for ever. Mend: in a quarantine \
                the roster is read each time.",
        seed: 1389,
        ops: &[
            Op { kind: Kind::Run(1), seed: 0x625f_6e48_9f17_3f9c },
            Op { kind: Kind::BackupStore, seed: 0x7d9a_e837_8eef_ca25 },
            Op { kind: Kind::NewRegion, seed: 0xec63_09d4_d984_34b4 },
            Op { kind: Kind::PauseAgent(0), seed: 0x5f6e_01d3_9b73_ef03 },
            Op { kind: Kind::Run(3_000), seed: 0x1be7_3fd8_e149_7870 },
            Op { kind: Kind::RestoreStore(2), seed: 0x0a1b_d045_7bee_a1cc },
            Op { kind: Kind::KillAgent(1), seed: 0x5310_a19e_e000_b461 },
            Op { kind: Kind::Run(9_000), seed: 0x3f04_1fd8_1863_078c },
        ],
    },
    Pinned {
        name: "an_epoch_given_out_inside_a_quarantine",
        story: "A region whose store went back gets its next epoch inside a quarantine, which no witness hears of. A \
                restore forgets it, the witness alone ends the next quarantine below it, and the region refuses every \
                answer. Mend: an epoch above the known one is kept at once, so that whatever ends the doubt ends above it.",
        seed: 304,
        ops: &[
            Op { kind: Kind::Run(700), seed: 0xddb0_aada_c486_e85f },
            Op { kind: Kind::Run(40), seed: 0xe9b7_4077_7903_345a },
            Op { kind: Kind::KillAuthority(0), seed: 0x077f_28f9_5d97_4316 },
            Op { kind: Kind::Run(3_000), seed: 0x2892_87f8_8c18_d735 },
            Op { kind: Kind::Run(3_000), seed: 0x328d_8127_aba5_1b39 },
            Op { kind: Kind::KillAgent(1), seed: 0xe8a6_e5a8_e126_b6ea },
            Op { kind: Kind::Run(40), seed: 0xea88_5073_f647_4290 },
            Op { kind: Kind::BackupStore, seed: 0x7788_50d4_71f5_b0bd },
            Op { kind: Kind::Run(9_000), seed: 0x37ce_e42c_b228_1f4b },
            Op { kind: Kind::Run(1), seed: 0x3b29_d898_39c4_d86b },
            Op { kind: Kind::StartAgent(1), seed: 0x3e58_9953_09fd_e485 },
            Op { kind: Kind::Run(1), seed: 0x07b2_b74d_04c6_22d3 },
            Op { kind: Kind::RestoreStore(3), seed: 0x19df_cb5a_2133_3e7f },
            Op { kind: Kind::Run(1), seed: 0x81f2_6452_6f9c_59b4 },
            Op { kind: Kind::Run(9_000), seed: 0x1fe8_0771_8356_1de8 },
            Op { kind: Kind::Run(700), seed: 0x085e_e25f_e4ea_e4e9 },
            Op { kind: Kind::Run(3_000), seed: 0x399c_c5f9_6d8a_ffaa },
            Op { kind: Kind::KillAuthority(0), seed: 0xfedb_d6d0_b4e1_d811 },
            Op { kind: Kind::StartAuthority(0), seed: 0x13a1_232c_6ffb_ab98 },
            Op { kind: Kind::Run(40), seed: 0x6afa_693c_f18f_c4e7 },
            Op { kind: Kind::Run(1), seed: 0xadf8_0154_b2f6_bed2 },
            Op { kind: Kind::Promote(0, true), seed: 0xade9_a98f_d3fa_1b0f },
            Op { kind: Kind::Run(40), seed: 0xf918_ea7f_f87d_f015 },
            Op { kind: Kind::Run(700), seed: 0x18df_a515_efdb_8d2d },
            Op { kind: Kind::Lossy(1), seed: 0x4dce_d7b9_944a_f2ee },
            Op { kind: Kind::Run(9_000), seed: 0xa264_64ab_a5a8_50ce },
            Op { kind: Kind::Run(700), seed: 0x610d_c518_2fea_47ac },
            Op { kind: Kind::StateBounds(0), seed: 0x5527_a0fa_6c6a_f4ac },
            Op { kind: Kind::RestoreStore(0), seed: 0x72e5_e3f2_8b46_97e1 },
        ],
    },
    Pinned {
        name: "a_copy_while_the_authority_answers_with_an_error",
        story: "A data folder is copied with its witness and started elsewhere while the authority's own witness is out of \
                reach. The copy's first message is refused, which counted as having been asked in vain, and both copies carved \
                the same grants. Mend: a store that may be a copy carves only where the authority is out of reach.",
        seed: 3269,
        ops: &[
            Op { kind: Kind::WitnessDown, seed: 0x0c9e_7458_ae8d_6813 },
            Op { kind: Kind::CloneRegion(0), seed: 0x93ff_c706_9334_f38f },
        ],
    },
];
