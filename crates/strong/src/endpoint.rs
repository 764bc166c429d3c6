//! A shard of a running process.

/// One end of a link between shards. The life of a process is a number that no other start of any process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// The life of the process.
    pub life: u64,
    /// The shard.
    pub shard: u16,
}
