//! Agents and processes that read less than they could be given, and what is refused because of them.
//!
//! What they say comes with their agents' messages, is kept in the store for whichever process decides next, and counts
//! for [`COUNTS_MS`]. Nothing rests on it but a refusal in time: see [`cadastre_core::knows`].

use std::collections::BTreeMap;
use std::sync::PoisonError;

use cadastre_core::ids::Name;
use cadastre_core::knows::{COUNTS_MS, Knower, Knows, left_behind};
use cadastre_core::namespace::NamespaceEntry;
use cadastre_core::roster::Roster;
use cadastre_ledger::error::LedgerError;
use cadastre_protocol::admin::KnowerView;
use cadastre_protocol::error::Code;
use cadastre_protocol::link::Message;
use cadastre_runtime::db::Tx;

use super::error::problem;
use super::{Authority, ServiceError};
use crate::sql::{self, KnowerRow};

/// What did not change is written again this often, in milliseconds.
const AGAIN_MS: u64 = 60_000;
/// Looked at, at most: the latest.
const MOST: u64 = 1_000;
/// Named in a refusal, at most.
const NAMED: usize = 10;

/// Version, and what it knows as JSON.
type Said = (String, String);

/// What a message says of one, where it is news: nothing where it reads everything.
#[derive(Clone)]
pub struct News {
    key: [String; 4],
    said: Option<Said>,
    heard_at_ms: u64,
}

/// What was written of each, and when.
#[derive(Default)]
pub struct Written(BTreeMap<[String; 4], (Option<Said>, u64)>);

impl News {
    pub(super) async fn write(self, tx: &mut Tx) -> Result<(), LedgerError> {
        match self.said {
            None => sql::forget_knower(tx, &self.key).await?,
            Some((version, knows)) => {
                sql::forget_knowers(tx, self.heard_at_ms.saturating_sub(COUNTS_MS)).await?;
                let row = KnowerRow { key: self.key, version, knows, heard_at_ms: self.heard_at_ms };
                sql::put_knower(tx, &row).await?;
            }
        }
        Ok(())
    }
}

fn said(version: &str, knows: &Knows) -> Option<Said> {
    let knows = Some(knows.here()).filter(|knows| !knows.is_all())?;
    Some((version.chars().take(64).collect(), serde_json::to_string(&knows).ok()?))
}

impl Authority {
    /// What a message says that was not written lately.
    pub(super) fn news_of_knowers(&self, region: &Name, message: &Message) -> Vec<News> {
        let (sender, now_ms) = (&message.sender, self.now_ms());
        let one = if sender.shared_store { sender.incarnation.to_string() } else { sender.store_id.to_string() };
        let region = region.to_string();
        let agent = News {
            key: [region.clone(), String::new(), String::new(), one],
            said: sender.knows.as_ref().and_then(|knows| said(&sender.version, knows)),
            heard_at_ms: now_ms,
        };
        let clients = message.clients.iter().map(|client| News {
            key: [
                region.clone(),
                client.namespace.to_string(),
                client.service.to_string(),
                client.instance.to_string(),
            ],
            said: said(&client.program.version, &client.program.knows),
            heard_at_ms: now_ms.saturating_sub(client.quiet_ms),
        });
        let mut written = self.knowers.lock().unwrap_or_else(PoisonError::into_inner);
        written.0.retain(|_, (_, at)| now_ms.abs_diff(*at) < COUNTS_MS);
        let is_news = |news: &News| match written.0.get(&news.key) {
            Some((was, at)) => *was != news.said || (was.is_some() && news.heard_at_ms.abs_diff(*at) >= AGAIN_MS),
            None => true,
        };
        std::iter::once(agent).chain(clients).filter(is_news).collect()
    }

    pub(super) fn wrote_of_knowers(&self, news: Vec<News>) {
        let mut written = self.knowers.lock().unwrap_or_else(PoisonError::into_inner);
        for News { key, said, heard_at_ms } in news {
            written.0.insert(key, (said, heard_at_ms));
        }
    }

    /// Those who count now.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn knowers(&self) -> Result<Vec<KnowerRow>, ServiceError> {
        let (since, until) = (self.now_ms().saturating_sub(COUNTS_MS), self.now_ms().saturating_add(COUNTS_MS));
        Ok(self
            .continuity
            .db()
            .read("knowers", move |tx| {
                Box::pin(async move { Ok::<_, LedgerError>(sql::knowers(tx, since, until, MOST).await?) })
            })
            .await?)
    }
}

fn knows(row: &KnowerRow) -> Option<Knows> {
    serde_json::from_str(&row.knows).ok()
}

/// Those of a region, for people.
pub(super) fn views(rows: &[KnowerRow], region: &Name, now_ms: u64) -> Vec<KnowerView> {
    let here = |row: &&KnowerRow| row.key.first().is_some_and(|of| of == region.as_str());
    rows.iter().filter(here).filter_map(|row| view(row, now_ms)).collect()
}

fn view(row: &KnowerRow, now_ms: u64) -> Option<KnowerView> {
    let [_, namespace, service, instance] = row.key.clone();
    Some(KnowerView {
        namespace: Some(namespace).filter(|n| !n.is_empty()),
        service: Some(service).filter(|s| !s.is_empty()),
        instance,
        version: row.version.clone(),
        knows: knows(row)?,
        last_heard_seconds: now_ms.saturating_sub(row.heard_at_ms) / 1_000,
    })
}

fn knower(row: &KnowerRow) -> Option<Knower> {
    let [region, namespace, service, instance] = &row.key;
    let version = &row.version;
    let who = if namespace.is_empty() {
        format!("the agent {instance} of {region} (version {version})")
    } else {
        format!("{instance} of service {service} in {region} (version {version})")
    };
    Some(Knower { who, only: Name::new(namespace.as_str()).ok(), knows: knows(row)? })
}

/// Refuses where somebody could not follow.
///
/// # Errors
/// `not_allowed`, naming them.
pub(super) fn check<'a>(
    rows: &'a [KnowerRow],
    namespaces: impl Iterator<Item = (&'a Name, &'a NamespaceEntry)>,
) -> Result<(), ServiceError> {
    let knowers: Vec<Knower> = rows.iter().filter_map(knower).collect();
    let found = left_behind(&knowers, namespaces);
    if found.is_empty() {
        return Ok(());
    }
    let more = found.len().saturating_sub(NAMED);
    let mut text = found.into_iter().take(NAMED).collect::<Vec<_>>().join("; ");
    if more > 0 {
        text = format!("{text}; and {more} more");
    }
    let text = format!(
        "not everybody could read what would be given out: {text}. Update or stop them; who is silent counts for {} minutes",
        COUNTS_MS / 60_000
    );
    Err(problem(Code::NotAllowed, text))
}

/// As [`check`], for all that there is.
pub(super) fn check_all(rows: &[KnowerRow], roster: &Roster) -> Result<(), ServiceError> {
    let knowers: Vec<Knower> = rows.iter().filter_map(knower).collect();
    if knowers.is_empty() {
        return Ok(());
    }
    check(rows, roster.namespaces())
}
