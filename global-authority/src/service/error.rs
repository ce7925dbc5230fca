//! Why an operation of the authority did not succeed, and the one place where that becomes a problem.

use cadastre_core::namespace::GrantRefusal;
use cadastre_core::registry::RegistryError;
use cadastre_ledger::error::LedgerError;
use cadastre_protocol::error::{Code, Problem};
use cadastre_runtime::db::{DbError, TxError};

/// See the module's documentation.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// Decided: the caller gets exactly this.
    #[error(transparent)]
    Problem(#[from] Problem),
    /// The store or the witness.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The roster moved between reading and writing; read again.
    #[error("the roster moved meanwhile")]
    Stale,
}

impl From<DbError> for ServiceError {
    fn from(error: DbError) -> Self {
        Self::Ledger(LedgerError::Db(error))
    }
}

impl TxError for ServiceError {
    fn db(&self) -> Option<&DbError> {
        match self {
            Self::Ledger(e) => e.db(),
            Self::Problem(_) | Self::Stale => None,
        }
    }
}

impl ServiceError {
    /// A refusal at start, for a person.
    #[must_use]
    pub fn refused(text: &str) -> Self {
        Self::Ledger(LedgerError::Refused(text.to_owned()))
    }

    /// No token, or one that nobody knows.
    #[must_use]
    pub fn unauthenticated() -> Self {
        problem(
            Code::Unauthenticated,
            "no token, or one that is not known (any more); send `Authorization: Bearer TOKEN`",
        )
    }

    /// What the caller is told.
    #[must_use]
    pub fn to_problem(&self) -> Problem {
        match self {
            Self::Problem(problem) => problem.clone(),
            Self::Stale => Problem::new(Code::UpstreamUnavailable, "the roster is being changed by others; try again"),
            Self::Ledger(error) => ledger_problem(error),
        }
    }
}

fn ledger_problem(error: &LedgerError) -> Problem {
    match error {
        LedgerError::Closed(scope) => Problem::new(
            Code::Quarantined,
            format!(
                "{scope} is closed until it is settled whether the store went back in time; see GET /v1/quarantines"
            ),
        )
        .retry_after(2),
        LedgerError::AnotherServer => {
            Problem::new(Code::Quarantined, format!("{error}; it is being judged anew")).retry_after(2)
        }
        LedgerError::NotDurable(why) | LedgerError::Db(DbError::NotDurable(why)) => {
            Problem::new(Code::NotDurable, why.clone())
        }
        LedgerError::Witness(why) => {
            Problem::new(Code::NotDurable, format!("the required witness cannot be used: {why}"))
        }
        LedgerError::Refused(why) => Problem::new(Code::NotAllowed, why.clone()),
        LedgerError::Db(DbError::Indeterminate(_)) => {
            Problem::new(Code::NotDurable, "the commit's outcome is not known; the same request finds out")
        }
        LedgerError::Db(DbError::Unique) => {
            Problem::new(Code::UpstreamUnavailable, "another writer was first; try again")
        }
        LedgerError::Db(error) => Problem::new(Code::UpstreamUnavailable, format!("the authority's store: {error}")),
    }
}

/// A decided refusal.
#[must_use]
pub fn problem(code: Code, detail: impl Into<String>) -> ServiceError {
    ServiceError::Problem(Problem::new(code, detail))
}

/// Nothing is granted in a quarantine.
pub(super) fn quarantined() -> Problem {
    Problem::new(Code::Quarantined, "the authority waits for testimony; go on with what you hold").retry_after(2)
}

/// Why there is no grant, for the agent.
#[must_use]
pub fn grant_problem(refusal: &GrantRefusal) -> Problem {
    let code = match refusal {
        GrantRefusal::Exhausted => Code::Exhausted,
        GrantRefusal::Frozen => Code::Frozen,
        GrantRefusal::HoldsEnough { .. } => Code::HoldingLimit,
        GrantRefusal::NotHome => Code::NotHome,
        GrantRefusal::Leaving => Code::RegionNotReady,
    };
    Problem::new(code, refusal.to_string())
}

impl From<RegistryError> for ServiceError {
    fn from(error: RegistryError) -> Self {
        problem(Code::NotAllowed, error.to_string())
    }
}
