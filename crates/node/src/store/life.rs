//! The dots of a store of another backend: under which name, and from which number on in each start.
//!
//! Where a write is durable when it returns, the store keeps its incarnation and how often it was started, under a key
//! that is no shard's, and says so before it serves: each start has numbers of its own, more than it can use up. Where
//! it may be lost, each start has an incarnation of its own.

use backends::Backend;
use engine::{Damage, Error};

/// Before all keys of shards, which begin with a tag.
const KEY: &[u8] = b"\0life";
const VERSION: u8 = 1;

/// A start may use so many numbers: those of a thousand writes a second for thirty years.
const COUNTER_BITS: u32 = 40;

/// A start of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    incarnation: u64,
    starts: u32,
    last_counter: u64,
}

impl Life {
    /// That of a store that keeps nothing of it.
    pub fn first(incarnation: u64) -> Life {
        Life { incarnation, starts: 0, last_counter: 0 }
    }

    /// The next of a store, which keeps it; the first has the incarnation `fresh`.
    pub fn next(backend: &mut dyn Backend, fresh: u64) -> Result<Life, Error> {
        let before = backend.head(KEY)?.map(|head| Life::decode(&head)).transpose()?;
        let before = before.unwrap_or(Life::first(fresh));
        let life = Life { starts: before.starts + 1, ..before };
        backend.put(KEY, &life.encode(), b"")?;
        Ok(life)
    }

    /// Under which name its dots are.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The number of the next dot.
    pub fn next_counter(&mut self) -> Result<u64, Error> {
        if self.last_counter + 1 == 1 << COUNTER_BITS {
            return Err(Error::Full {
                what: "the dot counters of a start",
                limit: usize::MAX >> (64 - COUNTER_BITS),
            });
        }
        self.last_counter += 1;
        Ok(u64::from(self.starts) << COUNTER_BITS | self.last_counter)
    }

    fn encode(&self) -> Vec<u8> {
        [&[VERSION][..], &self.incarnation.to_le_bytes(), &self.starts.to_le_bytes()].concat()
    }

    fn decode(bytes: &[u8]) -> Result<Life, Error> {
        let damaged =
            || Error::Damaged(Damage { file: "the store's life".to_owned(), offset: 0, what: "its bytes" });
        let (version, rest) = bytes.split_first().ok_or_else(damaged)?;
        let (incarnation, rest) = rest.split_first_chunk().ok_or_else(damaged)?;
        let starts = <[u8; 4]>::try_from(rest).map(u32::from_le_bytes).map_err(|_| damaged())?;
        // One more start would give a dot twice.
        if *version != VERSION || starts >= 1 << (64 - COUNTER_BITS) {
            return Err(damaged());
        }
        Ok(Life { incarnation: u64::from_le_bytes(*incarnation), starts, last_counter: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_given_in_two_starts() {
        let folder = tempfile::tempdir().unwrap();
        let machine = engine::Machine::new(
            os::OsDisk::blocking().blocking_handles(),
            os::OsClock::new(),
            os::OsRng::new(),
        );
        let mut backend =
            backends::Kind::Memory.open(folder.path(), &backends::Settings::default(), machine).unwrap();
        let mut last = 0;
        for fresh in 7..10 {
            let mut life = Life::next(&mut *backend, fresh).unwrap();
            assert_eq!(life.incarnation(), 7);
            let first = life.next_counter().unwrap();
            assert!(first > last && life.next_counter().unwrap() == first + 1);
            life.last_counter = (1 << COUNTER_BITS) - 2;
            last = life.next_counter().unwrap();
            assert!(life.next_counter().is_err());
        }
    }

    #[test]
    fn its_bytes_stay_what_they_are() {
        let life = Life { incarnation: 0x0102_0304_0506_0708, starts: 3, last_counter: 0 };
        assert_eq!(life.encode(), [1, 8, 7, 6, 5, 4, 3, 2, 1, 3, 0, 0, 0]);
        assert_eq!(Life::decode(&life.encode()), Ok(life));
        for bytes in [&b""[..], &[2, 8, 7, 6, 5, 4, 3, 2, 1, 3, 0, 0, 0], &[1; 14], &[1; 12], &[1; 13]] {
            assert!(matches!(Life::decode(bytes), Err(Error::Damaged(_))), "{bytes:?}");
        }
    }
}
