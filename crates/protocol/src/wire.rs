//! The protocol buffers wire, as far as this crate goes beyond `prost`: lengths and fields written from
//! borrowed slices, and a reader that walks the fields of a message without decoding it.
//!
//! Invariant of the writers: `*_len` returns exactly what the matching `put_*` appends. Field numbers are
//! below 16, so a key is one byte.

use bytes::BufMut;

/// The wire type of a length-delimited field.
const LENGTH_DELIMITED: u32 = 2;

/// The bytes of a varint of 64 bits, at most.
const VARINT_MAX: usize = 10;

/// The encoded length of a varint.
pub(crate) fn varint_len(value: u64) -> usize {
    // Seven bits a byte; `| 1` gives zero its one byte.
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Appends a varint.
pub(crate) fn put_varint(out: &mut impl BufMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8((value & 0x7F) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// The varint at the front of `bytes`, and its length.
pub(crate) fn varint(bytes: &[u8]) -> Result<(u64, usize), &'static str> {
    let mut value = 0u64;
    for (i, &byte) in bytes.iter().take(VARINT_MAX).enumerate() {
        let bits = u64::from(byte & 0x7F);
        if i == VARINT_MAX - 1 && byte > 1 {
            return Err("varint out of range");
        }
        value |= bits << (7 * i);
        if byte < 0x80 {
            return Ok((value, i + 1));
        }
    }
    Err("truncated varint")
}

const fn key(field: u8, wire_type: u8) -> u8 {
    assert!(field < 16, "a key of more than one byte");
    field << 3 | wire_type
}

/// The encoded length of a length-delimited field that holds `len` bytes.
pub(crate) fn delimited_len(len: usize) -> usize {
    1 + varint_len(len as u64) + len
}

/// Appends the key and length of a length-delimited field; its `len` bytes must follow.
pub(crate) fn put_delimiter(out: &mut Vec<u8>, field: u8, len: usize) {
    out.push(key(field, LENGTH_DELIMITED as u8));
    put_varint(out, len as u64);
}

/// The encoded length of an optional bytes field.
pub(crate) fn bytes_len(value: Option<&[u8]>) -> usize {
    value.map_or(0, |bytes| delimited_len(bytes.len()))
}

/// Appends a bytes field.
pub(crate) fn put_bytes(out: &mut Vec<u8>, field: u8, value: &[u8]) {
    put_delimiter(out, field, value.len());
    out.extend_from_slice(value);
}

/// Appends a bytes field if there is a value.
pub(crate) fn put_optional(out: &mut Vec<u8>, field: u8, value: Option<&[u8]>) {
    if let Some(bytes) = value {
        put_bytes(out, field, bytes);
    }
}

/// The encoded length of an optional uint32 field.
pub(crate) fn u32_len(value: Option<u32>) -> usize {
    value.map_or(0, |number| 1 + varint_len(u64::from(number)))
}

/// Appends a uint32 field if there is a value.
pub(crate) fn put_u32(out: &mut Vec<u8>, field: u8, value: Option<u32>) {
    if let Some(number) = value {
        out.push(key(field, 0));
        put_varint(out, u64::from(number));
    }
}

/// Appends a bool field if it is set: an absent one reads as false.
pub(crate) fn put_true(out: &mut Vec<u8>, field: u8, value: bool) {
    if value {
        out.extend_from_slice(&[key(field, 0), 1]);
    }
}

/// The encoded length of [`put_true`].
pub(crate) fn true_len(value: bool) -> usize {
    if value { 2 } else { 0 }
}

/// One field of a message, seen in passing.
pub(crate) struct Field<'a> {
    /// The field's number.
    pub(crate) number: u32,
    /// Its bytes if it is length-delimited: a nested message, a byte string or a packed list.
    pub(crate) delimited: Option<&'a [u8]>,
}

/// Walks the fields of a message in the order they were written.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// The fields of the message encoded in `body`.
    pub(crate) fn of(body: &'a [u8]) -> Fields<'a> {
        Fields { rest: body }
    }

    /// The next field, or `None` at the end of the message.
    pub(crate) fn next(&mut self) -> Result<Option<Field<'a>>, &'static str> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = u32::try_from(self.varint()?).map_err(|_| "field key out of range")?;
        let number = key >> 3;
        if number == 0 {
            return Err("field number zero");
        }
        let mut delimited = None;
        match key & 7 {
            0 => drop(self.varint()?),
            1 => drop(self.take(8)?),
            LENGTH_DELIMITED => {
                let len = self.varint()?;
                delimited = Some(self.take(usize::try_from(len).unwrap_or(usize::MAX))?);
            }
            5 => drop(self.take(4)?),
            // Groups (3 and 4) were deprecated before Riak had protocol buffers; no client writes one.
            _ => return Err("unsupported wire type"),
        }
        Ok(Some(Field { number, delimited }))
    }

    fn varint(&mut self) -> Result<u64, &'static str> {
        let (value, len) = varint(self.rest)?;
        self.rest = &self.rest[len..];
        Ok(value)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or("length beyond the end of the message")?;
        self.rest = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varint_lengths_are_exact() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                assert_eq!(out.len(), varint_len(value), "{value}");
                assert_eq!(Fields { rest: &out }.varint(), Ok(value));
            }
        }
    }

    #[test]
    fn hostile_varints_are_errors() {
        assert!(Fields { rest: &[0x80; 9] }.varint().is_err());
        assert!(Fields { rest: &[0xFF; 32] }.varint().is_err());
        // Ten bytes, but the tenth carries more than the 64th bit.
        assert!(
            Fields { rest: &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2] }.varint().is_err()
        );
    }

    #[test]
    fn hostile_lengths_are_errors() {
        let mut huge = vec![0x0A];
        put_varint(&mut huge, u64::MAX);
        assert!(Fields::of(&huge).next().is_err());
        assert!(Fields::of(&[0x0A, 5, 1]).next().is_err());
        assert!(Fields::of(&[0x0B]).next().is_err(), "a group");
        assert!(Fields::of(&[0x00, 0]).next().is_err(), "field zero");
    }
}
