//! Bytes to commands: arrays of bulk strings, and lines of plain words.
//!
//! Purpose: find the next command in what was read, without copying or allocating. Invariants: the same bytes
//! give the same commands however they were split on the way; nothing that a client sends makes it panic; a
//! command is complete within [`Limits`], or it is a [`Fault`] that ends the connection, because where the next
//! command would begin is not known then. Absent on purpose: what commands mean, and quotes in plain lines.

use memchr::memchr;

/// Words of a command that are kept; further ones are only counted.
const KEPT: usize = 8;
/// Digits of a count or a length: more than any limit has.
const DIGITS: usize = 9;
/// The most words of one command.
pub const MAX_WORDS: usize = 1_024;
/// The most bytes of one command, everything included.
pub const MAX_BYTES: usize = 64 * 1024;

/// What one command may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Words.
    pub words: usize,
    /// Bytes, everything included.
    pub bytes: usize,
}

impl Limits {
    /// Before authentication: an AUTH or HELLO fits, and little more.
    pub const STRANGER: Self = Self { words: 10, bytes: 4 * 1024 };
    /// After it.
    pub const CALLER: Self = Self { words: MAX_WORDS, bytes: MAX_BYTES };
}

/// Bytes that are no command. The text follows `Protocol error: `.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Fault {
    /// More words than allowed.
    #[error("invalid multibulk length: at most {0} words")]
    Words(usize),
    /// More bytes than allowed.
    #[error("too big a command: at most {0} bytes")]
    Bytes(usize),
    /// A count or length that is no number.
    #[error("expected a decimal number and CRLF")]
    Number,
    /// A word of an array that is no bulk string.
    #[error("expected '$' before each word of an array")]
    Dollar,
    /// A negative length.
    #[error("invalid bulk length")]
    Length,
    /// Bytes after a word that should have ended.
    #[error("expected CRLF after a word")]
    End,
    /// A quote in a plain line.
    #[error("quotes are not understood in a plain line; send an array of bulk strings")]
    Quote,
    /// Neither an array nor a line of text.
    #[error("expected '*' or a line of text (TLS is not served here)")]
    Binary,
    /// A browser or curl.
    #[error("this port speaks the Redis protocol; HTTP has another one")]
    Http,
}

/// One command, as slices of what was read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Command<'a> {
    kept: [&'a [u8]; KEPT],
    words: usize,
}

impl<'a> Command<'a> {
    const EMPTY: Self = Self { kept: [&[]; KEPT], words: 0 };

    fn push(&mut self, word: &'a [u8]) {
        if let Some(place) = self.kept.get_mut(self.words) {
            *place = word;
        }
        self.words += 1;
    }

    /// How many words it has; none at all for an empty line.
    pub fn len(&self) -> usize {
        self.words
    }

    /// The words that are kept.
    pub fn words(&self) -> &[&'a [u8]] {
        self.kept.get(..self.words).unwrap_or(&self.kept)
    }

    /// A word; empty where there is none.
    pub fn word(&self, index: usize) -> &'a [u8] {
        self.words().get(index).copied().unwrap_or_default()
    }
}

/// The command at the beginning of `input` and its length in bytes; `None` while it is not complete.
///
/// # Errors
/// [`Fault`].
pub fn command(input: &[u8], limits: Limits) -> Result<Option<(Command<'_>, usize)>, Fault> {
    match input.first() {
        None => Ok(None),
        Some(b'*') => array(input, limits),
        Some(byte) if byte.is_ascii_graphic() || byte.is_ascii_whitespace() => line(input, limits),
        Some(_) => Err(Fault::Binary),
    }
}

fn array(input: &[u8], limits: Limits) -> Result<Option<(Command<'_>, usize)>, Fault> {
    let Some((count, mut at)) = number(input, 1)? else { return Ok(None) };
    let mut command = Command::EMPTY;
    // As Redis has it: an array of nothing, or of less, is nothing.
    let count = usize::try_from(count).unwrap_or(0);
    if count > limits.words {
        return Err(Fault::Words(limits.words));
    }
    for _ in 0..count {
        match input.get(at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(_) => return Err(Fault::Dollar),
        }
        let Some((length, start)) = number(input, at + 1)? else { return Ok(None) };
        let length = usize::try_from(length).map_err(|_| Fault::Length)?;
        let end = start + length;
        if end + 2 > limits.bytes {
            return Err(Fault::Bytes(limits.bytes));
        }
        match input.get(end..end + 2) {
            Some(b"\r\n") => {}
            Some(_) => return Err(Fault::End),
            None => return if input.get(end).is_some_and(|b| *b != b'\r') { Err(Fault::End) } else { Ok(None) },
        }
        command.push(input.get(start..end).unwrap_or_default());
        at = end + 2;
    }
    Ok(Some((command, at)))
}

/// The number at `at` and where its line ends; `None` while it has not ended.
fn number(input: &[u8], at: usize) -> Result<Option<(i64, usize)>, Fault> {
    let rest = input.get(at..).unwrap_or_default();
    let (sign, digits) = match rest.split_first() {
        Some((b'-', digits)) => (-1, digits),
        Some(_) => (1, rest),
        None => return Ok(None),
    };
    let mut value = 0_i64;
    for (index, byte) in digits.iter().enumerate() {
        match byte {
            b'0'..=b'9' if index < DIGITS => value = value * 10 + i64::from(byte - b'0'),
            b'\r' if index > 0 => {
                let end = input.len() - digits.len() + index + 1;
                return match input.get(end) {
                    None => Ok(None),
                    Some(b'\n') => Ok(Some((sign * value, end + 1))),
                    Some(_) => Err(Fault::Number),
                };
            }
            _ => return Err(Fault::Number),
        }
    }
    Ok(None)
}

fn line(input: &[u8], limits: Limits) -> Result<Option<(Command<'_>, usize)>, Fault> {
    let within = input.get(..limits.bytes).unwrap_or(input);
    let Some(end) = memchr(b'\n', within) else {
        return if input.len() >= limits.bytes { Err(Fault::Bytes(limits.bytes)) } else { Ok(None) };
    };
    let text = within.get(..end).unwrap_or_default();
    if text.iter().any(|b| matches!(b, b'"' | b'\'')) {
        return Err(Fault::Quote);
    }
    let mut command = Command::EMPTY;
    let mut last: &[u8] = &[];
    for word in text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
        if command.words == limits.words {
            return Err(Fault::Words(limits.words));
        }
        command.push(word);
        last = word;
    }
    if last.starts_with(b"HTTP/") {
        return Err(Fault::Http);
    }
    Ok(Some((command, end + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Owned = Vec<Vec<u8>>;

    /// What a connection makes of bytes that arrive in these pieces.
    fn read(pieces: &[&[u8]], limits: Limits) -> (Vec<Owned>, Option<Fault>) {
        let (mut buffer, mut all) = (Vec::new(), Vec::new());
        for piece in pieces {
            buffer.extend_from_slice(piece);
            let mut at = 0;
            loop {
                match command(&buffer[at..], limits) {
                    Ok(Some((command, length))) => {
                        all.push(command.words().iter().map(|word| word.to_vec()).collect());
                        assert!(length > 0 && length <= limits.bytes, "{length}");
                        at += length;
                    }
                    Ok(None) => break,
                    Err(fault) => return (all, Some(fault)),
                }
            }
            buffer.drain(..at);
            assert!(buffer.len() <= limits.bytes + DIGITS + 4, "no more is kept than a command may have");
        }
        (all, None)
    }

    fn one(bytes: &[u8]) -> Result<Option<(Owned, usize)>, Fault> {
        let found = command(bytes, Limits::CALLER)?;
        Ok(found.map(|(command, at)| (command.words().iter().map(|word| word.to_vec()).collect(), at)))
    }

    #[test]
    fn arrays_and_lines_are_commands() {
        let words = |text: &str| text.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Owned>();
        assert_eq!(one(b"*2\r\n$4\r\nINCR\r\n$6\r\norders\r\nrest"), Ok(Some((words("INCR orders"), 26))));
        assert_eq!(one(b"incrby  orders\t5 \r\n*"), Ok(Some((words("incrby orders 5"), 19))));
        assert_eq!(one(b"*1\r\n$0\r\n\r\n"), Ok(Some((vec![vec![]], 10))));
        for empty in [&b"\r\n"[..], b"\n", b"*0\r\n", b"*-1\r\n"] {
            assert_eq!(one(empty), Ok(Some((vec![], empty.len()))));
        }
        let many = b"*10\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\na\r\n$1\r\nb\r\n";
        let (command, length) = command(many, Limits::CALLER).unwrap().unwrap();
        assert_eq!((command.len(), command.words().len(), length), (10, KEPT, many.len()));
        assert_eq!((command.word(7), command.word(8)), (&b"b"[..], &b""[..]));
    }

    #[test]
    fn what_is_no_command_is_told_by_its_kind() {
        for (bytes, fault) in [
            (&b"*x\r\n"[..], Fault::Number),
            (b"*\r\n", Fault::Number),
            (b"*1\n", Fault::Number),
            (b"*1\rx", Fault::Number),
            (b"*+1\r\n", Fault::Number),
            (b"*9999999999\r\n", Fault::Number),
            (b"*2000\r\n", Fault::Words(MAX_WORDS)),
            (b"*1\r\n:1\r\n", Fault::Dollar),
            (b"*1\r\n$-1\r\n", Fault::Length),
            (b"*1\r\n$70000\r\n", Fault::Bytes(MAX_BYTES)),
            (b"*1\r\n$999999999\r\n", Fault::Bytes(MAX_BYTES)),
            (b"*1\r\n$2\r\nabc", Fault::End),
            (b"*1\r\n$2\r\nab\rx", Fault::End),
            (b"INCR \"orders\"\r\n", Fault::Quote),
            (b"GET / HTTP/1.1\r\n", Fault::Http),
            (b"\x16\x03\x01", Fault::Binary),
        ] {
            assert_eq!(one(bytes), Err(fault), "{}", String::from_utf8_lossy(bytes));
        }
        assert_eq!(one(&vec![b'a'; MAX_BYTES]), Err(Fault::Bytes(MAX_BYTES)));
        assert_eq!(command(b"*11\r\n", Limits::STRANGER), Err(Fault::Words(10)));
        assert_eq!(command(b"*2\r\n$4\r\nAUTH\r\n$5000\r\n", Limits::STRANGER), Err(Fault::Bytes(4_096)));
    }

    /// Bytes near the language, so that the parser gets past its first look.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let word = prop::collection::vec(any::<u8>(), 0..12);
        let array = prop::collection::vec(word, 0..12).prop_map(|words| {
            let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
            for word in words {
                bytes.extend(format!("${}\r\n", word.len()).into_bytes());
                bytes.extend(word);
                bytes.extend(b"\r\n");
            }
            bytes
        });
        let pieces = prop_oneof![
            6 => array,
            2 => "[a-zA-Z0-9 ]{0,20}\r?\n".prop_map(String::into_bytes),
            1 => r"[*$:\-0-9\r\n]{0,8}".prop_map(String::into_bytes),
            1 => prop::collection::vec(any::<u8>(), 0..10),
        ];
        prop::collection::vec(pieces, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_commands(bytes in bytes(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
            for limits in [Limits::CALLER, Limits::STRANGER, Limits { words: 3, bytes: 24 }] {
                let whole = read(&[&bytes], limits);
                let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
                at.sort_unstable();
                let mut pieces = Vec::new();
                let mut from = 0;
                for cut in at {
                    pieces.push(&bytes[from..cut]);
                    from = cut;
                }
                pieces.push(&bytes[from..]);
                prop_assert_eq!(&read(&pieces, limits), &whole);
                let single: Vec<&[u8]> = bytes.chunks(1).collect();
                prop_assert_eq!(&read(&single, limits), &whole);
            }
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&[&bytes], Limits::CALLER);
        }
    }
}
