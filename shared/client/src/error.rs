//! Why there is no ID: one type, with a stable code and whether a retry helps.
//!
//! Invariant: no text holds a token. Absent on purpose: a source chain of HTTP errors; what went wrong on the
//! wire is in words.

use std::time::Duration;

use cadastre_protocol::error::{Code, Problem};

/// Why there is no ID. A retry is always safe: it gets another ID.
///
/// One word in size, so that the path of an ID does not carry it about.
#[derive(Clone, Eq, PartialEq, Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(Box<ErrorKind>);

/// What an [`Error`] is; see [`Error::kind`].
#[derive(Clone, Eq, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A setting of the builder, or a namespace's name, is not usable.
    #[error("{field}: {problem}")]
    Config {
        /// What to change.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// An agent refused, and so would have the next ones.
    #[error("the agent refuses: {0}")]
    Refused(#[source] Problem),
    /// No agent answers, and nothing is left in memory.
    #[error("no agent answers, and nothing is left here: {0}")]
    Unreachable(String),
    /// Nothing came before the caller's deadline.
    #[error("nothing came within {} ms: {why}", waited.as_millis())]
    Deadline {
        /// How long the caller waited.
        waited: Duration,
        /// What it waited for, or why the last try failed.
        why: String,
    },
    /// The client was shut down, or this process cannot run it.
    #[error("the client is closed: {0}")]
    Closed(String),
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Error {
        Error(Box::new(kind))
    }
}

impl Error {
    pub(crate) fn config(field: &'static str, problem: impl Into<String>) -> Error {
        ErrorKind::Config { field, problem: problem.into() }.into()
    }

    pub(crate) fn closed(why: impl Into<String>) -> Error {
        ErrorKind::Closed(why.into()).into()
    }

    /// Which of the kinds it is, with its details.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }

    /// For programs; stable, and one of the protocol's codes.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self.kind() {
            ErrorKind::Config { .. } => Code::InvalidRequest,
            ErrorKind::Refused(problem) => problem.code,
            ErrorKind::Unreachable(_) => Code::UpstreamUnavailable,
            ErrorKind::Deadline { .. } => Code::SegmentDry,
            ErrorKind::Closed(_) => Code::ShuttingDown,
        }
        .as_str()
    }

    /// Whether the same call may succeed later.
    #[must_use]
    pub fn retryable(&self) -> bool {
        match self.kind() {
            ErrorKind::Config { .. } | ErrorKind::Closed(_) => false,
            ErrorKind::Refused(problem) => problem.code.retryable(),
            ErrorKind::Unreachable(_) | ErrorKind::Deadline { .. } => true,
        }
    }

    /// When a retry may help, where somebody said so.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.kind() {
            ErrorKind::Refused(problem) => problem.retry_after_seconds.map(|s| Duration::from_secs(u64::from(s))),
            ErrorKind::Config { .. }
            | ErrorKind::Unreachable(_)
            | ErrorKind::Deadline { .. }
            | ErrorKind::Closed(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_speaks_with_the_agents_code() {
        let dry = Error::from(ErrorKind::Refused(Problem::new(Code::SegmentDry, "x")));
        assert_eq!((dry.code(), dry.retryable()), ("segment_dry", true));
        assert_eq!(dry.retry_after(), Some(Duration::from_secs(1)));
        let gone = Error::from(ErrorKind::Refused(Problem::new(Code::Exhausted, "x")));
        assert_eq!((gone.code(), gone.retryable(), gone.retry_after()), ("exhausted", false, None));
        assert!(Error::from(ErrorKind::Unreachable(String::new())).retryable());
        assert!(!Error::closed("").retryable());
        assert_eq!(size_of::<Result<crate::Id, Error>>(), 16, "in two registers");
    }
}
