//! What a region says, and what it is told, while the authority's store comes into doubt: over the simulated engine,
//! where one instant can be chosen.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::{Arc, Mutex};

use cadastre_core::continuity::WitnessMode;
use cadastre_core::ids::{AllocationId, Name, RowId, SessionNo};
use cadastre_core::mark::{Generation, Mark, Scope, ScopeMark};
use cadastre_protocol::link::{Answer, GrantAnswer};
use cadastre_runtime::entropy::Entropy;
use global_authority::service::ServiceError;
use tests::puppet::{Puppet, want};
use tests::sim::exec::Sim;
use tests::sim::ops::Profile;
use tests::sim::parts::{EPOCH_MS, SimEntropy};
use tests::sim::run::{finish, set_up};
use tests::sim::world::{World, lock};

/// A world with one authority, and its two regions.
fn small(seed: u64, mode: WitnessMode) -> World {
    let sim = Sim::new(seed);
    let mut world = World::new(&sim, mode);
    let profile = Profile { mode, clocks: false, ..Profile::of(seed) };
    set_up(&mut world, &profile).unwrap();
    world.stop_authority(1);
    world
}

/// Plays a region by hand, on the store of its agent, which is stopped.
fn puppet(world: &mut World, r: usize) -> Puppet {
    let agent = lock(&world.regions[r].agents[0].agent).clone().unwrap();
    let mut puppet = Puppet::new(&world.regions[r].name, EPOCH_MS + world.sim.now_ms());

    puppet.sender.epoch = agent.ctx.view().epoch();
    puppet.sender.store_id = agent.ctx.me.store_id;
    puppet.sender.session = SessionNo(agent.ctx.me.session.0 + 1);
    puppet.words.store_mark.seq = 1_000_000;
    world.stop_region(r);
    puppet
}

fn says(world: &World, puppet: &mut Puppet) -> Result<Answer, ServiceError> {
    let (authority, caller, message) =
        (world.operator().unwrap(), puppet.sender.region.clone(), puppet.message(vec![]));
    finish(world, 20_000, async move { authority.message(&caller, message).await }).unwrap()
}

/// Whoever holds a region's token claims a mark so far ahead that nothing can be counted past it. What no store of this
/// cluster can have written is refused: were it believed, no quarantine could ever end again.
#[test]
fn a_mark_that_nobody_can_count_past_is_not_kept() {
    let last = u64::try_from(i64::MAX).unwrap();
    for (counter, seq) in [(0, last), (u32::MAX, 5), (u32::MAX - 1, 5)] {
        for mode in [WitnessMode::None, WitnessMode::Required] {
            let mut world = small(3, mode);
            let mut eu = puppet(&mut world, 0);
            // Its store is judged by what its agent said before.
            eu.words.proven = false;
            let ours = says(&world, &mut eu).unwrap().generation;
            let generation = Generation { counter: counter.max(ours.counter), random: ours.random };
            let row = RowId(SimEntropy(world.sim.clone()).uuid_v4());
            let mark = Mark { generation, seq, row, bound: 0 };
            eu.words.marks = vec![ScopeMark { scope: Scope::Roster, mark }];
            let _ = says(&world, &mut eu);
            world.sim.run_for_ms(5_000);
            // The next start is in doubt where there is no witness, and both regions say all that they know.
            for _ in 0..2 {
                world.start_authority(0, 0);
                world.start_region(0);
                world.sim.run_for_ms(60_000);
            }
            let open = world.operator().is_some_and(|authority| authority.is_open());
            assert!(open, "{mode:?} {mark:?}: nothing is ever granted again\n{}", lock(&world.trace).join("\n"));
            world.net.end();
            world.sim.end();
        }
    }
}

/// A range may lie above a definition's change; so whoever is told of a range is told of the definition too, also where
/// the store comes into doubt between the two.
#[test]
fn a_range_never_comes_without_the_definition_that_it_lies_in() {
    for delay_us in (0..12_000).step_by(500) {
        let mut world = small(5, WitnessMode::None);
        let (mut eu, mut us) = (puppet(&mut world, 0), puppet(&mut world, 1));
        let ours = says(&world, &mut eu).unwrap();
        eu.hear(&ours);
        let known = says(&world, &mut us).unwrap();
        us.hear(&known);
        us.words.promised = Generation { counter: known.generation.counter + 1, random: 7 };
        let authority = world.operator().unwrap();
        let orders = Name::new("orders").unwrap();
        let (operated, named) = (Arc::clone(&authority), orders.clone());
        let patch = serde_json::json!({"sequence": {"start": "2000000000000"}});
        let patch = serde_json::from_value(patch).unwrap();
        finish(&world, 20_000, async move { operated.patch_namespace("me", &named, patch).await }).unwrap().unwrap();
        let id = SimEntropy(world.sim.clone()).uuid_v7(EPOCH_MS + world.sim.now_ms());
        let asks = eu.message(vec![want(AllocationId::new(id).unwrap(), "orders", 60)]);
        let doubts = us.message(vec![]);
        let cell: Arc<Mutex<Option<Answer>>> = Arc::default();
        let (told, asked, process) = (Arc::clone(&cell), Arc::clone(&authority), world.sim.process());
        world.sim.spawn(process, async move {
            if let Ok(answer) = asked.message(&Name::new("eu").unwrap(), asks).await {
                *lock(&told) = Some(answer);
            }
        });
        let sim = world.sim.clone();
        world.sim.spawn(process, async move {
            sim.sleep_us(delay_us).await;
            let _ = authority.message(&Name::new("us").unwrap(), doubts).await;
        });
        world.sim.run_for_ms(2_000);
        if let Some(answer) = lock(&cell).take() {
            let given = answer.grants.iter().any(|grant| matches!(grant, GrantAnswer::Granted(_)));
            let defined = answer.roster.iter().any(|entry| entry.name == orders);
            assert!(!given || defined, "after {delay_us} us: {answer:?}");
        }
        world.net.end();
        world.sim.end();
    }
}

/// The authority's store and a region's are put back to copies of one night, the region's a little younger, and only the
/// authority has a witness. What the authority kept of the region's store is as old as its own copy, so it cannot say
/// that the region's store is the newest one: nothing of that store may be used.
#[test]
fn an_authority_that_went_back_confirms_no_store_that_may_have_gone_back_with_it() {
    for seed in 1..4 {
        let sim = Sim::new(seed);
        let mut world = World::new(&sim, WitnessMode::Required);
        let profile = Profile {
            mode: WitnessMode::Required,
            clocks: false,
            region_witness: false,
            region_back: false,
            ..Profile::of(seed)
        };
        set_up(&mut world, &profile).unwrap();
        world.stop_authority(1);
        let above = world.stores[0].disk.image();
        world.sim.run_for_ms(10_000);
        let below = world.regions[0].stores[0].disk.image();
        world.sim.run_for_ms(20_000);
        world.stop_region(0);
        world.stop_authority(0);
        world.stores[0].disk.put_back(&above);
        world.regions[0].stores[0].disk.put_back(&below);
        world.start_authority(0, 0);
        world.sim.run_for_ms(10_000);
        world.start_region(0);
        world.sim.run_for_ms(60_000);
        let twice = lock(&world.exposed).duplicate.clone();
        assert!(twice.is_none(), "seed {seed}: {twice:?}\n{}", lock(&world.trace).join("\n"));
        let agent = lock(&world.regions[0].agents[0].agent).clone().unwrap();
        assert!(agent.ctx.may_carve().is_ok(), "seed {seed}: it goes on");
        world.net.end();
        world.sim.end();
    }
}
