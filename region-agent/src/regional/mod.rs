//! The region's pool: grants come in, segments go out, through blocks where a namespace wants them.
//!
//! Purpose: the region tier. Invariant: a segment is handed out only after its row is committed under
//! guards (epoch, cursor, open scope) and the store's mark has passed the gate; carves of one namespace are
//! one at a time, so that one process is given rising ranges. Absent on purpose: waiting, retrying over
//! time, and any knowledge of callers.

mod caps;
mod count;
pub mod unit;
pub mod windows;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cadastre_core::ids::Name;
use cadastre_core::mark::Scope;
use cadastre_core::namespace::{NamespaceEntry, NamespaceKind};
use cadastre_core::refill::RateWindow;
use cadastre_protocol::error::Code;
use cadastre_runtime::token::{self, Prefix};
use tokio::sync::Mutex as Turn;

pub use unit::{Order, Thick};

use crate::context::{Context, View};
use crate::error::{AgentError, problem};
use crate::metrics as meter;
use crate::sizing;
use crate::sql::{self, SegmentRow, Totals};
use unit::{Outcome, Terms};

/// Tries of one carve where other processes of the store were in the way.
const TRIES: usize = 3;

/// How one namespace stands in the region, as far as this process knows.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// From the store.
    pub totals: Totals,
    /// The length of the newest grant.
    pub last_grant: u64,
    /// What thick clients took: their rate is known by their segments only.
    pub thick: Option<Box<RateWindow>>,
    /// What a thick client wanted above everything that is left here: it goes on from another region's range. 0 once
    /// a grant came: that lies above all that was ever granted.
    pub wanted_above: u64,
}

impl Pool {
    /// Ordinals a second that thick clients took.
    #[must_use]
    pub fn thick_rate(&self, now_ms: u64) -> f64 {
        self.thick.as_ref().map_or(0.0, |window| window.rate_per_second(now_ms))
    }
}

/// A segment that may be handed out.
#[derive(Clone, Debug)]
pub struct Carved {
    /// The segment.
    pub segment: SegmentRow,
    /// Whether an earlier request wrote it.
    pub replayed: bool,
    /// What the namespace has left in the region.
    pub left: u64,
    /// What a thick client presents next.
    pub chain: String,
}

/// See the module's documentation.
pub struct Regional {
    ctx: Arc<Context>,
    /// One carve at a time per namespace.
    turns: Mutex<BTreeMap<Name, Arc<Turn<()>>>>,
    /// One transaction at a time that raises the scope: waiting here costs less than a conflict there.
    scope: Turn<()>,
    in_hand: Mutex<BTreeMap<Name, (u64, u64)>>,
    pools: Mutex<BTreeMap<Name, Pool>>,
}

impl Regional {
    /// A pool that knows nothing yet; [`Self::recount`] reads the store.
    #[must_use]
    pub fn new(ctx: Arc<Context>) -> Self {
        Self { ctx, turns: Mutex::default(), scope: Turn::new(()), in_hand: Mutex::default(), pools: Mutex::default() }
    }

    fn pools(&self) -> MutexGuard<'_, BTreeMap<Name, Pool>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How every namespace stands.
    #[must_use]
    pub fn all(&self) -> BTreeMap<Name, Pool> {
        self.pools().clone()
    }

    /// What a namespace has left in the region.
    #[must_use]
    pub fn left(&self, namespace: &Name) -> u64 {
        self.pools().get(namespace).map_or(0, |p| p.totals.left)
    }

    /// Held while a transaction raises the store's scope.
    pub async fn scope_turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.scope.lock().await
    }

    /// Reads from the store how every namespace stands.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn recount(&self) -> Result<(), AgentError> {
        let Some(epoch) = self.ctx.view().epoch() else { return Ok(()) };
        let db = self.ctx.continuity.db();
        let read = db.read("region_recount", move |tx| {
            Box::pin(async move { Ok::<_, AgentError>(sql::totals(tx, epoch).await?) })
        });
        let mut totals = self.ctx.note_read(read.await)?;
        let mut pools = self.pools();
        for (name, pool) in pools.iter_mut() {
            pool.totals = totals.remove(name).unwrap_or(Totals { left: 0, ..pool.totals });
        }
        for (name, totals) in totals {
            pools.insert(name, Pool { totals, ..Pool::default() });
        }
        for (name, pool) in pools.iter() {
            meter::region_left(&self.ctx.me.region, name, pool.totals.left);
        }
        Ok(())
    }

    /// As [`Self::recount`], and how large the newest grants are; once at a start.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn count(&self) -> Result<(), AgentError> {
        self.recount().await?;
        let read = self.ctx.continuity.db().read("region_last_grants", |tx| {
            Box::pin(async move { Ok::<_, AgentError>(sql::highest_grants(tx).await?) })
        });
        for (name, newest) in self.ctx.note_read(read.await)? {
            self.pools().entry(name).or_default().last_grant = newest.len();
        }
        Ok(())
    }

    /// Carves a segment, or finds the one that the same request got before, and passes the gate.
    ///
    /// # Errors
    /// [`AgentError`]. Where the carve was committed and its answer was not let out, a retry of the same
    /// request finds it.
    pub async fn carve(&self, order: &Order, thick: Option<Thick>) -> Result<Carved, AgentError> {
        let turn = self.turn(&order.namespace);
        let _turn = turn.lock().await;
        let mut tries = 0;
        loop {
            tries += 1;
            let before = self.ctx.view();
            match self.carve_once(order, thick.as_ref()).await {
                Err(error) if tries < TRIES && self.settle(&error, &before).await? => {}
                result => return result,
            }
        }
    }

    fn turn(&self, namespace: &Name) -> Arc<Turn<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(turns.entry(namespace.clone()).or_default())
    }

    /// Looks again after a guard did not hold; whether another try makes sense. `before` is what the try went by: the
    /// conversation with the authority may have looked again meanwhile.
    async fn settle(&self, error: &AgentError, before: &View) -> Result<bool, AgentError> {
        match error {
            AgentError::Moved => {
                self.ctx.continuity.refresh().await?;
                self.ctx.may_carve()?;
                Ok(true)
            }
            AgentError::EpochMoved => {
                let view = self.ctx.reload().await?;
                if view.epoch() > before.epoch() {
                    let word =
                        |view: &View| view.epoch().map_or_else(|| "no epoch".to_owned(), |e| format!("epoch {e}"));
                    let (agent, own, held) = (self.ctx.me.incarnation, word(before), word(&view));
                    let detail = format!("{agent} of {own} asked a store of {held} for more: refused, it looks again");
                    self.ctx.audit("late_agent", &detail).await;
                }
                // Whoever holds cursors of the old epoch closes them at the next heartbeat at the latest.
                self.ctx.link_wake.notify_one();
                Ok((view.epoch(), view.roster_version) != (before.epoch(), before.roster_version))
            }
            AgentError::Db(cadastre_runtime::db::DbError::Conflict) => Ok(true),
            AgentError::Db(_)
            | AgentError::Problem(_)
            | AgentError::Store(_)
            | AgentError::NotDurable(_)
            | AgentError::WentBack(_)
            | AgentError::RegionDry(_) => Ok(false),
        }
    }

    async fn carve_once(&self, order: &Order, thick: Option<&Thick>) -> Result<Carved, AgentError> {
        self.ctx.may_carve()?;
        let terms = self.terms(order)?;
        let unit = {
            let _scope = self.scope.lock().await;
            let (order, thick) = (order.clone(), thick.cloned());
            let work = self.ctx.continuity.db().write("region_carve", move |tx| {
                let (order, thick, terms) = (order.clone(), thick.clone(), terms.clone());
                Box::pin(async move { unit::run(tx, &order, thick.as_ref(), &terms).await })
            });
            self.ctx.note_store(work.await)
        };
        if let (Err(AgentError::RegionDry(namespace)), Some(thick)) = (&unit, thick)
            && thick.above > 0
        {
            self.pools().entry(namespace.clone()).or_default().wanted_above = order.want.min(thick.most);
            self.ctx.link_wake.notify_one();
        }
        let Some(Outcome { segment, mark, replayed, left, chain }) = unit? else {
            let text = "the chain token is not the one that this incarnation was given: two copies of one process are \
                        alive. Stop them and start anew with a fresh incarnation";
            return Err(problem(Code::EpochFenced, text));
        };
        let gate = self.ctx.continuity.pass(&[(Scope::Region, mark)]).await;
        self.ctx.note_store(gate.map_err(AgentError::from))?;
        self.publish(order, &segment, left, replayed, thick.is_some());
        Ok(Carved { segment, replayed, left, chain })
    }

    fn terms(&self, order: &Order) -> Result<Terms, AgentError> {
        let view = self.ctx.view();
        let entry = view.issuable(&self.ctx.me.region, &order.namespace)?;
        if entry.kind != NamespaceKind::Range {
            let text = format!("{} is of kind {}: it has no segments", order.namespace, entry.kind.as_str());
            return Err(problem(Code::InvalidRequest, text));
        }
        self.terms_of(&view, entry)
    }

    fn terms_of(&self, view: &View, entry: &NamespaceEntry) -> Result<Terms, AgentError> {
        Ok(Terms {
            generation: self.ctx.continuity.standing().generation,
            epoch: view.epoch().ok_or(AgentError::EpochMoved)?,
            roster_version: view.roster_version,
            service_block: entry.policy.service_block,
            definition: Arc::new(entry.definition.clone()),
            now_ms: self.ctx.now().wall_ms,
            entropy: Arc::clone(&self.ctx.entropy),
        })
    }

    /// After the gate: what is left now, and whether the authority has to be asked.
    fn publish(&self, order: &Order, segment: &SegmentRow, left: u64, replayed: bool, thick: bool) {
        self.say_again(&order.namespace);
        let now = self.ctx.now().mono_ms;
        let low = {
            let mut pools = self.pools();
            let pool = pools.entry(order.namespace.clone()).or_default();
            pool.totals.left = left;
            if !replayed {
                // Counted here as well, so that status is right between two heartbeats.
                pool.totals.carved = pool.totals.carved.saturating_add(segment.range.len());
                if thick {
                    pool.thick.get_or_insert_default().record(now, segment.range.len());
                }
            }
            let view = self.ctx.view();
            let space = |n| view.space_left(&order.namespace, n);
            let entry = view.roster.namespace(&order.namespace);
            entry.is_some_and(|n| left < sizing::grant_floor(n, pool, 0.0, space(n)))
        };
        meter::region_left(&self.ctx.me.region, &order.namespace, left);
        if low {
            self.ctx.link_wake.notify_one();
        }
    }

    /// After an adoption was committed.
    pub fn adopted(&self, namespace: &Name, size: u64, left: u64) {
        let mut pools = self.pools();
        let pool = pools.entry(namespace.clone()).or_default();
        pool.totals.left = left;
        pool.last_grant = size;
        pool.wanted_above = 0;
        drop(pools);
        meter::region_left(&self.ctx.me.region, namespace, left);
    }

    /// A fresh token for a thick client's next request.
    #[must_use]
    pub fn fresh_chain(&self) -> String {
        token::make(Prefix::Chain, self.ctx.entropy.bytes32())
    }
}
