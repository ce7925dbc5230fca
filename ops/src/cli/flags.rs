//! Flags that several verbs share, and how numbers are read.
//!
//! Invariant: a flag that was not given changes nothing.

use cadastre_core::ids::Name;
use cadastre_core::layout::Layout;
use cadastre_core::namespace::{NamespaceKind, Reader};
use cadastre_core::roster::Limits;
use cadastre_core::sequence::Sequence;
use cadastre_protocol::admin::PolicyPatch;
use clap::Args;
use serde_json::json;

use crate::error::CliError;

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

/// What sort of ids a namespace has, besides how a number becomes a value.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Kind")]
pub struct KindFlags {
    /// range, snowflake (time, region, worker and sequence in 63 bits) or uuid-v7 [default: range]
    #[arg(long, value_parser = kind, value_name = "KIND")]
    pub kind: Option<NamespaceKind>,
    /// Of a snowflake namespace: bits of timestamp, region, worker and sequence; `cadastre layout` plans them
    /// [default: 41,3,7,12]
    #[arg(long, value_parser = bits, value_name = "T,R,W,S")]
    pub layout: Option<[u32; 4]>,
    /// Of a snowflake namespace: the length of a unit of time [default: 1]
    #[arg(long, value_name = "MS")]
    pub unit_ms: Option<u32>,
    /// Of a snowflake namespace: when time begins, milliseconds since the Unix epoch [default: 2025-01-01]
    #[arg(long, value_name = "MS")]
    pub epoch_ms: Option<u64>,
}

impl KindFlags {
    /// The layout, where any flag of one was given.
    ///
    /// # Errors
    /// Where the fields cannot be together.
    pub fn layout(&self) -> Result<Option<Layout>, CliError> {
        if self.layout.is_none() && self.unit_ms.is_none() && self.epoch_ms.is_none() {
            return Ok(None);
        }
        let usual = Layout::default();
        let bits = self.layout.unwrap_or_else(|| usual.bits());
        let layout = Layout::new(bits, self.unit_ms.unwrap_or(1), self.epoch_ms.unwrap_or_else(|| usual.begins_ms(0)));
        layout.map(Some).map_err(|error| CliError::usage(error.to_string()))
    }
}

fn kind(text: &str) -> Result<NamespaceKind, String> {
    let kinds = [NamespaceKind::Range, NamespaceKind::Snowflake, NamespaceKind::UuidV7];
    let found = kinds.into_iter().find(|kind| kind.as_str() == text.replace('-', "_"));
    found.ok_or_else(|| "one of range, snowflake, uuid-v7".to_owned())
}

/// Four numbers of bits.
pub fn bits(text: &str) -> Result<[u32; 4], String> {
    let all: Result<Vec<u32>, _> = text.split([',', '|']).map(|n| n.trim().parse()).collect();
    let all = all.ok().and_then(|all| <[u32; 4]>::try_from(all).ok());
    all.ok_or_else(|| "write bits of timestamp,region,worker,sequence, such as 41,3,7,12".to_owned())
}

/// A reader of ids and the largest value that it takes.
pub fn reader(text: &str) -> Result<Reader, String> {
    let (name, up_to) = text.split_once('=').ok_or("write NAME=LARGEST, such as web-page=9007199254740991")?;
    Ok(Reader { name: Name::new(name).map_err(|error| error.to_string())?, up_to: count(up_to)? })
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

/// How much a service may ask for.
#[derive(Args, Clone, Debug, Default)]
pub struct LimitFlags {
    /// IDs a second, at each agent; 0 is no limit [default: no limit]
    #[arg(long, value_name = "N")]
    pub ids_per_second: Option<u32>,
    /// Requests at once, at each agent; 0 is no limit [default: no limit]
    #[arg(long, value_name = "N")]
    pub in_flight: Option<u32>,
    /// IDs in one request [default: 10000]
    #[arg(long, value_name = "N")]
    pub batch: Option<u32>,
    /// Processes that take segments, in each region; 0 is no limit [default: no limit]
    #[arg(long, value_name = "N")]
    pub holders: Option<u32>,
    /// IDs that those may hold unissued, in each region; 0 is no limit [default: no limit]
    #[arg(long, value_name = "N", value_parser = count)]
    pub held_ids: Option<u64>,
}

impl LimitFlags {
    /// Whether any flag was given.
    pub fn any(&self) -> bool {
        let Self { ids_per_second, in_flight, batch, holders, held_ids } = self;
        [ids_per_second, in_flight, batch, holders].into_iter().any(Option::is_some) || held_ids.is_some()
    }

    /// What was given, as a change of a service's limits: 0 takes one away.
    pub fn changes(&self) -> serde_json::Map<String, serde_json::Value> {
        let number = |given: Option<u32>| given.map(|n| if n == 0 { json!(null) } else { json!(n) });
        let held = self.held_ids.map(|n| if n == 0 { json!(null) } else { json!(n.to_string()) });
        let all = [
            ("ids_per_second", number(self.ids_per_second)),
            ("in_flight", number(self.in_flight)),
            ("batch", self.batch.map(|n| json!(n))),
            ("holders", number(self.holders)),
            ("held_ids", held),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    /// `limits` with what was given.
    pub fn over(&self, limits: Limits) -> Limits {
        let or = |given: Option<u32>, was: Option<u32>| given.or(was).filter(|limit| *limit > 0);
        Limits {
            ids_per_second: or(self.ids_per_second, limits.ids_per_second),
            in_flight: or(self.in_flight, limits.in_flight),
            batch: self.batch.unwrap_or(limits.batch),
            holders: or(self.holders, limits.holders),
            held_ids: self.held_ids.or(limits.held_ids).filter(|limit| *limit > 0),
        }
    }
}

/// A number of IDs.
pub fn count(text: &str) -> Result<u64, String> {
    plain(text).parse().map_err(|_| "not a whole number of 0 or more".to_owned())
}

/// A value.
pub fn signed(text: &str) -> Result<i64, String> {
    plain(text).parse().map_err(|_| format!("not a whole number from {} to {}", i64::MIN, i64::MAX))
}

fn plain(text: &str) -> String {
    text.replace(['_', ','], "")
}

/// A region and an ordinal.
pub fn bound(text: &str) -> Result<(Name, u64), String> {
    let (region, ordinal) = text.split_once('=').ok_or("write REGION=ORDINAL, such as eu=4000000")?;
    Ok((Name::new(region).map_err(|error| error.to_string())?, count(ordinal)?))
}
