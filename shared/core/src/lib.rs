//! The rules of Cadastre, pure.
//!
//! Nothing here reads a clock, draws a random number, opens a file or waits: time, randomness and
//! fresh ids are arguments, and every function returns what is to be written and answered. The
//! crate's dependencies prove it. A rule of `docs/protocol.md` stands in exactly one of these rooms:
//!
//! | room | rule |
//! |---|---|
//! | [`range`], [`sequence`] | the number line: half-open ranges of ordinals, and how an ordinal becomes a value |
//! | [`namespace`] | the authority's watermark and its grant decision |
//! | [`pool`] | a region's grants, blocks and carves |
//! | [`segment`], [`chunks`] | one process's cursor (the only file with atomics), and many ids at a time for one thread |
//! | [`layout`], [`window`], [`stamp`] | time-based ids: bits, who may stamp when, and one worker's stamps |
//! | [`refill`] | when to ask above, and for how much: one policy for three tiers |
//! | [`registry`] | the life cycle of a region |
//! | [`switch`], [`drill`] | a home moves step by step; what a rehearsal may do, and how it went |
//! | [`roster`] | who exists, as versioned entries that both tiers keep and unite |
//! | [`mark`], [`continuity`] | marks, generations, the gate, and the verdict on a store that went back |
//! | [`knows`] | who reads what: values, kinds and layouts that a process cannot follow |
//! | [`principal`] | who is calling, by the roster's token hashes |
//! | [`plan`] | headroom arithmetic |
//! | [`outlook`] | is anything wrong: the levels that page, CLI and alerts share |
//! | [`durability`], [`store_findings`] | what must be proven of a commit; what is wrong with how a store is set up |
//! | [`quota`] | how a limit is shared by tenants, agents and processes |
//! | [`invariant`] | A1 .. C1 as named predicates |

pub mod chunks;
pub mod continuity;
pub mod decimal;
pub mod drill;
pub mod durability;
pub mod failover;
pub mod gameday;
pub mod ids;
pub mod invariant;
pub mod knows;
pub mod layout;
pub mod mark;
pub mod namespace;
pub mod outlook;
pub mod overlap;
pub mod plan;
pub mod pool;
pub mod principal;
pub mod quota;
pub mod range;
pub mod refill;
pub mod registry;
pub mod roster;
pub mod segment;
#[cfg(test)]
mod segment_tests;
pub mod sequence;
pub mod stamp;
pub mod store_findings;
pub mod switch;
pub mod window;

/// What the cursor is made of; a model checker puts its own in their place.
mod sync {
    pub use std::sync::atomic::AtomicU64;
    pub use std::sync::{Mutex, MutexGuard};
}
