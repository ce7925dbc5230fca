//! Namespaces: what an operator defines, and how the authority shows it.

use cadastre_core::decimal;
use cadastre_core::ids::{Epoch, Name};
use cadastre_core::layout::Layout;
use cadastre_core::namespace::{NamespaceKind, Reader};
use cadastre_core::sequence::{Definition, Sequence};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /v1/namespaces`.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewNamespace {
    /// Its name; a deleted namespace of this name goes on at its watermark.
    #[schema(value_type = String)]
    pub name: Name,
    /// `range` (the default), `snowflake` or `uuid_v7`.
    #[serde(default)]
    #[schema(value_type = String)]
    pub kind: NamespaceKind,
    /// How an ordinal becomes a value; defaults to 1, 2, 3 ... 2^63-1.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub sequence: Option<Sequence>,
    /// How the bits of a time-based id are shared, for `snowflake`; it never changes. Defaults to 41 bits of
    /// milliseconds since 2025, 3 of region, 7 of worker, 12 of sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub layout: Option<Layout>,
    /// Who reads the ids, and up to which value each can; what could exceed it is refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    pub readers: Vec<Reader>,
    /// Settings that differ from the defaults.
    #[serde(default)]
    pub policy: PolicyPatch,
}

impl NewNamespace {
    /// One of kind `range` with every default.
    #[must_use]
    pub fn range(name: Name) -> Self {
        Self {
            name,
            kind: NamespaceKind::Range,
            sequence: None,
            layout: None,
            readers: Vec::new(),
            policy: PolicyPatch::default(),
        }
    }
}

/// `PATCH /v1/namespaces/{name}`; absent fields stay.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NamespacePatch {
    /// Stop or go on granting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen: Option<bool>,
    /// Settings to change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyPatch>,
    /// A new version of the definition, from the next unreserved ordinal on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub sequence: Option<Sequence>,
    /// Who reads the ids from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub readers: Option<Vec<Reader>>,
    /// The regions that may issue here from now on; an empty list, or null, is all. At once, and without asking what they
    /// hold: a switch does.
    #[serde(default, deserialize_with = "null_is_all", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    pub home: Option<Vec<Name>>,
}

fn null_is_all<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Vec<Name>>, D::Error> {
    Ok(Some(Option::deserialize(from)?.unwrap_or_default()))
}

macro_rules! policy_patch {
    ($($(#[$doc:meta])* $field:ident: $type:ty, $with:literal;)* --- $($(#[$ndoc:meta])* $number:ident,)*) => {
        /// Policy settings; an absent one keeps its value (or the default).
        #[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
        #[serde(deny_unknown_fields)]
        pub struct PolicyPatch {
            $($(#[$doc])*
            #[serde(default, with = $with, skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<String>)]
            pub $field: Option<$type>,)*
            $($(#[$ndoc])*
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub $number: Option<u32>,)*
        }

        impl PolicyPatch {
            /// `policy` with the given settings changed.
            #[must_use]
            pub fn apply(&self, mut policy: cadastre_core::namespace::Policy) -> cadastre_core::namespace::Policy {
                $(if let Some(value) = self.$field { policy.$field = value; })*
                $(if let Some(value) = self.$number { policy.$number = value; })*
                policy
            }
        }
    };
}

policy_patch! {
    /// Ordinals in a region's first grant.
    grant_size: u64, "decimal::optional";
    /// The most that one grant may hold.
    grant_max: u64, "decimal::optional";
    /// The most that a region may hold unissued.
    region_max_held: u64, "decimal::optional";
    /// The least that a segment holds.
    segment_min: u64, "decimal::optional";
    /// The most that a segment holds.
    segment_max: u64, "decimal::optional";
    /// Ordinals in a block per service; "0" shares the region's grants.
    service_block: u64, "decimal::optional";
    ---
    /// How long a segment should last, in seconds.
    target_seconds,
    /// How long a grant should last at the peak rate, in seconds.
    grant_target_seconds,
    /// A refill starts when what is left lasts no longer than this, in seconds.
    buffer_seconds,
    /// Headroom for the peak rate times this.
    surge_factor,
    /// A refill starts at the latest at this share of the last range, in percent.
    floor_percent,
}

/// A namespace as the authority shows it.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct NamespaceView {
    /// Its name.
    #[schema(value_type = String)]
    pub name: Name,
    /// Its kind.
    #[schema(value_type = String)]
    pub kind: NamespaceKind,
    /// The present version of its definition.
    #[schema(value_type = Object)]
    pub sequence: Sequence,
    /// All versions, with the ordinals they take effect at.
    #[schema(value_type = Object)]
    pub definition: Definition,
    /// Its policy, every setting.
    #[schema(value_type = Object)]
    pub policy: cadastre_core::namespace::Policy,
    /// Whether it grants nothing.
    pub frozen: bool,
    /// Everything below was granted (an ordinal).
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub watermark: u64,
    /// Ordinals that can still be granted.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub space_left: u64,
    /// The regions that may issue here; null is all.
    #[schema(value_type = Option<Vec<String>>)]
    pub home: Option<Vec<Name>>,
    /// Regions that are given nothing new here, as a switch is about to leave them; they go on with what they hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub leaving: Vec<Name>,
    /// Regions that are given what they will need here, and issue nothing yet, as a switch is about to move to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub arriving: Vec<Name>,
    /// Of a `snowflake` namespace; its ordinals, and so `watermark` and `space_left`, are units of time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub layout: Option<Layout>,
    /// Who reads the ids, and up to which value each can.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    pub readers: Vec<Reader>,
    /// Who stamps in a `snowflake` namespace, and until when.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<SlotView>,
}

/// One slot of a `snowflake` namespace.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct SlotView {
    /// The region field of its ids.
    pub slot: u32,
    /// Who stamps in it.
    #[schema(value_type = String)]
    pub region: Name,
    /// Under which epoch; the region's next one takes another slot.
    #[schema(value_type = u64)]
    pub epoch: Epoch,
    /// Until when time is given in it, milliseconds since the Unix epoch.
    #[serde(with = "decimal::unsigned")]
    #[schema(value_type = String)]
    pub until: u64,
}
