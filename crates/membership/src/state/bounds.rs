//! Bounds of a state.

/// Members at once, without the forgotten: the ring and the failure detector are measured up to it.
pub const MEMBERS_MAX: usize = 1_000;

/// Staged changes at once: as many as a person can review.
pub const STAGED_MAX: usize = 64;

/// Bytes of a name, an address or a zone.
pub const TEXT_BYTES_MAX: usize = 255;

/// Retired actors remembered; more are refused, since forgetting one could bring its events back.
pub const RETIRED_MAX: usize = 65_536;

/// Stores of a node, one for each shard.
pub const STORES_MAX: usize = 256;

/// Slots for opaque values such as bucket types; 10,000 buckets with properties fit.
pub const SLOTS_MAX: usize = 16_384;

/// Bytes of a slot's name and value together.
pub const SLOT_BYTES_MAX: usize = 4_096;
