//! Tables for people: no lines, a header, numbers to the right.
//!
//! Invariant: a row is one line, however narrow the terminal, so that `awk`, `grep` and a mouse get whole
//! cells.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Row, Table as Comfy, presets};

/// Which way a column is aligned.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table with a header.
pub struct Table {
    comfy: Comfy,
    aligns: Vec<Align>,
}

impl Table {
    /// An empty table; a column's name that begins with `>` is a column of numbers.
    pub fn new(columns: &[&str]) -> Self {
        let mut comfy = Comfy::new();
        comfy.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        let aligns: Vec<Align> =
            columns.iter().map(|name| if name.starts_with('>') { Align::Right } else { Align::Left }).collect();
        let mut table = Self { comfy, aligns };
        let header = table.cells(columns.iter().map(|name| name.trim_start_matches('>').to_uppercase()).collect());
        table.comfy.set_header(header);
        table
    }

    /// One more row.
    pub fn row(&mut self, cells: Vec<String>) {
        let row = self.cells(cells);
        self.comfy.add_row(row);
    }

    fn cells(&self, cells: Vec<String>) -> Row {
        let cell = |(text, align): (String, &Align)| {
            Cell::new(text).set_alignment(match align {
                Align::Left => CellAlignment::Left,
                Align::Right => CellAlignment::Right,
            })
        };
        cells.into_iter().zip(&self.aligns).map(cell).collect::<Vec<Cell>>().into()
    }

    /// The table's text; `nothing` where it has no rows.
    pub fn text(&self, nothing: &str) -> String {
        if self.comfy.is_empty() {
            return nothing.to_owned();
        }
        // Without lines the first column would stand one space in.
        let lines: Vec<String> =
            self.comfy.lines().map(|line| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned()).collect();
        lines.join("\n")
    }

    /// Prints it.
    pub fn print(&self, nothing: &str) {
        super::line(self.text(nothing));
    }
}

/// Name and value, one a line, the values under each other.
pub fn pairs(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: Vec<String> = pairs.iter().map(|(name, value)| format!("{name:<width$}  {value}")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right_and_nothing_is_said_as_such() {
        let mut table = Table::new(&["name", ">left"]);
        assert_eq!(table.text("none yet"), "none yet");
        table.row(vec!["orders".into(), "1,000".into()]);
        table.row(vec!["x".into(), "7".into()]);
        assert_eq!(table.text(""), "NAME     LEFT\norders  1,000\nx           7");
        assert_eq!(pairs(&[("a", "1".into()), ("long", "2".into())]), "a     1\nlong  2");
    }
}
