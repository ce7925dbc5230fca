//! The thread that refills: looks at every cursor in time, and carries out what is due.
//!
//! Invariant: it holds nothing that a caller waits on while it waits itself, except the turn to speak to agents,
//! which is one for all namespaces (the chain token of an incarnation is one). Absent on purpose: rules. When a
//! refill is due and how large it is stands in `refill`, what is said and what answers mean in `conversation`, and what
//! follows from them in `round`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cadastre_core::ids::{AllocationId, Incarnation, Name};
use cadastre_protocol::ids::{SegmentAnswer, SegmentRequest};
use cadastre_protocol::operate::HomeAddress;
use cadastre_protocol::workers::WorkerAnswer;
use serde::Serialize;
use tokio::runtime::Runtime;
use tokio::sync::Mutex as TurnToSpeak;

use crate::conversation::{Conversation, Failure};
use crate::entry::Entry;
use crate::error::Error;
use crate::posts;
use crate::process::{Agents, Phase, Shared};
use crate::round::{self, Surroundings};
use crate::system;
use crate::testing::InMemory;
use crate::wire::Http;

/// The longest sleep, in milliseconds.
const LONGEST_SLEEP_MS: u64 = 60_000;
/// How often metrics are written, in milliseconds.
const REPORT_MS: u64 = 1_000;

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
        Agents::Http(addresses, token, trust) => {
            let count = addresses.len();
            (Source::Http(Http::new(addresses, token, settings.request_timeout, *trust)?), count)
        }
        Agents::Memory(memory) => (Source::Memory(memory), 1),
    };
    let talk = Conversation::new(settings.instance.clone(), Incarnation(system::uuid_v4()), agents);
    let desk = Arc::new(Desk { shared, source, talk: TurnToSpeak::new(talk) });
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
    let mut talk = desk.talk.lock().await;
    round::refill(desk.as_ref(), &mut talk, &entry).await;
    drop(talk);
    desk.shared.touch(&entry);
}

impl Surroundings for Desk {
    fn mono_ms(&self) -> u64 {
        system::mono_ms()
    }

    fn random(&self) -> u64 {
        system::random()
    }

    fn allocation(&self) -> AllocationId {
        fresh_allocation()
    }

    fn incarnation(&self) -> Incarnation {
        Incarnation(system::uuid_v4())
    }

    fn request_timeout_ms(&self) -> u64 {
        u64::try_from(self.shared.settings.request_timeout.as_millis()).unwrap_or(u64::MAX)
    }

    async fn ask(&self, agent: usize, request: &SegmentRequest) -> Result<SegmentAnswer, Failure> {
        let timeout = self.shared.settings.request_timeout;
        match tokio::time::timeout(timeout, self.source.ask(agent, request)).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::Unreachable(format!("no answer within {} ms", timeout.as_millis()))),
        }
    }

    fn follow(&self, home: &[HomeAddress]) -> Vec<usize> {
        match &self.source {
            Source::Http(http) => http.follow(home),
            Source::Memory(_) => Vec::new(),
        }
    }

    fn entries(&self) -> Vec<Arc<Entry>> {
        self.shared.entries()
    }
}

impl Desk {
    /// How many agents there are to ask.
    pub(crate) fn agents(&self) -> usize {
        match &self.source {
            Source::Http(http) => http.agents(),
            Source::Memory(_) => 1,
        }
    }

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
