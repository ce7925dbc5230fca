//! What goes over the wires of Cadastre, version 1.
//!
//! | room | between |
//! |---|---|
//! | [`link`] | a region's agent and the authority |
//! | [`ids`] | a caller and an agent |
//! | [`admin`] | an operator, the CLI or the dashboard and the authority |
//! | [`operate`] | the same, about switches and drills; and what of them reaches agents |
//! | [`error`] | everybody: codes that programs branch on, and the problem body |
//!
//! Ids, ordinals, values, sizes and counts of ids are decimal strings in both directions; epochs,
//! region ids, rates, seconds and HTTP-sized counts are numbers. Unknown fields of a request are
//! refused. `docs/protocol.md` shows every body; `golden/` holds one of each, and a test compares.

pub mod admin;
pub mod duplicates;
pub mod error;
pub mod ids;
pub mod link;
pub mod operate;
pub mod rebuild;
pub mod usage;
pub mod workers;

/// The version of the link between agents and the authority.
pub const LINK_VERSION: u32 = 1;
