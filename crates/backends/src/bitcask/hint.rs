//! A segment's hint: its keys and where their records are, so that opening reads no values.
//!
//! ```text
//!  0 "ANNULETH"   8 version u16 (1)   10 zero (6)   16 segment u64   24 length of the segment u64
//! 32 entries, each: kind u8 (0 data, 1 delete) | offset u32 | key_len u32 | head_len u32 | value_len u32 | key
//!    checksum of all before, u32
//! ```
//!
//! It is written when the segment is synced, all at once under its name, so one that is there is whole, or damaged
//! later: then the segment is scanned.

use crate::little::{get_u32, get_u64};
use base::checksum::crc32c;
use bytes::Bytes;
use engine::journal::SegmentId;

const MAGIC: [u8; 8] = *b"ANNULETH";
const VERSION: u16 = 1;
const FRONT_BYTES: usize = 32;
const ENTRY_BYTES: usize = 17;
const SUFFIX: &str = ".hint";

/// The file's name.
pub fn file_name(segment: SegmentId) -> String {
    format!("{:016x}{SUFFIX}", segment.0)
}

/// The segment whose hint has this name; `None` for any other file.
pub fn parse_file_name(name: &str) -> Option<SegmentId> {
    let digits = name.strip_suffix(SUFFIX)?;
    let segment = SegmentId(u64::from_str_radix(digits, 16).ok()?);
    (file_name(segment) == name).then_some(segment)
}

/// What a record says of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HintEntry {
    /// Whether the key is deleted.
    pub is_delete: bool,
    /// Where the record begins.
    pub offset: u32,
    /// The lengths of head and value.
    pub lens: (u32, u32),
}

/// A hint that is being made.
pub struct Hint {
    bytes: Vec<u8>,
    count: u64,
}

impl Hint {
    /// For a new segment.
    pub fn new(segment: SegmentId) -> Hint {
        let mut bytes = Vec::with_capacity(FRONT_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 6]);
        bytes.extend_from_slice(&segment.0.to_le_bytes());
        bytes.extend_from_slice(&[0; 8]);
        Hint { bytes, count: 0 }
    }

    /// How many entries it has.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Adds the record that comes next.
    pub fn push(&mut self, key: &[u8], entry: HintEntry) {
        let key_len = u32::try_from(key.len()).expect("keys have a limit far below 4 GiB");
        self.bytes.push(u8::from(entry.is_delete));
        for number in [entry.offset, key_len, entry.lens.0, entry.lens.1] {
            self.bytes.extend_from_slice(&number.to_le_bytes());
        }
        self.bytes.extend_from_slice(key);
        self.count += 1;
    }

    /// The file's bytes, for a segment of this length.
    pub fn finish(mut self, segment_len: u64) -> Bytes {
        self.bytes[24..FRONT_BYTES].copy_from_slice(&segment_len.to_le_bytes());
        let crc = crc32c(&self.bytes);
        self.bytes.extend_from_slice(&crc.to_le_bytes());
        Bytes::from(self.bytes)
    }
}

/// What a hint says: the segment's length, and each key with what its record says.
pub type Parsed<'a> = (u64, Vec<(&'a [u8], HintEntry)>);

/// Reads a hint of a segment. `None` if it is damaged, or another segment's.
pub fn parse(bytes: &[u8], segment: SegmentId) -> Option<Parsed<'_>> {
    let (body, crc) = bytes.split_last_chunk::<4>()?;
    if u32::from_le_bytes(*crc) != crc32c(body) {
        return None;
    }
    let (front, mut rest) = body.split_first_chunk::<FRONT_BYTES>()?;
    if front[..8] != MAGIC || front[8..16] != [1, 0, 0, 0, 0, 0, 0, 0] || get_u64(front, 16) != segment.0 {
        return None;
    }
    let mut entries = Vec::new();
    while let Some((fixed, behind)) = rest.split_first_chunk::<ENTRY_BYTES>() {
        let key_len = get_u32(fixed, 5) as usize;
        let key = behind.get(..key_len)?;
        let entry = HintEntry {
            is_delete: fixed[0] == 1,
            offset: get_u32(fixed, 1),
            lens: (get_u32(fixed, 9), get_u32(fixed, 13)),
        };
        entries.push((key, entry));
        rest = &behind[key_len..];
    }
    rest.is_empty().then_some((get_u64(front, 24), entries))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Also where the checksum is right, as none but a hint's is.
        #[test]
        fn whatever_a_file_has_is_read_or_is_none(mut bytes in prop::collection::vec(any::<u8>(), 0..200), ours: bool) {
            let _ = parse(&bytes, SegmentId(7));
            if ours {
                let front = Hint::new(SegmentId(7)).bytes;
                bytes.splice(0..0, front);
            }
            let crc = crc32c(&bytes);
            bytes.extend_from_slice(&crc.to_le_bytes());
            let _ = parse(&bytes, SegmentId(7));
        }

        #[test]
        fn what_is_written_is_read(keys in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..20), any::<bool>(), any::<u32>(), any::<(u32, u32)>()), 0..9)) {
            let mut hint = Hint::new(SegmentId(7));
            let entries: Vec<(&[u8], HintEntry)> = keys
                .iter()
                .map(|(key, is_delete, offset, lens)| (&key[..], HintEntry { is_delete: *is_delete, offset: *offset, lens: *lens }))
                .collect();
            entries.iter().for_each(|(key, entry)| hint.push(key, *entry));
            prop_assert_eq!(hint.count(), entries.len() as u64);
            let bytes = hint.finish(99);
            prop_assert_eq!(parse(&bytes, SegmentId(7)), Some((99, entries)));
            prop_assert_eq!(parse(&bytes, SegmentId(8)), None);
        }
    }
}
