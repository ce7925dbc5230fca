//! Worker ids with time windows, for processes that stamp time-based ids by themselves.

use cadastre_core::decimal;
use cadastre_core::ids::{AllocationId, Epoch, Incarnation, Name};
use cadastre_core::layout::Layout;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::ids::Program;

/// `POST /v1/workers`: an id to stamp with, and until when.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerRequest {
    /// In which namespace, of kind `snowflake`.
    #[schema(value_type = String)]
    pub namespace: Name,
    /// A UUIDv7, fresh per worker and kept over retries.
    #[schema(value_type = String)]
    pub allocation_id: AllocationId,
    /// A name for people; nothing is derived from it.
    #[schema(value_type = String)]
    pub instance: Name,
    /// A random UUID per process start.
    #[schema(value_type = String)]
    pub incarnation: Incarnation,
    /// The process's clock, milliseconds since the Unix epoch: its window ends by the earlier of the two clocks, and a
    /// clock that is far off gets none.
    #[serde(default, with = "decimal::optional", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub clock: Option<u64>,
    /// No unit of the window may lie below: this process stamped those as another worker, and its ids go on rising.
    #[serde(default, with = "decimal::optional", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub above: Option<u64>,
    /// The token of the last answer of this incarnation; absent in its first request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
    /// What asks, as in a request for a segment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
}

/// `POST /v1/workers/{worker}/renew`, by the process that holds the worker.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerRenewal {
    /// In which namespace.
    #[schema(value_type = String)]
    pub namespace: Name,
    /// The process that holds it.
    #[schema(value_type = String)]
    pub incarnation: Incarnation,
    /// As it named itself when it took the worker; may be left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub instance: Option<Name>,
    /// The process's clock, milliseconds since the Unix epoch.
    #[serde(default, with = "decimal::optional", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub clock: Option<u64>,
    /// The token of the last answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
}

/// `DELETE /v1/workers/{worker}`, by the process that holds the worker and will not stamp with it again.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerEnd {
    /// In which namespace.
    #[schema(value_type = String)]
    pub namespace: Name,
    /// The process that holds it.
    #[schema(value_type = String)]
    pub incarnation: Incarnation,
    /// As it named itself when it took the worker; may be left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub instance: Option<Name>,
    /// The true end: one past the last unit that was stamped. Without it the window runs out by itself.
    #[serde(default, with = "decimal::optional", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub stamped_to: Option<u64>,
    /// The token of the last answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
}

/// A worker id with its time window.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq, ToSchema)]
pub struct WorkerAnswer {
    /// The window.
    #[schema(value_type = String)]
    pub window_id: Uuid,
    /// The worker field of the ids.
    pub worker: u32,
    /// The region field of the ids.
    pub slot: u32,
    /// How the ids are made: `unit | slot | worker | sequence`, highest bits first.
    #[schema(value_type = Object)]
    pub layout: Layout,
    /// The first unit that may be stamped, counted from the layout's epoch.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub lo: u64,
    /// The end, exclusive: no unit at or after it may be stamped, whatever happens.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub hi: u64,
    /// When `lo` begins, milliseconds since the Unix epoch.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub from: u64,
    /// When `hi` begins, milliseconds since the Unix epoch.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub until: u64,
    /// When to renew: a third of a window.
    pub renew_after_seconds: u64,
    /// The region that gave it.
    #[schema(value_type = String)]
    pub region: Name,
    /// Its epoch.
    #[schema(value_type = u64)]
    pub epoch: Epoch,
    /// The agent's clock, milliseconds since the Unix epoch.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub clock: u64,
    /// To be presented with the next request.
    pub chain: String,
    /// Whether nothing new was written: an earlier answer once more.
    pub replayed: bool,
}
