//! The harness: what a test needs to run Cadastre as it is run in earnest, and to hurt it.
//!
//! Real binaries, throwaway PostgreSQL and Redis, a proxy that loses requests or answers, load in the
//! background, and a ledger of every id that was ever exposed. Nothing here knows the inside of the
//! product: it uses the programs' environment, HTTP and exit codes only, so a test written with it
//! stays true whatever the inside becomes.
//!
//! | module | gives |
//! |---|---|
//! | [`browser`] | a real Chromium, and what the page in it was told |
//! | [`ports`] | loopback ports that no other test will be handed |
//! | [`scratch`] | folders that vanish and the watchdog that leaves no process behind |
//! | [`child`] | a process as the harness holds it: signals to all of it, bounded waits |
//! | [`postgres`], [`redis`] | throwaway servers |
//! | [`patroni`] | three PostgreSQL nodes under Patroni and etcd, as shipped |
//! | [`process`] | [`process::Daemon`]: one of our own binaries |
//! | [`proxy`], [`frame`] | the wide area between agent and authority, with faults |
//! | [`http`] | asking, generously timed |
//! | [`cluster`], [`region`] | an authority and its regions, ready to serve |
//! | [`ledger_of_ids`] | [`ledger_of_ids::Exposed`]: finds a duplicate the moment it is exposed |
//! | [`load`] | callers in the background |
//! | [`mounts`] | file systems that are full, read-only, or lose their power |

// A harness reads the real clock, and a failure of its own set-up should stop the test with a sentence:
// the bans hold for the product, where both would be faults.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]
#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
// The model's states are values to be compared, not structures to be sped up.
#![allow(clippy::large_enum_variant, clippy::needless_range_loop)]

pub mod browser;
pub mod child;
pub mod cluster;
pub mod frame;
pub mod http;
pub mod ledger_of_ids;
pub mod load;
pub mod model;
pub mod mounts;
pub mod pair;
pub mod patroni;
pub mod ports;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod puppet;
pub mod redis;
pub mod region;
pub mod scratch;
pub mod sim;
pub mod switch;
