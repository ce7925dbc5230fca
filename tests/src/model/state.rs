//! The world: stores and their copies, processes, witness, regions, messages, and what was exposed.
//!
//! Everything that decides is in here and is hashed, so that two equal worlds are one state. What is
//! durable ([`Ledger`], [`RegionLedger`]) is apart from what dies with a process ([`Authority`],
//! [`Agent`]): a copy is a clone of the first, a restart makes the second anew.

use cadastre_core::continuity::WitnessMode;
use cadastre_core::ids::Epoch;
use cadastre_core::mark::Generation;
use cadastre_core::registry::RegionState;

use super::marks::{Definitions, Door, Id, Life, Mark, Marks, NS, REGIONS, ROSTER, RegionRow, Roster, Version};
use super::message::{Message, Reply, Request};
pub use super::record::{Exposed, Log, Violation};
use super::rules::Rules;
use super::setup::Setup;

/// A range that the authority gave.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    pub id: Id,
    pub allocation: Id,
    pub region: usize,
    pub epoch: Epoch,
    pub store: Id,
    pub want: u32,
    pub lo: u32,
    pub hi: u32,
    pub generation: Generation,
    pub confirmed: bool,
    pub definitions: Vec<u32>,
}

/// What the authority keeps of a sender.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Session {
    pub region: usize,
    pub store: Id,
    pub session: u32,
    pub incarnation: Id,
    pub number: u32,
    pub chain: Id,
    pub previous: Option<Id>,
    pub generation: Generation,
    pub ended: bool,
}

/// The last mark that a region's store testified, and how much of the authority's it knew.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kept {
    pub store: Id,
    pub mark: Mark,
    pub roster: Version,
    pub namespace: Version,
}

/// A complete testimony.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Testimony {
    pub epoch: Epoch,
    pub store: Id,
    pub generation: Generation,
    pub bound: u32,
    pub marks: Marks,
    pub roster: Roster,
}

/// The authority's durable state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ledger {
    pub door: Door,
    /// The newest row of namespace and roster; their generation is the store's.
    pub marks: [Mark; 2],
    pub base: [u32; 2],
    /// Every mark's row, in the order of writing.
    pub rows: Vec<Id>,
    pub roster: Roster,
    pub grants: Vec<Grant>,
    pub sessions: Vec<Session>,
    pub kept: [Option<Kept>; REGIONS],
    /// The highest marks that were heard of and whose rows are not here.
    pub seen: Marks,
    pub testimony: [Option<Testimony>; REGIONS],
    pub stated: [Option<(Generation, u32)>; REGIONS],
    /// An operator said that the old store is stopped: in which generation, when.
    pub stopped: Option<(Generation, u32)>,
    pub has_witness: bool,
    /// Who testified in a quarantine that it held something.
    pub held: [bool; REGIONS],
    /// Whether the witness was empty when this generation was opened.
    pub opened_empty: bool,
}

impl Ledger {
    pub fn generation(&self) -> Generation {
        self.marks[NS].generation
    }

    pub fn has_row(&self, row: Id) -> bool {
        self.rows.binary_search(&row).is_ok()
    }

    /// Who holds a grant.
    pub fn established(&self, region: usize) -> bool {
        self.held[region] || self.grants.iter().any(|g| g.region == region)
    }
}

/// A running database: the authority's state, the standby that follows it, and when it was started.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Store {
    pub ledger: Ledger,
    pub standby: Option<Ledger>,
    pub started: u32,
}

/// How far an answer has come.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Its rows are committed.
    Committed,
    /// And on the standby, where that is required.
    Proved,
    /// The witness was read.
    Read(Option<Marks>),
    /// The store was read too, and the witness is to be raised from what was read.
    Raise(Option<Marks>),
}

/// What follows the gate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Then {
    Nothing,
    /// The answer is completed with what the store says now, and passes once more.
    Compose(Box<Request>, Box<Reply>),
    Send(Box<Reply>),
}

/// Something on its way through the gate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flight {
    pub marks: Marks,
    pub stage: Stage,
    pub then: Then,
    /// Only where [`super::rules::Rule::WitnessAfterCommit`] is out: what is committed afterwards.
    pub uncommitted: Option<Box<Ledger>>,
}

/// A process of the authority.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Authority {
    pub store: usize,
    /// The start of the database that it verified.
    pub started: u32,
    /// The generation that it verified, and whether that is open.
    pub verified: Generation,
    pub door: Door,
    pub may_fill: bool,
    pub flights: Vec<Flight>,
    /// Only where [`super::rules::Rule::WatermarkConditional`] is out: the watermark read before.
    pub read_before: Option<u32>,
}

/// Marks in another failure domain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Witness {
    pub marks: Option<Marks>,
    pub saved: Option<Marks>,
    /// It was put back, and does not yet name what the store has.
    pub behind: bool,
}

/// A range that a region holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holding {
    pub grant: Id,
    pub lo: u32,
    pub hi: u32,
    pub carved_to: u32,
    pub epoch: Epoch,
    pub definitions: Vec<u32>,
}

/// A stored request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pending {
    pub allocation: Id,
    pub want: u32,
    pub epoch: Epoch,
}

/// A region's durable state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RegionLedger {
    pub store: Id,
    /// As the authority last said; `None` before the first answer.
    pub standing: Option<(Epoch, Life)>,
    pub session: u32,
    pub promised: Generation,
    pub door: Door,
    pub mark: Mark,
    pub base: u32,
    pub rows: Vec<Id>,
    pub pending: Vec<Pending>,
    pub holdings: Vec<Holding>,
    /// The end of the highest range that it ever held.
    pub top: u32,
    pub confirms: Vec<(Id, Id)>,
    pub seen: Marks,
    pub roster: Roster,
    pub has_witness: bool,
    /// It lies elsewhere than where it was last known to be the only one.
    pub away: bool,
}

impl RegionLedger {
    pub fn has_row(&self, row: Id) -> bool {
        self.rows.binary_search(&row).is_ok()
    }

    pub fn epoch(&self) -> Option<Epoch> {
        self.standing.map(|(epoch, _)| epoch)
    }
}

/// Numbers in an agent's memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    pub next: u32,
    pub hi: u32,
    /// The carve's row, until it has passed the region's gate.
    pub to_pass: Option<Mark>,
    pub definitions: Vec<u32>,
}

/// A process of a region.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Agent {
    pub copy: usize,
    pub alive: bool,
    pub incarnation: Id,
    pub session: u32,
    pub number: u32,
    pub chain: Option<Id>,
    /// The generation of its store that it verified.
    pub verified: Generation,
    pub segment: Option<Segment>,
    /// The generation that the authority asked testimony for.
    pub testify: Option<Generation>,
    /// Whether it was answered since it was started or copied.
    pub answered: bool,
    /// Only where [`super::rules::Rule::CarveDurable`] or `CarveConditional` is out.
    pub read_before: Option<u32>,
}

/// A region: its stores, its agents, its witness.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    pub exists: bool,
    pub retired: bool,
    pub copies: Vec<RegionLedger>,
    pub agents: Vec<Agent>,
    pub backup: Option<RegionLedger>,
    pub witness: Option<Mark>,
    /// The witness of a copy that was made with its witness.
    pub copied_witness: Option<Option<Mark>>,
    /// Ranges adopted so far.
    pub adopted: u32,
    /// The end of the highest range that any of its stores ever held.
    pub ever: u32,
    /// The allocations that were pending when a process was copied.
    pub copied_pending: Vec<Id>,
    /// Where copies live: who was heard last in this generation, with which number.
    pub heard: Vec<(Generation, usize, u32)>,
}

impl Region {
    /// The witness that an agent of a copy looks at.
    pub fn witness_of(&mut self, copy: usize) -> &mut Option<Mark> {
        match &mut self.copied_witness {
            Some(own) if copy > 0 => own,
            _ => &mut self.witness,
        }
    }
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub setup: Setup,
    pub stores: Vec<Store>,
    /// The store that operators hold to be the right one.
    pub current: usize,
    pub backup: Option<Ledger>,
    pub authorities: Vec<Authority>,
    pub witness: Witness,
    pub regions: Vec<Region>,
    pub net: Vec<Message>,
    pub exposed: Exposed,
    pub violation: Option<Violation>,
    /// Request deadlines that have passed.
    pub now: u32,
    pub next: Id,
    /// The store went back and nobody has settled it yet; while so, the witness is not put back.
    pub store_back: bool,
    /// Whether any of the authority's stores ever lost something.
    pub lost: bool,
    /// How often each fault has happened, for small bounds.
    pub spent: [u8; super::setup::COSTS],
    pub log: Log,
}

impl World {
    /// A cluster at rest: as many regions active as the setup says, the others unknown.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let generation = Generation { counter: 1, random: 1 };
        let mark = |row, bound| Mark { generation, seq: 1, row, bound };
        let mut next = 10;
        let mut fresh = || {
            next += 1;
            next
        };
        let marks = [mark(fresh(), 0), mark(fresh(), 1)];
        let mut roster =
            Roster { regions: [None; REGIONS], definitions: Definitions { version: (generation, 0), from: vec![] } };
        let stores: Vec<Id> = (0..REGIONS).map(|_| fresh()).collect();
        for (region, store) in stores.iter().enumerate().take(setup.active) {
            let (version, life) = ((generation, 1), Life(RegionState::Active));
            let (store, founder) = (Some(*store), region == 0);
            roster.regions[region] = Some(RegionRow { version, epoch: Epoch(1), life, store, founder, rejoin: false });
        }
        let ledger = Ledger {
            door: Door::Open,
            marks,
            base: [0, 1],
            rows: marks.iter().map(|m| m.row).collect(),
            roster,
            grants: vec![],
            sessions: vec![],
            kept: [const { None }; REGIONS],
            seen: [None; 2],
            testimony: [const { None }; REGIONS],
            stated: [None; REGIONS],
            stopped: None,
            has_witness: setup.mode != WitnessMode::None,
            held: [false; REGIONS],
            opened_empty: false,
        };
        let authority = Authority {
            store: 0,
            started: 0,
            verified: generation,
            door: Door::Open,
            may_fill: false,
            flights: vec![],
            read_before: None,
        };
        let standby = Some(ledger.clone());
        let named = [Some(marks[NS]), Some(marks[ROSTER])];
        let mut world = Self {
            setup,
            backup: Some(ledger.clone()),
            witness: Witness { marks: (setup.mode != WitnessMode::None).then_some(named), saved: None, behind: false },
            stores: vec![Store { ledger, standby, started: 0 }],
            current: 0,
            authorities: vec![authority; setup.authorities],
            regions: vec![],
            net: vec![],
            exposed: Exposed::default(),
            violation: None,
            now: 0,
            next,
            store_back: false,
            lost: false,
            spent: [0; super::setup::COSTS],
            log: Log::default(),
        };
        for (region, store) in stores.into_iter().enumerate() {
            let region = world.new_region(region, store, generation);
            world.regions.push(region);
        }
        world
    }

    fn new_region(&mut self, region: usize, store: Id, generation: Generation) -> Region {
        let exists = region < self.setup.active;
        let ledger = self.empty_region(store, exists.then_some((Epoch(1), Life(RegionState::Active))));
        let authority = &self.stores[0].ledger;
        let (marks, roster) = (authority.marks, authority.roster.clone());
        let ledger = RegionLedger { seen: marks.map(Some), roster, ..ledger };
        let witness = (self.setup.region_witness == WitnessMode::Required).then_some(ledger.mark);
        if exists {
            let kept =
                Kept { store, mark: ledger.mark, roster: marks[ROSTER].version(), namespace: marks[NS].version() };
            for ledger in [Some(&mut self.stores[0].ledger), self.backup.as_mut()].into_iter().flatten() {
                ledger.kept[region] = Some(kept.clone());
            }
        }
        let mut it = Region {
            exists,
            retired: false,
            backup: Some(ledger.clone()),
            copies: vec![ledger],
            agents: vec![],
            witness,
            copied_witness: None,
            adopted: 0,
            ever: 0,
            copied_pending: vec![],
            heard: vec![],
        };
        let agents = if self.setup.shared { self.setup.agents } else { 1 };
        for session in 1..=agents {
            let session = u32::try_from(session).unwrap_or(1);
            it.agents.push(self.new_agent(0, session, generation));
            it.copies[0].session = session;
        }
        it
    }

    /// A region's store that was just made: nothing was ever in it.
    pub fn empty_region(&mut self, store: Id, standing: Option<(Epoch, Life)>) -> RegionLedger {
        let row = self.fresh();
        let generation = Generation { counter: 1, random: 1 };
        let roster =
            Roster { regions: [None; REGIONS], definitions: Definitions { version: (generation, 0), from: vec![] } };
        RegionLedger {
            store,
            standing,
            session: 0,
            promised: Generation::default(),
            door: Door::Open,
            mark: Mark { generation, seq: 1, row, bound: 1 },
            base: 1,
            rows: vec![row],
            pending: vec![],
            holdings: vec![],
            top: 0,
            confirms: vec![],
            seen: [None; 2],
            roster,
            has_witness: self.setup.region_witness == WitnessMode::Required,
            away: false,
        }
    }

    /// A process that was just started.
    pub fn new_agent(&mut self, copy: usize, session: u32, verified: Generation) -> Agent {
        Agent {
            copy,
            alive: true,
            incarnation: self.fresh(),
            session,
            number: 0,
            chain: None,
            verified,
            segment: None,
            testify: None,
            answered: false,
            read_before: None,
        }
    }

    /// Keeps the first violation.
    pub fn violate(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }

    /// A number that was never drawn before.
    pub fn fresh(&mut self) -> Id {
        self.next += 1;
        self.next
    }

    pub fn rules(&self) -> Rules {
        self.setup.rules
    }

    /// Writes a line of the timeline, where one is wanted.
    pub fn say(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.log.0 {
            lines.push(line());
        }
    }
}
