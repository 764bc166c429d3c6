//! What the ledger keeps of a key: its newest version's numbers, its head, and where the value lies.
//!
//! A head is opaque to the engine. Keys are opaque bytes in bytewise order. An entry is the same bytes in the
//! memtable, in a table and in a segment's block of heads:
//!
//! ```text
//! kind u8 | jsn varint | offset varint | record_len varint | head_len varint | head | inline value
//! ```
//!
//! `offset` and `record_len` say where the record stood when the entry was made: a hint that saves the
//! segment's index. The record itself says its `jsn`, so a hint that compaction has made stale is noticed.

use crate::error::Error;
use std::ops::Range;

/// Where a record lies: its number in the journal. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Jsn(pub u64);

/// When a version became visible: the ledger orders and snapshots by it. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seq(pub u64);

/// The longest key the engine takes: a bucket type, a bucket and a key of 64 KiB each, escaped at worst twice.
pub const KEY_BYTES_MAX: usize = 400 << 10;

/// The longest head: 1 MiB holds the metadata of thousands of siblings, and still fits a memtable and a block.
pub const HEAD_BYTES_MAX: usize = 1 << 20;

/// The longest value: one record must fit a segment's 32-bit offsets with room to spare. Protocols set lower
/// limits of their own.
pub const VALUE_BYTES_MAX: usize = 512 << 20;

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// In the journal; `offset` and `len` locate the whole record in the segment that holds `Entry::jsn`.
    Journal {
        /// The record's first byte in its segment.
        offset: u32,
        /// The record's length in bytes, without padding.
        len: u32,
    },
    /// In the entry itself.
    Inline,
    /// Nowhere: the key was deleted.
    Deleted,
}

/// A version of a key, as the ledger has it, borrowed from where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The record that made it.
    pub jsn: Jsn,
    /// Where the value is.
    pub location: Location,
    /// The head; empty when deleted.
    pub head: &'a [u8],
    /// The value when it is inline, otherwise empty.
    pub inline: &'a [u8],
}

const KIND_JOURNAL: u8 = 1;
const KIND_INLINE: u8 = 2;
const KIND_DELETED: u8 = 3;

/// The longest prefix that [`Entry::encode_prefix`] writes: the kind and four varints.
pub const ENTRY_PREFIX_BYTES_MAX: usize = 1 + 10 + 5 + 5 + 5;

impl<'a> Entry<'a> {
    /// Appends what stands before the head. The entry is this, then the head, then the inline value.
    pub fn encode_prefix(&self, out: &mut Vec<u8>) {
        let (kind, offset, len) = match self.location {
            Location::Journal { offset, len } => (KIND_JOURNAL, offset, len),
            Location::Inline => (KIND_INLINE, 0, 0),
            Location::Deleted => (KIND_DELETED, 0, 0),
        };
        debug_assert!(kind == KIND_INLINE || self.inline.is_empty());
        out.push(kind);
        put_varint(out, self.jsn.0);
        put_varint(out, u64::from(offset));
        put_varint(out, u64::from(len));
        put_varint(out, self.head.len() as u64);
    }

    /// Appends the whole entry.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_prefix(out);
        out.extend_from_slice(self.head);
        out.extend_from_slice(self.inline);
    }

    /// Reads an entry. Strict: every byte must be accounted for.
    pub fn decode(bytes: &'a [u8]) -> Result<Entry<'a>, Error> {
        decode(bytes).ok_or(Error::Malformed("ledger entry"))
    }

    /// Where the inline value stands in the entry's bytes; empty when it is not inline.
    pub fn inline_range(&self, entry_len: usize) -> Range<usize> {
        entry_len - self.inline.len()..entry_len
    }
}

fn decode(bytes: &[u8]) -> Option<Entry<'_>> {
    let (&kind, mut rest) = bytes.split_first()?;
    let jsn = Jsn(get_varint(&mut rest)?);
    let offset = u32::try_from(get_varint(&mut rest)?).ok()?;
    let len = u32::try_from(get_varint(&mut rest)?).ok()?;
    let head_len = usize::try_from(get_varint(&mut rest)?).ok()?;
    if head_len > rest.len() {
        return None;
    }
    let (head, inline) = rest.split_at(head_len);
    let location = match kind {
        KIND_JOURNAL if inline.is_empty() => Location::Journal { offset, len },
        KIND_INLINE if offset == 0 && len == 0 => Location::Inline,
        KIND_DELETED if offset == 0 && len == 0 && rest.is_empty() => Location::Deleted,
        _ => return None,
    };
    Some(Entry { jsn, location, head, inline })
}

/// Appends a LEB128 number.
pub fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7F) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a LEB128 number off the front; `None` if it is cut short or does not fit 64 bits.
pub fn get_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for (index, &byte) in bytes.iter().enumerate().take(10) {
        if index == 9 && byte > 1 {
            return None;
        }
        number |= u64::from(byte & 0x7F) << (7 * index);
        if byte < 0x80 {
            *bytes = &bytes[index + 1..];
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let entry = Entry {
            jsn: Jsn(300),
            location: Location::Journal { offset: 64, len: 1100 },
            head: b"head",
            inline: b"",
        };
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        assert_eq!(bytes, [1, 0xAC, 2, 64, 0xCC, 8, 4, b'h', b'e', b'a', b'd']);
        assert_eq!(Entry::decode(&bytes).unwrap(), entry);
    }

    #[test]
    fn every_kind_comes_back() {
        for location in [Location::Inline, Location::Deleted] {
            let inline: &[u8] = if location == Location::Inline { b"value" } else { b"" };
            let head: &[u8] = if location == Location::Inline { b"head" } else { b"" };
            let entry = Entry { jsn: Jsn(u64::MAX), location, head, inline };
            let mut bytes = Vec::new();
            entry.encode(&mut bytes);
            assert_eq!(Entry::decode(&bytes).unwrap(), entry);
            assert_eq!(&bytes[entry.inline_range(bytes.len())], inline);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for bytes in [
            &b""[..],
            &[0, 0, 0, 0, 0],
            &[1, 0x80],
            &[1, 0, 0, 0, 5, 1],
            &[3, 0, 0, 0, 1, 1],
            &[2, 0, 1, 0, 0],
        ] {
            assert_eq!(Entry::decode(bytes), Err(Error::Malformed("ledger entry")));
        }
    }
}
