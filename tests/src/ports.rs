//! Loopback ports that no other test, in this process or another, will be handed.
//!
//! Binding port 0 and letting go again is the usual way, and it flickers: the kernel gives the same
//! number to the next outgoing connection of anybody. So these come from below the kernel's range for
//! outgoing connections, and each is held by a locked file until the test process ends: a daemon that
//! is killed and started again finds its port free.

use std::fs::{File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Mutex;

/// Well below 32768, where Linux begins to number outgoing connections.
const FIRST: u16 = 18_000;
const COUNT: u16 = 13_000;

/// Locks held until this process ends, and where to look next.
static HELD: Mutex<(Vec<File>, Option<u16>)> = Mutex::new((Vec::new(), None));

/// A free port on 127.0.0.1 that stays this process's until it ends.
pub fn free() -> u16 {
    let mut held = HELD.lock().unwrap_or_else(|broken| broken.into_inner());
    // Processes begin at different places, so that they seldom ask for the same lock.
    let start = held.1.unwrap_or_else(|| spread(std::process::id()));
    for step in 0..COUNT {
        let offset = (start + step) % COUNT;
        let port = FIRST + offset;
        if let Some(lock) = claim(port) {
            held.0.push(lock);
            held.1 = Some((offset + 1) % COUNT);
            return port;
        }
    }
    panic!("no free port between {FIRST} and {}: what is holding them all?", FIRST + COUNT);
}

/// `127.0.0.1:port` with a port from [`free`].
pub fn free_addr() -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, free())
}

fn spread(pid: u32) -> u16 {
    (pid.wrapping_mul(2_654_435_761) >> 8) as u16 % COUNT
}

/// The lock file if nobody else has it and nobody listens there.
fn claim(port: u16) -> Option<File> {
    let path = folder().join(port.to_string());
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path).ok()?;
    // Another user's test may want the same file later.
    let _ = file.set_permissions(PermissionsExt::from_mode(0o666));
    file.try_lock().ok()?;
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()?;
    Some(file)
}

fn folder() -> PathBuf {
    let folder = std::env::temp_dir().join("cadastre-test-ports");
    if std::fs::create_dir(&folder).is_ok() {
        let _ = std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777));
    }
    folder
}
