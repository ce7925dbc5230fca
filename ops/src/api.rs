//! One HTTP call to the authority or an agent.
//!
//! Invariant: a token goes to the address that it was found for and nowhere else (no redirects are
//! followed); answers stay JSON values, so that `--json` prints what the API said. Absent on purpose:
//! retries.

use std::sync::OnceLock;
use std::time::Duration;

use cadastre_runtime::config::ConfigError;
use cadastre_runtime::tls::{self, ClientConfig, TlsArgs};
use cadastre_runtime::token::Secret;
use reqwest::{Method, RequestBuilder, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{CliError, Refusal};

/// The longest that one call may take: `audit/verify` reads whole ledgers.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a connection may take to be made.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);

/// Somebody who answers.
#[derive(Clone)]
pub struct Api {
    client: reqwest::Client,
    base: String,
    token: Option<Secret>,
}

/// Whom this command believes, and what it shows; as its flags say.
static TRUST: OnceLock<TlsArgs> = OnceLock::new();

/// Takes the flags, once, before anybody is asked.
pub fn believe(args: TlsArgs) {
    let _ = TRUST.set(args);
}

fn trust(scheme: &str) -> Result<ClientConfig, CliError> {
    let wrong = |error: ConfigError| CliError::usage(error.to_string());
    // The machine's authorities are read only where they are needed.
    let Some(args) = TRUST.get().filter(|_| scheme == "https") else {
        return cadastre_tls::nobody().map_err(|e| CliError::usage(e.to_string()));
    };
    args.check().map_err(wrong)?;
    let shows = args.open().map_err(wrong)?;
    args.client(shows.as_ref()).map_err(wrong)
}

impl Api {
    /// Somebody at `base`.
    ///
    /// # Errors
    /// When the address cannot be used.
    pub fn new(base: &str, token: Option<Secret>) -> Result<Self, CliError> {
        let usable = |url: &reqwest::Url| matches!(url.scheme(), "http" | "https") && url.has_host();
        let url = reqwest::Url::parse(base).ok().filter(usable);
        let url =
            url.ok_or_else(|| CliError::usage(format!("{base}: not an address such as http://127.0.0.1:7400")))?;
        let mut client = reqwest::Client::builder()
            .tls_backend_preconfigured(trust(url.scheme())?)
            .timeout(PATIENCE)
            .connect_timeout(CONNECT_WITHIN)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("cadastre/", env!("CARGO_PKG_VERSION")));
        if matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]")) {
            client = client.no_proxy();
        }
        let client = client.build().map_err(|e| CliError::failed(e.to_string(), "this is a fault of ours"))?;
        Ok(Self { client, base: base.trim_end_matches('/').to_owned(), token })
    }

    /// The same, with a token.
    pub fn with(mut self, token: Secret) -> Self {
        self.token = Some(token);
        self
    }

    /// With whose token it is asked.
    pub fn token(&self) -> Option<Secret> {
        self.token.clone()
    }

    /// Where it is.
    pub fn url(&self) -> &str {
        &self.base
    }

    /// `GET`.
    ///
    /// # Errors
    /// A refusal, or no answer.
    pub async fn get(&self, path: &str) -> Result<Value, CliError> {
        self.send(self.request(Method::GET, path)).await
    }

    /// `GET` of what is no JSON.
    ///
    /// # Errors
    /// A refusal, or no answer.
    pub async fn text(&self, path: &str) -> Result<String, CliError> {
        let answer = self.request(Method::GET, path).send().await.map_err(|error| self.unreachable(&error))?;
        answer.text().await.map_err(|error| self.unreachable(&error))
    }

    /// `POST`.
    ///
    /// # Errors
    /// A refusal, or no answer.
    pub async fn post(&self, path: &str, body: &impl Serialize) -> Result<Value, CliError> {
        self.send(self.request(Method::POST, path).json(body)).await
    }

    /// `PATCH`.
    ///
    /// # Errors
    /// A refusal, or no answer.
    pub async fn patch(&self, path: &str, body: &impl Serialize) -> Result<Value, CliError> {
        self.send(self.request(Method::PATCH, path).json(body)).await
    }

    /// `PUT`.
    ///
    /// # Errors
    /// As for `get`.
    pub async fn put(&self, path: &str, body: &impl Serialize) -> Result<Value, CliError> {
        self.send(self.request(Method::PUT, path).json(body)).await
    }

    /// `DELETE`.
    ///
    /// # Errors
    /// A refusal, or no answer.
    pub async fn delete(&self, path: &str) -> Result<Value, CliError> {
        self.send(self.request(Method::DELETE, path)).await
    }

    /// Any answer at all, whatever its status: for `/healthz` and `/readyz`.
    ///
    /// # Errors
    /// No answer.
    pub async fn probe(&self, path: &str) -> Result<Response, CliError> {
        let request = self.request(Method::GET, path).timeout(CONNECT_WITHIN);
        request.send().await.map_err(|error| self.unreachable(&error))
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.base));
        match &self.token {
            Some(token) => request.bearer_auth(token.reveal()),
            None => request,
        }
    }

    async fn send(&self, request: RequestBuilder) -> Result<Value, CliError> {
        let answer = request.send().await.map_err(|error| self.unreachable(&error))?;
        let status = answer.status();
        let body = answer.bytes().await.map_err(|error| self.unreachable(&error))?;
        if status.is_success() {
            if body.is_empty() {
                return Ok(Value::Null);
            }
            return serde_json::from_slice(&body).map_err(|error| self.unreadable(&error.to_string()));
        }
        match serde_json::from_slice::<Refusal>(&body) {
            Ok(refusal) => Err(CliError::Refused(refusal)),
            Err(_) => Err(self.unreadable(&format!("status {status} without a problem body"))),
        }
    }

    fn unreachable(&self, error: &reqwest::Error) -> CliError {
        let why = tls::blame(error).unwrap_or_else(|| root_cause(error));
        CliError::Unreachable { url: self.base.clone(), why }
    }

    fn unreadable(&self, why: &str) -> CliError {
        let next = "is it Cadastre's API, of this version, that listens there?";
        CliError::failed(format!("the answer of {} cannot be read: {why}", self.base), next)
    }
}

/// reqwest's own words name the URL again; what a person needs is the last of the causes.
pub fn root_cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// The answer as a type.
///
/// # Errors
/// Where the answer has another shape than this version knows.
pub fn typed<T: DeserializeOwned>(value: Value) -> Result<T, CliError> {
    serde_json::from_value(value).map_err(|error| {
        let next = "use a `cadastre` of the daemons' version, or --json for the answer as it is";
        CliError::failed(format!("the answer has another shape than this version knows: {error}"), next)
    })
}
