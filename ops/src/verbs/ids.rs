//! `cadastre ids`: what a caller of an agent gets.

use cadastre_protocol::ids::{IdsAnswer, IdsRequest};

use super::print;
use crate::api::typed;
use crate::cli::{Common, IdsArgs};
use crate::connect;
use crate::error::{CliError, Outcome};
use crate::show;

pub async fn run(common: &Common, args: IdsArgs) -> Result<Outcome, CliError> {
    let agent = connect::agent_for_ids(common, args.agent.agent.as_deref(), args.agent.region.as_ref()).await?;
    let (count, shape) = (args.count, args.shape.map(Into::into));
    let request = IdsRequest { namespace: args.namespace, count, shape, tenant: None };
    let answer = agent.api.post("/v1/ids", &request).await?;
    print(common, answer, |answer| {
        let answer: IdsAnswer = typed(answer)?;
        for id in answer.id.iter().chain(answer.ids.iter().flatten()) {
            show::line(id);
        }
        for range in answer.ranges.iter().flatten() {
            show::line(format!("{} to {} in steps of {}", range.first, range.last, range.increment));
        }
        Ok(())
    })
}
