//! The threads that serve connections, each with an event loop of its own.
//!
//! Purpose: a connection is served by one thread from beginning to end, so that a short command costs one read, one
//! write and no hand-over between threads. Invariants: a lane ends when its connections have, or when the time to
//! stop is over; a connection that falls over takes nobody along. Absent on purpose: moving a connection to a lane
//! that has less to do.

use std::future::Future;
use std::io;
use std::net::TcpStream as Accepted;
use std::pin::Pin;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// More would take the machine from everybody else.
const MOST: usize = 8;

/// What a connection's task does.
pub type Work = Pin<Box<dyn Future<Output = ()> + Send>>;
/// Makes it, on its lane.
pub type Begin = Box<dyn FnOnce(TcpStream) -> Work + Send>;

struct Arrival {
    stream: Accepted,
    begin: Begin,
}

/// See the module's documentation.
pub struct Lanes {
    lanes: Vec<mpsc::UnboundedSender<Arrival>>,
    ends: Vec<oneshot::Receiver<()>>,
    next: usize,
}

impl Lanes {
    /// A lane for every second core. After the last arrival each waits `bound` for what is under way.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub fn start(bound: Duration) -> io::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let mut lanes = Self { lanes: Vec::new(), ends: Vec::new(), next: 0 };
        for index in 0..(cores / 2).clamp(1, MOST) {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            // Never full: there are no more connections than places for them.
            let (to, from) = mpsc::unbounded_channel();
            let (ended, end) = oneshot::channel();
            std::thread::Builder::new().name(format!("redis-{index}")).spawn(move || {
                serve(&runtime, from, bound);
                // Nobody may be waiting any more.
                let _ = ended.send(());
            })?;
            lanes.lanes.push(to);
            lanes.ends.push(end);
        }
        Ok(lanes)
    }

    /// Gives a connection to the next lane.
    ///
    /// # Errors
    /// Where the system does not let it go.
    pub fn give(&mut self, stream: TcpStream, begin: Begin) -> io::Result<()> {
        let stream = stream.into_std()?;
        self.next = (self.next + 1) % self.lanes.len().max(1);
        if let Some(lane) = self.lanes.get(self.next) {
            // A lane ends after the last arrival only.
            let _ = lane.send(Arrival { stream, begin });
        }
        Ok(())
    }

    /// Waits until every lane has ended.
    pub async fn end(self) {
        drop(self.lanes);
        for end in self.ends {
            let _ = end.await;
        }
    }
}

fn serve(runtime: &Runtime, mut arrivals: mpsc::UnboundedReceiver<Arrival>, bound: Duration) {
    runtime.block_on(async {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                arrival = arrivals.recv() => match arrival {
                    None => break,
                    Some(Arrival { stream, begin }) => match TcpStream::from_std(stream) {
                        Ok(stream) => {
                            connections.spawn(begin(stream));
                        }
                        Err(error) => tracing::warn!(%error, "a connection of the Redis protocol could not be served"),
                    },
                },
                Some(_) = connections.join_next() => {}
            }
        }
        let drained = timeout(bound, async { while connections.join_next().await.is_some() {} }).await;
        if drained.is_err() {
            tracing::warn!(?bound, "commands were still under way when the time to stop was over");
        }
    });
}
