//! `cadastre origin`: who was given an ID. It never says that an object of this ID exists.

use cadastre_protocol::ids::{Origin, OriginRange};

use super::{now_ms, print};
use crate::api::typed;
use crate::cli::{Common, OriginArgs};
use crate::connect;
use crate::error::{CliError, Outcome};
use crate::show;
use crate::show::human::{digits, moment};
use crate::show::table::pairs;

pub async fn run(common: &Common, args: OriginArgs) -> Result<Outcome, CliError> {
    let answer = connect::authority(common)?.get(&format!("/v1/origins/{}/{}", args.namespace, args.id)).await?;
    print(common, answer, |answer| {
        let origin: Origin = typed(answer)?;
        let segment = match (&origin.segment, origin.partial) {
            (Some(segment), _) => range(segment),
            (None, true) => "not known: the region cannot be asked right now".to_owned(),
            (None, false) => "none: not carved yet, so never issued".to_owned(),
        };
        let mut lines = vec![
            ("id", format!("{} in {}", origin.id, origin.namespace)),
            ("region", format!("{}, epoch {}", origin.region, origin.epoch)),
            ("given", moment(origin.at, now_ms())),
            ("grant", range(&origin.grant)),
            ("segment", segment),
        ];
        if let Some(decoded) = &origin.decoded {
            lines.push(("stamped", moment(decoded.stamped_at, now_ms())));
            let words =
                format!("slot {}, worker {}, number {} of its unit", decoded.slot, decoded.worker, decoded.sequence);
            lines.push(("says", words));
        }
        lines.extend(origin.service.map(|service| ("service", service)));
        lines.extend(origin.instance.map(|instance| ("instance", instance)));
        lines.extend(origin.incarnation.map(|incarnation| ("incarnation", incarnation.to_string())));
        show::line(pairs(&lines));
        Ok(())
    })
}

fn range(range: &OriginRange) -> String {
    let last = digits(range.hi.saturating_sub(1));
    format!("ordinals {} to {last}, {} ({})", digits(range.lo), moment(range.at, now_ms()), range.id)
}
