//! Hearing an answer, in one transaction: it is taken as a whole or not at all.
//!
//! The order is the rule: cluster, promise, our own store, epoch, continuity, roster, then grants. A grant is
//! adopted and its request cleared together; an answer to a request that is not pending changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use cadastre_core::continuity::{ScopeState, may_adopt};
use cadastre_core::ids::{AllocationId, Epoch, Name, RowId};
use cadastre_core::mark::{Generation, Mark, Scope, ScopeMark};
use cadastre_core::range::Range;
use cadastre_core::roster::{Entry, Kind};
use cadastre_ledger::continuity::{contains_marks, lift};
use cadastre_ledger::sql::{self as ledger, Place};
use cadastre_protocol::error::{Code, Problem};
use cadastre_protocol::link::{Answer, GrantAnswer, Granted};
use cadastre_runtime::db::Tx;
use cadastre_runtime::entropy::Entropy;

use crate::error::AgentError;
use crate::regional::unit;
use crate::sql::{self, GrantRow, HoldState, StandingRow};

/// The stored time of the last answer may be this old.
const STALE_MS: u64 = 60_000;

/// An answer, and what it is judged by.
#[derive(Clone)]
pub(super) struct Hearing {
    /// The answer.
    pub answer: Answer,
    /// Whether it came within its request's deadline, by the monotonic clock.
    pub in_time: bool,
    /// The generation of the store that this process verified.
    pub verified: Generation,
    /// The highest mark that anybody holds of this store's scope: witness or authority.
    pub known: Option<Mark>,
    /// The wall clock, milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// Where the store lies; recorded with the burn that makes it the only one again.
    pub place: String,
    /// Fresh ids.
    pub entropy: Arc<dyn Entropy>,
}

/// An adopted grant.
#[derive(Clone, Debug)]
pub(super) struct Adopted {
    pub namespace: Name,
    pub range: Range,
    pub replayed: bool,
    pub left: u64,
}

/// What hearing came to.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard {
    /// Set where nothing was taken.
    pub ignored: Option<&'static str>,
    /// Whether that was because the authority has forgotten an epoch: it can be told so by testimony.
    pub forgetful: bool,
    /// Whether the store is where it is known to be the only one.
    pub at_home: bool,
    /// Whether roster, standing or marks have to be read again.
    pub changed: bool,
    /// Whether the roster is another one: what was refused may be granted now.
    pub roster_changed: bool,
    /// The entries and scopes that have to be read again.
    pub entries: Vec<(Kind, Name)>,
    pub scopes: Vec<Scope>,
    /// The epoch that everything below was burned for.
    pub burned_below: Option<Epoch>,
    /// What was burned in the store, by namespace.
    pub burned: BTreeMap<Name, u64>,
    /// The store's scope was opened again.
    pub lifted: Option<ScopeMark>,
    /// The store's newest mark, where it was raised.
    pub mark: Option<Mark>,
    /// Grants.
    pub adopted: Vec<Adopted>,
    /// Refusals, by namespace.
    pub refused: Vec<(Name, Problem)>,
    /// Grants that were not adopted although they were asked for, and why.
    pub suspicious: Vec<(Name, String)>,
}

impl Heard {
    fn ignored(why: &'static str) -> Self {
        Self { ignored: Some(why), ..Self::default() }
    }
}

impl Hearing {
    /// Runs the transaction.
    pub(super) async fn run(&self, tx: &mut Tx) -> Result<Heard, AgentError> {
        let answer = &self.answer;
        ledger::bind_cluster(tx, answer.cluster_id).await?;
        let store = ledger::store(tx).await?.ok_or(AgentError::Moved)?;
        if answer.generation < store.promised {
            return Ok(Heard::ignored("it is of a generation below the one that was promised"));
        }
        let scope = ledger::scope(tx, &Scope::Region).await?.ok_or(AgentError::Moved)?;
        if !scope.same_server || scope.view.generation != self.verified {
            return Err(AgentError::Moved);
        }
        let standing = sql::standing(tx).await?;
        let theirs = answer.region.epoch;
        let state = scope.view.state;
        if state != ScopeState::Back
            && let Some(kept) = answer.kept
            && contains_marks(tx, &[ScopeMark { scope: Scope::Region, mark: kept }]).await? != [true]
        {
            return Err(AgentError::WentBack("the authority holds a row of this store that the store lacks"));
        }
        if standing.is_some_and(|s| s.epoch > theirs) {
            // The authority has forgotten an epoch. What it says of the roster is united all the same.
            let mut heard = Heard::ignored("it is of an epoch that is over");
            heard.forgetful = true;
            self.take_roster(tx, &mut heard).await?;
            return Ok(heard);
        }
        let mut heard = Heard::default();
        let mut mark = scope.view.mark;
        let rose = standing.is_some_and(|s| s.epoch < theirs);
        if rose {
            heard.burned = sql::burn_below(tx, theirs).await?;
            heard.burned_below = Some(theirs);
        }
        // Its session was taken, so no other copy spoke first; or nothing of what was copied is used any more.
        let place = store.place(&self.place);
        if rose || standing.is_none() || place == Place::Unsure {
            ledger::set_place(tx, &self.place).await?;
        }
        heard.at_home = rose || standing.is_none() || place != Place::Elsewhere;
        let settled = match state {
            ScopeState::Open => false,
            // Nothing is left of what was in doubt, or there never was anything.
            ScopeState::Suspect | ScopeState::Back if rose || standing.is_none() => true,
            // A quarantined authority may have gone back together with this store: it confirms nothing.
            ScopeState::Suspect => !answer.quarantined,
            ScopeState::Back => false,
        };
        if settled {
            let known = self.known.map_or(0, |m| m.seq.max(m.bound));
            let bound = known.max(scope.view.mark.seq) + 1;
            let row = RowId(self.entropy.uuid_v4());
            let lifted = lift(tx, &scope, scope.view.generation, known, bound, row, self.now_ms).await?;
            mark = lifted.mark;
            heard.lifted = Some(lifted);
        } else if rose && state == ScopeState::Open {
            mark = unit::raise(tx, &mark, RowId(self.entropy.uuid_v4()), "burn", self.now_ms).await?;
            heard.mark = Some(mark);
        }
        self.stand(tx, standing, &mut heard).await?;
        self.take_roster(tx, &mut heard).await?;
        for id in &answer.confirmed {
            sql::acknowledge(tx, *id).await?;
        }
        if state == ScopeState::Open || settled {
            self.grants(tx, store.promised, mark, &mut heard).await?;
        }
        Ok(heard)
    }

    /// Writes where the region stands, if that is news.
    async fn stand(&self, tx: &mut Tx, was: Option<StandingRow>, heard: &mut Heard) -> Result<(), AgentError> {
        let region = self.answer.region;
        let now = StandingRow {
            region_id: region.region_id,
            epoch: region.epoch,
            state: region.state,
            answered_at_ms: self.now_ms,
            superseded: false,
        };
        let same = |s: &StandingRow| StandingRow { answered_at_ms: now.answered_at_ms, ..*s } == now;
        let news = was.as_ref().is_none_or(|s| !same(s));
        if news || was.is_some_and(|s| s.answered_at_ms.abs_diff(self.now_ms) > STALE_MS) {
            sql::put_standing(tx, &now).await?;
            heard.changed = true;
        }
        Ok(())
    }

    /// Unites the roster and keeps the marks, together: a mark that is sent says that its entries are held.
    async fn take_roster(&self, tx: &mut Tx, heard: &mut Heard) -> Result<(), AgentError> {
        heard.roster_changed = ledger::roster_unite(tx, &self.answer.roster).await?;
        heard.changed |= heard.roster_changed;
        heard.entries = self.answer.roster.iter().map(Entry::key).collect();
        for ScopeMark { scope, mark } in &self.answer.marks {
            let held = ledger::seen_mark(tx, scope).await?;
            if held.is_none_or(|held| mark.is_above(&held) || mark.bound > held.bound) {
                ledger::keep_mark(tx, scope, mark).await?;
                heard.scopes.push(scope.clone());
                heard.changed = true;
            }
        }
        Ok(())
    }

    async fn grants(&self, tx: &mut Tx, promised: Generation, mark: Mark, heard: &mut Heard) -> Result<(), AgentError> {
        let row = RowId(self.entropy.uuid_v4());
        for grant in &self.answer.grants {
            match grant {
                GrantAnswer::Granted(granted) => self.granted(tx, promised, granted, row, heard).await?,
                GrantAnswer::Refused { allocation_id, problem } => {
                    self.refused(tx, *allocation_id, problem, heard).await?;
                }
            }
        }
        if heard.adopted.is_empty() {
            return Ok(());
        }
        heard.scopes.extend(heard.adopted.iter().map(|adopted| Scope::Namespace(adopted.namespace.clone())));
        heard.mark = Some(unit::raise(tx, &mark, row, "adopt", self.now_ms).await?);
        for adopted in &mut heard.adopted {
            adopted.left = sql::left_of(tx, &adopted.namespace, self.answer.region.epoch).await?;
        }
        Ok(())
    }

    async fn granted(
        &self,
        tx: &mut Tx,
        promised: Generation,
        granted: &Granted,
        row: RowId,
        heard: &mut Heard,
    ) -> Result<(), AgentError> {
        let epoch = self.answer.region.epoch;
        if !may_adopt(promised, granted.generation, true, self.in_time, granted.epoch == epoch) {
            return Ok(());
        }
        // Not pending: a late or doubled answer, or another agent of this store was first.
        let Some(asked) = sql::take_pending(tx, granted.allocation_id).await? else { return Ok(()) };
        let strange = match Range::new(granted.lo, granted.hi) {
            _ if asked.epoch != epoch => Some("it was asked for under another epoch".to_owned()),
            _ if asked.namespace != granted.namespace => Some(format!("it is of namespace {}", granted.namespace)),
            Err(error) => Some(error.to_string()),
            Ok(range) if range.len() > asked.want => {
                Some(format!("{range} is longer than the {} asked for", asked.want))
            }
            Ok(range) => sql::overlapping_grant(tx, &asked.namespace, range).await?.map(|held| {
                format!("{range} of grant {} overlaps {} of grant {}", granted.grant_id, held.range, held.grant_id)
            }),
        };
        if let Some(why) = strange {
            let id = RowId(self.entropy.uuid_v4());
            ledger::audit(tx, id, self.now_ms, "authority", "grant_refused", &why).await?;
            heard.suspicious.push((asked.namespace, why));
            return Ok(());
        }
        let range = Range::new(granted.lo, granted.hi).map_err(|e| AgentError::Store(e.to_string()))?;
        let grant = GrantRow {
            grant_id: granted.grant_id,
            namespace: granted.namespace.clone(),
            range,
            // Time is given out by worker and never by place.
            carved_to: if granted.namespace.is_of_slot() { range.hi() } else { range.lo() },
            epoch,
            generation: granted.generation,
            allocation_id: granted.allocation_id,
            state: HoldState::Held,
            adopted_at_ms: self.now_ms,
            mark_row: row,
        };
        sql::insert_grant(tx, &grant).await?;
        sql::insert_confirm(tx, granted.allocation_id, granted.grant_id).await?;
        heard.adopted.push(Adopted { namespace: grant.namespace, range, replayed: granted.replayed, left: 0 });
        Ok(())
    }

    /// A final refusal drops the request; any other keeps its id.
    async fn refused(
        &self,
        tx: &mut Tx,
        id: AllocationId,
        problem: &Problem,
        heard: &mut Heard,
    ) -> Result<(), AgentError> {
        let pending = sql::pending(tx).await?.into_iter().find(|p| p.allocation_id == id);
        let Some(pending) = pending else { return Ok(()) };
        if problem.code == Code::AlreadyConfirmed {
            // It was adopted and confirmed once, and this store has forgotten that.
            return Err(AgentError::WentBack(
                "the authority says that a pending request was adopted and confirmed before",
            ));
        }
        if !problem.code.retryable() {
            sql::take_pending(tx, id).await?;
        }
        heard.refused.push((pending.namespace, problem.clone()));
        Ok(())
    }
}
