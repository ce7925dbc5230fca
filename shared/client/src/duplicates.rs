//! Telling that an ID came twice, see [`Client::report_duplicate`](crate::Client::report_duplicate).
//!
//! It happens never, or once: so it has a thread of its own for as long as it takes, and neither the caller's runtime
//! nor the refills are concerned. Agents are asked in their order until one has written it down.

use cadastre_core::ids::Name;
use cadastre_protocol::duplicates::{DuplicateNoted, DuplicateReport};
use tokio::sync::oneshot;

use crate::conversation::Failure;
use crate::error::{Error, ErrorKind};
use crate::process::{Agents, Settings};
use crate::wire::Http;

type Told = Result<(), Error>;

/// Starts telling; the answer comes through the channel.
pub(crate) fn tell(
    settings: &Settings,
    namespace: Name,
    id: i64,
    detail: &str,
) -> Result<oneshot::Receiver<Told>, Error> {
    let report = DuplicateReport {
        namespace,
        id: id.to_string(),
        detail: (!detail.is_empty()).then(|| detail.chars().take(cadastre_protocol::duplicates::MAX_DETAIL).collect()),
    };
    let (said, heard) = oneshot::channel();
    let (addresses, token, trust) = match settings.agents.clone() {
        Agents::Http(addresses, token, trust) => (addresses, token, trust),
        // A double has nobody to tell.
        Agents::Memory(_) => {
            let _ = said.send(Ok(()));
            return Ok(heard);
        }
    };
    let within = settings.request_timeout;
    let work = move || {
        let count = addresses.len();
        let told = Http::new(addresses, token, within, *trust).and_then(|http| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| Error::closed(format!("no runtime: {error}")))?;
            runtime.block_on(each(&http, count, &report))
        });
        let _ = said.send(told);
    };
    let started = std::thread::Builder::new().name("cadastre-report".to_owned()).spawn(work);
    started.map_err(|error| Error::closed(format!("no thread: {error}")))?;
    Ok(heard)
}

async fn each(http: &Http, agents: usize, report: &DuplicateReport) -> Told {
    let mut last = Error::from(ErrorKind::Unreachable("no agent".to_owned()));
    for agent in 0..agents {
        match http.call::<_, DuplicateNoted>("POST", agent, "/v1/duplicates", report).await {
            Ok(_) => return Ok(()),
            Err(Failure::Refused(problem)) => last = ErrorKind::Refused(problem).into(),
            Err(Failure::Unreachable(why)) => last = ErrorKind::Unreachable(why).into(),
        }
    }
    Err(last)
}
