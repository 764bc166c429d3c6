//! The opening of a group, when something is wanted of it.
//!
//! 1. The epoch is decided on ([`ConsistentGroups::epoch_to_open`]): a voter knows it, others get it from a message.
//! 2. The group is made of the state that the store found, or as a new one of the founding. A state of another founding
//!    or epoch, or of an earlier birth of the store, is removed. A state that contradicts its entries means that the
//!    store forgot. A store that the founding does not name begins as a learner, without an entry.
//! 3. It is added, and hears of its peers.
//!
//! Invariants: at most one epoch of a group is open; a group that is left has no record under way.

use std::collections::{BTreeMap, VecDeque};

use base::rng::SplitMix64;
use engine::Seq;
use membership::state::Founding;
use strong::catch_up::{Receiver, ReceiverOutput};
use strong::envelope::GroupId;
use strong::group::{
    Configuration, Group, GroupState, Identity, Input, OpenError, Progress, Stored, VoterId,
};

use super::group::{GroupKey, HeldGroup};
use super::incoming_part::IncomingPart;
use super::journal::drop_keys;
use super::links::voter_of;
use super::slow::ProposedWrites;
use super::stored_state::{KeysRecord, Refused, stored_of};
use super::{ConsistentGroups, GROUPS_MAX, Todo};
use crate::shard::env::Env;
use crate::shard::output::Output as ShardOutput;

/// The number of a founding by which its groups of an epoch are named in messages: those of another epoch are of
/// another number, so members of two epochs do not hear each other.
fn number_of(founding: &Founding, epoch: u16) -> u64 {
    founding.number.wrapping_add(epoch.into())
}

/// The epoch of a group that a message names by such a number; none of another founding, or of an epoch that did not
/// begin yet as far as this founding knows.
fn epoch_in(founding: &Founding, number: u64) -> Option<u16> {
    let epoch = u16::try_from(number.wrapping_sub(founding.number)).ok()?;
    (epoch <= founding.epoch).then_some(epoch)
}

/// The epoch of a group that is named in a message, if the agreement has it.
pub(super) fn epoch_of(env: &Env, id: &GroupId) -> Option<u16> {
    epoch_in(env.agreement.foundings.get(&id.n_val)?, id.founding)
}

impl ConsistentGroups {
    /// The first voters of a group in the order of the prefix's list, if its n_val is founded.
    pub(super) fn first_voters(env: &Env, key: GroupKey) -> Option<Vec<VoterId>> {
        let founding = env.agreement.foundings.get(&key.n_val)?;
        let voters = founding.voters(key.n_val, key.prefix, env.knobs.layout.prefixes);
        Some(voters.into_iter().map(|(node, birth)| VoterId { node, birth }).collect())
    }

    /// The voters that the nodes of a group have now, in the order of the prefix's list: the registered ones, and the
    /// first ones of nodes without a registration.
    pub(super) fn voters(env: &Env, key: GroupKey) -> Option<Vec<VoterId>> {
        let now = |first: VoterId| voter_of(env, first.node, key.prefix).unwrap_or(first);
        Some(Self::first_voters(env, key)?.into_iter().map(now).collect())
    }

    /// The registered ones of some voters.
    pub(super) fn registered(env: &Env, key: GroupKey, voters: &[VoterId]) -> Vec<VoterId> {
        voters.iter().copied().filter(|it| voter_of(env, it.node, key.prefix) == Some(*it)).collect()
    }

    /// Opens a group, unless it is open; whether this store takes part in it.
    pub(super) fn open(&mut self, env: &mut Env, key: GroupKey) -> bool {
        self.open_in(env, key, None)
    }

    /// The same for a message of an epoch: the group is open only if that is the group's.
    pub(super) fn open_in(&mut self, env: &mut Env, key: GroupKey, asked: Option<u16>) -> bool {
        if let Some(held) = self.groups.get(&key) {
            let is_asked = asked.is_none_or(|asked| asked == held.group.epoch());
            if is_asked || !asked.is_some_and(|asked| self.leave_for(key, asked)) {
                return is_asked;
            }
        }
        let may_open = self.is_registered && !self.refused.contains(&key);
        let Some(mut voters) = Self::voters(env, key).filter(|_| may_open) else { return false };
        let here = env.peers.here();
        let own = voters.iter().position(|voter| voter.node == here && Some(voter.birth) == env.birth);
        let Some(rank) = own.filter(|_| self.groups.len() < GROUPS_MAX) else { return false };
        let Some(epoch) = self.epoch_to_open(env, key, voters[rank], asked) else { return false };
        let founding = &env.agreement.foundings[&key.n_val];
        let id = GroupId { n_val: key.n_val, founding: number_of(founding, epoch), prefix: key.prefix };
        let identity = Identity {
            voter: voters[rank],
            rank: u32::try_from(rank).expect("a group has a few voters"),
            founding: founding.number,
        };
        let record = self.dormant.get(key).copied();
        let Some((stored, keys)) = self.take_stored(env, key, identity, epoch) else { return false };
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
                    group.wake(record, Self::voter_of_process(env, record.leader(), key));
                }
                group
            }
            Err(OpenError::Removed) => return false,
            Err(OpenError::Founding { .. } | OpenError::Entries(_)) => {
                self.refuse_group(env, key);
                return false;
            }
        };
        self.add(env, key, (group, id, voters, identity.voter), keys, applied);
        true
    }

    /// Leaves an open group for a later epoch of it, where this store has no vote; whether it did.
    ///
    /// A store whose records of the group are on their way to the disk stays: the leader of the later epoch asks again.
    fn leave_for(&mut self, key: GroupKey, epoch: u16) -> bool {
        let held = &self.groups[&key];
        let is_earlier = held.group.epoch() < epoch;
        let has_vote = held.group.members().has_voter(held.voter);
        let is_busy = held.is_held()
            || !held.inputs.is_empty()
            || !held.part.is_ready()
            || self.journal.has_record_of(key)
            || self.served.has_request_of(key)
            || self.is_scanned(key);
        if !is_earlier || has_vote || is_busy {
            return false;
        }

        if let Some(at) = held.timer {
            self.timers.remove(&(at, key));
        }
        self.groups.remove(&key);
        self.live.remove(key);
        self.memory.note(key, 0);
        self.deletions.forget(key);
        self.todo.retain(|todo| !matches!(todo, Todo::Step(other, _) if *other == key));
        self.left.insert(key);
        true
    }

    /// The epoch in which this store takes part in a group; none if it does not, in the one that is asked for.
    ///
    /// A voter knows its epoch: the founding's first one, or that of its state. Only a recovery of its store begins
    /// another one for it. Any other store gets it from its leader's messages.
    fn epoch_to_open(&self, env: &Env, key: GroupKey, voter: VoterId, asked: Option<u16>) -> Option<u16> {
        let founding = env.agreement.foundings.get(&key.n_val)?;
        let state = self.stored_state(env, key).filter(|state| state.founding == founding.number);
        let is_first = || Self::first_voters(env, key).is_some_and(|first| first.contains(&voter));
        let own = match state {
            Some(state) if state.configuration.has_voter(voter) => Some(state.epoch),
            None if is_first() => Some(0),
            _ => None,
        };
        match own {
            Some(own) => asked.is_none_or(|asked| asked == own).then_some(own),
            // An agreement without recoveries has one epoch.
            None => asked.or((founding.epoch == 0).then_some(0)),
        }
    }

    /// All that the store has of a group that is opened; a new one if that is nothing of this birth and epoch. None if
    /// the group is not opened.
    fn take_stored(
        &mut self,
        env: &mut Env,
        key: GroupKey,
        identity: Identity,
        epoch: u16,
    ) -> Option<(Stored, KeysRecord)> {
        let found = match self.dormant.take(key) {
            Some(record) => Some(Self::found_as_unloaded(env, key, &record).ok_or(Refused::Contradiction)),
            None => self.found.remove(&key).map(Ok),
        };
        let read = |found| stored_of(found, (identity.founding, epoch), identity.voter);
        match found.map(|found| found.and_then(read)) {
            Some(Ok(stored)) => return Some(stored),
            Some(Err(Refused::Contradiction)) => {
                self.refuse_group(env, key);
                return None;
            }
            Some(Err(Refused::Foreign)) => drop(self.left.insert(key)),
            None => {}
        }
        if self.left.contains(&key) {
            // A store that refuses the removal is asked again when the group is opened next.
            env.store.remove_group(key.number()).ok()?;
            self.left.remove(&key);
        }
        // Keys of an earlier epoch may be of writes that the recovery has lost.
        let dropped_at = if epoch > 0 { drop_keys(env, key).ok()? } else { Seq(0) };

        let first = Self::first_voters(env, key)?;
        let configuration = Configuration::of_voters(first).with_learner(identity.voter);
        let new = Stored {
            state: GroupState { epoch, ..GroupState::found(identity.founding, configuration) },
            progress: Progress::FOUNDED,
            base: Progress::FOUNDED.applied,
            entries: Vec::new(),
            suspect_through: None,
            is_incomplete: false,
        };
        Some((new, KeysRecord { checkpoint: None, dropped_at }))
    }

    /// Keeps a group closed whose state contradicts its entries, and tells that the store forgot.
    fn refuse_group(&mut self, env: &mut Env, key: GroupKey) {
        self.refused.insert(key);
        env.out.push(ShardOutput::Forgot);
    }

    /// Adds an open group, and tells it of its peers.
    fn add(
        &mut self,
        env: &mut Env,
        key: GroupKey,
        (group, id, voters, voter): (Group, GroupId, Vec<VoterId>, VoterId),
        KeysRecord { checkpoint, dropped_at }: KeysRecord,
        applied: u64,
    ) {
        let needs_drop = checkpoint.as_ref().is_some_and(|it| it.is_incomplete && it.base == 0);
        let mut outputs: Vec<ReceiverOutput> = Vec::new();
        let receiver = Receiver::open(checkpoint.clone(), applied, &mut outputs);
        let others: Vec<VoterId> = voters.iter().copied().filter(|other| *other != voter).collect();
        let listed = Self::registered(env, key, &voters);
        let held = HeldGroup {
            group,
            id,
            voter,
            voters,
            receiver,
            checkpoint,
            dropped_at,
            part: IncomingPart::default(),
            sender: None,
            senders: BTreeMap::new(),
            timer: None,
            log_bytes: 0,
            outputs: VecDeque::new(),
            inputs: VecDeque::new(),
            known: BTreeMap::new(),
            given_back: None,
            proposed: ProposedWrites::default(),
            was_used: true,
        };
        self.groups.insert(key, held);
        self.live.add(key);
        if needs_drop {
            // A crash may have come between the record and the drop. No part is there yet.
            self.drop_keys_again(env, key);
        }

        if env.gauges.is_stopping {
            self.todo.push_back(Todo::Step(key, Input::Leave));
        }
        self.todo.push_back(Todo::Step(key, Input::Listed { voters: listed }));
        for voter in others {
            let is_up = self.reaches(env, key, voter);
            self.todo.push_back(Todo::Step(key, Input::Reachable { voter, is_up }));
        }
        self.todo.push_back(Todo::Step(key, Input::Registered));
        self.carry_out_received(env, key, outputs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_epoch_of_their_group() {
        let (owners, stores) = (Vec::new().into(), std::sync::Arc::default());
        let founding = Founding { number: u64::MAX, epoch: 2, owners, stores };
        for epoch in 0..=2 {
            assert_eq!(epoch_in(&founding, number_of(&founding, epoch)), Some(epoch));
        }
        assert_eq!(number_of(&founding, 0), founding.number, "the first epoch needs no other number");
        assert_eq!(epoch_in(&founding, number_of(&founding, 3)), None, "it has not begun");
        assert_eq!(epoch_in(&founding, founding.number - 1), None, "another founding");
    }
}
