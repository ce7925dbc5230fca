//! Rules taken out, one at a time, from outside: the product is not touched.
//!
//! A guard that is SQL is taken out of the text on its way to the engine; a promise or a testimony that
//! is a message is taken out of the message; a witness that is ignored is one that forgets what it was
//! told. Each removal ([`super::removals`]) must be found within its number of seeds, or either the
//! simulator or the rule is not needed. What cannot be taken out from outside is taken out of the model
//! (`tests::model`).

use cadastre_protocol::link::Message;

use super::ops::Profile;
pub use super::removals::ALL;

/// Whose stores are bent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Whose {
    /// The authority's.
    Authority,
    /// The regions'.
    Regions,
    /// All.
    All,
}

/// How messages are bent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LinkBend {
    /// Not at all.
    None,
    /// Testimony says that nothing was ever held.
    NoBounds,
    /// Testimony does not say who exists.
    NoRoster,
}

/// How witnesses are bent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WitnessBend {
    /// Not at all.
    None,
    /// It says that it was raised, and was not.
    Forgets,
}

/// A rule that is taken out.
#[derive(Debug)]
pub struct Removal {
    /// What it is called.
    pub name: &'static str,
    /// The rule, in a sentence.
    pub rule: &'static str,
    /// Whose SQL is rewritten.
    pub whose: Whose,
    /// Which text becomes which.
    pub sql: &'static [(&'static str, &'static str)],
    /// How messages are bent.
    pub link: LinkBend,
    /// How the authority's witness is bent.
    pub witness: WitnessBend,
    /// Whether commits are acknowledged before they are durable, and the power is cut now and then.
    pub lose_unsynced: bool,
    /// Whether it shows as somebody who is never served again, not as a duplicate.
    pub wedges: bool,
    /// The runs in which it can show.
    pub shows: fn(&Profile) -> bool,
    /// Of those, within how many it must be found.
    pub within: u64,
}

/// A removal, by reference: there is one of each.
pub type Mutation = &'static Removal;

impl Removal {
    /// Bends a message on its way.
    pub fn bend(&self, message: &mut Message) {
        match self.link {
            LinkBend::None => {}
            LinkBend::NoBounds => {
                message.words.marks.clear();
                if let Some(testimony) = &mut message.testimony {
                    testimony.bounds.values_mut().for_each(|bound| *bound = 0);
                    testimony.marks.clear();
                }
            }
            LinkBend::NoRoster => {
                if let Some(testimony) = &mut message.testimony {
                    testimony.roster.clear();
                }
            }
        }
    }
}
