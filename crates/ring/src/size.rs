//! How many partitions there are, and which is which.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::error::Error;
use crate::node_id::NodeId;
use crate::partition::{Partition, RING_SIZE_MAX, RING_SIZE_MIN};
use crate::position::Position;

const BITS_MAX: u8 = 16;
const _: () = assert!(1 << BITS_MAX == RING_SIZE_MAX, "both are the same bound");
/// Partitions if nothing else is asked for, as in Riak.
pub const RING_SIZE_DEFAULT: RingSize = RingSize { bits: 6 };

/// By how many bits keys are ordered more finely than a new ring asks for: it may grow to 16 times as many partitions,
/// which is a cluster of 16 times as many nodes. Each bit doubles the ranges between which a listing leaps.
const GROWTH_BITS: u8 = 4;

/// The number of partitions: a power of two in bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RingSize {
    /// Its base-2 logarithm.
    bits: u8,
}

impl RingSize {
    /// A ring of `partitions`.
    ///
    /// # Errors
    /// [`Error::Size`] unless it is a power of two from [`RING_SIZE_MIN`] to [`RING_SIZE_MAX`].
    pub fn new(partitions: u32) -> Result<RingSize, Error> {
        if !partitions.is_power_of_two() || !(RING_SIZE_MIN..=RING_SIZE_MAX).contains(&partitions) {
            return Err(Error::Size(partitions.to_string()));
        }
        let bits = u8::try_from(partitions.trailing_zeros()).expect("a u32 has at most 32 bits");
        Ok(RingSize { bits })
    }

    /// How many partitions.
    pub fn partitions(self) -> u32 {
        1 << self.bits
    }

    /// How many of a position's top bits name its partition.
    pub fn bits(self) -> u32 {
        u32::from(self.bits)
    }

    /// The partition that `position` lies in.
    pub fn partition(self, position: Position) -> Partition {
        Partition(u32::from(position.prefix(self.bits())))
    }

    /// The positions of `partition`.
    ///
    /// # Panics
    /// If the ring has no such partition.
    pub fn range(self, partition: Partition) -> RangeInclusive<Position> {
        assert!(partition.0 < self.partitions(), "partition {partition} is not on a ring of {self}");
        let shift = 64 - self.bits();
        let first = u64::from(partition.0) << shift;
        Position(first)..=Position(first | (u64::MAX >> self.bits()))
    }

    /// The first position of `partition`.
    ///
    /// # Panics
    /// If the ring has no such partition.
    pub fn first(self, partition: Partition) -> Position {
        *self.range(partition).start()
    }

    /// How finely a cluster that is founded with a ring of this size orders its keys: its ring never has more
    /// partitions than that, so each of them is always one range of a store's keys.
    pub fn finest(self) -> RingSize {
        RingSize { bits: (self.bits + GROWTH_BITS).min(BITS_MAX) }
    }

    /// The size of a ring with so many owners, if there is one.
    pub fn of_owners(owners: &[NodeId]) -> Option<RingSize> {
        RingSize::new(u32::try_from(owners.len()).ok()?).ok()
    }

    /// All partitions, clockwise.
    pub fn all(self) -> impl ExactSizeIterator<Item = Partition> {
        (0..self.partitions()).map(Partition)
    }
}

impl Default for RingSize {
    fn default() -> RingSize {
        RING_SIZE_DEFAULT
    }
}

impl FromStr for RingSize {
    type Err = Error;

    fn from_str(text: &str) -> Result<RingSize, Error> {
        let refused = || Error::Size(text.to_string());
        RingSize::new(text.trim().parse().map_err(|_| refused())?).map_err(|_| refused())
    }
}

impl fmt::Display for RingSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.partitions().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two_in_bounds() {
        let sizes: Vec<u32> = (0..=70_000).filter(|&size| RingSize::new(size).is_ok()).collect();
        assert_eq!(sizes, (3..=16).map(|bits| 1 << bits).collect::<Vec<u32>>());
        assert_eq!(RingSize::default().partitions(), 64);
        assert_eq!("128".parse(), RingSize::new(128));
        for bad in ["", "0", "4", "63", "131072", "-8", "64k", "99999999999999999999"] {
            let error = bad.parse::<RingSize>().expect_err(bad).to_string();
            assert_eq!(error, format!("ring size {bad:?} is not a power of two from 8 to 65536"));
        }
    }

    #[test]
    fn keys_are_ordered_finely_enough_to_grow() {
        let finest = |size: u32| RingSize::new(size).unwrap().finest().partitions();
        assert_eq!([8, 64, 1_024, 8_192, 65_536].map(finest), [128, 1_024, 16_384, 65_536, 65_536]);
    }

    #[test]
    fn ranges_tile_the_ring() {
        for bits in 3..=16 {
            let size = RingSize::new(1 << bits).unwrap();
            let mut next = 0u64;
            for partition in size.all() {
                let range = size.range(partition);
                assert_eq!(range.start().0, next);
                assert_eq!(
                    (size.partition(*range.start()), size.partition(*range.end())),
                    (partition, partition)
                );
                next = range.end().0.wrapping_add(1);
            }
            assert_eq!(next, 0, "the last range ends where the ring does");
        }
    }
}
