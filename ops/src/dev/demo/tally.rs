//! Counting what the callers got, and finding what two of them got.
//!
//! Invariant: every single ID takes part in the comparison; it costs eight bytes each, and a sort.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use cadastre_core::ids::Name;

use crate::show::human::digits;

/// What one caller got.
#[derive(Debug, Default)]
pub struct Got {
    /// By namespace.
    pub ids: BTreeMap<Name, Vec<i64>>,
    /// Of those, begun and ended during the cut.
    pub during_cut: u64,
    /// Refusals by code.
    pub refused: BTreeMap<String, u64>,
}

/// IDs by region so far, for the eyes of those who wait.
#[derive(Clone, Debug, Default)]
pub struct Shared(Arc<Mutex<BTreeMap<Name, u64>>>);

impl Shared {
    /// Counts more of a region.
    pub fn add(&self, region: &Name, number: u64) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match counts.get_mut(region) {
            Some(count) => *count += number,
            None => {
                counts.insert(region.clone(), number);
            }
        }
    }

    /// `eu 1,200 IDs, us 900 IDs`.
    pub fn words(&self) -> String {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|(region, count)| format!("{region} {} IDs", digits(*count))).collect::<Vec<_>>().join(", ")
    }
}

/// What all callers got.
#[derive(Debug, Default)]
pub struct Tally {
    /// By region.
    pub issued: BTreeMap<Name, u64>,
    /// By region: issued during the cut.
    pub during_cut: BTreeMap<Name, u64>,
    /// Refusals by code.
    pub refused: BTreeMap<String, u64>,
    ids: BTreeMap<Name, Vec<i64>>,
}

impl Tally {
    /// Adds one caller's.
    pub fn add(&mut self, region: &Name, got: Got) {
        let number: usize = got.ids.values().map(Vec::len).sum();
        *self.issued.entry(region.clone()).or_default() += u64::try_from(number).unwrap_or(0);
        *self.during_cut.entry(region.clone()).or_default() += got.during_cut;
        for (code, times) in got.refused {
            *self.refused.entry(code).or_default() += times;
        }
        for (namespace, ids) in got.ids {
            self.ids.entry(namespace).or_default().extend(ids);
        }
    }

    /// How many IDs somebody else had got before, over all namespaces. Uses up the IDs.
    ///
    /// # Errors
    /// When the thread that sorts ends badly.
    pub async fn duplicates(&mut self) -> Result<u64, tokio::task::JoinError> {
        let ids = std::mem::take(&mut self.ids);
        tokio::task::spawn_blocking(move || ids.into_values().map(repeated).sum()).await
    }
}

fn repeated(mut ids: Vec<i64>) -> u64 {
    ids.sort_unstable();
    let repeats = ids.iter().zip(ids.iter().skip(1)).filter(|(left, right)| left == right);
    u64::try_from(repeats.count()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn got(namespace: &str, ids: &[i64]) -> Got {
        Got { ids: BTreeMap::from([(Name::new(namespace).unwrap(), ids.to_vec())]), ..Got::default() }
    }

    #[tokio::test]
    async fn the_same_id_is_found_across_callers_and_regions_of_one_namespace() {
        let (eu, us) = (Name::new("eu").unwrap(), Name::new("us").unwrap());
        let mut tally = Tally::default();
        tally.add(&eu, got("orders", &[3, 1, 2]));
        tally.add(&us, got("orders", &[9, 3, -4, 9]));
        tally.add(&us, got("global", &[1, 2]));
        assert_eq!(tally.issued, BTreeMap::from([(eu, 3), (us, 6)]));
        assert_eq!(tally.duplicates().await.unwrap(), 2);
        assert_eq!(repeated(vec![5, 5, 5]), 2);
        assert_eq!(repeated(vec![]), 0);
    }
}
