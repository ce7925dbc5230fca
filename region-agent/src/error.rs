//! Why an operation of the agent did not succeed, and the one place where that becomes a problem.

use cadastre_core::ids::Name;
use cadastre_ledger::error::LedgerError;
use cadastre_protocol::error::{Code, Problem};
use cadastre_runtime::db::{DbError, TxError};

/// See the module's documentation.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AgentError {
    /// Decided: the caller gets exactly this.
    #[error(transparent)]
    Problem(#[from] Problem),
    /// The store, or the witness, cannot be used just now.
    #[error("the region's store: {0}")]
    Store(String),
    /// Committed, but its answer may not leave.
    #[error("written, but not confirmed: {0}")]
    NotDurable(String),
    /// Another process of this store opened a newer generation: look again, then retry.
    #[error("the store's generation moved meanwhile")]
    Moved,
    /// The store's epoch is another one than this process holds: look again.
    #[error("the region's epoch moved meanwhile")]
    EpochMoved,
    /// Proof that the region's store went back in time; nothing of the transaction was written.
    #[error("the region's store went back: {0}")]
    WentBack(&'static str),
    /// A transaction met another one; the door retries it.
    #[error(transparent)]
    Db(DbError),
    /// Nothing is left in the region for this namespace.
    #[error("the region holds nothing more of {0}")]
    RegionDry(Name),
}

impl From<DbError> for AgentError {
    fn from(error: DbError) -> Self {
        Self::Db(error)
    }
}

impl From<LedgerError> for AgentError {
    fn from(error: LedgerError) -> Self {
        match error {
            LedgerError::Db(DbError::NotDurable(why)) => Self::NotDurable(why),
            LedgerError::Db(error) => Self::Db(error),
            LedgerError::Closed(_) | LedgerError::AnotherServer => Self::Moved,
            LedgerError::Witness(why) => Self::Store(format!("the witness cannot be used: {why}")),
            LedgerError::NotDurable(why) => Self::NotDurable(why),
            LedgerError::Refused(why) => problem(Code::NotAllowed, why),
        }
    }
}

impl TxError for AgentError {
    fn db(&self) -> Option<&DbError> {
        match self {
            Self::Db(error) => Some(error),
            Self::Problem(_)
            | Self::Store(_)
            | Self::NotDurable(_)
            | Self::Moved
            | Self::EpochMoved
            | Self::WentBack(_)
            | Self::RegionDry(_) => None,
        }
    }
}

impl AgentError {
    /// Whether the store itself failed, as opposed to having answered.
    #[must_use]
    pub fn is_store_failure(&self) -> bool {
        match self {
            Self::Store(_) => true,
            Self::Db(error) => !matches!(error, DbError::Conflict | DbError::Unique),
            Self::Problem(_)
            | Self::NotDurable(_)
            | Self::Moved
            | Self::EpochMoved
            | Self::WentBack(_)
            | Self::RegionDry(_) => false,
        }
    }

    /// Whether the store, or its witness, can be read all the same.
    #[must_use]
    pub fn is_refused_write(&self) -> bool {
        match self {
            Self::Store(_) | Self::Db(DbError::Full | DbError::ReadOnly) => true,
            Self::Db(_)
            | Self::Problem(_)
            | Self::NotDurable(_)
            | Self::Moved
            | Self::EpochMoved
            | Self::WentBack(_)
            | Self::RegionDry(_) => false,
        }
    }

    /// What the caller is told.
    #[must_use]
    pub fn to_problem(&self) -> Problem {
        match self {
            Self::Problem(problem) => problem.clone(),
            Self::RegionDry(_) => Problem::new(Code::SegmentDry, self.to_string()),
            Self::Moved | Self::EpochMoved | Self::Db(DbError::Conflict | DbError::Unique) => {
                Problem::new(Code::SegmentDry, "other requests were in the way; the same request may succeed at once")
            }
            Self::NotDurable(_) | Self::Db(DbError::Indeterminate(_) | DbError::NotDurable(_)) => {
                Problem::new(Code::NotDurable, self.to_string())
            }
            Self::WentBack(_) => Problem::new(Code::StoreUnproven, self.to_string()),
            Self::Store(_) => Problem::new(Code::UpstreamUnavailable, self.to_string()),
            Self::Db(error) => Problem::new(Code::UpstreamUnavailable, format!("the region's store: {error}")),
        }
    }
}

/// What the caller of a door is told; logged here where the fault is ours or the store's.
#[must_use]
pub fn told(error: &AgentError) -> Problem {
    let problem = error.to_problem();
    if problem.code == Code::Internal {
        tracing::error!(%error, "refused");
    } else if !matches!(error, AgentError::Problem(_) | AgentError::RegionDry(_)) {
        tracing::warn!(code = problem.code.as_str(), %error, "refused");
    }
    problem
}

/// A decided refusal.
#[must_use]
pub fn problem(code: Code, detail: impl Into<String>) -> AgentError {
    AgentError::Problem(Problem::new(code, detail))
}
