//! Ctrl-C and SIGTERM: the first one stops in order, the second one at once. Absent on purpose: SIGHUP,
//! which `nohup` must be able to keep away.

use std::io;

use cadastre_runtime::http::Shutdown;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a shell reports of a program that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// Triggered by the first SIGINT or SIGTERM.
///
/// # Errors
/// When signals cannot be caught.
pub fn on_signals() -> io::Result<Shutdown> {
    let mut signals = [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
    let stop = Shutdown::new();
    let caught = stop.clone();
    tokio::spawn(async move {
        next(&mut signals).await;
        caught.trigger();
        next(&mut signals).await;
        eprintln!("stopping at once; nothing that was given out is lost by it");
        std::process::exit(INTERRUPTED);
    });
    Ok(stop)
}

async fn next([interrupt, terminate]: &mut [Signal; 2]) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
