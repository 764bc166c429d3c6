//! Comparison of objects with those of other nodes by trees of hashes, and repair of what differs.

pub(crate) mod checkpoints;
pub(crate) mod exchange;
pub(crate) mod head_change;
pub(crate) mod heal;
pub(crate) mod parts;
pub(crate) mod rebuilds;
pub(crate) mod status;
pub(crate) mod trees;
