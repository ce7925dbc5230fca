//! One carve as one transaction: look, decide in core, write under guards, raise the store's scope.
//!
//! What comes out may be answered only after the gate; see the module above.

use std::sync::Arc;

use cadastre_core::continuity::ScopeState;
use cadastre_core::ids::{AllocationId, BlockId, Epoch, GrantId, Incarnation, Name, RowId, SegmentId};
use cadastre_core::mark::{Generation, Mark, Scope};
use cadastre_core::pool::{self, Carve, Holding};
use cadastre_core::quota::HOLDER_COUNTS_MS;
use cadastre_core::roster::Limits;
use cadastre_core::sequence::Definition;
use cadastre_ledger::sql as ledger;
use cadastre_protocol::error::{Code, Problem};
use cadastre_runtime::db::{DbError, Tx};
use cadastre_runtime::entropy::Entropy;

use super::caps;
use crate::error::{AgentError, problem};
use crate::sql::{self, BlockRow, HoldState, HolderRow, SegmentRow};

/// Who asks for a segment, and for how much.
#[derive(Clone, Debug)]
pub struct Order {
    /// In which namespace.
    pub namespace: Name,
    /// For which service; none where an agent shares it among services.
    pub service: Option<Name>,
    /// A name for people.
    pub instance: Name,
    /// The process that will hold it.
    pub incarnation: Incarnation,
    /// Names the request over every retry.
    pub allocation_id: AllocationId,
    /// At most so many ordinals.
    pub want: u64,
}

impl Order {
    /// Whose processes its holder belongs to.
    pub(super) fn holder(&self) -> &Name {
        self.service.as_ref().unwrap_or(&self.instance)
    }
}

/// A thick client's part of an order; an agent's own orders have none.
#[derive(Clone, Debug)]
pub struct Thick {
    /// The token that the client presented.
    pub chain: Option<String>,
    /// The token that its next request is to present.
    pub next_chain: String,
    /// A segment is replayed for this long.
    pub retention_ms: u64,
    /// The most ordinals that it is given, whatever it wants. Not a part of the order: a retry is compared
    /// with what was asked for, not with what there was.
    pub most: u64,
    /// No ordinal below: the client was given those before, here or by another region. Not a part of the order either.
    pub above: u64,
    /// The limits of its service.
    pub limits: Limits,
    /// The most that its service's rate leaves, or why it leaves nothing; no word for a replay.
    pub rate: Result<u64, Problem>,
}

/// What a carve is decided by, besides the rows.
#[derive(Clone)]
pub struct Terms {
    /// The generation that this process verified.
    pub generation: Generation,
    /// The epoch that this process holds.
    pub epoch: Epoch,
    /// The roster that this process knows. A segment of a definition that it does not know would be mapped wrongly.
    pub roster_version: (Generation, u64),
    /// The size of a service's block; 0 shares the grants.
    pub service_block: u64,
    /// The namespace's definition: a segment lies within one version.
    pub definition: Arc<Definition>,
    /// The wall clock, milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// Fresh ids.
    pub entropy: Arc<dyn Entropy>,
}

/// A segment, written now or before, and the mark that has to pass the gate first.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The segment.
    pub segment: SegmentRow,
    /// The store's newest mark.
    pub mark: Mark,
    /// Whether it was written by an earlier request.
    pub replayed: bool,
    /// What the namespace has left in the region.
    pub left: u64,
    /// What a thick client presents next; empty for an agent's own.
    pub chain: String,
}

/// Runs the transaction. `None` where the client presented a token that was not given to it: that is written
/// down, and it gets nothing more.
///
/// # Errors
/// [`AgentError`]; nothing was written then.
pub async fn run(
    tx: &mut Tx,
    order: &Order,
    thick: Option<&Thick>,
    terms: &Terms,
) -> Result<Option<Outcome>, AgentError> {
    let was = open_mark(tx, terms).await?;
    if sql::roster_version(tx).await? != terms.roster_version {
        return Err(AgentError::EpochMoved);
    }
    let mut joined = Joined::default();
    if let Some(thick) = thick {
        match holder(tx, order, thick, terms).await? {
            Some(known) => joined = known,
            None => return Ok(None),
        }
    }
    let chain = joined.chain.clone();
    if let Some(segment) = known(tx, order, thick, terms).await? {
        let left = sql::left_of(tx, &order.namespace, terms.epoch).await?;
        return Ok(Some(Outcome { segment, mark: was, replayed: true, left, chain }));
    }
    let row = RowId(terms.entropy.uuid_v4());
    let (mut want, above) = thick.map_or((order.want, 0), |t| (order.want.min(t.most), t.above));
    if let Some(thick) = thick {
        want = want.min(thick.rate.clone()?);
        want = caps::allowed(tx, order, &thick.limits, joined.counts, want, terms.now_ms).await?;
    }
    let (carve, grant_id, block_id) = take(tx, order, want, above, terms).await?;
    let segment = SegmentRow {
        segment_id: SegmentId(terms.entropy.uuid_v4()),
        namespace: order.namespace.clone(),
        grant_id,
        block_id,
        range: carve.range,
        service: order.service.clone(),
        instance: order.instance.clone(),
        incarnation: order.incarnation,
        allocation_id: order.allocation_id,
        want: order.want,
        epoch: terms.epoch,
        at_ms: terms.now_ms,
        mark_row: row,
    };
    sql::insert_segment(tx, &segment).await?;
    sql::count(tx, &order.namespace, carve.range.len(), 0).await?;
    if thick.is_some() {
        let whose = (&order.namespace, order.holder());
        sql::put_held(tx, order.incarnation, whose, carve.range.len(), terms.now_ms).await?;
    } else {
        sql::add_in_hand(tx, order.incarnation, &order.namespace, carve.range.len(), terms.now_ms).await?;
    }
    let mark = raise(tx, &was, row, "carve", terms.now_ms).await?;
    let left = sql::left_of(tx, &order.namespace, terms.epoch).await?;
    Ok(Some(Outcome { segment, mark, replayed: false, left, chain }))
}

/// Raises the region's scope. Its bound is its seq: so a mark of a lost history lies above the base of
/// whatever generation is opened later, and is never taken for contained.
///
/// # Errors
/// `Conflict` where it moved meanwhile.
pub async fn raise(tx: &mut Tx, was: &Mark, row: RowId, what: &str, now_ms: u64) -> Result<Mark, AgentError> {
    let bound = was.bound.max(was.seq + 1);
    Ok(ledger::raise(tx, &Scope::Region, was, bound, row, what, now_ms).await?)
}

/// The store's newest mark, if its scope is open in the verified generation and its epoch is the held one.
pub(super) async fn open_mark(tx: &mut Tx, terms: &Terms) -> Result<Mark, AgentError> {
    let scope = ledger::scope(tx, &Scope::Region).await?.ok_or(AgentError::Moved)?;
    if !scope.is(ScopeState::Open, terms.generation) {
        return Err(AgentError::Moved);
    }
    match sql::standing(tx).await? {
        Some(s) if s.epoch == terms.epoch && !s.superseded && s.state.may_issue() => Ok(scope.view.mark),
        Some(_) | None => Err(AgentError::EpochMoved),
    }
}

/// The segment that this very request got before. It belongs to one process and request in every history of
/// the store, so it may be answered in a later generation too, once the store's newest mark has passed the gate.
async fn known(
    tx: &mut Tx,
    order: &Order,
    thick: Option<&Thick>,
    terms: &Terms,
) -> Result<Option<SegmentRow>, AgentError> {
    let age_ms = |since: u64| terms.now_ms.saturating_sub(since);
    let expired = |since: u64| thick.is_some_and(|t| age_ms(since) > t.retention_ms);
    let Some(known) = sql::segment_by_allocation(tx, order.allocation_id).await? else {
        if expired(order.allocation_id.made_at_ms()) {
            let text = "this allocation id is too old to be known for sure; make a fresh one";
            return Err(problem(Code::AllocationExpired, text));
        }
        return Ok(None);
    };
    let same = known.namespace == order.namespace
        && known.service == order.service
        && known.incarnation == order.incarnation
        && known.instance == order.instance
        && known.want == order.want;
    if !same {
        let text =
            "this allocation id was used with other parameters or by another process; make a fresh one per segment";
        return Err(problem(Code::AllocationConflict, text));
    }
    if known.epoch != terms.epoch {
        let text = format!("this segment was of epoch {}, which is over; ask with a fresh allocation id", known.epoch);
        return Err(problem(Code::EpochFenced, text));
    }
    if expired(known.at_ms) {
        return Err(problem(
            Code::AllocationExpired,
            "this segment is not answered any more; make a fresh allocation id",
        ));
    }
    Ok(Some(known))
}

/// A client that may go on.
#[derive(Default)]
pub(super) struct Joined {
    /// What it presents next.
    pub(super) chain: String,
    /// Whether it counted among its service's processes before this request.
    pub(super) counts: bool,
}

/// Moves the client's chain on, and returns what it presents next. `None` where it presented a token that it was not
/// given: two copies of one process are alive, and both end.
pub(super) async fn holder(
    tx: &mut Tx,
    order: &Order,
    thick: &Thick,
    terms: &Terms,
) -> Result<Option<Joined>, AgentError> {
    let service = order.holder().clone();
    let known = sql::holder(tx, order.incarnation).await?;
    if known.as_ref().is_some_and(|h| h.service != service) {
        let text = "this incarnation is another service's; draw a random UUID per process start";
        return Err(problem(Code::AllocationConflict, text));
    }
    if known.as_ref().is_some_and(|h| h.ended) {
        return Ok(None);
    }
    let counts = known.as_ref().is_some_and(|h| terms.now_ms.saturating_sub(h.seen_at_ms) <= HOLDER_COUNTS_MS);
    // The network made two of one request, or its answer was lost: the token of the first answer is the next one.
    // A fresh one would make that one wrong, which may be what the client got.
    if let Some(before) = known.as_ref().filter(|h| thick.chain.as_ref() == Some(&h.previous_chain))
        && was_answered(tx, order).await?
    {
        return Ok(Some(Joined { chain: before.chain.clone(), counts }));
    }
    let kept = known.as_ref().map(|h| (h.chain.as_str(), h.previous_chain.as_str()));
    let right = match (&thick.chain, kept) {
        (None, _) => true,
        (Some(given), Some((chain, previous))) => given == chain || given == previous,
        (Some(_), None) => true,
    };
    let presented = thick.chain.clone().or_else(|| kept.map(|(chain, _)| chain.to_owned())).unwrap_or_default();
    let now = HolderRow {
        incarnation: order.incarnation,
        service,
        instance: order.instance.clone(),
        chain: thick.next_chain.clone(),
        previous_chain: presented,
        seen_at_ms: terms.now_ms,
        ended: !right,
    };
    sql::put_holder(tx, known.as_ref(), &now).await?;
    if !right {
        let (id, detail) =
            (RowId(terms.entropy.uuid_v4()), format!("incarnation {} of {}", order.incarnation, order.instance));
        ledger::audit(tx, id, terms.now_ms, now.service.as_str(), "wrong_chain", &detail).await?;
    }
    Ok(right.then(|| Joined { chain: thick.next_chain.clone(), counts }))
}

/// Whether this very request of this process was done before.
async fn was_answered(tx: &mut Tx, order: &Order) -> Result<bool, AgentError> {
    let segment = sql::segment_by_allocation(tx, order.allocation_id).await?.map(|s| s.incarnation);
    let window = sql::window_by_allocation(tx, order.allocation_id).await?.map(|w| w.incarnation);
    Ok(segment.or(window) == Some(order.incarnation))
}

/// Carves from the service's block, making one where need be, or from the region's grants; at or above `above`.
async fn take(
    tx: &mut Tx,
    order: &Order,
    want: u64,
    above: u64,
    terms: &Terms,
) -> Result<(Carve, GrantId, Option<BlockId>), AgentError> {
    let service = order.service.as_ref().filter(|_| terms.service_block > 0);
    let Some(service) = service else {
        let carve = take_grant(tx, order, terms, want, above).await?;
        return Ok((carve, GrantId(carve.from), None));
    };
    let mut blocks = sql::blocks_left(tx, &order.namespace, service, above, terms.epoch).await?;
    if blocks.is_empty() {
        let whole = take_grant(tx, order, terms, terms.service_block.max(want), above).await?;
        let block = BlockRow {
            block_id: BlockId(terms.entropy.uuid_v4()),
            namespace: order.namespace.clone(),
            service: service.clone(),
            grant_id: GrantId(whole.from),
            range: whole.range,
            carved_to: whole.range.lo(),
            epoch: terms.epoch,
            state: HoldState::Held,
            at_ms: terms.now_ms,
        };
        sql::insert_block(tx, &block).await?;
        blocks.push(block);
    }
    let holdings: Vec<Holding> =
        blocks.iter().map(|b| Holding { id: b.block_id.0, range: b.range, carved_to: b.carved_to }).collect();
    let carve = pool::carve(&holdings, want).ok_or_else(|| AgentError::RegionDry(order.namespace.clone()))?;
    let carve = within_one_version(carve, terms);
    sql::carve_block(tx, &carve, terms.epoch).await?;
    let block = blocks.iter().find(|b| b.block_id.0 == carve.from);
    let grant_id = block.map(|b| b.grant_id).ok_or(AgentError::Db(DbError::Conflict))?;
    Ok((carve, grant_id, Some(BlockId(carve.from))))
}

async fn take_grant(tx: &mut Tx, order: &Order, terms: &Terms, want: u64, above: u64) -> Result<Carve, AgentError> {
    let holdings = sql::grants_left(tx, &order.namespace, above, terms.epoch).await?;
    let carve = pool::carve(&holdings, want).ok_or_else(|| AgentError::RegionDry(order.namespace.clone()))?;
    let carve = within_one_version(carve, terms);
    sql::carve_grant(tx, &carve, terms.epoch).await?;
    Ok(carve)
}

/// Old and new versions of a definition never mix in a segment.
fn within_one_version(carve: Carve, terms: &Terms) -> Carve {
    Carve { range: terms.definition.clip(carve.range), ..carve }
}
