//! What the authority's answers ask of this agent besides its own affairs: where other regions are, what a switch will
//! bring, and a drill to hold.
//!
//! Invariants: nothing of it is stored, so a restart ends a drill; a cut ends at its deadline by this process's monotonic
//! clock, or before, never after, whoever is gone meanwhile; a drill that ended here is not begun again by this process.
//! A drill that leaves the uplink free also ends once answers name it no more.
//! Absent on purpose: anything that safety rests on. A cut only makes the link's rounds fail as they do when nobody
//! answers; a clock that is read wrong is what windows are made for.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cadastre_core::drill::{self, DrillKind, End, Seen};
use cadastre_core::ids::{DrillId, Name};
use cadastre_protocol::admin::Verdict;
use cadastre_protocol::error::{Code, Problem};
use cadastre_protocol::link::Answer;
use cadastre_protocol::operate::{DrillEvent, DrillOrder, DrillWord, Expect, HomeAddress, MAX_EVENTS};
use cadastre_runtime::clock::SetOff;

/// An order that was heard begins within so long, or not at all, in milliseconds: some heartbeats of the slowest kind.
const BEGINS_WITHIN_MS: u64 = 180_000;
/// The last word on a drill waits so long for the ledger's check, in milliseconds.
const VERDICT_WITHIN_MS: u64 = 20_000;

/// Answers that name a drill no more end it after this long, in milliseconds: of several authorities one may not have
/// heard of it yet.
const UNNAMED_MS: u64 = 3_000;

/// What is held of one namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hold {
    /// Ordinals, the region's and the instance's.
    pub held: u64,
    /// IDs a second.
    pub rate: f64,
    /// Ordinals and stamps that were let out so far.
    pub issued: u64,
}

/// By namespace.
pub type Holds = BTreeMap<Name, Hold>;

/// Where the drill stands here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    /// Heard; the next message says so.
    Heard,
    /// That message was written, and is written again until an answer says that it was heard: a cut that the authority
    /// knows nothing of would be one beside another.
    Said,
    /// It was heard, and the drill is still under way: the cut begins with the next round.
    Told,
    /// It holds since then.
    On { since_ms: u64 },
    /// Over since then.
    Over { ran_ms: u64, since_ms: u64 },
}

struct Held {
    order: DrillOrder,
    heard_ms: u64,
    phase: Phase,
    word: DrillWord,
    /// What had been let out when it began.
    before: BTreeMap<Name, u64>,
    /// Since when answers do not name it.
    unnamed_ms: Option<u64>,
}

#[derive(Default)]
struct State {
    homes: Vec<HomeAddress>,
    expect: Vec<Expect>,
    drill: Option<Held>,
    /// The last one that this process ended.
    ended: Option<DrillId>,
}

/// See the module's documentation.
#[derive(Default)]
pub struct Orders {
    state: Mutex<State>,
    /// How far the wall clock is read wrong.
    pub set_off: SetOff,
}

impl Orders {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what an answer says.
    pub fn hear(&self, answer: &Answer, now_ms: u64) {
        let mut state = self.state();
        if !answer.quarantined {
            state.homes.clone_from(&answer.homes);
        }
        state.expect.clone_from(&answer.expect);
        if let Some(held) = state.drill.as_mut().filter(|held| held.phase == Phase::Said) {
            let id = Some(held.order.drill_id);
            if answer.drill_heard == id && answer.drill.as_ref().map(|order| order.drill_id) == id {
                held.phase = Phase::Told;
            }
        }
        let over = |held: &Held| matches!(held.phase, Phase::Over { .. });
        if let Some(held) = state.drill.as_mut()
            && let Phase::Over { since_ms, .. } = held.phase
            && held.word.over_ms == 0
        {
            held.word.over_ms = now_ms.saturating_sub(since_ms).max(1);
        }
        if state.drill.as_ref().is_some_and(|held| over(held) && answer.drill_heard == Some(held.order.drill_id)) {
            state.drill = None;
        }
        self.miss(&mut state, answer, now_ms);
        let Some(order) = &answer.drill else { return };
        if state.drill.is_some() || state.ended == Some(order.drill_id) || !order.kind.is_of_agents() {
            return;
        }
        let for_ms = order.for_ms.min(u64::from(drill::MAX_SECONDS) * 1_000);
        state.drill = Some(Held {
            order: DrillOrder { for_ms, ..order.clone() },
            heard_ms: now_ms,
            phase: Phase::Heard,
            word: DrillWord {
                drill_id: order.drill_id,
                running: true,
                ended_early: None,
                ran_ms: 0,
                over_ms: 0,
                namespaces: BTreeMap::new(),
                errors: BTreeMap::new(),
                events: Vec::new(),
                verified: None,
            },
            before: BTreeMap::new(),
            unnamed_ms: None,
        });
    }

    /// A drill that can be heard of ends once nobody names it any more.
    fn miss(&self, state: &mut State, answer: &Answer, now_ms: u64) {
        let Some(held) = state.drill.as_mut().filter(|held| matches!(held.phase, Phase::On { .. })) else { return };
        if held.order.kind.cuts() || answer.drill.as_ref().map(|order| order.drill_id) == Some(held.order.drill_id) {
            held.unnamed_ms = None;
            return;
        }
        let since = *held.unnamed_ms.get_or_insert(now_ms);
        if now_ms.saturating_sub(since) >= UNNAMED_MS {
            self.end(state, now_ms, None);
        }
    }

    /// What the next message says of a drill.
    pub fn word(&self, now_ms: u64) -> Option<DrillWord> {
        let mut state = self.state();
        let held = state.drill.as_mut()?;
        match held.phase {
            Phase::Heard => held.phase = Phase::Said,
            Phase::Said | Phase::Told | Phase::On { .. } => {}
            // The last word comes with the ledger's check, or without it where that takes too long.
            Phase::Over { since_ms, .. } => {
                // A clock that was ahead is waited for: what was stamped in the future comes to pass.
                let ahead_ms = held.order.clock_ms.map_or(0, |ms| u64::try_from(ms).unwrap_or(0));
                let within_ms = VERDICT_WITHIN_MS.saturating_add(ahead_ms);
                let waits = held.word.verified.is_none() && now_ms.saturating_sub(since_ms) < within_ms;
                if held.word.over_ms == 0 || waits {
                    return None;
                }
            }
        }
        Some(held.word.clone())
    }

    /// Whether this round's message is not to be sent. Begins the drill that was announced, looks at what is held, and
    /// ends it in time.
    pub fn is_cut(&self, now_ms: u64, holds: impl FnOnce() -> Holds) -> bool {
        let mut state = self.state();
        let Some(held) = state.drill.as_mut() else { return false };
        match held.phase {
            Phase::Heard | Phase::Said | Phase::Over { .. } => return false,
            // Whoever slept in between must not begin what the authority has long given up.
            Phase::Told if now_ms.saturating_sub(held.heard_ms) > BEGINS_WITHIN_MS => {
                self.end(&mut state, now_ms, Some("this agent was not ready to begin in time".to_owned()));
                return false;
            }
            Phase::Told => {
                held.phase = Phase::On { since_ms: now_ms };
                if let Some(off_ms) = held.order.clock_ms.filter(|_| held.order.kind == DrillKind::Clock) {
                    let off_ms = off_ms.clamp(-drill::MAX_CLOCK_MS, drill::MAX_CLOCK_MS);
                    self.set_off.set(off_ms, now_ms.saturating_add(held.order.for_ms));
                }
                held.begin(holds());
            }
            Phase::On { since_ms } => held.look(now_ms.saturating_sub(since_ms), holds()),
        }
        let Phase::On { since_ms } = held.phase else { return false };
        let (order, after_ms) = (&held.order, now_ms.saturating_sub(since_ms));
        // Where refills go on, what is held rises and falls by itself.
        let share = if order.kind.cuts() { order.share_percent } else { 100 };
        let (dry, is_cut) = (order.until_dry.as_ref(), order.kind.cuts());
        let why = match drill::is_over(after_ms, order.for_ms, &held.word.namespaces, dry, share) {
            None => return is_cut,
            Some(End::InTime) => None,
            Some(End::Dry) => {
                held.note(after_ms, "the drilled namespace has nothing left");
                None
            }
            Some(End::Share(name)) => Some(format!("{name} used more than {share} % of what it held")),
        };
        self.end(&mut state, now_ms, why);
        false
    }

    /// Ends the drill at once, as somebody says so. Whether there was one.
    pub fn abort(&self, now_ms: u64, why: &str) -> bool {
        let mut state = self.state();
        let runs = state.drill.as_ref().is_some_and(|held| !matches!(held.phase, Phase::Over { .. }));
        if runs {
            self.end(&mut state, now_ms, Some(why.to_owned()));
        }
        runs
    }

    /// Whether the region's ledger is to be checked, as a drill is over.
    pub fn wants_verdict(&self) -> bool {
        let state = self.state();
        state.drill.as_ref().is_some_and(|h| matches!(h.phase, Phase::Over { .. }) && h.word.verified.is_none())
    }

    /// What the ledger's check found, once nobody is behind any more.
    pub fn verified(&self, verdict: Verdict, now_ms: u64) {
        let mut state = self.state();
        let Some(held) = state.drill.as_mut() else { return };
        held.word.verified = Some(verdict);
        if let (Phase::Over { since_ms, .. }, DrillKind::Clock) = (held.phase, held.order.kind) {
            held.word.over_ms = now_ms.saturating_sub(since_ms).max(1);
        }
    }

    /// A caller was refused.
    pub fn refused(&self, code: Code) {
        let mut state = self.state();
        let Some(held) = state.drill.as_mut().filter(|held| matches!(held.phase, Phase::On { .. })) else { return };
        *held.word.errors.entry(code.as_str().to_owned()).or_default() += 1;
    }

    /// What a switch will bring.
    #[must_use]
    pub fn expected(&self) -> Vec<Expect> {
        self.state().expect.clone()
    }

    /// The drill as it stands here, for whoever asks this agent.
    #[must_use]
    pub fn shown(&self) -> Option<DrillWord> {
        self.state().drill.as_ref().map(|held| held.word.clone())
    }

    /// `not_home`, with the regions that serve the namespace and where they are.
    #[must_use]
    pub fn not_home(&self, namespace: &Name, region: &Name, home: &[Name]) -> Problem {
        let state = self.state();
        let address = |name: &Name| {
            let known = state.homes.iter().find(|known| known.region == *name);
            known.cloned().unwrap_or_else(|| HomeAddress { region: name.clone(), urls: vec![] })
        };
        let home: Vec<HomeAddress> = home.iter().map(address).collect();
        let asked: Vec<String> = home
            .iter()
            .map(|h| h.urls.first().map_or_else(|| h.region.to_string(), |url| format!("{} at {url}", h.region)))
            .collect();
        let text =
            format!("the home of namespace {namespace} does not include region {region}; ask {}", asked.join(", or "));
        Problem::new(Code::NotHome, text).at_home(home)
    }
}

impl Held {
    fn begin(&mut self, holds: Holds) {
        self.note(0, deed(self.order.kind, true));
        self.before = holds.iter().map(|(name, hold)| (name.clone(), hold.issued)).collect();
        let first = holds.into_iter().map(|(name, hold)| (name, Seen::first(hold.held, hold.rate)));
        self.word.namespaces = first.collect();
        let (drill, for_ms, kind) = (self.order.drill_id, self.order.for_ms, self.order.kind.as_str());
        tracing::warn!(%drill, kind, for_ms, "a drill begins: {}", deed(self.order.kind, true));
    }

    fn note(&mut self, after_ms: u64, text: &str) {
        if self.word.events.len() < MAX_EVENTS {
            self.word.events.push(DrillEvent { after_ms, text: text.to_owned() });
        }
    }

    fn look(&mut self, after_ms: u64, holds: Holds) {
        self.word.ran_ms = after_ms;
        let mut dry = Vec::new();
        for (name, now) in holds {
            let before = *self.before.entry(name.clone()).or_insert(now.issued);
            let seen = self.word.namespaces.entry(name.clone()).or_insert_with(|| Seen::first(now.held, now.rate));
            let was_dry = seen.dry_after_ms.is_some();
            seen.look(after_ms, now.held, now.issued.saturating_sub(before));
            if seen.dry_after_ms.is_some() && !was_dry {
                dry.push(format!("{name} has nothing left"));
            }
        }
        for text in dry {
            self.note(after_ms, &text);
        }
    }
}

/// What an agent does from the beginning of a drill, and at its end.
fn deed(kind: DrillKind, begins: bool) -> &'static str {
    match (kind, begins) {
        (DrillKind::WanCut, true) => "the uplink is refused from now on",
        (DrillKind::WanCut, false) => "the uplink is free again",
        (DrillKind::Clock, true) => "the wall clock is read wrong from now on",
        (DrillKind::Clock, false) => "the wall clock is read right again",
        (DrillKind::Failover | DrillKind::Restore, true) => "what callers are told is watched from now on",
        (DrillKind::Failover | DrillKind::Restore, false) => "nothing is watched any more",
    }
}

impl Orders {
    fn end(&self, state: &mut State, now_ms: u64, why: Option<String>) {
        let Some(held) = state.drill.as_mut() else { return };
        self.set_off.clear();
        let ran_ms = match held.phase {
            Phase::On { since_ms } => now_ms.saturating_sub(since_ms),
            Phase::Heard | Phase::Said | Phase::Told => 0,
            Phase::Over { ran_ms, .. } => ran_ms,
        };
        held.phase = Phase::Over { ran_ms, since_ms: now_ms };
        held.note(ran_ms, deed(held.order.kind, false));
        (held.word.running, held.word.ran_ms) = (false, ran_ms);
        held.word.ended_early.clone_from(&why);
        tracing::warn!(drill = %held.order.drill_id, ran_ms, why, "the drill is over here");
        state.ended = Some(held.order.drill_id);
    }
}

#[cfg(test)]
#[path = "orders/tests.rs"]
mod tests;
