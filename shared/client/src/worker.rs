//! The thread that refills: looks at every cursor in time, and carries out what is due.
//!
//! Invariant: it holds nothing that a caller waits on while it waits itself, except the turn to speak to agents,
//! which is one for all namespaces (the chain token of an incarnation is one). Absent on purpose: rules. When a
//! refill is due and how large it is stands in `refill`, what is said and what answers mean in `conversation`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cadastre_core::ids::{AllocationId, Incarnation, Name};
use cadastre_protocol::error::Code;
use cadastre_protocol::ids::{SegmentAnswer, SegmentRequest};
use cadastre_protocol::workers::WorkerAnswer;
use serde::Serialize;
use tokio::runtime::Runtime;
use tokio::sync::Mutex as TurnToSpeak;

use crate::conversation::{Conversation, Failure, Need, Segment, Verdict};
use crate::entry::Entry;
use crate::error::{Error, ErrorKind};
use crate::metrics;
use crate::posts;
use crate::process::{Agents, Phase, Shared};
use crate::system;
use crate::testing::InMemory;
use crate::wire::Http;

/// The longest sleep, in milliseconds.
const LONGEST_SLEEP_MS: u64 = 60_000;
/// How often metrics are written, in milliseconds.
const REPORT_MS: u64 = 1_000;
/// How often one agent is asked once more within one refill.
const AGAIN: u32 = 2;

enum Source {
    Http(Http),
    Memory(InMemory),
}

impl Source {
    async fn ask(&self, agent: usize, request: &SegmentRequest) -> Result<SegmentAnswer, Failure> {
        match self {
            Source::Http(http) => http.ask(agent, request).await,
            Source::Memory(memory) => memory.ask(request).await,
        }
    }
}

/// What the refills share.
pub(crate) struct Desk {
    pub(crate) shared: Arc<Shared>,
    /// How many agents there are to ask.
    pub(crate) agents: usize,
    source: Source,
    talk: TurnToSpeak<Conversation>,
}

/// Starts the thread.
///
/// # Errors
/// [`ErrorKind::Closed`](crate::ErrorKind::Closed) where the machine gives no thread, or no connections.
pub(crate) fn start(shared: Arc<Shared>) -> Result<(), Error> {
    let no = |what: &str, error: &dyn std::fmt::Display| Error::closed(format!("no {what}: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| no("runtime", &error))?;
    let settings = &shared.settings;
    let (source, agents) = match settings.agents.clone() {
        Agents::Http(addresses, token) => {
            let count = addresses.len();
            (Source::Http(Http::new(addresses, token, settings.request_timeout)?), count)
        }
        Agents::Memory(memory) => (Source::Memory(memory), 1),
    };
    let talk = Conversation::new(settings.instance.clone(), Incarnation(system::uuid_v4()), agents);
    let desk = Arc::new(Desk { shared, agents, source, talk: TurnToSpeak::new(talk) });
    let thread = std::thread::Builder::new().name("cadastre-client".to_owned()).spawn(move || run(&runtime, desk));
    // The thread is not joined: a child must not, and the phase tells when it ended.
    thread.map(drop).map_err(|error| no("thread", &error))
}

fn run(runtime: &Runtime, desk: Arc<Desk>) {
    let shared = Arc::clone(&desk.shared);
    let _end = End(Arc::clone(&shared));
    runtime.block_on(async move {
        let (mut schedule, mut reported_ms) = (Schedule::default(), 0);
        while shared.phase() == Phase::Running {
            let now_ms = system::mono_ms();
            for entry in shared.take_touched() {
                schedule.insert(entry.name.clone(), (now_ms, entry));
            }
            for entry in look(&mut schedule, now_ms) {
                tokio::spawn(refill(Arc::clone(&desk), entry));
            }
            if now_ms.saturating_sub(reported_ms) >= REPORT_MS {
                reported_ms = now_ms;
                schedule.values().for_each(|(_, entry)| entry.report(now_ms));
            }
            let mut due_ms = schedule.values().map(|(due_ms, _)| due_ms.saturating_sub(now_ms)).min();
            for post in shared.posts() {
                let (duty, again_ms) = post.look(system::wall_ms(), now_ms, fresh_allocation);
                if let Some(duty) = duty {
                    tokio::spawn(posts::tend(Arc::clone(&desk), post, duty));
                }
                due_ms = due_ms.into_iter().chain(again_ms).min();
            }
            let sleep = Duration::from_millis(due_ms.unwrap_or(LONGEST_SLEEP_MS));
            let _ = tokio::time::timeout(sleep, shared.wake.notified()).await;
        }
        posts::end_all(&desk).await;
    });
}

/// Namespaces that are to be looked at again, and when. One that nobody uses is not in it.
type Schedule = BTreeMap<Name, (u64, Arc<Entry>)>;

/// Looks at what is due; the refills that were claimed.
fn look(schedule: &mut Schedule, now_ms: u64) -> Vec<Arc<Entry>> {
    let mut claimed = Vec::new();
    schedule.retain(|_, (due_ms, entry)| {
        if *due_ms > now_ms {
            return true;
        }
        let look = entry.look(now_ms);
        if look.claimed {
            claimed.push(Arc::clone(entry));
        }
        // Where it is not to be looked at again, whoever changes that touches it.
        *due_ms = now_ms.saturating_add(look.again_ms.unwrap_or(0));
        look.again_ms.is_some()
    });
    claimed
}

/// Says that the worker ended, also where it panicked: nobody waits for what will not come.
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// One refill of a claimed entry.
async fn refill(desk: Arc<Desk>, entry: Arc<Entry>) {
    let began_ms = system::mono_ms();
    let mut talk = desk.talk.lock().await;
    let result = desk.round(&mut talk, &entry).await;
    drop(talk);
    let now_ms = system::mono_ms();
    let (namespace, seconds) = (&entry.name, now_ms.saturating_sub(began_ms) as f64 / 1_000.0);
    match result {
        Ok((agent, segment)) => {
            let (region, epoch, size) = (segment.region.as_str(), segment.epoch.0, segment.range.len());
            match entry.filled(&segment, now_ms) {
                Ok(()) => {
                    metrics::refilled(namespace, agent, seconds);
                    tracing::debug!(%namespace, region, epoch, size, seconds, "refill");
                }
                Err(lost) => {
                    metrics::burned(namespace, lost);
                    tracing::debug!(%namespace, region, epoch, lost, "a segment could not be used; it is a gap");
                }
            }
        }
        Err(failure) => {
            let error: Error = match failure {
                Failure::Unreachable(text) => ErrorKind::Unreachable(text).into(),
                Failure::Refused(problem) => ErrorKind::Refused(problem).into(),
            };
            metrics::refill_failed(namespace, error.code());
            tracing::warn!(%namespace, left = entry.left(), %error, "refill failed");
            entry.failed(error, system::random(), now_ms);
        }
    }
    desk.shared.touch(&entry);
}

impl Desk {
    /// One request about a worker, to one agent, once.
    pub(crate) async fn worker<B: Serialize>(
        &self,
        method: &'static str,
        agent: usize,
        path: &str,
        body: &B,
    ) -> Result<WorkerAnswer, Failure> {
        match &self.source {
            Source::Http(http) => http.call(method, agent, &format!("/v1/workers{path}"), body).await,
            Source::Memory(memory) => memory.worker(path, method),
        }
    }

    /// Asks the agents in turn until one gives a segment.
    async fn round(&self, talk: &mut Conversation, entry: &Entry) -> Result<(usize, Segment), Failure> {
        let mut why = Failure::Unreachable("there is no agent".to_owned());
        for agent in talk.order(entry.is_waited_for(), system::mono_ms()) {
            for _ in 0..=AGAIN {
                let (done, failure) = match self.exchange(talk, agent, entry).await {
                    Verdict::Adopt(segment) => {
                        if segment.epoch_rose {
                            self.give_up(Some(&segment));
                        }
                        return Ok((agent, segment));
                    }
                    Verdict::Stop(failure) => return Err(failure),
                    Verdict::Elsewhere(failure) => (true, failure),
                    Verdict::Again(failure) => (false, failure),
                    Verdict::Ended(failure) => {
                        tracing::warn!(?failure, "all segments are given up; beginning anew");
                        self.give_up(None);
                        talk.begin_anew(Incarnation(system::uuid_v4()));
                        (false, failure)
                    }
                };
                // A refusal says more than silence.
                if matches!(failure, Failure::Refused(_)) || matches!(why, Failure::Unreachable(_)) {
                    why = failure;
                }
                if done {
                    if entry.has_time() && is_dry(&why) {
                        return Err(why);
                    }
                    break;
                }
            }
        }
        Err(why)
    }

    /// One request and its answer.
    async fn exchange(&self, talk: &mut Conversation, agent: usize, entry: &Entry) -> Verdict {
        let sent_ms = system::mono_ms();
        let (want, floor) = entry.need(sent_ms);
        let request = talk.request(agent, &Need { namespace: &entry.name, want, floor }, fresh_allocation());
        let timeout = self.shared.settings.request_timeout;
        let answer = match tokio::time::timeout(timeout, self.source.ask(agent, &request)).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::Unreachable(format!("no answer within {} ms", timeout.as_millis()))),
        };
        let now_ms = system::mono_ms();
        if let Err(failure) = &answer {
            talk.unwell(agent, failure, system::random(), now_ms);
        }
        let late = u128::from(now_ms.saturating_sub(sent_ms)) > timeout.as_millis();
        talk.hear(agent, &request, answer, late, floor)
    }

    /// Gives up what older epochs of a segment's region gave, or everything.
    fn give_up(&self, above: Option<&Segment>) {
        for entry in self.shared.entries() {
            let lost = entry.give_up(above.map(|s| (&s.region, s.epoch)));
            metrics::burned(&entry.name, lost);
        }
    }
}

/// Whether the region may just be waiting for its next grant: then it is asked again before another region is, unless
/// a caller waits.
fn is_dry(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused(problem) if problem.code == Code::SegmentDry)
}

/// A UUIDv7 names a new request for a range.
fn fresh_allocation() -> AllocationId {
    loop {
        // Only version 7 is made; the loop is for the type.
        if let Ok(id) = AllocationId::new(system::uuid_v7()) {
            return id;
        }
    }
}
