//! Workers of time-based namespaces: taking an id with a window, renewing it, giving it back.
//!
//! A window is a carve of time: decided in core, written under the same guards as a segment (epoch, roster, open scope,
//! the worker's watermark), durable and through the gate before anybody stamps in it.

use cadastre_core::ids::{AllocationId, Incarnation, Name, RowId};
use cadastre_core::layout::Layout;
use cadastre_core::mark::{Mark, Scope};
use cadastre_core::namespace::NamespaceEntry;
use cadastre_core::roster::Limits;
use cadastre_core::window::{self, WindowRefusal, WorkerAsk, WorkerRefusal};
use cadastre_protocol::error::{Code, Problem};
use cadastre_runtime::db::{DbError, Tx};

use super::unit::{self, Order, Terms, Thick};
use super::{Regional, TRIES, caps};
use crate::context::{Context, View};
use crate::error::{AgentError, problem};
use crate::sql::{self, WindowRow};

/// The longest that a caller is told to wait, in seconds.
const MAX_RETRY_SECONDS: u64 = 60;

/// Who wants to stamp.
#[derive(Clone, Debug)]
pub struct Post {
    /// In which namespace.
    pub namespace: Name,
    /// For which service; none where the agent stamps itself.
    pub service: Option<Name>,
    /// A name for people.
    pub instance: Name,
    /// The process.
    pub incarnation: Incarnation,
    /// The asker's clock, milliseconds since the Unix epoch, where it said it.
    pub clock_ms: Option<u64>,
    /// A thick client's part; none where the agent stamps itself.
    pub thick: Option<Embedded>,
}

/// What goes with the request of a process that stamps by itself.
#[derive(Clone, Debug)]
pub struct Embedded {
    /// The token that it presented.
    pub chain: Option<String>,
    /// The token that its next request is to present.
    pub next_chain: String,
    /// The limits of its service.
    pub limits: Limits,
}

/// What is done with a worker.
#[derive(Clone, Copy, Debug)]
pub enum Deed {
    /// A newcomer takes one. Nothing below `above` is of use to it: it stamped that itself.
    Take {
        /// Names the request over every retry.
        allocation_id: AllocationId,
        /// In units.
        above: u64,
    },
    /// Its holder goes on.
    Renew {
        /// The worker.
        worker: u32,
    },
    /// Its holder stopped for good, and says one past the last unit that it stamped, if it knows.
    End {
        /// The worker.
        worker: u32,
        /// In units.
        stamped_to: Option<u64>,
    },
}

/// A window that may be stamped in.
#[derive(Clone, Debug)]
pub struct Posted {
    /// The window.
    pub window: WindowRow,
    /// The slot.
    pub slot: u32,
    /// The layout.
    pub layout: Layout,
    /// How long a window is, from renewal to renewal.
    pub length_ms: u64,
    /// What a thick client presents next.
    pub chain: String,
    /// Whether an earlier request wrote it.
    pub replayed: bool,
}

/// A namespace's slot in this region.
#[derive(Clone)]
struct Line {
    name: Name,
    number: u32,
    layout: Layout,
    length_ms: u64,
    /// The region's clock, as far as it can be believed.
    granter_ms: u64,
}

impl View {
    /// The number line that a region stamps in, under its present epoch.
    #[must_use]
    pub fn line_of(&self, region: &Name, namespace: &Name) -> Option<(Name, u32)> {
        let epoch = self.epoch()?;
        self.roster.namespaces().find_map(|(name, entry)| {
            let slot = entry.slot.as_ref()?;
            (slot.of == *namespace && slot.region == *region && slot.epoch == epoch)
                .then(|| (name.clone(), slot.number))
        })
    }
}

impl Regional {
    /// Takes, renews or ends a worker, and passes the gate.
    ///
    /// # Errors
    /// `layout_full`, `no_worker_free`, `window_ended`, `clock_rollback`, or as a carve.
    pub async fn post(&self, post: &Post, deed: Deed) -> Result<Posted, AgentError> {
        let turn = self.turn(&post.namespace);
        let _turn = turn.lock().await;
        let mut tries = 0;
        loop {
            tries += 1;
            let before = self.ctx.view();
            match self.post_once(post, deed).await {
                Err(error) if tries < TRIES && self.settle(&error, &before).await? => {}
                result => return result,
            }
        }
    }

    async fn post_once(&self, post: &Post, deed: Deed) -> Result<Posted, AgentError> {
        self.ctx.may_carve()?;
        let view = self.ctx.view();
        let entry = view.issuable(&self.ctx.me.region, &post.namespace)?;
        let line = line(&view, entry, &self.ctx, &post.namespace)?;
        let terms = self.terms_of(&view, entry)?;
        let unit = {
            let _scope = self.scope.lock().await;
            let (post, line, terms) = (post.clone(), line.clone(), terms);
            let work = self.ctx.continuity.db().write("region_window", move |tx| {
                let (post, line, terms) = (post.clone(), line.clone(), terms.clone());
                Box::pin(async move { Work { post, line, terms }.run(tx, deed).await })
            });
            self.ctx.note_store(work.await)
        };
        let Some((window, mark, chain, replayed)) = unit? else {
            let text = "the chain token is not the one that this incarnation was given: two copies of one process are \
                        alive. Stop them and start anew with a fresh incarnation";
            return Err(problem(Code::EpochFenced, text));
        };
        let gate = self.ctx.continuity.pass(&[(Scope::Region, mark)]).await;
        self.ctx.note_store(gate.map_err(AgentError::from))?;
        Ok(Posted { window, slot: line.number, layout: line.layout, length_ms: line.length_ms, chain, replayed })
    }
}

fn line(view: &View, entry: &NamespaceEntry, ctx: &Context, namespace: &Name) -> Result<Line, AgentError> {
    let region = &ctx.me.region;
    let Some(layout) = entry.layout else {
        let text = format!("{namespace} is of kind {}: it has no workers", entry.kind.as_str());
        return Err(problem(Code::InvalidRequest, text));
    };
    let length_ms = u64::from(entry.policy.target_seconds) * 1_000;
    match view.line_of(region, namespace) {
        Some((name, number)) => Ok(Line { name, number, layout, length_ms, granter_ms: ctx.judged_ms() }),
        None => {
            let text = format!(
                "region {region} has no slot of {namespace} under its epoch yet: the authority gives one with its next \
                 answer, unless all {} belong to others (see the namespace's slots)",
                layout.slots()
            );
            Err(Problem::new(Code::LayoutFull, text).retry_after(2).into())
        }
    }
}

/// One transaction.
struct Work {
    post: Post,
    line: Line,
    terms: Terms,
}

type Done = Option<(WindowRow, Mark, String, bool)>;

impl Work {
    async fn run(&self, tx: &mut Tx, deed: Deed) -> Result<Done, AgentError> {
        let was = unit::open_mark(tx, &self.terms).await?;
        if sql::roster_version(tx).await? != self.terms.roster_version {
            return Err(AgentError::EpochMoved);
        }
        let mut chain = String::new();
        if let Some(Embedded { chain: given, next_chain, limits }) = self.post.thick.clone() {
            let order = self.order(deed);
            let thick = Thick { chain: given, next_chain, retention_ms: 0, most: 0, above: 0, limits, rate: Ok(0) };
            let Some(joined) = unit::holder(tx, &order, &thick, &self.terms).await? else { return Ok(None) };
            if matches!(deed, Deed::Take { .. }) {
                caps::allowed(tx, &order, &limits, joined.counts, 1, self.terms.now_ms).await?;
            }
            chain = joined.chain;
        }
        let row = RowId(self.terms.entropy.uuid_v4());
        let (window, written) = match deed {
            Deed::Take { allocation_id, above } => self.take(tx, allocation_id, above, row).await?,
            Deed::Renew { worker } => self.renew(tx, worker).await?,
            Deed::End { worker, stamped_to } => (self.end(tx, worker, stamped_to).await?, true),
        };
        let mark = if written { unit::raise(tx, &was, row, word(deed), self.terms.now_ms).await? } else { was };
        Ok(Some((window, mark, chain, !written)))
    }

    /// What the chain of a thick client is kept by.
    fn order(&self, deed: Deed) -> Order {
        let allocation_id = match deed {
            Deed::Take { allocation_id, .. } => allocation_id,
            // No request of this name exists: a renewal is not replayed but done again.
            Deed::Renew { .. } | Deed::End { .. } => AllocationId::NONE,
        };
        Order {
            namespace: self.line.name.clone(),
            service: self.post.service.clone(),
            instance: self.post.instance.clone(),
            incarnation: self.post.incarnation,
            allocation_id,
            want: 1,
        }
    }

    async fn ask(&self, tx: &mut Tx, above: u64) -> Result<WorkerAsk, AgentError> {
        let held = sql::time_held(tx, &self.line.name, self.terms.epoch).await?;
        let held = held.ok_or_else(|| {
            let text = "the region was given no time of this namespace yet; the authority is asked";
            AgentError::from(Problem::new(Code::WindowEnded, text))
        })?;
        Ok(WorkerAsk {
            granter_ms: self.line.granter_ms,
            asker_ms: self.post.clock_ms,
            length_ms: self.line.length_ms,
            held,
            above,
        })
    }

    async fn take(
        &self,
        tx: &mut Tx,
        allocation_id: AllocationId,
        above: u64,
        row: RowId,
    ) -> Result<(WindowRow, bool), AgentError> {
        if let Some(known) = sql::window_by_allocation(tx, allocation_id).await? {
            return self.again(known).map(|window| (window, false));
        }
        if self.post.clock_ms.is_some_and(|clock| clock.abs_diff(self.line.granter_ms) > window::ASKER_CLOCK_BOUND_MS) {
            let text = format!(
                "your clock is more than {} seconds away from this agent's: set it right before you stamp",
                window::ASKER_CLOCK_BOUND_MS / 1_000
            );
            return Err(problem(Code::ClockRollback, text));
        }
        let ask = self.ask(tx, above).await?;
        let used = sql::workers(tx, &self.line.name).await?;
        let chosen = window::choose_worker(&self.line.layout, &used, &ask);
        let (worker, range) = chosen.map_err(|refusal| worker_problem(&refusal, self.line.granter_ms))?;
        let was = used.iter().find(|(n, _)| *n == worker).and_then(|(_, ends)| *ends);
        let window = WindowRow {
            window_id: self.terms.entropy.uuid_v4(),
            line: self.line.name.clone(),
            worker,
            range,
            service: self.post.service.clone(),
            instance: self.post.instance.clone(),
            incarnation: self.post.incarnation,
            allocation_id,
            epoch: self.terms.epoch,
            at_ms: self.terms.now_ms,
            ended: false,
            mark_row: row,
        };
        sql::take_worker(tx, was, &window).await?;
        Ok((window, true))
    }

    /// The window that this very request got before.
    fn again(&self, known: WindowRow) -> Result<WindowRow, AgentError> {
        let same = known.line == self.line.name
            && known.service == self.post.service
            && known.incarnation == self.post.incarnation
            && known.instance == self.post.instance;
        if !same {
            let text = "this allocation id was used with other parameters or by another process; make a fresh one";
            return Err(problem(Code::AllocationConflict, text));
        }
        if known.epoch != self.terms.epoch || known.ended {
            return Err(problem(Code::EpochFenced, "this window is over; ask with a fresh allocation id"));
        }
        Ok(known)
    }

    /// The asker's window of a worker, if it is the worker's last one.
    async fn own(&self, tx: &mut Tx, worker: u32) -> Result<WindowRow, AgentError> {
        let held = sql::window_of(tx, &self.line.name, worker).await?;
        let mine = held.filter(|w| w.incarnation == self.post.incarnation && w.service == self.post.service);
        match mine {
            Some(w) if w.epoch != self.terms.epoch => {
                Err(problem(Code::EpochFenced, format!("worker {worker} was of epoch {}, which is over", w.epoch)))
            }
            Some(w) if !w.ended => Ok(w),
            // Not retryable as it stands: whoever lost a worker takes another one.
            _ => {
                let text =
                    format!("worker {worker} is not this process's (any more): stop stamping, and take another one");
                Err(problem(Code::WindowEnded, text))
            }
        }
    }

    async fn renew(&self, tx: &mut Tx, worker: u32) -> Result<(WindowRow, bool), AgentError> {
        let own = self.own(tx, worker).await?;
        let ask = self.ask(tx, 0).await?;
        let hi = match window::renewed(&self.line.layout, own.range.hi(), &ask) {
            Ok(hi) => hi,
            // Two renewals in a row add nothing to one another; the second is answered with what there is.
            Err(WindowRefusal::GivenUntil { .. }) if self.is_running(&own) => return Ok((own, false)),
            Err(refusal) => return Err(worker_problem(&refusal.into(), self.line.granter_ms)),
        };
        sql::move_end(tx, &own, hi, false).await?;
        Ok((with_end(own, hi)?, true))
    }

    fn is_running(&self, own: &WindowRow) -> bool {
        self.line.layout.begins_ms(own.range.hi()) > self.line.granter_ms
    }

    async fn end(&self, tx: &mut Tx, worker: u32, stamped_to: Option<u64>) -> Result<WindowRow, AgentError> {
        let own = self.own(tx, worker).await?;
        let hi = stamped_to.map_or(own.range.hi(), |said| window::true_end(own.range, said));
        sql::move_end(tx, &own, hi, true).await?;
        with_end(own, hi)
    }
}

fn with_end(window: WindowRow, hi: u64) -> Result<WindowRow, AgentError> {
    let range = cadastre_core::range::Range::new(window.range.lo(), hi);
    let range = range.map_err(|e| AgentError::Db(DbError::Corrupt(e.to_string())))?;
    Ok(WindowRow { range, ..window })
}

fn word(deed: Deed) -> &'static str {
    match deed {
        Deed::Take { .. } => "window",
        Deed::Renew { .. } => "renewal",
        Deed::End { .. } => "true_end",
    }
}

fn worker_problem(refusal: &WorkerRefusal, now_ms: u64) -> AgentError {
    let wait =
        |until: u64| u32::try_from((until.saturating_sub(now_ms) / 1_000 + 1).min(MAX_RETRY_SECONDS)).unwrap_or(1);
    match refusal {
        WorkerRefusal::NoneFree { until_ms } => {
            let when = until_ms.map_or_else(String::new, |until| {
                format!("; the next window ends at {until} (milliseconds since the Unix epoch) unless it is renewed")
            });
            let text = format!("every worker id of this region is taken{when}");
            Problem::new(Code::NoWorkerFree, text).retry_after(until_ms.map_or(1, wait)).into()
        }
        WorkerRefusal::Window(WindowRefusal::LayoutEnded) => problem(Code::Exhausted, refusal.to_string()),
        WorkerRefusal::Window(WindowRefusal::BeforeEpoch | WindowRefusal::ClockOff { .. }) => {
            problem(Code::ClockRollback, refusal.to_string())
        }
        WorkerRefusal::Window(WindowRefusal::GivenUntil { until_ms }) if *until_ms > now_ms => {
            // The region's time begins later than its clock says: the clock went back.
            Problem::new(Code::ClockRollback, refusal.to_string()).retry_after(wait(*until_ms)).into()
        }
        WorkerRefusal::Window(WindowRefusal::GivenUntil { .. }) => {
            let text = "the time that the region was given has ended, and the authority has not renewed it";
            problem(Code::WindowEnded, text)
        }
    }
}

/// The agent's own post in a namespace.
#[must_use]
pub fn own_post(ctx: &Context, namespace: &Name) -> Post {
    Post {
        namespace: namespace.clone(),
        service: None,
        instance: ctx.me.instance.clone(),
        incarnation: ctx.me.incarnation,
        clock_ms: None,
        thick: None,
    }
}
