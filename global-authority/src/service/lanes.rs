//! Lanes: what queues for one namespace while a turn is under way shares the next one.
//!
//! A namespace's scope row is hot by nature: every grant moves the one watermark. So wants queue in a lane per namespace,
//! and each turn takes everything that has queued meanwhile into one transaction with one row (see `grants`).
//!
//! A lane has two stages. The first commits, one turn at a time. The second takes what is committed through the gate
//! while the next turn commits: row committed, then the gate, then the answer, for every turn. Several turns that wait
//! pass together, each by its own row: the newest one would not do, as the store may have been put back between two turns,
//! and the later one then stands in the place of the earlier.

use std::collections::BTreeMap;
use std::sync::Arc;

use cadastre_core::ids::{GrantId, Name};
use cadastre_core::mark::{Mark, Scope};
use cadastre_protocol::link::{Granted, Want};
use tokio::sync::oneshot;

use super::grants::{Ask, Asker, Outcome};
use super::{Authority, ServiceError};

/// The most wants in one transaction.
const BATCH: usize = 256;

/// What waits for one namespace's stages, and which of them are at work.
#[derive(Default)]
pub struct Lane {
    queue: Vec<(Ask, oneshot::Sender<Outcome>)>,
    commits: bool,
    committed: Vec<Turn>,
    gates: bool,
}

/// A committed turn that nobody was told of yet.
struct Turn {
    mark: Mark,
    outcomes: Vec<Outcome>,
    askers: Vec<oneshot::Sender<Outcome>>,
}

impl Turn {
    /// An asker may have gone; its row stands, and its retry finds it.
    fn answer(self) {
        for (asker, outcome) in self.askers.into_iter().zip(self.outcomes) {
            let _ = asker.send(outcome);
        }
    }

    fn refuse(self, error: &ServiceError) {
        refuse(self.askers, error);
    }
}

fn refuse(askers: Vec<oneshot::Sender<Outcome>>, error: &ServiceError) {
    let problem = error.to_problem();
    for asker in askers {
        let _ = asker.send(Err(problem.clone()));
    }
}

impl Authority {
    /// Queues a want; the receiver gets its outcome once it has passed the gate.
    pub fn submit(self: &Arc<Self>, asker: &Asker, want: &Want) -> oneshot::Receiver<Outcome> {
        let (sender, receiver) = oneshot::channel();
        let ask = Ask {
            asker: asker.clone(),
            allocation_id: want.allocation_id,
            want: want.want,
            // Begins with the time, so that the ledger's index of them grows at its end.
            grant_id: GrantId(self.entropy.uuid_v7(self.now_ms())),
        };
        let mut lanes = self.lanes();
        let lane = lanes.entry(want.namespace.clone()).or_default();
        lane.queue.push((ask, sender));
        if !std::mem::replace(&mut lane.commits, true) {
            drop(lanes);
            let (authority, namespace) = (Arc::clone(self), want.namespace.clone());
            (self.spawn)(Box::pin(async move { authority.commit_all(namespace).await }));
        }
        receiver
    }

    /// The first stage, until nobody waits for it.
    async fn commit_all(self: Arc<Self>, namespace: Name) {
        while let Some((asks, askers)) = self.next_turn(&namespace) {
            match self.turn(&namespace, asks).await {
                Err(error) => {
                    tracing::warn!(%namespace, %error, wants = askers.len(), "no grant in this turn");
                    refuse(askers, &error);
                }
                Ok((outcomes, mark)) => {
                    let turn = Turn { mark, outcomes, askers };
                    if turn.outcomes.iter().any(Result::is_ok) {
                        self.to_gate(&namespace, turn);
                    } else {
                        // Refusals tell nothing that has to last.
                        turn.answer();
                    }
                }
            }
        }
    }

    /// Everything that has queued; none where the stage is to rest.
    fn next_turn(&self, namespace: &Name) -> Option<(Vec<Ask>, Vec<oneshot::Sender<Outcome>>)> {
        let mut lanes = self.lanes();
        let lane = lanes.get_mut(namespace)?;
        if lane.queue.is_empty() {
            lane.commits = false;
            tidy(&mut lanes, namespace);
            return None;
        }
        let turn = lane.queue.len().min(BATCH);
        Some(lane.queue.drain(..turn).unzip())
    }

    fn to_gate(self: &Arc<Self>, namespace: &Name, turn: Turn) {
        let mut lanes = self.lanes();
        let lane = lanes.entry(namespace.clone()).or_default();
        lane.committed.push(turn);
        if !std::mem::replace(&mut lane.gates, true) {
            drop(lanes);
            let (authority, namespace) = (Arc::clone(self), namespace.clone());
            (self.spawn)(Box::pin(async move { authority.gate_all(namespace).await }));
        }
    }

    /// The second stage, until nothing waits for it.
    async fn gate_all(self: Arc<Self>, namespace: Name) {
        loop {
            let committed = {
                let mut lanes = self.lanes();
                let Some(lane) = lanes.get_mut(&namespace) else { return };
                if lane.committed.is_empty() {
                    lane.gates = false;
                    tidy(&mut lanes, &namespace);
                    return;
                }
                std::mem::take(&mut lane.committed)
            };
            self.gate(&namespace, committed).await;
        }
    }

    /// Takes turns through the gate, and answers. One that does not pass holds back those that waited with it: its row is
    /// gone, or the generation is another one, and their askers come again.
    async fn gate(&self, namespace: &Name, turns: Vec<Turn>) {
        let scope = Scope::Namespace(namespace.clone());
        let marks: Vec<(Scope, Mark)> = turns.iter().map(|turn| (scope.clone(), turn.mark)).collect();
        let passed = self.continuity.pass(&marks).await;
        let error = passed.err().map(ServiceError::from);
        for turn in turns {
            match &error {
                None => {
                    note(namespace, &turn.outcomes);
                    turn.answer();
                }
                Some(error) => {
                    tracing::warn!(%namespace, %error, wants = turn.askers.len(), "a turn did not pass the gate");
                    turn.refuse(error);
                }
            }
        }
    }
}

/// A lane that rests is forgotten.
fn tidy(lanes: &mut BTreeMap<Name, Lane>, namespace: &Name) {
    if lanes.get(namespace).is_some_and(|lane| !lane.commits && !lane.gates) {
        lanes.remove(namespace);
    }
}

fn note(namespace: &Name, outcomes: &[Outcome]) {
    let made: Vec<&Granted> = outcomes.iter().flatten().filter(|g| !g.replayed).collect();
    if let (Some(first), Some(last)) = (made.first(), made.last()) {
        metrics::counter!("cadastre_grants_total", "namespace" => namespace.to_string()).increment(made.len() as u64);
        // The ranges of a turn follow one another.
        tracing::info!(%namespace, grants = made.len(), lo = first.lo, hi = last.hi, "granted");
    }
}
