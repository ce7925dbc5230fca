//! What a switch's next step is decided from, read anew each time.

use std::collections::{BTreeMap, BTreeSet};

use cadastre_core::ids::Name;
use cadastre_core::mark::{Generation, Scope};
use cadastre_core::namespace::{NamespaceEntry, NamespaceKind};
use cadastre_core::roster::{Body, Roster};
use cadastre_core::switch::{self, Facts, NamespaceFact, RegionFact, Shortfall};
use cadastre_ledger::error::LedgerError;
use cadastre_ledger::sql as shared;
use cadastre_protocol::operate::Expect;

use super::operations::SWITCH;
use super::slots::slot_views;
use super::switches::{Move, Switch};
use super::{Authority, ServiceError};
use crate::sql::{self, Holding, Kept};

/// Rows that several facts come from.
struct Rows {
    bounds: BTreeMap<Name, u64>,
    holdings: Vec<Holding>,
    kept: BTreeMap<Name, Kept>,
}

impl Rows {
    fn of(&self, region: &Name, namespace: &Name) -> Option<&Holding> {
        self.holdings.iter().find(|h| h.region == *region && h.namespace == *namespace)
    }

    /// What both regions issue at their peaks, together.
    fn peak_of_both(&self, body: &Switch, namespace: &Name) -> f64 {
        [&body.from, &body.to].into_iter().filter_map(|region| self.of(region, namespace)).map(|h| h.peak).sum()
    }

    fn bound(&self, name: &Name) -> u64 {
        self.bounds.get(name).copied().unwrap_or(0)
    }
}

impl Authority {
    async fn switch_rows(&self) -> Result<Rows, ServiceError> {
        let read = self.continuity.db().read("switch_facts", |tx| {
            Box::pin(async move {
                let rows = shared::scopes(tx).await?;
                let bound = |r: shared::ScopeRow| match r.scope {
                    Scope::Namespace(name) => Some((name, r.view.mark.bound)),
                    Scope::Roster | Scope::Region => None,
                };
                Ok::<_, LedgerError>(Rows {
                    bounds: rows.into_iter().filter_map(bound).collect(),
                    holdings: sql::holdings(tx).await?,
                    kept: sql::kept(tx).await?,
                })
            })
        });
        Ok(read.await?)
    }

    pub(super) async fn switch_facts(&self, body: &Switch) -> Result<Facts, ServiceError> {
        let rows = self.switch_rows().await?;
        let (known, now) = (self.known(), self.now_ms());
        let live = |region: &Name| {
            rows.kept.get(region).is_some_and(|k| now.saturating_sub(k.heard_at_ms) <= self.settings.live_ms)
        };
        let region = |name: &Name| RegionFact {
            state: known.roster.region(name).map_or(cadastre_core::registry::RegionState::Retired, |r| r.state),
            live: live(name),
        };
        let from_knows =
            body.moved.is_some_and(|moved| rows.kept.get(&body.from).is_some_and(|kept| kept.roster >= moved));
        Ok(Facts {
            quarantined: !self.is_open(),
            from: region(&body.from),
            to: region(&body.to),
            from_knows,
            rehearsed: body.drill.is_some(),
            namespaces: body.moves.iter().map(|m| fact(&known.roster, &rows, body, m, now)).collect(),
        })
    }

    /// Whether a region's store is known to hold the roster of then, or a later one.
    pub(super) async fn holds_roster(&self, region: &Name, then: (Generation, u64)) -> Result<bool, ServiceError> {
        let rows = self.switch_rows().await?;
        Ok(rows.kept.get(region).is_some_and(|kept| kept.roster >= then))
    }

    /// What each region should be ready for, by the switches that are under way.
    pub(super) async fn expected(&self) -> Result<BTreeMap<Name, Vec<Expect>>, ServiceError> {
        let mut expected: BTreeMap<Name, Vec<Expect>> = BTreeMap::new();
        let live = self.live::<Switch>(SWITCH).await?;
        if live.is_empty() {
            return Ok(expected);
        }
        let (rows, known) = (self.switch_rows().await?, self.known());
        for body in live.into_iter().map(|read| read.body).filter(|body| body.stopped.is_none()) {
            for m in &body.moves {
                let Some(entry) = known.roster.namespace(&m.name) else { continue };
                let peak_per_second = rows.of(&body.from, &m.name).map_or(0.0, |h| h.peak);
                let at_least = switch::needed(&entry.policy, rows.peak_of_both(&body, &m.name));
                let expect = Expect { namespace: m.name.clone(), peak_per_second, at_least };
                expected.entry(body.to.clone()).or_default().push(expect);
            }
        }
        Ok(expected)
    }

    /// When the last time window of the region that is left ends by itself.
    pub(super) async fn windows_end(&self, body: &Switch) -> Result<Option<u64>, ServiceError> {
        let (rows, known) = (self.switch_rows().await?, self.known());
        let slots = body.moves.iter().flat_map(|m| slot_views(&known.roster, &m.name, |name| rows.bound(name)));
        Ok(slots.filter(|slot| slot.region == body.from).map(|slot| slot.until).max())
    }
}

fn fact(roster: &Roster, rows: &Rows, body: &Switch, m: &Move, now_ms: u64) -> NamespaceFact {
    let entry = roster.namespace(&m.name);
    let shortfall = match entry {
        Some(entry) if is_used(roster, &m.name) => shortfall(roster, rows, body, m, entry, now_ms),
        _ => Shortfall::None,
    };
    NamespaceFact {
        name: m.name.clone(),
        home_is_before: entry.is_some_and(|e| e.home == m.before),
        home_is_after: entry.is_some_and(|e| e.home.as_ref() == Some(&m.after)),
        shortfall,
        deleted: entry.is_none_or(|e| e.deleted),
    }
}

fn shortfall(roster: &Roster, rows: &Rows, body: &Switch, m: &Move, entry: &NamespaceEntry, now_ms: u64) -> Shortfall {
    match entry.kind {
        NamespaceKind::UuidV7 | NamespaceKind::Slot => Shortfall::None,
        NamespaceKind::Snowflake => {
            let lasts_ms = u64::from(entry.policy.target_seconds) * 1_000;
            let epoch = roster.region(&body.to).map(|r| r.epoch);
            let mut slots = slot_views(roster, &m.name, |name| rows.bound(name)).into_iter();
            let lasts = slots.any(|slot| {
                slot.region == body.to && Some(slot.epoch) == epoch && slot.until >= now_ms.saturating_add(lasts_ms)
            });
            if lasts { Shortfall::None } else { Shortfall::Time }
        }
        NamespaceKind::Range => {
            let held = rows.of(&body.to, &m.name).map_or(0, |h| h.left);
            let needed = switch::needed(&entry.policy, rows.peak_of_both(body, &m.name));
            let space = entry.definition.capacity().saturating_sub(rows.bound(&m.name));
            switch::shortfall(held, needed, entry.policy.region_max_held, space)
        }
    }
}

/// Whether any service may ask for it: where none may, nobody is to be served.
fn is_used(roster: &Roster, namespace: &Name) -> bool {
    let admitted: BTreeSet<&Name> = roster
        .entries()
        .filter_map(|e| match &e.body {
            Body::Service(service) => Some(service.namespaces.iter()),
            Body::Region(_) | Body::Namespace(_) | Body::Operator(_) => None,
        })
        .flatten()
        .collect();
    admitted.contains(namespace)
}
