//! Rules taken out, one at a time, from outside: the product is not touched.
//!
//! A guard that is SQL is taken out of the text on its way to the engine; a promise that is a message
//! is taken out of the message; a witness that is ignored is one that always agrees. Each removal must
//! be found, or either the simulator or the rule is not needed.

/// A rule that is taken out.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub enum Mutation {
    /// SQL on its way to the authority's or a region's engine is rewritten.
    Sql {
        /// What it is called.
        name: &'static str,
        /// Which text.
        from: &'static str,
        /// What it becomes.
        to: &'static str,
    },
}

/// Every rule that is taken out, with the number of seeds within which it must be found.
pub const ALL: &[(Mutation, u64)] = &[];

impl Mutation {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sql { name, .. } => name,
        }
    }
}
