//! What a service uses of its limits in a region, added up over the region's agents.
//!
//! Invariant: rates and requests are each agent's own and add up; processes and what they hold are counted in the
//! region's one store, so that every agent says the same. Absent on purpose: any refusal; these are figures for people.

use crate::roster::Limits;

/// What is used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InUse {
    /// IDs a second, over the last minute; only where that is limited.
    pub ids_per_second: f64,
    /// Requests that are under way; only where that is limited.
    pub in_flight: u32,
    /// Processes that take segments.
    pub holders: u64,
    /// IDs that those hold unissued.
    pub held_ids: u64,
}

/// The limit that is nearest to be reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nearest {
    /// Its name among the limits.
    pub limit: &'static str,
    /// What is used of it: 1 is all.
    pub share: f64,
}

impl InUse {
    /// With what another agent of the region says.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            ids_per_second: self.ids_per_second + other.ids_per_second,
            in_flight: self.in_flight.saturating_add(other.in_flight),
            holders: self.holders.max(other.holders),
            held_ids: self.held_ids.max(other.held_ids),
        }
    }

    /// Whether anything of what is counted here is limited.
    #[must_use]
    pub fn is_limited(limits: &Limits) -> bool {
        Self::default().nearest(limits).is_some()
    }

    /// Which limit is nearest; `None` where there is none.
    #[must_use]
    pub fn nearest(&self, limits: &Limits) -> Option<Nearest> {
        #[allow(clippy::cast_precision_loss)]
        let all = [
            ("ids_per_second", self.ids_per_second, limits.ids_per_second.map(f64::from)),
            ("in_flight", f64::from(self.in_flight), limits.in_flight.map(f64::from)),
            ("holders", self.holders as f64, limits.holders.map(f64::from)),
            ("held_ids", self.held_ids as f64, limits.held_ids.map(|most| most as f64)),
        ];
        let shares = all.into_iter().filter_map(|(limit, used, most)| {
            // Of a limit of 0 all is used.
            let share = most.map(|most| if most > 0.0 { used / most } else { 1.0 })?;
            Some(Nearest { limit, share })
        });
        shares.max_by(|a, b| a.share.total_cmp(&b.share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_limit_is_named_and_agents_add_up_as_they_count() {
        let limits = Limits { ids_per_second: Some(1_000), holders: Some(4), ..Limits::default() };
        let one = InUse { ids_per_second: 300.0, in_flight: 7, holders: 2, held_ids: 90 };
        assert_eq!(one.nearest(&limits), Some(Nearest { limit: "holders", share: 0.5 }));
        let two = one.and(one);
        assert_eq!((two.in_flight, two.holders, two.held_ids), (14, 2, 90));
        assert_eq!(two.nearest(&limits), Some(Nearest { limit: "ids_per_second", share: 0.6 }));
        assert_eq!(two.nearest(&Limits::default()), None, "no limit, nothing to be near to");
        assert_eq!(InUse::default().nearest(&Limits { in_flight: Some(0), ..limits }).unwrap().share, 1.0);
    }
}
