//! Values to write: sizes, bytes, and the stamp that identifies a value.
//!
//! A stamped value begins with 28 bytes, little-endian: a magic, the run, the key's number (hashed with its
//! bucket), the sequence of the write, the value's length, and a CRC-32C of all of the value but the checksum itself.
//! So a read can tell a value of another key, of an older write, of an earlier run, and one that is damaged.
//!
//! A shorter value, of [`STAMP_LEN_MIN`] bytes at least, begins with a compact stamp of so many: the run, the low half
//! of the key's number, the sequence, and a CRC-32C of what the whole stamp would have and of what follows. It finds
//! the same faults; only what kind of damage it is cannot be told: a value that was cut, or that nobody stamped, has a
//! wrong checksum or another key.
//!
//! The rest are bytes from a pool: random ones, or (semi-compressible, as the seeds' NHS load) 4,096 random bytes and
//! 4,096 bytes of text by turns, of which the text compresses well.

use crate::rng::Rng;
use base::checksum::{crc32c, crc32c_append};

/// The length of a whole stamp.
const STAMP_LEN: usize = 28;

/// Of it, what comes before the checksum.
const FRONT_LEN: usize = STAMP_LEN - 4;

/// The length of a compact stamp: a shorter value has no room to be checked.
pub const STAMP_LEN_MIN: usize = 16;

const MAGIC: [u8; 4] = *b"AbV1";

/// Values are cut from so many bytes: beyond the window of common compressors, so that one value cannot be compressed
/// by another, and small enough to stay in a processor's cache.
const POOL_LEN: usize = 1 << 20;

/// No value is longer than Riak takes.
pub const VALUE_MAX: usize = 50 << 20;

/// How long values are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// All the same.
    Fixed(usize),
    /// Each as likely.
    Uniform {
        /// The least.
        min: usize,
        /// The most.
        max: usize,
    },
    /// A least size and an exponentially distributed rest; some are multiplied.
    Exponential {
        /// The least.
        min: usize,
        /// The mean of the rest.
        mean: f64,
        /// What some are multiplied by.
        factor: f64,
        /// The share of those.
        chance: f64,
    },
}

impl Size {
    /// The size of the next value.
    pub fn draw(self, rng: &mut Rng) -> usize {
        match self {
            Size::Fixed(len) => len,
            Size::Uniform { min, max } => min + rng.below((max - min) as u64 + 1) as usize,
            Size::Exponential { min, mean, factor, chance } => {
                let len = min as f64 + rng.exponential(mean);
                let len = if chance > 0.0 && rng.unit() <= chance { len * factor } else { len };
                (len as usize).min(VALUE_MAX)
            }
        }
    }
}

/// Bytes that values are cut from.
pub struct Pool(Vec<u8>);

impl Pool {
    /// A pool; the same seed gives the same bytes.
    pub fn new(semi_compressible: bool, seed: u64) -> Pool {
        const TURN: usize = 4096;
        const STRING: usize = 128;
        let mut rng = Rng::part(seed, 0x0070_6f6f_6c00);
        let mut bytes = vec![0; POOL_LEN];
        rng.fill(&mut bytes);
        if semi_compressible {
            let mut strings = [[0u8; STRING]; 16];
            strings.iter_mut().flatten().for_each(|byte| *byte = b'a' + rng.below(26) as u8);
            for turn in bytes.chunks_mut(TURN).skip(1).step_by(2) {
                for place in turn.chunks_mut(STRING) {
                    place.copy_from_slice(&strings[rng.below(16) as usize][..place.len()]);
                }
            }
        }
        Pool(bytes)
    }

    /// Writes `len` bytes in place of what is in `out`.
    pub fn write(&self, len: usize, rng: &mut Rng, out: &mut Vec<u8>) {
        out.clear();
        let mut at = rng.below(POOL_LEN as u64) as usize;
        while out.len() < len {
            let piece = (len - out.len()).min(POOL_LEN - at);
            out.extend_from_slice(&self.0[at..at + piece]);
            at = 0;
        }
    }
}

/// What a value says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The run that wrote it.
    pub run: u32,
    /// The key it was written under.
    pub key: u64,
    /// Which write of that key it was.
    pub sequence: u32,
}

impl Stamp {
    /// Writes the stamp over the value's first bytes, which are at least [`STAMP_LEN_MIN`].
    pub fn put(self, value: &mut [u8]) {
        let front = self.front(value.len());
        match value.len() < STAMP_LEN {
            true => {
                value[..4].copy_from_slice(&self.run.to_le_bytes());
                value[4..8].copy_from_slice(&(self.key as u32).to_le_bytes());
                value[8..12].copy_from_slice(&self.sequence.to_le_bytes());
                let crc = checksum(&front, &value[STAMP_LEN_MIN..]);
                value[12..STAMP_LEN_MIN].copy_from_slice(&crc.to_le_bytes());
            }
            false => {
                value[..FRONT_LEN].copy_from_slice(&front);
                let crc = checksum(&front, &value[STAMP_LEN..]);
                value[FRONT_LEN..STAMP_LEN].copy_from_slice(&crc.to_le_bytes());
            }
        }
    }

    /// What a value that was found under the key of this number says of itself.
    ///
    /// # Errors
    /// What is wrong with it: it is not whole, or another key's.
    pub fn read(value: &[u8], key: u64) -> Result<Stamp, &'static str> {
        if value.len() < STAMP_LEN_MIN {
            return Err("too short for a stamp");
        }
        let word = |at: usize| u32::from_le_bytes([value[at], value[at + 1], value[at + 2], value[at + 3]]);
        if value.len() < STAMP_LEN {
            let stamp = Stamp { run: word(0), key, sequence: word(8) };
            if word(4) != key as u32 {
                return Err("the value of another key");
            }
            let is_whole = word(12) == checksum(&stamp.front(value.len()), &value[STAMP_LEN_MIN..]);
            return is_whole.then_some(stamp).ok_or("its checksum is wrong");
        }
        let (front, rest) = (&value[..FRONT_LEN], &value[STAMP_LEN..]);
        if front[..4] != MAGIC {
            return Err("no stamp");
        }
        if word(20) as usize != value.len() {
            return Err("another length than was written");
        }
        if word(24) != checksum(front, rest) {
            return Err("its checksum is wrong");
        }
        if u64::from(word(8)) | u64::from(word(12)) << 32 != key {
            return Err("the value of another key");
        }
        Ok(Stamp { run: word(4), key, sequence: word(16) })
    }

    /// A whole stamp of a value of so many bytes, but for its checksum.
    fn front(self, len: usize) -> [u8; FRONT_LEN] {
        let mut front = [0; FRONT_LEN];
        front[..4].copy_from_slice(&MAGIC);
        front[4..8].copy_from_slice(&self.run.to_le_bytes());
        front[8..16].copy_from_slice(&self.key.to_le_bytes());
        front[16..20].copy_from_slice(&self.sequence.to_le_bytes());
        front[20..].copy_from_slice(&(len as u32).to_le_bytes());
        front
    }
}

/// Of a stamp and of what follows it in the value.
fn checksum(front: &[u8], rest: &[u8]) -> u32 {
    crc32c_append(crc32c(front), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(size: Size) -> (f64, f64) {
        let mut rng = Rng::new(5);
        let all: Vec<f64> = (0..200_000).map(|_| size.draw(&mut rng) as f64).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let variance = all.iter().map(|len| (len - mean).powi(2)).sum::<f64>() / all.len() as f64;
        (mean, variance.sqrt())
    }

    #[test]
    fn sizes_have_their_moments() {
        assert_eq!(moments(Size::Fixed(100)), (100.0, 0.0));
        let (mean, deviation) = moments(Size::Uniform { min: 100, max: 299 });
        assert!((mean - 199.5).abs() < 0.5 && (deviation - 57.7).abs() < 0.5, "{mean} {deviation}");
        let plain = Size::Exponential { min: 1000, mean: 500.0, factor: 1.0, chance: 0.0 };
        let (mean, deviation) = moments(plain);
        assert!((mean - 1499.5).abs() < 5.0 && (deviation - 500.0).abs() < 5.0, "{mean} {deviation}");
        // The seeds' {semi_compressible, 5000, 3000, 5, 0.2}: a mean of 8,000 x (0.8 + 0.2 x 5).
        let (mean, _) = moments(Size::Exponential { min: 5000, mean: 3000.0, factor: 5.0, chance: 0.2 });
        assert!((mean / 14_400.0 - 1.0).abs() < 0.01, "{mean}");
    }

    #[test]
    fn half_of_a_semi_compressible_pool_is_text() {
        let text =
            |pool: &Pool| pool.0.chunks(4096).filter(|turn| turn.iter().all(u8::is_ascii_lowercase)).count();
        assert_eq!(text(&Pool::new(true, 1)), POOL_LEN / 4096 / 2);
        assert_eq!(text(&Pool::new(false, 1)), 0);
        let (mut rng, mut out) = (Rng::new(1), Vec::new());
        Pool::new(true, 1).write(3 * POOL_LEN / 2, &mut rng, &mut out);
        assert_eq!(out.len(), 3 * POOL_LEN / 2);
    }

    #[test]
    fn a_stamp_tells_every_change() {
        let stamp = Stamp { run: 7, key: u64::MAX - 3, sequence: 9 };
        for len in [STAMP_LEN_MIN, STAMP_LEN - 1, STAMP_LEN, 60] {
            let mut value = vec![1; len];
            stamp.put(&mut value);
            assert_eq!(Stamp::read(&value, stamp.key), Ok(stamp));
            for other in [stamp.key ^ 1, stamp.key ^ 1 << 63] {
                Stamp::read(&value, other).unwrap_err();
            }
            for at in 0..len {
                value[at] ^= 1;
                Stamp::read(&value, stamp.key).unwrap_err();
                value[at] ^= 1;
            }
            for cut in 0..len {
                Stamp::read(&value[..cut], stamp.key).unwrap_err();
            }
            Stamp::read(&vec![0; len], 0).unwrap_err();
        }
    }

    #[test]
    fn the_bytes_of_stamps_stay_what_they_are() {
        // Values of an earlier run are told from damage by whatever version reads them.
        let stamp = Stamp { run: 0x0403_0201, key: 0x1817_1615_1413_1211, sequence: 0x2423_2221 };
        let (mut whole, mut compact) = ([0xEE; 29], [0xEE; 17]);
        stamp.put(&mut whole);
        stamp.put(&mut compact);
        let expected = b"AbV1\x01\x02\x03\x04\x11\x12\x13\x14\x15\x16\x17\x18\x21\x22\x23\x24\x1d\0\0\0";
        assert_eq!((&whole[..24], whole[28]), (&expected[..], 0xEE));
        let crc = crc32c(&[&expected[..], &[0xEE]].concat());
        assert_eq!(whole[24..28], crc.to_le_bytes());
        assert_eq!(compact[..12], *b"\x01\x02\x03\x04\x11\x12\x13\x14\x21\x22\x23\x24");
        assert_eq!(compact[16], 0xEE);
    }
}
