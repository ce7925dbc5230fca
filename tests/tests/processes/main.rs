//! The product as it is run: real authorities and agents, on SQLite and PostgreSQL, with the wide area, the
//! stores and the processes themselves failing underneath, and one judge of every id that was exposed.
//!
//! One binary for all subjects, so that it is linked once and its tests run side by side. `CADASTRE_SOAK=1`
//! makes the random ones long.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::indexing_slicing)]

mod agents;
mod alarms;
mod answers;
mod apply;
mod bad_input;
mod cancelled;
mod cases;
mod client;
mod clocks;
mod clones;
mod crowd;
mod dashboard;
mod doctor;
mod drills;
mod failovers;
mod growth;
mod hand;
mod held;
mod help;
mod kills;
mod late;
mod layouts;
mod origins;
mod patroni;
mod quotas;
mod radius;
mod readers;
mod rebuild;
mod redefined;
mod redis_clients;
mod registry;
mod rehearsals;
mod relay;
mod remembered;
mod resp;
mod restore;
mod roles;
mod rolling;
mod segments;
mod services;
mod stampers;
mod stop;
mod store_faults;
mod storms;
mod switches;
mod synchronous;
mod tls;
mod trust;
mod twins;
mod waiting;
mod wan;
mod windows;
mod witness;
mod witness_parts;
