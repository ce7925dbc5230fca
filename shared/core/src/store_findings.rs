//! What is wrong with how a store is set up, and what to do about it. Pure verdicts over what the store says of itself.
//!
//! A store that is too weak to promise anything is refused when it is opened. But a server's settings can be changed under a
//! running process, and some are not wrong enough to refuse: those are told, here, and shown by whoever asks.
//! Uniqueness does not rest on anything that is decided here.

use crate::durability::{Policy, Settings, weakness};

/// How bad it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Severity {
    /// Somebody should look at it.
    Warning,
    /// What was acknowledged may be lost, or nothing can be acknowledged.
    Bad,
}

/// One thing that is wrong.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The setting, by its name.
    pub setting: &'static str,
    /// What it is, and what can come of it.
    pub detail: String,
    /// What to do.
    pub cure: String,
}

impl Finding {
    fn new(severity: Severity, setting: &'static str, detail: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { severity, setting, detail: detail.into(), cure: cure.into() }
    }

    fn bad(setting: &'static str, detail: impl Into<String>, cure: impl Into<String>) -> Self {
        Self::new(Severity::Bad, setting, detail, cure)
    }

    fn warning(setting: &'static str, detail: impl Into<String>, cure: impl Into<String>) -> Self {
        Self::new(Severity::Warning, setting, detail, cure)
    }
}

/// What a PostgreSQL server says about itself.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ServerFacts {
    /// What a proof rests on.
    pub settings: Settings,
    /// `wal_level`.
    pub wal_level: String,
    /// `synchronous_commit`, as sessions get it that do not set it.
    pub synchronous_commit: String,
    /// `max_connections`, without those that are kept for superusers.
    pub connections: u32,
    /// How many are in use, by anybody.
    pub connected: u32,
    /// Synchronous standbys that are attached.
    pub attached: u32,
}

/// What an embedded store says about itself.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FileFacts {
    /// `PRAGMA journal_mode`.
    pub journal_mode: String,
    /// `PRAGMA synchronous`: 2 is FULL.
    pub synchronous: i64,
    /// The magic number of its file system, as `statfs` tells it; none where it does not.
    pub file_system: Option<u64>,
}

/// File systems of which another machine is the keeper, by their magic number.
const NETWORK: &[(u64, &str)] = &[
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xfe53_4d42, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x6573_5546, "FUSE"),
];
/// Kept in memory.
const MEMORY: &[(u64, &str)] = &[(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs")];

/// The findings about a server; `pool` is the most connections that one of our processes opens.
#[must_use]
pub fn of_server(policy: Policy, pool: u32, facts: &ServerFacts) -> Vec<Finding> {
    let mut found = Vec::new();
    let settings = &facts.settings;
    for (name, value) in [("fsync", &settings.fsync), ("full_page_writes", &settings.full_page_writes)] {
        if value == "off" {
            let detail = format!("{name} is off: a crash of the server can lose what was acknowledged");
            let cure = format!(
                "stop what writes to it; ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf(); then CHECKPOINT. After a \
                 crash in between treat the store as restored"
            );
            found.push(Finding::bad(name, detail, cure));
        }
    }
    if found.is_empty() {
        found.extend(standbys(policy, facts));
    }
    if facts.wal_level == "minimal" {
        let detail = "wal_level is minimal: the server can have no standby and no continuous backup";
        let cure = "ALTER SYSTEM SET wal_level = replica, and restart the server";
        found.push(Finding::warning("wal_level", detail, cure));
    }
    if matches!(facts.synchronous_commit.as_str(), "off" | "local") {
        let detail = format!(
            "synchronous_commit is {} by default; these programs set it on for themselves, what is written by hand is not safe",
            facts.synchronous_commit
        );
        let cure = "ALTER SYSTEM SET synchronous_commit = on; SELECT pg_reload_conf()";
        found.push(Finding::warning("synchronous_commit", detail, cure));
    }
    found.extend(connections(pool, facts));
    found
}

fn standbys(policy: Policy, facts: &ServerFacts) -> Option<Finding> {
    let setting = "synchronous_standby_names";
    let names = &facts.settings.standby_names;
    if policy.standbys == 0 {
        let cure = "set CADASTRE_REQUIRE_SYNC to how many must have a commit (docs/engines.md)";
        let detail =
            format!("{setting} is {names:?}, but nothing is asked of standbys: a wait that was cancelled counts");
        return (!names.trim().is_empty()).then(|| Finding::warning(setting, detail, cure));
    }
    if let Some(why) = weakness(policy, &facts.settings) {
        let cure = "name the standbys as CADASTRE_REQUIRE_SYNC asks for them (docs/engines.md), and reload the server";
        return Some(Finding::bad(setting, why, cure));
    }
    (facts.attached < policy.standbys).then(|| {
        let detail = format!(
            "{} of {} synchronous standbys are attached: nothing new is answered until they are",
            facts.attached, policy.standbys
        );
        let cure =
            "bring the standby back, or have another one named; never lower CADASTRE_REQUIRE_SYNC to get going again";
        Finding::bad("CADASTRE_REQUIRE_SYNC", detail, cure)
    })
}

fn connections(pool: u32, facts: &ServerFacts) -> Option<Finding> {
    let cure = "raise max_connections (the server has to be restarted), or take other programs off it; no transaction pooler in between";
    if facts.connections < pool {
        let detail =
            format!("max_connections leaves {}, and one of these processes opens up to {pool}", facts.connections);
        return Some(Finding::bad("max_connections", detail, cure));
    }
    let full = facts.connected.saturating_add(pool) > facts.connections;
    full.then(|| {
        let detail = format!(
            "{} of {} connections are in use: one more process, which opens up to {pool}, does not fit",
            facts.connected, facts.connections
        );
        Finding::warning("max_connections", detail, cure)
    })
}

/// The findings about an embedded store.
#[must_use]
pub fn of_file(facts: &FileFacts) -> Vec<Finding> {
    let mut found = Vec::new();
    if facts.journal_mode != "wal" {
        let detail = format!("journal_mode is {}: a power cut can lose what was acknowledged", facts.journal_mode);
        found.push(Finding::bad("journal_mode", detail, "put the file on a local disk, and start again"));
    }
    if facts.synchronous < 2 {
        let detail = "synchronous is weaker than FULL: a power cut loses what was acknowledged, and its ids come again";
        found.push(Finding::bad(
            "synchronous",
            detail,
            "start without --unsafe-sqlite-synchronous, which is for tests",
        ));
    }
    let of = |list: &'static [(u64, &'static str)]| {
        list.iter().find(|(magic, _)| facts.file_system == Some(*magic)).map(|(_, name)| *name)
    };
    if let Some(name) = of(NETWORK) {
        let detail =
            format!("the file lies on {name}: locks and syncs of network file systems are not to be relied on");
        let cure = "move data folder and witness to a local disk, the process stopped in order; or use PostgreSQL";
        found.push(Finding::bad("data", detail, cure));
    }
    if let Some(name) = of(MEMORY) {
        let detail = format!("the file lies on {name}: it is gone when the machine restarts");
        found.push(Finding::warning("data", detail, "move it to a disk, the process stopped in order"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> ServerFacts {
        let on = || "on".to_owned();
        let settings = Settings { standby_names: String::new(), fsync: on(), full_page_writes: on() };
        let wal_level = "replica".to_owned();
        ServerFacts { settings, wal_level, synchronous_commit: on(), connections: 97, connected: 9, attached: 0 }
    }

    fn named(policy: Policy, facts: &ServerFacts) -> Vec<(&'static str, Severity)> {
        of_server(policy, 8, facts).into_iter().map(|found| (found.setting, found.severity)).collect()
    }

    #[test]
    fn each_setting_of_a_server_is_named_by_itself() {
        let (bad, warning, none) = (Severity::Bad, Severity::Warning, Policy::default());
        assert_eq!(named(none, &facts()), []);
        type Change = fn(&mut ServerFacts);
        let cases: [(Change, &str, Severity); 7] = [
            (|it| it.settings.fsync = "off".to_owned(), "fsync", bad),
            (|it| it.settings.full_page_writes = "off".to_owned(), "full_page_writes", bad),
            (|it| it.settings.standby_names = "FIRST 1 (b)".to_owned(), "synchronous_standby_names", warning),
            (|it| it.wal_level = "minimal".to_owned(), "wal_level", warning),
            (|it| it.synchronous_commit = "local".to_owned(), "synchronous_commit", warning),
            (|it| it.connections = 7, "max_connections", bad),
            (|it| it.connected = 90, "max_connections", warning),
        ];
        for (change, setting, severity) in cases {
            let mut facts = facts();
            change(&mut facts);
            assert_eq!(named(none, &facts), [(setting, severity)]);
        }
    }

    #[test]
    fn what_is_required_of_standbys_is_compared_with_what_the_server_names_and_has() {
        let policy = Policy { standbys: 1, quorum_aware: false };
        let mut facts = facts();
        assert_eq!(named(policy, &facts), [("synchronous_standby_names", Severity::Bad)]);
        facts.settings.standby_names = "FIRST 1 (b)".to_owned();
        assert_eq!(named(policy, &facts), [("CADASTRE_REQUIRE_SYNC", Severity::Bad)]);
        facts.attached = 1;
        assert_eq!(named(policy, &facts), []);
        facts.settings.fsync = "off".to_owned();
        assert_eq!(named(policy, &facts), [("fsync", Severity::Bad)], "said once");
    }

    #[test]
    fn each_weakness_of_a_file_is_named() {
        let well = || FileFacts { journal_mode: "wal".to_owned(), synchronous: 2, file_system: Some(0xef53) };
        assert_eq!(of_file(&well()), []);
        for (facts, setting) in [
            (FileFacts { journal_mode: "delete".to_owned(), ..well() }, "journal_mode"),
            (FileFacts { synchronous: 1, ..well() }, "synchronous"),
            (FileFacts { file_system: Some(0x6969), ..well() }, "data"),
            (FileFacts { file_system: Some(0x0102_1994), ..well() }, "data"),
        ] {
            let found = of_file(&facts);
            assert_eq!(found.iter().map(|found| found.setting).collect::<Vec<_>>(), [setting]);
        }
    }
}
