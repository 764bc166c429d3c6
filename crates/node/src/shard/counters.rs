//! Counters of a shard, for operators.

base::counters! {
    /// Counters of a shard, since it was opened.
    pub struct ShardCounters {
        /// Reads begun.
        gets => hidden,
        /// Writes begun.
        puts => hidden,
        /// Deletes begun.
        deletes => hidden,
        /// Reads of consistent types begun.
        consistent_gets => "consistent_gets_total",
        /// Writes and deletes of consistent types begun.
        consistent_puts => "consistent_puts_total",
        /// Consistent groups whose first leader was elected here.
        consistent_groups_begun => "consistent_groups_begun_total",
        /// Elections of leaders of consistent groups here that no hand-over caused, without the first one of a group.
        consistent_elections => "consistent_elections_total",
        /// Leaders of consistent groups here to which the leader before has handed over.
        consistent_hand_overs => "consistent_hand_overs_total",
        /// Reads of consistent types that leaders here answered by their leases.
        consistent_lease_reads => "consistent_lease_reads_total",
        /// Reads of consistent types that were confirmed by another node before they were answered here.
        consistent_index_reads => "consistent_index_reads_total",
        /// Promises to other nodes that had lapsed, and were renewed before a vote closed them.
        consistent_promises_lapsed => "consistent_promises_lapsed_total",
        /// Catch-ups of consistent groups begun.
        consistent_catch_ups,
        /// Learners added by leaders here, each in the place of a lost store.
        consistent_replacements_begun,
        /// Replacements of lost stores that are done.
        consistent_replacements_done,
        /// Consistent groups at rest that left memory, so that others have room.
        consistent_unloads,
        /// Messages of consistent groups that were not understood.
        consistent_malformed,
        /// Requests passed on to another shard.
        hops => "hops_total",
        /// Requests answered with an error.
        errors => "errors_total",
        /// Requests refused because too much was under way.
        refused => "refused_total",
        /// Requests that took as long as the threshold of the log of slow requests, or longer.
        slow => "slow_total",
        /// Requests passed on to another node.
        forwards,
        /// Reads for other nodes.
        replica_reads,
        /// Writes, repairs and handoffs from other nodes.
        replica_writes,
        /// Versions sent to replicas that a read found to be behind.
        repairs,
        /// Repairs of this node's own copies that failed.
        repairs_failed,
        /// Keys whose values the scrub has found damaged, and that were read so that other replicas heal them.
        heals,
        /// Those of them that no replica had whole.
        heals_failed,
        /// Hints kept.
        hints,
        /// Hints that could not be kept: the store takes no writes.
        hints_lost,
        /// Versions sent to the primaries that they were kept for.
        handoffs,
        /// Hints that are home.
        hints_home,
        /// Rounds through the hints of a peer.
        hint_rounds,
        /// Messages to other nodes that could not be sent.
        bounced,
        /// Tombstones that a delete or a read here has proposed to reap.
        reaps_proposed,
        /// Those that were dropped, as too many waited.
        reaps_dropped,
        /// Those that were not reaped: some node is away, has a hint or something else, or does not want it.
        reaps_refused,
        /// Those that were reaped.
        reaps,
        /// Those that a sweep has found, or that were refused, and that were read so that they are proposed.
        reaps_swept,
        /// Keys whose contexts were folded, as this node proposed.
        folds => "context_folds",
        /// Proposals that came to nothing: some member is away, has a hint or something older, or the partition moves.
        folds_refused => "context_folds_refused",
        /// Exchanges with other nodes about trees that differed, begun here.
        exchanges,
        /// Those that came to no end: somebody did not answer, or could not be read.
        exchanges_failed,
        /// Keys that they found to differ, and that were read so that their replicas are repaired.
        exchange_keys,
        /// Partitions whose trees were made from their heads.
        trees_made,
        /// Keys that were gone through for that, and the microseconds that it took.
        rebuild_keys,
        /// See `rebuild_keys`.
        rebuild_micros,
        /// Those whose values were found missing or damaged, and that were read so that other replicas heal them.
        rebuild_damaged,
        /// Partitions whose trees an earlier process has left.
        trees_kept,
        /// Trees that differed from the store, where nothing is known to be lost or damaged: the tree was not kept.
        trees_wrong,
    }
}
