//! The conversation with the authority: one message at a time, numbered, answered or given up.
//!
//! Purpose: heartbeats, grants, testimony. Invariants: a message's number is used once; an answer counts only
//! if it is the answer to that message of this incarnation, came within the deadline by the monotonic clock,
//! and is of this cluster; what it says is written in one transaction (see `hear`) and shown to the rest of
//! the agent only after the commit. Absent on purpose: timers and tasks; [`Link::run_once`] is one round, and
//! says how long to pause.

mod draft;
mod hear;

use std::collections::BTreeMap;
use std::sync::Arc;

use cadastre_core::continuity::WitnessMode;
use cadastre_core::ids::Name;
use cadastre_core::mark::{Generation, Mark, Scope};
use cadastre_core::refill::Backoff;
use cadastre_core::window::ASKER_CLOCK_BOUND_MS;
use cadastre_ledger::continuity::How;
use cadastre_ledger::sql as ledger;
use cadastre_protocol::error::{Code, Problem};
use cadastre_protocol::link::{Answer, Message, Usage};
use cadastre_runtime::clock::Now;
use tokio::sync::Mutex as Turn;

use crate::context::{Context, UplinkState, View};
use crate::error::AgentError;
use crate::issuer::Issuer;
use crate::metrics as meter;
use crate::regional::Regional;
use crate::sql;
use crate::stamps::Stamps;
use crate::uplink::{GRANTS, HEARTBEATS, Uplink, UplinkError};
use hear::{Heard, Hearing};

/// Rounds in a row without a pause, whatever asks for them.
const MAX_AT_ONCE: u32 = 4;
/// The first pause after an unanswered message; the longest is two heartbeats.
const RETRY_MS: u64 = 250;
/// Between two looks while a drill refuses the uplink.
const DRILL_LOOK_MS: u64 = 250;
/// The first and the longest time that a refused want is held back.
const HOLD_MS: (u64, u64) = (500, 10_000);
/// A final refusal is asked about again after this long: an operator may have changed something.
const FINAL_HOLD_MS: u64 = 30_000;

/// How long to pause before the next round.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pause {
    /// At most so long.
    pub ms: u64,
    /// Whether a wish for a grant may cut it short. Not after a failure: the tier above is spared then.
    pub may_be_cut: bool,
    /// Whether the round asked for grants.
    pub wanted: bool,
}

/// A namespace whose want was refused.
struct Held {
    until_ms: u64,
    backoff: Option<Backoff>,
}

/// The state of the conversation.
#[derive(Default)]
struct Talk {
    number: u64,
    chain: Option<String>,
    /// The last mark of the store that passed the gate.
    passed: Option<Mark>,
    /// The scope of the last mark that was sent.
    marks_after: String,
    usage_sent: Vec<Usage>,
    usage_told: BTreeMap<Name, Usage>,
    /// The generation that the authority last asked testimony for, and the one that was last testified for.
    testify: Option<Generation>,
    testified: Option<Generation>,
    held: BTreeMap<Name, Held>,
    at_once: u32,
    backoff: Option<Backoff>,
    /// Whether the last message asked for grants.
    wanted: bool,
    /// The last round did not come to its end: what it wrote was not shown to anybody.
    broken: bool,
}

/// See the module's documentation.
pub struct Link {
    ctx: Arc<Context>,
    pool: Arc<Regional>,
    issuer: Arc<Issuer>,
    stamps: Arc<Stamps>,
    uplink: Arc<dyn Uplink>,
    talk: Turn<Talk>,
}

/// The tiers that the conversation feeds, and stops where it has to.
pub struct Tiers {
    /// The region's.
    pub pool: Arc<Regional>,
    /// The instance's, for numbers.
    pub issuer: Arc<Issuer>,
    /// The instance's, for time.
    pub stamps: Arc<Stamps>,
}

impl Link {
    /// A conversation that has not begun.
    #[must_use]
    pub fn new(ctx: Arc<Context>, tiers: Tiers, uplink: Arc<dyn Uplink>) -> Self {
        let Tiers { pool, issuer, stamps } = tiers;
        let backoff = Backoff::new(RETRY_MS, (ctx.times.heartbeat_ms * 2).max(RETRY_MS)).ok();
        Self { ctx, pool, issuer, stamps, uplink, talk: Turn::new(Talk { backoff, ..Talk::default() }) }
    }

    /// One round: a message, its answer, and what follows from it.
    pub async fn run_once(&self) -> Pause {
        let mut talk = self.talk.lock().await;
        talk.wanted = false;
        if self.ctx.orders.is_cut(self.ctx.now().mono_ms, || self.holds()) {
            self.unanswered(&UplinkError::Unreachable("a drill refuses the uplink".into())).await;
            self.report().await;
            // Looked at again soon: it ends in time, and its share is kept.
            return Pause { ms: DRILL_LOOK_MS, may_be_cut: false, wanted: false };
        }
        let broken = std::mem::replace(&mut talk.broken, true);
        let result = self.round(&mut talk, broken).await;
        talk.broken = false;
        let wanted = talk.wanted;
        self.report().await;
        let random = self.ctx.entropy.u64();
        match result {
            Ok(again) => {
                if let Some(backoff) = &mut talk.backoff {
                    backoff.reset();
                }
                talk.at_once = if again { talk.at_once + 1 } else { 0 };
                if again && talk.at_once <= MAX_AT_ONCE {
                    return Pause { ms: 0, may_be_cut: true, wanted };
                }
                // Between three and five quarters of a heartbeat.
                let beat = self.ctx.times.heartbeat_ms.max(4);
                Pause { ms: beat * 3 / 4 + random % (beat / 2 + 1), may_be_cut: true, wanted }
            }
            Err(error) => {
                self.failed(&error);
                let wait = talk.backoff.as_mut().map_or(RETRY_MS, |b| b.failed(random));
                Pause { ms: wait.max(RETRY_MS / 5), may_be_cut: false, wanted }
            }
        }
    }

    async fn round(&self, talk: &mut Talk, broken: bool) -> Result<bool, AgentError> {
        self.ctx.alive()?;
        if broken || self.ctx.me.shared_store {
            // Somebody else wrote to the store, or nobody was told what we wrote.
            self.pool.recount().await?;
        }
        self.look_again().await?;
        let message = match self.draft(talk).await {
            Err(AgentError::Moved) => {
                self.ctx.continuity.refresh().await?;
                self.draft(talk).await?
            }
            result => result?,
        };
        let path = if message.wants.is_empty() { HEARTBEATS } else { GRANTS };
        talk.wanted = !message.wants.is_empty();
        let sent = self.ctx.now();
        let sending = cadastre_runtime::clock::Stopwatch::start();
        match self.uplink.send(path, &message).await {
            Ok(answer) => {
                meter::answered(&self.ctx.me.region, sending.seconds());
                self.answered(talk, sent, &message, answer).await
            }
            Err(error) => {
                self.unanswered(&error).await;
                Err(AgentError::Store(format!("uplink: {error}")))
            }
        }
    }

    /// While the store is in doubt: another agent of it may have settled that.
    async fn look_again(&self) -> Result<(), AgentError> {
        if self.ctx.continuity.standing().how.is_open() {
            return Ok(());
        }
        match self.ctx.continuity.refresh().await?.how {
            How::Suspect => self.judge_witness().await,
            How::WentBack => {
                let lost = self.issuer.close_below(None);
                self.burned(lost).await;
                Ok(())
            }
            How::Initialised | How::Witnessed | How::Testified | How::Stated => {
                self.issuer.kick(None);
                Ok(())
            }
        }
    }

    /// A store that was used with a required witness which is empty now lost it, or was put back beside a
    /// new one: nobody can say which, so it is treated as gone back.
    async fn judge_witness(&self) -> Result<(), AgentError> {
        let continuity = &self.ctx.continuity;
        if continuity.mode() != WitnessMode::Required || continuity.read_witness().await?.is_some() {
            return Ok(());
        }
        let read = continuity.db().read("link_witness", |tx| Box::pin(ledger::store(tx)));
        if read.await.map_err(AgentError::from)?.is_some_and(|s| s.has_witness) {
            self.went_back("the required witness of this store is empty").await?;
        }
        Ok(())
    }

    /// Proof: nothing more comes out of this store or out of what it gave, until the authority's next epoch.
    async fn went_back(&self, why: &'static str) -> Result<(), AgentError> {
        if self.ctx.continuity.standing().how == How::WentBack {
            return Ok(());
        }
        tracing::error!(region = %self.ctx.me.region, why, "the region's store went back in time");
        self.ctx.continuity.quarantine(true, why, vec![]).await?;
        let lost = self.issuer.close_below(None);
        self.ctx.audit("store_went_back", why).await;
        self.burned(lost).await;
        Ok(())
    }

    async fn answered(
        &self,
        talk: &mut Talk,
        sent: Now,
        message: &Message,
        answer: Answer,
    ) -> Result<bool, AgentError> {
        let now = self.ctx.now();
        let ours = answer.incarnation == self.ctx.me.incarnation && answer.number == message.sender.number;
        let in_time = now.mono_ms.saturating_sub(sent.mono_ms) <= self.ctx.times.deadline_ms;
        if !ours || !in_time {
            let error = UplinkError::Garbled("a late answer, or one to another message; dropped".into());
            self.unanswered(&error).await;
            return Err(AgentError::Store(error.to_string()));
        }
        if let Some(bound) = message.sender.cluster_id.filter(|c| *c != answer.cluster_id) {
            let text = format!(
                "this store belongs to cluster {bound}; the authority is of cluster {}. To move the region on purpose, \
                 start it with an empty data folder and `cadastre recover {} --new-store`",
                answer.cluster_id, self.ctx.me.region
            );
            self.unanswered(&UplinkError::Refused(Problem::new(Code::Forbidden, text))).await;
            return Ok(false);
        }
        let (chain, testify_for) = (answer.chain.clone(), answer.testify_for);
        let (quarantined, clock_ms) = (answer.quarantined, answer.clock_ms);
        // All but what is written into the store.
        let orders = Answer { marks: vec![], roster: vec![], grants: vec![], ..answer.clone() };
        let heard = match self.hear(answer, in_time).await {
            Err(AgentError::WentBack(why)) => {
                talk.chain = Some(chain);
                self.went_back(why).await?;
                self.up(sent, now, quarantined, clock_ms);
                return Ok(true);
            }
            result => result?,
        };
        talk.chain = Some(chain);
        if let Some(why) = heard.ignored {
            // Whoever says what is over is not the authority's word: it does not count as being heard either.
            self.unanswered(&UplinkError::Garbled(format!("an answer was not taken: {why}"))).await;
            talk.testify = if heard.forgetful { testify_for } else { None };
            self.publish(talk, heard).await?;
            return Ok(talk.testify.is_some() && talk.testify != talk.testified);
        }
        for usage in std::mem::take(&mut talk.usage_sent) {
            talk.usage_told.insert(usage.namespace.clone(), usage);
        }
        self.up(sent, now, quarantined, clock_ms);
        self.ctx.orders.hear(&orders, now.mono_ms);
        talk.testify = testify_for;
        let again = testify_for.is_some() && testify_for != talk.testified;
        Ok(self.publish(talk, heard).await? || again)
    }

    async fn hear(&self, answer: Answer, in_time: bool) -> Result<Heard, AgentError> {
        let continuity = &self.ctx.continuity;
        let known = if continuity.standing().how.is_open() {
            None
        } else {
            let witnessed = continuity.read_witness().await?.and_then(|marks| marks.get(&Scope::Region).copied());
            witnessed.into_iter().chain(answer.kept).max_by_key(|m| m.seq)
        };
        let hearing = Hearing {
            answer,
            in_time,
            verified: continuity.standing().generation,
            known,
            now_ms: self.ctx.now().wall_ms,
            place: self.ctx.me.place.clone(),
            entropy: Arc::clone(&self.ctx.entropy),
        };
        match self.hear_once(hearing.clone()).await {
            Err(AgentError::Moved) => {
                continuity.refresh().await?;
                self.hear_once(Hearing { verified: continuity.standing().generation, ..hearing }).await
            }
            result => result,
        }
    }

    async fn hear_once(&self, hearing: Hearing) -> Result<Heard, AgentError> {
        let _scope = self.pool.scope_turn().await;
        let work = self.ctx.continuity.db().write("link_hear", move |tx| {
            let hearing = hearing.clone();
            Box::pin(async move { hearing.run(tx).await })
        });
        self.ctx.note_store(work.await)
    }

    /// After the commit: shows everybody what is new. True where another round is wanted at once.
    async fn publish(&self, talk: &mut Talk, heard: Heard) -> Result<bool, AgentError> {
        let region = &self.ctx.me.region;
        if heard.at_home {
            self.ctx.health_mut().may_be_copy = false;
        }
        if let Some(lifted) = &heard.lifted {
            let how = if heard.burned_below.is_some() { How::WentBack } else { How::Testified };
            tracing::info!(%region, generation = %lifted.mark.generation, "the store is confirmed");
            let opened = self.ctx.continuity.lifted(how, vec![lifted.clone()]).await;
            self.ctx.note_store(opened.map_err(AgentError::from))?;
        }
        if heard.changed || heard.burned_below.is_some() || heard.lifted.is_some() {
            let view = match heard.burned_below.is_some() || heard.lifted.is_some() {
                true => self.ctx.reload().await?,
                false => self.ctx.reload_some(heard.entries.clone(), heard.scopes.clone()).await?,
            };
            self.close_old(&view).await;
        }
        if let Some(epoch) = heard.burned_below {
            tracing::warn!(%region, %epoch, burned = ?heard.burned, "the epoch rose: everything below it is burned");
            self.ctx.audit("burned", &format!("everything below epoch {epoch}: {:?}", heard.burned)).await;
            for (namespace, n) in &heard.burned {
                meter::burned(region, namespace, *n);
            }
            talk.usage_told.clear();
        }
        if heard.burned_below.is_some() || heard.roster_changed {
            talk.held.clear();
            self.issuer.forget_refusals();
        }
        for (namespace, why) in &heard.suspicious {
            meter::overlap(region, namespace);
            tracing::error!(%region, %namespace, why, "a grant was refused: somebody's ledger is wrong");
        }
        for adopted in &heard.adopted {
            let (namespace, size) = (&adopted.namespace, adopted.range.len());
            tracing::info!(%region, %namespace, size, left = adopted.left, replayed = adopted.replayed, "grant adopted");
            meter::adopted(region, namespace);
            talk.held.remove(namespace);
            self.pool.adopted(namespace, size, adopted.left);
            self.issuer.refused_above(namespace, None);
        }
        for (namespace, problem) in heard.refused {
            self.hold(talk, &namespace, &problem);
            self.issuer.refused_above(&namespace, Some(problem));
            self.issuer.kick(Some(&namespace));
        }
        if heard.burned_below.is_some() || heard.lifted.is_some() || heard.changed {
            self.pool.recount().await?;
            self.issuer.kick(None);
        }
        for adopted in &heard.adopted {
            self.issuer.kick(Some(&adopted.namespace));
        }
        Ok(heard.changed || heard.burned_below.is_some() || heard.lifted.is_some() || !heard.adopted.is_empty())
    }

    fn hold(&self, talk: &mut Talk, namespace: &Name, problem: &Problem) {
        let now = self.ctx.now().mono_ms;
        let held = talk
            .held
            .entry(namespace.clone())
            .or_insert_with(|| Held { until_ms: 0, backoff: Backoff::new(HOLD_MS.0, HOLD_MS.1).ok() });
        let wait = if problem.code.retryable() {
            let wait = held.backoff.as_mut().map_or(HOLD_MS.1, |b| b.failed(self.ctx.entropy.u64()));
            wait.max(HOLD_MS.0 / 2)
        } else {
            FINAL_HOLD_MS
        };
        held.until_ms = now.saturating_add(wait);
        tracing::info!(region = %self.ctx.me.region, %namespace, code = problem.code.as_str(), wait, "no grant");
    }

    fn up(&self, sent: Now, now: Now, quarantined: bool, clock_ms: u64) {
        let middle = sent.wall_ms / 2 + now.wall_ms / 2;
        let mut health = self.ctx.health_mut();
        if health.uplink != UplinkState::Up {
            tracing::info!(region = %self.ctx.me.region, "the authority answers");
        }
        if health.quarantined != quarantined {
            tracing::warn!(region = %self.ctx.me.region, quarantined, "the authority's quarantine");
        }
        health.uplink = UplinkState::Up;
        health.out_of_reach = false;
        health.uplink_error = None;
        health.answered_mono_ms = Some(now.mono_ms);
        health.answered_at_ms = Some(now.wall_ms);
        health.quarantined = quarantined;
        health.authority_clock = Some((clock_ms, sent.mono_ms / 2 + now.mono_ms / 2));
        let offset_ms = i64::try_from(i128::from(middle) - i128::from(clock_ms)).ok();
        let off = |ms: Option<i64>| ms.is_some_and(|ms| ms.unsigned_abs() > ASKER_CLOCK_BOUND_MS);
        if off(offset_ms) && !off(health.clock_offset_ms) {
            let region = &self.ctx.me.region;
            tracing::warn!(%region, ?offset_ms, "this clock and the authority's are far apart: one is to be set right");
        }
        health.clock_offset_ms = offset_ms;
    }

    /// Notes an unanswered or refused message, and what a refusal means for this store.
    async fn unanswered(&self, error: &UplinkError) {
        meter::unanswered(&self.ctx.me.region, error.code());
        let refused = match error {
            UplinkError::Unreachable(_) | UplinkError::Garbled(_) => false,
            UplinkError::Refused(problem) => match problem.code {
                Code::CopyFound => {
                    self.copy_found(problem).await;
                    true
                }
                Code::WrongStore | Code::Unauthenticated | Code::Forbidden | Code::InvalidRequest => true,
                _ => false,
            },
        };
        let mut health = self.ctx.health_mut();
        let state = match (refused, health.uplink) {
            (true, _) => UplinkState::Refused,
            (false, UplinkState::Never) => UplinkState::Never,
            (false, UplinkState::Up | UplinkState::Down | UplinkState::Refused) => UplinkState::Down,
        };
        if health.uplink != state || health.uplink_error.is_none() {
            let what = if refused { "the authority refuses this agent" } else { "the authority does not answer" };
            tracing::warn!(region = %self.ctx.me.region, %error, "{what}; what may be issued comes from what is held");
        }
        health.uplink = state;
        health.out_of_reach = matches!(error, UplinkError::Unreachable(_));
        health.uplink_error = Some(error.to_string());
    }

    /// Another copy of this store or process is alive, and would carve the same ranges: this one ends, and
    /// whoever starts next on this store carves nothing until the authority has confirmed it.
    async fn copy_found(&self, problem: &Problem) {
        let lost = self.issuer.close_below(None);
        self.stamps.close_below(None);
        self.ctx.end(format!("the authority says that this copy must not go on: {}", problem.detail));
        if !self.ctx.me.shared_store {
            let work = self.ctx.continuity.db().write("link_superseded", |tx| Box::pin(sql::set_superseded(tx)));
            if let Err(error) = work.await {
                tracing::error!(%error, "could not note that another copy of this store is alive");
            }
        }
        self.ctx.audit("ended", &problem.detail).await;
        self.burned(lost).await;
    }

    /// Closes what was carved under an epoch that is over, or all where the region may not issue.
    async fn close_old(&self, view: &View) {
        let Some(standing) = view.standing else { return };
        let below = standing.state.may_issue().then_some(standing.epoch);
        let lost = self.issuer.close_below(below);
        self.stamps.close_below(below);
        self.burned(lost).await;
    }

    async fn burned(&self, lost: BTreeMap<Name, u64>) {
        if let Err(error) = self.pool.count_burned(lost).await {
            tracing::warn!(%error, "what was burned could not be counted");
        }
    }

    fn failed(&self, error: &AgentError) {
        tracing::debug!(region = %self.ctx.me.region, %error, "a round with the authority failed");
    }

    async fn report(&self) {
        let held = self.issuer.standings().into_iter().map(|(n, (s, _))| (n, s.left)).collect();
        if let Err(error) = self.pool.note_in_hand(held).await {
            tracing::debug!(%error, "what is in memory could not be noted");
        }
        let health = self.ctx.health();
        let how = self.ctx.continuity.standing().how;
        let epoch = self.ctx.view().epoch().map_or(0, |e| e.0);
        let (store, uplink) = (health.store_error.is_none(), health.uplink == UplinkState::Up);
        meter::tiers(&self.ctx.me.region, epoch, store, how.is_open(), uplink, health.clock_offset_ms);
        meter::authority(&self.ctx.me.region, health.quarantined);
        self.issuer.report();
    }
}
