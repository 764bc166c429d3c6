//! The fields of bodies: little-endian integers, varints, and bytes behind their length.
//!
//! A [`Reader`] takes fields off the front of a body. It checks a length before it takes bytes, allocates nothing
//! and never panics; the bytes it gives are slices of the body.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::wire;

/// Bytes that are no fields, and what is wrong with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

const SHORT: Malformed = Malformed("it ends early");

/// Appends a varint: seven bits a byte, the low ones first.
pub fn put_varint(out: &mut BytesMut, value: u64) {
    wire::put_varint(out, value);
}

/// Appends the length of `bytes` as a varint, then `bytes`.
pub fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.put_slice(bytes);
}

/// Takes fields off the front of a body.
#[derive(Clone, Debug)]
pub struct Reader {
    rest: Bytes,
}

impl Reader {
    /// The fields in `body`.
    pub fn new(body: Bytes) -> Reader {
        Reader { rest: body }
    }

    /// The next byte, which stays the next one; none at the end of the body.
    pub fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// The next byte.
    ///
    /// # Errors
    /// [`Malformed`] if the body ends early, here and in all that follow.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.rest.try_get_u8().map_err(|_| SHORT)
    }

    /// The next two bytes as a number.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.rest.try_get_u16_le().map_err(|_| SHORT)
    }

    /// The next four bytes as a number.
    ///
    /// # Errors
    /// [`Malformed`].
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.rest.try_get_u32_le().map_err(|_| SHORT)
    }

    /// The next eight bytes as a number.
    ///
    /// # Errors
    /// [`Malformed`].
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.rest.try_get_u64_le().map_err(|_| SHORT)
    }

    /// The next varint.
    ///
    /// # Errors
    /// [`Malformed`], also for one of more than 64 bits.
    pub fn varint(&mut self) -> Result<u64, Malformed> {
        let (value, len) = wire::varint(&self.rest).map_err(Malformed)?;
        self.rest.advance(len);
        Ok(value)
    }

    /// The next varint, as a number of things.
    ///
    /// # Errors
    /// [`Malformed`], also for one that this machine cannot count to.
    pub fn count(&mut self) -> Result<usize, Malformed> {
        usize::try_from(self.varint()?).map_err(|_| Malformed("a number is too large"))
    }

    /// The next bytes that stand behind their length.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn bytes(&mut self) -> Result<Bytes, Malformed> {
        let len = self.count()?;
        if len > self.rest.len() { Err(SHORT) } else { Ok(self.rest.split_to(len)) }
    }

    /// All bytes that are left.
    pub fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.rest)
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    /// [`Malformed`] if there is.
    pub fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed("bytes after its end")) }
    }
}
