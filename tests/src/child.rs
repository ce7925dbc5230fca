//! A process as the harness holds it: one group of its own, signals to all of it, bounded waits.
//!
//! Every process starts as leader of a new group, so a wrapper (strace, setpriv) and what it wraps get
//! the same signals, and a person's Ctrl-C reaches the test alone. Descendants that left the group, as
//! PostgreSQL's do, are found by their parent.

use crate::scratch;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A started process. Dropped, it is killed.
pub struct Managed {
    name: String,
    pid: Pid,
    state: Mutex<State>,
}

enum State {
    Running(Child),
    Ended(ExitStatus),
}

impl Managed {
    /// Starts `command`; `signal` is what the watchdog begins with should this test die (`KILL`, `QUIT`).
    pub fn start(name: &str, mut command: Command, signal: &str) -> Self {
        scratch::arm();
        let child = command
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("{name} does not start: {error} ({command:?})"));
        scratch::register(child.id(), signal);
        let pid = Pid::from_raw(child.id() as i32);
        Self { name: name.to_owned(), pid, state: Mutex::new(State::Running(child)) }
    }

    /// The process's number (a wrapper's, where there is one).
    pub fn pid(&self) -> u32 {
        self.pid.as_raw() as u32
    }

    /// How it ended, if it did.
    pub fn status(&self) -> Option<ExitStatus> {
        let mut state = self.state.lock().unwrap_or_else(|broken| broken.into_inner());
        let ended = match &mut *state {
            State::Ended(status) => return Some(*status),
            State::Running(child) => child.try_wait().expect("a child can be waited for")?,
        };
        scratch::forget(self.pid());
        *state = State::Ended(ended);
        Some(ended)
    }

    /// Whether it still runs (a paused one does).
    pub fn is_alive(&self) -> bool {
        self.status().is_none()
    }

    /// Its exit code; 128 + signal where a signal ended it, as a shell says; None while it runs.
    pub fn exit_code(&self) -> Option<i32> {
        let status = self.status()?;
        status.code().or_else(|| status.signal().map(|signal| 128 + signal))
    }

    /// A signal to the leader alone.
    pub fn signal(&self, signal: Signal) {
        if self.is_alive() {
            let _ = kill(self.pid, signal);
        }
    }

    /// A signal to all of it; the descendants that got it.
    pub fn signal_all(&self, signal: Signal) -> Vec<Pid> {
        if !self.is_alive() {
            return Vec::new();
        }
        // A stopped leader starts nothing more: the list is complete. And it is made before the first
        // kill, after which nobody could tell whose the others were.
        if matches!(signal, Signal::SIGKILL | Signal::SIGSTOP) {
            let _ = kill(self.pid, Signal::SIGSTOP);
        }
        let others = descendants(self.pid);
        let _ = killpg(self.pid, signal);
        for pid in &others {
            let _ = kill(*pid, signal);
        }
        others
    }

    /// Every process of it, at once, without a chance to do anything more. Returns when it is gone.
    pub fn kill9(&self) {
        let others = self.signal_all(Signal::SIGKILL);
        assert!(self.wait(Duration::from_secs(20)), "{} survives SIGKILL for 20 s", self.name);
        // They are nobody's children that could be waited for: gone when no longer seen.
        let until = Instant::now() + Duration::from_secs(5);
        while others.iter().any(|pid| runs(*pid)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// SIGSTOP to all of it.
    pub fn pause(&self) {
        self.signal_all(Signal::SIGSTOP);
    }

    /// SIGCONT to all of it.
    pub fn resume(&self) {
        self.signal_all(Signal::SIGCONT);
    }

    /// Blocks until it ended or `bound` passed; whether it ended.
    pub fn wait(&self, bound: Duration) -> bool {
        let until = Instant::now() + bound;
        while self.is_alive() {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(3));
        }
        true
    }

    /// As [`Managed::wait`], leaving the thread to others.
    pub async fn ended_within(&self, bound: Duration) -> bool {
        let until = Instant::now() + bound;
        while self.is_alive() {
            if Instant::now() >= until {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        true
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        if self.is_alive() {
            self.signal_all(Signal::SIGKILL);
            self.wait(Duration::from_secs(20));
        }
    }
}

/// SIGKILL to a process that is not a child of ours, and to its descendants. Returns when they are gone.
pub fn kill_tree(pid: Pid) {
    let _ = kill(pid, Signal::SIGSTOP);
    let mut all = descendants(pid);
    all.push(pid);
    for pid in &all {
        let _ = kill(*pid, Signal::SIGKILL);
    }
    let until = Instant::now() + Duration::from_secs(5);
    while all.iter().any(|pid| runs(*pid)) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Present and not a zombie.
fn runs(pid: Pid) -> bool {
    stat(pid.as_raw()).is_some_and(|(state, _)| state != "Z" && state != "X")
}

/// Children and theirs, from the process table.
fn descendants(pid: Pid) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let table: Vec<(i32, i32)> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(|pid| Some((pid, stat(pid)?.1)))
        .collect();
    let mut found = vec![pid.as_raw()];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(table.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.into_iter().skip(1).map(Pid::from_raw).collect()
}

/// State letter and parent, behind the name, which may hold anything, also parentheses.
fn stat(pid: i32) -> Option<(String, i32)> {
    let line = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = line.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}
