//! An authority in memory, that loses, doubles and refuses on request.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use cadastre_core::ids::{AllocationId, ClusterId, Epoch, GrantId, Name, RegionId, RowId};
use cadastre_core::mark::{Generation, Mark, Scope, ScopeMark};
use cadastre_core::namespace::{NamespaceEntry, Policy};
use cadastre_core::registry::RegionState;
use cadastre_core::roster::{Body, Entry, Limits, ServiceEntry, TokenEntry};
use cadastre_core::sequence::Sequence;
use cadastre_protocol::error::{Code, Problem};
use cadastre_protocol::link::{Answer, GrantAnswer, Granted, Message, Standing, Want};
use cadastre_runtime::clock::ManualClock;
use cadastre_runtime::token::sha256_hex;
use region_agent::uplink::{Uplink, UplinkError};
use uuid::Uuid;

pub const TOKEN: &str = "cad_svc_shop";

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// What happens to the next message.
#[derive(Clone)]
pub enum Fault {
    /// It never arrives.
    LoseRequest,
    /// It is acted upon; its answer never arrives.
    LoseAnswer,
    /// Its answer takes so many milliseconds.
    Late(u64),
    /// The answer before this one comes instead.
    OldAnswer,
    /// It is refused.
    Refuse(Code),
    /// Each of its wants is refused.
    RefuseWants(Code),
    /// Nothing special.
    None,
}

pub struct State {
    pub cluster: ClusterId,
    pub generation: Generation,
    pub epoch: Epoch,
    pub region: RegionState,
    pub roster: Vec<Entry>,
    pub watermark: BTreeMap<Name, u64>,
    pub ledger: BTreeMap<AllocationId, (Want, Granted)>,
    pub confirmed: BTreeSet<AllocationId>,
    pub kept: Option<Mark>,
    pub quarantined: bool,
    pub testified: Vec<Message>,
    pub faults: VecDeque<Fault>,
    pub seen: Vec<Message>,
    pub last: Option<Answer>,
    /// A range to be granted whatever the watermark says.
    pub forced: Option<(u64, u64)>,
}

#[derive(Clone)]
pub struct Fake(pub Arc<Mutex<State>>, pub ManualClock);

fn entry(seq: u64, who: &str, body: Body) -> Entry {
    Entry { generation: Generation { counter: 1, random: 1 }, seq, name: name(who), body, seal: None }
}

impl Fake {
    /// Namespaces `orders` and, with blocks of 100 per service, `blocky`; grants of 1,000, segments of 10.
    pub fn new(clock: ManualClock) -> Self {
        let policy = Policy { grant_size: 1_000, segment_min: 10, segment_max: 50, ..Policy::default() };
        let blocky = Policy { service_block: 100, ..policy };
        let token = TokenEntry { token_id: "t".into(), sha256: sha256_hex(TOKEN), made_at_ms: 0, revoked_at_ms: None };
        let service = ServiceEntry {
            namespaces: vec![name("orders"), name("blocky"), name("ghost")],
            limits: Limits::default(),
            tokens: vec![token],
        };
        let namespace = |p| Body::Namespace(NamespaceEntry::new(Sequence::default(), p));
        let state = State {
            cluster: ClusterId(Uuid::from_u128(1)),
            generation: Generation { counter: 1, random: 1 },
            epoch: Epoch(1),
            region: RegionState::Active,
            roster: vec![
                entry(1, "orders", namespace(policy)),
                entry(2, "blocky", namespace(blocky)),
                entry(3, "shop", Body::Service(service)),
            ],
            watermark: BTreeMap::new(),
            ledger: BTreeMap::new(),
            confirmed: BTreeSet::new(),
            kept: None,
            quarantined: false,
            testified: vec![],
            faults: VecDeque::new(),
            seen: vec![],
            last: None,
            forced: None,
        };
        Self(Arc::new(Mutex::new(state)), clock)
    }

    pub fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.lock().unwrap())
    }

    pub fn fault(&self, fault: Fault) {
        self.with(|s| s.faults.push_back(fault));
    }

    /// Nobody answers any more, until `heal`.
    pub fn cut(&self) {
        self.with(|s| s.faults.extend(std::iter::repeat_n(Fault::LoseRequest, 1_000)));
    }

    pub fn heal(&self) {
        self.with(|s| s.faults.clear());
    }

    pub fn wants(&self) -> Vec<Want> {
        self.with(|s| s.seen.iter().flat_map(|m| m.wants.clone()).collect())
    }
}

impl State {
    fn want(&mut self, want: &Want, epoch: Epoch) -> GrantAnswer {
        let refused =
            |code| GrantAnswer::Refused { allocation_id: want.allocation_id, problem: Problem::new(code, "no") };
        if epoch != self.epoch {
            return refused(Code::EpochFenced);
        }
        if self.confirmed.contains(&want.allocation_id) {
            return refused(Code::AlreadyConfirmed);
        }
        if let Some((first, granted)) = self.ledger.get(&want.allocation_id) {
            if first != want {
                return refused(Code::AllocationConflict);
            }
            return GrantAnswer::Granted(Granted { replayed: true, ..granted.clone() });
        }
        let mark = self.watermark.entry(want.namespace.clone()).or_default();
        let (lo, hi) = self.forced.take().unwrap_or((*mark, *mark + want.want));
        *mark = (*mark).max(hi);
        let granted = Granted {
            allocation_id: want.allocation_id,
            grant_id: GrantId(Uuid::from_u128(u128::from(hi) << 64 | want.allocation_id.uuid().as_u128() >> 64)),
            namespace: want.namespace.clone(),
            lo,
            hi,
            epoch: self.epoch,
            generation: self.generation,
            replayed: false,
        };
        self.ledger.insert(want.allocation_id, (want.clone(), granted.clone()));
        GrantAnswer::Granted(granted)
    }

    fn answer(&mut self, message: &Message, refuse: Option<Code>) -> Answer {
        let went_back = message.words.store_went_back && !self.quarantined;
        if went_back && message.sender.epoch.is_none_or(|e| e == self.epoch) {
            self.epoch = self.epoch.next().unwrap();
        }
        for c in &message.words.confirms {
            self.confirmed.insert(c.allocation_id);
        }
        if message.testimony.is_some() {
            self.testified.push(message.clone());
        }
        let epoch = message.sender.epoch.unwrap_or(Epoch(0));
        let grants = message.wants.iter().map(|want| match refuse {
            Some(code) => GrantAnswer::Refused { allocation_id: want.allocation_id, problem: Problem::new(code, "no") },
            None if self.quarantined => GrantAnswer::Refused {
                allocation_id: want.allocation_id,
                problem: Problem::new(Code::Quarantined, "no"),
            },
            None => self.want(want, epoch),
        });
        let grants = grants.collect();
        let roster = Mark { generation: self.generation, seq: 3, row: RowId(Uuid::from_u128(77)), bound: 3 };
        Answer {
            version: 1,
            cluster_id: self.cluster,
            number: message.sender.number,
            incarnation: message.sender.incarnation,
            chain: format!("chain-{}", message.sender.number),
            generation: self.generation,
            quarantined: self.quarantined,
            testify_for: self.quarantined.then_some(self.generation),
            region: Standing { region_id: RegionId(1), epoch: self.epoch, state: self.region },
            kept: self.kept.replace(message.words.store_mark),
            marks: vec![ScopeMark { scope: Scope::Roster, mark: roster }],
            roster: self.roster.clone(),
            confirmed: message.words.confirms.iter().map(|c| c.allocation_id).collect(),
            grants,
            clock_ms: message.sender.clock_ms,
            homes: vec![],
            expect: vec![],
            drill: None,
            drill_heard: None,
        }
    }
}

#[async_trait]
impl Uplink for Fake {
    async fn send(&self, _path: &'static str, message: &Message) -> Result<Answer, UplinkError> {
        let lost = || Err(UplinkError::Unreachable("lost".into()));
        let mut state = self.0.lock().unwrap();
        state.seen.push(message.clone());
        let fault = state.faults.pop_front().unwrap_or(Fault::None);
        let refuse = match fault {
            Fault::LoseRequest => return lost(),
            Fault::Refuse(code) => return Err(UplinkError::Refused(Problem::new(code, "refused"))),
            Fault::OldAnswer => return state.last.clone().ok_or(UplinkError::Unreachable("none".into())),
            Fault::RefuseWants(code) => Some(code),
            Fault::LoseAnswer | Fault::Late(_) | Fault::None => None,
        };
        let answer = state.answer(message, refuse);
        match fault {
            Fault::LoseAnswer => return lost(),
            Fault::Late(ms) => self.1.advance(ms),
            _ => {}
        }
        state.last = Some(answer.clone());
        Ok(answer)
    }
}
