//! A caller of an agent: one connection, one request at a time.
//!
//! Purpose: what `start` and the worked case need and a load generator does not do: the first answer of a process
//! that is just being started, and requests at a given pace. Absent on purpose: HTTP that our own agent does not speak
//! (chunked answers, redirects).

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// See the module's documentation.
pub struct Caller {
    address: SocketAddr,
    token: String,
    stream: Option<TcpStream>,
    /// What came and was not looked at.
    read: Vec<u8>,
}

impl Caller {
    /// Somebody who will call there.
    #[must_use]
    pub fn new(address: SocketAddr, token: &str) -> Self {
        Self { address, token: token.to_owned(), stream: None, read: Vec::new() }
    }

    /// Posts to `/v1/ids`; the status. A connection that is gone is made anew the next time.
    ///
    /// # Errors
    /// Where nobody answers.
    pub async fn ask(&mut self, body: &str) -> io::Result<u16> {
        let asked = self.asked(body).await;
        if asked.is_err() {
            self.stream = None;
            self.read.clear();
        }
        asked
    }

    async fn asked(&mut self, body: &str) -> io::Result<u16> {
        let request = format!(
            "POST /v1/ids HTTP/1.1\r\nhost: agent\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            self.token,
            body.len()
        );
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => {
                let stream = TcpStream::connect(self.address).await?;
                stream.set_nodelay(true)?;
                none.insert(stream)
            }
        };
        stream.write_all(request.as_bytes()).await?;
        loop {
            if let Some((status, end)) = answer(&self.read) {
                self.read.drain(..end);
                return Ok(status);
            }
            if stream.read_buf(&mut self.read).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// The status of the answer at the front, and where it ends; none while it is not there as a whole.
fn answer(read: &[u8]) -> Option<(u16, usize)> {
    let head = read.windows(4).position(|four| four == b"\r\n\r\n")?;
    let text = std::str::from_utf8(read.get(..head)?).ok()?;
    let status = text.split(' ').nth(1)?.parse().ok()?;
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let end = head + 4 + length.unwrap_or(0);
    (read.len() >= end).then_some((status, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_there_once_its_body_is() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 503";
        assert_eq!(answer(whole), Some((200, 41)));
        assert_eq!(answer(whole.get(..40).unwrap()), None);
        assert_eq!(answer(b"HTTP/1.1 204 No Content\r\n\r\n"), Some((204, 27)));
    }
}
