//! One time-based namespace in one process: the worker id that it stamps as, and how its window is coming along.
//!
//! Issuers touch the stamper only. Invariants: what is stamped lies in a window that an agent gave this very process; a new
//! worker begins above everything that was stamped here before; one request is under way at most; a worker that may be
//! somebody else's is dropped before anything else is done. Absent on purpose: requests, tasks, and reading the clock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;
use cadastre_core::ids::{AllocationId, Incarnation, Name};
use cadastre_core::range::Range;
use cadastre_core::stamp::{NoStamp, Stamper};
use cadastre_core::window;
use cadastre_protocol::error::{Code, Problem};
use cadastre_protocol::workers::WorkerAnswer;

use crate::entry::{Turn, closed};
use crate::error::{Error, ErrorKind};
use crate::id::Id;

/// A clock that is behind the last ID by no more than this is waited for.
const CLOCK_WAIT_MS: u64 = 50;
/// A failed request is tried again after this long.
const AGAIN_MS: u64 = 500;
/// The longest that a caller is told to wait for the clock, in seconds.
const MAX_RETRY_SECONDS: u64 = 60;

/// A worker that this process stamps as.
pub(crate) struct Held {
    stamper: Stamper,
    /// The agent that gave it, and renews it.
    pub(crate) agent: usize,
    pub(crate) worker: u32,
    length_ms: u64,
}

/// What the mutex guards.
struct State {
    /// Of this namespace alone: its chain token belongs to it.
    incarnation: Incarnation,
    /// The token of the last answer, and the agent that gave it.
    chain: Option<(usize, String)>,
    /// Names the request for a worker until it is answered finally.
    pending: Option<AllocationId>,
    above: u64,
    used: bool,
    busy: bool,
    failed: Option<(Error, u64)>,
    closed: bool,
}

/// See the module.
pub(crate) struct Post {
    pub(crate) name: Name,
    /// After every answer, and at the close.
    pub(crate) changed: Turn,
    held: ArcSwapOption<Held>,
    state: Mutex<State>,
}

/// What is to be asked for.
#[derive(Clone)]
pub(crate) enum Duty {
    /// A worker, under this id.
    Take(AllocationId),
    /// More time.
    Renew(Arc<Held>),
}

/// What came of an attempt to stamp.
pub(crate) enum Attempt {
    /// An ID.
    Stamped(Id),
    /// The clock has to go on for so many milliseconds.
    Clock(u64),
    /// A window is needed.
    Window,
    /// Nothing more just now.
    Refused(Error),
}

impl Post {
    pub(crate) fn new(name: Name, incarnation: Incarnation) -> Post {
        let state = State {
            incarnation,
            chain: None,
            pending: None,
            above: 0,
            used: false,
            busy: false,
            failed: None,
            closed: false,
        };
        Post { name, changed: Turn::default(), held: ArcSwapOption::empty(), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An ID, from memory.
    #[inline]
    pub(crate) fn one(&self, wall_ms: u64) -> Option<Id> {
        self.held.load().as_ref()?.stamper.next(wall_ms).ok().map(Id::new)
    }

    /// As [`Self::one`], and why not.
    pub(crate) fn attempt(&self, wall_ms: u64) -> Attempt {
        let Some(held) = self.held.load_full() else { return Attempt::Window };
        match held.stamper.next(wall_ms) {
            Ok(id) => Attempt::Stamped(Id::new(id)),
            Err(NoStamp::Ended) => Attempt::Window,
            Err(NoStamp::Behind { ms }) if ms <= CLOCK_WAIT_MS => Attempt::Clock(ms),
            Err(NoStamp::Behind { ms }) => {
                let text = format!("this machine's clock is {ms} ms behind the last id of {}", self.name);
                let seconds = u32::try_from(ms.div_ceil(1_000).min(MAX_RETRY_SECONDS)).unwrap_or(1);
                Attempt::Refused(
                    ErrorKind::Refused(Problem::new(Code::ClockRollback, text).retry_after(seconds)).into(),
                )
            }
            Err(NoStamp::OutOfTime) if wall_ms >= held.stamper.layout().ends_ms() => {
                let text = "the layout's timestamp is at its end: move to a new namespace";
                Attempt::Refused(ErrorKind::Refused(Problem::new(Code::Exhausted, text)).into())
            }
            Err(NoStamp::OutOfTime) => {
                let text = "this machine's clock is before the layout's epoch: set it right";
                Attempt::Refused(ErrorKind::Refused(Problem::new(Code::ClockRollback, text)).into())
            }
        }
    }

    /// Somebody needs a window. The worker is to be woken.
    ///
    /// # Errors
    /// Why none will come in time.
    pub(crate) fn want(&self, now_ms: u64, deadline_ms: u64) -> Result<(), Error> {
        let mut state = self.state();
        if state.closed {
            return Err(closed());
        }
        state.used = true;
        match &state.failed {
            Some((why, until_ms)) if !state.busy && (!why.retryable() || *until_ms >= deadline_ms.max(now_ms + 1)) => {
                Err(why.clone())
            }
            _ => Ok(()),
        }
    }

    /// Why a caller whose deadline came got nothing.
    pub(crate) fn why(&self) -> String {
        let state = self.state();
        state.failed.as_ref().map_or_else(|| "no agent has answered yet".to_owned(), |(why, _)| why.to_string())
    }

    /// Claims what is due now, and says when to look again, in milliseconds.
    pub(crate) fn look(
        &self,
        wall_ms: u64,
        now_ms: u64,
        fresh: impl FnOnce() -> AllocationId,
    ) -> (Option<Duty>, Option<u64>) {
        // Its agent did not renew it in time: another worker is taken, of whichever agent answers.
        if self.held.load().is_some() && !self.is_held(wall_ms) && self.state().failed.is_some() {
            self.drop_held();
        }
        let held = self.held.load_full();
        let mut state = self.state();
        if state.closed || state.busy {
            return (None, None);
        }
        if let Some((_, until_ms)) = &state.failed
            && *until_ms > now_ms
        {
            return (None, Some(until_ms - now_ms));
        }
        let duty = match held {
            None if state.used => Some(Duty::Take(*state.pending.get_or_insert_with(fresh))),
            None => return (None, None),
            Some(held) if window::is_due(held.stamper.layout(), held.stamper.end_unit(), wall_ms, held.length_ms) => {
                Some(Duty::Renew(held))
            }
            Some(_) => None,
        };
        state.busy = duty.is_some();
        (duty, Some(AGAIN_MS))
    }

    /// Who asks an agent: incarnation, the token that this agent gave, and the lowest unit that is of use.
    pub(crate) fn asker(&self, agent: usize) -> (Incarnation, Option<String>, u64) {
        let state = self.state();
        let chain = state.chain.as_ref().filter(|(of, _)| *of == agent).map(|(_, chain)| chain.clone());
        (state.incarnation, chain, state.above)
    }

    /// A worker was given.
    pub(crate) fn taken(&self, agent: usize, answer: &WorkerAnswer) {
        let Ok(window) = Range::new(answer.lo, answer.hi) else { return };
        self.drop_held();
        let mut state = self.state();
        state.answered(agent, answer);
        state.pending = None;
        if state.closed || window.lo() < state.above {
            // Late, or below what was stamped: it runs out unused.
            return;
        }
        let stamper = Stamper::new(answer.layout, answer.slot, answer.worker, window);
        let length_ms = answer.renew_after_seconds.saturating_mul(3_000);
        self.held.store(Some(Arc::new(Held { stamper, agent, worker: answer.worker, length_ms })));
        drop(state);
        self.changed.next();
    }

    /// More time was given.
    pub(crate) fn renewed(&self, held: &Held, answer: &WorkerAnswer) {
        self.state().answered(held.agent, answer);
        if answer.worker == held.worker {
            held.stamper.extend(answer.hi);
        }
        self.changed.next();
    }

    /// A request failed. `lost`: the worker may be somebody else's; `anew`: this incarnation is over.
    pub(crate) fn failed(&self, why: Error, lost: bool, anew: Option<Incarnation>, now_ms: u64) {
        if lost {
            self.drop_held();
        }
        let mut state = self.state();
        state.busy = false;
        if let Some(incarnation) = anew {
            (state.incarnation, state.chain, state.pending) = (incarnation, None, None);
        }
        let asked_ms = why.retry_after().map_or(0, |after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        let wait_ms = AGAIN_MS.max(if lost { 0 } else { asked_ms });
        state.failed = Some((why, now_ms.saturating_add(wait_ms)));
        drop(state);
        self.changed.next();
    }

    fn drop_held(&self) -> Option<(Arc<Held>, u64)> {
        let held = self.held.swap(None)?;
        let end = held.stamper.close()?;
        let mut state = self.state();
        state.above = state.above.max(end);
        Some((held, end))
    }

    /// Stops for good; the worker and its true end, to be told to its agent.
    pub(crate) fn close(&self) -> Option<(Arc<Held>, u64)> {
        self.state().closed = true;
        let end = self.drop_held();
        self.changed.next();
        end
    }

    /// Whether a window is held that has not ended.
    pub(crate) fn is_held(&self, wall_ms: u64) -> bool {
        self.held.load().as_ref().is_some_and(|held| {
            let ends_ms = held.stamper.layout().begins_ms(held.stamper.end_unit());
            ends_ms > wall_ms
        })
    }
}

impl State {
    fn answered(&mut self, agent: usize, answer: &WorkerAnswer) {
        self.busy = false;
        self.failed = None;
        self.chain = Some((agent, answer.chain.clone()));
    }
}
