//! Flags of `cadastre apply`.

use std::path::PathBuf;

use clap::Args;

use super::Sure;

/// `cadastre apply`.
#[derive(Args, Debug)]
pub struct ApplyArgs {
    /// What there should be: TOML, or JSON where its name ends in .json
    pub file: PathBuf,
    /// Only show what would change; exit code 1 where something would
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub sure: Sure,
}
