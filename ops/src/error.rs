//! Why a verb did not do what was asked, and what to do next.
//!
//! Invariant: every error that a person sees says what is wrong and names a next step, and its exit code
//! is 1 (refused, or out of reach) or 2 (wrong usage). Absent on purpose: retries; a verb asks once.

use std::fmt;

use cadastre_protocol::error::Code;
use serde::Deserialize;

/// How a verb ended that could do its work.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// All is well.
    Done,
    /// It looked for something wrong and found it.
    Found,
}

impl Outcome {
    /// `Found` where something was found.
    pub fn found(any: bool) -> Self {
        if any { Self::Found } else { Self::Done }
    }

    /// The exit code.
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Found => 1,
        }
    }
}

/// The parts of a problem body that a person needs; a newer server's code is kept as it is.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
pub struct Refusal {
    /// For programs.
    pub code: String,
    /// For people.
    pub detail: String,
    /// When a retry may help.
    #[serde(default)]
    pub retry_after_seconds: Option<u32>,
}

/// See the module's documentation.
#[derive(Debug)]
pub enum CliError {
    /// The other side said no.
    Refused(Refusal),
    /// The other side did not answer.
    Unreachable {
        /// Who.
        url: String,
        /// Why.
        why: String,
    },
    /// The command line cannot be meant.
    Usage(String),
    /// Anything else.
    Failed {
        /// What is wrong.
        what: String,
        /// What to do.
        next: String,
    },
}

impl CliError {
    /// Something failed, and this is what to do about it.
    pub fn failed(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self::Failed { what: what.into(), next: next.into() }
    }

    /// The command line cannot be meant.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::Usage(text.into())
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Refused(_) | Self::Unreachable { .. } | Self::Failed { .. } => 1,
        }
    }

    /// The code of the problem, where the other side said no.
    pub fn refusal(&self) -> Option<Code> {
        match self {
            Self::Refused(refusal) => Code::parse(&refusal.code),
            Self::Unreachable { .. } | Self::Usage(_) | Self::Failed { .. } => None,
        }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) => write!(f, "{text}\n  see: cadastre --help"),
            Self::Failed { what, next } => write!(f, "{what}\n  next: {next}"),
            Self::Unreachable { url, why } => write!(
                f,
                "{url} does not answer: {why}\n  next: is it running there? `cadastre dev` starts a cluster; --authority and \
                 --agent name another address"
            ),
            Self::Refused(refusal) => {
                write!(f, "{} ({})", refusal.detail, refusal.code)?;
                match (next_step(Code::parse(&refusal.code)), refusal.retry_after_seconds) {
                    (Some(next), _) => write!(f, "\n  next: {next}"),
                    (None, Some(seconds)) => write!(f, "\n  next: try again in {seconds} s"),
                    (None, None) => Ok(()),
                }
            }
        }
    }
}

/// What a person does about a code, where its detail does not say it already.
fn next_step(code: Option<Code>) -> Option<&'static str> {
    Some(match code? {
        Code::Unauthenticated => {
            "give a token with --token or CADASTRE_TOKEN; `cadastre dev` keeps its own in DIR/dev.json"
        }
        Code::Forbidden => {
            "use a token of the right role (operators change, viewers read, services ask for ids), or admit the service with \
             `cadastre service set NAME --namespace ...`"
        }
        Code::UnknownNamespace => "see `cadastre namespace list`",
        Code::UnknownId => "look in the other namespaces: `cadastre namespace list`",
        Code::NotFound => "list what there is: `cadastre region list`, `service list`, `operator list`",
        Code::AlreadyExists => "choose another name, or look at what is there with the noun's `list`",
        Code::NameRetired => "choose another name",
        Code::DrillRunning => "see `cadastre drill list`; `cadastre drill abort ID` ends it at once",
        Code::PayloadTooLarge => "ask for fewer at once, or for ranges: --as ranges",
        Code::InvalidRequest => "correct what the message names; `cadastre VERB --help` lists the flags",
        Code::Exhausted => {
            "the space is used up for good: give the namespace a new definition (`cadastre namespace set`)"
        }
        Code::SegmentDry | Code::UpstreamUnavailable => "see `cadastre doctor` for the tier that is out of reach",
        Code::Quarantined | Code::StoreUnproven => "see `cadastre quarantine list` and `cadastre doctor`",
        Code::Frozen => "thaw it: `cadastre namespace unfreeze NAMESPACE`",
        Code::RegionNotReady | Code::EpochFenced | Code::NotHome => "see `cadastre region list` for its state",
        Code::CopyFound => "two copies of one store or process are alive: stop one of them, then start the other again",
        Code::HoldingLimit => "it holds enough; or raise --region-max-held with `cadastre namespace set`",
        Code::LayoutFull | Code::WindowEnded | Code::NoWorkerFree => {
            "see `cadastre namespace show NAMESPACE` for its slots"
        }
        Code::ClockRollback => "set the clock of that machine right; what it stamped before keeps it waiting",
        Code::Internal => "look in the daemon's log for the request id",
        Code::NotAllowed
        | Code::MethodNotAllowed
        | Code::AllocationConflict
        | Code::AllocationExpired
        | Code::AlreadyConfirmed
        | Code::WrongStore
        | Code::RateLimited
        | Code::NotDurable
        | Code::ShuttingDown => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_shows_detail_code_and_next_step() {
        let refusal = Refusal {
            code: "unknown_namespace".into(),
            detail: "there is no namespace x".into(),
            retry_after_seconds: None,
        };
        let text = CliError::Refused(refusal).to_string();
        assert_eq!(text, "there is no namespace x (unknown_namespace)\n  next: see `cadastre namespace list`");
    }

    #[test]
    fn a_code_of_a_newer_server_is_shown_as_it_is() {
        let refusal = Refusal { code: "brand_new".into(), detail: "wait".into(), retry_after_seconds: Some(7) };
        let error = CliError::Refused(refusal);
        assert_eq!(error.to_string(), "wait (brand_new)\n  next: try again in 7 s");
        assert_eq!((error.code(), error.refusal()), (1, None));
        assert_eq!(CliError::usage("no").code(), 2);
    }
}
