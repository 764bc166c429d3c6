//! Refusals of messages: the reasons, as text and as bytes.

use bytes::{BufMut, BytesMut};
use protocol::peer::{Malformed, Reader};
use ring::NodeId;

use super::entry::Epoch;
use crate::ClusterId;

/// Reason to refuse a message. Both sides are told its text; "ours" is the refuser's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another version of the format.
    #[error("format {theirs} of the metadata log is offered, {ours} is spoken here")]
    Version {
        /// The refuser's version.
        ours: u8,
        /// The offered version.
        theirs: u8,
    },
    /// A node of another cluster.
    #[error("another cluster: {theirs} there, {ours} here")]
    Cluster {
        /// The refuser's cluster.
        ours: ClusterId,
        /// The refused sender's cluster.
        theirs: ClusterId,
    },
    /// Two recoveries began two histories with one number. One of them must be recovered again; its history then wins.
    #[error("another history of this cluster: epoch {} began twice ({:016x} there, {:016x} here)", ours.number, theirs.nonce, ours.nonce)]
    Fork {
        /// The refuser's epoch.
        ours: Epoch,
        /// The refused sender's epoch.
        theirs: Epoch,
    },
    /// The data folder is older than the cluster knows it to be.
    #[error("an older copy of a data folder: it had been started {starts} times")]
    Restored {
        /// The number of its starts.
        starts: u32,
        /// The refuser's last committed entry.
        commit: u64,
    },
    /// No member, as of an entry.
    #[error("node {node} is not a member (as of entry {commit})")]
    NotMember {
        /// The refused sender.
        node: NodeId,
        /// The refuser's last committed entry.
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
