//! Workers of time-based namespaces: asking agents for windows, on the worker's thread.
//!
//! Invariant: a worker is renewed by the agent that gave it, which alone may say that it is lost. Where that one does not
//! answer, what is held is stamped to its window's end, and then another worker is taken, of whichever agent answers
//! first.

use std::sync::Arc;

use cadastre_core::ids::{AllocationId, Incarnation};
use cadastre_core::window::ASKER_CLOCK_BOUND_MS;
use cadastre_protocol::error::Code;
use cadastre_protocol::workers::{WorkerAnswer, WorkerEnd, WorkerRenewal, WorkerRequest};

use crate::conversation::Failure;
use crate::metrics;
use crate::post::{Duty, Held, Post};
use crate::round::{Surroundings, error};
use crate::system;
use crate::worker::Desk;

/// What is due of a post, done.
pub(crate) async fn tend(desk: Arc<Desk>, post: Arc<Post>, duty: Duty) {
    let result = match &duty {
        Duty::Take(id) => take(&desk, &post, *id).await,
        Duty::Renew(held) => renew(&desk, &post, held).await,
    };
    let now_ms = system::mono_ms();
    if let Err(failure) = result {
        let code = code(&failure);
        // The agent says so, of a worker that it gave: somebody else may have it now.
        let over = matches!(code, Some(Code::WindowEnded | Code::EpochFenced | Code::LayoutFull));
        let lost = matches!(duty, Duty::Renew(_)) && over;
        let spent = matches!(code, Some(Code::EpochFenced | Code::AllocationConflict | Code::AllocationExpired));
        let anew = spent.then(|| Incarnation(system::uuid_v4()));
        let error = error(failure);
        metrics::refill_failed(&post.name, error.code());
        tracing::warn!(namespace = %post.name, %error, lost, "no window");
        post.failed(error, lost, anew, now_ms);
    }
    desk.shared.wake.notify_one();
}

async fn take(desk: &Desk, post: &Post, allocation_id: AllocationId) -> Result<(), Failure> {
    let mut why = Failure::Unreachable("there is no agent".to_owned());
    let mut next = 0;
    // One that sends us elsewhere makes the list longer.
    while next < desk.agents() {
        let agent = next;
        next += 1;
        let (incarnation, chain, above) = post.asker(agent);
        let request = WorkerRequest {
            namespace: post.name.clone(),
            allocation_id,
            instance: desk.shared.settings.instance.clone(),
            incarnation,
            clock: Some(system::wall_ms()),
            above: (above > 0).then_some(above),
            chain,
            program: Some(crate::wire::program()),
        };
        let asked_ms = system::wall_ms();
        match desk.worker("POST", agent, "", &request).await {
            Ok(answer) => {
                measure_clock(post, asked_ms, &answer);
                tracing::debug!(namespace = %post.name, worker = answer.worker, slot = answer.slot, "worker");
                post.taken(agent, &answer);
                return Ok(());
            }
            Err(Failure::Refused(problem)) if problem.code == Code::NotHome => {
                desk.follow(&problem.home);
                why = Failure::Refused(problem);
            }
            // A refusal says more than silence.
            Err(failure) if code(&failure).is_some() || code(&why).is_none() => why = failure,
            Err(_) => {}
        }
    }
    Err(why)
}

async fn renew(desk: &Desk, post: &Post, held: &Held) -> Result<(), Failure> {
    let (incarnation, chain, _) = post.asker(held.agent);
    let request = WorkerRenewal {
        namespace: post.name.clone(),
        incarnation,
        instance: Some(desk.shared.settings.instance.clone()),
        clock: Some(system::wall_ms()),
        chain,
    };
    let path = format!("/{}/renew", held.worker);
    let asked_ms = system::wall_ms();
    let answer = desk.worker("POST", held.agent, &path, &request).await?;
    measure_clock(post, asked_ms, &answer);
    post.renewed(held, &answer);
    Ok(())
}

/// How far this clock is from the agent's, which looked at its own somewhere between question and answer.
fn measure_clock(post: &Post, asked_ms: u64, answer: &WorkerAnswer) {
    let middle_ms = asked_ms / 2 + system::wall_ms() / 2;
    let off_ms = i128::from(middle_ms) - i128::from(answer.clock);
    metrics::clock_offset(&post.name, off_ms as f64 / 1_000.0);
    if off_ms.unsigned_abs() > u128::from(ASKER_CLOCK_BOUND_MS) {
        tracing::warn!(namespace = %post.name, off_ms, "this clock and the agent's are far apart: one is to be set right");
    }
}

/// The last word: every worker with its true end, so that it need not run out.
pub(crate) async fn end_all(desk: &Desk) {
    for post in desk.shared.posts() {
        let Some((held, stamped_to)) = post.close() else { continue };
        let (incarnation, chain, _) = post.asker(held.agent);
        let request = WorkerEnd {
            namespace: post.name.clone(),
            incarnation,
            instance: Some(desk.shared.settings.instance.clone()),
            stamped_to: Some(stamped_to),
            chain,
        };
        let path = format!("/{}", held.worker);
        let told: Result<WorkerAnswer, Failure> = desk.worker("DELETE", held.agent, &path, &request).await;
        if let Err(failure) = told {
            tracing::debug!(namespace = %post.name, ?failure, "the worker's window runs out by itself");
        }
    }
}

fn code(failure: &Failure) -> Option<Code> {
    match failure {
        Failure::Refused(problem) => Some(problem.code),
        Failure::Unreachable(_) => None,
    }
}
