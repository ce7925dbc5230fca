//! Taking tokens back: of services, regions, operators and viewers, by one rule.
//!
//! A revoked token stays listed, so that a restored store cannot forget it. Agents learn of it with the roster; one that
//! is cut off when it is back. Absent on purpose: making tokens (each noun's own), and expiry.

use cadastre_core::ids::Name;
use cadastre_core::roster::{Body, Entry, Kind, Roster, TokenEntry};
use cadastre_protocol::error::Code;

use super::error::problem;
use super::roster::{Change, Effect};
use super::{Authority, ServiceError};

fn tokens_of(body: &mut Body) -> Option<&mut Vec<TokenEntry>> {
    match body {
        Body::Region(entry) => Some(&mut entry.tokens),
        Body::Service(entry) => Some(&mut entry.tokens),
        Body::Operator(entry) => Some(&mut entry.tokens),
        Body::Namespace(_) => None,
    }
}

/// Whether somebody could still operate without this token.
fn another_operates(roster: &Roster, token_id: &str) -> bool {
    roster.entries().any(|entry: &Entry| match &entry.body {
        Body::Operator(operator) if !operator.viewer => {
            operator.tokens.iter().any(|t| t.revoked_at_ms.is_none() && t.token_id != token_id)
        }
        Body::Operator(_) | Body::Region(_) | Body::Service(_) | Body::Namespace(_) => false,
    })
}

impl Authority {
    /// Revokes a token; the second time changes nothing.
    ///
    /// # Errors
    /// `not_found`; `not_allowed` for the last token that operates; or those of the store.
    pub async fn revoke_token(&self, who: &str, kind: Kind, name: &Name, token_id: &str) -> Result<(), ServiceError> {
        let (name, token_id, now) = (name.clone(), token_id.to_owned(), self.now_ms());
        self.change(who, "token_revoked", move |roster| {
            let missing = || problem(Code::NotFound, format!("{} {name} has no such token", kind.as_str()));
            let mut body = roster.get(kind, &name).map(|entry| entry.body.clone()).ok_or_else(missing)?;
            let token = tokens_of(&mut body).and_then(|all| all.iter_mut().find(|t| t.token_id == token_id));
            let token = token.ok_or_else(missing)?;
            if token.revoked_at_ms.is_some() {
                return Ok((vec![], ()));
            }
            token.revoked_at_ms = Some(now);
            let operates = matches!(&body, Body::Operator(operator) if !operator.viewer);
            if operates && !another_operates(roster, &token_id) {
                let text = "it is the last token that operates: make another one first, or nobody could any more";
                return Err(problem(Code::NotAllowed, text));
            }
            Ok((vec![Change { name: name.clone(), body, effect: Effect::None }], ()))
        })
        .await
    }
}
