//! The loops of a simulated agent, and its callers: one id now and then, remembered for ever.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use cadastre_core::ids::Name;
use cadastre_core::namespace::{NamespaceEntry, NamespaceKind};
use region_agent::agent::Agent;
use region_agent::context::View;

use super::exec::{ProcessId, Sim};
use super::world::{Exposed, SERVICE, Trace, lock, say};

/// The time-based namespace of every run.
pub const EVENTS: &str = "events";

/// The shipped loops, on virtual time.
pub(super) fn run_agent(sim: &Sim, process: ProcessId, agent: &Arc<Agent>) {
    let (sim2, agent2) = (sim.clone(), Arc::clone(agent));
    sim.spawn(process, async move {
        loop {
            let pause = agent2.link.run_once().await;
            if agent2.ctx.alive().is_err() {
                return;
            }
            sim2.sleep_ms(pause.ms.max(1)).await;
        }
    });
    let (sim2, agent2) = (sim.clone(), Arc::clone(agent));
    sim.spawn(process, async move {
        loop {
            if agent2.ctx.alive().is_err() {
                return;
            }
            for entry in agent2.issuer.due() {
                let agent = Arc::clone(&agent2);
                sim2.spawn(process, async move { agent.issuer.refill(&entry).await });
            }
            sim2.sleep_ms(50).await;
        }
    });
    let (sim2, agent2) = (sim.clone(), Arc::clone(agent));
    sim.spawn(process, async move {
        while agent2.ctx.alive().is_ok() {
            let _ = agent2.ctx.continuity.look_at_witness().await;
            sim2.sleep_ms(2_000).await;
        }
    });
    let (sim2, agent2) = (sim.clone(), Arc::clone(agent));
    sim.spawn(process, async move {
        while agent2.ctx.alive().is_ok() {
            let _ = agent2.stamps.run_once().await;
            sim2.sleep_ms(250).await;
        }
    });
}

/// A caller: one id now and then, remembered for ever.
pub(super) struct Caller {
    pub sim: Sim,
    pub agent: Arc<Agent>,
    pub who: Arc<str>,
    pub namespace: Name,
    pub exposed: Arc<Mutex<Exposed>>,
    pub trace: Trace,
    pub rush: Arc<AtomicBool>,
}

impl Caller {
    pub async fn run(self) {
        let service = Name::new(SERVICE).expect("a name");
        loop {
            let pause = 100 + self.sim.below(400);
            self.sim.sleep_ms(if self.rush.load(Ordering::Relaxed) { pause / 16 } else { pause }).await;
            if self.agent.ctx.alive().is_err() {
                return;
            }
            let view = self.agent.ctx.view();
            let region = &self.agent.ctx.me.region;
            let Ok(settings) = view.issuable(region, &self.namespace) else { continue };
            if settings.kind == NamespaceKind::Snowflake {
                self.stamp(&view, settings);
                continue;
            }
            let Ok(entry) = self.agent.issuer.entry(&view, settings, &self.namespace, &service) else { continue };
            for _ in 0..1 + self.sim.below(3) {
                let Some(ordinal) = entry.one() else {
                    drop(self.agent.issuer.miss(&entry, settings, 1));
                    break;
                };
                self.agent.issuer.note(&entry, settings, 1);
                if let Some(value) = settings.definition.value_at(ordinal) {
                    self.expose(value);
                }
            }
        }
    }

    /// As the front does it, without waiting: what was stamped by then is a gap, and remembered all the same.
    fn stamp(&self, view: &View, settings: &NamespaceEntry) {
        let mut ids = Vec::new();
        let count = 1 + self.sim.below(3);
        let _ = self.agent.stamps.attempt(view, settings, &self.namespace, count, &mut ids);
        for id in ids.iter().flat_map(|range| range.lo()..range.hi()) {
            self.expose(i64::try_from(id).expect("an id is an i64"));
        }
    }

    fn expose(&self, value: i64) {
        expose(&self.sim, &self.exposed, &self.trace, &self.who, &self.namespace, value);
    }
}

/// Remembers an id, and whether it was exposed before.
pub(super) fn expose(
    sim: &Sim,
    exposed: &Arc<Mutex<Exposed>>,
    trace: &Trace,
    who: &Arc<str>,
    namespace: &Name,
    value: i64,
) {
    let mut exposed = lock(exposed);
    if let Some((first, when)) = exposed.remember(namespace, value, who, sim.now_ms()) {
        let text = format!(
            "DUPLICATE {namespace} {value}: exposed by {first} at {}.{:03} s and again by {who}",
            when / 1_000,
            when % 1_000
        );
        say(sim, trace, text.clone());
        exposed.duplicate.get_or_insert(text);
    }
}
