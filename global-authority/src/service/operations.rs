//! What switches and drills share: a row that is written over the version that was read, a ledger of lines, and what of
//! both reaches agents with their heartbeats.
//!
//! Invariant: whoever carries an operation on (this process, another one of the same store, after a crash or at an
//! operator's word) reads its row first and writes over exactly that; the one who comes second changes nothing. What
//! agents are told is kept in memory and read anew by [`Authority::operate`], so that a heartbeat costs no look at it.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use cadastre_core::ids::{Name, RowId};
use cadastre_ledger::error::LedgerError;
use cadastre_protocol::error::Code;
use cadastre_protocol::link::{Answer, Message};
use cadastre_protocol::operate::{Expect, HomeAddress, Line};
use cadastre_runtime::db::DbError;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::problem;
use super::{Authority, ServiceError};
use crate::sql::{self, Operation};

/// The kind of a switch's row.
pub const SWITCH: &str = "switch";
/// The kind of a drill's row.
pub const DRILL: &str = "drill";
/// The kind of the schedule's row.
pub const SCHEDULE: &str = "schedule";
/// Tries of a change that others are in the way of.
const TRIES: usize = 8;
/// The most lines of an operation that are shown.
const MAX_LINES: u64 = 500;
/// The most operations of a kind that are listed.
pub(super) const MAX_LISTED: u64 = 100;

/// What agents are told, as of the last look.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Where the regions of narrowed homes are reached.
    pub homes: Vec<HomeAddress>,
    /// What each region should be ready for.
    pub expect: BTreeMap<Name, Vec<Expect>>,
    /// The drill that is under way.
    pub drill: Option<super::drills::Live>,
}

/// An operation with its body read.
#[derive(Clone, Debug)]
pub(super) struct Read<T> {
    pub(super) row: Operation,
    pub(super) body: T,
}

/// A row as it is to be written, with the lines that its ledger is told, and the turn of its kind that it takes.
#[derive(Clone, Debug)]
pub(super) struct Written {
    row: Operation,
    lines: Vec<String>,
    turn: Option<u64>,
}

impl Written {
    pub(super) fn of<T: Serialize>(
        read: &Read<T>,
        lines: Vec<String>,
        turn: Option<u64>,
    ) -> Result<Self, ServiceError> {
        let body = serde_json::to_string(&read.body).map_err(|e| DbError::Other(e.to_string()))?;
        Ok(Self { row: Operation { body, ..read.row.clone() }, lines, turn })
    }
}

pub(super) fn read<T: DeserializeOwned>(row: Operation) -> Result<Read<T>, ServiceError> {
    let body = serde_json::from_str(&row.body).map_err(|e| DbError::Corrupt(format!("operation {}: {e}", row.id)))?;
    Ok(Read { row, body })
}

fn first_is_enough(error: DbError) -> ServiceError {
    match error {
        DbError::Conflict | DbError::Unique => ServiceError::Stale,
        other => other.into(),
    }
}

impl Authority {
    /// What agents are told.
    pub(super) fn told(&self) -> Arc<Told> {
        Arc::clone(&self.told.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Carries on what is under way, and reads anew what agents are told. To be called about once a second.
    ///
    /// # Errors
    /// Those of the store; the next call goes on.
    pub async fn operate(&self) -> Result<(), ServiceError> {
        self.reload().await?;
        // Another process, or an operator's word, that was first carries it on as well.
        let unless_first = |result| if matches!(result, Err(ServiceError::Stale)) { Ok(()) } else { result };
        let carried = unless_first(self.carry_switches().await);
        let drilled = unless_first(self.carry_schedule().await).and(unless_first(self.carry_drills().await));
        let told = Told {
            homes: self.home_addresses().await?,
            expect: self.expected().await?,
            drill: self.live_drill().await?,
        };
        *self.told.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(told);
        carried.and(drilled)
    }

    /// Adds to an answer what concerns homes, switches and drills, and takes note of what the message says of them.
    pub(super) async fn tell(&self, caller: &Name, message: &Message, answer: &mut Answer) {
        let told = self.told();
        if !answer.quarantined {
            answer.homes = told.homes.iter().filter(|home| home.region != *caller).cloned().collect();
            answer.expect = told.expect.get(caller).cloned().unwrap_or_default();
        }
        answer.drill = told.drill.as_ref().and_then(|drill| drill.order(caller, self.now_ms()));
        if let Some(word) = &message.drill {
            match self.hear_drill(caller, message.sender.incarnation, word).await {
                Ok(()) => answer.drill_heard = Some(word.drill_id),
                Err(error) => tracing::warn!(region = %caller, %error, "a word on a drill is to be told again"),
            }
        }
    }

    pub(super) async fn find<T: DeserializeOwned>(&self, kind: &str, id: &str) -> Result<Read<T>, ServiceError> {
        let wanted = id.to_owned();
        let found = self.continuity.db().read("operation", move |tx| {
            let wanted = wanted.clone();
            Box::pin(async move { Ok::<_, LedgerError>(sql::operation_of(tx, &wanted).await?) })
        });
        match found.await?.filter(|row| row.kind == kind) {
            Some(row) => read(row),
            None => Err(problem(Code::NotFound, format!("there is no {kind} {id}"))),
        }
    }

    /// Whether nothing follows for an operation, or the store does not know it (any more).
    pub(super) async fn is_over(&self, kind: &str, id: &str) -> Result<bool, ServiceError> {
        let wanted = id.to_owned();
        let found = self.continuity.db().read("operation", move |tx| {
            let wanted = wanted.clone();
            Box::pin(async move { Ok::<_, LedgerError>(sql::operation_of(tx, &wanted).await?) })
        });
        Ok(found.await?.is_none_or(|row| row.is_over || row.kind != kind))
    }

    pub(super) async fn live<T: DeserializeOwned>(&self, kind: &'static str) -> Result<Vec<Read<T>>, ServiceError> {
        let found = self.continuity.db().read("operations_live", move |tx| {
            Box::pin(async move { Ok::<_, LedgerError>(sql::live_operations(tx, kind).await?) })
        });
        found.await?.into_iter().map(read).collect()
    }

    pub(super) async fn newest<T: DeserializeOwned>(
        &self,
        kind: &'static str,
        most: u64,
    ) -> Result<Vec<Read<T>>, ServiceError> {
        let found = self.continuity.db().read("operations_newest", move |tx| {
            Box::pin(async move { Ok::<_, LedgerError>(sql::newest_operations(tx, kind, most).await?) })
        });
        found.await?.into_iter().map(read).collect()
    }

    pub(super) async fn lines(&self, id: &str) -> Result<Vec<Line>, ServiceError> {
        let id = id.to_owned();
        let found = self.continuity.db().read("operation_lines", move |tx| {
            let id = id.clone();
            Box::pin(async move { Ok::<_, LedgerError>(sql::lines_of(tx, &id, MAX_LINES).await?) })
        });
        Ok(found.await?.into_iter().map(|(at, text)| Line { at, text }).collect())
    }

    /// How often a kind was begun: to be read before it is checked whether another may begin.
    pub(super) async fn kind_turn(&self, kind: &'static str) -> Result<u64, ServiceError> {
        let found = self.continuity.db().read("operation_turn", move |tx| {
            Box::pin(async move { Ok::<_, LedgerError>(sql::turn(tx, kind).await?) })
        });
        Ok(found.await?)
    }

    /// Reads an operation, changes it and writes it, anew where somebody else was first. `change` says what its ledger
    /// is told; `None` where nothing is to be changed.
    pub(super) async fn amend<T: Serialize + DeserializeOwned>(
        &self,
        kind: &'static str,
        id: &str,
        who: &str,
        change: impl Fn(&mut Read<T>) -> Option<Vec<String>>,
    ) -> Result<(), ServiceError> {
        for _ in 0..TRIES {
            let mut read = self.find::<T>(kind, id).await?;
            let Some(lines) = change(&mut read) else { return Ok(()) };
            match self.save(&mut read, lines, None, Some(who)).await {
                Err(ServiceError::Stale) => {}
                result => return result,
            }
        }
        Err(ServiceError::Stale)
    }

    /// Writes an operation's row over the version that was read, and lines into its ledger; with `turn`, only the first
    /// of those who read that turn. The version of the row rises.
    pub(super) async fn save<T: Serialize>(
        &self,
        read: &mut Read<T>,
        lines: Vec<String>,
        turn: Option<u64>,
        who: Option<&str>,
    ) -> Result<(), ServiceError> {
        read.row = self.write_operations(vec![Written::of(read, lines, turn)?], who).await?.unwrap_or(read.row.clone());
        Ok(())
    }

    /// Writes several rows, all of them or none; the first one as it is afterwards.
    pub(super) async fn write_operations(
        &self,
        all: Vec<Written>,
        who: Option<&str>,
    ) -> Result<Option<Operation>, ServiceError> {
        let first = all.first().map(|w| Operation { version: w.row.version + 1, ..w.row.clone() });
        let all: Vec<(Written, RowId)> = all.into_iter().map(|w| (w, self.continuity.row_id())).collect();
        let (now, who) = (self.now_ms(), who.map(str::to_owned));
        let work = self.continuity.db().write("operation", move |tx| {
            let (all, who) = (all.clone(), who.clone());
            Box::pin(async move {
                for (Written { row, lines, turn }, audit) in all {
                    if let Some(turn) = turn {
                        sql::take_turn(tx, &row.kind, turn).await.map_err(first_is_enough)?;
                    }
                    sql::put_operation(tx, &row).await.map_err(first_is_enough)?;
                    for line in &lines {
                        sql::add_line(tx, &row.id, now, line).await?;
                    }
                    if let Some(who) = &who {
                        let detail = format!("{}: {}", row.id, lines.join("; "));
                        cadastre_ledger::sql::audit(tx, audit, now, who, &row.kind, &detail).await?;
                    }
                }
                Ok::<_, ServiceError>(())
            })
        });
        work.await?;
        Ok(first)
    }
}
