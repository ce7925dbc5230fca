//! The life cycle of a region: one enum, one match.
//!
//! ```text
//! registered -> active -> (draining | fenced) -> active ... -> retired
//! ```
//!
//! An epoch is what makes an old identity harmless: whatever was granted under a lower epoch gets
//! nothing more, ever. It rises at fence, at recover, when the region joins with another store, and
//! when its store proved to have gone back. It does not rise when an agent restarts.

use serde::{Deserialize, Serialize};

use crate::ids::{CounterEnded, Epoch};

/// Where a region stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RegionState {
    /// Known by name; no agent has called yet.
    Registered,
    /// Gets grants.
    Active,
    /// Issues what it holds, gets nothing new.
    Draining,
    /// Its epoch was taken away: it stops, burns what it held and waits for recover.
    Fenced,
    /// Gone for good; its name and number stay taken.
    Retired,
}

/// What may happen to a region.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RegionEvent {
    /// Its agent's first authenticated call binds its store.
    Join,
    /// Its agent presents another store than the bound one, on purpose.
    JoinWithNewStore,
    /// Its store proved to have gone back in time.
    WentBack,
    /// An operator lets it run out.
    Drain,
    /// An operator takes its epoch away.
    Fence,
    /// An operator brings it back.
    Recover,
    /// An operator ends it.
    Retire,
}

/// An event that the state does not allow.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RegistryError {
    /// The life cycle has no such step.
    #[error("a region that is {state:?} cannot {event:?}")]
    NotAllowed {
        /// Where the region stands.
        state: RegionState,
        /// What was asked.
        event: RegionEvent,
    },
    /// No epoch is left.
    #[error(transparent)]
    Ended(#[from] CounterEnded),
}

impl RegionState {
    /// The state and epoch after `event`.
    ///
    /// # Errors
    /// [`RegistryError::NotAllowed`] when the life cycle has no such step.
    pub fn after(self, event: RegionEvent, epoch: Epoch) -> Result<(Self, Epoch), RegistryError> {
        use RegionEvent as E;
        use RegionState as S;
        let next = match (self, event) {
            (S::Registered, E::Join) => (S::Active, epoch),
            (S::Active | S::Draining, E::JoinWithNewStore) => (self, epoch.next()?),
            (S::Active | S::Draining | S::Fenced, E::WentBack) => (self, epoch.next()?),
            (S::Active, E::Drain) => (S::Draining, epoch),
            (S::Active | S::Draining, E::Fence) => (S::Fenced, epoch.next()?),
            (S::Draining | S::Fenced, E::Recover) => (S::Active, epoch.next()?),
            (S::Registered | S::Active | S::Draining | S::Fenced, E::Retire) => (S::Retired, epoch.next()?),
            (S::Registered, E::JoinWithNewStore | E::WentBack | E::Drain | E::Fence | E::Recover)
            | (S::Active, E::Join | E::Recover)
            | (S::Draining, E::Join | E::Drain)
            | (S::Fenced, E::Join | E::JoinWithNewStore | E::Drain | E::Fence)
            | (
                S::Retired,
                E::Join | E::JoinWithNewStore | E::WentBack | E::Drain | E::Fence | E::Recover | E::Retire,
            ) => return Err(RegistryError::NotAllowed { state: self, event }),
        };
        Ok(next)
    }

    /// Whether a region in this state may be given a new range.
    #[must_use]
    pub fn gets_grants(self) -> bool {
        match self {
            Self::Active => true,
            Self::Registered | Self::Draining | Self::Fenced | Self::Retired => false,
        }
    }

    /// Whether a region in this state may go on issuing what it holds.
    #[must_use]
    pub fn may_issue(self) -> bool {
        match self {
            Self::Active | Self::Draining => true,
            Self::Registered | Self::Fenced | Self::Retired => false,
        }
    }

    /// The word used in JSON, SQL and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Registered => "registered",
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Fenced => "fenced",
            Self::Retired => "retired",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [RegionState; 5] = [
        RegionState::Registered,
        RegionState::Active,
        RegionState::Draining,
        RegionState::Fenced,
        RegionState::Retired,
    ];
    const EVENTS: [RegionEvent; 7] = [
        RegionEvent::Join,
        RegionEvent::JoinWithNewStore,
        RegionEvent::WentBack,
        RegionEvent::Drain,
        RegionEvent::Fence,
        RegionEvent::Recover,
        RegionEvent::Retire,
    ];

    #[test]
    fn an_epoch_never_falls_and_a_lost_identity_always_loses_its_epoch() {
        for state in STATES {
            for event in EVENTS {
                let Ok((next, epoch)) = state.after(event, Epoch(7)) else { continue };
                assert!(epoch >= Epoch(7));
                let keeps = matches!(event, RegionEvent::Join | RegionEvent::Drain);
                assert_eq!(epoch == Epoch(7), keeps, "{state:?} {event:?} -> {next:?}");
            }
        }
    }

    #[test]
    fn retired_is_for_good() {
        assert!(EVENTS.iter().all(|e| RegionState::Retired.after(*e, Epoch(1)).is_err()));
        assert!(!RegionState::Retired.may_issue() && !RegionState::Retired.gets_grants());
    }

    #[test]
    fn the_last_epoch_is_refused_rather_than_wrapped() {
        let last = Epoch(i64::MAX as u64);
        assert!(matches!(RegionState::Active.after(RegionEvent::Fence, last), Err(RegistryError::Ended(_))));
    }
}
