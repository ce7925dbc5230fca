//! The worked case of the README: one agent that carries 416,667 ids a second for 64 instances through batches, with
//! half a minute without its authority in the middle.
//!
//! Each instance asks at its own pace, whatever became of the request before: a request that is due while one is under
//! way is late from that moment on, so that a stall counts with all that it delays. Invariant: one run gives every
//! figure. Absent on purpose: a peer.

use std::time::Duration;

use cadastre_runtime::clock::Stopwatch;

use super::caller::Caller;
use super::rounds::{OURS, Result as Measured, quantile};
use super::site::{NAMESPACE, Site};
use crate::error::CliError;

const INSTANCES: u32 = 64;
const IDS_PER_SECOND: f64 = 416_667.0;
/// Ids in a batch.
const BATCH: u32 = 1_000;
/// Before it counts: sizes and rates have to settle.
const SETTLE_SECONDS: f64 = 10.0;
/// Before the outage, and after it.
const AROUND_SECONDS: f64 = 15.0;
const OUTAGE_SECONDS: f64 = 30.0;
/// Units of the authority that write to its store.
const WRITES: &[&str] =
    &["hear", "grant", "roster_change", "testimony", "keep_anew", "learn_epoch", "open_generation", "lift"];
/// Those without which a region would run dry.
const GRANTS: &[&str] = &["grant"];

/// Which figure of the run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Figure {
    /// Ids a second that were answered.
    PerSecond,
    /// The 99th percentile of a batch, in milliseconds.
    P99,
    /// Requests that were refused or not answered.
    Errors,
    /// Transactions a second at the authority's store, of every kind that writes.
    Transactions,
    /// Grants for a million ids: how many of them reached the authority.
    StoreShare,
}

/// The run, once it was made.
#[derive(Default)]
pub struct Worked {
    measured: Option<Run>,
}

#[derive(Clone, Copy)]
struct Run {
    per_second: f64,
    p99_ms: f64,
    errors: f64,
    transactions: f64,
    share: f64,
}

/// What one instance saw.
#[derive(Default)]
struct Seen {
    /// Batches from the first on, those that do not count included.
    answered: u32,
    times: Vec<f64>,
    errors: u32,
}

impl Worked {
    /// A figure; the first one that is asked for makes the run.
    ///
    /// # Errors
    /// Where something does not start.
    pub async fn run(&mut self, figure: Figure) -> Result<Measured, CliError> {
        let run = match self.measured {
            Some(run) => run,
            None => *self.measured.insert(measure().await?),
        };
        let mut result = Measured::default();
        let value = match figure {
            Figure::PerSecond => run.per_second,
            Figure::P99 => run.p99_ms,
            Figure::Errors => run.errors,
            Figure::Transactions => run.transactions,
            Figure::StoreShare => run.share,
        };
        result.add(OURS, value);
        Ok(result)
    }
}

async fn measure() -> Result<Run, CliError> {
    let mut site = Site::start(None, 0).await?;
    // The counts are this process's, other rows' included.
    let first = site.authority_metrics().await?;
    site.start_agent(None).await?;
    site.first_id().await?;
    let counted = AROUND_SECONDS + OUTAGE_SECONDS + AROUND_SECONDS;
    let watch = Stopwatch::start();
    let mut instances = tokio::task::JoinSet::new();
    for n in 0..INSTANCES {
        instances.spawn(instance(site.caller(), n, watch, SETTLE_SECONDS + counted));
    }
    until(watch, SETTLE_SECONDS).await;
    let before = site.authority_metrics().await?;
    until(watch, SETTLE_SECONDS + AROUND_SECONDS).await;
    site.stop_authority().await;
    until(watch, SETTLE_SECONDS + AROUND_SECONDS + OUTAGE_SECONDS).await;
    // The counts are this process's: they go on where they were.
    site.start_authority().await?;
    let all = instances.join_all().await;
    let after = site.authority_metrics().await?;
    let since = |names| committed(&after, names) - committed(&before, names);
    site.stop().await;
    let errors: u32 = all.iter().map(|seen| seen.errors).sum();
    let issued: f64 = all.iter().map(|seen| f64::from(seen.answered) * f64::from(BATCH)).sum();
    let times: Vec<f64> = all.into_iter().flat_map(|seen| seen.times).collect();
    let ids = times.len() as f64 * f64::from(BATCH);
    Ok(Run {
        per_second: ids / counted,
        p99_ms: quantile(&times, 0.99).unwrap_or(f64::INFINITY) * 1e3,
        errors: f64::from(errors),
        transactions: since(WRITES) / counted,
        // Of all since the cluster was made: those that fill a region's stock come first.
        share: (committed(&after, GRANTS) - committed(&first, GRANTS)) / issued * 1e6,
    })
}

async fn instance(mut caller: Caller, n: u32, watch: Stopwatch, until_s: f64) -> Seen {
    let period = f64::from(BATCH * INSTANCES) / IDS_PER_SECOND;
    let mut due = period * f64::from(n) / f64::from(INSTANCES);
    let mut seen = Seen::default();
    let body = format!("{{\"namespace\":\"{NAMESPACE}\",\"count\":{BATCH}}}");
    while due < until_s {
        until(watch, due).await;
        let answered = caller.ask(&body).await;
        seen.answered += u32::from(matches!(answered, Ok(200)));
        if due >= SETTLE_SECONDS {
            match answered {
                Ok(200) => seen.times.push(watch.seconds() - due),
                Ok(_) | Err(_) => seen.errors += 1,
            }
        }
        due += period;
    }
    seen
}

async fn until(watch: Stopwatch, seconds: f64) {
    let left = Duration::try_from_secs_f64(seconds - watch.seconds()).unwrap_or_default();
    tokio::time::sleep(left).await;
}

/// How many of these units the authority committed, as its metrics count them.
fn committed(metrics: &str, names: &[&str]) -> f64 {
    let counts = metrics.lines().filter(|line| line.starts_with("cadastre_db_transactions_total{"));
    let counts = counts.filter(|line| line.contains("outcome=\"committed\""));
    let counts = counts.filter(|line| names.iter().any(|name| line.contains(&format!("name=\"{name}\""))));
    counts.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_counted_by_name() {
        let metrics = "cadastre_db_transactions_total{name=\"hear\",outcome=\"committed\"} 7\n\
                       cadastre_db_transactions_total{name=\"hear\",outcome=\"conflict\"} 2\n\
                       cadastre_db_transactions_total{name=\"grant\",outcome=\"committed\"} 3\n\
                       cadastre_db_transactions_total{name=\"answer\",outcome=\"committed\"} 9\n";
        assert_eq!((committed(metrics, WRITES), committed(metrics, GRANTS)), (10.0, 3.0));
    }
}
