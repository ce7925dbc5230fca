//! Who exists, and the highest marks ever seen of the other side.

use std::collections::BTreeMap;

use cadastre_core::ids::Name;
use cadastre_core::mark::{Generation, Mark, Scope};
use cadastre_core::roster::{Body, Entry, Kind, Roster};
use cadastre_runtime::db::{DbError, Row, Tx, Value};

use super::parse;

/// The whole roster.
///
/// # Errors
/// `Corrupt` where a body cannot be read.
pub async fn roster(tx: &mut Tx) -> Result<Roster, DbError> {
    let rows = tx.query("SELECT generation, seq, name, body, seal FROM roster", &[]).await?;
    rows.iter().map(entry).collect()
}

/// Entries written after `version`, oldest first.
///
/// # Errors
/// `Corrupt` where a body cannot be read.
pub async fn roster_since(tx: &mut Tx, version: (Generation, u64)) -> Result<Vec<Entry>, DbError> {
    let rows = tx
        .query(
            "SELECT generation, seq, name, body, seal FROM roster
             WHERE generation > $1 OR (generation = $1 AND seq > $2) ORDER BY generation, seq",
            &[version.0.to_sql().into(), Value::int(version.1)?],
        )
        .await?;
    rows.iter().map(entry).collect()
}

fn entry(row: &Row) -> Result<Entry, DbError> {
    let body: Body = serde_json::from_str(row.text(3)?).map_err(|e| DbError::Corrupt(format!("roster entry: {e}")))?;
    let seal = row.opt_text(4)?.map(str::to_owned);
    Ok(Entry { generation: Generation::from_sql(row.int(0)?), seq: row.uint(1)?, name: parse(row, 2)?, body, seal })
}

/// Reads one entry.
///
/// # Errors
/// `Corrupt` where its body cannot be read.
pub async fn roster_get(tx: &mut Tx, kind: Kind, name: &Name) -> Result<Option<Entry>, DbError> {
    let row = tx
        .query_opt(
            "SELECT generation, seq, name, body, seal FROM roster WHERE kind = $1 AND name = $2",
            &[kind.as_str().into(), name.as_str().into()],
        )
        .await?;
    row.as_ref().map(entry).transpose()
}

/// Writes an entry: new where `was` is `None`, else over exactly that version.
///
/// # Errors
/// `Conflict` or `Unique` where somebody else was first.
pub async fn roster_put(tx: &mut Tx, was: Option<(Generation, u64)>, entry: &Entry) -> Result<(), DbError> {
    let body = serde_json::to_string(&entry.body).map_err(|e| DbError::Other(e.to_string()))?;
    let kind = entry.body.kind().as_str();
    let (generation, seq) = (entry.generation.to_sql(), Value::int(entry.seq)?);
    let Some((old_generation, old_seq)) = was else {
        tx.execute(
            "INSERT INTO roster (kind, name, generation, seq, body, seal) VALUES ($1, $2, $3, $4, $5, $6)",
            &[kind.into(), entry.name.as_str().into(), generation.into(), seq, body.into(), entry.seal.clone().into()],
        )
        .await?;
        return Ok(());
    };
    let changed = tx
        .execute(
            "UPDATE roster SET generation = $1, seq = $2, body = $3, seal = $8
             WHERE kind = $4 AND name = $5 AND generation = $6 AND seq = $7",
            &[
                generation.into(),
                seq,
                body.into(),
                kind.into(),
                entry.name.as_str().into(),
                old_generation.to_sql().into(),
                Value::int(old_seq)?,
                entry.seal.clone().into(),
            ],
        )
        .await?;
    if changed == 1 { Ok(()) } else { Err(DbError::Conflict) }
}

/// Holds an entry's row until the commit, as it was read: nobody changes it in between.
///
/// # Errors
/// `Conflict` where somebody changed it.
pub async fn roster_touch(tx: &mut Tx, entry: &Entry) -> Result<(), DbError> {
    let held = tx
        .execute(
            "UPDATE roster SET seq = seq WHERE kind = $1 AND name = $2 AND generation = $3 AND seq = $4",
            &[
                entry.body.kind().as_str().into(),
                entry.name.as_str().into(),
                entry.generation.to_sql().into(),
                Value::int(entry.seq)?,
            ],
        )
        .await?;
    if held == 1 { Ok(()) } else { Err(DbError::Conflict) }
}

/// Unites entries into the stored roster, newest row each. Returns whether something changed.
///
/// # Errors
/// Those of the store.
pub async fn roster_unite(tx: &mut Tx, entries: &[Entry]) -> Result<bool, DbError> {
    let mut changed = false;
    for new in entries {
        let held = roster_get(tx, new.body.kind(), &new.name).await?;
        let was = held.as_ref().map(Entry::version);
        let mut one: Roster = held.into_iter().collect();
        if one.unite(new.clone()) {
            for united in one.entries() {
                roster_put(tx, was, united).await?;
            }
            changed = true;
        }
    }
    Ok(changed)
}

/// The highest marks ever seen of the other side's scopes.
///
/// # Errors
/// Those of the store.
pub async fn seen_marks(tx: &mut Tx) -> Result<BTreeMap<Scope, Mark>, DbError> {
    let rows = tx.query("SELECT scope, generation, seq, row_id, bound FROM seen_marks", &[]).await?;
    rows.iter().map(|row| Ok((parse(row, 0)?, seen(row)?))).collect()
}

/// The highest mark ever seen of one scope of the other side.
///
/// # Errors
/// Those of the store.
pub async fn seen_mark(tx: &mut Tx, scope: &Scope) -> Result<Option<Mark>, DbError> {
    let row = tx
        .query_opt(
            "SELECT scope, generation, seq, row_id, bound FROM seen_marks WHERE scope = $1",
            &[scope.to_string().into()],
        )
        .await?;
    row.as_ref().map(seen).transpose()
}

/// At most `limit` of the highest marks ever seen of the other side's namespaces: those that follow `after` in order of
/// their scopes, and then from the beginning on.
///
/// # Errors
/// Those of the store.
pub async fn seen_after(tx: &mut Tx, after: &str, limit: usize) -> Result<Vec<(Scope, Mark)>, DbError> {
    let mut all = Vec::new();
    for sql in [
        "SELECT scope, generation, seq, row_id, bound FROM seen_marks
         WHERE scope > $1 AND scope <> 'roster' ORDER BY scope LIMIT $2",
        "SELECT scope, generation, seq, row_id, bound FROM seen_marks
         WHERE scope <= $1 AND scope <> 'roster' ORDER BY scope LIMIT $2",
    ] {
        let room = limit.saturating_sub(all.len());
        if room > 0 {
            for row in tx.query(sql, &[after.into(), Value::int(room as u64)?]).await? {
                all.push((parse(&row, 0)?, seen(&row)?));
            }
        }
    }
    Ok(all)
}

fn seen(row: &Row) -> Result<Mark, DbError> {
    Ok(Mark {
        generation: Generation::from_sql(row.int(1)?),
        seq: row.uint(2)?,
        row: parse(row, 3)?,
        bound: row.uint(4)?,
    })
}

/// Keeps a mark of the other side if it is the newest so far, and the highest bound that any had.
///
/// # Errors
/// Those of the store.
pub async fn keep_mark(tx: &mut Tx, scope: &Scope, mark: &Mark) -> Result<(), DbError> {
    let args = [
        scope.to_string().into(),
        mark.generation.to_sql().into(),
        Value::int(mark.seq)?,
        mark.row.to_string().into(),
        Value::int(mark.bound)?,
    ];
    tx.execute(
        "INSERT INTO seen_marks (scope, generation, seq, row_id, bound) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (scope) DO UPDATE SET generation = excluded.generation, seq = excluded.seq,
         row_id = excluded.row_id,
         bound = CASE WHEN seen_marks.bound > excluded.bound THEN seen_marks.bound ELSE excluded.bound END
         WHERE excluded.generation > seen_marks.generation
            OR (excluded.generation = seen_marks.generation AND excluded.seq > seen_marks.seq)",
        &args,
    )
    .await?;
    let [scope, _, _, _, bound] = args;
    tx.execute("UPDATE seen_marks SET bound = $2 WHERE scope = $1 AND bound < $2", &[scope, bound]).await?;
    Ok(())
}
