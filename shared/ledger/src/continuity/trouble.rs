//! How the witness is: what a status, a metric and an alarm are made of.
//!
//! Invariant: whatever asks the witness notes here how that went, so that one that is gone, or empty, is told
//! while it is so, also by a store that may go on without it. Nothing is decided here.

use std::sync::PoisonError;

use cadastre_core::continuity::WitnessMode;
use cadastre_core::ids::ClusterId;
use cadastre_protocol::ids::WitnessStatus;

use super::Continuity;
use crate::error::LedgerError;
use crate::witness::WitnessError;

/// What was last seen of the witness.
#[derive(Clone, Debug, Default)]
pub(super) struct Trouble {
    /// Why it could not be used when it was last asked.
    down: Option<String>,
    /// Whether it held nothing when it was last looked at as a whole.
    empty: bool,
    failures: u64,
}

impl Continuity {
    pub(super) fn believed<T>(&self, result: Result<Option<T>, WitnessError>) -> Result<Option<T>, LedgerError> {
        self.note(result.as_ref().map(|_| ()));
        match (result, self.parts.mode) {
            (Ok(value), _) => Ok(value),
            (Err(WitnessError::Unavailable(why)), WitnessMode::BestEffort | WitnessMode::None) => {
                tracing::debug!(why, "goes on without the best-effort witness");
                Ok(None)
            }
            (Err(error), _) => Err(LedgerError::Witness(error.to_string())),
        }
    }

    /// How the witness was when it was last asked.
    #[must_use]
    pub fn witness_status(&self) -> WitnessStatus {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mode = match self.mode() {
            WitnessMode::None => "none",
            WitnessMode::BestEffort => "best_effort",
            WitnessMode::Required => "required",
        };
        let (state, last_error) = match (mode, trouble.down, trouble.empty) {
            ("none", _, _) => ("none", None),
            (_, Some(why), _) => ("down", Some(why)),
            (_, None, true) => ("empty", None),
            (_, None, false) => ("ok", None),
        };
        WitnessStatus { mode: mode.to_owned(), state: state.to_owned(), last_error, failures: trouble.failures }
    }

    /// Asks the witness whether it is there and holds anything, and notes it: where nothing is given out for a
    /// while, nobody else would find out.
    pub async fn look_at_witness(&self) {
        let Some(witness) = &self.parts.witness else { return };
        let result = witness.read_some(&[]).await;
        self.note(result.as_ref().map(|_| ()));
        let Ok(marks) = result else { return };
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut trouble.empty, marks.is_none()) != trouble.empty && trouble.empty {
            let (role, mode) = (&self.parts.role, self.parts.mode);
            tracing::error!(role, ?mode, "the witness is empty: it was flushed, or lost");
        }
    }

    /// The witness is this cluster's, and of no other one.
    pub(super) async fn claim(&self, cluster: Option<ClusterId>) -> Result<(), LedgerError> {
        let (Some(witness), Some(cluster)) = (&self.parts.witness, cluster) else { return Ok(()) };
        self.believed(witness.claim(cluster).await.map(Some))?;
        Ok(())
    }

    /// Notes how it went to ask the witness.
    pub(super) fn note(&self, result: Result<(), &WitnessError>) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let (role, mode) = (&self.parts.role, self.parts.mode);
        let was_down = trouble.down.is_some();
        match result {
            Ok(()) => {
                trouble.down = None;
                if was_down {
                    tracing::info!(role, ?mode, "the witness answers again");
                }
            }
            Err(error) => {
                trouble.failures += 1;
                trouble.down = Some(error.to_string());
                if !was_down {
                    tracing::error!(role, ?mode, %error, "the witness cannot be used");
                }
            }
        }
    }
}
