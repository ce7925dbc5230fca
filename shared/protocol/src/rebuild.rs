//! Bodies of a rebuild: what a region knows, as its agent shows it and an authority that was lost takes it.

use std::collections::BTreeMap;

use cadastre_core::decimal;
use cadastre_core::ids::{AllocationId, ClusterId, Epoch, GrantId, Name, RegionId, StoreId};
use cadastre_core::mark::{Generation, ScopeMark};
use cadastre_core::roster::Entry;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::link::bounds;

/// `GET /v1/testimony` of an agent: all that its region's store knows of the cluster. `POST /v1/rebuild` of the
/// authority takes it as it is.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegionRecord {
    /// The cluster; absent before the region's first answer.
    #[schema(value_type = Option<String>)]
    pub cluster_id: Option<ClusterId>,
    /// The region.
    #[schema(value_type = String)]
    pub region: Name,
    /// Its epoch; absent before the first answer.
    #[schema(value_type = Option<u64>)]
    pub epoch: Option<Epoch>,
    /// The store.
    #[schema(value_type = String)]
    pub store_id: StoreId,
    /// The generation that the region promised: nothing of a lower one is taken.
    #[schema(value_type = Object)]
    pub promised: Generation,
    /// Per namespace, the end of the highest range that the store ever held.
    #[serde(with = "bounds")]
    #[schema(value_type = Object)]
    pub bounds: BTreeMap<Name, u64>,
    /// Every mark that it ever saw.
    #[schema(value_type = Vec<Object>)]
    pub marks: Vec<ScopeMark>,
    /// Its whole roster.
    #[schema(value_type = Vec<Object>)]
    pub roster: Vec<Entry>,
}

/// A grant, as its region adopted it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdoptedGrant {
    /// The grant.
    #[schema(value_type = String)]
    pub grant_id: GrantId,
    /// In which namespace.
    #[schema(value_type = String)]
    pub namespace: Name,
    /// The request that it answered.
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
    /// Under which epoch.
    #[schema(value_type = u64)]
    pub epoch: Epoch,
    /// The authority's generation that wrote it.
    #[schema(value_type = Object)]
    pub generation: Generation,
    /// When it was adopted, milliseconds since the Unix epoch.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub at: u64,
}

/// `GET /v1/grants?namespace=` of an agent: its region's ledger of grants, in order of place.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct AdoptedPage {
    /// The region.
    #[schema(value_type = String)]
    pub region: Name,
    /// Its number.
    #[schema(value_type = u32)]
    pub region_id: RegionId,
    /// The store.
    #[schema(value_type = String)]
    pub store_id: StoreId,
    /// The rows.
    pub grants: Vec<AdoptedGrant>,
    /// Pass as `after` to go on; null at the end.
    pub next: Option<String>,
}

/// `POST /v1/rebuild/grants`: rows of a region's ledger that the authority's is to know again.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantsBack {
    /// Whose.
    #[schema(value_type = String)]
    pub region: Name,
    /// The store that holds them.
    #[schema(value_type = String)]
    pub store_id: StoreId,
    /// The rows.
    pub grants: Vec<AdoptedGrant>,
}

/// What became of them.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct GrantsTaken {
    /// Written.
    pub written: u64,
    /// Known before.
    pub known: u64,
    /// Not written, and why: somebody else holds a part of it, or it cannot be of this cluster.
    pub refused: Vec<String>,
}
