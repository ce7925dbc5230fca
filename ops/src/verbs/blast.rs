//! `cadastre verify --blast-radius`: the ranges that two hold, by whom and since when, over the authority's ledger and
//! those of every region that answers. For the day on which the promise was broken: these are the numbers to look for.

use std::collections::BTreeMap;

use cadastre_core::ids::Name;
use cadastre_core::overlap::overlaps;
use cadastre_core::range::Range;
use cadastre_core::sequence::Definition;
use cadastre_protocol::admin::{GrantsPage, NamespaceView};
use cadastre_protocol::rebuild::AdoptedPage;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{now_ms, rows};
use crate::api::{Api, typed};
use crate::cli::Common;
use crate::connect;
use crate::error::{CliError, Outcome};
use crate::show;
use crate::show::human::{digits, moment};
use crate::show::table::Table;

/// Who holds a range.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
struct Holder {
    region: Name,
    epoch: u64,
    /// The grant or segment.
    id: String,
    /// The service or instance, and its incarnation, of a segment.
    holder: Option<String>,
    at: String,
}

/// What a ledger says somebody holds.
#[derive(Clone, Debug)]
struct Held {
    range: Range,
    holder: Holder,
}

/// Numbers that two hold.
#[derive(Clone, Debug, Serialize)]
struct Shared {
    namespace: Name,
    /// `grant` or `segment`.
    level: &'static str,
    lo: String,
    hi: String,
    /// The IDs, where the namespace is one of numbers.
    first_id: Option<String>,
    last_id: Option<String>,
    first: Holder,
    second: Holder,
}

#[derive(Deserialize)]
struct SegmentsPage {
    segments: Vec<Segment>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Segment {
    segment_id: String,
    lo: String,
    hi: String,
    epoch: u64,
    service: Option<String>,
    instance: String,
    incarnation: String,
    at: String,
}

/// By namespace.
#[derive(Default)]
struct Ledgers {
    grants: BTreeMap<Name, Vec<Held>>,
    segments: BTreeMap<Name, Vec<Held>>,
}

/// # Errors
/// Where the authority cannot be asked. A region that cannot is told, and its ledger is missing.
pub async fn run(common: &Common) -> Result<Outcome, CliError> {
    let authority = connect::authority(common)?;
    let views: Vec<NamespaceView> = typed(rows(authority.get("/v1/namespaces").await?, "namespaces"))?;
    let mut names: Vec<Name> = views.iter().map(|view| view.name.clone()).collect();
    for view in &views {
        let slots = view.slots.iter().filter_map(|slot| Name::new(format!("{}@{}", view.name, slot.slot)).ok());
        names.extend(slots);
    }
    let mut ledgers = Ledgers::default();
    for name in &names {
        granted(&authority, name, &mut ledgers).await?;
    }
    let mut unread = Vec::new();
    let agents = connect::agents(common, None, None).await.unwrap_or_else(|error| {
        unread.push(error.to_string());
        vec![]
    });
    for agent in agents {
        let api = Api::new(agent.api.url(), authority.token())?;
        for name in &names {
            if let Err(error) = of_region(&api, name, &mut ledgers).await {
                unread.push(format!("{}: {error}", agent.describe()));
                break;
            }
        }
    }
    let definitions: BTreeMap<&Name, &Definition> = views.iter().map(|v| (&v.name, &v.definition)).collect();
    let mut found = Vec::new();
    for (level, ledger) in [("grant", &ledgers.grants), ("segment", &ledgers.segments)] {
        for (name, held) in ledger {
            found.extend(shared(level, name, held, definitions.get(name).copied()));
        }
    }
    Ok(print(common, &found, &unread))
}

async fn granted(authority: &Api, name: &Name, ledgers: &mut Ledgers) -> Result<(), CliError> {
    let mut after = String::new();
    loop {
        let path = format!("/v1/grants?namespace={name}{after}");
        let page: GrantsPage = typed(authority.get(&path).await?)?;
        for grant in page.grants {
            let holder = Holder {
                region: grant.region,
                epoch: grant.epoch.0,
                id: grant.grant_id.to_string(),
                holder: None,
                at: grant.at.to_string(),
            };
            enter(&mut ledgers.grants, name, grant.lo, grant.hi, holder);
        }
        match page.next {
            Some(next) => after = format!("&after={next}"),
            None => return Ok(()),
        }
    }
}

async fn of_region(api: &Api, name: &Name, ledgers: &mut Ledgers) -> Result<(), CliError> {
    let mut after = String::new();
    let region = loop {
        let page: AdoptedPage = typed(api.get(&format!("/v1/grants?namespace={name}{after}")).await?)?;
        for grant in page.grants {
            let id = grant.grant_id.to_string();
            let (region, at) = (page.region.clone(), grant.at.to_string());
            let holder = Holder { region, epoch: grant.epoch.0, id, holder: None, at };
            enter(&mut ledgers.grants, name, grant.lo, grant.hi, holder);
        }
        match page.next {
            Some(next) => after = format!("&after={next}"),
            None => break page.region,
        }
    };
    let mut after = String::new();
    loop {
        let page: SegmentsPage = typed(api.get(&format!("/v1/segments?namespace={name}{after}")).await?)?;
        for segment in page.segments {
            let who = segment.service.unwrap_or(segment.instance);
            let holder = Holder {
                region: region.clone(),
                epoch: segment.epoch,
                id: segment.segment_id,
                holder: Some(format!("{who} ({})", segment.incarnation)),
                at: segment.at,
            };
            let (lo, hi) = (segment.lo.parse().unwrap_or(0), segment.hi.parse().unwrap_or(0));
            enter(&mut ledgers.segments, name, lo, hi, holder);
        }
        match page.next {
            Some(next) => after = format!("&after={next}"),
            None => return Ok(()),
        }
    }
}

/// One row; the same row out of another ledger, or from another agent of a region, is no second holder.
fn enter(ledger: &mut BTreeMap<Name, Vec<Held>>, name: &Name, lo: u64, hi: u64, holder: Holder) {
    let Ok(range) = Range::new(lo, hi) else { return };
    ledger.entry(name.clone()).or_default().push(Held { range, holder });
}

fn shared(level: &'static str, name: &Name, held: &[Held], definition: Option<&Definition>) -> Vec<Shared> {
    let mut distinct: Vec<&Held> = held.iter().collect();
    distinct.sort_by(|a, b| (a.range.lo(), a.range.hi(), &a.holder).cmp(&(b.range.lo(), b.range.hi(), &b.holder)));
    distinct.dedup_by(|a, b| a.range == b.range && a.holder.id == b.holder.id && a.holder.region == b.holder.region);
    let ranges: Vec<Range> = distinct.iter().map(|held| held.range).collect();
    let mut found = Vec::new();
    for overlap in overlaps(&ranges) {
        let (Some(first), Some(second)) = (distinct.get(overlap.first), distinct.get(overlap.second)) else { continue };
        let ids = definition.and_then(|d| d.first_last(overlap.range));
        found.push(Shared {
            namespace: name.clone(),
            level,
            lo: overlap.range.lo().to_string(),
            hi: overlap.range.hi().to_string(),
            first_id: ids.map(|(first, _)| first.to_string()),
            last_id: ids.map(|(_, last)| last.to_string()),
            first: first.holder.clone(),
            second: second.holder.clone(),
        });
    }
    found
}

fn print(common: &Common, found: &[Shared], unread: &[String]) -> Outcome {
    if common.json {
        show::json(&json!({"ok": found.is_empty(), "overlaps": found, "unread": unread}));
        return Outcome::found(!found.is_empty());
    }
    let mut table = Table::new(&["namespace", "level", ">first id", ">last id", ">ids", "one holder", "the other"]);
    for shared in found {
        let number = |text: &str| text.parse().unwrap_or(0_u64);
        table.row(vec![
            shared.namespace.to_string(),
            shared.level.to_owned(),
            shared.first_id.clone().unwrap_or_else(|| format!("unit {}", shared.lo)),
            shared.last_id.clone().unwrap_or_else(|| format!("unit {}", shared.hi)),
            digits(number(&shared.hi).saturating_sub(number(&shared.lo))),
            words(&shared.first),
            words(&shared.second),
        ]);
    }
    table.print("no range is held by two, in any ledger that could be read");
    if !found.is_empty() {
        show::line(
            "next: freeze these namespaces (`cadastre namespace freeze NAME`), then see `docs/operating/backup-and-restore.md`, \"Ranges that two hold\"",
        );
    }
    for why in unread {
        show::line(format!("NOT read: {why}"));
    }
    Outcome::found(!found.is_empty())
}

fn words(holder: &Holder) -> String {
    let at = holder.at.parse().map_or_else(|_| holder.at.clone(), |at| moment(at, now_ms()));
    let who = holder.holder.as_ref().map(|who| format!(", {who}")).unwrap_or_default();
    format!("{} epoch {}{who}, {at}", holder.region, holder.epoch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(lo: u64, hi: u64, region: &str, id: &str) -> Held {
        let region = Name::new(region).unwrap();
        let holder = Holder { region, epoch: 1, id: id.to_owned(), holder: None, at: "5".to_owned() };
        Held { range: Range::new(lo, hi).unwrap(), holder }
    }

    #[test]
    fn one_row_in_two_ledgers_is_one_holder_and_two_rows_are_two() {
        let name = Name::new("orders").unwrap();
        assert!(shared("grant", &name, &[held(0, 10, "eu", "a"), held(0, 10, "eu", "a")], None).is_empty());
        let found = shared("grant", &name, &[held(0, 10, "eu", "a"), held(4, 20, "us", "b")], None);
        assert_eq!((found[0].lo.as_str(), found[0].hi.as_str()), ("4", "10"));
        assert_eq!((found[0].first.region.as_str(), found[0].second.region.as_str()), ("eu", "us"));
        // The same grant in two regions' hands is the worst of all.
        assert_eq!(shared("grant", &name, &[held(0, 10, "eu", "a"), held(0, 10, "us", "a")], None).len(), 1);
    }
}
