//! Where the authority and the agents are, and with which token.
//!
//! Flags win over the environment, which wins over the dev cluster's file. Invariant: a token out of that
//! file goes only to an address that stands in the same file. Absent on purpose: discovery of clusters.

use std::path::PathBuf;

use cadastre_core::ids::Name;
use cadastre_protocol::admin::RegionView;
use cadastre_runtime::token::Secret;

use crate::api::{Api, typed};
use crate::cli::Common;
use crate::dev::file::DevFile;
use crate::error::CliError;

/// One agent that can be asked.
pub struct Agent {
    /// Its region, where that is known.
    pub region: Option<Name>,
    /// How to ask it.
    pub api: Api,
}

impl Agent {
    /// For messages.
    pub fn describe(&self) -> String {
        match &self.region {
            Some(region) => format!("{region} at {}", self.api.url()),
            None => self.api.url().to_owned(),
        }
    }
}

/// The authority, with the token of an operator or viewer.
///
/// # Errors
/// Where nobody said where it is, or with which token.
pub fn authority(common: &Common) -> Result<Api, CliError> {
    let file = dev_file(common)?;
    let url = match (&common.authority, &file) {
        (Some(url), _) => url.clone(),
        (None, Some(file)) => file.authority.url.clone(),
        (None, None) => return Err(nowhere(common)),
    };
    let nobody = Api::new(&url, None)?;
    let own =
        file.filter(|file| same(&file.authority.url, &url)).map(|file| Secret::new(file.authority.operator_token));
    let token = common.token.clone().or(own);
    let token = token.ok_or_else(|| CliError::usage(format!("no token for {url}: give --token or CADASTRE_TOKEN")))?;
    Ok(nobody.with(token))
}

/// The agent to ask for IDs. Only a service's token may ask for them, and only an operator's may ask the
/// authority where agents are, so outside of a dev cluster it has to be named.
///
/// # Errors
/// Where none is known.
pub async fn agent_for_ids(common: &Common, url: Option<&str>, region: Option<&Name>) -> Result<Agent, CliError> {
    let known = dev_file(common)?
        .is_some_and(|file| common.authority.as_ref().is_none_or(|authority| same(authority, &file.authority.url)));
    if url.is_none() && !known {
        return Err(CliError::usage("name the agent to ask with --agent URL, and a service's token with --token"));
    }
    let mut found = agents(common, url, region).await?.into_iter();
    found.next().ok_or_else(|| CliError::usage("name the agent to ask with --agent URL"))
}

/// The agents to be asked: the one at `url`, or those of the dev cluster, or those that the authority
/// knows; of one region, where it is named.
///
/// # Errors
/// Where none is known.
pub async fn agents(common: &Common, url: Option<&str>, region: Option<&Name>) -> Result<Vec<Agent>, CliError> {
    let file = dev_file(common)?;
    if let Some(url) = url {
        let known = file.as_ref().is_some_and(|file| file.regions.iter().any(|r| same(&r.url, url)));
        let own = file.filter(|_| known).map(|file| Secret::new(file.service_token));
        let token = common.token.clone().or(own);
        let token =
            token.ok_or_else(|| CliError::usage(format!("no token for {url}: give --token or CADASTRE_TOKEN")))?;
        return Ok(vec![Agent { region: region.cloned(), api: Api::new(url, Some(token))? }]);
    }
    let found = match file.filter(|file| common.authority.as_ref().is_none_or(|url| same(url, &file.authority.url))) {
        Some(file) => of_file(common, &file)?,
        None => of_authority(common).await?,
    };
    let found: Vec<Agent> = found.into_iter().filter(|a| region.is_none() || a.region.as_ref() == region).collect();
    if found.is_empty() {
        let what =
            region.map_or_else(|| "no agent is known".to_owned(), |r| format!("no agent of region {r} is known"));
        return Err(CliError::failed(what, "see `cadastre region list`, or name one with --agent URL"));
    }
    Ok(found)
}

fn of_file(common: &Common, file: &DevFile) -> Result<Vec<Agent>, CliError> {
    let token = common.token.clone().unwrap_or_else(|| Secret::new(file.service_token.clone()));
    let agent = |r: &crate::dev::file::DevRegion| {
        Ok(Agent { region: Some(r.name.clone()), api: Api::new(&r.url, Some(token.clone()))? })
    };
    file.regions.iter().map(agent).collect()
}

/// Every live agent that told the authority where it is reached; asked with the caller's own token,
/// which its region knows from the roster.
async fn of_authority(common: &Common) -> Result<Vec<Agent>, CliError> {
    let answer = authority(common)?.get("/v1/regions").await?;
    let regions: Vec<RegionView> = typed(crate::verbs::rows(answer, "regions"))?;
    let mut agents = Vec::new();
    for region in regions {
        for url in region.agents.iter().filter_map(|agent| agent.url.as_deref()) {
            agents.push(Agent { region: Some(region.name.clone()), api: Api::new(url, common.token.clone())? });
        }
    }
    Ok(agents)
}

/// The dev cluster's file, where there is one.
fn dev_file(common: &Common) -> Result<Option<DevFile>, CliError> {
    DevFile::read(&data(common))
}

/// The data folder of the dev cluster.
pub fn data(common: &Common) -> PathBuf {
    common.data.clone().unwrap_or_else(|| PathBuf::from(crate::dev::DEFAULT_DATA))
}

/// The folder of the dev cluster, where that is what is meant.
///
/// # Errors
/// Where there is none, or another authority is named.
pub fn dev_only(common: &Common) -> Result<PathBuf, CliError> {
    let file = dev_file(common)?.ok_or_else(|| nowhere(common))?;
    match &common.authority {
        Some(url) if !same(url, &file.authority.url) => Err(CliError::usage(format!("{url} is not the dev cluster's"))),
        _ => Ok(data(common)),
    }
}

fn same(left: &str, right: &str) -> bool {
    left.trim_end_matches('/') == right.trim_end_matches('/')
}

fn nowhere(common: &Common) -> CliError {
    CliError::usage(format!(
        "no authority: there is no {}. Start one with `cadastre dev`, or give --authority URL and --token TOKEN \
         (CADASTRE_AUTHORITY_URL, CADASTRE_TOKEN)",
        data(common).join(crate::dev::file::NAME).display()
    ))
}
