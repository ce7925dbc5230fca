//! The trivial loops around [`Link::run_once`](crate::link::Link::run_once) and
//! [`Issuer::refill`](crate::issuer::Issuer::refill): the only places with timers and tasks.

use std::sync::Arc;
use std::time::Duration;

use cadastre_runtime::http::Shutdown;
use cadastre_runtime::telemetry::Metrics;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::agent::Agent;
use crate::http::verdict;
use crate::metrics as meter;
use crate::quota::Exchange;

/// Refills at once, of all namespaces together.
const MAX_REFILLS: usize = 32;
/// The refill loop looks at least this often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What nobody waits for is looked after this often.
const CLEAN_EVERY: Duration = Duration::from_secs(3_600);
/// A hundred thousand samples a second are some megabytes until then.
const DRAIN_EVERY: Duration = Duration::from_secs(1);
/// The region's agents tell one another what is asked of them this often.
const SHARE_EVERY: Duration = Duration::from_secs(1);
/// For one round of that.
const SHARE_WITHIN: Duration = Duration::from_secs(2);
/// The witness is looked at this often.
const WITNESS_EVERY: Duration = Duration::from_secs(2);
/// Wishes for grants within this time go into one message.
const GATHER: Duration = Duration::from_millis(5);
/// That time doubles at most this often: to 1.3 seconds.
const MAX_DOUBLINGS: u32 = 8;

/// Talks to the authority until the process stops or this incarnation ends.
pub async fn heartbeats(agent: Arc<Agent>, shutdown: Shutdown) {
    // Wishes that led to no want (a refused one is held back) make the next wish wait longer.
    let (mut woken, mut in_vain) = (false, 0_u32);
    loop {
        let pause = agent.link.run_once().await;
        if agent.ctx.orders.wants_verdict() && agent.stamps.behind_now().is_empty() {
            match verdict(&agent.ctx).await {
                Ok(verdict) => agent.ctx.orders.verified(verdict, agent.ctx.now().mono_ms),
                Err(error) => tracing::warn!(%error, "the ledger could not be checked after a drill"),
            }
        }
        in_vain = if woken && !pause.wanted { (in_vain + 1).min(MAX_DOUBLINGS) } else { 0 };
        let gather = GATHER.saturating_mul(1 << in_vain);
        let rest = sleep(Duration::from_millis(pause.ms));
        tokio::select! {
            () = shutdown.wait() => return,
            _ = agent.ctx.ended() => return,
            () = rest => woken = false,
            () = agent.ctx.link_wake.notified(), if pause.may_be_cut => {
                woken = true;
                sleep(gather).await;
            }
        }
    }
}

/// Starts the refills that are due. A started one is never cancelled, whatever becomes of its callers.
pub async fn refills(agent: Arc<Agent>, shutdown: Shutdown) {
    let places = Arc::new(Semaphore::new(MAX_REFILLS));
    loop {
        for entry in agent.issuer.due() {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let agent = Arc::clone(&agent);
            tokio::spawn(async move {
                agent.issuer.refill(&entry).await;
                drop(place);
            });
        }
        let next = agent.issuer.next_due_ms().map_or(LOOK_EVERY, Duration::from_millis);
        tokio::select! {
            () = shutdown.wait() => return,
            () = agent.ctx.refill_wake.notified() => {}
            () = sleep(next.clamp(Duration::from_millis(1), LOOK_EVERY)) => {}
        }
    }
}

/// Takes and renews time windows, ahead of need.
pub async fn windows(agent: Arc<Agent>, shutdown: Shutdown) {
    loop {
        let pause = agent.stamps.run_once().await;
        tokio::select! {
            () = shutdown.wait() => return,
            () = agent.ctx.window_wake.notified() => {}
            () = sleep(pause) => {}
        }
    }
}

/// Drains the histograms' samples: a scrape would, but nobody may ever come.
pub async fn samples(metrics: Metrics, shutdown: Shutdown) {
    loop {
        tokio::select! {
            () = shutdown.wait() => return,
            () = sleep(DRAIN_EVERY) => metrics.upkeep(),
        }
    }
}

/// Shares services' rates with the region's other agents.
pub async fn quotas(mut exchange: Exchange, shutdown: Shutdown) {
    loop {
        if timeout(SHARE_WITHIN, exchange.run_once()).await.is_err() {
            exchange.lost("no answer in time");
        }
        tokio::select! {
            () = shutdown.wait() => return,
            () = sleep(SHARE_EVERY) => {}
        }
    }
}

/// Looks at the witness of the region's store: one that is gone, or was flushed, is told before it is needed.
pub async fn witness(agent: Arc<Agent>, shutdown: Shutdown) {
    loop {
        if let Err(error) = agent.ctx.continuity.look_at_witness().await {
            tracing::warn!(%error, "the store cannot be judged by its witness");
        }
        meter::witness(&agent.ctx.me.region, &agent.ctx.continuity.witness_status());
        tokio::select! {
            () = shutdown.wait() => return,
            () = sleep(WITNESS_EVERY) => {}
        }
    }
}

/// Looks whether the region's store is still on the server that was verified.
pub async fn watch(agent: Arc<Agent>, shutdown: Shutdown) {
    loop {
        tokio::select! {
            () = shutdown.wait() => return,
            () = sleep(LOOK_EVERY) => {}
        }
        let continuity = &agent.ctx.continuity;
        let was_open = continuity.standing().how.is_open();
        if let Err(error) = continuity.watch().await {
            tracing::warn!(%error, "the store's server cannot be looked at");
        }
        if was_open && !continuity.standing().how.is_open() {
            agent.ctx.link_wake.notify_one();
        }
    }
}

/// Counts what is gone, once an hour.
pub async fn housekeeping(agent: Arc<Agent>, shutdown: Shutdown) {
    loop {
        tokio::select! {
            () = shutdown.wait() => return,
            () = sleep(CLEAN_EVERY) => {}
        }
        if let Err(error) = agent.pool.count_gone().await {
            tracing::warn!(%error, "what is gone could not be counted");
        }
    }
}
