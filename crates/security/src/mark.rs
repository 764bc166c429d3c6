//! The bytes of the mark that security is on, which a node keeps beside its metadata log: `docs/formats/security.md`.
//!
//! Left out: the file, and the decisions that rest on the mark.

use base::checksum::crc32c;

const MAGIC: &[u8; 4] = b"ANSO";
const VERSION: u8 = 2;

/// Bytes of a mark: magic, version, cluster, version of the policy, checksum.
const MARK_BYTES: usize = 4 + 1 + 8 + 8 + 4;

/// The last policy with security on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnabledMark {
    /// The number of the cluster.
    pub cluster: u64,
    /// The version of the policy in the log of this cluster.
    pub policy_version: u64,
}

impl EnabledMark {
    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = [&MAGIC[..], &[VERSION]].concat();
        out.extend(self.cluster.to_le_bytes());
        out.extend(self.policy_version.to_le_bytes());
        let crc = crc32c(&out);
        out.extend(crc.to_le_bytes());
        out
    }

    /// The mark of some bytes; `None` unless they are those of [`EnabledMark::encode`].
    pub fn read(bytes: &[u8]) -> Option<EnabledMark> {
        let bytes: &[u8; MARK_BYTES] = bytes.try_into().ok()?;
        let number = |at: usize| Some(u64::from_le_bytes(bytes[at..at + 8].try_into().ok()?));
        let mark = EnabledMark { cluster: number(5)?, policy_version: number(13)? };
        (mark.encode() == bytes).then_some(mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;
    use base::rng::SplitMix64;

    const MARK: EnabledMark = EnabledMark { cluster: 0x0807_0605_0403_0201, policy_version: 300 };

    #[test]
    fn golden_bytes() {
        let golden = b"ANSO\x02\x01\x02\x03\x04\x05\x06\x07\x08\x2c\x01\0\0\0\0\0\0\xf3\x17\x67\xa0";
        assert_eq!(MARK.encode(), golden);
        assert_eq!(EnabledMark::read(golden), Some(MARK));
        for at in 0..golden.len() {
            let mut damaged = *golden;
            damaged[at] ^= 1;
            assert_eq!(EnabledMark::read(&damaged), None, "byte {at}");
            assert_eq!(EnabledMark::read(&golden[..at]), None, "{at} bytes");
        }
        assert_eq!(EnabledMark::read(b"ANSO\x01\x9e\x2f\x79\x64"), None, "version 1");
    }

    #[test]
    fn random_bytes_are_no_mark_and_random_marks_are_read_again() {
        let mut rng = SplitMix64::new(1);
        for _ in 0..5_000 {
            let mark = EnabledMark { cluster: rng.next_u64(), policy_version: rng.next_u64() };
            let mut bytes = mark.encode();
            assert_eq!(EnabledMark::read(&bytes), Some(mark));
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 + rng.below(255) as u8;
            assert_eq!(EnabledMark::read(&bytes), None, "one byte is another");
            let random: Vec<u8> = (0..rng.below(40)).map(|_| rng.below(256) as u8).collect();
            assert_eq!(EnabledMark::read(&random), None, "{random:?}");
        }
    }
}
