//! The door against a real SQLite file, and against a scripted engine where an error is needed at
//! an exact place.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use sqlx::Executor;

use super::sqlx_engine::SqlxEngine;
use super::*;

struct Store {
    db: Db,
    engine: Arc<SqlxEngine>,
    folder: tempfile::TempDir,
}

const INSERT: &str = "INSERT INTO t (k, v) VALUES ($1, $2)";

async fn store_with(options: ConnectOptions) -> Store {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("store.db").display());
    let engine = Arc::new(SqlxEngine::open(&url, options).await.unwrap());
    let db = Db::new(Arc::clone(&engine) as Arc<dyn Engine>);
    run(&db, "CREATE TABLE t (k BIGINT NOT NULL PRIMARY KEY, v TEXT)").await;
    Store { db, engine, folder }
}

async fn store() -> Store {
    store_with(ConnectOptions::default()).await
}

async fn run(db: &Db, sql: &'static str) {
    db.write("run", move |tx| -> TxFuture<'_, u64, DbError> { Box::pin(tx.execute(sql, &[])) }).await.unwrap();
}

async fn insert(db: &Db, key: i64) -> Result<(), DbError> {
    db.write("insert", move |tx| -> TxFuture<'_, (), DbError> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            tx.execute(INSERT, &[key.into(), None::<String>.into()]).await?;
            tokio::task::yield_now().await;
            Ok(())
        })
    })
    .await
}

async fn count(db: &Db) -> u64 {
    db.read("count", |tx| -> TxFuture<'_, u64, DbError> {
        Box::pin(async move { tx.query_one("SELECT COUNT(*) FROM t", &[]).await?.uint(0) })
    })
    .await
    .unwrap()
}

/// No pooled connection is inside a transaction: SQLite refuses a ROLLBACK then. Looks at what lies
/// in the pool itself, past the fence.
async fn assert_none_inside(engine: &SqlxEngine) {
    for pool in [&engine.writers, &engine.readers] {
        let mut held = Vec::new();
        for _ in 0..pool.num_idle() {
            let Some(mut conn) = pool.try_acquire() else {
                break;
            };
            assert!(conn.execute("ROLLBACK").await.is_err(), "a pooled connection was inside a transaction");
            held.push(conn);
        }
    }
}

/// Trap: a dropped future leaves a pooled connection inside a transaction. Here the caller goes
/// away after every possible number of steps; each unit still ends by itself.
#[tokio::test(flavor = "current_thread")]
async fn a_caller_that_goes_away_at_any_await_cancels_nothing() {
    let store = store().await;
    for steps in 0_i64..40 {
        let mut caller = Box::pin(insert(&store.db, steps));
        let mut context = Context::from_waker(Waker::noop());
        assert!(caller.as_mut().poll(&mut context).is_pending());
        let mut finished = false;
        for _ in 0..steps * 5 {
            tokio::task::yield_now().await;
            finished = finished || caller.as_mut().poll(&mut context) != Poll::Pending;
            if finished {
                break;
            }
        }
        drop(caller);
        // The writer queue is fair: this unit runs after the one whose caller went away.
        run(&store.db, "UPDATE t SET v = 'seen'").await;
        assert_eq!(count(&store.db).await, u64::try_from(steps).unwrap() + 1);
        assert_none_inside(&store.engine).await;
    }
    let url = format!("sqlite://{}", store.folder.path().join("store.db").display());
    let other = connect(&url, ConnectOptions::default()).await.unwrap();
    assert_eq!(count(&other).await, 40, "what was acknowledged is in the file");
}

#[tokio::test]
async fn a_connection_left_inside_a_transaction_is_closed_before_it_is_lent() {
    let store = store().await;
    let mut conn = store.engine.writers.acquire().await.unwrap();
    conn.execute("BEGIN IMMEDIATE").await.unwrap();
    conn.execute("INSERT INTO t (k) VALUES (99)").await.unwrap();
    drop(conn);
    insert(&store.db, 1).await.unwrap();
    assert_eq!(count(&store.db).await, 1);
}

#[tokio::test]
async fn an_error_or_a_panic_of_the_job_writes_nothing() {
    let store = store().await;
    let refused: Result<(), DbError> = store
        .db
        .write("refuse", |tx| {
            Box::pin(async move {
                tx.execute(INSERT, &[1_i64.into(), "x".into()]).await?;
                Err(DbError::Other("no".into()))
            })
        })
        .await;
    assert_eq!(refused, Err(DbError::Other("no".into())));
    let panicked: Result<(), DbError> = store
        .db
        .write("panic", |tx| {
            Box::pin(async move {
                tx.execute(INSERT, &[1_i64.into(), "x".into()]).await?;
                panic!("on purpose")
            })
        })
        .await;
    assert!(matches!(panicked, Err(DbError::Indeterminate(_))));
    insert(&store.db, 2).await.unwrap();
    assert_eq!(count(&store.db).await, 1);
}

#[tokio::test]
async fn a_swallowed_error_never_commits() {
    let store = store().await;
    insert(&store.db, 1).await.unwrap();
    let result: Result<(), DbError> = store
        .db
        .write("swallow", |tx| {
            Box::pin(async move {
                tx.execute(INSERT, &[2_i64.into(), "x".into()]).await?;
                assert_eq!(tx.execute(INSERT, &[1_i64.into(), "x".into()]).await, Err(DbError::Unique));
                Ok(())
            })
        })
        .await;
    assert_eq!(result, Err(DbError::Unique));
    assert_eq!(count(&store.db).await, 1);
}

#[tokio::test]
async fn a_reading_unit_cannot_write() {
    let store = store().await;
    let result: Result<u64, DbError> = store
        .db
        .read("sneak", |tx| Box::pin(async move { tx.execute(INSERT, &[1_i64.into(), "x".into()]).await }))
        .await;
    assert_eq!(result, Err(DbError::ReadOnly));
}

#[tokio::test]
async fn values_come_back_as_they_went_in() {
    let store = store().await;
    let rows: Vec<Row> = store
        .db
        .write("values", |tx| -> TxFuture<'_, Vec<Row>, DbError> {
            Box::pin(async move {
                tx.execute(INSERT, &[i64::MAX.into(), "ü".into()]).await?;
                tx.execute(INSERT, &[i64::MIN.into(), None::<&str>.into()]).await?;
                tx.query("SELECT k, v, NULL, 7 FROM t ORDER BY k", &[]).await
            })
        })
        .await
        .unwrap();
    assert_eq!((rows[0].int(0), rows[0].opt_text(1)), (Ok(i64::MIN), Ok(None)));
    assert_eq!((rows[1].uint(0).unwrap(), rows[1].text(1).unwrap()), (i64::MAX as u64, "ü"));
    assert_eq!((rows[1].opt_int(2), rows[1].u32(3)), (Ok(None), Ok(7)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writers_queue_and_all_get_through() {
    let store = store().await;
    let tasks: Vec<_> = (0..100)
        .map(|key| {
            let db = store.db.clone();
            tokio::spawn(async move { insert(&db, key).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!(count(&store.db).await, 100);
}

#[tokio::test]
async fn the_log_is_copied_into_the_file_by_ourselves() {
    let store = store_with(ConnectOptions { commits_per_checkpoint: 10, ..ConnectOptions::default() }).await;
    let file = store.folder.path().join("store.db");
    for key in 0..5 {
        insert(&store.db, key).await.unwrap();
    }
    let before = file.metadata().unwrap().len();
    for key in 5..15 {
        insert(&store.db, key).await.unwrap();
    }
    let after = file.metadata().unwrap().len();
    assert!(before == 0 && after > 0 || after > before, "{before} {after}");
}

/// What an earlier process left in the log is built upon only once it is in the file, and synced.
#[tokio::test]
async fn a_log_that_cannot_be_copied_refuses_the_store() {
    let store = store().await;
    let url = format!("sqlite://{}", store.folder.path().join("store.db").display());
    let mut reader = store.engine.readers.acquire().await.unwrap();
    reader.execute("BEGIN").await.unwrap();
    reader.execute("SELECT COUNT(*) FROM t").await.unwrap();
    insert(&store.db, 1).await.unwrap();
    let error = connect(&url, ConnectOptions::default()).await.err().unwrap().to_string();
    assert!(error.contains("another program has the store open"), "{error}");
    reader.execute("ROLLBACK").await.unwrap();
    assert_eq!(count(&connect(&url, ConnectOptions::default()).await.unwrap()).await, 1);
}

#[tokio::test]
async fn a_replaced_file_is_noticed() {
    let store = store().await;
    let file = store.folder.path().join("store.db");
    let before = store.db.identity().await.unwrap();
    assert!(!before.system.is_empty());
    std::fs::copy(&file, file.with_extension("copy")).unwrap();
    std::fs::rename(file.with_extension("copy"), &file).unwrap();
    assert_ne!(store.db.identity().await.unwrap(), before);
    assert!(matches!(insert(&store.db, 1).await, Err(DbError::Unavailable(_))));
}

#[tokio::test]
async fn a_weakened_file_works_for_the_negative_control_only() {
    let weak = Some("PRAGMA synchronous=OFF");
    let store = store_with(ConnectOptions { weaken_sqlite_synchronous: weak, ..ConnectOptions::default() }).await;
    insert(&store.db, 1).await.unwrap();
    assert!(connect("sqlite::memory:", ConnectOptions::default()).await.is_err());
}

const FIRST: &[Migration] = &[(1, "first", &["CREATE TABLE a (x BIGINT)"])];
const BOTH: &[Migration] = &[
    (1, "first", &["CREATE TABLE a (x BIGINT)"]),
    (2, "second", &["CREATE TABLE b (x BIGINT)", "INSERT INTO b VALUES (1)"]),
];
const BROKEN: &[Migration] = &[
    (1, "first", &["CREATE TABLE a (x BIGINT)"]),
    (2, "broken", &["CREATE TABLE c (x BIGINT)", "INSERT INTO nowhere VALUES (1)"]),
];

#[tokio::test]
async fn migrations_run_once_whole_and_never_backwards() {
    let store = store().await;
    migrate(&store.db, FIRST).await.unwrap();
    assert!(migrate(&store.db, BROKEN).await.is_err());
    migrate(&store.db, BOTH).await.unwrap();
    migrate(&store.db, BOTH).await.unwrap();
    assert_eq!(migrate(&store.db, FIRST).await, Err(DbError::NewerSchema { found: 2, known: 1 }));
    assert!(migrate(&store.db, &BOTH[1..]).await.is_err());
    let gone: Result<Vec<Row>, DbError> = store.db.read("gone", |tx| Box::pin(tx.query("SELECT x FROM c", &[]))).await;
    assert!(gone.is_err(), "a broken migration left something behind");
}

/// Answers every statement with the next scripted error, then with success.
struct Scripted {
    statements: Vec<DbError>,
    commits: Vec<DbError>,
    begun: AtomicU32,
}

struct ScriptedTx {
    statement: Option<DbError>,
    commit: Option<DbError>,
}

#[async_trait]
impl Engine for Scripted {
    async fn begin(&self, _mode: Mode) -> Result<Box<dyn EngineTx>, DbError> {
        let index = self.begun.fetch_add(1, Ordering::SeqCst) as usize;
        let statement = self.statements.get(index).cloned();
        Ok(Box::new(ScriptedTx { statement, commit: self.commits.get(index).cloned() }))
    }
    fn kind(&self) -> EngineKind {
        EngineKind::Sqlite
    }
    fn detaches(&self) -> bool {
        false
    }
    async fn identity(&self) -> Result<Identity, DbError> {
        Ok(Identity::default())
    }
}

#[async_trait]
impl EngineTx for ScriptedTx {
    async fn execute(&mut self, _: &'static str, _: &[Value]) -> Result<u64, DbError> {
        self.statement.take().map_or(Ok(1), Err)
    }
    async fn query(&mut self, _: &'static str, _: &[Value]) -> Result<Vec<Row>, DbError> {
        Ok(Vec::new())
    }
    async fn commit(self: Box<Self>) -> Result<(), DbError> {
        self.commit.map_or(Ok(()), Err)
    }
    async fn rollback(self: Box<Self>) {}
}

async fn scripted(statements: Vec<DbError>, commits: Vec<DbError>) -> (Result<u64, DbError>, u32) {
    let engine = Arc::new(Scripted { statements, commits, begun: AtomicU32::new(0) });
    let db = Db::new(Arc::clone(&engine) as Arc<dyn Engine>);
    let result = db.write("scripted", |tx| -> TxFuture<'_, u64, DbError> { Box::pin(tx.execute("x", &[])) }).await;
    (result, engine.begun.load(Ordering::SeqCst))
}

#[tokio::test]
async fn only_conflicts_are_retried_and_not_for_ever() {
    assert_eq!(scripted(vec![DbError::Conflict; 2], vec![]).await, (Ok(1), 3));
    assert_eq!(scripted(vec![DbError::Conflict; 9], vec![]).await, (Err(DbError::Conflict), TRIES));
    assert_eq!(scripted(vec![], vec![DbError::Conflict]).await, (Ok(1), 2));
    for error in [DbError::Unique, DbError::Full, DbError::Unavailable("x".into())] {
        assert_eq!(scripted(vec![error.clone()], vec![]).await, (Err(error), 1));
    }
    let unknown = DbError::Indeterminate("x".into());
    assert_eq!(scripted(vec![], vec![unknown.clone()]).await, (Err(unknown), 1));
}
