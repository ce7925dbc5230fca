//! Who remembers what: marks that regions testify of namespaces, their own or not.
//!
//! Everyone is a witness. An answer brings the newest mark of every namespace that its message spoke of, so what one region
//! was granted is known to the others within some heartbeats; and a region is retired only once another one (or the
//! required witness) remembers the end of everything that it was ever granted. Without that, a store that is put back to
//! a copy of before its last grants would give them again: nobody who is left to testify would know of them.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use cadastre_core::continuity;
use cadastre_core::ids::{Name, StoreId};
use cadastre_core::mark::{Generation, Mark, Scope, ScopeMark};
use cadastre_core::roster::Entry;
use cadastre_ledger::error::LedgerError;
use cadastre_ledger::sql as shared;
use cadastre_protocol::error::Code;
use cadastre_protocol::link::Message;
use cadastre_runtime::db::Tx;
use cadastre_runtime::token;

use super::error::problem;
use super::{Authority, ServiceError};
use crate::sql;

/// A region is asked this often for namespaces that it has not heard of, in milliseconds.
const UNTOLD_EVERY_MS: u64 = 10_000;
/// Of so many it is told at once.
const UNTOLD: u32 = 64;

/// What was noted of each region's testimony, so that it is written only where it is news.
#[derive(Default)]
pub struct Noted {
    marks: BTreeMap<Name, BTreeMap<Scope, (StoreId, Generation, u64)>>,
    told_at_ms: BTreeMap<Name, u64>,
}

impl Authority {
    /// Marks of namespaces in a message that were not noted yet.
    pub(super) fn unnoted(&self, region: &Name, message: &Message) -> Vec<ScopeMark> {
        let noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let known = noted.marks.get(region);
        let is_news = |m: &&ScopeMark| {
            let (generation, seq) = m.mark.version();
            matches!(m.scope, Scope::Namespace(_))
                && known.and_then(|k| k.get(&m.scope)) != Some(&(message.sender.store_id, generation, seq))
        };
        message.words.marks.iter().filter(is_news).cloned().collect()
    }

    /// They are written.
    pub(super) fn note(&self, region: &Name, store: StoreId, marks: Vec<ScopeMark>) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let known = noted.marks.entry(region.clone()).or_default();
        for ScopeMark { scope, mark } in marks {
            let (generation, seq) = mark.version();
            known.insert(scope, (store, generation, seq));
        }
    }

    /// Its store went back.
    pub(super) fn unnote(&self, region: &Name) {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner).marks.remove(region);
    }

    /// Whether it is time to look for namespaces that a region has not heard of.
    fn is_due(&self, region: &Name) -> bool {
        let now = self.now_ms();
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let told = noted.told_at_ms.get(region).copied();
        let due = told.is_none_or(|at| now.abs_diff(at) >= UNTOLD_EVERY_MS);
        if due {
            noted.told_at_ms.insert(region.clone(), now);
        }
        due
    }

    /// Marks of `scopes` that have passed the gate, those of what was `spoken` of where they are newer, some that the
    /// region has not heard of, and the roster entries that they cover.
    pub(super) async fn passed(
        &self,
        region: &Name,
        mut scopes: Vec<Scope>,
        spoken: Vec<ScopeMark>,
        theirs: (Generation, u64),
    ) -> Result<(Vec<ScopeMark>, Vec<Entry>), ServiceError> {
        scopes.sort();
        scopes.dedup();
        let untold = self.is_due(region).then(|| region.clone());
        let (marks, roster) = self
            .continuity
            .db()
            .read("answer", move |tx| {
                let (mut scopes, spoken, untold) = (scopes.clone(), spoken.clone(), untold.clone());
                Box::pin(async move {
                    let mut marks = Vec::new();
                    if let Some(region) = untold {
                        scopes.extend(sql::untold(tx, &region, UNTOLD).await?);
                    }
                    for said in spoken.into_iter().filter(|said| !scopes.contains(&said.scope)) {
                        let row = shared::scope(tx, &said.scope).await?;
                        if let Some(row) = row.filter(|row| row.view.mark.is_above(&said.mark)) {
                            marks.push(ScopeMark { scope: said.scope, mark: row.view.mark });
                        }
                    }
                    for scope in scopes {
                        if let Some(row) = shared::scope(tx, &scope).await? {
                            marks.push(ScopeMark { scope, mark: row.view.mark });
                        }
                    }
                    Ok::<_, LedgerError>((marks, shared::roster_since(tx, theirs).await?))
                })
            })
            .await?;
        let answers: Vec<(Scope, Mark)> = marks.iter().map(|m| (m.scope.clone(), m.mark)).collect();
        self.continuity.pass(&answers).await?;
        Ok((marks, self.sealed(roster).await?))
    }
}

/// The scope of a mark that no future of this store can have had, if one of these is such.
pub(super) async fn beyond_reach(
    tx: &mut Tx,
    generation: Generation,
    marks: &[ScopeMark],
) -> Result<Option<Scope>, LedgerError> {
    for ScopeMark { scope, mark } in marks {
        let seq = shared::scope(tx, scope).await?.map_or(0, |row| row.view.mark.seq);
        if !continuity::may_be_of_a_lost_future(generation, seq, mark) {
            return Ok(Some(scope.clone()));
        }
    }
    Ok(None)
}

/// Tells a message from another one of the same number.
pub(super) fn digest(message: &Message) -> String {
    // What was read from JSON can be written as JSON.
    token::sha256_hex(&serde_json::to_string(message).unwrap_or_default())
}

/// The refusal of such a mark.
pub(super) fn absurd(scope: &Scope) -> ServiceError {
    problem(Code::InvalidRequest, format!("words.marks: that of {scope} is one that cannot be of this cluster"))
}

/// Whether another region remembers all that a region was ever granted.
///
/// # Errors
/// `not_allowed` with a namespace in which none does, or those of the store.
pub(super) async fn is_remembered(tx: &mut Tx, region: &Name) -> Result<(), ServiceError> {
    let roster = shared::roster(tx).await?;
    let others: BTreeMap<&Name, StoreId> = roster
        .regions()
        .filter(|(name, r)| *name != region && r.state.may_issue())
        .filter_map(|(name, r)| Some((name, r.store_id?)))
        .collect();
    for (namespace, end) in sql::highest_granted(tx, region).await? {
        let who = sql::remembers(tx, &Scope::Namespace(namespace.clone())).await?;
        let held = |(name, store, bound): &(Name, StoreId, u64)| *bound >= end && others.get(name) == Some(store);
        if !who.iter().any(held) {
            let text = format!(
                "no other region has taken note yet of all that this one was granted in {namespace}, and there is no \
                 required witness: let it run out with `cadastre drain {region}`, and wait for the others' heartbeats"
            );
            return Err(problem(Code::NotAllowed, text));
        }
    }
    Ok(())
}
