//! A failover that is rehearsed, and a clock that is noticed: the deeds of drills that go on while the region is heard.
//!
//! What follows is decided by [`cadastre_core::failover`]. The drill's row and its switch's are begun in one transaction,
//! and the switch is backed out of once its drill is over, whoever notices that first: a crash in between leaves neither
//! without the other. Invariant: nothing here moves a home but the switch.

use std::collections::BTreeSet;

use cadastre_core::drill::{DrillKind, DrillState};
use cadastre_core::failover::{self, Facts, Next, SwitchFact};
use cadastre_core::ids::{DrillId, Name};
use cadastre_core::switch;
use cadastre_protocol::operate::{DrillView, NewDrill, NewSwitch};

use super::drill_rules::NOTICED_FROM_MS;
use super::drills::{BACK_WITHIN_MS, Drill, NOT_TAKEN, TAKEN_WITHIN_MS, new_row};
use super::operations::{DRILL, Read, SWITCH, Written};
use super::switches::Switch;
use super::{Authority, ServiceError};

/// Who acts where no person does.
const DRILLED: &str = "a drill";

fn as_switch(new: &NewDrill) -> Option<NewSwitch> {
    let to = new.to.clone()?;
    Some(NewSwitch { namespace: new.namespace.clone(), from: new.region.clone(), to, fence: false })
}

impl Authority {
    /// Whether the switch of a failover could begin now.
    pub(super) async fn check_failover(&self, who: &str, new: &NewDrill) -> Result<(), ServiceError> {
        match as_switch(new) {
            Some(switch) => self.plan_switch(who, switch, None).await.map(|_| ()),
            None => Ok(()),
        }
    }

    /// Carries a failover on by one deed.
    pub(super) async fn carry_failover(&self, mut read: Read<Drill>) -> Result<(), ServiceError> {
        match read.body.state {
            DrillState::Ordered => self.watched(read).await,
            DrillState::Running => {
                let facts = self.failover_facts(&read.body).await?;
                match failover::next(&facts) {
                    Next::Wait => Ok(()),
                    Next::Begin => self.begin_failover(read).await,
                    Next::Away => {
                        let now = self.now_ms();
                        read.body.away.since = Some(now);
                        read.body.ends_at = Some(now.saturating_add(facts.for_ms));
                        let (region, to) = (&read.body.order.region, read.body.order.to.as_ref());
                        let to = to.map(Name::as_str).unwrap_or_default();
                        let line = format!("away: {to} serves what {region} did, for {} s", facts.for_ms / 1_000);
                        self.save(&mut read, vec![line], None, None).await
                    }
                    Next::Home(fault) => {
                        let why = fault.clone().or_else(|| read.body.aborted.clone());
                        let why = why.unwrap_or_else(|| "its time is over".to_owned());
                        read.body.broken.extend(fault);
                        (read.body.state, read.body.away.until) = (DrillState::Healing, Some(self.now_ms()));
                        self.save(&mut read, vec![format!("the home is brought back: {why}")], None, None).await
                    }
                }
            }
            DrillState::Healing => self.bring_home(read).await,
            DrillState::Ended => Ok(()),
        }
    }

    /// Begins once agents of both regions watch.
    async fn watched(&self, mut read: Read<Drill>) -> Result<(), ServiceError> {
        let (now, body) = (self.now_ms(), &mut read.body);
        if body.aborted.is_none() && now > read.row.made_at_ms.saturating_add(TAKEN_WITHIN_MS) {
            body.aborted = Some(NOT_TAKEN.to_owned());
        }
        if body.aborted.is_some() && body.words.is_empty() {
            return self.end_drill(&mut read).await;
        }
        if body.aborted.is_some() {
            // Nothing moved; who watches is told to stop.
            (body.state, body.away.until, body.away.home_at) = (DrillState::Healing, Some(now), Some(now));
            return self.save(&mut read, vec!["healing: nothing was moved".to_owned()], None, None).await;
        }
        let watching: BTreeSet<&Name> = body.regions.values().collect();
        if !watching.contains(&body.order.region) || body.order.to.as_ref().is_none_or(|to| !watching.contains(to)) {
            return Ok(());
        }
        (body.state, body.began_at) = (DrillState::Running, Some(now));
        self.save(&mut read, vec!["both regions watch: the switch begins".to_owned()], None, None).await
    }

    /// The switch and the drill that knows it, together.
    async fn begin_failover(&self, mut read: Read<Drill>) -> Result<(), ServiceError> {
        let Some(new) = as_switch(&read.body.order) else { return Ok(()) };
        let who = format!("{DRILLED} of {}", read.body.who);
        let planned = match self.plan_switch(&who, new, Some(read.body.id)).await {
            Err(ServiceError::Problem(why)) if !why.code.retryable() => {
                let why = format!("the switch was refused: {why}");
                (read.body.state, read.body.away.until) = (DrillState::Healing, Some(self.now_ms()));
                read.body.broken.push(why.clone());
                return self.save(&mut read, vec![why], None, None).await;
            }
            result => result?,
        };
        let (turn, switch, line) = planned;
        read.body.switch_id = Some(switch.body.id);
        read.body.away.moved = switch.body.moves.iter().map(|m| m.name.clone()).collect();
        let rows = vec![Written::of(&read, vec![], None)?, Written::of(&switch, vec![line], Some(turn))?];
        self.write_operations(rows, None).await.map(|_| ())
    }

    async fn failover_facts(&self, body: &Drill) -> Result<Facts, ServiceError> {
        let now = self.now_ms();
        let switch = match body.switch_id {
            None => None,
            Some(id) => {
                let switch = self.find::<Switch>(SWITCH, &id.to_string()).await?.body;
                let facts = self.switch_facts(&switch).await?;
                Some(SwitchFact {
                    step: switch.step,
                    stopped: switch.stopped,
                    settled: facts.from_knows || !facts.from.live,
                    unfit: switch::may_take_over(facts.to).err(),
                })
            }
        };
        Ok(Facts {
            aborted: body.aborted.is_some() || body.words.values().any(|word| word.ended_early.is_some()),
            ran_ms: now.saturating_sub(body.began_at.unwrap_or(now)),
            away_ms: body.away.since.map(|since| now.saturating_sub(since)),
            for_ms: u64::from(body.order.for_seconds) * 1_000,
            switch,
        })
    }

    /// The home as it was, the region that was left knows it, and everybody who watched has said so.
    async fn bring_home(&self, mut read: Read<Drill>) -> Result<(), ServiceError> {
        let now = self.now_ms();
        let until = read.body.away.until.unwrap_or(now);
        if let (Some(switch), None) = (read.body.switch_id, read.body.away.back) {
            self.undo_switch(DRILLED, &switch.to_string()).await?;
            self.reload().await?;
            read.body.away.back = self.known().mark.map(|mark| mark.version());
            let line = "home: the homes are what they were before".to_owned();
            return self.save(&mut read, vec![line], None, None).await;
        }
        if read.body.away.home_at.is_none() {
            let region = read.body.order.region.clone();
            let knows = match read.body.away.back {
                Some(back) => self.holds_roster(&region, back).await?,
                None => true,
            };
            let late = now > until.saturating_add(BACK_WITHIN_MS);
            if !knows && !late {
                return Ok(());
            }
            read.body.away.home_at = Some(now);
            let line = if knows { "knows that it is the home again" } else { "was not heard since" };
            if !knows {
                read.body.broken.push(format!("{region} {line}"));
            }
            return self.save(&mut read, vec![format!("healing: {region} {line}")], None, None).await;
        }
        let back = read.body.words.values().all(|word| !word.running);
        if back || now > read.body.away.home_at.unwrap_or(now).saturating_add(BACK_WITHIN_MS) {
            return self.end_drill(&mut read).await;
        }
        Ok(())
    }

    /// Keeps the report of a store that was put back: by the process that did that, which is no live authority. `seconds`:
    /// without an authority, and until it granted again.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn keep_restored(
        &self,
        region: Name,
        lines: Vec<String>,
        broken: Vec<String>,
        seconds: (f64, Option<f64>),
    ) -> Result<DrillView, ServiceError> {
        let (now, ms) = (self.now_ms(), |seconds: f64| (seconds * 1_000.0).max(0.0) as u64);
        let turn = self.kind_turn(DRILL).await?;
        let order = NewDrill {
            kind: DrillKind::Restore,
            region,
            for_seconds: 0,
            confirm: None,
            to: None,
            namespace: None,
            until_dry: false,
            share_percent: None,
            clock_ms: None,
        };
        let mut read = new_row(DrillId(self.entropy.uuid_v4()), order, 0, "cadastre dev", now);
        let until = now.saturating_sub(ms(seconds.1.unwrap_or(0.0)));
        read.body.away.since = Some(until.saturating_sub(ms(seconds.0)));
        (read.body.away.until, read.body.away.home_at) = (Some(until), seconds.1.map(|_| now));
        read.body.broken = broken;
        self.save(&mut read, lines, Some(turn), None).await?;
        self.end_drill(&mut read).await?;
        self.drill(&read.row.id).await
    }

    /// Takes note of a region's clock that is as far off as the drill made it.
    pub(super) async fn notice_clock(&self, read: &mut Read<Drill>) -> Result<(), ServiceError> {
        let body = &read.body;
        let runs = body.order.kind == DrillKind::Clock && body.state == DrillState::Running;
        let Some(wrong_ms) = body.order.clock_ms.filter(|_| runs && !body.noticed) else { return Ok(()) };
        let regions = self.regions().await?;
        let agents = regions.iter().filter(|region| region.name == body.order.region).flat_map(|region| &region.agents);
        // As far off as that, and to the same side.
        let is_off = |ms: i64| ms.signum() == wrong_ms.signum() && ms.unsigned_abs() > NOTICED_FROM_MS;
        let Some(off_ms) = agents.map(|agent| agent.clock_offset_ms).find(|ms| is_off(*ms)) else { return Ok(()) };
        read.body.noticed = true;
        let line = format!("noticed: the region's clock is off by {off_ms} ms, as status and metrics say");
        self.save(read, vec![line], None, None).await
    }
}
