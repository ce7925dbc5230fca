//! What every daemon needs besides the rules: time, randomness, configuration, telemetry, HTTP
//! manners and the database door.
//!
//! | room | purpose |
//! |---|---|
//! | [`clock`] | the only file that reads clocks |
//! | [`entropy`] | the only file that draws randomness |
//! | [`token`] | bearer tokens, masked secrets |
//! | [`db`] | the only way to a store |
//! | [`data_dir`] | one process per data folder |
//! | [`config`] | flags over environment over file over defaults |
//! | [`telemetry`] | logs and metrics |
//! | [`http`] | problems, extractors, request ids, stopping in order |
//!
//! Invariant: nothing here knows a rule of allocation; those are in the core. Absent on purpose:
//! routes, SQL of a store, the per-daemon settings.

pub mod clock;
pub mod config;
pub mod data_dir;
pub mod db;
pub mod entropy;
pub mod errand;
pub mod http;
pub mod telemetry;
pub mod tls;
pub mod token;
pub mod uuid7;
