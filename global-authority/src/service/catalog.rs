//! Namespaces, services, operators: what an operator defines.

use std::collections::BTreeMap;

use cadastre_core::ids::Name;
use cadastre_core::layout::Layout;
use cadastre_core::mark::Scope;
use cadastre_core::namespace::{NamespaceEntry, NamespaceKind, Policy};
use cadastre_core::registry::RegionState;
use cadastre_core::roster::{Body, Kind, Limits, MAX_LIST, OperatorEntry, Roster, ServiceEntry, TokenEntry};
use cadastre_ledger::error::LedgerError;
use cadastre_ledger::sql::{self as shared, ScopeRow};
use cadastre_protocol::admin::{
    NamespacePatch, NamespaceView, NewNamespace, NewOperator, NewService, NewToken, OperatorRole, OperatorView,
    ServicePatch, ServiceView, TokenView,
};
use cadastre_protocol::error::Code;
use cadastre_runtime::token::Prefix;

use super::error::problem;
use super::roster::{Change, Effect};
use super::slots::{slot_names, slot_views};
use super::{Authority, ServiceError};

fn invalid(detail: impl std::fmt::Display) -> ServiceError {
    problem(Code::InvalidRequest, detail.to_string())
}

impl Authority {
    /// Defines a namespace, or brings a deleted one back at its watermark.
    ///
    /// # Errors
    /// `already_exists`, `invalid_request`, or those of the store.
    pub async fn new_namespace(&self, who: &str, new: NewNamespace) -> Result<NamespaceView, ServiceError> {
        let (name, now, knowers) = (new.name.clone(), self.now_ms(), self.knowers().await?);
        self.change(who, "namespace", move |roster| {
            let (entry, effect) = match roster.namespace(&new.name) {
                Some(held) if held.deleted => (revived(held, &new)?, Effect::None),
                Some(_) => {
                    return Err(problem(Code::AlreadyExists, format!("there is a namespace {} already", new.name)));
                }
                None => (defined(&new, roster, now)?, Effect::NewScope),
            };
            super::knowers::check(&knowers, std::iter::once((&new.name, &entry)))?;
            Ok((vec![Change { name: new.name.clone(), body: Body::Namespace(entry), effect }], ()))
        })
        .await?;
        self.namespace(&name).await
    }

    /// Changes a namespace.
    ///
    /// # Errors
    /// `unknown_namespace`, `invalid_request`, or those of the store.
    pub async fn patch_namespace(
        &self,
        who: &str,
        name: &Name,
        patch: NamespacePatch,
    ) -> Result<NamespaceView, ServiceError> {
        let (watermark, knowers) = (self.watermark(name).await?, self.knowers().await?);
        let wanted = name.clone();
        self.change(who, "namespace_patch", move |roster| {
            let mut entry = live_namespace(roster, &wanted)?.clone();
            entry.frozen = patch.frozen.unwrap_or(entry.frozen);
            if let Some(policy) = &patch.policy {
                entry.policy = policy.apply(entry.policy);
                entry.policy.check().map_err(invalid)?;
            }
            let mut effect = Effect::None;
            if let Some(home) = &patch.home {
                super::homes::set(roster, &mut entry, home)?;
            }
            if let Some(readers) = &patch.readers {
                entry.readers.clone_from(readers);
            }
            if let Some(sequence) = patch.sequence {
                if entry.kind != NamespaceKind::Range {
                    return Err(invalid(format!("sequence: a namespace of kind {} has none", entry.kind.as_str())));
                }
                entry.definition = entry.definition.append(watermark, sequence).map_err(invalid)?;
                super::knowers::check(&knowers, std::iter::once((&wanted, &entry)))?;
                effect = Effect::LockAt(watermark);
            }
            check_readers(&entry)?;
            Ok((vec![Change { name: wanted.clone(), body: Body::Namespace(entry), effect }], ()))
        })
        .await?;
        self.namespace(name).await
    }

    /// Hides and freezes a namespace. Its watermark stays.
    ///
    /// # Errors
    /// `unknown_namespace`, or those of the store.
    pub async fn delete_namespace(&self, who: &str, name: &Name) -> Result<(), ServiceError> {
        let name = name.clone();
        self.change(who, "namespace_delete", move |roster| {
            let mut entry = live_namespace(roster, &name)?.clone();
            entry.deleted = true;
            Ok((vec![Change { name: name.clone(), body: Body::Namespace(entry), effect: Effect::None }], ()))
        })
        .await
    }

    async fn watermark(&self, name: &Name) -> Result<u64, ServiceError> {
        let scope = Scope::Namespace(name.clone());
        let row = self
            .continuity
            .db()
            .read("watermark", move |tx| {
                let scope = scope.clone();
                Box::pin(async move { Ok::<_, LedgerError>(shared::scope(tx, &scope).await?) })
            })
            .await?;
        row.map(|r| r.view.mark.bound).ok_or_else(|| unknown(name))
    }

    /// One namespace.
    ///
    /// # Errors
    /// `unknown_namespace`, or those of the store.
    pub async fn namespace(&self, name: &Name) -> Result<NamespaceView, ServiceError> {
        self.reload().await?;
        let known = self.known();
        let entry = live_namespace(&known.roster, name)?;
        let scopes: Vec<Scope> = slot_names(&known.roster, name).chain([name.clone()]).map(Scope::Namespace).collect();
        let rows = self.continuity.db().read("scopes", move |tx| {
            let scopes = scopes.clone();
            Box::pin(async move {
                let mut rows = Vec::new();
                for scope in &scopes {
                    rows.extend(shared::scope(tx, scope).await?);
                }
                Ok::<_, LedgerError>(rows)
            })
        });
        let bounds = bounds_of(&rows.await?);
        Ok(namespace_view(&known.roster, name, entry, |name| bounds.get(name).copied().unwrap_or(0)))
    }

    /// All namespaces that are not deleted.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn namespaces(&self) -> Result<Vec<NamespaceView>, ServiceError> {
        self.reload().await?;
        let rows = self
            .continuity
            .db()
            .read("scopes", |tx| Box::pin(async move { Ok::<_, LedgerError>(shared::scopes(tx).await?) }))
            .await?;
        let known = self.known();
        let bounds = bounds_of(&rows);
        let watermark = |name: &Name| bounds.get(name).copied().unwrap_or(0);
        let live = known.roster.namespaces().filter(|(_, entry)| !entry.deleted && entry.is_public());
        Ok(live.map(|(name, entry)| namespace_view(&known.roster, name, entry, watermark)).collect())
    }

    /// Defines a service.
    ///
    /// # Errors
    /// `already_exists`, `invalid_request`, or those of the store.
    pub async fn new_service(&self, who: &str, new: NewService) -> Result<ServiceView, ServiceError> {
        self.change(who, "service", move |roster| {
            if roster.get(Kind::Service, &new.name).is_some() {
                return Err(problem(Code::AlreadyExists, format!("there is a service {} already", new.name)));
            }
            check_service(roster, &new.namespaces, &new.limits)?;
            let entry = ServiceEntry { namespaces: new.namespaces.clone(), limits: new.limits, tokens: vec![] };
            let view = service_view(&new.name, &entry);
            Ok((vec![service_change(&new.name, entry)], view))
        })
        .await
    }

    /// Changes a service.
    ///
    /// # Errors
    /// `not_found`, `invalid_request`, or those of the store.
    pub async fn patch_service(
        &self,
        who: &str,
        name: &Name,
        patch: ServicePatch,
    ) -> Result<ServiceView, ServiceError> {
        let name = name.clone();
        self.change(who, "service_patch", move |roster| {
            let mut entry = live_service(roster, &name)?;
            entry.namespaces = patch.namespaces.clone().unwrap_or(entry.namespaces);
            entry.limits = patch.limits_over(entry.limits).map_err(|e| invalid(format!("limits: {e}")))?;
            check_service(roster, &entry.namespaces, &entry.limits)?;
            let view = service_view(&name, &entry);
            Ok((vec![service_change(&name, entry)], view))
        })
        .await
    }

    /// All services.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn services(&self) -> Result<Vec<ServiceView>, ServiceError> {
        self.reload().await?;
        let known = self.known();
        let views = known.roster.services().map(|(name, service)| service_view(name, service));
        Ok(views.collect())
    }

    /// A fresh token of a service.
    ///
    /// # Errors
    /// `not_found`, or those of the store.
    pub async fn new_service_token(&self, who: &str, name: &Name) -> Result<NewToken, ServiceError> {
        let (secret, token) = self.new_token(Prefix::Service);
        let (name, token_id) = (name.clone(), token.token_id.clone());
        self.change(who, "service_token", move |roster| {
            let mut entry = live_service(roster, &name)?;
            entry.tokens.push(token.clone());
            Ok((vec![service_change(&name, entry)], ()))
        })
        .await?;
        Ok(NewToken { token_id, token: secret })
    }

    /// Defines an operator or viewer.
    ///
    /// # Errors
    /// `already_exists`, or those of the store.
    pub async fn new_operator(&self, who: &str, new: NewOperator) -> Result<OperatorView, ServiceError> {
        self.change(who, "operator", move |roster| {
            if roster.get(Kind::Operator, &new.name).is_some() {
                return Err(problem(Code::AlreadyExists, format!("there is an operator {} already", new.name)));
            }
            let entry = OperatorEntry { viewer: new.role == OperatorRole::Viewer, tokens: vec![] };
            let view = OperatorView { name: new.name.clone(), role: new.role, tokens: vec![] };
            let change = Change { name: new.name.clone(), body: Body::Operator(entry), effect: Effect::None };
            Ok((vec![change], view))
        })
        .await
    }

    /// All operators and viewers.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn operators(&self) -> Result<Vec<OperatorView>, ServiceError> {
        self.reload().await?;
        let known = self.known();
        let views = known.roster.entries().filter_map(|e| match &e.body {
            Body::Operator(operator) => Some(OperatorView {
                name: e.name.clone(),
                role: if operator.viewer { OperatorRole::Viewer } else { OperatorRole::Operator },
                tokens: token_views(&operator.tokens),
            }),
            Body::Region(_) | Body::Namespace(_) | Body::Service(_) => None,
        });
        Ok(views.collect())
    }

    /// Whether a service may know about a namespace.
    #[must_use]
    pub fn admits(&self, service: &Name, namespace: &Name) -> bool {
        match self.known().roster.get(Kind::Service, service).map(|e| &e.body) {
            Some(Body::Service(entry)) => entry.namespaces.contains(namespace),
            _ => false,
        }
    }

    /// A fresh token of an operator or viewer.
    ///
    /// # Errors
    /// `not_found`, or those of the store.
    pub async fn new_operator_token(&self, who: &str, name: &Name) -> Result<NewToken, ServiceError> {
        let viewer = match self.known().roster.get(Kind::Operator, name).map(|e| &e.body) {
            Some(Body::Operator(entry)) => entry.viewer,
            _ => return Err(problem(Code::NotFound, format!("there is no operator {name}"))),
        };
        let (secret, token) = self.new_token(if viewer { Prefix::Viewer } else { Prefix::Operator });
        let (name, token_id) = (name.clone(), token.token_id.clone());
        self.change(who, "operator_token", move |roster| {
            let Some(Body::Operator(mut entry)) = roster.get(Kind::Operator, &name).map(|e| e.body.clone()) else {
                return Err(problem(Code::NotFound, format!("there is no operator {name}")));
            };
            entry.tokens.push(token.clone());
            Ok((vec![Change { name: name.clone(), body: Body::Operator(entry), effect: Effect::None }], ()))
        })
        .await?;
        Ok(NewToken { token_id, token: secret })
    }
}

fn defined(new: &NewNamespace, roster: &Roster, now_ms: u64) -> Result<NamespaceEntry, ServiceError> {
    if new.name.is_of_slot() {
        return Err(invalid("name: @ and a number are kept for the slots of time-based namespaces"));
    }
    if new.layout.is_some() && new.kind != NamespaceKind::Snowflake {
        return Err(invalid(format!("layout: only a namespace of kind snowflake has one, not {}", new.kind.as_str())));
    }
    if new.sequence.is_some() && new.kind != NamespaceKind::Range {
        return Err(invalid(format!("sequence: only a namespace of kind range has one, not {}", new.kind.as_str())));
    }
    let sequence = new.sequence.unwrap_or_default();
    let policy = new.policy.apply(Policy::default().fitting(sequence.capacity()));
    policy.check().map_err(invalid)?;
    let mut entry = match new.kind {
        NamespaceKind::Range => NamespaceEntry::new(sequence, policy),
        NamespaceKind::UuidV7 => NamespaceEntry::uuid_v7(policy),
        NamespaceKind::Slot => return Err(invalid("kind: range, snowflake or uuid_v7")),
        NamespaceKind::Snowflake => {
            let layout = new.layout.unwrap_or_default();
            check_layout(&layout, roster, now_ms)?;
            NamespaceEntry::snowflake(layout, policy).map_err(invalid)?
        }
    };
    entry.readers.clone_from(&new.readers);
    check_readers(&entry)?;
    Ok(entry)
}

/// Whether a layout suits what is there.
fn check_layout(layout: &Layout, roster: &Roster, now_ms: u64) -> Result<(), ServiceError> {
    if layout.unit_of(now_ms).is_none() {
        return Err(invalid("layout.epoch_ms: lies in the future; nothing could be stamped before it"));
    }
    if layout.ends_ms() <= now_ms {
        return Err(invalid(
            "layout.timestamp: has ended already; take a later epoch_ms, more bits, or a longer unit_ms",
        ));
    }
    let living = roster.regions().filter(|(_, r)| r.state != RegionState::Retired).count();
    if u32::try_from(living).is_ok_and(|n| n > layout.slots()) {
        let text = format!("layout.region: {living} regions exist, and there are {} slots", layout.slots());
        return Err(invalid(text));
    }
    Ok(())
}

/// Nobody may be given what they cannot read.
fn check_readers(entry: &NamespaceEntry) -> Result<(), ServiceError> {
    match entry.overwhelmed() {
        None => Ok(()),
        Some(reader) => Err(invalid(format!(
            "readers: {} takes values up to {}, and this namespace could give out {}; narrow its definition or layout, \
             or mend the reader first",
            reader.name,
            reader.up_to,
            entry.largest_value()
        ))),
    }
}

/// A deleted namespace goes on with its own definition: another one could repeat what it gave out.
fn revived(held: &NamespaceEntry, new: &NewNamespace) -> Result<NamespaceEntry, ServiceError> {
    let mut entry = held.clone();
    if held.kind != new.kind || new.layout.is_some_and(|layout| held.layout != Some(layout)) {
        return Err(problem(
            Code::NotAllowed,
            format!("this namespace was deleted and goes on as it was: kind {}, with its layout", held.kind.as_str()),
        ));
    }
    if new.sequence.is_some_and(|s| entry.definition.current().sequence() != s) {
        return Err(problem(
            Code::NotAllowed,
            "this namespace was deleted and goes on at its watermark with its own definition: create it without a \
             sequence, then give it a new definition version with PATCH",
        ));
    }
    entry.policy = new.policy.apply(entry.policy);
    entry.policy.check().map_err(invalid)?;
    entry.deleted = false;
    Ok(entry)
}

fn check_service(roster: &Roster, namespaces: &[Name], limits: &Limits) -> Result<(), ServiceError> {
    if let Some(unknown) = namespaces.iter().find(|n| live_namespace(roster, n).is_err()) {
        return Err(invalid(format!("namespaces: there is no namespace {unknown}; create it first")));
    }
    if limits.batch == 0 || u64::from(limits.batch) > MAX_LIST {
        return Err(invalid(format!("limits.batch must be 1 to {MAX_LIST}")));
    }
    let zero = |limit: Option<u32>| limit == Some(0);
    if [limits.ids_per_second, limits.in_flight, limits.holders].into_iter().any(zero) || limits.held_ids == Some(0) {
        return Err(invalid("limits: 0 lets nothing through; leave a limit out to have none, or revoke the tokens"));
    }
    Ok(())
}

fn unknown(name: &Name) -> ServiceError {
    problem(Code::UnknownNamespace, format!("there is no namespace {name}"))
}

pub(super) fn live_namespace<'a>(roster: &'a Roster, name: &Name) -> Result<&'a NamespaceEntry, ServiceError> {
    roster.namespace(name).filter(|e| !e.deleted && e.is_public()).ok_or_else(|| unknown(name))
}

fn live_service(roster: &Roster, name: &Name) -> Result<ServiceEntry, ServiceError> {
    match roster.get(Kind::Service, name).map(|e| e.body.clone()) {
        Some(Body::Service(entry)) => Ok(entry),
        _ => Err(problem(Code::NotFound, format!("there is no service {name}"))),
    }
}

fn service_change(name: &Name, entry: ServiceEntry) -> Change {
    Change { name: name.clone(), body: Body::Service(entry), effect: Effect::None }
}

pub(super) fn token_views(tokens: &[TokenEntry]) -> Vec<TokenView> {
    let view = |t: &TokenEntry| TokenView {
        token_id: t.token_id.clone(),
        made_at: t.made_at_ms,
        revoked: t.revoked_at_ms.is_some(),
    };
    tokens.iter().map(view).collect()
}

fn service_view(name: &Name, entry: &ServiceEntry) -> ServiceView {
    ServiceView {
        name: name.clone(),
        namespaces: entry.namespaces.clone(),
        limits: entry.limits,
        tokens: token_views(&entry.tokens),
    }
}

/// The watermark of every namespace that has one.
pub(super) fn bounds_of(rows: &[ScopeRow]) -> BTreeMap<Name, u64> {
    let bound = |r: &ScopeRow| match &r.scope {
        Scope::Namespace(name) => Some((name.clone(), r.view.mark.bound)),
        Scope::Roster | Scope::Region => None,
    };
    rows.iter().filter_map(bound).collect()
}

fn namespace_view(roster: &Roster, name: &Name, entry: &NamespaceEntry, bound: impl Fn(&Name) -> u64) -> NamespaceView {
    let slots = slot_views(roster, name, &bound);
    let lines = slots.iter().map(|s| bound(&name.of_slot(s.slot)));
    let watermark = lines.max().unwrap_or_else(|| bound(name));
    NamespaceView {
        name: name.clone(),
        kind: entry.kind,
        sequence: entry.definition.current().sequence(),
        definition: entry.definition.clone(),
        policy: entry.policy,
        frozen: entry.frozen,
        watermark,
        space_left: entry.definition.capacity().saturating_sub(watermark),
        home: entry.home.clone(),
        leaving: entry.leaving.clone(),
        arriving: entry.arriving.clone(),
        layout: entry.layout,
        readers: entry.readers.clone(),
        slots,
    }
}
