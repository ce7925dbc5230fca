//! A region as a test sees it: its agent process, and the proxy that is its wide area.

use crate::http;
use crate::process::{Daemon, Spec};
use crate::proxy::Proxy;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use std::fmt;

/// Why an answer held no ids: the stable code, or `connection` where no answer came at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The HTTP status; 0 where no answer came.
    pub status: u16,
    /// The code that clients branch on; `connection`, or `unreadable` for a body outside the contract.
    pub code: String,
    /// For a person.
    pub detail: String,
    /// Seconds, where retrying helps.
    pub retry_after: Option<u64>,
}

impl fmt::Display for Problem {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} {}: {}", self.status, self.code, self.detail)
    }
}

impl Problem {
    /// No answer came at all.
    pub fn connection(error: &reqwest::Error) -> Self {
        let (code, detail) = ("connection".to_owned(), format!("{error:?}"));
        Self { status: 0, code, detail, retry_after: None }
    }

    /// What an answer other than success says.
    pub fn of(status: u16, headers: &HeaderMap, body: &Value) -> Self {
        let retry_after = headers.get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        let code = body["code"].as_str().unwrap_or("unreadable").to_owned();
        let detail = body["detail"].as_str().map_or_else(|| body.to_string(), str::to_owned);
        Self { status, code, detail, retry_after }
    }
}

/// `POST /v1/ids` with a client that the caller keeps; every id that was exposed.
pub async fn ask_ids(
    client: &reqwest::Client,
    agent_url: &str,
    token: &str,
    namespace: &str,
    count: u32,
) -> Result<Vec<i64>, Problem> {
    let url = format!("{agent_url}/v1/ids");
    let body = json!({"namespace": namespace, "count": count});
    let answer = http::call_with(client, "POST", &url, Some(token), Some(&body)).await;
    let (status, headers, value) = answer.map_err(|error| Problem::connection(&error))?;
    if status != 200 {
        return Err(Problem::of(status, &headers, &value));
    }
    let ids = value["ids"].as_array().map(|ids| {
        let id = |id: &Value| id.as_str()?.parse::<i64>().ok();
        ids.iter().map(id).collect::<Option<Vec<i64>>>()
    });
    let ids = ids.flatten().ok_or_else(|| Problem::of(status, &headers, &value))?;
    assert_eq!(ids.len(), count as usize, "{count} ids were asked of {namespace}, and so many came");
    Ok(ids)
}

/// One region: agent, link, and what it was registered as.
pub struct Region {
    /// Its name.
    pub name: String,
    /// What the authority answered when it was registered: `region_id`, `epoch`, `token`.
    pub registration: Value,
    /// Where callers go.
    pub url: String,
    /// The agent's process.
    pub agent: Daemon,
    /// The wide area between this agent and the authority.
    pub link: Proxy,
    /// The region's store; None: embedded, in the agent's data folder.
    pub database_url: Option<String>,
}

/// What a second agent of the same region, or one on a copied store, needs as well.
pub struct Setup<'a> {
    /// The region's name.
    pub name: &'a str,
    /// Its token.
    pub token: &'a str,
    /// Where the authority is for this agent.
    pub authority_url: &'a str,
    /// None: embedded.
    pub database_url: Option<&'a str>,
    /// The port to listen on.
    pub port: u16,
}

/// How an agent is started by the contract's environment.
pub fn agent_spec(setup: &Setup<'_>) -> Spec {
    let mut spec = Spec::binary("region-agent")
        .env("CADASTRE_LISTEN", format!("127.0.0.1:{}", setup.port))
        .env("CADASTRE_DATA", "{data}")
        .env("CADASTRE_AUTHORITY_URL", setup.authority_url)
        .env("CADASTRE_REGION", setup.name)
        .env("CADASTRE_REGION_TOKEN", setup.token);
    if let Some(url) = setup.database_url {
        spec = spec.env("CADASTRE_DATABASE_URL", url);
    }
    spec
}
