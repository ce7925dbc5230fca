//! What a store can answer besides success.
//!
//! Purpose: the few kinds that callers branch on. Invariant: a kind is told by the engine's own
//! codes, never by message text; [`DbError::Indeterminate`] is used whenever a COMMIT was sent and
//! its outcome is not known for certain, so that nobody takes it for "nothing was written". No
//! message holds a password. Absent on purpose: a conversion to HTTP (the daemons map it once).

/// Why a unit of database work did not succeed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DbError {
    /// Another transaction won (serialization, deadlock, lock or busy); nothing was written, and
    /// the same unit may succeed at once.
    #[error("another transaction was in the way")]
    Conflict,
    /// A row of this key exists already; nothing was written.
    #[error("a row of this key exists already")]
    Unique,
    /// The store cannot be reached or does not answer; nothing was written.
    #[error("the store is out of reach: {0}")]
    Unavailable(String),
    /// COMMIT was sent, and whether it took effect is unknown.
    #[error("the outcome of the commit is unknown: {0}")]
    Indeterminate(String),
    /// Fewer synchronous standbys than are required have it, or the server is set to prove nothing. What was written
    /// may be lost with this server, so nothing of it may be answered.
    #[error("not proven durable: {0}")]
    NotDurable(String),
    /// The disk is full; nothing was written.
    #[error("the store's disk is full: make room on it; nothing that was given out is lost")]
    Full,
    /// The store accepts no writes (a standby, or a file system mounted read-only).
    #[error("the store is read only: mount its file system writable, or point to the primary")]
    ReadOnly,
    /// What was read contradicts what was written.
    #[error("the store holds something that was never written there: {0}")]
    Corrupt(String),
    /// The schema was made by a newer program.
    #[error(
        "the store's schema is version {found}, this program knows up to {known}: \
         start the newer program that made it, or put back a backup taken before it"
    )]
    NewerSchema {
        /// The version in the store.
        found: u32,
        /// The newest version that this program knows.
        known: u32,
    },
    /// Anything else: a fault of ours or a setting that is refused.
    #[error("{0}")]
    Other(String),
}

impl DbError {
    /// Whether running the whole unit again at once may succeed, with nothing written so far.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Conflict => true,
            Self::Unique
            | Self::Unavailable(_)
            | Self::Indeterminate(_)
            | Self::NotDurable(_)
            | Self::Full
            | Self::ReadOnly
            | Self::Corrupt(_)
            | Self::NewerSchema { .. }
            | Self::Other(_) => false,
        }
    }

    /// A short name for metrics.
    #[must_use]
    pub fn outcome(&self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Unique => "unique",
            Self::Unavailable(_) => "unavailable",
            Self::Indeterminate(_) => "indeterminate",
            Self::NotDurable(_) => "not_durable",
            Self::Full => "full",
            Self::ReadOnly => "read_only",
            Self::Corrupt(_) => "corrupt",
            Self::NewerSchema { .. } => "newer_schema",
            Self::Other(_) => "other",
        }
    }
}
