//! The bound of the distance that a claim may be asked to keep.

/// Most that can be asked for: with more, distance would rule out nearly every ring.
pub const TARGET_N_MAX: usize = 16;
