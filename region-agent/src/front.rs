//! What every protocol's door calls: ids for an authenticated service, waiting a bounded time for a refill.
//!
//! Invariant: the path of one id touches memory only; nobody waits unless a refill is under way and the tier
//! above answered within the last two heartbeats. What was taken for a request that then fails is a gap, and
//! is counted. This is an outer layer: it uses timers.

use std::sync::Arc;
use std::time::Duration;

use cadastre_core::ids::Name;
use cadastre_core::namespace::NamespaceEntry;
use cadastre_core::range::Range;
use cadastre_protocol::error::Code;
use cadastre_protocol::ids::ValueRange;
use tokio::time::{Sleep, sleep};

use crate::agent::Agent;
use crate::auth::Service;
use crate::context::View;
use crate::error::{AgentError, problem};
use crate::issuer::{Entry, Outlook};
use crate::metrics as meter;

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
        view.issuable(&self.agent.ctx.me.region, namespace)
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
        let entry = self.agent.issuer.entry(view, settings, namespace, &service.name)?;
        if let Some(ordinal) = entry.one() {
            self.agent.issuer.note(&entry, settings, 1);
            return value(settings, ordinal);
        }
        let ranges = self.wait_for(&entry, settings, 1, wait).await?;
        let ordinal = ranges.first().map(Range::lo).ok_or_else(internal)?;
        value(settings, ordinal)
    }

    /// `count` ordinals, in one or several stretches, each within one version of the definition.
    ///
    /// # Errors
    /// Whatever keeps this region from giving them out within `wait`.
    pub async fn many<'v>(
        &self,
        view: &'v View,
        service: &Service,
        namespace: &Name,
        count: u64,
        wait: Duration,
    ) -> Result<(Vec<Range>, &'v NamespaceEntry), AgentError> {
        let settings = self.admitted(view, service, namespace)?;
        let entry = self.agent.issuer.entry(view, settings, namespace, &service.name)?;
        Ok((self.wait_for(&entry, settings, count, wait).await?, settings))
    }

    async fn wait_for(
        &self,
        entry: &Entry,
        settings: &NamespaceEntry,
        count: u64,
        wait: Duration,
    ) -> Result<Vec<Range>, AgentError> {
        let issuer = &self.agent.issuer;
        let deadline = sleep(wait);
        tokio::pin!(deadline);
        let (mut ranges, mut got) = (Vec::new(), 0);
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
                    Outlook::Refused(error) => error,
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

/// The value of an ordinal.
///
/// # Errors
/// `internal` where it has none: it was never granted then.
pub fn value(settings: &NamespaceEntry, ordinal: u64) -> Result<i64, AgentError> {
    settings.definition.value_at(ordinal).ok_or_else(internal)
}

/// The stretches of values that ranges of ordinals stand for.
///
/// # Errors
/// `internal` where one has none.
pub fn value_ranges(settings: &NamespaceEntry, ranges: &[Range]) -> Result<Vec<ValueRange>, AgentError> {
    let mut all = Vec::with_capacity(ranges.len());
    for range in ranges {
        let mut rest = Some(*range);
        while let Some(range) = rest {
            let part = settings.definition.clip(range);
            let (first, last) = settings.definition.first_last(part).ok_or_else(internal)?;
            let increment = settings.definition.version_of(part.lo()).sequence().increment();
            all.push(ValueRange { first: first.to_string(), last: last.to_string(), increment: increment.to_string() });
            rest = Range::new(part.hi(), range.hi()).ok();
        }
    }
    Ok(all)
}

/// Whether `changed` came before the deadline.
async fn came_first(changed: impl Future<Output = ()>, deadline: std::pin::Pin<&mut Sleep>) -> bool {
    tokio::select! {
        () = changed => true,
        () = deadline => false,
    }
}
