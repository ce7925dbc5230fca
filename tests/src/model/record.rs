//! What a run leaves: what was exposed, what was violated, and the timeline.

/// What was exposed, by value: 0, or the region's number + 1. And what the stated limits excuse.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Exposed {
    pub by: Vec<u8>,
    /// Ordinals that a copied process held, and the one range that it may be replayed.
    pub excused: Vec<(u32, u32)>,
}

/// What must never be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Violation {
    /// A value was exposed twice.
    Duplicate(u32),
    /// Two copies of one process, or of one embedded store, were both answered again and again.
    TwoCopies(usize),
    /// An invariant of the protocol that is checked where it could break, before it becomes a duplicate.
    Broken(&'static str),
    /// Proof that a store went back was claimed, and none did.
    FalseAlarm,
    /// Everyone can be reached, and this region gets nothing.
    Wedge(usize),
}

/// A timeline, where one is wanted, and how often each exit was taken. It is not part of the state.
#[derive(Clone, Debug, Default)]
pub struct Log(pub Option<Vec<String>>, pub [u32; 4]);

impl PartialEq for Log {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl Eq for Log {}
impl std::hash::Hash for Log {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}
