//! The number of a partition, and the bounds of how many there may be.

use std::fmt;

/// Fewest partitions: with fewer, a handful of nodes cannot share the load evenly.
pub const RING_SIZE_MIN: u32 = 8;
/// Most partitions: 16 bits of the position, which is what a ledger key's prefix holds.
pub const RING_SIZE_MAX: u32 = 65_536;

/// A partition of a ring: the top bits of the positions in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(pub u32);

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
