//! Bytes in zlib's form (RFC 1950), as they are: for hashes, in which there is nothing to be found that could be said
//! shorter.
//!
//! Left out: reading it, and more than a block of 65,535 bytes.

/// The usual window, no dictionary, the least effort.
const HEAD: [u8; 2] = [0x78, 0x01];

/// A block that is the last one and is stored.
const STORED: u8 = 1;

/// The most bytes of a block.
pub const STORED_MAX: usize = 65_535;

/// These bytes in zlib's form.
///
/// # Panics
/// If they are more than [`STORED_MAX`].
pub fn stored(bytes: &[u8]) -> Vec<u8> {
    let len = u16::try_from(bytes.len()).expect("at most 65,535 bytes are stored");
    let sum = adler2::adler32_slice(bytes).to_be_bytes();
    [&HEAD[..], &[STORED], &len.to_le_bytes(), &(!len).to_le_bytes(), bytes, &sum].concat()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn others_can_read_it() {
        for len in [0, 1, 1_024, 5_553, STORED_MAX] {
            let bytes: Vec<u8> = (0..len).map(|at| (at * 37 % 251) as u8).collect();
            let read = miniz_oxide::inflate::decompress_to_vec_zlib(&stored(&bytes));
            assert_eq!(read.unwrap(), bytes, "{len}");
        }
    }
}
