//! What is said to which agent, and what an answer means: pure, time and random ids are arguments.
//!
//! Purpose: the protocol's rules for a process that takes segments, in one place. Requests are one at a time (the
//! chain token demands it). Invariants:
//!
//! - An allocation id goes to the agent it was made for, verbatim, until that agent answers it finally. A 503, a
//!   lost connection or an answer after its deadline keeps it; a conflict, an expiry or a refusal drops it.
//! - Only the answer to the pending id of that agent is taken, and only within the request's deadline.
//! - The first agent comes first while it is well; a failed one is left alone for a while that grows, and then
//!   asked again, but not by a caller that waits if another one is well.
//! - A chain token is presented to the region that gave it, whichever of its agents is asked.
//! - `epoch_fenced`, where this incarnation had taken part: the epoch is over, or a copy of this process was found.
//!   Then everything that is held is given up, and a fresh incarnation begins.
//!
//! Absent on purpose: sending, waiting, locks, cursors.

use std::collections::BTreeMap;

use cadastre_core::ids::{AllocationId, Epoch, Incarnation, Name};
use cadastre_core::range::Range;
use cadastre_core::refill::Backoff;
use cadastre_protocol::error::{Code, Problem};
use cadastre_protocol::ids::{SegmentAnswer, SegmentRequest};

use crate::lane::Mapping;

/// The first time that a failed agent is left alone, and the longest, in milliseconds.
const LEFT_ALONE_MS: (u64, u64) = (500, 15_000);

/// Why an agent gave no segment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Failure {
    /// Nobody answered, or not within the deadline, or not with an answer. It may have been carried out.
    Unreachable(String),
    /// The agent refused.
    Refused(Problem),
}

/// A segment that may be installed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Segment {
    pub(crate) range: Range,
    pub(crate) mapping: Mapping,
    pub(crate) region: Name,
    pub(crate) epoch: Epoch,
    pub(crate) suggested_rate_per_second: f64,
    /// The region's epoch rose with this answer: what was held of older ones is not to be issued any more.
    pub(crate) epoch_rose: bool,
}

/// What follows from an answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// Install it.
    Adopt(Segment),
    /// Ask this agent once more: the old id is done with.
    Again(Failure),
    /// Ask the next agent.
    Elsewhere(Failure),
    /// No agent would answer otherwise.
    Stop(Failure),
    /// This incarnation is over: give up all that is held, then ask this agent once more.
    Ended(Failure),
}

/// One agent, as this process sees it.
#[derive(Clone, Debug)]
struct Agent {
    /// Which region it is of, once it answered.
    region: Option<Name>,
    /// While it is not well: when it may be asked again.
    down_until_ms: Option<u64>,
    backoff: Option<Backoff>,
}

impl Agent {
    fn unknown() -> Agent {
        Agent { region: None, down_until_ms: None, backoff: Backoff::new(LEFT_ALONE_MS.0, LEFT_ALONE_MS.1).ok() }
    }
}

/// A request that was not answered finally.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Pending {
    id: AllocationId,
    want: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Conversation {
    instance: Name,
    incarnation: Incarnation,
    agents: Vec<Agent>,
    chains: BTreeMap<Name, String>,
    epochs: BTreeMap<Name, Epoch>,
    pending: BTreeMap<(Name, usize), Pending>,
}

/// What one refill is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need<'a> {
    pub(crate) namespace: &'a Name,
    pub(crate) want: u64,
    /// Nothing below may be issued here any more.
    pub(crate) floor: u64,
}

impl Conversation {
    /// Nothing was said yet to so many agents.
    pub fn new(instance: Name, incarnation: Incarnation, agents: usize) -> Conversation {
        let agent = Agent::unknown();
        Conversation {
            instance,
            incarnation,
            agents: vec![agent; agents],
            chains: BTreeMap::new(),
            epochs: BTreeMap::new(),
            pending: BTreeMap::new(),
        }
    }

    /// There is an agent of this number: another one named it.
    pub(crate) fn knows(&mut self, agent: usize) {
        if self.agents.len() <= agent {
            self.agents.resize(agent + 1, Agent::unknown());
        }
    }

    /// The agents in the order in which to ask them now. `urgent`: a caller waits.
    pub(crate) fn order(&self, urgent: bool, now_ms: u64) -> Vec<usize> {
        let all = || self.agents.iter().enumerate();
        let well = |agent: &Agent| agent.down_until_ms.is_none();
        let due = |agent: &Agent| agent.down_until_ms.is_some_and(|until| until <= now_ms);
        let mut order: Vec<usize> = if urgent {
            let first = all().filter(|(_, a)| well(a)).map(|(n, _)| n);
            first.chain(all().filter(|(_, a)| due(a)).map(|(n, _)| n)).collect()
        } else {
            all().filter(|(_, a)| well(a) || due(a)).map(|(n, _)| n).collect()
        };
        if order.is_empty() {
            order = (0..self.agents.len()).collect();
        }
        order
    }

    /// The request for one agent: the one that it has not answered finally, or a new one under `fresh`.
    pub(crate) fn request(&mut self, agent: usize, need: &Need<'_>, fresh: AllocationId) -> SegmentRequest {
        let key = (need.namespace.clone(), agent);
        let pending = *self.pending.entry(key).or_insert(Pending { id: fresh, want: need.want.max(1) });
        SegmentRequest {
            namespace: need.namespace.clone(),
            allocation_id: pending.id,
            instance: self.instance.clone(),
            incarnation: self.incarnation,
            want: pending.want,
            above: (need.floor > 0).then_some(need.floor),
            chain: self.region_of(agent).and_then(|region| self.chains.get(region)).cloned(),
            program: Some(crate::wire::program()),
        }
    }

    fn region_of(&self, agent: usize) -> Option<&Name> {
        self.agents.get(agent)?.region.as_ref()
    }

    /// What an answer to `request` means. `late`: it came after the request's deadline.
    pub(crate) fn hear(
        &mut self,
        agent: usize,
        request: &SegmentRequest,
        answer: Result<SegmentAnswer, Failure>,
        late: bool,
        floor: u64,
    ) -> Verdict {
        let key = (request.namespace.clone(), agent);
        let pending = self.pending.get(&key).is_some_and(|p| p.id == request.allocation_id);
        if late || !pending || request.incarnation != self.incarnation {
            return Verdict::Elsewhere(Failure::Unreachable("an answer came too late and was dropped".to_owned()));
        }
        match answer {
            Ok(answer) => match read(&answer) {
                Some((range, mapping)) => self.given(agent, &key, &answer, range, mapping, floor),
                None => Verdict::Elsewhere(Failure::Unreachable("the answer is not a segment".to_owned())),
            },
            Err(failure) => self.refused(agent, &key, failure),
        }
    }

    fn given(
        &mut self,
        agent: usize,
        key: &(Name, usize),
        answer: &SegmentAnswer,
        range: Range,
        mapping: Mapping,
        floor: u64,
    ) -> Verdict {
        self.pending.remove(key);
        self.well(agent, Some(&answer.region));
        self.chains.insert(answer.region.clone(), answer.chain.clone());
        let before = self.epochs.get(&answer.region).copied();
        if before.is_some_and(|before| answer.epoch < before) {
            let text = format!("a segment of epoch {}, which is over, is a gap", answer.epoch);
            return Verdict::Again(Failure::Unreachable(text));
        }
        self.epochs.insert(answer.region.clone(), answer.epoch);
        if range.lo() < floor {
            let text = format!("region {} gives {range}, below {floor}: it would break the order", answer.region);
            let failure = Failure::Refused(Problem::new(Code::SegmentDry, text));
            // Carved before another region gave what lies above: asked for anew. An agent that does so with a fresh
            // request would only do it again.
            return if answer.replayed { Verdict::Again(failure) } else { Verdict::Elsewhere(failure) };
        }
        Verdict::Adopt(Segment {
            range,
            mapping,
            region: answer.region.clone(),
            epoch: answer.epoch,
            suggested_rate_per_second: answer.suggested_rate_per_second,
            epoch_rose: before.is_some_and(|before| before < answer.epoch),
        })
    }

    fn refused(&mut self, agent: usize, key: &(Name, usize), failure: Failure) -> Verdict {
        let Failure::Refused(problem) = &failure else { return Verdict::Elsewhere(failure) };
        match problem.code {
            Code::AllocationConflict | Code::AllocationExpired | Code::AlreadyConfirmed => {
                self.pending.remove(key);
                Verdict::Again(failure)
            }
            Code::EpochFenced => {
                self.pending.remove(key);
                let known = self.region_of(agent).is_some_and(|region| self.chains.contains_key(region));
                if known { Verdict::Ended(failure) } else { Verdict::Elsewhere(failure) }
            }
            Code::Unauthenticated | Code::NotHome | Code::NotFound | Code::MethodNotAllowed => {
                self.pending.remove(key);
                Verdict::Elsewhere(failure)
            }
            code if code.status() >= 500 || code.retryable() => Verdict::Elsewhere(failure),
            _ => {
                self.pending.remove(key);
                Verdict::Stop(failure)
            }
        }
    }

    /// Notes that an agent answered.
    fn well(&mut self, agent: usize, region: Option<&Name>) {
        if let Some(agent) = self.agents.get_mut(agent) {
            agent.down_until_ms = None;
            agent.region = region.cloned().or(agent.region.take());
            if let Some(backoff) = &mut agent.backoff {
                backoff.reset();
            }
        }
    }

    /// Notes that an agent does not answer, or is about to stop: it is left alone for a while.
    pub(crate) fn unwell(&mut self, agent: usize, failure: &Failure, random: u64, now_ms: u64) {
        let gone = match failure {
            Failure::Unreachable(_) => true,
            Failure::Refused(problem) => problem.code == Code::ShuttingDown,
        };
        if !gone {
            self.well(agent, None);
        } else if let Some(agent) = self.agents.get_mut(agent) {
            let wait_ms = agent.backoff.as_mut().map_or(LEFT_ALONE_MS.1, |b| b.failed(random));
            agent.down_until_ms = Some(now_ms.saturating_add(wait_ms));
        }
    }

    /// Begins anew as another incarnation, to which nothing was given.
    pub(crate) fn begin_anew(&mut self, incarnation: Incarnation) {
        self.incarnation = incarnation;
        self.chains.clear();
        self.pending.clear();
    }

    /// Which agents have something that they did not answer finally; for tests and the log.
    #[cfg(test)]
    fn pending_at(&self, namespace: &Name) -> Vec<usize> {
        self.pending.keys().filter(|(name, _)| name == namespace).map(|(_, agent)| *agent).collect()
    }
}

/// Checks that an answer is a segment: bounds, values and step agree.
fn read(answer: &SegmentAnswer) -> Option<(Range, Mapping)> {
    let range = Range::new(answer.lo, answer.hi).ok()?;
    let steps = i128::from(range.len()) - 1;
    let last = i128::from(answer.first) + steps * i128::from(answer.increment);
    let agrees = answer.increment != 0 && last == i128::from(answer.last);
    agrees.then(|| (range, Mapping::new(answer.lo, answer.first, answer.increment)))
}

#[cfg(test)]
#[path = "conversation/tests.rs"]
mod tests;
