//! Changes of the members: staged, and carried out together by a commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use ring::{Member, MemberState, NodeId, RingSize};

use super::State;
use super::bounds::{MEMBERS_MAX, STAGED_MAX};
use super::command::{self, Change, Rejected};
use super::record::{MemberDecision, Record};
use super::step::Step;

impl State {
    /// The members as a claim is to see them after a commit of what is staged: those that are gone are not among them,
    /// and who is to leave is leaving, also while it is down.
    pub fn after_commit(&self) -> Vec<Member> {
        let seen = |record: Record| match record.fate {
            MemberDecision::Stays => Some(record.member),
            MemberDecision::Leaves if record.member.state == MemberState::Down => {
                Some(Member { state: MemberState::Leaving, ..record.member })
            }
            MemberDecision::Leaves => Some(record.member),
            MemberDecision::Forgotten => None,
        };
        self.records_after_commit().into_values().filter_map(seen).collect()
    }

    pub(super) fn admit(
        &mut self,
        name: &str,
        address: &str,
        zone: &str,
        weight: u16,
    ) -> Result<(), Rejected> {
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
        self.members.insert(id, Record::new(member, address));
        self.staged.insert(id, Change::Join);
        Ok(())
    }

    pub(super) fn stage(&mut self, node: NodeId, change: Change) -> Result<(), Rejected> {
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
        if self.records_after_commit().values().any(Record::claims) {
            Ok(())
        } else {
            Err(Rejected::NobodyLeft)
        }
    }

    /// Forgets what is staged, and who waits to join.
    pub(super) fn clear(&mut self) {
        self.staged.clear();
        self.staged_size = None;
        let joining = |record: &&Record| record.member.state == MemberState::Joining;
        let joining: Vec<NodeId> = self.members.values().filter(joining).map(|it| it.member.id).collect();
        joining.into_iter().for_each(|node| self.forget(node));
    }

    fn records_after_commit(&self) -> BTreeMap<NodeId, Record> {
        let mut after = self.members.clone();
        self.staged.iter().for_each(|(node, change)| carry_out(&mut after, *node, *change));
        after
    }

    /// Carries out what is staged: the members change at once, the ring goes to `next` step by step.
    pub(super) fn commit(&mut self, next: &[NodeId]) -> Result<(), Rejected> {
        if !self.has_staged() {
            return Err(Rejected::NothingStaged);
        }
        let after = self.records_after_commit();
        let size = self.staged_size.unwrap_or(self.heading_size());
        let fits = RingSize::of_owners(next) == Some(size)
            && next.iter().all(|owner| after.get(owner).is_some_and(Record::claims));
        if !fits {
            return Err(Rejected::Owners);
        }
        if self.is_pinned() && next != self.owners {
            return Err(Rejected::Pinned);
        }
        let before = std::mem::replace(&mut self.members, after);
        self.adopted.retain(|node| self.members.contains_key(node));
        if let Some(consistent) = &mut self.consistent {
            consistent.registrations.retain(|node, _| self.members.contains_key(node));
        }
        self.staged.clear();
        self.staged_size = None;
        for (node, record) in before {
            let is_live = self.members.get(&node).is_some_and(Record::is_live);
            if record.is_live() && !is_live {
                self.give_up_with(node);
            }
        }
        let is_under_way = matches!(&self.step, Step::Copying { target, .. } if target == next);
        self.next = (!is_under_way).then(|| next.to_vec());
        debug_assert_eq!(self.heading(), next, "the ring heads for the owners of the last commit");
        Ok(())
    }
}

/// What a change makes of its member. Who is gone owns what it owned until others have it from those who stay.
fn carry_out(members: &mut BTreeMap<NodeId, Record>, node: NodeId, change: Change) {
    let Some(record) = members.get_mut(&node) else { return };
    match change {
        Change::Join => record.member.state = MemberState::Valid,
        Change::Leave | Change::Replace(_) => {
            record.member.state = MemberState::Leaving;
            record.fate = MemberDecision::Leaves;
        }
        Change::ForceReplace(_) | Change::ForceRemove if record.member.state.may_own() => {
            record.member.state = MemberState::Down;
            record.fate = MemberDecision::Forgotten;
        }
        Change::ForceReplace(_) | Change::ForceRemove => drop(members.remove(&node)),
        Change::Weigh(weight) => record.member.weight = weight,
    }
}
