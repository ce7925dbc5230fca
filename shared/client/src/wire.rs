//! `/v1/segments` and `/v1/workers` over HTTP: one request to one agent.
//!
//! Invariant: one try within one deadline; redirects are not followed; an answer longer than a segment needs is
//! not read; no text that comes out of here holds the token. Absent on purpose: retries, the choice of an agent,
//! and any reading of what is said.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cadastre_core::knows::Knows;
use cadastre_protocol::error::Problem;
use cadastre_protocol::ids::{Program, SegmentAnswer, SegmentRequest};
use cadastre_protocol::operate::HomeAddress;
use cadastre_tls::ClientConfig;
use reqwest::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::conversation::Failure;
use crate::error::Error;

/// The longest body that is read.
const MAX_BODY_BYTES: usize = 64 << 10;
/// Agents that are known at most, the named ones included.
const MAX_AGENTS: usize = 32;
/// How long an agent may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(1);

/// A service token, masked wherever it is printed.
#[derive(Clone)]
pub(crate) struct Token(String);

impl Token {
    pub(crate) fn new(text: impl Into<String>) -> Token {
        Token(text.into())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// What is said of this software: its version, and that it reads everything of this build.
pub(crate) fn program() -> Program {
    Program { version: env!("CARGO_PKG_VERSION").to_owned(), knows: Knows::all() }
}

/// How agents are asked.
pub(crate) struct Http {
    client: reqwest::Client,
    /// Those that were given, and behind them those that agents named.
    addresses: Mutex<Vec<String>>,
    token: Token,
}

impl Http {
    /// A client for these agents; made in the process that uses it.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) where the machine cannot make one.
    pub(crate) fn new(
        addresses: Vec<String>,
        token: Token,
        request_timeout: Duration,
        trust: ClientConfig,
    ) -> Result<Http, Error> {
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(trust)
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT.min(request_timeout))
            .timeout(request_timeout)
            .build()
            .map_err(|error| Error::closed(format!("no HTTP client: {error}")))?;
        Ok(Http { client, addresses: Mutex::new(addresses), token })
    }

    fn addresses(&self) -> MutexGuard<'_, Vec<String>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many agents there are to ask.
    pub(crate) fn agents(&self) -> usize {
        self.addresses().len()
    }

    /// Where an agent said that a namespace is at home: which of our agents those are. Unknown ones become known, behind
    /// all others; not without end.
    pub(crate) fn follow(&self, home: &[HomeAddress]) -> Vec<usize> {
        let mut known = self.addresses();
        let mut found = Vec::new();
        for url in home.iter().flat_map(|region| &region.urls) {
            let url = url.trim_end_matches('/');
            let place = known.iter().position(|k| k.trim_end_matches('/') == url);
            let usable = url.starts_with("http://") || url.starts_with("https://");
            if let Some(place) = place {
                found.push(place);
            } else if usable && known.len() < MAX_AGENTS {
                known.push(url.to_owned());
                found.push(known.len() - 1);
            }
        }
        found
    }

    /// Asks one agent, once.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn ask(&self, agent: usize, request: &SegmentRequest) -> Result<SegmentAnswer, Failure> {
        self.call("POST", agent, "/v1/segments", request).await
    }

    /// One call to one agent, once.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn call<B: Serialize, A: DeserializeOwned>(
        &self,
        method: &'static str,
        agent: usize,
        path: &str,
        body: &B,
    ) -> Result<A, Failure> {
        let address = self.addresses().get(agent).map_or_else(String::new, |a| a.trim_end_matches('/').to_owned());
        let failed = |error: reqwest::Error| Failure::Unreachable(format!("{address}: {}", whole(&error)));
        let method = if method == "DELETE" { Method::DELETE } else { Method::POST };
        let call = self.client.request(method, format!("{address}{path}")).bearer_auth(&self.token.0).json(body);
        let mut response = call.send().await.map_err(failed)?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > MAX_BODY_BYTES {
                let text = format!("{address}: the answer is longer than {MAX_BODY_BYTES} bytes");
                return Err(Failure::Unreachable(text));
            }
            body.extend_from_slice(&chunk);
        }
        if status.is_success() {
            let unreadable =
                |error| Failure::Unreachable(format!("{address}: not the answer that was asked for: {error}"));
            return serde_json::from_slice(&body).map_err(unreadable);
        }
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) => Err(Failure::Refused(problem)),
            Err(_) => Err(Failure::Unreachable(format!("{address}: HTTP {status}"))),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_masked() {
        assert_eq!(format!("{:?}", Token::new("cad_svc_secret")), "***");
    }
}
