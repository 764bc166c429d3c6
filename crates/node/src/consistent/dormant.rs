//! Groups at rest that leave memory, and come back.
//!
//! 1. When a shard has more live groups than its bound and no work of them is queued, the least recently used ones are
//!    looked at. One at rest, of which the store has all, leaves a record.
//! 2. A message, a request or a wake loads a group from the store's state, and puts the record's leader into its vote
//!    guard (`group.rs`).
//! 3. When the process of a leader ends, the dormant groups that it led are woken, as live ones are (`peers.rs`). So
//!    are those that this store led and that settled while a voter was away, when that one is back.
//! 4. A message to a group that has no room is answered from its record, if a voter waits for that.
//!
//! Invariant: a dormant group has no request, no timer, and no record on its way to the disk.

use bytes::Bytes;
use engine::FoundGroup;
use strong::dormant::{DormantGroup, Look};
use strong::envelope::GroupId;
use strong::group::{GroupState, VoterId};
use strong::promise::Process;
use strong::wake::Urgency;

use super::ConsistentGroups;
use super::group::{GroupKey, HeldGroup};
use super::links::voter_of;
use super::report::{GroupReport, GroupRole};
use super::stored_state::read_state;
use crate::peer::NodeId;
use crate::shard::env::Env;

impl ConsistentGroups {
    /// Bounds the live groups beyond which those at rest are unloaded.
    pub fn bound_live_groups(&mut self, most: usize) {
        self.live_max = most;
    }

    /// Unloads groups at rest, as long as there are more live ones than the bound. No work is queued.
    pub(super) fn unload_excess(&mut self, env: &mut Env) {
        let before = self.groups.len();
        let mut live = std::mem::take(&mut self.live);
        live.look(before.saturating_sub(self.live_max), |key| self.unload_unless_used(env, key));
        self.live = live;
        env.counters.consistent_unloads += (before - self.groups.len()) as u64;
    }

    fn unload_unless_used(&mut self, env: &Env, key: GroupKey) -> Look {
        let Some(held) = self.groups.get_mut(&key) else { return Look::Leaves };
        if std::mem::take(&mut held.was_used) {
            return Look::Keeps;
        }
        let Some(record) = self.record_of(env, key) else { return Look::Keeps };
        self.groups.remove(&key);
        self.memory.note(key, 0);
        self.dormant.add(key, record);
        Look::Leaves
    }

    /// The record of a live group that may be unloaded.
    fn record_of(&self, env: &Env, key: GroupKey) -> Option<DormantGroup> {
        let held = self.groups.get(&key)?;
        // A leader is marked for exactly the voters that are away: one that is back has not settled yet.
        let mut others = held.voters.iter().copied().filter(|voter| *voter != held.voter);
        let is_settled = |voter: VoterId| self.marked.is_marked(key, voter) != held.group.reaches(voter);
        let is_awaited = held.group.leads() && !others.all(is_settled);
        // A follower reaps nothing by itself.
        let is_reaping = held.group.leads() && self.deletions.has(key);
        let has_work = !held.is_idle() || self.waiting.has(key) || self.journal.has_record_of(key);
        if is_awaited || is_reaping || has_work {
            return None;
        }
        let record = held.group.dormant()?;
        let found = env.store.group(key.number())?;
        is_whole(held, &found).then_some(record)
    }

    /// The state that the store has of a group that is not live.
    pub(super) fn stored_state(&self, env: &Env, key: GroupKey) -> Option<GroupState> {
        let bytes = match self.dormant.get(key) {
            Some(_) => env.store.group(key.number())?.state,
            None => self.found.get(&key)?.state.clone(),
        };
        read_state(&bytes?).ok().map(|stored| stored.state)
    }

    /// All that the store has of a dormant group. None if that is not what it had when the group was unloaded: then it
    /// has lost something.
    pub(super) fn found_as_unloaded(env: &Env, key: GroupKey, record: &DormantGroup) -> Option<FoundGroup> {
        let found = env.store.group(key.number())?;
        let state = read_state(found.state.as_ref()?).ok()?.state;
        let is_same = found.applied.index == record.last() && state.hard.term == record.term();
        (is_same && found.entries.is_empty()).then_some(found)
    }

    /// The voter that a process is in a group; none if the cluster has registered another one of its node.
    pub(super) fn voter_of_process(env: &Env, process: Process, key: GroupKey) -> Option<VoterId> {
        let registered = env.agreement.processes.get(&process.node)?;
        (registered.life == process.life).then(|| voter_of(env, process.node, key.prefix)).flatten()
    }

    /// Queues the dormant groups that a node led in another life than a given one: it leads them no more.
    pub(super) fn wake_led_by(&mut self, node: NodeId, life: Option<u64>) {
        if base::planted!(DormantNotWoken) {
            return;
        }
        for key in self.dormant.led_by(node) {
            let led = self.dormant.get(key).map(|record| record.leader().life);
            if led != life {
                self.leaderless.push(key, Urgency::Other);
            }
        }
    }

    /// The dormant groups that this store led, each with its voter of a node.
    pub(super) fn dormant_with(&self, env: &Env, node: NodeId) -> Vec<(GroupKey, VoterId)> {
        let led = self.dormant.led_by(env.peers.here()).into_iter();
        let voter = |key| Self::voters(env, key)?.into_iter().find(|voter| voter.node == node);
        led.filter_map(|key| Some((key, voter(key)?))).collect()
    }

    /// Answers a message to a group that could not be loaded.
    pub(super) fn answer_dormant(
        &mut self,
        env: &Env,
        (from, id): (NodeId, GroupId),
        key: GroupKey,
        message: Bytes,
    ) {
        if self.dormant.get(key).is_none() {
            return;
        }
        if let Some(answer) = strong::dormant::answer(env.leases.tables.here(), message) {
            self.send_of(env, (key, id), from, answer);
        }
    }

    /// The reports of dormant groups.
    pub(super) fn dormant_reports(&self, env: &Env) -> impl Iterator<Item = GroupReport> {
        let here = env.leases.tables.here();
        self.dormant.iter().map(move |(key, record)| {
            let (leader, last) = (record.leader(), record.last());
            let reaches = |voter| self.reaches(env, key, voter);
            GroupReport {
                n_val: key.n_val,
                prefix: key.prefix,
                role: if leader == here { GroupRole::Leader } else { GroupRole::Follower },
                term: record.term(),
                leader: Some(leader.node),
                has_leader: Self::voter_of_process(env, leader, key).is_some_and(reaches),
                applied: last,
                commit: last,
                last,
                is_settled: true,
                is_suspect: false,
                has_forgotten: false,
                is_incomplete: false,
                is_unreadable: false,
                is_leased: false,
                is_dormant: true,
            }
        })
    }
}

/// Whether the store has all of a group, and nothing else of it.
fn is_whole(held: &HeldGroup, found: &FoundGroup) -> bool {
    let Some(Ok(stored)) = found.state.as_ref().map(read_state) else { return false };
    held.group.is_kept(&stored.state)
        && stored.checkpoint.is_none()
        && stored.dropped_at == held.dropped_at
        && held.group.applied_entry() == Some((found.applied.index, found.applied.term))
        && found.commit == found.applied.index
        && found.entries.is_empty()
        && found.suspect_through.is_none()
}
