//! What services use of their limits: at one agent, and in every region.

use cadastre_core::decimal;
use cadastre_core::ids::Name;
use cadastre_core::quota::InUse;
use cadastre_core::roster::Limits;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::Problem;

/// What a service uses.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct ServiceUse {
    /// Which.
    #[schema(value_type = String)]
    pub service: Name,
    /// IDs a second, over the last minute; 0 where that is not limited.
    pub ids_per_second: f64,
    /// Requests that are under way; 0 where that is not limited.
    pub in_flight: u32,
    /// Processes of it that take segments in the region.
    pub holders: u64,
    /// About how many IDs those hold unissued.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub held_ids: u64,
}

impl ServiceUse {
    /// Of a service.
    #[must_use]
    pub fn new(service: Name, used: InUse) -> Self {
        let InUse { ids_per_second, in_flight, holders, held_ids } = used;
        Self { service, ids_per_second, in_flight, holders, held_ids }
    }

    /// The figures.
    #[must_use]
    pub fn used(&self) -> InUse {
        let Self { ids_per_second, in_flight, holders, held_ids, .. } = *self;
        InUse { ids_per_second, in_flight, holders, held_ids }
    }
}

/// `GET /v1/services` of an agent: services that have a limit.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
pub struct ServicesUse {
    /// One each.
    pub services: Vec<ServiceUse>,
}

/// `GET /v1/services/use` of the authority: the nearest to a limit first.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
pub struct UseOfLimits {
    /// One for each service that has a limit, and each region that was heard; at most 500.
    pub uses: Vec<RegionUse>,
    /// Regions of which an agent could not be asked: what is used there is not in the figures.
    pub unheard: Vec<Unheard>,
}

/// What a service uses in a region, and of which limits.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct RegionUse {
    /// Where.
    #[schema(value_type = String)]
    pub region: Name,
    /// What.
    #[serde(flatten)]
    pub used: ServiceUse,
    /// Of that.
    #[schema(value_type = Object)]
    pub limits: Limits,
    /// The limit that is nearest: its name, and the share of it that is used; 1 is all.
    pub nearest: String,
    /// See `nearest`.
    pub share: f64,
}

/// An agent that could not be asked.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct Unheard {
    /// Of which region.
    #[schema(value_type = String)]
    pub region: Name,
    /// Why.
    #[schema(value_type = Object)]
    pub problem: Problem,
}
