//! Outputs of a group.

use bytes::Bytes;
use protocol::peer::Malformed;

use super::{Entry, GroupState, Version, VoterId};

/// A snapshot of which the store has all parts: all up to its index is applied, and no entry before is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Install {
    /// The last entry of the snapshot.
    pub index: u64,
    /// Its term.
    pub term: u64,
}

/// Records to be written together: all of a batch, or after a crash a part of its last entries is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Its number, for [`super::Input::Persisted`].
    pub number: u64,
    /// The state, to be written before the entries.
    pub state: Option<GroupState>,
    /// An index up to which entries are known to be committed; below all entries of the batch, because others may stand
    /// at their places after a crash.
    pub commit: u64,
    /// A snapshot to be noted as applied, in place of all entries; there is a state with it.
    pub install: Option<Install>,
    /// Entries. One of another term than the one at its index replaces that one and all above.
    pub entries: Vec<Entry>,
}

/// Something that a group wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Write to the journal.
    Persist(Batch),
    /// Send to a peer, as best as one can.
    Send {
        /// The peer.
        to: VoterId,
        /// The message.
        message: Bytes,
    },
    /// Apply entries to the tables, before the outputs that follow. A version never replaces an equal or a newer one.
    Apply(Vec<Entry>),
    /// The end of a request.
    Answer {
        /// The request.
        token: u64,
        /// Its answer.
        answer: Answer,
    },
    /// A voter needs entries that are not here any more, or lacks the group's keys. A sender that there is for it is
    /// dropped: it begins anew.
    CatchUpWanted {
        /// The voter.
        voter: VoterId,
    },
    /// A catch-up that was wanted is over: it has succeeded, or has to be given up.
    CatchUpEnded {
        /// The voter.
        voter: VoterId,
    },
    /// This store lost entries that it had acknowledged: it takes no part any more, and needs a new birth.
    Forgot,
    /// A peer sent bytes that are no message.
    Malformed {
        /// The peer.
        from: VoterId,
        /// The fault in them.
        error: Malformed,
    },
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The write is applied.
    Written(Version),
    /// The tables, as they are now, may be read.
    Readable,
    /// The condition did not hold.
    Failed,
    /// The request was not applied, and never will be.
    Unavailable(Cause),
    /// The write may be applied at any time, or never.
    Timeout,
}

/// The reason why a request was not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// Another voter leads, or none.
    #[error("this node does not lead the group")]
    NotLeader {
        /// The leader, as far as it is known.
        leader: Option<VoterId>,
    },
    /// The leader has not applied the first entry of its term yet.
    #[error("the leader of the group is not ready yet")]
    NotReady,
    /// Too much of the group is not applied yet.
    #[error("too many requests of the group are under way")]
    Overload,
    /// The request's time was over before it was proposed or confirmed.
    #[error("no majority of the group has confirmed the request in time")]
    Expired,
    /// The leader lost its leadership before it could confirm the request, or another leader replaced the write.
    #[error("the leader of the group has changed")]
    LeaderChanged,
}
