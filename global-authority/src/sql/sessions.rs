//! Who spoke, and what was last heard of every region's store.

use std::collections::BTreeMap;

use cadastre_core::ids::{Incarnation, Name, SessionNo, StoreId};
use cadastre_core::mark::{Generation, Mark};
use cadastre_runtime::db::{DbError, Row, Tx, Value};

use super::parse;

macro_rules! select_sessions {
    ($tail:literal) => {
        concat!(
            "SELECT region, store_id, session, incarnation, number, chain, previous_chain, url, version, \
             clock_offset_ms, heard_at_ms, generation, ended, message, errand_key FROM sessions ",
            $tail
        )
    };
}

/// One agent's conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// Whose.
    pub region: Name,
    /// On which store.
    pub store_id: StoreId,
    /// Which start.
    pub session: u64,
    /// Which process.
    pub incarnation: Incarnation,
    /// Its last request.
    pub number: u64,
    /// The SHA-256 of that request: a copy of it that the network made is told from another process.
    pub message: String,
    /// The token that its next request presents.
    pub chain: String,
    /// The token that its last request presented.
    pub previous_chain: String,
    /// Where it is reached.
    pub url: Option<String>,
    /// Its software.
    pub version: String,
    /// Its clock minus ours.
    pub clock_offset_ms: i64,
    /// When it last spoke, milliseconds since the Unix epoch.
    pub heard_at_ms: u64,
    /// The generation in which it last spoke.
    pub generation: Generation,
    /// Whether it was ended because two copies of it were found.
    pub ended: bool,
    /// What is signed with when it is asked something.
    pub errand_key: Option<String>,
}

fn session(row: &Row) -> Result<Session, DbError> {
    Ok(Session {
        region: parse(row, 0)?,
        store_id: parse(row, 1)?,
        session: row.uint(2)?,
        incarnation: parse(row, 3)?,
        number: row.uint(4)?,
        chain: row.text(5)?.to_owned(),
        previous_chain: row.text(6)?.to_owned(),
        url: row.opt_text(7)?.map(str::to_owned),
        version: row.text(8)?.to_owned(),
        clock_offset_ms: row.int(9)?,
        heard_at_ms: row.uint(10)?,
        generation: Generation::from_sql(row.int(11)?),
        ended: row.bool(12)?,
        message: row.text(13)?.to_owned(),
        errand_key: row.opt_text(14)?.map(str::to_owned),
    })
}

/// One session of a region's store.
///
/// # Errors
/// Those of the store.
pub async fn session_of(
    tx: &mut Tx,
    region: &Name,
    store: StoreId,
    number: SessionNo,
) -> Result<Option<Session>, DbError> {
    let row = tx
        .query_opt(
            select_sessions!("WHERE region = $1 AND store_id = $2 AND session = $3"),
            &[region.as_str().into(), store.to_string().into(), Value::int(number.0)?],
        )
        .await?;
    row.as_ref().map(session).transpose()
}

/// The highest session that a region's store ever registered.
///
/// # Errors
/// Those of the store.
pub async fn newest_session(tx: &mut Tx, region: &Name, store: StoreId) -> Result<Option<SessionNo>, DbError> {
    let row = tx
        .query_opt(
            "SELECT session FROM sessions WHERE region = $1 AND store_id = $2 ORDER BY session DESC LIMIT 1",
            &[region.as_str().into(), store.to_string().into()],
        )
        .await?;
    row.map(|row| row.uint(0).map(SessionNo)).transpose()
}

/// Sessions that spoke since `since_ms`, of all regions.
///
/// # Errors
/// Those of the store.
pub async fn live_sessions(tx: &mut Tx, since_ms: u64) -> Result<Vec<Session>, DbError> {
    let rows = tx
        .query(
            select_sessions!(
                "WHERE heard_at_ms >= $1 AND ended = 0
             ORDER BY region, session DESC"
            ),
            &[Value::int(since_ms)?],
        )
        .await?;
    rows.iter().map(session).collect()
}

/// Writes a session: new where `was` is `None`, else over exactly that request and token.
///
/// # Errors
/// `Conflict` where another request of the same session was first: two copies of one may come at once.
pub async fn put_session(tx: &mut Tx, was: Option<&Session>, s: &Session) -> Result<(), DbError> {
    let now = [
        s.region.as_str().into(),
        s.store_id.to_string().into(),
        Value::int(s.session)?,
        s.incarnation.to_string().into(),
        Value::int(s.number)?,
        s.chain.as_str().into(),
        s.previous_chain.as_str().into(),
        s.url.clone().into(),
        s.version.as_str().into(),
        s.clock_offset_ms.into(),
        Value::int(s.heard_at_ms)?,
        s.generation.to_sql().into(),
        i64::from(s.ended).into(),
        s.message.as_str().into(),
        s.errand_key.clone().into(),
    ];
    let written = match was {
        None => {
            tx.execute(
                "INSERT INTO sessions (region, store_id, session, incarnation, number, chain, previous_chain, url,
                 version, clock_offset_ms, heard_at_ms, generation, ended, message, errand_key)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
                 ON CONFLICT (region, store_id, session) DO NOTHING",
                &now,
            )
            .await?
        }
        Some(was) => {
            let guard = [Value::int(was.number)?, was.chain.as_str().into()];
            tx.execute(
                "UPDATE sessions SET incarnation = $4, number = $5, chain = $6, previous_chain = $7, url = $8,
                 version = $9, clock_offset_ms = $10, heard_at_ms = $11, generation = $12, ended = $13, message = $14,
                 errand_key = $15
                 WHERE region = $1 AND store_id = $2 AND session = $3 AND number = $16 AND chain = $17",
                &[now.as_slice(), &guard].concat(),
            )
            .await?
        }
    };
    if written == 1 { Ok(()) } else { Err(DbError::Conflict) }
}

/// What was last heard of a region's store.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// Which store.
    pub store_id: StoreId,
    /// Its newest row.
    pub mark: Mark,
    /// The roster that it holds.
    pub roster: (Generation, u64),
    /// When, milliseconds since the Unix epoch.
    pub heard_at_ms: u64,
}

/// What was last heard of every region.
///
/// # Errors
/// Those of the store.
pub async fn kept(tx: &mut Tx) -> Result<BTreeMap<Name, Kept>, DbError> {
    let rows = tx
        .query(
            "SELECT region, store_id, generation, seq, row_id, bound, roster_generation, roster_seq, heard_at_ms
             FROM kept",
            &[],
        )
        .await?;
    rows.iter()
        .map(|row| {
            let mark = Mark {
                generation: Generation::from_sql(row.int(2)?),
                seq: row.uint(3)?,
                row: parse(row, 4)?,
                bound: row.uint(5)?,
            };
            let roster = (Generation::from_sql(row.int(6)?), row.uint(7)?);
            Ok((parse(row, 0)?, Kept { store_id: parse(row, 1)?, mark, roster, heard_at_ms: row.uint(8)? }))
        })
        .collect()
}

/// Keeps what a region's store said of itself.
///
/// # Errors
/// Those of the store.
pub async fn keep(tx: &mut Tx, region: &Name, kept: &Kept) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO kept (region, store_id, generation, seq, row_id, bound, roster_generation, roster_seq, heard_at_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
         ON CONFLICT (region) DO UPDATE SET store_id = excluded.store_id, generation = excluded.generation,
         seq = excluded.seq, row_id = excluded.row_id, bound = excluded.bound,
         roster_generation = excluded.roster_generation, roster_seq = excluded.roster_seq,
         heard_at_ms = excluded.heard_at_ms",
        &[
            region.as_str().into(),
            kept.store_id.to_string().into(),
            kept.mark.generation.to_sql().into(),
            Value::int(kept.mark.seq)?,
            kept.mark.row.to_string().into(),
            Value::int(kept.mark.bound)?,
            kept.roster.0.to_sql().into(),
            Value::int(kept.roster.1)?,
            Value::int(kept.heard_at_ms)?,
        ],
    )
    .await?;
    Ok(())
}

/// Forgets what was heard of every region's store.
///
/// # Errors
/// Those of the store.
pub async fn forget_kept(tx: &mut Tx) -> Result<(), DbError> {
    tx.execute("DELETE FROM kept", &[]).await?;
    Ok(())
}
