//! Has a commit reached the synchronous standbys that must have it? Pure verdicts.
//!
//! Synchronous replication alone does not answer that: a wait for a standby that was cancelled, and a session that was
//! weakened, look like success to their client. So what a server *is set to* and what its standbys *have* are judged
//! here, from what it says about itself, and nothing is answered before the verdict is [`Proof::Proven`].

use crate::decimal::parse_unsigned;

/// What is asked of a server before an answer may leave.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Policy {
    /// How many synchronous standbys must have a commit; 0 asks for none.
    pub standbys: u32,
    /// Whether whoever promotes a standby knows how to choose it under `ANY k (...)` of more than k names.
    pub quorum_aware: bool,
}

/// `synchronous_standby_names`, read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Named {
    /// How many of them a commit waits for.
    pub wait_for: u32,
    /// Whether any of them will do (`ANY`), or the first ones (`FIRST`, or a plain list).
    pub any: bool,
    /// Who may be one.
    pub names: Vec<String>,
}

/// What a server says about its own durability.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Settings {
    /// `synchronous_standby_names`.
    pub standby_names: String,
    /// `fsync`.
    pub fsync: String,
    /// `full_page_writes`.
    pub full_page_writes: String,
}

/// A synchronous standby that is attached, as the server shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Standby {
    /// Its `application_name`.
    pub name: String,
    /// Up to where it has flushed the log; none where that is not known.
    pub flushed: Option<u64>,
}

/// Whether a position of the log is where it must be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Proof {
    /// Enough standbys have it.
    Proven,
    /// Fewer have it: so many are missing.
    Missing(u32),
}

/// Reads `synchronous_standby_names`; `None` where it is empty or cannot be read.
#[must_use]
pub fn named(text: &str) -> Option<Named> {
    let text = text.trim();
    let (head, list) = match text.split_once('(') {
        Some((head, rest)) => (head.trim(), rest.strip_suffix(')')?),
        None => ("FIRST 1", text),
    };
    let mut words = head.split_whitespace();
    let (word, count) = match (words.next()?, words.next()) {
        (count, None) => ("FIRST", count),
        (word, Some(count)) => (word, count),
    };
    let any = word.eq_ignore_ascii_case("any");
    if (!any && !word.eq_ignore_ascii_case("first")) || words.next().is_some() {
        return None;
    }
    let wait_for = u32::try_from(parse_unsigned(count).ok()?).ok().filter(|n| *n > 0)?;
    let names: Vec<String> =
        list.split(',').map(|name| name.trim().trim_matches('"').to_owned()).filter(|name| !name.is_empty()).collect();
    (!names.is_empty()).then_some(Named { wait_for, any, names })
}

/// Why a server with these settings proves nothing, for a person; none where it can.
#[must_use]
pub fn weakness(policy: Policy, settings: &Settings) -> Option<String> {
    for (name, value) in [("fsync", &settings.fsync), ("full_page_writes", &settings.full_page_writes)] {
        if value == "off" {
            return Some(format!("{name} is off: a crash could lose what was acknowledged; set it on"));
        }
    }
    if policy.standbys == 0 {
        return None;
    }
    let text = &settings.standby_names;
    let Some(named) = named(text) else {
        return Some(format!("synchronous_standby_names is {text:?}: name the synchronous standbys, as FIRST 1 (b)"));
    };
    if named.names.iter().any(|name| name == "*") {
        return Some(format!("synchronous_standby_names is {text:?}: any client could be the standby; name them"));
    }
    let number = u32::try_from(named.names.len()).unwrap_or(u32::MAX);
    if named.any && named.wait_for < number && !policy.quorum_aware {
        return Some(format!(
            "synchronous_standby_names is {text:?}: a standby that lacks the commit may be promoted. Use FIRST, or declare \
             with quorum_aware that whoever promotes one chooses by what a quorum has"
        ));
    }
    let most = if named.any { number } else { named.wait_for.min(number) };
    (policy.standbys > most).then(|| {
        format!("synchronous_standby_names is {text:?}: {} synchronous standbys are required", policy.standbys)
    })
}

/// Whether enough of the synchronous standbys have the log up to `position`.
#[must_use]
pub fn proof(policy: Policy, position: u64, standbys: &[Standby]) -> Proof {
    let have = standbys.iter().filter(|s| s.flushed.is_some_and(|flushed| flushed >= position)).count();
    match policy.standbys.saturating_sub(u32::try_from(have).unwrap_or(u32::MAX)) {
        0 => Proof::Proven,
        missing => Proof::Missing(missing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(names: &str, standbys: u32, quorum_aware: bool) -> Option<String> {
        let settings =
            Settings { standby_names: names.to_owned(), fsync: "on".to_owned(), full_page_writes: "on".to_owned() };
        weakness(Policy { standbys, quorum_aware }, &settings)
    }

    #[test]
    fn what_the_server_names_is_read_as_the_server_reads_it() {
        let read = |text: &str| named(text).map(|n| (n.any, n.wait_for, n.names.join("+")));
        assert_eq!(read("b"), Some((false, 1, "b".to_owned())));
        assert_eq!(read("b, c"), Some((false, 1, "b+c".to_owned())));
        assert_eq!(read("2 (b, \"c d\")"), Some((false, 2, "b+c d".to_owned())));
        assert_eq!(read(" first 1 (b,c)"), Some((false, 1, "b+c".to_owned())));
        assert_eq!(read("ANY 2 (b, c, d)"), Some((true, 2, "b+c+d".to_owned())));
        assert_eq!(read("ANY 1(b)"), Some((true, 1, "b".to_owned())));
        for bad in ["", " ", "ANY 0 (b)", "ANY (b)", "SOME 1 (b)", "1 (b", "1 ()", "ANY 1 2 (b)"] {
            assert_eq!(named(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_server_that_proves_nothing_is_told_from_one_that_can() {
        assert_eq!(says("", 0, false), None);
        for good in ["b", "FIRST 1 (b, c)", "ANY 1 (b)", "ANY 2 (b, c)"] {
            assert_eq!(says(good, 1, false), None, "{good}");
        }
        assert_eq!(says("ANY 1 (b, c)", 1, true), None);
        for (bad, standbys) in [("", 1), ("*", 1), ("FIRST 1 (*)", 1), ("ANY 1 (b, c)", 1), ("FIRST 1 (b, c)", 2)] {
            assert!(says(bad, standbys, false).is_some(), "{bad}");
        }
        let off = Settings { fsync: "off".to_owned(), ..Settings::default() };
        assert!(weakness(Policy::default(), &off).is_some());
    }

    #[test]
    fn a_position_is_proven_by_those_that_flushed_it() {
        let standby = |flushed| Standby { name: "b".to_owned(), flushed };
        let one = Policy { standbys: 1, quorum_aware: false };
        assert_eq!(proof(one, 10, &[standby(Some(10))]), Proof::Proven);
        assert_eq!(proof(one, 10, &[standby(Some(9)), standby(None)]), Proof::Missing(1));
        assert_eq!(proof(one, 10, &[]), Proof::Missing(1));
        assert_eq!(proof(Policy::default(), 10, &[]), Proof::Proven);
    }
}
