//! `cadastre namespace`: number spaces.

use cadastre_core::ids::Name;
use cadastre_core::namespace::NamespaceKind;
use cadastre_protocol::admin::{NamespacePatch, NamespaceView, NewNamespace};
use serde_json::Value;

use super::{print, rows};
use crate::api::{Api, typed};
use crate::cli::{Common, NamespaceVerb, Sure};
use crate::connect;
use crate::error::{CliError, Outcome};
use crate::show::human::{date, digits, duration, group};
use crate::show::table::{Table, pairs};
use crate::show::{self, confirm};

pub async fn run(common: &Common, verb: NamespaceVerb) -> Result<Outcome, CliError> {
    let api = connect::authority(common)?;
    match verb {
        NamespaceVerb::Create { name, kind, readers, sequence, policy } => {
            let new = NewNamespace {
                name,
                kind: kind.kind.unwrap_or_default(),
                sequence: sequence.sequence()?,
                layout: kind.layout()?,
                readers,
                policy: policy.patch().unwrap_or_default(),
            };
            print(common, api.post("/v1/namespaces", &new).await?, one)
        }
        NamespaceVerb::List => print(common, api.get("/v1/namespaces").await?, list),
        NamespaceVerb::Show { name } => print(common, api.get(&path(&name)).await?, one),
        NamespaceVerb::Freeze { name } => freeze(common, &api, &name, true).await,
        NamespaceVerb::Unfreeze { name } => freeze(common, &api, &name, false).await,
        NamespaceVerb::Set { name, readers, home, sequence, policy } => {
            let readers = (!readers.is_empty()).then_some(readers);
            let patch = NamespacePatch {
                policy: policy.patch(),
                sequence: sequence.sequence()?,
                readers,
                home: home_of(&home)?,
                ..NamespacePatch::default()
            };
            let sets =
                [patch.policy.is_some(), patch.sequence.is_some(), patch.readers.is_some(), patch.home.is_some()];
            if !sets.contains(&true) {
                let text = "nothing to set: give at least one flag (`cadastre namespace set --help`)";
                return Err(CliError::usage(text));
            }
            print(common, api.patch(&path(&name), &patch).await?, one)
        }
        NamespaceVerb::Delete { name, sure } => delete(common, &api, &name, sure).await,
    }
}

/// No regions are all of them.
fn home_of(words: &[String]) -> Result<Option<Vec<Name>>, CliError> {
    let regions = match words {
        [] => return Ok(None),
        [all] if all == "all" => Vec::new(),
        some => some.to_vec(),
    };
    let names = regions.into_iter().map(|word| Name::new(word).map_err(|e| CliError::usage(format!("--home: {e}"))));
    names.collect::<Result<_, _>>().map(Some)
}

fn path(name: &Name) -> String {
    format!("/v1/namespaces/{name}")
}

async fn freeze(common: &Common, api: &Api, name: &Name, frozen: bool) -> Result<Outcome, CliError> {
    let patch = NamespacePatch { frozen: Some(frozen), ..NamespacePatch::default() };
    let answer = api.patch(&path(name), &patch).await?;
    print(common, answer, |_| {
        if frozen {
            show::line(format!("{name} is frozen: nothing more is granted; each region stops when it hears of it"));
        } else {
            show::line(format!("{name} goes on"));
        }
        Ok(())
    })
}

async fn delete(common: &Common, api: &Api, name: &Name, sure: Sure) -> Result<Outcome, CliError> {
    let what =
        format!("{name} will be hidden and frozen. Its numbers stay used: creating {name} again goes on above them.");
    confirm(&what, sure.yes)?;
    let answer = api.delete(&path(name)).await?;
    print(common, answer, |_| {
        show::line(format!("{name} is hidden and frozen; `cadastre namespace create {name}` brings it back"));
        Ok(())
    })
}

fn list(answer: Value) -> Result<(), CliError> {
    let namespaces: Vec<NamespaceView> = typed(rows(answer, "namespaces"))?;
    let mut table = Table::new(&["namespace", "values", ">granted", ">left", "home", "state"]);
    for namespace in namespaces {
        let home = namespace.home.as_deref().map(names);
        table.row(vec![
            namespace.name.to_string(),
            values(&namespace),
            if timed(&namespace) { "-".to_owned() } else { digits(namespace.watermark) },
            if timed(&namespace) { "-".to_owned() } else { digits(namespace.space_left) },
            home.unwrap_or_else(|| "all regions".to_owned()),
            state(&namespace).to_owned(),
        ]);
    }
    table.print("no namespaces yet: `cadastre namespace create NAME`");
    Ok(())
}

fn timed(namespace: &NamespaceView) -> bool {
    namespace.kind != NamespaceKind::Range
}

fn one(answer: Value) -> Result<(), CliError> {
    let namespace: NamespaceView = typed(answer)?;
    if timed(&namespace) {
        return one_timed(&namespace);
    }
    let policy = namespace.policy;
    let seconds = |seconds: u32| duration(u64::from(seconds));
    let mut lines = vec![
        ("namespace", namespace.name.to_string()),
        ("state", state(&namespace).to_owned()),
        ("values", values(&namespace)),
        ("granted", digits(namespace.watermark)),
        ("left", digits(namespace.space_left)),
        ("home", namespace.home.as_deref().map_or_else(|| "all regions".to_owned(), names)),
        ("grants", format!("{} at first, at most {}", digits(policy.grant_size), digits(policy.grant_max))),
        ("", format!("for {} at the peak rate x {}", seconds(policy.grant_target_seconds), policy.surge_factor)),
        ("held", format!("at most {} unissued in a region", digits(policy.region_max_held))),
        ("segments", format!("{} to {}", digits(policy.segment_min), digits(policy.segment_max))),
        ("", format!("for {} each", seconds(policy.target_seconds))),
        ("refill", format!("at {} left, or {} %", seconds(policy.buffer_seconds), policy.floor_percent)),
    ];
    if policy.service_block > 0 {
        lines.push(("per service", format!("blocks of {}", digits(policy.service_block))));
    }
    show::line(pairs(&lines));
    Ok(())
}

fn one_timed(namespace: &NamespaceView) -> Result<(), CliError> {
    let seconds = |seconds: u32| duration(u64::from(seconds));
    let mut lines = vec![
        ("namespace", namespace.name.to_string()),
        ("state", state(namespace).to_owned()),
        ("values", values(namespace)),
        ("home", namespace.home.as_deref().map_or_else(|| "all regions".to_owned(), names)),
    ];
    if let Some(layout) = &namespace.layout {
        lines.push(("lasts until", date(layout.ends_ms())));
        lines.push(("cut off", format!("a region stamps for {}", seconds(namespace.policy.grant_target_seconds))));
        lines.push(("", format!("a worker for {}", seconds(namespace.policy.target_seconds))));
    }
    let slots: Vec<String> = namespace
        .slots
        .iter()
        .map(|s| format!("{} {} (epoch {}) until {}", s.slot, s.region, s.epoch, date(s.until)))
        .collect();
    for (i, slot) in slots.into_iter().enumerate() {
        lines.push((if i == 0 { "slots" } else { "" }, slot));
    }
    for reader in &namespace.readers {
        lines.push(("reader", format!("{} takes values up to {}", reader.name, digits(reader.up_to))));
    }
    show::line(pairs(&lines));
    Ok(())
}

/// `1, 2, 3 ... 9,223,372,036,854,775,807`.
fn values(namespace: &NamespaceView) -> String {
    match (namespace.kind, &namespace.layout) {
        (NamespaceKind::UuidV7, _) => return "UUIDs of version 7".to_owned(),
        (_, Some(layout)) => {
            let [timestamp, region, worker, sequence] = layout.bits();
            let unit = layout.unit_ms();
            return format!(
                "time {timestamp} | region {region} | worker {worker} | sequence {sequence}, in units of {unit} ms"
            );
        }
        _ => {}
    }
    let sequence = namespace.sequence;
    let (start, step) = (i128::from(sequence.start()), i128::from(sequence.increment()));
    let first = [start, start + step].map(|value| group(&value.to_string()));
    let last = if step > 0 { sequence.max() } else { sequence.min() };
    format!("{}, {} ... {}", first[0], first[1], group(&last.to_string()))
}

fn state(namespace: &NamespaceView) -> &'static str {
    if namespace.frozen {
        "frozen"
    } else if namespace.space_left == 0 {
        "used up"
    } else {
        "live"
    }
}

fn names(names: &[Name]) -> String {
    names.iter().map(Name::as_str).collect::<Vec<_>>().join(", ")
}
