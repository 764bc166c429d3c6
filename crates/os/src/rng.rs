//! The kernel's randomness.

use base::Rng;
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// How much is asked of the kernel at once: 512 numbers a system call make a number cost about 10 ns.
const BUFFER_BYTES: usize = 4096;
const WORD_BYTES: usize = size_of::<u64>();

/// Numbers of `getrandom`, buffered. Nobody can predict them; but they stay in memory after use, so keys and
/// passwords are not made here.
#[derive(Debug)]
pub struct OsRng {
    buffer: Box<[u8; BUFFER_BYTES]>,
    /// Bytes of the buffer already given out.
    used: usize,
}

impl OsRng {
    /// A generator; the first number fills its buffer.
    pub fn new() -> OsRng {
        OsRng { buffer: Box::new([0; BUFFER_BYTES]), used: BUFFER_BYTES }
    }

    fn fill(&mut self) {
        let mut filled = 0;
        while filled < BUFFER_BYTES {
            match getrandom(&mut self.buffer[filled..], GetRandomFlags::empty()) {
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                Err(error) => panic!("getrandom, which Linux has had since 3.17, failed: {error}"),
            }
        }
        self.used = 0;
    }
}

impl Default for OsRng {
    fn default() -> Self {
        OsRng::new()
    }
}

impl Rng for OsRng {
    fn next_u64(&mut self) -> u64 {
        if self.used == BUFFER_BYTES {
            self.fill();
        }
        let word = &self.buffer[self.used..self.used + WORD_BYTES];
        self.used += WORD_BYTES;
        u64::from_le_bytes(word.try_into().expect("the slice has the length of a word"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn numbers_differ_within_a_buffer_across_buffers_and_between_generators() {
        let (mut one, mut other) = (OsRng::new(), OsRng::new());
        let drawn: BTreeSet<u64> = (0..2000).flat_map(|_| [one.next_u64(), other.next_u64()]).collect();
        assert_eq!(drawn.len(), 4000, "a repeat among 4000 random numbers has a chance of 2^-41");
    }
}
