//! A throwaway redis-server, as a witness or as the thing to be compared with.
//!
//! It appends every write to its file with an fsync before it answers, so that a kill loses nothing
//! by mere configuration; say otherwise with an option of Redis's own (later options win).

use crate::child::Managed;
use crate::ports;
use crate::scratch::Scratch;
use nix::sys::signal::Signal;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("the folder is ours");
    for entry in std::fs::read_dir(from).expect("the folder is ours") {
        let entry = entry.expect("the folder is ours");
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_all(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).expect("the folder is ours");
        }
    }
}

const BOUND: Duration = Duration::from_secs(20);

/// A running (or killed, or paused) server of our own.
pub struct Redis {
    port: u16,
    options: Vec<String>,
    server: Mutex<Option<Managed>>,
    // Last: removed after the server that writes in it is gone.
    folder: Scratch,
}

impl Redis {
    /// A durable server.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// With more command line options, such as `["--appendonly", "no"]`.
    pub fn with(options: &[&str]) -> Self {
        let redis = Self {
            port: ports::free(),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            server: Mutex::new(None),
            folder: Scratch::new("redis"),
        };
        redis.launch();
        redis
    }

    /// `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The TCP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sends one command and returns the answer as it comes over the wire (`+PONG`, `:1`, `$5\r\n...`).
    pub fn command(&self, words: &[&str]) -> std::io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        stream.write_all(request.as_bytes())?;
        // QUIT makes the server close after the answers, which spares a parser.
        stream.write_all(b"*1\r\n$4\r\nQUIT\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.strip_suffix("+OK\r\n").unwrap_or(&answer).trim_end().to_owned())
    }

    /// An orderly stop.
    pub fn stop(&self) {
        if let Some(server) = self.take() {
            server.resume();
            server.signal(Signal::SIGTERM);
            assert!(server.wait(BOUND), "redis-server does not stop:\n{}", self.log());
        }
    }

    /// SIGKILL.
    pub fn kill9(&self) {
        if let Some(server) = self.take() {
            server.kill9();
        }
    }

    /// Stops it if it runs, starts it on its files and waits until it answers.
    pub fn restart(&self) {
        self.stop();
        self.launch();
    }

    /// Kills it and returns its files, as a backup would have them. It is not started again.
    pub fn files(&self) -> Scratch {
        self.kill9();
        let copy = Scratch::new("redis-files");
        copy_all(self.folder.path(), copy.path());
        copy
    }

    /// Kills it, puts older files in the place of its own, and starts it on them.
    pub fn put_back(&self, files: &Scratch) {
        self.kill9();
        std::fs::remove_dir_all(self.folder.path()).expect("the folder is ours");
        copy_all(files.path(), self.folder.path());
        self.launch();
    }

    /// SIGSTOP: connections stay open and nothing answers.
    pub fn pause(&self) {
        self.each(Managed::pause);
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.each(Managed::resume);
    }

    /// What the server has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("redis.log")).unwrap_or_default()
    }

    fn take(&self) -> Option<Managed> {
        self.server.lock().unwrap_or_else(|broken| broken.into_inner()).take()
    }

    fn each(&self, act: impl FnOnce(&Managed)) {
        if let Some(server) = &*self.server.lock().unwrap_or_else(|broken| broken.into_inner()) {
            act(server);
        }
    }

    fn launch(&self) {
        let mut command = Command::new("redis-server");
        command
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", "yes", "--appendfsync", "always", "--logfile", "redis.log"])
            .args(&self.options)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let server = Managed::start("redis-server (`ops/test` installs it)", command, "KILL");
        let until = Instant::now() + BOUND;
        // One with a password says so instead, and is there as well.
        let there = |answer: String| answer == "+PONG" || answer.starts_with("-NOAUTH");
        while !self.command(&["PING"]).is_ok_and(there) {
            assert!(server.is_alive(), "redis-server ended at start:\n{}", self.log());
            assert!(Instant::now() < until, "redis-server does not answer:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        *self.server.lock().unwrap_or_else(|broken| broken.into_inner()) = Some(server);
    }
}
