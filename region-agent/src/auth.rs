//! Who calls, by the roster that this region keeps: so it authenticates while cut off.
//!
//! Invariant: a token is looked up by its SHA-256, and one that the roster lists as revoked is nobody's.
//! Limits are per service and agent. Absent on purpose: sessions, passwords, and any question to the
//! authority on the way of a request.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cadastre_core::ids::Name;
use cadastre_core::principal::{Principal, TokenIndex};
use cadastre_core::roster::{Body, Entry, Limits, Roster};
use cadastre_protocol::error::{Code, Problem};
use cadastre_runtime::clock::Clock;
use cadastre_runtime::token::sha256_hex;
use governor::clock::Clock as RateClock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{AgentError, problem};

/// An authenticated service.
#[derive(Debug)]
pub struct Service {
    /// Its name.
    pub name: Name,
    namespaces: BTreeSet<Name>,
    meter: Arc<Meter>,
}

/// What a service has used of its limits. It outlives a new roster.
#[derive(Debug)]
struct Meter {
    limits: Limits,
    rate: Option<RateLimiter<NotKeyed, InMemoryState, ByClock, NoOpMiddleware<Duration>>>,
    in_flight: Option<Arc<Semaphore>>,
}

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

impl Meter {
    fn new(limits: Limits, clock: &Arc<dyn Clock>) -> Self {
        let rate = limits.ids_per_second.and_then(NonZeroU32::new);
        Self {
            limits,
            rate: rate.map(|n| RateLimiter::direct_with_clock(Quota::per_second(n), ByClock(Arc::clone(clock)))),
            in_flight: limits.in_flight.map(|n| Arc::new(Semaphore::new(n as usize))),
        }
    }
}

impl Service {
    /// Refuses a namespace that the service is not admitted to, whether it exists or not.
    ///
    /// # Errors
    /// `forbidden`.
    pub fn admits(&self, namespace: &Name) -> Result<(), AgentError> {
        if self.namespaces.contains(namespace) {
            return Ok(());
        }
        Err(problem(Code::Forbidden, format!("service {} is not admitted to namespace {namespace}", self.name)))
    }

    /// The most ids of one request that is answered as a list.
    #[must_use]
    pub fn batch(&self) -> u64 {
        u64::from(self.meter.limits.batch)
    }

    /// Takes a place among the requests at once; given back when the permit is dropped.
    ///
    /// # Errors
    /// `rate_limited`.
    pub fn enter(&self) -> Result<Option<OwnedSemaphorePermit>, AgentError> {
        let Some(places) = &self.meter.in_flight else { return Ok(None) };
        Arc::clone(places).try_acquire_owned().map(Some).map_err(|_| {
            let limit = self.meter.limits.in_flight.unwrap_or(0);
            problem(Code::RateLimited, format!("service {} has {limit} requests at once already", self.name))
        })
    }

    /// Whether there is a rate to count against.
    #[must_use]
    pub fn has_rate(&self) -> bool {
        self.meter.limits.ids_per_second.is_some()
    }

    /// Counts ids against the rate.
    ///
    /// # Errors
    /// `rate_limited`, or `payload_too_large` where the rate can never allow so many at once.
    pub fn spend(&self, ids: u64) -> Result<(), AgentError> {
        let Some(limit) = self.meter.limits.ids_per_second else { return Ok(()) };
        let too_many = || {
            let text = format!("{ids} ids at once are above the service's {limit} ids a second; ask for fewer");
            problem(Code::PayloadTooLarge, text)
        };
        let n = u32::try_from(ids).ok().and_then(NonZeroU32::new).ok_or_else(too_many)?;
        // A limit of 0 has no limiter: nothing is below it.
        let rate = self.meter.rate.as_ref().ok_or_else(too_many)?;
        match rate.check_n(n) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(until)) => {
                let wait = until.wait_time_from(rate.clock().now()).as_secs_f64().ceil();
                let text = format!("service {} is above its {limit} ids a second", self.name);
                Err(Problem::new(Code::RateLimited, text).retry_after(wait.clamp(1.0, 60.0) as u32).into())
            }
            Err(_) => Err(too_many()),
        }
    }
}

/// Every caller of a roster.
#[derive(Clone, Debug, Default)]
pub struct Callers {
    tokens: TokenIndex,
    services: BTreeMap<Name, Arc<Service>>,
}

/// What services have used so far; kept over new rosters.
#[derive(Default)]
pub struct Meters {
    by_service: Mutex<BTreeMap<Name, Arc<Meter>>>,
}

impl Meters {
    fn of(&self, service: &Name, limits: Limits, clock: &Arc<dyn Clock>) -> Arc<Meter> {
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
}

impl Callers {
    /// The callers of `roster`.
    #[must_use]
    pub fn of(roster: &Roster, meters: &Meters, clock: &Arc<dyn Clock>) -> Self {
        let service = |entry: &Entry| match &entry.body {
            Body::Service(service) => {
                let known = Service {
                    name: entry.name.clone(),
                    namespaces: service.namespaces.iter().cloned().collect(),
                    meter: meters.of(&entry.name, service.limits, clock),
                };
                Some((entry.name.clone(), Arc::new(known)))
            }
            Body::Region(_) | Body::Namespace(_) | Body::Operator(_) => None,
        };
        Self { tokens: TokenIndex::of(roster), services: roster.entries().filter_map(service).collect() }
    }

    /// Whose token it is.
    ///
    /// # Errors
    /// `unauthenticated` for none, an unknown or a revoked one.
    pub fn principal(&self, token: Option<&str>) -> Result<&Principal, AgentError> {
        self.known(token.map(sha256_hex).as_deref())
    }

    fn known(&self, sha256: Option<&str>) -> Result<&Principal, AgentError> {
        sha256.and_then(|sha256| self.holder(sha256)).ok_or_else(|| {
            let text = "no token, or one that is not known (any more); send `Authorization: Bearer TOKEN`";
            problem(Code::Unauthenticated, text)
        })
    }

    /// Whose token has this SHA-256, for connections that authenticate once and are checked again later.
    #[must_use]
    pub fn holder(&self, sha256: &str) -> Option<&Principal> {
        self.tokens.find(sha256)
    }

    /// The service whose token it is.
    ///
    /// # Errors
    /// `unauthenticated`, or `forbidden` for everybody who is not a service.
    pub fn service(&self, token: Option<&str>) -> Result<&Arc<Service>, AgentError> {
        self.service_of(self.principal(token)?)
    }

    /// The service whose token has this SHA-256, for whoever asks before a body arrives and again after.
    ///
    /// # Errors
    /// As [`Self::service`].
    pub fn service_by(&self, sha256: Option<&str>) -> Result<&Arc<Service>, AgentError> {
        self.service_of(self.known(sha256)?)
    }

    /// The service that a principal is.
    ///
    /// # Errors
    /// `forbidden` for everybody who is not one.
    pub fn service_of(&self, principal: &Principal) -> Result<&Arc<Service>, AgentError> {
        let service = match principal {
            Principal::Service(name) => self.services.get(name),
            Principal::Operator(_) | Principal::Viewer(_) | Principal::Region(_) => None,
        };
        service.ok_or_else(|| {
            let text = format!("ids are given to services; this is the token of {}", principal.describe());
            problem(Code::Forbidden, text)
        })
    }

    /// Refuses whoever may not read what concerns `namespace`.
    ///
    /// # Errors
    /// `unauthenticated` or `forbidden`.
    pub fn reader_of(&self, token: Option<&str>, namespace: &Name) -> Result<(), AgentError> {
        match self.principal(token)? {
            Principal::Operator(_) | Principal::Viewer(_) => Ok(()),
            Principal::Service(name) if self.services.get(name).is_some_and(|s| s.namespaces.contains(namespace)) => {
                Ok(())
            }
            other => {
                let text = format!("{} is not admitted to namespace {namespace}", other.describe());
                Err(problem(Code::Forbidden, text))
            }
        }
    }

    /// Refuses everybody but operators and viewers.
    ///
    /// # Errors
    /// `unauthenticated` or `forbidden`.
    pub fn viewer(&self, token: Option<&str>) -> Result<(), AgentError> {
        match self.principal(token)? {
            Principal::Operator(_) | Principal::Viewer(_) => Ok(()),
            other @ (Principal::Service(_) | Principal::Region(_)) => {
                let text =
                    format!("a viewer's or an operator's token is needed; this is the token of {}", other.describe());
                Err(problem(Code::Forbidden, text))
            }
        }
    }
}
