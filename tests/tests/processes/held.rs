//! A thread that a debugger stops between the look at the clock and the stamp, until its process's window is over and
//! somebody else has its worker.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tests::process::{Daemon, Spec};
use tests::scratch::Scratch;

use crate::help::{number, quick, until};
use crate::windows::{Stamper, events, parts, sound};

/// Eight worker ids: the agent's own, those that are held, and some more.
const BITS: u32 = 3;
/// How many instructions behind the look each is held: at once, in the midst, at the exchange.
const HELD_AT: [u32; 4] = [0, 20, 60, 110];

/// What a stamper wrote: ids, and the codes of errors, in order.
fn lines(stamper: &Daemon) -> Vec<Result<i64, String>> {
    let log = stamper.log();
    let line = |line: &str| {
        let mut words = line.split(' ');
        let (kind, _, value) = (words.next()?, words.next()?, words.next()?);
        match kind {
            "id" => value.parse().ok().map(Ok),
            "error" => Some(Err(value.to_owned())),
            _ => None,
        }
    };
    log.lines().filter_map(line).collect()
}

fn ids(stamper: &Daemon) -> Vec<i64> {
    lines(stamper).into_iter().filter_map(Result::ok).collect()
}

/// Where it stamps: the clock has been read, and is an argument. Each unit of the compiler may have a copy.
fn stamps_of(pid: u32) -> Vec<String> {
    let listed = Command::new("nm").arg(format!("/proc/{pid}/exe")).output().expect("nm is installed");
    let listed = String::from_utf8(listed.stdout).unwrap();
    let names = listed.lines().filter_map(|line| line.split(' ').nth(2));
    let found: Vec<String> = names.filter(|name| name.contains("7Stamper4take")).map(str::to_owned).collect();
    assert!(!found.is_empty(), "a build whose functions have names");
    found
}

/// A debugger that stops a process where the clock has been read and nothing is stamped yet, so many instructions on.
struct Hold {
    gdb: Child,
    held: PathBuf,
    go: PathBuf,
    said: PathBuf,
}

impl Hold {
    fn of(stamper: &Daemon, folder: &Path, instructions: u32) -> Self {
        let place = |word: &str| folder.join(format!("{word}-{instructions}"));
        let (held, go, said) = (place("held"), place("go"), place("said"));
        let pid = stamper.pid().expect("it runs");
        let breaks: Vec<String> = stamps_of(pid).iter().map(|symbol| format!("break {symbol}")).collect();
        let step = format!("stepi {instructions}");
        // The other thread must not go on while this one is led.
        let led = ["set scheduler-locking on", step.as_str()];
        let wait = format!(
            "shell touch {}; for i in $(seq 2000); do [ -e {} ] && break; sleep 0.1; done",
            held.display(),
            go.display()
        );
        let mut script: Vec<&str> = breaks.iter().map(String::as_str).collect();
        script.push("continue");
        script.extend(if instructions > 0 { led.as_slice() } else { &[] });
        script.extend(["backtrace 2", wait.as_str(), "delete", "set scheduler-locking off", "detach"]);
        let mut command = Command::new("gdb");
        command.args(["-nx", "-batch", "-p", &pid.to_string()]);
        command.args(script.iter().flat_map(|line| ["-ex", line]));
        let log = std::fs::File::create(&said).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        Self { gdb: command.spawn().expect("gdb is installed"), held, go, said }
    }

    fn holds(&self) -> bool {
        self.held.exists()
    }

    fn let_go(mut self) {
        std::fs::write(&self.go, "").unwrap();
        assert!(self.gdb.wait().unwrap().success());
        let said = std::fs::read_to_string(&self.said).unwrap();
        assert!(said.contains("hit Breakpoint") && said.contains("#0 "), "{said}");
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        drop(self.gdb.kill());
        drop(self.gdb.wait());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_held_between_look_and_stamp_repeats_nothing_after_a_successor() {
    let cluster = quick().region("eu").define(events(BITS, 3)).start().await;
    let folder = Scratch::new("held");
    let start = |name: &str| {
        let spec = Spec::binary("stamper").env("TOKEN", &*cluster.service_token);
        Daemon::start(spec.arg(&cluster.region("eu").url).arg("events").arg(name))
    };
    let stampers: Vec<Daemon> = HELD_AT.iter().map(|at| start(&format!("held-{at}"))).collect();
    for stamper in &stampers {
        until("it stamps", async || ids(stamper).len() > 20).await;
    }
    let holds: Vec<Hold> = stampers.iter().zip(HELD_AT).map(|(s, n)| Hold::of(s, folder.path(), n)).collect();
    until("all are held", async || holds.iter().all(Hold::holds)).await;
    let before: Vec<usize> = stampers.iter().map(|stamper| lines(stamper).len()).collect();
    let workers: BTreeSet<u64> = stampers.iter().map(|s| parts(*ids(s).last().unwrap(), BITS, 3).worker).collect();
    assert_eq!(workers.len(), HELD_AT.len());
    // Everybody else takes what becomes free: their windows are over then.
    let (mut windows, mut n) = (std::collections::BTreeMap::new(), 10);
    let mut successors: Vec<Stamper> = (1..1 << BITS).map(Stamper::new).collect();
    for successor in &mut successors {
        until("a worker is free", async || {
            n += 1;
            let _ = cluster.ids("eu", "events", 1).await;
            let Ok(taken) = successor.take(&cluster, n).await else { return false };
            windows.insert(taken["worker"].as_u64().unwrap(), number(&taken["lo"])..number(&taken["hi"]));
            true
        })
        .await;
    }
    assert!(workers.iter().all(|worker| windows.contains_key(worker)), "{workers:?} of {windows:?}");
    for (stamper, before) in stampers.iter().zip(&before) {
        assert_eq!(lines(stamper).len(), *before, "it was held all the time");
    }
    holds.into_iter().for_each(Hold::let_go);
    for (stamper, before) in stampers.iter().zip(&before) {
        until("it says why it cannot go on", async || lines(stamper).iter().skip(*before).any(Result::is_err)).await;
    }
    let mut seen = BTreeSet::new();
    for (stamper, before) in stampers.iter().zip(&before) {
        let lines = lines(stamper);
        for id in ids(stamper) {
            assert!(seen.insert(id), "{id} twice");
            let id = parts(id, BITS, 3);
            // Later ones it may have taken anew.
            let theirs = windows.get(&id.worker);
            assert!(theirs.is_none_or(|window| !window.contains(&id.unit)), "unit {} is of {theirs:?}", id.unit);
        }
        // What the held thread had looked at may still be stamped, in its own window; then it is told.
        let codes: BTreeSet<&String> = lines.iter().skip(*before).filter_map(|line| line.as_ref().err()).collect();
        // Which one depends on how far the refill had come: every one has a code.
        let untyped = |code: &&&String| code.is_empty() || code.as_str() == "internal";
        assert!(!codes.iter().any(|code| untyped(&code)), "{codes:?}");
        let after = lines.iter().skip(*before).take_while(|line| line.is_ok()).count();
        assert!(after <= 2, "{after} ids after the window's end, of two threads that had looked before");
        stamper.kill9();
    }
    sound(&cluster).await;
}
