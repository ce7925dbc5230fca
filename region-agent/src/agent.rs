//! One agent, opened: its store judged, its parts put together. Nothing runs yet.
//!
//! Invariants: an empty store is initialised only where its witness was never used; otherwise it was lost,
//! and this store begins as one that went back. Every start takes the next session and a fresh incarnation.
//! What the store holds is loaded before anything is served, so that an agent starts, authenticates and
//! issues while it is cut off.

use std::sync::Arc;

use cadastre_core::ids::{Incarnation, Name, RowId, SessionNo, StoreId};
use cadastre_core::mark::{Generation, Mark, Scope};
use cadastre_ledger::continuity::{Continuity, Parts};
use cadastre_ledger::sql::{self as ledger, StoreRow};
use cadastre_runtime::db::{DbError, EngineKind, migrate};

use crate::context::{Context, Identity, Times};
use crate::error::AgentError;
use crate::issuer::Issuer;
use crate::link::{Link, Tiers};
use crate::regional::Regional;
use crate::sql;
use crate::stamps::Stamps;
use crate::uplink::Uplink;

/// The name under which an agent holds its own segments, where nobody gives it another.
const INSTANCE: &str = "agent";

/// Tries of a start where others were in the way.
const STARTS: usize = 20;

/// What an agent is made of, besides its store.
#[derive(Clone)]
pub struct Setup {
    /// The region.
    pub region: Name,
    /// Where callers reach it.
    pub url: Option<String>,
    /// What it keeps to.
    pub times: Times,
    /// Where an embedded store lies: its file, and this start of its machine. Empty for a server's.
    pub place: String,
}

/// See the module's documentation.
pub struct Agent {
    /// What the parts share.
    pub ctx: Arc<Context>,
    /// The region tier.
    pub pool: Arc<Regional>,
    /// The instance tier.
    pub issuer: Arc<Issuer>,
    /// The instance tier of time-based namespaces.
    pub stamps: Arc<Stamps>,
    /// The conversation with the authority.
    pub link: Arc<Link>,
}

/// The role of a region's store.
#[must_use]
pub fn role(region: &Name) -> String {
    format!("region/{region}")
}

impl Agent {
    /// Opens an agent on a store.
    ///
    /// # Errors
    /// Where the store or the witness cannot be used, or belongs to somebody else.
    pub async fn open(parts: Parts, setup: Setup, uplink: Arc<dyn Uplink>) -> Result<Self, AgentError> {
        migrate(&parts.db, sql::MIGRATIONS).await?;
        let (clock, entropy) = (Arc::clone(&parts.clock), Arc::clone(&parts.entropy));
        let shared_store = parts.db.kind() == EngineKind::Postgres;
        let continuity = Continuity::new(parts.clone());
        let made = made(&parts).await?;
        if made.is_none() {
            if continuity.read_witness().await?.is_none() {
                continuity.initialise(None, Scope::Region).await?;
            } else {
                begin_lost(&parts).await?;
                start(&continuity).await?;
            }
        } else {
            start(&continuity).await?;
        }
        let (store, session) = next_session(&parts, setup.place.clone()).await?;
        let me = Identity {
            region: setup.region,
            store_id: store.store_id,
            shared_store,
            session: SessionNo(session),
            incarnation: Incarnation(entropy.uuid_v4()),
            instance: Name::new(INSTANCE).map_err(|e| AgentError::Store(e.to_string()))?,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            url: setup.url,
            place: setup.place,
        };
        tracing::info!(
            region = %me.region, store = %me.store_id, session, incarnation = %me.incarnation,
            continuity = continuity.standing().how.as_str(), "agent opened"
        );
        let ctx = Arc::new(Context::new(me, setup.times, clock, entropy, continuity));
        ctx.reload().await?;
        let pool = Arc::new(Regional::new(Arc::clone(&ctx)));
        pool.count_gone().await?;
        pool.count().await?;
        let issuer = Arc::new(Issuer::new(Arc::clone(&ctx), Arc::clone(&pool)));
        let stamps = Arc::new(Stamps::new(Arc::clone(&ctx), Arc::clone(&pool)));
        let parts = Tiers { pool: Arc::clone(&pool), issuer: Arc::clone(&issuer), stamps: Arc::clone(&stamps) };
        let link = Arc::new(Link::new(Arc::clone(&ctx), parts, uplink));
        Ok(Self { ctx, pool, issuer, stamps, link })
    }

    /// Stops issuing for good and counts what is left in memory as burned: nothing of a segment is saved.
    pub async fn close(&self) {
        let lost = self.issuer.close_below(None);
        if let Err(error) = self.pool.count_own_end(lost).await {
            tracing::warn!(%error, "what is left in memory could not be counted; it is a gap all the same");
        }
        self.issuer.report();
        self.stamps.close().await;
        self.leave().await;
    }

    /// The last word: nothing more is carved by this process, and the store may be opened anywhere. A process that
    /// was ended because it is one of two copies leaves nothing.
    async fn leave(&self) {
        if self.ctx.alive().is_err() {
            return;
        }
        self.ctx.end("the process stops");
        let place = self.ctx.me.place.clone();
        let work = self.ctx.continuity.db().write("agent_leave", move |tx| {
            let place = place.clone();
            Box::pin(async move { ledger::leave_place(tx, &place).await })
        });
        if let Err(error) = work.await {
            tracing::warn!(%error, "could not note that the store was closed; opened in another place, it burns what it holds");
        }
    }
}

/// Each start opens a generation over what the others write: where many agents of one store start at the same
/// time, the database door's own tries are too few.
async fn start(continuity: &Continuity) -> Result<(), AgentError> {
    let mut tries = 1;
    loop {
        match continuity.start().await.map_err(AgentError::from) {
            Err(AgentError::Db(DbError::Conflict)) if tries < STARTS => tries += 1,
            result => return result.map(|_| ()),
        }
    }
}

async fn made(parts: &Parts) -> Result<Option<StoreRow>, AgentError> {
    Ok(parts.db.read("agent_made", |tx| Box::pin(ledger::store(tx))).await?)
}

async fn next_session(parts: &Parts, place: String) -> Result<(StoreRow, u64), AgentError> {
    let work = parts.db.write("agent_session", move |tx| {
        let place = place.clone();
        Box::pin(async move {
            let session = ledger::next_session(tx, &place).await?;
            let store = ledger::store(tx).await?;
            Ok::<_, DbError>((
                store.ok_or_else(|| DbError::Corrupt("the store has no row of its own".into()))?,
                session,
            ))
        })
    });
    Ok(work.await?)
}

/// Makes an empty store beside a used witness. Its one mark lies below every generation, so that the witness's
/// is never taken for contained: the start finds that the store went back.
async fn begin_lost(parts: &Parts) -> Result<(), AgentError> {
    tracing::error!(
        role = parts.role,
        "the store is empty, but its witness was used before: the region's store was lost. It begins as a new store, \
         which an operator has to let in (`cadastre recover NAME --new-store`)"
    );
    let store = StoreRow {
        cluster_id: None,
        store_id: StoreId(parts.entropy.uuid_v4()),
        role: parts.role.clone(),
        session: 0,
        has_witness: true,
        promised: Generation::default(),
        place: String::new(),
        same_server: true,
    };
    let mark = Mark { generation: Generation::default(), seq: 1, row: RowId(parts.entropy.uuid_v4()), bound: 1 };
    let now = parts.clock.now().wall_ms;
    let work = parts.db.write("agent_begin_lost", move |tx| {
        let store = store.clone();
        Box::pin(async move {
            ledger::insert_store(tx, &store, now).await?;
            ledger::insert_scope(tx, &Scope::Region, &mark, "begun after a loss", now).await
        })
    });
    Ok(work.await?)
}
