//! Bearer tokens and everything else that must not be shown.
//!
//! Purpose: tokens of 256 random bits, stored as SHA-256 only; wrappers that mask themselves.
//! Invariants: `Debug`, `Display` and `Serialize` of a wrapper never show the secret (the merge of
//! settings in `config`, which needs the value, says so explicitly and on its own thread);
//! comparison takes the same time wherever two tokens differ. Absent on purpose: password hashing
//! (a token has all the entropy it needs), expiry and roles (the roster's).

use std::cell::Cell;
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// What is shown in place of a secret.
pub const MASK: &str = "***";

/// Who a token is for; its text begins with this, so that a leaked one can be recognised.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Prefix {
    /// A calling service.
    Service,
    /// An operator.
    Operator,
    /// A region.
    Region,
    /// A viewer.
    Viewer,
    /// Not a caller: the token of one answer, presented with the next request of a conversation.
    Chain,
    /// Not a caller: the key of an authority's seals.
    Seal,
    /// Not a caller of the authority: the authority itself, on an errand to one agent.
    Errand,
}

impl Prefix {
    /// The text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Service => "cad_svc_",
            Self::Operator => "cad_op_",
            Self::Region => "cad_reg_",
            Self::Viewer => "cad_view_",
            Self::Chain => "cad_chain_",
            Self::Seal => "cad_seal_",
            Self::Errand => "cad_errand_",
        }
    }
}

/// The token made of these random bytes: prefix and 64 hexadecimal digits.
#[must_use]
pub fn make(prefix: Prefix, bytes: [u8; 32]) -> String {
    format!("{}{}", prefix.as_str(), hex(&bytes))
}

/// What is stored of a token.
#[must_use]
pub fn sha256_hex(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

/// HMAC-SHA256 of `bytes` under a key, as hexadecimal digits.
#[must_use]
pub fn keyed_hash(key: &str, bytes: &[u8]) -> String {
    // Keys of every length are taken.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key.as_bytes()) else { return String::new() };
    mac.update(bytes);
    hex(&mac.finalize().into_bytes())
}

/// Compares without telling by its duration where two texts differ (their lengths may show).
#[must_use]
pub fn constant_time_eq(left: &str, right: &str) -> bool {
    left.as_bytes().ct_eq(right.as_bytes()).into()
}

/// By hand: every request of a service is looked up by such a text, and formatting takes longer than the hash.
fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(if nibble < 10 { b'0' + nibble } else { b'a' - 10 + nibble });
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    text
}

thread_local! {
    static EXPOSED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` with secrets serialised in the clear: for merging settings in memory only.
pub(crate) fn exposed<T>(work: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            EXPOSED.set(self.0);
        }
    }
    let _restore = Restore(EXPOSED.replace(true));
    work()
}

/// A text that is never shown.
#[derive(Clone, Default, Eq, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Hides `text`.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the place that needs it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(if EXPOSED.get() { &self.0 } else { MASK })
    }
}

impl FromStr for Secret {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self::new(text))
    }
}

/// A URL whose password is never shown; the rest is.
#[derive(Clone, Default, Eq, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct SecretUrl(String);

impl SecretUrl {
    /// Hides the password in `text`.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The whole URL, for the place that connects.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The URL with its password masked, in the login and in a `password=` parameter.
    #[must_use]
    pub fn masked(&self) -> String {
        let (base, query) = match self.0.split_once('?') {
            Some((base, query)) => (base, Some(query)),
            None => (self.0.as_str(), None),
        };
        let base = mask_login(base);
        match query {
            None => base,
            Some(query) => {
                let parts: Vec<String> = query.split('&').map(mask_parameter).collect();
                format!("{base}?{}", parts.join("&"))
            }
        }
    }
}

fn mask_login(base: &str) -> String {
    let masked = base.split_once("://").and_then(|(scheme, rest)| {
        let (login, host) = rest.rsplit_once('@')?;
        let (user, _) = login.split_once(':')?;
        Some(format!("{scheme}://{user}:{MASK}@{host}"))
    });
    masked.unwrap_or_else(|| base.to_owned())
}

fn mask_parameter(parameter: &str) -> String {
    match parameter.split_once('=') {
        Some((name, _)) if name.to_ascii_lowercase().contains("pass") => format!("{name}={MASK}"),
        _ => parameter.to_owned(),
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.masked())
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.masked())
    }
}

impl Serialize for SecretUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if EXPOSED.get() { serializer.serialize_str(&self.0) } else { serializer.serialize_str(&self.masked()) }
    }
}

impl FromStr for SecretUrl {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self::new(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_its_prefix_and_256_bits() {
        let token = Secret::new(make(Prefix::Service, [0xab; 32]));
        assert_eq!(token.reveal(), format!("cad_svc_{}", "ab".repeat(32)));
        assert_eq!(format!("{token} {token:?}"), "*** ***");
        assert_eq!(serde_json::to_string(&token).unwrap(), "\"***\"");
        assert_eq!(exposed(|| serde_json::to_string(&token).unwrap()).len(), 74);
        assert_eq!(serde_json::to_string(&token).unwrap(), "\"***\"");
    }

    #[test]
    fn hashes_and_comparison_are_the_usual_ones() {
        assert_eq!(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert!(constant_time_eq("same", "same"));
        assert!(!constant_time_eq("same", "sane"));
        assert!(!constant_time_eq("same", "sam"));
    }

    #[test]
    fn a_url_hides_its_password_only() {
        let url = SecretUrl::new("postgres://me:p@ss@db:5432/x?sslmode=require&password=no");
        assert_eq!(url.to_string(), "postgres://me:***@db:5432/x?sslmode=require&password=***");
        assert_eq!(SecretUrl::new("sqlite://a/b.db").to_string(), "sqlite://a/b.db");
        assert_eq!(SecretUrl::new("redis://:pw@h/0").to_string(), "redis://:***@h/0");
    }
}
