//! What waits for the gate together, over the simulated engine, where one instant can be chosen.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use cadastre_core::continuity::WitnessMode;
use cadastre_core::ids::{AllocationId, Name};
use cadastre_ledger::continuity::How;
use cadastre_protocol::link::{Granted, Want};
use cadastre_runtime::entropy::Entropy;
use global_authority::service::grants::{Asker, Outcome};
use tests::sim::exec::Sim;
use tests::sim::ops::Profile;
use tests::sim::parts::{EPOCH_MS, SimEntropy};
use tests::sim::run::set_up;
use tests::sim::world::{World, lock};

/// A world with one authority, a required witness, and nobody who asks by itself; and who may ask.
fn quiet(seed: u64) -> (World, Asker) {
    let sim = Sim::new(seed);
    let mut world = World::new(&sim, WitnessMode::Required);
    let profile = Profile { mode: WitnessMode::Required, clocks: false, ..Profile::of(seed) };
    set_up(&mut world, &profile).unwrap();
    let agent = lock(&world.regions[0].agents[0].agent).clone().unwrap();
    let asker = Asker {
        region: Name::new("eu").unwrap(),
        region_id: agent.ctx.view().standing.unwrap().region_id,
        epoch: agent.ctx.view().epoch().unwrap(),
        store_id: agent.ctx.me.store_id,
        clock_ms: EPOCH_MS + sim.now_ms(),
    };
    world.stop_region(0);
    world.stop_region(1);
    world.stop_authority(1);
    (world, asker)
}

fn want(world: &World) -> Want {
    let id = SimEntropy(world.sim.clone()).uuid_v7(EPOCH_MS + world.sim.now_ms());
    Want { allocation_id: AllocationId::new(id).unwrap(), namespace: Name::new("orders").unwrap(), want: 60 }
}

/// Three turns: the first one's gate waits for the witness, the second commits and queues behind it, the store is put
/// back to what it was before the second, and the third commits on that. The second's row is gone, and the third's lies in
/// its place: what the second was given may not be answered, although a newer mark of its generation is there.
#[test]
fn a_turn_whose_row_is_gone_by_the_time_of_its_gate_is_not_answered() {
    for seed in 1..6 {
        let (world, asker) = quiet(seed);
        let authority = world.operator().unwrap();
        let ask = || {
            let receiver = authority.submit(&asker, &want(&world));
            world.sim.run_for_ms(50);
            receiver
        };
        // By it the authority hears of the generation that the other one opened at its start.
        drop(ask());
        world.witness.set_hangs(true);
        let first = ask();
        let image = world.stores[0].disk.image();
        let second = ask();
        world.stores[0].disk.put_back(&image);
        let third = ask();
        world.witness.set_hangs(false);
        // The witness, which names a row that the store lacks, may end the doubt by itself soon.
        let doubted = world.sim.run_until(2_000, || authority.how() == How::WentBack);
        world.sim.run_for_ms(500);
        let answered: Vec<Granted> = [first, second, third].into_iter().filter_map(granted).collect();
        for (n, one) in answered.iter().enumerate() {
            let overlaps = answered[n + 1..].iter().any(|two| one.lo < two.hi && two.lo < one.hi);
            assert!(!overlaps, "seed {seed}: {answered:?}\n{}", lock(&world.trace).join("\n"));
        }
        assert!(doubted, "seed {seed}: the row of an answer is gone, and nobody doubts the store");
        world.net.end();
        world.sim.end();
    }
}

fn granted(mut receiver: tokio::sync::oneshot::Receiver<Outcome>) -> Option<Granted> {
    receiver.try_recv().unwrap().ok()
}
