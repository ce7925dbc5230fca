//! Flags of `cadastre switch` and `cadastre drill`.

use cadastre_core::ids::Name;
use clap::{Args, Subcommand};

use super::Sure;

/// `cadastre switch`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct SwitchArgs {
    /// What to do with one that was begun
    #[command(subcommand)]
    pub verb: Option<SwitchVerb>,
    /// What moves [default: all that the region serves]
    #[arg(long)]
    pub namespace: Option<Name>,
    /// The region that is left
    #[arg(long, required = true, value_name = "REGION")]
    pub from: Option<Name>,
    /// The region that takes over
    #[arg(long, required = true, value_name = "REGION")]
    pub to: Option<Name>,
    /// Take the epoch of the region that is left away as well
    #[arg(long, conflicts_with = "namespace")]
    pub fence: bool,
    /// Begin it, and do not wait for its end: it goes on by itself
    #[arg(long)]
    pub no_wait: bool,
    #[command(flatten)]
    pub sure: Sure,
}

/// What to do with a switch that was begun.
#[derive(Subcommand, Debug)]
pub enum SwitchVerb {
    /// All of them, newest first
    List,
    /// One, with its ledger
    Show {
        /// Which
        id: String,
    },
    /// Let a stopped one go on, and follow it
    Resume {
        /// Which
        id: String,
    },
    /// Put the homes back as they were before it
    BackOut {
        /// Which
        id: String,
    },
}

/// `cadastre drill`.
#[derive(Subcommand, Debug)]
pub enum DrillVerb {
    /// A region's agents refuse their own uplink for a while, and heal by themselves
    WanCut(WanCutArgs),
    /// A region's home is given to another region for a while, and brought back
    Failover(FailoverArgs),
    /// A region's agents read their clocks wrong for a while: inside the process, never the machine's
    Clock(ClockArgs),
    /// The store of `cadastre dev`'s authority is put back to a copy: on a dev cluster only
    Restore,
    /// The game day: a drill that is repeated
    #[command(subcommand)]
    Schedule(ScheduleVerb),
    /// All of them, newest first
    List,
    /// One, with its report
    Show {
        /// Which
        id: String,
    },
    /// End one before its time
    Abort {
        /// Which
        id: String,
    },
}

/// `cadastre drill wan-cut`.
#[derive(Args, Debug)]
pub struct WanCutArgs {
    /// Which region
    #[arg(long)]
    pub region: Name,
    /// For how long at most: 90s, 10m, 2h
    #[arg(long = "for", value_parser = seconds, value_name = "TIME")]
    pub for_seconds: u32,
    /// What may run dry
    #[arg(long, requires = "until_dry")]
    pub namespace: Option<Name>,
    /// End it once the namespace has nothing left in the region, and compare that with the forecast
    #[arg(long, requires = "namespace")]
    pub until_dry: bool,
    /// The share of any other namespace's headroom that may be used, in percent
    #[arg(long, default_value_t = 50, value_name = "N")]
    pub share: u32,
    #[command(flatten)]
    pub how: HowArgs,
}

/// How any drill is ordered.
#[derive(Args, Debug)]
pub struct HowArgs {
    /// The region's name once more, that you mean it [a person is asked; scripts say --yes]
    #[arg(long, value_name = "REGION")]
    pub confirm: Option<String>,
    /// Order it, and do not wait for its report
    #[arg(long)]
    pub no_wait: bool,
    #[command(flatten)]
    pub sure: Sure,
}

/// `cadastre drill failover`.
#[derive(Args, Debug)]
pub struct FailoverArgs {
    /// The region that is left
    #[arg(long)]
    pub region: Name,
    /// The region that takes over
    #[arg(long, value_name = "REGION")]
    pub to: Name,
    /// For how long the home is away: 90s, 10m, 2h
    #[arg(long = "for", value_parser = seconds, value_name = "TIME", default_value = "60s")]
    pub for_seconds: u32,
    /// What moves [default: all that the region serves]
    #[arg(long)]
    pub namespace: Option<Name>,
    #[command(flatten)]
    pub how: HowArgs,
}

/// `cadastre drill clock`.
#[derive(Args, Debug)]
pub struct ClockArgs {
    /// Which region
    #[arg(long)]
    pub region: Name,
    /// How far off: -30s, +1h
    #[arg(long, value_parser = offset, value_name = "TIME", allow_hyphen_values = true)]
    pub by: i64,
    /// For how long: 90s, 10m, 2h
    #[arg(long = "for", value_parser = seconds, value_name = "TIME")]
    pub for_seconds: u32,
    #[command(flatten)]
    pub how: HowArgs,
}

/// `cadastre drill schedule`.
#[derive(Subcommand, Debug)]
pub enum ScheduleVerb {
    /// What is repeated, when next, and what became of the last one
    List,
    /// Repeat a drill, in place of what was repeated
    Set {
        /// Between two of them, in hours
        #[arg(long, default_value_t = 168, value_name = "N")]
        every_hours: u32,
        /// Until the first one: 90s, 10m, 2h [default: one interval]
        #[arg(long = "in", value_parser = seconds, value_name = "TIME")]
        in_seconds: Option<u32>,
        /// Which
        #[command(subcommand)]
        drill: ScheduledDrill,
    },
    /// Repeat nothing any more
    Remove,
}

/// A drill that can be repeated.
#[derive(Subcommand, Debug)]
pub enum ScheduledDrill {
    /// A region's agents refuse their own uplink for a while, and heal by themselves
    WanCut(WanCutArgs),
    /// A region's home is given to another region for a while, and brought back
    Failover(FailoverArgs),
    /// A region's agents read their clocks wrong for a while
    Clock(ClockArgs),
}

/// `-30s`, `+1h`: milliseconds.
pub fn offset(text: &str) -> Result<i64, String> {
    let wrong = || format!("{text:?} is no offset such as -30s or +1h");
    let (sign, time) = match (text.strip_prefix('-'), text.strip_prefix('+')) {
        (Some(time), _) => (-1, time),
        (_, Some(time)) => (1, time),
        (None, None) => return Err(wrong()),
    };
    Ok(i64::from(seconds(time).map_err(|_| wrong())?) * sign * 1_000)
}

/// `90`, `90s`, `10m`, `2h`.
pub fn seconds(text: &str) -> Result<u32, String> {
    let wrong = || format!("{text:?} is no time such as 90s, 10m or 2h");
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let factor = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return Err(wrong()),
    };
    let number: u32 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(factor).filter(|n| *n > 0).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_have_a_sign() {
        assert_eq!((offset("-30s"), offset("+1h"), offset("+5")), (Ok(-30_000), Ok(3_600_000), Ok(5_000)));
        for wrong in ["", "30s", "-", "+0", "--1s", "+-1s"] {
            assert!(offset(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_are_read_strictly() {
        assert_eq!(
            (seconds("90"), seconds("90s"), seconds("10m"), seconds("2h")),
            (Ok(90), Ok(90), Ok(600), Ok(7_200))
        );
        for wrong in ["", "s", "0", "-1s", "1d", "1.5h", "99999999h", "10 m"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
