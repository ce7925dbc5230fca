//! Regions: registering, joining, and the operator's hand on their life cycle.

use cadastre_core::continuity::{ScopeState, WitnessMode};
use cadastre_core::ids::{Epoch, Name, StoreId};
use cadastre_core::registry::{RegionEvent, RegionState};
use cadastre_core::roster::{Body, RegionEntry, Roster};
use cadastre_ledger::continuity::How;
use cadastre_ledger::error::LedgerError;
use cadastre_protocol::admin::{AgentView, NewRegion, NewToken, RegionAction, RegionView};
use cadastre_protocol::error::Code;
use cadastre_runtime::token::Prefix;

use super::error::problem;
use super::roster::{Change, Effect, next_region_id};
use super::{Authority, ServiceError};
use crate::sql;

impl Authority {
    /// Registers a region; its token is in the answer and nowhere else.
    ///
    /// # Errors
    /// `already_exists`, `name_retired`, or those of the store.
    pub async fn new_region(&self, who: &str, name: Name) -> Result<NewRegion, ServiceError> {
        let (secret, token) = self.new_token(Prefix::Region);
        let (wanted, knowers) = (name.clone(), self.knowers().await?);
        let region_id = self
            .change(who, "region", move |roster| {
                match roster.region(&name).map(|r| r.state) {
                    None => {}
                    Some(RegionState::Retired) => {
                        let text =
                            format!("region {name} is retired, and the name of a retired region is never used again");
                        return Err(problem(Code::NameRetired, text));
                    }
                    Some(_) => return Err(problem(Code::AlreadyExists, format!("there is a region {name} already"))),
                }
                super::knowers::check_all(&knowers, roster)?;
                let region_id = next_region_id(roster)?;
                let entry = RegionEntry {
                    region_id,
                    epoch: Epoch(1),
                    state: RegionState::Registered,
                    store_id: None,
                    founder: false,
                    tokens: vec![token.clone()],
                    rejoin: false,
                };
                Ok((vec![region_change(&name, entry, Effect::None)], region_id))
            })
            .await?;
        Ok(NewRegion { name: wanted, region_id, epoch: Epoch(1), token: secret })
    }

    /// A further token of a region, for rotation.
    ///
    /// # Errors
    /// `not_found`, or those of the store.
    pub async fn new_region_token(&self, who: &str, name: &Name) -> Result<NewToken, ServiceError> {
        let (secret, token) = self.new_token(Prefix::Region);
        let (name, token_id) = (name.clone(), token.token_id.clone());
        self.change(who, "region_token", move |roster| {
            let mut entry = live_region(roster, &name)?;
            entry.tokens.push(token.clone());
            Ok((vec![region_change(&name, entry, Effect::None)], ()))
        })
        .await?;
        Ok(NewToken { token_id, token: secret })
    }

    /// Binds a store to a region.
    pub(super) async fn join(
        &self,
        name: &Name,
        store: StoreId,
        event: RegionEvent,
    ) -> Result<RegionEntry, ServiceError> {
        let name = name.clone();
        self.change("agent", "join", move |roster| {
            let mut entry = live_region(roster, &name)?;
            if entry.store_id == Some(store) {
                return Ok((vec![], entry));
            }
            (entry.state, entry.epoch) = entry.state.after(event, entry.epoch)?;
            entry.store_id = Some(store);
            entry.rejoin = false;
            entry.founder |= roster.regions().all(|(_, r)| r.state == RegionState::Registered);
            let effect = Effect::RaiseEpoch(entry.epoch);
            Ok((vec![region_change(&name, entry.clone(), effect)], entry))
        })
        .await
    }

    /// One step of a region's life cycle.
    ///
    /// # Errors
    /// `not_allowed` where the life cycle has no such step, or those of the store.
    pub async fn region_event(
        &self,
        name: &Name,
        event: RegionEvent,
        why: &str,
        who: &str,
    ) -> Result<RegionEntry, ServiceError> {
        tracing::warn!(region = %name, ?event, why, who, "region");
        let (name, said) = (name.clone(), format!("{who}: {why}"));
        let state = match (event, self.how()) {
            (RegionEvent::WentBack, How::Suspect) => ScopeState::Suspect,
            (RegionEvent::WentBack, How::WentBack) => ScopeState::Back,
            _ => ScopeState::Open,
        };
        let alone = self.continuity.mode() != WitnessMode::Required;
        self.change_in(state, &said, event_word(event), move |roster| {
            let mut entry = live_region(roster, &name)?;
            (entry.state, entry.epoch) = entry.state.after(event, entry.epoch)?;
            let effect = match event {
                RegionEvent::Retire if alone => Effect::RetireRemembered(entry.epoch),
                _ => Effect::RaiseEpoch(entry.epoch),
            };
            Ok((vec![region_change(&name, entry.clone(), effect)], entry))
        })
        .await
    }

    /// `recover`, with leave for another store where the old one is gone for good.
    ///
    /// # Errors
    /// `not_allowed`, or those of the store.
    pub async fn recover(&self, name: &Name, action: &RegionAction, who: &str) -> Result<RegionEntry, ServiceError> {
        let (name, new_store) = (name.clone(), action.new_store);
        self.change(who, "recover", move |roster| {
            let mut entry = live_region(roster, &name)?;
            // A live region whose store is gone may get a new one without having been fenced first.
            let keeps_state = new_store && entry.state.may_issue();
            if !keeps_state {
                (entry.state, entry.epoch) = entry.state.after(RegionEvent::Recover, entry.epoch)?;
            }
            entry.rejoin = new_store;
            let effect = Effect::RaiseEpoch(entry.epoch);
            Ok((vec![region_change(&name, entry.clone(), effect)], entry))
        })
        .await
    }

    /// Ends a region for good. Waits until another region (or the required witness) holds the roster
    /// and the marks that this one holds: the last one that remembers must not be sent away.
    ///
    /// # Errors
    /// `not_allowed`, or those of the store.
    pub async fn retire(&self, name: &Name, who: &str) -> Result<RegionEntry, ServiceError> {
        self.reload().await?;
        let known = self.known();
        let entry = live_region(&known.roster, name)?;
        let witnessed = self.continuity.mode() == WitnessMode::Required;
        if entry.state != RegionState::Registered && !witnessed {
            let kept = self
                .continuity
                .db()
                .read("kept", |tx| Box::pin(async move { Ok::<_, LedgerError>(sql::kept(tx).await?) }))
                .await?;
            let now = known.mark.map(|m| m.version()).unwrap_or_default();
            let held = known.roster.regions().any(|(other, r)| {
                other != name && r.state.may_issue() && kept.get(other).is_some_and(|k| k.roster >= now)
            });
            if !held {
                return Err(problem(
                    Code::NotAllowed,
                    "no other region has taken note of the present roster yet, and there is no required witness: wait for \
                     the others' heartbeats. The last region can only be retired with a required witness",
                ));
            }
        }
        self.region_event(name, RegionEvent::Retire, "retired by an operator", who).await
    }

    /// All regions, retired ones included.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn regions(&self) -> Result<Vec<RegionView>, ServiceError> {
        self.reload().await?;
        let (now, since) = (self.now_ms(), self.now_ms().saturating_sub(self.settings.live_ms));
        let (sessions, kept, established) = self
            .continuity
            .db()
            .read("regions", move |tx| {
                Box::pin(async move {
                    let sessions = sql::live_sessions(tx, since).await?;
                    Ok::<_, LedgerError>((sessions, sql::kept(tx).await?, sql::established(tx).await?))
                })
            })
            .await?;
        let (known, knowers) = (self.known(), self.knowers().await?);
        let view = |name: &Name, region: &RegionEntry| RegionView {
            name: name.clone(),
            region_id: region.region_id,
            epoch: region.epoch,
            state: region.state,
            agents: sessions.iter().filter(|s| s.region == *name).map(|s| agent_view(s, now)).collect(),
            last_heard_seconds: kept.get(name).map(|k| now.saturating_sub(k.heard_at_ms) / 1_000),
            waiting_for: waiting_for(region, established.contains(name)),
            tokens: super::catalog::token_views(&region.tokens),
            read_less: super::knowers::views(&knowers, name, now),
        };
        Ok(known.roster.regions().map(|(name, region)| view(name, region)).collect())
    }
}

fn waiting_for(region: &RegionEntry, established: bool) -> Option<String> {
    match region.state {
        RegionState::Registered => Some("its agent's first call".to_owned()),
        RegionState::Active if !established && !region.founder => {
            Some("an established region to take note of it, before its first grant".to_owned())
        }
        RegionState::Draining => Some("nothing: it runs out what it holds (recover brings it back)".to_owned()),
        RegionState::Fenced => Some("an operator's recover".to_owned()),
        RegionState::Active | RegionState::Retired => None,
    }
}

fn agent_view(session: &sql::Session, now: u64) -> AgentView {
    AgentView {
        incarnation: session.incarnation.to_string(),
        url: session.url.clone(),
        version: session.version.clone(),
        last_heard_seconds: now.saturating_sub(session.heard_at_ms) / 1_000,
        clock_offset_ms: session.clock_offset_ms,
    }
}

fn event_word(event: RegionEvent) -> &'static str {
    match event {
        RegionEvent::Join => "join",
        RegionEvent::JoinWithNewStore => "join_new_store",
        RegionEvent::WentBack => "went_back",
        RegionEvent::Drain => "drain",
        RegionEvent::Fence => "fence",
        RegionEvent::Recover => "recover",
        RegionEvent::Retire => "retire",
    }
}

fn region_change(name: &Name, entry: RegionEntry, effect: Effect) -> Change {
    Change { name: name.clone(), body: Body::Region(entry), effect }
}

pub(super) fn live_region(roster: &Roster, name: &Name) -> Result<RegionEntry, ServiceError> {
    roster.region(name).cloned().ok_or_else(|| problem(Code::NotFound, format!("there is no region {name}")))
}
