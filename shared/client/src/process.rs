//! What belongs to one process: its namespaces, its incarnation, and the thread that refills them.
//!
//! A fork leaves the child with memory that is its parent's: cursors, locks that a thread which is gone may hold, a
//! runtime without threads. So nothing of it is used there. A [`Process`] knows whether it is here ([`Here`]); in
//! a child [`Process::current`] makes another one, with its own incarnation, cursors, connections and thread, and
//! remembers it as the successor, so that every handle of the parent's finds the same one.
//!
//! The refills run on a thread of their own with a small runtime. So the blocking calls need no runtime, a client
//! outlives the runtime that it was made in, and a busy one does not hold refills up.
//!
//! Absent on purpose: the way of an ID, and what is said to agents.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use cadastre_core::ids::{Incarnation, Name};
use cadastre_core::refill::RefillPolicy;
use cadastre_tls::ClientConfig;
use tokio::sync::Notify;

use crate::entry::{Entry, Turn, closed};
use crate::error::Error;
use crate::fork::Here;
use crate::post::Post;
use crate::system;
use crate::testing::InMemory;
use crate::wire::Token;
use crate::worker;

/// Where segments come from.
#[derive(Clone)]
pub(crate) enum Agents {
    /// Addresses, in the order of preference, the token for all of them, and whom to believe over TLS.
    Http(Vec<String>, Token, Box<ClientConfig>),
    /// A double.
    Memory(InMemory),
}

/// What a client was built with.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) agents: Agents,
    pub(crate) instance: Name,
    pub(crate) deadline: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) policy: RefillPolicy,
    pub(crate) namespaces: Vec<Name>,
}

/// What callers and the worker share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    /// Something is to be done: the worker ends, or looks at what was touched.
    pub(crate) wake: Notify,
    touched: Mutex<Vec<Arc<Entry>>>,
    /// The worker ended.
    pub(crate) ended: Turn,
    entries: RwLock<BTreeMap<Name, Arc<Entry>>>,
    posts: RwLock<BTreeMap<Name, Arc<Post>>>,
    phase: Mutex<Phase>,
}

/// The life of a process's worker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    /// It works.
    Running,
    /// It is to end.
    Stopping,
    /// It ended.
    Ended,
}

impl Shared {
    fn phase_mut(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase_mut()
    }

    /// Has the worker look at a namespace now.
    pub(crate) fn touch(&self, entry: &Arc<Entry>) {
        self.touched.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(entry));
        self.wake.notify_one();
    }

    /// What was touched since this was last asked.
    pub(crate) fn take_touched(&self) -> Vec<Arc<Entry>> {
        std::mem::take(&mut *self.touched.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells the worker to end.
    pub(crate) fn stop(&self) {
        let mut phase = self.phase_mut();
        if *phase == Phase::Running {
            *phase = Phase::Stopping;
        }
        drop(phase);
        self.wake.notify_one();
    }

    /// The worker's last word.
    pub(crate) fn end(&self) {
        *self.phase_mut() = Phase::Ended;
        for entry in self.entries() {
            entry.close();
        }
        for post in self.posts() {
            post.close();
        }
        self.ended.next();
    }

    pub(crate) fn posts(&self) -> Vec<Arc<Post>> {
        self.posts.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(crate) fn entries(&self) -> Vec<Arc<Entry>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

/// See the module.
pub(crate) struct Process {
    here: Here,
    pub(crate) shared: Arc<Shared>,
    successor: OnceLock<Arc<Process>>,
}

impl Process {
    /// Starts the worker of this process.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) where the machine gives no thread, or no connections.
    pub(crate) fn start(settings: Settings) -> Result<Arc<Process>, Error> {
        // Read once before any fork could interrupt the first reading.
        system::mono_ms();
        let shared = Arc::new(Shared {
            wake: Notify::new(),
            touched: Mutex::default(),
            ended: Turn::default(),
            entries: RwLock::default(),
            posts: RwLock::default(),
            phase: Mutex::new(Phase::Running),
            settings,
        });
        let process = Process { here: Here::new(), shared: Arc::clone(&shared), successor: OnceLock::new() };
        for name in &shared.settings.namespaces {
            let entry = process.entry(name)?;
            entry.warm_up(system::mono_ms());
            shared.touch(&entry);
        }
        worker::start(shared)?;
        Ok(Arc::new(process))
    }

    /// Whether this is the process that the segments here were given to: one load.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.here.is()
    }

    /// The one that belongs to the process that asks: itself, or in a forked child a fresh one.
    ///
    /// # Errors
    /// Those of [`Self::start`].
    pub(crate) fn current(self: &Arc<Self>) -> Result<Arc<Process>, Error> {
        let mut process = self;
        loop {
            if process.is_here() {
                return Ok(Arc::clone(process));
            }
            if process.successor.get().is_none() {
                // Made outside of the cell: whoever forks again meanwhile must not inherit a cell in the making.
                // Of two threads that come first together one's work is dropped.
                let fresh = Process::start(process.shared.settings.clone())?;
                let _ = process.successor.set(fresh);
            }
            let Some(successor) = process.successor.get() else { return Err(closed()) };
            process = successor;
        }
    }

    /// The entry of a namespace, made on its first use.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) after a shutdown.
    pub(crate) fn entry(&self, name: &Name) -> Result<Arc<Entry>, Error> {
        let known = self.shared.entries.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        if let Some(entry) = known {
            return Ok(entry);
        }
        let mut entries = self.shared.entries.write().unwrap_or_else(PoisonError::into_inner);
        if self.shared.phase() != Phase::Running {
            return Err(closed());
        }
        let make = || Arc::new(Entry::new(name.clone(), self.shared.settings.policy));
        Ok(Arc::clone(entries.entry(name.clone()).or_insert_with(make)))
    }

    /// The post of a time-based namespace, made on its first use.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) after a shutdown.
    pub(crate) fn post(&self, name: &Name) -> Result<Arc<Post>, Error> {
        let mut posts = self.shared.posts.write().unwrap_or_else(PoisonError::into_inner);
        if self.shared.phase() != Phase::Running {
            return Err(closed());
        }
        let make = || Arc::new(Post::new(name.clone(), Incarnation(system::uuid_v4())));
        Ok(Arc::clone(posts.entry(name.clone()).or_insert_with(make)))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // In a child the locks may be held for ever by threads that are gone, and there is no worker to stop.
        if self.is_here() {
            self.shared.stop();
        }
    }
}
