//! A puppet agent: speaks the link by hand, so that a test can lose, repeat, delay and forge messages
//! that the shipped agent would never send.

use cadastre_core::ids::{
    AllocationId, ClusterId, Epoch, GrantId, Incarnation, Name, RequestNo, RowId, SessionNo, StoreId,
};
use cadastre_core::mark::{Generation, Mark, ScopeMark};
use cadastre_protocol::LINK_VERSION;
use cadastre_protocol::link::{Answer, Confirm, FullTestimony, GrantAnswer, Granted, Message, Sender, Want, Words};
use uuid::Uuid;

/// See the module's documentation. Every field may be bent by the test.
#[derive(Clone)]
pub struct Puppet {
    /// Who it says it is.
    pub sender: Sender,
    /// What it says it saw.
    pub words: Words,
    /// Sent with the next message.
    pub testimony: Option<FullTestimony>,
    clock_ms: u64,
}

/// A UUIDv7 made at `ms`, distinct for every `n`.
#[must_use]
pub fn allocation(ms: u64, n: u64) -> AllocationId {
    let mut random = [0_u8; 10];
    random[2..].copy_from_slice(&n.to_be_bytes());
    AllocationId::new(uuid::Builder::from_unix_timestamp_millis(ms, &random).into_uuid()).unwrap()
}

impl Puppet {
    /// An agent of `region` with a store of its own.
    #[must_use]
    pub fn new(region: &str, clock_ms: u64) -> Self {
        let mark =
            Mark { generation: Generation { counter: 1, random: 1 }, seq: 1, row: RowId(Uuid::new_v4()), bound: 0 };
        Self {
            sender: Sender {
                cluster_id: None,
                region: Name::new(region).unwrap(),
                epoch: None,
                store_id: StoreId(Uuid::new_v4()),
                shared_store: false,
                session: SessionNo(1),
                number: RequestNo(0),
                incarnation: Incarnation(Uuid::new_v4()),
                chain: None,
                url: None,
                version: "puppet".to_owned(),
                errand_key: None,
                knows: None,
                clock_ms,
            },
            words: Words {
                promised: Generation::default(),
                marks: vec![],
                store_mark: mark,
                proven: true,
                store_went_back: false,
                confirms: vec![],
            },
            testimony: None,
            clock_ms,
        }
    }

    /// The next message.
    pub fn message(&mut self, wants: Vec<Want>) -> Message {
        self.sender.number = RequestNo(self.sender.number.0 + 1);
        self.sender.clock_ms = self.clock_ms;
        Message {
            version: LINK_VERSION,
            sender: self.sender.clone(),
            words: self.words.clone(),
            usage: vec![],
            wants,
            testimony: self.testimony.take(),
            drill: None,
            clients: vec![],
        }
    }

    /// Takes an answer as an agent would: chain, epoch, cluster, marks.
    pub fn hear(&mut self, answer: &Answer) {
        self.sender.chain = Some(answer.chain.clone());
        self.sender.epoch = Some(answer.region.epoch);
        self.sender.cluster_id = Some(answer.cluster_id);
        for new in &answer.marks {
            self.see(new.clone());
        }
    }

    /// Keeps a mark if it is the highest of its scope.
    pub fn see(&mut self, new: ScopeMark) {
        match self.words.marks.iter_mut().find(|m| m.scope == new.scope) {
            Some(held) if new.mark.is_above(&held.mark) => *held = new,
            Some(_) => {}
            None => self.words.marks.push(new),
        }
    }

    /// Says with the next messages that an answer was adopted, and moves its own store's mark.
    pub fn adopt(&mut self, granted: &Granted) {
        self.words.confirms = vec![Confirm { allocation_id: granted.allocation_id, grant_id: granted.grant_id }];
        self.write();
    }

    /// Writes something to its own store.
    pub fn write(&mut self) {
        self.words.store_mark.seq += 1;
        self.words.store_mark.row = RowId(Uuid::new_v4());
    }

    /// Another start of an agent on the same store.
    #[must_use]
    pub fn restarted(&self) -> Self {
        let mut again = self.clone();
        again.sender.session = SessionNo(self.sender.session.0 + 1);
        again.sender.number = RequestNo(0);
        again.sender.incarnation = Incarnation(Uuid::new_v4());
        again.sender.chain = None;
        again
    }

    /// The cluster it joined.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        self.sender.cluster_id
    }

    /// Its epoch.
    #[must_use]
    pub fn epoch(&self) -> Option<Epoch> {
        self.sender.epoch
    }
}

/// A want in `namespace`.
#[must_use]
pub fn want(allocation_id: AllocationId, namespace: &str, want: u64) -> Want {
    Want { allocation_id, namespace: Name::new(namespace).unwrap(), want }
}

/// What became of the first want: the range, or the code.
///
/// # Errors
/// The code.
pub fn outcome(answer: &Answer) -> Result<(u64, u64, GrantId), String> {
    match answer.grants.first() {
        Some(GrantAnswer::Granted(g)) => Ok((g.lo, g.hi, g.grant_id)),
        Some(GrantAnswer::Refused { problem, .. }) => Err(problem.code.as_str().to_owned()),
        None => Err("no answer".to_owned()),
    }
}
