//! Entries of a group's log: writes, and the first entry of each leader, which writes nothing.

use bytes::{BufMut, Bytes, BytesMut};
use protocol::peer::{Malformed, Reader, put_bytes};
use raft::eraftpb;

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
    /// Head and value as the leader made them, opaque here; none deletes.
    pub object: Option<Bytes>,
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place.
    pub index: u64,
    /// The term of the leader that proposed it.
    pub term: u64,
    /// Its write; none in a leader's first entry.
    pub write: Option<Write>,
}

/// Reads a term or an index.
pub(super) fn number(fields: &mut Reader) -> Result<u64, Malformed> {
    match fields.varint()? {
        number if number < NUMBER_MAX => Ok(number),
        _ => Err(Malformed("a term or an index is out of range")),
    }
}

impl Write {
    /// Its bytes as the data of an entry; never empty.
    pub(super) fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.size());
        put_bytes(&mut out, &self.key);
        match &self.object {
            None => out.put_u8(0),
            Some(object) => {
                out.put_u8(1);
                out.put_slice(object);
            }
        }
        out.freeze()
    }

    /// Bytes that it takes, about.
    pub(super) fn size(&self) -> usize {
        self.key.len() + self.object.as_ref().map_or(0, Bytes::len) + 6
    }

    pub(super) fn read(data: Bytes) -> Result<Write, Malformed> {
        let mut fields = Reader::new(data);
        let key = fields.bytes()?;
        let object = match fields.u8()? {
            0 => {
                fields.end()?;
                None
            }
            1 => Some(fields.rest()),
            _ => return Err(Malformed("an unknown kind of write")),
        };
        Ok(Write { key, object })
    }
}

impl Entry {
    /// Bytes that it takes, about.
    pub fn size(&self) -> usize {
        16 + self.write.as_ref().map_or(0, Write::size)
    }

    /// As the library has it.
    pub(super) fn to_library(&self) -> eraftpb::Entry {
        let mut entry = eraftpb::Entry::default();
        (entry.index, entry.term) = (self.index, self.term);
        entry.data = self.write.as_ref().map(Write::encode).unwrap_or_default();
        entry
    }

    /// Of an entry that the library made of one of ours.
    ///
    /// # Panics
    /// If it is none of ours.
    pub(super) fn of_library(entry: &eraftpb::Entry) -> Entry {
        let write = (!entry.data.is_empty())
            .then(|| Write::read(entry.data.clone()).expect("the library has no entries but ours"));
        Entry { index: entry.index, term: entry.term, write }
    }
}
