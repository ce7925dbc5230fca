//! What every protocol's door calls: ids for an authenticated service, waiting a bounded time for a refill.
//!
//! Invariant: the path of one id touches memory only; nobody waits unless a refill is under way and the tier
//! above answered within the last two heartbeats. What was taken for a request that then fails is a gap, and
//! is counted. This is an outer layer: it uses timers.

use std::sync::Arc;
use std::time::Duration;

use cadastre_core::ids::Name;
use cadastre_core::namespace::{NamespaceEntry, NamespaceKind};
use cadastre_core::range::Range;
use cadastre_protocol::error::Code;
use tokio::time::{Sleep, sleep};

use crate::agent::Agent;
use crate::auth::Service;
use crate::context::View;
use crate::error::{AgentError, problem};
use crate::issuer::{Entry, Outlook};
use crate::metrics as meter;
use crate::sizing;

/// How long a caller waits for a refill where it does not say otherwise.
pub const DEFAULT_WAIT: Duration = Duration::from_millis(250);
/// Stretches that are too short, and are passed over for one run; each is a gap.
const MAX_PASSED_OVER: u32 = 4;

/// Ordinals that were taken, and the view of after that. A view from before may not know the definition that they
/// were granted under, and would give them values that others have: a segment is carved only under the roster that
/// the store has, so whatever is in memory is known to every view that is looked at later.
pub struct Taken<'n> {
    /// The ordinals; of a time-based namespace the values themselves.
    pub ranges: Vec<Range>,
    view: Arc<View>,
    namespace: &'n Name,
    stamped: bool,
}

/// Values that follow one another: `first`, `first + increment`, ... `last`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stretch {
    /// The first.
    pub first: i64,
    /// The last, included.
    pub last: i64,
    /// The step, never 0.
    pub increment: i64,
}

impl Stretch {
    /// Every value, in order.
    pub fn values(self) -> impl Iterator<Item = i64> {
        let next = move |value: &i64| (*value != self.last).then(|| value.wrapping_add(self.increment));
        std::iter::successors(Some(self.first), next)
    }
}

impl Taken<'_> {
    /// The namespace, with every version of its definition.
    ///
    /// # Errors
    /// `internal` where it is gone, which no namespace ever is.
    pub fn settings(&self) -> Result<&NamespaceEntry, AgentError> {
        self.view.roster.namespace(self.namespace).ok_or_else(internal)
    }

    /// The value of one of the ordinals.
    ///
    /// # Errors
    /// `internal` where it has none: it was never granted then.
    pub fn value(&self, ordinal: u64) -> Result<i64, AgentError> {
        if self.stamped {
            return i64::try_from(ordinal).map_err(|_| internal());
        }
        self.settings()?.definition.value_at(ordinal).ok_or_else(internal)
    }

    /// The values of all, in order: looked up once for each stretch, not for each of ten thousand.
    ///
    /// # Errors
    /// As [`Self::value`]; nothing is to be answered then.
    pub fn each(&self, mut stretch: impl FnMut(Stretch)) -> Result<(), AgentError> {
        if self.stamped {
            for range in &self.ranges {
                let (first, last) = (self.value(range.lo())?, self.value(range.hi() - 1)?);
                stretch(Stretch { first, last, increment: 1 });
            }
            return Ok(());
        }
        let definition = &self.settings()?.definition;
        for range in &self.ranges {
            let mut rest = Some(*range);
            while let Some(range) = rest {
                let part = definition.clip(range);
                let (first, last) = definition.first_last(part).ok_or_else(internal)?;
                let increment = definition.version_of(part.lo()).sequence().increment();
                stretch(Stretch { first, last, increment });
                rest = Range::new(part.hi(), range.hi()).ok();
            }
        }
        Ok(())
    }
}

/// The agent as its doors see it.
#[derive(Clone)]
pub struct Front {
    agent: Arc<Agent>,
}

impl Front {
    /// A front of an agent.
    #[must_use]
    pub fn new(agent: Arc<Agent>) -> Self {
        Self { agent }
    }

    /// The agent.
    #[must_use]
    pub fn agent(&self) -> &Arc<Agent> {
        &self.agent
    }

    /// Refuses every service once the authority has been silent for too long: a revocation could not have
    /// reached this region.
    ///
    /// # Errors
    /// `unauthenticated`.
    pub fn tokens_hold(&self) -> Result<(), AgentError> {
        let ctx = &self.agent.ctx;
        let Some(answered) = ctx.health_mut().answered_at_ms else { return Ok(()) };
        if ctx.now().wall_ms.saturating_sub(answered) <= ctx.times.offline_auth_ms {
            return Ok(());
        }
        let text = format!(
            "this region has not heard from its authority for more than {} seconds, and lets nobody in until it does",
            ctx.times.offline_auth_ms / 1_000
        );
        Err(problem(Code::Unauthenticated, text))
    }

    /// The namespace, if the service may be given ids of it here and now.
    ///
    /// # Errors
    /// As the contract says; `forbidden` comes before everything that tells whether the namespace exists.
    pub fn admitted<'v>(
        &self,
        view: &'v View,
        service: &Service,
        namespace: &Name,
    ) -> Result<&'v NamespaceEntry, AgentError> {
        self.tokens_hold()?;
        service.admits(namespace)?;
        let region = &self.agent.ctx.me.region;
        view.issuable(region, namespace).map_err(|error| match &error {
            AgentError::Problem(why) if why.code == Code::NotHome => {
                let home = view.roster.namespace(namespace).and_then(|entry| entry.home.as_deref()).unwrap_or_default();
                self.agent.ctx.orders.not_home(namespace, region, home).into()
            }
            _ => error,
        })
    }

    /// One value.
    ///
    /// # Errors
    /// As [`Self::many`].
    pub async fn one(
        &self,
        view: &View,
        service: &Service,
        namespace: &Name,
        wait: Duration,
    ) -> Result<i64, AgentError> {
        let settings = self.admitted(view, service, namespace)?;
        if settings.kind != NamespaceKind::Range {
            let taken = self.stamped(view, settings, namespace, 1, wait).await?;
            return taken.ranges.first().map_or_else(|| Err(internal()), |range| taken.value(range.lo()));
        }
        let entry = self.agent.issuer.entry(view, settings, namespace, &service.name)?;
        let ordinal = match entry.one() {
            Some(ordinal) => {
                self.agent.issuer.note(&entry, settings, 1);
                ordinal
            }
            None => {
                self.wait_for(&entry, settings, 1, vec![], wait).await?.first().map(Range::lo).ok_or_else(internal)?
            }
        };
        self.taken(namespace, vec![]).value(ordinal)
    }

    /// What was just taken of a namespace, with what maps it to values; to be asked for after the taking.
    #[must_use]
    pub fn taken<'n>(&self, namespace: &'n Name, ranges: Vec<Range>) -> Taken<'n> {
        Taken { ranges, view: self.agent.ctx.view(), namespace, stamped: false }
    }

    /// `count` ordinals, in one or several stretches, each within one version of the definition.
    ///
    /// # Errors
    /// Whatever keeps this region from giving them out within `wait`.
    pub async fn many<'n>(
        &self,
        view: &View,
        service: &Service,
        namespace: &'n Name,
        count: u64,
        wait: Duration,
    ) -> Result<Taken<'n>, AgentError> {
        let settings = self.admitted(view, service, namespace)?;
        if settings.kind != NamespaceKind::Range {
            return self.stamped(view, settings, namespace, count, wait).await;
        }
        let entry = self.agent.issuer.entry(view, settings, namespace, &service.name)?;
        let mut ranges = Vec::new();
        // What memory holds is taken without a place in the queue of those who wait, and without a timer.
        if entry.left().total() >= count {
            let got = entry.many(count, &mut ranges);
            self.agent.issuer.note(&entry, settings, got);
        }
        let ranges = self.wait_for(&entry, settings, count, ranges, wait).await?;
        Ok(self.taken(namespace, ranges))
    }

    /// Ids of a time-based namespace.
    async fn stamped<'n>(
        &self,
        view: &View,
        settings: &NamespaceEntry,
        namespace: &'n Name,
        count: u64,
        wait: Duration,
    ) -> Result<Taken<'n>, AgentError> {
        if settings.kind != NamespaceKind::Snowflake {
            let text = format!("ids of {namespace} are UUIDs, and this call gives numbers; ask with POST /v1/ids");
            return Err(problem(Code::InvalidRequest, text));
        }
        let ranges = self.agent.stamps.ids(view, settings, namespace, count, wait).await?;
        Ok(Taken { stamped: true, ..self.taken(namespace, ranges) })
    }

    /// `count` values that follow one another in steps of 1, out of one segment; the last of them. What is too
    /// short is passed over: a gap, as the cursor only goes forward.
    ///
    /// # Errors
    /// As [`Self::many`]; `invalid_request` where values do not rise by 1, `payload_too_large` where no segment
    /// has so many.
    pub async fn run(
        &self,
        view: &View,
        service: &Service,
        namespace: &Name,
        count: u64,
        wait: Duration,
    ) -> Result<i64, AgentError> {
        let settings = self.admitted(view, service, namespace)?;
        if settings.kind != NamespaceKind::Range {
            let text = "ids here are time-based, and a run must rise by 1; take them one by one";
            return Err(problem(Code::InvalidRequest, text));
        }
        let entry = self.agent.issuer.entry(view, settings, namespace, &service.name)?;
        let space = view.space_left(namespace, settings).saturating_add(self.agent.pool.left(namespace));
        let most = sizing::largest_segment(settings, space);
        let mut burned = 0;
        let result = self.run_of(&entry, settings, count, most, wait, &mut burned).await;
        if burned > 0 {
            meter::burned(&self.agent.ctx.me.region, namespace, burned);
        }
        result
    }

    async fn run_of(
        &self,
        entry: &Entry,
        settings: &NamespaceEntry,
        count: u64,
        most: u64,
        wait: Duration,
        burned: &mut u64,
    ) -> Result<i64, AgentError> {
        let issuer = &self.agent.issuer;
        let deadline = sleep(wait);
        tokio::pin!(deadline);
        let mut passed_over = 0;
        loop {
            let changed = entry.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let left = entry.left();
            by_ones(settings, (left.active > 0).then_some(left.next))?;
            let outlook = self.may_take(entry, count);
            let fits = left.active >= count || left.standby >= count;
            if !fits {
                if entry.is_closed() {
                    return Err(problem(Code::SegmentDry, "the region's epoch has just risen; ask again"));
                }
                if let Outlook::Refused(error) = outlook.unwrap_or_else(|| issuer.outlook(entry)) {
                    let _missing = issuer.miss(entry, settings, count);
                    return Err(self.as_far_as(entry, 0, error));
                }
                if count > most {
                    let text = format!("no segment of {} has more than {most} ids; ask for fewer", entry.namespace);
                    return Err(problem(Code::PayloadTooLarge, text));
                }
            }
            // A standby that is too short stands in the way of one that is not.
            if fits || left.standby > 0 {
                let taken = entry.run(count);
                issuer.note(entry, settings, taken.map_or(0, |range| range.len()));
                if let Some(range) = taken {
                    let taken = self.taken(&entry.namespace, vec![range]);
                    if range.len() == count && is_by_ones(taken.settings()?, range) {
                        return taken.value(range.hi() - 1);
                    }
                    *burned += range.len();
                }
                passed_over += 1;
                if passed_over <= MAX_PASSED_OVER {
                    continue;
                }
                return Err(problem(Code::SegmentDry, "no segment that came was long enough; ask for fewer at once"));
            }
            let _missing = issuer.miss(entry, settings, count);
            if !came_first(changed, deadline.as_mut()).await {
                return Err(problem(Code::SegmentDry, "a refill is under way and did not come in time; ask again"));
            }
        }
    }

    async fn wait_for(
        &self,
        entry: &Entry,
        settings: &NamespaceEntry,
        count: u64,
        mut ranges: Vec<Range>,
        wait: Duration,
    ) -> Result<Vec<Range>, AgentError> {
        let mut got = ranges.iter().map(Range::len).sum::<u64>();
        if got == count {
            return Ok(ranges);
        }
        let issuer = &self.agent.issuer;
        let deadline = sleep(wait);
        tokio::pin!(deadline);
        loop {
            let changed = entry.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let outlook = self.may_take(entry, count - got);
            // Where it cannot be filled, taking a part would only waste it.
            if got > 0 || outlook.is_none() {
                let taken = entry.many(count - got, &mut ranges);
                got += taken;
                issuer.note(entry, settings, taken);
            }
            if got == count {
                return Ok(ranges);
            }
            let _missing = issuer.miss(entry, settings, count - got);
            let error = if entry.is_closed() {
                problem(Code::SegmentDry, "the region's epoch has just risen; ask again")
            } else {
                match outlook.unwrap_or_else(|| issuer.outlook(entry)) {
                    Outlook::Refused(error) => self.as_far_as(entry, got, error),
                    Outlook::Wait if came_first(changed, deadline.as_mut()).await => continue,
                    Outlook::Wait => {
                        problem(Code::SegmentDry, "a refill is under way and did not come in time; ask again")
                    }
                }
            };
            meter::burned(&self.agent.ctx.me.region, &entry.namespace, got);
            return Err(error);
        }
    }

    /// Used up for good is a space of which nothing is left here: before that, fewer can still be had.
    fn as_far_as(&self, entry: &Entry, lost: u64, error: AgentError) -> AgentError {
        let left = entry.left().total().saturating_add(self.agent.pool.left(&entry.namespace));
        match &error {
            AgentError::Problem(why) if why.code == Code::Exhausted && left > 0 && lost == 0 => {
                let text = format!("the space is used up but for {left} ids that this region holds; ask for fewer");
                problem(Code::SegmentDry, text)
            }
            _ => error,
        }
    }

    /// `None` where memory holds `count` ordinals, or memory and region together do and may be asked. Else
    /// nothing is to be taken yet: whether to wait for the tier above.
    fn may_take(&self, entry: &Entry, count: u64) -> Option<Outlook> {
        let here = entry.left().total();
        if here >= count {
            return None;
        }
        let issuer = &self.agent.issuer;
        if here.saturating_add(self.agent.pool.left(&entry.namespace)) < count {
            self.agent.ctx.link_wake.notify_one();
            return Some(issuer.above(&entry.namespace));
        }
        match issuer.outlook(entry) {
            Outlook::Wait => None,
            refused @ Outlook::Refused(_) => Some(refused),
        }
    }
}

fn internal() -> AgentError {
    problem(Code::Internal, "a segment without a value; this is a fault of ours")
}

/// Whether these ordinals have values that rise by 1.
fn is_by_ones(settings: &NamespaceEntry, range: Range) -> bool {
    let definition = &settings.definition;
    definition.clip(range) == range && definition.version_of(range.lo()).sequence().increment() == 1
}

/// Refuses a run before anything is taken for it: from `next` on, or from what is granted next.
fn by_ones(settings: &NamespaceEntry, next: Option<u64>) -> Result<(), AgentError> {
    let definition = &settings.definition;
    let version = next.map_or_else(|| definition.current(), |next| definition.version_of(next));
    match version.sequence().increment() {
        1 => Ok(()),
        step => {
            let text = format!("values here go in steps of {step}, and a run must rise by 1; take them one by one");
            Err(problem(Code::InvalidRequest, text))
        }
    }
}

/// Whether `changed` came before the deadline.
async fn came_first(changed: impl Future<Output = ()>, deadline: std::pin::Pin<&mut Sleep>) -> bool {
    tokio::select! {
        () = changed => true,
        () = deadline => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_ends_with_its_last_value_at_the_edges_too() {
        let values = |first, last, increment| Stretch { first, last, increment }.values().collect::<Vec<_>>();
        assert_eq!(values(5, 5, 1), [5]);
        assert_eq!(values(i64::MAX - 1, i64::MAX, 1), [i64::MAX - 1, i64::MAX]);
        assert_eq!(values(i64::MIN + 6, i64::MIN, -3), [i64::MIN + 6, i64::MIN + 3, i64::MIN]);
    }
}
