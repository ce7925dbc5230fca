//! What can go wrong with a store, in terms of what its caller may do about it.

use cadastre_runtime::db::{DbError, TxError};

/// A unit of work on a ledger did not succeed; unless it is [`DbError::Indeterminate`], nothing was
/// written.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The store failed.
    #[error(transparent)]
    Db(#[from] DbError),
    /// The scope is not open in the generation that this process verified: it is in quarantine, or
    /// another process opened a newer one. Verify again, then retry.
    #[error("the scope {0} is not open in the generation that this process verified")]
    Closed(String),
    /// The server is another one than the one that the generation was verified on. Verify again.
    #[error("the store's server is another one than the one that was verified")]
    AnotherServer,
    /// The witness failed.
    #[error("the witness cannot be used: {0}")]
    Witness(String),
    /// Committed, but its answer may not leave.
    #[error("written, but not confirmed: {0}")]
    NotDurable(String),
    /// The store, the witness or a peer belongs to somebody else, or is not initialised.
    #[error("{0}")]
    Refused(String),
}

impl TxError for LedgerError {
    fn db(&self) -> Option<&DbError> {
        match self {
            Self::Db(e) => Some(e),
            Self::Closed(_) | Self::AnotherServer | Self::Witness(_) | Self::NotDurable(_) | Self::Refused(_) => None,
        }
    }
}
