//! The groups of this store that are not in memory: as the store's open found them, at rest, left or refused.
//!
//! * *Found.* Groups as the store's open found them, until they take part.
//! * *Dormant.* Groups at rest that have left memory. A message, a request or a wake loads one from the store's state,
//!   and puts the record's leader into its vote guard. A message to one that has no room is answered from its record,
//!   if a voter waits for that.
//! * *Left.* Groups whose states are of an earlier birth of the store, or of another founding or epoch. These states
//!   are removed before the groups are opened again.
//! * *Refused.* Groups whose states contradict their entries: they stay closed for this birth.
//!
//! Invariant: a dormant group has no request, no timer, and no record on its way to the disk.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use engine::{FoundGroup, Seq};
use strong::dormant::{DormantGroup, DormantGroups};
use strong::envelope::GroupId;
use strong::group::{Configuration, GroupState, Identity, Progress, Stored, VoterId};

use super::group::{GroupKey, HeldGroup};
use super::keys::drop_keys;
use super::links::GroupLinks;
use super::stored_state::{KeysRecord, Refused, read_state, stored_of};
use super::voters::{first_voters, voters};
use crate::peer::NodeId;
use crate::shard::env::Env;
use crate::shard::output::Output;

/// What the store has of a group that is not in memory.
pub(super) enum ClosedGroup<'a> {
    /// As its open found it.
    Found(&'a FoundGroup),
    /// As it was unloaded.
    Unloaded(FoundGroup),
    /// A state that contradicts its entries, or that the store has lost.
    Refused,
}

/// Groups that are not in memory.
#[derive(Default)]
pub(super) struct ClosedGroups {
    found: BTreeMap<GroupKey, FoundGroup>,
    dormant: DormantGroups<GroupKey>,
    left: BTreeSet<GroupKey>,
    refused: BTreeSet<GroupKey>,
}

impl ClosedGroups {
    /// Those of a store that was just opened.
    pub fn of(found: Vec<FoundGroup>) -> ClosedGroups {
        let found = found.into_iter().map(|group| (GroupKey::of_number(group.group), group)).collect();
        ClosedGroups { found, ..ClosedGroups::default() }
    }

    /// Found groups with entries that are not applied, in order.
    pub fn found_with_entries(&self) -> impl Iterator<Item = GroupKey> {
        let has_entries =
            |found: &FoundGroup| !found.entries.is_empty() || found.commit > found.applied.index;
        self.found.iter().filter(move |(_, found)| has_entries(found)).map(|(key, _)| *key)
    }

    /// The record of a dormant group.
    pub fn record(&self, key: GroupKey) -> Option<&DormantGroup> {
        self.dormant.get(key)
    }

    /// The dormant groups, with their records.
    pub fn records(&self) -> impl Iterator<Item = (GroupKey, &DormantGroup)> {
        self.dormant.iter()
    }

    pub fn has_dormant(&self) -> bool {
        !self.dormant.is_empty()
    }

    /// Keeps the record of a group that has left memory.
    pub fn add_record(&mut self, key: GroupKey, record: DormantGroup) {
        self.dormant.add(key, record);
    }

    /// The dormant groups that a node led in another life than a given one: it leads them no more.
    pub fn led_by(&self, node: NodeId, life: Option<u64>) -> Vec<GroupKey> {
        let mut led = self.dormant.led_by(node);
        led.retain(|key| self.dormant.get(*key).map(|record| record.leader().life) != life);
        led
    }

    /// The dormant groups that this store led, each with its voter of a node.
    pub fn led_with(&self, env: &Env, node: NodeId) -> Vec<(GroupKey, VoterId)> {
        let led = self.dormant.led_by(env.peers.here()).into_iter();
        let voter = |key| voters(env, key)?.into_iter().find(|voter| voter.node == node);
        led.filter_map(|key| Some((key, voter(key)?))).collect()
    }

    /// Answers a message to a group that could not be loaded.
    pub fn answer(
        &self,
        env: &Env,
        links: &mut GroupLinks,
        (from, id): (NodeId, GroupId),
        key: GroupKey,
        message: Bytes,
    ) {
        if self.dormant.get(key).is_none() {
            return;
        }
        if let Some(answer) = strong::dormant::answer(env.leases.tables.here(), message) {
            links.send_to_node(env, (key, id), from, answer);
        }
    }

    /// All that the store has of a group; none if that is nothing.
    pub fn get(&self, env: &Env, key: GroupKey) -> Option<ClosedGroup<'_>> {
        if self.refused.contains(&key) {
            return Some(ClosedGroup::Refused);
        }
        if let Some(record) = self.dormant.get(key) {
            let found = found_as_unloaded(env, key, record);
            return Some(found.map_or(ClosedGroup::Refused, ClosedGroup::Unloaded));
        }
        self.found.get(&key).map(ClosedGroup::Found)
    }

    /// A group as the store's open found it.
    pub fn found(&self, key: GroupKey) -> Option<&FoundGroup> {
        self.found.get(&key)
    }

    /// Replaces a found group by one that was adopted.
    pub fn replace_found(&mut self, key: GroupKey, found: FoundGroup) {
        self.found.insert(key, found);
    }

    /// The state that the store has of a group.
    pub fn stored_state(&self, env: &Env, key: GroupKey) -> Option<GroupState> {
        let bytes = match self.dormant.get(key) {
            Some(_) => env.store.group(key.number())?.state,
            None => self.found.get(&key)?.state.clone(),
        };
        read_state(&bytes?).ok().map(|stored| stored.state)
    }

    /// The epoch in which this store takes part in a group; none if it does not, in the one that is asked for.
    ///
    /// A voter knows its epoch: the founding's first one, or that of its state. Only a recovery of its store begins
    /// another one for it. Any other store gets it from its leader's messages.
    pub fn epoch_to_open(&self, env: &Env, key: GroupKey, voter: VoterId, asked: Option<u16>) -> Option<u16> {
        let founding = env.agreement.foundings.get(&key.n_val)?;
        let state = self.stored_state(env, key).filter(|state| state.founding == founding.number);
        let is_first = || first_voters(env, key).is_some_and(|first| first.contains(&voter));
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

    /// Takes all that the store has of a group that is opened; a new one if that is nothing of this birth and epoch.
    /// None if the group is not opened.
    pub fn take(
        &mut self,
        env: &mut Env,
        key: GroupKey,
        identity: Identity,
        epoch: u16,
    ) -> Option<(Stored, KeysRecord)> {
        let found = match self.dormant.take(key) {
            Some(record) => Some(found_as_unloaded(env, key, &record).ok_or(Refused::Contradiction)),
            None => self.found.remove(&key).map(Ok),
        };
        let read = |found| stored_of(found, (identity.founding, epoch), identity.voter);
        match found.map(|found| found.and_then(read)) {
            Some(Ok(stored)) => return Some(stored),
            Some(Err(Refused::Contradiction)) => {
                self.refuse(env, key);
                return None;
            }
            Some(Err(Refused::Foreign)) => self.leave(key),
            None => {}
        }
        if self.left.contains(&key) {
            // A store that refuses the removal is asked again when the group is opened next.
            env.store.remove_group(key.number()).ok()?;
            self.left.remove(&key);
        }
        // Keys of an earlier epoch may be of writes that the recovery has lost.
        let dropped_at = if epoch > 0 { drop_keys(env, key).ok()? } else { Seq(0) };

        let first = first_voters(env, key)?;
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
    pub fn refuse(&mut self, env: &mut Env, key: GroupKey) {
        self.refused.insert(key);
        env.out.push(Output::Forgot);
    }

    pub fn is_refused(&self, key: GroupKey) -> bool {
        self.refused.contains(&key)
    }

    /// Notes a group whose state is to be removed.
    pub fn leave(&mut self, key: GroupKey) {
        self.left.insert(key);
    }

    /// The store is another voter from now on: it leaves its groups, those that were open and all that are known here.
    pub fn leave_all(&mut self, open: Vec<GroupKey>) {
        self.left.extend(open);
        self.left.extend(self.dormant.take_all());
        self.left.append(&mut self.refused);
    }
}

/// All that the store has of a dormant group. None if that is not what it had when the group was unloaded: then it
/// has lost something.
fn found_as_unloaded(env: &Env, key: GroupKey, record: &DormantGroup) -> Option<FoundGroup> {
    let found = env.store.group(key.number())?;
    let state = read_state(found.state.as_ref()?).ok()?.state;
    let is_same = found.applied.index == record.last() && state.hard.term == record.term();
    (is_same && found.entries.is_empty()).then_some(found)
}

/// Whether the store has all of an open group, and nothing else of it.
pub(super) fn is_stored_whole(env: &Env, key: GroupKey, held: &HeldGroup) -> bool {
    let Some(found) = env.store.group(key.number()) else { return false };
    let Some(Ok(stored)) = found.state.as_ref().map(read_state) else { return false };
    held.group.is_kept(&stored.state)
        && stored.checkpoint.is_none()
        && stored.dropped_at == held.dropped_at
        && held.group.applied_entry() == Some((found.applied.index, found.applied.term))
        && found.commit == found.applied.index
        && found.entries.is_empty()
        && found.suspect_through.is_none()
}
