//! How the witness is: what a status, a metric and an alarm are made of.
//!
//! Invariant: whatever asks the witness notes here how that went, so that one that is gone, or empty, is told
//! while it is so, also by a store that may go on without it. What follows from it is [`continuity`]'s to say.

use std::ops::Bound;
use std::sync::PoisonError;

use cadastre_core::continuity::{self, WitnessMode};
use cadastre_core::ids::ClusterId;
use cadastre_core::mark::{Mark, Scope};
use cadastre_protocol::ids::WitnessStatus;

use super::Continuity;
use crate::error::LedgerError;
use crate::witness::{Marks, WitnessError};

/// What was last seen of the witness.
#[derive(Clone, Debug, Default)]
pub(super) struct Trouble {
    /// Why it could not be used when it was last asked.
    down: Option<String>,
    /// Whether it held nothing when it was last looked at as a whole.
    empty: bool,
    failures: u64,
    /// The last scope whose mark was looked at.
    looked_at: Option<Scope>,
}

/// Scopes whose marks are read in one look.
const SCOPES_AT_ONCE: usize = 256;

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

    /// Asks the witness whether it is there, and still names what this process let out, and notes it: where nothing is
    /// given out for a while, nobody else would find out. Looks at [`SCOPES_AT_ONCE`] scopes, at the next ones the next
    /// time. One that names less went back: a required one has the store judged anew, a best-effort one is raised again.
    /// One that is empty stays so where it is required (that is a doubt of its own, at the gate), and is filled where not.
    ///
    /// # Errors
    /// Those of the store and the witness.
    pub async fn look_at_witness(&self) -> Result<(), LedgerError> {
        let Some(witness) = &self.parts.witness else { return Ok(()) };
        let own = self.some_passed();
        let scopes: Vec<Scope> = own.keys().cloned().collect();
        let result = witness.read_some(&scopes).await;
        self.note(result.as_ref().map(|_| ()));
        let Ok(marks) = result else { return Ok(()) };
        self.note_empty(marks.is_none());
        let required = self.parts.mode == WitnessMode::Required;
        let Some(marks) = marks else {
            // It ends no doubt, so whoever is open may fill it: from then on it can prove a loss again.
            if !required && self.standing().how.is_open() {
                self.fill_witness(Marks::new()).await?;
            }
            return Ok(());
        };
        let older: Vec<(Scope, Mark)> =
            own.into_iter().filter(|(scope, ours)| continuity::is_older(marks.get(scope), Some(ours))).collect();
        if older.is_empty() || !self.standing().how.is_open() {
            return Ok(());
        }
        if required { self.judge_anew(continuity::OLDER).await.map(drop) } else { self.pass(&older).await }
    }

    /// The next of the scopes that this process let something out of, and the highest marks of them.
    fn some_passed(&self) -> Marks {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        let from = trouble.looked_at.take().map_or(Bound::Unbounded, Bound::Excluded);
        let some: Marks =
            passed.range((from, Bound::Unbounded)).take(SCOPES_AT_ONCE).map(|(s, m)| (s.clone(), *m)).collect();
        trouble.looked_at = some.last_key_value().map(|(scope, _)| scope.clone());
        some
    }

    fn note_empty(&self, empty: bool) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut trouble.empty, empty) != empty && empty {
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
