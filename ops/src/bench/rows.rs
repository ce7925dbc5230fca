//! Every row: what it measures, against what, and the target that it was given before it was measured.

use super::in_process::Contenders;
use super::served::Load;

/// How a row is run.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Threads without a network.
    InProcess(usize, Contenders),
    /// Processes and sockets.
    Served(Load),
}

/// One row.
#[derive(Debug)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// What it measures.
    pub what: &'static str,
    /// Of what.
    pub unit: &'static str,
    /// Whom the target is about; none where it is about the figure itself.
    pub against: Option<&'static str>,
    /// What the machine can do at all, where the row has a contender for that.
    pub limit: Option<&'static str>,
    /// The ratio to `against`, or the figure.
    pub target: f64,
    /// Whether the target is the most.
    pub less_is_better: bool,
    /// How it is run.
    pub kind: Kind,
}

impl Row {
    /// The target as people read it.
    #[must_use]
    pub fn target_text(&self) -> String {
        let sign = if self.less_is_better { "<=" } else { ">=" };
        if self.against.is_some() {
            format!("{sign} {:.2} x", self.target)
        } else {
            format!("{sign} {}", super::rounds::figure(self.target))
        }
    }
}

const STRICT: Row = Row {
    name: "",
    what: "next(), one strictly rising stream for all threads",
    unit: "ids/s",
    against: Some("fetch_add"),
    limit: Some("fetch_add"),
    target: 0.8,
    less_is_better: false,
    kind: Kind::InProcess(1, Contenders::Strict),
};

const CHUNKED: Row = Row {
    what: "chunks of 1,024 for each thread",
    against: Some("thread-local chunk"),
    limit: Some("thread-local chunk"),
    ..STRICT
};

const SERVED: Row = Row { limit: None, kind: Kind::Served(Load::HttpOne(32)), ..STRICT };

/// All rows.
pub static ROWS: &[Row] = &[
    Row { name: "next-1", target: 0.9, kind: Kind::InProcess(1, Contenders::Strict), ..STRICT },
    Row { name: "next-2", kind: Kind::InProcess(2, Contenders::Strict), ..STRICT },
    Row { name: "next-8", kind: Kind::InProcess(8, Contenders::Strict), ..STRICT },
    Row { name: "chunks-1", kind: Kind::InProcess(1, Contenders::Chunks), ..CHUNKED },
    Row { name: "chunks-2", kind: Kind::InProcess(2, Contenders::Chunks), ..CHUNKED },
    Row { name: "chunks-8", kind: Kind::InProcess(8, Contenders::Chunks), ..CHUNKED },
    Row {
        name: "http-c32",
        what: "POST /v1/ids, one id, wrk -t1 -c32",
        unit: "requests/s",
        against: Some("bare axum"),
        target: 0.9,
        kind: Kind::Served(Load::HttpOne(32)),
        ..SERVED
    },
    Row {
        name: "http-c32-p99",
        what: "the same: the slowest hundredth takes",
        unit: "ms",
        against: Some("bare axum"),
        target: 1.3,
        less_is_better: true,
        kind: Kind::Served(Load::HttpOneP99(32)),
        ..SERVED
    },
    Row {
        name: "http-c256",
        what: "POST /v1/ids, one id, wrk -t1 -c256",
        unit: "requests/s",
        against: Some("bare axum"),
        target: 0.9,
        kind: Kind::Served(Load::HttpOne(256)),
        ..SERVED
    },
    Row {
        name: "http-lists",
        what: "POST /v1/ids, 10,000 ids as a list of strings",
        unit: "ids/s",
        against: None,
        target: 20e6,
        kind: Kind::Served(Load::HttpLists(10_000)),
        ..SERVED
    },
    Row {
        name: "http-ranges",
        what: "POST /v1/ids, 10,000 ids as ranges: the count costs nothing",
        unit: "requests/s",
        against: Some("count 1"),
        target: 0.8,
        kind: Kind::Served(Load::HttpRanges(10_000)),
        ..SERVED
    },
    Row {
        name: "resp-p1",
        what: "INCR, redis-benchmark -c 50 -P 1",
        unit: "requests/s",
        against: Some("redis-server"),
        target: 1.0,
        kind: Kind::Served(Load::Resp(1)),
        ..SERVED
    },
    Row {
        name: "resp-p16",
        what: "INCR, redis-benchmark -c 50 -P 16",
        unit: "requests/s",
        against: Some("redis-server"),
        target: 0.95,
        kind: Kind::Served(Load::Resp(16)),
        ..SERVED
    },
];
