//! What callers of an agent send and get.

use cadastre_core::ids::{AllocationId, Epoch, GrantId, Incarnation, Name, SegmentId};
use cadastre_core::knows::Knows;
use cadastre_core::layout::Layout;
use cadastre_core::quota::Tenant;
use cadastre_core::store_findings::{Finding, Severity};
use cadastre_core::{decimal, registry::RegionState};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// `POST /v1/ids`. There is no idempotency key: a lost answer is a gap, and a retry gets other ids.
/// What must happen once is the caller's row, inserted under the caller's own key.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IdsRequest {
    /// In which namespace.
    #[schema(value_type = String)]
    pub namespace: Name,
    /// How many; absent gives one id as `id`. At most 10,000 as a list, 10,000,000 as ranges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// `ranges` answers with ranges instead of a list.
    #[serde(default, rename = "as", skip_serializing_if = "Option::is_none")]
    pub shape: Option<Shape>,
    /// For whom the service asks: a name of at most 64 characters. Where the service has a limit of ids a second, its
    /// tenants share it. Nothing else depends on it, and it is not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub tenant: Option<Tenant>,
}

/// How many ids are written.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// One string per id.
    List,
    /// First, last and increment per stretch.
    Ranges,
}

/// The answer to [`IdsRequest`]: one of the three fields.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
pub struct IdsAnswer {
    /// One id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Many ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<String>>,
    /// Many ids as ranges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranges: Option<Vec<ValueRange>>,
}

/// A stretch of values: `first`, `first + increment`, ... `last`.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq, ToSchema)]
pub struct ValueRange {
    /// The first value.
    pub first: String,
    /// The last value, included.
    pub last: String,
    /// The step.
    pub increment: String,
}

/// `POST /v1/segments`: a range for a process that issues by itself.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SegmentRequest {
    /// In which namespace.
    #[schema(value_type = String)]
    pub namespace: Name,
    /// A UUIDv7, fresh per segment and kept over retries.
    #[schema(value_type = String)]
    pub allocation_id: AllocationId,
    /// A name for people; nothing is derived from it.
    #[schema(value_type = String)]
    pub instance: Name,
    /// A random UUID per process start.
    #[schema(value_type = String)]
    pub incarnation: Incarnation,
    /// How many ordinals, at most; the answer may be shorter.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub want: u64,
    /// No ordinal of the segment may lie below: the end of what this process was given before, also by another
    /// region, so that its IDs go on rising. Not a part of the order: a retry may name a higher one.
    #[serde(default, with = "decimal::optional", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub above: Option<u64>,
    /// The token of the last answer of this incarnation; absent in its first request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
    /// What asks; without it, software of the first version, which reads everything that there was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
}

/// The software of a process that issues by itself.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Its version; the first 64 characters are kept.
    pub version: String,
    /// What it can read: `largest` (a decimal string), `kinds`, `layouts`. It is given nothing that it cannot.
    #[schema(value_type = Object)]
    pub knows: Knows,
}

impl Program {
    /// What is kept of it, and bounded.
    #[must_use]
    pub fn here(&self) -> Self {
        Self { version: self.version.chars().take(64).collect(), knows: self.knows.here() }
    }
}

/// A segment.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct SegmentAnswer {
    /// The segment; a process installs it at most once.
    #[schema(value_type = String)]
    pub segment_id: SegmentId,
    /// The grant that it was carved from.
    #[schema(value_type = String)]
    pub grant_id: GrantId,
    /// First ordinal.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub lo: u64,
    /// End, exclusive.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub hi: u64,
    /// First value.
    #[serde(with = "decimal::signed")]
    #[schema(value_type = String)]
    pub first: i64,
    /// Last value, included.
    #[serde(with = "decimal::signed")]
    #[schema(value_type = String)]
    pub last: i64,
    /// The step from one value to the next.
    #[serde(with = "decimal::signed")]
    #[schema(value_type = String)]
    pub increment: i64,
    /// The region that carved it.
    #[schema(value_type = String)]
    pub region: Name,
    /// Its epoch.
    #[schema(value_type = u64)]
    pub epoch: Epoch,
    /// Until when a retry with the same allocation id gets this same answer, milliseconds since the Unix epoch.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub retry_until: u64,
    /// The rate that the region reckons with for this instance.
    pub suggested_rate_per_second: f64,
    /// To be presented with the next request.
    pub chain: String,
    /// Whether an earlier answer was lost and this is the same segment once more.
    pub replayed: bool,
}

/// `POST /v1/segments/{segment_id}/return` (gap-sensitive namespaces).
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReturnRequest {
    /// The process that held it.
    #[schema(value_type = String)]
    pub incarnation: Incarnation,
    /// The first ordinal that was not issued.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub next: u64,
}

/// `GET /v1/origins/{namespace}/{id}`: who was given a number. It never says that an object exists.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct Origin {
    /// The namespace.
    #[schema(value_type = String)]
    pub namespace: Name,
    /// The id, as asked.
    pub id: String,
    /// The region that it was granted to.
    #[schema(value_type = String)]
    pub region: Name,
    /// Under which epoch.
    #[schema(value_type = u64)]
    pub epoch: Epoch,
    /// The grant.
    pub grant: OriginRange,
    /// The segment, where the region could be asked and the number was carved.
    pub segment: Option<OriginRange>,
    /// The service whose call or block it came from, where the region knows it.
    pub service: Option<String>,
    /// The instance that held the segment.
    pub instance: Option<String>,
    /// Its incarnation.
    #[schema(value_type = Option<String>)]
    pub incarnation: Option<Incarnation>,
    /// When the segment (or else the grant) was given, milliseconds since the Unix epoch.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub at: u64,
    /// The region could not be asked: only the grant is known.
    pub partial: bool,
    /// What a time-based id says about itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decoded: Option<Decoded>,
}

/// The fields of a time-based id.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq, ToSchema)]
pub struct Decoded {
    /// When its unit of time began, milliseconds since the Unix epoch.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub stamped_at: u64,
    /// The region field: a slot, whose region the ledger names.
    pub slot: u32,
    /// The worker field.
    pub worker: u32,
    /// Its place among the worker's ids of that unit.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub sequence: u64,
}

impl Decoded {
    /// The fields of an id; `None` where no id of the layout looks so.
    #[must_use]
    pub fn of(layout: &Layout, id: i64) -> Option<Self> {
        let parts = layout.parts(id)?;
        let stamped_at = layout.begins_ms(parts.unit);
        Some(Self { stamped_at, slot: parts.slot, worker: parts.worker, sequence: parts.sequence })
    }
}

/// A range in an [`Origin`].
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq, ToSchema)]
pub struct OriginRange {
    /// The grant or segment.
    #[schema(value_type = String)]
    pub id: Uuid,
    /// First ordinal.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub lo: u64,
    /// End, exclusive.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub hi: u64,
    /// When it was given, milliseconds since the Unix epoch.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub at: u64,
}

/// `GET /v1/status` of an agent.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct Status {
    /// The region.
    #[schema(value_type = String)]
    pub region: Name,
    /// Its epoch; absent before the first answer of the authority.
    #[schema(value_type = Option<u64>)]
    pub epoch: Option<Epoch>,
    /// Its state.
    #[schema(value_type = Option<String>)]
    pub state: Option<RegionState>,
    /// This process.
    #[schema(value_type = String)]
    pub incarnation: Incarnation,
    /// How the way to the authority is.
    pub uplink: UplinkStatus,
    /// How the region's store is.
    pub store: StoreStatus,
    /// What is known of the store's past: `witnessed`, `confirmed`, `unproven`, `went_back`.
    pub continuity: String,
    /// How the store's witness is.
    #[serde(default)]
    pub witness: WitnessStatus,
    /// Whether the authority said that it is in quarantine.
    pub quarantined: bool,
    /// The agent's clock minus the authority's, in milliseconds, from the last answer.
    pub clock_offset_ms: Option<i64>,
    /// Per namespace.
    pub namespaces: Vec<NamespaceStatus>,
}

/// The way to the authority.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct UplinkStatus {
    /// `up` (answered within the last heartbeats), `down`, `refused` or `never`.
    pub state: String,
    /// Seconds since the last answer.
    pub last_answer_seconds: Option<u64>,
    /// The last error, in words.
    pub last_error: Option<String>,
}

/// The region's store.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct StoreStatus {
    /// `ok` or `down`.
    pub state: String,
    /// Which server it is on: system, timeline, start; empty where that is not watched.
    #[serde(default)]
    pub server: String,
    /// The last error, in words.
    pub last_error: Option<String>,
    /// What is wrong with how it is set up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<StoreFinding>,
}

/// One thing that is wrong with how a store is set up.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct StoreFinding {
    /// `bad` (what was acknowledged may be lost, or nothing can be) or `warning`.
    pub grade: String,
    /// The setting, by its name.
    pub setting: String,
    /// What it is, and what can come of it.
    pub detail: String,
    /// What to do.
    pub cure: String,
}

impl From<Finding> for StoreFinding {
    fn from(found: Finding) -> Self {
        let grade = match found.severity {
            Severity::Bad => "bad",
            Severity::Warning => "warning",
        };
        let (setting, detail, cure) = (found.setting.to_owned(), found.detail, found.cure);
        Self { grade: grade.to_owned(), setting, detail, cure }
    }
}

/// The witness of a store.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct WitnessStatus {
    /// `required`, `best_effort` or `none`.
    pub mode: String,
    /// `ok`, `down`, `empty` or `none`.
    pub state: String,
    /// Why it could not be used when it was last asked.
    pub last_error: Option<String>,
    /// How often it could not be used since the process started.
    pub failures: u64,
}

/// One namespace at an agent.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct NamespaceStatus {
    /// Which.
    #[schema(value_type = String)]
    pub namespace: Name,
    /// IDs a second over the last minute, this agent.
    pub rate_per_second: f64,
    /// Unissued ordinals in this agent's segments.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub left_in_instance: u64,
    /// Uncarved ordinals in the region's store.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub left_in_region: u64,
    /// How long the segments last at the present rate; null at rate 0.
    pub runway_instance_seconds: Option<u64>,
    /// How long segments and region's holdings last together at the present rate; null at rate 0.
    pub runway_region_seconds: Option<u64>,
    /// `idle`, `in_flight`, `backing_off`.
    pub refill: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_field_and_a_rounded_number_are_refused() {
        assert!(serde_json::from_str::<IdsRequest>(r#"{"namespace":"a","size":1}"#).is_err());
        assert!(serde_json::from_str::<IdsRequest>(r#"{"namespace":"a","count":-1}"#).is_err());
        let number = r#"{"namespace":"a","allocation_id":"01939d5b-7c00-7abc-8def-0123456789ab",
            "instance":"i","incarnation":"a8098c1a-f86e-41da-bd1a-00112444be1e","want":1000}"#;
        assert!(serde_json::from_str::<SegmentRequest>(number).is_err(), "sizes are decimal strings");
        assert!(serde_json::from_str::<SegmentRequest>(&number.replace("1000", "\"1000\"")).is_ok());
    }
}
