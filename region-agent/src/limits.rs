//! What services have used of their limits at this agent, over every roster.
//!
//! Purpose: governor's limiter keeps a service's whole limit; how that is shared by its tenants, and by the region's
//! agents, is the core's `quota`. Invariant: nothing here waits, or asks anybody: what other agents want is told to it
//! once a second, see [`crate::quota`]. Absent on purpose: how many processes may take segments and how much they may
//! hold, which needs the region's store.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cadastre_core::ids::Name;
use cadastre_core::quota::{InUse, Refused, Shares, Tenant, Whose};
use cadastre_core::roster::Limits;
use cadastre_protocol::error::{Code, Problem};
use cadastre_runtime::clock::Clock;
use governor::clock::Clock as RateClock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{AgentError, problem};

/// The longest time that a caller is asked to stay away, in seconds.
const MOST_WAIT: u64 = 60;

/// The agent's monotonic clock for the rate limiter.
#[derive(Clone)]
struct ByClock(Arc<dyn Clock>);

impl std::fmt::Debug for ByClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ByClock")
    }
}

impl RateClock for ByClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        Duration::from_millis(self.0.now().mono_ms)
    }
}

/// A service's rate: the limit itself, and what is taken of it by whom.
#[derive(Debug)]
struct Rate {
    limit: NonZeroU32,
    limiter: RateLimiter<NotKeyed, InMemoryState, ByClock, NoOpMiddleware<Duration>>,
    shares: Mutex<Shares>,
}

impl Rate {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.limiter.clock().now().as_millis()).unwrap_or(u64::MAX)
    }

    fn shares(&self) -> MutexGuard<'_, Shares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looked at and taken under one lock: two requests never take the same ids of a share.
    fn take(&self, n: NonZeroU32, tenant: Option<&Tenant>) -> Result<(), Refused> {
        let now = self.now_ms();
        let mut shares = self.shares();
        shares.look(tenant, n.get(), now)?;
        match self.limiter.check_n(n) {
            Ok(Ok(())) => {
                shares.take(tenant, n.get(), now);
                Ok(())
            }
            Ok(Err(until)) => {
                let wait_ms = until.wait_time_from(self.limiter.clock().now()).as_millis();
                let wait_ms = u64::try_from(wait_ms).unwrap_or(u64::MAX);
                Err(Refused { whose: Whose::Service, share: self.limit.get(), wait_ms })
            }
            // The caller has looked at that.
            Err(_) => Err(Refused { whose: Whose::Service, share: self.limit.get(), wait_ms: 1_000 }),
        }
    }
}

/// What a service has used of its limits. It outlives a new roster.
#[derive(Debug)]
pub struct Meter {
    limits: Limits,
    rate: Option<Rate>,
    in_flight: Option<Arc<Semaphore>>,
}

impl Meter {
    fn new(limits: Limits, clock: &Arc<dyn Clock>) -> Self {
        let rate = |limit: NonZeroU32| {
            let limiter = RateLimiter::direct_with_clock(Quota::per_second(limit), ByClock(Arc::clone(clock)));
            let shares = Mutex::new(Shares::new(limit.get(), clock.now().mono_ms));
            Rate { limit, limiter, shares }
        };
        Self {
            limits,
            rate: limits.ids_per_second.and_then(NonZeroU32::new).map(rate),
            in_flight: limits.in_flight.map(|n| Arc::new(Semaphore::new(n as usize))),
        }
    }

    /// The limits.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Takes a place among the requests at once; given back when the permit is dropped.
    ///
    /// # Errors
    /// `rate_limited`.
    pub fn enter(&self, service: &Name) -> Result<Option<OwnedSemaphorePermit>, AgentError> {
        let Some(places) = &self.in_flight else { return Ok(None) };
        Arc::clone(places).try_acquire_owned().map(Some).map_err(|_| {
            let limit = self.limits.in_flight.unwrap_or(0);
            problem(Code::RateLimited, format!("service {service} has {limit} requests at once already"))
        })
    }

    /// Counts ids against the rate.
    ///
    /// # Errors
    /// `rate_limited`, or `payload_too_large` where the rate can never allow so many at once.
    pub fn spend(&self, service: &Name, ids: u64, tenant: Option<&Tenant>) -> Result<(), AgentError> {
        let Some(limit) = self.limits.ids_per_second else { return Ok(()) };
        let too_many = || {
            let text = format!("{ids} ids at once are above the service's {limit} ids a second; ask for fewer");
            problem(Code::PayloadTooLarge, text)
        };
        let n = u32::try_from(ids).ok().filter(|n| *n <= limit).and_then(NonZeroU32::new).ok_or_else(too_many)?;
        // A limit of 0 has no limiter: nothing is below it.
        let rate = self.rate.as_ref().ok_or_else(too_many)?;
        rate.take(n, tenant).map_err(|refused| {
            let Refused { whose, share, wait_ms } = refused;
            let text = match (whose, tenant) {
                (Whose::Service, _) if share < limit => format!(
                    "service {service} is above its {limit} ids a second in this region, of which this agent has {share} now"
                ),
                (Whose::Service, _) => format!("service {service} is above its {limit} ids a second"),
                (Whose::Tenant, Some(tenant)) => {
                    format!("tenant {tenant} is above its share of service {service}, {share} ids a second while others ask")
                }
                (Whose::Tenant, None) => format!(
                    "callers of service {service} without a tenant are above their share, {share} ids a second while others ask"
                ),
            };
            let seconds = u32::try_from(wait_ms.div_ceil(1_000).clamp(1, MOST_WAIT)).unwrap_or(1);
            Problem::new(Code::RateLimited, text).retry_after(seconds).into()
        })
    }

    /// Takes up to `want` ids ahead, for a process that issues by itself.
    ///
    /// # Errors
    /// `rate_limited` where processes have taken ahead next to all that the service may use within a minute.
    pub fn reserve(self: &Arc<Self>, service: &Name, want: u64) -> Result<Reserved, Problem> {
        let Some(limit) = self.limits.ids_per_second else { return Ok(Reserved { from: None, most: want, left: 0 }) };
        let refused = |wait_ms: u64| {
            let text = format!(
                "processes of service {service} have taken ahead what it may use within a minute, at its {limit} ids a \
                 second in this region; use fewer, or have the limit raised"
            );
            let seconds = u32::try_from(wait_ms.div_ceil(1_000).clamp(1, MOST_WAIT)).unwrap_or(1);
            Problem::new(Code::RateLimited, text).retry_after(seconds)
        };
        // A limit of 0 has no limiter: nothing is below it.
        let rate = self.rate.as_ref().ok_or_else(|| refused(MOST_WAIT * 1_000))?;
        let now = rate.now_ms();
        let most = rate.shares().reserve(want, now).map_err(|r| refused(r.wait_ms))?;
        Ok(Reserved { from: Some(Arc::clone(self)), most, left: most })
    }

    /// The rate's limit, and ids that were asked for since the last call; nothing where there is no limit.
    #[must_use]
    pub fn take_asked(&self) -> Option<(u32, u64)> {
        self.rate.as_ref().map(|rate| (rate.limit.get(), rate.shares().take_asked(rate.now_ms())))
    }

    /// What is used of the limits at this agent; what processes hold is in the region's store.
    #[must_use]
    pub fn used(&self) -> InUse {
        let free = self.in_flight.as_ref().map(|places| u32::try_from(places.available_permits()).unwrap_or(u32::MAX));
        InUse {
            ids_per_second: self.rate.as_ref().map_or(0.0, |rate| rate.shares().rate_per_second(rate.now_ms())),
            in_flight: self.limits.in_flight.zip(free).map_or(0, |(most, free)| most.saturating_sub(free)),
            ..InUse::default()
        }
    }

    /// What this agent may give of the limit from now on.
    pub fn set_share(&self, share: u32) {
        if let Some(rate) = &self.rate {
            rate.shares().set_share(share, rate.now_ms());
        }
    }
}

/// Ids that were taken ahead of a carve. What the carve does not use is given back when this is dropped.
#[derive(Debug)]
pub struct Reserved {
    from: Option<Arc<Meter>>,
    /// No more than this may be carved.
    pub most: u64,
    left: u64,
}

impl Reserved {
    /// So many were carved.
    pub fn use_up(mut self, n: u64) {
        self.left = self.left.saturating_sub(n);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(rate) = self.from.as_ref().and_then(|meter| meter.rate.as_ref()) {
            rate.shares().give_back(self.left);
        }
    }
}

/// What services have used so far; kept over new rosters.
#[derive(Default)]
pub struct Meters {
    by_service: Mutex<BTreeMap<Name, Arc<Meter>>>,
}

impl Meters {
    /// The meter of a service; a fresh one where its limits changed.
    pub fn of(&self, service: &Name, limits: Limits, clock: &Arc<dyn Clock>) -> Arc<Meter> {
        let mut all = self.by_service.lock().unwrap_or_else(PoisonError::into_inner);
        match all.get(service) {
            Some(meter) if meter.limits == limits => Arc::clone(meter),
            Some(_) | None => {
                let meter = Arc::new(Meter::new(limits, clock));
                all.insert(service.clone(), Arc::clone(&meter));
                meter
            }
        }
    }

    /// Every meter.
    #[must_use]
    pub fn all(&self) -> Vec<(Name, Arc<Meter>)> {
        let all = self.by_service.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(name, meter)| (name.clone(), Arc::clone(meter))).collect()
    }
}
