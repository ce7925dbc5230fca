//! Output for people: numbers, times, tables, and the one way to standard output.
//!
//! Invariant: a reader that goes away (`| head`) is no error. Absent on purpose: colours, which say
//! nothing that a word does not.

pub mod human;
pub mod table;

use std::io::{IsTerminal, Write};

use serde_json::Value;

use crate::error::CliError;

/// Writes a line to standard output.
pub fn line(text: impl AsRef<str>) {
    // A closed pipe: nobody reads any more.
    let _ = writeln!(std::io::stdout().lock(), "{}", text.as_ref());
}

/// The API's JSON, indented where a person looks at it.
pub fn json(value: &Value) {
    if std::io::stdout().is_terminal() {
        line(format!("{value:#}"));
    } else {
        line(value.to_string());
    }
}

/// Asks before something that cannot simply be taken back: only where a person is there to answer.
///
/// # Errors
/// Where the answer is not yes.
pub fn confirm(what: &str, yes: bool) -> Result<(), CliError> {
    if yes || !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(());
    }
    eprint!("{what}\nGo on? [y/N] ");
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    if read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(CliError::failed("nothing was done", "answer y, or add --yes"))
}
