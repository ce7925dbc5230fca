//! Did this store go back in time, and what follows: pure verdicts.
//!
//! Both tiers use these rules: the authority with its witness and its regions as the other side, a
//! region's store with its witness and the authority as the other side. Nothing here waits or asks
//! anybody; callers read rows, ask a verdict, and write what it says in one guarded transaction.
//!
//! * **Suspicion**: this process cannot know that the store is current. It ends when someone who
//!   would know agrees.
//! * **Proof**: someone holds a mark whose row the store lacks. It ends when the store has been moved
//!   past everything that anyone could hold.
//!
//! Both are a quarantine of the scopes in doubt: no grant, replay, window or registry change.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, Name, RegionId, RequestNo, RowId, SessionNo, StoreId};
use crate::mark::{Generation, Mark, Scope};
use crate::registry::RegionState;
use crate::roster::Roster;

/// How far a witness is believed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WitnessMode {
    /// There is none: every start waits for all regions.
    #[default]
    None,
    /// It raises alarms and ends nothing.
    BestEffort,
    /// No answer leaves before it is raised; alone it can end a doubt.
    Required,
}

/// Whether a scope gives anything out.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScopeState {
    /// It does.
    Open,
    /// In quarantine on suspicion.
    Suspect,
    /// In quarantine on proof: the store went back.
    Back,
}

impl ScopeState {
    /// The word used in SQL and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Suspect => "suspect",
            Self::Back => "back",
        }
    }

    /// Back from [`Self::as_str`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "open" => Some(Self::Open),
            "suspect" => Some(Self::Suspect),
            "back" => Some(Self::Back),
            _ => None,
        }
    }
}

/// What a store says about itself for one scope.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ScopeView {
    /// Whether it is open.
    pub state: ScopeState,
    /// Its generation.
    pub generation: Generation,
    /// Its newest row.
    pub mark: Mark,
    /// The bound to which the present generation was raised when it was opened.
    pub base: u64,
}

/// Whether a store is current with `mark`: it has the row, or the mark is of an older generation
/// and lies at or below the base that the present generation was raised to. Never compared with the
/// present watermark, which a restored store can count past.
#[must_use]
pub fn contains(view: &ScopeView, mark: &Mark, has_row: bool) -> bool {
    has_row || (mark.generation < view.generation && mark.bound <= view.base)
}

/// How far above a store's own a generation may lie and still be believed to be of a future that the store lost: a
/// stolen region token must not use the counter up.
pub const MAX_GENERATIONS_AHEAD: u32 = 1 << 20;
/// The same for the rows of one scope. Whatever ends a doubt ends above every mark that was believed, and there has to
/// be something above.
pub const MAX_ROWS_AHEAD: u64 = 1 << 40;

/// Whether `said` can be of the future of a store at `generation`, with the mark's scope at `seq` (0 where it has none).
#[must_use]
pub fn may_be_of_a_lost_future(generation: Generation, seq: u64, said: &Mark) -> bool {
    is_within_reach(generation, said.generation) && said.seq <= seq.saturating_add(MAX_ROWS_AHEAD)
}

/// Whether `said` can be a generation of a store that stands at `ours`.
#[must_use]
pub fn is_within_reach(ours: Generation, said: Generation) -> bool {
    said.counter <= ours.counter.saturating_add(MAX_GENERATIONS_AHEAD)
}

/// What a store and its witness say about one another at a start.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Start {
    /// The witness names rows that the store contains: nothing is missing.
    Agreed,
    /// Nobody has confirmed the store yet.
    Suspect(&'static str),
    /// The witness names a row that the store lacks.
    WentBack,
}

/// The verdict of a process that answered before and finds another server behind its store's address: as at a start,
/// but what it let out itself, it knows. `own` is one verdict of [`contains`] per mark that it let out.
#[must_use]
pub fn at_another_server(mode: WitnessMode, witnessed: Option<&[bool]>, own: &[bool]) -> Start {
    if own.contains(&false) {
        return Start::WentBack;
    }
    match at_start(mode, witnessed) {
        Start::Suspect(_) => Start::Suspect("the store's server is another one than the one that was verified"),
        verdict => verdict,
    }
}

/// The verdict at a start. `witnessed` is `None` where the witness is empty, else one verdict of
/// [`contains`] per scope that the witness names.
#[must_use]
pub fn at_start(mode: WitnessMode, witnessed: Option<&[bool]>) -> Start {
    match (mode, witnessed) {
        (WitnessMode::Required | WitnessMode::BestEffort, Some(found)) if found.contains(&false) => Start::WentBack,
        (WitnessMode::Required, Some(_)) => Start::Agreed,
        (WitnessMode::Required, None) => Start::Suspect("the required witness is empty"),
        (WitnessMode::BestEffort, _) => Start::Suspect("a best-effort witness cannot confirm a start"),
        (WitnessMode::None, _) => Start::Suspect("there is no witness to confirm a start"),
    }
}

/// What the gate does with an answer whose row is committed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Gate {
    /// It leaves.
    Answer,
    /// Raise the witness from what was read to ours, then ask again.
    Raise,
    /// It is dropped: the scope was closed or re-opened meanwhile, or the server is another one and has to be verified
    /// anew.
    Drop,
    /// It is dropped, and the store is judged as at a start.
    Anew(&'static str),
    /// It is dropped and the scope goes into quarantine.
    Suspect(&'static str),
    /// It is dropped: somebody holds a row that this store lacks.
    WentBack(&'static str),
}

/// Why a store is judged anew.
pub const OLDER: &str = "the witness names less than was let out: it went back";

/// Whether a witness names less of a scope than this process had let out before it looked: then it went back itself, and
/// what it says of the other scopes is as old. Whoever raises it does so before an answer leaves, and only upwards.
#[must_use]
pub fn is_older(witness: Option<&Mark>, let_out: Option<&Mark>) -> bool {
    let_out.is_some_and(|ours| witness.is_none_or(|theirs| ours.is_above(theirs)))
}

/// What the gate read for one answer, after the commit and the proof.
#[derive(Clone, Copy, Debug)]
pub struct GateView<'a> {
    /// The mark of the row to be answered.
    pub ours: &'a Mark,
    /// The scope as the store has it now.
    pub now: &'a ScopeView,
    /// Whether this was read on the server that the scope's generation was verified on.
    pub same_server: bool,
    /// Whether the store has our row now.
    pub has_ours: bool,
    /// How far the witness is believed.
    pub mode: WitnessMode,
    /// Whether the witness holds anything at all.
    pub witness_empty: bool,
    /// The witness's mark of this scope, if it names one, and whether the store contains it.
    pub witness: Option<(&'a Mark, bool)>,
    /// Whether the witness names less than this process had let out when it read it: see [`is_older`].
    pub witness_older: bool,
    /// Whether this process initialised the store or lifted its quarantine by testimony: then, and
    /// only then, it may fill an empty witness.
    pub may_fill: bool,
}

/// The gate: row committed -> proof -> **witness** -> answer. Also for replays.
#[must_use]
pub fn gate(view: &GateView<'_>) -> Gate {
    if !view.same_server {
        return Gate::Drop;
    }
    if !view.has_ours {
        return Gate::WentBack("the row that was just committed is gone");
    }
    if view.now.state != ScopeState::Open || view.now.generation != view.ours.generation {
        return Gate::Drop;
    }
    if view.mode == WitnessMode::None {
        return Gate::Answer;
    }
    let required = view.mode == WitnessMode::Required;
    match view.witness {
        _ if view.witness_empty && !view.may_fill => {
            if required {
                Gate::Suspect("the required witness is empty")
            } else {
                Gate::Answer
            }
        }
        Some((_, false)) if required => Gate::WentBack("the witness names a row that this store lacks"),
        _ if required && view.witness_older => Gate::Anew(OLDER),
        Some((witness, _)) if witness.generation > view.ours.generation => {
            if required {
                Gate::Suspect("the witness is of a higher generation")
            } else {
                Gate::Answer
            }
        }
        Some((witness, _)) if !view.ours.is_above(witness) => Gate::Answer,
        Some(_) | None => Gate::Raise,
    }
}

/// Where a request stands in the conversation of its sender.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sender {
    /// The next request of a session that is known.
    Next,
    /// The first request of a session that was not known.
    NewSession,
    /// The last request once more, to the letter or at least with its number: its answer was lost.
    Resend,
    /// An older number: a late copy, to be dropped. It says nothing about the store.
    LateCopy,
    /// A newer session of the same embedded store has spoken, or another incarnation holds this
    /// session: two copies of one store are alive, and this one ends.
    Clone,
    /// The chain token is not the one that was given out: two copies of one process are alive.
    WrongChain,
}

/// What is kept of a sender.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeptSender<I> {
    /// The process.
    pub incarnation: I,
    /// The last request number that was answered.
    pub number: RequestNo,
    /// The token that the next request must present.
    pub chain: String,
    /// The token before; accepted for a resend.
    pub previous_chain: String,
    /// Whether this was written in the present generation. What was kept before it may have gone back
    /// with the store: a chain of an older generation proves nothing, and starts anew. Two copies of a
    /// process then pass once more, and are found at the next request of the second one.
    pub current: bool,
}

/// Places a request. `kept` is the sender's own session, `newest` the highest session that the store
/// ever registered, `shared` whether several live agents may share the store.
#[must_use]
pub fn place<I: PartialEq>(
    kept: Option<&KeptSender<I>>,
    newest: Option<SessionNo>,
    shared: bool,
    session: SessionNo,
    incarnation: &I,
    number: RequestNo,
    chain: Option<&str>,
) -> Sender {
    let superseded = newest.is_some_and(|n| n > session);
    let Some(kept) = kept else {
        return if superseded && !shared { Sender::Clone } else { Sender::NewSession };
    };
    if kept.incarnation != *incarnation || (superseded && !shared) {
        return Sender::Clone;
    }
    if number < kept.number {
        return Sender::LateCopy;
    }
    if !kept.current {
        return Sender::Next;
    }
    // A session's first request presents none; so does the second, where the first one's answer was lost.
    let presented = chain.unwrap_or_default();
    if number == kept.number {
        return if presented == kept.previous_chain { Sender::Resend } else { Sender::WrongChain };
    }
    // A sender whose last answer was lost still holds the token before.
    let known = presented == kept.chain || presented == kept.previous_chain;
    if known { Sender::Next } else { Sender::WrongChain }
}

/// Which mark of a holder's store is kept after a message: its own, unless the store is in doubt, or another of its
/// agents said something newer before. What is kept is what the holder is judged by: were it replaced by the word of
/// a store in doubt, a lost answer would be enough for that store to be confirmed by itself. One that speaks under an
/// epoch that is over burns all that it holds before it goes on: nothing has to be proved of it.
#[must_use]
pub fn still_kept(before: Option<Mark>, testified: Mark, proven: bool, epoch_is_over: bool) -> Mark {
    before.filter(|kept| !epoch_is_over && (!proven || kept.seq > testified.seq)).unwrap_or(testified)
}

/// Whether nobody can say that a holder's store in doubt is current: nothing is kept of it, as whoever kept it went back
/// as well. Then it counts as gone back. One that was never given anything has no epoch, and nothing to prove.
#[must_use]
pub fn is_forgotten(kept: Option<&Mark>, proven: bool, has_epoch: bool, epoch_is_over: bool) -> bool {
    kept.is_none() && !proven && has_epoch && !epoch_is_over
}

/// What a holder's testimony says about the holder's own store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HolderStore {
    /// At or past what was kept.
    Current,
    /// Below what was kept, or another row at the same place: it went back.
    WentBack,
}

/// Compares the mark that a region's store testifies with the one that was kept of the same store.
#[must_use]
pub fn holder_store(kept: Option<&Mark>, testified: &Mark) -> HolderStore {
    match kept {
        None => HolderStore::Current,
        Some(kept) if testified.seq > kept.seq => HolderStore::Current,
        Some(kept) if testified.seq == kept.seq && testified.row == kept.row => HolderStore::Current,
        Some(_) => HolderStore::WentBack,
    }
}

/// Whether `region` may have its first grant. A region that nobody has heard of can be forgotten by a
/// restore, with everything that it was given; so somebody established must hold the roster that names
/// it, and two new regions cannot vouch for each other.
///
/// `testified` are the stores that established regions testified for each region; `established` are
/// the regions that already hold a grant.
#[must_use]
pub fn may_have_first_grant(
    region: RegionId,
    founder: bool,
    named_by_established: bool,
    witnessed: bool,
    established: &BTreeSet<RegionId>,
) -> bool {
    established.contains(&region) || (witnessed && (founder || named_by_established))
}

/// Everything that a region says when a quarantine asks for it. Read in the transaction in which the
/// region also promised the generation, so that nothing of a lower one can slip in afterwards.
#[derive(Clone, Debug, PartialEq)]
pub struct Testimony {
    /// Its epoch when it testified.
    pub epoch: Epoch,
    /// Its store.
    pub store: StoreId,
    /// The generation that it promised: from then on it refuses anything lower.
    pub generation: Generation,
    /// Per namespace, the end of the highest range that it ever held.
    pub bounds: BTreeMap<Name, u64>,
}

/// What decides whether a quarantine may end.
#[derive(Clone, Debug)]
pub struct QuarantineView<'a> {
    /// The quarantine's generation.
    pub generation: Generation,
    /// Whether there is proof, not only suspicion.
    pub went_back: bool,
    /// How far the witness is believed.
    pub mode: WitnessMode,
    /// The highest generation in the witness, and whether the store contains every row it names;
    /// `None` where it is empty.
    pub witness: Option<(Generation, bool)>,
    /// The union of every roster known: own, witnessed, testified.
    pub roster: &'a Roster,
    /// Testimony for this generation, by region.
    pub testimony: &'a BTreeMap<RegionId, Testimony>,
    /// Bounds that an operator stated for silent regions, for this generation.
    pub stated: &'a BTreeMap<RegionId, BTreeMap<Name, u64>>,
    /// Whether the witness names the roster: only then can it be raised to alone.
    pub witness_has_marks: bool,
    /// Whether an operator vouched that the old store is stopped, a request deadline ago. Needed for
    /// stated bounds, and enough by itself only where no region ever spoke.
    pub overruled: bool,
}

/// How a quarantine stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Exit {
    /// Exit 1: a suspicion, and the required witness names rows that the store contains.
    ByWitness,
    /// Exit 2: the store went back, and the required witness names what it must be raised to.
    RaisedToWitness,
    /// Exit 3: every region testified.
    ByTestimony,
    /// Exit 4: every region testified or had its bound stated by an operator.
    ByOperator,
    /// The witness was at a higher generation: a new one must be opened above it first.
    Reopen,
    /// What is still missing.
    Waiting {
        /// Regions that have not testified for this generation.
        silent: Vec<Name>,
    },
}

/// Decides whether, and by which exit, a quarantine may end.
#[must_use]
pub fn exit(view: &QuarantineView<'_>) -> Exit {
    if view.mode == WitnessMode::Required {
        match view.witness {
            Some((witness, _)) if witness >= view.generation => return Exit::Reopen,
            Some((_, true)) if !view.went_back => return Exit::ByWitness,
            Some(_) if view.witness_has_marks => return Exit::RaisedToWitness,
            Some(_) | None => {}
        }
    }
    let mut asked = 0;
    let mut stated = false;
    let mut silent = Vec::new();
    for (name, region) in view.roster.regions() {
        match region.state {
            RegionState::Registered => continue,
            RegionState::Retired => {
                asked += 1;
                continue;
            }
            RegionState::Active | RegionState::Draining | RegionState::Fenced => asked += 1,
        }
        let heard = view.testimony.get(&region.region_id).is_some_and(|t| {
            t.generation == view.generation && t.epoch == region.epoch && Some(t.store) == region.store_id
        });
        let said_for_it = view.stated.contains_key(&region.region_id);
        stated |= said_for_it && !heard;
        if !heard && !said_for_it {
            silent.push(name.clone());
        }
    }
    if !silent.is_empty() || (asked == 0 && !view.overruled) {
        return Exit::Waiting { silent };
    }
    if stated || asked == 0 { Exit::ByOperator } else { Exit::ByTestimony }
}

/// Where a scope must be raised to: the highest of everything that anybody knows.
#[must_use]
pub fn raise_to(own: u64, marks: impl IntoIterator<Item = u64>) -> u64 {
    marks.into_iter().fold(own, u64::max)
}

/// Whether an answer may be adopted by its asker.
#[must_use]
pub fn may_adopt(
    promised: Generation,
    answer: Generation,
    pending: bool,
    within_deadline: bool,
    epoch_holds: bool,
) -> bool {
    pending && within_deadline && epoch_holds && answer >= promised
}

/// Names a mark for a log line: `ns/orders 3.0000002a/17`.
#[must_use]
pub fn describe(scope: &Scope, mark: &Mark) -> String {
    format!("{scope} {}/{} row {}", mark.generation, mark.seq, short(mark.row))
}

fn short(row: RowId) -> String {
    row.to_string().chars().take(8).collect()
}

#[cfg(test)]
#[path = "continuity/tests.rs"]
mod tests;
