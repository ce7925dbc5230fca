//! Contenders in turns: A B C, A B C ...; each figure is the median of its turns.
//!
//! In turns, because a machine that others use too is faster now and slower then: what is compared ran within the
//! same seconds. The spread is that of our own turns: the distance of the quartiles, as a share of the median.

use std::collections::BTreeMap;

/// What a contender is called that is ours.
pub const OURS: &str = "ours";

/// The figures of one row.
#[derive(Clone, Debug, Default)]
pub struct Result {
    turns: BTreeMap<String, Vec<f64>>,
}

impl Result {
    /// One more turn of a contender.
    pub fn add(&mut self, contender: &str, figure: f64) {
        self.turns.entry(contender.to_owned()).or_default().push(figure);
    }

    /// A contender's median.
    #[must_use]
    pub fn median(&self, contender: &str) -> Option<f64> {
        self.turns.get(contender).and_then(|turns| quantile(turns, 0.5))
    }

    /// Ours.
    #[must_use]
    pub fn ours(&self) -> f64 {
        self.median(OURS).unwrap_or(0.0)
    }

    /// All others.
    #[must_use]
    pub fn peers(&self) -> BTreeMap<String, f64> {
        let others = self.turns.keys().filter(|name| *name != OURS);
        others.filter_map(|name| Some((name.clone(), self.median(name)?))).collect()
    }

    /// See the module's documentation.
    #[must_use]
    pub fn spread(&self) -> f64 {
        let Some(turns) = self.turns.get(OURS) else { return 0.0 };
        let (Some(low), Some(middle), Some(high)) =
            (quantile(turns, 0.25), quantile(turns, 0.5), quantile(turns, 0.75))
        else {
            return 0.0;
        };
        if middle == 0.0 { 0.0 } else { (high - low) / middle }
    }
}

/// The turn at this share of the sorted turns.
#[must_use]
pub fn quantile(turns: &[f64], share: f64) -> Option<f64> {
    let mut sorted = turns.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let at = (last as f64 * share).round() as usize;
    sorted.get(at).copied()
}

/// A figure as people read it: three digits, and a letter for the size.
#[must_use]
pub fn figure(value: f64) -> String {
    let (scaled, letter) = match value {
        v if v >= 1e9 => (v / 1e9, " G"),
        v if v >= 1e6 => (v / 1e6, " M"),
        v if v >= 1e3 => (v / 1e3, " k"),
        v => (v, ""),
    };
    match scaled {
        s if s >= 100.0 => format!("{s:.0}{letter}"),
        s if s >= 10.0 => format!("{s:.1}{letter}"),
        s => format!("{s:.2}{letter}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_quartiles() {
        let mut result = Result::default();
        for figure in [9.0, 1.0, 5.0, 7.0, 3.0] {
            result.add(OURS, figure);
            result.add("peer", figure * 2.0);
        }
        assert_eq!((result.ours(), result.median("peer"), result.median("nobody")), (5.0, Some(10.0), None));
        assert!((result.spread() - 0.8).abs() < 1e-9, "{}", result.spread());
        assert_eq!(result.peers().into_keys().collect::<Vec<_>>(), ["peer"]);
    }

    #[test]
    fn figures_have_three_digits() {
        assert_eq!(figure(477_000_000.0), "477 M");
        assert_eq!(figure(87_654.0), "87.7 k");
        assert_eq!(figure(3.101e9), "3.10 G");
        assert_eq!(figure(0.69), "0.69");
    }
}
