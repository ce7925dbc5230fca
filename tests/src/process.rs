//! One of our own binaries, run as an operator would run it, and hurt as a machine would hurt it.
//!
//! The binary is the one that cargo built beside this test (same profile). Standard output and error go
//! to a file, printed when the test fails. A [`Daemon`] can be started again after its death with what it
//! had: same environment, same data folder.

use crate::child::Managed;
use crate::http;
use crate::scratch::Scratch;
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What to start and how.
#[derive(Clone, Debug)]
pub struct Spec {
    name: String,
    program: PathBuf,
    prefix: Vec<String>,
    args: Vec<String>,
    env: BTreeMap<String, String>,
}

impl Spec {
    /// One of the workspace's binaries: `global-authority`, `region-agent`, `cadastre`.
    pub fn binary(name: &str) -> Self {
        Self::program(name, built(name))
    }

    /// Any program.
    pub fn program(name: &str, program: impl Into<PathBuf>) -> Self {
        let (prefix, args, env) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self { name: name.to_owned(), program: program.into(), prefix, args, env }
    }

    /// One more argument.
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// One more variable; the caller's own `CADASTRE_*` are never handed on.
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.insert(name.to_owned(), value.into());
        self
    }

    /// Puts a command before it, such as `["strace", "-f", "-qq", "-o", "/dev/null", ...]`.
    pub fn wrapped(mut self, prefix: &[&str]) -> Self {
        self.prefix = prefix.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// A wall clock that `file` moves while the process runs: see [`set_fake_clock`]. The monotonic clock
    /// stays honest, as it does when an administrator sets the time.
    pub fn fake_clock(self, file: &Path) -> Self {
        set_fake_clock(file, "+0");
        self.env("LD_PRELOAD", faketime_library())
            .env("FAKETIME_TIMESTAMP_FILE", file.display().to_string())
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    }
}

/// Moves the clock of every daemon that was started with this file: `-3600`, `+2d`, `+0`.
pub fn set_fake_clock(file: &Path, offset: &str) {
    // Renamed into place: a reader never sees half a line.
    let fresh = file.with_extension("new");
    std::fs::write(&fresh, format!("{offset}\n")).expect("the clock's file can be written");
    std::fs::rename(&fresh, file).expect("the clock's file can be replaced");
}

fn faketime_library() -> String {
    let places = ["x86_64-linux-gnu", "aarch64-linux-gnu", "."];
    places
        .iter()
        .map(|place| format!("/usr/lib/{place}/faketime/libfaketimeMT.so.1"))
        .find(|path| Path::new(path).exists())
        .expect("libfaketime is needed: `ops/test` installs it")
}

/// A binary that cargo built for the profile of this test.
pub fn built(name: &str) -> PathBuf {
    // The test is TARGET/PROFILE/deps/NAME-HASH.
    let test = std::env::current_exe().expect("a test knows its own path");
    let folder = test.parent().and_then(Path::parent).expect("a test lies in TARGET/PROFILE/deps");
    let binary = folder.join(name);
    assert!(
        binary.exists(),
        "{} is not built: run `cargo build --workspace --bins` (`ops/test` does)",
        binary.display()
    );
    binary
}

/// A daemon that was started. Dropped, it is killed; its log is printed if the test is failing.
pub struct Daemon {
    spec: Mutex<Spec>,
    running: Mutex<Option<Managed>>,
    last_exit: Mutex<Option<i32>>,
    folder: Scratch,
}

impl Daemon {
    /// Starts it. `{data}` in a value or argument stands for its data folder.
    pub fn start(spec: Spec) -> Self {
        let folder = Scratch::new(&spec.name);
        std::fs::create_dir(folder.path().join("data")).expect("the folder is ours");
        let daemon = Self { spec: Mutex::new(spec), running: Mutex::new(None), last_exit: Mutex::new(None), folder };
        daemon.start_again();
        daemon
    }

    /// Starts it once more, as it was; kills it before if it still runs.
    pub fn start_again(&self) {
        self.kill9();
        let spec = lock(&self.spec).clone();
        let data = self.data_folder().display().to_string();
        let mut words = spec.prefix.clone();
        words.push(spec.program.display().to_string());
        words.extend(spec.args.iter().map(|arg| arg.replace("{data}", &data)));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("CADASTRE_") {
                command.env_remove(name);
            }
        }
        for (name, value) in &spec.env {
            command.env(name, value.replace("{data}", &data));
        }
        let log = OpenOptions::new().create(true).append(true).open(self.log_path());
        let log = log.expect("the log can be written");
        let errors = log.try_clone().expect("a file can be shared");
        command.current_dir(self.folder.path()).stdin(Stdio::null()).stdout(log).stderr(errors);
        *lock(&self.running) = Some(Managed::start(&spec.name, command, "KILL"));
    }

    /// Changes what the next [`Daemon::start_again`] starts.
    pub fn change(&self, change: impl FnOnce(Spec) -> Spec) {
        let mut spec = lock(&self.spec);
        *spec = change(spec.clone());
    }

    /// Waits until `url` answers 200.
    pub async fn wait_ready(&self, url: &str) {
        let until = Instant::now() + Duration::from_secs(60);
        let client = http::client();
        let mut last = String::new();
        while Instant::now() < until {
            match client.get(url).timeout(Duration::from_secs(2)).send().await {
                Ok(answer) if answer.status() == 200 => return,
                Ok(answer) => {
                    last = format!("{}: {}", answer.status(), answer.text().await.unwrap_or_default());
                }
                Err(error) => last = error.to_string(),
            }
            let name = self.name();
            if let Some(code) = self.exit_code() {
                panic!("{name} ended with {code} before it was ready:\n{}", self.log());
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("{} is not ready after 60 s: {url} says {last}", self.name());
    }

    /// Waits until it ends by itself; whether it did.
    pub async fn ended_within(&self, bound: Duration) -> bool {
        let until = Instant::now() + bound;
        while self.is_alive() && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        !self.is_alive()
    }

    /// SIGTERM and up to 30 s; the exit code.
    pub async fn terminate(&self) -> i32 {
        if let Some(running) = &*lock(&self.running) {
            running.signal_all(Signal::SIGTERM);
        }
        let ended = self.ended_within(Duration::from_secs(30)).await;
        assert!(ended, "{} does not stop within 30 s of SIGTERM", self.name());
        self.exit_code().expect("it ended")
    }

    /// SIGKILL to all of it; returns when it is gone.
    pub fn kill9(&self) {
        if let Some(running) = lock(&self.running).take() {
            running.kill9();
            *lock(&self.last_exit) = running.exit_code();
        }
    }

    /// SIGSTOP: its connections stay open and nothing answers.
    pub fn pause(&self) {
        if let Some(running) = &*lock(&self.running) {
            running.pause();
        }
    }

    /// SIGCONT.
    pub fn resume(&self) {
        if let Some(running) = &*lock(&self.running) {
            running.resume();
        }
    }

    /// The process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        lock(&self.running).as_ref().map(Managed::pid)
    }

    /// Whether it runs (a paused one does).
    pub fn is_alive(&self) -> bool {
        lock(&self.running).as_ref().is_some_and(Managed::is_alive)
    }

    /// How it ended (128 + signal where a signal ended it); None while it runs.
    pub fn exit_code(&self) -> Option<i32> {
        match &*lock(&self.running) {
            Some(running) => running.exit_code(),
            None => *lock(&self.last_exit),
        }
    }

    /// Everything it printed, over all its lives.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// `CADASTRE_DATA`; beside it is where an embedded witness goes by default.
    pub fn data_folder(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("output.log")
    }

    fn name(&self) -> String {
        lock(&self.spec).name.clone()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            // A storm of retries would hide the failure itself: its end tells.
            let from = log.len().saturating_sub(20_000);
            let from = (from..=log.len()).find(|at| log.is_char_boundary(*at)).unwrap_or(0);
            eprintln!("--- {} said:\n{}\n---", self.name(), &log[from..]);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|broken| broken.into_inner())
}
