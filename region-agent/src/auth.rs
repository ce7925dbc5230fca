//! Who calls, by the roster that this region keeps: so it authenticates while cut off.
//!
//! Invariant: a token is looked up by its SHA-256, and one that the roster lists as revoked is nobody's.
//! Limits are in `limits`. Absent on purpose: sessions, passwords, and any question to the authority on the way of a
//! request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cadastre_core::ids::Name;
use cadastre_core::principal::{Principal, TokenIndex};
use cadastre_core::quota::{InUse, Tenant};
use cadastre_core::roster::{Limits, Roster, ServiceEntry};
use cadastre_protocol::error::{Code, Problem};
use cadastre_runtime::clock::Clock;
use cadastre_runtime::errand::{self, Errand};
use cadastre_runtime::token::{self, Prefix, sha256_hex};
use tokio::sync::OwnedSemaphorePermit;

use crate::error::{AgentError, problem};
use crate::limits::{Meter, Meters, Reserved};

/// An authenticated service.
#[derive(Debug)]
pub struct Service {
    /// Its name.
    pub name: Name,
    namespaces: BTreeSet<Name>,
    meter: Arc<Meter>,
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

    /// Its limits.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.meter.limits()
    }

    /// The most ids of one request that is answered as a list.
    #[must_use]
    pub fn batch(&self) -> u64 {
        u64::from(self.limits().batch)
    }

    /// Takes a place among the requests at once; given back when the permit is dropped.
    ///
    /// # Errors
    /// `rate_limited`.
    pub fn enter(&self) -> Result<Option<OwnedSemaphorePermit>, AgentError> {
        self.meter.enter(&self.name)
    }

    /// Takes ids ahead for a segment.
    ///
    /// # Errors
    /// `rate_limited`.
    pub fn reserve(&self, want: u64) -> Result<Reserved, Problem> {
        self.meter.reserve(&self.name, want)
    }

    /// Whether there is a rate to count against.
    #[must_use]
    pub fn has_rate(&self) -> bool {
        self.limits().ids_per_second.is_some()
    }

    /// Counts ids against the rate, for one of the service's tenants where it names one.
    ///
    /// # Errors
    /// `rate_limited`, or `payload_too_large` where the rate can never allow so many at once.
    pub fn spend(&self, ids: u64, tenant: Option<&Tenant>) -> Result<(), AgentError> {
        self.meter.spend(&self.name, ids, tenant)
    }
}

/// Every caller of a roster.
#[derive(Clone, Debug, Default)]
pub struct Callers {
    tokens: TokenIndex,
    services: BTreeMap<Name, Arc<Service>>,
    errands: Option<Arc<Errands>>,
}

/// The authority as a caller: with what this process gave it to sign with, and with nothing else.
pub struct Errands {
    key: String,
    clock: Arc<dyn Clock>,
    reader: Principal,
    hand: Principal,
}

impl Errands {
    /// With a fresh key.
    #[must_use]
    pub fn new(bytes: [u8; 32], clock: Arc<dyn Clock>) -> Self {
        let authority = Name::authority();
        let (reader, hand) = (Principal::Viewer(authority.clone()), Principal::Operator(authority));
        Self { key: token::make(Prefix::Errand, bytes), clock, reader, hand }
    }

    /// For the authority.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    fn principal(&self, text: &str) -> Option<&Principal> {
        match errand::read(&self.key, text, self.clock.now().wall_ms)? {
            Errand::Read => Some(&self.reader),
            Errand::EndDrill => Some(&self.hand),
        }
    }
}

impl std::fmt::Debug for Errands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Errands")
    }
}

impl Callers {
    /// The callers of `roster`.
    #[must_use]
    pub fn of(roster: &Roster, meters: &Meters, clock: &Arc<dyn Clock>, errands: &Arc<Errands>) -> Self {
        let service = |(name, service): (&Name, &ServiceEntry)| {
            let known = Service {
                name: name.clone(),
                namespaces: service.namespaces.iter().cloned().collect(),
                meter: meters.of(name, service.limits, clock),
            };
            (name.clone(), Arc::new(known))
        };
        Self {
            tokens: TokenIndex::of(roster),
            services: roster.services().map(service).collect(),
            errands: Some(Arc::clone(errands)),
        }
    }

    /// What services that have a limit use of it at this agent.
    pub fn in_use(&self) -> impl Iterator<Item = (&Name, InUse)> {
        let limited = self.services.iter().filter(|(_, service)| InUse::is_limited(&service.limits()));
        limited.map(|(name, service)| (name, service.meter.used()))
    }

    /// Whose token it is.
    ///
    /// # Errors
    /// `unauthenticated` for none, an unknown or a revoked one.
    pub fn principal(&self, token: Option<&str>) -> Result<&Principal, AgentError> {
        if let Some(text) = token.filter(|text| errand::is_errand(text)) {
            let sent = self.errands.as_ref().and_then(|errands| errands.principal(text));
            return sent.ok_or_else(unknown);
        }
        self.known(token.map(sha256_hex).as_deref())
    }

    fn known(&self, sha256: Option<&str>) -> Result<&Principal, AgentError> {
        sha256.and_then(|sha256| self.holder(sha256)).ok_or_else(unknown)
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

fn unknown() -> AgentError {
    let text = "no token, or one that is not known (any more); send `Authorization: Bearer TOKEN`";
    problem(Code::Unauthenticated, text)
}
