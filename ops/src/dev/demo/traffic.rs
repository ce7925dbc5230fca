//! Callers: several per region, single IDs and batches by turns.
//!
//! Invariant: an ID counts as issued during the cut only where its request began and ended within it. A
//! caller that is refused notes the code and goes on, as a service would.

use std::time::Duration;

use cadastre_core::ids::Name;
use cadastre_protocol::ids::{IdsAnswer, IdsRequest};
use cadastre_runtime::token::Secret;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::super::file::DevFile;
use super::super::{NAMESPACES, setup};
use super::tally::{Got, Shared};
use crate::api::{Api, typed};
use crate::error::CliError;

/// Callers per region.
const CALLERS: usize = 3;
/// Between two requests of one caller.
const PAUSE: Duration = Duration::from_millis(8);
/// Every so many requests is a batch.
const BATCH_EVERY: usize = 4;
/// IDs in a batch.
const BATCH: u64 = 500;

/// Where the play stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// Both regions reach the authority.
    Before,
    /// One does not.
    Cut,
    /// Both do again.
    After,
    /// Callers stop.
    Over,
}

/// Starts the callers of every region; dropped, they stop.
///
/// # Errors
/// When an address cannot be used.
pub fn start(file: &DevFile, shared: &Shared, phase: &watch::Sender<Phase>) -> Result<JoinSet<(Name, Got)>, CliError> {
    let namespaces: Vec<Name> = NAMESPACES.iter().map(|name| setup::name(name)).collect::<Result<_, _>>()?;
    let mut callers = JoinSet::new();
    for region in &file.regions {
        let api = Api::new(&region.url, Some(Secret::new(file.service_token.clone())))?;
        for number in 0..CALLERS {
            let caller = Caller {
                api: api.clone(),
                region: region.name.clone(),
                namespaces: namespaces.clone(),
                shared: shared.clone(),
                phase: phase.subscribe(),
            };
            callers.spawn(caller.run(number));
        }
    }
    Ok(callers)
}

struct Caller {
    api: Api,
    region: Name,
    namespaces: Vec<Name>,
    shared: Shared,
    phase: watch::Receiver<Phase>,
}

impl Caller {
    async fn run(self, first: usize) -> (Name, Got) {
        let mut got = Got::default();
        // Callers begin at different places of the same turn.
        for turn in first.. {
            let begun = *self.phase.borrow();
            if begun == Phase::Over {
                break;
            }
            let Some(namespace) = self.namespaces.get(turn % self.namespaces.len()) else { break };
            let count = turn.is_multiple_of(BATCH_EVERY).then_some(BATCH);
            match self.ask(namespace, count).await {
                Ok(ids) => {
                    let number = u64::try_from(ids.len()).unwrap_or(0);
                    if begun == Phase::Cut && *self.phase.borrow() == Phase::Cut {
                        got.during_cut += number;
                    }
                    self.shared.add(&self.region, number);
                    got.ids.entry(namespace.clone()).or_default().extend(ids);
                }
                Err(error) => {
                    let code = error.refusal().map_or("no answer", |code| code.as_str());
                    *got.refused.entry(code.to_owned()).or_default() += 1;
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        (self.region, got)
    }

    async fn ask(&self, namespace: &Name, count: Option<u64>) -> Result<Vec<i64>, CliError> {
        let request = IdsRequest { namespace: namespace.clone(), count, shape: None, tenant: None };
        let answer: IdsAnswer = typed(self.api.post("/v1/ids", &request).await?)?;
        let texts = answer.id.into_iter().chain(answer.ids.into_iter().flatten());
        let number = |text: String| text.parse().map_err(|_| super::fault(&format!("{text:?} is no ID")));
        texts.map(number).collect()
    }
}
