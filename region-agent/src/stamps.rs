//! Time-based ids of an agent: one worker per namespace, taken on first use, renewed ahead, let go when idle.
//!
//! Purpose: the instance tier of `snowflake` namespaces. Invariants: what is stamped lies in a window that passed the
//! region's gate, of the present epoch; a new worker begins above everything that this process stamped before, so that
//! its ids go on rising; nobody waits for a clock for longer than [`CLOCK_WAIT_MS`], and no lock is held meanwhile.
//! Absent on purpose: timers and tasks (the loops have them).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use cadastre_core::ids::{AllocationId, Epoch, Name};
use cadastre_core::namespace::NamespaceEntry;
use cadastre_core::range::Range;
use cadastre_core::stamp::{NoStamp, Stamper};
use cadastre_core::window;
use cadastre_protocol::error::{Code, Problem};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::context::{Context, View};
use crate::error::{AgentError, problem};
use crate::metrics as meter;
use crate::regional::Regional;
use crate::regional::windows::{Deed, Posted, own_post};

/// A clock that is behind the last id by no more than this is waited for; by more, the caller is told so.
pub const CLOCK_WAIT_MS: u64 = 50;
/// The longest that a caller is told to wait for the clock, in seconds.
const MAX_RETRY_SECONDS: u64 = 60;
/// A failed request for a window is tried again after this long.
const AGAIN_MS: u64 = 500;

/// A worker that this process stamps as.
struct Post {
    stamper: Stamper,
    epoch: Epoch,
    worker: u32,
    length_ms: u64,
}

/// What came of an attempt.
pub enum Step {
    /// All ids are there.
    Done,
    /// The clock has to go on for so many milliseconds.
    Clock(u64),
    /// A window is on its way.
    Window,
    /// Nothing more just now.
    Refused(AgentError),
}

/// One time-based namespace.
struct Place {
    namespace: Name,
    post: RwLock<Option<Arc<Post>>>,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// Somebody asked since the last look.
    used: bool,
    /// When somebody last asked, by the monotonic clock.
    used_mono_ms: u64,
    /// A request for a window is under way.
    busy: bool,
    /// Why the last one failed, and when the next one is due, by the monotonic clock.
    failed: Option<(AgentError, u64)>,
    /// Units below were stamped by an earlier worker of this process.
    above: u64,
    /// The clock is behind the last id by more than is waited for.
    behind: bool,
    stamped: u64,
    /// Stamped since this process began.
    stamped_ever: u64,
}

/// See the module's documentation.
pub struct Stamps {
    ctx: Arc<Context>,
    pool: Arc<Regional>,
    places: RwLock<BTreeMap<Name, Arc<Place>>>,
}

impl Place {
    fn post(&self) -> Option<Arc<Post>> {
        self.post.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops stamping as the present worker; what it stamped stays below what comes next.
    fn drop_post(&self) -> Option<(Arc<Post>, u64)> {
        let old = self.post.write().unwrap_or_else(PoisonError::into_inner).take()?;
        let end = old.stamper.close()?;
        let mut state = self.state();
        state.above = state.above.max(end);
        Some((old, end))
    }
}

impl Stamps {
    /// Nobody stamps yet.
    #[must_use]
    pub fn new(ctx: Arc<Context>, pool: Arc<Regional>) -> Self {
        Self { ctx, pool, places: RwLock::default() }
    }

    fn places(&self) -> Vec<Arc<Place>> {
        self.places.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn place(&self, namespace: &Name) -> Arc<Place> {
        if let Some(place) = self.places.read().unwrap_or_else(PoisonError::into_inner).get(namespace) {
            return Arc::clone(place);
        }
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        let fresh = || {
            Arc::new(Place {
                namespace: namespace.clone(),
                post: RwLock::default(),
                state: Mutex::default(),
                changed: Notify::new(),
            })
        };
        Arc::clone(places.entry(namespace.clone()).or_insert_with(fresh))
    }

    /// `count` ids: stretches that rise by 1, each of one unit.
    ///
    /// # Errors
    /// `clock_rollback`, `window_ended`, `no_worker_free`, `layout_full`, `exhausted` or what keeps the region from
    /// giving a window.
    pub async fn ids(
        &self,
        view: &View,
        settings: &NamespaceEntry,
        namespace: &Name,
        count: u64,
        wait: Duration,
    ) -> Result<Vec<Range>, AgentError> {
        let place = self.place(namespace);
        let deadline = sleep(wait);
        tokio::pin!(deadline);
        let mut ids = Vec::new();
        loop {
            let changed = place.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.attempt(view, settings, namespace, count, &mut ids) {
                Step::Done => return Ok(ids),
                Step::Refused(error) => return Err(error),
                Step::Clock(ms) => tokio::select! {
                    () = sleep(Duration::from_millis(ms)) => {}
                    () = deadline.as_mut() => return Err(self.behind(&place, ms)),
                },
                Step::Window => tokio::select! {
                    () = changed => {}
                    () = deadline.as_mut() => {
                        let text = "a time window is on its way and did not come in time; ask again";
                        return Err(problem(Code::WindowEnded, text));
                    }
                },
            }
        }
    }

    /// As many of `count` ids as can be stamped at once, those in `ids` included, and what has to happen for the rest.
    pub fn attempt(
        &self,
        view: &View,
        settings: &NamespaceEntry,
        namespace: &Name,
        count: u64,
        ids: &mut Vec<Range>,
    ) -> Step {
        if let Err(error) = self.ctx.alive() {
            return Step::Refused(error);
        }
        let place = self.place(namespace);
        let epoch = view.epoch().unwrap_or_default();
        loop {
            let got: u64 = ids.iter().map(Range::len).sum();
            let Some(post) = place.post().filter(|post| post.epoch >= epoch) else { break };
            let now_ms = self.ctx.now().wall_ms;
            match post.stamper.take(now_ms, count - got) {
                Ok(places) => {
                    match values(&post.stamper, places) {
                        Ok(range) => ids.push(range),
                        Err(error) => return Step::Refused(error),
                    }
                    if got + places.len() == count {
                        self.note(&place, settings, &post, count);
                        return Step::Done;
                    }
                }
                Err(NoStamp::Behind { ms }) if ms <= CLOCK_WAIT_MS => return Step::Clock(ms),
                Err(NoStamp::Behind { ms }) => return Step::Refused(self.behind(&place, ms)),
                Err(NoStamp::OutOfTime) => return Step::Refused(out_of_time(&post, now_ms)),
                Err(NoStamp::Ended) => break,
            }
        }
        self.want(&place);
        self.refusal(&place).map_or(Step::Window, Step::Refused)
    }

    /// After ids were stamped: whether a renewal is due.
    fn note(&self, place: &Place, settings: &NamespaceEntry, post: &Post, got: u64) {
        let now = self.ctx.now();
        let length = u64::from(settings.policy.target_seconds) * 1_000;
        let due = window::is_due(post.stamper.layout(), post.stamper.end_unit(), now.wall_ms, length);
        let mut state = place.state();
        state.stamped = state.stamped.saturating_add(got);
        state.stamped_ever = state.stamped_ever.saturating_add(got);
        state.behind = false;
        (state.used, state.used_mono_ms) = (true, now.mono_ms);
        let wake = due && !state.busy && state.failed.as_ref().is_none_or(|(_, at)| *at <= now.mono_ms);
        drop(state);
        if wake {
            self.ctx.window_wake.notify_one();
        }
    }

    fn behind(&self, place: &Place, ms: u64) -> AgentError {
        place.state().behind = true;
        meter::clock_rollback(&self.ctx.me.region, &place.namespace);
        let text = format!(
            "this agent's clock is {ms} ms behind the last id of {}: it was set back, and nothing is stamped until it is \
             there again",
            place.namespace
        );
        let seconds = u32::try_from(ms.div_ceil(1_000).min(MAX_RETRY_SECONDS)).unwrap_or(1);
        Problem::new(Code::ClockRollback, text).retry_after(seconds).into()
    }

    fn want(&self, place: &Place) {
        let now = self.ctx.now().mono_ms;
        let mut state = place.state();
        (state.used, state.used_mono_ms) = (true, now);
        let wake = !state.busy && state.failed.as_ref().is_none_or(|(_, at)| *at <= now);
        drop(state);
        if wake {
            self.ctx.window_wake.notify_one();
        }
    }

    /// Why nobody should wait for a window just now.
    fn refusal(&self, place: &Place) -> Option<AgentError> {
        if let Err(error) = self.ctx.may_carve() {
            return Some(error);
        }
        let now = self.ctx.now().mono_ms;
        let state = place.state();
        state.failed.as_ref().filter(|(_, at)| *at > now && !state.busy).map(|(error, _)| error.clone())
    }

    /// Takes, renews and lets go whatever is due, and says how long to pause at most.
    pub async fn run_once(&self) -> Duration {
        for place in self.places() {
            self.tend(&place).await;
        }
        Duration::from_millis(AGAIN_MS)
    }

    async fn tend(&self, place: &Place) {
        let now = self.ctx.now();
        let view = self.ctx.view();
        let epoch = view.epoch().unwrap_or_default();
        let post = place.post();
        if post.as_ref().is_some_and(|post| post.epoch < epoch) {
            // Its slot is another one's now: what it holds is burned.
            place.drop_post();
        }
        let post = post.filter(|post| post.epoch >= epoch);
        let deed = {
            let mut state = place.state();
            if state.failed.as_ref().is_some_and(|(_, at)| *at > now.mono_ms) {
                return;
            }
            let length = post.as_ref().map_or(0, |post| post.length_ms);
            let idle = now.mono_ms.saturating_sub(state.used_mono_ms) > length;
            let used = std::mem::take(&mut state.used);
            let deed = match &post {
                None if used => self.take(state.above),
                None => None,
                Some(post) if idle && !used => Some(Deed::End { worker: post.worker, stamped_to: None }),
                Some(post) if window::is_due(post.stamper.layout(), post.stamper.end_unit(), now.wall_ms, length) => {
                    Some(Deed::Renew { worker: post.worker })
                }
                Some(_) => None,
            };
            state.busy = deed.is_some();
            deed
        };
        match (deed, post) {
            (Some(Deed::End { .. }), Some(_)) => self.let_go(place).await,
            (Some(deed), post) => self.ask(place, deed, post).await,
            (None, _) => {}
        }
    }

    fn take(&self, above: u64) -> Option<Deed> {
        let now = self.ctx.now().wall_ms;
        let allocation_id = AllocationId::new(self.ctx.entropy.uuid_v7(now)).ok()?;
        Some(Deed::Take { allocation_id, above })
    }

    async fn ask(&self, place: &Place, deed: Deed, post: Option<Arc<Post>>) {
        let asked = self.pool.post(&own_post(&self.ctx, &place.namespace), deed).await;
        let result = asked.and_then(|posted| match (&deed, &post) {
            (Deed::Renew { .. }, Some(_)) if posted.replayed => {
                let text = "the clock is ahead of the time that the region was given, and of its authority's clock";
                Err(problem(Code::WindowEnded, text))
            }
            (Deed::Renew { .. }, Some(post)) => {
                post.stamper.extend(posted.window.range.hi());
                Ok(())
            }
            _ => {
                self.begin(place, &posted);
                Ok(())
            }
        });
        let now = self.ctx.now().mono_ms;
        {
            let mut state = place.state();
            state.busy = false;
            state.failed = result.as_ref().err().map(|error| (error.clone(), now.saturating_add(AGAIN_MS)));
        }
        match result {
            Ok(()) => {}
            Err(error) => {
                let code = error.to_problem().code;
                tracing::warn!(region = %self.ctx.me.region, namespace = %place.namespace, %error, "no window");
                meter::refill_failed(&self.ctx.me.region, code);
                if matches!(code, Code::WindowEnded | Code::LayoutFull) {
                    self.ctx.link_wake.notify_one();
                }
                // Somebody else has the worker, or its epoch is over: another one is taken at the next request.
                let ends_ms = |p: &Post| p.stamper.layout().begins_ms(p.stamper.end_unit());
                let over = post.is_some_and(|p| ends_ms(&p) <= self.ctx.judged_ms());
                if code == Code::EpochFenced || (over && code == Code::WindowEnded) {
                    place.drop_post();
                }
            }
        }
        place.changed.notify_waiters();
    }

    fn begin(&self, place: &Place, posted: &Posted) {
        let Posted { window, slot, layout, length_ms, .. } = posted;
        tracing::info!(
            region = %self.ctx.me.region, namespace = %place.namespace, slot, worker = window.worker,
            window = %window.range, "worker"
        );
        let post = Post {
            stamper: Stamper::new(*layout, *slot, window.worker, window.range),
            epoch: window.epoch,
            worker: window.worker,
            length_ms: *length_ms,
        };
        place.drop_post();
        *place.post.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(post));
    }

    /// Stops stamping for good, and says where.
    async fn let_go(&self, place: &Place) {
        if let Some((post, end)) = place.drop_post() {
            let deed = Deed::End { worker: post.worker, stamped_to: Some(end) };
            if let Err(error) = self.pool.post(&own_post(&self.ctx, &place.namespace), deed).await {
                tracing::debug!(namespace = %place.namespace, %error, "the worker's window runs out by itself");
            }
        }
        place.state().busy = false;
    }

    /// Stops for good, with a true end for every window.
    pub async fn close(&self) {
        for place in self.places() {
            self.let_go(&place).await;
        }
    }

    /// Stops stamping under epochs below `epoch`, or all where it is `None`.
    pub fn close_below(&self, epoch: Option<Epoch>) {
        for place in self.places() {
            if place.post().is_some_and(|post| epoch.is_none_or(|epoch| post.epoch < epoch)) {
                place.drop_post();
            }
        }
    }

    /// Namespaces whose clock is behind by more than is waited for.
    #[must_use]
    pub fn behind_now(&self) -> Vec<Name> {
        let now_ms = self.ctx.now().wall_ms;
        let behind = |place: &Arc<Place>| {
            let post = place.post();
            place.state().behind
                && post.is_some_and(|p| {
                    p.stamper
                        .above()
                        .is_some_and(|unit| p.stamper.layout().begins_ms(unit) > now_ms.saturating_add(CLOCK_WAIT_MS))
                })
        };
        self.places().iter().filter(|place| behind(place)).map(|place| place.namespace.clone()).collect()
    }

    /// What this process stamped so far, by namespace.
    #[must_use]
    pub fn stamped(&self) -> Vec<(Name, u64)> {
        self.places().iter().map(|place| (place.namespace.clone(), place.state().stamped_ever)).collect()
    }

    /// Writes the counters that the fast path only noted.
    pub fn report(&self) {
        for place in self.places() {
            let stamped = std::mem::take(&mut place.state().stamped);
            meter::issued(&self.ctx.me.region, &place.namespace, stamped);
        }
    }
}

/// The ids of places of one unit: they follow one another.
fn values(stamper: &Stamper, places: Range) -> Result<Range, AgentError> {
    let first = stamper.id(places.lo()).and_then(|id| u64::try_from(id).ok());
    let range = first.and_then(|first| Range::new(first, first + places.len()).ok());
    range.ok_or_else(|| problem(Code::Exhausted, "the layout's bits are used up: move to a new namespace"))
}

fn out_of_time(post: &Post, now_ms: u64) -> AgentError {
    if now_ms >= post.stamper.layout().ends_ms() {
        return problem(Code::Exhausted, "the layout's timestamp is at its end: move to a new namespace");
    }
    problem(Code::ClockRollback, "this agent's clock is before the layout's epoch: set it right")
}
