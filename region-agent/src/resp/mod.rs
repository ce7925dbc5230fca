//! The Redis protocol: ids for programs that have a Redis client and ask it to INCR.
//!
//! | room | what |
//! |---|---|
//! | [`parse`] | bytes to commands |
//! | [`session`] | one connection's conversation: who, and its ids |
//! | [`about`] | the list of commands, and the answers of those that give no ids |
//! | [`reply`] | answers to bytes; problems to Redis errors |
//! | [`connection`] | reading, writing, and the bounds of both |
//! | [`lanes`] | the threads that do it |
//!
//! Invariant: every id comes through the [`Front`](crate::front::Front), by the same rules as over HTTP. What a
//! client can hold is bounded: connections, the bytes of a command, answers that it does not read, and the time
//! it may take for half a command or to say who it is. Absent on purpose: TLS (a proxy's, as for HTTP), data.

mod about;
mod connection;
mod lanes;
mod parse;
mod reply;
mod session;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cadastre_runtime::http::Shutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use cadastre_runtime::tls::Certificates;

use crate::agent::Agent;
use crate::front::Front;
use crate::metrics::Redis;
use lanes::Lanes;

/// Connections at once: as many as Redis has by default.
pub const MAX_CONNECTIONS: usize = 10_000;
/// Rest after a failed accept: too many open files, most likely.
const ACCEPT_REST: Duration = Duration::from_millis(50);

/// What connections share.
pub struct Door {
    front: Front,
    meters: Redis,
    certificates: Option<Arc<Certificates>>,
}

/// Serves until the shutdown is triggered and the commands under way then are answered, or `bound` has passed.
///
/// # Errors
/// Where the system gives no thread.
pub fn start(
    listener: TcpListener,
    certificates: Option<Arc<Certificates>>,
    agent: Arc<Agent>,
    shutdown: Shutdown,
    bound: Duration,
) -> std::io::Result<JoinHandle<()>> {
    let meters = Redis::new(&agent.ctx.me.region);
    let door = Arc::new(Door { front: Front::new(agent), meters, certificates });
    let lanes = Lanes::start(bound)?;
    Ok(tokio::spawn(accept(listener, door, lanes, shutdown)))
}

async fn accept(listener: TcpListener, door: Arc<Door>, mut lanes: Lanes, shutdown: Shutdown) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut id = 0;
    loop {
        let accepted = tokio::select! {
            () = shutdown.wait() => break,
            accepted = listener.accept() => accepted,
        };
        let given = accepted.and_then(|(stream, peer)| {
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                crowded(&door, &stream, peer);
                return Ok(());
            };
            id += 1;
            let open = Open::new(Arc::clone(&door), place);
            let shutdown = shutdown.clone();
            let serve = move |stream| -> lanes::Work {
                Box::pin(async move { connection::serve(stream, Arc::clone(&open.door), id, shutdown).await })
            };
            lanes.give(stream, Box::new(serve))
        });
        if let Err(error) = given {
            tracing::warn!(%error, "a connection of the Redis protocol could not be accepted");
            sleep(ACCEPT_REST).await;
        }
    }
    drop(listener);
    lanes.end().await;
}

/// A connection, counted for as long as this lives.
struct Open {
    door: Arc<Door>,
    _place: OwnedSemaphorePermit,
}

impl Open {
    fn new(door: Arc<Door>, place: OwnedSemaphorePermit) -> Self {
        door.meters.connections.increment(1.0);
        Self { door, _place: place }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.door.meters.connections.decrement(1.0);
    }
}

/// One connection too many is told so, if that costs nothing.
fn crowded(door: &Door, stream: &TcpStream, peer: SocketAddr) {
    tracing::debug!(%peer, "too many connections");
    door.meters.crowded.increment(1);
    // In the clear, to whoever would not understand it, it costs nothing either.
    let _ = stream.try_write(b"-ERR max number of clients reached\r\n");
}
