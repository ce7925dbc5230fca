//! Callers in the background, until they are stopped: what a service sees while the test breaks things.
//!
//! Every id that reaches a caller is entered in [`Exposed`] before the next is asked for. A lost answer is
//! only counted: its ids reached nobody, and nobody may get them later either, which the ledger notices.

use crate::http;
use crate::ledger_of_ids::Exposed;
use crate::region::{Problem, ask_ids};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Who asks whom for what.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What [`Exposed`] calls the source.
    pub region: String,
    /// The agent.
    pub agent_url: String,
    /// A service token.
    pub token: String,
    /// The namespace.
    pub namespace: String,
    /// Ids per call.
    pub count: u32,
    /// Callers at the same time, each with a connection of its own.
    pub tasks: usize,
    /// Each caller's rest between two calls.
    pub pause: Duration,
}

impl Plan {
    /// Callers of a region of this cluster that never rest.
    pub fn of(cluster: &crate::cluster::Cluster, region: &str, namespace: &str) -> Self {
        Self {
            region: region.to_owned(),
            agent_url: cluster.region(region).url.clone(),
            token: cluster.service_token.clone(),
            namespace: namespace.to_owned(),
            count: 10,
            tasks: 4,
            pause: Duration::ZERO,
        }
    }

    /// Ids per call.
    pub fn count(mut self, count: u32) -> Self {
        self.count = count;
        self
    }

    /// Callers at the same time.
    pub fn tasks(mut self, tasks: usize) -> Self {
        self.tasks = tasks;
        self
    }

    /// Each caller's rest between two calls.
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }
}

/// What the callers met so far.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Calls that were answered with ids.
    pub successes: u64,
    /// Ids in those answers.
    pub ids: u64,
    /// Calls that were not, by code; `connection` where no answer came.
    pub errors: BTreeMap<String, u64>,
    /// A whole problem for each code: the last one, for the failure message.
    pub examples: BTreeMap<String, Problem>,
    /// The longest time without a success of any caller; start and end count as well.
    pub longest_gap: Duration,
    /// The slowest call that was answered with ids.
    pub slowest: Duration,
    /// From start to now, or to the stop.
    pub lasted: Duration,
}

impl Report {
    /// Calls that failed.
    pub fn failures(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Ids per second, all callers together.
    pub fn rate(&self) -> f64 {
        self.ids as f64 / self.lasted.as_secs_f64().max(1e-9)
    }
}

struct Shared {
    plan: Plan,
    exposed: Arc<Exposed>,
    stop: AtomicBool,
    started: Instant,
    met: Mutex<(Report, Instant)>,
}

/// Running callers. Dropped, they stop.
pub struct Load {
    shared: Arc<Shared>,
    callers: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts the callers on the runtime of the test.
    pub fn start(plan: Plan, exposed: Arc<Exposed>) -> Self {
        let started = Instant::now();
        let shared = Arc::new(Shared {
            plan,
            exposed,
            stop: AtomicBool::new(false),
            started,
            met: Mutex::new((Report::default(), started)),
        });
        let callers = (0..shared.plan.tasks).map(|_| tokio::spawn(call_on(shared.clone()))).collect();
        Self { shared, callers }
    }

    /// What was met so far.
    pub fn report(&self) -> Report {
        self.shared.report()
    }

    /// Forgets the gap so far: "from here on, no caller waits longer than ...".
    pub fn reset_gap(&self) {
        let met = &mut *self.shared.met();
        met.0.longest_gap = Duration::ZERO;
        met.0.slowest = Duration::ZERO;
        met.1 = Instant::now();
    }

    /// Waits until this many more calls succeeded; whether that came within the bound.
    pub async fn successes_within(&self, more: u64, bound: Duration) -> bool {
        let goal = self.report().successes + more;
        let until = Instant::now() + bound;
        while self.report().successes < goal {
            if Instant::now() >= until {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        true
    }

    /// Lets calls in flight end, then says what was met.
    pub async fn stop(mut self) -> Report {
        self.shared.stop.store(true, Ordering::Relaxed);
        let report = self.shared.report();
        for caller in self.callers.drain(..) {
            if let Err(error) = caller.await {
                std::panic::resume_unwind(error.into_panic());
            }
        }
        // The gap is that of the moment of the stop; the numbers include what was in flight.
        Report { longest_gap: report.longest_gap, lasted: report.lasted, ..self.shared.report() }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for caller in &self.callers {
            caller.abort();
        }
    }
}

impl Shared {
    fn met(&self) -> MutexGuard<'_, (Report, Instant)> {
        self.met.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    fn report(&self) -> Report {
        let met = self.met();
        let longest_gap = met.0.longest_gap.max(met.1.elapsed());
        Report { longest_gap, lasted: self.started.elapsed(), ..met.0.clone() }
    }

    fn note(&self, answer: &Result<Vec<i64>, Problem>, took: Duration) {
        let (report, last) = &mut *self.met();
        match answer {
            Ok(ids) => {
                report.successes += 1;
                report.ids += ids.len() as u64;
                report.longest_gap = report.longest_gap.max(last.elapsed());
                report.slowest = report.slowest.max(took);
                *last = Instant::now();
            }
            Err(problem) => {
                *report.errors.entry(problem.code.clone()).or_default() += 1;
                report.examples.insert(problem.code.clone(), problem.clone());
            }
        }
    }
}

async fn call_on(shared: Arc<Shared>) {
    let plan = &shared.plan;
    let client = http::client();
    while !shared.stop.load(Ordering::Relaxed) {
        let asked = Instant::now();
        let url = &plan.agent_url;
        let answer = ask_ids(&client, url, &plan.token, &plan.namespace, plan.count).await;
        shared.note(&answer, asked.elapsed());
        // A caller that is refused at once must not spin.
        let rest = match answer {
            Ok(ids) => {
                shared.exposed.record(&plan.region, &ids);
                plan.pause
            }
            Err(_) => plan.pause.max(Duration::from_millis(10)),
        };
        if rest > Duration::ZERO {
            tokio::time::sleep(rest).await;
        }
    }
}
