//! Asking regions what only they know: who held a segment, and their ledgers.
//!
//! An address is what an agent says: nobody's token goes there, only the authority's own for that one agent
//! ([`cadastre_runtime::errand`]). Whether the caller may ask is decided here, before.

use std::time::Duration;

use cadastre_core::ids::Name;
use cadastre_protocol::admin::{AgentWord, Nothing, Verdict};
use cadastre_protocol::error::{Code, Problem};
use cadastre_protocol::ids::Origin;
use cadastre_protocol::usage::ServicesUse;
use cadastre_runtime::tls::{self, ClientConfig};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::service::errands::Sent;

/// How long a region is waited for.
const PATIENCE: Duration = Duration::from_millis(1_500);

/// Asks agents.
pub struct Peers {
    client: reqwest::Client,
}

impl Peers {
    /// # Errors
    /// When no HTTP client can be made.
    pub fn new(trust: ClientConfig) -> Result<Self, reqwest::Error> {
        let client = reqwest::Client::builder().tls_backend_preconfigured(trust).timeout(PATIENCE);
        Ok(Self { client: client.redirect(reqwest::redirect::Policy::none()).no_proxy().build()? })
    }

    /// The first agent's word on an id, or its problem; `None` where none can be asked.
    pub async fn origin(&self, agents: &[Sent], namespace: &str, id: &str) -> Option<Result<Origin, Problem>> {
        for Sent { url, token, .. } in agents {
            let Some(url) = url else { continue };
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
    pub async fn verify(&self, agents: &[Sent]) -> Option<Verdict> {
        for Sent { url, token, .. } in agents {
            let Some(url) = url else { continue };
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
    pub async fn abort_drill(&self, agents: &[Sent]) -> usize {
        let mut told = 0;
        for Sent { url, token, .. } in agents {
            let Some(url) = url else { continue };
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

    /// Each agent's own word.
    pub async fn statuses(&self, agents: Vec<Sent>) -> Vec<AgentWord> {
        let word = |client: reqwest::Client, agent: Sent| async move {
            let word = ask(&client, &agent, "/v1/status").await;
            let (status, problem) = word.map_or_else(|p| (None, Some(p)), |s| (Some(s), None));
            AgentWord { incarnation: agent.incarnation, url: agent.url, status, problem }
        };
        self.each(agents, word).await
    }

    /// What services use of their limits, by each agent's own word.
    pub async fn uses(&self, agents: Vec<Sent>) -> Vec<Result<ServicesUse, Problem>> {
        self.each(agents, |client, agent| async move { ask(&client, &agent, "/v1/services").await }).await
    }

    /// Asks agents side by side.
    async fn each<T, F>(&self, agents: Vec<Sent>, ask: impl Fn(reqwest::Client, Sent) -> F) -> Vec<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let asked: Vec<_> = agents.into_iter().map(|agent| tokio::spawn(ask(self.client.clone(), agent))).collect();
        let mut words = Vec::new();
        for word in asked {
            words.extend(word.await);
        }
        words
    }

    /// A page of a region's ledger as its agent gives it, or its problem; `None` where none can be asked.
    pub async fn segments(
        &self,
        agents: &[Sent],
        namespace: &Name,
        after: Option<u64>,
    ) -> Option<Result<Value, Problem>> {
        for Sent { url, token, .. } in agents {
            let Some(url) = url else { continue };
            let mut query = vec![("namespace", namespace.to_string())];
            query.extend(after.map(|after| ("after", after.to_string())));
            let asked = self.client.get(format!("{url}/v1/segments")).query(&query).bearer_auth(token).send().await;
            let Ok(answer) = asked else { continue };
            if answer.status().is_success() {
                if let Ok(page) = answer.json().await {
                    return Some(Ok(page));
                }
            } else if let Ok(problem) = answer.json().await {
                return Some(Err(problem));
            }
        }
        None
    }
}

async fn ask<T: DeserializeOwned>(client: &reqwest::Client, agent: &Sent, path: &str) -> Result<T, Problem> {
    let away = |why: &str| Problem::new(Code::UpstreamUnavailable, why);
    let url = agent.url.as_deref().ok_or_else(|| away("it says no address; set --advertise-url at the agent"))?;
    let asked = client.get(format!("{url}{path}")).bearer_auth(&agent.token).send().await;
    let answer = asked.map_err(|error| match tls::blame(&error) {
        Some(why) => away(&format!("it cannot be reached: {why}")),
        None => away("it does not answer at its address; the way there may be cut"),
    })?;
    if answer.status().is_success() {
        return answer.json().await.map_err(|_| away("it answers with something else than what it was asked for"));
    }
    Err(answer.json().await.unwrap_or_else(|_| away("it refuses, without saying why")))
}
