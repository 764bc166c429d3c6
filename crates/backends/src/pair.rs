//! A head and a value as one value of an engine that knows no heads.
//!
//! ```text
//! 0 version u8 (1)   1 head_len u32   5 head | value
//! ```
//!
//! One and not two, since a PUT and a GET are then one look into the engine; a HEAD reads what a GET reads, as far as
//! the engine does not read by pages. There is no checksum: what the engine gives back is believed, as its users do.
//! Left out: what a head or a value means.

use crate::backend::{Item, Object, What};
use crate::error::Error;
use bytes::Bytes;
#[cfg(any(feature = "fjall", feature = "lmdb", feature = "redb"))]
use std::ops::Bound;

const VERSION: u8 = 1;
const FRONT_BYTES: usize = 5;

/// The parts of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair<'a> {
    /// The head.
    pub head: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

impl<'a> Pair<'a> {
    /// Writes it to `out`, which it replaces.
    pub fn encode(head: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        let too_large = |_| Error::TooLarge { what: "a head", len: head.len(), limit: u32::MAX as usize };
        let head_len = u32::try_from(head.len()).map_err(too_large)?;
        out.clear();
        out.reserve(FRONT_BYTES + head.len() + value.len());
        out.push(VERSION);
        out.extend_from_slice(&head_len.to_le_bytes());
        out.extend_from_slice(head);
        out.extend_from_slice(value);
        Ok(())
    }

    /// Reads it.
    pub fn decode(bytes: &'a [u8]) -> Result<Pair<'a>, Error> {
        let (version, rest) = bytes.split_first().ok_or_else(no_pair)?;
        let (len, rest) = rest.split_first_chunk::<4>().ok_or_else(no_pair)?;
        let len = u32::from_le_bytes(*len) as usize;
        if *version != VERSION || len > rest.len() {
            return Err(no_pair());
        }
        let (head, value) = rest.split_at(len);
        Ok(Pair { head, value })
    }

    /// What a fold is shown of it, under this key.
    pub fn item<'b>(self, key: &'b [u8], what: What) -> Item<'b>
    where
        'a: 'b,
    {
        let value = if what == What::Objects { self.value } else { &[] };
        Item { key, head: self.head, value }
    }

    /// An object of its own.
    pub fn to_object(self) -> Object {
        Object { head: Bytes::copy_from_slice(self.head), value: Bytes::copy_from_slice(self.value) }
    }
}

fn no_pair() -> Error {
    Error::damaged("a pair", "it is none")
}

/// Where a range of keys begins and ends.
#[cfg(any(feature = "fjall", feature = "lmdb", feature = "redb"))]
pub type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// The range from `from` up to `to`, for an engine that refuses longer keys than its own also as bounds; `None` for an
/// empty one.
#[cfg(any(feature = "fjall", feature = "lmdb", feature = "redb"))]
pub fn bounds<'a>(from: &'a [u8], to: &'a [u8], key_bytes_max: usize) -> Option<Bounds<'a>> {
    let cut = |key: &'a [u8]| &key[..key.len().min(key_bytes_max)];
    // No key of the engine lies between a bound that is too long and what is left of it.
    let begin = if from.len() > key_bytes_max { Bound::Excluded(cut(from)) } else { Bound::Included(from) };
    let end = if to.len() > key_bytes_max { Bound::Included(cut(to)) } else { Bound::Excluded(to) };
    match (from.is_empty(), to.is_empty()) {
        (true, true) => Some((Bound::Unbounded, Bound::Unbounded)),
        (true, false) => Some((Bound::Unbounded, end)),
        (false, true) => Some((begin, Bound::Unbounded)),
        (false, false) => {
            let is_one = from == cut(to) && to.len() > key_bytes_max;
            (is_one || cut(from) < cut(to)).then_some((begin, end))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_bytes_stay_what_they_are() {
        let mut bytes = vec![9];
        Pair::encode(b"head", b"value", &mut bytes).unwrap();
        assert_eq!(bytes, b"\x01\x04\0\0\0headvalue");
        assert_eq!(Pair::decode(&bytes), Ok(Pair { head: b"head", value: b"value" }));
        Pair::encode(b"", b"", &mut bytes).unwrap();
        assert_eq!(Pair::decode(&bytes), Ok(Pair { head: b"", value: b"" }));
    }

    #[test]
    fn what_is_none_is_damage() {
        let none: [&[u8]; 5] = [b"", b"\x01", b"\x01\x04\0\0\0hea", b"\x02\0\0\0\0", b"\x01\xff\xff\xff\xff"];
        for bytes in none {
            assert!(matches!(Pair::decode(bytes), Err(Error::Damaged(_))), "{bytes:?}");
        }
    }
}
