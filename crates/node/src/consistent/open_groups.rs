//! The groups of this store that are in memory.
//!
//! Invariants: groups are bounded; each noted timer is that of its group; a group that is removed has no timer, and no
//! bytes of its log count.
//!
//! Left out: the opening of a group (`open.rs`), and groups that are not in memory (`closed_groups.rs`).

use std::collections::{BTreeSet, VecDeque};

use base::{FastMap, Monotonic};
use engine::Seq;
use strong::dormant::{LiveGroups, Look};
use strong::group::{Output, WINDOW_BYTES_MAX, Window};

use super::group::{GroupKey, HeldGroup};
use crate::shard::env::Env;

/// Groups in memory at once: some 64 MiB of them. No other one is loaded beyond it.
const GROUPS_MAX: usize = 37_000;

/// Open groups beyond which those at rest are unloaded: room is left for a second of wakes.
const EXCESS_FROM: usize = GROUPS_MAX - strong::wake::WAKES_PER_SECOND;

/// Groups in memory.
pub(super) struct OpenGroups {
    groups: FastMap<GroupKey, HeldGroup>,
    /// The order in which they are looked at for unloading.
    order: LiveGroups<GroupKey>,
    /// The number beyond which those at rest are unloaded.
    excess_from: usize,
    /// Log entries in memory.
    logs: Window<GroupKey>,
    timers: BTreeSet<(Monotonic, GroupKey)>,
    /// The reading of the lease clock when this turn began.
    turn_began: Monotonic,
}

impl Default for OpenGroups {
    fn default() -> OpenGroups {
        OpenGroups {
            groups: FastMap::default(),
            order: LiveGroups::default(),
            excess_from: EXCESS_FROM,
            logs: Window::new(WINDOW_BYTES_MAX),
            timers: BTreeSet::new(),
            turn_began: Monotonic(0),
        }
    }
}

impl OpenGroups {
    pub fn get(&self, key: GroupKey) -> Option<&HeldGroup> {
        self.groups.get(&key)
    }

    pub fn get_mut(&mut self, key: GroupKey) -> Option<&mut HeldGroup> {
        self.groups.get_mut(&key)
    }

    pub fn has(&self, key: GroupKey) -> bool {
        self.groups.contains_key(&key)
    }

    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (GroupKey, &HeldGroup)> {
        self.groups.iter().map(|(key, held)| (*key, held))
    }

    /// Their names, in order.
    pub fn keys(&self) -> Vec<GroupKey> {
        let mut keys: Vec<GroupKey> = self.groups.keys().copied().collect();
        keys.sort_unstable();
        keys
    }

    /// Whether this store leads a group.
    pub fn leads(&self, key: GroupKey) -> bool {
        self.get(key).is_some_and(|held| held.group.leads())
    }

    /// The version with which this voter has dropped a group's keys last; 0 for never.
    pub fn dropped_at(&self, key: GroupKey) -> Seq {
        self.get(key).map_or(Seq(0), |held| held.dropped_at)
    }

    /// The index of the last applied entry of a group that executes a request now.
    pub fn applied(&self, key: GroupKey) -> u64 {
        self.groups[&key].group.applied()
    }

    /// The epoch of a group that executes a request now.
    pub fn epoch(&self, key: GroupKey) -> u16 {
        self.groups[&key].group.epoch()
    }

    /// Whether a group follows, and its keys are those of no index. A catch-up may begin behind the confirmation of a
    /// read.
    pub fn is_in_catch_up(&self, key: GroupKey) -> bool {
        self.get(key).is_some_and(|held| held.checkpoint.is_some() && !held.group.leads())
    }

    /// Whether there is room for one more.
    pub fn have_room(&self) -> bool {
        self.groups.len() < GROUPS_MAX
    }

    /// Adds a group.
    pub fn add(&mut self, key: GroupKey, held: HeldGroup) {
        let before = self.groups.insert(key, held);
        assert!(before.is_none(), "a group is opened once");
        self.order.add(key);
    }

    /// Removes a group that this store leaves.
    pub fn remove(&mut self, key: GroupKey) {
        let Some(held) = self.groups.remove(&key) else { return };
        if let Some(at) = held.timer {
            self.timers.remove(&(at, key));
        }
        self.order.remove(key);
        self.logs.note(key, 0);
    }

    /// Removes all; tells their names.
    pub fn take_all(&mut self) -> Vec<GroupKey> {
        let all = OpenGroups {
            excess_from: self.excess_from,
            turn_began: self.turn_began,
            ..OpenGroups::default()
        };
        std::mem::replace(self, all).groups.into_keys().collect()
    }

    /// Follows a group's timer and the bytes of its log, after a step.
    pub fn follow(&mut self, key: GroupKey) {
        let Some(held) = self.groups.get_mut(&key) else { return };
        let timer = held.group.next_timer();
        if timer != held.timer {
            held.timer.take().map(|at| self.timers.remove(&(at, key)));
            timer.map(|at| self.timers.insert((at, key)));
            held.timer = timer;
        }

        let bytes = held.group.log_bytes();
        if bytes != std::mem::replace(&mut held.log_bytes, bytes) {
            self.logs.note(key, bytes);
            for (other, keeps) in self.logs.over() {
                if let Some(other) = self.groups.get_mut(&other) {
                    other.group.trim(keeps);
                    other.log_bytes = other.group.log_bytes();
                }
            }
        }
    }

    /// Keeps the outputs of a group behind one that waits for the store.
    pub fn hold(&mut self, key: GroupKey, outputs: VecDeque<Output>) {
        self.groups.get_mut(&key).expect("its outputs are carried out").outputs = outputs;
    }

    /// Takes the next group whose time has come and that waits for nothing.
    pub fn take_due(&mut self, now: Monotonic) -> Option<GroupKey> {
        while let Some(&(at, key)) = self.timers.first()
            && at <= now
        {
            self.timers.remove(&(at, key));
            let Some(held) = self.groups.get_mut(&key) else { return Some(key) };
            held.timer = None;
            if !held.is_held() {
                return Some(key);
            }
        }
        None
    }

    /// When the next group has something to do.
    pub fn next_timer(&self) -> Option<Monotonic> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// A turn begins. Groups close promises by a reading that is at most a turn old.
    pub fn begin_turn(&mut self, env: &Env) {
        self.turn_began = env.clock.lease();
        env.leases.tables.advance(self.turn_began);
    }

    /// Whether this store leads a group with a lease, by a reading of the clock that is taken now: the read has come.
    ///
    /// The voters' promises are needed from now on, so their nodes are asked often for a while.
    pub fn serves_read_by_lease(&mut self, env: &mut Env, key: GroupKey) -> bool {
        let Some(held) = self.groups.get_mut(&key).filter(|held| !held.is_held()) else { return false };
        let clock = &env.clock;
        if !held.group.serves_read(self.turn_began, || clock.lease()) {
            return false;
        }
        held.was_used = true;
        let others = held.voters.iter().filter(|voter| **voter != held.voter);
        others.for_each(|voter| env.peers.note_needed(voter.node));
        true
    }

    /// Bounds the groups beyond which those at rest are unloaded.
    pub fn bound(&mut self, most: usize) {
        self.excess_from = most;
    }

    /// Whether groups at rest are to be unloaded.
    pub fn are_too_many(&self) -> bool {
        self.groups.len() > self.excess_from
    }

    /// Has the least recently used groups unloaded that are at rest, as long as there are too many; tells how many.
    /// `unload` keeps the record of a group, and tells whether it could.
    pub fn unload_excess(&mut self, mut unload: impl FnMut(GroupKey, &HeldGroup) -> bool) -> usize {
        let before = self.groups.len();
        let OpenGroups { groups, order, logs, timers, .. } = self;
        order.look(before.saturating_sub(self.excess_from), |key| {
            let Some(held) = groups.get_mut(&key) else { return Look::Leaves };
            if std::mem::take(&mut held.was_used) || !unload(key, held) {
                return Look::Keeps;
            }
            held.timer.map(|at| timers.remove(&(at, key)));
            groups.remove(&key);
            logs.note(key, 0);
            Look::Leaves
        });
        before - self.groups.len()
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self) {
        assert!(self.groups.len() <= GROUPS_MAX, "groups are bounded");
        debug_assert_eq!(
            self.groups.iter().filter_map(|(key, held)| Some((held.timer?, *key))).collect::<BTreeSet<_>>(),
            self.timers,
            "each timer is noted"
        );
    }
}
