//! Slots of time-based namespaces: which region stamps in which, and the windows that it is given there.
//!
//! A slot is a number line of its own (`events@3`), with its own watermark, scope, marks and ledger rows, whose ordinals
//! are units of time. So a window is a grant like any other: the gate, replays, epochs and a quarantine hold for it
//! without a word here. Whether windows are disjoint rests on the watermark alone; who has which slot only keeps
//! regions out of each other's way.

use std::collections::{BTreeMap, BTreeSet};

use cadastre_core::ids::{Epoch, Name};
use cadastre_core::layout::Layout;
use cadastre_core::mark::Scope;
use cadastre_core::namespace::{GrantRefusal, NamespaceEntry, NamespaceKind};
use cadastre_core::range::Range;
use cadastre_core::roster::{Body, Kind, RegionEntry, Roster};
use cadastre_core::window::{self, RegionAsk, Slot, SlotStanding, WindowRefusal, choose_slot};
use cadastre_ledger::error::LedgerError;
use cadastre_ledger::sql as shared;
use cadastre_protocol::admin::SlotView;
use cadastre_protocol::error::{Code, Problem};
use cadastre_runtime::db::Tx;

use super::error::grant_problem;
use super::grants::Asker;
use super::roster::{Change, Effect};
use super::{Authority, ServiceError};
use crate::sql;

/// The longest that a region waits before it asks again for a window, in seconds.
const MAX_RETRY_SECONDS: u64 = 60;
/// When a region whose clock is off asks again: somebody has to set it right.
const CLOCK_RETRY_SECONDS: u32 = 10;

impl Authority {
    /// Gives a region a slot in every time-based namespace that it may stamp in and has none in under its epoch. One
    /// that finds none free goes without until the next message.
    pub(super) async fn ensure_slots(&self, region: &Name, entry: &RegionEntry) {
        if !self.is_open() || !entry.state.gets_grants() {
            return;
        }
        let missing = slotless(&self.known().roster, region, entry.epoch);
        if missing.is_empty() {
            return;
        }
        if let Err(error) = self.give_slots(region, entry.epoch, missing).await {
            tracing::warn!(%region, %error, "no slot was given; the region's next message tries again");
        }
    }

    async fn give_slots(&self, region: &Name, epoch: Epoch, missing: Vec<Name>) -> Result<(), ServiceError> {
        let watermarks = self.watermarks().await?;
        let now = self.now_ms();
        self.change("authority", "slot", |roster| {
            let mut changes = Vec::new();
            for namespace in &missing {
                let Some((parent, layout)) = timed(roster, namespace) else { continue };
                let used = standings(roster, namespace, &watermarks);
                match choose_slot(&layout, &used, now) {
                    Ok(number) => {
                        let slot = Slot { of: namespace.clone(), number, region: region.clone(), epoch };
                        let known = used.iter().any(|s| s.number == number);
                        let effect = if known { Effect::None } else { Effect::NewScope };
                        let body = Body::Namespace(parent.slot_line(slot));
                        changes.push(Change { name: namespace.of_slot(number), body, effect });
                    }
                    Err(until_ms) => {
                        tracing::warn!(%namespace, %region, ?until_ms, "every slot of the layout is taken");
                    }
                }
            }
            Ok((changes, ()))
        })
        .await
    }

    async fn watermarks(&self) -> Result<BTreeMap<Name, u64>, ServiceError> {
        let read = self.continuity.db().read("slots", |tx| {
            Box::pin(async move {
                let rows = shared::scopes(tx).await?;
                let slot = |scope: Scope| match scope {
                    Scope::Namespace(name) if name.is_of_slot() => Some(name),
                    Scope::Namespace(_) | Scope::Roster | Scope::Region => None,
                };
                let all = rows.into_iter().filter_map(|r| Some((slot(r.scope)?, r.view.mark.bound)));
                Ok::<_, LedgerError>(all.collect())
            })
        });
        Ok(read.await?)
    }
}

/// Time-based namespaces that a service asks for, that the region may stamp in, and that it has no slot of.
fn slotless(roster: &Roster, region: &Name, epoch: Epoch) -> Vec<Name> {
    let mut wanted: BTreeSet<&Name> = BTreeSet::new();
    for (name, entry) in roster.namespaces() {
        if entry.kind == NamespaceKind::Snowflake && !entry.deleted && !entry.frozen && entry.may_hold(region).is_ok() {
            wanted.insert(name);
        }
    }
    if wanted.is_empty() {
        return Vec::new();
    }
    for slot in roster.namespaces().filter_map(|(_, entry)| entry.slot.as_ref()) {
        if slot.region == *region && slot.epoch == epoch {
            wanted.remove(&slot.of);
        }
    }
    let asked: BTreeSet<&Name> = roster.services().flat_map(|(_, service)| &service.namespaces).collect();
    wanted.into_iter().filter(|name| asked.contains(name)).cloned().collect()
}

fn timed<'a>(roster: &'a Roster, namespace: &Name) -> Option<(&'a NamespaceEntry, Layout)> {
    let entry = roster.namespace(namespace).filter(|e| e.kind == NamespaceKind::Snowflake)?;
    Some((entry, entry.layout?))
}

fn slots_of<'a>(roster: &'a Roster, namespace: &'a Name) -> impl Iterator<Item = (&'a Name, &'a Slot)> {
    let all = roster.namespaces().filter_map(|(name, entry)| Some((name, entry.slot.as_deref()?)));
    all.filter(move |(_, slot)| slot.of == *namespace)
}

/// How every slot of a namespace that was ever used stands.
fn standings(roster: &Roster, namespace: &Name, watermarks: &BTreeMap<Name, u64>) -> Vec<SlotStanding> {
    let living = |slot: &Slot| {
        roster
            .region(&slot.region)
            .is_some_and(|r| r.epoch == slot.epoch && (r.state.may_issue() || r.state.gets_grants()))
    };
    slots_of(roster, namespace)
        .map(|(name, slot)| SlotStanding {
            number: slot.number,
            living: living(slot),
            ends: watermarks.get(name).copied().unwrap_or(0),
        })
        .collect()
}

/// Who stamps in a namespace, and until when.
pub(super) fn slot_views(roster: &Roster, name: &Name, watermark: impl Fn(&Name) -> u64) -> Vec<SlotView> {
    let Some((_, layout)) = timed(roster, name) else { return Vec::new() };
    slots_of(roster, name)
        .map(|(line, slot)| SlotView {
            slot: slot.number,
            region: slot.region.clone(),
            epoch: slot.epoch,
            until: layout.begins_ms(watermark(line)),
        })
        .collect()
}

/// The number lines of a namespace's slots.
pub(super) fn slot_names(roster: &Roster, name: &Name) -> impl Iterator<Item = Name> {
    let is_timed = timed(roster, name).is_some();
    let slots = is_timed.then(|| slots_of(roster, name).map(|(line, _)| line.clone()).collect::<Vec<_>>());
    slots.into_iter().flatten()
}

/// The window to give for a want on a slot's number line; the watermark moves to its end.
pub(super) async fn window_for(
    tx: &mut Tx,
    line: &Name,
    slot: &Slot,
    asker: &Asker,
    want: u64,
    watermark: u64,
    (now_ms, live_since_ms): (u64, u64),
) -> Result<Result<Range, Problem>, ServiceError> {
    let parent = match shared::roster_get(tx, Kind::Namespace, &slot.of).await?.map(|e| e.body) {
        Some(Body::Namespace(parent)) if !parent.frozen && !parent.deleted => parent,
        _ => return Ok(Err(grant_problem(&GrantRefusal::Frozen))),
    };
    if let Err(refusal) = parent.may_hold(&asker.region) {
        return Ok(Err(grant_problem(&refusal)));
    }
    let Some(layout) = parent.layout.filter(|_| slot.region == asker.region && slot.epoch == asker.epoch) else {
        let text = format!("slot {} is region {}'s at epoch {}", slot.number, slot.region, slot.epoch);
        return Ok(Err(Problem::new(Code::EpochFenced, text)));
    };
    let newest = sql::newest_grant(tx, line).await?;
    let goes_on =
        newest.is_some_and(|g| g.range.hi() == watermark && g.region == asker.region && g.epoch == asker.epoch);
    let (median_ms, middle_ms) = medians(tx, now_ms, live_since_ms).await?;
    let ask = RegionAsk {
        watermark,
        goes_on,
        granter_ms: now_ms,
        asker_ms: asker.clock_ms,
        median_ms,
        middle_ms,
        length_ms: u64::from(parent.policy.grant_target_seconds) * 1_000,
        want,
    };
    Ok(window::region_window(&layout, &ask).map_err(|refusal| window_problem(&refusal, now_ms)))
}

/// The middle one of the regions' clocks, by the newest session of each, and of those and the authority's.
async fn medians(tx: &mut Tx, now_ms: u64, since_ms: u64) -> Result<(Option<u64>, Option<u64>), ServiceError> {
    let sessions = sql::live_sessions(tx, since_ms).await?;
    let clock = |s: &sql::Session| now_ms.saturating_add_signed(s.clock_offset_ms);
    let newest: BTreeMap<Name, u64> = sessions.iter().rev().map(|s| (s.region.clone(), clock(s))).collect();
    let regions: Vec<u64> = newest.into_values().collect();
    let all = regions.iter().copied().chain([now_ms]).collect();
    Ok((window::median(regions), window::median(all)))
}

fn window_problem(refusal: &WindowRefusal, now_ms: u64) -> Problem {
    match refusal {
        WindowRefusal::LayoutEnded => Problem::new(Code::Exhausted, refusal.to_string()),
        WindowRefusal::BeforeEpoch => Problem::new(Code::ClockRollback, refusal.to_string()),
        WindowRefusal::ClockOff { .. } => {
            Problem::new(Code::ClockRollback, refusal.to_string()).retry_after(CLOCK_RETRY_SECONDS)
        }
        WindowRefusal::GivenUntil { until_ms } => {
            let seconds = (until_ms.saturating_sub(now_ms) / 1_000).clamp(1, MAX_RETRY_SECONDS);
            Problem::new(Code::WindowEnded, refusal.to_string()).retry_after(u32::try_from(seconds).unwrap_or(1))
        }
    }
}
