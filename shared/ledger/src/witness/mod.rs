//! The witness: marks kept in another failure domain than the store.
//!
//! It holds, per scope, the highest mark whose answer may have left, and the roster as of its mark: a
//! mark alone would say that a region was forgotten, and not which. It is raised by compare-and-set
//! **before** an answer leaves, only upwards, and it is never the only place that a bound stands: a
//! witness can stop an answer or end a doubt, it cannot grant. Its key is the role (and cluster) of
//! the store that it watches, so that two stores never share one by accident.

pub mod file;
pub mod redis;
pub mod setting;
mod sql;

use std::collections::BTreeMap;

use async_trait::async_trait;
use cadastre_core::ids::ClusterId;
use cadastre_core::mark::{Mark, Scope};
use cadastre_core::roster::Entry;

pub use self::redis::RedisWitness;
pub use file::FileWitness;

/// Marks by scope.
pub type Marks = BTreeMap<Scope, Mark>;

/// The witness could not be used.
#[derive(Debug, thiserror::Error)]
pub enum WitnessError {
    /// Out of reach, full, damaged.
    #[error("{0}")]
    Unavailable(String),
    /// It watches somebody else.
    #[error("this witness belongs to {found}, not to {wanted}: give every store a witness of its own")]
    WrongOwner {
        /// Whom it watches.
        found: String,
        /// Who asked.
        wanted: String,
    },
}

/// One compare-and-set.
#[derive(Clone, Debug, PartialEq)]
pub struct Raise {
    /// The scope.
    pub scope: Scope,
    /// What was read; `None` where the witness did not name the scope.
    pub was: Option<Mark>,
    /// What it becomes.
    pub now: Mark,
}

/// A store of marks with compare-and-set.
#[async_trait]
pub trait Witness: Send + Sync {
    /// All marks; `None` where it is empty.
    ///
    /// # Errors
    /// [`WitnessError`].
    async fn read(&self) -> Result<Option<Marks>, WitnessError>;

    /// The marks of some scopes; `None` where the whole witness is empty.
    ///
    /// # Errors
    /// [`WitnessError`].
    async fn read_some(&self, scopes: &[Scope]) -> Result<Option<Marks>, WitnessError>;

    /// Raises all of them and unites `roster`, or does nothing where one was raised by somebody else
    /// meanwhile (`false`).
    ///
    /// # Errors
    /// [`WitnessError`].
    async fn raise(&self, raises: Vec<Raise>, roster: Vec<Entry>) -> Result<bool, WitnessError>;

    /// Fills an empty witness; `false` where it is not empty.
    ///
    /// # Errors
    /// [`WitnessError`].
    async fn fill(&self, marks: Marks, roster: Vec<Entry>) -> Result<bool, WitnessError>;

    /// The roster that was witnessed.
    ///
    /// # Errors
    /// [`WitnessError`].
    async fn roster(&self) -> Result<Vec<Entry>, WitnessError>;

    /// Says of which cluster the store is, where that is known: a witness that several clusters can reach
    /// belongs to the first one that says so.
    ///
    /// # Errors
    /// [`WitnessError::WrongOwner`] where it belongs to another cluster.
    async fn claim(&self, cluster: ClusterId) -> Result<(), WitnessError> {
        let _ = cluster;
        Ok(())
    }
}
