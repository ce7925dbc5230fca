//! Flags of `cadastre dev`.

use clap::Args;

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
