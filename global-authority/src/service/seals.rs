//! Seals: what a region says of the roster counts only where this authority said it first.
//!
//! Every region keeps the whole roster and testifies it, so that an authority that lost a week learns what it forgot. A
//! region must not be able to testify of an operator, a service or another region that never was: so an entry is sent
//! with a keyed hash over all that it says, regions give it back as they got it, and what a testimony brings that is
//! news here and has no such seal makes it count for nothing. The key is made with the cluster and never leaves the store; every copy
//! of the store has it.
//!
//! An authority that is made again after a loss has no key until its quarantine is over: an operator has brought what it
//! takes for true. Entries that two histories of one region were united in (its epoch never falls, *retired* stays) have
//! no seal any more; of regions that are known here they are left out, since each testifies its own epoch.

use cadastre_core::roster::{Entry, Kind};
use cadastre_ledger::error::LedgerError;
use cadastre_protocol::error::Code;
use cadastre_runtime::token;

use super::error::problem;
use super::{Authority, ServiceError};
use crate::sql;

/// Named in a refusal, at most.
const NAMED: usize = 5;

fn seal_of(key: &str, entry: &Entry) -> Option<String> {
    let said = (entry.body.kind().as_str(), &entry.name, entry.generation, entry.seq, &entry.body);
    Some(token::keyed_hash(key, &serde_json::to_vec(&said).ok()?))
}

fn is_sealed(key: &str, entry: &Entry) -> bool {
    let given = entry.seal.as_deref();
    given.zip(seal_of(key, entry)).is_some_and(|(given, right)| token::constant_time_eq(given, &right))
}

impl Authority {
    /// The key; made where there is none and nothing is in doubt.
    pub(super) async fn seal_key(&self) -> Result<Option<String>, ServiceError> {
        if let Some(key) = self.seal_key.get() {
            return Ok(Some(key.clone()));
        }
        let db = self.continuity.db();
        let read = || db.read("seal_key", |tx| Box::pin(async move { Ok::<_, LedgerError>(sql::seal_key(tx).await?) }));
        let mut key = read().await?;
        if key.is_none() && self.is_open() {
            let fresh = token::make(token::Prefix::Seal, self.entropy.bytes32());
            let work = db.write("make_seal_key", move |tx| {
                let fresh = fresh.clone();
                Box::pin(async move { Ok::<_, LedgerError>(sql::make_seal_key(tx, &fresh).await?) })
            });
            work.await?;
            key = read().await?;
        }
        if let Some(key) = &key {
            // Another task may have been first; the row is the same.
            let _ = self.seal_key.set(key.clone());
        }
        Ok(key)
    }

    /// Entries as they are sent to a region.
    pub(super) async fn sealed(&self, mut entries: Vec<Entry>) -> Result<Vec<Entry>, ServiceError> {
        if entries.is_empty() {
            return Ok(entries);
        }
        if let Some(key) = self.seal_key().await? {
            for entry in &mut entries {
                entry.seal = seal_of(&key, entry);
            }
        }
        Ok(entries)
    }

    /// What a testimony brings that is news here, and that this authority said once.
    ///
    /// # Errors
    /// `forbidden`, naming what it never said.
    pub(super) async fn vouched(&self, entries: &[Entry]) -> Result<Vec<Entry>, ServiceError> {
        let key = self.seal_key().await?;
        let known = self.known();
        let held = |entry: &Entry| known.roster.get(entry.body.kind(), &entry.name).map(Entry::version);
        let news: Vec<&Entry> = entries.iter().filter(|entry| held(entry) < Some(entry.version())).collect();
        let Some(key) = key else { return Ok(news.into_iter().cloned().collect()) };
        let (sealed, others): (Vec<&Entry>, Vec<&Entry>) = news.into_iter().partition(|entry| is_sealed(&key, entry));
        let is_united = |entry: &&Entry| entry.body.kind() == Kind::Region && held(entry).is_some();
        let strange: Vec<String> = others
            .iter()
            .filter(|entry| !is_united(entry))
            .take(NAMED)
            .map(|entry| format!("{} {}", entry.body.kind().as_str(), entry.name))
            .collect();
        if strange.is_empty() {
            return Ok(sealed.into_iter().cloned().collect());
        }
        let text = format!("testimony.roster: this authority never said what it says of {}", strange.join(", "));
        Err(problem(Code::Forbidden, text))
    }
}
