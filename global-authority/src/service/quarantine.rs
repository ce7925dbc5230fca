//! A store that may have gone back: entering quarantine, hearing testimony, leaving it.
//!
//! The verdicts are in `cadastre_core::continuity`. This room collects what they need and writes the
//! one transaction that lifts: every scope past everything that anyone could hold, every region's
//! epoch as the united roster has it, and that as the new generation's base.

use std::collections::BTreeMap;

use cadastre_core::continuity::{self, Exit, ScopeState, Testimony, WitnessMode};
use cadastre_core::ids::{Epoch, Name, RowId};
use cadastre_core::mark::{Generation, Mark, Scope, ScopeMark};
use cadastre_core::namespace::NamespaceKind;
use cadastre_core::roster::{Body, Kind, RegionEntry, Roster};
use cadastre_ledger::continuity::{How, lift};
use cadastre_ledger::error::LedgerError;
use cadastre_ledger::sql::{self as shared, ScopeRow};
use cadastre_ledger::witness::Marks;
use cadastre_protocol::admin::{Lift, QuarantineView, Quarantines};
use cadastre_protocol::error::Code;
use cadastre_protocol::link::{FullTestimony, Message};
use cadastre_runtime::db::Tx;

use super::error::problem;
use super::memory::beyond_reach;
use super::{Authority, ServiceError};
use crate::sql;

/// A raise above this share of what is left of a namespace waits for an operator, in percent: one
/// region's wrong word must not use up a small space.
const MAX_JUMP_PERCENT: u64 = 25;

/// How far an epoch may lie above the one that is known and still be believed to be of a lost future.
const MAX_EPOCHS_AHEAD: u64 = 1 << 20;

/// Everything that decides whether a quarantine ends, in one snapshot.
struct Evidence {
    rows: Vec<ScopeRow>,
    roster: Roster,
    testimony: BTreeMap<Name, Testimony>,
    stated: BTreeMap<Name, (Generation, BTreeMap<Name, u64>)>,
    overruled: Option<(Generation, u64)>,
    seen: BTreeMap<Scope, Mark>,
    witness: Option<(Generation, bool)>,
    witnessed: Marks,
}

impl Authority {
    /// Puts everything into quarantine because of a message, unless it is already for as good a reason.
    pub(super) async fn doubt(&self, back: bool, why: &str, message: &Message) -> Result<(), ServiceError> {
        let standing = self.continuity.standing();
        let promised = message.words.promised;
        if !continuity::is_within_reach(standing.generation, promised) {
            return Err(problem(Code::InvalidRequest, "words.promised is of a generation that cannot be ours"));
        }
        let known =
            !standing.how.is_open() && promised <= standing.generation && (!back || standing.how == How::WentBack);
        if !known {
            let back = back || standing.how == How::WentBack;
            self.continuity.quarantine(back, &format!("{why} ({})", message.sender.region), vec![promised]).await?;
        }
        Ok(())
    }

    /// Quarantine on proof: somebody holds marks whose rows this store lacks.
    pub(super) async fn doubt_marks(&self, marks: Vec<ScopeMark>) -> Result<(), ServiceError> {
        if self.how() != How::WentBack {
            let named: Vec<String> = marks.iter().take(3).map(|m| continuity::describe(&m.scope, &m.mark)).collect();
            let seen = marks.iter().map(|m| m.mark.generation).collect();
            let why = format!("a region holds marks whose rows this store lacks: {}", named.join("; "));
            self.continuity.quarantine(true, &why, seen).await?;
        }
        Ok(())
    }

    /// Takes an epoch from the region that holds it. It was given out by a store that this one is a past of, maybe
    /// inside a quarantine and past every witness: whatever ends the doubt has to end above it, or the region would
    /// never again be answered in its epoch.
    pub(super) async fn learn_epoch(
        &self,
        region: &Name,
        message: &Message,
        entry: RegionEntry,
    ) -> Result<RegionEntry, ServiceError> {
        let Some(epoch) = message.sender.epoch else { return Ok(entry) };
        if epoch.0 > entry.epoch.0.saturating_add(MAX_EPOCHS_AHEAD) {
            return Err(problem(Code::InvalidRequest, "sender.epoch is one that cannot be of this cluster"));
        }
        let name = region.clone();
        let work = self.continuity.db().write("learn_epoch", move |tx| {
            let name = name.clone();
            Box::pin(async move { know_epoch(tx, &name, epoch).await })
        });
        work.await.map_err(ServiceError::from)?;
        self.reload().await?;
        Ok(self.known().roster.region(region).cloned().unwrap_or(entry))
    }

    /// Takes a complete testimony; it counts only for the generation that is asked for.
    pub(super) async fn testify(
        &self,
        region: &Name,
        message: &Message,
        full: &FullTestimony,
    ) -> Result<(), ServiceError> {
        if self.is_open() || full.generation != self.continuity.standing().generation {
            return Ok(());
        }
        let Some(epoch) = message.sender.epoch else { return Ok(()) };
        let testimony = Testimony {
            epoch,
            store: message.sender.store_id,
            generation: full.generation,
            bounds: full.bounds.clone(),
        };
        let vouched = match self.vouched(&full.roster).await {
            // The sender was heard, and goes on: what it said does not count, and the quarantine goes on too.
            Err(ServiceError::Problem(why)) => {
                tracing::error!(%region, detail = why.detail, "a testimony does not count");
                return Ok(());
            }
            vouched => vouched?,
        };
        tracing::info!(%region, generation = %full.generation, "testimony");
        let full = FullTestimony { roster: vouched, ..full.clone() };
        let (region, full, now) = (region.clone(), full, self.now_ms());
        self.continuity
            .db()
            .write("testimony", move |tx| {
                let (region, full, testimony) = (region.clone(), full.clone(), testimony.clone());
                Box::pin(async move {
                    // Another process of this authority may have ended it: what is open changes with its mark only.
                    let scope = shared::scope(tx, &Scope::Roster).await?;
                    if scope.is_some_and(|s| s.view.state == ScopeState::Open) {
                        return Ok(());
                    }
                    if let Some(scope) = beyond_reach(tx, full.generation, &full.marks).await? {
                        tracing::error!(%region, %scope, "a testimony does not count: its mark cannot be of this store");
                        return Ok(());
                    }
                    for mark in &full.marks {
                        shared::keep_mark(tx, &mark.scope, &mark.mark).await?;
                    }
                    // Knowledge is united at once; nothing is given out on it before the quarantine ends.
                    shared::roster_unite(tx, &full.roster).await?;
                    know_epoch(tx, &region, testimony.epoch).await?;
                    sql::put_testimony(tx, &region, &testimony, now).await?;
                    Ok::<_, LedgerError>(())
                })
            })
            .await?;
        Ok(())
    }

    async fn evidence(&self) -> Result<Evidence, ServiceError> {
        let witnessed = self.continuity.read_witness().await?;
        self.evidence_with(witnessed).await
    }

    async fn evidence_with(&self, witnessed: Option<Marks>) -> Result<Evidence, ServiceError> {
        let marks: Vec<ScopeMark> =
            witnessed.iter().flatten().map(|(scope, mark)| ScopeMark { scope: scope.clone(), mark: *mark }).collect();
        let empty = witnessed.is_none();
        let generation = self.continuity.standing().generation;
        self.continuity
            .db()
            .read("evidence", move |tx| {
                let marks = marks.clone();
                Box::pin(async move {
                    let found = cadastre_ledger::continuity::contains_marks(tx, &marks).await?;
                    let highest = marks.iter().map(|m| m.mark.generation).max().unwrap_or_default();
                    // Testimony and stated bounds belong to one generation: older ones are as if never said.
                    let mut testimony = sql::testimonies(tx).await?;
                    testimony.retain(|_, t| t.generation == generation);
                    let mut stated = sql::stated(tx).await?;
                    stated.retain(|_, (g, _)| *g == generation);
                    Ok::<_, LedgerError>(Evidence {
                        rows: shared::scopes(tx).await?,
                        roster: shared::roster(tx).await?,
                        testimony,
                        stated,
                        overruled: sql::overruled(tx).await?,
                        seen: shared::seen_marks(tx).await?,
                        witness: (!empty).then_some((highest, !found.contains(&false))),
                        witnessed: marks.into_iter().map(|m| (m.scope, m.mark)).collect(),
                    })
                })
            })
            .await
            .map_err(Into::into)
    }

    /// Ends the quarantine if it may end; cheap where there is none.
    ///
    /// # Errors
    /// Those of the store and the witness.
    pub async fn settle(&self) -> Result<(), ServiceError> {
        if self.is_open() {
            return Ok(());
        }
        if self.continuity.refresh().await?.how.is_open() {
            return self.reload().await;
        }
        self.continuity.recall_roster().await?;
        let evidence = self.evidence().await?;
        let generation = self.continuity.standing().generation;
        let how = match self.judge(&evidence, generation) {
            Exit::ByWitness | Exit::RaisedToWitness => How::Witnessed,
            Exit::ByTestimony => How::Testified,
            Exit::ByOperator => How::Stated,
            Exit::Reopen => {
                let above = evidence.witness.map(|(g, _)| g).into_iter().collect();
                let back = self.how() == How::WentBack;
                self.continuity.quarantine(back, "the witness is of a higher generation", above).await?;
                return Ok(());
            }
            Exit::Waiting { .. } => return Ok(()),
        };
        let overruled = evidence.overruled.is_some_and(|(g, _)| g == generation);
        if how == How::Testified && !overruled && self.jumps_too_far(&evidence).is_some() {
            return Ok(());
        }
        self.lift_all(evidence, generation, how).await
    }

    fn judge(&self, evidence: &Evidence, generation: Generation) -> Exit {
        let id = |name: &Name| evidence.roster.region(name).map(|r| r.region_id);
        let testimony = evidence.testimony.iter().filter_map(|(n, t)| Some((id(n)?, t.clone()))).collect();
        // A late answer of the old authority may be adopted for one request deadline more.
        let waited = evidence.overruled.is_some_and(|(g, at)| {
            g == generation && self.now_ms() >= at.saturating_add(self.settings.request_deadline_ms)
        });
        let stated: BTreeMap<_, _> = evidence
            .stated
            .iter()
            .filter(|(_, (g, bounds))| *g == generation && waited && self.complete(evidence, bounds))
            .filter_map(|(name, (_, bounds))| Some((id(name)?, bounds.clone())))
            .collect();
        continuity::exit(&continuity::QuarantineView {
            generation,
            went_back: self.how() == How::WentBack,
            mode: self.continuity.mode(),
            witness: evidence.witness,
            roster: &evidence.roster,
            testimony: &testimony,
            stated: &stated,
            witness_has_marks: evidence.witnessed.contains_key(&Scope::Roster),
            overruled: waited,
        })
    }

    /// An operator's bounds count once they cover every number line. That of a time-based namespace is for all its slots.
    fn complete(&self, evidence: &Evidence, bounds: &BTreeMap<Name, u64>) -> bool {
        evidence.roster.namespaces().all(|(name, entry)| match (entry.kind, &entry.slot) {
            (NamespaceKind::Snowflake | NamespaceKind::UuidV7, _) => true,
            (_, Some(slot)) => bounds.contains_key(&slot.of) || bounds.contains_key(name),
            (_, None) => bounds.contains_key(name),
        })
    }

    /// The bound that a namespace is raised to, and whether that waits for an operator.
    fn jumps_too_far(&self, evidence: &Evidence) -> Option<Name> {
        evidence.rows.iter().find_map(|row| {
            let Scope::Namespace(name) = &row.scope else { return None };
            let capacity = evidence.roster.namespace(name)?.definition.capacity();
            let own = row.view.mark.bound;
            let jump = bound_for(evidence, name, own).saturating_sub(own);
            let allowed = capacity.saturating_sub(own).saturating_mul(MAX_JUMP_PERCENT) / 100;
            (jump > allowed.max(1)).then(|| name.clone())
        })
    }

    async fn lift_all(&self, evidence: Evidence, generation: Generation, how: How) -> Result<(), ServiceError> {
        let now = self.now_ms();
        let ids: Vec<RowId> = (0..evidence.rows.len() + evidence.roster.namespaces().count() + 1)
            .map(|_| self.continuity.row_id())
            .collect();
        let raised = raises(&evidence);
        let (rows, roster, word) = (evidence.rows, evidence.roster, how.as_str());
        let marks = self
            .continuity
            .db()
            .write("lift", move |tx| {
                let (ids, raised, rows, roster) = (ids.clone(), raised.clone(), rows.clone(), roster.clone());
                Box::pin(async move {
                    let lifting = Lifting { generation, raised, rows, roster, word, now };
                    lifting.run(tx, ids).await
                })
            })
            .await?;
        tracing::warn!(%generation, how = how.as_str(), "quarantine lifted");
        // Exit 2 stands on the witness itself and raises it; 3 and 4 may fill an empty one.
        self.continuity.lifted(how, marks).await?;
        self.reload().await?;
        self.tell_of_rebuilder().await
    }

    /// An operator states bounds for silent regions.
    ///
    /// # Errors
    /// Where there is no quarantine, the old store is not said to be stopped, or a bound lies below
    /// something that is known.
    pub async fn state_bounds(&self, who: &str, namespace: &Name, lift: Lift) -> Result<(), ServiceError> {
        self.settle().await?;
        if self.is_open() {
            return Err(problem(Code::NotAllowed, "nothing is in quarantine"));
        }
        if !lift.old_store_stopped {
            return Err(problem(
                Code::InvalidRequest,
                "old_store_stopped must be true: a bound is only safe once the old store and its authorities are stopped",
            ));
        }
        let generation = self.continuity.standing().generation;
        let evidence = self.evidence().await?;
        let scope = if namespace.as_str() == "roster" { Scope::Roster } else { Scope::Namespace(namespace.clone()) };
        let own = evidence.rows.iter().find(|r| r.scope == scope);
        let own = own.ok_or_else(|| problem(Code::UnknownNamespace, format!("there is no namespace {namespace}")))?;
        if scope == Scope::Roster && !lift.bounds.is_empty() {
            return Err(problem(Code::InvalidRequest, "the roster has no bounds: state them per namespace"));
        }
        let capacity = evidence.roster.namespace(namespace).map_or(u64::MAX, |n| n.definition.capacity());
        for (region, bound) in &lift.bounds {
            if evidence.roster.region(region).is_none() {
                return Err(problem(Code::NotFound, format!("bounds: there is no region {region}")));
            }
            if *bound > capacity {
                return Err(problem(
                    Code::InvalidRequest,
                    format!("bounds: {region}: above the namespace's capacity {capacity}"),
                ));
            }
            let slots =
                evidence.roster.namespaces().filter(|(_, e)| e.slot.as_ref().is_some_and(|s| s.of == *namespace));
            let lines = slots.map(|(line, _)| bound_for(&evidence, line, 0));
            let known = lines.max().unwrap_or(0).max(bound_for(&evidence, namespace, own.view.mark.bound));
            if *bound < known {
                let text = format!("bounds: {region}: {bound} lies below {known}, which is known to have been granted");
                return Err(problem(Code::InvalidRequest, text));
            }
        }
        let (who, namespace, now) = (who.to_owned(), namespace.clone(), self.now_ms());
        let audit = self.continuity.row_id();
        self.continuity
            .db()
            .write("state_bounds", move |tx| {
                let (who, namespace, lift) = (who.clone(), namespace.clone(), lift.clone());
                let held = evidence.stated.clone();
                Box::pin(async move {
                    sql::overrule(tx, generation, &who, &lift.reason, now).await?;
                    for (region, bound) in &lift.bounds {
                        let mut bounds = match held.get(region) {
                            Some((g, bounds)) if *g == generation => bounds.clone(),
                            _ => BTreeMap::new(),
                        };
                        bounds.insert(namespace.clone(), *bound);
                        sql::put_stated(tx, region, generation, &bounds, &who, &lift.reason, now).await?;
                    }
                    let detail = format!("{namespace} {:?}: {}", lift.bounds, lift.reason);
                    shared::audit(tx, audit, now, &who, "bounds_stated", &detail).await?;
                    Ok::<_, LedgerError>(())
                })
            })
            .await?;
        self.settle().await
    }

    /// What is in quarantine, why, and what is missing.
    ///
    /// # Errors
    /// Those of the store and the witness.
    pub async fn quarantines(&self) -> Result<Quarantines, ServiceError> {
        // It can be seen also while the witness cannot be used.
        let witnessed = self.continuity.read_witness().await.unwrap_or_default();
        let evidence = self.evidence_with(witnessed).await?;
        let generation = self.continuity.standing().generation;
        let mut waiting_for = match self.judge(&evidence, generation) {
            Exit::Waiting { silent } => silent.iter().map(Name::to_string).collect(),
            _ => Vec::new(),
        };
        if let Some(name) = self.jumps_too_far(&evidence) {
            waiting_for.push(format!("an operator: {name} would lose more than {MAX_JUMP_PERCENT} % of what is left"));
        }
        let closed = evidence.rows.iter().filter(|r| r.view.state != continuity::ScopeState::Open);
        let mut quarantines: Vec<QuarantineView> = closed
            .map(|r| QuarantineView {
                scope: r.scope.to_string(),
                state: r.view.state.as_str().to_owned(),
                reason: r.reason.clone(),
                since: r.since_ms,
                generation: r.view.generation,
                waiting_for: waiting_for.clone(),
            })
            .collect();
        if quarantines.is_empty() && !self.is_open() {
            // Written nowhere yet: the server cannot be written to, or was not looked at.
            quarantines.push(QuarantineView {
                scope: Scope::Roster.to_string(),
                state: continuity::ScopeState::Suspect.as_str().to_owned(),
                reason: "the store's server is another one than the one that was verified".to_owned(),
                since: self.now_ms(),
                generation,
                waiting_for: vec!["a store that can be judged".to_owned()],
            });
        }
        let how = self.how().as_str();
        let continuity = match self.continuity.mode() {
            WitnessMode::Required => how.to_owned(),
            WitnessMode::BestEffort => format!("{how}, best-effort witness"),
            WitnessMode::None => format!("{how}, unwitnessed: a restored copy is only found when regions speak"),
        };
        let (witness, server) = (self.continuity.witness_status(), self.continuity.server());
        let store_findings = self.continuity.db().findings().into_iter().map(Into::into).collect();
        Ok(Quarantines { continuity, witness, server, store_findings, quarantines })
    }
}

/// A region that holds a higher epoch than the roster was told so by an authority that this store forgot.
pub(super) async fn know_epoch(tx: &mut Tx, region: &Name, epoch: Epoch) -> Result<(), LedgerError> {
    let Some(entry) = shared::roster_get(tx, Kind::Region, region).await? else { return Ok(()) };
    let was = entry.version();
    let mut known = entry;
    if let Body::Region(body) = &mut known.body
        && body.epoch < epoch
    {
        body.epoch = epoch;
        shared::roster_put(tx, Some(was), &known).await?;
    }
    Ok(())
}

/// The highest ordinal of a namespace that anybody is known to hold, or an operator said they might.
fn bound_for(evidence: &Evidence, namespace: &Name, own: u64) -> u64 {
    let scope = Scope::Namespace(namespace.clone());
    let marks = [evidence.witnessed.get(&scope), evidence.seen.get(&scope)];
    let testified = evidence.testimony.values().filter_map(|t| t.bounds.get(namespace).copied());
    let whole = evidence.roster.namespace(namespace).and_then(|entry| entry.slot.as_ref()).map(|slot| &slot.of);
    let of = |bounds: &BTreeMap<Name, u64>| bounds.get(namespace).or_else(|| bounds.get(whole?)).copied();
    let stated = evidence.stated.values().filter_map(|(_, bounds)| of(bounds));
    continuity::raise_to(own, marks.into_iter().flatten().map(|m| m.bound).chain(testified).chain(stated))
}

/// Per scope that anybody knows: the seq and bound to pass.
fn raises(evidence: &Evidence) -> BTreeMap<Scope, (u64, u64)> {
    let mut scopes: Vec<Scope> = evidence.rows.iter().map(|r| r.scope.clone()).collect();
    scopes.extend(evidence.roster.namespaces().map(|(name, _)| Scope::Namespace(name.clone())));
    let seq = |scope: &Scope| {
        let marks = [evidence.witnessed.get(scope), evidence.seen.get(scope)];
        marks.into_iter().flatten().map(|m| m.seq).max().unwrap_or(0)
    };
    let entries = evidence.roster.entries().map(|e| e.seq).max().unwrap_or(0);
    scopes
        .into_iter()
        .map(|scope| {
            let raise = match &scope {
                Scope::Namespace(name) => (seq(&scope), bound_for(evidence, name, 0)),
                Scope::Roster => (seq(&scope).max(entries), 0),
                Scope::Region => (0, 0),
            };
            (scope, raise)
        })
        .collect()
}

/// The transaction that ends a quarantine.
struct Lifting {
    generation: Generation,
    raised: BTreeMap<Scope, (u64, u64)>,
    rows: Vec<ScopeRow>,
    roster: Roster,
    word: &'static str,
    now: u64,
}

impl Lifting {
    async fn run(self, tx: &mut Tx, ids: Vec<RowId>) -> Result<Vec<ScopeMark>, LedgerError> {
        let mut ids = ids.into_iter();
        let mut id = || ids.next().ok_or_else(|| LedgerError::Refused("the roster grew meanwhile; again".to_owned()));
        let mut marks = Vec::new();
        for (scope, (seq, bound)) in &self.raised {
            match self.rows.iter().find(|r| r.scope == *scope) {
                Some(was) => marks.push(lift(tx, was, self.generation, *seq, *bound, id()?, self.now).await?),
                None => {
                    // A namespace that this store had forgotten.
                    let mark = Mark { generation: self.generation, seq: seq + 1, row: id()?, bound: *bound };
                    shared::insert_scope(tx, scope, &mark, "lifted", self.now).await?;
                    marks.push(ScopeMark { scope: scope.clone(), mark });
                }
            }
        }
        if self.rows.iter().any(|r| r.view.state == ScopeState::Back) {
            // As old as this store was: by it a region's store that was put back too would be confirmed.
            sql::forget_kept(tx).await?;
        }
        for (name, region) in self.roster.regions() {
            sql::raise_epoch(tx, name, region.epoch).await?;
        }
        shared::audit(tx, id()?, self.now, "authority", "quarantine_lifted", self.word).await?;
        Ok(marks)
    }
}
