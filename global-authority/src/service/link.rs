//! A message of an agent: who speaks, what it testifies, what it wants.
//!
//! The order is the rule: identity first (token, cluster, store, session, chain), then what the
//! message proves about either side's store, then grants, and last the answer, which carries nothing
//! that has not passed the gate.

use std::sync::Arc;

use cadastre_core::continuity::{
    HolderStore, KeptSender, Sender as Place, holder_store, is_forgotten, place, still_kept,
};
use cadastre_core::ids::{AllocationId, Epoch, Name, RequestNo, SessionNo};
use cadastre_core::mark::{Mark, Scope, ScopeMark};
use cadastre_core::registry::{RegionEvent, RegionState};
use cadastre_core::roster::RegionEntry;
use cadastre_ledger::continuity::contains_marks;
use cadastre_ledger::error::LedgerError;
use cadastre_ledger::sql as shared;
use cadastre_protocol::LINK_VERSION;
use cadastre_protocol::error::{Code, Problem};
use cadastre_protocol::link::{Answer, GrantAnswer, MAX_WANTS, Message, Standing};
use cadastre_runtime::db::Tx;
use cadastre_runtime::token::{self, Prefix};

use super::error::{problem, quarantined};
use super::grants::Asker;
use super::{Authority, ServiceError};
use crate::sql;

/// What hearing a message came to.
enum Heard {
    /// It is in place.
    Well(Well),
    /// An older number: dropped, and told nothing.
    Late,
    /// Two copies of one store, or of one process, are alive: this one ends.
    Copy(&'static str),
    /// The sender holds a mark whose row this store lacks.
    Lacks(Vec<ScopeMark>),
    /// The sender says that it holds a mark which no future of this store can have had.
    Absurd(Scope),
}

/// What is known once a message is in place.
struct Well {
    /// What was kept of the sender's store before.
    kept: Option<Mark>,
    confirmed: Vec<AllocationId>,
    store: HolderStore,
    /// What the sender's next request presents.
    chain: String,
}

impl Authority {
    /// Handles a message of an agent that authenticated as `caller`.
    ///
    /// # Errors
    /// Refusals, and those of the store.
    pub async fn message(self: &Arc<Self>, caller: &Name, message: Message) -> Result<Answer, ServiceError> {
        let answer = self.answer(caller, message).await;
        if matches!(answer, Err(ServiceError::Ledger(LedgerError::Closed(_) | LedgerError::AnotherServer))) {
            // Another process opened a newer generation, or another server answers: its next message finds this one ready.
            self.continuity.refresh().await?;
        }
        answer
    }

    async fn answer(self: &Arc<Self>, caller: &Name, message: Message) -> Result<Answer, ServiceError> {
        self.admit(caller, &message)?;
        let mut region = self.bound(caller, &message).await?;
        // Before anything can be in doubt because of this message.
        self.seal_key().await?;
        if message.words.promised > self.continuity.standing().generation {
            // Another process of this authority may have opened it.
            self.continuity.refresh().await?;
        }
        if message.words.promised > self.continuity.standing().generation {
            self.doubt(false, "a region promised a generation above ours", &message).await?;
        }
        if message.sender.epoch.is_some_and(|epoch| epoch > region.epoch) {
            // Another process of this authority may have raised it.
            self.reload().await?;
            region = self.bound(caller, &message).await?;
        }
        if message.sender.epoch.is_some_and(|epoch| epoch > region.epoch) {
            self.doubt(true, "a region holds an epoch above the one that is known", &message).await?;
            region = self.learn_epoch(caller, &message, region).await?;
        }
        let Well { kept, confirmed, store, chain } = match self.hear(caller, &region, &message, true).await? {
            Heard::Well(well) => well,
            Heard::Late => {
                return Err(problem(Code::NotAllowed, "a late copy of an older request; it changes nothing"));
            }
            Heard::Copy(why) => return Err(problem(Code::CopyFound, why)),
            Heard::Absurd(scope) => return Err(super::memory::absurd(&scope)),
            Heard::Lacks(marks) => {
                self.doubt_marks(marks).await?;
                match self.hear(caller, &region, &message, false).await? {
                    Heard::Well(well) => well,
                    _ => return Err(problem(Code::Quarantined, "this store lacks a row that the region holds")),
                }
            }
        };
        let lost = store == HolderStore::WentBack || message.words.store_went_back;
        if lost && message.sender.epoch.is_none_or(|epoch| epoch == region.epoch) {
            region =
                self.region_event(caller, RegionEvent::WentBack, "its store went back in time", "authority").await?;
            self.keep_anew(caller, &message).await?;
        }
        if let Some(testimony) = &message.testimony {
            self.testify(caller, &message, testimony).await?;
        }
        self.settle().await?;
        self.ensure_slots(caller, &region).await;
        let grants = self.answer_wants(caller, &region, &message).await;
        let mut answer = self.compose(caller, &message, chain, kept, confirmed, grants).await?;
        self.tell(caller, &message, &mut answer).await;
        Ok(answer)
    }

    /// After the epoch rose: the store is judged from where it stands now, as all that it held before is burned.
    async fn keep_anew(&self, region: &Name, message: &Message) -> Result<(), ServiceError> {
        let (region, mark) = (region.clone(), message.words.store_mark);
        let work = self.continuity.db().write("keep_anew", move |tx| {
            let region = region.clone();
            Box::pin(async move {
                let Some(kept) = sql::kept(tx).await?.remove(&region) else { return Ok(()) };
                sql::forget_remembered(tx, &region).await?;
                Ok::<_, LedgerError>(sql::keep(tx, &region, &sql::Kept { mark, ..kept }).await?)
            })
        });
        self.unnote(&message.sender.region);
        work.await.map_err(Into::into)
    }

    /// Version, region and cluster.
    fn admit(&self, caller: &Name, message: &Message) -> Result<(), ServiceError> {
        if message.version != LINK_VERSION {
            let text = format!("this authority speaks version {LINK_VERSION} of the link, not {}", message.version);
            return Err(problem(Code::InvalidRequest, text));
        }
        if message.sender.region != *caller {
            return Err(problem(Code::Forbidden, "this token is of another region"));
        }
        if message.wants.len() > MAX_WANTS {
            return Err(problem(Code::PayloadTooLarge, format!("at most {MAX_WANTS} wants in one message")));
        }
        match message.sender.cluster_id {
            Some(cluster) if cluster != self.cluster_id => Err(problem(
                Code::WrongStore,
                format!(
                    "the agent's store belongs to cluster {cluster}; this authority is of cluster {}. Check the authority's \
                     address; to move the region here on purpose, start it with an empty data folder",
                    self.cluster_id
                ),
            )),
            _ => Ok(()),
        }
    }

    /// The region, bound to the sender's store: by its first call, or by an operator's leave.
    async fn bound(&self, caller: &Name, message: &Message) -> Result<RegionEntry, ServiceError> {
        let known = self.known();
        let region = known.roster.region(caller).cloned();
        let region = region.ok_or_else(|| problem(Code::Forbidden, "this region is not in the roster"))?;
        if region.state == RegionState::Retired {
            return Err(problem(Code::Forbidden, "this region is retired; its name and number stay taken"));
        }
        let store = message.sender.store_id;
        let event = match region.store_id {
            Some(bound) if bound == store => return Ok(region),
            None => RegionEvent::Join,
            Some(_) if region.rejoin => RegionEvent::JoinWithNewStore,
            Some(bound) => {
                return Err(problem(
                    Code::WrongStore,
                    format!(
                        "region {caller} is bound to store {bound}, and this is store {store}. If the old one is gone for \
                         good, let it join with `cadastre recover {caller} --new-store` (its epoch rises, and what it held \
                         is burned)"
                    ),
                ));
            }
        };
        self.join(caller, store, event).await
    }

    /// Hears a message in one transaction: places it, compares its marks unless those have done their work,
    /// keeps what it says.
    async fn hear(
        &self,
        caller: &Name,
        region: &RegionEntry,
        message: &Message,
        with_marks: bool,
    ) -> Result<Heard, ServiceError> {
        let fresh = if with_marks { self.unnoted(caller, message) } else { Vec::new() };
        let news = self.news_of_knowers(caller, message);
        let hearing = Hearing {
            region: caller.clone(),
            fresh: fresh.clone(),
            news: news.clone(),
            epoch: region.epoch,
            message: message.clone(),
            with_marks,
            digest: super::memory::digest(message),
            chain: token::make(Prefix::Chain, self.entropy.bytes32()),
            generation: self.continuity.standing().generation,
            now_ms: self.now_ms(),
            audit: self.continuity.row_id(),
        };
        let heard = self
            .continuity
            .db()
            .write("hear", move |tx| {
                let hearing = hearing.clone();
                Box::pin(async move { Ok::<_, ServiceError>(hearing.run(tx).await?) })
            })
            .await?;
        if matches!(heard, Heard::Well(_)) {
            self.note(caller, message.sender.store_id, fresh);
            self.wrote_of_knowers(news);
        }
        Ok(heard)
    }

    async fn answer_wants(
        self: &Arc<Self>,
        caller: &Name,
        region: &RegionEntry,
        message: &Message,
    ) -> Vec<GrantAnswer> {
        let asker = Asker {
            region: caller.clone(),
            region_id: region.region_id,
            epoch: region.epoch,
            store_id: message.sender.store_id,
            clock_ms: message.sender.clock_ms,
        };
        let barred = if !self.is_open() {
            Some(quarantined())
        } else if message.sender.epoch != Some(region.epoch) {
            Some(Problem::new(Code::EpochFenced, format!("the region's epoch is {} now", region.epoch)))
        } else if !region.state.gets_grants() {
            Some(
                Problem::new(Code::RegionNotReady, format!("a {} region gets no grants", region.state.as_str()))
                    .retry_after(5),
            )
        } else if !message.words.proven {
            Some(Problem::new(Code::StoreUnproven, "the region's store is not proved current yet"))
        } else {
            None
        };
        let mut waiting = Vec::with_capacity(message.wants.len());
        for want in &message.wants {
            waiting.push(match &barred {
                Some(problem) => Err(problem.clone()),
                None => Ok(self.submit(&asker, want)),
            });
        }
        let mut answers = Vec::with_capacity(waiting.len());
        for (want, outcome) in message.wants.iter().zip(waiting) {
            let outcome = match outcome {
                Err(problem) => Err(problem),
                Ok(receiver) => receiver
                    .await
                    .unwrap_or_else(|_| Err(Problem::new(Code::UpstreamUnavailable, "the authority is stopping"))),
            };
            answers.push(match outcome {
                Ok(granted) => GrantAnswer::Granted(granted),
                Err(problem) => refused(want.allocation_id, problem),
            });
        }
        answers
    }

    /// The answer: nothing in it has not passed the gate.
    async fn compose(
        &self,
        caller: &Name,
        message: &Message,
        chain: String,
        kept: Option<Mark>,
        confirmed: Vec<AllocationId>,
        grants: Vec<GrantAnswer>,
    ) -> Result<Answer, ServiceError> {
        self.reload().await?;
        let standing = self.continuity.standing();
        let open = standing.how.is_open();
        let theirs = roster_version(message);
        let scopes: Vec<Scope> = std::iter::once(Scope::Roster)
            .chain(message.wants.iter().map(|w| Scope::Namespace(w.namespace.clone())))
            .collect();
        let spoken = message.words.marks.clone();
        let (marks, roster) = if open { self.passed(caller, scopes, spoken, theirs).await? } else { (vec![], vec![]) };
        // A range without the roster could lie in a definition that its holder was never told of. Its row stands: a gap.
        let withheld = |grant: GrantAnswer| match grant {
            GrantAnswer::Granted(granted) if !open => refused(granted.allocation_id, quarantined()),
            told => told,
        };
        let grants = grants.into_iter().map(withheld).collect();
        let known = self.known();
        let region = known.roster.region(caller);
        let region = region.ok_or_else(|| problem(Code::Forbidden, "this region is not in the roster"))?;
        Ok(Answer {
            version: LINK_VERSION,
            cluster_id: self.cluster_id,
            number: message.sender.number,
            incarnation: message.sender.incarnation,
            chain,
            generation: standing.generation,
            quarantined: !open,
            testify_for: (!open).then_some(standing.generation),
            region: Standing { region_id: region.region_id, epoch: region.epoch, state: region.state },
            kept,
            marks,
            roster,
            confirmed,
            grants,
            clock_ms: self.now_ms(),
            homes: vec![],
            expect: vec![],
            drill: None,
            drill_heard: None,
        })
    }
}

fn refused(allocation_id: AllocationId, problem: Problem) -> GrantAnswer {
    GrantAnswer::Refused { allocation_id, problem }
}

/// The roster mark that a message testifies.
fn roster_version(message: &Message) -> (cadastre_core::mark::Generation, u64) {
    let mark = message.words.marks.iter().find(|m| m.scope == Scope::Roster);
    mark.map(|m| m.mark.version()).unwrap_or_default()
}

/// One transaction that hears a message.
#[derive(Clone)]
struct Hearing {
    region: Name,
    epoch: Epoch,
    message: Message,
    with_marks: bool,
    /// Marks that are news of this region.
    fresh: Vec<ScopeMark>,
    /// What is news of those who read less than there is.
    news: Vec<super::knowers::News>,
    digest: String,
    /// Fresh, for the sender's next request.
    chain: String,
    generation: cadastre_core::mark::Generation,
    now_ms: u64,
    audit: cadastre_core::ids::RowId,
}

impl Hearing {
    async fn run(&self, tx: &mut Tx) -> Result<Heard, LedgerError> {
        let sender = &self.message.sender;
        shared::on_verified_server(tx).await?;
        let newest = sql::newest_session(tx, &self.region, sender.store_id).await?;
        let own = sql::session_of(tx, &self.region, sender.store_id, sender.session).await?;
        let own = own.as_ref();
        let (place, previous) = self.place(newest, own);
        let chain = match place {
            Place::LateCopy => return Ok(Heard::Late),
            Place::Clone => {
                return self.copy(tx, own, "two copies of this region's store are alive; this one ends").await;
            }
            Place::WrongChain => {
                return self.copy(tx, own, "two copies of this process are alive; this one ends").await;
            }
            // A copy that the network made, at once or late: its sender presents the first answer's token next.
            // Another process could not have written the same to the letter.
            Place::Resend if own.is_some_and(|own| own.message == self.digest) => {
                own.map(|own| own.chain.clone()).unwrap_or_default()
            }
            Place::Next | Place::NewSession | Place::Resend => self.chain.clone(),
        };
        let marks: &[ScopeMark] = if self.with_marks { &self.message.words.marks } else { &[] };
        let found = contains_marks(tx, marks).await?;
        let lacks: Vec<ScopeMark> = marks.iter().zip(found).filter(|(_, has)| !has).map(|(m, _)| m.clone()).collect();
        if !lacks.is_empty() {
            if let Some(scope) = super::memory::beyond_reach(tx, self.generation, &lacks).await? {
                return Ok(Heard::Absurd(scope));
            }
            for ScopeMark { scope, mark } in &lacks {
                shared::keep_mark(tx, scope, mark).await?;
            }
            return Ok(Heard::Lacks(lacks));
        }
        sql::put_session(tx, own, &self.session(chain.clone(), previous)).await?;
        let (before, store) = self.judge_store(tx).await?;
        let mut confirmed = Vec::new();
        for c in &self.message.words.confirms {
            if sql::confirm(tx, &self.region, c.allocation_id, c.grant_id, self.generation, self.now_ms).await? {
                tracing::debug!(region = %self.region, allocation_id = %c.allocation_id, "confirmed");
            }
            confirmed.push(c.allocation_id);
        }
        for mark in &self.fresh {
            sql::remember(tx, &self.region, sender.store_id, mark).await?;
        }
        for news in &self.news {
            news.clone().write(tx).await?;
        }
        for usage in &self.message.usage {
            sql::put_usage(tx, &self.region, self.epoch, usage, self.now_ms).await?;
        }
        Ok(Heard::Well(Well { kept: before, confirmed, store, chain }))
    }

    /// What was kept of the sender's store, and what its word says of it.
    async fn judge_store(&self, tx: &mut Tx) -> Result<(Option<Mark>, HolderStore), LedgerError> {
        let sender = &self.message.sender;
        let kept = sql::kept(tx).await?.remove(&self.region).filter(|k| k.store_id == sender.store_id);
        let before = kept.as_ref().map(|k| k.mark);
        let testified = self.message.words.store_mark;
        // Several agents on one store overtake one another; there the agent itself checks what was kept.
        let epoch_is_over = sender.epoch.is_some_and(|epoch| epoch < self.epoch);
        let (proven, has_epoch) = (self.message.words.proven, sender.epoch.is_some());
        let forgotten = is_forgotten(before.as_ref(), proven, has_epoch, epoch_is_over);
        let store = match sender.shared_store {
            _ if forgotten => HolderStore::WentBack,
            true => HolderStore::Current,
            false => holder_store(before.as_ref(), &testified),
        };
        let said = if self.with_marks { roster_version(&self.message) } else { Default::default() };
        let roster = said.max(kept.map(|k| k.roster).unwrap_or_default());
        if !forgotten {
            let mark = still_kept(before, testified, proven, epoch_is_over);
            let now = sql::Kept { store_id: sender.store_id, mark, roster, heard_at_ms: self.now_ms };
            sql::keep(tx, &self.region, &now).await?;
        }
        Ok((before, store))
    }

    /// Where the request stands, and the chain token that counts as the one before.
    fn place(&self, newest: Option<SessionNo>, own: Option<&sql::Session>) -> (Place, String) {
        let sender = &self.message.sender;
        if own.is_some_and(|s| s.ended) {
            return (Place::WrongChain, String::new());
        }
        let kept = own.map(|s| KeptSender {
            incarnation: s.incarnation,
            number: RequestNo(s.number),
            chain: s.chain.clone(),
            previous_chain: s.previous_chain.clone(),
            current: s.generation == self.generation,
        });
        let chain = sender.chain.as_deref();
        let place = place(
            kept.as_ref(),
            newest,
            sender.shared_store,
            sender.session,
            &sender.incarnation,
            sender.number,
            chain,
        );
        (place, sender.chain.clone().unwrap_or_default())
    }

    fn session(&self, chain: String, previous_chain: String) -> sql::Session {
        let sender = &self.message.sender;
        let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        sql::Session {
            region: self.region.clone(),
            store_id: sender.store_id,
            session: sender.session.0,
            incarnation: sender.incarnation,
            number: sender.number.0,
            message: self.digest.clone(),
            chain,
            previous_chain,
            url: sender.url.clone(),
            version: sender.version.chars().take(64).collect(),
            clock_offset_ms: signed(sender.clock_ms).saturating_sub(signed(self.now_ms)),
            heard_at_ms: self.now_ms,
            generation: self.generation,
            ended: false,
            errand_key: sender.errand_key.as_ref().map(|key| key.chars().take(128).collect()),
        }
    }

    /// Ends a conversation of which two copies were found, and records it.
    async fn copy(&self, tx: &mut Tx, own: Option<&sql::Session>, why: &'static str) -> Result<Heard, LedgerError> {
        if let Some(own) = own.filter(|own| own.incarnation == self.message.sender.incarnation) {
            sql::put_session(tx, Some(own), &sql::Session { ended: true, ..own.clone() }).await?;
        }
        let detail = format!(
            "region {} store {} session {} incarnation {}: {why}",
            self.region, self.message.sender.store_id, self.message.sender.session, self.message.sender.incarnation
        );
        tracing::error!("{detail}");
        shared::audit(tx, self.audit, self.now_ms, "authority", "copy_found", &detail).await?;
        Ok(Heard::Copy(why))
    }
}
