//! The simulator: the shipped services over simulated time, disks, network, clocks and operators.
//!
//! Nothing of the product is copied or mocked: [`global_authority::service::Authority`] and
//! [`region_agent`]'s logic run as they ship, with their real SQL on real SQLite. What is simulated is
//! what stands around them: the executor, the clocks, the entropy, the database engine's crashes and
//! copies, the witness, the network, and the people. One seed is one run, to the byte.
//!
//! | room | what |
//! |---|---|
//! | [`exec`] | tasks, virtual time, one random source |
//! | [`disk`] | the database engine: read committed, crashes, copies put back |
//! | [`parts`] | clock, entropy, witness |
//! | [`net`] | the wide area, with its faults |
//! | [`ops`], [`operate`] | what can happen, and doing it |
//! | `homes` | switches in a run |
//! | [`run`] | a run from set-up to verdict, and shortening one that fails |
//! | [`mutation`], [`removals`] | rules taken out, to see that it is found |
//! | [`pinned`] | what was found, kept |
//! | [`callers`] | an agent's loops, and who asks it for ids |
//! | [`thick`] | processes that issue by themselves: the shipped client's logic |
//! | [`world`] | one installation, and everything that it ever exposed |

pub mod callers;
pub mod disk;
pub mod exec;
mod homes;
pub mod mutation;
pub mod net;
pub mod operate;
pub mod ops;
pub mod parts;
pub mod pinned;
pub mod removals;
pub mod run;
pub mod thick;
pub mod world;
