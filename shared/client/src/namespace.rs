//! A handle to one namespace: the way of an ID, and waiting where memory has none.
//!
//! The fast path is one load (is this still the process that was given the segments?), the core's cursor (a load and
//! an atomic add), and a multiplication. Nothing is counted, locked or looked up.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cadastre_core::ids::Name;
use cadastre_core::range::Range;

use crate::chunks::Chunks;
use crate::entry::Entry;
use crate::error::{Error, ErrorKind};
use crate::id::{Id, Ids, Stretch};
use crate::lane::{Lane, Mapping};
use crate::metrics;
use crate::process::Process;
use crate::system;

/// The most IDs of one [`Namespace::next_n`].
pub const MAX_BATCH: usize = 10_000_000;

/// A namespace in this process. Cheap to clone, shared by threads and tasks.
///
/// IDs rise strictly over all handles of a process (fall, where the namespace's increment is negative): whatever is
/// asked for after something else was answered is higher, whichever region gave it.
///
/// In a forked child a handle works too, more slowly: make a new one there with [`Client::namespace`](crate::Client::namespace).
#[derive(Clone)]
pub struct Namespace {
    process: Arc<Process>,
    entry: Arc<Entry>,
    lane: Arc<Lane>,
    deadline: Duration,
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Namespace").field("name", &self.entry.name.as_str()).finish_non_exhaustive()
    }
}

impl Namespace {
    pub(crate) fn open(process: Arc<Process>, name: &Name) -> Result<Namespace, Error> {
        let entry = process.entry(name)?;
        Ok(Namespace::of(&process, &entry))
    }

    pub(crate) fn of(process: &Arc<Process>, entry: &Arc<Entry>) -> Namespace {
        Namespace {
            process: Arc::clone(process),
            entry: Arc::clone(entry),
            lane: entry.lane(),
            deadline: process.shared.settings.deadline,
        }
    }

    /// The namespace's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.entry.name.as_str()
    }

    /// The same handle with another deadline for its calls.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Namespace {
        self.deadline = deadline;
        self
    }

    /// The next ID if one is in memory: never waits, never asks. `None` also in a forked child and after a
    /// shutdown; the other forms say why.
    #[inline]
    #[must_use]
    pub fn try_next(&self) -> Option<Id> {
        if self.process.is_here() { self.lane.one() } else { None }
    }

    /// The next ID: from memory, at once, unless the segment is used up before the next one came.
    ///
    /// Needs a tokio runtime only where it has to wait.
    ///
    /// # Errors
    /// Where nothing is in memory: why no agent gives more ([`ErrorKind::Refused`](crate::ErrorKind::Refused), [`ErrorKind::Unreachable`](crate::ErrorKind::Unreachable)), or
    /// [`ErrorKind::Deadline`](crate::ErrorKind::Deadline).
    #[inline]
    pub async fn next(&self) -> Result<Id, Error> {
        match self.try_next() {
            Some(id) => Ok(id),
            None => {
                let own = self.here()?;
                own.wait(1, &mut || own.lane.one()).await
            }
        }
    }

    /// The next `n` IDs, consecutive but for the borders of segments; at most [`MAX_BATCH`].
    ///
    /// # Errors
    /// As [`Self::next`]. What was taken until then is a gap.
    pub async fn next_n(&self, n: usize) -> Result<Ids, Error> {
        let own = self.here()?;
        let mut batch = Batch::new(n)?;
        if batch.take(&own.lane) {
            return Ok(batch.done());
        }
        own.wait(batch.missing, &mut || batch.take(&own.lane).then_some(())).await?;
        Ok(batch.done())
    }

    /// As [`Self::next`], for code without a runtime. Where it waits it blocks the thread.
    ///
    /// # Errors
    /// As [`Self::next`].
    #[inline]
    pub fn next_blocking(&self) -> Result<Id, Error> {
        match self.try_next() {
            Some(id) => Ok(id),
            None => self.late_blocking(),
        }
    }

    #[cold]
    fn late_blocking(&self) -> Result<Id, Error> {
        let own = self.here()?;
        own.wait_blocking(1, &mut || own.lane.one())
    }

    /// As [`Self::next_n`], for code without a runtime.
    ///
    /// # Errors
    /// As [`Self::next_n`].
    pub fn next_n_blocking(&self, n: usize) -> Result<Ids, Error> {
        let own = self.here()?;
        let mut batch = Batch::new(n)?;
        if batch.take(&own.lane) {
            return Ok(batch.done());
        }
        own.wait_blocking(batch.missing, &mut || batch.take(&own.lane).then_some(()))?;
        Ok(batch.done())
    }

    /// A handle for one thread that takes `n` IDs at a time out of the shared segment, and hands them out without
    /// touching it: faster where many threads issue. Each such handle still rises; two of them overlap in time.
    #[must_use]
    pub fn chunks(&self, n: usize) -> Chunks {
        Chunks::new(self.clone(), n)
    }

    /// IDs in memory, standby included; a moment old where others issue.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.here().map_or(0, |own| own.entry.left())
    }

    /// This handle, or in a forked child the one of its own process.
    pub(crate) fn here(&self) -> Result<Namespace, Error> {
        if self.process.is_here() {
            return Ok(self.clone());
        }
        let own = Namespace::open(self.process.current()?, &self.entry.name)?;
        Ok(own.with_deadline(self.deadline))
    }

    /// Whether it is still the process that made it.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.process.is_here()
    }

    /// Up to `max` ordinals, from memory, and how they become values. The caller has seen that it is here.
    pub(crate) fn range(&self, max: u64) -> Option<(Range, Mapping)> {
        self.lane.range(max)
    }

    /// Waits until there is something in memory, and takes nothing.
    pub(crate) async fn until_held(&self) -> Result<(), Error> {
        self.wait(1, &mut || (self.entry.left() > 0).then_some(())).await
    }

    pub(crate) fn until_held_blocking(&self) -> Result<(), Error> {
        self.wait_blocking(1, &mut || (self.entry.left() > 0).then_some(()))
    }

    /// Waits until `take` gives something, as long as a refill can come, and no longer than the deadline.
    pub(crate) async fn wait<T>(&self, missing: u64, take: &mut (dyn FnMut() -> Option<T> + Send)) -> Result<T, Error> {
        let waiting = Waiting::begin(self, missing);
        loop {
            let changed = self.entry.changed.task();
            tokio::pin!(changed);
            // Before looking, so that nothing that comes in between is missed.
            changed.as_mut().enable();
            if let Some(taken) = take() {
                return Ok(taken);
            }
            let left = waiting.left()?;
            let _ = tokio::time::timeout(left, changed).await;
        }
    }

    pub(crate) fn wait_blocking<T>(&self, missing: u64, take: &mut dyn FnMut() -> Option<T>) -> Result<T, Error> {
        let waiting = Waiting::begin(self, missing);
        loop {
            let seen = self.entry.changed.count();
            if let Some(taken) = take() {
                return Ok(taken);
            }
            self.entry.changed.wait(seen, waiting.left()?);
        }
    }
}

/// One caller's wait.
struct Waiting<'a> {
    own: &'a Namespace,
    began_ms: u64,
    deadline_ms: u64,
    _missing: crate::entry::Missing<'a>,
}

impl<'a> Waiting<'a> {
    fn begin(own: &'a Namespace, missing: u64) -> Waiting<'a> {
        let began_ms = system::mono_ms();
        let wait_ms = u64::try_from(own.deadline.as_millis()).unwrap_or(u64::MAX);
        let _missing = own.entry.miss(missing, began_ms);
        metrics::waited(&own.entry.name);
        Waiting { own, began_ms, deadline_ms: began_ms.saturating_add(wait_ms), _missing }
    }

    /// How long it may still wait.
    fn left(&self) -> Result<Duration, Error> {
        let now_ms = system::mono_ms();
        self.own.entry.outlook(now_ms, self.deadline_ms)?;
        // What is wanted is the worker's to do.
        self.own.process.shared.touch(&self.own.entry);
        let left_ms = self.deadline_ms.saturating_sub(now_ms);
        if left_ms == 0 {
            let waited = Duration::from_millis(now_ms.saturating_sub(self.began_ms));
            return Err(ErrorKind::Deadline { waited, why: self.own.entry.why() }.into());
        }
        Ok(Duration::from_millis(left_ms))
    }
}

/// Many IDs in the making.
struct Batch {
    stretches: Vec<Stretch>,
    missing: u64,
}

impl Batch {
    fn new(n: usize) -> Result<Batch, Error> {
        if n == 0 || n > MAX_BATCH {
            return Err(Error::config("n", format!("{n}: from 1 to {MAX_BATCH} IDs at a time")));
        }
        Ok(Batch { stretches: vec![], missing: n as u64 })
    }

    /// Takes what there is; whether it is all.
    fn take(&mut self, lane: &Lane) -> bool {
        while self.missing > 0 {
            let Some(stretch) = lane.many(self.missing) else { return false };
            self.missing -= stretch.len;
            self.stretches.push(stretch);
        }
        true
    }

    fn done(self) -> Ids {
        Ids::new(self.stretches)
    }
}
