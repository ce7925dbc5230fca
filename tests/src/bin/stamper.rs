//! A user's process that stamps by itself on two threads and writes down all it got: for tests that stop it where no
//! test of its own could. `stamper AGENT_URL NAMESPACE NAME`, the service's token in `TOKEN`.
//!
//! One line for each call: `id THREAD NUMBER`, or `error THREAD CODE`.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Write;
use std::time::Duration;

use cadastre_client::{Client, Stamps};

fn main() {
    let mut words = std::env::args().skip(1);
    let mut word = |what: &str| words.next().unwrap_or_else(|| panic!("{what}"));
    let (agent, namespace, name) = (word("an agent"), word("a namespace"), word("a name"));
    let token = std::env::var("TOKEN").expect("a service's token in TOKEN");
    let client = Client::builder().token(token).name(name).agent(agent).build().expect("the settings are right");
    let stamps = client.stamps(&namespace).expect("a name").with_deadline(Duration::from_millis(200));
    let other = stamps.clone();
    let thread = std::thread::spawn(move || stamp(&other, 1));
    stamp(&stamps, 0);
    thread.join().expect("it runs until it is killed");
}

fn stamp(stamps: &Stamps, thread: u32) {
    loop {
        let line = match stamps.next_blocking() {
            Ok(id) => format!("id {thread} {}\n", id.get()),
            Err(error) => format!("error {thread} {}\n", error.code()),
        };
        // One write for each line: a process that is killed leaves whole ones.
        std::io::stdout().write_all(line.as_bytes()).expect("somebody reads");
        std::thread::sleep(Duration::from_millis(1));
    }
}
