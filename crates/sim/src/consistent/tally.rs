//! Counts of a life: outcomes of operations, elections, catch-ups, and undecided checks.

use node::shard::ShardCounters;
use std::fmt;
use strong::linearizability::Outcome;

/// The counts of one life, or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Reads that were answered.
    pub reads: u64,
    /// Writes and deletes that took effect.
    pub done: u64,
    /// Writes whose condition did not hold.
    pub failed: u64,
    /// Requests that were refused.
    pub unavailable: u64,
    /// Requests whose effect is unknown.
    pub timeouts: u64,
    /// Terms of groups, which are elections with and without a winner.
    pub elections: u64,
    /// Catch-ups of voters.
    pub catch_ups: u64,
    /// Reads that leaders answered by their leases, as far as nodes were looked at.
    pub lease_reads: u64,
    /// Reads that another voter confirmed.
    pub index_reads: u64,
    /// Promises that lapsed and were renewed.
    pub lapsed: u64,
    /// Groups at rest that were unloaded.
    pub unloads: u64,
    /// Voters that are new because their stores lost something.
    pub births: u64,
    /// Restores of all nodes from backups.
    pub restores: u64,
    /// Histories whose check ran out of its budget.
    pub unknown: u64,
}

/// The counters of a process that a tally has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    catch_ups: u64,
    lease_reads: u64,
    index_reads: u64,
    lapsed: u64,
    unloads: u64,
}

impl Counted {
    /// Adds the counters of one of its shards.
    pub(super) fn add(&mut self, counters: &ShardCounters) {
        self.catch_ups += counters.consistent_catch_ups;
        self.lease_reads += counters.consistent_lease_reads;
        self.index_reads += counters.consistent_index_reads;
        self.lapsed += counters.consistent_promises_lapsed;
        self.unloads += counters.consistent_unloads;
    }
}

impl Tally {
    /// Counts the difference between two looks at a process.
    pub(super) fn count_since(&mut self, before: &Counted, now: &Counted) {
        self.catch_ups += now.catch_ups.saturating_sub(before.catch_ups);
        self.lease_reads += now.lease_reads.saturating_sub(before.lease_reads);
        self.index_reads += now.index_reads.saturating_sub(before.index_reads);
        self.lapsed += now.lapsed.saturating_sub(before.lapsed);
        self.unloads += now.unloads.saturating_sub(before.unloads);
    }

    /// Counts an operation.
    pub(super) fn count(&mut self, outcome: Outcome) {
        *match outcome {
            Outcome::Read(_) => &mut self.reads,
            Outcome::Done => &mut self.done,
            Outcome::Failed => &mut self.failed,
            Outcome::Unavailable => &mut self.unavailable,
            Outcome::Timeout => &mut self.timeouts,
        } += 1;
    }

    /// Operations with a definite answer of a group.
    pub fn acknowledged(&self) -> u64 {
        self.reads + self.done + self.failed
    }

    /// Adds the counts of another life.
    pub fn add(&mut self, other: &Tally) {
        let Tally {
            reads, done, failed, unavailable, timeouts, elections, catch_ups, births, unknown, ..
        } = other;
        self.lease_reads += other.lease_reads;
        self.index_reads += other.index_reads;
        self.lapsed += other.lapsed;
        self.unloads += other.unloads;
        self.restores += other.restores;
        self.reads += reads;
        self.done += done;
        self.failed += failed;
        self.unavailable += unavailable;
        self.timeouts += timeouts;
        self.elections += elections;
        self.catch_ups += catch_ups;
        self.births += births;
        self.unknown += unknown;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally {
            reads, done, failed, unavailable, timeouts, elections, catch_ups, births, unknown, ..
        } = self;
        let Tally { lease_reads, index_reads, lapsed, unloads, restores, .. } = self;
        write!(
            f,
            "{reads} reads, {done} writes, {failed} failed, {unavailable} unavailable, {timeouts} timeouts, \
             {elections} elections, {catch_ups} catch-ups, {births} new births, {unknown} histories unknown, \
             {lease_reads} lease reads, {index_reads} ReadIndex reads, {lapsed} promises lapsed and renewed, \
             {unloads} groups unloaded, {restores} restores"
        )
    }
}
