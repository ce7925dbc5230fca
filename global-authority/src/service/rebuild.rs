//! An authority that was lost for good, made again from what its regions know.
//!
//! It begins as an empty store that went back: in quarantine, giving nothing out, ended by the same exits as every
//! other one, so that nothing is granted before everybody that the united rosters name has testified. What is special
//! is that an empty store knows no region's token, so nobody could speak to it: an operator brings the roster that
//! one of the regions keeps. Afterwards the ledger of grants is written again from the regions' own: it lies
//! below every watermark by then, so it decides nothing any more.
//!
//! Invariant: a row is written only where it overlaps no other one and lies below the watermark, so that a wrong
//! ledger can neither free a range nor take one.

use cadastre_core::ids::{ClusterId, Name};
use cadastre_core::mark::{Generation, Scope};
use cadastre_core::range::Range;
use cadastre_core::roster::{Body, Entry, Kind, OperatorEntry, RegionEntry, TokenEntry};
use cadastre_ledger::continuity::{Continuity, How};
use cadastre_ledger::error::LedgerError;
use cadastre_ledger::sql as shared;
use cadastre_protocol::error::Code;
use cadastre_protocol::rebuild::{AdoptedGrant, GrantsBack, GrantsTaken, RegionRecord};
use cadastre_runtime::db::Tx;
use cadastre_runtime::token;

use super::error::problem;
use super::quarantine::know_epoch;
use super::roster::{Change, Effect, check_bootstrap};
use super::{Authority, ServiceError};
use crate::sql;

/// Rows in one request.
const MOST_ROWS: usize = 1_000;

/// Makes the empty store of a cluster whose authority was lost. Its operator is the bearer of `secret`, under a name
/// that no roster has, or what the regions remember of their operators would replace it.
///
/// # Errors
/// Where the token is malformed, or those of the store.
pub(super) async fn begin(continuity: &Continuity, cluster: ClusterId, secret: &str) -> Result<(), ServiceError> {
    check_bootstrap(secret)?;
    let id: String = continuity.row_id().0.simple().to_string().chars().take(8).collect();
    let token = TokenEntry {
        token_id: "rebuild".to_owned(),
        sha256: token::sha256_hex(secret),
        made_at_ms: continuity.now_ms(),
        revoked_at_ms: None,
    };
    let operator = Entry {
        generation: Generation::default(),
        seq: 1,
        name: Name::new(format!("rebuild-{id}")).map_err(|e| ServiceError::refused(&e.to_string()))?,
        body: Body::Operator(OperatorEntry { viewer: false, tokens: vec![token] }),
        seal: None,
    };
    tracing::warn!(%cluster, "an authority that was lost begins anew: nothing is given out before its regions testified");
    continuity.begin_lost(Some(cluster), Scope::Roster, vec![operator], "rebuilt after a loss").await?;
    Ok(())
}

/// The store of a rebuilt authority is known to be gone; a witness that survived has said so already.
///
/// # Errors
/// Those of the store.
pub(super) async fn doubt(continuity: &Continuity) -> Result<(), ServiceError> {
    if continuity.standing().how != How::WentBack {
        continuity.quarantine(true, "the authority was lost, and is made again from its regions", vec![]).await?;
    }
    Ok(())
}

impl Authority {
    /// Takes what a region's store knows: knowledge only, as testimony is. The region testifies by itself once its
    /// token is known.
    ///
    /// # Errors
    /// Where there is no quarantine, the record is another cluster's, or those of the store.
    pub async fn take_record(&self, who: &str, record: RegionRecord) -> Result<(), ServiceError> {
        if record.cluster_id != Some(self.cluster_id) {
            let theirs = record.cluster_id.map_or("no cluster yet".to_owned(), |c| format!("cluster {c}"));
            let text = format!("{} is of {theirs}, this authority of cluster {}", record.region, self.cluster_id);
            return Err(problem(Code::WrongStore, text));
        }
        if self.is_open() {
            return Err(problem(Code::NotAllowed, "nothing is in quarantine: the regions are known here"));
        }
        let (who, now, audit) = (who.to_owned(), self.now_ms(), self.continuity.row_id());
        let work = self.continuity.db().write("rebuild_record", move |tx| {
            let (who, record) = (who.clone(), record.clone());
            Box::pin(async move {
                for mark in &record.marks {
                    shared::keep_mark(tx, &mark.scope, &mark.mark).await?;
                }
                shared::roster_unite(tx, &record.roster).await?;
                if let Some(epoch) = record.epoch {
                    know_epoch(tx, &record.region, epoch).await?;
                }
                let detail = format!("what the store {} of {} knows", record.store_id, record.region);
                shared::audit(tx, audit, now, &who, "rebuild", &detail).await?;
                Ok::<_, LedgerError>(())
            })
        });
        work.await?;
        self.reload().await
    }

    /// The operator of a rebuild was entered before there was a generation, so nobody is told of it: it is entered
    /// once more when there is one.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn tell_of_rebuilder(&self) -> Result<(), ServiceError> {
        let new = |entry: &&Entry| entry.generation == Generation::default() && entry.body.kind() == Kind::Operator;
        if !self.known().roster.entries().any(|entry| new(&entry)) {
            return Ok(());
        }
        self.change("rebuild", "operator", move |roster| {
            let entries = roster.entries().filter(new);
            let changes = entries.map(|e| Change { name: e.name.clone(), body: e.body.clone(), effect: Effect::None });
            Ok((changes.collect(), ()))
        })
        .await
    }

    /// Writes rows of a region's ledger that this one lacks.
    ///
    /// # Errors
    /// Where the store is in quarantine, nobody knows the region, or those of the store.
    pub async fn take_grants(&self, who: &str, back: GrantsBack) -> Result<GrantsTaken, ServiceError> {
        if back.grants.len() > MOST_ROWS {
            return Err(problem(Code::PayloadTooLarge, format!("at most {MOST_ROWS} grants in one request")));
        }
        if !self.is_open() {
            return Err(LedgerError::Closed(Scope::Roster.to_string()).into());
        }
        self.reload().await?;
        let region = self.known().roster.region(&back.region).cloned();
        let region = region.ok_or_else(|| problem(Code::NotFound, format!("there is no region {}", back.region)))?;
        let (who, now, audit) = (who.to_owned(), self.now_ms(), self.continuity.row_id());
        let work = self.continuity.db().write("rebuild_grants", move |tx| {
            let (who, back, region) = (who.clone(), back.clone(), region.clone());
            Box::pin(async move {
                let mut taken = GrantsTaken::default();
                for grant in &back.grants {
                    take_one(tx, &back, &region, grant, audit, &mut taken).await?;
                }
                if taken.written > 0 || !taken.refused.is_empty() {
                    let refused = taken.refused.len();
                    let detail = format!("{}: {} written, {refused} refused", back.region, taken.written);
                    shared::audit(tx, audit, now, &who, "rebuild_grants", &detail).await?;
                }
                Ok::<_, LedgerError>(taken)
            })
        });
        Ok(work.await?)
    }
}

async fn take_one(
    tx: &mut Tx,
    back: &GrantsBack,
    region: &RegionEntry,
    grant: &AdoptedGrant,
    row: cadastre_core::ids::RowId,
    taken: &mut GrantsTaken,
) -> Result<(), LedgerError> {
    let mut refuse = |why: &str| {
        taken.refused.push(format!("{} [{}, {}) of {}: {why}", grant.namespace, grant.lo, grant.hi, back.region));
        Ok(())
    };
    let Ok(range) = Range::new(grant.lo, grant.hi) else { return refuse("it is no range") };
    let Some(scope) = shared::scope(tx, &Scope::Namespace(grant.namespace.clone())).await? else {
        return refuse("there is no such namespace");
    };
    if range.hi() > scope.view.mark.bound || grant.generation > scope.view.generation || grant.epoch > region.epoch {
        return refuse("it lies above what this authority knows: was there a testimony of it?");
    }
    match sql::grant_below(tx, &grant.namespace, range.hi()).await? {
        Some(known) if known.grant_id == grant.grant_id && known.range == range && known.region == back.region => {
            taken.known += 1;
            return Ok(());
        }
        Some(known) if known.range.hi() > range.lo() => {
            let holder = format!("{} holds [{}, {})", known.region, known.range.lo(), known.range.hi());
            return refuse(&holder);
        }
        Some(_) | None => {}
    }
    let holdings = sql::holdings_in(tx, &grant.namespace).await?;
    if !holdings.iter().any(|h| h.region == back.region) {
        sql::insert_holding(tx, &grant.namespace, &back.region, region.region_id, region.epoch).await?;
    }
    let known = sql::Grant {
        grant_id: grant.grant_id,
        namespace: grant.namespace.clone(),
        allocation_id: grant.allocation_id,
        region: back.region.clone(),
        region_id: region.region_id,
        epoch: grant.epoch,
        store_id: back.store_id,
        want: range.len(),
        range,
        generation: grant.generation,
        mark_row: row,
        // What a region adopted is never given out again as an answer.
        confirmed_at_ms: Some(grant.at),
        at_ms: grant.at,
    };
    sql::insert_grants(tx, &[known]).await?;
    sql::add_known(tx, &grant.namespace, &back.region, range.len()).await?;
    taken.written += 1;
    Ok(())
}
