//! The wide area: messages that are delayed, lost, doubled, reordered; answers that are lost; links
//! that are cut either way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use cadastre_core::principal::Principal;
use cadastre_protocol::error::{Code, Problem};
use cadastre_protocol::link::{Answer, Message};
use global_authority::service::Authority;
use region_agent::uplink::{Uplink, UplinkError};
use tokio::sync::oneshot;

use super::exec::{ProcessId, Sim};
use super::mutation::Mutation;

/// The longest that an agent waits, as the shipped HTTP uplink does, in milliseconds.
pub const DEADLINE_MS: u64 = 5_000;

/// What is wrong with one region's link.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Link {
    /// Nothing reaches the authority.
    pub cut_there: bool,
    /// No answer comes back.
    pub cut_back: bool,
    /// One in so many messages is lost, each way; 0 is none.
    pub lose_one_in: u64,
    /// One in so many requests is delivered twice; 0 is none.
    pub double_one_in: u64,
    /// Up to so long each way, in milliseconds.
    pub delay_ms: u64,
}

/// Who can be reached.
#[derive(Default)]
struct State {
    links: BTreeMap<String, Link>,
    authorities: BTreeMap<u64, (ProcessId, Arc<Authority>)>,
    messages: u64,
}

/// The network.
#[derive(Clone)]
pub struct Net {
    sim: Sim,
    state: Arc<Mutex<State>>,
}

impl Net {
    /// A healthy one.
    #[must_use]
    pub fn new(sim: &Sim) -> Self {
        Self { sim: sim.clone(), state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes a region's link.
    pub fn set(&self, region: &str, link: Link) {
        self.state().links.insert(region.to_owned(), link);
    }

    /// A region's link.
    #[must_use]
    pub fn link(&self, region: &str) -> Link {
        self.state().links.get(region).copied().unwrap_or_default()
    }

    /// An authority that serves from now on.
    pub fn serve(&self, key: u64, process: ProcessId, authority: Arc<Authority>) {
        self.state().authorities.insert(key, (process, authority));
    }

    /// An authority that serves no more.
    pub fn stop(&self, key: u64) {
        self.state().authorities.remove(&key);
    }

    /// Nobody serves any more.
    pub fn end(&self) {
        let authorities = std::mem::take(&mut self.state().authorities);
        drop(authorities);
    }

    /// The authority that serves under a key.
    #[must_use]
    pub fn authority(&self, key: u64) -> Option<Arc<Authority>> {
        self.state().authorities.get(&key).map(|(_, a)| Arc::clone(a))
    }

    /// How many messages were sent.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.state().messages
    }

    /// One of the authorities that serve, as a balancer would choose.
    fn somebody(&self) -> Option<(ProcessId, Arc<Authority>)> {
        let state = self.state();
        let n = self.sim.below(state.authorities.len() as u64);
        state.authorities.values().nth(usize::try_from(n).unwrap_or(0)).map(|(p, a)| (*p, Arc::clone(a)))
    }

    fn lost(&self, link: Link) -> bool {
        link.lose_one_in > 0 && self.sim.one_in(link.lose_one_in)
    }

    /// Delivers a message once; the answer goes back unless it is lost on the way.
    fn deliver(&self, region: &str, token: &str, message: Message, back: Option<oneshot::Sender<Reply>>) {
        let Some((process, authority)) = self.somebody() else { return };
        let (net, region, token) = (self.clone(), region.to_owned(), token.to_owned());
        self.sim.spawn(process, async move {
            let reply = handle(&authority, &token, message).await;
            let link = net.link(&region);
            net.sim.sleep_us(1_000 * net.sim.below(link.delay_ms + 1) + net.sim.below(900)).await;
            let link = net.link(&region);
            if link.cut_back || net.lost(link) {
                return;
            }
            if let Some(back) = back {
                let _ = back.send(reply);
            }
        });
    }
}

type Reply = Result<Answer, Problem>;

/// What the HTTP layer does: authenticate, call, map the error.
async fn handle(authority: &Arc<Authority>, token: &str, message: Message) -> Reply {
    match authority.authenticate(token).await.map_err(|e| e.to_problem())? {
        Principal::Region(region) => authority.message(&region, message).await.map_err(|e| e.to_problem()),
        _ => Err(Problem::new(Code::Forbidden, "a region's token is needed")),
    }
}

/// One region's uplink.
pub struct SimUplink {
    /// The network.
    pub net: Net,
    /// Whose.
    pub region: String,
    /// Its token.
    pub token: String,
    /// Its agent: what waits for the answer dies with it.
    pub process: ProcessId,
    /// How its messages are bent.
    pub bend: Option<Mutation>,
}

impl SimUplink {
    fn bent(&self, message: &Message) -> Message {
        let mut message = message.clone();
        if let Some(rule) = self.bend {
            rule.bend(&mut message);
        }
        message
    }
}

#[async_trait]
impl Uplink for SimUplink {
    async fn send(&self, _path: &'static str, message: &Message) -> Result<Answer, UplinkError> {
        let (net, link) = (&self.net, self.net.link(&self.region));
        net.state().messages += 1;
        let (sender, receiver) = oneshot::channel();
        let way = 1_000 * net.sim.below(link.delay_ms + 1) + net.sim.below(900);
        let doubled = link.double_one_in > 0 && net.sim.one_in(link.double_one_in);
        if !link.cut_there && !net.lost(link) {
            let (net2, region, token, message2) =
                (net.clone(), self.region.clone(), self.token.clone(), self.bent(message));
            // The message is on its way whatever becomes of its sender.
            let wire = net.sim.process();
            net.sim.spawn(wire, async move {
                net2.sim.sleep_us(way).await;
                net2.deliver(&region, &token, message2.clone(), Some(sender));
                if doubled {
                    net2.sim.sleep_us(net2.sim.below(3_000_000)).await;
                    net2.deliver(&region, &token, message2, None);
                }
            });
        }
        let answer = within(&net.sim, DEADLINE_MS, receiver).await;
        match answer {
            Some(Ok(reply)) => reply.map_err(UplinkError::Refused),
            Some(Err(_)) | None => Err(UplinkError::Unreachable("no answer".to_owned())),
        }
    }
}

/// Waits for `work` for at most `ms` of virtual time. Where both are ready, either may win.
pub(super) async fn within<T>(sim: &Sim, ms: u64, work: impl Future<Output = T>) -> Option<T> {
    let (mut work, mut late) = (Box::pin(work), Box::pin(sim.sleep_ms(ms)));
    let fair = sim.one_in(2);
    std::future::poll_fn(move |context| {
        use std::task::Poll;
        if fair && late.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(done) = work.as_mut().poll(context) {
            return Poll::Ready(Some(done));
        }
        late.as_mut().poll(context).map(|()| None)
    })
    .await
}
