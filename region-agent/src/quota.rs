//! How the agents of a region share their services' rates: each tells the others once a second, through Redis, what
//! is asked of it.
//!
//! Purpose: one limit for a region instead of one for each agent. What each may give then is the core's `agent_share`.
//! Invariants: never on the path of an id; an agent that hears nothing goes on with an even part, by how many agents
//! it heard of last; what an agent said is gone [`SAID_SECONDS`] after its last word. Nothing here is a promise: two
//! rounds that cross give a little more or less than the limit for a second. Absent on purpose: counting in Redis.
//!
//! Keys begin with `cadastre:quota:STORE`, where STORE is the id of the region's store, which its agents share: a set
//! of the agents, and for each of them what was asked for, by service, as JSON.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cadastre_core::ids::Name;
use cadastre_core::quota::{agent_share, share_alone};
use cadastre_runtime::token::SecretUrl;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError};

use crate::context::Context;
use crate::limits::Meter;
use crate::metrics as meter;

/// How long what an agent said counts. Several rounds may fail before it is taken for gone.
pub const SAID_SECONDS: u64 = 5;
/// How long an unused set of agents is kept.
const SET_SECONDS: u64 = 3_600;
/// For a connection, and for an answer.
const WITHIN: Duration = Duration::from_millis(400);
/// Agents that are heard of; more would be an error.
const MOST_AGENTS: usize = 256;

/// What was asked for lately, by service.
type Demands = BTreeMap<Name, u64>;

/// See the module's documentation.
pub struct Exchange {
    ctx: Arc<Context>,
    client: Client,
    connection: Option<MultiplexedConnection>,
    demands: Demands,
    /// Agents, as of the last answer; 0 before the first.
    agents: usize,
    up: Option<bool>,
}

impl Exchange {
    /// An exchange that has not spoken yet.
    ///
    /// # Errors
    /// Where the address cannot be one; in words that have no secret.
    pub fn new(url: &SecretUrl, ctx: Arc<Context>) -> Result<Self, String> {
        let client = Client::open(url.reveal()).map_err(|e| e.category().to_owned())?;
        Ok(Self { ctx, client, connection: None, demands: Demands::new(), agents: 0, up: None })
    }

    /// One round: says what was asked for here since the last one, hears of the others, sets the shares.
    pub async fn run_once(&mut self) {
        let meters = self.ctx.meters().all();
        self.note(&meters);
        match self.talk().await {
            Ok(said) => {
                self.agents = said.len();
                self.turn(true, "");
                for (service, meter) in &meters {
                    let Some(limit) = meter.limits().ids_per_second else { continue };
                    let of = |demands: &Demands| demands.get(service).copied().unwrap_or(0);
                    let all: Vec<u64> = said.iter().map(of).collect();
                    meter.set_share(agent_share(limit, of(&self.demands), &all));
                }
            }
            Err(error) => self.lost(error.category()),
        }
    }

    /// Nothing was heard: an even part for everybody.
    pub fn lost(&mut self, why: &str) {
        self.connection = None;
        self.turn(false, why);
        for (_, meter) in self.ctx.meters().all() {
            if let Some(limit) = meter.limits().ids_per_second {
                meter.set_share(share_alone(limit, self.agents));
            }
        }
    }

    /// Half of what is told is of this second: one that asked for nothing is no reason to take its share away.
    fn note(&mut self, meters: &[(Name, Arc<Meter>)]) {
        let before = std::mem::take(&mut self.demands);
        for (service, meter) in meters {
            let Some((_, asked)) = meter.take_asked() else { continue };
            let demand = (before.get(service).copied().unwrap_or(asked) + asked) / 2;
            if demand > 0 {
                self.demands.insert(service.clone(), demand);
            }
        }
    }

    /// Tells this agent's demands and returns those of all, its own among them.
    async fn talk(&mut self) -> Result<Vec<Demands>, RedisError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let config = AsyncConnectionConfig::new();
                let config = config.set_connection_timeout(Some(WITHIN)).set_response_timeout(Some(WITHIN));
                self.client.get_multiplexed_async_connection_with_config(&config).await?
            }
        };
        let me = self.ctx.me.incarnation.to_string();
        let base = format!("cadastre:quota:{}", self.ctx.me.store_id);
        let (set, key) = (format!("{base}:agents"), |agent: &str| format!("{base}:agent:{agent}"));
        let said = serde_json::to_string(&self.demands).unwrap_or_default();
        let (mut agents,): (Vec<String>,) = redis::pipe()
            .cmd("SET")
            .arg(key(&me))
            .arg(said)
            .arg("EX")
            .arg(SAID_SECONDS)
            .ignore()
            .cmd("SADD")
            .arg(&set)
            .arg(&me)
            .ignore()
            .cmd("EXPIRE")
            .arg(&set)
            .arg(SET_SECONDS)
            .ignore()
            .cmd("SMEMBERS")
            .arg(&set)
            .query_async(&mut connection)
            .await?;
        agents.retain(|agent| *agent != me);
        agents.truncate(MOST_AGENTS);
        let mut all = vec![self.demands.clone()];
        if !agents.is_empty() {
            let mut get = redis::cmd("MGET");
            agents.iter().for_each(|agent| {
                get.arg(key(agent));
            });
            let texts: Vec<Option<String>> = get.query_async(&mut connection).await?;
            let gone: Vec<&String> = agents.iter().zip(&texts).filter(|(_, t)| t.is_none()).map(|(a, _)| a).collect();
            if !gone.is_empty() {
                let () = redis::cmd("SREM").arg(&set).arg(&gone).query_async(&mut connection).await?;
            }
            // What cannot be read is an agent that nothing is asked of.
            all.extend(texts.into_iter().flatten().map(|text| serde_json::from_str(&text).unwrap_or_default()));
        }
        self.connection = Some(connection);
        Ok(all)
    }

    fn turn(&mut self, up: bool, why: &str) {
        let (region, agents) = (&self.ctx.me.region, self.agents);
        meter::quota_exchange(region, up, agents);
        if self.up.replace(up) == Some(up) {
            return;
        }
        if up {
            tracing::info!(%region, agents, "services' rates are shared with the region's other agents");
        } else {
            tracing::warn!(%region, agents, why, "Redis does not answer: this agent goes on with an even part of services' rates");
        }
    }
}
