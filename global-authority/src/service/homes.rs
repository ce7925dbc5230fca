//! Homes: which regions serve a namespace, and where those are reached.

use std::collections::{BTreeMap, BTreeSet};

use cadastre_core::ids::Name;
use cadastre_core::namespace::NamespaceEntry;
use cadastre_core::registry::RegionState;
use cadastre_core::roster::Roster;
use cadastre_ledger::error::LedgerError;
use cadastre_protocol::error::Code;
use cadastre_protocol::operate::HomeAddress;

use super::error::problem;
use super::{Authority, ServiceError};
use crate::sql;

/// Addresses of one region that are told.
const MAX_URLS: usize = 4;

/// Sets a namespace's home at once; an empty list is all regions. What a switch had begun there is cleared.
///
/// # Errors
/// `invalid_request` where a region is unknown or retired.
pub(super) fn set(roster: &Roster, entry: &mut NamespaceEntry, home: &[Name]) -> Result<(), ServiceError> {
    for region in home {
        if roster.region(region).is_none_or(|r| r.state == RegionState::Retired) {
            let text = format!("home: there is no region {region}; see GET /v1/regions");
            return Err(problem(Code::InvalidRequest, text));
        }
    }
    let unique: BTreeSet<&Name> = home.iter().collect();
    entry.home = (!home.is_empty()).then(|| unique.into_iter().cloned().collect());
    (entry.leaving, entry.arriving) = (Vec::new(), Vec::new());
    Ok(())
}

impl Authority {
    /// Where the regions are reached that narrowed homes name.
    pub(super) async fn home_addresses(&self) -> Result<Vec<HomeAddress>, ServiceError> {
        let known = self.known();
        let narrowed = known.roster.namespaces().filter(|(_, e)| e.is_public() && !e.deleted);
        let named: BTreeSet<Name> = narrowed.filter_map(|(_, e)| e.home.clone()).flatten().collect();
        if named.is_empty() {
            return Ok(Vec::new());
        }
        let since = self.now_ms().saturating_sub(self.settings.live_ms);
        let sessions = self.continuity.db().read("home_addresses", move |tx| {
            Box::pin(async move { Ok::<_, LedgerError>(sql::live_sessions(tx, since).await?) })
        });
        let mut urls: BTreeMap<Name, Vec<String>> = BTreeMap::new();
        for session in sessions.await? {
            let Some(url) = session.url.filter(|_| named.contains(&session.region)) else { continue };
            let known = urls.entry(session.region).or_default();
            if !known.contains(&url) && known.len() < MAX_URLS {
                known.push(url);
            }
        }
        Ok(urls.into_iter().map(|(region, urls)| HomeAddress { region, urls }).collect())
    }
}
