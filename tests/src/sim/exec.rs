//! A deterministic executor: tasks, virtual time, one random source.
//!
//! Everything that waits in a simulated process waits here, so the order of all steps follows from
//! the seed alone. A task belongs to a process; killing the process drops its tasks wherever they
//! stand, which is what `kill -9` does to a future at an await.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// A simulated process; its tasks die with it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub struct ProcessId(pub u64);

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Task {
    process: ProcessId,
    work: Option<Work>,
}

/// What the whole world shares.
struct Inner {
    now_us: u64,
    random: u64,
    next: u64,
    tasks: BTreeMap<u64, Task>,
    timers: BTreeMap<(u64, u64), Waker>,
    paused: std::collections::BTreeSet<ProcessId>,
    held_back: Vec<u64>,
    polls: u64,
}

/// Tasks that may go on, in the order in which they were woken.
type Ready = Arc<Mutex<Vec<u64>>>;

struct Wakeup {
    task: u64,
    ready: Ready,
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if !ready.contains(&self.task) {
            ready.push(self.task);
        }
    }
}

/// The executor. Cheap to clone; all clones are one world.
#[derive(Clone)]
pub struct Sim {
    inner: Arc<Mutex<Inner>>,
    ready: Ready,
}

/// One step of splitmix64: small, fast, and the same everywhere.
#[must_use]
pub fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Sim {
    /// A world at time 0 whose randomness follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let inner = Inner {
            now_us: 0,
            random: seed,
            next: 0,
            tasks: BTreeMap::new(),
            timers: BTreeMap::new(),
            paused: std::collections::BTreeSet::new(),
            held_back: Vec::new(),
            polls: 0,
        };
        Self { inner: Arc::new(Mutex::new(inner)), ready: Arc::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Virtual time since the start, in milliseconds.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.inner().now_us / 1_000
    }

    /// How often a task was polled: the simulator's measure of work.
    #[must_use]
    pub fn polls(&self) -> u64 {
        self.inner().polls
    }

    /// The next random number.
    #[must_use]
    pub fn random(&self) -> u64 {
        splitmix(&mut self.inner().random)
    }

    /// A random number below `n`; 0 where `n` is 0.
    #[must_use]
    pub fn below(&self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.random() % n }
    }

    /// True once in `n` times.
    #[must_use]
    pub fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Begins a new stretch of randomness. Each operation of a run does, so that leaving one out
    /// leaves the others as they were.
    pub fn reseed(&self, seed: u64) {
        self.inner().random = seed;
    }

    /// A fresh process.
    #[must_use]
    pub fn process(&self) -> ProcessId {
        let mut inner = self.inner();
        inner.next += 1;
        ProcessId(inner.next)
    }

    /// Starts a task of a process.
    pub fn spawn(&self, process: ProcessId, work: impl Future<Output = ()> + Send + 'static) {
        let id = {
            let mut inner = self.inner();
            inner.next += 1;
            let id = inner.next;
            inner.tasks.insert(id, Task { process, work: Some(Box::pin(work)) });
            id
        };
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).push(id);
    }

    /// Drops every task of a process, wherever it stands.
    pub fn kill(&self, process: ProcessId) {
        let dropped: Vec<Task> = {
            let mut inner = self.inner();
            inner.paused.remove(&process);
            let ids: Vec<u64> = inner.tasks.iter().filter(|(_, t)| t.process == process).map(|(id, _)| *id).collect();
            ids.into_iter().filter_map(|id| inner.tasks.remove(&id)).collect()
        };
        // Dropped outside the lock: a future's drop may spawn or wake.
        drop(dropped);
    }

    /// Ends the world: every task is dropped. Tasks hold the world that holds them, so a world that is not
    /// ended is never freed.
    pub fn end(&self) {
        let dropped = {
            let mut inner = self.inner();
            (std::mem::take(&mut inner.tasks), std::mem::take(&mut inner.timers))
        };
        drop(dropped);
        self.inner().timers.clear();
    }

    /// Stops a process where it stands (SIGSTOP), or lets it go on.
    pub fn pause(&self, process: ProcessId, on: bool) {
        let mut inner = self.inner();
        if on {
            inner.paused.insert(process);
        } else if inner.paused.remove(&process) {
            let woken = std::mem::take(&mut inner.held_back);
            drop(inner);
            self.ready.lock().unwrap_or_else(PoisonError::into_inner).extend(woken);
        }
    }

    /// Whether a process stands still.
    #[must_use]
    pub fn is_paused(&self, process: ProcessId) -> bool {
        self.inner().paused.contains(&process)
    }

    /// How many tasks a process has.
    #[must_use]
    pub fn tasks_of(&self, process: ProcessId) -> usize {
        self.inner().tasks.values().filter(|t| t.process == process).count()
    }

    /// Waits for virtual time to pass.
    pub fn sleep_us(&self, us: u64) -> Sleep {
        let mut inner = self.inner();
        inner.next += 1;
        Sleep { sim: self.clone(), at: (inner.now_us + us, inner.next), set: false }
    }

    /// Waits for virtual time to pass.
    pub fn sleep_ms(&self, ms: u64) -> Sleep {
        self.sleep_us(ms.saturating_mul(1_000))
    }

    /// Runs everything that can run until `ms` of virtual time have passed.
    pub fn run_for_ms(&self, ms: u64) {
        let end = self.inner().now_us + ms * 1_000;
        loop {
            while self.poll_one() {}
            let mut inner = self.inner();
            match inner.timers.first_key_value().map(|(at, _)| *at) {
                Some(at) if at.0 <= end => {
                    inner.now_us = inner.now_us.max(at.0);
                    let waker = inner.timers.remove(&at);
                    drop(inner);
                    if let Some(waker) = waker {
                        waker.wake();
                    }
                }
                _ => {
                    inner.now_us = end;
                    return;
                }
            }
        }
    }

    /// Runs until `done` holds, for at most `ms` of virtual time. Returns whether it held.
    pub fn run_until(&self, ms: u64, mut done: impl FnMut() -> bool) -> bool {
        for _ in 0..ms.div_ceil(10) {
            if done() {
                return true;
            }
            self.run_for_ms(10);
        }
        done()
    }

    /// Polls one of the tasks that may go on, chosen at random.
    fn poll_one(&self) -> bool {
        let id = {
            let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
            if ready.is_empty() {
                return false;
            }
            let n = usize::try_from(self.below(ready.len() as u64)).unwrap_or(0);
            ready.remove(n)
        };
        let mut work = {
            let mut inner = self.inner();
            inner.polls += 1;
            if inner.tasks.get(&id).is_some_and(|t| inner.paused.contains(&t.process)) {
                inner.held_back.push(id);
                return true;
            }
            match inner.tasks.get_mut(&id).and_then(|t| t.work.take()) {
                Some(work) => work,
                None => return true,
            }
        };
        let waker = Waker::from(Arc::new(Wakeup { task: id, ready: Arc::clone(&self.ready) }));
        let finished = work.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let mut inner = self.inner();
        if finished {
            inner.tasks.remove(&id);
        } else if let Some(task) = inner.tasks.get_mut(&id) {
            task.work = Some(work);
            return true;
        }
        drop(inner);
        drop(work);
        true
    }
}

/// See [`Sim::sleep_us`].
pub struct Sleep {
    sim: Sim,
    at: (u64, u64),
    set: bool,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.sim.inner();
        if self.set && inner.now_us >= self.at.0 {
            return Poll::Ready(());
        }
        inner.timers.insert(self.at, context.waker().clone());
        drop(inner);
        self.set = true;
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.sim.inner().timers.remove(&self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(seed: u64) -> Vec<(u64, u64)> {
        let sim = Sim::new(seed);
        let seen: Arc<Mutex<Vec<(u64, u64)>>> = Arc::default();
        let process = sim.process();
        for n in 0..5 {
            let (sim2, seen) = (sim.clone(), Arc::clone(&seen));
            sim.spawn(process, async move {
                for _ in 0..10 {
                    sim2.sleep_us(sim2.below(3) * 1_000).await;
                    seen.lock().unwrap().push((sim2.now_ms(), n));
                }
            });
        }
        sim.run_for_ms(100);
        assert_eq!(sim.tasks_of(process), 0);
        seen.lock().unwrap().clone()
    }

    #[test]
    fn one_seed_is_one_run() {
        assert_eq!(trace(7), trace(7));
        assert_ne!(trace(7), trace(8));
    }

    #[test]
    fn a_killed_process_runs_no_further() {
        let sim = Sim::new(1);
        let (process, flag) = (sim.process(), Arc::new(Mutex::new(false)));
        let (sim2, flag2) = (sim.clone(), Arc::clone(&flag));
        sim.spawn(process, async move {
            sim2.sleep_ms(10).await;
            *flag2.lock().unwrap() = true;
        });
        sim.run_for_ms(5);
        sim.kill(process);
        sim.run_for_ms(20);
        assert!(!*flag.lock().unwrap());
    }
}
