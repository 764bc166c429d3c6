//! The one checksum of all our formats: CRC-32C (Castagnoli), by hardware where there is any.
//!
//! Two libraries compute it. The processor's own instruction takes eight bytes at a time, of several places at once,
//! and begins at once; multiplication without carries takes up to 64 bytes at a time, and has a beginning and an end
//! that cost something. Short bytes go the first way, long ones the second: 4 KB take 41 ns instead of 154, 16 KB 140
//! instead of 640 (docs/decisions/0080).

use crc_fast::{CrcAlgorithm, Digest};

/// From this length on the second way is the shorter one on all processors. Where they multiply 64 bytes at a time it
/// is from 300 bytes on; where 16, it takes some 280 instructions more for 1 KB, and as many for 4 KB.
const LONG_BYTES: usize = 3 << 10;

/// CRC-32C of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    if bytes.len() < LONG_BYTES { crc32c::crc32c(bytes) } else { append_long(0, bytes) }
}

/// Continues a CRC-32C: `crc32c_append(crc32c(a), b)` is the checksum of `a` followed by `b`.
#[inline]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    if bytes.len() < LONG_BYTES { crc32c::crc32c_append(crc, bytes) } else { append_long(crc, bytes) }
}

// Apart, so that short ones do not make room for what it takes.
#[inline(never)]
fn append_long(crc: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
    digest.update(bytes);
    // Of this algorithm no other bits are set.
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c_append(crc32c(b"12345"), b"6789"), 0xE306_9283);
    }

    #[test]
    fn both_ways_lead_to_the_same_sum() {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize
        };
        let bytes: Vec<u8> = (0..20_000).map(|_| next() as u8).collect();
        for case in 0..3000 {
            let from = next() % 70;
            // All lengths about the border, and some of all.
            let len = if case < 1000 { LONG_BYTES - 500 + case } else { next() % (bytes.len() - from) };
            let bytes = &bytes[from..from + len];
            let sum = crc32c::crc32c(bytes);
            assert_eq!(crc32c(bytes), sum, "{len} bytes from {from} on");
            let (head, tail) = bytes.split_at(next() % (len + 1));
            assert_eq!(crc32c_append(crc32c(head), tail), sum, "{} and {}", head.len(), tail.len());
        }
    }
}
