//! The authority hears a message: who speaks, what it proves about either store, what it wants.
//!
//! The order is the rule: identity first, then testimony about either side, then grants, and last the
//! answer, which carries nothing that has not passed the gate.

use cadastre_core::continuity::{HolderStore, KeptSender, Sender, WitnessMode, holder_store, place};
use cadastre_core::ids::{Epoch, RequestNo, SessionNo};
use cadastre_core::registry::RegionEvent;

use super::marks::{Door, Id, Mark, Marks, NS, ROSTER, RegionRow, name};
use super::message::{Message, Reply, Request};
use super::rules::Rule;
use super::state::{Kept, Session, Then, Violation, World};

/// What hearing came to.
struct Heard {
    kept: Option<Mark>,
    confirmed: Vec<Id>,
    went_back: bool,
}

impl World {
    /// The database that this process verified is still the one that runs.
    pub fn identify(&mut self, authority: usize) {
        let me = &self.authorities[authority];
        if me.started != self.stores[me.store].started && self.rules().has(Rule::IdentityChecked) {
            self.start(authority);
        }
    }

    /// A process of the authority is handed a message.
    pub fn hear_request(&mut self, authority: usize, request: Request) {
        self.identify(authority);
        let Some(region) = self.bound(authority, &request) else { return };
        if request.promised > self.authorities[authority].verified && self.rules().has(Rule::LookBeforeDoubt) {
            self.refresh(authority);
        }
        if request.promised > self.authorities[authority].verified {
            let store = self.authorities[authority].store;
            if request.promised <= self.stores[store].ledger.generation() {
                self.violate(Violation::Broken("a generation of our own store is taken for a stranger's"));
            }
            self.doubt(authority, false, "a region promised a generation above ours", request.promised);
        }
        if let Some(epoch) = request.epoch.filter(|epoch| *epoch > region.epoch) {
            self.keep_epoch(authority, request.region, epoch);
            self.doubt(authority, true, "a region holds an epoch above the one that is known", request.promised);
        }
        let placed = self.place(authority, &request);
        match placed {
            Sender::LateCopy => return,
            Sender::Clone | Sender::WrongChain => return self.end_copy(authority, &request),
            Sender::Next | Sender::NewSession | Sender::Resend => {}
        }
        self.note_copies(authority, &request);
        self.hear_marks(authority, &request);
        let chain = self.fresh();
        let heard = self.keep(authority, &request, chain);
        let ours = request.epoch.is_none_or(|epoch| epoch == region.epoch);
        if (heard.went_back || request.went_back) && ours && self.authorities[authority].door == Door::Open {
            let why = format!("{} went back", name(request.region));
            self.region_event(authority, request.region, RegionEvent::WentBack, &why);
        }
        if let Some(testimony) = &request.testimony {
            self.testify(authority, request.region, testimony);
        }
        self.settle(authority);
        self.answer(authority, request, heard, chain);
    }

    /// The sender's region, bound to its store: by its first call, or by an operator's leave.
    fn bound(&mut self, authority: usize, request: &Request) -> Option<RegionRow> {
        use cadastre_core::registry::RegionState as S;
        let store = self.authorities[authority].store;
        let Some(row) = self.stores[store].ledger.roster.regions[request.region] else {
            if self.rules().has(Rule::UnknownRegionHeard) {
                self.hear_marks(authority, request);
            }
            return None;
        };
        let event = match row.store {
            _ if row.life.0 == S::Retired => return None,
            Some(bound) if bound == request.store => return Some(row),
            None => RegionEvent::Join,
            Some(_) if row.rejoin => RegionEvent::JoinWithNewStore,
            Some(_) => return None,
        };
        self.join(authority, request.region, request.store, event);
        let row = self.stores[store].ledger.roster.regions[request.region]?;
        (row.store == Some(request.store)).then_some(row)
    }

    /// A word about the roster, united at once; nothing is given out on it before the quarantine ends.
    fn keep_epoch(&mut self, authority: usize, region: usize, epoch: Epoch) {
        let store = self.authorities[authority].store;
        if !self.rules().has(Rule::EpochKept) {
            return;
        }
        let ledger = &mut self.stores[store].ledger;
        if let Some(row) = &mut ledger.roster.regions[region] {
            row.epoch = row.epoch.max(epoch);
        }
    }

    /// The shipped verdict on where the request stands in its sender's conversation.
    fn place(&self, authority: usize, request: &Request) -> Sender {
        let me = &self.authorities[authority];
        let ledger = &self.stores[me.store].ledger;
        let of_store = |s: &&Session| s.region == request.region && s.store == request.store;
        let own = ledger.sessions.iter().filter(of_store).find(|s| s.session == request.session);
        let newest = ledger.sessions.iter().filter(of_store).map(|s| SessionNo(u64::from(s.session))).max();
        if own.is_some_and(|s| s.ended) {
            return Sender::WrongChain;
        }
        let kept = own.map(|s| KeptSender {
            incarnation: s.incarnation,
            number: RequestNo(u64::from(s.number)),
            chain: s.chain.to_string(),
            previous_chain: s.previous.map(|p| p.to_string()).unwrap_or_default(),
            current: s.generation == me.verified && self.rules().has(Rule::ChainChecked),
        });
        let chain = request.chain.map(|c| c.to_string());
        let session = SessionNo(u64::from(request.session));
        let number = RequestNo(u64::from(request.number));
        let shared = self.setup.shared;
        let placed = place(kept.as_ref(), newest, shared, session, &request.incarnation, number, chain.as_deref());
        match placed {
            Sender::Clone if !self.rules().has(Rule::SessionsNumbered) => Sender::Next,
            placed => placed,
        }
    }

    /// Two copies of a store or of a process are alive: the one that speaks ends.
    fn end_copy(&mut self, authority: usize, request: &Request) {
        let me = &self.authorities[authority];
        let (verified, store) = (me.verified, me.store);
        let ledger = &mut self.stores[store].ledger;
        let same = |s: &&mut Session| {
            s.region == request.region && s.session == request.session && s.incarnation == request.incarnation
        };
        if let Some(session) = ledger.sessions.iter_mut().find(same) {
            session.ended = true;
        }
        let Some(row) = ledger.roster.regions[request.region] else { return };
        self.say(|| format!("  authority {authority}: {} is a copy and ends", speaker(request)));
        self.net.push(Message::Reply(Box::new(Reply { ends: true, ..reply_to(request, row, verified, 0) })));
    }

    /// Of two copies that live, not both are heard again after the other was, in one generation.
    fn note_copies(&mut self, authority: usize, request: &Request) {
        let generation = self.authorities[authority].verified;
        let it = &mut self.regions[request.region];
        if it.copies.len() < 2 {
            return;
        }
        it.heard.retain(|h| h.0 == generation);
        // Who was not answered since the copying presents what both know.
        let Some(speaker) = request.speaker else { return };
        if it.heard.last().map(|h| h.1) == Some(speaker) {
            return;
        }
        let again = it.heard.iter().any(|h| h.1 == speaker && h.2 < request.number);
        it.heard.push((generation, speaker, request.number));
        if again && it.heard.len() > 3 && self.violation.is_none() {
            self.violation = Some(Violation::TwoCopies(request.region));
        }
    }

    /// Compares the marks that the sender holds with our rows.
    fn hear_marks(&mut self, authority: usize, request: &Request) {
        let rules = self.rules();
        if !rules.has(Rule::MarksHeard) {
            return;
        }
        let ledger = &mut self.stores[self.authorities[authority].store].ledger;
        let mut lacks: Marks = [None, None];
        for scope in [NS, ROSTER] {
            lacks[scope] = request.marks[scope].filter(|m| !ledger.is_current(scope, m, rules));
        }
        if lacks == [None, None] {
            return;
        }
        ledger.keep_seen(&lacks, rules);
        let highest = lacks.iter().flatten().map(|m| m.generation).max().unwrap_or_default();
        if self.authorities[authority].door != Door::Back {
            let why = format!("{} holds a mark whose row this store lacks", name(request.region));
            self.quarantine(authority, true, &why, &[highest]);
        }
    }

    /// Keeps what the sender says, and compares its store with what was kept before.
    fn keep(&mut self, authority: usize, request: &Request, chain: Id) -> Heard {
        let rules = self.rules();
        let shared = self.setup.shared;
        let verified = self.authorities[authority].verified;
        let ledger = &mut self.stores[self.authorities[authority].store].ledger;
        let session = Session {
            region: request.region,
            store: request.store,
            session: request.session,
            incarnation: request.incarnation,
            number: request.number,
            chain,
            previous: request.chain,
            generation: verified,
            ended: false,
        };
        let same =
            |s: &&mut Session| s.region == request.region && s.store == request.store && s.session == request.session;
        match ledger.sessions.iter_mut().find(same) {
            Some(held) => *held = session,
            None => ledger.sessions.push(session),
        }
        let kept = ledger.kept[request.region].take().filter(|k| k.store == request.store);
        let before = kept.as_ref().map(|k| k.mark);
        let store = match before {
            Some(_) if shared || !rules.has(Rule::HolderWentBack) => HolderStore::Current,
            before => holder_store(before.map(|m| m.core()).as_ref(), &request.store_mark.core()),
        };
        let version = |scope: usize| request.marks[scope].map(|m| m.version()).unwrap_or_default();
        let lower = before.is_some_and(|b| b.seq > request.store_mark.seq);
        let stays = (rules.has(Rule::KeptUntilProven) && !request.proven) || (rules.has(Rule::KeptNeverFalls) && lower);
        let mark = before.filter(|_| stays).unwrap_or(request.store_mark);
        let (roster, namespace) = kept.map(|k| (k.roster, k.namespace)).unwrap_or_default();
        ledger.kept[request.region] = Some(Kept {
            store: request.store,
            mark,
            roster: roster.max(version(ROSTER)),
            namespace: namespace.max(version(NS)),
        });
        let mut confirmed = Vec::new();
        for (allocation, grant) in &request.confirms {
            for held in ledger.grants.iter_mut().filter(|g| g.id == *grant && g.allocation == *allocation) {
                held.confirmed |= held.generation <= verified;
            }
            confirmed.push(*allocation);
        }
        let kept = before.filter(|_| rules.has(Rule::HolderWentBack));
        Heard { kept, confirmed, went_back: store == HolderStore::WentBack }
    }

    /// Grants, and the answer's way out.
    fn answer(&mut self, authority: usize, request: Request, heard: Heard, chain: Id) {
        let me = &self.authorities[authority];
        let Some(row) = self.stores[me.store].ledger.roster.regions[request.region] else { return };
        let mut reply = reply_to(&request, row, me.verified, chain);
        (reply.kept, reply.confirmed) = (heard.kept, heard.confirmed);
        let (grants, mark, uncommitted) = self.grants(authority, row, &request);
        reply.grants = grants;
        let marks = [mark, None];
        self.take_off(authority, marks, Then::Compose(Box::new(request), Box::new(reply)));
        if let Some(flight) = self.authorities[authority].flights.last_mut() {
            flight.uncommitted = uncommitted;
        }
    }

    /// The rest of the answer, as the store has it now: only what passes the gate is sent.
    pub fn compose(&mut self, authority: usize, request: Request, mut reply: Reply) {
        let me = &self.authorities[authority];
        let ledger = &self.stores[me.store].ledger;
        let Some(row) = ledger.roster.regions[request.region] else { return };
        reply.generation = me.verified;
        reply.quarantined = me.door != Door::Open;
        (reply.epoch, reply.life) = (row.epoch, row.life);
        if reply.quarantined {
            self.net.push(Message::Reply(Box::new(reply)));
            return;
        }
        let all = self.rules().has(Rule::AnswersCarryMarks) || !request.wants.is_empty();
        let named = all.then_some(ledger.marks[NS]);
        let marks = [named, Some(ledger.marks[ROSTER])];
        reply.marks = marks;
        let ours = |m: &Mark| m.generation == ledger.generation() || !self.rules().has(Rule::RosterOfGeneration);
        let theirs = request.marks[ROSTER].filter(ours).map(|m| m.version());
        reply.roster = Some(ledger.roster.since(theirs.unwrap_or_default()));
        self.take_off(authority, marks, Then::Send(Box::new(reply)));
    }

    /// Whether the authority has a witness that may end a doubt.
    pub fn witnessed(&self) -> bool {
        self.setup.mode == WitnessMode::Required
    }
}

fn reply_to(request: &Request, row: RegionRow, generation: cadastre_core::mark::Generation, chain: Id) -> Reply {
    Reply {
        region: request.region,
        incarnation: request.incarnation,
        number: request.number,
        sent: request.sent,
        chain,
        generation,
        quarantined: false,
        epoch: row.epoch,
        life: row.life,
        kept: None,
        marks: [None, None],
        roster: None,
        confirmed: vec![],
        grants: vec![],
        ends: false,
    }
}

/// Who speaks, for the timeline.
pub fn speaker(request: &Request) -> String {
    let epoch = request.epoch.unwrap_or(Epoch(0));
    format!("{} (epoch {epoch}, session {}, request {})", name(request.region), request.session, request.number)
}
