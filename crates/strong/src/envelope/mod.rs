//! Envelopes: messages of many groups from one shard to another, as one body of a frame (`docs/formats/strong.md`).
//!
//! 1. [`Outgoing`] collects the messages of a turn by receiver and lane.
//! 2. An [`Envelope`] is the messages of one lane, grouped by founding; messages of a group keep their order.
//! 3. The receiver drops an envelope of another life than the sender's or its own.
//!
//! Invariants: no input makes [`Envelope::read`] panic, or take memory that the bytes do not back.

mod outgoing;

use bytes::{BufMut, Bytes, BytesMut};
use protocol::peer::{Malformed, Reader, put_bytes, put_varint};

pub use self::outgoing::{NOTE_HELD_MAX, Outgoing};
use crate::endpoint::Endpoint;
use crate::group::kind;

/// The version of the encoding that is written, and the only one read.
pub const ENVELOPE_VERSION: u8 = 1;

/// Bytes of messages in one envelope: little enough that a vote does not wait long behind it. One message is always
/// taken, however large.
pub const ENVELOPE_BYTES_MAX: usize = 1 << 20;

/// Messages in one envelope: as many as a receiver handles in a few milliseconds.
pub const ENVELOPE_MESSAGES_MAX: usize = 4_096;

/// Room for the fields in front of the messages of one founding.
const HEAD_BYTES: usize = 40;

/// Bytes in front of a message, at most: a prefix and a length.
const MESSAGE_HEAD_BYTES_MAX: usize = 8;

/// A group, as its voters name it to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupId {
    /// Its number of voters.
    pub n_val: u8,
    /// Number of the founding; a message of another one is dropped.
    pub founding: u64,
    /// Its prefix.
    pub prefix: u16,
}

/// The urgency of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Votes, heartbeats and their answers: small, and late ones cost elections.
    Liveness,
    /// Appends, their answers, and snapshots.
    Requests,
}

impl Lane {
    /// The lane of a message of a group.
    pub fn of(message: &[u8]) -> Lane {
        match kind::of(message) {
            Some(kind::APPEND | kind::APPEND_REPLY | kind::SNAPSHOT) => Lane::Requests,
            _ => Lane::Liveness,
        }
    }
}

/// Messages from one shard to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The sender.
    pub from: Endpoint,
    /// The receiver.
    pub to: Endpoint,
    /// The lane of all of them.
    pub lane: Lane,
    /// Messages, those with one founding in a row.
    pub messages: Vec<(GroupId, Bytes)>,
}

impl Envelope {
    /// Its bytes.
    pub fn encode(&self) -> Bytes {
        let bytes = self.messages.iter().map(|(_, message)| MESSAGE_HEAD_BYTES_MAX + message.len());
        let mut out = BytesMut::with_capacity(HEAD_BYTES + bytes.sum::<usize>());
        out.put_u8(ENVELOPE_VERSION);
        out.put_u8(match self.lane {
            Lane::Liveness => 0,
            Lane::Requests => 1,
        });
        for Endpoint { life, shard } in [self.from, self.to] {
            out.put_u64_le(life);
            out.put_u16_le(shard);
        }
        let founding = |(group, _): &(GroupId, Bytes)| (group.n_val, group.founding);
        for section in self.messages.chunk_by(|one, other| founding(one) == founding(other)) {
            let (n_val, number) = founding(&section[0]);
            out.put_u8(n_val);
            out.put_u64_le(number);
            put_varint(&mut out, section.len() as u64);
            for (group, message) in section {
                out.put_u16_le(group.prefix);
                put_bytes(&mut out, message);
            }
        }
        out.freeze()
    }

    /// The envelope in bytes.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read(bytes: Bytes) -> Result<Envelope, Malformed> {
        let mut fields = Reader::new(bytes);
        let fields = &mut fields;
        if fields.u8()? != ENVELOPE_VERSION {
            return Err(Malformed("an unknown version of an envelope"));
        }
        let lane = match fields.u8()? {
            0 => Lane::Liveness,
            1 => Lane::Requests,
            _ => return Err(Malformed("an unknown lane")),
        };
        let from = Endpoint { life: fields.u64()?, shard: fields.u16()? };
        let to = Endpoint { life: fields.u64()?, shard: fields.u16()? };
        let mut messages = Vec::new();
        while fields.end().is_err() {
            read_section(fields, &mut messages)?;
        }
        Ok(Envelope { from, to, lane, messages })
    }
}

/// Reads the messages of one founding.
fn read_section(fields: &mut Reader, messages: &mut Vec<(GroupId, Bytes)>) -> Result<(), Malformed> {
    let (n_val, founding, count) = (fields.u8()?, fields.u64()?, fields.count()?);
    if count == 0 || count > ENVELOPE_MESSAGES_MAX - messages.len() {
        return Err(Malformed("no messages in an envelope, or too many"));
    }
    for _ in 0..count {
        let prefix = fields.u16()?;
        messages.push((GroupId { n_val, founding, prefix }, fields.bytes()?));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
