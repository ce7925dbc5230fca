//! `cadastre service`: who may ask agents for IDs.

use cadastre_core::roster::Limits;
use cadastre_protocol::admin::{NewService, Nothing, ServicePatch, ServiceView};
use serde_json::Value;

use super::{now_ms, print, print_token, rows, token_words};
use crate::api::typed;
use crate::cli::{Common, ServiceVerb};
use crate::connect;
use crate::error::{CliError, Outcome};
use crate::show;
use crate::show::human::digits;
use crate::show::table::{Table, pairs};

pub async fn run(common: &Common, verb: ServiceVerb) -> Result<Outcome, CliError> {
    let api = connect::authority(common)?;
    match verb {
        ServiceVerb::Create { name, namespaces, limits } => {
            let new = NewService { name, namespaces, limits: limits.over(Limits::default()) };
            print(common, api.post("/v1/services", &new).await?, one)
        }
        ServiceVerb::List => print(common, api.get("/v1/services").await?, list),
        ServiceVerb::Set { name, namespaces, limits } => {
            if namespaces.is_empty() && !limits.any() {
                return Err(CliError::usage("nothing to set: give --namespace or a limit"));
            }
            let limits = limits.any().then(|| limits.changes());
            let patch = ServicePatch { namespaces: (!namespaces.is_empty()).then_some(namespaces), limits };
            print(common, api.patch(&format!("/v1/services/{name}"), &patch).await?, one)
        }
        ServiceVerb::Token { name } => {
            let answer = api.post(&format!("/v1/services/{name}/tokens"), &Nothing {}).await?;
            print_token(common, answer, &format!("service {name}"))
        }
        ServiceVerb::Revoke { name, token_id } => {
            let answer = api.delete(&format!("/v1/services/{name}/tokens/{token_id}")).await?;
            print(common, answer, |_| {
                show::line(format!(
                    "token {token_id} of {name} is revoked; a cut-off region learns of it when it is back"
                ));
                Ok(())
            })
        }
    }
}

/// The limits that a service has: the API takes all of them at once.
fn list(answer: Value) -> Result<(), CliError> {
    let services: Vec<ServiceView> = typed(rows(answer, "services"))?;
    let mut table = Table::new(&["service", "namespaces", "limits", "tokens"]);
    for service in services {
        table.row(vec![
            service.name.to_string(),
            namespaces(&service),
            limits(&service.limits),
            token_words(&service.tokens, now_ms()),
        ]);
    }
    table.print("no services yet: `cadastre service create NAME --namespace NAMESPACE`");
    Ok(())
}

fn one(answer: Value) -> Result<(), CliError> {
    let service: ServiceView = typed(answer)?;
    let tokens = if service.tokens.is_empty() {
        format!("none yet: `cadastre service token {}`", service.name)
    } else {
        token_words(&service.tokens, now_ms())
    };
    show::line(pairs(&[
        ("service", service.name.to_string()),
        ("namespaces", namespaces(&service)),
        ("limits", limits(&service.limits)),
        ("tokens", tokens),
    ]));
    Ok(())
}

fn namespaces(service: &ServiceView) -> String {
    service.namespaces.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn limits(limits: &Limits) -> String {
    let mut words = vec![format!("{} a request", digits(u64::from(limits.batch)))];
    words.extend(limits.ids_per_second.map(|n| format!("{} a second", digits(u64::from(n)))));
    words.extend(limits.in_flight.map(|n| format!("{n} requests at once")));
    words.extend(limits.holders.map(|n| format!("{n} processes of its own")));
    words.extend(limits.held_ids.map(|n| format!("{} held by them", digits(n))));
    words.join(", ")
}
