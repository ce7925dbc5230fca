//! `cadastre headroom`: what is left, where, and for how long.

use cadastre_core::namespace::NamespaceKind;
use cadastre_protocol::admin::{Headroom, NamespaceHeadroom};

use super::{now_ms, print};
use crate::api::typed;
use crate::cli::Common;
use crate::connect;
use crate::error::{CliError, Outcome};
use crate::show;
use crate::show::human::{ago, date, digits, moment, rate, runway};
use crate::show::table::Table;

/// An end that is further away is not worth a word: a thousand years.
const FAR_MS: u64 = 1_000 * 365 * 86_400_000;

pub async fn run(common: &Common) -> Result<Outcome, CliError> {
    let answer = connect::authority(common)?.get("/v1/headroom").await?;
    print(common, answer, |answer| {
        let headroom: Headroom = typed(answer)?;
        if headroom.namespaces.is_empty() {
            show::line("no namespaces yet: `cadastre namespace create NAME`");
        }
        for (index, namespace) in headroom.namespaces.iter().enumerate() {
            if index > 0 {
                show::line("");
            }
            one(namespace);
        }
        Ok(())
    })
}

/// A region may stamp for so long without its authority.
fn one_timed(namespace: &NamespaceHeadroom, now: u64) {
    let ends = namespace.space_ends_at.map(|at| format!("the layout lasts until {} ({})", date(at), moment(at, now)));
    show::line(format!("{}: {}", namespace.name, ends.unwrap_or_default()));
    let mut table = Table::new(&["region", "state", ">stamps for", "heard"]);
    for region in &namespace.regions {
        let hours = region.window_hours.unwrap_or(0.0);
        let left = if hours <= 0.0 { "no time given".to_owned() } else { runway(region.runway_seconds) };
        table.row(vec![
            region.region.to_string(),
            format!("{}, epoch {}", region.state.as_str(), region.epoch),
            left,
            region.heard_seconds.map_or_else(|| "never".to_owned(), ago),
        ]);
    }
    for line in table.text("no region stamps in it").lines() {
        show::line(format!("  {line}"));
    }
}

fn one(namespace: &NamespaceHeadroom) {
    let now = now_ms();
    if namespace.kind == NamespaceKind::UuidV7 {
        show::line(format!("{}: UUIDs; nothing is granted, and nothing runs dry", namespace.name));
        return;
    }
    if namespace.kind == NamespaceKind::Snowflake {
        return one_timed(namespace, now);
    }
    let foreseeable = namespace.space_ends_at.filter(|at| at.saturating_sub(now) < FAR_MS);
    let ends = foreseeable.map(|at| format!(", at this rate used up {}", moment(at, now))).unwrap_or_default();
    show::line(format!("{}: {} left{ends}", namespace.name, digits(namespace.space_left)));
    let (issued, burned) = (digits(namespace.issued_estimate), digits(namespace.burned));
    show::line(format!("  about {issued} issued, {burned} lost as gaps"));
    let mut table =
        Table::new(&["region", "state", ">left", ">ids/s", ">runway", ">at peak", ">granted", ">carved", "heard"]);
    for region in &namespace.regions {
        table.row(vec![
            region.region.to_string(),
            format!("{}, epoch {}", region.state.as_str(), region.epoch),
            digits(region.left),
            rate(region.rate_per_second),
            runway(region.runway_seconds),
            runway(region.runway_at_peak_seconds),
            digits(region.granted),
            digits(region.carved),
            region.heard_seconds.map_or_else(|| "never".to_owned(), ago),
        ]);
    }
    for line in table.text("no region holds any of it").lines() {
        show::line(format!("  {line}"));
    }
}
