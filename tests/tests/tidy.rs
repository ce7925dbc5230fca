//! The habits of this workspace, kept by a test: what a reviewer would otherwise say again and again.
//!
//! Each rule says what to do instead. The scanners are simple on purpose (lines and braces, no parser):
//! a rule that needs a clever exception is better changed. Banned words are put together with `concat!`
//! below, so that this file obeys its own rules.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::path::{Path, PathBuf};
use std::process::Command;

const MAX_FILE: usize = 500;
const MAX_FUNCTION: usize = 70;

/// Files beside `shared/core/src/segment.rs` and `tests/` that may use an atomic, and why.
const ATOMICS: &[(&str, &str)] = &[
    ("ops/src/bench/peers.rs", "what others write, for comparison; gives nothing out"),
    ("shared/core/src/lib.rs", "names what the cursor is made of, so that a model checker can put its own there"),
    ("shared/runtime/src/clock.rs", "the hands of the clock that a test moves"),
    ("shared/client/src/fork.rs", "the word that the kernel empties in a forked child; written once, decides no bound"),
    ("shared/runtime/src/db/sqlx_tx.rs", "counts commits until the SQLite log is next copied; decides no bound"),
    ("shared/runtime/src/db/sqlx_engine.rs", "counts commits until the SQLite log is next copied; decides no bound"),
];

/// Files outside of `tests/` that may read the clock, and why.
const CLOCKS: &[(&str, &str)] = &[
    ("shared/runtime/src/clock.rs", "the one clock of the daemons and the CLI"),
    (
        "shared/client/src/system.rs",
        "the one clock of the client, which does not bring the daemons' crates into programs",
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every file that is, or would be, in the repository: path from the root with `/`, and content.
fn files() -> Vec<(String, String)> {
    let mut names = tracked().unwrap_or_else(|| walk(&root()));
    names.sort();
    let read = |name: String| {
        // Deleted but not yet committed, or not text.
        let text = String::from_utf8(std::fs::read(root().join(&name)).ok()?).ok()?;
        Some((name, text))
    };
    names.into_iter().filter_map(read).collect()
}

fn tracked() -> Option<Vec<String>> {
    let root = root();
    let folder = format!("safe.directory={}", root.display());
    let output = Command::new("git")
        .args(["-c", &folder, "ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(&root)
        .output()
        .ok()?;
    let names = String::from_utf8(output.stdout).ok()?;
    let names: Vec<String> = names.lines().map(str::to_owned).collect();
    (output.status.success() && !names.is_empty()).then_some(names)
}

/// Where there is no git: all but build output and hidden state.
fn walk(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() {
            let skipped = ["target", ".git", ".cadastre", "node_modules"];
            if !skipped.iter().any(|skipped| name == *skipped) {
                names.extend(walk(&path));
            }
        } else {
            names.push(path.strip_prefix(root()).unwrap().display().to_string());
        }
    }
    names
}

fn rust_files() -> Vec<(String, String)> {
    files().into_iter().filter(|(name, _)| name.ends_with(".rs")).collect()
}

fn report(failures: &[String]) {
    assert!(failures.is_empty(), "{} to put right:\n{}", failures.len(), failures.join("\n"));
}

/// One line per use of `word` in files that `applies` names.
fn uses(word: &str, advice: &str, applies: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for (name, text) in rust_files().iter().filter(|(name, _)| applies(name)) {
        for (index, _) in text.lines().enumerate().filter(|(_, line)| line.contains(word)) {
            found.push(format!("{name}:{}: `{word}`: {advice}", index + 1));
        }
    }
    found
}

fn in_tests(name: &str) -> bool {
    name.starts_with("tests/") || name.contains("/tests/") || name.ends_with("/tests.rs")
}

#[test]
fn every_file_begins_with_module_docs() {
    let bare = |(name, text): &(String, String)| {
        (!text.starts_with("//!"))
            .then(|| format!("{name}: begin with `//!`: its purpose, its invariant, what is absent on purpose"))
    };
    report(&rust_files().iter().filter_map(bare).collect::<Vec<_>>());
}

#[test]
fn no_file_is_longer_than_500_lines() {
    let long = |(name, text): &(String, String)| {
        let lines = text.lines().count();
        (lines > MAX_FILE).then(|| format!("{name}: {lines} lines: split it by noun below {MAX_FILE}"))
    };
    report(&rust_files().iter().filter_map(long).collect::<Vec<_>>());
}

#[test]
fn every_function_fits_a_screen() {
    let mut long = Vec::new();
    for (name, text) in rust_files() {
        for (line, function, length) in functions(&text) {
            if length > MAX_FUNCTION {
                long.push(format!(
                    "{name}:{line}: `{function}` has {length} lines: name its parts, below {MAX_FUNCTION}"
                ));
            }
        }
    }
    report(&long);
}

/// Line, name and length of each function. rustfmt puts a function's closing brace alone on a line at
/// the indentation of its head, so the end is the first such line: no string or comment can confuse it
/// unless a raw string holds a lone brace at that very indentation.
fn functions(text: &str) -> Vec<(usize, String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else {
            continue;
        };
        let indent = line.len() - line.trim_start().len();
        let end = format!("{}}}", &line[..indent]);
        // A head without a body (in a trait) ends with `;` before any line opens a brace.
        let body = lines[start..].iter().position(|line| line.ends_with('{') || line.ends_with(';'));
        let Some(body) = body.map(|offset| start + offset) else {
            continue;
        };
        if line.ends_with('}') || lines[body].ends_with(';') {
            continue;
        }
        let length = lines[body..].iter().position(|line| *line == end).map(|at| body + at + 1 - start);
        found.push((start + 1, name, length.unwrap_or(lines.len() - start)));
    }
    found
}

/// `fn name` behind nothing but qualifiers.
fn function_name(line: &str) -> Option<String> {
    let (before, after) = line.trim_start().split_once("fn ")?;
    let qualifier =
        |word: &str| matches!(word, "pub" | "const" | "async" | "unsafe" | "extern") || word.starts_with("pub(");
    if !before.split_whitespace().all(qualifier) {
        return None;
    }
    let name: String = after.chars().take_while(|it| it.is_alphanumeric() || *it == '_').collect();
    (!name.is_empty()).then_some(name)
}

#[test]
fn the_function_scanner_counts() {
    let text = "fn one() {\n    a();\n}\npub async fn two(\n    b: u8,\n) -> u8 {\n    b\n}\nfn none();\n";
    let text = format!("{text}mod m {{\n    pub(crate) fn three() {{\n        x\n    }}\n    fn four() {{}}\n}}\n");
    let found: Vec<(usize, String, usize)> = functions(&text);
    let expected = [(1, "one", 3), (4, "two", 5), (11, "three", 3)];
    assert_eq!(found, expected.map(|(line, name, length)| (line, name.to_owned(), length)));
}

/// A name in the environment that no program knows is refused at the start: so the list of those that are known is whole.
#[test]
fn every_setting_is_known_by_its_name() {
    let mut findings = Vec::new();
    let mut found = 0;
    for (path, text) in rust_files() {
        for rest in text.split("env = \"").skip(1) {
            let name: String = rest.chars().take_while(|c| *c != '"').collect();
            if !name.starts_with("CADASTRE_") {
                continue;
            }
            found += 1;
            if !cadastre_runtime::config::environment::NAMES.contains(&name.as_str()) {
                findings.push(format!("{path}: {name} is missing in shared/runtime/src/config/environment.rs"));
            }
        }
    }
    assert!(found > 20, "{found}");
    report(&findings);
}

#[test]
fn nothing_is_left_undone() {
    let mut found = Vec::new();
    for word in [concat!("to", "do!("), concat!("unimple", "mented!("), concat!("FIX", "ME"), concat!("XX", "X")] {
        found.extend(uses(word, "finish it, or leave it out and say so in docs/", |_| true));
    }
    found.extend(uses(concat!("db", "g!("), "take it out, or use `tracing`", |_| true));
    report(&found);
}

#[test]
fn only_the_clock_reads_the_clock() {
    let advice = "take a `Clock` as an argument, or argue for it in CLOCKS of this test";
    let applies = |name: &str| !in_tests(name) && !CLOCKS.iter().any(|(file, _)| *file == name);
    let mut found = uses(concat!("SystemTime", "::now"), advice, applies);
    found.extend(uses(concat!("Instant", "::now"), advice, applies));
    report(&found);
}

#[test]
fn sql_is_written_in_one_place() {
    let advice = "SQL stands in a file `sql.rs`, a folder `sql/` or migrations; call a function of it";
    // The database door itself asks an engine about its settings and keeps the table of migrations.
    let places = ["/sql.rs", "/sql/", "migrations", "shared/runtime/src/db/"];
    let applies = |name: &str| !in_tests(name) && !places.iter().any(|place| name.contains(place));
    let mut found = Vec::new();
    for keyword in ["SELECT ", "INSERT ", "UPDATE ", "DELETE "] {
        found.extend(uses(&format!("\"{keyword}"), advice, applies));
    }
    report(&found);
}

#[test]
fn atomics_stand_where_they_were_argued_for() {
    let advice = "the hand-out of ids is the one place for atomics (shared/core/src/segment.rs); use a \
                  `Mutex`, a channel or `tokio::sync::watch`, or argue for it in ATOMICS of this test";
    let applies = |name: &str| {
        let argued = ATOMICS.iter().any(|(file, _)| *file == name);
        !in_tests(name) && name != "shared/core/src/segment.rs" && !argued
    };
    let mut found = uses("sync::atomic", advice, applies);
    found.extend(uses("AtomicU", advice, applies));
    found.extend(uses("AtomicI", advice, applies));
    found.extend(uses("AtomicBool", advice, applies));
    report(&found);
}

#[test]
fn no_path_of_one_machine_is_in_the_repository() {
    let banned = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
    let mut found = Vec::new();
    for (name, text) in files() {
        for (index, line) in text.lines().enumerate() {
            if banned.iter().any(|path| starts_a_path(line, path)) {
                found.push(format!("{name}:{}: a path of one machine: make it relative", index + 1));
            }
        }
    }
    report(&found);
}

/// Whether `path` stands in the line as the beginning of an absolute path (not the middle of one).
fn starts_a_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|it| it.is_alphanumeric() || matches!(it, '/' | '.' | '_' | '-' | '}' | ':'))
    })
}

#[test]
fn the_core_depends_on_nothing_that_acts() {
    let manifest = std::fs::read_to_string(root().join("shared/core/Cargo.toml")).unwrap();
    let mut section = "";
    let mut found = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
            if line.contains("dependencies.") || line.contains("target.") {
                found.push(format!("{line}: write dependencies of the core as plain lines"));
            }
            continue;
        }
        let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
        let allowed = matches!(name, "" | "serde" | "thiserror" | "uuid") || name.starts_with('#');
        if section == "[dependencies]" && !allowed {
            found.push(format!(
                "shared/core/Cargo.toml: `{name}`: the core is pure (serde, thiserror, uuid); take what it \
                 would do as an argument"
            ));
        }
    }
    report(&found);
}
