//! What the log is made of: epochs, entries, snapshots, and the bytes of them.

use std::collections::BTreeSet;

use bytes::{BufMut, Bytes, BytesMut};
use protocol::peer::{Malformed, Reader, put_bytes, put_varint};
use ring::NodeId;

use crate::state::Command;

/// Most voters at once: five, and one more while one takes another's place.
pub(super) const VOTERS_MAX: usize = 6;

/// Which of the cluster's histories. A later one begins where the survivors of a lost majority were told to go on; two of one
/// number differ in their nonce, and never speak with each other again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch {
    /// Grows with each recovery. Zero: no history yet.
    pub number: u32,
    /// Drawn at random when the epoch began.
    pub nonce: u64,
}

impl Epoch {
    /// Before any history.
    pub const NONE: Epoch = Epoch { number: 0, nonce: 0 };

    pub(super) fn put(self, out: &mut BytesMut) {
        out.put_u32_le(self.number);
        out.put_u64_le(self.nonce);
    }

    pub(super) fn read(fields: &mut Reader) -> Result<Epoch, Malformed> {
        Ok(Epoch { number: fields.u32()?, nonce: fields.u64()? })
    }
}

/// What an entry holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Nothing: a new leader's first.
    Nothing,
    /// From this entry on, these vote.
    Voters(BTreeSet<NodeId>),
    /// A change of the state.
    Command(Command),
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place, from 1 on without a gap.
    pub index: u64,
    /// The term of the leader that made it.
    pub term: u64,
    /// What it holds.
    pub payload: Payload,
}

/// The state at an entry, in place of all entries up to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The last entry in it.
    pub index: u64,
    /// That entry's term.
    pub term: u64,
    /// Who votes.
    pub voters: BTreeSet<NodeId>,
    /// The bytes of the state; none before there is one.
    pub state: Bytes,
}

impl Snapshot {
    /// Before any entry.
    pub(super) fn none() -> Snapshot {
        Snapshot { index: 0, term: 0, voters: BTreeSet::new(), state: Bytes::new() }
    }

    pub(super) fn put(&self, out: &mut BytesMut) {
        out.put_u64_le(self.index);
        out.put_u64_le(self.term);
        put_voters(out, &self.voters);
        put_bytes(out, &self.state);
    }

    pub(super) fn read(fields: &mut Reader) -> Result<Snapshot, Malformed> {
        Ok(Snapshot {
            index: fields.u64()?,
            term: fields.u64()?,
            voters: voters(fields)?,
            state: fields.bytes()?,
        })
    }
}

impl Entry {
    pub(super) fn put(&self, out: &mut BytesMut) {
        out.put_u64_le(self.index);
        out.put_u64_le(self.term);
        match &self.payload {
            Payload::Nothing => out.put_u8(0),
            Payload::Voters(voters) => {
                out.put_u8(1);
                put_voters(out, voters);
            }
            Payload::Command(command) => {
                out.put_u8(2);
                command.encode(out);
            }
        }
    }

    pub(super) fn read(fields: &mut Reader) -> Result<Entry, Malformed> {
        let (index, term) = (fields.u64()?, fields.u64()?);
        let payload = match fields.u8()? {
            0 => Payload::Nothing,
            1 => Payload::Voters(voters(fields)?),
            2 => Payload::Command(Command::read(fields)?),
            _ => return Err(Malformed("an unknown entry")),
        };
        Ok(Entry { index, term, payload })
    }
}

fn put_voters(out: &mut BytesMut, voters: &BTreeSet<NodeId>) {
    put_varint(out, voters.len() as u64);
    voters.iter().for_each(|voter| out.put_u16_le(voter.0));
}

fn voters(fields: &mut Reader) -> Result<BTreeSet<NodeId>, Malformed> {
    let count = fields.count()?;
    if count > VOTERS_MAX {
        return Err(Malformed("too many voters"));
    }
    (0..count).map(|_| fields.u16().map(NodeId)).collect()
}
