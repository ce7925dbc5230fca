//! Who may take how much of a service's limits: tenants of one agent, agents of one region, processes that hold ids.
//!
//! Purpose: the shares that move from second to second. A limiter with a fixed rate guards a service's whole limit
//! (the agent's `auth`); here is how that limit is divided. The rules:
//!
//! - Tenants. While at least half of a second's allowance is left, everybody may take. Below that a tenant may take
//!   no more than the limit divided by the tenants that asked within the last ten seconds. Callers without a label are
//!   one tenant. Whoever asks for more at once than its share waits until it is full, and pays it back before the next.
//! - Agents. Of each limit a tenth is divided evenly, the rest in proportion to what was asked for lately. The
//!   shares together are never above the limit, but each is at least 1.
//! - Segments. What processes took ahead within the last minute, a sixtieth of it for each second, is not there for
//!   others: a segment counts as it is used, not when it is handed out.
//! - Processes. One counts for [`HOLDER_COUNTS_MS`] after it last asked for a segment. It is taken to hold the
//!   segment that it got last, and a quarter of the one before: that is when it asks.
//!
//! Invariant: pure, and bounded: at most [`MAX_TENANTS`] tenants are remembered, the one that asked longest ago goes
//! first. A wrong answer costs somebody a wait, never a duplicate. Absent on purpose: how agents hear of one another.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::Name;
use crate::refill::RateWindow;

mod ahead;
mod used;

use ahead::{Ahead, SECONDS};
pub use used::{InUse, Nearest};

/// Tenants of one service that an agent remembers.
pub const MAX_TENANTS: usize = 1_024;
/// A tenant that did not ask for this long has no share.
pub const ACTIVE_MS: u64 = 10_000;
/// A process that took no segment for this long does not count against its service's limits any more.
pub const HOLDER_COUNTS_MS: u64 = 15 * 60_000;
/// The longest label of a tenant, in bytes.
pub const MAX_TENANT_BYTES: usize = 64;
/// Tenants that stopped asking are looked for this often.
const RECOUNT_MS: u64 = 1_000;
/// Of a limit, this part is divided evenly among the agents.
const EVEN_PART: u64 = 10;

/// Whom a service asks for: a [`Name`] of at most [`MAX_TENANT_BYTES`].
#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Tenant(Name);

/// Not a tenant's label.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "a tenant has 1 to {MAX_TENANT_BYTES} characters of A-Z a-z 0-9 _ - . : and starts with a letter or a digit; leave it \
     out to have none"
)]
pub struct InvalidTenant;

impl Tenant {
    /// Checks and takes a label.
    ///
    /// # Errors
    /// [`InvalidTenant`] when it is no name, or too long.
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidTenant> {
        let name = Name::new(text).map_err(|_| InvalidTenant)?;
        if name.as_str().len() <= MAX_TENANT_BYTES { Ok(Self(name)) } else { Err(InvalidTenant) }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl<'de> Deserialize<'de> for Tenant {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What one agent may give a service a second. `demands` are those of all agents, its own among them.
#[must_use]
pub fn agent_share(limit: u32, own: u64, demands: &[u64]) -> u32 {
    let agents = u64::try_from(demands.len()).unwrap_or(u64::MAX).max(1);
    let even = u64::from(limit) / EVEN_PART / agents;
    let rest = u128::from(u64::from(limit) - even * agents);
    let all: u128 = demands.iter().map(|d| u128::from(*d)).sum();
    let by_demand = (rest * u128::from(own)).checked_div(all).unwrap_or(rest / u128::from(agents));
    let share = u128::from(even) + by_demand;
    u32::try_from(share).unwrap_or(limit).clamp(1, limit.max(1))
}

/// What one agent may give a service a second while it does not hear of the others: an even part, by how many there
/// were when it last did.
#[must_use]
pub fn share_alone(limit: u32, agents: usize) -> u32 {
    (limit / u32::try_from(agents).unwrap_or(u32::MAX).max(1)).max(1)
}

/// Whether one more process may take segments, beside the others that count.
#[must_use]
pub fn may_join(most: Option<u32>, others: u64) -> bool {
    most.is_none_or(|most| others < u64::from(most))
}

/// What is taken to be left of a segment when its process asks for the next one: it asks when the rest lasts a quarter
/// of the time that a segment is for.
#[must_use]
pub fn left_when_asked(segment: u64) -> u64 {
    segment / 4
}

/// How much of `want` a process may be given where its service's processes hold `held` already: at most half of what
/// is free, so that others find something too. `None` where that is next to nothing: a process that gets a handful
/// comes back at once.
#[must_use]
pub fn room(most: Option<u64>, held: u64, want: u64) -> Option<u64> {
    let Some(most) = most else { return Some(want) };
    let part = most.saturating_sub(held).div_ceil(2).min(want);
    (part >= (most / 100).clamp(1, want.max(1))).then_some(part)
}

/// What is left of a rate, in thousandths of an id; below zero where more was taken at once than there was.
#[derive(Clone, Copy, Debug)]
struct Tank {
    milli: i64,
    at_ms: u64,
}

impl Tank {
    fn full(rate: u32, now_ms: u64) -> Self {
        Self { milli: milli(rate), at_ms: now_ms }
    }

    /// Fills it up to now: ids a second are thousandths of an id a millisecond.
    fn fill(&mut self, rate: u32, now_ms: u64) {
        let passed = i64::try_from(now_ms.saturating_sub(self.at_ms)).unwrap_or(i64::MAX);
        let more = passed.saturating_mul(i64::from(rate));
        self.milli = self.milli.saturating_add(more).min(milli(rate));
        self.at_ms = self.at_ms.max(now_ms);
    }

    /// Milliseconds until `n` may be taken; more than it holds is given when it is full.
    fn wait_ms(&self, n: u32, rate: u32) -> u64 {
        let missing = milli(n.min(rate)).saturating_sub(self.milli).max(0);
        u64::try_from(missing).unwrap_or(0).div_ceil(u64::from(rate.max(1)))
    }

    fn take(&mut self, n: u32) {
        self.milli = self.milli.saturating_sub(milli(n));
    }
}

fn milli(n: u32) -> i64 {
    i64::from(n) * 1_000
}

/// Who is above its share.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Whose {
    /// The service, at this agent.
    Service,
    /// One tenant of it.
    Tenant,
}

/// Why nothing is given now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Refused {
    /// Who is above it.
    pub whose: Whose,
    /// The share, in ids a second.
    pub share: u32,
    /// When it may be given.
    pub wait_ms: u64,
}

#[derive(Debug)]
struct Used {
    tank: Tank,
    asked_at_ms: u64,
}

/// One service's limit at one agent, and how its tenants use it.
#[derive(Debug)]
pub struct Shares {
    limit: u32,
    share: u32,
    whole: Tank,
    /// By label; callers without one under the empty one, which no label is.
    tenants: BTreeMap<String, Used>,
    active: u32,
    counted_at_ms: u64,
    asked: u64,
    given: RateWindow,
    ahead: Ahead,
}

impl Shares {
    /// A service that nobody asked for yet, with its whole limit at this agent.
    #[must_use]
    pub fn new(limit: u32, now_ms: u64) -> Self {
        let limit = limit.max(1);
        Self {
            limit,
            share: limit,
            whole: Tank::full(limit, now_ms),
            tenants: BTreeMap::new(),
            active: 0,
            counted_at_ms: now_ms,
            asked: 0,
            given: RateWindow::new(),
            ahead: Ahead::new(now_ms),
        }
    }

    /// What this agent may give a second.
    #[must_use]
    pub fn share(&self) -> u32 {
        self.share
    }

    /// What processes use a second of what they took ahead.
    fn ahead_rate(&mut self, now_ms: u64) -> u64 {
        self.ahead.taken(now_ms).div_ceil(SECONDS)
    }

    /// What is left of that for callers who take ids one request at a time.
    fn direct(&mut self, now_ms: u64) -> u32 {
        let ahead = u32::try_from(self.ahead_rate(now_ms)).unwrap_or(u32::MAX);
        self.share.saturating_sub(ahead).max(1)
    }

    /// How many of `want` ids a process may be given ahead; they count until they are given back, or a minute is over.
    ///
    /// # Errors
    /// [`Refused`] where next to nothing is left of the minute.
    pub fn reserve(&mut self, want: u64, now_ms: u64) -> Result<u64, Refused> {
        let most = u64::from(self.share) * SECONDS;
        let taken = self.ahead.taken(now_ms);
        let Some(part) = room(Some(most), taken, want) else {
            return Err(Refused { whose: Whose::Service, share: self.share, wait_ms: self.ahead.wait_ms() });
        };
        self.ahead.add(part, now_ms);
        Ok(part)
    }

    /// Of what was reserved so many were not given.
    pub fn give_back(&mut self, n: u64) {
        self.ahead.give_back(n);
    }

    /// What this agent may give a second from now on.
    pub fn set_share(&mut self, share: u32, now_ms: u64) {
        let direct = self.direct(now_ms);
        self.whole.fill(direct, now_ms);
        self.share = share.clamp(1, self.limit);
    }

    /// Ids that were asked for since the last call, refused ones too, and what a second uses of what was taken ahead; at
    /// most the limit: what is above it could not be given anywhere.
    pub fn take_asked(&mut self, now_ms: u64) -> u64 {
        let ahead = self.ahead_rate(now_ms);
        std::mem::take(&mut self.asked).saturating_add(ahead).min(u64::from(self.limit))
    }

    /// IDs a second over the last minute: those that were taken, and what a second uses of what was taken ahead.
    #[must_use]
    pub fn rate_per_second(&mut self, now_ms: u64) -> f64 {
        #[allow(clippy::cast_precision_loss)]
        let ahead = self.ahead_rate(now_ms) as f64;
        self.given.rate_per_second(now_ms) + ahead
    }

    /// Tenants that are remembered.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.tenants.len()
    }

    /// Whether `n` ids may be taken now, and notes that they were asked for.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn look(&mut self, tenant: Option<&Tenant>, n: u32, now_ms: u64) -> Result<(), Refused> {
        self.asked = self.asked.saturating_add(u64::from(n));
        let label = tenant.map_or("", Tenant::as_str);
        self.note(label, now_ms);
        let share = self.direct(now_ms);
        self.whole.fill(share, now_ms);
        let rate = tenant_share(share, self.active);
        let spare = self.whole.milli.saturating_sub(milli(n)) >= milli(share) / 2;
        if let Some(used) = self.tenants.get_mut(label) {
            used.tank.fill(rate, now_ms);
            let wait_ms = used.tank.wait_ms(n, rate);
            if self.active > 1 && wait_ms > 0 && !spare {
                return Err(Refused { whose: Whose::Tenant, share: rate, wait_ms });
            }
        }
        match self.whole.wait_ms(n, share) {
            0 => Ok(()),
            wait_ms => Err(Refused { whose: Whose::Service, share, wait_ms }),
        }
    }

    /// Takes what [`Self::look`] allowed.
    pub fn take(&mut self, tenant: Option<&Tenant>, n: u32, now_ms: u64) {
        self.given.record(now_ms, u64::from(n));
        let share = self.share;
        let spare = self.whole.milli.saturating_sub(milli(n)) >= milli(share) / 2;
        self.whole.take(n);
        if let Some(used) = self.tenants.get_mut(tenant.map_or("", Tenant::as_str)) {
            let before = used.tank.milli;
            used.tank.take(n);
            // What nobody else wanted is no debt: it would be held against the tenant once others come.
            if spare {
                used.tank.milli = used.tank.milli.max(before.min(0));
            }
        }
    }

    /// Notes that a tenant asked, and how many there are.
    fn note(&mut self, label: &str, now_ms: u64) {
        if now_ms.saturating_sub(self.counted_at_ms) >= RECOUNT_MS {
            let active = |u: &&Used| now_ms.saturating_sub(u.asked_at_ms) <= ACTIVE_MS;
            self.active = u32::try_from(self.tenants.values().filter(active).count()).unwrap_or(u32::MAX);
            self.counted_at_ms = now_ms;
        }
        if let Some(used) = self.tenants.get_mut(label) {
            // Whoever is not counted now comes back.
            if self.counted_at_ms.saturating_sub(used.asked_at_ms) > ACTIVE_MS {
                self.active += 1;
            }
            used.asked_at_ms = now_ms.max(used.asked_at_ms);
            return;
        }
        if self.tenants.len() >= MAX_TENANTS {
            let oldest = self.tenants.iter().min_by_key(|(_, u)| u.asked_at_ms).map(|(label, _)| label.clone());
            if let Some(gone) = oldest.and_then(|label| self.tenants.remove(&label))
                && self.counted_at_ms.saturating_sub(gone.asked_at_ms) <= ACTIVE_MS
            {
                self.active = self.active.saturating_sub(1);
            }
        }
        self.active += 1;
        let used = Used { tank: Tank::full(tenant_share(self.share, self.active), now_ms), asked_at_ms: now_ms };
        self.tenants.insert(label.to_owned(), used);
    }
}

fn tenant_share(share: u32, active: u32) -> u32 {
    (share / active.max(1)).max(1)
}

#[cfg(test)]
#[path = "quota/tests.rs"]
mod tests;
