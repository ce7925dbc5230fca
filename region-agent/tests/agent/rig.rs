//! A region's disk, and agents started on it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cadastre_core::continuity::WitnessMode;
use cadastre_ledger::continuity::Parts;
use cadastre_ledger::witness::{FileWitness, Witness};
use cadastre_protocol::error::Code;
use cadastre_runtime::clock::{ManualClock, Now};
use cadastre_runtime::db::{ConnectOptions, Db, DbError, Tx, connect};
use cadastre_runtime::entropy::SystemEntropy;
use region_agent::agent::{Agent, Setup, role};
use region_agent::context::Times;
use region_agent::error::AgentError;
use region_agent::front::Front;

use super::fake::{Fake, TOKEN, name};

/// The clock of every test, at first.
pub const EPOCH_MS: u64 = 1_800_000_000_000;

pub struct Rig {
    pub folder: tempfile::TempDir,
    pub clock: ManualClock,
    pub fake: Fake,
    pub mode: WitnessMode,
}

impl Rig {
    pub fn new() -> Self {
        let clock = ManualClock::new(Now { wall_ms: EPOCH_MS, mono_ms: 1_000 });
        let fake = Fake::new(clock.clone());
        Self { folder: tempfile::tempdir().unwrap(), clock, fake, mode: WitnessMode::Required }
    }

    pub fn store(&self) -> PathBuf {
        self.folder.path().join("store/region.db")
    }

    pub fn witness(&self) -> PathBuf {
        self.folder.path().join("witness/region.db")
    }

    pub async fn try_start(&self) -> Result<Arc<Agent>, AgentError> {
        std::fs::create_dir_all(self.store().parent().unwrap()).unwrap();
        let url = format!("sqlite://{}", self.store().display());
        let db = connect(&url, ConnectOptions::default()).await.unwrap();
        let role = role(&name("eu"));
        let witness: Option<Arc<dyn Witness>> = match self.mode {
            WitnessMode::None => None,
            _ => Some(Arc::new(FileWitness::open(&self.witness(), &role).await.unwrap())),
        };
        let parts = Parts {
            db,
            witness,
            mode: self.mode,
            role,
            clock: Arc::new(self.clock.clone()),
            entropy: Arc::new(SystemEntropy),
        };
        let setup = Setup { region: name("eu"), url: None, times: Times::default(), place: "here".to_owned() };
        Ok(Arc::new(Agent::open(parts, setup, Arc::new(self.fake.clone())).await?))
    }

    /// An agent that has not spoken yet.
    pub async fn start(&self) -> Arc<Agent> {
        self.try_start().await.unwrap()
    }

    /// An agent on a store that was used before, once it has asked the authority.
    pub async fn start_again(&self) -> Arc<Agent> {
        let agent = self.start().await;
        agent.link.run_once().await;
        agent
    }

    /// An agent that holds grants.
    pub async fn joined(&self) -> Arc<Agent> {
        let agent = self.start().await;
        talk(&agent).await;
        assert!(agent.pool.left(&name("orders")) >= 1_000);
        agent
    }

    /// The files of a folder as they are now. The pool of a dropped agent closes its files a little later.
    pub async fn copy(&self, of: &Path, to: &str) -> PathBuf {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let target = self.folder.path().join(to);
        std::fs::create_dir_all(&target).unwrap();
        for file in std::fs::read_dir(of.parent().unwrap()).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), target.join(file.file_name())).unwrap();
        }
        target
    }

    /// Puts a copy back.
    pub async fn put_back(&self, copy: &Path, of: &Path) {
        tokio::time::sleep(Duration::from_millis(200)).await;
        std::fs::remove_dir_all(of.parent().unwrap()).unwrap();
        std::fs::rename(copy, of.parent().unwrap()).unwrap();
    }
}

/// Rounds with the authority until it has nothing more to say at once.
pub async fn talk(agent: &Agent) {
    for _ in 0..8 {
        if agent.link.run_once().await.ms > 0 {
            break;
        }
    }
}

/// Refills until none is due.
pub async fn refill(agent: &Agent) {
    for _ in 0..8 {
        let due = agent.issuer.due();
        if due.is_empty() {
            break;
        }
        for entry in due {
            agent.issuer.refill(&entry).await;
        }
    }
}

/// One try for `count` ids, without waiting.
pub async fn ask(agent: &Arc<Agent>, namespace: &str, count: u64) -> Result<Vec<i64>, Code> {
    let view = agent.ctx.view();
    let code = |e: AgentError| e.to_problem().code;
    let service = view.callers.service(Some(TOKEN)).map_err(code)?;
    let front = Front::new(Arc::clone(agent));
    let namespace = name(namespace);
    let taken = front.many(&view, service, &namespace, count, Duration::ZERO).await.map_err(code)?;
    Ok(taken.ranges.iter().flat_map(|r| r.lo()..r.hi()).map(|o| taken.value(o).unwrap()).collect())
}

/// As `ask`, with the loops at work in between.
pub async fn take(agent: &Arc<Agent>, namespace: &str, count: u64) -> Result<Vec<i64>, Code> {
    let mut last = Err(Code::Internal);
    for _ in 0..8 {
        last = ask(agent, namespace, count).await;
        if last.is_ok() {
            break;
        }
        refill(agent).await;
    }
    last
}

/// Reads something from an agent's store.
pub async fn read<T, F>(db: &Db, job: F) -> T
where
    T: Send + 'static,
    F: for<'a> Fn(&'a mut Tx) -> cadastre_runtime::db::TxFuture<'a, T, DbError> + Send + Sync + 'static,
{
    db.read("test", job).await.unwrap()
}
