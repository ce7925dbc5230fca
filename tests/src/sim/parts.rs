//! Clock, entropy and witness of a simulated process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use cadastre_core::mark::Scope;
use cadastre_core::roster::{Entry, Roster};
use cadastre_ledger::witness::{Marks, Raise, Witness, WitnessError};
use cadastre_runtime::clock::{Clock, Now};
use cadastre_runtime::entropy::Entropy;
use uuid::Uuid;

use super::exec::Sim;
use super::mutation::WitnessBend;

/// When every simulated clock starts, milliseconds since the Unix epoch.
pub const EPOCH_MS: u64 = 1_800_000_000_000;

/// One machine's clock: it can jump and drift, its monotonic side only moves on.
#[derive(Clone)]
pub struct SimClock {
    sim: Sim,
    offset_ms: Arc<Mutex<i64>>,
    drift_ppm: Arc<Mutex<i64>>,
}

impl SimClock {
    /// A clock that is right.
    #[must_use]
    pub fn new(sim: &Sim) -> Self {
        Self { sim: sim.clone(), offset_ms: Arc::default(), drift_ppm: Arc::default() }
    }

    /// Lets the wall clock gain on real time, or lose, by so many millionths from now on.
    pub fn set_drift_ppm(&self, ppm: i64) {
        *self.drift_ppm.lock().unwrap_or_else(PoisonError::into_inner) = ppm;
    }

    /// Sets how far the wall clock is off, in milliseconds.
    pub fn set_offset_ms(&self, offset_ms: i64) {
        *self.offset_ms.lock().unwrap_or_else(PoisonError::into_inner) = offset_ms;
    }
}

impl Clock for SimClock {
    fn now(&self) -> Now {
        let mono_ms = self.sim.now_ms();
        let offset = *self.offset_ms.lock().unwrap_or_else(PoisonError::into_inner);
        let ppm = *self.drift_ppm.lock().unwrap_or_else(PoisonError::into_inner);
        let gained = i64::try_from(mono_ms).unwrap_or(i64::MAX).saturating_mul(ppm) / 1_000_000;
        let wall_ms = EPOCH_MS.saturating_add(mono_ms).saturating_add_signed(offset.saturating_add(gained));
        Now { wall_ms, mono_ms }
    }
}

/// Randomness that follows from the seed.
#[derive(Clone)]
pub struct SimEntropy(pub Sim);

impl SimEntropy {
    fn u128(&self) -> u128 {
        (u128::from(self.0.random()) << 64) | u128::from(self.0.random())
    }
}

impl Entropy for SimEntropy {
    fn uuid_v4(&self) -> Uuid {
        uuid::Builder::from_random_bytes(self.u128().to_be_bytes()).into_uuid()
    }

    fn uuid_v7(&self, now_ms: u64) -> Uuid {
        let mut random = [0; 10];
        random.copy_from_slice(&self.u128().to_be_bytes()[..10]);
        uuid::Builder::from_unix_timestamp_millis(now_ms, &random).into_uuid()
    }

    fn u64(&self) -> u64 {
        self.0.random()
    }

    fn bytes32(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&self.u128().to_be_bytes());
        bytes[16..].copy_from_slice(&self.u128().to_be_bytes());
        bytes
    }
}

/// A witness that can be lost, put back and out of reach.
#[derive(Clone)]
pub struct SimWitness {
    sim: Sim,
    state: Arc<Mutex<WitnessState>>,
}

#[derive(Default)]
struct WitnessState {
    marks: Marks,
    roster: Roster,
    down: bool,
    hangs: bool,
    bend: Option<WitnessBend>,
}

impl SimWitness {
    /// An empty one.
    #[must_use]
    pub fn new(sim: &Sim) -> Self {
        Self { sim: sim.clone(), state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, WitnessState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it holds.
    #[must_use]
    pub fn image(&self) -> (Marks, Roster) {
        let state = self.state();
        (state.marks.clone(), state.roster.clone())
    }

    /// Puts something else in place of what it holds.
    pub fn put_back(&self, (marks, roster): (Marks, Roster)) {
        let mut state = self.state();
        (state.marks, state.roster) = (marks, roster);
    }

    /// Bends it: a rule about witnesses is taken out.
    pub fn bend(&self, bend: WitnessBend) {
        self.state().bend = Some(bend);
    }

    /// Loses all that it holds.
    pub fn lose(&self) {
        self.put_back((Marks::new(), Roster::default()));
    }

    /// Takes it out of reach, or brings it back.
    pub fn set_down(&self, down: bool) {
        self.state().down = down;
    }

    /// Lets questions wait for their answers, or lets them go on.
    pub fn set_hangs(&self, hangs: bool) {
        self.state().hangs = hangs;
    }

    async fn reach(&self) -> Result<(), WitnessError> {
        self.sim.sleep_us(self.sim.below(400)).await;
        while self.state().hangs {
            self.sim.sleep_ms(1).await;
        }
        if self.state().down { Err(WitnessError::Unavailable("out of reach".to_owned())) } else { Ok(()) }
    }
}

#[async_trait]
impl Witness for SimWitness {
    async fn read(&self) -> Result<Option<Marks>, WitnessError> {
        self.reach().await?;
        let state = self.state();
        let there = !state.marks.is_empty();
        Ok(there.then(|| state.marks.clone()))
    }

    async fn read_some(&self, scopes: &[Scope]) -> Result<Option<Marks>, WitnessError> {
        self.reach().await?;
        let state = self.state();
        let named = state.marks.iter().filter(|(scope, _)| scopes.contains(scope));
        let there = !state.marks.is_empty();
        Ok(there.then(|| named.map(|(s, m)| (s.clone(), *m)).collect()))
    }

    async fn raise(&self, raises: Vec<Raise>, roster: Vec<Entry>) -> Result<bool, WitnessError> {
        self.reach().await?;
        let raised = {
            let mut state = self.state();
            let fits = raises.iter().all(|r| state.marks.get(&r.scope).copied() == r.was);
            if fits && state.bend != Some(WitnessBend::Forgets) {
                for r in raises.into_iter().filter(|r| r.was.is_none_or(|was| r.now.is_above(&was))) {
                    state.marks.insert(r.scope, r.now);
                }
                state.roster.unite_all(roster);
            }
            fits
        };
        self.sim.sleep_us(self.sim.below(400)).await;
        Ok(raised)
    }

    async fn fill(&self, marks: Marks, roster: Vec<Entry>) -> Result<bool, WitnessError> {
        self.reach().await?;
        let mut state = self.state();
        if !state.marks.is_empty() {
            return Ok(false);
        }
        state.marks = marks;
        state.roster = roster.into_iter().collect();
        Ok(true)
    }

    async fn roster(&self) -> Result<Vec<Entry>, WitnessError> {
        self.reach().await?;
        Ok(self.state().roster.entries().cloned().collect())
    }
}
