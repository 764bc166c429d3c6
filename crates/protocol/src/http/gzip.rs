//! Bodies in the coding `gzip` (RFC 1952): a head, one deflated stream, a checksum and a length.
//!
//! Left out: reading it. Values are stored in the coding they came in.

use crc_fast::CrcAlgorithm;

/// The least effort that still searches for repetitions: answers are compressed on the thread that serves the shard.
const LEVEL: u8 = 1;

/// The magic number, `deflate`, no flags, no time, the fastest compression, an unknown system.
const HEAD: [u8; 10] = [0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 4, 0xFF];

/// A body in this coding; it may be longer than the body.
pub fn compress(body: &[u8]) -> Vec<u8> {
    let deflated = miniz_oxide::deflate::compress_to_vec(body, LEVEL);
    // The length is told modulo 2^32.
    let len = (body.len() & 0xFFFF_FFFF) as u32;
    [&HEAD[..], &deflated, &crc32(body).to_le_bytes(), &len.to_le_bytes()].concat()
}

/// The CRC of Ethernet and zip files.
fn crc32(bytes: &[u8]) -> u32 {
    // Of this algorithm no other bits are set.
    crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, bytes) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;
    use base::rng::SplitMix64;

    #[test]
    fn the_checksum_is_the_known_one() {
        assert_eq!(crc32(b""), 0);
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn what_is_compressed_comes_back() {
        let mut rng = SplitMix64::new(7);
        for len in [0_u64, 1, 100, 5000, 200_000] {
            // Half of it repeats.
            let body: Vec<u8> =
                (0..len).map(|at| (if at % 2 == 0 { 7 } else { rng.below(256) }) as u8).collect();
            let packed = compress(&body);
            let (head, rest) = packed.split_at(10);
            let (deflated, end) = rest.split_at(rest.len() - 8);
            assert_eq!(head, HEAD);
            assert_eq!(miniz_oxide::inflate::decompress_to_vec(deflated).unwrap(), body);
            assert_eq!(end, [crc32(&body).to_le_bytes(), (len as u32).to_le_bytes()].concat());
        }
        assert!(compress(&[b'a'; 5000]).len() < 100);
    }
}
