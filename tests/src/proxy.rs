//! The wide area between an agent and its authority: a TCP proxy whose faults are switched at run time.
//!
//! It holds whole HTTP messages, so a fault hits exactly what it names: a request that never arrived, an
//! answer that was lost after the work was done (the case that makes duplicates), a request that
//! arrives twice. Each request goes upstream on a connection of its own; the client keeps its
//! connection, and finds it closed where a fault says so. The proxy lives on its own threads, so a test
//! that blocks does not stop it.
//!
//! Two kinds of faults: *states* ([`Proxy::cut`], [`Proxy::hang`], [`Proxy::delay`]) hold until
//! [`Proxy::heal`]; *counted* ones (`lose_requests(n)` and so on) hit the next n requests whose path
//! passes [`Proxy::only_path`], in the order lose request, lose answer, duplicate, repeat.

use crate::frame::Message;
use crate::ports;
use std::collections::BTreeMap;
use std::io::Result;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Which way a fault works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Requests: from the agent to the authority.
    Requests,
    /// Answers: from the authority to the agent.
    Answers,
}

/// What the proxy saw of one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Whole requests that came from the client.
    pub seen: u64,
    /// Times a request was sent upstream (a duplicate counts twice).
    pub forwarded: u64,
    /// Whole answers that came back from upstream.
    pub answered: u64,
    /// Answers that were written to the client.
    pub delivered: u64,
}

/// The link as it is now; a change wakes everyone who waits on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Link {
    cut: bool,
    /// Rises with each cut and each heal of a hang: connections of an older one are closed.
    generation: u64,
    swallow_requests: bool,
    swallow_answers: bool,
    delay_requests: Duration,
    delay_answers: Duration,
}

#[derive(Default)]
struct Counted {
    only_path: Option<String>,
    lose_requests: u64,
    lose_answers: u64,
    duplicate: u64,
    repeat: (u64, Duration),
    by_path: BTreeMap<String, Count>,
}

#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Forward,
    LoseRequest,
    LoseAnswer,
    Duplicate,
    Repeat(Duration),
}

struct Shared {
    upstream: SocketAddrV4,
    link: watch::Sender<Link>,
    counted: Mutex<Counted>,
}

/// A running proxy. Dropped, it is gone with all its connections.
pub struct Proxy {
    address: SocketAddrV4,
    shared: Arc<Shared>,
    accepting: tokio::task::JoinHandle<()>,
}

pub(crate) fn threads() -> &'static Runtime {
    static THREADS: OnceLock<Runtime> = OnceLock::new();
    THREADS.get_or_init(|| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2).thread_name("proxy").enable_all();
        builder.build().expect("a runtime can be made")
    })
}

impl Proxy {
    /// A healthy proxy before `127.0.0.1:port`.
    pub fn start(upstream_port: u16) -> Self {
        let address = ports::free_addr();
        let shared = Arc::new(Shared {
            upstream: SocketAddrV4::new(Ipv4Addr::LOCALHOST, upstream_port),
            link: watch::Sender::new(Link::default()),
            counted: Mutex::new(Counted::default()),
        });
        // Bound before this returns: a caller may connect at once.
        let listener = std::net::TcpListener::bind(address).expect("the port is ours");
        listener.set_nonblocking(true).expect("a listener can be non-blocking");
        let accepting = threads().spawn(accept(address, listener, shared.clone()));
        Self { address, shared, accepting }
    }

    /// Where clients go: `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// `127.0.0.1:PORT`.
    pub fn addr(&self) -> String {
        self.address.to_string()
    }

    /// Refuses new connections and kills those that are.
    pub fn cut(&self) {
        self.change(|link| {
            link.cut = true;
            link.generation += 1;
        });
    }

    /// Accepts and swallows both ways, silently: the worst kind of cut, known by timeouts alone.
    pub fn hang(&self) {
        self.change(|link| {
            link.swallow_requests = true;
            link.swallow_answers = true;
        });
    }

    /// Swallows one way only: with [`Direction::Answers`] the authority works and nobody hears of it.
    pub fn hang_one_way(&self, direction: Direction) {
        self.change(|link| match direction {
            Direction::Requests => link.swallow_requests = true,
            Direction::Answers => link.swallow_answers = true,
        });
    }

    /// Delays requests and answers by so many milliseconds each.
    pub fn delay(&self, ms: u64) {
        self.delay_one_way(Direction::Requests, ms);
        self.delay_one_way(Direction::Answers, ms);
    }

    /// Delays one way only.
    pub fn delay_one_way(&self, direction: Direction, ms: u64) {
        let delay = Duration::from_millis(ms);
        self.change(|link| match direction {
            Direction::Requests => link.delay_requests = delay,
            Direction::Answers => link.delay_answers = delay,
        });
    }

    /// The next `n` requests never reach upstream: the connection is closed.
    pub fn lose_requests(&self, n: u64) {
        self.counted().lose_requests = n;
    }

    /// The next `n` requests reach upstream and are processed; the answer is dropped and the connection
    /// closed.
    pub fn lose_answers(&self, n: u64) {
        self.counted().lose_answers = n;
    }

    /// The next `n` requests go upstream twice at the same time, on two connections; the client gets the
    /// answer that comes first.
    pub fn duplicate_requests(&self, n: u64) {
        self.counted().duplicate = n;
    }

    /// The next `n` requests go upstream once more `after` they were answered: an old packet that the
    /// network kept.
    pub fn repeat_requests(&self, n: u64, after: Duration) {
        self.counted().repeat = (n, after);
    }

    /// Counted faults hit only requests whose path begins so; None: all.
    pub fn only_path(&self, path: Option<&str>) {
        self.counted().only_path = path.map(str::to_owned);
    }

    /// Ends every fault. Requests that were swallowed stay lost: their connections are closed.
    pub fn heal(&self) {
        let counted = &mut *self.counted();
        *counted = Counted { by_path: std::mem::take(&mut counted.by_path), ..Counted::default() };
        self.change(|link| {
            let kept = !link.swallow_requests && !link.swallow_answers;
            let generation = link.generation + u64::from(!kept);
            *link = Link { generation, ..Link::default() };
        });
    }

    /// What was seen, by path without query.
    pub fn counts(&self) -> BTreeMap<String, Count> {
        self.counted().by_path.clone()
    }

    /// What was seen of this path.
    pub fn count(&self, path: &str) -> Count {
        self.counted().by_path.get(path).copied().unwrap_or_default()
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.shared.counted()
    }

    fn change(&self, change: impl FnOnce(&mut Link)) {
        self.shared.link.send_modify(change);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

impl Shared {
    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    fn note(&self, path: &str, note: impl FnOnce(&mut Count)) {
        note(self.counted().by_path.entry(path.to_owned()).or_default());
    }

    /// What happens to this request; takes one off the fault that it chose.
    fn fate(&self, path: &str) -> Fate {
        let counted = &mut *self.counted();
        if counted.only_path.as_ref().is_some_and(|only| !path.starts_with(only.as_str())) {
            return Fate::Forward;
        }
        let after = counted.repeat.1;
        let faults = [
            (&mut counted.lose_requests, Fate::LoseRequest),
            (&mut counted.lose_answers, Fate::LoseAnswer),
            (&mut counted.duplicate, Fate::Duplicate),
            (&mut counted.repeat.0, Fate::Repeat(after)),
        ];
        for (left, fate) in faults {
            if *left > 0 {
                *left -= 1;
                return fate;
            }
        }
        Fate::Forward
    }

    /// Sends the request upstream on a connection of its own and reads the whole answer.
    async fn exchange(&self, request: &Message) -> Result<Message> {
        let mut stream = TcpStream::connect(self.upstream).await?;
        stream.set_nodelay(true)?;
        stream.write_all(&request.to_bytes("close")).await?;
        self.note(request.path(), |count| count.forwarded += 1);
        let answer = Message::read_answer(&mut BufReader::new(stream), request.method()).await?;
        self.note(request.path(), |count| count.answered += 1);
        Ok(answer)
    }
}

/// Accepts while the link is not cut. While it is, there is no listener: a connection is refused.
async fn accept(address: SocketAddrV4, first: std::net::TcpListener, shared: Arc<Shared>) {
    let mut link = shared.link.subscribe();
    let mut listener = TcpListener::from_std(first).ok();
    loop {
        if link.borrow_and_update().cut {
            drop(listener.take());
            if link.changed().await.is_err() {
                return;
            }
            continue;
        }
        let Some(open) = &listener else {
            listener = TcpListener::bind(address).await.ok();
            if listener.is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            continue;
        };
        tokio::select! {
            accepted = open.accept() => {
                if let Ok((client, _)) = accepted {
                    tokio::spawn(serve_until_cut(client, shared.clone()));
                }
            }
            _ = link.changed() => {}
        }
    }
}

/// One client's connection, ended by the client or by a change of generation.
async fn serve_until_cut(client: TcpStream, shared: Arc<Shared>) {
    let mut link = shared.link.subscribe();
    let born = link.borrow().generation;
    tokio::select! {
        _ = serve(client, shared.clone()) => {}
        _ = link.wait_for(|now| now.cut || now.generation != born) => {}
    }
}

async fn serve(client: TcpStream, shared: Arc<Shared>) -> Result<()> {
    client.set_nodelay(true)?;
    let mut client = BufReader::new(client);
    let link = shared.link.subscribe();
    while let Some(request) = Message::read_request(&mut client).await? {
        shared.note(request.path(), |count| count.seen += 1);
        let delay = link.borrow().delay_requests;
        tokio::time::sleep(delay).await;
        if link.borrow().swallow_requests {
            return swallow(&mut client).await;
        }
        let fate = shared.fate(request.path());
        if fate == Fate::LoseRequest {
            return Ok(());
        }
        let answer = forward(&shared, &request, fate).await?;
        let delay = link.borrow().delay_answers;
        tokio::time::sleep(delay).await;
        if fate == Fate::LoseAnswer {
            return Ok(());
        }
        if link.borrow().swallow_answers {
            return swallow(&mut client).await;
        }
        client.write_all(&answer.to_bytes("keep-alive")).await?;
        shared.note(request.path(), |count| count.delivered += 1);
    }
    Ok(())
}

/// The upstream side runs in tasks of its own: what was sent is processed, whatever the client does.
async fn forward(shared: &Arc<Shared>, request: &Message, fate: Fate) -> Result<Message> {
    let send = || {
        let (shared, request) = (shared.clone(), request.clone());
        tokio::spawn(async move { shared.exchange(&request).await })
    };
    let answer = match fate {
        Fate::Duplicate => {
            let (one, other) = (send(), send());
            tokio::select! { answer = one => answer, answer = other => answer }
        }
        _ => send().await,
    };
    if let Fate::Repeat(after) = fate {
        let (shared, request) = (shared.clone(), request.clone());
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            let _ = shared.exchange(&request).await;
        });
    }
    answer.map_err(std::io::Error::other)?
}

/// Reads on and says nothing, until the client gives up (or the generation changes).
async fn swallow(client: &mut BufReader<TcpStream>) -> Result<()> {
    let mut waste = [0; 4096];
    while client.read(&mut waste).await? > 0 {}
    Ok(())
}
