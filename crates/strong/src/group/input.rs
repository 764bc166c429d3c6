//! Inputs of a group.

use std::time::Duration;

use base::Monotonic;
use bytes::Bytes;

use super::{Version, VoterId, Write};

/// The condition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    None,
    /// The key is absent or deleted.
    Absent,
    /// The key has that version.
    Is(Version),
}

/// A write that a client wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Names the request in its answer.
    pub token: u64,
    /// Its condition.
    pub condition: Condition,
    /// The write.
    pub write: Write,
    /// The version of the key in the caller's tables, in which all that this group handed out to be applied is
    /// applied; none if the key is absent or a tombstone.
    pub head: Option<Version>,
    /// The version that the object carries, if the caller has put one into it: [`super::Group::next_version`] of this
    /// step.
    pub version: Option<Version>,
    /// The end of the client's wait.
    pub deadline: Monotonic,
}

/// An event for a group.
#[derive(Clone, Debug)]
pub enum Input {
    /// A peer's message has come.
    Message {
        /// The peer, as the link knows it.
        from: VoterId,
        /// The message.
        message: Bytes,
    },
    /// A peer's message has come in an envelope of a life of its process. A group with leases needs the life.
    MessageOf {
        /// The peer, as the link knows it.
        from: VoterId,
        /// The life of its process.
        life: u64,
        /// The message.
        message: Bytes,
    },
    /// All batches up to a number are synced.
    Persisted {
        /// The number of the last one.
        number: u64,
    },
    /// A client wants to write.
    Propose(Proposal),
    /// A client wants to read.
    Read {
        /// Names the request in its answer.
        token: u64,
        /// The end of the client's wait.
        deadline: Monotonic,
    },
    /// The cluster has registered this start of the process: the store may vote, acknowledge and lead.
    Registered,
    /// A request waits for a leader of a group that was opened here just now, and this voter is the first of its list
    /// that can be reached: it stands for election without a delay.
    Wanted,
    /// The voters that nodes of the group have now, as the cluster has registered them. Those of other nodes stay.
    Listed {
        /// The voters, at most one of a node.
        voters: Vec<VoterId>,
    },
    /// A peer's process can be reached, or cannot any more.
    Reachable {
        /// The peer.
        voter: VoterId,
        /// Whether it can.
        is_up: bool,
    },
    /// A peer's process has started anew: it leads nothing that it led before.
    Restarted {
        /// The peer.
        voter: VoterId,
    },
    /// A leader's catch-up of a voter has begun; the receiver has all up to a base, or has dropped it.
    CatchUpBegun {
        /// The receiver.
        voter: VoterId,
        /// An index up to which it has all, or this leader's applied one if it is refilled.
        base: u64,
    },
    /// A leader's catch-up of a voter broke; it begins anew when the voter is heard.
    CatchUpBroken {
        /// The receiver.
        voter: VoterId,
    },
    /// A voter has all parts of a leader's catch-up.
    CaughtUp {
        /// The receiver.
        voter: VoterId,
        /// The last entry that was applied when the first part was folded.
        index: u64,
        /// Its term.
        term: u64,
    },
    /// A catch-up begins here, before its first part is written; earlier ones count no more.
    Receiving {
        /// The store drops the group's keys, so this voter serves nothing until it has all parts.
        is_incomplete: bool,
    },
    /// The store here has all parts of a catch-up, synced.
    Received {
        /// The last entry of the snapshot.
        index: u64,
        /// Its term.
        term: u64,
    },
    /// The store cannot read keys that are applied: they are damaged, and other voters may have them.
    Unreadable,
    /// The process stops: a leader asks another voter to lead, and this voter does not stand for election any more.
    Leave,
    /// A leader is to ask a voter to lead, if that has all and nothing is under way.
    HandOver {
        /// The voter that is to lead.
        voter: VoterId,
    },
    /// A leader is to reap tombstones, as far as [`super::Group::may_reap_through`] said at the last one and says
    /// now. Come some minutes after the last one.
    Reap {
        /// The silence after which a voter does not hold reaping up any more: [`super::REAP_SILENCE`].
        silence: Duration,
    },
    /// Time has passed; due at [`super::Group::next_timer`].
    Tick,
}
