//! Asking regions what only they know: who held a segment, and their ledgers.
//!
//! The authority has no token of its own at a region. It passes on the caller's: every agent knows
//! the operators and viewers from its roster, so a caller learns through the authority exactly what
//! it could ask the agent itself.

use std::time::Duration;

use cadastre_protocol::admin::{Nothing, Verdict};
use cadastre_protocol::error::Problem;
use cadastre_protocol::ids::Origin;

/// How long a region is waited for.
const PATIENCE: Duration = Duration::from_millis(1_500);

/// Asks agents.
pub struct Peers {
    client: reqwest::Client,
}

impl Peers {
    /// # Errors
    /// When no HTTP client can be made.
    pub fn new() -> Result<Self, reqwest::Error> {
        let redirects = reqwest::redirect::Policy::none();
        Ok(Self { client: reqwest::Client::builder().timeout(PATIENCE).redirect(redirects).no_proxy().build()? })
    }

    /// The first agent's word on an id, or its problem; `None` where none can be asked.
    pub async fn origin(
        &self,
        urls: &[String],
        token: &str,
        namespace: &str,
        id: &str,
    ) -> Option<Result<Origin, Problem>> {
        for url in urls {
            let asked = self.client.get(format!("{url}/v1/origins/{namespace}/{id}")).bearer_auth(token).send().await;
            match asked {
                Ok(answer) if answer.status().is_success() => {
                    if let Ok(origin) = answer.json().await {
                        return Some(Ok(origin));
                    }
                }
                Ok(answer) => {
                    tracing::debug!(url, status = %answer.status(), "the agent does not know this origin");
                    if let Ok(problem) = answer.json().await {
                        return Some(Err(problem));
                    }
                }
                Err(error) => tracing::debug!(url, %error, "the agent cannot be asked"),
            }
        }
        None
    }

    /// The first agent's verdict on its region's ledger; `None` where none can be asked.
    pub async fn verify(&self, urls: &[String], token: &str) -> Option<Verdict> {
        for url in urls {
            let asked =
                self.client.post(format!("{url}/v1/audit/verify")).bearer_auth(token).json(&Nothing {}).send().await;
            if let Ok(answer) = asked
                && answer.status().is_success()
                && let Ok(verdict) = answer.json().await
            {
                return Some(verdict);
            }
        }
        None
    }

    /// Tells every agent to end its drill; how many did.
    pub async fn abort_drill(&self, urls: &[String], token: &str) -> usize {
        let mut told = 0;
        for url in urls {
            let asked =
                self.client.post(format!("{url}/v1/drills/abort")).bearer_auth(token).json(&Nothing {}).send().await;
            match asked {
                Ok(answer) if answer.status().is_success() => told += 1,
                Ok(answer) => tracing::debug!(url, status = %answer.status(), "the agent does not end its drill"),
                Err(error) => tracing::debug!(url, %error, "the agent cannot be told to end its drill"),
            }
        }
        told
    }
}
