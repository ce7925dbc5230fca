//! What is on the wire. Messages are lost, doubled, late and out of order; they are never altered.

use cadastre_core::ids::Epoch;
use cadastre_core::mark::Generation;

use super::marks::{Id, Life, Mark, Marks, Roster};
use super::state::Testimony;

/// One wanted range.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Want {
    pub allocation: Id,
    pub want: u32,
}

/// A region's message: who speaks, what it testifies, what it wants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    pub region: usize,
    pub epoch: Option<Epoch>,
    pub store: Id,
    pub session: u32,
    pub number: u32,
    pub incarnation: Id,
    pub chain: Option<Id>,
    pub promised: Generation,
    pub marks: Marks,
    pub store_mark: Mark,
    pub proven: bool,
    pub went_back: bool,
    pub confirms: Vec<(Id, Id)>,
    pub wants: Vec<Want>,
    pub testimony: Option<Box<Testimony>>,
    /// When it was sent.
    pub sent: u32,
    /// Which process really speaks, once it was answered since its copying; nobody decides on it.
    pub speaker: Option<usize>,
}

/// A granted range.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Granted {
    pub allocation: Id,
    pub grant: Id,
    pub lo: u32,
    pub hi: u32,
    pub epoch: Epoch,
    pub generation: Generation,
    pub replayed: bool,
    /// The definitions that it was made under.
    pub definitions: Vec<u32>,
}

/// The answer to one want.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    Granted(Granted),
    /// None, and the id is kept.
    Later,
    /// None, and the id is given up: it was used with other parameters.
    Conflict(Id),
    /// None: the region adopted and confirmed it before, and has forgotten it.
    AlreadyConfirmed(Id),
}

/// The authority's answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reply {
    pub region: usize,
    pub incarnation: Id,
    pub number: u32,
    /// When its request was sent.
    pub sent: u32,
    pub chain: Id,
    pub generation: Generation,
    pub quarantined: bool,
    pub epoch: Epoch,
    pub life: Life,
    pub kept: Option<Mark>,
    pub marks: Marks,
    pub roster: Option<Roster>,
    pub confirmed: Vec<Id>,
    pub grants: Vec<Outcome>,
    /// Another copy of the asker is alive: the asker ends.
    pub ends: bool,
}

/// One or the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    Request(Request),
    Reply(Box<Reply>),
}
