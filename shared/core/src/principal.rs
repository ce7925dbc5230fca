//! Who is calling: the holder of a token, by the roster.
//!
//! Both daemons authenticate from their own copy of the roster, so an agent knows its callers while
//! it is cut off. Only SHA-256 hashes are here; the token itself is hashed at the door and forgotten.

use std::collections::BTreeMap;

use crate::ids::Name;
use crate::roster::{Body, Roster, TokenEntry};

/// An authenticated caller.
#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub enum Principal {
    /// May do everything at the authority, and read everything.
    Operator(Name),
    /// May read everything.
    Viewer(Name),
    /// May ask agents for ids.
    Service(Name),
    /// An agent of a region.
    Region(Name),
}

impl Principal {
    /// For audits and logs: `operator ada`.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Operator(name) => format!("operator {name}"),
            Self::Viewer(name) => format!("viewer {name}"),
            Self::Service(name) => format!("service {name}"),
            Self::Region(name) => format!("region {name}"),
        }
    }
}

/// Finds the holder of a token.
#[derive(Clone, Debug, Default)]
pub struct TokenIndex(BTreeMap<String, Principal>);

impl TokenIndex {
    /// All tokens of `roster` that are not revoked.
    #[must_use]
    pub fn of(roster: &Roster) -> Self {
        let mut index = BTreeMap::new();
        for entry in roster.callers() {
            let name = entry.name.clone();
            let (tokens, principal): (&[TokenEntry], _) = match &entry.body {
                Body::Region(r) => (&r.tokens, Principal::Region(name)),
                Body::Service(s) => (&s.tokens, Principal::Service(name)),
                Body::Operator(o) if o.viewer => (&o.tokens, Principal::Viewer(name)),
                Body::Operator(o) => (&o.tokens, Principal::Operator(name)),
                Body::Namespace(_) => continue,
            };
            for token in tokens.iter().filter(|t| t.revoked_at_ms.is_none()) {
                index.insert(token.sha256.clone(), principal.clone());
            }
        }
        Self(index)
    }

    /// The holder of the token whose SHA-256 (lower-case hex) this is.
    ///
    /// A tree look-up takes a time that depends on the hash; what that tells is at most a prefix of a
    /// SHA-256 of 256 random bits, from which no token can be found.
    #[must_use]
    pub fn find(&self, sha256: &str) -> Option<&Principal> {
        self.0.get(sha256)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mark::Generation;
    use crate::roster::{Entry, OperatorEntry};

    #[test]
    fn a_revoked_token_is_nobody() {
        let token = |sha: &str, revoked| TokenEntry {
            token_id: sha.to_owned(),
            sha256: sha.to_owned(),
            made_at_ms: 0,
            revoked_at_ms: revoked,
        };
        let ada = Name::new("ada").unwrap();
        let body = Body::Operator(OperatorEntry { viewer: true, tokens: vec![token("a", None), token("b", Some(1))] });
        let entry = Entry { generation: Generation::default(), seq: 1, name: ada.clone(), body, seal: None };
        let index = TokenIndex::of(&[entry].into_iter().collect());
        assert_eq!(index.find("a"), Some(&Principal::Viewer(ada)));
        assert_eq!(index.find("b"), None);
    }
}
