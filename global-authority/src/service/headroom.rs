//! What is left, where, and for how long. Reads one row per (namespace, region), never the ledger.

use std::collections::BTreeMap;

use cadastre_core::ids::Name;
use cadastre_core::layout::Layout;
use cadastre_core::namespace::{NamespaceEntry, NamespaceKind};
use cadastre_core::plan;
use cadastre_core::roster::{RegionEntry, Roster};
use cadastre_ledger::error::LedgerError;
use cadastre_ledger::sql as shared;
use cadastre_protocol::admin::{Headroom, NamespaceHeadroom, RegionHeadroom};

use super::catalog::bounds_of;
use super::slots::slot_views;
use super::{Authority, ServiceError};
use crate::sql;

impl Authority {
    /// Namespaces x regions.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn headroom(&self) -> Result<Headroom, ServiceError> {
        self.headroom_of(None).await
    }

    /// The same of one namespace only; empty where there is none of that name.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn headroom_of(&self, only: Option<&Name>) -> Result<Headroom, ServiceError> {
        self.reload().await?;
        let wanted = only.cloned();
        let (rows, holdings, kept) = self
            .continuity
            .db()
            .read("headroom", move |tx| {
                let wanted = wanted.clone();
                Box::pin(async move {
                    let rows = shared::scopes(tx).await?;
                    let holdings = match &wanted {
                        Some(name) => sql::holdings_in(tx, name).await?,
                        None => sql::holdings(tx).await?,
                    };
                    Ok::<_, LedgerError>((rows, holdings, sql::kept(tx).await?))
                })
            })
            .await?;
        let now = self.now_ms();
        let known = self.known();
        let mut namespaces = Vec::new();
        let bounds = bounds_of(&rows);
        let bound = |name: &Name| bounds.get(name).copied().unwrap_or(0);
        let heard = |region: &Name| kept.get(region).map(|k| now.saturating_sub(k.heard_at_ms) / 1_000);
        let mut held: BTreeMap<Name, BTreeMap<Name, sql::Holding>> = BTreeMap::new();
        for row in holdings {
            held.entry(row.namespace.clone()).or_default().insert(row.region.clone(), row);
        }
        for (name, entry) in known.roster.namespaces().filter(|(_, e)| !e.deleted && e.is_public()) {
            if only.is_some_and(|only| only != name) {
                continue;
            }
            if let Some(layout) = &entry.layout {
                namespaces.push(time_headroom(&known.roster, (name, entry), layout, now, bound, heard));
                continue;
            }
            let mine = held.remove(name).unwrap_or_default();
            namespaces.push(number_headroom(&known.roster, (name, entry), bound(name), &mine, now, heard));
        }
        Ok(Headroom { namespaces })
    }
}

impl Authority {
    /// Looks at the witness, and publishes how it is: one that is gone, flushed or put back is told before it is needed.
    ///
    /// # Errors
    /// Those of a store that is judged anew.
    pub async fn look_at_witness(&self) -> Result<(), ServiceError> {
        let looked = self.continuity.look_at_witness().await;
        let status = self.continuity.witness_status();
        if status.mode != "none" {
            metrics::gauge!("cadastre_witness_up").set(f64::from(u8::from(status.state == "ok")));
            metrics::counter!("cadastre_witness_failures_total").absolute(status.failures);
        }
        Ok(looked?)
    }
}

fn number_headroom(
    roster: &Roster,
    (name, entry): (&Name, &NamespaceEntry),
    watermark: u64,
    held: &BTreeMap<Name, sql::Holding>,
    now: u64,
    heard: impl Fn(&Name) -> Option<u64>,
) -> NamespaceHeadroom {
    let of_region = |(region, r): (&Name, &RegionEntry)| {
        let held = held.get(region);
        (held.is_some() || r.state.may_issue())
            .then(|| region_headroom(region, r, held, entry.is_home(region), heard(region)))
    };
    let space_left = entry.definition.capacity().saturating_sub(watermark);
    let rate: f64 = held.values().map(|h| h.rate).sum();
    let sum = |of: fn(&sql::Holding) -> u64| held.values().fold(0_u64, |n, h| n.saturating_add(of(h)));
    let (granted, burned) = (sum(|h| h.granted), sum(|h| h.burned));
    let unissued = sum(|h| h.left).saturating_add(sum(|h| h.in_instances));
    // What was granted to nobody that is left on record (a raise after a quarantine) is burned too.
    let burned = burned.saturating_add(watermark.saturating_sub(granted));
    NamespaceHeadroom {
        name: name.clone(),
        kind: entry.kind,
        watermark,
        space_left,
        space_ends_at: plan::space_ends_at(space_left, rate, now),
        burned,
        issued_estimate: watermark.saturating_sub(burned).saturating_sub(unissued),
        regions: roster.regions().filter_map(of_region).collect(),
    }
}

fn region_headroom(
    name: &Name,
    region: &RegionEntry,
    held: Option<&sql::Holding>,
    is_home: bool,
    heard_seconds: Option<u64>,
) -> RegionHeadroom {
    let (left, rate, peak) = held.map_or((0, 0.0, 0.0), |h| (h.left, h.rate, h.peak));
    RegionHeadroom {
        region: name.clone(),
        granted: held.map_or(0, |h| h.granted),
        carved: held.map_or(0, |h| h.carved),
        left,
        rate_per_second: rate,
        runway_seconds: plan::runway_seconds(left, rate).filter(|_| is_home),
        runway_at_peak_seconds: plan::runway_seconds(left, peak).filter(|_| is_home),
        state: region.state,
        epoch: region.epoch,
        heard_seconds,
        window_hours: None,
        not_home: !is_home,
    }
}

/// What is left of a time-based namespace, in units of time: the whole of it by the clock, and each region's window.
fn time_headroom(
    roster: &Roster,
    (name, entry): (&Name, &NamespaceEntry),
    layout: &Layout,
    now: u64,
    bound: impl Fn(&Name) -> u64,
    heard: impl Fn(&Name) -> Option<u64>,
) -> NamespaceHeadroom {
    let unit = layout.unit_of(now).unwrap_or(0);
    let slots = slot_views(roster, name, &bound);
    let regions = roster.regions().filter(|(_, r)| r.state.may_issue()).map(|(region, r)| {
        let slot = slots.iter().find(|s| s.region == *region && s.epoch == r.epoch);
        let until = slot.map_or(now, |s| s.until.max(layout.begins_ms(0)));
        let seconds = until.saturating_sub(now) / 1_000;
        RegionHeadroom {
            left: layout.unit_of(until).unwrap_or(0).saturating_sub(unit),
            runway_seconds: Some(seconds).filter(|_| entry.is_home(region)),
            runway_at_peak_seconds: Some(seconds).filter(|_| entry.is_home(region)),
            window_hours: Some((until as f64 - now as f64) / 3_600_000.0),
            ..region_headroom(region, r, None, entry.is_home(region), heard(region))
        }
    });
    NamespaceHeadroom {
        name: name.clone(),
        kind: NamespaceKind::Snowflake,
        watermark: 0,
        space_left: layout.units().saturating_sub(unit),
        space_ends_at: Some(layout.ends_ms()),
        burned: 0,
        issued_estimate: 0,
        regions: regions.collect(),
    }
}
