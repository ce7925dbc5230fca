//! A run: set up, operate, settle, judge. And what is done with one that fails.

use std::sync::{Arc, Mutex};

use cadastre_core::layout::Layout;
use cadastre_protocol::admin::RegionAction;
use global_authority::service::Authority;

use super::callers::EVENTS;
use super::exec::Sim;
use super::homes;
use super::mutation::Mutation;
use super::net::Link;
use super::operate::{granted_to_an_old_epoch, operate, state_bounds};
use super::ops::{Kind, Op, Profile, operations};
use super::parts::{SimClock, SimWitness};
use super::thick::{CLIENT, CLIENTS, client_name};
use super::world::{AgentProcess, Region, RegionStore, SERVICE, World, lock};
use crate::sim::disk::Disk;

/// How long the world may take to heal at the end, in milliseconds of virtual time.
const SETTLE_MS: u64 = 120_000;

/// What a run came to.
pub struct Outcome {
    /// What is wrong, if anything is.
    pub failure: Option<Failure>,
    /// Virtual time.
    pub virtual_ms: u64,
    /// Ids exposed.
    pub exposed: usize,
    /// Those of them that processes issued by themselves.
    pub by_clients: usize,
    /// Messages sent.
    pub messages: u64,
    /// The timeline.
    pub trace: Vec<String>,
}

/// What can be wrong.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Failure {
    /// An id was exposed twice.
    Duplicate(String),
    /// An invariant does not hold over the ledgers.
    Invariant(String),
    /// Everything is healed, and somebody is still not served.
    Wedge(String),
    /// The run could not be set up: a fault of the simulator.
    Setup(String),
}

impl Failure {
    /// Whether two failures are of one kind: what shortening keeps.
    #[must_use]
    pub fn like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// Runs a seed.
#[must_use]
pub fn run(seed: u64, steps: usize, mutation: Option<Mutation>) -> Outcome {
    run_ops(seed, &operations(seed, steps), mutation)
}

/// Runs a list of operations under a seed's profile.
#[must_use]
pub fn run_ops(seed: u64, ops: &[Op], mutation: Option<Mutation>) -> Outcome {
    let profile = Profile::of(seed);
    let sim = Sim::new(seed);
    let mut world = World::new(&sim, profile.mode);
    world.mutation = mutation;
    world.two_agents = profile.two_agents;
    world.watch(profile.watched);
    world.apply_mutation();
    world.say(format!("seed {seed}: {}", profile.describe()));
    let failure = judge(&mut world, &profile, ops);
    let trace = lock(&world.trace).clone();
    let (exposed, messages) = (world.exposed_count(), world.net.messages());
    let by_clients = world.exposed_by(CLIENT);
    // Tasks hold the world that holds them: without an end it would stay in memory.
    world.net.end();
    sim.end();
    Outcome { failure, virtual_ms: sim.now_ms(), exposed, by_clients, messages, trace }
}

fn judge(world: &mut World, profile: &Profile, ops: &[Op]) -> Option<Failure> {
    if let Err(why) = set_up(world, profile) {
        return Some(Failure::Setup(why));
    }
    for op in ops {
        world.sim.reseed(op.seed);
        match op.kind {
            Kind::Run(ms) => {
                world.flush();
                world.sim.run_for_ms(ms);
            }
            kind => operate(world, kind),
        }
        if let Some(duplicate) = world.duplicate() {
            return Some(Failure::Duplicate(duplicate));
        }
    }
    if !profile.store_back
        && let Some(text) = granted_to_an_old_epoch(world)
    {
        return Some(Failure::Invariant(text));
    }
    settle(world)
}

/// Drives one piece of work to its end.
pub fn finish<T: Send + 'static>(world: &World, ms: u64, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
    let cell: Arc<Mutex<Option<T>>> = Arc::default();
    let (process, cell2) = (world.sim.process(), Arc::clone(&cell));
    world.sim.spawn(process, async move {
        let done = work.await;
        *lock(&cell2) = Some(done);
    });
    world.sim.run_until(ms, || lock(&cell).is_some());
    world.sim.kill(process);
    lock(&cell).take()
}

/// Two authorities, two regions with their agents, namespaces, and processes that issue by themselves.
///
/// # Errors
/// In words.
pub fn set_up(world: &mut World, profile: &Profile) -> Result<(), String> {
    world.start_authority(0, 0);
    let found = world.sim.clone();
    if !found.run_until(10_000, || world.operator().is_some()) {
        return Err("no authority".to_owned());
    }
    let authority = world.operator().ok_or("no authority")?;
    let made = finish(world, 20_000, define(authority));
    made.ok_or("the definitions took too long")?.map_err(|e| e.to_string())?;
    for name in ["eu", "us"] {
        add_region(world, name, profile.region_witness)?;
    }
    world.start_region(0);
    world.sim.run_for_ms(3_000);
    world.start_region(1);
    world.sim.run_for_ms(8_000);
    // Without a witness every start of an authority waits for all regions: they are there by now.
    world.start_authority(1, 0);
    if profile.clocks {
        drift(world);
    }
    for (region, other) in CLIENTS {
        world.start_client(region, other);
    }
    world.sim.run_for_ms(10_000);
    Ok(())
}

/// No two clocks go alike: each gains or loses up to 2 %, some seconds in a run.
fn drift(world: &World) {
    let agents = world.regions.iter().flat_map(|r| r.agents.iter().map(|a| &a.clock));
    for clock in world.authorities.iter().map(|a| &a.clock).chain(agents) {
        let ppm = i64::try_from(world.sim.below(40_000)).unwrap_or(0) - 20_000;
        clock.set_drift_ppm(ppm);
    }
}

async fn define(authority: Arc<Authority>) -> Result<(), global_authority::service::ServiceError> {
    let policy = serde_json::json!({
        "grant_size": "60", "grant_max": "300", "segment_min": "4", "segment_max": "20",
        "target_seconds": 20, "buffer_seconds": 4, "grant_target_seconds": 40
    });
    let orders = serde_json::json!({"name": "orders", "policy": policy});
    let small = serde_json::json!({"name": "small", "policy": policy,
        "sequence": {"increment": "-3", "start": "40000", "min": "-40000", "max": "40000"}});
    // Few workers and short units: ids of one worker are taken again and again, and every unit is used up.
    let events = serde_json::json!({"name": EVENTS, "kind": "snowflake", "policy": policy,
        "layout": {"timestamp": 41, "region": 3, "worker": 2, "sequence": 2, "unit_ms": 10}});
    for body in [orders, small, events] {
        let new = serde_json::from_value(body).expect("a namespace");
        authority.new_namespace("simulator", new).await?;
    }
    let service = serde_json::json!({"name": SERVICE, "namespaces": ["orders", "small", EVENTS]});
    authority.new_service("simulator", serde_json::from_value(service).expect("a service")).await?;
    Ok(())
}

/// Registers a region and gives it a store, a witness and an agent that does not run yet.
///
/// # Errors
/// In words.
pub fn add_region(world: &mut World, name: &str, witnessed: bool) -> Result<(), String> {
    let authority = world.operator().ok_or("no authority")?;
    let region = cadastre_core::ids::Name::new(name).map_err(|e| e.to_string())?;
    let made = finish(world, 10_000, async move { authority.new_region("simulator", region).await });
    let made = made.ok_or("registering took too long")?.map_err(|e| e.to_string())?;
    let sim = world.sim.clone();
    let store = RegionStore {
        disk: Disk::shared(&sim, name, world.two_agents).watched(world.watched && world.two_agents),
        witness: SimWitness::new(&sim),
        backups: vec![],
    };
    let agent = || AgentProcess {
        process: sim.process(),
        agent: Arc::default(),
        clock: SimClock::new(&sim),
        store: 0,
        alive: false,
    };
    world.regions.push(Region {
        name: name.to_owned(),
        token: made.token,
        stores: vec![store],
        agents: vec![agent(), agent()],
        witnessed,
        retired: false,
        may_be_retired: false,
        rush: Arc::default(),
    });
    world.apply_mutation();
    Ok(())
}

/// Everything is healed and started; then everybody must be served, and the ledgers must hold together.
fn settle(world: &mut World) -> Option<Failure> {
    world.say("healing everything");
    heal(world);
    // Limit: where the clocks of an authority and of a region were ahead together and nobody else was heard, time was
    // given up to there; the region stamps again under its next epoch, or when that time has come.
    let stamps_needed = if time_given_ahead(world) { 0 } else { 5 };
    let before = Served::now(world);
    let sim = world.sim.clone();
    let mut waited = 0;
    loop {
        sim.run_for_ms(2_000);
        waited += 2_000;
        if let Some(duplicate) = world.duplicate() {
            return Some(Failure::Duplicate(duplicate));
        }
        let starved = starved(world, &before, stamps_needed);
        if starved.is_empty() {
            break;
        }
        if waited >= SETTLE_MS {
            let open = world.operator().map(|a| a.how().as_str());
            let waits = world.operator().and_then(|a| finish(world, 20_000, async move { a.quarantines().await }));
            let waits = waits.and_then(Result::ok).and_then(|q| q.quarantines.into_iter().next());
            let states: Vec<String> = world.regions.iter().map(Region::describe).collect();
            return Some(Failure::Wedge(format!(
                "{} not served; the authority is {open:?}, waiting for {:?}; {}",
                starved.join(", "),
                waits.map(|q| (q.reason, q.waiting_for)),
                states.join("; ")
            )));
        }
    }
    let authority = world.operator()?;
    match finish(world, 20_000, async move { authority.verify().await }) {
        Some(Ok(verdict)) if verdict.ok => None,
        Some(Ok(verdict)) => Some(Failure::Invariant(format!("{:?}", verdict.findings))),
        Some(Err(error)) => Some(Failure::Wedge(format!("verify: {error}"))),
        None => Some(Failure::Wedge("verify took too long".to_owned())),
    }
}

/// How many ids everybody has had.
struct Served {
    /// Of each region's agents, in all and by time.
    regions: Vec<(usize, usize)>,
    /// Of the processes that issue by themselves.
    clients: Vec<usize>,
}

impl Served {
    fn now(world: &World) -> Self {
        let of_region = |r: &Region| (world.exposed_by(&r.name), world.stamped_by(&r.name));
        let of_client = |(region, _): &(&str, &str)| world.exposed_by(&client_name(region));
        Self {
            regions: world.regions.iter().map(of_region).collect(),
            clients: CLIENTS.iter().map(of_client).collect(),
        }
    }
}

/// Who should have been served by now and was not.
fn starved(world: &World, before: &Served, stamps_needed: usize) -> Vec<String> {
    let now = Served::now(world);
    let serves = |region: &Region| {
        !region.retired && !region.may_be_retired && !region.is_forgotten(world.exposed_by(&region.name))
    };
    let regions = world.regions.iter().zip(now.regions.iter().zip(&before.regions));
    let hungry =
        |(now, before): (&(usize, usize), &(usize, usize))| now.0 < before.0 + 60 || now.1 < before.1 + stamps_needed;
    let regions = regions.filter(|(region, counts)| serves(region) && hungry(*counts)).map(|(r, _)| r.name.clone());
    let clients = CLIENTS.iter().zip(now.clients.iter().zip(&before.clients));
    let fed_by =
        |names: &(&str, &str)| world.regions.iter().any(|r| (r.name == names.0 || r.name == names.1) && serves(r));
    let clients = clients.filter(|(names, (now, before))| fed_by(names) && **now < **before + 20);
    regions.chain(clients.map(|(names, _)| client_name(names.0))).collect()
}

/// Whether time was given in any slot beyond what the policy gives by right clocks.
fn time_given_ahead(world: &World) -> bool {
    let sql = "SELECT bound FROM scopes WHERE scope LIKE 'ns/events@%' ORDER BY bound DESC LIMIT 1";
    let rows = world.stores[world.current].disk.look(sql, &[]);
    let given = rows.first().and_then(|row| row.uint(0).ok()).unwrap_or(0);
    let layout = Layout::new([41, 3, 2, 2], 10, Layout::default().begins_ms(0));
    let right = super::parts::EPOCH_MS + world.sim.now_ms() + 60_000;
    layout.is_ok_and(|layout| layout.begins_ms(given) > right)
}

fn heal(world: &mut World) {
    world.witness.set_down(false);
    for n in 0..world.authorities.len() {
        world.authorities[n].clock.set_offset_ms(0);
        world.authorities[n].clock.set_drift_ppm(0);
        let current = world.current;
        world.start_authority(n, current);
    }
    world.stores[world.current].disk.set_down(false);
    for r in 0..world.regions.len() {
        let name = world.regions[r].name.clone();
        world.net.set(&name, Link::default());
        for agent in 0..world.regions[r].agents.len() {
            world.stop_agent(r, agent);
            world.regions[r].agents[agent].clock.set_offset_ms(0);
            world.regions[r].agents[agent].clock.set_drift_ppm(0);
        }
        for store in &world.regions[r].stores {
            store.disk.set_down(false);
            store.witness.set_down(false);
        }
        if !world.regions[r].retired {
            world.start_region(r);
        }
    }
    world.sim.run_for_ms(4_000);
    recover_all(world);
}

/// Fenced and drained regions are brought back; a frozen or deleted namespace is made live; every home is all regions.
fn recover_all(world: &mut World) {
    for _ in 0..10 {
        let Some(authority) = world.operator() else { continue };
        if !authority.is_open() {
            // A store from before a region was retired waits for it for ever: the operator speaks for it.
            for r in (0..world.regions.len()).filter(|r| world.regions[*r].retired).collect::<Vec<_>>() {
                state_bounds(world, &authority, r);
            }
            world.sim.run_for_ms(3_000);
            continue;
        }
        let names: Vec<_> = world.regions.iter().filter(|r| !r.retired).map(|r| r.name.clone()).collect();
        let done = finish(world, 20_000, async move {
            for name in names {
                let name = cadastre_core::ids::Name::new(name).expect("a name");
                let _ = authority.recover(&name, &RegionAction::default(), "simulator").await;
            }
            for body in [serde_json::json!({"name": "orders"}), serde_json::json!({"name": "small"})] {
                let _ = authority.new_namespace("simulator", serde_json::from_value(body).expect("a namespace")).await;
            }
            homes::open_all(&authority).await?;
            for name in ["orders", "small"] {
                let patch = serde_json::from_value(serde_json::json!({"frozen": false})).expect("a patch");
                let name = cadastre_core::ids::Name::new(name).expect("a name");
                authority.patch_namespace("simulator", &name, patch).await?;
            }
            Ok::<_, global_authority::service::ServiceError>(())
        });
        match done {
            Some(Ok(())) => return,
            Some(Err(error)) => world.say(format!("not made live again: {error}")),
            None => world.say("not made live again within 20 s"),
        }
    }
}

/// Leaves out operations as long as the run still fails in the same way.
#[must_use]
pub fn shorten(seed: u64, ops: Vec<Op>, failure: &Failure, mutation: Option<Mutation>) -> Vec<Op> {
    let mut ops = ops;
    let mut size = ops.len().div_ceil(2);
    while size >= 1 {
        let mut at = 0;
        let mut changed = false;
        while at < ops.len() {
            let mut fewer = ops.clone();
            fewer.drain(at..(at + size).min(fewer.len()));
            if run_ops(seed, &fewer, mutation).failure.is_some_and(|f| f.like(failure)) {
                ops = fewer;
                changed = true;
            } else {
                at += size;
            }
        }
        if size == 1 && !changed {
            break;
        }
        size = (size / 2).max(1);
    }
    ops
}

/// Looks for a removal: the seed that finds it, and how many runs it took. Wedges count only where the rule
/// is about liveness; a removal is found by a duplicate or a broken invariant.
#[must_use]
pub fn hunt(rule: Mutation, first_seed: u64, steps: usize) -> Option<(u64, u64)> {
    let mut tried = 0;
    let mut seed = first_seed;
    while tried < rule.within {
        seed += 1;
        if !(rule.shows)(&Profile::of(seed)) {
            continue;
        }
        tried += 1;
        match run(seed, steps, Some(rule)).failure {
            Some(Failure::Duplicate(_) | Failure::Invariant(_)) => return Some((seed, tried)),
            Some(Failure::Wedge(_) | Failure::Setup(_)) if rule.wedges => return Some((seed, tried)),
            Some(Failure::Wedge(_) | Failure::Setup(_)) | None => {}
        }
    }
    None
}
