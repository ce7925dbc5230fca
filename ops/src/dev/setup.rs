//! First use: everything that the dev cluster has is created over the public API, as an operator would.
//!
//! Invariant: it can be repeated. What exists already is kept, and a token that nobody knows any more is
//! replaced by a fresh one. Absent on purpose: any way into a store.

use std::path::Path;

use cadastre_core::ids::Name;
use cadastre_protocol::admin::{Named, NewNamespace, NewRegion, NewService, NewToken, Nothing};
use cadastre_protocol::error::Code;
use cadastre_runtime::entropy::{Entropy, SystemEntropy};
use cadastre_runtime::token::{self, Prefix, Secret};
use serde_json::Value;

use super::file::{io, write_private};
use super::{NAMESPACES, SERVICE};
use crate::api::{Api, typed};
use crate::error::CliError;

/// The first operator's token: made before the authority's store, so that a start that was cut short can
/// go on.
///
/// # Errors
/// When the file system says no.
pub fn operator_token(path: &Path) -> Result<Secret, CliError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Secret::new(text.trim())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let text = token::make(Prefix::Operator, SystemEntropy.bytes32());
            write_private(path, &format!("{text}\n"))?;
            Ok(Secret::new(text))
        }
        Err(error) => Err(io(path, &error)),
    }
}

/// Namespaces and the service that is admitted to them; the service's token.
///
/// # Errors
/// A refusal, or no answer.
pub async fn namespaces_and_service(api: &Api) -> Result<String, CliError> {
    let namespaces: Vec<Name> = NAMESPACES.iter().map(|name| self::name(name)).collect::<Result<_, _>>()?;
    for name in &namespaces {
        unless_there(api.post("/v1/namespaces", &NewNamespace::range(name.clone())).await)?;
    }
    let new = NewService { name: name(SERVICE)?, namespaces, limits: Default::default() };
    service(api, &new).await
}

/// A service; its token.
///
/// # Errors
/// A refusal, or no answer.
pub async fn service(api: &Api, new: &NewService) -> Result<String, CliError> {
    unless_there(api.post("/v1/services", new).await)?;
    fresh_token(api, &format!("/v1/services/{}/tokens", new.name)).await
}

/// A region; its agent's token.
///
/// # Errors
/// A refusal, or no answer.
pub async fn region(api: &Api, name: &Name) -> Result<String, CliError> {
    let new = Named { name: name.clone() };
    match unless_there(api.post("/v1/regions", &new).await)? {
        Some(answer) => Ok(typed::<NewRegion>(answer)?.token),
        None => fresh_token(api, &format!("/v1/regions/{name}/tokens")).await,
    }
}

async fn fresh_token(api: &Api, path: &str) -> Result<String, CliError> {
    Ok(typed::<NewToken>(api.post(path, &Nothing {}).await?)?.token)
}

/// An answer, or none where it exists already.
///
/// # Errors
/// Any other refusal, or no answer.
pub fn unless_there(answer: Result<Value, CliError>) -> Result<Option<Value>, CliError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.refusal() == Some(Code::AlreadyExists) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A name that is written in this program.
///
/// # Errors
/// A fault of ours.
pub fn name(text: &str) -> Result<Name, CliError> {
    Name::new(text).map_err(|error| CliError::failed(format!("{text}: {error}"), "this is a fault of ours"))
}
