//! `cadastre layout`: planning the bits of time-based ids. It asks nobody.

use cadastre_core::layout::Layout;
use cadastre_core::layout::plan::{self, Demand};
use serde_json::{Value, json};

use super::{now_ms, print};
use crate::cli::{Common, LayoutArgs};
use crate::error::{CliError, Outcome};
use crate::show;
use crate::show::human::{date, digits, moment};
use crate::show::table::Table;

/// Prints the layouts that fit, side by side; where none does, what would.
///
/// # Errors
/// A layout that cannot be.
pub fn run(common: &Common, args: &LayoutArgs) -> Result<Outcome, CliError> {
    let usual = Layout::default();
    let epoch_ms = args.epoch_ms.unwrap_or_else(|| usual.begins_ms(0));
    if let Some(bits) = args.layout {
        let layout = Layout::new(bits, args.unit_ms, epoch_ms).map_err(|error| CliError::usage(error.to_string()))?;
        print(common, json!({ "layouts": [row(&layout)] }), |_| {
            table(&[layout]);
            Ok(())
        })?;
        return Ok(Outcome::Done);
    }
    let demand = Demand {
        regions: args.regions,
        workers: args.workers,
        years: args.years,
        peak_per_second: args.peak,
        width: args.bits,
    };
    let layouts = plan::layouts(&demand, epoch_ms);
    if layouts.is_empty() {
        return none(common, &demand);
    }
    let answer = json!({ "layouts": layouts.iter().map(row).collect::<Vec<_>>() });
    print(common, answer, |_| {
        table(&layouts);
        if let Some(first) = layouts.first() {
            let [timestamp, region, worker, sequence] = first.bits();
            show::line(format!(
                "\nnext: cadastre namespace create NAME --kind snowflake --layout {timestamp},{region},{worker},{sequence} \
                 --unit-ms {}",
                first.unit_ms()
            ));
        }
        Ok(())
    })
}

fn none(common: &Common, demand: &Demand) -> Result<Outcome, CliError> {
    let lower = plan::lower(demand);
    let answer = json!({
        "layouts": [],
        "lower": lower.iter().map(|l| json!({ "demand": l.demand, "to": l.to.to_string() })).collect::<Vec<_>>(),
    });
    print(common, answer, |_| {
        show::line(format!(
            "no layout of {} bits carries all of that. Lower one of them, the others as they are:",
            demand.width
        ));
        for part in &lower {
            let to = if part.to == 0 { "not enough by itself".to_owned() } else { format!("to {}", digits(part.to)) };
            show::line(format!("  --{} {to}", part.demand));
        }
        Ok(())
    })?;
    Ok(Outcome::Found)
}

fn row(layout: &Layout) -> Value {
    json!({
        "layout": layout,
        "ends_at": layout.ends_ms().to_string(),
        "years": plan::years(layout),
        "regions": layout.slots(),
        "workers": layout.workers(),
        "per_worker_and_unit": layout.per_unit().to_string(),
        "per_worker_and_second": plan::per_second(layout).to_string(),
        "largest_id": layout.largest_id().to_string(),
    })
}

fn table(layouts: &[Layout]) {
    let mut table = Table::new(&[
        "time|region|worker|sequence",
        ">unit",
        ">years",
        "ends",
        ">regions",
        ">workers each",
        ">ids per worker and unit",
        ">and second",
    ]);
    let now = now_ms();
    for layout in layouts {
        let [timestamp, region, worker, sequence] = layout.bits();
        let ends = layout.ends_ms();
        let ended = if ends <= now { format!(" ({})", moment(ends, now)) } else { String::new() };
        table.row(vec![
            format!("{timestamp}|{region}|{worker}|{sequence}"),
            format!("{} ms", layout.unit_ms()),
            digits(plan::years(layout)),
            format!("{}{ended}", date(ends)),
            layout.slots().to_string(),
            digits(layout.workers().into()),
            digits(layout.per_unit()),
            digits(u64::try_from(plan::per_second(layout)).unwrap_or(u64::MAX)),
        ]);
    }
    table.print("no layouts");
}
