//! One group with its store's part: the machine, the ends of its catch-ups, and inputs that wait.
//!
//! A group is opened when something is wanted of it: from the state that the store found, or as a new one of the
//! founding. A state of another founding or epoch, or of an earlier birth of the store, is removed. A state that
//! contradicts its entries means that the store forgot. A store that the founding does not name begins as a learner,
//! without an entry.

use std::collections::{BTreeMap, VecDeque};

use base::Monotonic;
use base::rng::SplitMix64;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use engine::{FoundContents, FoundEntry, FoundGroup, GroupNumber, LogPlace, Seq};
use kv::consistent::{join_object, version_of};
use membership::state::Founding;
use protocol::peer::{Malformed, Reader};
use strong::catch_up::{Checkpoint, Receiver, ReceiverOutput, Sender};
use strong::envelope::GroupId;
use strong::group::{
    Configuration, Entry, Group, GroupState, Identity, Input, OpenError, Output, Payload, Progress, Stored,
    VoterId, Write,
};

use super::incoming_part::IncomingPart;
use super::journal::drop_keys;
use super::links::voter_of;
use super::slow::ProposedWrites;
use super::{ConsistentGroups, GROUPS_MAX, Todo};
use crate::peer::NodeId;
use crate::shard::env::Env;
use crate::shard::output::Output as ShardOutput;

/// A group of this store: the keys of a prefix in the consistent types of an n_val.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct GroupKey {
    pub n_val: u8,
    pub prefix: u16,
}

impl GroupKey {
    /// As the engine names it.
    pub fn number(self) -> GroupNumber {
        GroupNumber(u64::from(self.n_val) << 16 | u64::from(self.prefix))
    }

    /// Of the engine's name for it.
    pub fn of_number(GroupNumber(number): GroupNumber) -> GroupKey {
        let [low, high, n_val, ..] = number.to_le_bytes();
        GroupKey { n_val, prefix: u16::from_le_bytes([low, high]) }
    }
}

/// A group in memory.
pub(super) struct HeldGroup {
    pub group: Group,
    pub id: GroupId,
    /// The voter that this store is.
    pub voter: VoterId,
    /// The voters that its nodes have now, as far as is known, in the order of the prefix's list.
    pub voters: Vec<VoterId>,
    /// The receiving end of a catch-up.
    pub receiver: Receiver,
    /// The receiver's record of a catch-up, as it was handed out last. It is written with the group's state.
    pub checkpoint: Option<Checkpoint>,
    /// The version with which this voter has dropped the group's keys last; 0 for never. The store lost nothing of them
    /// before. It is written with the group's state.
    pub dropped_at: Seq,
    /// The part that it receives now.
    pub part: IncomingPart,
    /// The node that sends the catch-up.
    pub sender: Option<NodeId>,
    /// The sending ends of catch-ups.
    pub senders: BTreeMap<VoterId, Sender>,
    /// The timer that is noted.
    pub timer: Option<Monotonic>,
    /// Bytes of the log that are noted.
    pub log_bytes: usize,
    /// Outputs behind one that waits for the store; the first one waits.
    pub outputs: VecDeque<Output>,
    /// Inputs that came meanwhile.
    pub inputs: VecDeque<Input>,
    /// Versions of keys whose entries are about to be applied, as the ledger has them.
    pub known: BTreeMap<Bytes, Option<u64>>,
    /// When its preferred voter was asked last to lead.
    pub given_back: Option<Monotonic>,
    /// Writes of requests that are not applied, for the log of slow requests.
    pub proposed: ProposedWrites,
    /// It was used since it was looked at for unloading.
    pub was_used: bool,
}

impl HeldGroup {
    /// Whether an output waits for the store.
    pub fn is_held(&self) -> bool {
        !self.outputs.is_empty()
    }

    /// Whether nothing of the store's part in it is under way, but for the reaping of tombstones.
    pub fn is_idle(&self) -> bool {
        self.outputs.is_empty()
            && self.inputs.is_empty()
            && self.checkpoint.is_none()
            && self.senders.is_empty()
    }

    /// Whether a request has somewhere to go: this store leads and is ready, or another one leads.
    pub fn has_leader(&self) -> bool {
        match self.group.leader() {
            Some(leader) if leader == self.voter => {
                let early = [base::planted!(ReadBeforeNoop), base::planted!(ConditionBeforeNoop)];
                self.group.can_serve() || early.contains(&true) && self.group.leads()
            }
            Some(leader) => self.group.reaches(leader),
            None => false,
        }
    }

    /// Whether this store, which follows, may serve a read that the leader confirms. In a catch-up its keys are those
    /// of no index.
    pub fn serves_reads(&self) -> bool {
        self.checkpoint.is_none() && !self.is_held() && self.group.can_ask_leader()
    }

    /// The bytes of its state as the store keeps them.
    pub fn stored_state(&self, state: &GroupState) -> Bytes {
        put_state(state, self.checkpoint.as_ref(), self.dropped_at)
    }
}

/// A group's state as its store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredState {
    pub state: GroupState,
    /// The record of a catch-up.
    pub checkpoint: Option<Checkpoint>,
    /// The version of the last drop of the group's keys; 0 for none.
    pub dropped_at: Seq,
}

/// The byte before the version of a drop. Versions of checkpoints, which may stand in its place, are lower.
const DROP_MARK: u8 = 0x80;

/// The stored bytes of a state: the length of the group's state (u16), the group's state, the version of the last drop
/// of the group's keys and the record of a catch-up, if there are such.
pub(super) fn put_state(state: &GroupState, checkpoint: Option<&Checkpoint>, dropped_at: Seq) -> Bytes {
    let state = state.encode();
    let mut out = BytesMut::with_capacity(2 + state.len());
    out.put_u16_le(u16::try_from(state.len()).expect("a state has a few voters"));
    out.put_slice(&state);
    if dropped_at > Seq(0) {
        out.put_u8(DROP_MARK);
        out.put_u64_le(dropped_at.0);
    }
    if let Some(checkpoint) = checkpoint.map(Checkpoint::encode).filter(|it| it.len() <= CHECKPOINT_MAX) {
        out.put_slice(&checkpoint);
    }
    out.freeze()
}

/// Bytes of a catch-up's record beside the group's state: the engine takes 4 KiB together. The place of a longer key is
/// not written; a start then goes on at the place before.
const CHECKPOINT_MAX: usize = 3 << 10;

/// The group's state, of stored bytes.
pub(super) fn read_state(bytes: &Bytes) -> Result<StoredState, Malformed> {
    let mut fields = Reader::new(bytes.clone());
    let len = usize::from(fields.u16()?);
    let mut rest = fields.rest();
    if len > rest.len() {
        return Err(Malformed("the state of a group is cut off"));
    }
    let state = GroupState::read(rest.slice(..len))?;
    rest.advance(len);
    let mut dropped_at = Seq(0);
    if rest.first() == Some(&DROP_MARK) {
        let mut fields = Reader::new(rest.slice(1..));
        dropped_at = Seq(fields.u64()?);
        rest = fields.rest();
    }
    let checkpoint = if rest.is_empty() { None } else { Some(Checkpoint::read(rest)?) };
    Ok(StoredState { state, checkpoint, dropped_at })
}

/// The epoch of a group's state, of stored bytes.
pub(super) fn read_epoch(bytes: &[u8]) -> Option<u16> {
    GroupState::epoch_of(bytes.get(size_of::<u16>()..)?)
}

/// The entry of a log, of an entry that the store found.
pub(super) fn entry_of(found: FoundEntry) -> Result<Entry, Malformed> {
    let payload = match found.contents {
        FoundContents::Other(bytes) => Payload::read(bytes)?,
        FoundContents::Put { key, head, value } => {
            let is_tombstone = matches!(version_of(&head), Ok(None));
            let object = (!is_tombstone).then(|| join_object(&head, &value));
            Payload::Write(Write { key, object })
        }
    };
    Ok(Entry { index: found.place.index, term: found.place.term, payload })
}

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

/// The part of a stored state that is about the group's keys.
#[derive(Default)]
struct KeysRecord {
    checkpoint: Option<Checkpoint>,
    dropped_at: Seq,
}

/// The reason why a found group does not take part.
enum Refused {
    /// Its state is of another founding or epoch, or of an earlier birth of the store.
    Foreign,
    /// Its state was lost, or contradicts its entries.
    Contradiction,
}

/// All that the store kept of a group, for the machine. A state that does not name the voter is one of an earlier
/// birth.
fn stored_of(
    found: FoundGroup,
    (founding, epoch): (u64, u16),
    voter: VoterId,
) -> Result<(Stored, KeysRecord), Refused> {
    let bytes = found.state.as_ref().ok_or(Refused::Contradiction)?;
    let StoredState { state, checkpoint, dropped_at } =
        read_state(bytes).map_err(|_| Refused::Contradiction)?;
    if (state.founding, state.epoch) != (founding, epoch) || !state.configuration.has(voter) {
        return Err(Refused::Foreign);
    }
    let entries: Result<Vec<Entry>, Malformed> = found.entries.into_iter().map(entry_of).collect();
    let base = (found.applied.index, found.applied.term);
    let stored = Stored {
        state,
        progress: Progress { applied: base, commit: found.commit.max(base.0) },
        base,
        entries: entries.map_err(|_| Refused::Contradiction)?,
        suspect_through: found.suspect_through,
        is_incomplete: checkpoint.as_ref().is_some_and(|known| known.is_incomplete),
    };
    Ok((stored, KeysRecord { checkpoint, dropped_at }))
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

/// The place of an entry, as the engine names it.
pub(super) fn place_of((index, term): (u64, u64)) -> LogPlace {
    LogPlace { index, term }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strong::catch_up::Place;

    #[test]
    fn a_stored_state_has_the_records_of_its_keys_behind_it() {
        let voter = VoterId::of_number(0x1_0000_0000_0007).expect("it has a birth");
        let state = GroupState::found(9, Configuration::of_voters([voter]));
        let place = Place::Key(Bytes::from_static(b"k"));
        let checkpoint =
            Checkpoint { number: 5, base: 1, is_incomplete: false, place, snapshot: (2, 1), left_out: 0 };
        let plain = put_state(&state, None, Seq(0));
        let both = put_state(&state, Some(&checkpoint), Seq(0));
        assert_eq!(plain[..2], u16::try_from(state.encode().len()).expect("it is short").to_le_bytes());
        assert_eq!(both, [&plain[..], &checkpoint.encode()].concat());
        let stored = |checkpoint, dropped_at| StoredState { state: state.clone(), checkpoint, dropped_at };
        assert_eq!(read_state(&plain), Ok(stored(None, Seq(0))));
        assert_eq!(read_epoch(&plain), Some(state.epoch));
        assert_eq!(read_state(&both), Ok(stored(Some(checkpoint.clone()), Seq(0))));
        for len in (0..both.len()).filter(|len| *len != plain.len()) {
            assert!(read_state(&both.slice(..len)).is_err(), "{len} bytes");
        }

        let dropped = put_state(&state, None, Seq(0x0102));
        assert_eq!(dropped, [&plain[..], b"\x80\x02\x01\0\0\0\0\0\0"].concat());
        assert_eq!(read_state(&dropped), Ok(stored(None, Seq(0x0102))));
        let all = put_state(&state, Some(&checkpoint), Seq(0x0102));
        assert_eq!(all, [&dropped[..], &checkpoint.encode()].concat());
        assert_eq!(read_state(&all), Ok(stored(Some(checkpoint.clone()), Seq(0x0102))));

        let long = Place::Key(vec![b'k'; CHECKPOINT_MAX].into());
        let long = Checkpoint { place: long, ..checkpoint };
        assert_eq!(put_state(&state, Some(&long), Seq(0)), plain, "it is left out");
    }

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

    #[test]
    fn groups_are_numbered_and_back() {
        let key = GroupKey { n_val: 3, prefix: 0xABCD };
        assert_eq!(key.number(), GroupNumber(0x3_ABCD));
        assert_eq!(GroupKey::of_number(key.number()), key);
    }
}
