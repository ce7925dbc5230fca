//! The switch in front of a region's uplink: a TCP relay that can be cut while everything runs.
//!
//! Invariant: while it is cut no byte passes in either direction; connections that were open are closed,
//! and new ones are closed before a byte is read. Absent on purpose: delays and losses (the tests have a
//! proxy that does those).

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A running switch; dropped, it is gone with all its connections.
pub struct Switch {
    address: SocketAddr,
    cut: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

impl Switch {
    /// A closed circuit to `upstream`.
    ///
    /// # Errors
    /// When no port can be listened on.
    pub async fn start(upstream: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let cut = watch::Sender::new(false);
        let accepting = tokio::spawn(accept(listener, upstream, cut.subscribe()));
        Ok(Self { address, cut, accepting })
    }

    /// Where clients go.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Opens the circuit.
    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Closes it again.
    pub fn heal(&self) {
        self.cut.send_replace(false);
    }

    /// Whether it is open.
    pub fn is_cut(&self) -> bool {
        *self.cut.borrow()
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn accept(listener: TcpListener, upstream: SocketAddr, cut: watch::Receiver<bool>) {
    loop {
        match listener.accept().await {
            Ok((client, _)) if !*cut.borrow() => {
                tokio::spawn(relay(client, upstream, cut.clone()));
            }
            // Cut: the connection is closed as it is dropped.
            Ok(_) => {}
            // Too many open files, most likely: they come back.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn relay(mut client: TcpStream, upstream: SocketAddr, mut cut: watch::Receiver<bool>) {
    let both_ways = async {
        let mut server = TcpStream::connect(upstream).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        copy_bidirectional(&mut client, &mut server).await
    };
    tokio::select! {
        _ = both_ways => {}
        _ = cut.wait_for(|cut| *cut) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn nothing_passes_while_it_is_cut() {
        let echo = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let switch = Switch::start(echo.local_addr().unwrap()).await.unwrap();
        tokio::spawn(async move {
            while let Ok((mut peer, _)) = echo.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = peer.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        let mut byte = [0];
        let mut open = TcpStream::connect(switch.address).await.unwrap();
        open.write_all(b"x").await.unwrap();
        assert_eq!(open.read(&mut byte).await.unwrap(), 1);

        switch.cut();
        assert!(switch.is_cut());
        assert!(!matches!(open.read(&mut byte).await, Ok(1..)), "an open connection is closed");
        let mut late = TcpStream::connect(switch.address).await.unwrap();
        let _ = late.write_all(b"x").await;
        assert!(!matches!(late.read(&mut byte).await, Ok(1..)), "a new one gets nothing");

        switch.heal();
        let mut healed = TcpStream::connect(switch.address).await.unwrap();
        healed.write_all(b"x").await.unwrap();
        assert_eq!(healed.read(&mut byte).await.unwrap(), 1);
    }
}
