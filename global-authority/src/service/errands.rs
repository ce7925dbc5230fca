//! Whom of a region's agents to ask, and with what: see [`cadastre_runtime::errand`].

use cadastre_core::ids::Name;
use cadastre_ledger::error::LedgerError;
use cadastre_runtime::errand::{self, Errand, GOOD_FOR_MS};

use super::{Authority, ServiceError};
use crate::sql;

/// One agent, and what it is shown.
pub struct Sent {
    /// The agent.
    pub incarnation: String,
    /// Where it says that it is reached.
    pub url: Option<String>,
    /// Good there, for some seconds, and nowhere else. Empty where the agent gave nothing to sign with.
    pub token: String,
}

impl Authority {
    /// The live agents of a region, the one that spoke last first.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn errands(&self, region: &Name, errand: Errand) -> Result<Vec<Sent>, ServiceError> {
        self.errands_since(region, errand, self.now_ms()).await
    }

    /// Those that were heard shortly before `at_ms`, or since.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn errands_since(&self, region: &Name, errand: Errand, at_ms: u64) -> Result<Vec<Sent>, ServiceError> {
        let since = at_ms.saturating_sub(self.settings.live_ms);
        let work = self.continuity.db().read("errands", move |tx| {
            Box::pin(async move { Ok::<_, LedgerError>(sql::live_sessions(tx, since).await?) })
        });
        let mut sessions = work.await?;
        sessions.retain(|s| s.region == *region);
        sessions.sort_by_key(|s| std::cmp::Reverse(s.heard_at_ms));
        let now = self.now_ms();
        let sent = |s: sql::Session| {
            // By the agent's clock, which need not be ours.
            let until = now.saturating_add_signed(s.clock_offset_ms).saturating_add(GOOD_FOR_MS);
            let token = s.errand_key.map(|key| errand::sign(&key, errand, until)).unwrap_or_default();
            Sent { incarnation: s.incarnation.to_string(), url: s.url, token }
        };
        Ok(sessions.into_iter().map(sent).collect())
    }
}
