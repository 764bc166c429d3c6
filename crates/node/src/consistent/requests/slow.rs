//! Slow requests on consistent types: their stages.
//!
//! 1. A request that waits notes its stage ([`Pending`]).
//! 2. The shard looks at those that may have come to be slow, and writes a line about each.
//!
//! A write's entry is known by its index in the log of its group ([`ProposedWrites`]), so the sync of a batch finds the
//! requests that it is about without a look at others.
//!
//! [`ProposedWrites`]: crate::consistent::proposed_writes::ProposedWrites

use base::Monotonic;
use engine::Want;

use super::GroupRequests;
use crate::consistent::group::GroupKey;
use crate::consistent::lookups::Lookups;
use crate::consistent::open_groups::OpenGroups;
use crate::consistent::pending::Pending;
use crate::frontdoor::slow::SlowStage;
use crate::shard::env::Env;

impl GroupRequests {
    /// A request begins to wait.
    pub fn note_wait(&mut self, env: &mut Env, pending: &mut Pending, stage: SlowStage) {
        if env.knobs.slow.threshold().is_none() {
            return;
        }
        pending.enter(stage, env.recent());
        if !pending.is_slow {
            self.looks.note(env, pending.times.came);
        }
    }

    /// A request waits for the disk.
    pub fn note_lookup(&mut self, env: &mut Env, pending: &mut Pending, want: Want) {
        let stage = if want == Want::Head { SlowStage::Head } else { SlowStage::Disk };
        self.note_wait(env, pending, stage);
    }

    /// A write was given to its group: it waits for the sync of its entry here. `of`: the index that the entry may have
    /// got, and the token of the request.
    pub fn note_proposed(&mut self, env: &Env, groups: &mut OpenGroups, key: GroupKey, of: (u64, u64)) {
        if env.knobs.slow.threshold().is_none() {
            return;
        }
        let (index, token) = of;
        let Some(held) = groups.get_mut(key) else { return };
        if held.group.last().0 >= index {
            held.proposed.push(index, token);
        } else if let Some(pending) = self.served.pending_mut(token) {
            // A condition that does not hold is confirmed as a read.
            pending.enter(SlowStage::Majority, env.recent());
        }
    }

    /// The entries of a group up to this one are synced here: their requests wait for a majority.
    pub fn note_synced(&mut self, env: &Env, groups: &mut OpenGroups, key: GroupKey, through: u64) {
        let Some(held) = groups.get_mut(key) else { return };
        for token in held.proposed.sync(through) {
            if let Some(pending) = self.served.pending_mut(token) {
                pending.enter(SlowStage::Majority, env.recent());
            }
        }
    }

    /// Committed entries up to this one cannot be applied yet.
    pub fn note_unapplied(&mut self, env: &Env, groups: &OpenGroups, key: GroupKey, through: u64) {
        let Some(held) = groups.get(key) else { return };
        for token in held.proposed.through(through) {
            if let Some(pending) = self.served.pending_mut(token) {
                pending.enter(SlowStage::Apply, env.recent());
            }
        }
    }

    /// Writes a line about each request that has come to be slow, as far as there is room.
    pub fn look_for_slow(&mut self, env: &mut Env, lookups: &mut Lookups, now: Monotonic) {
        let Some(came_max) = self.looks.begin(env, now) else { return };
        let mut first: Option<Monotonic> = None;
        let GroupRequests { waiting, served, asked, looks, .. } = self;
        let here = waiting.pendings_mut().chain(served.pendings_mut()).chain(lookups.pendings_mut());
        let all = here.chain(asked.pendings_mut());
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
