//! One group with its store's part: the machine, the ends of its catch-ups, and inputs that wait.
//!
//! Left out: its opening (`open.rs`), and the bytes of its state in the store (`stored_state.rs`).

use std::collections::{BTreeMap, VecDeque};

use base::Monotonic;
use bytes::Bytes;
use engine::{GroupNumber, Seq};
use strong::catch_up::{Checkpoint, Receiver, Sender};
use strong::envelope::GroupId;
use strong::group::{Group, GroupState, Input, Output, VoterId};

use super::incoming_part::IncomingPart;
use super::proposed_writes::ProposedWrites;
use super::stored_state::put_state;
use crate::peer::NodeId;

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
    /// A group that was just opened.
    pub fn new(
        group: Group,
        id: GroupId,
        voter: VoterId,
        voters: Vec<VoterId>,
        receiver: Receiver,
    ) -> HeldGroup {
        HeldGroup {
            group,
            id,
            voter,
            voters,
            receiver,
            checkpoint: None,
            dropped_at: Seq(0),
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
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_numbered_and_back() {
        let key = GroupKey { n_val: 3, prefix: 0xABCD };
        assert_eq!(key.number(), GroupNumber(0x3_ABCD));
        assert_eq!(GroupKey::of_number(key.number()), key);
    }
}
