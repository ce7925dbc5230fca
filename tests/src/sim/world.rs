//! One simulated installation: authorities, regions, their agents and callers, and everything that
//! was ever exposed.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cadastre_core::continuity::WitnessMode;
use cadastre_core::ids::Name;
use cadastre_ledger::continuity::Parts;
use cadastre_runtime::db;
use global_authority::service::{Authority, Settings, Spawn};
use region_agent::agent::{Agent, Setup};
use region_agent::context::Times;

use super::callers::{Caller, EVENTS, run_agent};
use super::disk::{Disk, Image};
use super::exec::{ProcessId, Sim};
use super::mutation::{Mutation, Whose};
use super::net::{Link, Net, SimUplink};
use super::parts::{SimClock, SimEntropy, SimWitness};
use super::thick::{Directory, Thick, client_name};

/// The first operator's token.
pub const TOKEN: &str = "cad_op_0000000000000000000000000000000000000000000000000000000000000000";
/// The service whose ids are asked for.
pub const SERVICE: &str = "shop";

/// Everything that was ever exposed, and the first duplicate.
#[derive(Default)]
pub struct Exposed {
    /// Of each namespace every value; who exposed it, and when.
    ids: BTreeMap<Name, BTreeMap<i64, (Arc<str>, u64)>>,
    /// How many there are of whom.
    counts: BTreeMap<(Arc<str>, Name), usize>,
    /// The first id that was exposed twice, in words.
    pub duplicate: Option<String>,
}

impl Exposed {
    /// Remembers an id. Returns who exposed it before, and when.
    pub fn remember(&mut self, namespace: &Name, value: i64, who: &Arc<str>, at_ms: u64) -> Option<(Arc<str>, u64)> {
        let values = match self.ids.get_mut(namespace) {
            Some(values) => values,
            None => self.ids.entry(namespace.clone()).or_default(),
        };
        match values.entry(value) {
            Entry::Occupied(first) => return Some(first.get().clone()),
            Entry::Vacant(place) => place.insert((Arc::clone(who), at_ms)),
        };
        *self.counts.entry((Arc::clone(who), namespace.clone())).or_default() += 1;
        None
    }

    /// How many ids of those were exposed for which `of` holds, by who exposed them and the namespace.
    fn count(&self, of: impl Fn(&str, &Name) -> bool) -> usize {
        self.counts.iter().filter(|((who, namespace), _)| of(who, namespace)).map(|(_, count)| count).sum()
    }
}

/// One line per thing that happened, for people.
pub type Trace = Arc<Mutex<Vec<String>>>;

/// An authority process.
pub struct AuthorityProcess {
    /// Its tasks.
    pub process: ProcessId,
    /// Its clock.
    pub clock: SimClock,
    /// Which store it is connected to.
    pub store: usize,
    /// Whether it runs.
    pub alive: bool,
}

/// An authority's store: the present one, or an old primary that somebody still points at.
pub struct Store {
    /// Its database.
    pub disk: Disk,
    /// Copies that were taken.
    pub backups: Vec<Image>,
}

/// One agent of a region.
pub struct AgentProcess {
    /// Its tasks.
    pub process: ProcessId,
    /// Where it is; set once it has opened.
    pub agent: Arc<Mutex<Option<Arc<Agent>>>>,
    /// Its clock.
    pub clock: SimClock,
    /// Which of the region's stores it is on.
    pub store: usize,
    /// Whether it runs.
    pub alive: bool,
}

/// A store of a region, with its witness.
pub struct RegionStore {
    /// Its database.
    pub disk: Disk,
    /// Its witness.
    pub witness: SimWitness,
    /// Copies that were taken.
    pub backups: Vec<Image>,
}

/// One region.
pub struct Region {
    /// Its name.
    pub name: String,
    /// Its token.
    pub token: String,
    /// Its stores: the second one is a clone.
    pub stores: Vec<RegionStore>,
    /// Its agents.
    pub agents: Vec<AgentProcess>,
    /// Whether it has a witness of its own.
    pub witnessed: bool,
    /// Whether an operator ended it.
    pub retired: bool,
    /// Whether an operator meant to, and was not told whether it was done.
    pub may_be_retired: bool,
    /// Whether its callers are in a hurry.
    pub rush: Arc<AtomicBool>,
}

/// A region, the epoch that an operator raised it to, and each namespace's highest granted ordinal by then.
pub type Raised = (String, u64, [(&'static str, u64); 2]);

impl Region {
    /// Whether it had no grant yet when the authority's store went back: nobody established remembers it,
    /// nothing of it was exposed, and an operator has to register it again. The same for one that a restored
    /// store remembers as retired: an operator's doing that the run could not see the end of.
    #[must_use]
    pub fn is_forgotten(&self, exposed: usize) -> bool {
        let cell = self.agents.first().map(|a| lock(&a.agent).clone());
        let Some(Some(agent)) = cell else { return false };
        let (never, refused) = (exposed == 0, agent.ctx.health().uplink_error);
        let said = |word: &str| refused.as_ref().is_some_and(|e| e.contains(word));
        (never && said("unauthenticated")) || said("is retired")
    }

    /// How its first agent is doing, in a few words.
    #[must_use]
    pub fn describe(&self) -> String {
        let cell = self.agents.first().map(|a| lock(&a.agent).clone());
        let Some(Some(agent)) = cell else { return format!("{} has no agent", self.name) };
        let health = agent.ctx.health();
        format!(
            "{} is {} at epoch {:?}, uplink {:?} ({:?}), store error {:?}",
            self.name,
            agent.ctx.continuity.standing().how.as_str(),
            agent.ctx.view().epoch().map(|e| e.0),
            health.uplink,
            health.uplink_error,
            health.store_error,
        )
    }
}

/// See the module's documentation.
pub struct World {
    /// Time, tasks, randomness.
    pub sim: Sim,
    /// The wide area.
    pub net: Net,
    /// What every authority goes by.
    pub mode: WitnessMode,
    /// The authority's witness.
    pub witness: SimWitness,
    /// Its stores.
    pub stores: Vec<Store>,
    /// The store that is the right one now.
    pub current: usize,
    /// Its processes.
    pub authorities: Vec<AuthorityProcess>,
    /// Regions.
    pub regions: Vec<Region>,
    /// What was exposed.
    pub exposed: Arc<Mutex<Exposed>>,
    /// What happened.
    pub trace: Trace,
    /// A copy of the witness.
    pub witness_backup: Option<(cadastre_ledger::witness::Marks, cadastre_core::roster::Roster)>,
    /// The rule that is taken out.
    pub mutation: Option<Mutation>,
    /// Whether regions run two agents on one store.
    pub two_agents: bool,
    /// Whether servers are watched.
    pub watched: bool,
    /// Where clients find agents.
    pub directory: Directory,
    /// Epochs that operators raised, and the highest ordinal of each namespace that was granted by then.
    pub epochs: Vec<Raised>,
}

/// A lock that outlives a panic.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    /// An empty world: one authority store, two authority processes that do not run yet.
    #[must_use]
    pub fn new(sim: &Sim, mode: WitnessMode) -> Self {
        let disk = Disk::new(sim, "authority", None);
        let authorities = (0..2)
            .map(|_| AuthorityProcess { process: sim.process(), clock: SimClock::new(sim), store: 0, alive: false })
            .collect();
        Self {
            sim: sim.clone(),
            net: Net::new(sim),
            mode,
            witness: SimWitness::new(sim),
            stores: vec![Store { disk, backups: vec![] }],
            current: 0,
            authorities,
            regions: vec![],
            exposed: Arc::default(),
            trace: Arc::default(),
            witness_backup: None,
            mutation: None,
            two_agents: false,
            watched: false,
            directory: Arc::default(),
            epochs: vec![],
        }
    }

    /// Whether servers are watched, from the beginning.
    pub fn watch(&mut self, watched: bool) {
        self.watched = watched;
        for store in &self.stores {
            let _ = store.disk.clone().watched(watched);
        }
    }

    /// Takes the rule out of every store that there is now.
    pub fn apply_mutation(&self) {
        let Some(rule) = self.mutation else { return };
        let authority = self.stores.iter().map(|s| &s.disk).filter(|_| rule.whose != Whose::Regions);
        let regions = self.regions.iter().flat_map(|r| r.stores.iter().map(|s| &s.disk));
        let regions = regions.filter(|_| rule.whose != Whose::Authority);
        for disk in authority.chain(regions) {
            disk.rewrite(rule.sql);
            if rule.lose_unsynced {
                disk.lose_unsynced();
            }
        }
        self.witness.bend(rule.witness);
    }

    /// Where a rule about durability is taken out: what is committed by now is durable after all.
    pub fn flush(&self) {
        let Some(rule) = self.mutation.filter(|m| m.lose_unsynced) else { return };
        let authority = self.stores.iter().map(|s| &s.disk).filter(|_| rule.whose != Whose::Regions);
        let regions = self.regions.iter().flat_map(|r| r.stores.iter().map(|s| &s.disk));
        authority.chain(regions.filter(|_| rule.whose != Whose::Authority)).for_each(Disk::sync);
    }

    /// Starts a region's agents: two where the run has two a region.
    pub fn start_region(&mut self, r: usize) {
        self.start_agent(r, 0, 0);
        if self.two_agents {
            self.start_agent(r, 1, 0);
        }
    }

    /// Stops a region's agents that are on its own store.
    pub fn stop_region(&mut self, r: usize) {
        self.stop_agent(r, 0);
        if self.two_agents {
            self.stop_agent(r, 1);
        }
    }

    /// Adds a line to the timeline.
    pub fn say(&self, line: impl Into<String>) {
        say(&self.sim, &self.trace, line);
    }

    /// Starts an authority process on a store.
    pub fn start_authority(&mut self, n: usize, store: usize) {
        self.stop_authority(n);
        let process = self.sim.process();
        let key = n as u64;
        let clock = self.authorities[n].clock.clone();
        self.authorities[n] = AuthorityProcess { process, clock: clock.clone(), store, alive: true };
        self.say(format!("authority {n} starts on store {store}"));
        let parts = Parts {
            db: self.stores[store].disk.door(),
            witness: (self.mode != WitnessMode::None).then(|| Arc::new(self.witness.clone()) as Arc<_>),
            mode: self.mode,
            role: "authority".to_owned(),
            clock: Arc::new(clock),
            entropy: Arc::new(SimEntropy(self.sim.clone())),
        };
        let (sim, net, trace) = (self.sim.clone(), self.net.clone(), Arc::clone(&self.trace));
        self.sim.spawn(process, async move {
            let authority = open_authority(&sim, process, parts, &trace, n).await;
            net.serve(key, process, Arc::clone(&authority));
            let mut said = None;
            loop {
                sim.sleep_ms(1_000).await;
                authority.tick().await;
                let how = authority.how();
                if said != Some(how) {
                    say(&sim, &trace, format!("authority {n} is {}", how.as_str()));
                    said = Some(how);
                }
            }
        });
    }

    /// Kills an authority process.
    pub fn stop_authority(&mut self, n: usize) {
        if self.authorities[n].alive {
            self.say(format!("authority {n} is killed"));
        }
        self.authorities[n].alive = false;
        self.net.stop(n as u64);
        self.sim.kill(self.authorities[n].process);
    }

    /// Starts an agent of a region on one of its stores.
    pub fn start_agent(&mut self, r: usize, n: usize, store: usize) {
        self.stop_agent(r, n);
        let process = self.sim.process();
        let cell: Arc<Mutex<Option<Arc<Agent>>>> = Arc::default();
        let region = &self.regions[r];
        let clock = region.agents[n].clock.clone();
        let (name, token) = (region.name.clone(), region.token.clone());
        let witness = region.witnessed.then(|| Arc::new(region.stores[store].witness.clone()) as Arc<_>);
        let parts = Parts {
            db: region.stores[store].disk.door(),
            mode: if region.witnessed { WitnessMode::Required } else { WitnessMode::None },
            witness,
            role: format!("region/{name}"),
            clock: Arc::new(clock.clone()),
            entropy: Arc::new(SimEntropy(self.sim.clone())),
        };
        let place = if parts.db.kind() == cadastre_runtime::db::EngineKind::Postgres {
            String::new()
        } else {
            format!("place {store}")
        };
        self.say(format!("agent {name}.{n} starts on its store {store}"));
        let uplink = SimUplink { net: self.net.clone(), region: name.clone(), token, process, bend: self.mutation };
        lock(&self.directory).insert(format!("{name}.{n}"), (process, Arc::clone(&cell)));
        self.regions[r].agents[n] = AgentProcess { process, agent: Arc::clone(&cell), clock, store, alive: true };
        let (sim, trace, exposed) = (self.sim.clone(), Arc::clone(&self.trace), Arc::clone(&self.exposed));
        let rush = Arc::clone(&self.regions[r].rush);
        self.sim.spawn(process, async move {
            let setup =
                Setup { region: Name::new(name.clone()).expect("a name"), url: None, times: Times::default(), place };
            let uplink: Arc<SimUplink> = Arc::new(uplink);
            // A supervisor: an incarnation that must end is followed by a fresh one.
            loop {
                let agent = match Agent::open(parts.clone(), setup.clone(), uplink.clone()).await {
                    Ok(agent) => Arc::new(agent),
                    Err(error) => {
                        say(&sim, &trace, format!("agent {name}.{n} cannot open: {error}"));
                        sim.sleep_ms(2_000).await;
                        continue;
                    }
                };
                *lock(&cell) = Some(Arc::clone(&agent));
                run_agent(&sim, process, &agent);
                for namespace in ["orders", "small", EVENTS] {
                    let call = Caller {
                        sim: sim.clone(),
                        agent: Arc::clone(&agent),
                        who: format!("{name}.{n}").into(),
                        namespace: Name::new(namespace).expect("a name"),
                        exposed: Arc::clone(&exposed),
                        trace: Arc::clone(&trace),
                        rush: Arc::clone(&rush),
                    };
                    sim.spawn(process, call.run());
                }
                let why = agent.ctx.ended().await;
                say(&sim, &trace, format!("agent {name}.{n} ends: {why}"));
                sim.sleep_ms(1_000).await;
            }
        });
    }

    /// Starts a process of users that issues by itself, from a region's agents first, and then from another's.
    pub fn start_client(&self, region: &str, other: &str) {
        let addresses = [format!("{region}.0"), format!("{region}.1"), format!("{other}.0")];
        let thick = Thick {
            sim: self.sim.clone(),
            who: client_name(region).into(),
            addresses: addresses.to_vec(),
            directory: Arc::clone(&self.directory),
            exposed: Arc::clone(&self.exposed),
            trace: Arc::clone(&self.trace),
        };
        self.sim.spawn(self.sim.process(), thick.run());
    }

    /// Whether a region's messages are answered: its link is whole, and nobody who should answer stands still.
    #[must_use]
    pub fn reaches_authority(&self, r: usize) -> bool {
        let awake = self.authorities.iter().all(|a| !self.sim.is_paused(a.process));
        awake && self.net.link(&self.regions[r].name) == Link::default() && self.operator().is_some()
    }

    /// Kills an agent.
    pub fn stop_agent(&mut self, r: usize, n: usize) {
        let agent = &mut self.regions[r].agents[n];
        let was = agent.alive;
        agent.alive = false;
        *lock(&agent.agent) = None;
        self.sim.kill(agent.process);
        if was {
            self.say(format!("agent {}.{n} is killed", self.regions[r].name));
        }
    }

    /// An authority that serves and is open, to operate through.
    #[must_use]
    pub fn operator(&self) -> Option<Arc<Authority>> {
        let on_current = self.authorities.iter().enumerate().filter(|(_, a)| a.alive && a.store == self.current);
        on_current.filter_map(|(n, _)| self.net.authority(n as u64)).next()
    }

    /// The first duplicate, if there is one.
    #[must_use]
    pub fn duplicate(&self) -> Option<String> {
        lock(&self.exposed).duplicate.clone()
    }

    /// How many ids were exposed.
    #[must_use]
    pub fn exposed_count(&self) -> usize {
        lock(&self.exposed).count(|_, _| true)
    }

    /// How many time-based ids of a region were exposed.
    #[must_use]
    pub fn stamped_by(&self, region: &str) -> usize {
        lock(&self.exposed).count(|who, namespace| namespace.as_str() == EVENTS && who.starts_with(region))
    }

    /// How many ids of a region were exposed.
    #[must_use]
    pub fn exposed_by(&self, region: &str) -> usize {
        lock(&self.exposed).count(|who, _| who.starts_with(region))
    }
}

/// Adds a line to a timeline.
pub fn say(sim: &Sim, trace: &Trace, line: impl Into<String>) {
    let at = sim.now_ms();
    lock(trace).push(format!("{:>7}.{:03} s  {}", at / 1_000, at % 1_000, line.into()));
}

async fn open_authority(sim: &Sim, process: ProcessId, parts: Parts, trace: &Trace, n: usize) -> Arc<Authority> {
    loop {
        let sim2 = sim.clone();
        let spawn: Spawn = Arc::new(move |work| sim2.spawn(process, work));
        let opened = match db::migrate(&parts.db, global_authority::sql::MIGRATIONS).await {
            Ok(()) => Authority::open(parts.clone(), Settings::default(), spawn, Some(TOKEN)).await,
            Err(error) => Err(error.into()),
        };
        match opened {
            Ok(authority) => return authority,
            Err(error) => {
                say(sim, trace, format!("authority {n} cannot open: {error}"));
                sim.sleep_ms(2_000).await;
            }
        }
    }
}
