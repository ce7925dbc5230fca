//! What an authority shows an agent that it asks something of: a token that is worth something at that agent only.
//!
//! An agent's address is what the agent says it is. So no caller's token is ever sent there: whoever holds a region's
//! token could have it sent to a place of its own, and be given an operator's. Instead every agent makes a key when it
//! starts and tells it to the authority with its messages; the authority signs with it what it may do, and until when.
//! Whoever listens at another address has that address's own key, and nothing else.

use crate::token::{self, Prefix};

/// How long one is good, in milliseconds by the agent's clock.
pub const GOOD_FOR_MS: u64 = 30_000;

/// What the authority is sent for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Errand {
    /// To read what a viewer may read.
    Read,
    /// To end a drill, as an operator may.
    EndDrill,
}

impl Errand {
    fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::EndDrill => "end-drill",
        }
    }
}

/// A token for one errand to whoever has this key, good until then by that one's clock.
#[must_use]
pub fn sign(key: &str, errand: Errand, until_ms: u64) -> String {
    let said = format!("{}.{until_ms}", errand.word());
    format!("{}{said}.{}", Prefix::Errand.as_str(), token::keyed_hash(key, said.as_bytes()))
}

/// Whether a token is an errand's at all; a caller's never is.
#[must_use]
pub fn is_errand(text: &str) -> bool {
    text.starts_with(Prefix::Errand.as_str())
}

/// What a token is good for here and now.
#[must_use]
pub fn read(key: &str, text: &str, now_ms: u64) -> Option<Errand> {
    let (said, given) = text.strip_prefix(Prefix::Errand.as_str())?.rsplit_once('.')?;
    if !token::constant_time_eq(&token::keyed_hash(key, said.as_bytes()), given) {
        return None;
    }
    let (word, until_ms) = said.split_once('.')?;
    let until_ms: u64 = until_ms.parse().ok()?;
    // Nor one that is good for longer than any that is made: a clock that was set back must not make it last.
    if until_ms <= now_ms || until_ms - now_ms > 2 * GOOD_FOR_MS {
        return None;
    }
    [Errand::Read, Errand::EndDrill].into_iter().find(|errand| errand.word() == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_good_with_its_key_for_its_errand_and_its_time() {
        let text = sign("key", Errand::Read, 40_000);
        assert!(is_errand(&text));
        assert_eq!(read("key", &text, 10_001), Some(Errand::Read));
        assert_eq!(read("key", &text, 40_000), None, "over");
        assert_eq!(read("key", &sign("key", Errand::Read, 400_000), 10_000), None, "too long");
        assert_eq!(read("another", &text, 10_001), None);
        assert_eq!(read("key", &text.replace("read", "end-drill"), 10_001), None);
        assert_eq!(read("key", &sign("key", Errand::EndDrill, 40_000), 30_000), Some(Errand::EndDrill));
        for odd in ["", "cad_errand_", "cad_errand_read", "cad_errand_read.5", "cad_op_5", "cad_errand_read.x.y"] {
            assert_eq!(read("key", odd, 0), None, "{odd}");
        }
    }
}
