//! What nodes say to each other.
//!
//! Messages between two nodes may be lost, doubled, late or out of order, also those of a process that has since
//! been started again: an answer is known by the number of its question, which no other question of the cluster has.
//! Where they arrive they are given to the shard that [`route`] names.
//!
//! * `codec/`: messages as frames.

mod codec;

use crate::hop::ShardId;
use crate::layout::Layout;
use bytes::Bytes;
use kv::aae::{TreeAnswer, TreeAsk};
use kv::index::{RowsAsk, RowsPage};
use kv::props::PropsSums;
use kv::replica::{Answer, Ask, Reason};
use kv::{Error, Page, PageAsk, PropsChange, Request, Response};
use strong::Endpoint;
use strong::group::Birth;
use strong::promise::Block;

/// The first version of the protocol in which there are consistent bucket types. A cluster has them only once all its
/// members speak it.
pub const VERSION_CONSISTENT: u16 = 9;

/// The first version of the protocol whose programs read a security policy in the cluster's log. A cluster has one only
/// once all its members speak it.
pub const VERSION_POLICY: u16 = 10;

pub use codec::{DecodeError, EncodeError, RefusedMessage};
pub use kv::replica::NodeId;

/// The number of a question: random above, so that it is unlike those of an earlier process, and with the shard
/// that asks in its lowest byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AskId(pub u64);

impl AskId {
    /// That of a shard's question of this number.
    pub fn new(number: u64, shard: ShardId) -> AskId {
        AskId(number << 8 | u64::from(shard.0 & 0xFF))
    }

    /// The number that it has at the shard that asked.
    pub fn number(self) -> u64 {
        self.0 >> 8
    }

    /// The shard that asked.
    pub fn shard(self) -> ShardId {
        ShardId(u16::from(self.0.to_le_bytes()[0]))
    }
}

/// How busy a shard says it is: requests under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Load(pub u32);

impl Load {
    /// The process is about to stop: it answers what it was asked, and is not to be asked anything new. Programs that
    /// do not know of this take it for as busy as can be.
    pub const STOPPING: Load = Load(u32::MAX);
}

/// One message.
#[derive(Clone, Debug, PartialEq)]
pub enum PeerMessage {
    /// Are you there?
    Ping {
        /// The question; its shard is the one to be answered.
        id: AskId,
        /// The sender's process: another number means that it was started again.
        life: u64,
        /// How busy the sender is.
        load: Load,
        /// Sums over the properties that it knows; a program older than version 5 does not say.
        props: Option<PropsSums>,
        /// The sender's word about promises; a program older than version 11 does not say.
        promise: Option<PromiseBlock>,
    },
    /// I am.
    Pong {
        /// The question.
        id: AskId,
        /// The answerer's process.
        life: u64,
        /// How busy it is.
        load: Load,
        /// Sums over the properties that it knows, as in a ping.
        props: Option<PropsSums>,
        /// Its word about promises, as in a ping.
        promise: Option<PromiseBlock>,
    },
    /// A question to a replica.
    Ask {
        /// The question.
        id: AskId,
        /// Milliseconds after which nobody waits for the answer.
        ttl_ms: u32,
        /// The process that is asked, if only that one is to do it; 0 for any.
        life: u64,
        /// The key's ledger key.
        key: Bytes,
        /// The question.
        ask: Ask,
    },
    /// A replica's answer.
    Answer {
        /// The question.
        id: AskId,
        /// The answer.
        result: Result<Answer, Error>,
        /// How busy the answerer is.
        load: Load,
    },
    /// A client's request that another node is to coordinate.
    Forward {
        /// The question.
        id: AskId,
        /// Milliseconds after which nobody waits for the answer.
        ttl_ms: u32,
        /// A put or a delete; its key is known.
        request: Box<Request>,
    },
    /// The answer to a [`PeerMessage::Forward`].
    Forwarded {
        /// The question.
        id: AskId,
        /// The answer.
        result: Box<Result<Response, Error>>,
    },
    /// The properties of a bucket or a bucket type were changed; sent by the shard that keeps them to its like.
    Props {
        /// The question.
        id: AskId,
        /// The change. Its stamp is later than any known before; the later one holds.
        change: PropsChange,
    },
    /// Asks for a page of a listing.
    AskPage {
        /// The question.
        id: AskId,
        /// Milliseconds after which nobody waits for the answer.
        ttl_ms: u32,
        /// What is asked.
        ask: PageAsk,
    },
    /// The answer to a [`PeerMessage::AskPage`].
    Page {
        /// The question.
        id: AskId,
        /// The page.
        page: Result<Page, Error>,
    },
    /// Asks for a page of an index query's rows.
    AskRows {
        /// The question.
        id: AskId,
        /// Milliseconds after which nobody waits for the answer.
        ttl_ms: u32,
        /// What is asked.
        ask: Box<RowsAsk>,
    },
    /// The answer to a [`PeerMessage::AskRows`].
    Rows {
        /// The question.
        id: AskId,
        /// The page.
        page: Result<RowsPage, Error>,
    },
    /// Asks about trees of hashes.
    AskTree {
        /// The question.
        id: AskId,
        /// How many partitions the ring has by which the sender keeps trees.
        partitions: u32,
        /// What is asked.
        ask: TreeAsk,
    },
    /// The answer to a [`PeerMessage::AskTree`].
    Tree {
        /// The question.
        id: AskId,
        /// The answer.
        answer: Result<TreeAnswer, Error>,
    },
    /// A word between the nodes' parts in their cluster (crate `membership`), which the shell passes on; shards have no
    /// use for it.
    Membership {
        /// What that crate wrote.
        bytes: Bytes,
    },
    /// Asks for what the receiver holds of partitions: it is sent as merges, key by key.
    AskCopy {
        /// The question.
        id: AskId,
        /// The version of the ring that asks for it.
        target: u64,
        /// The partitions that are wanted, ascending.
        partitions: Vec<u16>,
        /// The ledger key to go on at in the first of them.
        start: Option<Bytes>,
    },
    /// The answer to a [`PeerMessage::AskCopy`], once everything up to there is durable at whoever asked.
    CopyPart {
        /// The question.
        id: AskId,
        /// How far it is.
        part: Result<CopyPart, Error>,
    },
    /// Asks to be told, one by one, the properties that the receiver knows and the sender may not.
    AskProps {
        /// The question. It has no answer of its own.
        id: AskId,
        /// What the sender knows ([`kv::BucketTable::leaves`]); without resets, unless one of both is older than
        /// version 8.
        leaves: Vec<u64>,
    },
    /// The answer to a [`PeerMessage::Props`]: they, or later ones, are in force and durable.
    PropsInForce {
        /// The question.
        id: AskId,
    },
    /// Messages of consistent groups.
    Groups {
        /// The receiving shard.
        to: ShardId,
        /// The urgency of all of them.
        lane: strong::envelope::Lane,
        /// The sender's word about promises to the process of the envelope; a program older than version 11 does not
        /// say.
        block: Option<Block>,
        /// The birth of the store that sends them: the process has another store after a loss. A program older than
        /// version 12 does not say.
        birth: Option<Birth>,
        /// A [`strong::envelope::Envelope`].
        envelope: Bytes,
    },
    /// A message of a catch-up of a consistent group.
    CatchUp {
        /// The receiving shard.
        to: ShardId,
        /// A [`strong::catch_up::CatchUpMessage`].
        message: Bytes,
    },
    /// A client's request that the leader of a consistent group is to execute.
    AskLeader {
        /// The question.
        id: AskId,
        /// Milliseconds after which nobody waits for the answer.
        ttl_ms: u32,
        /// The process that is asked; another one drops the request.
        life: u64,
        /// The number of a write, by which copies of the message are known: its origin, and a number of that.
        number: Option<(Endpoint, u64)>,
        /// A get, a put or a delete; its key is known.
        request: Box<Request>,
    },
    /// The answer to a [`PeerMessage::AskLeader`].
    LeaderAnswer {
        /// The question.
        id: AskId,
        /// The answer.
        answer: LeaderAnswer,
    },
}

/// A word about promises between two processes, outside of an envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromiseBlock {
    /// The process that it is for; another one of the node drops it.
    pub life: u64,
    /// The word.
    pub block: Block,
}

/// The answer of a node that was asked as the leader of a group.
#[derive(Clone, Debug, PartialEq)]
pub enum LeaderAnswer {
    /// It does not lead, and has done nothing.
    NotLeader {
        /// The node that leads, as far as it knows.
        leader: Option<NodeId>,
    },
    /// It leads, and this is the end of the request.
    Done(Box<Result<Response, Error>>),
}

/// Up to so many bytes a word of membership is one on who is there, or on who leads, which must not wait: probes and
/// heartbeats. Longer ones carry changes.
const SMALL_MEMBERSHIP: usize = 1_500;

/// How far a copy is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyPart {
    /// Of the partitions that were asked for, those that are left, in the order in which they are to be asked for.
    pub rest: Vec<u16>,
    /// Where to go on in the first of them.
    pub next: Option<Bytes>,
    /// Keys that were sent.
    pub objects: u64,
    /// Bytes of their heads and values.
    pub bytes: u64,
    /// Partitions of which the sender has lost something: what it has of them was sent, and is not all.
    pub lost: Vec<u16>,
}

/// What goes first when several messages wait for a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Who is there, and who leads.
    Liveness,
    /// What a client waits for.
    Requests,
    /// Listings and index queries: one page at a time, which may be large.
    Listings,
    /// Read repair.
    Repair,
    /// Hints brought home, partitions copied, tombstones reaped, trees compared.
    Handoff,
}

impl Lane {
    /// All of them, the most urgent first.
    pub const ALL: [Lane; 5] = [Lane::Liveness, Lane::Requests, Lane::Listings, Lane::Repair, Lane::Handoff];
}

impl PeerMessage {
    /// Whether it answers a question of the receiver's. Pings and pongs, which tell more of their sender, do not count.
    pub fn is_answer(&self) -> bool {
        matches!(
            self,
            PeerMessage::Answer { .. }
                | PeerMessage::Forwarded { .. }
                | PeerMessage::Page { .. }
                | PeerMessage::Rows { .. }
                | PeerMessage::CopyPart { .. }
                | PeerMessage::Tree { .. }
                | PeerMessage::PropsInForce { .. }
                | PeerMessage::LeaderAnswer { .. }
        )
    }

    /// The load of its sender, if it says so.
    pub fn load(&self) -> Option<Load> {
        match self {
            PeerMessage::Answer { load, .. } => Some(*load),
            _ => None,
        }
    }

    /// The answer that stands for a refusal of this question. `None` where no component waits for one: properties are
    /// told and asked again, and of all else the receiver's deadline passes.
    pub fn refusal(self, error: Error) -> Option<PeerMessage> {
        Some(match self {
            PeerMessage::Ask { id, .. } => PeerMessage::Answer { id, result: Err(error), load: Load(0) },
            PeerMessage::AskPage { id, .. } => PeerMessage::Page { id, page: Err(error) },
            PeerMessage::AskRows { id, .. } => PeerMessage::Rows { id, page: Err(error) },
            PeerMessage::AskCopy { id, .. } => PeerMessage::CopyPart { id, part: Err(error) },
            PeerMessage::AskTree { id, .. } => PeerMessage::Tree { id, answer: Err(error) },
            // It was not sent, so nothing was done.
            PeerMessage::AskLeader { id, .. } => {
                PeerMessage::LeaderAnswer { id, answer: LeaderAnswer::NotLeader { leader: None } }
            }
            _ => return None,
        })
    }

    /// The message's lane.
    pub fn lane(&self) -> Lane {
        match self {
            PeerMessage::Ping { .. } | PeerMessage::Pong { .. } => Lane::Liveness,
            PeerMessage::Ask { ask: Ask::Merge { reason, .. }, .. } => match reason {
                Reason::Write | Reason::DualWrite => Lane::Requests,
                Reason::Repair | Reason::Heal => Lane::Repair,
                Reason::Handoff | Reason::Copy => Lane::Handoff,
            },
            PeerMessage::Membership { bytes } if bytes.len() <= SMALL_MEMBERSHIP => Lane::Liveness,
            PeerMessage::Groups { lane: strong::envelope::Lane::Liveness, .. } => Lane::Liveness,
            PeerMessage::CatchUp { .. } => Lane::Handoff,
            PeerMessage::AskPage { .. }
            | PeerMessage::Page { .. }
            | PeerMessage::AskRows { .. }
            | PeerMessage::Rows { .. } => Lane::Listings,
            PeerMessage::AskCopy { .. }
            | PeerMessage::CopyPart { .. }
            | PeerMessage::AskTree { .. }
            | PeerMessage::Tree { .. }
            | PeerMessage::Ask { ask: Ask::Reap { .. }, .. }
            | PeerMessage::Answer { result: Ok(Answer::Reaping { .. }), .. } => Lane::Handoff,
            _ => Lane::Requests,
        }
    }
}

/// The shard of this node that a message is for.
pub fn route(message: &PeerMessage, layout: &Layout) -> ShardId {
    match message {
        PeerMessage::Ping { id, .. } => ShardId(id.shard().0 % layout.shards),
        PeerMessage::Pong { id, .. }
        | PeerMessage::Answer { id, .. }
        | PeerMessage::Forwarded { id, .. }
        | PeerMessage::Page { id, .. }
        | PeerMessage::Rows { id, .. }
        | PeerMessage::CopyPart { id, .. }
        | PeerMessage::Tree { id, .. }
        | PeerMessage::LeaderAnswer { id, .. }
        | PeerMessage::PropsInForce { id } => ShardId(id.shard().0 % layout.shards),
        PeerMessage::Groups { to, .. } | PeerMessage::CatchUp { to, .. } => ShardId(to.0 % layout.shards),
        PeerMessage::Props { .. } | PeerMessage::AskProps { .. } | PeerMessage::Membership { .. } => {
            ShardId(0)
        }
        PeerMessage::Ask { key, .. } => {
            // A key that is none is answered by whoever gets it.
            let prefix = object::key::decode_object_key(key).map_or(0, |key| key.prefix);
            ShardId(layout.shard_of(prefix))
        }
        PeerMessage::AskPage { ask, .. } => {
            let first = ask.partitions.first().copied().unwrap_or_default();
            ShardId(layout.shard_of(first))
        }
        PeerMessage::AskRows { ask, .. } => {
            ShardId(layout.shard_of(ask.prefixes.first().unwrap_or_default()))
        }
        PeerMessage::AskCopy { partitions, .. } => {
            let first = partitions.first().copied().unwrap_or_default();
            ShardId(layout.shard_of(first))
        }
        PeerMessage::AskTree { ask, .. } => ShardId(layout.shard_of(ask.first().unwrap_or_default())),
        PeerMessage::Forward { request, .. } | PeerMessage::AskLeader { request, .. } => {
            let (bucket, key) = (request.bucket(), request.key());
            let prefix = bucket.zip(key).map_or(0, |(bucket, key)| layout.prefix(bucket, key));
            ShardId(layout.shard_of(prefix))
        }
    }
}
