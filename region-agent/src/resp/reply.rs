//! Answers to bytes, in RESP2 and RESP3, and the one place where a problem becomes a Redis error.
//!
//! Invariant: an error is one line whose first word is for programs: Redis's own word where it has one
//! (`NOAUTH`, `WRONGPASS`, `NOPERM`, `NOPROTO`, `ERR`), otherwise the contract's code in upper case. The rest of
//! the line is for people and is printable ASCII. Absent on purpose: doubles, sets and pushes.

use cadastre_protocol::error::{Code, Problem};

/// The longest text of an error.
const ERROR_TEXT: usize = 512;

/// The version of the protocol that a connection speaks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Version {
    /// RESP2: what a connection begins with.
    Two,
    /// RESP3: after `HELLO 3`.
    Three,
}

/// First words of errors that are Redis's own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Word {
    /// Something that cannot be understood, or is not served.
    Err,
    /// Not authenticated.
    NoAuth,
    /// Authentication failed.
    WrongPass,
    /// A protocol version that is neither 2 nor 3.
    NoProto,
}

impl Word {
    fn as_str(self) -> &'static str {
        match self {
            Self::Err => "ERR",
            Self::NoAuth => "NOAUTH",
            Self::WrongPass => "WRONGPASS",
            Self::NoProto => "NOPROTO",
        }
    }
}

/// `+text`.
pub fn simple(out: &mut Vec<u8>, text: &str) {
    out.push(b'+');
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// `:number`.
pub fn integer(out: &mut Vec<u8>, number: i64) {
    header(out, b':', number);
}

/// `$length`, and the bytes.
pub fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    length(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Nothing.
pub fn null(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(match version {
        Version::Two => b"$-1\r\n",
        Version::Three => b"_\r\n",
    });
}

/// The head of an array of so many elements.
pub fn array(out: &mut Vec<u8>, elements: usize) {
    length(out, b'*', elements);
}

/// The head of a map of so many pairs; RESP2 has flat arrays for it.
pub fn map(out: &mut Vec<u8>, pairs: usize, version: Version) {
    match version {
        Version::Two => length(out, b'*', pairs * 2),
        Version::Three => length(out, b'%', pairs),
    }
}

fn length(out: &mut Vec<u8>, kind: u8, length: usize) {
    header(out, kind, i64::try_from(length).unwrap_or(i64::MAX));
}

fn header(out: &mut Vec<u8>, kind: u8, number: i64) {
    let mut text = itoa::Buffer::new();
    out.push(kind);
    out.extend_from_slice(text.format(number).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// `-WORD text`.
pub fn error(out: &mut Vec<u8>, word: Word, text: &str) {
    out.push(b'-');
    out.extend_from_slice(word.as_str().as_bytes());
    tell(out, text);
    out.extend_from_slice(b"\r\n");
}

/// `-CODE detail; retry after 1 s`.
pub fn problem(out: &mut Vec<u8>, problem: &Problem) {
    out.push(b'-');
    match problem.code {
        Code::Unauthenticated => out.extend_from_slice(Word::NoAuth.as_str().as_bytes()),
        Code::Forbidden => out.extend_from_slice(b"NOPERM"),
        code => out.extend(code.as_str().bytes().map(|byte| byte.to_ascii_uppercase())),
    }
    tell(out, &problem.detail);
    if let Some(seconds) = problem.retry_after_seconds {
        out.extend_from_slice(b"; retry after ");
        out.extend_from_slice(itoa::Buffer::new().format(seconds).as_bytes());
        out.extend_from_slice(b" s");
    }
    out.extend_from_slice(b"\r\n");
}

fn tell(out: &mut Vec<u8>, text: &str) {
    out.push(b' ');
    let plain = |byte: u8| match byte {
        b' '..=b'~' => byte,
        0..b' ' | 0x7f => b' ',
        0x80.. => b'?',
    };
    out.extend(text.bytes().take(ERROR_TEXT).map(plain));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_code_is_one_word_and_says_when_to_come_back() {
        for code in Code::ALL {
            let line = written(|out| problem(out, &Problem::new(*code, "why\r\n+OK")));
            let word = line.split(' ').next().unwrap();
            let expected = match code {
                Code::Unauthenticated => "-NOAUTH".to_owned(),
                Code::Forbidden => "-NOPERM".to_owned(),
                code => format!("-{}", code.as_str().to_uppercase()),
            };
            assert_eq!(word, expected);
            assert_eq!(line.contains("; retry after 1 s"), code.retryable(), "{line}");
            assert_eq!((line.matches('\n').count(), line.ends_with("\r\n")), (1, true), "one line: {line}");
        }
        assert_eq!(written(|out| error(out, Word::NoAuth, "x\ty")), "-NOAUTH x y\r\n");
        assert!(written(|out| error(out, Word::Err, &"x".repeat(9_000))).len() < 600);
    }

    #[test]
    fn values_have_the_form_of_their_version() {
        assert_eq!(written(|out| integer(out, i64::MIN)), format!(":{}\r\n", i64::MIN));
        assert_eq!(written(|out| bulk(out, b"ab")), "$2\r\nab\r\n");
        assert_eq!(written(|out| null(out, Version::Two)) + &written(|out| null(out, Version::Three)), "$-1\r\n_\r\n");
        assert_eq!(
            written(|out| map(out, 3, Version::Two)) + &written(|out| map(out, 3, Version::Three)),
            "*6\r\n%3\r\n"
        );
        assert_eq!(written(|out| array(out, 0)) + &written(|out| simple(out, "OK")), "*0\r\n+OK\r\n");
    }
}
