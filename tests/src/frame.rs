//! Where an HTTP/1.1 message begins and ends: just enough for the proxy to hold whole ones.
//!
//! A message is read into memory with its head and its body as they came, chunked ones undone into a
//! plain body with a length. Absent on purpose: streaming, upgrades, trailers, `Expect: 100-continue`;
//! nothing between agent and authority uses them, and a message that does is refused loudly.

use std::io::{Error, ErrorKind, Result};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

const MAX_HEAD: usize = 64 * 1024;

/// A whole message.
#[derive(Clone, Debug)]
pub struct Message {
    /// The first line without its end: `POST /v1/grants HTTP/1.1` or `HTTP/1.1 200 OK`.
    pub start: String,
    headers: Vec<(String, String)>,
    /// The body, no longer chunked.
    pub body: Vec<u8>,
    has_body: bool,
}

impl Message {
    /// A request; None where the client closed instead of sending one.
    pub async fn read_request(from: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<Self>> {
        let Some(mut message) = Self::read_head(from).await? else {
            return Ok(None);
        };
        message.read_body(from, false).await?;
        Ok(Some(message))
    }

    /// The answer to a request with this method.
    pub async fn read_answer(from: &mut (impl AsyncBufRead + Unpin), method: &str) -> Result<Self> {
        loop {
            let head = Self::read_head(from).await?;
            let mut message = head.ok_or_else(|| broken("closed before the answer"))?;
            let status = message.start.split(' ').nth(1).unwrap_or_default().to_owned();
            if status.starts_with('1') {
                continue;
            }
            if method == "HEAD" || status == "204" || status == "304" {
                message.has_body = false;
            } else {
                message.read_body(from, true).await?;
            }
            return Ok(message);
        }
    }

    /// The method of a request.
    pub fn method(&self) -> &str {
        self.start.split(' ').next().unwrap_or_default()
    }

    /// The path of a request, without its query.
    pub fn path(&self) -> &str {
        let target = self.start.split(' ').nth(1).unwrap_or_default();
        target.split('?').next().unwrap_or_default()
    }

    /// A header's value by its name in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The bytes to send on, with a length and with `connection` as asked (`close`, `keep-alive`).
    pub fn to_bytes(&self, connection: &str) -> Vec<u8> {
        let mut head = format!("{}\r\n", self.start);
        let ours = ["connection", "keep-alive", "transfer-encoding", "content-length"];
        for (name, value) in &self.headers {
            let kept = !self.has_body && name.eq_ignore_ascii_case("content-length");
            if kept || !ours.iter().any(|own| name.eq_ignore_ascii_case(own)) {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        if self.has_body {
            head.push_str(&format!("content-length: {}\r\n", self.body.len()));
        }
        head.push_str(&format!("connection: {connection}\r\n\r\n"));
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }

    async fn read_head(from: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<Self>> {
        let Some(start) = read_line(from).await? else {
            return Ok(None);
        };
        if !start.starts_with("HTTP/1.") && !start.ends_with(" HTTP/1.1") {
            return Err(broken("neither a request nor an answer"));
        }
        let mut headers = Vec::new();
        let mut size = start.len();
        loop {
            let line = read_line(from).await?.ok_or_else(|| broken("closed within a head"))?;
            if line.is_empty() {
                return Ok(Some(Self { start, headers, body: Vec::new(), has_body: false }));
            }
            size += line.len();
            if size > MAX_HEAD {
                return Err(broken("a head beyond 64 KiB"));
            }
            let (name, value) = line.split_once(':').ok_or_else(|| broken("a header without a colon"))?;
            headers.push((name.trim().to_owned(), value.trim().to_owned()));
        }
    }

    async fn read_body(&mut self, from: &mut (impl AsyncBufRead + Unpin), to_end: bool) -> Result<()> {
        let chunked = self.header("transfer-encoding").is_some_and(|it| it.eq_ignore_ascii_case("chunked"));
        if chunked {
            self.has_body = true;
            return self.read_chunks(from).await;
        }
        if let Some(length) = self.header("content-length") {
            let length = length.parse().map_err(|_| broken("a length that is no number"))?;
            self.has_body = true;
            self.body = vec![0; length];
            from.read_exact(&mut self.body).await?;
        } else if to_end {
            self.has_body = true;
            from.read_to_end(&mut self.body).await?;
        }
        Ok(())
    }

    async fn read_chunks(&mut self, from: &mut (impl AsyncBufRead + Unpin)) -> Result<()> {
        loop {
            let line = read_line(from).await?.ok_or_else(|| broken("closed within a body"))?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).map_err(|_| broken("a chunk without a size"))?;
            let start = self.body.len();
            self.body.resize(start + size, 0);
            from.read_exact(&mut self.body[start..]).await?;
            let end = read_line(from).await?;
            if end.as_deref() != Some("") {
                return Err(broken("a chunk that does not end, or a trailer"));
            }
            if size == 0 {
                return Ok(());
            }
        }
    }
}

/// A line without its end; None at the end of the stream.
async fn read_line(from: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<String>> {
    let mut line = Vec::new();
    from.take(MAX_HEAD as u64).read_until(b'\n', &mut line).await?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.pop() != Some(b'\n') {
        return Err(broken("a line without an end"));
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    String::from_utf8(line).map(Some).map_err(|_| broken("a head that is no text"))
}

fn broken(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("not an HTTP/1.1 message that the proxy knows: {what}"))
}
