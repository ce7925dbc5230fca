//! The drill of a store that is put back: this dev cluster's own authority is stopped, a copy of its store that was taken
//! earlier is put in its place, and it is started again.
//!
//! Invariants: it is asked for by a file in the dev cluster's folder, which nothing but `cadastre dev` reads, so that no
//! live authority can be asked; every id that a caller got is compared with every other; the store that was replaced is
//! renamed, not removed, until the copy is in place, and a start puts it back where that was cut short.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cadastre_core::drill::Outcome as Judged;
use cadastre_protocol::admin::{Headroom, NewService, Verdict};
use cadastre_runtime::clock::Stopwatch;
use cadastre_runtime::token::Secret;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::file::{io, write_private};
use super::folder::Folder;
use super::setup;
use crate::api::{Api, typed};
use crate::error::CliError;

/// Who asks, in the folder.
pub const ASKED: &str = "drill-restore";
/// What is told, in the folder.
pub const TOLD: &str = "drill-restore.json";
/// The namespace and the service that it is rehearsed with: grants are small, so that there are some soon.
const REHEARSED: &str = "restore-drill";
/// Numbers in a grant of it.
const GRANT: u64 = 1_000;
/// For each thing that is waited for.
const WITHIN_SECONDS: f64 = 60.0;
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Requests until every region was granted more.
const MOST_REQUESTS: usize = 400;

/// What the command reads.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Told {
    /// Which order it answers.
    pub asked: String,
    /// What happened, in plain words.
    pub lines: Vec<String>,
    /// How it went, once it is over.
    pub verdict: Option<Judged>,
    /// What did not hold.
    pub why: Vec<String>,
}

/// The order that waits in the folder, if any: it is taken.
pub fn asked(folder: &Folder) -> Option<String> {
    let path = folder.path(ASKED);
    let text = std::fs::read_to_string(&path).ok()?;
    std::fs::remove_file(&path).ok()?;
    Some(text.trim().to_owned())
}

/// Puts a store back that was cut short of being replaced.
///
/// # Errors
/// When the file system says no.
pub fn finish(store: &Path) -> Result<(), CliError> {
    let old = aside(store);
    if old.exists() && !store.exists() {
        std::fs::rename(&old, store).map_err(|error| io(&old, &error))?;
    }
    Ok(())
}

fn aside(store: &Path) -> PathBuf {
    store.with_extension("replaced")
}

/// One rehearsal: with the witness of the authority, or with one that was put back as well.
struct Round<'a> {
    folder: &'a Folder,
    told: &'a mut Told,
    api: Api,
    token: String,
    ids: BTreeSet<String>,
}

/// Holds the drill, and keeps its report with the authority.
pub async fn hold(cluster: &mut Cluster, folder: &Folder, order: String) -> Told {
    let mut told = Told { asked: order, ..Told::default() };
    let began = Stopwatch::start();
    let mut seconds = (0.0, None);
    if let Err(error) = rounds(cluster, folder, &mut told, &mut seconds).await {
        told.why.push(error.to_string());
    }
    if !cluster.is_up()
        && let Err(error) = cluster.start_authority_again(folder).await
    {
        told.why.push(error.to_string());
    }
    say(folder, &mut told, format!("over after {:.1} s", began.seconds()));
    let region = setup::name(super::REGIONS[0]);
    if let (Some(authority), Ok(region)) = (cluster.service(), region) {
        match authority.keep_restored(region, told.lines.clone(), told.why.clone(), seconds).await {
            Ok(view) => {
                told.verdict = view.report.as_ref().map(|report| report.verdict);
                told.why = view.report.map(|report| report.why).unwrap_or_default();
            }
            Err(error) => told.why.push(format!("the report could not be kept: {error}")),
        }
    }
    told.verdict.get_or_insert(Judged::Failed);
    write(folder, &told);
    told
}

async fn rounds(
    cluster: &mut Cluster,
    folder: &Folder,
    told: &mut Told,
    seconds: &mut (f64, Option<f64>),
) -> Result<(), CliError> {
    let operator = Secret::new(cluster.file.authority.operator_token.clone());
    let api = Api::new(&cluster.file.authority.url, Some(operator))?;
    let name = setup::name(REHEARSED)?;
    let policy = json!({"grant_size": "1000", "grant_max": "1000", "region_max_held": "3000", "segment_min": "100",
        "segment_max": "100", "target_seconds": 1, "grant_target_seconds": 60, "buffer_seconds": 0});
    let body = json!({"name": REHEARSED, "kind": "range", "policy": policy});
    setup::unless_there(api.post("/v1/namespaces", &body).await)?;
    let new = NewService { name: name.clone(), namespaces: vec![name], limits: Default::default() };
    let token = setup::service(&api, &new).await?;
    let mut round = Round { folder, told, api, token, ids: BTreeSet::new() };
    for with_witness in [false, true] {
        let (away, healed) = round.hold(cluster, with_witness).await?;
        *seconds = (seconds.0 + away, Some(seconds.1.unwrap_or(0.0_f64).max(healed)));
    }
    Ok(())
}

impl Round<'_> {
    fn say(&mut self, text: impl Into<String>) {
        say(self.folder, self.told, text.into());
    }

    fn broken(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.say(format!("this did not hold: {text}"));
        self.told.why.push(text);
    }

    async fn hold(&mut self, cluster: &mut Cluster, with_witness: bool) -> Result<(f64, f64), CliError> {
        let (store, witness) = self.folder.authority();
        let copy = tempfile::tempdir_in(self.folder.root()).map_err(|error| io(self.folder.root(), &error))?;
        self.ask(cluster, 50).await?;
        cluster.stop_authority(&[&store, &witness]).await?;
        copy_all(&store, &copy.path().join("store"))?;
        let kept = copy.path().join("witness");
        copy_family(&witness, &kept)?;
        cluster.start_authority_again(self.folder).await?;
        self.say("a copy of the authority's store was taken, as a backup would be");
        let before = self.granted().await?;
        let after = self.until_granted(cluster, before).await?;
        let generation = cluster.generation();
        self.say(format!(
            "then the regions went on: they were granted {} numbers that the copy knows nothing of",
            after.saturating_sub(before)
        ));

        cluster.stop_authority(&[&store, &witness]).await?;
        let watch = Stopwatch::start();
        swap(&store, &copy.path().join("store"))?;
        if with_witness {
            copy_family(&kept, &witness)?;
            self.say("the copy was put back, and the witness's as old: only the regions know what is missing");
        } else {
            self.say("the copy was put back; the witness beside it knows that something is missing");
        }
        cluster.start_authority_again(self.folder).await?;
        let away = watch.seconds();
        let watch = Stopwatch::start();
        if self.until_open(cluster, generation).await? {
            let how = cluster.service().map_or("", |authority| authority.how().as_str());
            self.say(format!(
                "it found out by itself that its store was old ({how}), granted nothing, learned what is missing, and went \
                 on as a new generation"
            ));
        } else {
            self.broken("the authority did not find out that its store was old");
        }
        let known = self.granted().await?;
        self.until_granted(cluster, known).await?;
        let healed = watch.seconds();
        self.say(format!("grants go on; {} ids were given out in all, none of them twice", self.ids.len()));
        let verdict: Verdict = typed(self.api.post("/v1/audit/verify", &json!({})).await?)?;
        if !verdict.ok {
            self.broken(format!("the ledger's check has {} findings", verdict.findings.len()));
        }
        Ok((away, healed))
    }

    /// Waits until grants are given again; whether the store was doubted before: a start of the copy comes to the very
    /// generation that the start before had come to, and only a doubt that was settled to a later one.
    async fn until_open(&mut self, cluster: &Cluster, generation: u64) -> Result<bool, CliError> {
        let (watch, mut seen_shut) = (Stopwatch::start(), false);
        while watch.seconds() < WITHIN_SECONDS {
            let is_open = cluster.service().is_some_and(|authority| authority.is_open());
            if !is_open && !seen_shut {
                self.say("quarantine: nothing is granted; the regions issue from what they hold");
                seen_shut = true;
            }
            if is_open && cluster.generation() > generation {
                return Ok(true);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(false)
    }

    /// How many numbers were granted so far.
    async fn granted(&self) -> Result<u64, CliError> {
        let headroom: Headroom = typed(self.api.get("/v1/headroom").await?)?;
        let here = headroom.namespaces.iter().find(|namespace| namespace.name.as_str() == REHEARSED);
        Ok(here.map_or(0, |namespace| namespace.watermark))
    }

    /// Asks in every region until more than one grant was given.
    async fn until_granted(&mut self, cluster: &Cluster, before: u64) -> Result<u64, CliError> {
        for _ in 0..MOST_REQUESTS {
            self.ask(cluster, 100).await?;
            let now = self.granted().await?;
            if now > before.saturating_add(GRANT) {
                return Ok(now);
            }
        }
        Err(CliError::failed("no further grant was given", "see dev.log in the folder"))
    }

    /// Some ids in every region, waited for.
    async fn ask(&mut self, cluster: &Cluster, count: u32) -> Result<(), CliError> {
        let body = json!({"namespace": REHEARSED, "count": count});
        for region in &cluster.file.regions {
            let api = Api::new(&region.url, Some(Secret::new(self.token.clone())))?;
            let watch = Stopwatch::start();
            let answer = loop {
                match api.post("/v1/ids", &body).await {
                    Ok(answer) => break answer,
                    Err(error) if watch.seconds() > WITHIN_SECONDS => return Err(error),
                    Err(_) => tokio::time::sleep(LOOK_EVERY).await,
                }
            };
            let ids = answer.get("ids").and_then(Value::as_array).cloned().unwrap_or_default();
            let twice: Vec<Value> = ids.into_iter().filter(|id| !self.ids.insert(id.to_string())).collect();
            if let Some(id) = twice.first() {
                self.broken(format!("{} ids came twice, {id} among them", twice.len()));
            }
        }
        Ok(())
    }
}

fn say(folder: &Folder, told: &mut Told, text: String) {
    eprintln!("  restore drill: {text}");
    told.lines.push(text);
    write(folder, told);
}

fn write(folder: &Folder, told: &Told) {
    let text = serde_json::to_string(told).unwrap_or_default();
    if let Err(error) = write_private(&folder.path(TOLD), &text) {
        eprintln!("cadastre: {error}");
    }
}

/// The copy takes the store's place.
fn swap(store: &Path, copy: &Path) -> Result<(), CliError> {
    let old = aside(store);
    std::fs::rename(store, &old).map_err(|error| io(store, &error))?;
    std::fs::rename(copy, store).map_err(|error| io(copy, &error))?;
    std::fs::remove_dir_all(&old).map_err(|error| io(&old, &error))
}

fn copy_all(from: &Path, to: &Path) -> Result<(), CliError> {
    std::fs::create_dir(to).map_err(|error| io(to, &error))?;
    for entry in std::fs::read_dir(from).map_err(|error| io(from, &error))?.flatten() {
        let path = to.join(entry.file_name());
        std::fs::copy(entry.path(), &path).map_err(|error| io(&path, &error))?;
    }
    Ok(())
}

/// A database's file with those beside it; what is there before is gone afterwards.
fn copy_family(from: &Path, to: &Path) -> Result<(), CliError> {
    for end in ["", "-wal", "-shm"] {
        let with = |path: &Path| PathBuf::from(format!("{}{end}", path.display()));
        let (from, to) = (with(from), with(to));
        let done = if from.exists() {
            std::fs::copy(&from, &to).map(|_| ())
        } else if to.exists() {
            std::fs::remove_file(&to)
        } else {
            Ok(())
        };
        done.map_err(|error| io(&to, &error))?;
    }
    Ok(())
}
