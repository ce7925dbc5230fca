//! What every daemon needs besides the rules: time, randomness, configuration, telemetry, HTTP
//! manners and the database door.
//!
//! Invariant: clocks are read in `clock` alone, randomness is drawn in `entropy` alone, a store is
//! reached through `db` alone. Nothing here knows a rule of allocation; those are in the core.

pub mod clock;
pub mod db;
pub mod entropy;
