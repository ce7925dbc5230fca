//! Serving, and stopping in order.
//!
//! Purpose: on SIGTERM or SIGINT nothing new is accepted, what is under way finishes within a
//! bound, and new requests on kept-alive connections are told to go elsewhere. Invariant: once
//! triggered, a shutdown is never taken back. Absent on purpose: restarts without a gap.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::Request;
use axum::response::Response;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tower::Service;
use tower::make::Shared;

/// Whether the process is stopping; clones share it.
#[derive(Clone, Debug)]
pub struct Shutdown {
    flag: watch::Sender<bool>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

impl Shutdown {
    /// Not stopping yet.
    #[must_use]
    pub fn new() -> Self {
        Self { flag: watch::Sender::new(false) }
    }

    /// Triggered by SIGTERM or SIGINT.
    ///
    /// # Errors
    /// When the signals cannot be caught.
    pub fn on_signals() -> std::io::Result<Self> {
        let shutdown = Self::new();
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let caught = shutdown.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
            tracing::info!("stopping");
            caught.trigger();
        });
        Ok(shutdown)
    }

    /// Begins to stop.
    pub fn trigger(&self) {
        self.flag.send_replace(true);
    }

    /// Whether it began.
    #[must_use]
    pub fn is_triggered(&self) -> bool {
        *self.flag.borrow()
    }

    /// Waits until it began.
    pub async fn wait(&self) {
        // The sender lives in self, so the channel cannot be closed while we wait.
        let _ = self.flag.subscribe().wait_for(|stopping| *stopping).await;
    }
}

/// Serves until the shutdown is triggered and what is under way then has finished, or `bound` has
/// passed. The service must have the manners of [`super::finish`], with the same shutdown.
///
/// # Errors
/// When the listener fails.
pub async fn serve<S>(listener: TcpListener, service: S, shutdown: Shutdown, bound: Duration) -> std::io::Result<()>
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let stop = shutdown.clone();
    let server = axum::serve(listener, Shared::new(service))
        .with_graceful_shutdown(async move { stop.wait().await })
        .into_future();
    let late = async {
        shutdown.wait().await;
        tokio::time::sleep(bound).await;
    };
    tokio::select! {
        result = server => result,
        () = late => {
            tracing::warn!(?bound, "requests were still under way when the time to stop was over");
            Ok(())
        }
    }
}
