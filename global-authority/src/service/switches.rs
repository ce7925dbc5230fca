//! Switches: a home moves from one region to another, as its own small ledger.
//!
//! The rules stand in [`cadastre_core::switch`]. Here the facts are read, the roster is changed, and the step is
//! written down, in this order: a crash in between leaves a step that is done once more, and finds that it was done.
//! Invariants: what a step changes in the roster it changes as a whole, in one transaction; nothing is ever moved
//! while the authority is in quarantine (the roster's own gate says so, not a look at it).

use std::collections::BTreeSet;

use cadastre_core::ids::{DrillId, Name, SwitchId};
use cadastre_core::mark::Generation;
use cadastre_core::registry::{RegionEvent, RegionState};
use cadastre_core::roster::{Body, Roster};
use cadastre_core::switch::{self, Facts, Next, Step};
use cadastre_protocol::error::Code;
use cadastre_protocol::operate::{NewSwitch, SwitchView};
use serde::{Deserialize, Serialize};

use super::catalog::live_namespace;
use super::error::problem;
use super::operations::{DRILL, Read, SWITCH};
use super::regions::live_region;
use super::roster::{Change, Effect};
use super::{Authority, ServiceError};
use crate::sql::Operation;

/// Steps that are taken at once.
const AT_ONCE: usize = 8;

/// What a switch does to one namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Move {
    pub(super) name: Name,
    pub(super) before: Option<Vec<Name>>,
    pub(super) after: Vec<Name>,
}

/// A switch as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Switch {
    pub(super) id: SwitchId,
    pub(super) from: Name,
    pub(super) to: Name,
    pub(super) moves: Vec<Move>,
    pub(super) fence: bool,
    /// The drill that rehearses it: it lives as long as that one does, and is backed out of in the end.
    #[serde(default)]
    pub(super) drill: Option<DrillId>,
    /// An operator backs out: no further step is taken.
    #[serde(default)]
    pub(super) backing_out: bool,
    pub(super) step: Step,
    pub(super) waiting_for: Option<String>,
    pub(super) stopped: Option<String>,
    pub(super) from_knows: Option<bool>,
    pub(super) windows_end_at: Option<u64>,
    /// The roster that says so, once the home has moved.
    pub(super) moved: Option<(Generation, u64)>,
    pub(super) who: String,
    pub(super) changed_at: u64,
}

impl Authority {
    /// Begins a switch, and takes the steps that can be taken at once.
    ///
    /// # Errors
    /// `not_allowed` where it cannot be safe or another one is under way, `not_found`, or those of the store.
    pub async fn new_switch(&self, who: &str, new: NewSwitch) -> Result<SwitchView, ServiceError> {
        let (turn, mut read, line) = self.plan_switch(who, new, None).await?;
        self.save(&mut read, vec![line], Some(turn), Some(who)).await?;
        self.carry_switch(&read.row.id).await?;
        self.operate().await?;
        self.switch(&read.row.id).await
    }

    /// A switch that may begin, its first line, and the turn that it is to take. Nothing is written.
    pub(super) async fn plan_switch(
        &self,
        who: &str,
        new: NewSwitch,
        drill: Option<DrillId>,
    ) -> Result<(u64, Read<Switch>, String), ServiceError> {
        let turn = self.kind_turn(SWITCH).await?;
        self.reload().await?;
        let known = self.known();
        let refused = |text: String| problem(Code::NotAllowed, text);
        if new.from == new.to {
            return Err(refused(format!("{} is left for itself: name two regions", new.from)));
        }
        if new.fence && new.namespace.is_some() {
            return Err(refused("a fence takes the whole region's epoch: switch all of its namespaces with it".into()));
        }
        if !self.is_open() {
            return Err(problem(Code::Quarantined, "no home moves until the authority's quarantine is lifted"));
        }
        live_region(&known.roster, &new.from)?;
        live_region(&known.roster, &new.to)?;
        let moves = moves(&known.roster, &new)?;
        let names: BTreeSet<&Name> = moves.iter().map(|m| &m.name).collect();
        for other in self.live::<Switch>(SWITCH).await? {
            if let Some(taken) = other.body.moves.iter().find(|m| names.contains(&m.name)) {
                let text = format!(
                    "switch {} of {} is under way: resume it, or back out of it, first",
                    other.body.id, taken.name
                );
                return Err(refused(text));
            }
        }
        let id = SwitchId(self.entropy.uuid_v4());
        let now = self.now_ms();
        let body = Switch {
            id,
            from: new.from.clone(),
            to: new.to.clone(),
            moves,
            fence: new.fence,
            drill,
            backing_out: false,
            step: Step::Planned,
            waiting_for: None,
            stopped: None,
            from_knows: None,
            windows_end_at: None,
            moved: None,
            who: who.to_owned(),
            changed_at: now,
        };
        let facts = self.switch_facts(&body).await?;
        if let Next::Stop(why) = switch::next(Step::Planned, &facts) {
            return Err(refused(why));
        }
        let row = Operation::new(SWITCH, &id.to_string(), now);
        let line = format!(
            "planned: {} from {} to {}; {} is asked to hold enough for both",
            listed(&body.moves),
            body.from,
            body.to,
            body.to
        );
        Ok((turn, Read { row, body }, line))
    }

    /// Lets a stopped switch go on. One that goes on by itself is looked at once more, at once.
    ///
    /// # Errors
    /// `not_found`, or those of the store.
    pub async fn resume_switch(&self, who: &str, id: &str) -> Result<SwitchView, ServiceError> {
        self.amend::<Switch>(SWITCH, id, who, |read| {
            let stopped = read.body.stopped.take().is_some() && !read.row.is_over;
            stopped.then(|| vec![format!("resumed by {who}")])
        })
        .await?;
        self.operate().await?;
        self.switch(id).await
    }

    /// Puts everything back as it was before. Twice is once.
    ///
    /// # Errors
    /// `not_found`, `not_allowed` once it is done, or those of the store.
    pub async fn back_out(&self, who: &str, id: &str) -> Result<SwitchView, ServiceError> {
        self.undo_switch(who, id).await?;
        self.operate().await?;
        self.switch(id).await
    }

    /// As [`Self::back_out`], for whoever carries things on.
    pub(super) async fn undo_switch(&self, who: &str, id: &str) -> Result<(), ServiceError> {
        // First its row: from here on nobody carries it on.
        self.amend::<Switch>(SWITCH, id, who, |read| {
            let begins = !read.row.is_over && !read.body.backing_out;
            read.body.backing_out = true;
            begins.then(|| vec![format!("{who} backs out of it")])
        })
        .await?;
        let read = self.find::<Switch>(SWITCH, id).await?;
        if read.body.step == Step::Done {
            let (to, from) = (read.body.to, read.body.from);
            let text = format!(
                "it is done: switch the other way round (cadastre switch --from {to} --to {from}), or let both serve it \
                 (cadastre namespace set NAME --home all)"
            );
            return Err(problem(Code::NotAllowed, text));
        }
        // Twice is once: what a later switch made of it is not touched.
        if read.body.step != Step::BackedOut {
            self.put_all_back(who, &read.body).await?;
        }
        Ok(())
    }

    /// The homes as they were before, and then the row that says so: done once more where it was cut short.
    async fn put_all_back(&self, who: &str, body: &Switch) -> Result<(), ServiceError> {
        let switch = body.clone();
        let foreign = self
            .change(who, "switch_back_out", move |roster| {
                let mut foreign = Vec::new();
                let changes = switch.moves.iter().filter_map(|m| put_back(roster, &switch, m, &mut foreign)).collect();
                Ok((changes, foreign))
            })
            .await?;
        let now = self.now_ms();
        self.amend::<Switch>(SWITCH, &body.id.to_string(), who, |read| {
            if read.row.is_over {
                return None;
            }
            let mut lines = vec![format!("backed out by {who}: the homes are what they were before")];
            for name in &foreign {
                lines.push(format!("{name}: its home was changed by somebody else and stays as it is"));
            }
            if read.body.fence && read.body.step > Step::Planned {
                let from = &read.body.from;
                lines.push(format!("{from} stays fenced: `cadastre recover {from}` brings it back"));
            }
            (read.body.step, read.body.changed_at, read.row.is_over) = (Step::BackedOut, now, true);
            (read.body.stopped, read.body.waiting_for) = (None, None);
            Some(lines)
        })
        .await
    }

    /// Carries on every switch that is under way.
    pub(super) async fn carry_switches(&self) -> Result<(), ServiceError> {
        let mut result = Ok(());
        for read in self.live::<Switch>(SWITCH).await? {
            if let Err(error) = self.carry_switch(&read.row.id).await {
                tracing::warn!(switch = read.row.id, %error, "a switch does not go on");
                result = Err(error);
            }
        }
        result
    }

    async fn carry_switch(&self, id: &str) -> Result<(), ServiceError> {
        for _ in 0..AT_ONCE {
            let mut read = self.find::<Switch>(SWITCH, id).await?;
            if read.row.is_over || read.body.stopped.is_some() && !read.body.backing_out {
                return Ok(());
            }
            if read.body.backing_out {
                return self.put_all_back(&read.body.who.clone(), &read.body).await;
            }
            if let Some(drill) = read.body.drill
                && self.is_over(DRILL, &drill.to_string()).await?
            {
                return self.undo_switch("its drill, which is over", id).await;
            }
            if !self.take_step(&mut read).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// One step; whether another one may follow at once.
    async fn take_step(&self, read: &mut Read<Switch>) -> Result<bool, ServiceError> {
        self.reload().await?;
        if read.body.step == Step::Planned {
            self.announce(&read.body).await?;
        }
        let facts = self.switch_facts(&read.body).await?;
        let (mut lines, body) = (Vec::new(), &mut read.body);
        let further = match switch::next(body.step, &facts) {
            Next::Over => return Ok(false),
            Next::Wait(why) => {
                if body.waiting_for.as_deref() == Some(why.as_str()) {
                    return Ok(false);
                }
                if body.waiting_for.is_none() {
                    lines.push(format!("waiting: {why}"));
                }
                body.waiting_for = Some(why);
                if body.step == Step::Moved {
                    body.from_knows = Some(facts.from_knows);
                }
                false
            }
            Next::Stop(why) => {
                lines.push(format!("stopped: {why}"));
                (body.stopped, body.waiting_for) = (Some(why), None);
                false
            }
            Next::Go(step) => {
                match self.go(body, step, &facts).await {
                    Ok(line) => lines.extend(line),
                    Err(ServiceError::Problem(why)) if !why.code.retryable() => {
                        lines.push(format!("stopped: {why}"));
                        body.stopped = Some(why.to_string());
                    }
                    Err(error) => return Err(error),
                }
                if body.stopped.is_none() {
                    (body.step, body.waiting_for, body.changed_at) = (step, None, self.now_ms());
                }
                body.stopped.is_none()
            }
        };
        read.row.is_over = read.body.step.is_over();
        for line in &lines {
            tracing::info!(switch = %read.body.id, "{line}");
        }
        match self.save(read, lines, None, None).await {
            // Another process carried it on; or somebody backed out while this step was taken, and it is undone.
            Err(ServiceError::Stale) => {
                let now = self.find::<Switch>(SWITCH, &read.row.id).await?;
                if now.body.backing_out {
                    self.put_all_back(&now.body.who, &now.body).await?;
                }
                Ok(true)
            }
            result => result.map(|()| further),
        }
    }

    /// Does what leads to a step.
    async fn go(&self, body: &mut Switch, step: Step, facts: &Facts) -> Result<Vec<String>, ServiceError> {
        match step {
            Step::Drained => {
                let text = self.leave(body).await?;
                Ok(vec![text])
            }
            Step::Ready => Ok(vec![format!("ready: {} holds enough for both", body.to)]),
            Step::Moved => {
                body.moved = self.move_homes(body).await?;
                (body.from_knows, body.windows_end_at) = (Some(false), self.windows_end(body).await?);
                let first = body.moves.first().map(|m| names(&m.after)).unwrap_or_default();
                Ok(vec![format!("moved: the home of {} is {first}", listed(&body.moves))])
            }
            Step::Done => {
                body.from_knows = Some(facts.from_knows);
                Ok(done(body, facts, self.now_ms()))
            }
            Step::Planned | Step::BackedOut => Ok(vec![]),
        }
    }

    /// Lets the region that takes over be granted what it will need.
    async fn announce(&self, body: &Switch) -> Result<(), ServiceError> {
        let body = body.clone();
        self.change(&body.who.clone(), "switch_arriving", move |roster| {
            let change = |m: &Move| {
                let mut entry = live_namespace(roster, &m.name).ok()?.clone();
                if entry.home != m.before || entry.is_home(&body.to) || entry.arriving.contains(&body.to) {
                    return None;
                }
                entry.arriving.push(body.to.clone());
                Some(changed(&m.name, entry))
            };
            Ok((body.moves.iter().filter_map(change).collect(), ()))
        })
        .await
    }

    /// The region that is left is granted nothing more, or its epoch is taken.
    async fn leave(&self, body: &Switch) -> Result<String, ServiceError> {
        let (switch, from) = (body.clone(), body.from.clone());
        self.change(&body.who, "switch_leaving", move |roster| {
            let change = |m: &Move| {
                let mut entry = live_namespace(roster, &m.name).ok()?.clone();
                if entry.leaving.contains(&switch.from) || !entry.is_home(&switch.from) {
                    return None;
                }
                entry.leaving.push(switch.from.clone());
                Some(changed(&m.name, entry))
            };
            Ok((switch.moves.iter().filter_map(change).collect(), ()))
        })
        .await?;
        if !body.fence {
            return Ok(format!("drained: {from} is granted nothing more here; it goes on with what it holds"));
        }
        if matches!(live_region(&self.known().roster, &from)?.state, RegionState::Active | RegionState::Draining) {
            self.region_event(&from, RegionEvent::Fence, "left by a switch", &body.who).await?;
        }
        Ok(format!(
            "fenced: {from} gives nothing out any more, once it learns of it; `cadastre recover {from}` brings it back"
        ))
    }

    /// The homes, all in one transaction; the roster that says so.
    async fn move_homes(&self, body: &Switch) -> Result<Option<(Generation, u64)>, ServiceError> {
        let switch = body.clone();
        self.change(&body.who, "switch_moved", move |roster| {
            let mut changes = Vec::new();
            for m in &switch.moves {
                let mut entry = live_namespace(roster, &m.name)?.clone();
                if entry.home.as_ref() == Some(&m.after) {
                    continue;
                }
                if entry.home != m.before {
                    let text = format!("the home of {} was changed by somebody else since: back out", m.name);
                    return Err(problem(Code::NotAllowed, text));
                }
                entry.home = Some(m.after.clone());
                clear(&mut entry, &switch);
                changes.push(changed(&m.name, entry));
            }
            Ok((changes, ()))
        })
        .await?;
        self.reload().await?;
        Ok(self.known().mark.map(|mark| mark.version()))
    }
}

/// What moves, and from what to what.
fn moves(roster: &Roster, new: &NewSwitch) -> Result<Vec<Move>, ServiceError> {
    let mut found = Vec::new();
    let living: Vec<Name> =
        roster.regions().filter(|(_, r)| r.state != RegionState::Retired).map(|(name, _)| name.clone()).collect();
    let wanted: Vec<Name> = match &new.namespace {
        Some(name) => vec![name.clone()],
        None => {
            let all = roster.namespaces().filter(|(_, e)| !e.deleted && e.is_public() && e.is_home(&new.from));
            all.map(|(name, _)| name.clone()).collect()
        }
    };
    for name in wanted {
        let entry = live_namespace(roster, &name)?;
        if !entry.is_home(&new.from) {
            let text = format!("{name} is not served by {}: its home is elsewhere", new.from);
            return Err(problem(Code::NotAllowed, text));
        }
        let before = entry.home.clone();
        let all = before.as_ref().unwrap_or(&living);
        let mut after: BTreeSet<Name> = all.iter().filter(|region| **region != new.from).cloned().collect();
        after.insert(new.to.clone());
        found.push(Move { name, before, after: after.into_iter().collect() });
    }
    if found.is_empty() {
        return Err(problem(Code::NotAllowed, format!("{} serves no namespace", new.from)));
    }
    Ok(found)
}

fn clear(entry: &mut cadastre_core::namespace::NamespaceEntry, switch: &Switch) {
    entry.leaving.retain(|region| *region != switch.from);
    entry.arriving.retain(|region| *region != switch.to);
}

/// One namespace as it was before the switch; one whose home somebody else changed keeps it.
fn put_back(roster: &Roster, switch: &Switch, m: &Move, foreign: &mut Vec<Name>) -> Option<Change> {
    let held = live_namespace(roster, &m.name).ok()?;
    let mut entry = held.clone();
    if entry.home.as_ref() == Some(&m.after) {
        entry.home.clone_from(&m.before);
    } else if entry.home != m.before {
        foreign.push(m.name.clone());
    }
    clear(&mut entry, switch);
    (entry != *held).then(|| changed(&m.name, entry))
}

fn changed(name: &Name, entry: cadastre_core::namespace::NamespaceEntry) -> Change {
    Change { name: name.clone(), body: Body::Namespace(entry), effect: Effect::None }
}

/// What a person is told at the end.
fn done(body: &Switch, facts: &Facts, now_ms: u64) -> Vec<String> {
    let from = &body.from;
    if facts.from_knows {
        return vec![format!("done: {from} knows, and sends its callers to {}", body.to)];
    }
    let mut lines = vec![format!(
        "done: {from} is out of reach. It may go on issuing numbers from what it holds, which nobody else has, until it \
         hears of this; then it sends its callers to {}",
        body.to
    )];
    if let Some(end) = body.windows_end_at {
        let seconds = end.saturating_sub(now_ms) / 1_000;
        lines.push(format!("time-based ids: the last window of {from} ends by itself in {seconds} s, at {end} ms"));
    }
    lines
}

fn names(all: &[Name]) -> String {
    all.iter().map(Name::as_str).collect::<Vec<_>>().join(", ")
}

/// Names for a line; not a thousand of them.
fn listed(moves: &[Move]) -> String {
    let shown: Vec<&str> = moves.iter().take(5).map(|m| m.name.as_str()).collect();
    match moves.len().saturating_sub(shown.len()) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
