//! Verbs and flags. What they do is in `verbs` and `dev`.
//!
//! Invariant: every verb that is listed here is built. Numbers of IDs may be written with `_` or `,`
//! between their digits. Absent on purpose: aliases.

use std::path::PathBuf;

use cadastre_core::ids::Name;
use cadastre_core::roster::Limits;
use cadastre_core::sequence::Sequence;
use cadastre_protocol::admin::{OperatorRole, PolicyPatch};
use cadastre_protocol::ids::Shape;
use cadastre_runtime::token::Secret;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::error::CliError;

/// Hands out number ranges to regions, and never the same number twice.
///
/// Without a verb: `cadastre dev`.
#[derive(Parser, Debug)]
#[command(name = "cadastre", version, subcommand_required = false, max_term_width = 100)]
pub struct Cli {
    /// What holds for every verb.
    #[command(flatten)]
    pub common: Common,
    /// What to do.
    #[command(subcommand)]
    pub verb: Option<Verb>,
}

/// What holds for every verb.
#[derive(Args, Clone, Debug, Default)]
pub struct Common {
    /// Print the API's JSON instead of a table
    #[arg(long, global = true)]
    pub json: bool,
    /// The authority [default: the dev cluster's, from DIR/dev.json]
    #[arg(long, global = true, env = "CADASTRE_AUTHORITY_URL", value_name = "URL")]
    pub authority: Option<String>,
    /// Your token [default: the dev cluster's, from DIR/dev.json]
    #[arg(long, global = true, env = "CADASTRE_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub token: Option<Secret>,
    /// The dev cluster's folder [default: ./.cadastre]
    #[arg(long, global = true, env = "CADASTRE_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Run an authority and two regions in this process, to try things out
    Dev(DevArgs),
    /// Number spaces: create, list, change
    #[command(subcommand)]
    Namespace(NamespaceVerb),
    /// Regions: register, list, tokens
    #[command(subcommand)]
    Region(RegionVerb),
    /// Let a region run out what it holds; it gets nothing new
    Drain(RegionStep),
    /// Take a region's epoch away: it stops, and what it held is never issued
    Fence(RegionStep),
    /// Bring a drained or fenced region back, with a new epoch
    Recover(RecoverArgs),
    /// End a region for good; its name stays taken
    Retire(RegionStep),
    /// Callers: who may ask for IDs, where, and how much
    #[command(subcommand)]
    Service(ServiceVerb),
    /// Operators and viewers
    #[command(subcommand)]
    Operator(OperatorVerb),
    /// Ask an agent for IDs
    Ids(IdsArgs),
    /// What is left, where, and for how long
    Headroom,
    /// The ledger of a namespace: every range that was granted
    Grants(GrantsArgs),
    /// Who was given an ID
    Origin(OriginArgs),
    /// How an agent and its tiers are doing
    Status(StatusArgs),
    /// Check every invariant over the ledgers
    Verify,
    /// Stores that may have gone back in time
    #[command(subcommand)]
    Quarantine(QuarantineVerb),
    /// Look at everything that can be wrong, and say what to do
    Doctor,
}

/// `cadastre dev`.
#[derive(Args, Clone, Debug, Default)]
pub struct DevArgs {
    /// Start anew: remove the folder's data and its witnesses first
    #[arg(long)]
    pub reset: bool,
    /// The authority's port; regions listen 10 and 20 above it. 0 takes free ports [default: 7400]
    #[arg(long, value_name = "PORT")]
    pub base_port: Option<u16>,
    /// Send traffic, cut a region off, heal it, tell what happened, and end
    #[arg(long)]
    pub demo: bool,
    /// How long the demonstration's traffic lasts, in seconds
    #[arg(long, requires = "demo", default_value_t = 20, value_parser = clap::value_parser!(u32).range(3..=600))]
    pub seconds: u32,
}

/// `cadastre namespace`.
#[derive(Subcommand, Debug)]
pub enum NamespaceVerb {
    /// Define one; a deleted namespace of this name goes on where it stopped
    Create {
        /// Its name
        name: Name,
        #[command(flatten)]
        sequence: SequenceFlags,
        #[command(flatten)]
        policy: PolicyFlags,
    },
    /// All of them
    List,
    /// One, with its definition and policy
    Show {
        /// Its name
        name: Name,
    },
    /// Grant and issue nothing more, for now
    Freeze {
        /// Its name
        name: Name,
    },
    /// Go on
    Unfreeze {
        /// Its name
        name: Name,
    },
    /// Change settings; sequence flags make a new version of the definition
    Set {
        /// Its name
        name: Name,
        #[command(flatten)]
        sequence: SequenceFlags,
        #[command(flatten)]
        policy: PolicyFlags,
    },
    /// Hide and freeze it; its numbers stay used
    Delete {
        /// Its name
        name: Name,
        #[command(flatten)]
        sure: Sure,
    },
}

/// Whether to ask.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Sure {
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
}

/// How an ordinal becomes a value.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Sequence")]
pub struct SequenceFlags {
    /// First value [default: the minimum; descending: the maximum]
    #[arg(long, value_parser = signed, allow_negative_numbers = true, value_name = "N")]
    pub start: Option<i64>,
    /// Step from one value to the next [default: 1]
    #[arg(long, value_parser = signed, allow_negative_numbers = true, value_name = "N")]
    pub increment: Option<i64>,
    /// Smallest value [default: 1]
    #[arg(long, value_parser = signed, allow_negative_numbers = true, value_name = "N")]
    pub min: Option<i64>,
    /// Largest value [default: 2^63-1]
    #[arg(long, value_parser = signed, allow_negative_numbers = true, value_name = "N")]
    pub max: Option<i64>,
}

impl SequenceFlags {
    /// The sequence, where any flag was given.
    ///
    /// # Errors
    /// Where the flags cannot be together.
    pub fn sequence(&self) -> Result<Option<Sequence>, CliError> {
        let given = [("start", self.start), ("increment", self.increment), ("min", self.min), ("max", self.max)];
        let wire: serde_json::Map<String, serde_json::Value> =
            given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.to_string().into()))).collect();
        if wire.is_empty() {
            return Ok(None);
        }
        serde_json::from_value(wire.into()).map(Some).map_err(|error| CliError::usage(error.to_string()))
    }
}

/// Policy settings that differ from what is.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Policy")]
pub struct PolicyFlags {
    /// IDs in a region's first grant
    #[arg(long, value_parser = count, value_name = "N")]
    pub grant_size: Option<u64>,
    /// The most that one grant may hold
    #[arg(long, value_parser = count, value_name = "N")]
    pub grant_max: Option<u64>,
    /// The most that a region may hold unissued
    #[arg(long, value_parser = count, value_name = "N")]
    pub region_max_held: Option<u64>,
    /// The least that a segment holds
    #[arg(long, value_parser = count, value_name = "N")]
    pub segment_min: Option<u64>,
    /// The most that a segment holds
    #[arg(long, value_parser = count, value_name = "N")]
    pub segment_max: Option<u64>,
    /// IDs in a block per service; 0 lets all services share
    #[arg(long, value_parser = count, value_name = "N")]
    pub service_block: Option<u64>,
    /// How long a segment should last
    #[arg(long, value_name = "SECONDS")]
    pub target_seconds: Option<u32>,
    /// How long a grant should last at the peak rate
    #[arg(long, value_name = "SECONDS")]
    pub grant_target_seconds: Option<u32>,
    /// A refill starts when what is left lasts no longer than this
    #[arg(long, value_name = "SECONDS")]
    pub buffer_seconds: Option<u32>,
    /// Headroom for the peak rate times this
    #[arg(long, value_name = "TIMES")]
    pub surge_factor: Option<u32>,
    /// A refill starts at the latest at this share of the last range
    #[arg(long, value_name = "PERCENT")]
    pub floor_percent: Option<u32>,
}

impl PolicyFlags {
    /// What was given, where anything was.
    pub fn patch(&self) -> Option<PolicyPatch> {
        let patch = PolicyPatch {
            grant_size: self.grant_size,
            grant_max: self.grant_max,
            region_max_held: self.region_max_held,
            segment_min: self.segment_min,
            segment_max: self.segment_max,
            service_block: self.service_block,
            target_seconds: self.target_seconds,
            grant_target_seconds: self.grant_target_seconds,
            buffer_seconds: self.buffer_seconds,
            surge_factor: self.surge_factor,
            floor_percent: self.floor_percent,
        };
        let empty = serde_json::to_value(&patch).is_ok_and(|it| it.as_object().is_some_and(serde_json::Map::is_empty));
        (!empty).then_some(patch)
    }
}

/// `cadastre region`.
#[derive(Subcommand, Debug)]
pub enum RegionVerb {
    /// Register one; its agent's token is shown once
    Create {
        /// Its name
        name: Name,
    },
    /// All of them, with their agents
    List,
    /// A further token for its agents, shown once
    Token {
        /// Its name
        name: Name,
    },
}

/// One step of a region's life cycle.
#[derive(Args, Debug)]
pub struct RegionStep {
    /// The region
    pub region: Name,
    /// Why, for the audit
    #[arg(long)]
    pub reason: Option<String>,
    #[command(flatten)]
    pub sure: Sure,
}

/// `cadastre recover`.
#[derive(Args, Debug)]
pub struct RecoverArgs {
    #[command(flatten)]
    pub step: RegionStep,
    /// Its store is lost for good: let it come back with an empty one
    #[arg(long)]
    pub new_store: bool,
}

/// `cadastre service`.
#[derive(Subcommand, Debug)]
pub enum ServiceVerb {
    /// Define one
    Create {
        /// Its name
        name: Name,
        /// A namespace that it may ask for; several times, or with commas
        #[arg(long = "namespace", required = true, value_delimiter = ',', value_name = "NAMESPACE")]
        namespaces: Vec<Name>,
        #[command(flatten)]
        limits: LimitFlags,
    },
    /// All of them
    List,
    /// Change one; namespaces and limits that are given replace all that were
    Set {
        /// Its name
        name: Name,
        /// A namespace that it may ask for; several times, or with commas
        #[arg(long = "namespace", value_delimiter = ',', value_name = "NAMESPACE")]
        namespaces: Vec<Name>,
        #[command(flatten)]
        limits: LimitFlags,
    },
    /// A fresh token, shown once
    Token {
        /// Its name
        name: Name,
    },
    /// Revoke a token; a cut-off region learns of it when it is back
    Revoke {
        /// The service
        name: Name,
        /// The token's id, from `service list`
        token_id: Name,
    },
}

/// How much a service may ask for.
#[derive(Args, Clone, Debug, Default)]
pub struct LimitFlags {
    /// IDs a second, at each agent [default: no limit]
    #[arg(long, value_name = "N")]
    pub ids_per_second: Option<u32>,
    /// Requests at once, at each agent [default: no limit]
    #[arg(long, value_name = "N")]
    pub in_flight: Option<u32>,
    /// IDs in one request [default: 10000]
    #[arg(long, value_name = "N")]
    pub batch: Option<u32>,
}

impl LimitFlags {
    /// The limits, where any flag was given; what is not given is without limit.
    pub fn limits(&self) -> Option<Limits> {
        let any = self.ids_per_second.is_some() || self.in_flight.is_some() || self.batch.is_some();
        let batch = self.batch.unwrap_or(Limits::default().batch);
        any.then_some(Limits { ids_per_second: self.ids_per_second, in_flight: self.in_flight, batch })
    }
}

/// `cadastre operator`.
#[derive(Subcommand, Debug)]
pub enum OperatorVerb {
    /// Define one
    Create {
        /// Its name
        name: Name,
        /// What it may do
        #[arg(long, value_enum, default_value = "operator")]
        role: Role,
    },
    /// A fresh token, shown once
    Token {
        /// Its name
        name: Name,
    },
    /// All of them
    List,
}

/// What an operator may do.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Role {
    /// Everything
    Operator,
    /// Read
    Viewer,
}

impl From<Role> for OperatorRole {
    fn from(role: Role) -> Self {
        match role {
            Role::Operator => Self::Operator,
            Role::Viewer => Self::Viewer,
        }
    }
}

/// `cadastre ids`.
#[derive(Args, Debug)]
pub struct IdsArgs {
    /// From which namespace
    pub namespace: Name,
    /// How many [default: one]
    #[arg(long, short = 'n', value_parser = count, value_name = "N")]
    pub count: Option<u64>,
    /// How they are written
    #[arg(long = "as", value_enum, requires = "count", value_name = "SHAPE")]
    pub shape: Option<IdShape>,
    #[command(flatten)]
    pub agent: AgentFlags,
}

/// How IDs are written.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum IdShape {
    /// One a line
    List,
    /// First, last and step of each stretch
    Ranges,
}

impl From<IdShape> for Shape {
    fn from(shape: IdShape) -> Self {
        match shape {
            IdShape::List => Self::List,
            IdShape::Ranges => Self::Ranges,
        }
    }
}

/// Which agent is asked.
#[derive(Args, Clone, Debug, Default)]
pub struct AgentFlags {
    /// The region to ask [default: the first that is known; `status`: all]
    #[arg(long)]
    pub region: Option<Name>,
    /// The agent to ask
    #[arg(long, value_name = "URL")]
    pub agent: Option<String>,
}

/// `cadastre grants`.
#[derive(Args, Debug)]
pub struct GrantsArgs {
    /// Of which namespace
    pub namespace: Name,
    /// Only this region's
    #[arg(long)]
    pub region: Option<Name>,
}

/// `cadastre origin`.
#[derive(Args, Debug)]
pub struct OriginArgs {
    /// In which namespace
    pub namespace: Name,
    /// The ID
    #[arg(value_parser = signed, allow_negative_numbers = true)]
    pub id: i64,
}

/// `cadastre status`.
#[derive(Args, Debug)]
pub struct StatusArgs {
    #[command(flatten)]
    pub agent: AgentFlags,
}

/// `cadastre quarantine`.
#[derive(Subcommand, Debug)]
pub enum QuarantineVerb {
    /// What gives nothing out, why, and what it waits for
    List,
    /// State what silent regions may hold at most, and go on above it
    Lift(LiftArgs),
}

/// `cadastre quarantine lift`.
#[derive(Args, Debug)]
pub struct LiftArgs {
    /// Which namespace
    pub namespace: Name,
    /// For a silent region, an ordinal below which all that it ever held lies; several times
    #[arg(long = "bound", required = true, value_name = "REGION=ORDINAL", value_parser = bound)]
    pub bounds: Vec<(Name, u64)>,
    /// You made sure that the old store and its authorities are stopped
    #[arg(long)]
    pub old_store_stopped: bool,
    /// Why, for the audit
    #[arg(long)]
    pub reason: String,
    #[command(flatten)]
    pub sure: Sure,
}

/// A number of IDs.
fn count(text: &str) -> Result<u64, String> {
    plain(text).parse().map_err(|_| "not a whole number of 0 or more".to_owned())
}

/// A value.
fn signed(text: &str) -> Result<i64, String> {
    plain(text).parse().map_err(|_| format!("not a whole number from {} to {}", i64::MIN, i64::MAX))
}

fn plain(text: &str) -> String {
    text.replace(['_', ','], "")
}

fn bound(text: &str) -> Result<(Name, u64), String> {
    let (region, ordinal) = text.split_once('=').ok_or("write REGION=ORDINAL, such as eu=4000000")?;
    Ok((Name::new(region).map_err(|error| error.to_string())?, count(ordinal)?))
}

#[cfg(test)]
mod tests;
