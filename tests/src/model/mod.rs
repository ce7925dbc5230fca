//! The protocol's continuity rules as a model that a person can read, rule beside rule.
//!
//! What is pure in the product is called here, not copied: the verdicts of `cadastre_core::continuity`,
//! the life cycle of a region, the decision on a grant, the carve, the union of rosters. What is
//! imperative in the services (transactions, their guards, the order of steps) is written once more,
//! small, with every step at which the world may change.
//!
//! | file | holds |
//! |---|---|
//! | [`rules`] | every rule by name, its sentence, what it closes; any can be taken out |
//! | [`marks`] | marks, rosters, definitions, and their way into the product's types |
//! | [`state`], [`message`], [`setup`] | the world, the wire, what a run has and what may go wrong |
//! | [`record`] | what was exposed, what was violated, the timeline |
//! | [`authority`], [`grants`], [`gate`], [`quarantine`] | the authority |
//! | [`region`], [`issue`] | a region's store and its agents |
//! | [`operator`], [`faults`] | what people do, and what breaks; the stated limits, by name |
//! | [`action`], [`settle`] | a step of a run; coming to rest |
//! | [`walk`], [`check`] | random walks with shortening and timelines; exhaustive checking |
//! | [`mutations`], [`pinned`] | each rule taken out and found; what the model found, kept |

// The fields of a model are its text; a sentence each would hide it.
#![allow(missing_docs)]

pub mod action;
pub mod authority;
pub mod check;
pub mod faults;
pub mod gate;
pub mod grants;
pub mod issue;
pub mod marks;
pub mod message;
pub mod mutations;
pub mod operator;
pub mod pinned;
pub mod quarantine;
pub mod record;
pub mod region;
pub mod rules;
pub mod settle;
pub mod setup;
pub mod state;
pub mod walk;
