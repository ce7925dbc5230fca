//! Where the dev cluster listens.
//!
//! Invariant: every port is looked at before anything starts, so that a busy one leaves nothing half begun.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use crate::error::CliError;

/// The authority's port where nobody says otherwise.
pub const DEFAULT_BASE: u16 = 7400;
/// From one daemon to the next: a region's further protocols lie between.
const STEP: u16 = 10;

/// Where an agent speaks the Redis protocol: the port after its HTTP's; port 0 is any free one.
pub fn resp(agent: SocketAddr) -> SocketAddr {
    let port = if agent.port() == 0 { 0 } else { agent.port().saturating_add(1) };
    SocketAddr::new(agent.ip(), port)
}

/// The addresses of the authority and of `regions` agents; port 0 is any free one.
///
/// # Errors
/// Where one is taken, naming it.
pub fn choose(base: u16, regions: usize) -> Result<Vec<SocketAddr>, CliError> {
    let mut addresses = Vec::new();
    for index in 0..=regions {
        let above = u16::try_from(index).ok().and_then(|index| index.checked_mul(STEP));
        let port = if base == 0 { Some(0) } else { above.and_then(|above| base.checked_add(above)) };
        let port =
            port.ok_or_else(|| CliError::usage(format!("--base-port {base}: no room for the regions above it")))?;
        addresses.push(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    let busy = |address: &SocketAddr| address.port() != 0 && TcpListener::bind(address).is_err();
    let further = addresses.iter().skip(1).copied().map(resp);
    match addresses.iter().copied().chain(further).find(busy) {
        None => Ok(addresses),
        Some(taken) => Err(CliError::failed(
            format!("{taken} cannot be listened on: another program has it, or it is not allowed"),
            format!("stop that, or choose others: --base-port {} (or 0 for any free ones)", elsewhere(base)),
        )),
    }
}

fn elsewhere(base: u16) -> u16 {
    base.checked_add(100).unwrap_or(DEFAULT_BASE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_port_is_named_with_the_flag_to_use() {
        // The ports beside the taken one may be in use by others: then those are named, and another is tried.
        let named = |below: u16| {
            let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let port = taken.local_addr().unwrap().port();
            let error = choose(port.checked_sub(below).unwrap(), 2).unwrap_err().to_string();
            assert!(error.contains("--base-port"), "{error}");
            error.contains(&format!(":{port} "))
        };
        assert!((0..100).any(|_| named(20)));
        assert!((0..100).any(|_| named(STEP + 1)), "the port of the first region's Redis protocol");
        assert_eq!(resp(SocketAddr::from(([127, 0, 0, 1], 7410))).port(), 7411);
        assert!(choose(0, 2).unwrap().iter().all(|address| address.port() == 0 && resp(*address).port() == 0));
        assert_eq!(choose(65_530, 2).unwrap_err().code(), 2);
    }
}
