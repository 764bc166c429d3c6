//! Contents of the log: epochs, entries, snapshots, and their encodings.

use std::collections::BTreeSet;

use bytes::{BufMut, Bytes, BytesMut};
use protocol::peer::{Malformed, Reader, put_bytes, put_varint};
use ring::NodeId;

use crate::state::Command;

/// Most voters at once: five, and one more while one takes another's place.
pub(super) const VOTERS_MAX: usize = 6;

/// Terms and indexes are below this, so adding to one never overflows.
pub(super) const NUMBER_MAX: u64 = 1 << 56;

/// A term or an index.
pub(super) fn number(fields: &mut Reader) -> Result<u64, Malformed> {
    match fields.u64()? {
        number if number < NUMBER_MAX => Ok(number),
        _ => Err(Malformed("a term or an index is out of range")),
    }
}

/// Which of the cluster's histories. A later one begins where the survivors of a lost majority were told to go on; two
/// of one number differ in their nonce, and never speak with each other again.
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

/// A change of who votes, one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoterChange {
    /// It gets the entries, and does not vote yet.
    Learn(NodeId),
    /// It votes.
    Vote(NodeId),
    /// It does neither any more.
    Remove(NodeId),
}

/// Who votes, and who is to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conf {
    /// Who votes.
    pub voters: BTreeSet<NodeId>,
    /// Who gets the entries so that it can vote: one at most.
    pub learners: BTreeSet<NodeId>,
}

/// What an entry holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Nothing: a new leader's first.
    Nothing,
    /// Another votes, or one votes no more, once this is committed.
    Voters(VoterChange),
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
    pub conf: Conf,
    /// The bytes of the state; none before there is one.
    pub state: Bytes,
}

impl Snapshot {
    /// Before any entry.
    pub(super) fn none() -> Snapshot {
        Snapshot { index: 0, term: 0, conf: Conf::default(), state: Bytes::new() }
    }

    pub(super) fn put(&self, out: &mut BytesMut) {
        out.put_u64_le(self.index);
        out.put_u64_le(self.term);
        self.conf.put(out);
        put_bytes(out, &self.state);
    }

    pub(super) fn read(fields: &mut Reader) -> Result<Snapshot, Malformed> {
        Ok(Snapshot {
            index: number(fields)?,
            term: number(fields)?,
            conf: Conf::read(fields)?,
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
            Payload::Voters(change) => {
                let (kind, node) = match change {
                    VoterChange::Learn(node) => (0, node),
                    VoterChange::Vote(node) => (1, node),
                    VoterChange::Remove(node) => (2, node),
                };
                out.put_slice(&[1, kind]);
                out.put_u16_le(node.0);
            }
            Payload::Command(command) => {
                out.put_u8(2);
                command.encode(out);
            }
        }
    }

    pub(super) fn read(fields: &mut Reader) -> Result<Entry, Malformed> {
        let (index, term) = (number(fields)?, number(fields)?);
        let payload = match fields.u8()? {
            0 => Payload::Nothing,
            1 => {
                let (kind, node) = (fields.u8()?, NodeId(fields.u16()?));
                Payload::Voters(match kind {
                    0 => VoterChange::Learn(node),
                    1 => VoterChange::Vote(node),
                    2 => VoterChange::Remove(node),
                    _ => return Err(Malformed("an unknown change of the voters")),
                })
            }
            2 => Payload::Command(Command::read(fields)?),
            _ => return Err(Malformed("an unknown entry")),
        };
        Ok(Entry { index, term, payload })
    }
}

impl Conf {
    fn put(&self, out: &mut BytesMut) {
        for nodes in [&self.voters, &self.learners] {
            put_varint(out, nodes.len() as u64);
            nodes.iter().for_each(|node| out.put_u16_le(node.0));
        }
    }

    fn read(fields: &mut Reader) -> Result<Conf, Malformed> {
        let conf = Conf { voters: nodes(fields)?, learners: nodes(fields)? };
        if conf.voters.is_disjoint(&conf.learners) { Ok(conf) } else { Err(Malformed("votes twice")) }
    }
}

fn nodes(fields: &mut Reader) -> Result<BTreeSet<NodeId>, Malformed> {
    let count = fields.count()?;
    if count > VOTERS_MAX {
        return Err(Malformed("too many voters"));
    }
    (0..count).map(|_| fields.u16().map(NodeId)).collect()
}

pub(super) fn put_entries(out: &mut BytesMut, entries: &[Entry]) {
    put_varint(out, entries.len() as u64);
    entries.iter().for_each(|entry| entry.put(out));
}

/// Entries, each the successor of the one before.
pub(super) fn entries(fields: &mut Reader) -> Result<Vec<Entry>, Malformed> {
    let count = fields.count()?;
    let mut entries: Vec<Entry> = Vec::new();
    for _ in 0..count {
        let entry = Entry::read(fields)?;
        if entries.last().is_some_and(|last| last.index + 1 != entry.index || last.term > entry.term) {
            return Err(Malformed("entries out of order"));
        }
        entries.push(entry);
    }
    Ok(entries)
}
