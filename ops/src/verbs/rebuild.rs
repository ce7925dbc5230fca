//! `cadastre rebuild`: an authority that was lost for good, store and witness, is made again from its regions.
//!
//! The authority was started with CADASTRE_REBUILD on an empty store. Here its regions' knowledge is brought to it, their
//! testimony waited for, and then its ledger of grants written again from theirs. Every step may be done again.

use std::time::Duration;

use cadastre_core::ids::Name;
use cadastre_protocol::admin::Quarantines;
use cadastre_protocol::rebuild::{AdoptedPage, GrantsBack, GrantsTaken, RegionRecord};
use serde_json::json;

use crate::api::{Api, typed};
use crate::cli::{Common, RebuildArgs};
use crate::connect;
use crate::error::{CliError, Outcome};
use crate::show;
use crate::show::human::digits;

const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often an agent is asked whether it has heard of the operator: for half a minute.
const HEARD_OF_TRIES: usize = 60;

/// # Errors
/// Where somebody cannot be asked, refuses, or is not heard in time.
pub async fn run(common: &Common, args: RebuildArgs) -> Result<Outcome, CliError> {
    if !args.old_store_stopped {
        return Err(CliError::usage(
            "two authorities of one cluster would grant the same numbers: make sure that the old one is stopped and that no \
             copy of its store will be started again, then say so with --old-store-stopped",
        ));
    }
    let authority = connect::authority(common)?;
    let token = args.agent_token.clone().or_else(|| authority.token());
    let state: Quarantines = typed(authority.get("/v1/quarantines").await?)?;
    if !state.quarantines.is_empty() {
        for url in &args.agents {
            let record: RegionRecord = typed(Api::new(url, token.clone())?.get("/v1/testimony").await?)?;
            authority.post("/v1/rebuild", &record).await?;
            say(common, format!("{}: its roster and marks are known to the authority", record.region));
        }
        testified(common, &authority, args.wait).await?;
    }
    let mut taken = GrantsTaken::default();
    let mut unread = Vec::new();
    for agent in connect::agents(common, None, None).await? {
        let api = Api::new(agent.api.url(), authority.token())?;
        if let Err(error) = known_there(&api).await {
            unread.push(format!("{}: {error}", agent.describe()));
        } else if let Err(error) = ledger(&authority, &api, &mut taken).await {
            unread.push(format!("{}: {error}", agent.describe()));
        }
    }
    if common.json {
        show::json(
            &json!({"written": taken.written, "known": taken.known, "refused": taken.refused, "unread": unread}),
        );
    }
    say(common, format!("ledger: {} grants written, {} known", digits(taken.written), digits(taken.known)));
    for why in
        taken.refused.iter().map(|r| format!("refused: {r}")).chain(unread.iter().map(|r| format!("NOT read: {r}")))
    {
        say(common, why);
    }
    say(common, "next: `cadastre verify`; then start the authority without CADASTRE_REBUILD".to_owned());
    Ok(Outcome::found(!taken.refused.is_empty() || !unread.is_empty()))
}

fn say(common: &Common, text: String) {
    if !common.json {
        show::line(text);
    }
}

/// Waits until everybody whom the rosters name has testified.
async fn testified(common: &Common, authority: &Api, wait_seconds: u64) -> Result<(), CliError> {
    let mut said = Vec::new();
    for _ in 0..wait_seconds.saturating_mul(2).max(1) {
        let state: Quarantines = typed(authority.get("/v1/quarantines").await?)?;
        let Some(first) = state.quarantines.first() else { return Ok(()) };
        if first.waiting_for != said {
            said.clone_from(&first.waiting_for);
            say(common, format!("waits for the testimony of: {}", said.join(", ")));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let next = "bring their agents back and run this again; only if that cannot be: `cadastre quarantine lift --help`";
    Err(CliError::failed(format!("not everybody has testified: {}", said.join(", ")), next))
}

/// Who rebuilds is known to an agent once it heard of the new roster: with one of its next heartbeats.
async fn known_there(agent: &Api) -> Result<(), CliError> {
    for _ in 0..HEARD_OF_TRIES {
        match agent.get("/v1/testimony").await {
            Err(CliError::Refused(refusal)) if refusal.code == "unauthenticated" => {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            result => return result.map(|_| ()),
        }
    }
    Err(CliError::failed("it does not know this token yet", "run this again once its uplink is up"))
}

/// One region's ledger of grants.
async fn ledger(authority: &Api, agent: &Api, taken: &mut GrantsTaken) -> Result<(), CliError> {
    let record: RegionRecord = typed(agent.get("/v1/testimony").await?)?;
    let names: Vec<Name> = record.bounds.into_keys().collect();
    for name in names {
        let mut after = String::new();
        loop {
            let page: AdoptedPage = typed(agent.get(&format!("/v1/grants?namespace={name}{after}")).await?)?;
            if !page.grants.is_empty() {
                let back = GrantsBack { region: page.region, store_id: page.store_id, grants: page.grants };
                let more: GrantsTaken = typed(authority.post("/v1/rebuild/grants", &back).await?)?;
                taken.written += more.written;
                taken.known += more.known;
                taken.refused.extend(more.refused);
            }
            match page.next {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
    }
    Ok(())
}
