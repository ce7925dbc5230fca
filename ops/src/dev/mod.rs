//! `cadastre dev`: an authority and two regions in one process, to try things out.
//!
//! | room | what |
//! |---|---|
//! | `folder` | data and witnesses, and what may be removed |
//! | `file` | `dev.json`, for the CLI and for scripts |
//! | `setup` | first use, over the public API |
//! | `cluster` | the daemons, and the switch in front of each region's uplink |
//! | `banner`, `words`, `progress`, `log`, `stop` | what the person at the terminal sees and does |
//! | `restore` | the drill of a store that is put back |
//! | `demo` | traffic, a cut, and a verdict |
//!
//! Absent on purpose: anything a production cluster needs (see the daemons' own binaries).

mod banner;
mod cluster;
mod demo;
pub mod file;
mod folder;
mod log;
mod ports;
mod progress;
pub mod restore;
pub mod setup;
mod stop;
mod switch;
mod words;

use cadastre_runtime::clock::Stopwatch;

use crate::cli::{Common, DevArgs};
use crate::connect;
use crate::error::{CliError, Outcome};
use crate::show;
use cluster::Cluster;
use folder::Folder;
use progress::Progress;

/// The folder where nobody names another.
pub const DEFAULT_DATA: &str = "./.cadastre";
/// The regions, in the order of their ports.
const REGIONS: [&str; 2] = ["eu", "us"];
/// How often it is looked whether a drill is asked for.
const ASKED_EVERY: std::time::Duration = std::time::Duration::from_millis(250);
/// The namespaces.
const NAMESPACES: [&str; 2] = ["orders", "global"];
/// Who may ask for IDs of both.
const SERVICE: &str = "shop";

/// Runs a dev cluster until it is stopped, or the demonstration.
///
/// # Errors
/// Where a port or the folder cannot be used.
pub async fn run(common: &Common, args: DevArgs) -> Result<Outcome, CliError> {
    let stop =
        stop::on_signals().map_err(|error| CliError::failed(error.to_string(), "signals cannot be caught here"))?;
    if args.demo {
        return demo::run(common, &args, &stop).await;
    }
    let watch = Stopwatch::start();
    let data = connect::data(common);
    let folder = Folder::open(&data, args.reset, |text| eprintln!("{text}"))?;
    log::start(folder.root())?;
    let progress = Progress::start();
    let base = args.base_port.unwrap_or(ports::DEFAULT_BASE);
    let starting = async {
        let cluster = Cluster::start(&folder, base, &progress).await?;
        let troubles = cluster.until_issuing(&progress).await?;
        Ok::<_, CliError>((cluster, troubles))
    };
    let (mut cluster, troubles) = tokio::select! {
        started = starting => started?,
        () = stop.wait() => return Ok(Outcome::Done),
    };
    progress.end();
    cluster.file.write(folder.root())?;
    if common.json {
        show::line(serde_json::to_string(&cluster.file).unwrap_or_default());
    } else {
        show::line(banner::text(&cluster.file, &data, watch.seconds(), cluster.fresh));
    }
    for trouble in troubles {
        eprintln!("\ncadastre: {trouble}");
    }
    let (mut words, _open) = words::typed();
    loop {
        tokio::select! {
            () = stop.wait() => break,
            Some(word) = words.recv() => eprintln!("{}", word.act(&cluster)),
            () = tokio::time::sleep(ASKED_EVERY) => {
                if let Some(order) = restore::asked(&folder) {
                    restore::hold(&mut cluster, &folder, order).await;
                }
            }
        }
    }
    eprintln!("\nstopping");
    cluster.shutdown().await;
    Ok(Outcome::Done)
}
