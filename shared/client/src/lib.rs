//! Issues Cadastre IDs in your own process: from memory, at the cost of an atomic add.
//!
//! An agent gives the process a *segment*, a range of numbers that nobody else is ever given. [`Namespace::next`] takes
//! the next number out of it. Long before a segment is used up the next one is asked for, as large as your pace needs;
//! so a call hardly ever waits, and the process goes on through an outage of its agents for as long as it holds numbers.
//!
//! ```
//! use cadastre_client::Client;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), cadastre_client::Error> {
//! // In production: Client::builder().agent("http://127.0.0.1:7410").token(token).name("checkout").build()?
//! let client = Client::in_memory()?;
//!
//! let orders = client.namespace("orders")?; // keep it: this is the fast path
//! client.ready().await?;
//!
//! let first = orders.next().await?;
//! let second = orders.next().await?;
//! assert!(second > first);
//! assert_eq!(orders.next_n(1_000).await?.count(), 1_000);
//!
//! // Written as a string: JSON's numbers end at 2^53.
//! println!("{first} is {}", first.get());
//! client.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # What holds
//!
//! - **No ID twice**, over all processes, agents and regions: also if an answer is lost, an agent is killed or the process
//!   forks. What is in memory when a process ends is a gap.
//! - **In order within a process**: a call that begins after another one returned gets a higher ID (a lower one where the
//!   namespace's increment is negative), whichever thread makes it and whichever region gave the segment.
//!   [`Namespace::chunks`] trades that for speed: each handle rises, two of them do not follow one another.
//! - **Not in order between processes.** Do not poll for `id > last`.
//! - A caller waits only where memory has nothing, at most to its deadline, and only while more can come. Then it gets an
//!   [`Error`] with a stable [code](Error::code) that says whether a [retry](Error::retryable) helps. A retry is always safe.
//!
//! # Time
//!
//! [`Client::stamps`] opens a time-based namespace: [`Stamps::next`] gives IDs of time, region, worker and sequence, out of
//! a window of time that nobody else has. See [`Stamps`].
//!
//! # Agents
//!
//! Name several: the first is asked as long as it answers; then the next, and again the first once it is well. An agent of
//! another region gives numbers of its own region.
//!
//! # Threads, runtimes and forks
//!
//! Each client has one thread that refills. The `async` forms need a tokio runtime where they wait, the `blocking` ones
//! need none. A client may be forked: the child notices, throws the inherited numbers away and asks for its own (use the
//! blocking forms there: a runtime does not survive a fork). As in every process with threads, a forked child must be
//! careful until then: what other libraries hold locked stays locked.
//!
//! # Metrics
//!
#![doc = include_str!("metrics.md")]
#![deny(missing_docs)]

mod builder;
mod chunks;
mod client;
mod conversation;
mod duplicates;
mod entry;
mod error;
mod fork;
mod id;
mod lane;
mod metrics;
mod namespace;
mod post;
mod posts;
mod process;
mod refill;
mod round;
mod stamps;
mod system;
pub mod testing;
mod wire;
mod worker;

pub use builder::Builder;
pub use cadastre_protocol::error::Problem;
pub use chunks::Chunks;
pub use client::{Client, Shutdown};
pub use error::{Error, ErrorKind};
pub use id::{Id, Ids, ParseIdError};
pub use namespace::{MAX_BATCH, Namespace};
pub use stamps::Stamps;

/// What a simulator drives; not for programs, and not stable.
#[doc(hidden)]
pub mod engine {
    pub use crate::conversation::{Conversation, Failure};
    pub use crate::entry::{Entry, Look, Missing};
    pub use crate::lane::Lane;
    pub use crate::refill::policy;
    pub use crate::round::{Surroundings, refill};
}
