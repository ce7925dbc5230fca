//! Is anything wrong, and which region runs dry first, when: aggregated, for a hundred regions and a thousand
//! namespaces. Judged by `cadastre_core::outlook`; put together at most once a second, whoever asks.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use cadastre_core::ids::Name;
use cadastre_core::outlook::{self, Level, SILENT_SECONDS, Standing, Thresholds, Why};
use cadastre_core::registry::RegionState;
use cadastre_core::roster::Roster;
use cadastre_protocol::admin::{
    Cell, FirstDry, Levels, NamespaceHeadroom, NamespaceOutlook, NamespacesPage, Overview, Quarantines, RegionHeadroom,
    RegionOutlook, RegionView, Trouble,
};

use super::trend::Seen;
use super::words;
use super::{Authority, ServiceError};

/// For so long everybody is shown the same picture, in milliseconds.
const FRESH_MS: u64 = 1_000;
/// Findings that are listed.
const MOST_FINDINGS: usize = 100;
/// Rows of a page of the matrix.
pub const MOST_ROWS: usize = 200;

/// What everybody is shown for a second.
pub struct Picture {
    at_mono_ms: u64,
    overview: Overview,
    namespaces: Vec<NamespaceOutlook>,
}

/// Which rows of the matrix.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Only names that contain this.
    pub matching: Option<String>,
    /// Only this level and worse.
    pub at_least: Level,
    /// By name instead of worst first.
    pub by_name: bool,
    /// Rows before the page.
    pub offset: usize,
    /// Rows of the page.
    pub limit: usize,
}

impl Authority {
    /// The whole in a few figures.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn overview(&self) -> Result<Overview, ServiceError> {
        Ok(self.picture().await?.overview.clone())
    }

    /// A page of the matrix of namespaces and regions.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn overview_namespaces(&self, wanted: &Wanted) -> Result<NamespacesPage, ServiceError> {
        let picture = self.picture().await?;
        let holds = |n: &&NamespaceOutlook| {
            n.level >= wanted.at_least && wanted.matching.as_deref().is_none_or(|m| n.name.as_str().contains(m))
        };
        let mut found: Vec<&NamespaceOutlook> = picture.namespaces.iter().filter(holds).collect();
        if wanted.by_name {
            found.sort_by(|a, b| a.name.cmp(&b.name));
        }
        let total = found.len() as u64;
        let page = found.into_iter().skip(wanted.offset).take(wanted.limit.clamp(1, MOST_ROWS));
        Ok(NamespacesPage { total, namespaces: page.cloned().collect() })
    }

    async fn picture(&self) -> Result<Arc<Picture>, ServiceError> {
        let now = self.clock.now().mono_ms;
        // One at a time puts it together; the others wait for it, and are shown the same.
        let mut held = self.picture.lock().await;
        if let Some(picture) = held.as_ref().filter(|p| now.saturating_sub(p.at_mono_ms) < FRESH_MS) {
            return Ok(Arc::clone(picture));
        }
        let headroom = self.headroom().await?;
        let (regions, quarantines) = (self.regions().await?, self.quarantines().await?);
        let known = self.known();
        let picture = {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            draw(&known.roster, headroom.namespaces, &regions, &quarantines, &seen, (now, self.now_ms()))
        };
        let picture = Arc::new(picture);
        *held = Some(Arc::clone(&picture));
        Ok(picture)
    }
}

fn draw(
    roster: &Roster,
    headroom: Vec<NamespaceHeadroom>,
    regions: &[RegionView],
    quarantines: &Quarantines,
    seen: &Seen,
    (at_mono_ms, now_ms): (u64, u64),
) -> Picture {
    let mut by_region: BTreeMap<Name, Sum> = BTreeMap::new();
    let mut findings = words::of_quarantine(quarantines);
    findings.extend(regions.iter().filter_map(words::of_region));
    let mut namespaces = Vec::new();
    for namespace in headroom {
        let row = outlook_of(roster, &namespace, seen, now_ms);
        for (cell, had) in row.regions.iter().zip(&namespace.regions) {
            by_region.entry(cell.region.clone()).or_default().add(&row.name, cell, had);
            findings.extend(words::of_cell(&row.name, cell));
        }
        findings.extend(words::of_space(&row, now_ms));
        namespaces.push(row);
    }
    let soon = |row: &NamespaceOutlook| row.first_dry.as_ref().map_or(u64::MAX, |f| f.seconds);
    namespaces.sort_by(|a, b| b.level.cmp(&a.level).then(soon(a).cmp(&soon(b))).then(a.name.cmp(&b.name)));
    findings.sort_by(|a, b| b.level.cmp(&a.level).then(rank(a).cmp(&rank(b))));
    let regions: Vec<RegionOutlook> = regions.iter().map(|r| region_outlook(r, by_region.remove(&r.name))).collect();
    let mut levels = Levels::default();
    namespaces.iter().for_each(|n| levels.count(n.level));
    let first_dry = soonest(regions.iter().filter_map(|r| r.first_dry.clone()));
    let findings_total = findings.len() as u64;
    let level = findings.iter().map(|f| f.level).max().unwrap_or_default();
    findings.truncate(MOST_FINDINGS);
    let overview = Overview {
        at: now_ms,
        level,
        findings,
        findings_total,
        first_dry,
        namespaces: levels,
        regions,
        quarantined: !quarantines.quarantines.is_empty(),
        continuity: quarantines.continuity.clone(),
    };
    Picture { at_mono_ms, overview, namespaces }
}

/// A quarantine first, then what happens soonest.
fn rank(trouble: &Trouble) -> (bool, u64) {
    (trouble.kind != "quarantine", trouble.seconds.unwrap_or(u64::MAX))
}

fn soonest(all: impl Iterator<Item = FirstDry>) -> Option<FirstDry> {
    all.min_by_key(|f| f.seconds)
}

/// What a region's namespaces come to.
#[derive(Default)]
struct Sum {
    level: Level,
    levels: Levels,
    rate: f64,
    first: Option<FirstDry>,
}

impl Sum {
    fn add(&mut self, namespace: &Name, cell: &Cell, had: &RegionHeadroom) {
        self.level = self.level.max(cell.level);
        self.levels.count(cell.level);
        self.rate += had.rate_per_second;
        if let Some(seconds) = cell.runway_seconds
            && self.first.as_ref().is_none_or(|f| seconds < f.seconds)
        {
            self.first = Some(FirstDry { region: cell.region.clone(), namespace: namespace.clone(), seconds });
        }
    }
}

fn outlook_of(roster: &Roster, namespace: &NamespaceHeadroom, seen: &Seen, now_ms: u64) -> NamespaceOutlook {
    let policy = roster.namespace(&namespace.name).map(|e| e.policy).unwrap_or_default();
    let limits = Thresholds::of(&policy);
    let cells: Vec<Cell> = namespace.regions.iter().map(|r| cell(&namespace.name, r, limits, seen)).collect();
    // Nothing of the number line is used by UUIDs: their space does not end.
    let space_level = match namespace.kind {
        cadastre_core::namespace::NamespaceKind::UuidV7 => Level::Ok,
        _ => outlook::judge_space(namespace.space_left, namespace.space_ends_at, now_ms),
    };
    let first = |c: &Cell| {
        let seconds = c.runway_seconds?;
        Some(FirstDry { region: c.region.clone(), namespace: namespace.name.clone(), seconds })
    };
    NamespaceOutlook {
        name: namespace.name.clone(),
        kind: namespace.kind,
        level: cells.iter().map(|c| c.level).fold(space_level, Level::max),
        space_level,
        space_left: namespace.space_left,
        space_ends_at: namespace.space_ends_at,
        burned: namespace.burned,
        issued_estimate: namespace.issued_estimate,
        rate_per_second: namespace.regions.iter().map(|r| r.rate_per_second).sum(),
        first_dry: soonest(cells.iter().filter_map(first)),
        regions: cells,
    }
}

fn cell(namespace: &Name, region: &RegionHeadroom, limits: Thresholds, seen: &Seen) -> Cell {
    let standing = Standing {
        state: region.state,
        granted: region.granted,
        left: region.left,
        runway_seconds: region.runway_seconds,
        at_peak_seconds: region.runway_at_peak_seconds,
        heard_seconds: region.heard_seconds,
        is_time: region.window_hours.is_some(),
        is_elsewhere: region.not_home,
    };
    let seen_of = outlook::judge(&standing, limits);
    Cell {
        region: region.region.clone(),
        level: seen_of.level,
        why: seen_of.why,
        runway_seconds: seen_of.runway_seconds,
        runway_at_peak_seconds: seen_of.at_peak_seconds,
        trend: seen.trend(namespace, &region.region),
    }
}

fn region_outlook(region: &RegionView, sum: Option<Sum>) -> RegionOutlook {
    let sum = sum.unwrap_or_default();
    let silent = is_silent(region);
    let own = if silent || region.state == RegionState::Fenced { Level::Watch } else { Level::Ok };
    let offsets = region.agents.iter().map(|a| a.clock_offset_ms);
    RegionOutlook {
        region: region.name.clone(),
        level: own.max(sum.level),
        state: region.state,
        epoch: region.epoch,
        agents: region.agents.len() as u64,
        heard_seconds: region.last_heard_seconds,
        clock_offset_ms: offsets.max_by_key(|ms| ms.unsigned_abs()),
        rate_per_second: sum.rate,
        namespaces: sum.levels,
        first_dry: sum.first,
        waiting_for: region.waiting_for.clone(),
    }
}

/// Whether a region that should be heard is not.
pub(super) fn is_silent(region: &RegionView) -> bool {
    region.state != RegionState::Retired && region.last_heard_seconds.is_some_and(|s| s >= SILENT_SECONDS)
}

/// Whether a cell's trouble is told by its region already.
pub(super) fn is_regional(why: Why) -> bool {
    match why {
        Why::Fenced | Why::Silent | Why::Draining => true,
        Why::NothingLeft | Why::TimeEnded | Why::DrySoon | Why::Short => false,
    }
}
