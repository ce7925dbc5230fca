//! What every part of one agent shares: who it is, its store, what it knows, how it is doing.
//!
//! The [`View`] is what was last read from or written to the store; it is replaced as a whole, after the
//! commit, so that a request works on one consistent picture. [`Health`] is what was last seen of the two
//! tiers above. Nothing here decides; the parts do.

mod view;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use cadastre_core::ids::{Incarnation, Name, SessionNo, StoreId};
use cadastre_core::window::CLOCK_BOUND_MS;
use cadastre_ledger::continuity::{Continuity, How};
use cadastre_protocol::error::Code;
use cadastre_runtime::clock::{Clock, Now};
use cadastre_runtime::entropy::Entropy;
use tokio::sync::{Notify, watch};

pub use view::View;

use crate::auth::Errands;
use crate::error::{AgentError, problem};
use crate::knowers::Knowers;
use crate::limits::Meters;
use crate::orders::Orders;

/// Times that an agent keeps to.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Between two heartbeats.
    pub heartbeat_ms: u64,
    /// For one message to the authority, all its addresses together.
    pub deadline_ms: u64,
    /// A service's token is good for this long without any word from the authority.
    pub offline_auth_ms: u64,
    /// A segment is replayed for this long.
    pub retention_ms: u64,
}

impl Default for Times {
    fn default() -> Self {
        const WEEK_MS: u64 = 7 * 24 * 3_600 * 1_000;
        Self { heartbeat_ms: 2_000, deadline_ms: 5_000, offline_auth_ms: WEEK_MS, retention_ms: WEEK_MS }
    }
}

/// Who this process is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The region.
    pub region: Name,
    /// Its store.
    pub store_id: StoreId,
    /// Whether several agents may share the store.
    pub shared_store: bool,
    /// This start on the store.
    pub session: SessionNo,
    /// This process.
    pub incarnation: Incarnation,
    /// The name under which it holds its own segments.
    pub instance: Name,
    /// The software's version.
    pub version: String,
    /// Where callers reach it.
    pub url: Option<String>,
    /// Where its embedded store lies: another place than the store recorded means that it may be a copy.
    /// Empty where several agents share a server.
    pub place: String,
}

/// How the way to the authority is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum UplinkState {
    /// Nothing was answered yet.
    #[default]
    Never,
    /// The last message was answered.
    Up,
    /// The last message was not.
    Down,
    /// The authority answers that this agent is none of its own.
    Refused,
}

/// What was last seen of the tiers above.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// The way to the authority.
    pub uplink: UplinkState,
    /// The last answer, by the monotonic clock.
    pub answered_mono_ms: Option<u64>,
    /// The last answer, by the wall clock; of an earlier process too.
    pub answered_at_ms: Option<u64>,
    /// Why the last message failed.
    pub uplink_error: Option<String>,
    /// Whether the last message failed because nobody answered at all.
    pub out_of_reach: bool,
    /// Whether the store lies elsewhere than where it was last the only one: see `may_carve`.
    pub may_be_copy: bool,
    /// Whether the authority gives nothing out.
    pub quarantined: bool,
    /// This agent's clock minus the authority's.
    pub clock_offset_ms: Option<i64>,
    /// The authority's clock in its last answer, and when that was by the monotonic clock.
    pub authority_clock: Option<(u64, u64)>,
    /// The last success of the store, by the monotonic clock.
    pub store_ok_mono_ms: Option<u64>,
    /// Why the store failed since.
    pub store_error: Option<String>,
    /// Whether it takes no writes: a full disk and a read-only file system can still be read.
    pub store_refused_write: bool,
}

/// See the module's documentation.
pub struct Context {
    /// Who this process is.
    pub me: Identity,
    /// What it keeps to.
    pub times: Times,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
    /// The store, its gate and its past.
    pub continuity: Continuity,
    /// Woken when something is wanted of the authority now.
    pub link_wake: Notify,
    /// Woken when a segment is wanted of the region now.
    pub refill_wake: Notify,
    /// Woken when a time window is wanted of the region now.
    pub window_wake: Notify,
    /// What the authority's answers ask of this agent besides.
    pub orders: Orders,
    /// Processes that read less than this one.
    pub knowers: Knowers,
    /// The authority, when it asks something.
    pub errands: Arc<Errands>,
    meters: Meters,
    view: RwLock<Arc<View>>,
    health: Mutex<Health>,
    ended: watch::Sender<Option<String>>,
}

impl Context {
    /// A context with an empty view; [`Self::reload`] fills it.
    #[must_use]
    pub fn new(
        me: Identity,
        times: Times,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        continuity: Continuity,
    ) -> Self {
        let errands = Arc::new(Errands::new(entropy.bytes32(), Arc::clone(&clock)));
        Self {
            me,
            times,
            clock,
            entropy,
            continuity,
            link_wake: Notify::new(),
            refill_wake: Notify::new(),
            window_wake: Notify::new(),
            orders: Orders::default(),
            knowers: Knowers::default(),
            errands,
            meters: Meters::default(),
            view: RwLock::new(Arc::new(View::default())),
            health: Mutex::new(Health::default()),
            ended: watch::Sender::new(None),
        }
    }

    /// Both clocks, the wall clock as a drill lets it be read.
    #[must_use]
    pub fn now(&self) -> Now {
        self.orders.set_off.apply(self.clock.now())
    }

    /// The time that windows are judged by: the wall clock, unless it ran ahead of what the authority's clock must show
    /// by now. A clock that is set a day ahead stores nothing there, also while the region is cut off.
    #[must_use]
    pub fn judged_ms(&self) -> u64 {
        let now = self.now();
        let Some((clock_ms, at_mono_ms)) = self.health_mut().authority_clock else { return now.wall_ms };
        let expected = clock_ms.saturating_add(now.mono_ms.saturating_sub(at_mono_ms));
        now.wall_ms.min(expected.saturating_add(CLOCK_BOUND_MS))
    }

    /// What is known.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What services used of their limits here.
    #[must_use]
    pub fn meters(&self) -> &Meters {
        &self.meters
    }

    /// How the tiers above are.
    #[must_use]
    pub fn health(&self) -> Health {
        self.health_mut().clone()
    }

    /// For small changes.
    pub fn health_mut(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes down what must not pass unseen.
    pub async fn audit(&self, what: &'static str, detail: &str) {
        let (id, now, detail) = (self.continuity.row_id(), self.now().wall_ms, detail.to_owned());
        let work = self.continuity.db().write("agent_audit", move |tx| {
            let detail = detail.clone();
            Box::pin(async move { cadastre_ledger::sql::audit(tx, id, now, "agent", what, &detail).await })
        });
        if let Err(error) = work.await {
            tracing::warn!(%error, what, "the audit could not be written");
        }
    }

    /// Notes how a unit of the store went that wrote, or meant to, and passes its result on.
    pub fn note_store<T>(&self, result: Result<T, AgentError>) -> Result<T, AgentError> {
        self.note(result, true)
    }

    /// As [`Self::note_store`] for a unit that only read: its success says nothing about a store that takes no writes.
    pub fn note_read<T>(&self, result: Result<T, AgentError>) -> Result<T, AgentError> {
        self.note(result, false)
    }

    fn note<T>(&self, result: Result<T, AgentError>, write: bool) -> Result<T, AgentError> {
        let now = self.now().mono_ms;
        let mut health = self.health_mut();
        match &result {
            Err(error) if error.is_store_failure() => {
                if health.store_error.is_none() {
                    tracing::error!(region = %self.me.region, %error, "the region's store fails; issuing goes on from memory");
                }
                health.store_error = Some(error.to_string());
                health.store_refused_write |= write && error.is_refused_write();
            }
            Ok(_) | Err(_) if health.store_refused_write && !(write && result.is_ok()) => {}
            Ok(_) | Err(_) => {
                if health.store_error.take().is_some() {
                    tracing::info!(region = %self.me.region, "the region's store answers again");
                }
                health.store_refused_write = false;
                health.store_ok_mono_ms = Some(now);
            }
        }
        drop(health);
        result
    }

    fn recent(&self, at: Option<u64>) -> bool {
        let window = self.times.heartbeat_ms.saturating_mul(2);
        at.is_some_and(|at| self.now().mono_ms.saturating_sub(at) <= window)
    }

    /// Whether the store answered within the last two heartbeats, and did not fail since.
    #[must_use]
    pub fn store_alive(&self) -> bool {
        let health = self.health();
        health.store_error.is_none() && self.recent(health.store_ok_mono_ms)
    }

    /// Whether the authority answered within the last two heartbeats, and the last message was answered.
    #[must_use]
    pub fn uplink_alive(&self) -> bool {
        let health = self.health();
        health.uplink == UplinkState::Up && self.recent(health.answered_mono_ms)
    }

    /// Whether the store may be carved: it is current, and the authority was asked since this start. Of two copies
    /// of one store, witness and all, the one that speaks last is told so before it carves; and while the authority can
    /// be reached, one that may be a copy carves nothing before its next epoch.
    ///
    /// # Errors
    /// `store_unproven`, or `copy_found` once another copy of this store was found.
    pub fn may_carve(&self) -> Result<(), AgentError> {
        self.is_current()?;
        let health = self.health_mut();
        if health.uplink == UplinkState::Never && health.uplink_error.is_none() {
            let text = "the authority is asked first whether another copy of this store is alive; try again";
            return Err(problem(Code::StoreUnproven, text));
        }
        // An authority that answers, be it with a refusal, will say so once it can; one that is out of reach may
        // never, and a region that was moved goes on without it.
        if health.may_be_copy && !health.out_of_reach {
            let text = "this store was opened in another place and may be a copy; the authority has to confirm it";
            return Err(problem(Code::StoreUnproven, text));
        }
        Ok(())
    }

    /// Whether the store is as new as anybody knows.
    ///
    /// # Errors
    /// As for `may_carve`.
    pub fn is_current(&self) -> Result<(), AgentError> {
        self.alive()?;
        if self.view().standing.is_some_and(|s| s.superseded) {
            return Err(problem(
                Code::StoreUnproven,
                "another copy of this store was found; the authority has to confirm this one",
            ));
        }
        match self.continuity.standing().how {
            How::Initialised | How::Witnessed | How::Testified | How::Stated => Ok(()),
            How::Suspect => {
                let text = "nobody has confirmed since this start that the region's store is current; it waits for the authority";
                Err(problem(Code::StoreUnproven, text))
            }
            How::WentBack => {
                let text = "the region's store went back in time; it waits for the authority's next epoch";
                Err(problem(Code::StoreUnproven, text))
            }
        }
    }

    /// Ends this incarnation: nothing more is issued or carved by it, ever.
    pub fn end(&self, why: impl Into<String>) {
        let why = why.into();
        tracing::error!(region = %self.me.region, why, "this process ends: it must not issue any more");
        self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            if first {
                *ended = Some(why);
            }
            first
        });
    }

    /// Refuses once this incarnation has ended.
    ///
    /// # Errors
    /// `copy_found` with the reason.
    pub fn alive(&self) -> Result<(), AgentError> {
        match &*self.ended.borrow() {
            None => Ok(()),
            Some(why) => Err(problem(Code::CopyFound, why.clone())),
        }
    }

    /// Waits until this incarnation has ended, and says why.
    pub async fn ended(&self) -> String {
        let mut ended = self.ended.subscribe();
        match ended.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            Err(_) => String::new(),
        }
    }
}
