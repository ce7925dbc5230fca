//! What the dashboard is made of: aggregates first, details by page.

use cadastre_core::decimal;
use cadastre_core::ids::{Epoch, GrantId, Name};
use cadastre_core::namespace::NamespaceKind;
use cadastre_core::outlook::{Level, Trend, Why};
use cadastre_core::registry::RegionState;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::OperatorRole;
use crate::error::Problem;
use crate::ids::Status;

/// `GET /v1/overview`: is anything wrong, and which region runs dry first, when.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct Overview {
    /// When it was looked, milliseconds since the Unix epoch.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub at: u64,
    /// The worst of all: `ok`, `watch`, `act`.
    #[schema(value_type = String)]
    pub level: Level,
    /// What is wrong, worst first; at most 100.
    pub findings: Vec<Trouble>,
    /// How many there are.
    pub findings_total: u64,
    /// Cut off now, this one would run dry first; null while nothing is issued.
    pub first_dry: Option<FirstDry>,
    /// Namespaces by their level.
    pub namespaces: Levels,
    /// Every region.
    pub regions: Vec<RegionOutlook>,
    /// Whether the authority gives nothing out.
    pub quarantined: bool,
    /// What is known of the store's past.
    pub continuity: String,
}

/// One thing that is wrong.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct Trouble {
    /// How bad.
    #[schema(value_type = String)]
    pub level: Level,
    /// `quarantine`, `region_silent`, `region_fenced`, `space_ends`, or why a region's part is not well.
    pub kind: String,
    /// The region, where it is one's.
    #[schema(value_type = Option<String>)]
    pub region: Option<Name>,
    /// The namespace, where it is one's.
    #[schema(value_type = Option<String>)]
    pub namespace: Option<Name>,
    /// How long until it happens, where that is known.
    pub seconds: Option<u64>,
    /// For people; it may change.
    pub text: String,
}

/// Who runs dry first.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct FirstDry {
    /// The region.
    #[schema(value_type = String)]
    pub region: Name,
    /// In this namespace.
    #[schema(value_type = String)]
    pub namespace: Name,
    /// So long, at the rate seen.
    pub seconds: u64,
}

/// How many are how well.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Levels {
    /// Well.
    pub ok: u64,
    /// To be looked at.
    pub watch: u64,
    /// To be acted upon.
    pub act: u64,
}

impl Levels {
    /// One more.
    pub fn count(&mut self, level: Level) {
        match level {
            Level::Ok => self.ok += 1,
            Level::Watch => self.watch += 1,
            Level::Act => self.act += 1,
        }
    }
}

/// One region over all namespaces.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct RegionOutlook {
    /// Its name.
    #[schema(value_type = String)]
    pub region: Name,
    /// The worst of its namespaces, and of itself.
    #[schema(value_type = String)]
    pub level: Level,
    /// Its state.
    #[schema(value_type = String)]
    pub state: RegionState,
    /// Its epoch.
    #[schema(value_type = u64)]
    pub epoch: Epoch,
    /// Live agents.
    pub agents: u64,
    /// Seconds since its last message; null when it never spoke.
    pub heard_seconds: Option<u64>,
    /// The clock that is farthest from the authority's: its difference, in milliseconds.
    pub clock_offset_ms: Option<i64>,
    /// IDs a second over all namespaces.
    pub rate_per_second: f64,
    /// Its namespaces by level.
    pub namespaces: Levels,
    /// Of these it runs dry first.
    pub first_dry: Option<FirstDry>,
    /// Why it gets no grant, where it gets none.
    pub waiting_for: Option<String>,
}

/// `GET /v1/overview/namespaces`: a page of the matrix of namespaces and regions.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct NamespacesPage {
    /// How many there are that match.
    pub total: u64,
    /// The page, in the order that was asked for.
    pub namespaces: Vec<NamespaceOutlook>,
}

/// One row of the matrix.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct NamespaceOutlook {
    /// Its name.
    #[schema(value_type = String)]
    pub name: Name,
    /// Its kind.
    #[schema(value_type = String)]
    pub kind: NamespaceKind,
    /// The worst of its regions and of its space.
    #[schema(value_type = String)]
    pub level: Level,
    /// Of its space alone.
    #[schema(value_type = String)]
    pub space_level: Level,
    /// Ordinals that can still be granted.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub space_left: u64,
    /// When the whole space ends, milliseconds since the Unix epoch; null at rate 0.
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
    /// IDs a second, all regions.
    pub rate_per_second: f64,
    /// Which region runs dry first.
    pub first_dry: Option<FirstDry>,
    /// By region.
    pub regions: Vec<Cell>,
}

/// One cell of the matrix.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct Cell {
    /// The region.
    #[schema(value_type = String)]
    pub region: Name,
    /// How well.
    #[schema(value_type = String)]
    pub level: Level,
    /// Why not.
    #[schema(value_type = Option<String>)]
    pub why: Option<Why>,
    /// How long it lasts by now, at the rate seen; null at rate 0.
    pub runway_seconds: Option<u64>,
    /// The same at the day's peak.
    pub runway_at_peak_seconds: Option<u64>,
    /// Over the last minutes; null where too little was seen.
    #[schema(value_type = Option<String>)]
    pub trend: Option<Trend>,
}

/// `GET /v1/namespaces/{name}/history`: what the authority saw lately, oldest first. Kept in memory only.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct History {
    /// Seconds between two samples.
    pub every_seconds: u64,
    /// By region: runway in seconds at the rate seen; null at rate 0.
    #[schema(value_type = Object)]
    pub regions: std::collections::BTreeMap<Name, Vec<Option<u64>>>,
}

/// `GET /v1/namespaces/{name}/line`: who holds what of the number line.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct NumberLine {
    /// Which.
    #[schema(value_type = String)]
    pub namespace: Name,
    /// First ordinal that is shown.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub lo: u64,
    /// End, exclusive.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub hi: u64,
    /// Everything below was granted.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub watermark: u64,
    /// Ordinals that the definition has.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub capacity: u64,
    /// Whether every grant is shown; else each stretch shows who holds its beginning.
    pub complete: bool,
    /// In order of place; what lies between two of them is nobody's.
    pub stretches: Vec<Stretch>,
}

/// A part of the number line.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct Stretch {
    /// First ordinal.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub lo: u64,
    /// End, exclusive.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub hi: u64,
    /// Who was granted it.
    #[schema(value_type = String)]
    pub region: Name,
    /// Under which epoch.
    #[schema(value_type = u64)]
    pub epoch: Epoch,
    /// Whether that epoch still issues.
    pub live: bool,
    /// The grant, where the stretch is one; null where it is several.
    #[schema(value_type = Option<String>)]
    pub grant_id: Option<GrantId>,
}

/// `GET /v1/regions/{name}/agents`: each live agent's own word.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct AgentsView {
    /// One per live agent.
    pub agents: Vec<AgentWord>,
}

/// What one agent says, or why it could not be asked.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct AgentWord {
    /// The agent.
    pub incarnation: String,
    /// Where it was asked.
    pub url: Option<String>,
    /// Its word.
    pub status: Option<Status>,
    /// Why there is none.
    #[schema(value_type = Option<Object>)]
    pub problem: Option<Problem>,
}

/// `GET /v1/audit`: who did what, newest first.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct AuditPage {
    /// The entries.
    pub entries: Vec<AuditEntry>,
    /// Pass as `before` to go on; null at the end.
    pub next: Option<String>,
}

/// One thing that was done.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct AuditEntry {
    /// Names it.
    pub id: String,
    /// When, milliseconds since the Unix epoch.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub at: u64,
    /// Who: `operator ada`, `authority`, `agent`.
    pub who: String,
    /// What: `fence`, `namespace`, `quarantine_lifted` ...
    pub what: String,
    /// To what, and why.
    pub detail: String,
}

/// `GET /v1/whoami`.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct WhoAmI {
    /// The token's holder.
    #[schema(value_type = String)]
    pub name: Name,
    /// What it may do.
    pub role: OperatorRole,
}
