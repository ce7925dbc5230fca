//! `cadastre dev --demo`: traffic in both regions, one of them cut off for a while, and a verdict.
//!
//! Invariants: it runs on a folder of its own unless one is named, so that it never disturbs a running dev
//! cluster; every ID that any caller got is compared with every other. Where the verdict is bad, its
//! folder is kept.

mod report;
mod tally;
mod traffic;

use std::time::Duration;

use cadastre_core::ids::Name;
use cadastre_protocol::admin::{Nothing, Verdict};
use cadastre_protocol::ids::Status;
use cadastre_runtime::clock::Stopwatch;
use cadastre_runtime::http::Shutdown;
use cadastre_runtime::token::Secret;
use tokio::sync::watch;

use super::cluster::Cluster;
use super::folder::Folder;
use super::progress::Progress;
use super::switch::Switch;
use super::{NAMESPACES, REGIONS, log, setup};
use crate::api::{Api, typed};
use crate::cli::{Common, DevArgs};
use crate::error::{CliError, Outcome};
use crate::show;
use crate::show::human::duration;
use report::{CutReport, Report};
use tally::{Shared, Tally};
use traffic::Phase;

/// How long the link may take to be up again once it is healed.
const HEAL_WITHIN_SECONDS: f64 = 15.0;
/// Between two looks at the cut region.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Runs the demonstration.
///
/// # Errors
/// Where the cluster cannot be started or is stopped from outside.
pub async fn run(common: &Common, args: &DevArgs, stop: &Shutdown) -> Result<Outcome, CliError> {
    let temporary = match common.data {
        Some(_) => None,
        None => Some(
            tempfile::tempdir()
                .map_err(|error| CliError::failed(error.to_string(), "set TMPDIR to a place with room"))?,
        ),
    };
    let data = match (&common.data, &temporary) {
        (Some(data), _) => data.clone(),
        (None, Some(folder)) => folder.path().join("cluster"),
        (None, None) => super::DEFAULT_DATA.into(),
    };
    let folder = Folder::open(&data, args.reset, |text| eprintln!("{text}"))?;
    log::start(folder.root())?;
    let progress = Progress::start();
    let report = act(&folder, args, &progress, common.json, stop).await?;
    progress.end();
    if common.json {
        show::line(report.json().to_string());
    } else {
        show::line(report.text());
    }
    if !report.is_good()
        && let Some(folder) = temporary
    {
        eprintln!("the cluster's data is kept in {}", folder.keep().display());
    }
    Ok(Outcome::found(!report.is_good()))
}

async fn act(
    folder: &Folder,
    args: &DevArgs,
    progress: &Progress,
    json: bool,
    stop: &Shutdown,
) -> Result<Report, CliError> {
    let cluster = Cluster::start(folder, args.base_port.unwrap_or(0), progress).await?;
    let playing = async {
        let troubles = cluster.until_issuing(progress).await?;
        if troubles.is_empty() {
            play(&cluster, args, progress, json).await
        } else {
            Err(CliError::failed(troubles.join("\n"), format!("look into {}", folder.path(log::NAME).display())))
        }
    };
    let report = tokio::select! {
        report = playing => report,
        () = stop.wait() => Err(CliError::failed("stopped before the end", "run it again")),
    };
    progress.say("stopping");
    cluster.shutdown().await;
    report
}

/// The three parts of the play, in seconds.
fn parts(seconds: u32) -> [Duration; 3] {
    let seconds = f64::from(seconds);
    [0.3, 0.45, 0.25].map(|share| Duration::from_secs_f64(seconds * share))
}

async fn play(cluster: &Cluster, args: &DevArgs, progress: &Progress, json: bool) -> Result<Report, CliError> {
    let [before, during, after] = parts(args.seconds);
    let [.., cut_region] = REGIONS;
    let cut_region = setup::name(cut_region)?;
    let uplink = cluster.uplink(&cut_region).ok_or_else(|| fault("the region to be cut off is missing"))?;
    if !json {
        progress.line(&format!(
            "Traffic in {} for {}; after {} {cut_region} is cut off from the authority, for {}.",
            REGIONS.join(" and "),
            duration(u64::from(args.seconds)),
            seconds(before),
            seconds(during),
        ));
    }
    let phase = watch::Sender::new(Phase::Before);
    let shared = Shared::default();
    let mut callers = traffic::start(&cluster.file, &shared, &phase)?;
    let scene = Scene { cluster, shared: &shared, progress, cut_region: &cut_region };
    scene.wait(before, "both regions issue").await;
    let cut = scene.cut(uplink, &phase, during, json).await?;
    scene.wait(after, "both regions issue again").await;
    phase.send_replace(Phase::Over);
    let mut tally = Tally::default();
    while let Some(caller) = callers.join_next().await {
        let (region, got) = caller.map_err(|error| fault(&error.to_string()))?;
        tally.add(&region, got);
    }
    progress.say("comparing every ID with every other, and verifying the ledgers");
    let duplicates = tally.duplicates().await.map_err(|error| fault(&error.to_string()))?;
    let verdict = verify(cluster).await?;
    Ok(Report::new(&tally, cut, duplicates, verdict))
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

fn fault(what: &str) -> CliError {
    CliError::failed(what, "this is a fault of ours")
}

/// The ledgers of both tiers; a region that was just healed may need a moment to be reachable.
async fn verify(cluster: &Cluster) -> Result<Verdict, CliError> {
    let file = &cluster.file.authority;
    let api = Api::new(&file.url, Some(Secret::new(file.operator_token.clone())))?;
    let watch = Stopwatch::start();
    loop {
        let verdict: Verdict = typed(api.post("/v1/audit/verify", &Nothing {}).await?)?;
        if verdict.unreachable.is_empty() || watch.seconds() > HEAL_WITHIN_SECONDS {
            return Ok(verdict);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What is watched while the callers call.
struct Scene<'a> {
    cluster: &'a Cluster,
    shared: &'a Shared,
    progress: &'a Progress,
    cut_region: &'a Name,
}

impl Scene<'_> {
    async fn wait(&self, time: Duration, what: &str) {
        let watch = Stopwatch::start();
        while watch.seconds() < time.as_secs_f64() {
            self.progress.say(&format!("{what}: {}", self.shared.words()));
            tokio::time::sleep(LOOK_EVERY.min(time)).await;
        }
    }

    /// Cuts, watches, heals, and waits until the link is up again.
    async fn cut(
        &self,
        uplink: &Switch,
        phase: &watch::Sender<Phase>,
        time: Duration,
        json: bool,
    ) -> Result<CutReport, CliError> {
        let api = self.agent()?;
        let say = |text: String| {
            if !json {
                self.progress.line(&text);
            }
        };
        uplink.cut();
        phase.send_replace(Phase::Cut);
        let watch = Stopwatch::start();
        let first = runway(&status(&api).await?);
        let region = self.cut_region;
        say(format!("  cut   {region} is on its own; at this rate it can go on for {}", words(first)));
        let mut last = first;
        while watch.seconds() < time.as_secs_f64() {
            let left = Duration::from_secs_f64((time.as_secs_f64() - watch.seconds()).max(0.0));
            tokio::time::sleep(LOOK_EVERY.min(left)).await;
            last = runway(&status(&api).await?);
            let alone = format!("{region} on its own, runway {}", words(last));
            self.progress.say(&format!("{alone}: {}", self.shared.words()));
        }
        let noticed = status(&api).await?.uplink.state != "up";
        phase.send_replace(Phase::After);
        let cut_seconds = watch.seconds();
        uplink.heal();
        let watch = Stopwatch::start();
        let mut healed = None;
        while healed.is_none() && watch.seconds() < HEAL_WITHIN_SECONDS {
            if !noticed || status(&api).await?.uplink.state == "up" {
                healed = Some(watch.seconds());
            } else {
                tokio::time::sleep(LOOK_EVERY / 5).await;
            }
        }
        match healed {
            Some(after) => {
                say(format!("  heal  after {cut_seconds:.1} s; the authority was heard again {after:.1} s later"))
            }
            None => say(format!("  heal  after {cut_seconds:.1} s; but the authority is still not heard")),
        }
        let region = region.clone();
        Ok(CutReport { region, seconds: cut_seconds, runway_first: first, runway_last: last, healed })
    }

    fn agent(&self) -> Result<Api, CliError> {
        let region = self.cluster.file.regions.iter().find(|region| region.name == *self.cut_region);
        let region = region.ok_or_else(|| fault("the region to be cut off is missing"))?;
        Api::new(&region.url, Some(Secret::new(self.cluster.file.service_token.clone())))
    }
}

async fn status(api: &Api) -> Result<Status, CliError> {
    typed(api.get("/v1/status").await?)
}

/// How long the region lasts: its shortest namespace. `None` where no rate is known.
fn runway(status: &Status) -> Option<u64> {
    let ours = status.namespaces.iter().filter(|namespace| NAMESPACES.contains(&namespace.namespace.as_str()));
    ours.filter_map(|namespace| namespace.runway_region_seconds).min()
}

fn words(runway: Option<u64>) -> String {
    runway.map_or_else(|| "as long as nobody asks".to_owned(), duration)
}
