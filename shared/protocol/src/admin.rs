//! What operators, the CLI and the dashboard send to the authority and get from it.

mod dashboard;
mod namespaces;

use std::collections::BTreeMap;

use cadastre_core::decimal;
use cadastre_core::ids::{AllocationId, Epoch, GrantId, Name, RegionId};
use cadastre_core::invariant::Finding;
use cadastre_core::knows::Knows;
use cadastre_core::mark::Generation;
use cadastre_core::namespace::NamespaceKind;
use cadastre_core::registry::RegionState;
use cadastre_core::roster::Limits;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use dashboard::*;
pub use namespaces::*;

/// A body that has only a name.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// The name.
    #[schema(value_type = String)]
    pub name: Name,
}

/// `POST /v1/regions` answers with the token, once.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct NewRegion {
    /// Its name.
    #[schema(value_type = String)]
    pub name: Name,
    /// Its number.
    #[schema(value_type = u32)]
    pub region_id: RegionId,
    /// Its epoch.
    #[schema(value_type = u64)]
    pub epoch: Epoch,
    /// The agent's token. Shown once.
    pub token: String,
}

/// A region as the authority shows it.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct RegionView {
    /// Its name.
    #[schema(value_type = String)]
    pub name: Name,
    /// Its number.
    #[schema(value_type = u32)]
    pub region_id: RegionId,
    /// Its epoch.
    #[schema(value_type = u64)]
    pub epoch: Epoch,
    /// Its state.
    #[schema(value_type = String)]
    pub state: RegionState,
    /// Live sessions of its agents.
    pub agents: Vec<AgentView>,
    /// Seconds since the last message.
    pub last_heard_seconds: Option<u64>,
    /// Why it gets no grant, where it gets none.
    pub waiting_for: Option<String>,
    /// Its tokens.
    #[serde(default)]
    pub tokens: Vec<TokenView>,
    /// Agents and processes that read less than there is: nothing is defined, and no region added, that they could not
    /// follow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read_less: Vec<KnowerView>,
}

/// An agent, or a process of a service, that reads less than there is.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct KnowerView {
    /// The namespace that a process asked for; an agent has none.
    pub namespace: Option<String>,
    /// The service that it is of; an agent has none.
    pub service: Option<String>,
    /// A process as it names itself; an agent by its incarnation, or by its store where that is its own.
    pub instance: String,
    /// Its software.
    pub version: String,
    /// What it reads: `largest`, `kinds`, `layouts`.
    #[schema(value_type = Object)]
    pub knows: Knows,
    /// Seconds since it was last heard of.
    pub last_heard_seconds: u64,
}

/// One agent of a region.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct AgentView {
    /// Its incarnation.
    pub incarnation: String,
    /// Where it is reached.
    pub url: Option<String>,
    /// Its version.
    pub version: String,
    /// Seconds since its last message.
    pub last_heard_seconds: u64,
    /// Its clock minus the authority's, in milliseconds.
    pub clock_offset_ms: i64,
}

/// What a region's change of state takes.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegionAction {
    /// Why, for the audit.
    #[serde(default)]
    pub reason: Option<String>,
    /// With `recover`: the region may come back with a new store.
    #[serde(default)]
    pub new_store: bool,
}

/// `POST /v1/services`.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewService {
    /// Its name.
    #[schema(value_type = String)]
    pub name: Name,
    /// The namespaces it may ask for.
    #[schema(value_type = Vec<String>)]
    pub namespaces: Vec<Name>,
    /// Its limits.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub limits: Limits,
}

/// `PATCH /v1/services/{name}`; absent fields stay.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServicePatch {
    /// The namespaces it may ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    pub namespaces: Option<Vec<Name>>,
    /// Limits to change; those that are not named stay, and `null` takes one away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub limits: Option<serde_json::Map<String, serde_json::Value>>,
}

impl ServicePatch {
    /// The limits as they are from now on.
    ///
    /// # Errors
    /// Where there is no such limit, or a value cannot be one.
    pub fn limits_over(&self, held: Limits) -> Result<Limits, serde_json::Error> {
        let Some(changes) = &self.limits else { return Ok(held) };
        let mut all = serde_json::to_value(held)?;
        if let Some(all) = all.as_object_mut() {
            // What one takes away has its default.
            all.extend(changes.clone());
            all.retain(|_, value| !value.is_null());
        }
        serde_json::from_value(all)
    }
}

/// A service as the authority shows it.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct ServiceView {
    /// Its name.
    #[schema(value_type = String)]
    pub name: Name,
    /// The namespaces it may ask for.
    #[schema(value_type = Vec<String>)]
    pub namespaces: Vec<Name>,
    /// Its limits.
    #[schema(value_type = Object)]
    pub limits: Limits,
    /// Its tokens, without the secrets.
    pub tokens: Vec<TokenView>,
}

/// `POST /v1/operators`.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewOperator {
    /// Its name.
    #[schema(value_type = String)]
    pub name: Name,
    /// `operator` or `viewer`.
    pub role: OperatorRole,
}

/// What an operator may do.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperatorRole {
    /// Everything.
    Operator,
    /// Read.
    Viewer,
}

/// An operator as the authority shows it.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct OperatorView {
    /// Its name.
    #[schema(value_type = String)]
    pub name: Name,
    /// What it may do.
    pub role: OperatorRole,
    /// Its tokens, without the secrets.
    pub tokens: Vec<TokenView>,
}

/// A token without its secret.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct TokenView {
    /// Names it.
    pub token_id: String,
    /// When it was made, milliseconds since the Unix epoch.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub made_at: u64,
    /// Whether it was revoked.
    pub revoked: bool,
}

/// A body that has no fields.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// A fresh token. Shown once.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct NewToken {
    /// Names it.
    pub token_id: String,
    /// The secret.
    pub token: String,
}

/// `GET /v1/grants`.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct GrantsPage {
    /// In order of their place on the number line.
    pub grants: Vec<GrantView>,
    /// Pass as `after` to go on; null at the end.
    pub next: Option<String>,
}

/// One row of the ledger.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct GrantView {
    /// The grant.
    #[schema(value_type = String)]
    pub grant_id: GrantId,
    /// In which namespace.
    #[schema(value_type = String)]
    pub namespace: Name,
    /// The request.
    #[schema(value_type = String)]
    pub allocation_id: AllocationId,
    /// First ordinal.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub lo: u64,
    /// End, exclusive.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub hi: u64,
    /// To whom.
    #[schema(value_type = String)]
    pub region: Name,
    /// Under which epoch.
    #[schema(value_type = u64)]
    pub epoch: Epoch,
    /// When, milliseconds since the Unix epoch.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub at: u64,
    /// Whether the region said that it adopted it.
    pub confirmed: bool,
}

/// `GET /v1/headroom`.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct Headroom {
    /// By name.
    pub namespaces: Vec<NamespaceHeadroom>,
}

/// What is left of one namespace.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct NamespaceHeadroom {
    /// Its name.
    #[schema(value_type = String)]
    pub name: Name,
    /// Its kind.
    #[schema(value_type = String)]
    pub kind: NamespaceKind,
    /// Everything below was granted (an ordinal); of a time-based namespace 0.
    #[serde(default, with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub watermark: u64,
    /// Ordinals that can still be granted.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub space_left: u64,
    /// When the whole space ends at the present rate, milliseconds since the Unix epoch; null at rate 0.
    #[serde(with = "decimal::optional")]
    #[schema(value_type = Option<String>)]
    pub space_ends_at: Option<u64>,
    /// Ordinals that will never be issued: gaps.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub burned: u64,
    /// Ordinals that were probably issued.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub issued_estimate: u64,
    /// By region.
    pub regions: Vec<RegionHeadroom>,
}

/// What one region holds of a namespace.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct RegionHeadroom {
    /// The region.
    #[schema(value_type = String)]
    pub region: Name,
    /// Ordinals granted to it, ever.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub granted: u64,
    /// Ordinals that it carved, ever.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub carved: u64,
    /// Ordinals that it can still carve, as of its last message.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub left: u64,
    /// IDs a second.
    pub rate_per_second: f64,
    /// How long `left` lasts at that rate; null at rate 0.
    pub runway_seconds: Option<u64>,
    /// How long `left` lasts at the day's peak; null at rate 0.
    pub runway_at_peak_seconds: Option<u64>,
    /// The region's state.
    #[schema(value_type = String)]
    pub state: RegionState,
    /// Its epoch.
    #[schema(value_type = u64)]
    pub epoch: Epoch,
    /// Seconds since the region's last message; null when it never spoke.
    pub heard_seconds: Option<u64>,
    /// Of a `snowflake` namespace: for how many hours the region may stamp without the authority; negative once its
    /// time has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_hours: Option<f64>,
    /// Set where the namespace's home is elsewhere: nobody is served here, so nothing runs dry, and runways are null.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_home: bool,
}

/// `POST /v1/audit/verify`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct Verdict {
    /// Whether nothing was found.
    pub ok: bool,
    /// How many rows were looked at.
    pub checked: Checked,
    /// What is wrong.
    #[schema(value_type = Vec<Object>)]
    pub findings: Vec<Finding>,
    /// Regions whose segments could not be read just now.
    #[serde(default)]
    pub unreachable: Vec<String>,
}

/// Rows that were looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
pub struct Checked {
    /// Grants.
    pub grants: u64,
    /// Segments.
    pub segments: u64,
    /// Time windows.
    pub windows: u64,
}

/// `GET /v1/quarantines`.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct Quarantines {
    /// What is known of the store's past: `initialised`, `witnessed`, `testified`, `stated`, `unproven`, `went_back`.
    pub continuity: String,
    /// How the store's witness is.
    #[serde(default)]
    pub witness: crate::ids::WitnessStatus,
    /// Which server the store is on: system, timeline, start; empty where that is not watched.
    #[serde(default)]
    pub server: String,
    /// What is wrong with how the store is set up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub store_findings: Vec<crate::ids::StoreFinding>,
    /// Scopes that give nothing out.
    pub quarantines: Vec<QuarantineView>,
}

/// One scope in quarantine.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct QuarantineView {
    /// `roster` or `ns/NAME`.
    pub scope: String,
    /// `suspect` or `back`.
    pub state: String,
    /// Why.
    pub reason: String,
    /// Since when, milliseconds since the Unix epoch.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub since: u64,
    /// For which generation testimony is awaited.
    #[schema(value_type = Object)]
    pub generation: Generation,
    /// Regions that have not testified yet.
    pub waiting_for: Vec<String>,
}

/// `POST /v1/quarantines/{namespace}/lift`.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Lift {
    /// For each silent region, an ordinal below which everything it ever held lies.
    #[serde(with = "crate::link::bounds")]
    #[schema(value_type = Object)]
    pub bounds: BTreeMap<Name, u64>,
    /// That the old store and its authorities are stopped. Nothing but you can know it.
    pub old_store_stopped: bool,
    /// Why, for the audit.
    pub reason: String,
}
