//! Switches and drills: what operators send and see, and what reaches agents with their heartbeats.

use std::collections::BTreeMap;

use cadastre_core::decimal;
use cadastre_core::drill::{DrillKind, DrillState, Outcome, Seen};
use cadastre_core::ids::{DrillId, Name, SwitchId};
use cadastre_core::switch::Step;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::admin::Verdict;

/// Events that one agent tells of a drill, at most.
pub const MAX_EVENTS: usize = 64;

/// `POST /v1/switches`.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSwitch {
    /// The namespace; absent: all that `from` serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub namespace: Option<Name>,
    /// The region that is left.
    #[schema(value_type = String)]
    pub from: Name,
    /// The region that takes over.
    #[schema(value_type = String)]
    pub to: Name,
    /// Take the epoch of `from` away as well: it gives nothing out any more once it learns of that. Only with all of
    /// its namespaces.
    #[serde(default)]
    pub fence: bool,
}

/// A switch as the authority shows it.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct SwitchView {
    /// Names it.
    #[schema(value_type = String)]
    pub switch_id: SwitchId,
    /// The region that is left.
    #[schema(value_type = String)]
    pub from: Name,
    /// The region that takes over.
    #[schema(value_type = String)]
    pub to: Name,
    /// What moves.
    #[schema(value_type = Vec<String>)]
    pub namespaces: Vec<Name>,
    /// Whether `from` is fenced with it.
    pub fence: bool,
    /// Where it stands: `planned`, `drained`, `ready`, `moved`, `done`, `backed_out`.
    #[schema(value_type = String)]
    pub step: Step,
    /// What it waits for by itself.
    pub waiting_for: Option<String>,
    /// Why it does not go on until somebody resumes it or backs out.
    pub stopped: Option<String>,
    /// Whether `from` has taken note of the new home; false where it could not be told. Null before the move.
    pub from_knows: Option<bool>,
    /// When the last time window of `from` ends by itself, milliseconds since the Unix epoch; null where nothing that
    /// moves is time-based.
    #[serde(with = "decimal::optional")]
    #[schema(value_type = Option<String>)]
    pub windows_end_at: Option<u64>,
    /// Who made it.
    pub who: String,
    /// When, milliseconds since the Unix epoch.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub made_at: u64,
    /// When its step last changed.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub changed_at: u64,
    /// Its ledger, oldest first.
    pub lines: Vec<Line>,
}

/// `GET /v1/switches`.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct Switches {
    /// Newest first, at most 100.
    pub switches: Vec<SwitchView>,
}

/// Something that happened.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq, ToSchema)]
pub struct Line {
    /// When, milliseconds since the Unix epoch.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub at: u64,
    /// What, for people.
    pub text: String,
}

/// `POST /v1/drills`.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewDrill {
    /// `wan_cut`, `failover` or `clock`.
    #[schema(value_type = String)]
    pub kind: DrillKind,
    /// The region that it is done to.
    #[schema(value_type = String)]
    pub region: Name,
    /// For how long, at most.
    pub for_seconds: u32,
    /// The region's name once more: that you mean it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
    /// Of a failover: the region that takes over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub to: Option<Name>,
    /// Of a failover: what moves; absent: all that the region serves. With `until_dry`: what runs dry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub namespace: Option<Name>,
    /// Of a cut: it ends as soon as `namespace` has run dry in the region, and the time is compared with the forecast.
    #[serde(default)]
    pub until_dry: bool,
    /// The share of any other namespace's headroom that may be used, in percent; 50 where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_percent: Option<u32>,
    /// Of a clock drill: how far the region's agents read their clocks wrong, in milliseconds; negative is back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_ms: Option<i64>,
}

/// A drill as the authority shows it.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct DrillView {
    /// Names it.
    #[schema(value_type = String)]
    pub drill_id: DrillId,
    /// What is rehearsed.
    #[schema(value_type = String)]
    pub kind: DrillKind,
    /// The region that it is done to.
    #[schema(value_type = String)]
    pub region: Name,
    /// The region that takes over.
    #[schema(value_type = Option<String>)]
    pub to: Option<Name>,
    /// What moves, or runs dry.
    #[schema(value_type = Option<String>)]
    pub namespace: Option<Name>,
    /// For how long, at most.
    pub for_seconds: u32,
    /// Whether it ends when `namespace` is dry.
    pub until_dry: bool,
    /// The share of any other namespace's headroom that may be used, in percent.
    pub share_percent: u32,
    /// How far clocks are read wrong, in milliseconds.
    pub clock_ms: Option<i64>,
    /// Where it stands: `ordered`, `running`, `healing`, `ended`.
    #[schema(value_type = String)]
    pub state: DrillState,
    /// Who ordered it; `schedule` where nobody did.
    pub who: String,
    /// When, milliseconds since the Unix epoch.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub made_at: u64,
    /// When the first agent began.
    #[serde(with = "decimal::optional")]
    #[schema(value_type = Option<String>)]
    pub began_at: Option<u64>,
    /// When it ends by itself.
    #[serde(with = "decimal::optional")]
    #[schema(value_type = Option<String>)]
    pub ends_at: Option<u64>,
    /// When it ended.
    #[serde(with = "decimal::optional")]
    #[schema(value_type = Option<String>)]
    pub ended_at: Option<u64>,
    /// The switch of a failover.
    #[schema(value_type = Option<String>)]
    pub switch_id: Option<SwitchId>,
    /// What happened, oldest first.
    pub lines: Vec<Line>,
    /// How it went, once it ended.
    pub report: Option<DrillReport>,
    /// The same for people, as Markdown; of `GET /v1/drills/{id}` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub markdown: Option<String>,
}

/// `GET /v1/drills`.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct Drills {
    /// Newest first, at most 100.
    pub drills: Vec<DrillView>,
    /// What is repeated.
    pub schedule: Option<DrillSchedule>,
}

/// How a drill went.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct DrillReport {
    /// `passed`, `failed` or `aborted`.
    #[schema(value_type = String)]
    pub verdict: Outcome,
    /// Why.
    pub why: Vec<String>,
    /// How long it lasted, in seconds: at the agent that was cut off, or read its clock wrong, longest; or how long the home
    /// was away.
    pub cut_seconds: f64,
    /// From its end until all was as before, in seconds: the longest time to the first message that was answered, until
    /// stamps were to be had again, or until the region knew that it is the home again.
    pub heal_seconds: Option<f64>,
    /// By namespace, all agents together.
    #[schema(value_type = Object)]
    pub namespaces: BTreeMap<Name, Seen>,
    /// Of a failover: the same by region.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = Object)]
    pub regions: BTreeMap<Name, BTreeMap<Name, Seen>>,
    /// What callers were refused with, and how often.
    #[schema(value_type = Object)]
    pub errors: BTreeMap<String, u64>,
    /// The ledgers, checked after the heal.
    pub verified: Verdict,
}

/// `PUT /v1/drills/schedule`: the weekly rehearsal.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrillSchedule {
    /// What is held.
    pub drill: NewDrill,
    /// Between two of them, in hours; a week is 168.
    pub every_hours: u32,
    /// The next one, milliseconds since the Unix epoch; absent: one interval from now.
    #[serde(default, with = "decimal::optional", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub next_at: Option<u64>,
    /// When it was last due, milliseconds since the Unix epoch. Not read in a request.
    #[serde(default, with = "decimal::optional", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub last_at: Option<u64>,
    /// What became of that: the drill that was begun, or why it was skipped. Not read in a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
}

/// An order that an answer carries to an agent, for as long as it holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DrillOrder {
    /// Which drill.
    pub drill_id: DrillId,
    /// What is rehearsed.
    pub kind: DrillKind,
    /// What is left of its time, in milliseconds.
    pub for_ms: u64,
    /// The share of the headroom that may be used, in percent.
    pub share_percent: u32,
    /// What runs dry.
    pub until_dry: Option<Name>,
    /// How far the clock is read wrong, in milliseconds.
    pub clock_ms: Option<i64>,
}

/// What an agent says of a drill, until an answer says that it was heard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrillWord {
    /// Which drill.
    #[schema(value_type = String)]
    pub drill_id: DrillId,
    /// Whether it still runs at this agent.
    pub running: bool,
    /// Why it was ended before its time.
    pub ended_early: Option<String>,
    /// How long it ran here so far, in milliseconds.
    pub ran_ms: u64,
    /// Since it ended here, in milliseconds.
    pub over_ms: u64,
    /// By namespace.
    #[schema(value_type = Object)]
    pub namespaces: BTreeMap<Name, Seen>,
    /// What callers were refused with, and how often.
    #[schema(value_type = Object)]
    pub errors: BTreeMap<String, u64>,
    /// What happened, milliseconds after the beginning.
    pub events: Vec<DrillEvent>,
    /// The region's ledger, checked once the agent was back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<Verdict>,
}

/// Something that an agent noticed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrillEvent {
    /// Milliseconds after the drill began at this agent.
    pub after_ms: u64,
    /// What, for people.
    pub text: String,
}

/// What a region should be ready for: a switch brings it more callers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expect {
    /// Where.
    pub namespace: Name,
    /// How many more IDs a second, at their peak.
    pub peak_per_second: f64,
    /// Hold at least so many ordinals.
    #[serde(with = "decimal::unsigned")]
    pub at_least: u64,
}

/// Where a region is reached: in a `not_home` problem, and in answers to agents.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HomeAddress {
    /// The region.
    #[schema(value_type = String)]
    pub region: Name,
    /// Its agents, as they say they are reached; at most four.
    pub urls: Vec<String>,
}
