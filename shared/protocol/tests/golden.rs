//! One JSON of every body, and proof that they, the types and `docs/protocol.md` are in step.
//!
//! A file under `golden/` is what another program may send or expect. A change that makes this test fail
//! is a change of the wire: add a field that may be left out, or raise the version, and show the new
//! body in the document. Absent on purpose: writing the files from the types; they are the other side.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cadastre_protocol::{admin, duplicates, error, ids, link, operate, rebuild, usage, workers};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads the text as the type and writes it again.
type Round = fn(&str) -> Result<Value, serde_json::Error>;

fn round<T: DeserializeOwned + Serialize>(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::to_value(serde_json::from_str::<T>(text)?)
}

/// File, type, and whether it is a request: those refuse a field that nobody knows.
const BODIES: &[(&str, Round, bool)] = &[
    ("message-grants", round::<link::Message>, true),
    ("message-heartbeat", round::<link::Message>, true),
    ("answer-granted", round::<link::Answer>, false),
    ("answer-refused", round::<link::Answer>, false),
    ("message-drill", round::<link::Message>, true),
    ("answer-operate", round::<link::Answer>, false),
    ("switch-new", round::<operate::NewSwitch>, true),
    ("switch", round::<operate::SwitchView>, false),
    ("switches", round::<operate::Switches>, false),
    ("drill-new", round::<operate::NewDrill>, true),
    ("drill", round::<operate::DrillView>, false),
    ("drills", round::<operate::Drills>, false),
    ("drill-schedule", round::<operate::DrillSchedule>, true),
    ("problem-not-home", round::<error::Problem>, false),
    ("problem", round::<error::Problem>, false),
    ("problem-final", round::<error::Problem>, false),
    ("ids-request", round::<ids::IdsRequest>, true),
    ("ids-answer-one", round::<ids::IdsAnswer>, false),
    ("ids-answer-list", round::<ids::IdsAnswer>, false),
    ("ids-answer-ranges", round::<ids::IdsAnswer>, false),
    ("segment-request", round::<ids::SegmentRequest>, true),
    ("segment-answer", round::<ids::SegmentAnswer>, false),
    ("segment-return", round::<ids::ReturnRequest>, true),
    ("worker-request", round::<workers::WorkerRequest>, true),
    ("worker-renewal", round::<workers::WorkerRenewal>, true),
    ("worker-end", round::<workers::WorkerEnd>, true),
    ("worker-answer", round::<workers::WorkerAnswer>, false),
    ("duplicate-report", round::<duplicates::DuplicateReport>, true),
    ("duplicate-noted", round::<duplicates::DuplicateNoted>, false),
    ("origin-snowflake", round::<ids::Origin>, false),
    ("origin", round::<ids::Origin>, false),
    ("origin-partial", round::<ids::Origin>, false),
    ("status", round::<ids::Status>, false),
    ("namespace-new", round::<admin::NewNamespace>, true),
    ("namespace-new-snowflake", round::<admin::NewNamespace>, true),
    ("namespace-snowflake", round::<admin::NamespaceView>, false),
    ("namespace-patch", round::<admin::NamespacePatch>, true),
    ("namespace", round::<admin::NamespaceView>, false),
    ("region-new", round::<admin::NewRegion>, false),
    ("region", round::<admin::RegionView>, false),
    ("region-action", round::<admin::RegionAction>, true),
    ("service-new", round::<admin::NewService>, true),
    ("service", round::<admin::ServiceView>, false),
    ("operator", round::<admin::OperatorView>, false),
    ("token-new", round::<admin::NewToken>, false),
    ("grants-page", round::<admin::GrantsPage>, false),
    ("headroom", round::<admin::Headroom>, false),
    ("overview", round::<admin::Overview>, false),
    ("overview-namespaces", round::<admin::NamespacesPage>, false),
    ("history", round::<admin::History>, false),
    ("number-line", round::<admin::NumberLine>, false),
    ("agents", round::<admin::AgentsView>, false),
    ("audit-page", round::<admin::AuditPage>, false),
    ("whoami", round::<admin::WhoAmI>, false),
    ("verdict", round::<admin::Verdict>, false),
    ("quarantines", round::<admin::Quarantines>, false),
    ("lift", round::<admin::Lift>, true),
    ("testimony", round::<rebuild::RegionRecord>, true),
    ("adopted-page", round::<rebuild::AdoptedPage>, false),
    ("grants-back", round::<rebuild::GrantsBack>, true),
    ("grants-taken", round::<rebuild::GrantsTaken>, false),
    ("services-use", round::<usage::ServicesUse>, false),
    ("use-of-limits", round::<usage::UseOfLimits>, false),
];

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn golden(name: &str) -> String {
    read(here().join("golden").join(format!("{name}.json")))
}

fn document() -> String {
    read(here().join("../../docs/protocol.md"))
}

#[test]
fn every_body_comes_back_as_it_was() {
    for (name, round, _) in BODIES {
        let text = golden(name);
        let before: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        let after = round(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(after, before, "{name}");
    }
}

#[test]
fn a_request_with_an_unknown_field_is_refused_and_an_answer_with_one_is_read() {
    for (name, round, request) in BODIES {
        let mut body: Value = serde_json::from_str(&golden(name)).unwrap();
        body["brand_new"] = Value::Bool(true);
        assert_eq!(round(&body.to_string()).is_err(), *request, "{name}");
    }
}

#[test]
fn every_file_is_tested_and_named_in_the_document() {
    let tested: BTreeSet<String> = BODIES.iter().map(|(name, _, _)| format!("{name}.json")).collect();
    let files: BTreeSet<String> = std::fs::read_dir(here().join("golden"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(files, tested);
    let document = document();
    let unnamed: Vec<&String> = files.iter().filter(|file| !document.contains(&format!("`{file}`"))).collect();
    assert!(unnamed.is_empty(), "docs/protocol.md does not name {unnamed:?}");
}

/// Blocks of the document that begin with "```json NAME.json" are copies of the files.
#[test]
fn the_document_shows_the_files_as_they_are() {
    let document = document();
    let mut shown = 0;
    for block in document.split("\n```json ").skip(1) {
        let (name, rest) = block.split_once('\n').unwrap();
        let (text, _) = rest.split_once("\n```").unwrap();
        let name = name.trim().trim_end_matches(".json");
        assert_eq!(text.trim(), golden(name).trim(), "docs/protocol.md shows another {name}.json");
        shown += 1;
    }
    assert!(shown >= 4, "the bodies of the link are shown in full; found {shown}");
}

#[test]
fn the_document_names_every_code_and_the_limits_of_the_link() {
    let document = document();
    for code in error::Code::ALL {
        let row = format!("| `{}` | {} |", code.as_str(), code.status());
        assert!(document.contains(&row), "docs/protocol.md lacks the row {row}");
    }
    for (limit, written) in
        [(link::MAX_LINK_BYTES, "16 MiB"), (link::MAX_WANTS, "256 wants"), (link::MARKS_PER_MESSAGE, "256 marks")]
    {
        assert!(document.contains(written), "docs/protocol.md lacks the limit {written} ({limit})");
    }
    assert_eq!((link::MAX_LINK_BYTES, link::MAX_WANTS, link::MARKS_PER_MESSAGE), (16 << 20, 256, 256));
}
