//! The link between a region's agent and the authority: `POST /v1/grants` and `POST /v1/heartbeats`.
//!
//! Both carry the same envelope, because every message is also testimony: who speaks (store, session,
//! number, chain), what it promised, and the highest marks that it ever saw. Requests of one
//! incarnation are serialised, so a heartbeat and a grant never overtake one another. The token goes
//! in the `Authorization` header and nowhere else.

use std::collections::BTreeMap;

use cadastre_core::decimal;
use cadastre_core::ids::{
    AllocationId, ClusterId, DrillId, Epoch, GrantId, Incarnation, Name, RegionId, RequestNo, SessionNo, StoreId,
};
use cadastre_core::knows::Knows;
use cadastre_core::mark::{Generation, Mark, ScopeMark};
use cadastre_core::registry::RegionState;
use cadastre_core::roster::Entry;
use serde::{Deserialize, Serialize};

use crate::error::Problem;
use crate::ids::Program;
use crate::operate::{DrillOrder, DrillWord, Expect, HomeAddress};

/// The largest body of a link message, in bytes: a complete testimony of 10,000 namespaces fits.
pub const MAX_LINK_BYTES: usize = 16 << 20;
/// The most wants in one message.
pub const MAX_WANTS: usize = 256;
/// Marks sent with an ordinary message; the rest take turns. A complete testimony sends all.
pub const MARKS_PER_MESSAGE: usize = 256;

/// Who speaks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sender {
    /// The cluster that the sender's store joined; absent before the first answer.
    pub cluster_id: Option<ClusterId>,
    /// The region's name.
    pub region: Name,
    /// The epoch that the sender's store holds; absent before the first answer.
    pub epoch: Option<Epoch>,
    /// The sender's store.
    pub store_id: StoreId,
    /// Whether several agents may share the store (a server), or only one (a file).
    pub shared_store: bool,
    /// This start of an agent on the store.
    pub session: SessionNo,
    /// This request within the session.
    pub number: RequestNo,
    /// This process.
    pub incarnation: Incarnation,
    /// The token of the last answer; absent in a session's first request.
    pub chain: Option<String>,
    /// Where callers reach the agent, for origin lookups.
    pub url: Option<String>,
    /// The sender's software version.
    pub version: String,
    /// What the authority signs with when it asks this agent something; made when it started, and good nowhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errand_key: Option<String>,
    /// What the sender can read; who says nothing is of the first version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knows: Option<Knows>,
    /// The sender's wall clock, milliseconds since the Unix epoch.
    #[serde(with = "decimal::unsigned")]
    pub clock_ms: u64,
}

/// What every message testifies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Words {
    /// Answers of a lower generation are refused from now on.
    pub promised: Generation,
    /// The highest marks of the authority's scopes that the sender ever saw; the roster's always.
    pub marks: Vec<ScopeMark>,
    /// The newest row of the sender's own store.
    pub store_mark: Mark,
    /// Whether the sender's store is proved current (by its witness, or by an earlier answer).
    pub proven: bool,
    /// The sender's store, or its required witness, was found lost or put back: the region burns what
    /// it held and asks for the next epoch.
    pub store_went_back: bool,
    /// Answers that were adopted and not yet acknowledged as confirmed.
    pub confirms: Vec<Confirm>,
}

/// One adopted answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Confirm {
    /// The request's id.
    pub allocation_id: AllocationId,
    /// The row that was adopted.
    pub grant_id: GrantId,
}

/// How one namespace is doing in the sender's region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Which.
    pub namespace: Name,
    /// Ordinals of the region's grants that no segment holds.
    #[serde(with = "decimal::unsigned")]
    pub left: u64,
    /// Ordinals unissued in the sender's own active and standby segments.
    #[serde(with = "decimal::unsigned")]
    pub in_instances: u64,
    /// Ordinals carved since the region's first grant.
    #[serde(with = "decimal::unsigned")]
    pub carved: u64,
    /// Ordinals that were burned: held under an older epoch, or lost with a stopped process.
    #[serde(with = "decimal::unsigned")]
    pub burned: u64,
    /// IDs a second over the last minute, of all agents the sender knows of.
    pub rate_per_second: f64,
    /// The highest rate of the last day.
    pub peak_per_second: f64,
}

/// A complete testimony for a quarantine: read in the transaction that promised the generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FullTestimony {
    /// The generation that was promised.
    pub generation: Generation,
    /// Per namespace, the end of the highest range that the store ever held.
    #[serde(with = "bounds")]
    pub bounds: BTreeMap<Name, u64>,
    /// Every mark the sender ever saw.
    pub marks: Vec<ScopeMark>,
    /// The sender's whole roster.
    pub roster: Vec<Entry>,
}

/// Ordinals by namespace, as decimal strings.
pub mod bounds {
    use std::collections::BTreeMap;

    use cadastre_core::decimal::parse_unsigned;
    use cadastre_core::ids::Name;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes the ordinals as decimal strings.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(bounds: &BTreeMap<Name, u64>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(bounds.iter().map(|(name, bound)| (name, bound.to_string())))
    }

    /// Reads them back.
    ///
    /// # Errors
    /// A name or a number that is not one.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<Name, u64>, D::Error> {
        let texts = BTreeMap::<Name, String>::deserialize(deserializer)?;
        texts
            .into_iter()
            .map(|(name, text)| Ok((name, parse_unsigned(&text).map_err(serde::de::Error::custom)?)))
            .collect()
    }
}

/// One wanted range.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Want {
    /// Names the request over every retry; stored before the first try.
    pub allocation_id: AllocationId,
    /// In which namespace.
    pub namespace: Name,
    /// How many ordinals, at most; the answer may be shorter.
    #[serde(with = "decimal::unsigned")]
    pub want: u64,
}

/// `POST /v1/heartbeats` and `POST /v1/grants`: a heartbeat is a message without wants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// [`crate::LINK_VERSION`].
    pub version: u32,
    /// Who speaks.
    pub sender: Sender,
    /// What it testifies.
    pub words: Words,
    /// How its namespaces are doing; only those that changed.
    #[serde(default)]
    pub usage: Vec<Usage>,
    /// Ranges that it wants.
    #[serde(default)]
    pub wants: Vec<Want>,
    /// The answer to [`Answer::testify_for`].
    #[serde(default)]
    pub testimony: Option<FullTestimony>,
    /// What the agent saw of a drill, until an answer says that it was heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drill: Option<DrillWord>,
    /// Processes that asked the sender lately and read less than it does; some, in turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientWord>,
}

/// A process that issues by itself, and reads less than the agent which gives it segments or workers.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientWord {
    /// Of which service.
    pub service: Name,
    /// As it names itself.
    pub instance: Name,
    /// What it asked for.
    pub namespace: Name,
    /// Its software.
    pub program: Program,
    /// When it last asked, in milliseconds before the message.
    pub quiet_ms: u64,
}

/// Where the sender's region stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    /// Its number.
    pub region_id: RegionId,
    /// Its epoch: above the sender's own, the sender burns what it held.
    pub epoch: Epoch,
    /// Its state.
    pub state: RegionState,
}

/// The answer to a [`Message`]. Fields may be added; an agent ignores those it does not know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// [`crate::LINK_VERSION`].
    pub version: u32,
    /// The cluster; a store joins one for good.
    pub cluster_id: ClusterId,
    /// To which request this is the answer.
    pub number: RequestNo,
    /// Of which incarnation.
    pub incarnation: Incarnation,
    /// To be presented with the next request.
    pub chain: String,
    /// The generation that this answer belongs to.
    pub generation: Generation,
    /// Whether the authority is in quarantine: it gives nothing out, the region goes on.
    pub quarantined: bool,
    /// Set in a quarantine: send a complete testimony for this generation.
    pub testify_for: Option<Generation>,
    /// Where the region stands.
    pub region: Standing,
    /// The mark of the sender's store that was kept before this message. A store that does not
    /// contain its row went back.
    pub kept: Option<Mark>,
    /// Marks that have passed the gate.
    pub marks: Vec<ScopeMark>,
    /// Roster entries that are newer than the sender's roster mark.
    pub roster: Vec<Entry>,
    /// Confirms that were taken note of.
    pub confirmed: Vec<AllocationId>,
    /// One per want.
    pub grants: Vec<GrantAnswer>,
    /// The authority's wall clock, milliseconds since the Unix epoch.
    #[serde(with = "decimal::unsigned")]
    pub clock_ms: u64,
    /// Where the regions of narrowed homes are reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub homes: Vec<HomeAddress>,
    /// What the region should be ready for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expect: Vec<Expect>,
    /// A drill that this agent is to hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drill: Option<DrillOrder>,
    /// The drill of which the sender's word was taken note of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drill_heard: Option<DrillId>,
}

/// The answer to one [`Want`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantAnswer {
    /// A range.
    Granted(Granted),
    /// None; the problem says whether to try again with the same id.
    Refused {
        /// The request's id.
        allocation_id: AllocationId,
        /// Why.
        problem: Problem,
    },
}

/// A granted range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Granted {
    /// The request's id.
    pub allocation_id: AllocationId,
    /// The grant.
    pub grant_id: GrantId,
    /// In which namespace.
    pub namespace: Name,
    /// First ordinal.
    #[serde(with = "decimal::unsigned")]
    pub lo: u64,
    /// End, exclusive.
    #[serde(with = "decimal::unsigned")]
    pub hi: u64,
    /// The epoch that it belongs to.
    pub epoch: Epoch,
    /// The generation that wrote it.
    pub generation: Generation,
    /// Whether an earlier answer was lost and this is its row once more.
    pub replayed: bool,
}
