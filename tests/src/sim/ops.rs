//! What can happen to an installation: the operations of a run, and how a seed becomes a list of them.
//!
//! The list is made before the run, and each operation brings its own randomness, so that leaving one
//! out (shortening a failure) leaves the others as they were. A profile says what kinds of fault a run
//! has, so that none of the limits that `docs/protocol.md` names is crossed: each is named where it
//! is kept out.

use cadastre_core::continuity::WitnessMode;

use super::exec::splitmix;

/// One operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Op {
    /// What.
    pub kind: Kind,
    /// Its randomness.
    pub seed: u64,
}

/// See the variants' names. A number is an authority process, a region, or a copy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub enum Kind {
    Run(u64),
    KillAuthority(usize),
    StartAuthority(usize),
    PauseAuthority(usize),
    ResumeAuthority(usize),
    RestartStore,
    PowerCut(usize),
    StoreDown(u64),
    BackupStore,
    RestoreStore(usize),
    Promote(usize, bool),
    WitnessDown,
    WitnessUp,
    WitnessLost,
    BackupWitness,
    WitnessOld,
    KillAgent(usize),
    StartAgent(usize),
    PauseAgent(usize),
    ResumeAgent(usize),
    BackupRegion(usize),
    RestoreRegion(usize),
    CloneRegion(usize),
    RegionWitnessLost(usize),
    RegionStoreDown(usize, u64),
    Cut(usize),
    CutBack(usize),
    Lossy(usize),
    Heal(usize),
    AuthorityClock(usize, i64),
    AgentClock(usize, i64),
    Fence(usize),
    Recover(usize),
    Drain(usize),
    Retire(usize),
    NewRegion,
    DeleteAndRecreate,
    FreezeOrThaw,
    NewDefinition,
    StateBounds(usize),
    Switch(usize),
    BackOut,
}

/// What kinds of fault a run has.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// The authority's witness.
    pub mode: WitnessMode,
    /// The authority's store goes back (restores, promotions of copies that lag).
    pub store_back: bool,
    /// The witness is lost.
    pub witness_lost: bool,
    /// The witness is put back. Limit: never together with its store.
    pub witness_old: bool,
    /// Regions have witnesses of their own.
    pub region_witness: bool,
    /// Regions' stores go back or are cloned. Limits: only with a witness that is not copied with them;
    /// not while the authority's own store may lose what those regions held.
    pub region_back: bool,
    /// Operators act.
    pub operators: bool,
    /// Clocks jump.
    pub clocks: bool,
    /// Links are cut and lossy.
    pub network: bool,
    /// Regions run two agents on one store.
    pub two_agents: bool,
    /// The authority's store, and those that two agents share, are servers that are watched, as PostgreSQL is.
    pub watched: bool,
}

impl Profile {
    /// The profile of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut state = seed ^ 0x5eed_0f2e_11fe;
        let mut one_in = |n: u64| splitmix(&mut state).is_multiple_of(n);
        let mode = if one_in(3) { WitnessMode::None } else { WitnessMode::Required };
        let required = mode == WitnessMode::Required;
        let witness_old = required && one_in(4);
        let region_witness = one_in(2);
        let region_back = region_witness && one_in(2);
        let witness_lost = required && !witness_old && !region_back && one_in(2);
        let store_back = !witness_old && (!region_back || required) && one_in(2);
        Self {
            mode,
            store_back,
            witness_lost,
            witness_old,
            region_witness,
            region_back,
            operators: one_in(2),
            clocks: one_in(3),
            network: !one_in(4),
            two_agents: !region_back && one_in(3),
            watched: one_in(2),
        }
    }

    /// In a few words.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut words = vec![format!("witness {:?}", self.mode)];
        for (on, word) in [
            (self.store_back, "authority's store goes back"),
            (self.witness_lost, "witness lost"),
            (self.witness_old, "witness put back"),
            (self.region_witness, "regions have witnesses"),
            (self.region_back, "regions' stores go back"),
            (self.operators, "operators"),
            (self.clocks, "clocks jump"),
            (self.network, "network faults"),
            (self.two_agents, "two agents a region"),
            (self.watched, "servers are watched"),
        ] {
            if on {
                words.push(word.to_owned());
            }
        }
        words.join(", ")
    }
}

/// The operations of a seed: `steps` of them, time passing between.
#[must_use]
pub fn operations(seed: u64, steps: usize) -> Vec<Op> {
    let profile = Profile::of(seed);
    let mut state = seed.wrapping_mul(0x2545_F491_4F6C_DD1D) | 1;
    let mut ops = Vec::with_capacity(steps * 2);
    for _ in 0..steps {
        let kind = choose(&profile, &mut state);
        ops.push(Op { kind, seed: splitmix(&mut state) });
        if kind == Kind::WitnessLost && profile.store_back && splitmix(&mut state).is_multiple_of(2) {
            // One disaster takes both: then only the regions know.
            ops.push(Op { kind: Kind::RestoreStore(0), seed: splitmix(&mut state) });
        }
        // Half of the time something else happens at once: faults that meet are the ones that hurt.
        let pause = [1, 40, 700, 3_000, 9_000][usize::try_from(splitmix(&mut state) % 5).unwrap_or(0)];
        ops.push(Op { kind: Kind::Run(pause), seed: splitmix(&mut state) });
    }
    ops
}

fn choose(profile: &Profile, state: &mut u64) -> Kind {
    loop {
        let roll = splitmix(state) % 100;
        let (r, a, b) = (
            usize::try_from(splitmix(state) % 3).unwrap_or(0),
            usize::try_from(splitmix(state) % 2).unwrap_or(0),
            splitmix(state),
        );
        let copy = usize::try_from(b % 4).unwrap_or(0);
        let jump = [-3_600_000, -5_000, 5_000, 86_400_000][copy];
        let (allowed, kind) = match roll {
            0..=5 => (true, Kind::KillAuthority(a)),
            6..=13 => (true, Kind::StartAuthority(a)),
            14..=15 => (true, Kind::PauseAuthority(a)),
            16..=18 => (true, Kind::ResumeAuthority(a)),
            19 => (true, Kind::RestartStore),
            20 => (true, Kind::PowerCut(r)),
            21..=22 => (true, Kind::StoreDown(1_000 + b % 8_000)),
            23..=26 => (profile.store_back, Kind::BackupStore),
            27..=30 => (profile.store_back, Kind::RestoreStore(copy)),
            31..=32 => (profile.store_back, Kind::Promote(copy, b % 2 == 0)),
            33 => (profile.mode != WitnessMode::None, Kind::WitnessDown),
            34..=35 => (true, Kind::WitnessUp),
            36 => (profile.witness_lost, Kind::WitnessLost),
            37 => (profile.witness_old, Kind::BackupWitness),
            38 => (profile.witness_old, Kind::WitnessOld),
            39..=43 => (true, Kind::KillAgent(r)),
            44..=51 => (true, Kind::StartAgent(r)),
            52..=53 => (true, Kind::PauseAgent(r)),
            54..=56 => (true, Kind::ResumeAgent(r)),
            57..=59 => (profile.region_back, Kind::BackupRegion(r)),
            60..=61 => (profile.region_back, Kind::RestoreRegion(r)),
            62 => (profile.region_back, Kind::CloneRegion(r)),
            63 => (profile.region_back, Kind::RegionWitnessLost(r)),
            64..=65 => (true, Kind::RegionStoreDown(r, 1_000 + b % 5_000)),
            66..=69 => (profile.network, Kind::Cut(r)),
            70..=71 => (profile.network, Kind::CutBack(r)),
            72..=74 => (profile.network, Kind::Lossy(r)),
            75..=80 => (true, Kind::Heal(r)),
            81 => (profile.clocks, Kind::AuthorityClock(a, jump)),
            82 => (profile.clocks, Kind::AgentClock(r, jump)),
            83..=84 => (profile.operators, Kind::Fence(r)),
            85..=88 => (profile.operators, Kind::Recover(r)),
            89 => (profile.operators, Kind::Drain(r)),
            90 => (profile.operators, Kind::Retire(r)),
            91..=92 => (profile.operators, Kind::NewRegion),
            93 => (profile.operators, Kind::DeleteAndRecreate),
            94 => (profile.operators, Kind::FreezeOrThaw),
            95 => (profile.operators, Kind::NewDefinition),
            96..=97 => (profile.operators, Kind::StateBounds(r)),
            98 => (profile.operators, Kind::Switch(r)),
            _ => (profile.operators, if a == 0 { Kind::BackOut } else { Kind::Switch(r) }),
        };
        if allowed {
            return kind;
        }
    }
}
