//! The store's server, watched while a process runs.
//!
//! A database that was promoted, restored or restarted tells by another timeline, system or start time. The generation's
//! server is a row beside the generation; every guarded write and every gate compares it, on its own connection, with the
//! server that it runs on. Where they differ the process is as if it had just started: it believes neither what it
//! verified nor its witness until it has judged them anew. What it let out itself it still knows, and that can prove a
//! loss. Of several processes the first one opens the generation for all. On embedded stores nothing is watched.

use std::sync::PoisonError;

use cadastre_core::mark::{Mark, Scope};

use super::{Continuity, How, Opens, Standing};
use crate::error::LedgerError;
use crate::sql;
use crate::witness::Marks;

impl Continuity {
    /// A cheap look whether the store is still on the server that was verified; judges it anew where it is not.
    ///
    /// # Errors
    /// Those of the store and the witness.
    pub async fn watch(&self) -> Result<(), LedgerError> {
        self.parts.db.observe().await;
        let look = self.parts.db.read("watch", |tx| {
            Box::pin(async move { Ok::<_, LedgerError>((sql::store(tx).await?, tx.server().to_owned())) })
        });
        let (store, server) = look.await?;
        self.see(server);
        if store.is_some_and(|store| !store.same_server) {
            self.refresh().await?;
        }
        Ok(())
    }

    /// The server that answered last, for people: system, timeline, start. Empty where nothing is watched.
    #[must_use]
    pub fn server(&self) -> String {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn see(&self, server: String) {
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = server;
    }

    /// Another server answers: nothing that was verified holds.
    pub(super) async fn begin_anew(&self) -> Result<Standing, LedgerError> {
        let before = self.standing();
        let how = if before.how == How::WentBack { How::WentBack } else { How::Suspect };
        self.stand(Standing { how, may_fill: false, ..before });
        if before.how.is_open() {
            tracing::error!(
                role = %self.parts.role,
                "the store's server is another one than the one that was verified (promoted, restored or restarted): \
                 judging anew"
            );
        }
        let own = self.passed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.judge(own, Opens::OnAnotherServer).await
    }

    /// The witness went back: as if just started, except for what this process let out itself. The rows that an older
    /// witness names are in a store that is whole, so it agrees, and the new generation raises all of its marks.
    pub(super) async fn judge_anew(&self, why: &str) -> Result<Standing, LedgerError> {
        tracing::error!(role = %self.parts.role, why, "judging anew");
        // Taken: the older witness is judged by them once, not again when it is raised.
        let own = std::mem::take(&mut *self.passed.lock().unwrap_or_else(PoisonError::into_inner));
        self.judge(own, Opens::Always).await
    }

    /// Of these scopes, the highest marks that this process let out.
    pub(super) fn passed_of(&self, scopes: &[Scope]) -> Marks {
        let passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        scopes.iter().filter_map(|scope| Some((scope.clone(), *passed.get(scope)?))).collect()
    }

    /// Remembers what passed the gate.
    pub(super) fn let_out(&self, answers: &[(Scope, Mark)]) {
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        for (scope, mark) in answers {
            let known = passed.entry(scope.clone()).or_insert(*mark);
            if mark.is_above(known) {
                *known = *mark;
            }
        }
    }
}
