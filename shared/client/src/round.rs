//! One refill: asking agents in turn until one gives a segment, and what follows from each answer.
//!
//! Time, randomness and the wire are the surroundings', so that a simulator runs this very code. Invariant: one round at a
//! time, as the conversation's chain is one. Absent on purpose: when a refill is due (the entry says), threads, sockets.

use std::future::Future;
use std::sync::Arc;

use cadastre_core::ids::{AllocationId, Incarnation};
use cadastre_protocol::error::Code;
use cadastre_protocol::ids::{SegmentAnswer, SegmentRequest};
use cadastre_protocol::operate::HomeAddress;

use crate::conversation::{Conversation, Failure, Need, Segment, Verdict};
use crate::entry::Entry;
use crate::error::{Error, ErrorKind};
use crate::metrics;

/// How often one agent is asked once more within one refill.
const AGAIN: u32 = 2;

/// What a round needs of the world.
pub trait Surroundings: Sync {
    /// Milliseconds since some moment of this process; never falls.
    fn mono_ms(&self) -> u64;
    /// 64 random bits.
    fn random(&self) -> u64;
    /// A name for a new request.
    fn allocation(&self) -> AllocationId;
    /// A name for this process, once more.
    fn incarnation(&self) -> Incarnation;
    /// How long one answer is waited for, in milliseconds.
    fn request_timeout_ms(&self) -> u64;
    /// Asks one agent, once, and waits for as long as that.
    fn ask(
        &self,
        agent: usize,
        request: &SegmentRequest,
    ) -> impl Future<Output = Result<SegmentAnswer, Failure>> + Send;
    /// Where an agent says that a namespace is at home: which agents those are. One that cannot be followed is none.
    fn follow(&self, _home: &[HomeAddress]) -> Vec<usize> {
        Vec::new()
    }
    /// Every namespace of this process.
    fn entries(&self) -> Vec<Arc<Entry>>;
}

/// Carries out a refill that the entry claimed.
pub async fn refill(world: &impl Surroundings, talk: &mut Conversation, entry: &Entry) {
    let began_ms = world.mono_ms();
    let result = round(world, talk, entry).await;
    let now_ms = world.mono_ms();
    let (namespace, seconds) = (&entry.name, now_ms.saturating_sub(began_ms) as f64 / 1_000.0);
    match result {
        Ok((agent, segment)) => {
            let (region, epoch, size) = (segment.region.as_str(), segment.epoch.0, segment.range.len());
            match entry.filled(&segment, now_ms) {
                Ok(()) => {
                    metrics::refilled(namespace, agent, seconds);
                    tracing::debug!(%namespace, region, epoch, size, seconds, "refill");
                }
                Err(lost) => {
                    metrics::burned(namespace, lost);
                    tracing::debug!(%namespace, region, epoch, lost, "a segment could not be used; it is a gap");
                }
            }
        }
        Err(failure) => {
            let error = error(failure);
            metrics::refill_failed(namespace, error.code());
            tracing::warn!(%namespace, left = entry.left(), %error, "refill failed");
            entry.failed(error, world.random(), now_ms);
        }
    }
}

/// What a caller is told of a failure.
pub(crate) fn error(failure: Failure) -> Error {
    match failure {
        Failure::Unreachable(text) => ErrorKind::Unreachable(text).into(),
        Failure::Refused(problem) => ErrorKind::Refused(problem).into(),
    }
}

/// Asks the agents in turn until one gives a segment.
async fn round(world: &impl Surroundings, talk: &mut Conversation, entry: &Entry) -> Result<(usize, Segment), Failure> {
    let mut why = Failure::Unreachable("there is no agent".to_owned());
    let mut order = talk.order(entry.is_waited_for(), world.mono_ms());
    let mut place = 0;
    while let Some(agent) = order.get(place).copied() {
        place += 1;
        for _ in 0..=AGAIN {
            let (done, failure) = match exchange(world, talk, agent, entry).await {
                Verdict::Adopt(segment) => {
                    if segment.epoch_rose {
                        give_up(world, Some(&segment));
                    }
                    return Ok((agent, segment));
                }
                Verdict::Stop(failure) => return Err(failure),
                Verdict::Elsewhere(failure) => (true, failure),
                Verdict::Again(failure) => (false, failure),
                Verdict::Ended(failure) => {
                    tracing::warn!(?failure, "all segments are given up; beginning anew");
                    give_up(world, None);
                    talk.begin_anew(world.incarnation());
                    (false, failure)
                }
            };
            if let Failure::Refused(problem) = &failure
                && problem.code == Code::NotHome
            {
                for named in world.follow(&problem.home) {
                    talk.knows(named);
                    // One that was asked already has answered.
                    if !order.contains(&named) {
                        order.push(named);
                    }
                }
            }
            // A refusal says more than silence.
            if matches!(failure, Failure::Refused(_)) || matches!(why, Failure::Unreachable(_)) {
                why = failure;
            }
            if done {
                if entry.has_time() && is_dry(&why) {
                    return Err(why);
                }
                break;
            }
        }
    }
    Err(why)
}

/// One request and its answer.
async fn exchange(world: &impl Surroundings, talk: &mut Conversation, agent: usize, entry: &Entry) -> Verdict {
    let sent_ms = world.mono_ms();
    let (want, floor) = entry.need(sent_ms);
    let request = talk.request(agent, &Need { namespace: &entry.name, want, floor }, world.allocation());
    let answer = world.ask(agent, &request).await;
    let now_ms = world.mono_ms();
    if let Err(failure) = &answer {
        talk.unwell(agent, failure, world.random(), now_ms);
    }
    let late = now_ms.saturating_sub(sent_ms) > world.request_timeout_ms();
    talk.hear(agent, &request, answer, late, floor)
}

/// Gives up what older epochs of a segment's region gave, or everything.
fn give_up(world: &impl Surroundings, above: Option<&Segment>) {
    for entry in world.entries() {
        let lost = entry.give_up(above.map(|s| (&s.region, s.epoch)));
        metrics::burned(&entry.name, lost);
    }
}

/// Whether the region may just be waiting for its next grant: then it is asked again before another region is, unless
/// a caller waits.
fn is_dry(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused(problem) if problem.code == Code::SegmentDry)
}
