//! What is left, as gauges. Labels are bounded: namespaces and regions of the roster, and codes of the protocol.

use std::sync::PoisonError;

use cadastre_core::drill::Outcome;
use cadastre_core::namespace::NamespaceKind;
use cadastre_core::registry::RegionState;
use cadastre_protocol::admin::{NamespaceHeadroom, RegionView};

use super::drills::Drill;
use super::operations::DRILL;
use super::{Authority, ServiceError};

/// Gauges are made at most this often.
const GAUGES_EVERY_MS: u64 = 1_000;

/// So many drills are looked at for the last one of each kind and region.
const DRILLS: u64 = 50;

fn one(yes: bool) -> f64 {
    f64::from(u8::from(yes))
}

fn seconds(runway: Option<u64>) -> f64 {
    runway.map_or(-1.0, |s| s as f64)
}

impl Authority {
    /// Publishes what is left as gauges, for somebody who is about to read them: it looks at every namespace. At most once
    /// a second, however many ask.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn publish_gauges(&self) -> Result<(), ServiceError> {
        metrics::gauge!("cadastre_quarantined").set(one(!self.is_open()));
        let mono_ms = self.clock.now().mono_ms;
        {
            let mut published = self.gauges_at_ms.lock().unwrap_or_else(PoisonError::into_inner);
            if published.is_some_and(|at| mono_ms.saturating_sub(at) < GAUGES_EVERY_MS) {
                return Ok(());
            }
            *published = Some(mono_ms);
        }
        let now = self.now_ms();
        let headroom = self.headroom().await?;
        self.sample(&headroom);
        headroom.namespaces.iter().for_each(|namespace| of_namespace(namespace, now));
        self.regions().await?.iter().for_each(of_region);
        let drills = self.newest::<Drill>(DRILL, DRILLS).await?;
        drills.iter().rev().for_each(|read| of_drill(&read.body));
        Ok(())
    }
}

/// Oldest first, so that the last one stays. One that somebody ended says nothing about the region.
fn of_drill(drill: &Drill) {
    let (Some(report), Some(ended_at)) = (&drill.report, drill.ended_at) else { return };
    if report.verdict == Outcome::Aborted {
        return;
    }
    let set = |metric: &'static str, value: f64| {
        metrics::gauge!(metric, "kind" => drill.order.kind.as_str(), "region" => drill.order.region.to_string())
            .set(value);
    };
    set("cadastre_drill_passed", one(report.verdict == Outcome::Passed));
    set("cadastre_drill_ended_seconds", ended_at as f64 / 1_000.0);
    set("cadastre_drill_heal_seconds", report.heal_seconds.unwrap_or(-1.0));
}

fn of_namespace(namespace: &NamespaceHeadroom, now: u64) {
    let name = namespace.name.to_string();
    let set = |metric: &'static str, value: f64| metrics::gauge!(metric, "namespace" => name.clone()).set(value);
    let left = namespace.space_left;
    set("cadastre_space_left", left as f64);
    set("cadastre_burned", namespace.burned as f64);
    let ends = namespace.space_ends_at.map(|at| at.saturating_sub(now) / 1_000);
    set("cadastre_space_ends_seconds", seconds(ends));
    match namespace.kind {
        NamespaceKind::Snowflake => {
            let at = namespace.space_ends_at.unwrap_or(now);
            set("cadastre_layout_ends_seconds", at.saturating_sub(now) as f64 / 1_000.0);
        }
        NamespaceKind::Range => {
            set("cadastre_issued_estimate", namespace.issued_estimate as f64);
            let granted = namespace.watermark as f64;
            set("cadastre_watermark", granted);
            set("cadastre_burned_ratio", if granted > 0.0 { namespace.burned as f64 / granted } else { 0.0 });
            set("cadastre_space_used_ratio", granted / (granted + left as f64).max(1.0));
        }
        NamespaceKind::UuidV7 | NamespaceKind::Slot => {}
    }
    for region in &namespace.regions {
        let word = region.region.to_string();
        let set = |metric: &'static str, value: f64| {
            metrics::gauge!(metric, "namespace" => name.clone(), "region" => word.clone()).set(value);
        };
        set("cadastre_region_left", region.left as f64);
        match region.window_hours {
            Some(hours) => set("cadastre_window_seconds", hours * 3_600.0),
            None => {
                set("cadastre_runway_seconds", seconds(region.runway_seconds));
                set("cadastre_runway_at_peak_seconds", seconds(region.runway_at_peak_seconds));
            }
        }
    }
}

fn of_region(region: &RegionView) {
    let name = region.name.to_string();
    let set = |metric: &'static str, value: f64| metrics::gauge!(metric, "region" => name.clone()).set(value);
    set("cadastre_region_fenced", one(region.state == RegionState::Fenced));
    set("cadastre_agents", region.agents.len() as f64);
    // One that is gone for good, or never spoke, is not waited for.
    let expected = matches!(region.state, RegionState::Active | RegionState::Draining | RegionState::Fenced);
    let heard = region.last_heard_seconds.filter(|_| expected).unwrap_or(0);
    set("cadastre_region_heard_seconds", heard as f64);
    let farthest = region.agents.iter().map(|a| a.clock_offset_ms).max_by_key(|ms| ms.unsigned_abs());
    set("cadastre_agent_clock_offset_seconds", farthest.unwrap_or(0) as f64 / 1_000.0);
}
