//! What services use of their limits, put together from what each region's agents say of it.

use std::collections::BTreeMap;

use cadastre_core::ids::Name;
use cadastre_core::quota::InUse;
use cadastre_core::roster::{Limits, Roster};
use cadastre_protocol::error::Problem;
use cadastre_protocol::usage::{RegionUse, ServiceUse, ServicesUse, Unheard, UseOfLimits};

/// The most that are listed: the nearest to a limit.
const MAX_LISTED: usize = 500;

/// What the agents of a region said, or why one did not.
pub type Said = (Name, Vec<Result<ServicesUse, Problem>>);

/// Adds up the agents of each region, and puts the nearest to a limit first.
#[must_use]
pub fn of_limits(roster: &Roster, said: Vec<Said>) -> UseOfLimits {
    let limits: BTreeMap<&Name, Limits> = roster.services().map(|(name, service)| (name, service.limits)).collect();
    let mut answer = UseOfLimits::default();
    for (region, agents) in said {
        let mut sum = BTreeMap::<Name, InUse>::new();
        for word in agents {
            match word {
                Ok(word) => {
                    for one in word.services {
                        let before = sum.remove(&one.service).unwrap_or_default();
                        sum.insert(one.service.clone(), before.and(one.used()));
                    }
                }
                Err(problem) => answer.unheard.push(Unheard { region: region.clone(), problem }),
            }
        }
        answer.uses.extend(sum.into_iter().filter_map(|(service, used)| {
            let limits = limits.get(&service).copied()?;
            let nearest = used.nearest(&limits)?;
            Some(RegionUse {
                region: region.clone(),
                used: ServiceUse::new(service, used),
                limits,
                nearest: nearest.limit.to_owned(),
                share: nearest.share,
            })
        }));
    }
    answer.uses.sort_by(|a, b| b.share.total_cmp(&a.share));
    answer.uses.truncate(MAX_LISTED);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use cadastre_core::mark::Generation;
    use cadastre_core::roster::{Body, Entry, ServiceEntry};
    use cadastre_protocol::error::Code;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn service(of: &str, limits: Limits) -> Entry {
        let body = Body::Service(ServiceEntry { namespaces: vec![], limits, tokens: vec![] });
        Entry { generation: Generation::default(), seq: 1, name: name(of), body, seal: None }
    }

    fn says(service: &str, ids_per_second: f64, holders: u64) -> Result<ServicesUse, Problem> {
        let used = InUse { ids_per_second, holders, ..InUse::default() };
        Ok(ServicesUse { services: vec![ServiceUse::new(name(service), used)] })
    }

    #[test]
    fn the_nearest_to_its_limit_is_first_and_who_is_not_heard_is_named() {
        let fast = Limits { ids_per_second: Some(100), holders: Some(10), ..Limits::default() };
        let roster: Roster = [service("shop", fast), service("free", Limits::default())].into_iter().collect();
        let away = Problem::new(Code::UpstreamUnavailable, "it does not answer");
        let said = vec![
            (name("us"), vec![says("shop", 10.0, 3), says("free", 9.0, 0)]),
            (name("eu"), vec![says("shop", 30.0, 8), says("shop", 60.0, 8), Err(away), says("gone", 1.0, 1)]),
        ];
        let answer = of_limits(&roster, said);
        let rows: Vec<_> = answer.uses.iter().map(|u| (u.region.as_str(), u.nearest.as_str(), u.share)).collect();
        assert_eq!(rows, [("eu", "ids_per_second", 0.9), ("us", "holders", 0.3)], "no limit, no row; unknown, no row");
        assert_eq!((answer.uses[0].used.holders, answer.unheard.len()), (8, 1), "holders are the region's");
    }
}
