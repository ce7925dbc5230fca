//! Grants of one namespace at the authority on PostgreSQL, against a transaction per grant on one hot row.
//!
//! Ours is the whole way of a want from where its message has been heard: lane, transaction with ledger and fence,
//! gate, witness. Invariant: both sides have the same server, the same number of requesters, and a commit that is on
//! disk before anybody is answered. Absent on purpose: the message around a want (a region sends one every few
//! seconds; a want is what many of them do at once).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cadastre_core::ids::{AllocationId, Name};
use cadastre_protocol::link::Want;
use cadastre_runtime::clock::{Clock, Stopwatch, SystemClock};
use cadastre_runtime::db::{self, ConnectOptions, Db, DbError};
use cadastre_runtime::entropy::{Entropy, SystemEntropy};
use global_authority::service::Authority;
use global_authority::service::grants::Asker;

use super::Effort;
use super::postgres::{Postgres, Standby};
use super::rounds::{OURS, Result as Measured, quantile};
use super::site::Site;
use crate::error::CliError;

/// At once.
const REQUESTERS: u32 = 64;
/// Ordinals in a grant.
const WANT: u32 = 1_000;
/// The server answers after so many seconds at the latest.
const COMES_UP_IN: f64 = 30.0;
/// What the peer is called.
pub const HOT_ROW: &str = "hot row";

/// Which figure of the run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Figure {
    /// Grants a second.
    PerSecond,
    /// The 99th percentile, in milliseconds.
    P99,
}

/// Both figures, measured once.
#[derive(Default)]
pub struct Grants {
    measured: BTreeMap<Standby, [Measured; 2]>,
}

impl Grants {
    /// A figure; the first one that is asked for runs both.
    ///
    /// # Errors
    /// Where something does not start, or refuses.
    pub async fn run(&mut self, standby: Standby, figure: Figure, effort: Effort) -> Result<Measured, CliError> {
        let [per_second, p99] = match self.measured.get(&standby) {
            Some(measured) => measured.clone(),
            None => measure(standby, effort).await?,
        };
        let wanted = match figure {
            Figure::PerSecond => per_second.clone(),
            Figure::P99 => p99.clone(),
        };
        self.measured.insert(standby, [per_second, p99]);
        Ok(wanted)
    }
}

async fn measure(standby: Standby, effort: Effort) -> Result<[Measured; 2], CliError> {
    let server = Postgres::start().await?;
    let hot = connected(&server.url()).await?;
    let follower = match standby {
        Standby::None => None,
        Standby::Synchronous => Some(server.follower().await?),
    };
    hot.write("bench_make", |tx| Box::pin(super::sql::make(tx))).await.map_err(broken)?;
    let mut site = Site::start(Some(server.url()), u32::from(follower.is_some())).await?;
    site.start_agent(None).await?;
    site.first_id().await?;
    let (authority, asker) = (site.authority()?, site.asker()?);
    let mut measured = [Measured::default(), Measured::default()];
    for turn in 0..=effort.rounds {
        let ours = race(effort, || one_of_ours(&authority, &asker)).await?;
        let theirs = race(effort, || one_of_theirs(&hot)).await?;
        if turn > 0 {
            for (name, times) in [(OURS, ours), (HOT_ROW, theirs)] {
                let [per_second, p99] = &mut measured;
                per_second.add(name, times.len() as f64 / f64::from(effort.load_seconds));
                p99.add(name, quantile(&times, 0.99).unwrap_or(f64::INFINITY) * 1e3);
            }
        }
    }
    site.stop().await;
    drop(hot);
    if let Some(follower) = follower {
        follower.stop().await;
    }
    server.stop().await;
    Ok(measured)
}

/// A server listens before it answers.
async fn connected(url: &str) -> Result<Db, CliError> {
    let options = ConnectOptions { max_connections: REQUESTERS, ..ConnectOptions::default() };
    let watch = Stopwatch::start();
    loop {
        match db::connect(url, options).await {
            Err(DbError::Unavailable(_)) if watch.seconds() < COMES_UP_IN => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            done => return done.map_err(broken),
        }
    }
}

/// How long each call took that ended in time, with all requesters at once.
async fn race<F>(effort: Effort, call: impl Fn() -> F) -> Result<Vec<f64>, CliError>
where
    F: Future<Output = Result<(), CliError>> + Send + 'static,
{
    let whole = f64::from(effort.load_seconds);
    let mut tasks = tokio::task::JoinSet::new();
    let began = Stopwatch::start();
    let mut times = Vec::new();
    // A task for each call; as many as there are requesters, each followed by its next.
    let timed = |call: F| async move {
        let watch = Stopwatch::start();
        call.await.map(|()| watch.seconds())
    };
    for _ in 0..REQUESTERS {
        tasks.spawn(timed(call()));
    }
    while let Some(done) = tasks.join_next().await {
        let seconds = done.map_err(|e| broken(e.to_string()))??;
        if began.seconds() <= whole {
            times.push(seconds);
            tasks.spawn(timed(call()));
        }
    }
    Ok(times)
}

fn one_of_ours(
    authority: &Arc<Authority>,
    asker: &Asker,
) -> impl Future<Output = Result<(), CliError>> + Send + 'static + use<> {
    let (authority, asker) = (Arc::clone(authority), asker.clone());
    async move {
        let clock_ms = SystemClock.now().wall_ms;
        let allocation_id = AllocationId::new(SystemEntropy.uuid_v7(clock_ms)).map_err(|e| broken(e.to_string()))?;
        let namespace = Name::new(super::site::NAMESPACE).map_err(|e| broken(e.to_string()))?;
        let want = Want { allocation_id, namespace, want: u64::from(WANT) };
        let granted = authority.submit(&Asker { clock_ms, ..asker }, &want).await.map_err(|e| broken(e.to_string()))?;
        granted.map(|_| ()).map_err(|problem| broken(problem.detail))
    }
}

fn one_of_theirs(hot: &Db) -> impl Future<Output = Result<(), CliError>> + Send + 'static + use<> {
    let hot = hot.clone();
    async move {
        let work = hot.write("bench_grant", |tx| Box::pin(super::sql::grant(tx, i64::from(WANT))));
        tokio::time::timeout(Duration::from_secs(30), work).await.map_err(|e| broken(e.to_string()))?.map_err(broken)
    }
}

fn broken(why: impl Into<Broken>) -> CliError {
    CliError::failed(format!("grants: {}", why.into().0), "look at the server's log")
}

/// What went wrong, in words.
struct Broken(String);

impl From<String> for Broken {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<DbError> for Broken {
    fn from(error: DbError) -> Self {
        Self(error.to_string())
    }
}
