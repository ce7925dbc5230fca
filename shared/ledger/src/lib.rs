//! What the stores of both tiers share.
//!
//! The authority's store and a region's store are the same kind of thing: scopes with marks, a
//! roster, a generation, a quarantine, a witness, and a gate that every answer leaves through. The
//! rules are verdicts in [`cadastre_core::continuity`]; this crate reads the rows that a verdict
//! needs and writes what it says, in one guarded transaction each.
//!
//! | room | what |
//! |---|---|
//! | [`sql`] | the only SQL over the shared tables |
//! | [`continuity`] | start, gate, suspicion: the life of one store in one process |
//! | [`witness`] | marks kept in another failure domain |
//! | [`error`] | what can go wrong |

pub mod continuity;
pub mod error;
pub mod sql;
pub mod witness;
