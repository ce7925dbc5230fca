//! A region's store and its agents: start, message, answer.
//!
//! The same rules as at the authority, with the authority and the region's own witness as the other side.

use cadastre_core::continuity::{Start, WitnessMode, at_start, may_adopt};
use cadastre_core::ids::Epoch;
use cadastre_core::mark::Generation;

use super::marks::{Door, Life, Mark, NS, ROSTER, contains, keep_higher, name, view};
use super::message::{Granted, Message, Outcome, Reply, Request, Want};
use super::rules::Rule;
use super::state::{Holding, Pending, RegionLedger, Testimony, Violation, World};

impl World {
    /// The store of an agent.
    pub fn store_of(&mut self, region: usize, agent: usize) -> &mut RegionLedger {
        let copy = self.regions[region].agents[agent].copy;
        &mut self.regions[region].copies[copy]
    }

    /// The witness of an agent's store.
    pub fn witness_of(&mut self, region: usize, agent: usize) -> &mut Option<Mark> {
        let copy = self.regions[region].agents[agent].copy;
        self.regions[region].witness_of(copy)
    }

    /// A process starts on a copy of a region's store: it takes the next session and judges the store.
    pub fn start_agent(&mut self, region: usize, copy: usize) -> usize {
        let store = &mut self.regions[region].copies[copy];
        store.session += 1;
        let (session, generation) = (store.session, store.mark.generation);
        let agent = self.new_agent(copy, session, generation);
        self.regions[region].agents.push(agent);
        let agent = self.regions[region].agents.len() - 1;
        self.judge_start(region, agent);
        agent
    }

    fn judge_start(&mut self, region: usize, agent: usize) {
        let mode = self.setup.region_witness;
        let named = self.witness_of(region, agent).filter(|_| mode == WitnessMode::Required);
        let trusts = !self.rules().has(Rule::UnprovenStart);
        let burns = self.rules().has(Rule::EmptyWitnessBurns);
        let store = self.store_of(region, agent);
        let has = |m: &Mark| contains(&view(store.door, &store.mark, store.base), m, store.has_row(m.row));
        let found = named.as_ref().map(|m| vec![has(m)]);
        let verdict = match at_start(mode, found.as_deref()) {
            Start::Agreed if store.door == Door::Back => Start::WentBack,
            // A store that had a witness and finds none: store or witness was put back, nobody can say which.
            Start::Suspect(_) if mode == WitnessMode::Required && store.has_witness && burns => Start::WentBack,
            Start::Suspect(_) if trusts => Start::Agreed,
            verdict => verdict,
        };
        let door = match verdict {
            Start::Agreed => Door::Open,
            Start::Suspect(_) => Door::Suspect,
            Start::WentBack => Door::Back,
        };
        self.reopen(region, agent, door);
        self.say(|| format!("{} agent {agent} starts: {door:?}", name(region)));
        if door == Door::Open {
            let mark = self.store_of(region, agent).mark;
            self.pass_region(region, agent, mark);
        }
    }

    /// A new generation of a region's store, above its witness's.
    fn reopen(&mut self, region: usize, agent: usize, door: Door) {
        let (row, random) = (self.fresh(), self.fresh());
        let named = self.witness_of(region, agent).map(|m| m.generation);
        let store = self.store_of(region, agent);
        let seen = named.into_iter().chain([store.mark.generation]);
        let generation = Generation::above(seen, random << 1).unwrap_or_default();
        let seq = store.mark.seq + 1;
        store.mark = Mark { generation, seq, row, bound: seq };
        store.rows.push(row);
        store.door = door;
        if door == Door::Open {
            store.base = seq;
        }
        self.regions[region].agents[agent].verified = generation;
    }

    /// Proof: nothing more comes out of this store, or out of what it gave, until the next epoch.
    pub fn region_went_back(&mut self, region: usize, agent: usize, why: &str) {
        self.regions[region].agents[agent].segment = None;
        if self.store_of(region, agent).door != Door::Back {
            self.reopen(region, agent, Door::Back);
            self.say(|| format!("{} agent {agent}: its store went back: {why}", name(region)));
        }
    }

    /// A message, its wants stored before.
    pub fn draft(&mut self, region: usize, agent: usize, wants: bool, altered: bool) -> Option<Request> {
        let (batch, now) = (self.setup.batch, self.now);
        let it = &self.regions[region];
        if !it.exists || !it.agents.get(agent)?.alive {
            return None;
        }
        self.regions[region].agents[agent].verified = self.store_of(region, agent).mark.generation;
        let fresh: Vec<_> = (0..batch).map(|_| self.fresh()).collect();
        let mark = self.store_of(region, agent).mark;
        if self.store_of(region, agent).door == Door::Open {
            // Only what has passed the region's own gate is said.
            self.pass_region(region, agent, mark);
        }
        let store = self.store_of(region, agent);
        let gets = store.standing.filter(|(_, life)| life.0.gets_grants() && store.door == Door::Open);
        if let Some((epoch, _)) = gets
            && wants
            && store.pending.is_empty()
        {
            store.pending = fresh.into_iter().map(|allocation| Pending { allocation, want: 2, epoch }).collect();
        }
        let testimony = self.testimony(region, agent);
        let drops = self.rules().has(Rule::BurnDropsPending);
        let agent_now = &mut self.regions[region].agents[agent];
        agent_now.number += 1;
        let me = agent_now.clone();
        let store = self.store_of(region, agent);
        let ours = |p: &&Pending| gets.is_some_and(|(epoch, _)| p.epoch == epoch || !drops);
        let mut asked: Vec<Want> =
            store.pending.iter().filter(ours).map(|p| Want { allocation: p.allocation, want: p.want }).collect();
        if let Some(first) = asked.first_mut().filter(|_| altered) {
            first.want += 1;
        }
        Some(Request {
            region,
            epoch: store.epoch(),
            store: store.store,
            session: me.session,
            number: me.number,
            incarnation: me.incarnation,
            chain: me.chain,
            promised: store.promised,
            marks: store.seen,
            store_mark: store.mark,
            proven: store.door == Door::Open,
            went_back: store.door == Door::Back || store.away,
            confirms: store.confirms.clone(),
            wants: asked,
            testimony: testimony.map(Box::new),
            sent: now,
            speaker: me.answered.then_some(agent),
        })
    }

    /// A complete testimony, read in the transaction that promises the generation.
    fn testimony(&mut self, region: usize, agent: usize) -> Option<Testimony> {
        let generation = self.regions[region].agents[agent].testify?;
        let store = self.store_of(region, agent);
        let epoch = store.epoch()?;
        if store.door == Door::Back {
            return None;
        }
        store.promised = store.promised.max(generation);
        if store.promised != generation {
            return None;
        }
        let testimony = Testimony {
            epoch,
            store: store.store,
            generation,
            bound: store.top,
            marks: store.seen,
            roster: store.roster.clone(),
        };
        self.say(|| format!("{} promises generation {} and testifies", name(region), generation.counter));
        Some(testimony)
    }

    /// An agent takes an answer: as a whole, or not at all.
    pub fn hear_reply(&mut self, reply: Reply) {
        let region = reply.region;
        let found = self.regions[region]
            .agents
            .iter()
            .rposition(|a| a.alive && a.incarnation == reply.incarnation && a.number == reply.number);
        let Some(agent) = found else { return };
        self.take(region, agent, reply);
    }

    /// The answer, by the agent that it is for.
    pub fn take(&mut self, region: usize, agent: usize, reply: Reply) {
        let rules = self.rules();
        if reply.sent != self.now {
            // By the agent's monotonic clock its deadline is over.
            return;
        }
        if reply.ends {
            self.regions[region].agents[agent].alive = false;
            self.say(|| format!("{} agent {agent} is a copy and ends", name(region)));
            return;
        }
        self.answered(region, agent, &reply);
        let store = self.store_of(region, agent);
        if reply.generation < store.promised && rules.has(Rule::PromiseKept) {
            let line = format!("{} refuses an answer of generation {}", name(region), reply.generation.counter);
            self.say(|| line);
            return;
        }
        let lost = reply.kept.is_some_and(|kept| !store.has_row(kept.row));
        if lost && store.door != Door::Back {
            self.region_went_back(region, agent, "the authority holds a row that it lacks");
            return;
        }
        if self.store_of(region, agent).epoch().is_some_and(|epoch| epoch > reply.epoch) {
            // The authority has forgotten an epoch. What it says of the roster is united all the same.
            self.take_roster(region, agent, &reply);
            return;
        }
        self.stand(region, agent, &reply);
        self.take_roster(region, agent, &reply);
        let store = self.store_of(region, agent);
        store.confirms.retain(|(allocation, _)| !reply.confirmed.contains(allocation));
        if store.door == Door::Open {
            for outcome in &reply.grants {
                self.outcome(region, agent, reply.epoch, outcome);
            }
        }
    }

    /// The conversation goes on with the new token.
    fn answered(&mut self, region: usize, agent: usize, reply: &Reply) {
        let me = &mut self.regions[region].agents[agent];
        me.chain = Some(reply.chain);
        me.answered = true;
        me.testify = reply.quarantined.then_some(reply.generation);
    }

    /// Epoch, burn, and whether the store is confirmed by this answer.
    fn stand(&mut self, region: usize, agent: usize, reply: &Reply) {
        let drops = self.rules().has(Rule::BurnDropsPending);
        let row = self.fresh();
        let known = [*self.witness_of(region, agent), reply.kept];
        let named = known.into_iter().flatten().map(|m| m.seq).max().unwrap_or(0);
        let store = self.store_of(region, agent);
        let was = store.standing;
        let rose = was.is_some_and(|(epoch, _)| epoch < reply.epoch);
        store.standing = Some((reply.epoch, reply.life));
        if rose {
            store.holdings.clear();
            store.away = false;
            if drops {
                store.pending.clear();
            }
        }
        let settled = match store.door {
            Door::Open => false,
            Door::Suspect | Door::Back if rose || was.is_none() => true,
            // A quarantined authority may have gone back together with this store: it confirms nothing.
            Door::Suspect => !reply.quarantined,
            Door::Back => false,
        };
        if settled || (rose && store.door == Door::Open) {
            let seq = store.mark.seq.max(if settled { named } else { 0 }) + 1;
            let generation = store.mark.generation;
            store.mark = Mark { generation, seq, row, bound: seq };
            store.rows.push(row);
            if settled {
                (store.door, store.base) = (Door::Open, seq);
                store.has_witness = true;
            }
        }
        if settled {
            let mark = self.store_of(region, agent).mark;
            self.witness_of(region, agent).get_or_insert(mark);
        }
        if rose {
            self.regions[region].agents[agent].segment = None;
            let epoch = reply.epoch;
            self.say(|| format!("{} burns what it held: epoch {epoch}", name(region)));
        }
        if settled {
            self.say(|| format!("{} agent {agent}: the store is confirmed", name(region)));
        }
    }

    /// Unites the roster and keeps the marks, together: a mark that is sent says that its entries are held.
    fn take_roster(&mut self, region: usize, agent: usize, reply: &Reply) {
        let store = self.store_of(region, agent);
        if let Some(roster) = &reply.roster {
            store.roster.unite(roster);
        }
        keep_higher(&mut store.seen, &reply.marks);
    }

    fn outcome(&mut self, region: usize, agent: usize, epoch: Epoch, outcome: &Outcome) {
        let store = self.store_of(region, agent);
        match outcome {
            Outcome::Later => {}
            Outcome::Conflict(allocation) => store.pending.retain(|p| p.allocation != *allocation),
            Outcome::AlreadyConfirmed(allocation) => {
                if store.pending.iter().any(|p| p.allocation == *allocation) {
                    self.region_went_back(region, agent, "it asks for what it confirmed before");
                }
            }
            Outcome::Granted(granted) => self.adopt(region, agent, epoch, granted),
        }
    }

    /// Adopting a range and clearing its request are one transaction.
    fn adopt(&mut self, region: usize, agent: usize, epoch: Epoch, granted: &Granted) {
        let rules = self.rules();
        let row = self.fresh();
        let store = self.store_of(region, agent);
        let asked = store.pending.iter().position(|p| p.allocation == granted.allocation);
        let pending = asked.is_some() || !rules.has(Rule::AdoptOnlyPending);
        let floor = if rules.has(Rule::PromiseKept) { store.promised } else { Generation::default() };
        let holds = granted.epoch == epoch || !rules.has(Rule::EpochChecked);
        if !may_adopt(floor, granted.generation, pending, true, holds) {
            return;
        }
        let old = rules.has(Rule::EpochChecked) || granted.epoch == epoch;
        if asked.is_none() || !old {
            self.violation.get_or_insert(Violation::Broken("R3: an answer is adopted that nobody waits for"));
            return;
        }
        if let Some(asked) = asked {
            let asked = store.pending.remove(asked);
            let fits = asked.epoch == epoch || !rules.has(Rule::BurnDropsPending);
            if !fits || granted.hi - granted.lo > asked.want {
                return;
            }
        }
        let overlaps = |h: &Holding| h.lo < granted.hi && granted.lo < h.hi;
        if store.holdings.iter().any(overlaps) && rules.has(Rule::AdoptOnlyPending) {
            return;
        }
        let (lo, hi) = (granted.lo, granted.hi);
        let definitions = granted.definitions.clone();
        store.holdings.push(Holding { grant: granted.grant, lo, hi, carved_to: lo, epoch, definitions });
        store.top = store.top.max(hi);
        store.confirms.push((granted.allocation, granted.grant));
        let seq = store.mark.seq + 1;
        store.mark = Mark { seq, row, bound: seq, ..store.mark };
        store.rows.push(row);
        let it = &mut self.regions[region];
        it.adopted += 1;
        it.ever = it.ever.max(hi);
        if it.copied_pending.contains(&granted.allocation) {
            self.exposed.excused.push((lo, hi));
        }
        self.say(|| format!("{} adopts {lo}..{hi}", name(region)));
    }

    /// Whether a region's roster says that it may issue.
    pub fn may_issue(&mut self, region: usize, agent: usize) -> bool {
        let store = self.store_of(region, agent);
        store.door == Door::Open && store.standing.is_some_and(|(_, Life(life))| life.may_issue())
    }

    /// The highest marks of both scopes that a region knows, for the timeline.
    #[must_use]
    pub fn knows(&self, region: usize, copy: usize) -> String {
        let seen = self.regions[region].copies[copy].seen;
        let text = |scope: usize| seen[scope].map_or_else(|| "nothing".to_owned(), |m| m.to_string());
        format!("namespace {}; roster {}", text(NS), text(ROSTER))
    }

    /// Puts a message of an agent on the wire.
    pub fn send(&mut self, region: usize, agent: usize, wants: bool, altered: bool) -> bool {
        let Some(request) = self.draft(region, agent, wants, altered) else { return false };
        self.say(|| {
            let asks: Vec<_> = request.wants.iter().map(|w| w.allocation).collect();
            format!("{} agent {agent} sends request {}, asking {asks:?}", name(region), request.number)
        });
        self.net.push(Message::Request(request));
        true
    }
}
