//! `cadastre grants`: the ledger of a namespace, all its pages.

use cadastre_protocol::admin::{GrantView, GrantsPage};
use serde_json::json;

use super::{now_ms, print};
use crate::api::typed;
use crate::cli::{Common, GrantsArgs};
use crate::connect;
use crate::error::{CliError, Outcome};
use crate::show::human::{digits, moment};
use crate::show::table::Table;

pub async fn run(common: &Common, args: GrantsArgs) -> Result<Outcome, CliError> {
    let api = connect::authority(common)?;
    let mut path = format!("/v1/grants?namespace={}", args.namespace);
    if let Some(region) = &args.region {
        path.push_str(&format!("&region={region}"));
    }
    let mut grants: Vec<GrantView> = Vec::new();
    let mut after = String::new();
    loop {
        let page: GrantsPage = typed(api.get(&format!("{path}{after}")).await?)?;
        grants.extend(page.grants);
        match page.next {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    print(common, json!({"grants": grants, "next": null}), |_| {
        let mut table = Table::new(&[">from", ">to", ">ids", "region", ">epoch", "when", "state", "grant"]);
        for grant in &grants {
            table.row(vec![
                digits(grant.lo),
                digits(grant.hi.saturating_sub(1)),
                digits(grant.hi.saturating_sub(grant.lo)),
                grant.region.to_string(),
                grant.epoch.to_string(),
                moment(grant.at, now_ms()),
                if grant.confirmed { "adopted" } else { "on its way" }.to_owned(),
                grant.grant_id.to_string(),
            ]);
        }
        table.print("nothing was granted yet");
        Ok(())
    })
}
