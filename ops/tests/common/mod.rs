//! The built command, and a dev cluster that a test starts and stops.

#![allow(dead_code, reason = "each test file uses a part")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// The command, without what the caller's environment says about another cluster.
pub fn cadastre(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cadastre"));
    let ours = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CADASTRE_"));
    for (name, _) in ours {
        command.env_remove(name);
    }
    command.current_dir(folder).stdin(Stdio::null());
    command
}

/// A running `cadastre dev --json --base-port 0`; dropped, it is killed.
pub struct Dev {
    child: Child,
    folder: PathBuf,
    lines: Option<BufReader<std::process::ChildStdout>>,
    /// What it said when it was up.
    pub file: Value,
}

impl Dev {
    /// Starts it on `folder/.cadastre` and waits until it is up.
    pub fn start(folder: &Path, flags: &[&str]) -> Self {
        let mut child = cadastre(folder)
            .args(["dev", "--json", "--base-port", "0"])
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let file = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        Self { child, folder: folder.to_owned(), lines: Some(lines), file }
    }

    /// One more run of the command, against this cluster.
    pub fn run(&self, line: &str) -> Output {
        cadastre(&self.folder).args(line.split_whitespace()).output().unwrap()
    }

    /// The same with `--json`, which must succeed.
    pub fn json(&self, line: &str) -> Value {
        let output = self.run(&format!("--json {line}"));
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {} {err}", output.status);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Types a line into it.
    pub fn type_line(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Asks again and again until `is` holds of the answer.
    pub fn until(&self, line: &str, is: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..150 {
            let answer = self.json(line);
            if is(&answer) {
                return answer;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("{line}: not so after 15 s: {}", self.json(line));
    }

    /// Stops it as Ctrl-C does; its exit code.
    pub fn stop(mut self) -> Option<i32> {
        self.lines = None;
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // Gone already where it was stopped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
