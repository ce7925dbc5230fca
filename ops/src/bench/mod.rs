//! `cadastre bench`: this machine against itself and against peers, in one run.
//!
//! | room | what |
//! |---|---|
//! | `rows` | every row: what it measures, against what, and its target |
//! | `rounds` | contenders in turns (A B A B), medians and spread |
//! | `in_process`, `peers` | the cursor against what else one could write, without a network |
//! | `stamped` | ids that carry the time, likewise |
//! | `served` | a cluster of our own and peers as processes, driven by wrk and redis-benchmark |
//! | `grants`, `postgres`, `sql` | grants on a PostgreSQL of the bench's own, against a hot row on the same one |
//! | `agents`, `worked` | an agent as a process: its start, its memory, and the worked case with an outage in it |
//! | `site`, `caller` | the small cluster and the caller that those need |
//! | `page` | docs/performance.md, with a plot |
//!
//! Invariant: every figure of a row comes from the same run, contenders in turns, none of them tuned for it;
//! a peer is started by the bench, never quoted. Absent on purpose: an opinion (a row that misses its target says
//! so), and a place in the tests: no test asserts a time.

pub mod agents;
mod caller;
mod grants;
mod in_process;
mod page;
pub mod peers;
mod postgres;
mod rounds;
mod rows;
mod served;
mod site;
mod sql;
mod stamped;
mod worked;

use serde_json::json;

use crate::cli::{BenchArgs, Common};
use crate::error::{CliError, Outcome};
use crate::show::{self, table::Table};
use rounds::Result as Measured;
use rows::{Kind, ROWS, Row};

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Turns of each contender.
    pub rounds: u32,
    /// One turn of a contender without a network, in milliseconds.
    pub turn_ms: u64,
    /// One turn over a socket, in seconds.
    pub load_seconds: u32,
}

/// A row that was run.
pub struct Done {
    row: &'static Row,
    result: Measured,
}

impl Done {
    fn ratio(&self) -> f64 {
        self.row.against.and_then(|peer| self.result.median(peer)).map_or(0.0, |peer| self.result.ours() / peer)
    }

    /// What the target is compared with: the ratio, or the figure itself where there is no peer.
    fn reached(&self) -> f64 {
        if self.row.against.is_some() { self.ratio() } else { self.result.ours() }
    }

    fn holds(&self) -> bool {
        if self.row.less_is_better { self.reached() <= self.row.target } else { self.reached() >= self.row.target }
    }

    fn json(&self, machine: &str) -> serde_json::Value {
        json!({
            "name": self.row.name, "unit": self.row.unit, "ours": self.result.ours(), "peers": self.result.peers(),
            "limit": self.row.limit.and_then(|peer| self.result.median(peer)), "ratio": self.ratio(),
            "target": self.row.target, "holds": self.holds(), "spread": self.result.spread(), "machine": machine,
        })
    }
}

/// What several rows share: started, or measured, by the first that needs it.
#[derive(Default)]
struct Rooms {
    served: served::Served,
    grants: grants::Grants,
    worked: worked::Worked,
}

impl Rooms {
    async fn run(&mut self, kind: Kind, effort: Effort) -> Result<Measured, CliError> {
        match kind {
            Kind::InProcess(threads, contenders) => Ok(in_process::run(threads, contenders, effort)),
            Kind::Served(load) => self.served.run(load, effort).await,
            Kind::Grants(standby, figure) => {
                // Its peer must not share the machine with a cluster that idles.
                std::mem::take(&mut self.served).stop().await;
                self.grants.run(standby, figure, effort).await
            }
            Kind::Start(authority) => agents::start(authority, effort).await,
            Kind::Idle { namespaces } => agents::idle(namespaces, effort).await,
            Kind::Memory { namespaces, hot } => agents::memory(namespaces, hot, effort).await,
            Kind::Worked(figure) => self.worked.run(figure).await,
        }
    }
}

/// Runs the rows that were named, or all.
///
/// # Errors
/// Where a row is unknown, or what it needs cannot be started.
pub async fn run(common: &Common, args: BenchArgs) -> Result<Outcome, CliError> {
    if args.list {
        list();
        return Ok(Outcome::Done);
    }
    let rows = chosen(&args.rows)?;
    let effort = Effort { rounds: args.rounds, turn_ms: args.turn_ms, load_seconds: args.load_seconds };
    let machine = page::machine();
    let mut rooms = Rooms::default();
    let mut done = Vec::new();
    for row in rows {
        eprintln!("{}: {}", row.name, row.what);
        let result = rooms.run(row.kind, effort).await?;
        let ran = Done { row, result };
        if common.json {
            show::line(ran.json(&machine).to_string());
        }
        done.push(ran);
    }
    rooms.served.stop().await;
    if !common.json {
        show::line(table(&done));
        show::line(format!("\n{machine}; {} turns of each contender, medians", effort.rounds));
    }
    if let Some(path) = &args.write {
        page::write(path, &done, &machine, effort)?;
        eprintln!("written to {}", path.display());
    }
    Ok(Outcome::Done)
}

fn chosen(names: &[String]) -> Result<Vec<&'static Row>, CliError> {
    for name in names {
        if !ROWS.iter().any(|row| row.name.starts_with(name.as_str())) {
            return Err(CliError::Usage(format!("there is no row {name}; `cadastre bench --list` shows them")));
        }
    }
    let wanted = |row: &&Row| names.is_empty() || names.iter().any(|name| row.name.starts_with(name.as_str()));
    Ok(ROWS.iter().filter(wanted).collect())
}

fn list() {
    let mut table = Table::new(&["row", "unit", "against", ">target", "what"]);
    for row in ROWS {
        table.row(vec![
            row.name.to_owned(),
            row.unit.to_owned(),
            row.against.unwrap_or("-").to_owned(),
            row.target_text(),
            row.what.to_owned(),
        ]);
    }
    show::line(table.text("nothing"));
}

fn table(done: &[Done]) -> String {
    let mut table =
        Table::new(&["row", ">ours", "unit", "against", ">theirs", ">ratio", ">target", ">spread", "holds"]);
    for ran in done {
        let against = ran.row.against.unwrap_or("-");
        table.row(vec![
            ran.row.name.to_owned(),
            rounds::figure(ran.result.ours()),
            ran.row.unit.to_owned(),
            against.to_owned(),
            ran.result.median(against).map_or("-".to_owned(), rounds::figure),
            if ran.row.against.is_some() { format!("{:.2}", ran.ratio()) } else { "-".to_owned() },
            ran.row.target_text(),
            format!("{:.0} %", ran.result.spread() * 100.0),
            if ran.holds() { "yes" } else { "NO" }.to_owned(),
        ]);
    }
    table.text("nothing was run")
}
