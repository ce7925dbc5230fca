//! What was seen lately, to say whether a runway grows or shrinks. In memory only: a restart begins anew.

use std::collections::{BTreeMap, VecDeque};
use std::sync::PoisonError;

use cadastre_core::ids::Name;
use cadastre_core::outlook::{self, Trend};
use cadastre_protocol::admin::{Headroom, History};

use super::Authority;

/// Seconds between two samples.
pub const EVERY_SECONDS: u64 = 10;
/// Samples that are kept: five minutes.
const KEPT: usize = 30;
/// "Not in any foreseeable time": at rate 0 nothing runs dry.
const NEVER: u32 = u32::MAX;

/// Samples by namespace and region, oldest first.
#[derive(Default)]
pub struct Seen {
    at_mono_ms: Option<u64>,
    cells: BTreeMap<Name, BTreeMap<Name, VecDeque<u32>>>,
}

impl Seen {
    fn note(&mut self, headroom: &Headroom) {
        let mut before = std::mem::take(&mut self.cells);
        for namespace in &headroom.namespaces {
            let mut was = before.remove(&namespace.name).unwrap_or_default();
            let mut now = BTreeMap::new();
            for region in &namespace.regions {
                let mut samples = was.remove(&region.region).unwrap_or_default();
                if samples.len() == KEPT {
                    samples.pop_front();
                }
                samples.push_back(region.runway_seconds.map_or(NEVER, |s| u32::try_from(s).unwrap_or(NEVER)));
                now.insert(region.region.clone(), samples);
            }
            self.cells.insert(namespace.name.clone(), now);
        }
    }

    /// The trend of one cell, of what was seen while ids were issued.
    pub(super) fn trend(&self, namespace: &Name, region: &Name) -> Option<Trend> {
        let samples = self.cells.get(namespace)?.get(region)?;
        let issued: Vec<u64> = samples.iter().filter(|s| **s != NEVER).map(|s| u64::from(*s)).collect();
        outlook::trend(issued.into_iter())
    }
}

impl Authority {
    /// Notes a sample, if it is time for one.
    pub(super) fn sample(&self, headroom: &Headroom) {
        let now = self.clock.now().mono_ms;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.at_mono_ms.is_none_or(|at| now.saturating_sub(at) >= EVERY_SECONDS * 1_000) {
            seen.at_mono_ms = Some(now);
            seen.note(headroom);
        }
    }

    /// What was seen of a namespace lately.
    #[must_use]
    pub fn history(&self, namespace: &Name) -> History {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = |s: &u32| (*s != NEVER).then_some(u64::from(*s));
        let regions = seen.cells.get(namespace).into_iter().flatten();
        History {
            every_seconds: EVERY_SECONDS,
            regions: regions.map(|(name, s)| (name.clone(), s.iter().map(shown).collect())).collect(),
        }
    }
}
