//! A handle to a time-based namespace: IDs that say when they were made, stamped in this process.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cadastre_core::ids::Name;

use crate::error::{Error, ErrorKind};
use crate::id::Id;
use crate::metrics;
use crate::post::{Attempt, Post};
use crate::process::Process;
use crate::system;

/// A time-based namespace (of kind `snowflake`) in this process. Cheap to clone, shared by threads and tasks.
///
/// An agent gives the process a worker id and a window of time, a minute by default, and renews it long before it ends.
/// Only units of that window are ever stamped, so a process that was paused, or whose clock was set back, repeats
/// nothing; cut off from every agent it goes on to its window's end and stops there by itself. IDs rise strictly over all
/// handles of a process.
#[derive(Clone)]
pub struct Stamps {
    process: Arc<Process>,
    post: Arc<Post>,
    deadline: Duration,
}

impl fmt::Debug for Stamps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stamps").field("name", &self.post.name.as_str()).finish_non_exhaustive()
    }
}

impl Stamps {
    pub(crate) fn open(process: Arc<Process>, name: &Name) -> Result<Stamps, Error> {
        let post = process.post(name)?;
        let deadline = process.shared.settings.deadline;
        Ok(Stamps { process, post, deadline })
    }

    /// The namespace's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.post.name.as_str()
    }

    /// The same handle with another deadline for its calls.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Stamps {
        self.deadline = deadline;
        self
    }

    /// The next ID if it can be stamped now: never waits, never asks. `None` also where this millisecond's are used up, in
    /// a forked child and after a shutdown; the other forms say why.
    #[inline]
    #[must_use]
    pub fn try_next(&self) -> Option<Id> {
        if self.process.is_here() { self.post.one(system::wall_ms()) } else { None }
    }

    /// The next ID. Waits for the clock where a millisecond's IDs are used up, and for a window where there is none.
    ///
    /// # Errors
    /// `clock_rollback` where the clock is behind the last ID by more than 50 ms; why no agent gives a window
    /// ([`ErrorKind::Refused`], [`ErrorKind::Unreachable`]), or [`ErrorKind::Deadline`].
    #[inline]
    pub async fn next(&self) -> Result<Id, Error> {
        match self.try_next() {
            Some(id) => Ok(id),
            None => self.late().await,
        }
    }

    async fn late(&self) -> Result<Id, Error> {
        let own = self.here()?;
        let deadline_ms = own.deadline_ms();
        loop {
            let changed = own.post.changed.task();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match own.step(deadline_ms)? {
                Next::Id(id) => return Ok(id),
                Next::Sleep(wait) => tokio::time::sleep(wait).await,
                Next::Wait(left) => drop(tokio::time::timeout(left, changed).await),
            }
        }
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
        let deadline_ms = own.deadline_ms();
        loop {
            let seen = own.post.changed.count();
            match own.step(deadline_ms)? {
                Next::Id(id) => return Ok(id),
                Next::Sleep(wait) => std::thread::sleep(wait),
                Next::Wait(left) => own.post.changed.wait(seen, left),
            }
        }
    }

    /// Whether a window is held, so that the next call need not ask anybody.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.process.is_here() && self.post.is_held(system::wall_ms())
    }

    /// This handle, or in a forked child the one of its own process.
    fn here(&self) -> Result<Stamps, Error> {
        if self.process.is_here() {
            return Ok(self.clone());
        }
        Ok(Stamps::open(self.process.current()?, &self.post.name)?.with_deadline(self.deadline))
    }

    fn deadline_ms(&self) -> u64 {
        system::mono_ms().saturating_add(u64::try_from(self.deadline.as_millis()).unwrap_or(u64::MAX))
    }

    /// An ID, or what to wait for.
    fn step(&self, deadline_ms: u64) -> Result<Next, Error> {
        match self.post.attempt(system::wall_ms()) {
            Attempt::Stamped(id) => return Ok(Next::Id(id)),
            Attempt::Refused(error) => return Err(error),
            Attempt::Clock(ms) => return Ok(Next::Sleep(Duration::from_millis(ms))),
            Attempt::Window => {}
        }
        let now_ms = system::mono_ms();
        self.post.want(now_ms, deadline_ms)?;
        self.process.shared.wake.notify_one();
        metrics::waited(&self.post.name);
        let left_ms = deadline_ms.saturating_sub(now_ms);
        if left_ms == 0 {
            return Err(ErrorKind::Deadline { waited: self.deadline, why: self.post.why() }.into());
        }
        Ok(Next::Wait(Duration::from_millis(left_ms)))
    }
}

enum Next {
    Id(Id),
    Sleep(Duration),
    Wait(Duration),
}
