//! Every row: what it measures, against what, and the target that it was given before it was measured.

use super::agents::Authority;
use super::grants::{self, HOT_ROW};
use super::in_process::Contenders;
use super::postgres::Standby;
use super::served::Load;
use super::stamped::{FERROID, UUID};
use super::worked;

/// How a row is run.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Threads without a network.
    InProcess(usize, Contenders),
    /// Processes and sockets.
    Served(Load),
    /// Grants on PostgreSQL.
    Grants(Standby, grants::Figure),
    /// A start of an agent.
    Start(Authority),
    /// What an idle namespace adds to an agent's memory.
    Idle {
        /// How many more there are.
        namespaces: u32,
    },
    /// An agent's memory.
    Memory {
        /// That it knows.
        namespaces: u32,
        /// In which it has issued.
        hot: u32,
    },
    /// The worked case.
    Worked(worked::Figure),
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

const STAMPED: Row = Row {
    what: "time-based ids of one worker, 16 bits of sequence (at most 65.5 M a second): next(), the clock read for each",
    against: Some(FERROID),
    limit: None,
    // At most 1.5 times its cost.
    target: 1.0 / 1.5,
    kind: Kind::InProcess(1, Contenders::Stamps(16)),
    ..STRICT
};

const RESP_CPU: Row = Row { unit: "us/call", against: Some("redis-server"), less_is_better: true, ..SERVED };

const UUIDS: Row = Row {
    what: "UUIDs of version 7, one a call",
    against: Some(UUID),
    limit: None,
    target: 1.0,
    kind: Kind::InProcess(1, Contenders::Uuids(1)),
    ..STRICT
};

const SERVED: Row = Row { limit: None, kind: Kind::Served(Load::HttpOne(32)), ..STRICT };

const MILLISECONDS: Row = Row { unit: "ms", against: None, less_is_better: true, ..SERVED };

/// All rows.
pub static ROWS: &[Row] = &[
    Row { name: "next-1", target: 0.9, kind: Kind::InProcess(1, Contenders::Strict), ..STRICT },
    Row { name: "next-2", kind: Kind::InProcess(2, Contenders::Strict), ..STRICT },
    Row { name: "next-8", kind: Kind::InProcess(8, Contenders::Strict), ..STRICT },
    Row { name: "chunks-1", kind: Kind::InProcess(1, Contenders::Chunks), ..CHUNKED },
    Row { name: "chunks-2", kind: Kind::InProcess(2, Contenders::Chunks), ..CHUNKED },
    Row { name: "chunks-8", kind: Kind::InProcess(8, Contenders::Chunks), ..CHUNKED },
    Row {
        name: "snowflake-1",
        what: "time-based ids of one worker, 12 bits of sequence: 4.096 M a second are all there are",
        against: None,
        target: 4.05e6,
        kind: Kind::InProcess(1, Contenders::Stamps(12)),
        ..STAMPED
    },
    Row { name: "snowflake16-1", ..STAMPED },
    Row { name: "snowflake16-2", kind: Kind::InProcess(2, Contenders::Stamps(16)), ..STAMPED },
    Row { name: "uuid7-1", ..UUIDS },
    Row { name: "uuid7-2", kind: Kind::InProcess(2, Contenders::Uuids(1)), ..UUIDS },
    Row {
        name: "uuid7-batch",
        what: "UUIDs of version 7, 1,024 a call",
        target: 3.0,
        kind: Kind::InProcess(1, Contenders::Uuids(1_024)),
        ..UUIDS
    },
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
        what: "POST /v1/ids, 10,000 ids as ranges, segments of up to 10,000,000: the count costs nothing",
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
    Row {
        name: "resp-p1-cpu",
        what: "INCR, -P 1: the serving process's use of the processor (ours: authority and two regions in one)",
        target: 0.8,
        kind: Kind::Served(Load::RespCpu(1)),
        ..RESP_CPU
    },
    Row {
        name: "resp-p16-cpu",
        what: "INCR, -P 16: the same",
        target: 0.8,
        kind: Kind::Served(Load::RespCpu(16)),
        ..RESP_CPU
    },
    Row {
        name: "grants-pg",
        what: "grants of one namespace to 64 requesters at once, on PostgreSQL",
        unit: "grants/s",
        against: Some(HOT_ROW),
        target: 10.0,
        kind: Kind::Grants(Standby::None, grants::Figure::PerSecond),
        ..SERVED
    },
    Row {
        name: "grants-pg-p99",
        what: "the same: the slowest hundredth takes",
        target: 20.0,
        kind: Kind::Grants(Standby::None, grants::Figure::P99),
        ..MILLISECONDS
    },
    Row {
        name: "grants-pg-sync",
        what: "the same with a synchronous standby, ours with the proof (CADASTRE_REQUIRE_SYNC=1)",
        unit: "grants/s",
        against: Some(HOT_ROW),
        target: 10.0,
        kind: Kind::Grants(Standby::Synchronous, grants::Figure::PerSecond),
        ..SERVED
    },
    Row {
        name: "grants-pg-sync-p99",
        what: "the same: the slowest hundredth takes",
        target: 20.0,
        kind: Kind::Grants(Standby::Synchronous, grants::Figure::P99),
        ..MILLISECONDS
    },
    Row {
        name: "start",
        what: "agent on a warm store, from exec to the first id",
        target: 200.0,
        kind: Kind::Start(Authority::There),
        ..MILLISECONDS
    },
    Row {
        name: "start-cut-off",
        what: "the same, while connections to the authority are refused",
        target: 200.0,
        kind: Kind::Start(Authority::Refused),
        ..MILLISECONDS
    },
    Row {
        name: "start-silent",
        what: "the same, while nothing comes back from the authority",
        target: 200.0,
        kind: Kind::Start(Authority::Silent),
        ..MILLISECONDS
    },
    Row {
        name: "memory",
        what: "agent with 10,000 namespaces, 100 of them hot: resident",
        unit: "MB",
        target: 100.0,
        kind: Kind::Memory { namespaces: 10_000, hot: 100 },
        ..MILLISECONDS
    },
    Row {
        name: "memory-idle",
        what: "what one idle namespace adds to an agent: 10,000 of them, and none",
        unit: "bytes",
        target: 2_048.0,
        kind: Kind::Idle { namespaces: 10_000 },
        ..MILLISECONDS
    },
    Row {
        name: "worked-case",
        what: "one agent, 416,667 ids/s for 64 instances in batches of 1,000, 30 s without its authority: answered",
        unit: "ids/s",
        target: 416_000.0,
        less_is_better: false,
        kind: Kind::Worked(worked::Figure::PerSecond),
        ..MILLISECONDS
    },
    Row {
        name: "worked-case-p99",
        what: "the same: the slowest hundredth of the batches takes",
        target: 20.0,
        kind: Kind::Worked(worked::Figure::P99),
        ..MILLISECONDS
    },
    Row {
        name: "worked-case-errors",
        what: "the same: batches that were refused or not answered",
        unit: "batches",
        target: 0.0,
        kind: Kind::Worked(worked::Figure::Errors),
        ..MILLISECONDS
    },
    Row {
        name: "worked-case-writes",
        what: "the same: transactions that write at the authority, heartbeats included",
        unit: "a second",
        target: 1.0,
        kind: Kind::Worked(worked::Figure::Transactions),
        ..MILLISECONDS
    },
    Row {
        name: "worked-case-share",
        what: "the same: grants for 10^6 ids",
        unit: "grants",
        target: 1.0,
        kind: Kind::Worked(worked::Figure::StoreShare),
        ..MILLISECONDS
    },
];
