//! Folders that vanish, and the watchdog that leaves no process behind.
//!
//! A test can end in ways that run no destructor: an abort, a time limit, a person's Ctrl-C, SIGKILL.
//! So the first use starts one small shell, in a process group of its own, whose standard input is a
//! pipe that only this process holds. When the pipe closes, this process is gone, however it went:
//! the shell kills every process that is still registered, with its descendants, and removes the
//! folder. The parent-death signal of Linux would not do: it fires when the starting *thread* ends
//! (a test's thread, a runtime's worker), and is lost where a process changes its user.
//!
//! `CADASTRE_TEST_KEEP=1` keeps the folders, for a look at what a test left.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// Registered processes are files `pids/PID` with the signal to begin with. Each is a group of its own,
/// but PostgreSQL's children leave it, so descendants are looked up before the first signal.
const WATCHDOG: &str = r#"
trap '' INT TERM HUP
cat > /dev/null
children_of() {
    for stat in /proc/[0-9]*/stat; do
        read -r line < "$stat" || continue
        rest=${line##*) }; set -- "$1" $rest
        [ "$3" = "$1" ] || continue
        child=${line%% *}; all="$all $child"
    done
} 2> /dev/null
cd "$1" || exit 0
alive=
for file in pids/*; do
    pid=${file#pids/}
    [ -e "/proc/$pid" ] || continue
    all=; children_of "$pid"; alive="$alive $pid $all"
    kill -s "$(cat "$file")" -- "-$pid"; kill -s CONT -- "-$pid" $all
done 2> /dev/null
for wait in 1 2 3 4 5 6 7 8 9 10; do
    left=
    for pid in $alive; do [ -e "/proc/$pid" ] && left="$left $pid"; done
    [ -z "$left" ] && break
    sleep 0.1
done
for pid in $left; do kill -s KILL -- "-$pid" || kill -s KILL "$pid"; done 2> /dev/null
cd / && [ -z "$CADASTRE_TEST_KEEP" ] || exit 0
while read -r _ at _; do
    case $at in "$1"/*) umount -l "$at" ;; esac
done < /proc/mounts 2> /dev/null
rm -rf -- "$1"
"#;

struct Root {
    path: PathBuf,
    /// Held for its standard input: the pipe closes with this process.
    _watchdog: Child,
}

static ROOT: OnceLock<Root> = OnceLock::new();

fn root() -> &'static Root {
    ROOT.get_or_init(|| {
        let folder = tempfile::Builder::new()
            .prefix("cadastre-")
            .tempdir()
            .expect("a temporary folder can be made (is TMPDIR writable?)");
        let path = folder.keep();
        // PostgreSQL may run as another user and must be able to reach its own folder in here.
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("the folder is ours");
        fs::create_dir(path.join("pids")).expect("the folder is ours");
        let watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "cadastre-watchdog"])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("sh can be started");
        Root { path, _watchdog: watchdog }
    })
}

/// A folder below this process's own, removed when dropped and at the latest when the process ends.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new, empty folder; `name` only helps a person who looks inside.
    pub fn new(name: &str) -> Self {
        let folder = tempfile::Builder::new()
            .prefix(&format!("{name}-"))
            .tempdir_in(&root().path)
            .expect("a folder can be made below the test's own");
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("it is ours");
        Self(folder.keep())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::env::var_os("CADASTRE_TEST_KEEP").is_some() {
            eprintln!("kept: {}", self.0.display());
            return;
        }
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Tells the watchdog of a process, and with which signal its end begins (`KILL`, `QUIT`).
pub(crate) fn register(pid: u32, signal: &str) {
    let file = root().path.join("pids").join(pid.to_string());
    fs::write(file, signal).expect("the test's own folder can be written");
}

/// Must be called once the process was waited for: its number may be given to another.
pub(crate) fn forget(pid: u32) {
    let _ = fs::remove_file(root().path.join("pids").join(pid.to_string()));
}

/// Starts the watchdog, if it isn't up, before the first process is.
pub(crate) fn arm() {
    root();
}
