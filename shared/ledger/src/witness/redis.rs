//! A witness in Redis: marks in another failure domain than any disk of the store's machine.
//!
//! One hash holds one store's witness, so that every change of it is one script, and an eviction or a
//! flush takes all of it or nothing: an empty witness is found, half of one would not be. Its name is
//! the cluster's, as the setting gives it, and the role of the store.
//!
//! Invariants: a raise compares everything that it is built on, in the same script that writes it; a
//! script that is sent twice, because its answer was lost, changes nothing the second time. Every wait
//! is bounded; after a failure Redis is left alone for [`REST_MS`], so that requests do not queue up
//! behind a server that hangs. What fails is told without the address: it holds a password.
//! Absent on purpose: reading from a replica, expiry, any bound that only Redis knows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use cadastre_core::ids::{ClusterId, Name, RowId};
use cadastre_core::mark::{Generation, Mark, Scope};
use cadastre_core::roster::{Entry, Kind, Roster};
use cadastre_runtime::clock::Clock;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisError};

use super::{Marks, Raise, Witness, WitnessError};

/// For a connection, and for an answer.
const WITHIN: Duration = Duration::from_secs(1);
/// How long Redis is not asked after it failed, in milliseconds.
const REST_MS: u64 = 500;
/// Where nobody names the cluster.
const CLUSTER: &str = "cadastre";

/// Compares every field, then writes them: all or nothing. `KEYS[1]` is the hash; `ARGV[1]` what
/// `filled` must be; then field, what it must hold (empty: absent), what it becomes.
const SWAP: &str = "
if (redis.call('HGET', KEYS[1], 'filled') or '') ~= ARGV[1] then return 0 end
for i = 2, #ARGV, 3 do
  if (redis.call('HGET', KEYS[1], ARGV[i]) or '') ~= ARGV[i + 1] then return 0 end
end
for i = 2, #ARGV, 3 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 2]) end
return 1";

/// One field of the hash: its name, what it holds, what it becomes.
type Swap = (String, String, String);

/// Where a Redis witness is: `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE][?cluster=NAME]`.
pub struct Address {
    client: Client,
    cluster: Name,
}

impl Address {
    /// Reads the setting.
    ///
    /// # Errors
    /// What is wrong with it, in words without a secret.
    pub fn parse(setting: &str) -> Result<Self, String> {
        let form = "must be redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE][?cluster=NAME]";
        let (base, query) = setting.split_once('?').unwrap_or((setting, ""));
        let mut cluster = CLUSTER;
        for parameter in query.split('&').filter(|p| !p.is_empty()) {
            cluster = parameter.strip_prefix("cluster=").ok_or_else(|| format!("{form}; it has another parameter"))?;
        }
        let cluster = Name::new(cluster).map_err(|e| format!("{form}: cluster: {e}"))?;
        if !base.starts_with("redis://") {
            return Err(form.to_owned());
        }
        let client = Client::open(base).map_err(|e| format!("{form}: {}", e.category()))?;
        Ok(Self { client, cluster })
    }
}

#[derive(Default)]
struct Door {
    connection: Option<MultiplexedConnection>,
    failed: Option<(u64, String)>,
}

/// Marks in a hash of a Redis server.
pub struct RedisWitness {
    client: Client,
    key: String,
    clock: Arc<dyn Clock>,
    door: Mutex<Door>,
}

impl RedisWitness {
    /// A witness that has not spoken yet. `role` names the store that it watches: `authority`, `region/eu`.
    #[must_use]
    pub fn new(address: Address, role: &str, clock: Arc<dyn Clock>) -> Self {
        // The braces keep it on one node of a Redis cluster whatever is added to it.
        let key = format!("cadastre:witness:{{{}:{role}}}", address.cluster);
        Self { client: address.client, key, clock, door: Mutex::default() }
    }

    /// The key of its hash.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What its settings would lose, in words for the log; empty where it cannot be asked, or is well set.
    pub async fn weaknesses(&self) -> Vec<String> {
        let mut ask = redis::cmd("CONFIG");
        ask.arg("GET").arg("appendonly").arg("appendfsync").arg("maxmemory-policy");
        let Ok(said) = self.call::<BTreeMap<String, String>>(&ask).await else { return vec![] };
        let is = |key: &str, wanted: &str| said.get(key).is_none_or(|value| value == wanted);
        let mut weak = Vec::new();
        if !is("appendonly", "yes") || !is("appendfsync", "always") {
            weak.push("a crash of Redis loses marks: set appendonly yes and appendfsync always".to_owned());
        }
        if !is("maxmemory-policy", "noeviction") {
            weak.push("Redis may evict the marks: set maxmemory-policy noeviction".to_owned());
        }
        weak
    }

    fn door(&self) -> std::sync::MutexGuard<'_, Door> {
        self.door.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn call<T: FromRedisValue>(&self, cmd: &Cmd) -> Result<T, WitnessError> {
        let (kept, failed) = {
            let door = self.door();
            (door.connection.clone(), door.failed.clone())
        };
        let now = self.clock.now().mono_ms;
        if let Some((_, why)) = failed.filter(|(at, _)| now < at.saturating_add(REST_MS)) {
            return Err(WitnessError::Unavailable(why));
        }
        let result = match kept {
            None => self.ask(None, cmd).await,
            Some(connection) => match self.ask(Some(connection), cmd).await {
                // A connection that Redis closed since it was last used says nothing about Redis.
                Err(error) if error.is_io_error() && !error.is_timeout() => self.ask(None, cmd).await,
                result => result,
            },
        };
        match result {
            Ok((value, connection)) => {
                *self.door() = Door { connection: Some(connection), failed: None };
                Ok(value)
            }
            Err(error) => {
                let why = told(&error);
                *self.door() = Door { connection: None, failed: Some((self.clock.now().mono_ms, why.clone())) };
                Err(WitnessError::Unavailable(why))
            }
        }
    }

    async fn ask<T: FromRedisValue>(
        &self,
        kept: Option<MultiplexedConnection>,
        cmd: &Cmd,
    ) -> Result<(T, MultiplexedConnection), RedisError> {
        let mut connection = match kept {
            Some(connection) => connection,
            None => {
                let config = AsyncConnectionConfig::new();
                let config = config.set_connection_timeout(Some(WITHIN)).set_response_timeout(Some(WITHIN));
                self.client.get_multiplexed_async_connection_with_config(&config).await?
            }
        };
        let value = cmd.query_async(&mut connection).await?;
        Ok((value, connection))
    }

    async fn all(&self) -> Result<BTreeMap<String, String>, WitnessError> {
        self.call(redis::cmd("HGETALL").arg(&self.key)).await
    }

    async fn some(&self, fields: &[String]) -> Result<Vec<Option<String>>, WitnessError> {
        if fields.is_empty() {
            return Ok(vec![]);
        }
        self.call(redis::cmd("HMGET").arg(&self.key).arg(fields)).await
    }

    async fn swap(&self, filled: &str, swaps: &[Swap]) -> Result<bool, WitnessError> {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(SWAP).arg(1).arg(&self.key).arg(filled);
        for (field, was, now) in swaps {
            cmd.arg(field).arg(was).arg(now);
        }
        Ok(self.call::<i64>(&cmd).await? == 1)
    }

    /// What `new` makes of the entries that are held.
    async fn united(&self, new: Vec<Entry>) -> Result<Vec<Swap>, WitnessError> {
        let fields: Vec<String> = new.iter().map(|e| entry_field(e.body.kind(), &e.name)).collect();
        let held = self.some(&fields).await?;
        let mut swaps = Vec::new();
        for ((entry, field), was) in new.into_iter().zip(fields).zip(held) {
            let mut one: Roster = was.as_deref().map(read_entry).transpose()?.into_iter().collect();
            if one.unite(entry) {
                for united in one.entries() {
                    swaps.push((field.clone(), was.clone().unwrap_or_default(), write_entry(united)?));
                }
            }
        }
        Ok(swaps)
    }
}

/// An error in words that have no secret.
fn told(error: &RedisError) -> String {
    match error.code() {
        Some(code) => format!("Redis refuses: {code}"),
        None if error.is_timeout() => "Redis does not answer in time".to_owned(),
        None => format!("Redis is out of reach: {}", error.category()),
    }
}

fn unreadable(what: &str) -> WitnessError {
    WitnessError::Unavailable(format!("Redis holds {what} that cannot be read: was something else written there?"))
}

fn mark_field(scope: &Scope) -> String {
    format!("mark/{scope}")
}

fn entry_field(kind: Kind, name: &Name) -> String {
    format!("entry/{}/{name}", kind.as_str())
}

/// One spelling for ever: a raise compares the text.
fn write_mark(mark: &Mark) -> String {
    format!("{}.{} {} {} {}", mark.generation.counter, mark.generation.random, mark.seq, mark.row, mark.bound)
}

fn read_mark(text: &str) -> Option<Mark> {
    let mut words = text.split(' ');
    let (counter, random) = words.next()?.split_once('.')?;
    let mark = Mark {
        generation: Generation { counter: counter.parse().ok()?, random: random.parse().ok()? },
        seq: words.next()?.parse().ok()?,
        row: words.next()?.parse::<RowId>().ok()?,
        bound: words.next()?.parse().ok()?,
    };
    words.next().is_none().then_some(mark)
}

fn write_entry(entry: &Entry) -> Result<String, WitnessError> {
    serde_json::to_string(entry).map_err(|e| WitnessError::Unavailable(e.to_string()))
}

fn read_entry(text: &str) -> Result<Entry, WitnessError> {
    serde_json::from_str(text).map_err(|_| unreadable("an entry of the roster"))
}

#[async_trait]
impl Witness for RedisWitness {
    async fn read(&self) -> Result<Option<Marks>, WitnessError> {
        let all = self.all().await?;
        let mut marks = Marks::new();
        for (field, text) in &all {
            let Some(scope) = field.strip_prefix("mark/") else { continue };
            let scope = scope.parse().map_err(|_| unreadable("a scope"))?;
            marks.insert(scope, read_mark(text).ok_or_else(|| unreadable("a mark"))?);
        }
        Ok(all.contains_key("filled").then_some(marks))
    }

    async fn read_some(&self, scopes: &[Scope]) -> Result<Option<Marks>, WitnessError> {
        let fields = scopes.iter().map(mark_field).chain(["filled".to_owned()]).collect::<Vec<_>>();
        let held = self.some(&fields).await?;
        if held.last().is_none_or(Option::is_none) {
            return Ok(None);
        }
        let mut marks = Marks::new();
        for (scope, text) in scopes.iter().zip(&held) {
            if let Some(text) = text {
                marks.insert(scope.clone(), read_mark(text).ok_or_else(|| unreadable("a mark"))?);
            }
        }
        Ok(Some(marks))
    }

    async fn raise(&self, raises: Vec<Raise>, roster: Vec<Entry>) -> Result<bool, WitnessError> {
        let mut swaps = self.united(roster).await?;
        for raise in raises {
            let was = raise.was.as_ref().map(write_mark).unwrap_or_default();
            let now =
                if raise.was.is_none_or(|was| raise.now.is_above(&was)) { write_mark(&raise.now) } else { was.clone() };
            swaps.push((mark_field(&raise.scope), was, now));
        }
        self.swap("1", &swaps).await
    }

    async fn fill(&self, marks: Marks, roster: Vec<Entry>) -> Result<bool, WitnessError> {
        let mut swaps = vec![("filled".to_owned(), String::new(), "1".to_owned())];
        swaps.extend(marks.iter().map(|(scope, mark)| (mark_field(scope), String::new(), write_mark(mark))));
        for entry in &roster {
            swaps.push((entry_field(entry.body.kind(), &entry.name), String::new(), write_entry(entry)?));
        }
        self.swap("", &swaps).await
    }

    async fn roster(&self) -> Result<Vec<Entry>, WitnessError> {
        let all = self.all().await?;
        all.iter().filter(|(field, _)| field.starts_with("entry/")).map(|(_, text)| read_entry(text)).collect()
    }

    async fn claim(&self, cluster: ClusterId) -> Result<(), WitnessError> {
        let wanted = cluster.to_string();
        let mut set = redis::cmd("HSETNX");
        let _: i64 = self.call(set.arg(&self.key).arg("cluster").arg(&wanted)).await?;
        let found: Option<String> = self.call(redis::cmd("HGET").arg(&self.key).arg("cluster")).await?;
        match found {
            Some(found) if found != wanted => Err(WitnessError::WrongOwner {
                found: format!("{} of cluster {found}", self.key),
                wanted: format!("cluster {wanted} (give each cluster a name of its own: ?cluster=NAME)"),
            }),
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_the_cluster_and_nothing_else() {
        let named = |text: &str| Address::parse(text).map(|a| a.cluster.to_string());
        assert_eq!(named("redis://u:p@h:1/3?cluster=prod").unwrap(), "prod");
        assert_eq!(named("redis://h").unwrap(), CLUSTER);
        for wrong in ["rediss://h", "redis://h:port", "redis://h?cluster=", "redis://h?x=1", "http://h"] {
            assert!(named(wrong).unwrap_err().starts_with("must be redis://"), "{wrong}");
        }
        assert!(!named("redis://me:hidden@h:port").unwrap_err().contains("hidden"));
    }

    #[test]
    fn a_mark_has_one_spelling() {
        let row = RowId(uuid::Uuid::from_u128(7));
        let mark = Mark { generation: Generation { counter: 3, random: 9 }, seq: 41, row, bound: 4_000_000 };
        assert_eq!(write_mark(&mark), "3.9 41 00000000-0000-0000-0000-000000000007 4000000");
        assert_eq!(read_mark(&write_mark(&mark)), Some(mark));
        for wrong in ["", "3.9 41", "3 41 x 1", "3.9 41 00000000-0000-0000-0000-000000000007 1 2"] {
            assert_eq!(read_mark(wrong), None, "{wrong}");
        }
    }
}
