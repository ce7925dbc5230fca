//! The way to the authority: one message there, one answer back.
//!
//! Purpose: a trait that tests and the simulator implement, and its HTTP form. Invariant: every address is
//! tried at most once per message, all within one deadline; redirects are not followed; an answer longer
//! than the link allows is not read. Absent on purpose: retries over time (the link's), and any reading of
//! what is said.

use std::time::Duration;

use async_trait::async_trait;
use cadastre_protocol::error::{Code, Problem};
use cadastre_protocol::link::{Answer, MAX_LINK_BYTES, Message};
use cadastre_runtime::tls::{self, ClientConfig};
use cadastre_runtime::token::Secret;

/// Where heartbeats go.
pub const HEARTBEATS: &str = "/v1/heartbeats";
/// Where messages with wants go.
pub const GRANTS: &str = "/v1/grants";

/// The longest problem body that is read.
const MAX_PROBLEM_BYTES: usize = 64 << 10;
/// How long one address may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(2);

/// Why there is no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum UplinkError {
    /// Nobody answered. The message may have been acted upon all the same.
    #[error("{0}")]
    Unreachable(String),
    /// Somebody answered, and not with an answer that can be taken.
    #[error("{0}")]
    Garbled(String),
    /// The authority refused.
    #[error(transparent)]
    Refused(#[from] Problem),
}

impl UplinkError {
    /// For metrics.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "unreachable",
            Self::Garbled(_) => "garbled",
            Self::Refused(problem) => problem.code.as_str(),
        }
    }
}

/// Carries a message to the authority.
#[async_trait]
pub trait Uplink: Send + Sync {
    /// Sends `message` to `path` and waits for its answer, no longer than the link's deadline.
    async fn send(&self, path: &'static str, message: &Message) -> Result<Answer, UplinkError>;
}

/// Over HTTP, to any of several addresses of one authority.
pub struct HttpUplink {
    client: reqwest::Client,
    addresses: Vec<String>,
    token: Secret,
    deadline: Duration,
}

impl HttpUplink {
    /// An uplink to `addresses`, tried in turn.
    ///
    /// # Errors
    /// Where the client cannot be made.
    pub fn new(
        addresses: Vec<String>,
        token: Secret,
        deadline: Duration,
        trust: ClientConfig,
    ) -> Result<Self, UplinkError> {
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(trust)
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT.min(deadline))
            .timeout(deadline)
            .build()
            .map_err(|error| UplinkError::Unreachable(error.to_string()))?;
        Ok(Self { client, addresses, token, deadline })
    }

    async fn all(&self, path: &'static str, message: &Message) -> Result<Answer, UplinkError> {
        let mut last = UplinkError::Unreachable("no authority address is configured".into());
        for address in &self.addresses {
            match self.one(address, path, message).await {
                Err(error) if next_may_do(&error) => last = error,
                result => return result,
            }
        }
        Err(last)
    }

    async fn one(&self, address: &str, path: &'static str, message: &Message) -> Result<Answer, UplinkError> {
        let url = format!("{}{path}", address.trim_end_matches('/'));
        let failed = |error: reqwest::Error| {
            UplinkError::Unreachable(format!("{address}: {}", tls::blame(&error).unwrap_or_else(|| whole(&error))))
        };
        let request = self.client.post(&url).bearer_auth(self.token.reveal()).json(message);
        let mut response = request.send().await.map_err(failed)?;
        let status = response.status();
        let limit = if status.is_success() { MAX_LINK_BYTES } else { MAX_PROBLEM_BYTES };
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > limit {
                return Err(UplinkError::Garbled(format!("{address}: the answer is longer than {limit} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        if status.is_success() {
            let unreadable = |error| UplinkError::Garbled(format!("{address}: not an answer: {error}"));
            return serde_json::from_slice(&body).map_err(unreadable);
        }
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) => Err(UplinkError::Refused(problem)),
            Err(_) => Err(UplinkError::Garbled(format!("{address}: HTTP {status}"))),
        }
    }
}

/// Whether another address of the same authority may answer what this one did not: a standby says that it
/// is not the primary, a proxy that nobody is there.
fn next_may_do(error: &UplinkError) -> bool {
    match error {
        UplinkError::Unreachable(_) | UplinkError::Garbled(_) => true,
        UplinkError::Refused(problem) => {
            matches!(problem.code, Code::UpstreamUnavailable | Code::ShuttingDown | Code::NotFound | Code::Internal)
        }
    }
}

/// An error and everything under it: reqwest's own text hides the cause.
fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[async_trait]
impl Uplink for HttpUplink {
    async fn send(&self, path: &'static str, message: &Message) -> Result<Answer, UplinkError> {
        match tokio::time::timeout(self.deadline, self.all(path, message)).await {
            Ok(result) => result,
            Err(_) => Err(UplinkError::Unreachable(format!("no answer within {} ms", self.deadline.as_millis()))),
        }
    }
}
