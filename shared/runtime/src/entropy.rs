//! The only file that draws randomness.
//!
//! Purpose: ids, tokens and jitter come from here, as an argument. Invariant: every draw asks the
//! operating system. A generator kept in memory would be repeated by a fork or by two machines
//! resumed from one memory image, and both would then make the same "fresh" ids. Without entropy
//! the process stops: nothing may carry on with guessable or repeated ids. Absent on purpose: any
//! cache, seed or fallback.

use uuid::{Builder, Uuid};

/// Where randomness comes from.
pub trait Entropy: Send + Sync {
    /// A random UUID.
    fn uuid_v4(&self) -> Uuid;
    /// A UUID whose leading bits are the wall clock's milliseconds.
    fn uuid_v7(&self, now_ms: u64) -> Uuid;
    /// 64 random bits.
    fn u64(&self) -> u64;
    /// 256 random bits.
    fn bytes32(&self) -> [u8; 32];
}

/// The operating system's entropy, drawn per call.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn uuid_v4(&self) -> Uuid {
        Builder::from_random_bytes(draw()).into_uuid()
    }

    fn uuid_v7(&self, now_ms: u64) -> Uuid {
        Builder::from_unix_timestamp_millis(now_ms, &draw()).into_uuid()
    }

    fn u64(&self) -> u64 {
        u64::from_le_bytes(draw())
    }

    fn bytes32(&self) -> [u8; 32] {
        draw()
    }
}

fn draw<const N: usize>() -> [u8; N] {
    let mut bytes = [0_u8; N];
    fill(&mut bytes);
    bytes
}

/// Fills all of `bytes` at once, for whoever needs many.
#[allow(clippy::disallowed_methods, reason = "this file is where randomness is drawn")]
pub fn fill(bytes: &mut [u8]) {
    if let Err(error) = getrandom::fill(bytes) {
        eprintln!(
            "cadastre: the operating system gives no entropy ({error}); stopping, because ids made without it could repeat"
        );
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn draws_differ_and_carry_their_version() {
        let ids: BTreeSet<Uuid> = (0..100).map(|_| SystemEntropy.uuid_v4()).collect();
        assert_eq!(ids.len(), 100);
        assert!(ids.iter().all(|id| id.get_version_num() == 4));
        assert_ne!(SystemEntropy.bytes32(), SystemEntropy.bytes32());
        assert_ne!(SystemEntropy.u64(), SystemEntropy.u64());
    }

    #[test]
    fn a_v7_id_carries_the_time_it_was_given() {
        let id = SystemEntropy.uuid_v7(1_735_689_600_123);
        assert_eq!(id.get_version_num(), 7);
        let (seconds, nanos) = id.get_timestamp().unwrap().to_unix();
        assert_eq!((seconds, nanos / 1_000_000), (1_735_689_600, 123));
    }
}
