//! Entries of a group's log: the first entry of each leader, writes, the reaping of tombstones, and changes of voters.

use bytes::{BufMut, Bytes, BytesMut};
use protocol::peer::{Malformed, Reader, put_bytes, put_varint};
use raft::eraftpb;

use super::configuration::Configuration;

/// Terms and indexes are below this: an index has 48 bits of a version's counter.
pub const NUMBER_MAX: u64 = 1 << 48;

/// The counter of an object's only dot: epoch (16 bits) and index of the entry that wrote it (48 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64);

impl Version {
    /// The version that an entry of an epoch writes.
    pub fn new(epoch: u16, index: u64) -> Version {
        assert!(index < NUMBER_MAX, "an index has 48 bits");
        Version(u64::from(epoch) << 48 | index)
    }

    /// The name of this version in an epoch. Each epoch names those of earlier ones anew: their indexes are in one log.
    pub fn in_epoch(self, epoch: u16) -> Version {
        Version::new(epoch, self.index())
    }

    /// The index of the entry that wrote it.
    pub fn index(self) -> u64 {
        self.0 & (NUMBER_MAX - 1)
    }
}

/// A write of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The key.
    pub key: Bytes,
    /// Head and value as the leader made them, opaque here.
    ///
    /// None deletes: tables keep a tombstone with the entry's version in the key's place, so that catch-up carries the
    /// deletion. An entry of [`Payload::Reap`] removes it.
    pub object: Option<Bytes>,
}

/// The contents of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Nothing: a leader's first entry.
    First,
    /// A write.
    Write(Write),
    /// Tombstones of versions up to an index are removed from tables when this entry is applied.
    Reap {
        /// The index.
        through: u64,
    },
    /// The whole configuration from this entry on. So applying it again changes nothing.
    Configuration(Configuration),
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place.
    pub index: u64,
    /// The term of the leader that proposed it.
    pub term: u64,
    /// Its contents.
    pub payload: Payload,
}

/// Reads a term or an index.
pub(super) fn number(fields: &mut Reader) -> Result<u64, Malformed> {
    match fields.varint()? {
        number if number < NUMBER_MAX => Ok(number),
        _ => Err(Malformed("a term or an index is out of range")),
    }
}

/// Bytes of a number as a varint.
fn varint_len(number: u64) -> usize {
    let bits = (u64::BITS - number.leading_zeros()).max(1);
    bits.div_ceil(7) as usize
}

impl Write {
    /// Bytes that it takes, about.
    pub(super) fn size(&self) -> usize {
        self.key.len() + self.object.as_ref().map_or(0, Bytes::len) + 6
    }
}

impl Payload {
    /// Its bytes as the data of an entry; empty for a leader's first entry alone.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.size());
        self.put(&mut out);
        out.freeze()
    }

    /// Writes its bytes behind their number.
    pub(super) fn put_with_len(&self, out: &mut BytesMut) {
        put_varint(out, self.len() as u64);
        let before = out.len();
        self.put(out);
        debug_assert_eq!(out.len() - before, self.len(), "the length is that of the bytes");
    }

    /// The number of its bytes.
    fn len(&self) -> usize {
        match self {
            Payload::First => 0,
            Payload::Write(Write { key, object: None }) => 1 + key.len(),
            Payload::Write(Write { key, object: Some(object) }) => {
                1 + varint_len(key.len() as u64) + key.len() + object.len()
            }
            Payload::Reap { through } => 1 + varint_len(*through),
            Payload::Configuration(configuration) => 1 + configuration.len(),
        }
    }

    fn put(&self, out: &mut BytesMut) {
        match self {
            Payload::First => {}
            Payload::Write(Write { key, object: None }) => {
                out.put_u8(0);
                out.put_slice(key);
            }
            Payload::Write(Write { key, object: Some(object) }) => {
                out.put_u8(1);
                put_bytes(out, key);
                out.put_slice(object);
            }
            Payload::Reap { through } => {
                out.put_u8(2);
                put_varint(out, *through);
            }
            Payload::Configuration(configuration) => {
                out.put_u8(3);
                configuration.put(out);
            }
        }
    }

    /// The payload in the data of an entry.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read(data: Bytes) -> Result<Payload, Malformed> {
        if data.is_empty() {
            return Ok(Payload::First);
        }
        let mut fields = Reader::new(data);
        let payload = match fields.u8()? {
            0 => Payload::Write(Write { key: fields.rest(), object: None }),
            1 => Payload::Write(Write { key: fields.bytes()?, object: Some(fields.rest()) }),
            2 => Payload::Reap { through: number(&mut fields)? },
            3 => Payload::Configuration(Configuration::read(&mut fields)?),
            _ => return Err(Malformed("an unknown kind of entry")),
        };
        fields.end()?;
        Ok(payload)
    }

    /// The write, if it is one.
    pub fn write(&self) -> Option<&Write> {
        match self {
            Payload::Write(write) => Some(write),
            _ => None,
        }
    }

    /// The index through which it reaps; zero if it reaps nothing.
    pub(super) fn reaps_through(&self) -> u64 {
        match self {
            Payload::Reap { through } => *through,
            _ => 0,
        }
    }

    /// The configuration, if it is one.
    pub fn configuration(&self) -> Option<&Configuration> {
        match self {
            Payload::Configuration(configuration) => Some(configuration),
            _ => None,
        }
    }

    fn size(&self) -> usize {
        match self {
            Payload::First => 0,
            Payload::Write(write) => write.size(),
            Payload::Reap { .. } => 8,
            Payload::Configuration(configuration) => 1 + configuration.len(),
        }
    }
}

impl Entry {
    /// Bytes that it takes, about.
    pub fn size(&self) -> usize {
        16 + self.payload.size()
    }

    /// As the library has it.
    pub(super) fn to_library(&self) -> eraftpb::Entry {
        let mut entry = eraftpb::Entry::default();
        (entry.index, entry.term) = (self.index, self.term);
        entry.data = self.payload.encode();
        entry
    }

    /// Of an entry that the library made of one of ours.
    ///
    /// # Panics
    /// If it is none of ours.
    pub(super) fn of_library(entry: &eraftpb::Entry) -> Entry {
        let payload = Payload::read(entry.data.clone()).expect("the library has no entries but ours");
        Entry { index: entry.index, term: entry.term, payload }
    }
}
