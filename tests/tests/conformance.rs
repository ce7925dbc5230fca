//! One suite, three stores: the same operations on SQLite, on PostgreSQL and on the simulator's
//! engine, each answer compared with a model that fits on a page.
//!
//! The service and its SQL are the shipped ones. What may differ between engines (locking, types,
//! how a missing row or a lost race shows) must not show in any answer.

// A test says what is wrong by stopping.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::sync::Arc;

use cadastre_core::continuity::WitnessMode;
use cadastre_core::ids::{AllocationId, Name};
use cadastre_core::registry::RegionEvent;
use cadastre_ledger::continuity::Parts;
use cadastre_protocol::admin::{NamespacePatch, NewNamespace};
use cadastre_runtime::clock::{Clock, SystemClock};
use cadastre_runtime::db::{self, ConnectOptions, Db};
use cadastre_runtime::entropy::SystemEntropy;
use global_authority::service::{Authority, Settings};
use global_authority::sql::MIGRATIONS;
use tests::postgres::Postgres;
use tests::puppet::{Puppet, allocation, outcome, want};
use tests::sim::disk::Disk;
use tests::sim::exec::{Sim, splitmix};

const TOKEN: &str = "cad_op_0000000000000000000000000000000000000000000000000000000000000000";

/// The model: a watermark, the ledger by allocation, and who may get something.
#[derive(Default)]
struct Model {
    watermark: u64,
    capacity: u64,
    frozen: bool,
    rows: BTreeMap<AllocationId, Row>,
    epochs: [u64; 2],
    active: [bool; 2],
}

#[derive(Clone, Copy)]
struct Row {
    region: usize,
    want: u64,
    lo: u64,
    hi: u64,
    epoch: u64,
    confirmed: bool,
}

impl Model {
    fn grant(&mut self, region: usize, id: AllocationId, want: u64) -> Result<(u64, u64), &'static str> {
        if !self.active[region] {
            return Err("region_not_ready");
        }
        if let Some(row) = self.rows.get(&id) {
            return match row {
                row if row.region != region || row.want != want => Err("allocation_conflict"),
                row if row.confirmed => Err("already_confirmed"),
                row if row.epoch != self.epochs[region] => Err("epoch_fenced"),
                row => Ok((row.lo, row.hi)),
            };
        }
        if self.frozen {
            return Err("frozen");
        }
        let left = self.capacity - self.watermark;
        if left == 0 {
            return Err("exhausted");
        }
        let size = want.min((left / 100).max(1));
        let (lo, hi) = (self.watermark, self.watermark + size);
        self.watermark = hi;
        let epoch = self.epochs[region];
        self.rows.insert(id, Row { region, want, lo, hi, epoch, confirmed: false });
        Ok((lo, hi))
    }
}

async fn authority(db: Db) -> Arc<Authority> {
    db::migrate(&db, MIGRATIONS).await.unwrap();
    let parts = Parts {
        db,
        witness: None,
        mode: WitnessMode::None,
        role: "authority".to_owned(),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
    };
    let spawn: global_authority::service::Spawn = Arc::new(|work| {
        tokio::spawn(work);
    });
    Authority::open(parts, Settings::default(), spawn, Some(TOKEN)).await.unwrap()
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A namespace, two regions that have joined, and a first grant each.
async fn begin(authority: &Arc<Authority>, now: u64) -> ([Puppet; 2], Model) {
    let capacity = 2_000_u64;
    let body = serde_json::json!({"name": "orders", "sequence": {"max": capacity.to_string()}});
    let new: NewNamespace = serde_json::from_value(body).unwrap();
    authority.new_namespace("test", new).await.unwrap();
    let mut puppets = [Puppet::new("eu", now), Puppet::new("us", now)];
    for region in ["eu", "us"] {
        authority.new_region("test", name(region)).await.unwrap();
    }
    // Both join; the first one takes note of the second, and its next words vouch for it.
    for n in [0, 1, 0, 0] {
        let message = puppets[n].message(vec![]);
        let answer = authority.message(&message.sender.region.clone(), message).await.unwrap();
        puppets[n].hear(&answer);
    }
    let mut model = Model { capacity, epochs: [1, 1], active: [true, true], ..Model::default() };
    // A first grant each: from then on both are established, whatever happens to their epochs.
    for n in [0, 1] {
        let id = allocation(now, 1_000_000 + n as u64);
        let message = puppets[n].message(vec![want(id, "orders", 3)]);
        let answer = authority.message(&message.sender.region.clone(), message).await.unwrap();
        puppets[n].hear(&answer);
        assert_eq!(outcome(&answer).map(|(lo, hi, _)| (lo, hi)), model.grant(n, id, 3).map_err(str::to_owned));
    }
    (puppets, model)
}

/// Runs `steps` random operations and compares every answer with the model's.
async fn conforms(authority: Arc<Authority>, seed: u64, steps: u64) {
    let now = SystemClock.now().wall_ms;
    let (mut puppets, mut model) = begin(&authority, now).await;
    let (mut random, mut ids) = (seed, Vec::<AllocationId>::new());
    for step in 0..steps {
        let n = usize::try_from(splitmix(&mut random) % 2).unwrap();
        match splitmix(&mut random) % 20 {
            0 => {
                model.frozen = !model.frozen;
                let patch = NamespacePatch { frozen: Some(model.frozen), ..NamespacePatch::default() };
                authority.patch_namespace("test", &name("orders"), patch).await.unwrap();
            }
            1 if model.active[n] => {
                let region = puppets[n].sender.region.clone();
                authority.region_event(&region, RegionEvent::Fence, "test", "test").await.unwrap();
                let entry = authority.recover(&region, &Default::default(), "test").await.unwrap();
                model.epochs[n] += 2;
                assert_eq!(entry.epoch.0, model.epochs[n]);
                let message = puppets[n].message(vec![]);
                puppets[n].hear(&authority.message(&region, message).await.unwrap());
            }
            2 => {
                // Deleted and made again: it goes on at its watermark.
                authority.delete_namespace("test", &name("orders")).await.unwrap();
                let new = serde_json::from_value(serde_json::json!({"name": "orders"})).unwrap();
                let view = authority.new_namespace("test", new).await.unwrap();
                assert_eq!(view.watermark, model.watermark, "seed {seed} step {step}");
            }
            kind => {
                let again = kind < 9 && !ids.is_empty();
                let id = if again {
                    ids[usize::try_from(splitmix(&mut random)).unwrap_or(0) % ids.len()]
                } else {
                    ids.push(allocation(now, step));
                    *ids.last().unwrap()
                };
                let size = [1, 7, 1_000][usize::try_from(splitmix(&mut random) % 3).unwrap()];
                let message = puppets[n].message(vec![want(id, "orders", size)]);
                let answer = authority.message(&message.sender.region.clone(), message).await.unwrap();
                puppets[n].hear(&answer);
                puppets[n].words.confirms.clear();
                let got = outcome(&answer).map(|(lo, hi, _)| (lo, hi));
                let expected = model.grant(n, id, size).map_err(str::to_owned);
                assert_eq!(got, expected, "seed {seed} step {step}: {id} x {size} by {n}");
                if let (Some(cadastre_protocol::link::GrantAnswer::Granted(granted)), 0) =
                    (answer.grants.first(), splitmix(&mut random) % 2)
                {
                    puppets[n].adopt(granted);
                    let message = puppets[n].message(vec![]);
                    let answer = authority.message(&message.sender.region.clone(), message).await.unwrap();
                    puppets[n].hear(&answer);
                    model.rows.get_mut(&id).unwrap().confirmed = true;
                }
            }
        }
    }
    let verdict = authority.verify().await.unwrap();
    assert!(verdict.ok, "{:?}", verdict.findings);
    assert_eq!(authority.namespace(&name("orders")).await.unwrap().watermark, model.watermark);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_answers_as_the_model() {
    let folder = tempfile::tempdir().unwrap();
    for seed in 0..3 {
        let url = format!("sqlite://{}", folder.path().join(format!("{seed}.db")).display());
        let db = db::connect(&url, ConnectOptions::default()).await.unwrap();
        conforms(authority(db).await, seed, 120).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_answers_as_the_model() {
    for seed in 0..3 {
        let db = db::connect(&Postgres::shared().fresh_database(), ConnectOptions::default()).await.unwrap();
        conforms(authority(db).await, seed, 120).await;
    }
}

#[test]
fn the_simulated_engine_answers_as_the_model() {
    for seed in 0..20 {
        let sim = Sim::new(seed);
        let disk = Disk::new(&sim, "one", None);
        let (sim2, done) = (sim.clone(), Arc::new(std::sync::Mutex::new(false)));
        let done2 = Arc::clone(&done);
        let process = sim.process();
        sim.spawn(process, async move {
            let db = disk.door();
            db::migrate(&db, MIGRATIONS).await.unwrap();
            let parts = Parts {
                db,
                witness: None,
                mode: WitnessMode::None,
                role: "authority".to_owned(),
                clock: Arc::new(SystemClock),
                entropy: Arc::new(SystemEntropy),
            };
            let spawn: global_authority::service::Spawn = Arc::new(move |work| sim2.spawn(process, work));
            let authority = Authority::open(parts, Settings::default(), spawn, Some(TOKEN)).await.unwrap();
            conforms(authority, seed, 150).await;
            *done2.lock().unwrap() = true;
        });
        assert!(sim.run_until(600_000, || *done.lock().unwrap()), "seed {seed} did not finish");
    }
}

/// 800 grants at once by 16 regions' worth of wants are disjoint, on both engines: the hot row is
/// shared, the ranges are not.
async fn concurrent_grants_are_disjoint(db: Db) {
    let authority = authority(db).await;
    let new = serde_json::from_value(serde_json::json!({"name": "orders"})).unwrap();
    authority.new_namespace("test", new).await.unwrap();
    authority.new_region("test", name("eu")).await.unwrap();
    let now = SystemClock.now().wall_ms;
    let mut eu = Puppet::new("eu", now);
    let message = eu.message(vec![]);
    eu.hear(&authority.message(&name("eu"), message).await.unwrap());
    let asker = global_authority::service::grants::Asker {
        region: name("eu"),
        region_id: cadastre_core::ids::RegionId(1),
        epoch: cadastre_core::ids::Epoch(1),
        store_id: eu.sender.store_id,
        clock_ms: now,
    };
    let mut waiting = Vec::new();
    for n in 0..800 {
        waiting.push(authority.submit(&asker, &want(allocation(now, n), "orders", 10)));
    }
    let mut ranges = Vec::new();
    for receiver in waiting {
        let granted = receiver.await.unwrap().unwrap();
        ranges.push((granted.lo, granted.hi));
    }
    ranges.sort_unstable();
    assert_eq!((ranges[0].0, ranges[799].1), (0, 8_000));
    assert!(ranges.windows(2).all(|w| w[0].1 == w[1].0), "disjoint, and without a hole");
    assert!(authority.verify().await.unwrap().ok);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_hundred_grants_at_once_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("a.db").display());
    concurrent_grants_are_disjoint(db::connect(&url, ConnectOptions::default()).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_hundred_grants_at_once_on_postgres() {
    let url = Postgres::shared().fresh_database();
    concurrent_grants_are_disjoint(db::connect(&url, ConnectOptions::default()).await.unwrap()).await;
}
