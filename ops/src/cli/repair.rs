//! Flags of the verbs for what must not happen: ranges that two hold, an authority that is gone, a store that went back.

use cadastre_core::ids::Name;
use cadastre_runtime::token::Secret;
use clap::{Args, Subcommand};

use super::Sure;
use super::flags::bound;

/// `cadastre verify`.
#[derive(Args, Debug)]
pub struct VerifyArgs {
    /// List every range that two hold, with holders and times, over all ledgers that can be read
    #[arg(long)]
    pub blast_radius: bool,
}

/// `cadastre rebuild`.
#[derive(Args, Debug)]
pub struct RebuildArgs {
    /// An agent of the lost authority's cluster; several times, and one is enough
    #[arg(long = "agent", required = true, value_name = "URL")]
    pub agents: Vec<String>,
    /// For the agents: an operator's token that they knew, or their region's own [default: --token]
    #[arg(long, env = "CADASTRE_AGENT_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub agent_token: Option<Secret>,
    /// You made sure that the old authority is stopped, and that no copy of its store will be started again
    #[arg(long)]
    pub old_store_stopped: bool,
    /// Seconds to wait for the regions' testimony
    #[arg(long, default_value_t = 60)]
    pub wait: u64,
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
