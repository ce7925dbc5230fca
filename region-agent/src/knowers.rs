//! Processes that read less than this agent: they are given what they can read, and the authority is told of them, so
//! that nothing is defined that they could not follow.
//!
//! Kept in memory only and bounded: a process that an agent forgot says it again with its next request.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, PoisonError};

use cadastre_core::ids::Name;
use cadastre_core::knows::{CLIENTS_PER_MESSAGE, CLIENTS_REMEMBERED, COUNTS_MS};
use cadastre_core::namespace::NamespaceEntry;
use cadastre_protocol::error::Code;
use cadastre_protocol::ids::Program;
use cadastre_protocol::link::ClientWord;

use crate::error::{AgentError, problem};

/// Namespace, service, instance.
type Key = (Name, Name, Name);

struct Heard {
    program: Program,
    at_ms: u64,
}

#[derive(Default)]
struct Kept {
    heard: BTreeMap<Key, Heard>,
    /// The last one that a message spoke of: the others are next.
    spoken: Option<Key>,
}

/// See the module's documentation. Times are of the monotonic clock, in milliseconds.
#[derive(Default)]
pub struct Knowers(Mutex<Kept>);

impl Knowers {
    /// A process asks for a segment or a worker of `entry`.
    ///
    /// # Errors
    /// `invalid_request` where it could be given what it does not read.
    pub fn hear(
        &self,
        entry: &NamespaceEntry,
        key: (&Name, &Name, &Name),
        program: Option<&Program>,
        now_ms: u64,
    ) -> Result<(), AgentError> {
        let Some(program) = program.map(Program::here) else { return Ok(()) };
        if let Some(lack) = program.knows.lacks(entry) {
            let text = format!("program: it {lack}; narrow the namespace, or take a newer client");
            return Err(problem(Code::InvalidRequest, text));
        }
        let (namespace, service, instance) = key;
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (namespace.clone(), service.clone(), instance.clone());
        // That one reads everything now is said as well; of others there is nothing to say.
        if program.knows.is_all() && !kept.heard.contains_key(&key) {
            return Ok(());
        }
        kept.heard.insert(key, Heard { program, at_ms: now_ms });
        if kept.heard.len() > CLIENTS_REMEMBERED {
            let oldest = kept.heard.iter().min_by_key(|(_, heard)| heard.at_ms).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                kept.heard.remove(&oldest);
            }
        }
        Ok(())
    }

    /// What the next message says of them.
    pub fn words(&self, now_ms: u64) -> Vec<ClientWord> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.heard.retain(|_, heard| now_ms.saturating_sub(heard.at_ms) < COUNTS_MS);
        let from = kept.spoken.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let behind = kept.heard.range((from, Bound::Unbounded)).take(CLIENTS_PER_MESSAGE);
        let chosen: Vec<_> = behind.map(|(key, heard)| word(key, heard, now_ms)).collect();
        kept.spoken = (chosen.len() == CLIENTS_PER_MESSAGE)
            .then(|| chosen.last().map(|w| (w.namespace.clone(), w.service.clone(), w.instance.clone())))
            .flatten();
        chosen
    }
}

fn word(key: &Key, heard: &Heard, now_ms: u64) -> ClientWord {
    let (namespace, service, instance) = key.clone();
    let quiet_ms = now_ms.saturating_sub(heard.at_ms);
    ClientWord { service, instance, namespace, program: heard.program.clone(), quiet_ms }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cadastre_core::knows::Knows;
    use cadastre_core::namespace::Policy;
    use cadastre_core::sequence::Sequence;

    const SAFE: u64 = (1 << 53) - 1;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn narrow() -> Program {
        Program { version: "0.0.1".to_owned(), knows: Knows { largest: SAFE, ..Knows::all() } }
    }

    fn entry(max: u64) -> NamespaceEntry {
        let sequence = Sequence::new(1, 1, 1, i64::try_from(max).unwrap()).unwrap();
        NamespaceEntry::new(sequence, Policy::default())
    }

    fn hear(knowers: &Knowers, instance: &str, max: u64, now_ms: u64) -> Result<(), AgentError> {
        let (orders, shop, instance) = (name("orders"), name("shop"), name(instance));
        knowers.hear(&entry(max), (&orders, &shop, &instance), Some(&narrow()), now_ms)
    }

    #[test]
    fn who_reads_less_is_refused_what_it_does_not_read_and_spoken_of_else() {
        let knowers = Knowers::default();
        assert!(hear(&knowers, "till", SAFE + 1, 0).is_err());
        assert!(knowers.words(0).is_empty(), "it got nothing");
        hear(&knowers, "till", SAFE, 10).unwrap();
        let whole = Program { version: "9".to_owned(), knows: Knows::all() };
        let (orders, shop, other) = (name("orders"), name("shop"), name("other"));
        for program in [None, Some(&whole)] {
            knowers.hear(&entry(SAFE + 1), (&orders, &shop, &other), program, 10).unwrap();
        }
        let words = knowers.words(30);
        assert_eq!((words.len(), words[0].quiet_ms, words[0].instance.as_str()), (1, 20, "till"));
        knowers.hear(&entry(SAFE + 1), (&orders, &shop, &name("till")), Some(&whole), 10).unwrap();
        assert!(knowers.words(30)[0].program.knows.is_all(), "it is newer now");
        hear(&knowers, "till", SAFE, 10).unwrap();
        assert_eq!(knowers.words(30), words, "again with each message: one may be lost");
        assert!(knowers.words(10 + COUNTS_MS).is_empty(), "not for ever");
    }

    #[test]
    fn many_take_turns_and_are_bounded() {
        let knowers = Knowers::default();
        for n in 0..CLIENTS_REMEMBERED as u64 + 10 {
            hear(&knowers, &format!("till-{n}"), SAFE, n).unwrap();
        }
        let mut told = std::collections::BTreeSet::new();
        for _ in 0..CLIENTS_REMEMBERED / CLIENTS_PER_MESSAGE {
            told.extend(knowers.words(2_000).into_iter().map(|word| word.instance));
        }
        assert_eq!(told.len(), CLIENTS_REMEMBERED);
        assert!(!told.contains(&name("till-9")), "the oldest went");
    }
}
