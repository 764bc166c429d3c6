//! The commands of operators and the control plane to a shard, and the findings that it has for the log.

use super::Shard;
use crate::frontdoor::latency::LatencyRead;
use crate::handoff::losses::CopyLoss;
use base::spawn::Outcome;
use engine::backup::StoreFiles;
use engine::fold::JournalCheck;
use kv::TimeAhead;
use ring::Partition;

/// A shard, as operators command it.
pub struct ShardControl<'a> {
    shard: &'a mut Shard,
}

impl<'a> ShardControl<'a> {
    pub(super) fn new(shard: &'a mut Shard) -> ShardControl<'a> {
        ShardControl { shard }
    }

    /// Asks the store for the files that make it up ([`engine::Store::begin_backup`]). `asked` gets them, or the error.
    pub fn begin_backup(&mut self, asked: Outcome<Result<StoreFiles, engine::Error>>) {
        if let Err(error) = self.shard.env.store.begin_backup(asked.clone()) {
            asked.set(Err(error));
        }
    }

    /// Begins a compaction of all waste of the store ([`engine::Store::reclaim`]).
    ///
    /// # Errors
    /// If the store takes no writes any more, or is of another backend.
    pub fn reclaim(&mut self) -> Result<(), engine::Error> {
        self.shard.env.peers.note_used();
        self.shard.env.store.reclaim()
    }

    /// Has the trees of a partition made anew, or of all that the shard has, as soon as possible. Returns the number of
    /// partitions.
    pub fn rebuild_trees(&mut self, partition: Option<Partition>, check: JournalCheck) -> usize {
        self.shard.anti_entropy.rebuild(&self.shard.env, partition, check)
    }

    /// Has the trees of a partition, or of all that the shard has, compared with all others that have them: now, and
    /// not in the next round. Trees that wait to be compared go with them. Returns the number of partitions: none
    /// while partitions move.
    pub fn compare_trees(&mut self, partition: Option<Partition>) -> usize {
        self.shard.anti_entropy.compare(&self.shard.env, partition)
    }

    /// The times of clients' requests, from their beginning to their answers.
    pub fn times(&mut self) -> LatencyRead {
        let now = self.shard.env.now();
        self.shard.env.latency.read(now)
    }

    /// Takes the damage that the store's background work has found since the last call, for the log.
    pub fn take_damage(&mut self) -> Vec<engine::Damage> {
        self.shard.env.store.take_damage()
    }

    /// Takes, now and then, a sighting of a clock that is far ahead, for the log.
    pub fn take_time_ahead(&mut self) -> Option<TimeAhead> {
        self.shard.env.version_clock.take_warning(self.shard.env.now())
    }

    /// Takes the losses that senders of copies have reported since the last call, for the log.
    pub fn take_copy_losses(&mut self) -> Vec<CopyLoss> {
        self.shard.handoff.inbound.take_losses()
    }
}
