//! Drills: a rehearsal that an agent holds for a stated time, and its report.
//!
//! The order reaches agents with their answers. An agent that took it says so in its next message, and is cut off from
//! then on; it ends by itself, by its own monotonic clock, whatever becomes of this process, and tells what it saw once
//! it is back. Invariants: one drill at most; an order is given only while its time runs; what is over is never ordered
//! again; the report is written once, with the row that ends the drill.

use std::collections::BTreeMap;

use cadastre_core::drill::{self, DrillKind, DrillState, Findings, Seen};
use cadastre_core::ids::{DrillId, Incarnation, Name, SwitchId};
use cadastre_core::registry::RegionState;
use cadastre_protocol::error::Code;
use cadastre_protocol::operate::{DrillOrder, DrillReport, DrillView, DrillWord, Drills, NewDrill};
use serde::{Deserialize, Serialize};

use super::catalog::live_namespace;
use super::error::problem;
use super::operations::{DRILL, MAX_LISTED, Read};
use super::regions::live_region;
use super::{Authority, ServiceError, drill_report};
use crate::sql::Operation;

/// An order that no agent took within this time is given up, in milliseconds.
const TAKEN_WITHIN_MS: u64 = 30_000;
/// Agents that are not back this long after the end are missing, in milliseconds.
const BACK_WITHIN_MS: u64 = 60_000;

/// A drill as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Drill {
    pub(super) id: DrillId,
    pub(super) order: NewDrill,
    pub(super) share_percent: u32,
    pub(super) state: DrillState,
    pub(super) who: String,
    pub(super) began_at: Option<u64>,
    pub(super) ends_at: Option<u64>,
    pub(super) ended_at: Option<u64>,
    pub(super) aborted: Option<String>,
    pub(super) switch_id: Option<SwitchId>,
    /// What each agent that began said last, by its incarnation.
    pub(super) words: BTreeMap<String, DrillWord>,
    pub(super) report: Option<DrillReport>,
}

/// The drill that is under way, as far as answers need it.
#[derive(Clone, Debug)]
pub struct Live {
    id: DrillId,
    order: NewDrill,
    share_percent: u32,
    ends_at: Option<u64>,
}

impl Live {
    /// What an agent of `region` is to hold now.
    pub(super) fn order(&self, region: &Name, now_ms: u64) -> Option<DrillOrder> {
        let whole_ms = u64::from(self.order.for_seconds) * 1_000;
        let for_ms = self.ends_at.map_or(whole_ms, |end| end.saturating_sub(now_ms));
        (self.order.region == *region && for_ms > 0).then(|| DrillOrder {
            drill_id: self.id,
            kind: self.order.kind,
            for_ms,
            share_percent: self.share_percent,
            until_dry: self.order.namespace.clone().filter(|_| self.order.until_dry),
            clock_ms: self.order.clock_ms,
        })
    }
}

impl Authority {
    /// Orders a drill.
    ///
    /// # Errors
    /// `drill_running`, `invalid_request`, `not_allowed`, or those of the store.
    pub async fn new_drill(&self, who: &str, new: NewDrill) -> Result<DrillView, ServiceError> {
        let turn = self.kind_turn(DRILL).await?;
        self.reload().await?;
        let share_percent = new.share_percent.unwrap_or(drill::DEFAULT_SHARE_PERCENT);
        self.check_drill(&new, share_percent)?;
        if let Some(other) = self.live::<Drill>(DRILL).await?.first() {
            let text = format!("drill {} of {} is under way; one at most", other.body.id, other.body.order.region);
            return Err(problem(Code::DrillRunning, text));
        }
        let (id, now) = (DrillId(self.entropy.uuid_v4()), self.now_ms());
        let line = format!(
            "ordered by {who}: {} of {} for {} s at most, and {share_percent} % of any other headroom",
            new.kind.as_str(),
            new.region,
            new.for_seconds
        );
        let body = Drill {
            id,
            order: new,
            share_percent,
            state: DrillState::Ordered,
            who: who.to_owned(),
            began_at: None,
            ends_at: None,
            ended_at: None,
            aborted: None,
            switch_id: None,
            words: BTreeMap::new(),
            report: None,
        };
        let row = Operation {
            id: id.to_string(),
            kind: DRILL.to_owned(),
            version: 0,
            is_over: false,
            made_at_ms: now,
            body: String::new(),
        };
        match self.save(&mut Read { row, body }, vec![line], Some(turn), Some(who)).await {
            Err(ServiceError::Stale) => {
                return Err(problem(Code::DrillRunning, "another drill was ordered at the same time; one at most"));
            }
            result => result?,
        }
        self.operate().await?;
        self.drill(&id.to_string()).await
    }

    fn check_drill(&self, new: &NewDrill, share_percent: u32) -> Result<(), ServiceError> {
        let invalid = |text: String| Err(problem(Code::InvalidRequest, text));
        let known = self.known();
        if !(1..=drill::MAX_SECONDS).contains(&new.for_seconds) {
            return invalid(format!("for_seconds must be 1 to {}", drill::MAX_SECONDS));
        }
        if !(1..=drill::MAX_SHARE_PERCENT).contains(&share_percent) {
            return invalid(format!("share_percent must be 1 to {}", drill::MAX_SHARE_PERCENT));
        }
        if new.confirm.as_deref() != Some(new.region.as_str()) {
            return invalid(format!("confirm: name the region once more ({}), that you mean it", new.region));
        }
        match new.kind {
            DrillKind::WanCut if new.clock_ms.is_none() && new.to.is_none() => {}
            DrillKind::WanCut => return invalid("clock_ms and to do not go with a wan_cut".to_owned()),
            DrillKind::Failover | DrillKind::Clock | DrillKind::Restore => {
                return invalid(format!("kind: {} is not ordered here in this version", new.kind.as_str()));
            }
        }
        if new.until_dry && new.namespace.is_none() {
            return invalid("until_dry needs the namespace that is to run dry".to_owned());
        }
        if let Some(name) = &new.namespace {
            live_namespace(&known.roster, name)?;
        }
        let region = live_region(&known.roster, &new.region)?;
        if region.state != RegionState::Active {
            let text = format!("region {} is {}: there is nothing to rehearse", new.region, region.state.as_str());
            return Err(problem(Code::NotAllowed, text));
        }
        if !self.is_open() {
            return Err(problem(Code::NotAllowed, "the authority is in quarantine: this is no time for a drill"));
        }
        Ok(())
    }

    /// Ends a drill before its time. Agents that are cut off are told by whoever reaches them, and end by themselves
    /// otherwise. Twice is once.
    ///
    /// # Errors
    /// `not_found`, or those of the store.
    pub async fn abort_drill(&self, who: &str, id: &str) -> Result<DrillView, ServiceError> {
        self.amend::<Drill>(DRILL, id, who, |read| {
            if read.row.is_over || read.body.aborted.is_some() {
                return None;
            }
            let line = format!("aborted by {who}");
            read.body.aborted = Some(line.clone());
            Some(vec![line])
        })
        .await?;
        self.operate().await?;
        self.drill(id).await
    }

    /// One drill, with its report as Markdown once it ended.
    ///
    /// # Errors
    /// `not_found`, or those of the store.
    pub async fn drill(&self, id: &str) -> Result<DrillView, ServiceError> {
        let mut view = self.drill_view(self.find::<Drill>(DRILL, id).await?).await?;
        view.markdown = drill_report::markdown(&view);
        Ok(view)
    }

    /// The newest drills.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn drills(&self) -> Result<Drills, ServiceError> {
        let mut drills = Vec::new();
        for read in self.newest::<Drill>(DRILL, MAX_LISTED).await? {
            drills.push(self.drill_view(read).await?);
        }
        Ok(Drills { drills, schedule: None })
    }

    async fn drill_view(&self, read: Read<Drill>) -> Result<DrillView, ServiceError> {
        let lines = self.lines(&read.row.id).await?;
        let Drill { order, .. } = read.body.clone();
        Ok(DrillView {
            drill_id: read.body.id,
            kind: order.kind,
            region: order.region,
            to: order.to,
            namespace: order.namespace,
            for_seconds: order.for_seconds,
            until_dry: order.until_dry,
            share_percent: read.body.share_percent,
            clock_ms: order.clock_ms,
            state: read.body.state,
            who: read.body.who,
            made_at: read.row.made_at_ms,
            began_at: read.body.began_at,
            ends_at: read.body.ends_at,
            ended_at: read.body.ended_at,
            switch_id: read.body.switch_id,
            lines,
            report: read.body.report,
            markdown: None,
        })
    }

    /// What answers carry: a drill whose time runs, and that nobody aborted.
    pub(super) async fn live_drill(&self) -> Result<Option<Live>, ServiceError> {
        let live = self.live::<Drill>(DRILL).await?.into_iter().map(|read| read.body);
        let mut runs = live
            .filter(|body| body.aborted.is_none() && matches!(body.state, DrillState::Ordered | DrillState::Running));
        Ok(runs.next().map(|body| Live {
            id: body.id,
            order: body.order,
            share_percent: body.share_percent,
            ends_at: body.ends_at,
        }))
    }

    /// Takes note of what an agent says of a drill. A word on one that is over changes nothing.
    pub(super) async fn hear_drill(
        &self,
        region: &Name,
        agent: Incarnation,
        word: &DrillWord,
    ) -> Result<(), ServiceError> {
        let mut read = match self.find::<Drill>(DRILL, &word.drill_id.to_string()).await {
            // Of a store that was put back: nobody knows that drill any more.
            Err(ServiceError::Problem(why)) if why.code == Code::NotFound => return Ok(()),
            result => result?,
        };
        let key = agent.to_string();
        if read.row.is_over || read.body.order.region != *region || read.body.words.get(&key) == Some(word) {
            return Ok(());
        }
        let now = self.now_ms();
        let mut lines = Vec::new();
        if word.running && read.body.began_at.is_none() {
            read.body.began_at = Some(now);
            read.body.ends_at = Some(now.saturating_add(u64::from(read.body.order.for_seconds) * 1_000));
            read.body.state = DrillState::Running;
        }
        if word.running {
            lines.push(format!("agent {key}: it refuses its uplink from now on"));
        } else {
            let why = word.ended_early.clone().unwrap_or_else(|| "its time was over".to_owned());
            lines.push(format!("agent {key}: back after {} ms ({why})", word.ran_ms));
        }
        read.body.words.insert(key, word.clone());
        self.save(&mut read, lines, None, None).await
    }

    /// Carries the drill that is under way on.
    pub(super) async fn carry_drills(&self) -> Result<(), ServiceError> {
        for mut read in self.live::<Drill>(DRILL).await? {
            let now = self.now_ms();
            let back = read.body.words.values().all(|word| !word.running);
            let over = read.body.aborted.is_some() || read.body.ends_at.is_some_and(|end| now >= end);
            match read.body.state {
                DrillState::Ordered if over || now > read.row.made_at_ms.saturating_add(TAKEN_WITHIN_MS) => {
                    read.body.aborted.get_or_insert_with(|| "no agent took the order: is the region heard?".to_owned());
                    self.end_drill(&mut read).await?;
                }
                DrillState::Running | DrillState::Healing if back && !read.body.words.is_empty() => {
                    self.end_drill(&mut read).await?;
                }
                DrillState::Running if over => {
                    read.body.state = DrillState::Healing;
                    self.save(&mut read, vec!["healing: the agents come back".to_owned()], None, None).await?;
                }
                DrillState::Healing if now > read.body.ends_at.unwrap_or(now).saturating_add(BACK_WITHIN_MS) => {
                    self.end_drill(&mut read).await?;
                }
                DrillState::Ordered | DrillState::Running | DrillState::Healing | DrillState::Ended => {}
            }
        }
        Ok(())
    }

    async fn end_drill(&self, read: &mut Read<Drill>) -> Result<(), ServiceError> {
        let verified = self.verify().await?;
        let report = drill_report::report(&read.body, verified);
        let line = format!("ended: {} ({})", report.verdict.as_str(), report.why.join("; "));
        tracing::info!(drill = %read.body.id, region = %read.body.order.region, "{line}");
        (read.body.state, read.body.ended_at) = (DrillState::Ended, Some(self.now_ms()));
        (read.body.report, read.row.is_over) = (Some(report), true);
        self.save(read, vec![line], None, None).await
    }
}

/// All agents' words on one namespace as one: what was issued adds up, the rest is the worst.
pub(super) fn united(words: &BTreeMap<String, DrillWord>) -> BTreeMap<Name, Seen> {
    let mut all: BTreeMap<Name, Seen> = BTreeMap::new();
    for (name, seen) in words.values().flat_map(|word| &word.namespaces) {
        let Some(sum) = all.get_mut(name) else {
            all.insert(name.clone(), seen.clone());
            continue;
        };
        let least = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
        sum.issued = sum.issued.saturating_add(seen.issued);
        sum.held_at_first = sum.held_at_first.max(seen.held_at_first);
        sum.least_held = sum.least_held.min(seen.least_held);
        sum.least_runway_seconds = least(sum.least_runway_seconds, seen.least_runway_seconds);
        sum.forecast_seconds = least(sum.forecast_seconds, seen.forecast_seconds);
        sum.dry_after_ms = least(sum.dry_after_ms, seen.dry_after_ms);
        sum.would_be_dry_after_seconds = least(sum.would_be_dry_after_seconds, seen.would_be_dry_after_seconds);
    }
    all
}

/// What the drill is judged by.
pub(super) fn findings(body: &Drill, errors: &BTreeMap<String, u64>, overlaps: u64) -> Findings {
    // What a caller did wrong is no fault of the region's; that the drilled namespace runs dry is the drill.
    let counts = |code: &str| {
        let known = Code::parse(code);
        known.is_some_and(|c| c.status() >= 500) && !(body.order.until_dry && known == Some(Code::SegmentDry))
    };
    let early = body.words.values().find_map(|word| word.ended_early.clone());
    let mut broken = Vec::new();
    if body.order.until_dry && body.aborted.is_none() && early.is_none() {
        let dry = body.order.namespace.as_ref().and_then(|name| united(&body.words).remove(name));
        if dry.is_none_or(|seen| seen.dry_after_ms.is_none()) {
            broken.push("the namespace did not run dry in the time that was given".to_owned());
        }
    }
    let whole_ms = u64::from(body.order.for_seconds) * 1_000;
    let cuts = body.aborted.is_none() && early.is_none() && !body.order.until_dry;
    if let Some(short) = body.words.values().find(|word| cuts && !word.running && word.ran_ms < whole_ms * 4 / 5) {
        broken.push(format!("an agent was cut off for {} of {whole_ms} ms only", short.ran_ms));
    }
    if body.words.values().any(|word| !word.running && word.verified.is_none()) {
        broken.push("an agent did not say what the check of its region's ledger found".to_owned());
    }
    Findings {
        aborted: body.aborted.clone().or(early),
        overlaps,
        caller_errors: errors.iter().filter(|(code, _)| counts(code)).map(|(_, n)| *n).sum(),
        missing: body.words.values().filter(|word| word.running).count() as u64,
        broken,
    }
}
