//! The shared tables, and all SQL over them.
//!
//! One text serves SQLite and PostgreSQL: BIGINT and TEXT columns, `$n` placeholders, no functions.
//! Guards are UPDATEs whose affected rows are counted: under READ COMMITTED a SELECT would let an
//! epoch or a generation change between the look and the write.

use cadastre_core::continuity::{ScopeState, ScopeView};
use cadastre_core::ids::{ClusterId, RowId, StoreId};
use cadastre_core::mark::{Generation, Mark, Scope};
use cadastre_runtime::db::{DbError, Row, Tx, Value};

use crate::error::LedgerError;

mod roster;

pub use roster::*;

/// The statements that make the shared tables.
pub const SHARED_TABLES: &[&str] = &[
    "CREATE TABLE store (
        id BIGINT PRIMARY KEY, cluster_id TEXT, store_id TEXT NOT NULL, role TEXT NOT NULL,
        session BIGINT NOT NULL, has_witness BIGINT NOT NULL, promised BIGINT NOT NULL,
        place TEXT NOT NULL, made_at_ms BIGINT NOT NULL)",
    "CREATE TABLE scopes (
        scope TEXT PRIMARY KEY, state TEXT NOT NULL, generation BIGINT NOT NULL, seq BIGINT NOT NULL,
        row_id TEXT NOT NULL, bound BIGINT NOT NULL, base BIGINT NOT NULL, reason TEXT NOT NULL,
        since_ms BIGINT NOT NULL)",
    "CREATE TABLE marks (
        row_id TEXT PRIMARY KEY, scope TEXT NOT NULL, generation BIGINT NOT NULL, seq BIGINT NOT NULL,
        bound BIGINT NOT NULL, what TEXT NOT NULL, at_ms BIGINT NOT NULL)",
    ROSTER_TABLE,
    "CREATE INDEX roster_version ON roster (generation, seq)",
    "CREATE TABLE seen_marks (
        scope TEXT PRIMARY KEY, generation BIGINT NOT NULL, seq BIGINT NOT NULL, row_id TEXT NOT NULL,
        bound BIGINT NOT NULL)",
    "CREATE TABLE audit (
        id TEXT PRIMARY KEY, at_ms BIGINT NOT NULL, who TEXT NOT NULL, what TEXT NOT NULL,
        detail TEXT NOT NULL)",
    "CREATE INDEX audit_at ON audit (at_ms)",
];

/// Which server the store's generation was verified on.
pub const SERVER_COLUMN: &[&str] = &["ALTER TABLE store ADD COLUMN server TEXT NOT NULL DEFAULT ''"];

/// The authority's seal on an entry, in stores and in witnesses.
pub const SEAL_COLUMN: &[&str] = &["ALTER TABLE roster ADD COLUMN seal TEXT"];

/// The roster's table, in stores and in witnesses.
pub const ROSTER_TABLE: &str = "CREATE TABLE roster (
    kind TEXT NOT NULL, name TEXT NOT NULL, generation BIGINT NOT NULL, seq BIGINT NOT NULL,
    body TEXT NOT NULL, PRIMARY KEY (kind, name))";

/// The store's own row.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreRow {
    /// The cluster that it belongs to; a region's store joins one with the first answer.
    pub cluster_id: Option<ClusterId>,
    /// The store.
    pub store_id: StoreId,
    /// `authority`, or `region/NAME`.
    pub role: String,
    /// The last session that was started on it.
    pub session: u64,
    /// Whether it was ever used with a witness: then an empty witness is a lost one.
    pub has_witness: bool,
    /// Nothing of a lower generation is taken from the tier above (regions only).
    pub promised: Generation,
    /// Where an embedded store lies, see [`Place`]; empty where it was just made, and always on a server.
    pub place: String,
    /// Whether the server that this was read from is the one that the generation was verified on: the same system,
    /// timeline and start. Always so where nothing is watched.
    pub same_server: bool,
}

/// One row of `scopes`.
#[derive(Clone, Debug, PartialEq)]
pub struct ScopeRow {
    /// The scope.
    pub scope: Scope,
    /// State, generation, mark, base.
    pub view: ScopeView,
    /// Why it is in quarantine.
    pub reason: String,
    /// Since when, milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// As [`StoreRow::same_server`].
    pub same_server: bool,
}

impl ScopeRow {
    /// Whether what a process verified still holds: this state and generation, on the server that it was verified on.
    #[must_use]
    pub fn is(&self, state: ScopeState, verified: Generation) -> bool {
        self.same_server && self.view.state == state && self.view.generation == verified
    }
}

fn parse<T: std::str::FromStr>(row: &Row, i: usize) -> Result<T, DbError> {
    let text = row.text(i)?;
    text.parse().map_err(|_| DbError::Corrupt(format!("unreadable value in column {i}")))
}

fn scope_row(row: &Row, server: &str) -> Result<ScopeRow, DbError> {
    let generation = Generation::from_sql(row.int(2)?);
    let state = ScopeState::parse(row.text(1)?).ok_or_else(|| DbError::Corrupt("unknown scope state".into()))?;
    let mark = Mark { generation, seq: row.uint(3)?, row: parse(row, 4)?, bound: row.uint(5)? };
    Ok(ScopeRow {
        scope: parse(row, 0)?,
        view: ScopeView { state, generation, mark, base: row.uint(6)? },
        reason: row.text(7)?.to_owned(),
        since_ms: row.uint(8)?,
        same_server: row.text(9)? == server,
    })
}

/// The store's row, if it was initialised.
///
/// # Errors
/// Those of the store.
pub async fn store(tx: &mut Tx) -> Result<Option<StoreRow>, DbError> {
    let row = tx
        .query_opt(
            "SELECT cluster_id, store_id, role, session, has_witness, promised, place, server FROM store WHERE id = 1",
            &[],
        )
        .await?;
    let Some(row) = row else { return Ok(None) };
    let cluster_id = match row.opt_text(0)? {
        Some(text) => Some(text.parse().map_err(|_| DbError::Corrupt("unreadable cluster id".into()))?),
        None => None,
    };
    Ok(Some(StoreRow {
        cluster_id,
        store_id: parse(&row, 1)?,
        role: row.text(2)?.to_owned(),
        session: row.uint(3)?,
        has_witness: row.int(4)? != 0,
        promised: Generation::from_sql(row.int(5)?),
        place: row.text(6)?.to_owned(),
        same_server: row.text(7)? == tx.server(),
    }))
}

/// Writes the store's row for the first time.
///
/// # Errors
/// `Unique` where another process was first.
pub async fn insert_store(tx: &mut Tx, store: &StoreRow, now_ms: u64) -> Result<(), DbError> {
    let server = tx.server().to_owned();
    tx.execute(
        "INSERT INTO store (id, cluster_id, store_id, role, session, has_witness, promised, place, made_at_ms, server)
         VALUES (1, $1, $2, $3, $4, $5, $6, $7, $8, $9)",
        &[
            store.cluster_id.map(|c| c.to_string()).into(),
            store.store_id.to_string().into(),
            store.role.as_str().into(),
            Value::int(store.session)?,
            i64::from(store.has_witness).into(),
            store.promised.to_sql().into(),
            store.place.as_str().into(),
            Value::int(now_ms)?,
            server.into(),
        ],
    )
    .await?;
    Ok(())
}

/// Writes down on which server the generation is verified that this transaction opens; whether it was another one.
/// It comes first in its transaction: of several processes that see a new server at the same time, one opens the
/// generation.
///
/// # Errors
/// Those of the store.
pub async fn set_server(tx: &mut Tx) -> Result<bool, DbError> {
    let server = tx.server().to_owned();
    let set = tx.execute("UPDATE store SET server = $1 WHERE id = 1 AND server <> $1", &[server.into()]).await?;
    Ok(set == 1)
}

/// How a store's place looks to a process that lies at `here`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// This is where it was used, or nobody ever did.
    Home,
    /// It was closed in order, and opened elsewhere by this process: the right one, or the second one.
    Unsure,
    /// It was in use elsewhere when it was copied or its process died: it may be a copy of one that lives.
    Elsewhere,
}

impl StoreRow {
    /// See [`Place`].
    #[must_use]
    pub fn place(&self, here: &str) -> Place {
        if here.is_empty() || self.place == here || self.place.is_empty() {
            Place::Home
        } else if self.place == unsure(here) {
            Place::Unsure
        } else {
            Place::Elsewhere
        }
    }
}

fn closed(place: &str) -> String {
    format!("closed {place}")
}

fn unsure(place: &str) -> String {
    format!("unsure {place}")
}

/// Takes the next session number, and looks where the store lies. One that a process did not close stays where it
/// was; one that was opened elsewhere once and not confirmed since stays nowhere.
///
/// # Errors
/// Those of the store.
pub async fn next_session(tx: &mut Tx, here: &str) -> Result<u64, DbError> {
    // The UPDATE comes first: it holds the row until the commit, so that two starts never read one number.
    tx.execute(
        "UPDATE store SET session = session + 1, place = CASE WHEN place = '' OR place = $2 THEN $1
         WHEN place LIKE 'closed %' THEN $3 WHEN place LIKE 'unsure %' THEN 'nowhere' ELSE place END WHERE id = 1",
        &[here.into(), closed(here).into(), unsure(here).into()],
    )
    .await?;
    tx.query_one("SELECT session FROM store WHERE id = 1", &[]).await?.uint(0)
}

/// Binds a region's store to its cluster, once.
///
/// # Errors
/// [`LedgerError::Refused`] where it belongs to another.
pub async fn bind_cluster(tx: &mut Tx, cluster: ClusterId) -> Result<(), LedgerError> {
    let text = cluster.to_string();
    let bound = tx
        .execute(
            "UPDATE store SET cluster_id = $1 WHERE id = 1 AND (cluster_id IS NULL OR cluster_id = $1)",
            &[text.as_str().into()],
        )
        .await?;
    if bound == 1 {
        Ok(())
    } else {
        Err(LedgerError::Refused(format!("this store belongs to another cluster than {text}")))
    }
}

/// Records that the store is used with a witness.
///
/// # Errors
/// Those of the store.
pub async fn set_has_witness(tx: &mut Tx) -> Result<(), DbError> {
    tx.execute("UPDATE store SET has_witness = 1 WHERE id = 1", &[]).await?;
    Ok(())
}

/// Records where the store lies from now on; nothing of what a copy of it could hold is used any more.
///
/// # Errors
/// Those of the store.
pub async fn set_place(tx: &mut Tx, place: &str) -> Result<(), DbError> {
    tx.execute("UPDATE store SET place = $1 WHERE id = 1", &[place.into()]).await?;
    Ok(())
}

/// Records that no process is on the store any more. Not where it was not at home: it may be a copy still.
///
/// # Errors
/// Those of the store.
pub async fn leave_place(tx: &mut Tx, here: &str) -> Result<(), DbError> {
    let args = [here.into(), closed(here).into()];
    tx.execute("UPDATE store SET place = $2 WHERE id = 1 AND place = $1 AND place <> ''", &args).await?;
    Ok(())
}

/// Raises what the store promised; returns the promise that now holds.
///
/// # Errors
/// Those of the store.
pub async fn promise(tx: &mut Tx, generation: Generation) -> Result<Generation, DbError> {
    let sql = generation.to_sql();
    tx.execute("UPDATE store SET promised = $1 WHERE id = 1 AND promised < $1", &[sql.into()]).await?;
    let row = tx.query_one("SELECT promised FROM store WHERE id = 1", &[]).await?;
    Ok(Generation::from_sql(row.int(0)?))
}

/// Whether this transaction runs on the server that the generation was verified on. What it reads of a conversation
/// (sessions, chains) is else another history's, and proves nothing about who speaks.
///
/// # Errors
/// [`LedgerError::AnotherServer`] where it does not.
pub async fn on_verified_server(tx: &mut Tx) -> Result<(), LedgerError> {
    if tx.server().is_empty() {
        return Ok(());
    }
    match store(tx).await? {
        Some(store) if !store.same_server => Err(LedgerError::AnotherServer),
        Some(_) | None => Ok(()),
    }
}

const SCOPE_COLUMNS: &str = "SELECT scope, state, generation, seq, row_id, bound, base, reason, since_ms, \
     (SELECT server FROM store WHERE id = 1) FROM scopes";

/// One scope.
///
/// # Errors
/// Those of the store.
pub async fn scope(tx: &mut Tx, scope: &Scope) -> Result<Option<ScopeRow>, DbError> {
    let row = tx
        .query_opt(
            "SELECT scope, state, generation, seq, row_id, bound, base, reason, since_ms, \
             (SELECT server FROM store WHERE id = 1) FROM scopes WHERE scope = $1",
            &[scope.to_string().into()],
        )
        .await?;
    row.as_ref().map(|row| scope_row(row, tx.server())).transpose()
}

/// All scopes, by name.
///
/// # Errors
/// Those of the store.
pub async fn scopes(tx: &mut Tx) -> Result<Vec<ScopeRow>, DbError> {
    let rows = tx.query(SCOPE_COLUMNS, &[]).await?;
    rows.iter().map(|row| scope_row(row, tx.server())).collect()
}

/// Makes a scope with its first row.
///
/// # Errors
/// `Unique` where it exists.
pub async fn insert_scope(tx: &mut Tx, scope: &Scope, mark: &Mark, what: &str, now_ms: u64) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO scopes (scope, state, generation, seq, row_id, bound, base, reason, since_ms)
         VALUES ($1, 'open', $2, $3, $4, $5, 0, '', $6)",
        &[
            scope.to_string().into(),
            mark.generation.to_sql().into(),
            Value::int(mark.seq)?,
            mark.row.to_string().into(),
            Value::int(mark.bound)?,
            Value::int(now_ms)?,
        ],
    )
    .await?;
    insert_mark(tx, scope, mark, what, now_ms).await
}

/// Writes a mark's row. It is never deleted.
///
/// # Errors
/// Those of the store.
pub async fn insert_mark(tx: &mut Tx, scope: &Scope, mark: &Mark, what: &str, now_ms: u64) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO marks (row_id, scope, generation, seq, bound, what, at_ms) VALUES ($1, $2, $3, $4, $5, $6, $7)",
        &[
            mark.row.to_string().into(),
            scope.to_string().into(),
            mark.generation.to_sql().into(),
            Value::int(mark.seq)?,
            Value::int(mark.bound)?,
            what.into(),
            Value::int(now_ms)?,
        ],
    )
    .await?;
    Ok(())
}

/// The one way to raise a scope: from the mark that was read to the next one, only while it is open
/// in the generation of that mark, on the server that this generation was verified on.
///
/// # Errors
/// `Conflict` where the guard did not hold: somebody raised or closed it meanwhile.
pub async fn raise(
    tx: &mut Tx,
    scope: &Scope,
    was: &Mark,
    bound: u64,
    row: RowId,
    what: &str,
    now_ms: u64,
) -> Result<Mark, LedgerError> {
    raise_in(tx, ScopeState::Open, scope, was, bound, row, what, now_ms).await
}

/// As [`raise`], for the one thing that may be written in a quarantine: the next epoch of a region whose
/// store went back.
///
/// # Errors
/// `Conflict` where the guard did not hold.
#[allow(clippy::too_many_arguments)] // every one is a column of one statement
pub async fn raise_in(
    tx: &mut Tx,
    state: ScopeState,
    scope: &Scope,
    was: &Mark,
    bound: u64,
    row: RowId,
    what: &str,
    now_ms: u64,
) -> Result<Mark, LedgerError> {
    let next = Mark { generation: was.generation, seq: was.seq + 1, row, bound };
    let server = tx.server().to_owned();
    let raised = tx
        .execute(
            "UPDATE scopes SET seq = $1, row_id = $2, bound = $3
             WHERE scope = $4 AND state = $8 AND generation = $5 AND seq = $6 AND row_id = $7 AND bound <= $3
             AND EXISTS (SELECT id FROM store WHERE id = 1 AND server = $9)",
            &[
                Value::int(next.seq)?,
                row.to_string().into(),
                Value::int(bound)?,
                scope.to_string().into(),
                was.generation.to_sql().into(),
                Value::int(was.seq)?,
                was.row.to_string().into(),
                state.as_str().into(),
                server.into(),
            ],
        )
        .await?;
    if raised != 1 {
        // Somebody else raised it first (retry), or it was closed: the caller's next read tells which.
        return Err(LedgerError::Db(DbError::Conflict));
    }
    insert_mark(tx, scope, &next, what, now_ms).await?;
    Ok(next)
}

/// Opens a generation, or closes a scope for one: state, generation and base, with a new first row; on the server that
/// is written down.
///
/// # Errors
/// `Conflict` where the scope moved since it was read.
pub async fn reopen(
    tx: &mut Tx,
    was: &ScopeRow,
    now: &ScopeView,
    reason: &str,
    what: &str,
    now_ms: u64,
) -> Result<(), DbError> {
    let server = tx.server().to_owned();
    let changed = tx
        .execute(
            "UPDATE scopes SET state = $1, generation = $2, seq = $3, row_id = $4, bound = $5, base = $6, reason = $7,
             since_ms = $8 WHERE scope = $9 AND generation = $10 AND seq = $11 AND row_id = $12
             AND EXISTS (SELECT id FROM store WHERE id = 1 AND server = $13)",
            &[
                now.state.as_str().into(),
                now.generation.to_sql().into(),
                Value::int(now.mark.seq)?,
                now.mark.row.to_string().into(),
                Value::int(now.mark.bound)?,
                Value::int(now.base)?,
                reason.into(),
                Value::int(now_ms)?,
                was.scope.to_string().into(),
                was.view.generation.to_sql().into(),
                Value::int(was.view.mark.seq)?,
                was.view.mark.row.to_string().into(),
                server.into(),
            ],
        )
        .await?;
    if changed != 1 {
        return Err(DbError::Conflict);
    }
    insert_mark(tx, &was.scope, &now.mark, what, now_ms).await
}

/// Whether the store has a mark's row.
///
/// # Errors
/// Those of the store.
pub async fn has_row(tx: &mut Tx, row: RowId) -> Result<bool, DbError> {
    let found = tx.query_opt("SELECT seq FROM marks WHERE row_id = $1", &[row.to_string().into()]).await?;
    Ok(found.is_some())
}

/// Writes an audit record.
///
/// # Errors
/// Those of the store.
pub async fn audit(tx: &mut Tx, id: RowId, now_ms: u64, who: &str, what: &str, detail: &str) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO audit (id, at_ms, who, what, detail) VALUES ($1, $2, $3, $4, $5)",
        &[id.to_string().into(), Value::int(now_ms)?, who.into(), what.into(), detail.into()],
    )
    .await?;
    Ok(())
}
