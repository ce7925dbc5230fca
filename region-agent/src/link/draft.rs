//! Writing a message: what the store says, what has passed the gate, what is wanted.
//!
//! Invariant: a want is stored, with its id and the whole request, before it is sent for the first time,
//! and is sent verbatim from then on, by whichever agent of the store finds it.

use std::collections::BTreeSet;

use cadastre_core::ids::{AllocationId, Name};
use cadastre_core::knows::Knows;
use cadastre_core::mark::{Generation, Mark, Scope, ScopeMark};
use cadastre_core::namespace::NamespaceKind;
use cadastre_ledger::continuity::How;
use cadastre_ledger::sql::{self as ledger, Place};
use cadastre_protocol::LINK_VERSION;
use cadastre_protocol::link::{
    Confirm, FullTestimony, MARKS_PER_MESSAGE, MAX_WANTS, Message, Sender, Usage, Want, Words,
};
use cadastre_runtime::db::{DbError, Tx};

use super::{Link, Talk};
use crate::context::View;
use crate::error::AgentError;
use crate::orders::{Hold, Holds};
use crate::sizing;
use crate::sql::{self, PendingRow, StandingRow};

/// The most adopted answers that one message confirms.
const MAX_CONFIRMS: u32 = 1_000;

/// What a message is written from.
struct Rows {
    store: ledger::StoreRow,
    mark: Mark,
    standing: Option<StandingRow>,
    roster_version: (Generation, u64),
    marks: Vec<ScopeMark>,
    confirms: Vec<Confirm>,
    pending: Vec<PendingRow>,
}

impl Link {
    /// What each namespace holds here, and its rate.
    pub(super) fn holds(&self) -> Holds {
        let (now, standings) = (self.ctx.now().mono_ms, self.issuer.standings());
        let pools = self.pool.all().into_iter().filter(|(namespace, _)| !namespace.is_of_slot());
        let held = pools.map(|(namespace, pool)| {
            let own = standings.get(&namespace).map(|(s, _)| *s).unwrap_or_default();
            let hold = Hold {
                held: pool.totals.left.saturating_add(own.left),
                rate: own.rate + pool.thick_rate(now),
                issued: pool.totals.carved.saturating_sub(own.left),
            };
            (namespace, hold)
        });
        let stamped =
            self.stamps.stamped().into_iter().map(|(name, issued)| (name, Hold { issued, ..Hold::default() }));
        held.chain(stamped).collect()
    }

    /// The next message, its wants stored.
    pub(super) async fn draft(&self, talk: &mut Talk) -> Result<Message, AgentError> {
        let mut rows = self.rows(talk.marks_after.clone()).await?;
        let view = self.in_step(&rows).await?;
        let store_mark = self.passed(talk, rows.mark).await?;
        let testimony = self.testimony(talk, &mut rows).await?;
        let place = rows.store.place(&self.ctx.me.place);
        let may_be_copy = place == Place::Elsewhere || rows.standing.is_some_and(|standing| standing.superseded);
        self.ctx.health_mut().may_be_copy = may_be_copy || place == Place::Unsure;
        let wants = self.wants(talk, &view, rows.pending).await?;
        if let Some(last) = rows.marks.last() {
            talk.marks_after = last.scope.to_string();
        }
        let standing = self.ctx.continuity.standing();
        talk.number += 1;
        let me = &self.ctx.me;
        let usage = self.usage(talk);
        Ok(Message {
            version: LINK_VERSION,
            sender: Sender {
                cluster_id: rows.store.cluster_id,
                region: me.region.clone(),
                epoch: view.epoch(),
                store_id: me.store_id,
                shared_store: me.shared_store,
                session: me.session,
                number: cadastre_core::ids::RequestNo(talk.number),
                incarnation: me.incarnation,
                chain: talk.chain.clone(),
                url: me.url.clone(),
                version: me.version.clone(),
                errand_key: Some(self.ctx.errands.key().to_owned()),
                knows: Some(Knows::all()),
                clock_ms: self.ctx.now().wall_ms,
            },
            words: Words {
                promised: rows.store.promised,
                marks: rows.marks,
                store_mark,
                proven: standing.how.is_open(),
                // Another may be alive, and both would carve the same grants: what was copied is burned here, and the
                // region goes on under the next epoch. What the other one holds is its own; nobody else gets it.
                store_went_back: standing.how == How::WentBack || may_be_copy,
                confirms: rows.confirms,
            },
            usage,
            wants,
            testimony,
            drill: self.ctx.orders.word(self.ctx.now().mono_ms),
            clients: self.ctx.knowers.words(self.ctx.now().mono_ms),
        })
    }

    async fn rows(&self, marks_after: String) -> Result<Rows, AgentError> {
        let read = self.ctx.continuity.db().read("link_draft", move |tx| {
            let marks_after = marks_after.clone();
            Box::pin(async move {
                let store = ledger::store(tx).await?.ok_or(AgentError::Moved)?;
                let scope = ledger::scope(tx, &Scope::Region).await?.ok_or(AgentError::Moved)?;
                Ok::<_, AgentError>(Rows {
                    store,
                    mark: scope.view.mark,
                    standing: sql::standing(tx).await?,
                    roster_version: sql::roster_version(tx).await?,
                    marks: some_marks(tx, &marks_after).await?,
                    confirms: sql::confirms(tx, MAX_CONFIRMS).await?,
                    pending: sql::pending(tx).await?,
                })
            })
        });
        self.ctx.note_read(read.await)
    }

    /// Another agent of the same store may have heard something newer.
    async fn in_step(&self, rows: &Rows) -> Result<std::sync::Arc<View>, AgentError> {
        let view = self.ctx.view();
        let moved = |s: StandingRow| (s.epoch, s.state, s.superseded);
        if view.roster_version == rows.roster_version && view.standing.map(moved) == rows.standing.map(moved) {
            return Ok(view);
        }
        let view = self.ctx.reload().await?;
        self.close_old(&view).await;
        self.issuer.kick(None);
        Ok(view)
    }

    /// The store's mark, once it has passed the gate; while the witness is out of reach, the last one that
    /// did. An unproven store sends what it has: that is what the other side judges it by.
    async fn passed(&self, talk: &mut Talk, mark: Mark) -> Result<Mark, AgentError> {
        let continuity = &self.ctx.continuity;
        if !continuity.standing().how.is_open() {
            return Ok(mark);
        }
        match continuity.pass(&[(Scope::Region, mark)]).await.map_err(AgentError::from) {
            Ok(()) => {
                talk.passed = Some(mark);
                Ok(mark)
            }
            Err(AgentError::Moved) => {
                continuity.refresh().await?;
                Ok(talk.passed.unwrap_or(mark))
            }
            Err(error) => talk.passed.ok_or(error),
        }
    }

    /// A complete testimony, where one was asked for: read in the transaction that promises the generation.
    async fn testimony(&self, talk: &mut Talk, rows: &mut Rows) -> Result<Option<FullTestimony>, AgentError> {
        let Some(generation) = talk.testify else { return Ok(None) };
        if self.ctx.continuity.standing().how == How::WentBack || rows.standing.is_none() {
            return Ok(None);
        }
        let work = self.ctx.continuity.db().write("link_testify", move |tx| {
            Box::pin(async move {
                if ledger::promise(tx, generation).await? != generation {
                    return Ok(None);
                }
                let marks = ledger::seen_marks(tx).await?;
                let roster = ledger::roster(tx).await?;
                Ok::<_, AgentError>(Some(FullTestimony {
                    generation,
                    bounds: sql::bounds(tx).await?,
                    marks: marks.into_iter().map(|(scope, mark)| ScopeMark { scope, mark }).collect(),
                    roster: roster.entries().cloned().collect(),
                }))
            })
        });
        let testimony = self.ctx.note_store(work.await)?;
        if testimony.is_some() {
            rows.store.promised = generation;
            talk.testified = Some(generation);
            tracing::warn!(region = %self.ctx.me.region, %generation, "testifying for the authority's quarantine");
        }
        Ok(testimony)
    }

    /// What is on its way, and what is low; all stored.
    async fn wants(&self, talk: &mut Talk, view: &View, mut pending: Vec<PendingRow>) -> Result<Vec<Want>, AgentError> {
        let Some(standing) = view.standing.filter(|s| s.state.gets_grants()) else { return Ok(vec![]) };
        if self.ctx.is_current().is_err() {
            return Ok(vec![]);
        }
        let now = self.ctx.now();
        let held_back = |talk: &Talk, n: &Name| talk.held.get(n).is_some_and(|h| h.until_ms > now.mono_ms);
        let asked: BTreeSet<Name> = pending.iter().map(|p| p.namespace.clone()).collect();
        let mut fresh = Vec::new();
        for (namespace, want) in self.low(view, now.mono_ms) {
            if asked.len() + fresh.len() >= MAX_WANTS {
                break;
            }
            if !asked.contains(&namespace) && !held_back(talk, &namespace) {
                let made_at_ms = now.wall_ms;
                let Ok(allocation_id) = AllocationId::new(self.ctx.entropy.uuid_v7(made_at_ms)) else { continue };
                fresh.push(PendingRow { namespace, allocation_id, want, epoch: standing.epoch, made_at_ms });
            }
        }
        if !fresh.is_empty() {
            pending.extend(self.store_wants(fresh).await?);
        }
        let mine = pending.into_iter().filter(|p| p.epoch == standing.epoch && !held_back(talk, &p.namespace));
        Ok(mine
            .take(MAX_WANTS)
            .map(|p| Want { allocation_id: p.allocation_id, namespace: p.namespace, want: p.want })
            .collect())
    }

    /// Namespaces that a service may ask for here and that are low, and how much to ask for.
    fn low(&self, view: &View, now_ms: u64) -> Vec<(Name, u64)> {
        let admitted: BTreeSet<&Name> = view.roster.services().flat_map(|(_, service)| &service.namespaces).collect();
        let pools = self.pool.all();
        let standings = self.issuer.standings();
        let none = crate::regional::Pool::default();
        let expect = self.ctx.orders.expected();
        let mut low = Vec::new();
        for (name, entry) in view.roster.namespaces() {
            let expect = expect.iter().find(|e| e.namespace == *name);
            let asked_for = admitted.contains(name) || expect.is_some();
            if entry.deleted || entry.frozen || entry.may_hold(&self.ctx.me.region).is_err() || !asked_for {
                continue;
            }
            if entry.kind != NamespaceKind::Range {
                continue;
            }
            let pool = pools.get(name).unwrap_or(&none);
            let own = standings.get(name).map(|(s, _)| *s).unwrap_or_default();
            let (more, at_least) = expect.map_or((0.0, 0), |e| (e.peak_per_second.max(0.0), e.at_least));
            let peak = own.peak.max(own.rate) + pool.thick_rate(now_ms) + more;
            let held = pool.totals.left.saturating_add(own.left);
            let space = view.space_left(name, entry);
            if let Some(want) = sizing::grant_want(entry, pool, held, own.waited_for.max(at_least), peak, space) {
                low.push((name.clone(), want, pool.totals.left));
            }
        }
        low.extend(self.low_windows(view, &admitted));
        // The emptiest come first: one message may not hold them all.
        low.sort_by_key(|(_, _, left)| *left);
        low.into_iter().map(|(name, want, _)| (name, want)).collect()
    }

    /// Slots whose time ends too soon: a region that is cut off stamps for as long as the policy says, all but a little.
    fn low_windows(&self, view: &View, admitted: &BTreeSet<&Name>) -> Vec<(Name, u64, u64)> {
        let now = self.ctx.now().wall_ms;
        let mut low = Vec::new();
        for (line, ends) in view.windows.iter() {
            let slot = view.roster.namespace(line).and_then(|entry| entry.slot.as_ref());
            let parent =
                slot.filter(|slot| admitted.contains(&slot.of)).and_then(|slot| view.roster.namespace(&slot.of));
            let Some(parent) = parent.filter(|p| !p.deleted && !p.frozen && p.may_hold(&self.ctx.me.region).is_ok())
            else {
                continue;
            };
            let Some(layout) = parent.layout else { continue };
            if let Some(want) = sizing::window_want(&layout, &parent.policy, *ends, now, self.ctx.times.heartbeat_ms) {
                low.push((line.clone(), want, ends.saturating_sub(layout.unit_of(now).unwrap_or(0))));
            }
        }
        low
    }

    async fn store_wants(&self, fresh: Vec<PendingRow>) -> Result<Vec<PendingRow>, AgentError> {
        let work = self.ctx.continuity.db().write("link_want", move |tx| {
            let fresh = fresh.clone();
            Box::pin(async move {
                let mut made = Vec::new();
                for row in fresh {
                    if sql::insert_pending(tx, &row).await? {
                        made.push(row);
                    }
                }
                Ok::<_, AgentError>(made)
            })
        });
        self.ctx.note_store(work.await)
    }

    /// How the namespaces are doing; only those that changed since the last answer.
    fn usage(&self, talk: &mut Talk) -> Vec<Usage> {
        let now = self.ctx.now().mono_ms;
        let standings = self.issuer.standings();
        let mut all = Vec::new();
        for (namespace, pool) in self.pool.all().into_iter().filter(|(namespace, _)| !namespace.is_of_slot()) {
            let own = standings.get(&namespace).map(|(s, _)| *s).unwrap_or_default();
            let usage = Usage {
                left: pool.totals.left,
                in_instances: own.left,
                carved: pool.totals.carved,
                burned: pool.totals.burned,
                rate_per_second: own.rate + pool.thick_rate(now),
                peak_per_second: own.peak.max(own.rate) + pool.thick_rate(now),
                namespace,
            };
            if talk.usage_told.get(&usage.namespace) != Some(&usage) {
                all.push(usage);
            }
        }
        talk.usage_sent.clone_from(&all);
        all
    }
}

/// The roster's mark always, the rest in turns: with ten thousand namespaces a message costs what it costs with a few.
async fn some_marks(tx: &mut Tx, after: &str) -> Result<Vec<ScopeMark>, DbError> {
    let roster = ledger::seen_mark(tx, &Scope::Roster).await?.map(|mark| (Scope::Roster, mark));
    let room = MARKS_PER_MESSAGE.saturating_sub(usize::from(roster.is_some()));
    let others = ledger::seen_after(tx, after, room).await?;
    Ok(roster.into_iter().chain(others).map(|(scope, mark)| ScopeMark { scope, mark }).collect())
}
