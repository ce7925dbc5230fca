//! `cadastre probe`: whether a daemon answers 200, for health checks in images that have no other program to ask with.
//!
//! It needs no token, and changes nothing. Ends with 0 when one of the addresses answers 200, with 1 otherwise.

use serde_json::json;

use crate::api::Api;
use crate::cli::Common;
use crate::error::{CliError, Outcome};
use crate::show;

/// Asks one after the other, until one answers.
pub async fn run(common: &Common, urls: &[String]) -> Result<Outcome, CliError> {
    let mut told = Vec::new();
    for url in urls {
        let (well, detail) = one(url).await?;
        told.push(json!({"url": url, "ok": well, "detail": detail}));
        if !common.json {
            show::line(format!("{url}: {detail}"));
        }
        if well {
            break;
        }
    }
    let found = !told.iter().any(|one| one["ok"] == true);
    if common.json {
        show::json(&json!({"ok": !found, "addresses": told}));
    }
    Ok(Outcome::found(found))
}

async fn one(url: &str) -> Result<(bool, String), CliError> {
    let (base, path) = split(url);
    let answer = match Api::new(base, None)?.probe(path).await {
        Ok(answer) => answer,
        Err(error) => return Ok((false, error.to_string())),
    };
    let status = answer.status();
    let body = answer.text().await.unwrap_or_default();
    Ok((status.is_success(), format!("{} {}", status.as_u16(), body.trim())))
}

/// The server, and the path with its slash; `/healthz` where none is given.
fn split(url: &str) -> (&str, &str) {
    let host = url.find("://").map_or(0, |at| at + 3);
    let rest = url.get(host..).unwrap_or_default();
    match rest.find('/') {
        Some(at) => url.split_at(host + at),
        None => (url, "/healthz"),
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn an_address_is_a_server_and_a_path() {
        assert_eq!(split("http://a:1/readyz"), ("http://a:1", "/readyz"));
        assert_eq!(split("http://a:1"), ("http://a:1", "/healthz"));
        assert_eq!(split("a:1/x/y"), ("a:1", "/x/y"));
    }
}
