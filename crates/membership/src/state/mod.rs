//! The agreed state of a cluster, to which the log's commands lead.
//!
//! [`State::apply`] is a function of the state and the command alone, so whoever applied the same commands in the same
//! order has the same state, byte by byte. A change of the cluster takes these steps:
//!
//! 1. Changes are staged: a node is admitted ([`Command::Admit`]), a member is to leave or be replaced
//!    ([`Command::Stage`]), the ring is to grow ([`Command::StageRing`]).
//! 2. They are shown: whoever asks computes a [`Plan`], with the ring's claim.
//! 3. [`Command::Commit`] carries the next owners. The claim's outcome is in the log, not the claim: nodes with
//!    different versions of the claim still agree.
//! 4. The ring goes to these owners step by step ([`Step`]), each when all members have said that they have made the
//!    one before ([`Command::Adopted`]), and the second when the data is there ([`Command::Copied`]).
//! 5. A leaving member that owns nothing any more is exiting, and forgotten when it has said so ([`Command::Gone`]).
//!    One that was removed by force is forgotten as soon as it owns nothing; until then it is down.
//!
//! Invariants: every partition has an owner that may own one, in each ring; numbers of members are never given twice;
//! the ring's version grows whenever what is published changes ([`State::published`]), and not otherwise. A command of
//! an operator names the version that it was made for: one made for an older state is refused.
//!
//! * `changes.rs`: staged changes and commits. `size.rs`: the number of partitions. `transition.rs`: the steps of the
//!   ring. `plan.rs`: the effects of a commit.
//! * `registrations.rs`: stores that members have registered. `groups.rs`: groups founded on them. `policy.rs`: changes
//!   of the security policy.
//! * `record.rs`, `step.rs`, `births.rs`, `founding.rs`, `policy_records.rs`: the parts of a state, which know nothing
//!   of the whole.
//! * `codec.rs`: the bytes of a state, of which `sections.rs` has the last. `command_codec.rs`: those of a command.
//!   `refusal_codes.rs`: codes of refusals. `fields.rs`: the fields that these have in common.
//!
//! Left out: the claim itself, and the transfer of data.

mod births;
mod bounds;
mod changes;
mod codec;
pub mod command;
mod command_codec;
mod fields;
mod founding;
mod groups;
mod plan;
mod policy;
mod policy_records;
mod published;
mod record;
mod refusal_codes;
mod registrations;
mod sections;
mod size;
mod step;
#[cfg(test)]
mod tests;
mod transition;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use ring::{Member, MemberState, NodeId, RingSize, RingVersion};

pub use self::births::{Registration, StoreBirths};
pub use self::bounds::{
    FOUNDED_N_VAL_MAX, MEMBERS_MAX, POLICY_BYTES_MAX, POLICY_CHANGES_BYTES_MAX, POLICY_RECORD_BYTES_MAX,
    POLICY_RECORDS_MAX, RETIRED_MAX, SLOT_BYTES_MAX, SLOTS_MAX, STAGED_MAX, STORES_MAX, TEXT_BYTES_MAX,
};
pub use self::command::{Change, Command, Rejected};
use self::founding::Consistent;
pub use self::founding::Founding;
pub use self::plan::{Part, Plan};
pub use self::policy_records::{PolicyChange, PolicyRecords, changes_bytes};
pub use self::published::Published;
pub use self::record::{MemberDecision, Record};
pub use self::step::Step;
use crate::ClusterId;

/// The slot of the numbers of replicas that copies are made for. Its value is opaque here. A new value makes the copies
/// for the one before incomplete, so the target is begun again.
pub const COPIED_SLOT: &[u8] = b"n-vals";

/// Versions of one epoch are below this; the epoch stands above it, so a ring of a later epoch is always newer.
const EPOCH_SHIFT: u32 = 40;

/// What all nodes agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    cluster: ClusterId,
    /// Grows with every change of what people decide on.
    version: u64,
    /// Of what is published.
    ring_version: RingVersion,
    /// How many partitions there were when the cluster was founded.
    founded: RingSize,
    /// By how many prefixes all nodes order their keys: the most partitions that there can be.
    prefixes: RingSize,
    next_id: u16,
    members: BTreeMap<NodeId, Record>,
    /// Of the ring in force.
    owners: Vec<NodeId>,
    step: Step,
    /// The owners that the last commit decided on, until the ring is on its way to them.
    next: Option<Vec<NodeId>>,
    /// Who goes by what is published, and by nothing older.
    adopted: BTreeSet<NodeId>,
    staged: BTreeMap<NodeId, Change>,
    /// How many partitions there are to be, if that is staged.
    staged_size: Option<RingSize>,
    retired: BTreeSet<u64>,
    slots: BTreeMap<Bytes, Bytes>,
    /// The agreement that consistent bucket types need; none before a first one is wanted.
    consistent: Option<Consistent>,
    /// The security policy; none before its first change. Shared, since each command begins with a copy of the state.
    policy: Option<Arc<PolicyRecords>>,
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
        State::found_by(cluster, (size, size.finest()), [(name, address, zone)])
    }

    /// A cluster of several nodes from its beginning, all valid, numbered in this order, which own partitions in turn
    /// and order their keys by so many prefixes. Whoever calls it with the same has the same state.
    ///
    /// # Panics
    /// If there are fewer prefixes than partitions.
    ///
    /// # Errors
    /// [`Rejected::Text`] if a text is too long or a name is empty, [`Rejected::NameTaken`] if two names are equal,
    /// [`Rejected::Full`] unless there is a node, and a partition for each, and they are at most [`MEMBERS_MAX`].
    pub fn found_by<'a>(
        cluster: ClusterId,
        (size, prefixes): (RingSize, RingSize),
        nodes: impl IntoIterator<Item = (&'a str, &'a str, &'a str)>,
    ) -> Result<State, Rejected> {
        assert!(size <= prefixes, "a partition is a range of keys");
        let mut members: BTreeMap<NodeId, Record> = BTreeMap::new();
        let mut next_id = 0_u16;
        for (name, address, zone) in nodes {
            command::check_texts(name, address, zone)?;
            if members.values().any(|record| *record.member.name == *name) {
                return Err(Rejected::NameTaken);
            }
            let mut member = Member::new(NodeId(next_id), name);
            member.zone = Arc::from(zone);
            members.insert(NodeId(next_id), Record::new(member, address));
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
            founded: size,
            prefixes,
            next_id,
            // Whoever founds it begins with it.
            adopted: members.keys().copied().collect(),
            members,
            owners,
            step: Step::AtRest,
            next: None,
            staged: BTreeMap::new(),
            staged_size: None,
            retired: BTreeSet::new(),
            slots: BTreeMap::new(),
            consistent: None,
            policy: None,
        })
    }

    /// The cluster.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// The version that an operator's command must name. It grows with every change of what a plan is made from: the
    /// members, their zones, weights and fates, what is staged, and the owners to be. Starts, members' reports, steps
    /// of the ring and slots change none of it.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The version of what is published.
    pub fn ring_version(&self) -> RingVersion {
        self.ring_version
    }

    /// The members, by number.
    pub fn members(&self) -> &BTreeMap<NodeId, Record> {
        &self.members
    }

    /// The owner of each partition, by the ring in force.
    pub fn owners(&self) -> &[NodeId] {
        &self.owners
    }

    /// How far the ring is.
    pub fn step(&self) -> &Step {
        &self.step
    }

    /// The owner of each partition when all that was decided is carried out.
    pub fn heading(&self) -> &[NodeId] {
        match (&self.next, &self.step) {
            (Some(next), _) => next,
            (None, Step::Copying { target, .. }) => target,
            (None, _) => &self.owners,
        }
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

    /// Whether a commit would do anything.
    pub fn has_staged(&self) -> bool {
        !self.staged.is_empty() || self.staged_size.is_some()
    }

    /// Applies a command of the log. A refused one changes nothing.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn apply(&mut self, command: &Command) -> Result<(), Rejected> {
        #[cfg(test)]
        let mut whole = self.clone();
        let outcome = self.apply_report(command).unwrap_or_else(|| self.apply_whole(command));
        #[cfg(test)]
        assert_eq!((whole.apply_whole(command), &whole), (outcome, &*self), "{command:?}");
        outcome
    }

    /// Applies a report after which others are still waited for, and with which nothing ends; the start of a member
    /// that was not down, and the registration of its stores. Each change asks each member for some four reports, and
    /// each is started now and then, so a large cluster sees hardly anything else, and all that is looked at for other
    /// commands would cost it dearly.
    fn apply_report(&mut self, command: &Command) -> Option<Result<(), Rejected>> {
        if self.next.is_some() {
            return None;
        }
        match command {
            Command::Adopted { node, version } => {
                let are_others = self.unadopted().any(|other| other != *node);
                are_others.then(|| self.report_adopted(*node, *version))
            }
            Command::Copied { node, target } => {
                self.awaits_copies_beside(*node).then(|| self.report_copied(*node, *target))
            }
            Command::Started { node, starts, start, address } => {
                let is_live = self.members.get(node).is_some_and(Record::is_live);
                (is_live && self.waits()).then(|| self.started(*node, (*starts, *start), address))
            }
            Command::RegisterStores { node, starts, start, stores } => {
                self.waits().then(|| self.register_stores(*node, (*starts, *start), stores))
            }
            _ => None,
        }
    }

    /// Whether no step is due that waits for nobody's report.
    fn waits(&self) -> bool {
        self.step == Step::AtRest || self.unadopted().next().is_some()
    }

    fn apply_whole(&mut self, command: &Command) -> Result<(), Rejected> {
        let before = self.clone();
        if let Err(rejected) = self.try_apply(command) {
            *self = before;
            return Err(rejected);
        }
        // One step at a time: what reports have said is about the one before.
        if self.has_step_of(&before) {
            self.advance();
        }
        self.settle();
        if *self == before {
            return Ok(());
        }
        let is_published = self.is_published_unlike(&before);
        if is_published {
            self.ring_version.0 += 1;
            self.adopted.clear();
        }
        if self.is_decided_unlike(&before) {
            self.version += 1;
        }
        self.check();
        if cfg!(debug_assertions) {
            self.check_since(&before);
        }
        Ok(())
    }

    /// The state in which the survivors of a lost majority go on: all that is later than it belongs to `epoch`. What
    /// the lost have published last is not known, so what was copied counts for nothing.
    pub(crate) fn recover(&mut self, epoch: u32) {
        let first = u64::from(epoch) << EPOCH_SHIFT | 1;
        assert!(first > self.ring_version.0, "epochs grow");
        self.ring_version = RingVersion(first);
        self.adopted.clear();
        self.give_up();
        self.settle();
        self.version += 1;
    }

    /// Whether people would decide on something else than before.
    fn is_decided_unlike(&self, before: &State) -> bool {
        let members = |state: &State| -> Vec<(Member, MemberDecision)> {
            state.members.values().map(|it| (it.member.clone(), it.fate)).collect()
        };
        self.heading() != before.heading() || self.staged != before.staged || members(self) != members(before)
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
            Command::StageRing { expected, size } => {
                self.expect(*expected)?;
                self.stage_ring(*size)
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
                self.down(*node)
            }
            Command::Adopted { node, version } => self.report_adopted(*node, *version),
            Command::Copied { node, target } => self.report_copied(*node, *target),
            Command::Gone { node } => self.gone(*node),
            Command::Started { node, starts, start, address } => {
                self.started(*node, (*starts, *start), address)
            }
            Command::Retire { actors } => {
                self.retired.extend(actors);
                if self.retired.len() > RETIRED_MAX { Err(Rejected::Full) } else { Ok(()) }
            }
            Command::Slot { name, before, value } => self.set_slot(name, before.as_ref(), value.as_ref()),
            Command::PrepareStores => {
                self.prepare_stores();
                Ok(())
            }
            Command::RegisterStores { node, starts, start, stores } => {
                self.register_stores(*node, (*starts, *start), stores)
            }
            Command::FoundGroups { expected, n_val, number } => self.found_groups(*expected, *n_val, *number),
            Command::RaiseEpoch { n_val, expected } => self.raise_epoch(*n_val, *expected),
            Command::ChangePolicy { expected, changes } => self.change_policy(*expected, changes),
        }
    }

    /// A number is never given again, so nobody takes the next of this name for it.
    fn forget(&mut self, node: NodeId) {
        self.members.remove(&node);
        self.staged.remove(&node);
        self.adopted.remove(&node);
        if let Some(consistent) = &mut self.consistent {
            consistent.registrations.remove(&node);
        }
    }

    fn expect(&self, expected: u64) -> Result<(), Rejected> {
        if expected == self.version { Ok(()) } else { Err(Rejected::Stale) }
    }

    fn record(&mut self, node: NodeId) -> Result<&mut Record, Rejected> {
        self.members.get_mut(&node).ok_or(Rejected::NotMember)
    }

    fn gone(&mut self, node: NodeId) -> Result<(), Rejected> {
        match self.record(node)?.member.state {
            MemberState::Exiting => {
                self.forget(node);
                Ok(())
            }
            state => Err(Rejected::State(state)),
        }
    }

    fn down(&mut self, node: NodeId) -> Result<(), Rejected> {
        let member = &mut self.record(node)?.member;
        if member.state == MemberState::Down {
            return Ok(());
        }
        if !member.state.may_become(MemberState::Down) {
            return Err(Rejected::State(member.state));
        }
        member.state = MemberState::Down;
        self.give_up_with(node);
        Ok(())
    }

    fn started(&mut self, node: NodeId, life: (u32, u64), address: &str) -> Result<(), Rejected> {
        command::check_texts("-", address, "")?;
        let record = self.record(node)?;
        if record.fate == MemberDecision::Forgotten {
            return Err(Rejected::NotMember);
        }
        if life == (record.starts, record.start) {
            return Ok(());
        }
        if life.0 <= record.starts {
            return Err(Rejected::Restored { starts: record.starts });
        }
        (record.starts, record.start) = life;
        record.address = Arc::from(address);
        if record.member.state == MemberState::Down {
            let leaves = record.fate == MemberDecision::Leaves;
            record.member.state = if leaves { MemberState::Leaving } else { MemberState::Valid };
            self.give_up_with(node);
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
        if self.slots.len() > SLOTS_MAX {
            return Err(Rejected::Full);
        }
        if name == COPIED_SLOT && before != value {
            self.give_up();
        }
        Ok(())
    }

    /// Asserts the invariants.
    pub(crate) fn check(&self) {
        assert_eq!(self.flaw(), None);
    }

    /// Asserts the relations to the state before a command.
    fn check_since(&self, before: &State) {
        let fates_fit = |state: &State| state.members.values().all(Record::has_fitting_fate);
        debug_assert!(self.next_id >= before.next_id, "a member's number is given once");
        debug_assert!(
            self.version >= before.version && self.ring_version >= before.ring_version,
            "versions do not fall"
        );
        debug_assert!(fates_fit(self) || !fates_fit(before), "a member's state fits its fate");
        debug_assert!(
            self.policy_version() >= before.policy_version()
                && self.policy.is_some() >= before.policy.is_some(),
            "the version of the security policy does not fall, and its section stays"
        );
        debug_assert!(self.registers_stores() || !before.registers_stores(), "stores stay registered");
        debug_assert!(
            before.foundings().all(|(n_val, it)| self.founding(n_val).is_some_and(|now| now.follows(it))),
            "a founding stays, and its epoch does not fall"
        );
        debug_assert!(
            !before.is_pinned() || self.heading() == before.owners,
            "partitions of groups do not move"
        );
        self.check_step_since(before);
    }

    /// Which invariant does not hold.
    fn flaw(&self) -> Option<&'static str> {
        let is_member = |node: &NodeId| self.members.contains_key(node);
        let may_own =
            |node: &NodeId| self.members.get(node).is_some_and(|record| record.member.state.may_own());
        let is_ring = |owners: &Vec<NodeId>| {
            let fits =
                RingSize::of_owners(owners).is_some_and(|it| self.founded <= it && it <= self.prefixes);
            // Owners stand in runs, or in turn.
            let distinct: BTreeSet<&NodeId> = owners.iter().collect();
            fits && distinct.into_iter().all(may_own)
        };
        // A ring only grows.
        let is_larger = |owners: &Vec<NodeId>| is_ring(owners) && owners.len() >= self.owners.len();
        let is_growth =
            |size: RingSize| usize::try_from(size.partitions()).is_ok_and(|it| it > self.heading().len());
        let names: BTreeSet<&str> = self.members.values().map(|record| &*record.member.name).collect();
        let step = match &self.step {
            Step::AtRest => true,
            Step::Copying { target, version, copied } => {
                is_larger(target) && *version <= self.ring_version && copied.iter().all(is_member)
            }
            // The ring before has the version before.
            Step::Switched { before } => {
                is_ring(before) && before.len() <= self.owners.len() && self.ring_version.0 > 0
            }
        };
        let flaws = [
            (names.len() == self.members.len(), "two members of one name"),
            (self.members.keys().all(|node| node.0 < self.next_id), "a number not given out"),
            (is_ring(&self.owners), "an owner that may not own"),
            (step, "a step that cannot be"),
            (self.next.iter().all(is_larger), "a next owner that may not own"),
            (self.adopted.iter().all(is_member), "a report of no member"),
            (self.staged.keys().all(is_member), "a change of no member"),
            (self.staged_size.is_none_or(|it| is_growth(it) && it <= self.prefixes), "a ring that cannot be"),
        ];
        let flaw = flaws.into_iter().find(|(holds, _)| !holds).map(|(_, flaw)| flaw);
        flaw.or_else(|| self.consistent.as_ref()?.flaw(&self.members, (self.founded, self.prefixes)))
    }
}
