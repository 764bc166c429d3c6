//! Slow requests on consistent types: their stages, and their lines.
//!
//! 1. A request that waits notes its stage: for a leader, for the node of the leader, for the disk, for the sync of its
//!    entry here, for a majority, for the entry to be applied.
//! 2. The shard looks at those that may have come to be slow, and writes a line about each.
//! 3. The answer of a slow request is a line, too.
//!
//! The node of the client counts a slow request, and names the leader's node among those that were asked. The leader's
//! node has lines of its own, from when the request came there.
//!
//! A write's entry is known by its index in the log of its group ([`ProposedWrites`]), so the sync of a batch finds the
//! requests that it is about without a look at others.

use std::collections::VecDeque;

use base::Monotonic;
use engine::Want;
use kv::{Error, Request, Response};

use super::ConsistentGroups;
use super::dispatch::Pending;
use super::group::GroupKey;
use crate::frontdoor::slow::{SlowOp, SlowRequest, SlowStage, StageClock};
use crate::peer::NodeId;
use crate::shard::env::Env;
use crate::shard::reply_to::ReplyTo;

/// Writes whose entries this store has proposed and not applied, in the order of their indexes.
///
/// Bounded by the requests under way: an entry that is applied, or replaced, takes its write out.
#[derive(Debug, Default)]
pub(super) struct ProposedWrites {
    /// The index of each entry, and the token of its request.
    writes: VecDeque<(u64, u64)>,
    /// All entries up to this one are synced here.
    synced: u64,
}

impl ProposedWrites {
    /// A write's entry is proposed.
    pub fn push(&mut self, index: u64, token: u64) {
        // Entries of an earlier term with the same indexes are replaced.
        while self.writes.pop_back_if(|(last, _)| *last >= index).is_some() {}
        self.synced = self.synced.min(index - 1);
        self.writes.push_back((index, token));
    }

    /// The entries up to this one are synced: the tokens of those that were not.
    pub fn sync(&mut self, through: u64) -> impl Iterator<Item = u64> {
        let first = self.writes.partition_point(|(index, _)| *index <= self.synced);
        self.synced = self.synced.max(through);
        self.upto(first, self.synced)
    }

    /// The tokens of writes up to this entry.
    pub fn through(&self, through: u64) -> impl Iterator<Item = u64> {
        self.upto(0, through)
    }

    /// The entries up to this one are applied.
    pub fn apply(&mut self, through: u64) {
        while self.writes.pop_front_if(|(index, _)| *index <= through).is_some() {}
    }

    fn upto(&self, first: usize, through: u64) -> impl Iterator<Item = u64> {
        let writes = self.writes.iter().skip(first);
        writes.take_while(move |(index, _)| *index <= through).map(|(_, token)| *token)
    }
}

impl ConsistentGroups {
    /// A request begins to wait.
    pub(super) fn note_wait(&mut self, env: &mut Env, pending: &mut Pending, stage: SlowStage) {
        if env.knobs.slow.threshold().is_none() {
            return;
        }
        pending.enter(stage, env.recent());
        if !pending.is_slow {
            self.looks.note(env, pending.times.came);
        }
    }

    /// A request waits for the disk.
    pub(super) fn note_lookup(&mut self, env: &mut Env, pending: &mut Pending, want: Want) {
        let stage = if want == Want::Head { SlowStage::Head } else { SlowStage::Disk };
        self.note_wait(env, pending, stage);
    }

    /// A write was given to its group: it waits for the sync of its entry here.
    pub(super) fn note_proposed(&mut self, env: &Env, key: GroupKey, index: u64, token: u64) {
        if env.knobs.slow.threshold().is_none() {
            return;
        }
        let Some(held) = self.groups.get_mut(&key) else { return };
        if held.group.last().0 >= index {
            held.proposed.push(index, token);
        } else if let Some(pending) = self.served.pending_mut(token) {
            // A condition that does not hold is confirmed as a read.
            pending.enter(SlowStage::Majority, env.recent());
        }
    }

    /// The entries of a group up to this one are synced here: their requests wait for a majority.
    pub(super) fn note_synced(&mut self, env: &Env, key: GroupKey, through: u64) {
        let Some(held) = self.groups.get_mut(&key) else { return };
        for token in held.proposed.sync(through) {
            if let Some(pending) = self.served.pending_mut(token) {
                pending.enter(SlowStage::Majority, env.recent());
            }
        }
    }

    /// Committed entries up to this one cannot be applied yet.
    pub(super) fn note_unapplied(&mut self, env: &Env, key: GroupKey, through: u64) {
        let Some(held) = self.groups.get(&key) else { return };
        for token in held.proposed.through(through) {
            if let Some(pending) = self.served.pending_mut(token) {
                pending.enter(SlowStage::Apply, env.recent());
            }
        }
    }

    /// Writes a line about each request that has come to be slow, as far as there is room.
    pub(super) fn look_for_slow(&mut self, env: &mut Env, now: Monotonic) {
        let Some(came_max) = self.looks.begin(env, now) else { return };
        let mut first: Option<Monotonic> = None;
        let ConsistentGroups { waiting, served, asked, looks, .. } = self;
        let all = waiting.pendings_mut().chain(served.pendings_mut()).chain(asked.pendings_mut());
        for pending in all.filter(|pending| !pending.is_slow) {
            let came = pending.times.came;
            if came <= came_max && looks.have_room(env, now) {
                pending.is_slow = true;
                pending.count_slow(env);
                pending.write_line(env, None, now);
            } else {
                first = Some(first.map_or(came, |first| first.min(came)));
            }
        }
        if let Some(first) = first {
            self.looks.note(env, first);
        }
    }
}

impl Pending {
    /// Enters a stage. The stages before its first wait are made of its times.
    fn enter(&mut self, stage: SlowStage, now: Monotonic) {
        let (came, begun) = (self.times.came, self.begun);
        self.stages.get_or_insert_with(|| Box::new(StageClock::begun(came, begun))).enter(stage, now);
    }

    /// The node of its leader is asked. To be called when its wait is noted.
    pub(super) fn note_ask(&mut self, env: &Env, node: NodeId) {
        if let Some(stages) = &mut self.stages {
            stages.ask(node, env.recent());
        }
    }

    /// The node has answered, or will not.
    pub(super) fn note_answer(&mut self, env: &Env, node: NodeId) {
        if let Some(stages) = &mut self.stages {
            stages.answered(node, env.recent());
        }
    }

    /// It is about to be answered.
    pub(super) fn note_end(&self, env: &mut Env, result: &Result<Response, Error>, now: Monotonic) {
        let is_slow = |threshold| now.since(self.times.came) >= threshold || self.is_slow;
        if env.knobs.slow.threshold().is_some_and(is_slow) {
            if !self.is_slow {
                self.count_slow(env);
            }
            self.write_line(env, Some(result), now);
        }
    }

    /// A request of another node counts there.
    fn count_slow(&self, env: &mut Env) {
        env.counters.slow += u64::from(!matches!(self.reply_to, ReplyTo::Leader(..)));
    }

    fn write_line(&self, env: &mut Env, result: Option<&Result<Response, Error>>, now: Monotonic) {
        let stages =
            self.stages.as_deref().copied().unwrap_or_else(|| StageClock::begun(self.times.came, self.begun));
        let op = match &self.request {
            Request::Get(_) => SlowOp::Get,
            Request::Delete(_) => SlowOp::Delete,
            _ => SlowOp::Put,
        };
        let bucket = self.request.bucket().expect("it is about a key");
        let key = self.request.key().expect("a missing key was invented");
        let found = match result {
            Some(Ok(Response::Found(found))) => found.value.as_ref().map_or(0, |value| value.len()),
            _ => 0,
        };
        let slow = SlowRequest {
            op,
            bucket: [&bucket.bucket_type, &bucket.name],
            key: Some(key),
            stages: &stages,
            nodes: stages.replicas(now).collect(),
            siblings: None,
            bytes: self.request.value_len() + found,
            waits: result.is_none(),
            error: result.and_then(|result| result.as_ref().err()),
        };
        slow.write(env, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;
    use base::rng::SplitMix64;

    /// Random proposals, replacements, syncs and applied entries, against lists of all writes.
    #[test]
    fn each_write_is_told_of_its_sync_once() {
        for seed in 0..200 {
            let mut rng = SplitMix64::new(seed);
            let (mut proposed, mut last, mut synced, mut applied) =
                (ProposedWrites::default(), 0u64, 0, 0u64);
            let mut waiting: Vec<(u64, u64)> = Vec::new();
            for token in 0..200 {
                match rng.next_u64() % 4 {
                    0 | 1 => {
                        // Now and then entries that are not applied are replaced.
                        let back = if rng.next_u64().is_multiple_of(8) { rng.next_u64() % 4 } else { 0 };
                        let index = last.max(applied) + 1 - back.min(last.saturating_sub(applied));
                        waiting.retain(|(known, _)| *known < index);
                        synced = synced.min(index - 1);
                        waiting.push((index, token));
                        proposed.push(index, token);
                        last = index;
                    }
                    2 => {
                        let through = rng.next_u64() % (last + 1);
                        let told: Vec<u64> = proposed.sync(through).collect();
                        let new = |index: u64| index > synced && index <= through;
                        let expected: Vec<u64> = waiting
                            .iter()
                            .filter(|(index, _)| new(*index))
                            .map(|(_, token)| *token)
                            .collect();
                        assert_eq!(told, expected, "{seed}");
                        synced = synced.max(through);
                    }
                    _ => {
                        applied = applied.max(rng.next_u64() % (last + 1));
                        proposed.apply(applied);
                        waiting.retain(|(index, _)| *index > applied);
                    }
                }
                let all: Vec<u64> = waiting.iter().map(|(_, token)| *token).collect();
                assert_eq!(proposed.through(u64::MAX).collect::<Vec<_>>(), all, "{seed}");
            }
        }
    }
}
