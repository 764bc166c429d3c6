//! Who is not spoken with, and why.

use base::Monotonic;
use bytes::{BufMut, BytesMut};
use protocol::peer::{Malformed, Reader};
use ring::NodeId;

use super::entry::Epoch;
use super::message::{Envelope, Message};
use super::{Log, Output};
use crate::ClusterId;
use crate::planted::{Planted, planted};

/// Why a message is not listened to. The text is what both sides are told; "ours" is the refuser's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another version of the format.
    #[error("format {theirs} of the metadata log is offered, {ours} is spoken here")]
    Version {
        /// The one spoken by who refuses.
        ours: u8,
        /// The one offered.
        theirs: u8,
    },
    /// A node of another cluster.
    #[error("another cluster: {theirs} there, {ours} here")]
    Cluster {
        /// The refuser's.
        ours: ClusterId,
        /// The one refused.
        theirs: ClusterId,
    },
    /// Two recoveries began two histories with one number. One of them must be recovered again; its history then wins.
    #[error("another history of this cluster: epoch {} began twice ({:016x} there, {:016x} here)", ours.number, theirs.nonce, ours.nonce)]
    Fork {
        /// The refuser's.
        ours: Epoch,
        /// The one refused.
        theirs: Epoch,
    },
    /// The data folder is older than the cluster knows it to be.
    #[error("an older copy of a data folder: it had been started {starts} times")]
    Restored {
        /// How often it was started.
        starts: u32,
        /// The last entry that the refuser knows to be committed.
        commit: u64,
    },
    /// No member, as of an entry.
    #[error("node {node} is not a member (as of entry {commit})")]
    NotMember {
        /// Who is not.
        node: NodeId,
        /// The last entry that the refuser knows to be committed.
        commit: u64,
    },
}

impl Refusal {
    pub(super) fn put(&self, out: &mut BytesMut) {
        let (code, first, second) = match *self {
            Refusal::Version { ours, theirs } => (1, u64::from(ours), u64::from(theirs)),
            Refusal::Cluster { ours, theirs } => (2, ours.0, theirs.0),
            Refusal::Fork { ours, theirs } => {
                out.put_u8(3);
                ours.put(out);
                return theirs.put(out);
            }
            Refusal::Restored { starts, commit } => (4, u64::from(starts), commit),
            Refusal::NotMember { node, commit } => (5, u64::from(node.0), commit),
        };
        out.put_u8(code);
        out.put_u64_le(first);
        out.put_u64_le(second);
    }

    pub(super) fn read(fields: &mut Reader) -> Result<Refusal, Malformed> {
        const RANGE: Malformed = Malformed("a number is out of range");
        let code = fields.u8()?;
        if code == 3 {
            return Ok(Refusal::Fork { ours: Epoch::read(fields)?, theirs: Epoch::read(fields)? });
        }
        let (first, second) = (fields.u64()?, fields.u64()?);
        let version = |number| u8::try_from(number).map_err(|_| RANGE);
        Ok(match code {
            1 => Refusal::Version { ours: version(first)?, theirs: version(second)? },
            2 => Refusal::Cluster { ours: ClusterId(first), theirs: ClusterId(second) },
            4 => Refusal::Restored { starts: u32::try_from(first).map_err(|_| RANGE)?, commit: second },
            5 => {
                Refusal::NotMember { node: NodeId(u16::try_from(first).map_err(|_| RANGE)?), commit: second }
            }
            _ => return Err(Malformed("an unknown refusal")),
        })
    }
}

impl Log {
    /// Whether to listen to what `from` says.
    pub(super) fn admit(&mut self, from: &Envelope, message: &Message) -> Result<(), Refusal> {
        if from.cluster != self.identity.cluster {
            return Err(Refusal::Cluster { ours: self.identity.cluster, theirs: from.cluster });
        }
        if from.epoch.number == self.epoch.number && from.epoch.nonce != self.epoch.nonce {
            return Err(Refusal::Fork { ours: self.epoch, theirs: from.epoch });
        }
        if from.epoch != self.epoch || self.state.is_none() {
            return Ok(());
        }
        let (node, commit) = (from.from, self.commit);
        let Some(record) = self.state.as_ref().and_then(|state| state.members().get(&node)) else {
            return Err(Refusal::NotMember { node, commit });
        };
        // Whoever only asks, or passes on what is committed, cannot do harm.
        let harmless = match message {
            Message::Have { .. } | Message::Pull { .. } | Message::News { .. } => true,
            Message::Propose { .. } | Message::Proposed { .. } => true,
            Message::Snapshot(_) | Message::Forgot => true,
            Message::Consensus(_) | Message::Refused(_) => false,
        };
        let is_copy = from.starts == record.starts && record.starts > 0 && from.start != record.start;
        if (from.starts < record.starts || is_copy) && !harmless && !planted(Planted::RestoredVotes) {
            let starts = record.starts;
            self.count_out(node);
            return Err(Refusal::Restored { starts, commit });
        }
        Ok(())
    }

    pub(super) fn refuse(&mut self, from: Envelope, refusal: Refusal) {
        let answer = Message::Refused(refusal).encode(&self.envelope());
        self.told.push(Output::Reply(answer));
        self.told.push(Output::Refused { from, refusal });
    }

    /// Whether all agree that this process is the node's start of this count. Then a refusal of an older one is about what a process
    /// before it had said, which came late: the answer goes to the node, not to a process.
    fn is_last_start(&self, starts: u32) -> bool {
        let own = self.state.as_ref().and_then(|state| state.members().get(&self.identity.node));
        starts == self.identity.starts
            && own.is_some_and(|it| (it.starts, it.start) == (starts, self.identity.start))
    }

    pub(super) fn on_refused(&mut self, by: Envelope, refusal: Refusal, now: Monotonic) {
        if let Refusal::Restored { starts, commit } = refusal
            && by.cluster == self.identity.cluster
            && starts >= self.identity.starts
            && !self.is_last_start(starts)
            && let Some(starts) = starts.checked_add(1)
        {
            // From now on this is a start of its own, without a part in what it may have forgotten.
            self.identity.starts = starts;
            self.restored = Some(self.restored.unwrap_or(0).max(commit));
            self.restart_consensus(now);
            self.told.push(Output::Starts(starts));
        }
        self.told.push(Output::Told { by, refusal });
    }
}
