//! What stands for a key in the index: 128 bits by SipHash-2-4 under a key that each opening draws anew.
//!
//! Keys are chosen by clients, so the hash is one whose collisions nobody can choose who does not know its key: two
//! keys of a store of 10^10 have one digest with a probability below 10^-17. Nothing on the disk depends on it.
//!
//! Follows "SipHash: a fast short-input PRF" (Aumasson and Bernstein, 2012), with the 128-bit output of its reference
//! code.

use base::Rng;

/// The key of the hash.
#[derive(Clone, Copy)]
pub struct Hasher(u64, u64);

/// A key's digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(pub u64, pub u64);

struct State([u64; 4]);

impl State {
    fn rounds(&mut self, count: usize) {
        let [v0, v1, v2, v3] = &mut self.0;
        for _ in 0..count {
            *v0 = v0.wrapping_add(*v1);
            *v2 = v2.wrapping_add(*v3);
            *v1 = v1.rotate_left(13) ^ *v0;
            *v3 = v3.rotate_left(16) ^ *v2;
            *v0 = v0.rotate_left(32);
            *v2 = v2.wrapping_add(*v1);
            *v0 = v0.wrapping_add(*v3);
            *v1 = v1.rotate_left(17) ^ *v2;
            *v3 = v3.rotate_left(21) ^ *v0;
            *v2 = v2.rotate_left(32);
        }
    }

    fn word(&mut self, word: u64) {
        self.0[3] ^= word;
        self.rounds(2);
        self.0[0] ^= word;
    }

    fn output(&mut self) -> u64 {
        self.rounds(4);
        self.0.iter().fold(0, |sum, word| sum ^ word)
    }
}

impl Hasher {
    /// One of its own.
    pub fn new(rng: &mut dyn Rng) -> Hasher {
        Hasher(rng.next_u64(), rng.next_u64())
    }

    /// A key's digest.
    pub fn digest(&self, key: &[u8]) -> Digest {
        let (k0, k1) = (self.0, self.1);
        let start: [u64; 4] = [
            0x736f_6d65_7073_6575,
            0x646f_7261_6e64_6f6d ^ 0xee,
            0x6c79_6765_6e65_7261,
            0x7465_6462_7974_6573,
        ];
        let mut state = State([start[0] ^ k0, start[1] ^ k1, start[2] ^ k0, start[3] ^ k1]);
        let (words, rest) = key.as_chunks::<8>();
        words.iter().for_each(|word| state.word(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        last[7] = key.len() as u8;
        state.word(u64::from_le_bytes(last));
        state.0[2] ^= 0xee;
        let low = state.output();
        state.0[1] ^= 0xdd;
        Digest(low, state.output())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the reference code's vectors: the key is the bytes 0 to 15, what is hashed the bytes from 0 on.
    #[test]
    fn the_published_outputs() {
        let hasher = Hasher(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        let hex = |len: u8| {
            let Digest(low, high) = hasher.digest(&(0..len).collect::<Vec<u8>>());
            let bytes = low.to_le_bytes().into_iter().chain(high.to_le_bytes());
            bytes.map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        assert_eq!(hex(0), "a3817f04ba25a8e66df67214c7550293");
        assert_eq!(hex(1), "da87c1d86b99af44347659119b22fc45");
    }
}
