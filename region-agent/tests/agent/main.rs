//! The agent on SQLite in a temp folder, with an authority in memory and a clock that stands still.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

mod carve;
mod fake;
mod link;
mod rig;
mod start;
mod step;
