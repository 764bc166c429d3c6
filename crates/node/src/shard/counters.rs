//! Counters of a shard, for operators.

/// Counters of a shard, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardCounters {
    /// Reads begun.
    pub gets: u64,
    /// Writes begun.
    pub puts: u64,
    /// Deletes begun.
    pub deletes: u64,
    /// Requests passed on to another shard.
    pub hops: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Requests refused because too much was under way.
    pub refused: u64,
    /// Requests passed on to another node.
    pub forwards: u64,
    /// Reads for other nodes.
    pub replica_reads: u64,
    /// Writes, repairs and handoffs from other nodes.
    pub replica_writes: u64,
    /// Versions sent to replicas that a read found to be behind.
    pub repairs: u64,
    /// Repairs of this node's own copies that failed.
    pub repairs_failed: u64,
    /// Keys whose values the scrub has found damaged, and that were read so that other replicas heal them.
    pub heals: u64,
    /// Those of them that no replica had whole.
    pub heals_failed: u64,
    /// Hints kept.
    pub hints: u64,
    /// Hints that could not be kept: the store takes no writes.
    pub hints_lost: u64,
    /// Versions sent to the primaries that they were kept for.
    pub handoffs: u64,
    /// Hints that are home.
    pub hints_home: u64,
    /// Rounds through the hints of a peer.
    pub hint_rounds: u64,
    /// Messages to other nodes that could not be sent.
    pub bounced: u64,
    /// Tombstones that a delete or a read here has proposed to reap.
    pub reaps_proposed: u64,
    /// Those that were dropped, as too many waited.
    pub reaps_dropped: u64,
    /// Those that were not reaped: some node is away, has a hint or something else, or does not want it.
    pub reaps_refused: u64,
    /// Those that were reaped.
    pub reaps: u64,
    /// Those that a sweep has found, or that were refused, and that were read so that they are proposed.
    pub reaps_swept: u64,
    /// Keys whose contexts were folded, as this node proposed.
    pub folds: u64,
    /// Proposals that came to nothing: some member is away, has a hint or something older, or the partition moves.
    pub folds_refused: u64,
    /// Exchanges with other nodes about trees that differed, begun here.
    pub exchanges: u64,
    /// Those that came to no end: somebody did not answer, or could not be read.
    pub exchanges_failed: u64,
    /// Keys that they found to differ, and that were read so that their replicas are repaired.
    pub exchange_keys: u64,
    /// Partitions whose trees were made from their heads.
    pub trees_made: u64,
    /// Keys that were gone through for that, and the microseconds that it took.
    pub rebuild_keys: u64,
    /// See `rebuild_keys`.
    pub rebuild_micros: u64,
    /// Those whose values were found missing or damaged, and that were read so that other replicas heal them.
    pub rebuild_damaged: u64,
    /// Partitions whose trees an earlier process has left.
    pub trees_kept: u64,
    /// Trees that differed from the store, where nothing is known to be lost or damaged: the tree was not kept.
    pub trees_wrong: u64,
}
