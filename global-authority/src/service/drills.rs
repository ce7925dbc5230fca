//! Drills: a rehearsal that an agent holds for a stated time, and its report.
//!
//! The order reaches agents with their answers. An agent that took it says so in its next message, and is cut off from
//! then on; it ends by itself, by its own monotonic clock, whatever becomes of this process, and tells what it saw once
//! it is back. Invariants: one drill at most; an order is given only while its time runs; what is over is never ordered
//! again; the report is written once, with the row that ends the drill.

use std::collections::BTreeMap;

use cadastre_core::drill::{self, DrillKind, DrillState};
use cadastre_core::failover::WATCH_MORE_MS;
use cadastre_core::ids::{DrillId, Incarnation, Name, SwitchId};
use cadastre_core::mark::Generation;
use cadastre_core::registry::RegionState;
use cadastre_protocol::error::Code;
use cadastre_protocol::operate::{DrillOrder, DrillReport, DrillView, DrillWord, Drills, Line, NewDrill};
use serde::{Deserialize, Serialize};

use super::catalog::live_namespace;
use super::drill_rules::{back_within_ms, first_word, fits_kind, takes_part};
use super::error::problem;
use super::operations::{DRILL, MAX_LISTED, Read};
use super::regions::live_region;
use super::{Authority, ServiceError, drill_report};
use crate::sql::Operation;

/// An order that no agent took within this time is given up, in milliseconds.
pub(super) const TAKEN_WITHIN_MS: u64 = 30_000;
/// Why one is.
pub(super) const NOT_TAKEN: &str = "no agent took the order: is the region heard?";
/// Agents that are not back this long after the end are missing, in milliseconds.
pub(super) const BACK_WITHIN_MS: u64 = 60_000;

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
    /// Of a failover: what became of the home.
    #[serde(default)]
    pub(super) away: Away,
    /// What did not hold, as far as the agents' words do not say it.
    #[serde(default)]
    pub(super) broken: Vec<String>,
    /// Of a clock drill: whether the region's clock was seen to be off.
    #[serde(default)]
    pub(super) noticed: bool,
    /// What each agent that began said last, by its incarnation.
    pub(super) words: BTreeMap<String, DrillWord>,
    /// Whose agents they are.
    #[serde(default)]
    pub(super) regions: BTreeMap<String, Name>,
    pub(super) report: Option<DrillReport>,
}

/// What became of a home that was given to another region for a while.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Away {
    /// What moves.
    pub(super) moved: Vec<Name>,
    /// When it was seen moved.
    pub(super) since: Option<u64>,
    /// When it was to be brought back.
    pub(super) until: Option<u64>,
    /// The roster that says that it is back.
    pub(super) back: Option<(Generation, u64)>,
    /// When the region that was left knew that.
    pub(super) home_at: Option<u64>,
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
        let for_ms = match self.order.kind {
            // Who watches does so until the home is back.
            DrillKind::Failover => whole_ms.saturating_add(WATCH_MORE_MS),
            DrillKind::WanCut | DrillKind::Clock | DrillKind::Restore => {
                self.ends_at.map_or(whole_ms, |end| end.saturating_sub(now_ms))
            }
        };
        (takes_part(&self.order, region) && for_ms > 0).then(|| DrillOrder {
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
        let (turn, mut read, line) = self.plan_drill(who, new).await?;
        match self.save(&mut read, vec![line], Some(turn), Some(who)).await {
            Err(ServiceError::Stale) => {
                return Err(problem(Code::DrillRunning, "another drill was ordered at the same time; one at most"));
            }
            result => result?,
        }
        self.operate().await?;
        self.drill(&read.row.id).await
    }

    /// Whether such a drill could be ordered now, but for another one.
    pub(super) async fn check_new_drill(&self, who: &str, new: &NewDrill) -> Result<(), ServiceError> {
        self.check_drill(new, new.share_percent.unwrap_or(drill::DEFAULT_SHARE_PERCENT))?;
        self.check_failover(who, new).await
    }

    /// A drill that may begin, its first line, and the turn that it is to take. Nothing is written.
    pub(super) async fn plan_drill(
        &self,
        who: &str,
        new: NewDrill,
    ) -> Result<(u64, Read<Drill>, String), ServiceError> {
        let turn = self.kind_turn(DRILL).await?;
        self.reload().await?;
        let share_percent = new.share_percent.unwrap_or(drill::DEFAULT_SHARE_PERCENT);
        self.check_new_drill(who, &new).await?;
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
        let read = new_row(id, new, share_percent, who, now);
        Ok((turn, read, line))
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
        fits_kind(new).or_else(invalid)?;
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
        Ok(Drills { drills, schedule: self.schedule().await? })
    }

    async fn drill_view(&self, read: Read<Drill>) -> Result<DrillView, ServiceError> {
        let mut lines = self.lines(&read.row.id).await?;
        if let Some(switch) = read.body.switch_id {
            let of_switch = self.lines(&switch.to_string()).await?.into_iter();
            lines.extend(of_switch.map(|line| Line { text: format!("switch: {}", line.text), ..line }));
            lines.sort_by_key(|line| line.at);
        }
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
        let mut runs = live.filter(|body| match (body.order.kind, body.state) {
            (DrillKind::Failover, DrillState::Running | DrillState::Healing) => body.away.home_at.is_none(),
            (_, DrillState::Ordered | DrillState::Running) => body.aborted.is_none(),
            (_, DrillState::Healing | DrillState::Ended) => false,
        });
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
        let said = read.body.words.get(&key);
        // While it runs, only the first word says something new.
        let is_news = said != Some(word) && !(word.running && said.is_some_and(|said| said.running));
        if read.row.is_over || !takes_part(&read.body.order, region) || !is_news {
            return Ok(());
        }
        let (now, by_itself) = (self.now_ms(), read.body.order.kind != DrillKind::Failover);
        let mut lines = Vec::new();
        if word.running && read.body.began_at.is_none() && by_itself {
            read.body.began_at = Some(now);
            read.body.ends_at = Some(now.saturating_add(u64::from(read.body.order.for_seconds) * 1_000));
            read.body.state = DrillState::Running;
        }
        if word.running {
            lines.push(format!("agent {key} of {region}: {}", first_word(read.body.order.kind)));
        } else {
            let why = word.ended_early.clone().unwrap_or_else(|| "its time was over".to_owned());
            lines.push(format!("agent {key} of {region}: over after {} ms ({why})", word.ran_ms));
        }
        read.body.regions.insert(key.clone(), region.clone());
        read.body.words.insert(key, word.clone());
        self.save(&mut read, lines, None, None).await
    }

    /// Carries the drill that is under way on.
    pub(super) async fn carry_drills(&self) -> Result<(), ServiceError> {
        for mut read in self.live::<Drill>(DRILL).await? {
            if read.body.order.kind == DrillKind::Failover {
                self.carry_failover(read).await?;
                continue;
            }
            self.notice_clock(&mut read).await?;
            let now = self.now_ms();
            let back = read.body.words.values().all(|word| !word.running);
            let over = read.body.aborted.is_some() || read.body.ends_at.is_some_and(|end| now >= end);
            match read.body.state {
                DrillState::Ordered if over || now > read.row.made_at_ms.saturating_add(TAKEN_WITHIN_MS) => {
                    read.body.aborted.get_or_insert_with(|| NOT_TAKEN.to_owned());
                    self.end_drill(&mut read).await?;
                }
                DrillState::Running | DrillState::Healing if back && !read.body.words.is_empty() => {
                    self.end_drill(&mut read).await?;
                }
                DrillState::Running if over => {
                    read.body.state = DrillState::Healing;
                    self.save(&mut read, vec!["healing: the agents come back".to_owned()], None, None).await?;
                }
                DrillState::Healing
                    if now > read.body.ends_at.unwrap_or(now).saturating_add(back_within_ms(&read.body)) =>
                {
                    self.end_drill(&mut read).await?;
                }
                DrillState::Ordered | DrillState::Running | DrillState::Healing | DrillState::Ended => {}
            }
        }
        Ok(())
    }

    pub(super) async fn end_drill(&self, read: &mut Read<Drill>) -> Result<(), ServiceError> {
        let verified = self.verify().await?;
        let report = drill_report::report(&read.body, verified);
        let line = format!("ended: {} ({})", report.verdict.as_str(), report.why.join("; "));
        tracing::info!(drill = %read.body.id, region = %read.body.order.region, "{line}");
        (read.body.state, read.body.ended_at) = (DrillState::Ended, Some(self.now_ms()));
        (read.body.report, read.row.is_over) = (Some(report), true);
        self.save(read, vec![line], None, None).await
    }
}

/// A drill that was ordered just now, and is not written yet.
pub(super) fn new_row(id: DrillId, order: NewDrill, share_percent: u32, who: &str, now_ms: u64) -> Read<Drill> {
    let body = Drill {
        id,
        order,
        share_percent,
        state: DrillState::Ordered,
        who: who.to_owned(),
        began_at: None,
        ends_at: None,
        ended_at: None,
        aborted: None,
        switch_id: None,
        away: Away::default(),
        broken: Vec::new(),
        noticed: false,
        words: BTreeMap::new(),
        regions: BTreeMap::new(),
        report: None,
    };
    Read { row: Operation::new(DRILL, &id.to_string(), now_ms), body }
}
