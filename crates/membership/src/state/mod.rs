//! What all nodes of a cluster agree on: the state to which the log's commands lead.
//!
//! [`State::apply`] is a function of the state and the command alone, so whoever applied the same commands in the same order
//! has the same state, byte by byte. A change of the cluster takes these steps:
//!
//! 1. Changes are staged: a node is admitted ([`Command::Admit`]), a member is to leave or be replaced ([`Command::Stage`]).
//! 2. They are shown: whoever asks computes a [`Plan`], with the ring's claim.
//! 3. [`Command::Commit`] carries the next owners. The claim's outcome is in the log, not the claim: nodes with different
//!    versions of the claim still agree.
//! 4. Partitions whose data must move are [`State::moves`]. The receiver reports what it has ([`Command::Moved`]), and becomes
//!    the owner with that entry: never before its data is there. A forced change moves nothing: the new owner is filled by repair.
//! 5. A leaving member that owns nothing any more is exiting, and forgotten when it has said so ([`Command::Gone`]).
//!
//! Invariants: every partition has an owner that may own one; a move goes to a member that may own, and not
//! to the owner; numbers of members are never given twice; the ring's version grows whenever members or owners change, and
//! not otherwise. A command names the version that it was made for: one made for an older state is refused.
//!
//! Left out: the claim itself, and the transfer of data.

mod codec;
pub mod command;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use ring::{Member, MemberState, Members, NodeId, Ring, RingSize, RingVersion};

pub use self::command::{Change, Command, Rejected};
pub use self::plan::{Part, Plan};
use crate::ClusterId;

/// Members at once, the forgotten not counted: what the ring and the failure detector are measured for.
pub const MEMBERS_MAX: usize = 1_000;

/// Staged changes at once: as many as a person can review.
pub const STAGED_MAX: usize = 64;

/// Bytes of a name, an address or a zone.
pub const TEXT_BYTES_MAX: usize = 255;

/// Retired actors remembered; more are refused, since forgetting one could bring its events back.
pub const RETIRED_MAX: usize = 65_536;

/// Slots for what is opaque here, such as bucket types; 10,000 buckets with properties are in reach.
pub const SLOTS_MAX: usize = 16_384;

/// Bytes of a slot's name and value together.
pub const SLOT_BYTES_MAX: usize = 4_096;

/// Versions of one epoch are below this; the epoch stands above it, so a ring of a later epoch is always newer.
const EPOCH_SHIFT: u32 = 40;

/// A member, and what only the log knows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// As the ring knows it.
    pub member: Member,
    /// Where other nodes reach it.
    pub address: Arc<str>,
    /// How often its data folder was started, as far as it was told: a lower number is that of a restored folder.
    pub starts: u32,
    /// Its process then.
    pub start: u64,
}

/// What all nodes agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    cluster: ClusterId,
    /// Grows with every command that changes something.
    version: u64,
    ring_version: RingVersion,
    size: RingSize,
    next_id: u16,
    members: BTreeMap<NodeId, Record>,
    owners: Vec<NodeId>,
    moves: BTreeMap<u32, NodeId>,
    staged: BTreeMap<NodeId, Change>,
    retired: BTreeSet<u64>,
    slots: BTreeMap<Bytes, Bytes>,
}

impl State {
    /// A cluster of one node, which owns everything.
    ///
    /// # Errors
    /// [`Rejected::Text`] if a text is too long or the name is empty.
    pub fn found(
        cluster: ClusterId,
        size: RingSize,
        name: &str,
        address: &str,
        zone: &str,
    ) -> Result<State, Rejected> {
        State::found_by(cluster, size, [(name, address, zone)])
    }

    /// A cluster of several nodes from its beginning, all valid, numbered in this order, which own partitions in turn. Whoever
    /// calls it with the same has the same state.
    ///
    /// # Errors
    /// [`Rejected::Text`] if a text is too long or a name is empty, [`Rejected::NameTaken`] if two names are equal,
    /// [`Rejected::Full`] unless there is a node, and a partition for each, and they are at most [`MEMBERS_MAX`].
    pub fn found_by<'a>(
        cluster: ClusterId,
        size: RingSize,
        nodes: impl IntoIterator<Item = (&'a str, &'a str, &'a str)>,
    ) -> Result<State, Rejected> {
        let mut members: BTreeMap<NodeId, Record> = BTreeMap::new();
        let mut next_id = 0_u16;
        for (name, address, zone) in nodes {
            command::check_texts(name, address, zone)?;
            if members.values().any(|record| *record.member.name == *name) {
                return Err(Rejected::NameTaken);
            }
            let mut member = Member::new(NodeId(next_id), name);
            member.zone = Arc::from(zone);
            let record = Record { member, address: Arc::from(address), starts: 0, start: 0 };
            members.insert(NodeId(next_id), record);
            next_id = next_id.checked_add(1).ok_or(Rejected::Full)?;
        }
        if members.is_empty() || members.len() > MEMBERS_MAX.min(size.all().len()) {
            return Err(Rejected::Full);
        }
        let owners = members.keys().copied().cycle().take(size.all().len()).collect();
        Ok(State {
            cluster,
            version: 1,
            ring_version: RingVersion(1 << EPOCH_SHIFT | 1),
            size,
            next_id,
            members,
            owners,
            moves: BTreeMap::new(),
            staged: BTreeMap::new(),
            retired: BTreeSet::new(),
            slots: BTreeMap::new(),
        })
    }

    /// The cluster.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// The version that a command must name: it grows with every change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The version of the ring.
    pub fn ring_version(&self) -> RingVersion {
        self.ring_version
    }

    /// The members, by number.
    pub fn members(&self) -> &BTreeMap<NodeId, Record> {
        &self.members
    }

    /// The owner of each partition.
    pub fn owners(&self) -> &[NodeId] {
        &self.owners
    }

    /// Partitions that are to have another owner, as soon as it has their data.
    pub fn moves(&self) -> &BTreeMap<u32, NodeId> {
        &self.moves
    }

    /// Changes that wait for a commit, by the member that they are about.
    pub fn staged(&self) -> &BTreeMap<NodeId, Change> {
        &self.staged
    }

    /// Actors that make no more events.
    pub fn retired(&self) -> &BTreeSet<u64> {
        &self.retired
    }

    /// The value of a slot.
    pub fn slot(&self, name: &[u8]) -> Option<&Bytes> {
        self.slots.get(name)
    }

    /// How many partitions there are.
    pub fn size(&self) -> RingSize {
        self.size
    }

    /// The ring as it is.
    pub fn ring(&self) -> Ring {
        self.ring_of(self.owners.clone())
    }

    /// The ring as it will be when all has moved; with [`State::ring`], what transfers are planned from.
    pub fn target_ring(&self) -> Ring {
        let mut owners = self.owners.clone();
        self.moves.iter().for_each(|(&partition, &to)| owners[partition as usize] = to);
        self.ring_of(owners)
    }

    fn ring_of(&self, owners: Vec<NodeId>) -> Ring {
        let members = Members::new(self.members.values().map(|record| record.member.clone()));
        let members = members.expect("admission gives each member a number and a name of its own");
        Ring::new(self.ring_version, self.size, Arc::new(members), owners.into())
            .expect("State::check holds owners to members that may own")
    }

    /// The members as they will be after a commit of what is staged.
    pub fn after_commit(&self) -> Vec<Member> {
        self.records_after_commit().into_values().map(|record| record.member).collect()
    }

    /// Applies a command of the log. A refused one changes nothing.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn apply(&mut self, command: &Command) -> Result<(), Rejected> {
        let ring_before = self.ring_part();
        let before = self.clone();
        let applied = self.try_apply(command);
        if applied.is_err() || *self == before {
            *self = before;
            return applied;
        }
        self.version += 1;
        if self.ring_part() != ring_before {
            self.ring_version.0 += 1;
        }
        self.check();
        Ok(())
    }

    /// The state in which the survivors of a lost majority go on: all that is later than it belongs to `epoch`.
    pub(crate) fn recover(&mut self, epoch: u32) {
        let first = u64::from(epoch) << EPOCH_SHIFT | 1;
        assert!(first > self.ring_version.0, "epochs grow");
        self.ring_version = RingVersion(first);
        self.version += 1;
    }

    fn try_apply(&mut self, command: &Command) -> Result<(), Rejected> {
        match command {
            Command::Admit { expected, name, address, zone, weight } => {
                self.expect(*expected)?;
                self.admit(name, address, zone, *weight)
            }
            Command::Stage { expected, node, change } => {
                self.expect(*expected)?;
                self.stage(*node, *change)
            }
            Command::Clear { expected } => {
                self.expect(*expected)?;
                self.clear();
                Ok(())
            }
            Command::Commit { expected, owners } => {
                self.expect(*expected)?;
                self.commit(owners)
            }
            Command::Down { expected, node } => {
                self.expect(*expected)?;
                self.transit(*node, MemberState::Down)
            }
            Command::Moved { to, partitions } => self.moved(*to, partitions),
            Command::Gone { node } => self.gone(*node),
            Command::Started { node, starts, start, address } => {
                self.started(*node, (*starts, *start), address)
            }
            Command::Retire { actors } => {
                self.retired.extend(actors);
                if self.retired.len() > RETIRED_MAX { Err(Rejected::Full) } else { Ok(()) }
            }
            Command::Slot { name, before, value } => self.set_slot(name, before.as_ref(), value.as_ref()),
        }
    }

    fn expect(&self, expected: u64) -> Result<(), Rejected> {
        if expected == self.version { Ok(()) } else { Err(Rejected::Stale) }
    }

    fn record(&mut self, node: NodeId) -> Result<&mut Record, Rejected> {
        self.members.get_mut(&node).ok_or(Rejected::NotMember)
    }

    fn admit(&mut self, name: &str, address: &str, zone: &str, weight: u16) -> Result<(), Rejected> {
        command::check_texts(name, address, zone)?;
        if self.members.values().any(|record| *record.member.name == *name) {
            return Err(Rejected::NameTaken);
        }
        if self.members.len() >= MEMBERS_MAX
            || self.staged.len() >= STAGED_MAX
            || u32::from(self.next_id) >= ring::NODES_MAX
        {
            return Err(Rejected::Full);
        }
        let id = NodeId(self.next_id);
        self.next_id += 1;
        let (name, zone) = (Arc::from(name), Arc::from(zone));
        let member = Member { id, name, zone, weight, state: MemberState::Joining };
        self.members.insert(id, Record { member, address: Arc::from(address), starts: 0, start: 0 });
        self.staged.insert(id, Change::Join);
        Ok(())
    }

    fn stage(&mut self, node: NodeId, change: Change) -> Result<(), Rejected> {
        let state = self.record(node)?.member.state;
        if self.staged.len() >= STAGED_MAX && !self.staged.contains_key(&node) {
            return Err(Rejected::Full);
        }
        let by_is_joining = |by: &NodeId| {
            let joining =
                self.members.get(by).is_some_and(|record| record.member.state == MemberState::Joining);
            // One newcomer takes the place of one member.
            let taken = self.staged.iter().any(|(other, change)| *other != node && change.by() == Some(*by));
            if joining && !taken { Ok(()) } else { Err(Rejected::NotJoining) }
        };
        match &change {
            Change::Join => return Err(Rejected::State(state)),
            Change::Leave if state != MemberState::Valid => return Err(Rejected::State(state)),
            Change::Replace(by) if state == MemberState::Valid => by_is_joining(by)?,
            Change::ForceReplace(by) if state.may_own() => by_is_joining(by)?,
            Change::Replace(_) | Change::ForceReplace(_) => return Err(Rejected::State(state)),
            Change::Weigh(_) if !matches!(state, MemberState::Valid | MemberState::Down) => {
                return Err(Rejected::State(state));
            }
            Change::Leave | Change::ForceRemove | Change::Weigh(_) => {}
        }
        self.staged.insert(node, change);
        if self.records_after_commit().values().any(|record| record.member.state.claims()) {
            Ok(())
        } else {
            Err(Rejected::NobodyLeft)
        }
    }

    fn clear(&mut self) {
        self.members.retain(|_, record| record.member.state != MemberState::Joining);
        self.staged.clear();
    }

    fn records_after_commit(&self) -> BTreeMap<NodeId, Record> {
        let mut after = self.members.clone();
        for (node, change) in &self.staged {
            let Some(record) = after.get_mut(node) else { continue };
            match change {
                Change::Join => record.member.state = MemberState::Valid,
                Change::Leave | Change::Replace(_) => record.member.state = MemberState::Leaving,
                Change::ForceReplace(_) | Change::ForceRemove => drop(after.remove(node)),
                Change::Weigh(weight) => record.member.weight = *weight,
            }
        }
        after
    }

    fn commit(&mut self, next: &[NodeId]) -> Result<(), Rejected> {
        if self.staged.is_empty() {
            return Err(Rejected::NothingStaged);
        }
        if next.len() != self.owners.len() {
            return Err(Rejected::Owners);
        }
        let after = self.records_after_commit();
        if !next.iter().all(|owner| after.get(owner).is_some_and(|record| record.member.state.claims())) {
            return Err(Rejected::Owners);
        }
        self.members = after;
        self.staged.clear();
        self.moves.clear();
        for (partition, (owner, &next)) in (0..).zip(self.owners.iter_mut().zip(next)) {
            if !self.members.contains_key(owner) {
                // Its data is lost with it here, and comes from the other replicas.
                *owner = next;
            } else if *owner != next {
                self.moves.insert(partition, next);
            }
        }
        self.settle();
        Ok(())
    }

    fn moved(&mut self, to: NodeId, partitions: &[u32]) -> Result<(), Rejected> {
        for partition in partitions {
            if self.moves.get(partition) != Some(&to) {
                return Err(Rejected::NotMoving);
            }
            self.moves.remove(partition);
            self.owners[*partition as usize] = to;
        }
        self.settle();
        Ok(())
    }

    /// A leaving member that owns nothing is exiting.
    fn settle(&mut self) {
        let owning: BTreeSet<NodeId> = self.owners.iter().copied().collect();
        for (node, record) in &mut self.members {
            if record.member.state == MemberState::Leaving && !owning.contains(node) {
                record.member.state = MemberState::Exiting;
            }
        }
    }

    fn gone(&mut self, node: NodeId) -> Result<(), Rejected> {
        match self.record(node)?.member.state {
            MemberState::Exiting => {
                self.members.remove(&node);
                self.staged.remove(&node);
                Ok(())
            }
            state => Err(Rejected::State(state)),
        }
    }

    fn transit(&mut self, node: NodeId, next: MemberState) -> Result<(), Rejected> {
        let member = &mut self.record(node)?.member;
        if member.state == next {
            return Ok(());
        }
        if !member.state.may_become(next) {
            return Err(Rejected::State(member.state));
        }
        member.state = next;
        Ok(())
    }

    fn started(&mut self, node: NodeId, life: (u32, u64), address: &str) -> Result<(), Rejected> {
        command::check_texts("-", address, "")?;
        let record = self.record(node)?;
        if life == (record.starts, record.start) {
            return Ok(());
        }
        if life.0 <= record.starts {
            return Err(Rejected::Restored { starts: record.starts });
        }
        (record.starts, record.start) = life;
        record.address = Arc::from(address);
        if record.member.state == MemberState::Down {
            record.member.state = MemberState::Valid;
        }
        Ok(())
    }

    fn set_slot(
        &mut self,
        name: &Bytes,
        before: Option<&Bytes>,
        value: Option<&Bytes>,
    ) -> Result<(), Rejected> {
        if self.slots.get(name) != before {
            return Err(Rejected::Stale);
        }
        match value {
            Some(value) if name.len() + value.len() > SLOT_BYTES_MAX => return Err(Rejected::Text),
            Some(value) => drop(self.slots.insert(name.clone(), value.clone())),
            None => drop(self.slots.remove(name)),
        }
        if self.slots.len() > SLOTS_MAX { Err(Rejected::Full) } else { Ok(()) }
    }

    /// What readers of the ring see.
    fn ring_part(&self) -> (Vec<Member>, Vec<NodeId>) {
        (self.members.values().map(|record| record.member.clone()).collect(), self.owners.clone())
    }

    /// Asserts the invariants.
    pub(crate) fn check(&self) {
        let may_own =
            |node: &NodeId| self.members.get(node).is_some_and(|record| record.member.state.may_own());
        assert_eq!(self.owners.len(), self.size.all().len(), "one owner for each partition");
        assert!(self.owners.iter().all(may_own), "an owner that may not own");
        for (&partition, to) in &self.moves {
            assert!(may_own(to), "a move to who may not own");
            assert_ne!(self.owners[partition as usize], *to, "a move to the owner");
        }
        assert!(self.members.keys().all(|node| node.0 < self.next_id), "a number not given out");
        assert!(self.staged.keys().all(|node| self.members.contains_key(node)), "a change of no member");
    }
}
