//! The instance tier of an agent: who is issuing what, from memory.
//!
//! Purpose: the fast path, and prefetching behind it. Invariant: what is issued comes out of segments that
//! passed the region's gate, of the present epoch, each installed once; one carve is in flight per entry.
//! Absent on purpose: waiting (the front does), timers and tasks (the loops do), persistence.

pub mod entry;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use cadastre_core::ids::{AllocationId, Epoch, Name};
use cadastre_core::namespace::NamespaceEntry;
use cadastre_core::plan;
use cadastre_protocol::error::{Code, Problem};
use cadastre_runtime::clock::Stopwatch;

pub use entry::{Entry, Missing, Refill, Standing};

use crate::context::{Context, View};
use crate::error::{AgentError, problem};
use crate::metrics as meter;
use crate::regional::{Carved, Order, Regional};

/// The entries of one namespace.
#[derive(Default)]
struct Slot {
    shared: Option<Arc<Entry>>,
    by_service: BTreeMap<Name, Arc<Entry>>,
}

impl Slot {
    fn all(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.shared.iter().chain(self.by_service.values())
    }

    fn get(&self, service: Option<&Name>) -> Option<&Arc<Entry>> {
        service.map_or(self.shared.as_ref(), |s| self.by_service.get(s))
    }
}

/// Whether a caller who found nothing should wait.
pub enum Outlook {
    /// A refill is under way, and the tier above answers.
    Wait,
    /// No: this is the answer.
    Refused(AgentError),
}

/// See the module's documentation.
pub struct Issuer {
    ctx: Arc<Context>,
    pool: Arc<Regional>,
    slots: RwLock<BTreeMap<Name, Slot>>,
    /// Why the authority gives nothing more of a namespace.
    refusals: RwLock<BTreeMap<Name, Problem>>,
}

impl Issuer {
    /// An issuer without entries: each is made on first use.
    #[must_use]
    pub fn new(ctx: Arc<Context>, pool: Arc<Regional>) -> Self {
        Self { ctx, pool, slots: RwLock::default(), refusals: RwLock::default() }
    }

    /// The entry for a service's requests in a namespace, under the present epoch.
    ///
    /// # Errors
    /// `copy_found` once this process has ended.
    pub fn entry(
        &self,
        view: &View,
        settings: &NamespaceEntry,
        namespace: &Name,
        service: &Name,
    ) -> Result<Arc<Entry>, AgentError> {
        self.ctx.alive()?;
        let epoch = view.epoch().unwrap_or_default();
        let own = (settings.policy.service_block > 0).then_some(service);
        {
            let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(entry) = slots.get(namespace).and_then(|slot| slot.get(own))
                && entry.epoch == epoch
                && !entry.is_closed()
            {
                return Ok(Arc::clone(entry));
            }
        }
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.entry(namespace.clone()).or_default();
        let before = slot.get(own).cloned();
        match before {
            // A view that is behind must not revive an epoch that is over.
            Some(entry) if entry.epoch >= epoch && !entry.is_closed() => Ok(entry),
            Some(entry) if entry.epoch > epoch => Err(problem(Code::SegmentDry, "the region's epoch has just risen")),
            before => {
                if let Some(old) = &before {
                    old.close();
                }
                let entry = Arc::new(Entry::new(namespace.clone(), own.cloned(), epoch, before.as_deref()));
                match own {
                    None => slot.shared = Some(Arc::clone(&entry)),
                    Some(service) => {
                        slot.by_service.insert(service.clone(), Arc::clone(&entry));
                    }
                }
                Ok(entry)
            }
        }
    }

    /// After ids were taken from an entry.
    pub fn note(&self, entry: &Entry, settings: &NamespaceEntry, taken: u64) {
        if entry.note(settings, taken, self.ctx.now().mono_ms) {
            self.ctx.refill_wake.notify_one();
        }
    }

    /// A caller found less than it needs: counted until the result is dropped.
    pub fn miss<'a>(&self, entry: &'a Entry, settings: &NamespaceEntry, missing: u64) -> Missing<'a> {
        let (missing, wanted) = entry.miss(settings, missing, self.ctx.now().mono_ms);
        if wanted {
            self.ctx.refill_wake.notify_one();
        }
        missing
    }

    /// Whether a caller who found nothing in `entry` should wait.
    #[must_use]
    pub fn outlook(&self, entry: &Entry) -> Outlook {
        if let Err(error) = self.ctx.alive() {
            return Outlook::Refused(error);
        }
        match entry.refill() {
            Refill::Idle | Refill::Wanted | Refill::InFlight => match self.ctx.may_carve() {
                Err(error) => Outlook::Refused(error),
                Ok(()) if self.ctx.store_alive() => Outlook::Wait,
                Ok(()) => {
                    let why = self.ctx.health().store_error;
                    Outlook::Refused(dry(why.as_deref().unwrap_or("the region's store does not answer")))
                }
            },
            Refill::BackingOff { why, .. } => match why {
                AgentError::RegionDry(namespace) => self.above(&namespace),
                AgentError::Problem(problem) => Outlook::Refused(problem.into()),
                AgentError::Moved | AgentError::EpochMoved if self.ctx.store_alive() => Outlook::Wait,
                AgentError::WentBack(_) => Outlook::Refused(why),
                AgentError::Store(_)
                | AgentError::NotDurable(_)
                | AgentError::Moved
                | AgentError::EpochMoved
                | AgentError::Db(_) => Outlook::Refused(dry(&why.to_string())),
            },
        }
    }

    /// The region holds too little: whether a grant may be on its way.
    #[must_use]
    pub fn above(&self, namespace: &Name) -> Outlook {
        let refusals = self.refusals.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(refusal) = refusals.get(namespace) {
            let error = match refusal.code {
                Code::Exhausted | Code::Frozen | Code::NotHome => refusal.clone().into(),
                _ => dry(&format!("the authority grants nothing just now: {}", refusal.detail)),
            };
            return Outlook::Refused(error);
        }
        if let Some(standing) = self.ctx.view().standing.filter(|s| !s.state.gets_grants()) {
            let why =
                format!("the region holds nothing more, and being {} it gets nothing new", standing.state.as_str());
            return Outlook::Refused(dry(&why));
        }
        if self.ctx.uplink_alive() && !self.ctx.health().quarantined {
            return Outlook::Wait;
        }
        Outlook::Refused(dry("the region holds nothing more, and the authority does not answer"))
    }

    /// Notes why the authority refused a grant, or that it gave one.
    pub fn refused_above(&self, namespace: &Name, why: Option<Problem>) {
        let mut refusals = self.refusals.write().unwrap_or_else(PoisonError::into_inner);
        match why {
            Some(problem) => refusals.insert(namespace.clone(), problem),
            None => refusals.remove(namespace),
        };
    }

    /// The roster or the epoch changed: what was refused may be granted now.
    pub fn forget_refusals(&self) {
        self.refusals.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn entries(&self) -> Vec<Arc<Entry>> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        slots.values().flat_map(Slot::all).cloned().collect()
    }

    /// Claims every refill that is to be started now; each is to be given to [`Self::refill`].
    #[must_use]
    pub fn due(&self) -> Vec<Arc<Entry>> {
        let now = self.ctx.now().mono_ms;
        self.entries().into_iter().filter(|entry| entry.claim(now)).collect()
    }

    /// How long until a failed refill is due, in milliseconds; none where nothing waits.
    #[must_use]
    pub fn next_due_ms(&self) -> Option<u64> {
        let now = self.ctx.now().mono_ms;
        self.entries().iter().filter_map(|e| e.due_ms()).min().map(|at| at.saturating_sub(now))
    }

    /// Carves one segment for a claimed entry and installs it.
    pub async fn refill(&self, entry: &Entry) {
        let watch = Stopwatch::start();
        let view = self.ctx.view();
        let settings = view.issuable(&self.ctx.me.region, &entry.namespace);
        let result = match settings {
            Err(error) => Err(error),
            Ok(_) if entry.is_closed() => Err(problem(Code::EpochFenced, "the epoch of these segments is over")),
            Ok(settings) => {
                let order = self.order(&view, entry, settings);
                self.pool.carve(&order, None).await.map(|carved| (carved, settings))
            }
        };
        match result {
            Ok((carved, settings)) => self.filled(entry, settings, &carved, watch.seconds()).await,
            Err(error) => self.failed(entry, error),
        }
    }

    fn order(&self, view: &View, entry: &Entry, settings: &NamespaceEntry) -> Order {
        let now = self.ctx.now();
        let space = view.space_left(&entry.namespace, settings).saturating_add(self.pool.left(&entry.namespace));
        entry.order(settings, space, now.mono_ms, |want| Order {
            namespace: entry.namespace.clone(),
            service: entry.service.clone(),
            instance: self.ctx.me.instance.clone(),
            incarnation: self.ctx.me.incarnation,
            allocation_id: fresh_allocation(&self.ctx),
            want,
        })
    }

    async fn filled(&self, entry: &Entry, settings: &NamespaceEntry, carved: &Carved, seconds: f64) {
        let now = self.ctx.now().mono_ms;
        let (region, namespace, size) = (&self.ctx.me.region, &entry.namespace, carved.segment.range.len());
        let rate = entry.standing(now).rate;
        // Carved under another epoch than the entry's: its segment belongs to whoever replaced the entry.
        let fits = carved.segment.epoch == entry.epoch;
        let installed = if fits { entry.filled(settings, carved.segment.range, now) } else { Err(size) };
        match installed {
            Ok(late) => {
                meter::refilled(region, namespace, seconds, late);
                tracing::info!(%region, %namespace, size, rate, left = carved.left, seconds, late, "refill");
                if matches!(entry.refill(), Refill::Wanted) {
                    self.ctx.refill_wake.notify_one();
                }
            }
            Err(lost) => {
                tracing::warn!(%region, %namespace, lost, "a segment came too late to be used; it is a gap");
                let _ = self.pool.count_burned(BTreeMap::from([(namespace.clone(), lost)])).await;
            }
        }
    }

    fn failed(&self, entry: &Entry, error: AgentError) {
        let code = error.to_problem().code;
        meter::refill_failed(&self.ctx.me.region, code);
        tracing::debug!(region = %self.ctx.me.region, namespace = %entry.namespace, %error, "refill failed");
        if matches!(error, AgentError::RegionDry(_)) {
            self.ctx.link_wake.notify_one();
        }
        entry.failed(error, self.ctx.entropy.u64(), self.ctx.now().mono_ms);
        self.ctx.refill_wake.notify_one();
    }

    /// Something changed above: what waits is tried at once; of one namespace, or of all.
    pub fn kick(&self, namespace: Option<&Name>) {
        let waits = |e: &Arc<Entry>| namespace.is_none_or(|n| *n == e.namespace) && e.kick();
        // Every one is kicked, so no short cut.
        if self.entries().iter().filter(|e| waits(e)).count() > 0 {
            self.ctx.refill_wake.notify_one();
        }
    }

    /// Stops every entry of an epoch below `epoch` (all of them where it is `None`), and returns what is
    /// lost with them, by namespace.
    #[must_use]
    pub fn close_below(&self, epoch: Option<Epoch>) -> BTreeMap<Name, u64> {
        let mut lost: BTreeMap<Name, u64> = BTreeMap::new();
        for entry in self.entries() {
            if epoch.is_none_or(|epoch| entry.epoch < epoch) {
                let n = entry.close();
                if n > 0 {
                    *lost.entry(entry.namespace.clone()).or_default() += n;
                }
            }
        }
        lost
    }

    /// How every namespace with an entry is doing, and how its refills stand.
    #[must_use]
    pub fn standings(&self) -> BTreeMap<Name, (Standing, &'static str)> {
        let now = self.ctx.now().mono_ms;
        let mut all: BTreeMap<Name, (Standing, &'static str)> = BTreeMap::new();
        for entry in self.entries() {
            let (one, refill) = (entry.standing(now), entry.refill().as_str());
            let (sum, word) = all.entry(entry.namespace.clone()).or_insert((Standing::default(), "idle"));
            sum.rate += one.rate;
            sum.peak += one.peak;
            sum.left = sum.left.saturating_add(one.left);
            sum.waited_for = sum.waited_for.saturating_add(one.waited_for);
            if refill != "idle" {
                *word = refill;
            }
        }
        all
    }

    /// Writes the gauges, and the counters that the fast path only noted.
    pub fn report(&self) {
        for entry in self.entries() {
            meter::issued(&self.ctx.me.region, &entry.namespace, entry.unreported());
        }
        let view = self.ctx.view();
        for (namespace, (standing, _)) in self.standings() {
            let held = standing.left.saturating_add(self.pool.left(&namespace));
            let is_home = view.is_home(&self.ctx.me.region, &namespace);
            let lasts = |left| plan::runway_seconds(left, standing.rate).filter(|_| is_home);
            let (runway, whole) = (lasts(standing.left), lasts(held));
            meter::instance(&self.ctx.me.region, &namespace, standing.rate, standing.left, runway, whole);
        }
    }
}

fn dry(why: &str) -> AgentError {
    problem(Code::SegmentDry, format!("nothing left here: {why}"))
}

/// A UUIDv7 names a new request for a range.
fn fresh_allocation(ctx: &Context) -> AllocationId {
    let now = ctx.now().wall_ms;
    loop {
        // The entropy door makes version 7 only; the loop is for the type.
        if let Ok(id) = AllocationId::new(ctx.entropy.uuid_v7(now)) {
            return id;
        }
    }
}
