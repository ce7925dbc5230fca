//! What every door calls for a process that issues by itself: a segment of its own.
//!
//! Invariant: whatever is answered was carved, or found again, in one transaction and has passed the region's gate; values
//! are mapped by what is known after the carve. Absent on purpose: who may ask (the front), and HTTP.

use cadastre_core::ids::Name;
use cadastre_core::range::MAX_ORDINAL;
use cadastre_protocol::error::Code;
use cadastre_protocol::ids::{Program, SegmentAnswer, SegmentRequest};

use crate::auth::Service;
use crate::context::View;
use crate::error::{AgentError, problem};
use crate::front::Front;
use crate::regional::{Carved, Order, Thick};
use crate::sizing;

impl Front {
    /// Whether a process that issues by itself reads whatever it could be given.
    ///
    /// # Errors
    /// `invalid_request` where it does not.
    pub fn reads(
        &self,
        namespace: &Name,
        service: &Name,
        instance: &Name,
        program: Option<&Program>,
    ) -> Result<(), AgentError> {
        let ctx = &self.agent().ctx;
        match ctx.view().roster.namespace(namespace) {
            Some(entry) => ctx.knowers.hear(entry, (namespace, service, instance), program, ctx.now().mono_ms),
            None => Ok(()),
        }
    }

    /// A segment for a process of a service.
    ///
    /// # Errors
    /// As a carve, and `invalid_request` where nothing, or more than there can be, is wanted.
    pub async fn segment(
        &self,
        view: &View,
        service: &Service,
        asked: SegmentRequest,
    ) -> Result<SegmentAnswer, AgentError> {
        let settings = self.admitted(view, service, &asked.namespace)?;
        if asked.want == 0 || asked.want > MAX_ORDINAL {
            return Err(problem(Code::InvalidRequest, format!("want: must be \"1\" to \"{MAX_ORDINAL}\"")));
        }
        self.reads(&asked.namespace, &service.name, &asked.instance, asked.program.as_ref())?;
        let (ctx, pool) = (&self.agent().ctx, &self.agent().pool);
        let space = view.space_left(&asked.namespace, settings).saturating_add(pool.left(&asked.namespace));
        let order = Order {
            namespace: asked.namespace,
            service: Some(service.name.clone()),
            instance: asked.instance,
            incarnation: asked.incarnation,
            allocation_id: asked.allocation_id,
            want: asked.want,
        };
        let most = sizing::largest_segment(settings, space);
        let reserved = service.reserve(order.want.min(most));
        let thick = Thick {
            chain: asked.chain,
            next_chain: pool.fresh_chain(),
            retention_ms: ctx.times.retention_ms,
            most,
            // A replay is not refused: it was counted when it was carved.
            rate: reserved.as_ref().map(|r| r.most).map_err(Clone::clone),
            // An end of a range: beyond the largest one nothing lies.
            above: asked.above.unwrap_or(0).min(MAX_ORDINAL),
            limits: service.limits(),
        };
        let Carved { segment, replayed, chain, .. } = pool.carve(&order, Some(thick)).await?;
        if let (Ok(reserved), false) = (reserved, replayed) {
            reserved.use_up(segment.range.len());
        }
        let taken = self.taken(&segment.namespace, vec![segment.range]);
        let settings = taken.settings()?;
        let values = settings.definition.first_last(segment.range);
        let (first, last) = values.ok_or_else(|| problem(Code::Internal, "a segment without values"))?;
        Ok(SegmentAnswer {
            segment_id: segment.segment_id,
            grant_id: segment.grant_id,
            lo: segment.range.lo(),
            hi: segment.range.hi(),
            first,
            last,
            increment: settings.definition.version_of(segment.range.lo()).sequence().increment(),
            region: ctx.me.region.clone(),
            epoch: segment.epoch,
            retry_until: segment.at_ms.saturating_add(ctx.times.retention_ms),
            suggested_rate_per_second: segment.range.len() as f64 / f64::from(settings.policy.target_seconds.max(1)),
            chain,
            replayed,
        })
    }
}
