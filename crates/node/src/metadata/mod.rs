//! Bucket properties and bucket types: changes, their spread to all shards and nodes, and resets.

pub(crate) mod resets;
pub(crate) mod spread;
pub(crate) mod sync;
