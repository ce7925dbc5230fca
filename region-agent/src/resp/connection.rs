//! One connection: bytes in, bytes out.
//!
//! Invariants: no more than one command and one read lie in the input, no more than one batch of answers in the
//! output, and nothing is read while answers wait to be written. Whoever has not authenticated in time, leaves a
//! command half sent or does not read its answers, is closed. An idle caller costs a small buffer. Absent on
//! purpose: any idea of what the bytes mean.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use cadastre_runtime::http::Shutdown;
use cadastre_runtime::tls::{self, TlsStream};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Door;
use super::reply::{self, Word};
use super::session::{Next, Session};

/// Time to authenticate.
const STRANGER: Duration = Duration::from_secs(10);
/// Time for the rest of a command that has begun, and for a client to take its answers.
const STALLED: Duration = Duration::from_secs(10);
/// What still comes after the last answer is read away for so long, and up to so many bytes: closing on unread
/// bytes could take that answer away from the client.
const LINGER: (Duration, usize) = (Duration::from_secs(1), 1024 * 1024);
/// Read at least so much at once.
const READ: usize = 4 * 1024;
/// Buffers larger than this are given back when they are empty.
const KEPT: usize = 16 * 1024;

/// What carries bytes.
trait Line: AsyncRead + AsyncWrite + Unpin + Send {
    /// Writes what can be written at once, without the detour of a task's wake-up.
    fn write_now(&self, bytes: &[u8]) -> std::io::Result<usize>;
}

impl Line for TcpStream {
    fn write_now(&self, bytes: &[u8]) -> std::io::Result<usize> {
        self.try_write(bytes)
    }
}

impl Line for TlsStream<TcpStream> {
    fn write_now(&self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::WouldBlock.into())
    }
}

/// Serves a connection to its end; over TLS where there are certificates.
pub async fn serve(stream: TcpStream, door: Arc<Door>, id: i64, shutdown: Shutdown) {
    // Answers are whole when they are written: waiting for more would only delay them.
    let _ = stream.set_nodelay(true);
    let Some(certificates) = &door.certificates else { return carry(stream, door, id, shutdown).await };
    match timeout(STRANGER, certificates.acceptor().accept(stream)).await {
        Ok(Ok(stream)) => carry(stream, door, id, shutdown).await,
        Ok(Err(error)) => tls::refused(&error.to_string()),
        Err(_) => tls::refused("no handshake in time"),
    }
}

async fn carry(stream: impl Line, door: Arc<Door>, id: i64, shutdown: Shutdown) {
    let mut connection = Connection {
        stream,
        session: Session::new(door, id),
        input: Vec::with_capacity(READ),
        output: Vec::new(),
        stranger_until: Some(sleep(STRANGER).deadline()),
        half_until: None,
    };
    // How it ended is nobody's business: the client is gone.
    let _ = connection.run(&shutdown).await;
}

struct Connection<S> {
    stream: S,
    session: Session,
    input: Vec<u8>,
    output: Vec<u8>,
    /// When a connection of nobody is closed.
    stranger_until: Option<Instant>,
    /// When one with half a command is.
    half_until: Option<Instant>,
}

/// Why there is nothing more to read.
enum End {
    /// The client left, or is cut off.
    Gone,
    /// It took too long.
    Late(&'static str),
}

impl<S: Line> Connection<S> {
    async fn run(&mut self, shutdown: &Shutdown) -> std::io::Result<()> {
        let stop = shutdown.wait();
        tokio::pin!(stop);
        loop {
            match self.read(stop.as_mut()).await {
                Ok(()) => {}
                Err(End::Gone) => return Ok(()),
                Err(End::Late(why)) => {
                    reply::error(&mut self.output, Word::Err, why);
                    self.write().await?;
                    return self.close().await;
                }
            }
            if !self.answer(shutdown).await? || shutdown.is_triggered() {
                return self.close().await;
            }
        }
    }

    /// Answers what was read; whether to go on.
    async fn answer(&mut self, shutdown: &Shutdown) -> std::io::Result<bool> {
        let mut at = 0;
        let next = loop {
            let rest = self.input.get(at..).unwrap_or_default();
            let (done, next) = self.session.batch(rest, &mut self.output, shutdown).await;
            at += done;
            self.write().await?;
            if next != Next::Write {
                break next;
            }
        };
        if at >= self.input.len() {
            self.input.clear();
        } else {
            self.input.drain(..at);
        }
        for buffer in [&mut self.input, &mut self.output] {
            if buffer.capacity() > KEPT && buffer.len() < READ {
                buffer.shrink_to(READ);
            }
        }
        if self.input.is_empty() {
            self.half_until = None;
        } else if at > 0 || self.half_until.is_none() {
            // Another command than the one that was half there before.
            self.half_until = Some(sleep(STALLED).deadline());
        }
        if !self.session.is_stranger() {
            self.stranger_until = None;
        } else if self.stranger_until.is_none() {
            self.stranger_until = Some(sleep(STRANGER).deadline());
        }
        Ok(next == Next::Read)
    }

    async fn close(&mut self) -> std::io::Result<()> {
        self.stream.shutdown().await?;
        let (stream, input) = (&mut self.stream, &mut self.input);
        let rest = async {
            let mut left = LINGER.1;
            while left > 0 {
                input.clear();
                match stream.read_buf(input).await {
                    Ok(0) | Err(_) => return,
                    Ok(read) => left = left.saturating_sub(read),
                }
            }
        };
        // Whether it was all does not matter.
        let _ = timeout(LINGER.0, rest).await;
        Ok(())
    }

    async fn write(&mut self) -> std::io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        let written = match self.stream.write_now(&self.output) {
            Ok(written) => written,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        let rest = self.output.get(written..).unwrap_or_default();
        if !rest.is_empty() {
            timeout(STALLED, self.stream.write_all(rest)).await??;
        }
        self.output.clear();
        Ok(())
    }

    /// Reads at least one byte.
    async fn read(&mut self, stop: Pin<&mut impl Future<Output = ()>>) -> Result<(), End> {
        self.input.reserve(READ);
        let (late, why) = match (self.stranger_until, self.half_until) {
            (Some(until), _) => (Some(until), "nobody has authenticated in time; this connection is closed"),
            (None, Some(until)) => (Some(until), "the rest of a command did not come in time"),
            (None, None) => (None, ""),
        };
        let read = self.stream.read_buf(&mut self.input);
        let read = match late {
            None => tokio::select! {
                biased;
                read = read => read,
                () = stop => return Err(End::Gone),
            },
            Some(until) => tokio::select! {
                biased;
                read = read => read,
                () = stop => return Err(End::Gone),
                () = sleep_until(until) => return Err(End::Late(why)),
            },
        };
        match read {
            Ok(0) | Err(_) => Err(End::Gone),
            Ok(_) => Ok(()),
        }
    }
}
