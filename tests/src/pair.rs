//! A PostgreSQL primary and its standby, and one address for whichever is to be believed.
//!
//! The standby streams from the primary under the name `b`. What a failover manager does by itself, a test does by
//! hand here: detach, freeze, kill, promote, turn the address.

use crate::postgres::{Options, Postgres};
use crate::switch::Switch;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::{Duration, Instant};

/// A running pair.
pub struct Pair {
    /// The address that daemons are given.
    pub address: Switch,
    /// The first primary.
    pub a: Postgres,
    /// Its standby.
    pub b: Postgres,
}

impl Pair {
    /// A pair whose commits wait until the standby has flushed them.
    pub fn synchronous() -> Self {
        let pair = Self::asynchronous();
        Self::wait_for(&pair.a, "FIRST 1 (b)");
        pair.until_synchronous();
        pair
    }

    /// Sets whom a primary's commits wait for.
    pub fn wait_for(primary: &Postgres, standbys: &str) {
        primary.psql(&format!("ALTER SYSTEM SET synchronous_standby_names = '{standbys}'"));
        primary.psql("SELECT pg_reload_conf()");
    }

    /// A pair whose commits do not wait for the standby.
    pub fn asynchronous() -> Self {
        let settings = vec!["wal_keep_size=64MB".to_owned()];
        let a = Postgres::with(Options { settings, ..Options::default() });
        let b = Postgres::standby_of(&a, "b");
        until("the standby streams", || {
            a.psql("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'") == "1"
        });
        Self { address: Switch::to(a.port()), a, b }
    }

    /// Waits until the standby is a synchronous one.
    pub fn until_synchronous(&self) {
        Self::until_waited_for(&self.a);
    }

    /// Waits until a primary has a synchronous standby.
    pub fn until_waited_for(primary: &Postgres) {
        let sql = "SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')";
        until("a standby is synchronous", || primary.psql(sql) == "1");
    }

    /// A database that both have.
    pub fn database(&self, name: &str) -> String {
        self.a.create_database(name);
        self.address.url_of(name)
    }

    /// Ends the standby's streaming for good: it keeps what it has.
    pub fn detach(&self) {
        self.b.psql("ALTER SYSTEM SET primary_conninfo = ''");
        self.b.psql("SELECT pg_reload_conf()");
        until("nobody streams", || self.a.psql("SELECT count(*) FROM pg_stat_replication") == "0");
    }

    /// Lets it stream again after [`Self::detach`].
    pub fn attach(&self) {
        self.b.psql("ALTER SYSTEM RESET primary_conninfo");
        self.b.psql(&format!("ALTER SYSTEM SET primary_conninfo = '{}'", Postgres::conninfo(&self.a, "b")));
        self.b.psql("SELECT pg_reload_conf()");
        until("the standby streams", || {
            self.a.psql("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'") == "1"
        });
    }

    /// Freezes what the standby receives with: it stays attached and confirms nothing. What thaws it again.
    pub fn freeze(&self) -> Pid {
        let pid = self.b.psql("SELECT pid FROM pg_stat_wal_receiver");
        let pid = Pid::from_raw(pid.parse().expect("the standby streams"));
        kill(pid, Signal::SIGSTOP).expect("it is ours");
        pid
    }

    /// Kills what [`Self::freeze`] froze, with what lay in its socket: lost for real. The standby restarts itself.
    pub fn lose(&self, receiver: Pid) {
        kill(receiver, Signal::SIGKILL).expect("it is ours");
    }

    /// Makes the standby a primary.
    pub fn promote(&self) {
        until("the standby can be promoted", || {
            self.b.try_psql("postgres", "SELECT pg_promote()").is_ok_and(|it| it == "t")
        });
    }

    /// Kills the primary, promotes the standby and turns the address.
    pub fn fail_over(&self) {
        self.a.kill9();
        self.promote();
        self.address.turn(self.b.port());
    }
}

fn until(what: &str, done: impl Fn() -> bool) {
    let bound = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < bound, "not within 60 s: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
