//! From a region's ranges to exposed numbers: carve, the region's gate, expose.

use cadastre_core::continuity::{Gate, GateView, WitnessMode, gate};
use cadastre_core::pool::{self, carve};
use cadastre_core::range::Range;
use uuid::Uuid;

use super::marks::{Door, Mark, contains, name, view};
use super::rules::Rule;
use super::state::{Segment, Violation, World};

impl World {
    /// An agent without numbers carves one, by the shipped rule, and commits the carve.
    pub fn carve(&mut self, region: usize, agent: usize) {
        let rules = self.rules();
        let it = &self.regions[region];
        if !it.exists || !it.agents.get(agent).is_some_and(|a| a.alive && a.segment.is_none()) {
            return;
        }
        if !self.may_issue(region, agent) || self.store_of(region, agent).away {
            return;
        }
        let row = self.fresh();
        let verified = self.regions[region].agents[agent].verified;
        let read_before = self.regions[region].agents[agent].read_before;
        let store = self.store_of(region, agent);
        if store.mark.generation != verified {
            // Another process opened the store's generation: look again, next time.
            let generation = store.mark.generation;
            self.regions[region].agents[agent].verified = generation;
            return;
        }
        let holding = |h: &super::state::Holding| {
            let range = Range::new(u64::from(h.lo), u64::from(h.hi)).ok()?;
            let carved_to = u64::from(h.carved_to);
            Some(pool::Holding { id: Uuid::from_u128(u128::from(h.grant)), range, carved_to })
        };
        let holdings: Vec<_> = store.holdings.iter().filter_map(holding).collect();
        let Some(found) = carve(&holdings, 1) else { return };
        let (mut lo, hi) = (found.range.lo() as u32, found.range.hi() as u32);
        let grant = found.from.as_u128() as u32;
        if !rules.has(Rule::CarveConditional) {
            // The cursor was read at an earlier time, and is moved whatever it is now.
            lo = read_before.filter(|l| store.holdings.iter().any(|h| h.lo <= *l && *l < h.hi)).unwrap_or(lo);
        }
        let hi = if rules.has(Rule::CarveConditional) { hi } else { lo + 1 };
        if rules.has(Rule::CarveDurable) {
            for h in store.holdings.iter_mut().filter(|h| h.grant == grant) {
                h.carved_to = h.carved_to.max(hi);
            }
        }
        let seq = store.mark.seq + 1;
        store.mark = Mark { seq, row, bound: seq, ..store.mark };
        store.rows.push(row);
        let named = store.holdings.iter().find(|h| h.grant == grant).map(|h| h.definitions.clone());
        let named = named.filter(|_| rules.has(Rule::GrantNamesDefinition));
        let definitions = named.unwrap_or_else(|| store.roster.definitions.from.clone());
        let segment = Segment { next: lo, hi, to_pass: Some(store.mark), definitions };
        let me = &mut self.regions[region].agents[agent];
        me.segment = Some(segment);
        me.read_before = (!rules.has(Rule::CarveConditional)).then_some(hi);
        self.say(|| format!("{} agent {agent} carves {lo}..{hi}", name(region)));
    }

    /// The region's own gate, by the shipped verdict.
    pub fn pass_region(&mut self, region: usize, agent: usize, mark: Mark) -> bool {
        let mode = self.setup.region_witness;
        let named = *self.witness_of(region, agent);
        let store = self.store_of(region, agent);
        let now = view(store.door, &store.mark, store.base);
        let found = named.map(|m| contains(&now, &m, store.has_row(m.row)));
        let (ours, core_named) = (mark.core(), named.map(|m| m.core()));
        let verdict = gate(&GateView {
            ours: &ours,
            now: &now,
            same_server: true,
            has_ours: store.has_row(mark.row),
            mode,
            witness_empty: named.is_none(),
            witness: core_named.as_ref().zip(found),
            witness_older: false,
            may_fill: false,
        });
        match verdict {
            Gate::Answer => true,
            Gate::Raise => {
                *self.witness_of(region, agent) = Some(mark);
                true
            }
            Gate::Drop => false,
            Gate::Anew(why) | Gate::Suspect(why) | Gate::WentBack(why) => {
                self.region_went_back(region, agent, why);
                false
            }
        }
    }

    /// An agent exposes the next number of its segment.
    pub fn expose(&mut self, region: usize, agent: usize) {
        let rules = self.rules();
        let Some(me) = self.regions[region].agents.get(agent).filter(|a| a.alive) else { return };
        let Some(mut segment) = me.segment.clone() else { return };
        if let Some(mark) = segment.to_pass.take() {
            let required = self.setup.region_witness == WitnessMode::Required;
            if !self.pass_region(region, agent, mark) {
                self.regions[region].agents[agent].segment = None;
                let line = format!("{} agent {agent}: a carve did not pass (witness: {required})", name(region));
                return self.say(|| line);
            }
        }
        let ordinal = segment.next;
        segment.next += 1;
        let done = segment.next >= segment.hi;
        let value = ordinal + segment.definitions.iter().filter(|f| **f <= ordinal).count() as u32;
        self.regions[region].agents[agent].segment = (!done).then_some(segment);
        self.say(|| format!("{} agent {agent} exposes {value}", name(region)));
        self.record(region, ordinal, value);
        if !rules.has(Rule::CarveDurable) {
            // The carve becomes durable only now, and only if nobody kills the process first.
            self.regions[region].agents[agent].read_before = Some(ordinal + 1);
        }
    }

    /// Only where carves are not durable before exposure: the write that comes too late.
    pub fn write_carve(&mut self, region: usize, agent: usize) {
        if self.rules().has(Rule::CarveDurable) {
            return;
        }
        let Some(to) = self.regions[region].agents.get(agent).filter(|a| a.alive).and_then(|a| a.read_before) else {
            return;
        };
        for h in self.store_of(region, agent).holdings.iter_mut().filter(|h| h.lo < to && to <= h.hi) {
            h.carved_to = h.carved_to.max(to);
        }
    }

    fn record(&mut self, region: usize, ordinal: u32, value: u32) {
        let at = value as usize;
        if self.exposed.by.len() <= at {
            self.exposed.by.resize(at + 1, 0);
        }
        let excused = self.exposed.excused.iter().any(|(lo, hi)| *lo <= ordinal && ordinal < *hi);
        if self.exposed.by[at] != 0 && !excused && self.violation.is_none() {
            self.violation = Some(Violation::Duplicate(value));
            let before = usize::from(self.exposed.by[at]) - 1;
            self.say(|| format!("DUPLICATE {value}: {} exposed it before", name(before)));
        }
        self.exposed.by[at] = u8::try_from(region + 1).unwrap_or(u8::MAX);
    }

    /// Whether a copy of a region's store is open, for reports.
    #[must_use]
    pub fn is_open(&self, region: usize, copy: usize) -> bool {
        self.regions[region].copies[copy].door == Door::Open
    }
}
