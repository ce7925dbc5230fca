//! A real fork, in a test binary of its own (a fork of a process with other tests' threads would prove little).
//!
//! The agents are a small HTTP server in the parent: one counter, so that whatever two processes are given is
//! disjoint, and a duplicate can only come out of inherited memory.
#![cfg(unix)]
#![allow(unsafe_code, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::FromRawFd;
use std::sync::{Arc, Mutex};

use cadastre_client::testing::InMemory;
use cadastre_client::{Client, Namespace};

/// What the agent knows: the next ordinal, the incarnations it saw, and its answers by allocation id.
#[derive(Default)]
struct Agent {
    next: u64,
    incarnations: BTreeSet<String>,
    answers: BTreeMap<String, String>,
}

fn text<'a>(body: &'a serde_json::Value, key: &str) -> &'a str {
    body[key].as_str().unwrap()
}

impl Agent {
    fn start() -> (String, Arc<Mutex<Agent>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let agent = Arc::new(Mutex::new(Agent::default()));
        let own = Arc::clone(&agent);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let own = Arc::clone(&own);
                std::thread::spawn(move || serve(stream.unwrap(), &own));
            }
        });
        (url, agent)
    }

    fn answer(&mut self, body: &serde_json::Value) -> String {
        self.incarnations.insert(text(body, "incarnation").to_owned());
        let want: u64 = text(body, "want").parse().unwrap();
        let next = &mut self.next;
        let allocation = text(body, "allocation_id");
        let answer = self.answers.entry(allocation.to_owned()).or_insert_with(|| {
            let lo = *next;
            *next += want;
            format!(
                r#"{{"segment_id":"{}","grant_id":"{}","lo":"{lo}","hi":"{}","first":"{}","last":"{}",
                "increment":"1","region":"eu","epoch":1,"retry_until":"9","suggested_rate_per_second":1.0,
                "chain":"c","replayed":false}}"#,
                text(body, "incarnation"),
                text(body, "incarnation"),
                *next,
                lo + 1,
                *next,
            )
        });
        answer.clone()
    }
}

fn serve(stream: TcpStream, agent: &Mutex<Agent>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let answer = agent.lock().unwrap().answer(&serde_json::from_slice(&body).unwrap());
        let head =
            format!("HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: {}", answer.len());
        if write!(stream, "{head}\r\n\r\n{answer}").is_err() {
            return;
        }
    }
}

/// Runs `work` in a forked child; what it wrote.
fn in_child(work: impl FnOnce(&mut std::fs::File)) -> Box<dyn FnOnce() -> String> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for the two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // SAFETY: the child runs nothing but `work`, and ends without going back into the test harness.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: the descriptor is ours, and used by nobody else.
        let mut out = unsafe { std::fs::File::from_raw_fd(ends[1]) };
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&mut out)));
        // SAFETY: ends the child at once: no destructor of the parent's runs.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    // SAFETY: the parent's copy of the child's end; then the descriptor is ours alone.
    let mut input = unsafe {
        libc::close(ends[1]);
        std::fs::File::from_raw_fd(ends[0])
    };
    Box::new(move || {
        let mut text = String::new();
        input.read_to_string(&mut text).unwrap();
        let mut status = 0;
        // SAFETY: `child` is our child, and `status` is a place for its status.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child failed; it wrote {text:?}");
        text
    })
}

fn ids(text: &str) -> Vec<i64> {
    text.split_whitespace().map(|id| id.parse().unwrap()).collect()
}

fn take(orders: &Namespace, n: usize, out: &mut std::fs::File) {
    for _ in 0..n {
        writeln!(out, "{}", orders.next_blocking().unwrap()).unwrap();
    }
}

fn client(url: &str) -> Client {
    Client::builder().agent(url).token("cad_svc_x").name("till").build().unwrap()
}

/// Issue, fork eight children, issue in all of them and in the parent; two of the children fork again.
#[test]
fn case_09_fork() {
    let (url, agent) = Agent::start();
    let client = client(&url);
    let orders = client.namespace("orders").unwrap();
    let mut chunk = orders.chunks(10);
    let mut all: Vec<i64> = (0..20).map(|_| orders.next_blocking().unwrap().get()).collect();
    all.push(chunk.next_blocking().unwrap().get());
    assert!(orders.left() > 0, "there is something to inherit");
    // The parent goes on in the background while it forks: its locks may be held at that moment.
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (more, stop) = (orders.clone(), Arc::clone(&done));
    let background = std::thread::spawn(move || {
        let mut got = vec![];
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            got.push(more.next_blocking().unwrap().get());
            if got.len() % 50 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        got
    });
    let children: Vec<_> = (0..8)
        .map(|n| {
            in_child(|out| {
                assert_eq!(orders.try_next(), None, "nothing inherited");
                // Old handles, a chunk and a client that were the parent's, and new ones.
                take(&orders, 30, out);
                writeln!(out, "{}", chunk.next_blocking().unwrap()).unwrap();
                take(&client.namespace("orders").unwrap(), 30, out);
                writeln!(out, "{}", client.next_blocking("orders").unwrap()).unwrap();
                if n < 2 {
                    let grandchild = in_child(|out| take(&orders, 30, out));
                    take(&orders, 5, out);
                    write!(out, "{}", grandchild()).unwrap();
                }
                drop((orders.clone(), client.clone()));
            })
        })
        .collect();
    let mut by_child = vec![];
    for child in children {
        let got = ids(&child());
        assert!(got[..62].windows(2).all(|pair| pair[0] < pair[1]), "a child rises: {got:?}");
        by_child.extend(got);
    }
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    all.extend(background.join().unwrap());
    all.extend((0..30).map(|_| orders.next_blocking().unwrap().get()));
    all.push(chunk.next_blocking().unwrap().get());
    all.extend(by_child);
    let distinct: BTreeSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), all.len(), "nothing twice, in eleven processes");
    assert_eq!(agent.lock().unwrap().incarnations.len(), 11, "each has an incarnation of its own");
}

#[test]
fn the_double_of_the_parent_gives_a_child_an_error_rather_than_a_duplicate() {
    let agents = InMemory::new();
    let client = agents.client().unwrap();
    client.next_blocking("orders").unwrap();
    let child = in_child(|out| {
        let error = client.next_blocking("orders").unwrap_err();
        write!(out, "{}", error.code()).unwrap();
    });
    assert_eq!(child(), "forbidden");
    assert_eq!(client.next_blocking("orders").unwrap().get(), 2);
}
