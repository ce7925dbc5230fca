//! How many processes of a service may take segments, and how much they may hold, in this region.
//!
//! Invariant: looked at in the transaction that carves, which raises the region's one scope, so that two carves at
//! the same time cannot both find the last place. A process that counts goes on whatever the limit is now; a retry
//! of what was carved is never refused here. Absent on purpose: knowing what a process has issued; see `quota`.

use cadastre_core::quota::{self, HOLDER_COUNTS_MS};
use cadastre_core::roster::Limits;
use cadastre_protocol::error::{Code, Problem};
use cadastre_runtime::db::Tx;

use super::Order;
use crate::error::AgentError;
use crate::sql;

/// When to look again whether other processes used up what they hold.
const HELD_AGAIN_SECONDS: u32 = 10;
/// A place may become free before the oldest process stops counting, or the limit may be raised.
const MOST_WAIT_SECONDS: u32 = 60;

/// How much of `want` the client may be given. `counts`: it is one of the processes that are counted already.
///
/// # Errors
/// `rate_limited`, or those of the store.
pub(super) async fn allowed(
    tx: &mut Tx,
    order: &Order,
    limits: &Limits,
    counts: bool,
    want: u64,
    now_ms: u64,
) -> Result<u64, AgentError> {
    let service = order.holder();
    let since = now_ms.saturating_sub(HOLDER_COUNTS_MS);
    if let Some(most) = limits.holders.filter(|_| !counts) {
        let (others, first) = sql::other_holders(tx, service, order.incarnation, since).await?;
        if !quota::may_join(Some(most), others) {
            return Err(too_many_processes(service.as_str(), most, first.map_or(0, |seen| seen.saturating_sub(since))));
        }
    }
    let Some(most) = limits.held_ids else { return Ok(want) };
    let who = (order.incarnation, &order.namespace);
    let others = sql::held_by_others(tx, service, who, since).await?;
    let own = sql::newest_held(tx, order.incarnation, &order.namespace).await?;
    let held = others.saturating_add(quota::left_when_asked(own));
    quota::room(Some(most), held, want).ok_or_else(|| too_much_held(service.as_str(), most, held, want))
}

fn too_many_processes(service: &str, most: u32, wait_ms: u64) -> AgentError {
    let minutes = HOLDER_COUNTS_MS / 60_000;
    let text = format!(
        "service {service} has {most} processes that take segments here, its limit `holders`; each counts until it took \
         none for {minutes} minutes. Use fewer processes, or have the limit raised"
    );
    let seconds = u32::try_from(wait_ms.div_ceil(1_000)).unwrap_or(u32::MAX);
    Problem::new(Code::RateLimited, text).retry_after(seconds.clamp(1, MOST_WAIT_SECONDS)).into()
}

fn too_much_held(service: &str, most: u64, held: u64, want: u64) -> AgentError {
    let text = format!(
        "processes of service {service} hold about {held} ids that they have not issued, and {want} more are above its \
         limit `held_ids` of {most}; wait until some are used, let processes hold less, or have the limit raised"
    );
    Problem::new(Code::RateLimited, text).retry_after(HELD_AGAIN_SECONDS).into()
}
