//! A process that issues by itself, simulated: the shipped client's entries, lanes, conversation and rounds, over a local
//! network that delays, loses and doubles, and agents that are killed while they answer.
//!
//! What is not the client's own: its thread, its sockets, and the clock that it reads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use cadastre_client::engine::{Conversation, Entry, Failure, Surroundings, policy, refill};
use cadastre_core::ids::{AllocationId, Incarnation, Name};
use cadastre_core::principal::Principal;
use cadastre_protocol::ids::{SegmentAnswer, SegmentRequest};
use cadastre_runtime::entropy::Entropy;
use region_agent::agent::Agent;
use region_agent::error::told;
use region_agent::front::Front;

use super::callers::expose;
use super::exec::{ProcessId, Sim};
use super::net::within;
use super::parts::{EPOCH_MS, SimEntropy};
use super::world::{Exposed, SERVICE, Trace, lock};

/// How long one answer is waited for, in milliseconds.
const TIMEOUT_MS: u64 = 2_000;
/// One message in so many is lost, one in so many doubled.
const LOST: u64 = 20;
const DOUBLED: u64 = 20;
/// The sizes that a client asks for, and how long it wants a segment to last, in milliseconds.
const SIZES: (u64, u64) = (4, 40);
const LASTS_MS: (u64, u64) = (20_000, 4_000);

/// What every such process is called at first.
pub const CLIENT: &str = "client of ";
/// The processes of a run, by the region that each asks first, and the one that it asks next.
pub const CLIENTS: [(&str, &str); 2] = [("eu", "us"), ("us", "eu")];

/// What the process of a region is called.
pub fn client_name(region: &str) -> String {
    format!("{CLIENT}{region}")
}

/// Where agents are, by address: their process, and the agent once it has opened.
pub type Directory = Arc<Mutex<BTreeMap<String, (ProcessId, Arc<Mutex<Option<Arc<Agent>>>>)>>>;

/// One process of users, which is killed now and then and started anew.
pub struct Thick {
    /// Time, tasks, randomness.
    pub sim: Sim,
    /// What it is called in the timeline.
    pub who: Arc<str>,
    /// The agents that it was told of, the first one first.
    pub addresses: Vec<String>,
    /// Where those are.
    pub directory: Directory,
    /// What was exposed.
    pub exposed: Arc<Mutex<Exposed>>,
    /// What happened.
    pub trace: Trace,
}

/// One life of it.
struct Life<'a> {
    thick: &'a Thick,
    entries: Vec<Arc<Entry>>,
    entropy: SimEntropy,
}

impl Thick {
    /// One life after the other.
    pub async fn run(self) {
        loop {
            let entries = ["orders", "small"].map(|name| {
                let policy = policy(SIZES, LASTS_MS.0, LASTS_MS.1).expect("a policy");
                Arc::new(Entry::new(Name::new(name).expect("a name"), policy))
            });
            let entropy = SimEntropy(self.sim.clone());
            let life = Life { thick: &self, entries: entries.to_vec(), entropy };
            life.live(self.sim.now_ms() + 5_000 + self.sim.below(60_000)).await;
        }
    }
}

impl Life<'_> {
    /// Takes ids of both namespaces, and refills them as the client's own thread does, until it is killed.
    async fn live(self, until_ms: u64) {
        let sim = &self.thick.sim;
        let instance = Name::new("client").expect("a name");
        let mut talk = Conversation::new(instance, self.incarnation(), self.thick.addresses.len());
        let mut last: Vec<Option<i64>> = vec![None; self.entries.len()];
        while sim.now_ms() < until_ms {
            sim.sleep_ms(100 + sim.below(900)).await;
            for (entry, last) in self.entries.iter().zip(&mut last) {
                for _ in 0..1 + sim.below(3) {
                    match entry.lane().one() {
                        Some(id) => self.issued(entry, last, id.get()),
                        None => drop(entry.miss(1, sim.now_ms())),
                    }
                }
                if entry.look(sim.now_ms()).claimed {
                    refill(&self, &mut talk, entry).await;
                }
            }
        }
    }

    /// Exposes an id, which continues in the direction of those before it.
    fn issued(&self, entry: &Entry, last: &mut Option<i64>, value: i64) {
        let falls = entry.name.as_str() == "small";
        if last.is_some_and(|last| if falls { value >= last } else { value <= last }) {
            let text = format!("ORDER {} {value}: {} was given {last:?} before", entry.name, self.thick.who);
            lock(&self.thick.exposed).duplicate.get_or_insert(text);
        }
        *last = Some(value);
        let Thick { sim, who, exposed, trace, .. } = self.thick;
        expose(sim, exposed, trace, who, &entry.name, value);
    }

    /// Carries the request to an agent and its answer back; either may be lost, and the request may come twice.
    async fn exchange(&self, agent: usize, request: &SegmentRequest) -> Option<Result<SegmentAnswer, Failure>> {
        let sim = &self.thick.sim;
        let address = self.thick.addresses.get(agent)?;
        let (process, cell) = lock(&self.thick.directory).get(address).cloned()?;
        let answer: Arc<Mutex<Option<Result<SegmentAnswer, Failure>>>> = Arc::default();
        for _ in 0..if sim.one_in(DOUBLED) { 2 } else { 1 } {
            if sim.one_in(LOST) {
                continue;
            }
            let (sim2, cell, request, answer) = (sim.clone(), Arc::clone(&cell), request.clone(), Arc::clone(&answer));
            let (there, back, lost) = (sim.below(30), sim.below(30), sim.one_in(LOST));
            // In the agent's process: it is killed wherever it stands.
            sim.spawn(process, async move {
                sim2.sleep_ms(there).await;
                let Some(agent) = lock(&cell).clone() else { return };
                let said = handle(agent, request).await;
                sim2.sleep_ms(back).await;
                if !lost {
                    lock(&answer).get_or_insert(said);
                }
            });
        }
        let arrived = async {
            loop {
                if let Some(said) = lock(&answer).take() {
                    return said;
                }
                sim.sleep_ms(10).await;
            }
        };
        within(sim, TIMEOUT_MS, arrived).await
    }
}

/// What the HTTP layer does: authenticate, call, map the error.
async fn handle(agent: Arc<Agent>, request: SegmentRequest) -> Result<SegmentAnswer, Failure> {
    let view = agent.ctx.view();
    let front = Front::new(agent);
    let caller = Principal::Service(Name::new(SERVICE).expect("a name"));
    let refused = |error| Failure::Refused(told(&error));
    let service = Arc::clone(view.callers.service_of(&caller).map_err(refused)?);
    front.segment(&view, &service, request).await.map_err(refused)
}

impl Surroundings for Life<'_> {
    fn mono_ms(&self) -> u64 {
        self.thick.sim.now_ms()
    }

    fn random(&self) -> u64 {
        self.thick.sim.random()
    }

    fn allocation(&self) -> AllocationId {
        let id = self.entropy.uuid_v7(EPOCH_MS + self.thick.sim.now_ms());
        AllocationId::new(id).expect("it is of version 7")
    }

    fn incarnation(&self) -> Incarnation {
        Incarnation(self.entropy.uuid_v4())
    }

    fn request_timeout_ms(&self) -> u64 {
        TIMEOUT_MS
    }

    async fn ask(&self, agent: usize, request: &SegmentRequest) -> Result<SegmentAnswer, Failure> {
        let silent = || Failure::Unreachable("no answer".to_owned());
        self.exchange(agent, request).await.unwrap_or_else(|| Err(silent()))
    }

    fn entries(&self) -> Vec<Arc<Entry>> {
        self.entries.clone()
    }
}
