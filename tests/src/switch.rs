//! The one address behind which a database's primary is: what a load balancer or a virtual address is in
//! production. It forwards bytes to one server of several, and a test turns it to another one.

use crate::ports;
use crate::proxy::threads;
use std::net::{Ipv4Addr, SocketAddrV4};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A running switch. Dropped, it is gone with all its connections.
pub struct Switch {
    address: SocketAddrV4,
    upstream: watch::Sender<(u16, u64)>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Switch {
    /// One that forwards to `127.0.0.1:port`.
    pub fn to(port: u16) -> Self {
        let address = ports::free_addr();
        let upstream = watch::Sender::new((port, 0));
        let listener = std::net::TcpListener::bind(address).expect("the port is ours");
        listener.set_nonblocking(true).expect("a listener can be non-blocking");
        let accepting = threads().spawn(accept(listener, upstream.clone()));
        Self { address, upstream, accepting }
    }

    /// The URL of a database of whichever server is behind it.
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://postgres@{}/{database}", self.address)
    }

    /// Turns to another server. Connections to the old one are closed.
    pub fn turn(&self, port: u16) {
        self.upstream.send_modify(|(to, life)| {
            *to = port;
            *life += 1;
        });
    }

    /// Turns to another server for new connections; the old ones go on.
    pub fn turn_new(&self, port: u16) {
        self.upstream.send_modify(|(to, _)| *to = port);
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.turn(1);
        self.accepting.abort();
    }
}

async fn accept(listener: std::net::TcpListener, upstream: watch::Sender<(u16, u64)>) {
    let listener = TcpListener::from_std(listener).expect("the runtime takes it");
    while let Ok((mut client, _)) = listener.accept().await {
        let mut changes = upstream.subscribe();
        let (port, life) = *changes.borrow_and_update();
        tokio::spawn(async move {
            let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else { return };
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                _ = changes.wait_for(|(_, now)| *now != life) => {}
            }
        });
    }
}
