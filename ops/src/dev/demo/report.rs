//! The verdict: a few lines for people, one object for programs.
//!
//! Invariant: it is good only where something was issued in every region and during the cut, nothing
//! twice, the ledgers of every region were looked at and hold, and the link came back.

use std::collections::BTreeMap;

use cadastre_core::ids::Name;
use cadastre_protocol::admin::Verdict;
use serde_json::{Value, json};

use super::tally::Tally;
use crate::show::human::{digits, duration};
use crate::show::table::pairs;

/// What the cut was like.
#[derive(Clone, Debug)]
pub struct CutReport {
    /// Who was cut off.
    pub region: Name,
    /// For how long.
    pub seconds: f64,
    /// The runway shown as it began.
    pub runway_first: Option<u64>,
    /// The runway shown as it ended.
    pub runway_last: Option<u64>,
    /// After how many seconds the authority was heard again.
    pub healed: Option<f64>,
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct Report {
    issued: BTreeMap<Name, u64>,
    issued_during_cut: u64,
    refused: BTreeMap<String, u64>,
    cut: CutReport,
    duplicates: u64,
    verdict: Verdict,
}

impl Report {
    /// Puts it together.
    pub fn new(tally: &Tally, cut: CutReport, duplicates: u64, verdict: Verdict) -> Self {
        Self {
            issued: tally.issued.clone(),
            issued_during_cut: tally.during_cut.get(&cut.region).copied().unwrap_or(0),
            refused: tally.refused.clone(),
            cut,
            duplicates,
            verdict,
        }
    }

    /// Whether nothing was found.
    pub fn is_good(&self) -> bool {
        self.problems().is_empty()
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.duplicates > 0 {
            problems.push(format!("{} IDs were issued twice", digits(self.duplicates)));
        }
        problems.extend(self.verdict.findings.iter().map(|it| format!("{}: {}", it.invariant, it.detail)));
        for region in &self.verdict.unreachable {
            problems.push(format!("the ledger of {region} could not be looked at"));
        }
        for (region, _) in self.issued.iter().filter(|(_, issued)| **issued == 0) {
            problems.push(format!("{region} issued nothing"));
        }
        if self.issued_during_cut == 0 {
            problems.push(format!("{} issued nothing while it was cut off", self.cut.region));
        }
        if self.cut.healed.is_none() {
            problems.push(format!("{} did not hear the authority again", self.cut.region));
        }
        problems
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let problems = self.problems();
        json!({
            "issued": self.issued,
            "issued_during_cut": self.issued_during_cut,
            "duplicates": self.duplicates,
            "overlaps": self.verdict.findings.len(),
            "verdict": if problems.is_empty() { "ok" } else { "failed" },
            "problems": problems,
            "cut": {
                "region": self.cut.region,
                "seconds": tenths(self.cut.seconds),
                "runway_seconds_first": self.cut.runway_first,
                "runway_seconds_last": self.cut.runway_last,
                "healed_after_seconds": self.cut.healed.map(tenths),
            },
            "refused": self.refused,
            "checked": self.verdict.checked,
        })
    }

    /// For people.
    pub fn text(&self) -> String {
        let total: u64 = self.issued.values().sum();
        let by_region: Vec<String> =
            self.issued.iter().map(|(region, number)| format!("{region} {}", digits(*number))).collect();
        let checked = self.verdict.checked;
        let region = &self.cut.region;
        let lines = pairs(&[
            ("  issued", format!("{} IDs ({})", digits(total), by_region.join(", "))),
            (
                "  during the cut",
                format!(
                    "{} of {region}, {:.1} s without the authority",
                    digits(self.issued_during_cut),
                    self.cut.seconds
                ),
            ),
            ("  runway shown", self.runway()),
            ("  refused", self.refusals()),
            ("  duplicates", format!("{} (every ID compared with every other)", digits(self.duplicates))),
            (
                "  overlaps",
                format!(
                    "{} ({} grants and {} segments verified)",
                    self.verdict.findings.len(),
                    digits(checked.grants),
                    digits(checked.segments)
                ),
            ),
        ]);
        let problems = self.problems();
        let verdict = if problems.is_empty() && self.refused.is_empty() {
            "Verdict: good. Nothing was issued twice, and the cut stopped nobody.".to_owned()
        } else if problems.is_empty() {
            "Verdict: good. Nothing was issued twice.".to_owned()
        } else {
            format!("Verdict: NOT good.\n  {}", problems.join("\n  "))
        };
        format!("\n{lines}\n\n{verdict}")
    }

    fn runway(&self) -> String {
        match (self.cut.runway_first, self.cut.runway_last) {
            (Some(first), Some(last)) => {
                format!("{} as the cut began, {} as it ended", duration(first), duration(last))
            }
            _ => "none: no rate was known yet".to_owned(),
        }
    }

    fn refusals(&self) -> String {
        if self.refused.is_empty() {
            return "0 requests".to_owned();
        }
        let words: Vec<String> =
            self.refused.iter().map(|(code, times)| format!("{} {code}", digits(*times))).collect();
        words.join(", ")
    }
}

/// A tenth of a second is all that was measured.
fn tenths(seconds: f64) -> f64 {
    (seconds * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use cadastre_core::invariant::Finding;
    use cadastre_protocol::admin::Checked;

    fn report(during_cut: u64, duplicates: u64, findings: Vec<Finding>) -> Report {
        let (eu, us) = (Name::new("eu").unwrap(), Name::new("us").unwrap());
        let cut = CutReport {
            region: us.clone(),
            seconds: 9.0,
            runway_first: Some(11_520),
            runway_last: Some(11_511),
            healed: Some(0.4),
        };
        let mut tally = Tally::default();
        tally.issued = BTreeMap::from([(eu, 1_000), (us.clone(), 900)]);
        tally.during_cut.insert(us, during_cut);
        let checked = Checked { grants: 4, segments: 1_200, windows: 0 };
        Report::new(
            &tally,
            cut,
            duplicates,
            Verdict { ok: findings.is_empty(), checked, findings, unreachable: vec![] },
        )
    }

    #[test]
    fn a_good_one_is_short_and_has_the_keys_of_the_contract() {
        let good = report(400, 0, vec![]);
        assert!(good.is_good());
        let json = good.json();
        assert_eq!(json["issued"], json!({"eu": 1_000, "us": 900}));
        assert_eq!((&json["issued_during_cut"], &json["duplicates"]), (&json!(400), &json!(0)));
        assert_eq!((&json["overlaps"], &json["verdict"]), (&json!(0), &json!("ok")));
        let text = good.text();
        assert!(
            text.contains("1,900 IDs (eu 1,000, us 900)") && text.contains("3 h 12 min as the cut began"),
            "{text}"
        );
        assert!(text.lines().count() < 12, "{text}");
    }

    #[test]
    fn anything_that_is_found_makes_it_bad() {
        let overlap = Finding { invariant: "A1".into(), detail: "two grants overlap".into() };
        for bad in [report(0, 0, vec![]), report(1, 1, vec![]), report(1, 0, vec![overlap])] {
            assert!(!bad.is_good());
            assert_eq!(bad.json()["verdict"], "failed");
            assert!(bad.text().contains("NOT good"));
        }
    }
}
