//! What the ledger keeps of a key: its newest version's numbers, its head, and where the value lies.
//!
//! A head is opaque to the engine. Keys are opaque bytes in bytewise order. An entry is the same bytes in the
//! memtable, in a table and in a segment's block of heads:
//!
//! ```text
//! kind u8 | jsn varint | offset varint | record_len varint | head_len varint | head | inline value
//! ```
//!
//! The kind's top bit says that the version expires; then `expires_ms varint` stands before the head.
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

/// Version and record of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WrittenAt {
    /// When it became visible.
    pub seq: Seq,
    /// Its record.
    pub jsn: Jsn,
}

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
    /// When the version ends, in milliseconds since 1970-01-01 UTC: from then on it is as if it had been deleted. A
    /// deletion has none.
    pub expires_ms: Option<u64>,
}

/// Whether an end, in milliseconds since 1970, has come by `now_ms`.
pub(crate) fn is_over(expires_ms: u64, now_ms: u64) -> bool {
    expires_ms <= now_ms && !base::planted!(EndIgnored)
}

const KIND_JOURNAL: u8 = 1;
const KIND_INLINE: u8 = 2;
const KIND_DELETED: u8 = 3;

/// Beside the kind: the version expires.
const KIND_EXPIRES: u8 = 0x80;

/// The longest prefix that [`Entry::encode_prefix`] writes: the kind and five varints.
pub const ENTRY_PREFIX_BYTES_MAX: usize = 1 + 10 + 5 + 5 + 5 + 10;

impl<'a> Entry<'a> {
    /// Appends what stands before the head. The entry is this, then the head, then the inline value.
    pub fn encode_prefix(&self, out: &mut Vec<u8>) {
        let (kind, offset, len) = match self.location {
            Location::Journal { offset, len } => (KIND_JOURNAL, offset, len),
            Location::Inline => (KIND_INLINE, 0, 0),
            Location::Deleted => (KIND_DELETED, 0, 0),
        };
        debug_assert!(kind == KIND_INLINE || self.inline.is_empty());
        debug_assert!(kind != KIND_DELETED || self.expires_ms.is_none());
        out.push(kind | if self.expires_ms.is_some() { KIND_EXPIRES } else { 0 });
        put_varint(out, self.jsn.0);
        put_varint(out, u64::from(offset));
        put_varint(out, u64::from(len));
        put_varint(out, self.head.len() as u64);
        if let Some(expires_ms) = self.expires_ms {
            put_varint(out, expires_ms);
        }
    }

    /// Whether the encoded entry says that its version expires, before it is decoded.
    pub fn expires(bytes: &[u8]) -> bool {
        bytes.first().is_some_and(|kind| kind & KIND_EXPIRES != 0)
    }

    /// The deletion that stands for this version once it has ended.
    pub fn ended(&self) -> Entry<'static> {
        Entry { jsn: self.jsn, location: Location::Deleted, head: b"", inline: b"", expires_ms: None }
    }

    /// Whether there is nothing to be read of the key at `now_ms`, in milliseconds since 1970: it was deleted, or
    /// the version has ended.
    pub fn is_gone(&self, now_ms: u64) -> bool {
        self.location == Location::Deleted || self.has_ended(now_ms)
    }

    /// Whether the version has an end, and it has come.
    pub fn has_ended(&self, now_ms: u64) -> bool {
        self.expires_ms.is_some_and(|expires_ms| is_over(expires_ms, now_ms))
    }

    /// Appends the whole entry.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_prefix(out);
        out.extend_from_slice(self.head);
        out.extend_from_slice(self.inline);
    }

    /// Reads an entry. Strict: every byte must be accounted for.
    // Where it is wanted for a few of its parts, the others cost nothing.
    #[inline(always)]
    pub fn decode(bytes: &'a [u8]) -> Result<Entry<'a>, Error> {
        match decode_short(bytes) {
            Some(entry) => Ok(entry),
            None => decode(bytes).ok_or(Error::Malformed("ledger entry")),
        }
    }

    /// Where the inline value stands in the entry's bytes; empty when it is not inline.
    pub fn inline_range(&self, entry_len: usize) -> Range<usize> {
        entry_len - self.inline.len()..entry_len
    }
}

/// An entry of what is inline, has no end, and a short head, if it is one, as those of an index are: it has no place in
/// the journal.
#[inline(always)]
fn decode_short(bytes: &[u8]) -> Option<Entry<'_>> {
    let (&KIND_INLINE, mut rest) = bytes.split_first()? else { return None };
    let jsn = Jsn(get_varint(&mut rest)?);
    let [0, 0, head_len @ 0..0x80, rest @ ..] = rest else { return None };
    let (head, inline) = rest.split_at_checked(usize::from(*head_len))?;
    Some(Entry { jsn, location: Location::Inline, head, inline, expires_ms: None })
}

fn decode(bytes: &[u8]) -> Option<Entry<'_>> {
    let (&kind, mut rest) = bytes.split_first()?;
    let (kind, expires) = (kind & !KIND_EXPIRES, kind & KIND_EXPIRES != 0);
    let jsn = Jsn(get_varint(&mut rest)?);
    let offset = u32::try_from(get_varint(&mut rest)?).ok()?;
    let len = u32::try_from(get_varint(&mut rest)?).ok()?;
    let head_len = usize::try_from(get_varint(&mut rest)?).ok()?;
    let expires_ms = if expires { Some(get_varint(&mut rest)?) } else { None };
    if head_len > rest.len() {
        return None;
    }
    let (head, inline) = rest.split_at(head_len);
    let location = match kind {
        KIND_JOURNAL if inline.is_empty() => Location::Journal { offset, len },
        KIND_INLINE if offset == 0 && len == 0 => Location::Inline,
        KIND_DELETED if offset == 0 && len == 0 && rest.is_empty() && !expires => Location::Deleted,
        _ => return None,
    };
    Some(Entry { jsn, location, head, inline, expires_ms })
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
#[inline]
pub fn get_varint(bytes: &mut &[u8]) -> Option<u64> {
    const MORE: u8 = 0x80;
    let seven = |byte: u8, place: u32| u64::from(byte & !MORE) << (7 * place);
    // Most are lengths, or numbers of one field, most of which have the length of the largest: so each place where a
    // number is read has a way that a processor foresees.
    let (number, len) = match **bytes {
        [a, ..] if a < MORE => (u64::from(a), 1),
        [a, b, ..] if b < MORE => (seven(a, 0) | seven(b, 1), 2),
        [a, b, c, ..] if c < MORE => (seven(a, 0) | seven(b, 1) | seven(c, 2), 3),
        [a, b, c, d, ..] if d < MORE => (seven(a, 0) | seven(b, 1) | seven(c, 2) | seven(d, 3), 4),
        _ => long_varint(bytes),
    };
    *bytes = bytes.get(len..).filter(|_| len > 0)?;
    Some(number)
}

/// One of more bytes, and its length, which is 0 if it is none: mostly all of them are looked at together.
#[inline(never)]
fn long_varint(bytes: &[u8]) -> (u64, usize) {
    const LAST: u64 = 0x8080_8080_8080_8080;
    let Some(word) = bytes.first_chunk().map(|word| u64::from_le_bytes(*word)) else {
        return varint_bytewise(bytes);
    };
    // The lowest byte without its top bit is the last one.
    let last = !word & LAST;
    if last == 0 {
        return varint_bytewise(bytes);
    }
    let bits = last.trailing_zeros() + 1;
    let mut number = word & (u64::MAX >> (64 - bits)) & !LAST;
    // Seven bits of each byte move together: pairs of bytes, then of those, then of those.
    number = number & 0x007F_007F_007F_007F | (number & 0x7F00_7F00_7F00_7F00) >> 1;
    number = number & 0x0000_3FFF_0000_3FFF | (number & 0x3FFF_0000_3FFF_0000) >> 2;
    number = number & 0x0000_0000_0FFF_FFFF | (number & 0x0FFF_FFFF_0000_0000) >> 4;
    (number, bits as usize / 8)
}

#[cold]
fn varint_bytewise(bytes: &[u8]) -> (u64, usize) {
    let mut number = 0u64;
    for (index, &byte) in bytes.iter().enumerate().take(10) {
        if index == 9 && byte > 1 {
            break;
        }
        number |= u64::from(byte & 0x7F) << (7 * index);
        if byte < 0x80 {
            return (number, index + 1);
        }
    }
    (0, 0)
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
            expires_ms: None,
        };
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        assert_eq!(bytes, [1, 0xAC, 2, 64, 0xCC, 8, 4, b'h', b'e', b'a', b'd']);
        assert_eq!(Entry::decode(&bytes).unwrap(), entry);
        let entry = Entry { expires_ms: Some(1_700_000_000_000), ..entry };
        bytes.clear();
        entry.encode(&mut bytes);
        let expected = [&[0x81, 0xAC, 2, 64, 0xCC, 8, 4, 0x80, 0xD0, 0x95, 0xFF, 0xBC, 0x31][..], b"head"];
        assert_eq!(bytes, expected.concat());
        assert_eq!(Entry::decode(&bytes).unwrap(), entry);
        let ends = |now_ms| (entry.has_ended(now_ms), entry.is_gone(now_ms), entry.ended().is_gone(now_ms));
        assert_eq!(ends(1_699_999_999_999), (false, false, true));
        assert_eq!(ends(1_700_000_000_000), (true, true, true));
    }

    #[test]
    fn varints_of_every_length_are_read_alike() {
        for bits in 0..=64 {
            for number in
                [u64::MAX.checked_shr(64 - bits).unwrap_or(0), 0xA5A5_5A5A_C3C3_3C3C >> (64 - bits.max(1))]
            {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, number);
                let len = bytes.len();
                // At the end of what there is, and in front of more.
                for padding in [0, 1, 9] {
                    bytes.resize(len + padding, 0xFF);
                    let mut rest = &bytes[..];
                    assert_eq!(get_varint(&mut rest), Some(number));
                    assert_eq!(rest.len(), padding);
                    assert_eq!(varint_bytewise(&bytes), (number, len));
                }
                for cut in 0..len {
                    assert_eq!(get_varint(&mut &bytes[..cut]), None);
                }
            }
        }
        assert_eq!(get_varint(&mut &[0xFF; 16][..]), None);
        let too_large = [[0xFF; 9].as_slice(), &[2, 0]].concat();
        assert_eq!(get_varint(&mut &too_large[..]), None);
    }

    #[test]
    fn every_kind_comes_back() {
        for location in [Location::Inline, Location::Deleted] {
            let inline: &[u8] = if location == Location::Inline { b"value" } else { b"" };
            let head: &[u8] = if location == Location::Inline { b"head" } else { b"" };
            let entry = Entry { jsn: Jsn(u64::MAX), location, head, inline, expires_ms: None };
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
            &[0x83, 0, 0, 0, 0, 1],
            &[0x82, 0, 0, 0, 0],
        ] {
            assert_eq!(Entry::decode(bytes), Err(Error::Malformed("ledger entry")));
        }
    }
}
