//! A database engine over real SQLite, in memory, with the faults that disks and servers have.
//!
//! Isolation is that of the shipped engines at their weakest: READ COMMITTED with one writer. A unit
//! reads the committed state until its first write; from then on it holds the write lock and reads its
//! own. A guard that looks where it should write is therefore found. Two connections make that: one
//! holds what is committed, the other what the writer is doing, and a commit replays the writer's
//! statements on the first.
//!
//! Faults: a process that dies in a unit rolls back; one that dies in its COMMIT leaves either outcome;
//! the store can be copied, put back, copied and started twice, promoted from a copy that lags, and
//! restarted under living processes.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use cadastre_runtime::db::{Db, DbError, Engine, EngineKind, EngineTx, Identity, Mode, Row, Value};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, MAIN_DB};

use super::exec::Sim;

/// What a store's files hold at one instant.
#[derive(Clone)]
pub struct Image(Arc<Vec<u8>>);

struct Server {
    committed: Connection,
    working: Connection,
    /// The writer that holds the lock, and who waits for it.
    writer: Option<u64>,
    waiting: VecDeque<(u64, Waker)>,
    next: u64,
    identity: Identity,
    /// Raised by a restart: units of an older life fail.
    life: u64,
    down: bool,
    /// An image that is kept in step with the store, now and then: a standby, or a nightly backup.
    synced: Option<Image>,
    /// Whether it calls itself a server that several processes share.
    shared: bool,
    /// Whether units learn on which server they run.
    watched: bool,
    /// A rule that is taken out of the SQL on its way in.
    rewrite: Rewrite,
    /// A negative control: commits are acknowledged before they are durable.
    pub lose_unsynced: bool,
}

/// One simulated database.
#[derive(Clone)]
pub struct Disk {
    sim: Sim,
    server: Arc<Mutex<Server>>,
}

fn sqlite(error: rusqlite::Error) -> DbError {
    match &error {
        rusqlite::Error::SqliteFailure(e, _) if e.code == rusqlite::ErrorCode::ConstraintViolation => DbError::Unique,
        _ => DbError::Other(error.to_string()),
    }
}

/// Lets SQLite not count what memory it uses: it counts under one lock, which seeds on other cores would wait for.
#[allow(unsafe_code)]
fn count_no_memory() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    // SAFETY: called once, before the first connection of this process is opened here, with the one integer that this
    // option takes; where SQLite has begun already it refuses, and counts on.
    ONCE.call_once(|| unsafe {
        rusqlite::ffi::sqlite3_config(rusqlite::ffi::SQLITE_CONFIG_MEMSTATUS, 0);
    });
}

fn open(image: Option<&Image>) -> Connection {
    count_no_memory();
    let mut connection = Connection::open_in_memory().expect("an in-memory database opens");
    if let Some(Image(bytes)) = image {
        connection
            .deserialize_read_exact(MAIN_DB, bytes.as_slice(), bytes.len(), false)
            .expect("an image that was serialised is read back");
    }
    connection.set_prepared_statement_cache_capacity(256);
    // A statement is planned once, whatever is bound to it: planning it anew was a twelfth of a run.
    connection.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).expect("SQLite knows it");
    connection
}

impl Disk {
    /// An empty database, or one that holds `image`. `system` is what a server calls its identity; two
    /// servers over copies of one image have the same.
    #[must_use]
    pub fn new(sim: &Sim, system: &str, image: Option<&Image>) -> Self {
        let identity = Identity {
            system: system.to_owned(),
            timeline: "00000001".to_owned(),
            started: sim.now_ms().to_string(),
            in_recovery: false,
        };
        let server = Server {
            committed: open(image),
            working: open(image),
            writer: None,
            waiting: VecDeque::new(),
            next: 0,
            identity,
            life: 0,
            down: false,
            synced: None,
            shared: false,
            watched: false,
            rewrite: &[],
            lose_unsynced: false,
        };
        Self { sim: sim.clone(), server: Arc::new(Mutex::new(server)) }
    }

    /// An empty one that, if `shared`, calls itself a server that several processes share.
    #[must_use]
    pub fn shared(sim: &Sim, system: &str, shared: bool) -> Self {
        let disk = Self::new(sim, system, None);
        disk.server().shared = shared;
        disk
    }

    /// Its units learn on which server they run, as those of PostgreSQL do.
    #[must_use]
    pub fn watched(self, watched: bool) -> Self {
        self.server().watched = watched;
        self
    }

    fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A door to it.
    #[must_use]
    pub fn door(&self) -> Db {
        Db::new(Arc::new(SimEngine { disk: self.clone() }))
    }

    /// What is committed now.
    #[must_use]
    pub fn image(&self) -> Image {
        let server = self.server();
        let data = server.committed.serialize(MAIN_DB).expect("an in-memory database serialises");
        Image(Arc::new(data.to_vec()))
    }

    /// Puts an image in place of what is there; units under way fail.
    pub fn put_back(&self, image: &Image) {
        let mut server = self.server();
        server.committed = open(Some(image));
        server.working = open(Some(image));
        restart(&mut server, self.sim.now_ms());
    }

    /// Takes a rule out of the SQL on its way in.
    pub fn rewrite(&self, texts: Rewrite) {
        self.server().rewrite = texts;
    }

    /// Restarts the server under living processes.
    pub fn restart(&self) {
        restart(&mut self.server(), self.sim.now_ms());
    }

    /// Takes the server down, or brings it back.
    pub fn set_down(&self, down: bool) {
        self.server().down = down;
    }

    /// Whether it is down.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.server().down
    }

    /// A rule is taken out: commits are acknowledged before they are durable, and what was committed
    /// since the last [`Self::sync`] is lost at a power cut.
    pub fn lose_unsynced(&self) {
        if !std::mem::replace(&mut self.server().lose_unsynced, true) {
            self.sync();
        }
    }

    /// Everything that is committed reaches the platter.
    pub fn sync(&self) {
        let image = self.image();
        self.server().synced = Some(image);
    }

    /// The machine loses power: with synchronous commits nothing that was acknowledged is lost.
    pub fn power_cut(&self) {
        let lost = {
            let server = self.server();
            if server.lose_unsynced { server.synced.clone() } else { None }
        };
        match lost {
            Some(image) => self.put_back(&image),
            None => self.restart(),
        }
        self.sync();
    }

    /// Runs a query outside any unit, for invariants.
    #[must_use]
    pub fn look(&self, sql: &'static str, args: &[Value]) -> Vec<Row> {
        query(&self.server().committed, sql, args, &[]).expect("a query of the checker runs")
    }
}

fn restart(server: &mut Server, now_ms: u64) {
    if server.writer.is_some() {
        let _ = server.working.execute_batch("ROLLBACK");
    }
    server.life += 1;
    server.writer = None;
    server.identity.started = format!("{now_ms}.{}", server.life);
    for (_, waker) in server.waiting.drain(..) {
        waker.wake();
    }
}

fn bind(statement: &mut rusqlite::CachedStatement<'_>, args: &[Value]) -> Result<(), DbError> {
    for index in 1..=statement.parameter_count() {
        // `$1` is a named parameter to SQLite; its place is not its number where the text repeats or
        // reorders them.
        let number = statement.parameter_name(index).and_then(|name| name.strip_prefix('$')?.parse::<usize>().ok());
        let Some(value) = number.and_then(|n| args.get(n.checked_sub(1)?)) else { continue };
        match value {
            Value::Int(n) => statement.raw_bind_parameter(index, n),
            Value::Text(text) => statement.raw_bind_parameter(index, text),
            _ => statement.raw_bind_parameter(index, rusqlite::types::Null),
        }
        .map_err(sqlite)?;
    }
    Ok(())
}

/// Which text becomes which.
type Rewrite = &'static [(&'static str, &'static str)];

fn rewritten(sql: &'static str, rewrite: Rewrite) -> std::borrow::Cow<'static, str> {
    let mut text = std::borrow::Cow::Borrowed(sql);
    for (from, to) in rewrite {
        if text.contains(from) {
            text = text.replace(from, to).into();
        }
    }
    text
}

fn query(connection: &Connection, sql: &'static str, args: &[Value], rewrite: Rewrite) -> Result<Vec<Row>, DbError> {
    let mut statement = connection.prepare_cached(&rewritten(sql, rewrite)).map_err(sqlite)?;
    bind(&mut statement, args)?;
    let columns = statement.column_count();
    let mut rows = statement.raw_query();
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(sqlite)? {
        let mut values = Vec::with_capacity(columns);
        for n in 0..columns {
            values.push(match row.get_ref(n).map_err(sqlite)? {
                ValueRef::Null => Value::NullText,
                ValueRef::Integer(n) => Value::Int(n),
                ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
                ValueRef::Real(_) | ValueRef::Blob(_) => return Err(DbError::Corrupt("unexpected type".to_owned())),
            });
        }
        found.push(Row::new(sql, values));
    }
    Ok(found)
}

fn execute(connection: &Connection, sql: &'static str, args: &[Value], rewrite: Rewrite) -> Result<u64, DbError> {
    let mut statement = connection.prepare_cached(&rewritten(sql, rewrite)).map_err(sqlite)?;
    bind(&mut statement, args)?;
    let changed = statement.raw_execute().map_err(sqlite)?;
    Ok(u64::try_from(changed).unwrap_or(0))
}

struct SimEngine {
    disk: Disk,
}

#[async_trait]
impl Engine for SimEngine {
    async fn begin(&self, mode: Mode) -> Result<Box<dyn EngineTx>, DbError> {
        self.disk.sim.sleep_us(self.disk.sim.below(400)).await;
        let mut server = self.disk.server();
        if server.down {
            return Err(DbError::Unavailable("the simulated server is down".to_owned()));
        }
        server.next += 1;
        let (id, life) = (server.next, server.life);
        let on = if server.watched { server.identity.token() } else { String::new() };
        Ok(Box::new(SimTx { disk: self.disk.clone(), id, life, on, mode, writes: Vec::new(), done: false }))
    }

    fn kind(&self) -> EngineKind {
        // The SQL is one text; what differs is only how many agents may share the store.
        if self.disk.server().shared { EngineKind::Postgres } else { EngineKind::Sqlite }
    }

    fn detaches(&self) -> bool {
        false
    }

    async fn identity(&self) -> Result<Identity, DbError> {
        let server = self.disk.server();
        if server.down { Err(DbError::Unavailable("down".to_owned())) } else { Ok(server.identity.clone()) }
    }
}

struct SimTx {
    disk: Disk,
    id: u64,
    life: u64,
    on: String,
    mode: Mode,
    writes: Vec<(&'static str, Vec<Value>)>,
    done: bool,
}

impl SimTx {
    fn alive(&self, server: &Server) -> Result<(), DbError> {
        if server.down || server.life != self.life {
            return Err(DbError::Unavailable("the connection was lost".to_owned()));
        }
        Ok(())
    }

    fn holds_lock(&self, server: &Server) -> bool {
        server.writer == Some(self.id)
    }

    fn release(&self, server: &mut Server) {
        if self.holds_lock(server) && server.life == self.life {
            server.writer = None;
            if let Some((_, waker)) = server.waiting.pop_front() {
                waker.wake();
            }
        }
    }
}

/// Waits for the write lock; a lost connection ends the wait.
struct Lock<'a> {
    tx: &'a SimTx,
}

impl Future for Lock<'_> {
    type Output = Result<(), DbError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut server = self.tx.disk.server();
        if let Err(lost) = self.tx.alive(&server) {
            return Poll::Ready(Err(lost));
        }
        match server.writer {
            Some(holder) if holder == self.tx.id => Poll::Ready(Ok(())),
            None => {
                server.writer = Some(self.tx.id);
                Poll::Ready(server.working.execute_batch("BEGIN IMMEDIATE").map_err(sqlite))
            }
            Some(_) => {
                let id = self.tx.id;
                server.waiting.retain(|(waiting, _)| *waiting != id);
                server.waiting.push_back((id, context.waker().clone()));
                Poll::Pending
            }
        }
    }
}

#[async_trait]
impl EngineTx for SimTx {
    fn server(&self) -> &str {
        &self.on
    }

    async fn execute(&mut self, sql: &'static str, args: &[Value]) -> Result<u64, DbError> {
        if self.mode == Mode::Read {
            return Err(DbError::ReadOnly);
        }
        self.disk.sim.sleep_us(self.disk.sim.below(200)).await;
        Lock { tx: self }.await?;
        let server = self.disk.server();
        self.alive(&server)?;
        let changed = execute(&server.working, sql, args, server.rewrite)?;
        drop(server);
        self.writes.push((sql, args.to_vec()));
        Ok(changed)
    }

    async fn query(&mut self, sql: &'static str, args: &[Value]) -> Result<Vec<Row>, DbError> {
        self.disk.sim.sleep_us(self.disk.sim.below(200)).await;
        let server = self.disk.server();
        self.alive(&server)?;
        let connection = if self.holds_lock(&server) { &server.working } else { &server.committed };
        query(connection, sql, args, server.rewrite)
    }

    async fn commit(mut self: Box<Self>) -> Result<(), DbError> {
        // Dying here, before: nothing is written. Dying there, after: it is, and nobody was told.
        self.disk.sim.sleep_us(self.disk.sim.below(500)).await;
        {
            let mut server = self.disk.server();
            self.alive(&server)?;
            if self.holds_lock(&server) {
                server.working.execute_batch("COMMIT").map_err(sqlite)?;
                server.committed.execute_batch("BEGIN").map_err(sqlite)?;
                for (sql, args) in &self.writes {
                    execute(&server.committed, sql, args, server.rewrite)?;
                }
                server.committed.execute_batch("COMMIT").map_err(sqlite)?;
                self.release(&mut server);
            }
            self.done = true;
        }
        self.disk.sim.sleep_us(self.disk.sim.below(500)).await;
        Ok(())
    }

    async fn rollback(self: Box<Self>) {
        // Dropping it rolls back.
    }
}

impl Drop for SimTx {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let mut server = self.disk.server();
        let id = self.id;
        server.waiting.retain(|(waiting, _)| *waiting != id);
        if self.holds_lock(&server) && server.life == self.life {
            let _ = server.working.execute_batch("ROLLBACK");
            self.release(&mut server);
        }
    }
}
