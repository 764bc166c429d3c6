//! The opening of a group, when something is wanted of it.
//!
//! 1. The epoch is decided on ([`ClosedGroups::epoch_to_open`]): a voter knows it, others get it from a message.
//! 2. The group is made of the state that the store found, or as a new one of the founding. A state of another founding
//!    or epoch, or of an earlier birth of the store, is removed. A state that contradicts its entries means that the
//!    store forgot. A store that the founding does not name begins as a learner, without an entry.
//! 3. It is added, and hears of its peers.
//!
//! Invariants: at most one epoch of a group is open; a group that is left has no record under way.
//!
//! [`ClosedGroups::epoch_to_open`]: super::closed_groups::ClosedGroups::epoch_to_open

use base::rng::SplitMix64;
use strong::catch_up::{Receiver, ReceiverOutput};
use strong::envelope::GroupId;
use strong::group::{Group, Identity, Input, OpenError};

use super::ConsistentGroups;
use super::context::SharedParts;
use super::group::{GroupKey, HeldGroup};
use super::reach::Reachability;
use super::receive::drop_keys_again;
use super::stored_state::KeysRecord;
use super::voters::{number_of, registered, voter_of, voter_of_process, voters};
use super::work::GroupWork;
use crate::shard::env::Env;

impl ConsistentGroups {
    /// Opens a group, unless it is open; whether this store takes part in it.
    ///
    /// `asked`: the epoch of a message; the group is open only if that is the group's.
    pub(super) fn open_in(&mut self, env: &mut Env, key: GroupKey, asked: Option<u16>) -> bool {
        if let Some(held) = self.shared.groups.get(key) {
            let is_asked = asked.is_none_or(|asked| asked == held.group.epoch());
            if is_asked || !asked.is_some_and(|asked| self.leave_for(key, asked)) {
                return is_asked;
            }
        }
        let may_open = self.registration.is_in_force() && !self.closed.is_refused(key);
        let Some(mut voters) = voters(env, key).filter(|_| may_open) else { return false };
        let here = env.peers.here();
        let own = voters.iter().position(|voter| voter.node == here && Some(voter.birth) == env.birth);
        let Some(rank) = own.filter(|_| self.shared.groups.have_room()) else { return false };
        let Some(epoch) = self.closed.epoch_to_open(env, key, voters[rank], asked) else { return false };
        let founding = &env.agreement.foundings[&key.n_val];
        let id = GroupId { n_val: key.n_val, founding: number_of(founding, epoch), prefix: key.prefix };
        let identity = Identity {
            voter: voters[rank],
            rank: u32::try_from(rank).expect("a group has a few voters"),
            founding: founding.number,
        };

        let record = self.closed.record(key).copied();
        let Some((stored, keys)) = self.closed.take(env, key, identity, epoch) else { return false };
        let applied = stored.progress.applied.0;
        for voter in voters.iter_mut().filter(|it| voter_of(env, it.node, key.prefix).is_none()) {
            // Its process registers soon. The group's state has its voter then.
            let mut members = stored.state.configuration.voters.iter();
            *voter = members.find(|member| member.node == voter.node).copied().unwrap_or(*voter);
        }
        let rng = Box::new(SplitMix64::new(env.rng.next_u64()));
        let group = match Group::open(identity, stored, rng) {
            Ok(mut group) => {
                group.use_leases(env.leases.tables.clone(), env.leases.reads);
                if let Some(record) = &record {
                    group.wake(record, voter_of_process(env, record.leader(), key));
                }
                group
            }
            Err(OpenError::Removed) => return false,
            Err(OpenError::Founding { .. } | OpenError::Entries(_)) => {
                self.closed.refuse(env, key);
                return false;
            }
        };

        let KeysRecord { checkpoint, dropped_at } = keys;
        let mut outputs: Vec<ReceiverOutput> = Vec::new();
        let receiver = Receiver::open(checkpoint.clone(), applied, &mut outputs);
        let held = HeldGroup::new(group, id, identity.voter, voters, receiver);
        self.shared.groups.add(key, HeldGroup { checkpoint, dropped_at, ..held });
        drop_keys_again(&mut self.shared.with(env), key);
        let SharedParts { groups, work, .. } = &mut self.shared;
        if let Some(held) = groups.get(key) {
            tell_peers(env, &self.reach, work, (key, held));
        }
        self.carry_out_received(env, key, outputs);
        true
    }

    /// Leaves an open group for a later epoch of it, where this store has no vote; whether it did.
    ///
    /// A store whose records of the group are on their way to the disk stays: the leader of the later epoch asks again.
    fn leave_for(&mut self, key: GroupKey, epoch: u16) -> bool {
        let Some(held) = self.shared.groups.get(key) else { return false };
        let is_earlier = held.group.epoch() < epoch;
        let has_vote = held.group.members().has_voter(held.voter);
        let is_busy = held.is_held()
            || !held.inputs.is_empty()
            || !held.part.is_ready()
            || self.journal.has_record_of(key)
            || self.requests.are_served_by(key)
            || self.shared.lookups.has_one_of(key)
            || self.reapings.is_searching(key);
        if !is_earlier || has_vote || is_busy {
            return false;
        }

        self.shared.groups.remove(key);
        self.reapings.forget(key);
        self.shared.work.forget(key);
        self.closed.leave(key);
        true
    }
}

/// Tells a group that was just opened of its peers.
fn tell_peers(env: &Env, reach: &Reachability, work: &mut GroupWork, (key, held): (GroupKey, &HeldGroup)) {
    if env.gauges.is_stopping {
        work.step(key, Input::Leave);
    }
    work.step(key, Input::Listed { voters: registered(env, key, &held.voters) });
    for &voter in held.voters.iter().filter(|voter| **voter != held.voter) {
        work.step(key, Input::Reachable { voter, is_up: reach.reaches(env, key, voter) });
    }
    work.step(key, Input::Registered);
}
