//! Carrying out one operation on the world.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cadastre_core::ids::Name;
use cadastre_core::registry::RegionEvent;
use cadastre_protocol::admin::{Lift, RegionAction};
use cadastre_runtime::db::Value;
use global_authority::service::{Authority, ServiceError};

use super::callers::EVENTS;
use super::disk::{Disk, Image};
use super::homes;
use super::net::Link;
use super::ops::Kind;
use super::parts::SimWitness;
use super::run::{add_region, finish};
use super::world::{RegionStore, Store, World};

/// How long an operator waits for the authority, in milliseconds of virtual time.
const PATIENCE_MS: u64 = 8_000;

/// How long callers are in a hurry after a store was copied, in milliseconds of virtual time.
const RUSH_MS: u64 = 2_000;

/// Carries out `kind`; what cannot be done just now is left undone.
pub fn operate(world: &mut World, kind: Kind) {
    match kind {
        Kind::Run(ms) => world.sim.run_for_ms(ms),
        Kind::KillAuthority(n) => world.stop_authority(n),
        Kind::StartAuthority(n) => {
            let store = world.current;
            if !world.authorities[n].alive || world.authorities[n].store != store {
                world.start_authority(n, store);
            }
        }
        Kind::PauseAuthority(n) => pause(world, world.authorities[n].process, true),
        Kind::ResumeAuthority(n) => pause(world, world.authorities[n].process, false),
        Kind::KillAgent(_)
        | Kind::StartAgent(_)
        | Kind::PauseAgent(_)
        | Kind::ResumeAgent(_)
        | Kind::BackupRegion(_)
        | Kind::RestoreRegion(_)
        | Kind::CloneRegion(_)
        | Kind::RegionWitnessLost(_)
        | Kind::RegionStoreDown(..)
        | Kind::Cut(_)
        | Kind::CutBack(_)
        | Kind::Lossy(_)
        | Kind::Heal(_)
        | Kind::AgentClock(..) => of_region(world, kind),
        Kind::AuthorityClock(n, ms) => {
            world.say(format!("the clock of authority {n} jumps by {ms} ms"));
            world.authorities[n].clock.set_offset_ms(ms);
        }
        Kind::RestartStore
        | Kind::PowerCut(_)
        | Kind::StoreDown(_)
        | Kind::BackupStore
        | Kind::RestoreStore(_)
        | Kind::Promote(..)
        | Kind::WitnessDown
        | Kind::WitnessUp
        | Kind::WitnessLost
        | Kind::BackupWitness
        | Kind::WitnessOld => of_store(world, kind),
        Kind::Fence(_)
        | Kind::Recover(_)
        | Kind::Drain(_)
        | Kind::Retire(_)
        | Kind::NewRegion
        | Kind::DeleteAndRecreate
        | Kind::FreezeOrThaw
        | Kind::NewDefinition
        | Kind::StateBounds(_)
        | Kind::Switch(_)
        | Kind::BackOut => by_operator(world, kind),
    }
}

fn pause(world: &World, process: super::exec::ProcessId, on: bool) {
    world.say(format!("process {} {}", process.0, if on { "is paused" } else { "goes on" }));
    world.sim.pause(process, on);
}

/// The authority's store and witness.
fn of_store(world: &mut World, kind: Kind) {
    let current = world.current;
    match kind {
        Kind::RestartStore => {
            world.say("the authority's database restarts");
            world.stores[current].disk.restart();
        }
        Kind::PowerCut(n) => power_cut(world, n),
        Kind::StoreDown(ms) => {
            world.say(format!("the authority's database is down for {ms} ms"));
            world.stores[current].disk.set_down(true);
            world.sim.run_for_ms(ms);
            world.stores[current].disk.set_down(false);
        }
        Kind::BackupStore => {
            world.say("backup of the authority's store");
            let image = world.stores[current].disk.image();
            world.stores[current].backups.push(image);
        }
        Kind::RestoreStore(n) => {
            let Some(image) = older(&world.stores[current].backups, n) else { return };
            restore_store(world, &image);
        }
        Kind::Promote(n, old_stays) => {
            let Some(image) = older(&world.stores[current].backups, n) else { return };
            world.say(format!(
                "a standby that lags is promoted; the old primary {}",
                if old_stays { "lives on" } else { "is gone" }
            ));
            let disk = Disk::new(&world.sim, &format!("promoted{}", world.stores.len()), Some(&image));
            let disk = disk.watched(world.watched);
            world.stores.push(Store { disk, backups: vec![image] });
            world.current = world.stores.len() - 1;
            world.apply_mutation();
            let current = world.current;
            world.start_authority(0, current);
            if !old_stays {
                world.start_authority(1, current);
            }
        }
        Kind::WitnessDown => {
            world.say("the witness is out of reach");
            world.witness.set_down(true);
        }
        Kind::WitnessUp => world.witness.set_down(false),
        Kind::WitnessLost => {
            world.say("the witness is lost");
            world.witness.lose();
        }
        Kind::BackupWitness => world.witness_backup = Some(world.witness.image()),
        Kind::WitnessOld => {
            if let Some(marks) = world.witness_backup.clone() {
                world.say("the witness is put back");
                world.witness.put_back(marks);
            }
        }
        _ => {}
    }
}

/// The authority's store is put back; a server that is watched may be so under living processes.
fn restore_store(world: &mut World, image: &Image) {
    let current = world.current;
    if world.watched && world.sim.one_in(2) {
        world.say("the authority's store is put back to a backup under its living processes");
        world.stores[current].disk.put_back(image);
        return;
    }
    world.say("the authority's store is put back to a backup; its processes are started anew");
    for a in 0..world.authorities.len() {
        world.stop_authority(a);
    }
    world.stores[current].disk.put_back(image);
    for a in 0..world.authorities.len() {
        world.start_authority(a, current);
    }
}

/// The power of one machine fails: of the authority's, or of a region's.
fn power_cut(world: &mut World, n: usize) {
    if n == 0 {
        world.say("the authority's machine loses power");
        for a in 0..world.authorities.len() {
            world.stop_authority(a);
        }
        let current = world.current;
        world.stores[current].disk.power_cut();
        for a in 0..world.authorities.len() {
            world.start_authority(a, current);
        }
    } else if n - 1 < world.regions.len() && !world.regions[n - 1].retired {
        world.say(format!("the machine of {} loses power", world.regions[n - 1].name));
        world.stop_region(n - 1);
        world.regions[n - 1].stores[0].disk.power_cut();
        world.start_region(n - 1);
    }
}

fn older(backups: &[Image], n: usize) -> Option<Image> {
    if backups.is_empty() { None } else { backups.get(n % backups.len()).cloned() }
}

/// A region's agents, stores, witness, link and clock.
fn of_region(world: &mut World, kind: Kind) {
    let r = match kind {
        Kind::KillAgent(r)
        | Kind::StartAgent(r)
        | Kind::PauseAgent(r)
        | Kind::ResumeAgent(r)
        | Kind::BackupRegion(r)
        | Kind::RestoreRegion(r)
        | Kind::CloneRegion(r)
        | Kind::RegionWitnessLost(r)
        | Kind::RegionStoreDown(r, _)
        | Kind::Cut(r)
        | Kind::CutBack(r)
        | Kind::Lossy(r)
        | Kind::Heal(r)
        | Kind::AgentClock(r, _) => r,
        _ => return,
    };
    if r >= world.regions.len() || world.regions[r].retired {
        return;
    }
    let name = world.regions[r].name.clone();
    let mut link = world.net.link(&name);
    match kind {
        Kind::KillAgent(_) => world.stop_agent(r, 0),
        Kind::StartAgent(_) => world.start_region(r),
        Kind::PauseAgent(_) => pause(world, world.regions[r].agents[0].process, true),
        Kind::ResumeAgent(_) => pause(world, world.regions[r].agents[0].process, false),
        Kind::BackupRegion(_) => {
            world.say(format!("backup of {name}'s store"));
            let image = world.regions[r].stores[0].disk.image();
            world.regions[r].stores[0].backups.push(image);
        }
        Kind::RestoreRegion(_) => restore_region(world, r),
        Kind::CloneRegion(_) => clone_region(world, r),
        Kind::RegionWitnessLost(_) => {
            world.say(format!("{name}'s witness is lost"));
            world.regions[r].stores[0].witness.lose();
        }
        Kind::RegionStoreDown(_, ms) => {
            world.say(format!("{name}'s database is down for {ms} ms"));
            world.regions[r].stores[0].disk.set_down(true);
            world.sim.run_for_ms(ms);
            world.regions[r].stores[0].disk.set_down(false);
        }
        Kind::Cut(_) => (link.cut_there, link.cut_back) = (true, true),
        Kind::CutBack(_) => link.cut_back = true,
        Kind::Lossy(_) => (link.lose_one_in, link.double_one_in, link.delay_ms) = (4, 3, 2_000),
        Kind::Heal(_) => link = Link::default(),
        Kind::AgentClock(_, ms) => world.regions[r].agents[0].clock.set_offset_ms(ms),
        _ => {}
    }
    if matches!(kind, Kind::Cut(_) | Kind::CutBack(_) | Kind::Lossy(_) | Kind::Heal(_) | Kind::AgentClock(..)) {
        world.say(format!("{kind:?}").replacen(&format!("({r}"), &format!("({name}"), 1));
    }
    world.net.set(&name, link);
}

fn restore_region(world: &mut World, r: usize) {
    let n = usize::try_from(world.sim.random() % 8).unwrap_or(0);
    let Some(image) = older(&world.regions[r].stores[0].backups, n) else { return };
    world.say(format!("{}'s store is put back to a backup", world.regions[r].name));
    world.stop_agent(r, 0);
    world.regions[r].stores[0].disk.put_back(&image);
    world.start_agent(r, 0, 0);
}

/// The data folder is copied to a second machine and started there. The witness beside it is copied too where the
/// authority can be reached; while the region is cut off, two such copies are among the limits.
fn clone_region(world: &mut World, r: usize) {
    let image = world.regions[r].stores[0].disk.image();
    let whole = world.reaches_authority(r) && world.sim.one_in(2);
    world.say(format!(
        "{}'s data folder is copied{} and a second agent started on the copy",
        world.regions[r].name,
        if whole { ", witness and all," } else { "" }
    ));
    let witness = SimWitness::new(&world.sim);
    if whole {
        witness.put_back(world.regions[r].stores[0].witness.image());
    }
    let copy = RegionStore { disk: Disk::new(&world.sim, "clone", Some(&image)), witness, backups: vec![] };
    world.stop_agent(r, 1);
    world.regions[r].stores.truncate(1);
    world.regions[r].stores.push(copy);
    world.apply_mutation();
    world.start_agent(r, 1, 1);
    // Both are asked for much before the authority can tell them apart.
    let rush = Arc::clone(&world.regions[r].rush);
    rush.store(true, Ordering::Relaxed);
    world.sim.run_for_ms(RUSH_MS);
    rush.store(false, Ordering::Relaxed);
    if whole {
        // Its first message is answered: what happens to the network later does not make it cut off now.
        world.sim.run_for_ms(PATIENCE_MS);
    }
}

/// What people do.
fn by_operator(world: &mut World, kind: Kind) {
    let Some(authority) = world.operator() else { return };
    world.say(format!("operator: {kind:?}"));
    match kind {
        Kind::NewRegion if world.regions.len() < 3 && authority.is_open() => {
            let witnessed = world.regions[0].witnessed;
            if add_region(world, "ap", witnessed).is_ok() {
                world.start_region(2);
            }
        }
        Kind::StateBounds(r) => state_bounds(world, &authority, r),
        Kind::Switch(r) => homes::switch(world, authority, r),
        Kind::BackOut => homes::back_out(world, authority),
        Kind::Retire(r) => {
            // One region always stays, or nobody is left to be served.
            if r == 0 || r >= world.regions.len() || world.regions[r].retired {
                return;
            }
            let name = region_name(world, r);
            let retired = finish(world, PATIENCE_MS, async move { authority.retire(&name, "simulator").await });
            if matches!(retired, Some(Ok(_))) {
                world.regions[r].retired = true;
            } else if retired.is_none() {
                // Nobody knows whether it was done: the region goes on as long as it is let, and is not counted on.
                world.regions[r].may_be_retired = true;
            }
        }
        Kind::Fence(r) | Kind::Drain(r) | Kind::Recover(r) if r < world.regions.len() => {
            let name = region_name(world, r);
            let fenced = finish(world, PATIENCE_MS, async move {
                match kind {
                    Kind::Fence(_) => authority.region_event(&name, RegionEvent::Fence, "simulated", "simulator").await,
                    Kind::Drain(_) => authority.region_event(&name, RegionEvent::Drain, "simulated", "simulator").await,
                    _ => authority.recover(&name, &RegionAction::default(), "simulator").await,
                }
            });
            if let Some(Ok(entry)) = fenced {
                let disk = &world.stores[world.current].disk;
                let at = ["orders", "small"].map(|ns| (ns, max_hi(disk, ns)));
                let region = world.regions[r].name.clone();
                world.epochs.push((region, entry.epoch.0, at));
            }
        }
        Kind::DeleteAndRecreate | Kind::FreezeOrThaw | Kind::NewDefinition => {
            let freeze = world.sim.one_in(2);
            let step = i64::try_from(world.sim.below(3)).unwrap_or(0);
            let _ = finish(world, PATIENCE_MS, async move { change_namespace(&authority, kind, freeze, step).await });
        }
        _ => {}
    }
}

async fn change_namespace(authority: &Authority, kind: Kind, freeze: bool, step: i64) -> Result<(), ServiceError> {
    let orders = Name::new("orders").expect("a name");
    match kind {
        Kind::DeleteAndRecreate => {
            authority.delete_namespace("simulator", &orders).await?;
            let new = serde_json::from_value(serde_json::json!({"name": "orders"})).expect("a namespace");
            authority.new_namespace("simulator", new).await?;
        }
        Kind::FreezeOrThaw => {
            let patch = serde_json::from_value(serde_json::json!({"frozen": freeze})).expect("a patch");
            authority.patch_namespace("simulator", &orders, patch).await?;
        }
        _ => {
            // Far above everything that was granted, so that it may be accepted.
            let start = 1_000_000_000_000_i64 * (2 + step);
            let sequence = serde_json::json!({"start": start.to_string(), "increment": (1 + step).to_string()});
            let patch = serde_json::from_value(serde_json::json!({"sequence": sequence})).expect("a patch");
            authority.patch_namespace("simulator", &orders, patch).await?;
        }
    }
    Ok(())
}

/// An operator states the truth about a silent region, having stopped the old stores' authorities.
pub(super) fn state_bounds(world: &mut World, authority: &Arc<Authority>, r: usize) {
    if r >= world.regions.len() || authority.is_open() {
        return;
    }
    for n in 0..world.authorities.len() {
        if world.authorities[n].store != world.current {
            world.stop_authority(n);
        }
    }
    let name = region_name(world, r);
    for namespace in ["orders", "small", EVENTS] {
        let bound = world.regions.iter().map(|region| highest(region, namespace)).max().unwrap_or(0);
        let lift = Lift {
            bounds: BTreeMap::from([(name.clone(), bound.max(highest_known(world, namespace)))]),
            old_store_stopped: true,
            reason: "simulated".to_owned(),
        };
        let (authority, namespace) = (Arc::clone(authority), Name::new(namespace).expect("a name"));
        let _ = finish(world, PATIENCE_MS, async move { authority.state_bounds("simulator", &namespace, lift).await });
    }
}

/// The end of the highest range that any store of a region holds.
fn highest(region: &super::world::Region, namespace: &str) -> u64 {
    region.stores.iter().map(|s| max_hi(&s.disk, namespace)).max().unwrap_or(0)
}

/// The end of the highest range in any store of the authority.
fn highest_known(world: &World, namespace: &str) -> u64 {
    world.stores.iter().map(|s| max_hi(&s.disk, namespace)).max().unwrap_or(0)
}

/// A3: after an epoch rose, nothing was granted under an older one. Looked at where the store never went
/// back, so that its ledger is the whole history.
#[must_use]
pub fn granted_to_an_old_epoch(world: &World) -> Option<String> {
    let disk = &world.stores[world.current].disk;
    let sql = "SELECT lo, epoch FROM grants WHERE namespace = $1 AND region = $2 AND epoch < $3 AND lo >= $4";
    for (region, epoch, places) in &world.epochs {
        for (namespace, at) in places {
            let args = [Value::from(*namespace), Value::from(region), Value::int(*epoch).ok()?, Value::int(*at).ok()?];
            if let Some(row) = disk.look(sql, &args).first() {
                let (lo, old) = (row.uint(0).ok()?, row.uint(1).ok()?);
                return Some(format!(
                    "A3: {region} was granted {namespace} {lo} under epoch {old} after {epoch} began"
                ));
            }
        }
    }
    None
}

fn max_hi(disk: &Disk, namespace: &str) -> u64 {
    // A namespace's own number line, or those of its slots.
    let sql = "SELECT hi FROM grants WHERE namespace = $1 OR namespace LIKE $1 || '@%' ORDER BY hi DESC LIMIT 1";
    let rows = disk.look(sql, &[Value::from(namespace)]);
    rows.first().and_then(|row| row.uint(0).ok()).unwrap_or(0)
}

fn region_name(world: &World, r: usize) -> Name {
    Name::new(world.regions[r].name.clone()).expect("a name")
}
