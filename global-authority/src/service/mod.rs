//! The authority's decisions around its store, one room per noun.
//!
//! Every operation has the same shape: read what the rule needs, let `cadastre_core` decide, write it
//! in one guarded transaction, pass the gate, answer. Nothing here knows HTTP, and nothing here waits
//! on a timer: the outer loops and the simulator drive it.

pub mod audit;
pub mod catalog;
mod drill_report;
mod drill_rules;
pub mod drills;
pub mod errands;
pub mod error;
pub mod gamedays;
pub mod gauges;
pub mod grants;
pub mod headroom;
mod homes;
mod knowers;
pub mod lanes;
pub mod line;
pub mod link;
pub mod memory;
pub mod operations;
pub mod origin;
pub mod overview;
pub mod quarantine;
pub mod rebuild;
pub mod regions;
mod rehearse;
pub mod roster;
mod seals;
pub mod slots;
mod switch_facts;
mod switch_views;
pub mod switches;
mod tokens;
pub mod trend;
mod upkeep;
pub mod usage;
pub mod verify;
pub mod words;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use cadastre_core::ids::{ClusterId, Name};
use cadastre_core::mark::Scope;
use cadastre_core::principal::Principal;
use cadastre_ledger::continuity::{Continuity, How, Parts};
use cadastre_ledger::error::LedgerError;
use cadastre_ledger::sql as shared;
use cadastre_runtime::clock::Clock;
use cadastre_runtime::entropy::Entropy;
use cadastre_runtime::token;

pub use error::ServiceError;
use roster::Known;

/// Runs a piece of work that no caller may cancel.
pub type Spawn = Arc<dyn Fn(Pin<Box<dyn Future<Output = ()> + Send>>) + Send + Sync>;

/// Times that the authority goes by.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long an allocation id is remembered: an older one that is unknown is final, in milliseconds.
    pub replay_retention_ms: u64,
    /// The longest that an agent waits for an answer, in milliseconds: a lift by an operator waits it out.
    pub request_deadline_ms: u64,
    /// An agent that was not heard for this long is not shown as live, in milliseconds.
    pub live_ms: u64,
    /// The cluster whose authority was lost: an empty store begins as its.
    pub rebuild: Option<ClusterId>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { replay_retention_ms: 7 * 86_400_000, request_deadline_ms: 5_000, live_ms: 15_000, rebuild: None }
    }
}

/// The authority over one store.
pub struct Authority {
    pub(crate) continuity: Continuity,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) settings: Settings,
    pub(crate) cluster_id: ClusterId,
    spawn: Spawn,
    known: RwLock<Arc<Known>>,
    lanes: Mutex<BTreeMap<Name, lanes::Lane>>,
    noted: Mutex<memory::Noted>,
    /// What was written of those who read less than there is.
    knowers: Mutex<knowers::Written>,
    /// What the roster is sealed with, once it was read.
    seal_key: std::sync::OnceLock<String>,
    seen: Mutex<trend::Seen>,
    picture: tokio::sync::Mutex<Option<Arc<overview::Picture>>>,
    /// When the gauges were last published, by the monotonic clock.
    gauges_at_ms: Mutex<Option<u64>>,
    told: RwLock<Arc<operations::Told>>,
}

impl Authority {
    /// Opens the store's authority: initialises an empty one where `bootstrap` is given, judges a used
    /// one, and loads the roster.
    ///
    /// # Errors
    /// Where the store is empty and nobody asked to initialise it, or cannot be used.
    pub async fn open(
        parts: Parts,
        settings: Settings,
        spawn: Spawn,
        bootstrap: Option<&str>,
    ) -> Result<Arc<Self>, ServiceError> {
        let (clock, entropy) = (Arc::clone(&parts.clock), Arc::clone(&parts.entropy));
        let continuity = Continuity::new(parts);
        let mut fresh = false;
        let store = match store_row(&continuity).await? {
            Some(store) => {
                continuity.start().await?;
                store
            }
            None if let (Some(cluster), Some(secret)) = (settings.rebuild, bootstrap) => {
                rebuild::begin(&continuity, cluster, secret).await?;
                continuity.start().await?;
                rebuild::doubt(&continuity).await?;
                made_store(&continuity).await?
            }
            None if bootstrap.is_none() => {
                return Err(ServiceError::refused(
                    "the store is empty. A new cluster is only begun on purpose: set CADASTRE_BOOTSTRAP_TOKEN to the \
                     first operator's token (cad_op_ and 64 hex digits). If this cluster exists already, this is the \
                     wrong or a lost store",
                ));
            }
            None => {
                // A malformed token is refused before anything is made.
                bootstrap.map_or(Ok(()), roster::check_bootstrap)?;
                let cluster = ClusterId(entropy.uuid_v4());
                continuity.initialise(Some(cluster), Scope::Roster).await?;
                fresh = true;
                made_store(&continuity).await?
            }
        };
        let cluster_id =
            store.cluster_id.ok_or_else(|| ServiceError::refused("the store names no cluster: it is damaged"))?;
        let authority = Arc::new(Self {
            continuity,
            clock,
            entropy,
            settings,
            cluster_id,
            spawn,
            known: RwLock::new(Arc::new(Known::default())),
            lanes: Mutex::new(BTreeMap::new()),
            noted: Mutex::default(),
            knowers: Mutex::default(),
            seal_key: std::sync::OnceLock::new(),
            seen: Mutex::default(),
            picture: tokio::sync::Mutex::default(),
            gauges_at_ms: Mutex::default(),
            told: RwLock::default(),
        });
        authority.reload().await?;
        if let Some(token) = bootstrap
            && (fresh || authority.known().roster.entries().next().is_none())
        {
            authority.bootstrap(token).await?;
        }
        // Before any region hears of anything.
        authority.seal_key().await?;
        Ok(authority)
    }

    /// The roster as this process last read it.
    #[must_use]
    pub fn known(&self) -> Arc<Known> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.clock.now().wall_ms
    }

    /// Who holds this token. A token that another authority process made a moment ago is found too.
    ///
    /// # Errors
    /// `unauthenticated`, or those of the store.
    pub async fn authenticate(&self, token: &str) -> Result<Principal, ServiceError> {
        let hash = token::sha256_hex(token);
        if let Some(principal) = self.known().tokens.find(&hash) {
            return Ok(principal.clone());
        }
        self.reload().await?;
        self.known().tokens.find(&hash).cloned().ok_or_else(ServiceError::unauthenticated)
    }

    /// Whether grants are given out.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.continuity.standing().how.is_open()
    }

    /// The generation that this process verified.
    #[must_use]
    pub fn generation(&self) -> cadastre_core::mark::Generation {
        self.continuity.standing().generation
    }

    /// The word for how this process came to believe its store.
    #[must_use]
    pub fn how(&self) -> How {
        self.continuity.standing().how
    }

    /// Looks whether the store is still on the server that was verified; judges it anew where it is not.
    ///
    /// # Errors
    /// Those of the store and the witness.
    pub async fn watch(&self) -> Result<(), ServiceError> {
        Ok(self.continuity.watch().await?)
    }

    /// What loops and readiness need to know: whether the store answers.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn store_answers(&self) -> Result<(), ServiceError> {
        store_row(&self.continuity).await?;
        Ok(())
    }

    fn lanes(&self) -> std::sync::MutexGuard<'_, BTreeMap<Name, lanes::Lane>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn made_store(continuity: &Continuity) -> Result<shared::StoreRow, ServiceError> {
    let store = store_row(continuity).await?;
    store.ok_or_else(|| ServiceError::refused("the store was initialised and is empty again"))
}

async fn store_row(continuity: &Continuity) -> Result<Option<shared::StoreRow>, ServiceError> {
    let row = continuity
        .db()
        .read("store", |tx| Box::pin(async move { Ok::<_, LedgerError>(shared::store(tx).await?) }))
        .await?;
    Ok(row)
}
