//! Counting what is lost: gaps are legal, and are told apart from what was issued.
//!
//! Nothing of a segment is saved, so what a killed process had in memory is known as of its last heartbeat
//! only, and what it carved since then is taken for unissued. These numbers are for headroom and alerts; no rule rests on them.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use cadastre_core::ids::Name;
use cadastre_core::quota::HOLDER_COUNTS_MS;

use super::Regional;
use crate::error::AgentError;
use crate::metrics as meter;
use crate::sql;

/// A process that shares the store and was not heard of for this long is taken for gone.
const GONE_MS: u64 = 600_000;
/// A live process says again what it has at least this often.
const AGAIN_MS: u64 = 60_000;
/// A thick client that did not ask for this long is forgotten; its segments stay in the ledger.
const HOLDER_MS: u64 = 30 * 86_400_000;

impl Regional {
    /// Counts ordinals that this process held and will not issue.
    ///
    /// # Errors
    /// Those of the store: then they are a gap that is not counted.
    pub async fn count_burned(&self, burned: BTreeMap<Name, u64>) -> Result<(), AgentError> {
        if burned.is_empty() {
            return Ok(());
        }
        let rows = burned.clone();
        let work = self.ctx.continuity.db().write("region_count_burned", move |tx| {
            let rows = rows.clone();
            Box::pin(async move {
                for (namespace, n) in &rows {
                    sql::count(tx, namespace, 0, *n).await?;
                }
                Ok::<_, AgentError>(())
            })
        });
        self.ctx.note_store(work.await)?;
        self.show_burned(burned);
        Ok(())
    }

    fn show_burned(&self, burned: BTreeMap<Name, u64>) {
        let mut pools = self.pools();
        for (namespace, n) in burned {
            meter::burned(&self.ctx.me.region, &namespace, n);
            let pool = pools.entry(namespace).or_default();
            pool.totals.burned = pool.totals.burned.saturating_add(n);
        }
    }

    /// A segment was carved: what was said of the namespace is no longer what the store has.
    pub(super) fn say_again(&self, namespace: &Name) {
        self.in_hand.lock().unwrap_or_else(PoisonError::into_inner).remove(namespace);
    }

    /// Notes what this process has unissued, by namespace, where that changed.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn note_in_hand(&self, held: BTreeMap<Name, u64>) -> Result<(), AgentError> {
        let now = self.ctx.now().wall_ms;
        let news: Vec<(Name, u64)> = {
            let told = self.in_hand.lock().unwrap_or_else(PoisonError::into_inner);
            let old = |n: &Name, left: u64| told.get(n).is_none_or(|(l, at)| *l != left || at.abs_diff(now) > AGAIN_MS);
            held.into_iter().filter(|(n, left)| old(n, *left)).collect()
        };
        if news.is_empty() {
            return Ok(());
        }
        let (rows, me) = (news.clone(), self.ctx.me.incarnation);
        let work = self.ctx.continuity.db().write("region_in_hand", move |tx| {
            let rows = rows.clone();
            Box::pin(async move {
                for (namespace, left) in &rows {
                    sql::put_in_hand(tx, me, namespace, *left, now).await?;
                }
                Ok::<_, AgentError>(())
            })
        });
        self.ctx.note_store(work.await)?;
        let mut told = self.in_hand.lock().unwrap_or_else(PoisonError::into_inner);
        told.extend(news.into_iter().map(|(n, left)| (n, (left, now))));
        Ok(())
    }

    /// Counts what processes had that are gone (all others where the store is not shared), and forgets thick
    /// clients that were not heard of for long.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn count_gone(&self) -> Result<(), AgentError> {
        let (me, now) = (self.ctx.me.incarnation, self.ctx.now().wall_ms);
        let before = if self.ctx.me.shared_store { now.saturating_sub(GONE_MS) } else { i64::MAX as u64 };
        let work = self.ctx.continuity.db().write("region_count_gone", move |tx| {
            Box::pin(async move {
                let mut burned: BTreeMap<Name, u64> = BTreeMap::new();
                for (namespace, n) in sql::take_in_hand(tx, me, before).await? {
                    *burned.entry(namespace).or_default() += n;
                }
                burned.retain(|_, n| *n > 0);
                for (namespace, n) in &burned {
                    sql::count(tx, namespace, 0, *n).await?;
                }
                sql::forget_holders(tx, now.saturating_sub(HOLDER_MS)).await?;
                sql::forget_held(tx, now.saturating_sub(2 * HOLDER_COUNTS_MS)).await?;
                Ok::<_, AgentError>(burned)
            })
        });
        let burned = self.ctx.note_store(work.await)?;
        self.show_burned(burned);
        Ok(())
    }

    /// This process stops: counts exactly what is lost with it.
    ///
    /// # Errors
    /// Those of the store: then it is counted as of the last heartbeat.
    pub async fn count_own_end(&self, lost: BTreeMap<Name, u64>) -> Result<(), AgentError> {
        let (rows, me) = (lost, self.ctx.me.incarnation);
        let work = self.ctx.continuity.db().write("region_own_end", move |tx| {
            let rows = rows.clone();
            Box::pin(async move {
                for (namespace, n) in &rows {
                    sql::count(tx, namespace, 0, *n).await?;
                }
                Ok::<_, AgentError>(sql::clear_in_hand(tx, me).await?)
            })
        });
        self.ctx.note_store(work.await)
    }
}
