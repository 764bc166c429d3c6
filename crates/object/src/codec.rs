//! Variable-length integers and a bounded reader: the grain of this crate's encodings.
//!
//! Integers are LEB128, seven bits a byte, low bits first, in their shortest form only, so that equal heads have
//! equal bytes. The reader never allocates and never panics; lengths are checked before bytes are taken. It is `pub` in
//! a private module, which seals [`crate::Item`].

/// Why bytes were refused; the caller says what they should have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub(crate) &'static str);

pub type Result<T> = std::result::Result<T, Malformed>;

/// Appends `value` as a varint.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the length of `bytes`, then `bytes`.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Bytes a varint of `value` takes.
pub(crate) fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Takes fields off the front of a slice.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn remaining(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8> {
        let (&first, rest) = self.0.split_first().ok_or(Malformed("it ends early"))?;
        self.0 = rest;
        Ok(first)
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Malformed("it ends early"))?;
        self.0 = rest;
        Ok(taken)
    }

    #[inline]
    pub(crate) fn u64_le(&mut self) -> Result<u64> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed("it ends early"))?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*taken))
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64> {
        match self.0.split_first() {
            Some((&first, rest)) if first < 0x80 => {
                self.0 = rest;
                Ok(u64::from(first))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Malformed("a number is too large"));
            }
            value |= bits << shift;
            if byte < 0x80 {
                return if byte == 0 && shift > 0 {
                    Err(Malformed("a number is not in its shortest form"))
                } else {
                    Ok(value)
                };
            }
        }
        Err(Malformed("a number is too large"))
    }

    pub(crate) fn varint_usize(&mut self) -> Result<usize> {
        usize::try_from(self.varint()?).map_err(|_| Malformed("a number is too large"))
    }

    #[inline]
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.varint_usize()?;
        self.take(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_in_their_shortest_form() {
        for shift in 0..64 {
            for value in [(1u64 << shift) - 1, 1 << shift, (1 << shift) + 1, u64::MAX >> shift] {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                assert_eq!(out.len(), varint_len(value), "{value}");
                let mut reader = Reader(&out);
                assert_eq!(reader.varint(), Ok(value));
                assert!(reader.is_empty());
            }
        }
    }

    #[test]
    fn long_forms_overflow_and_short_input_are_refused() {
        assert!(Reader(&[0x80, 0x00]).varint().is_err());
        assert!(Reader(&[0xff; 10]).varint().is_err());
        assert!(Reader(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]).varint().is_err());
        assert!(Reader(&[0x80]).varint().is_err());
        assert!(Reader(&[0x05, 1, 2]).bytes().is_err());
        assert!(Reader(&[1, 2, 3]).u64_le().is_err());
    }
}
