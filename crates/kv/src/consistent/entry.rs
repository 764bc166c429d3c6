//! The object of a log entry: head and value in one string of bytes (`docs/formats/strong.md`).
//!
//! ```text
//! length of the head (varint) | head | value, the rest
//! ```

use bytes::{BufMut, Bytes, BytesMut};

use crate::error::Error;

/// Bits of a byte of a varint that are the number's.
const BITS: u32 = 7;

/// The longest length of a head, in bytes: heads are at most 1 MiB.
const LEN_BYTES_MAX: usize = 3;

const _: () = assert!(crate::limits::HEAD_BYTES_MAX < 1 << (BITS as usize * LEN_BYTES_MAX));

/// Head and value as the object of a log entry.
///
/// # Panics
/// If the head is longer than heads can be.
pub fn join_object(head: &[u8], value: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(LEN_BYTES_MAX + head.len() + value.len());
    put_len(&mut out, head.len());
    out.put_slice(head);
    out.put_slice(value);
    out.freeze()
}

/// Head and value of the object of a log entry, as slices of it.
///
/// # Errors
/// [`Error::Damaged`] unless [`join_object`] made it.
pub fn split_object(object: &Bytes) -> Result<(Bytes, Bytes), Error> {
    let malformed = || Error::Damaged("malformed object of a log entry".to_owned());
    let (len, at) = take_len(object).ok_or_else(malformed)?;
    let rest = object.slice(at..);
    if rest.len() < len {
        return Err(malformed());
    }
    Ok((rest.slice(..len), rest.slice(len..)))
}

fn put_len(out: &mut BytesMut, len: usize) {
    assert!(len < 1 << (BITS as usize * LEN_BYTES_MAX), "a head is at most 1 MiB");
    let mut rest = len;
    while rest >= 0x80 {
        out.put_u8((rest & 0x7f) as u8 | 0x80);
        rest >>= BITS;
    }
    out.put_u8(rest as u8);
}

/// A length in its shortest form, and the bytes that it takes.
fn take_len(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut len = 0;
    for (at, &byte) in bytes.iter().take(LEN_BYTES_MAX).enumerate() {
        len |= usize::from(byte & 0x7f) << (BITS as usize * at);
        if byte < 0x80 {
            let is_shortest = byte > 0 || at == 0;
            return is_shortest.then_some((len, at + 1));
        }
    }
    None
}
