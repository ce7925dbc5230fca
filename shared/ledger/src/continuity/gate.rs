//! The gate: row committed, proof, witness, answer. The verdict is [`cadastre_core::continuity::gate`]'s; here is what it is
//! shown, and the raising of the witness that it asks for.

use std::collections::{BTreeMap, BTreeSet};

use cadastre_core::continuity::{self, Gate, GateView};
use cadastre_core::mark::{Mark, Scope};
use cadastre_runtime::db::Position;

use super::Continuity;
use crate::error::LedgerError;
use crate::sql::{self, ScopeRow};
use crate::witness::{Marks, Raise};

/// How often the gate re-reads the witness when another healthy process raised it in between.
const GATE_TRIES: usize = 8;

/// What the gate reads of one answer's scope.
struct GateRow {
    row: ScopeRow,
    has_ours: bool,
    contains: bool,
}

impl Continuity {
    /// The gate for committed rows: they may be answered when this returns. First answers and replays
    /// alike go through it, a batch at once; several of one scope are each looked for, since a newer row does not prove
    /// an older one: the store may have been put back between the two.
    ///
    /// # Errors
    /// [`LedgerError::Closed`] where an answer must be dropped; the scope may be in quarantine now.
    pub async fn pass(&self, answers: &[(Scope, Mark)]) -> Result<(), LedgerError> {
        // All tries see the same server and rows, so the first one's proof holds for the later ones.
        let mut proven = false;
        for _ in 0..GATE_TRIES {
            let scopes: Vec<Scope> =
                answers.iter().map(|(s, _)| s.clone()).collect::<BTreeSet<_>>().into_iter().collect();
            // Before the witness is read: what is let out meanwhile is raised meanwhile.
            let own = self.passed_of(&scopes);
            let witnessed = match &self.parts.witness {
                None => None,
                Some(witness) => self.believed(witness.read_some(&scopes).await)?,
            };
            let (read, position) = self.gate_look(answers, witnessed.clone().unwrap_or_default()).await?;
            let mut raises = BTreeMap::<Scope, Raise>::new();
            for ((scope, ours), GateRow { row, has_ours, contains }) in answers.iter().zip(read) {
                let mark = witnessed.as_ref().and_then(|w| w.get(scope));
                let verdict = continuity::gate(&GateView {
                    ours,
                    now: &row.view,
                    same_server: row.same_server,
                    has_ours,
                    mode: self.parts.mode,
                    witness_empty: witnessed.is_none(),
                    witness: mark.map(|m| (m, contains)),
                    witness_older: continuity::is_older(mark, own.get(scope)),
                    may_fill: self.standing().may_fill,
                });
                match verdict {
                    Gate::Answer => {}
                    // Of several answers of a scope the newest: the others lie below it.
                    Gate::Raise if raises.get(scope).is_some_and(|r| !ours.is_above(&r.now)) => {}
                    Gate::Raise => {
                        let raise = Raise { scope: scope.clone(), was: mark.copied(), now: *ours };
                        raises.insert(scope.clone(), raise);
                    }
                    Gate::Drop => return Err(LedgerError::Closed(scope.to_string())),
                    Gate::Anew(why) => {
                        // Which passes this gate for the new generation.
                        Box::pin(self.judge_anew(why)).await?;
                        return Err(LedgerError::Closed(scope.to_string()));
                    }
                    Gate::Suspect(why) => return self.closed(scope, false, why).await,
                    Gate::WentBack(why) => return self.closed(scope, true, why).await,
                }
            }
            if let Some(position) = position.filter(|_| !proven) {
                self.parts.db.prove(&position).await?;
                proven = true;
            }
            if raises.is_empty() || self.raise_witness(witnessed.is_none(), raises.into_values().collect()).await? {
                self.let_out(answers);
                return Ok(());
            }
        }
        Err(LedgerError::NotDurable("the witness kept moving; the same request gets its answer later".into()))
    }

    async fn closed(&self, scope: &Scope, back: bool, why: &str) -> Result<(), LedgerError> {
        self.quarantine(back, why, vec![]).await?;
        Err(LedgerError::Closed(scope.to_string()))
    }

    async fn gate_look(
        &self,
        answers: &[(Scope, Mark)],
        witnessed: Marks,
    ) -> Result<(Vec<GateRow>, Option<Position>), LedgerError> {
        let answers = answers.to_vec();
        self.parts
            .db
            .read("gate", move |tx| {
                let (answers, witnessed) = (answers.clone(), witnessed.clone());
                Box::pin(async move {
                    // After the snapshot: it lies above every row that is seen here, the first answers' and the replays'.
                    let position = tx.position().await?;
                    let mut read = Vec::with_capacity(answers.len());
                    for (scope, ours) in &answers {
                        let row = sql::scope(tx, scope).await?;
                        let row = row.ok_or_else(|| LedgerError::Closed(scope.to_string()))?;
                        let has_ours = sql::has_row(tx, ours.row).await?;
                        let contains = match witnessed.get(scope) {
                            None => true,
                            Some(mark) => continuity::contains(&row.view, mark, sql::has_row(tx, mark.row).await?),
                        };
                        read.push(GateRow { row, has_ours, contains });
                    }
                    Ok((read, position))
                })
            })
            .await
    }

    async fn raise_witness(&self, empty: bool, raises: Vec<Raise>) -> Result<bool, LedgerError> {
        let Some(witness) = &self.parts.witness else { return Ok(true) };
        if empty {
            return self.fill_witness(raises.into_iter().map(|r| (r.scope, r.now)).collect()).await;
        }
        let known = raises.iter().find(|r| r.scope == Scope::Roster).map(|r| r.was.map(|m| m.version()));
        let roster = match known {
            None => vec![],
            Some(version) => self.roster_since(version.unwrap_or_default()).await?,
        };
        // A best-effort one that cannot be raised holds no answer up.
        Ok(self.believed(witness.raise(raises, roster).await.map(Some))?.unwrap_or(true))
    }
}
