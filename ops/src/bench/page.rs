//! docs/performance.md: the table of a run, its machine, and a plot, all written by the run itself.

use std::fmt::Write;
use std::path::Path;

use super::rounds::figure;
use super::{Done, Effort};
use crate::error::CliError;

const HEAD: &str = "# Performance\n\nWritten by `cadastre bench --write docs/performance.md`; run it on your own machine, the ratios are what \
carries over.\nEvery row compares in one run, contenders in turns, medians; the spread is the distance of the quartiles of our own turns.\nOurs runs as \
it is shipped: tokens, limits, metrics and logs on. A row that misses its target says so.\n";

/// The machine and the versions, in a line.
#[must_use]
pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZeroUsize::get);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).and_then(|line| line.split(':').nth(1));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{cores} cores, {}, Linux {}, cadastre {}{}",
        model.map_or("unknown processor", str::trim),
        kernel.trim(),
        env!("CARGO_PKG_VERSION"),
        if cfg!(debug_assertions) { ", A DEBUG BUILD: its figures say nothing" } else { "" },
    )
}

/// What a process used of the processor so far, in its own code and the kernel's, in seconds.
///
/// # Errors
/// Where it cannot be read.
pub fn cpu_seconds(pid: Option<u32>) -> Result<f64, CliError> {
    let stat = pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok());
    // Behind the name, which may have spaces: the 12th and 13th, in ticks.
    let behind = stat.as_deref().and_then(|stat| stat.rsplit_once(')')).map(|(_, rest)| rest);
    let ticks = behind.and_then(|rest| {
        let mut words = rest.split_whitespace().skip(11);
        Some(words.next()?.parse::<f64>().ok()? + words.next()?.parse::<f64>().ok()?)
    });
    let each = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten();
    match (ticks, each) {
        #[allow(clippy::cast_precision_loss)]
        (Some(ticks), Some(each)) => Ok(ticks / each as f64),
        _ => Err(CliError::failed("a process's use of the processor cannot be read", "this row needs Linux")),
    }
}

/// Writes the page, and the plot beside it.
///
/// # Errors
/// Where the file cannot be written.
pub fn write(path: &Path, done: &[Done], machine: &str, effort: Effort) -> Result<(), CliError> {
    let plot = path.with_extension("svg");
    let mut text = String::from(HEAD);
    let _ = write!(
        text,
        "\n{machine}. {} turns of each contender, {} ms without a network, {} s over a socket.\n\n",
        effort.rounds, effort.turn_ms, effort.load_seconds
    );
    text.push_str(
        "| row | what | ours | peers | ratio | target | spread | holds |\n|---|---|--:|---|--:|--:|--:|---|\n",
    );
    for ran in done {
        let peers: Vec<String> =
            ran.result.peers().into_iter().map(|(name, value)| format!("{name} {}", figure(value))).collect();
        let _ = writeln!(
            text,
            "| `{}` | {} | {} {} | {} | {} | {} | {:.0} % | {} |",
            ran.row.name,
            ran.row.what,
            figure(ran.result.ours()),
            ran.row.unit,
            peers.join(", "),
            if ran.row.against.is_some() { format!("{:.2}", ran.ratio()) } else { "-".to_owned() },
            ran.row.target_text(),
            ran.result.spread() * 100.0,
            if ran.holds() { "yes" } else { "**no**" },
        );
    }
    if let Some(name) = plot.file_name() {
        let _ = write!(text, "\n![ours against the peer of each row]({})\n", name.to_string_lossy());
    }
    let written = std::fs::write(path, text).and_then(|()| std::fs::write(&plot, svg(done)));
    written.map_err(|e| CliError::failed(format!("{}: {e}", path.display()), "name a file in a folder that exists"))
}

/// One bar a row: our figure over the peer's; the line is 1.
fn svg(done: &[Done]) -> String {
    let rows: Vec<&Done> = done.iter().filter(|ran| ran.row.against.is_some()).collect();
    let (height, one) = (rows.len() * 26 + 30, 250.0);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"720\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"720\" height=\"{height}\" fill=\"white\"/>\n\
         <line x1=\"{x}\" y1=\"4\" x2=\"{x}\" y2=\"{height}\" stroke=\"#999\" stroke-dasharray=\"3 3\"/>\n",
        x = 150.0 + one
    );
    for (n, ran) in rows.iter().enumerate() {
        let (y, width) = (n * 26 + 10, (ran.ratio() * one).clamp(1.0, 400.0));
        let colour = if ran.holds() { "#2b6cb0" } else { "#c05621" };
        let _ = write!(
            text,
            "<text x=\"142\" y=\"{}\" text-anchor=\"end\">{}</text>\n<rect x=\"150\" y=\"{y}\" width=\"{width:.0}\" height=\"18\" fill=\"{colour}\"/>\n\
             <text x=\"{:.0}\" y=\"{}\">{:.2} x {}</text>\n",
            y + 14,
            ran.row.name,
            158.0 + width,
            y + 14,
            ran.ratio(),
            ran.row.against.unwrap_or(""),
        );
    }
    text.push_str("</svg>\n");
    text
}
