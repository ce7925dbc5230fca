//! Serving, and stopping in order.
//!
//! Purpose: on SIGTERM or SIGINT nothing new is accepted, what is under way finishes within a
//! bound, and new requests on kept-alive connections are told to go elsewhere. Invariant: once
//! triggered, a shutdown is never taken back. Absent on purpose: restarts without a gap.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tower::{Service, ServiceExt};

use crate::tls::{self, Certificates};

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

/// A connection that does not bring a whole head of a request within this is closed, an idle one too.
const HEAD_WITHIN: Duration = Duration::from_secs(120);
/// A connection that has not made its TLS handshake within this is closed.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// Handshakes under way; whoever comes then waits in the kernel's queue.
const HANDSHAKES: usize = 256;
/// After an accept that failed (no file is free, as a rule).
const REST: Duration = Duration::from_millis(200);

/// Serves until the shutdown is triggered and what is under way then has finished, or `bound` has
/// passed; over TLS only where there are certificates. The service must have the manners of [`super::finish`], with
/// the same shutdown.
///
/// # Errors
/// None after it has begun; the type is a server's.
pub async fn serve<S>(
    listener: TcpListener,
    certificates: Option<Arc<Certificates>>,
    service: S,
    shutdown: Shutdown,
    bound: Duration,
) -> std::io::Result<()>
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let under_way = GracefulShutdown::new();
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
    let mut look = tokio::time::interval(tls::EVERY);
    loop {
        let stream = tokio::select! {
            () = shutdown.wait() => break,
            _ = look.tick(), if certificates.is_some() => {
                if let Some(certificates) = &certificates {
                    certificates.look();
                }
                continue;
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(REST).await;
                    continue;
                }
            },
        };
        // An answer is written at once; waiting for more of it only makes it late.
        let _ = stream.set_nodelay(true);
        let (service, watcher) = (service.clone(), under_way.watcher());
        match &certificates {
            None => drop(tokio::spawn(connection(stream, service, watcher))),
            Some(certificates) => {
                let Ok(permit) = Arc::clone(&handshakes).acquire_owned().await else { break };
                let acceptor = certificates.acceptor();
                tokio::spawn(async move {
                    let shaken = tokio::time::timeout(HANDSHAKE_WITHIN, acceptor.accept(stream)).await;
                    drop(permit);
                    match shaken {
                        Ok(Ok(stream)) => connection(stream, service, watcher).await,
                        Ok(Err(error)) => tls::refused(&error.to_string()),
                        Err(_) => tls::refused("no handshake in time"),
                    }
                });
            }
        }
    }
    drop(listener);
    if tokio::time::timeout(bound, under_way.shutdown()).await.is_err() {
        tracing::warn!(?bound, "requests were still under way when the time to stop was over");
    }
    Ok(())
}

/// One connection, to its end.
async fn connection<S, I>(io: I, service: S, watcher: Watcher)
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
    let service =
        TowerToHyperService::new(service.map_request(|request: hyper::Request<Incoming>| request.map(Body::new)));
    let served = watcher.watch(builder.serve_connection(TokioIo::new(io), service)).await;
    if let Err(error) = served {
        tracing::trace!(%error, "a connection ended");
    }
}
