//! A caller found an ID that came twice: the one thing that must not happen, told to whoever can look into it.

use cadastre_core::ids::Name;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The longest `detail`, in characters.
pub const MAX_DETAIL: usize = 500;

/// `POST /v1/duplicates` of an agent.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DuplicateReport {
    /// In which namespace.
    #[schema(value_type = String)]
    pub namespace: Name,
    /// The ID, in plain digits.
    pub id: String,
    /// How it was noticed, for people; at most 500 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The answer: it is written down.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct DuplicateNoted {
    /// The region whose audit holds it.
    #[schema(value_type = String)]
    pub region: Name,
    /// Whether that region was ever granted the ID; false: it is another region's, or nobody's.
    pub ours: bool,
}
