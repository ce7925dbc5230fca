//! Verbs and flags. What they do is in `verbs` and `dev`.
//!
//! Invariant: every verb that is listed here is built. Numbers of IDs may be written with `_` or `,`
//! between their digits. Absent on purpose: aliases.

mod apply;
mod dev;
mod flags;
mod operate;
mod repair;

use std::path::PathBuf;

use cadastre_core::ids::Name;
use cadastre_core::namespace::Reader;
use cadastre_protocol::admin::OperatorRole;
use cadastre_protocol::ids::Shape;
use cadastre_runtime::tls::TlsArgs;
use cadastre_runtime::token::Secret;
use clap::{Args, Parser, Subcommand, ValueEnum};

pub use apply::ApplyArgs;
pub use dev::DevArgs;
pub use flags::{KindFlags, LimitFlags, PolicyFlags, SequenceFlags};
use flags::{count, signed};
pub use operate::{
    ClockArgs, DrillVerb, FailoverArgs, HowArgs, ScheduleVerb, ScheduledDrill, SwitchArgs, SwitchVerb, WanCutArgs,
};
pub use repair::{LiftArgs, QuarantineVerb, RebuildArgs, VerifyArgs};

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
    /// Who signs the certificates of the daemons (PEM) [default: whom this machine believes]
    #[arg(long = "ca", global = true, env = "CADASTRE_TLS_CA", value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Your certificate, where the daemons ask for one (PEM)
    #[arg(long = "cert", global = true, env = "CADASTRE_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Its key (PEM)
    #[arg(long = "key", global = true, env = "CADASTRE_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
}

impl Common {
    /// Certificates, as the flags name them.
    pub fn tls(&self) -> TlsArgs {
        let (tls_ca, tls_cert, tls_key) = (self.tls_ca.clone(), self.tls_cert.clone(), self.tls_key.clone());
        TlsArgs { tls_ca, tls_cert, tls_key, tls_client_ca: None }
    }
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
    /// Bring namespaces and services to what a file says, after showing the difference
    Apply(ApplyArgs),
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
    Verify(VerifyArgs),
    /// Make an authority that was lost for good again, from what its regions know
    Rebuild(RebuildArgs),
    /// Stores that may have gone back in time
    #[command(subcommand)]
    Quarantine(QuarantineVerb),
    /// Move the home of a namespace from one region to another, without ever risking a duplicate
    Switch(SwitchArgs),
    /// Rehearse losing a region's way to the authority
    #[command(subcommand)]
    Drill(DrillVerb),
    /// Look at everything that can be wrong, and say what to do
    Doctor,
    /// Whether a daemon answers 200 at an address, such as http://127.0.0.1:7400/readyz; for health checks
    Probe {
        /// One of them is enough
        #[arg(required = true, value_name = "URL")]
        urls: Vec<String>,
    },
    /// Plan the bits of time-based ids: which layouts last for how long, and for how many
    Layout(LayoutArgs),
    /// Measure this machine: our paths against peers, in one run
    Bench(BenchArgs),
    /// An agent of `bench`, as its own binary starts it
    #[command(hide = true)]
    BenchAgent {
        /// Its settings
        config: PathBuf,
    },
    /// A peer of `bench`: a bare HTTP server
    #[command(hide = true)]
    BenchPeer {
        /// Where it listens
        address: std::net::SocketAddr,
    },
}

/// `cadastre layout`.
#[derive(Args, Clone, Debug)]
pub struct LayoutArgs {
    /// Regions at a time
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub regions: u64,
    /// Workers (agents and processes that stamp) of each region at a time
    #[arg(long, default_value_t = 128, value_name = "N")]
    pub workers: u64,
    /// How many years it has to last
    #[arg(long, default_value_t = 50, value_name = "N")]
    pub years: u64,
    /// IDs a second of one worker at its peak
    #[arg(long, value_parser = count, default_value = "1000000", value_name = "N")]
    pub peak: u64,
    /// Bits of the whole id: 63, or 53 where JavaScript reads it as a number
    #[arg(long, default_value_t = 63, value_name = "BITS")]
    pub bits: u32,
    /// Look at this layout instead: bits of timestamp, region, worker and sequence
    #[arg(long, value_parser = flags::bits, value_name = "T,R,W,S")]
    pub layout: Option<[u32; 4]>,
    /// The length of a unit of time of --layout
    #[arg(long, default_value_t = 1, value_name = "MS")]
    pub unit_ms: u32,
    /// When time begins, milliseconds since the Unix epoch [default: 2025-01-01]
    #[arg(long, value_name = "MS")]
    pub epoch_ms: Option<u64>,
}

/// `cadastre bench`.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// Rows, or the beginnings of their names [default: all]
    #[arg(value_name = "ROW")]
    pub rows: Vec<String>,
    /// List the rows and their targets
    #[arg(long)]
    pub list: bool,
    /// Turns of each contender
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// One turn without a network, in milliseconds
    #[arg(long, default_value_t = 300, value_name = "MS", value_parser = clap::value_parser!(u64).range(10..=10_000))]
    pub turn_ms: u64,
    /// One turn over a socket, in seconds
    #[arg(long, default_value_t = 3, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=600))]
    pub load_seconds: u32,
    /// Write the table and a plot into this page
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
}

/// `cadastre namespace`.
#[derive(Subcommand, Debug)]
pub enum NamespaceVerb {
    /// Define one; a deleted namespace of this name goes on where it stopped
    Create {
        /// Its name
        name: Name,
        #[command(flatten)]
        kind: KindFlags,
        /// Who reads the ids, and the largest value that it takes; more than that is refused
        #[arg(long = "reader", value_parser = flags::reader, value_name = "NAME=LARGEST")]
        readers: Vec<Reader>,
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
        /// Who reads the ids from now on, and the largest value that it takes
        #[arg(long = "reader", value_parser = flags::reader, value_name = "NAME=LARGEST")]
        readers: Vec<Reader>,
        /// The regions that serve it from now on, with commas, or `all`; `cadastre switch` moves one with care
        #[arg(long, value_delimiter = ',', value_name = "REGION")]
        home: Vec<String>,
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
    /// Revoke a token, once its agents use another one
    Revoke {
        /// The region
        name: Name,
        /// The token's id, from `region tokens`
        token_id: Name,
    },
    /// The tokens of one
    Tokens {
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
    /// Change one; namespaces that are given replace all that were
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
    /// Revoke a token; the last one that operates stays
    Revoke {
        /// The operator or viewer
        name: Name,
        /// The token's id, from `operator list`
        token_id: Name,
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

#[cfg(test)]
mod tests;
