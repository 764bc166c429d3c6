//! The steps of the ring to the owners of the last commit. Each begins when all members have made the one before.
//!
//! | step | in force | beside it | ends when all members have adopted it, and |
//! |---|---|---|---|
//! | at rest | old | | a commit has decided on other owners |
//! | copying | old | the target | every owner of the target has copied its data |
//! | switched | new | the ring before | |
//! | at rest | new | | |
//!
//! So at any moment two neighbouring rows are in force somewhere; `docs/decisions/0028` says
//! why that is enough. No step waits for members that are down. A target is given up, and the old ring is at rest,
//! when another commit names other owners, and when an owner is declared down or comes back. Transfers are then planned
//! anew, under another version.
//!
//! Invariants: a report counts for the version that it names and for no other; a publication is one step behind or
//! ahead of its neighbours.

use std::collections::BTreeSet;

use ring::{MemberState, NodeId, RingVersion};

use super::State;
use super::command::Rejected;
use super::record::MemberDecision;
use super::step::Step;

impl State {
    /// Whether nothing moves, nothing is to move, and all members know.
    pub fn is_settled(&self) -> bool {
        self.step == Step::AtRest && self.next.is_none() && self.unadopted().next().is_none()
    }

    /// Whether a member goes by the last publication, and by nothing older.
    pub fn has_adopted(&self, node: NodeId) -> bool {
        self.adopted.contains(&node)
    }

    /// Whether a member has all that the target asks it to have.
    pub fn has_copied(&self, node: NodeId) -> bool {
        matches!(&self.step, Step::Copying { copied, .. } if copied.contains(&node))
    }

    /// Members that have not reported that they go by the last publication.
    pub fn unadopted(&self) -> impl Iterator<Item = NodeId> {
        let live = self.members.values().filter(|record| record.is_live()).map(|record| record.member.id);
        live.filter(|node| !self.adopted.contains(node))
    }

    /// Members that have not reported that they have all that the target asks for.
    pub fn uncopied(&self) -> Vec<NodeId> {
        let Step::Copying { target, copied, .. } = &self.step else { return Vec::new() };
        let is_live = |node: &NodeId| self.members.get(node).is_some_and(|record| record.is_live());
        // A member that is down has its present partitions when it is back.
        let owners: BTreeSet<NodeId> = target.iter().copied().collect();
        let awaited = |node: &NodeId| !copied.contains(node) && (is_live(node) || self.gains(*node, target));
        owners.into_iter().filter(awaited).collect()
    }

    /// Whether a live member other than this one has not reported that it has all that the target asks for.
    pub(super) fn awaits_copies_beside(&self, node: NodeId) -> bool {
        let Step::Copying { target, copied, .. } = &self.step else { return false };
        let mut others = self.members.iter().filter(|(other, it)| **other != node && it.is_live());
        others.any(|(other, _)| !copied.contains(other) && target.contains(other))
    }

    pub(super) fn report_adopted(&mut self, node: NodeId, version: RingVersion) -> Result<(), Rejected> {
        self.record(node)?;
        if version != self.ring_version {
            return Err(Rejected::Stale);
        }
        self.adopted.insert(node);
        Ok(())
    }

    pub(super) fn report_copied(&mut self, node: NodeId, target: RingVersion) -> Result<(), Rejected> {
        self.record(node)?;
        match &mut self.step {
            Step::Copying { version, copied, target: owners }
                if (*version == target || base::planted!(CopyCountedTwice)) && owners.contains(&node) =>
            {
                copied.insert(node);
                Ok(())
            }
            _ => Err(Rejected::Stale),
        }
    }

    /// Takes the next step, if it is due.
    pub(super) fn advance(&mut self) {
        let all_adopted = self.unadopted().next().is_none();
        match &mut self.step {
            Step::Copying { .. } if self.next.is_some() => self.give_up(),
            Step::Copying { .. } => {
                if all_adopted && (self.uncopied().is_empty() || base::planted!(SwitchedUncopied)) {
                    self.switch();
                }
            }
            Step::Switched { .. } if all_adopted => self.step = Step::AtRest,
            Step::Switched { .. } => {}
            Step::AtRest => {
                self.next = self.next.take().filter(|next| *next != self.owners);
                if let Some(target) = self.next.take_if(|_| all_adopted) {
                    // That of the publication that begins it.
                    let version = RingVersion(self.ring_version.0 + 1);
                    self.step = Step::Copying { target, version, copied: BTreeSet::new() };
                }
            }
        }
    }

    fn switch(&mut self) {
        if let Step::Copying { target, .. } = &mut self.step {
            let before = std::mem::replace(&mut self.owners, std::mem::take(target));
            self.step = Step::Switched { before };
        }
    }

    /// Gives the target up; it is begun again when all know, unless something else was decided.
    pub(super) fn give_up(&mut self) {
        if let Step::Copying { target, .. } = &mut self.step {
            let target = std::mem::take(target);
            self.next.get_or_insert(target);
            self.step = Step::AtRest;
        }
    }

    /// The same, if `node`, which is down now or back again, has a part in it.
    pub(super) fn give_up_with(&mut self, node: NodeId) {
        if let Step::Copying { target, .. } = &self.step
            && (target.contains(&node) || self.owners.contains(&node))
        {
            self.give_up();
        }
    }

    /// At rest, a leaving member that owns nothing is exiting, and a member that was removed by force is forgotten.
    pub(super) fn settle(&mut self) {
        if self.step != Step::AtRest {
            return;
        }
        let owning: BTreeSet<NodeId> = self.owners.iter().copied().collect();
        let mut gone = Vec::new();
        for (&node, record) in self.members.iter_mut().filter(|(node, _)| !owning.contains(node)) {
            match (record.fate, record.member.state) {
                (MemberDecision::Forgotten, _) => gone.push(node),
                (_, MemberState::Leaving) => record.member.state = MemberState::Exiting,
                _ => {}
            }
        }
        gone.into_iter().for_each(|node| self.forget(node));
    }

    /// Whether the ring is as far as it was.
    pub(super) fn has_step_of(&self, before: &State) -> bool {
        match (&self.step, &before.step) {
            (Step::Copying { version, .. }, Step::Copying { version: other, .. }) => version == other,
            (here, there) => here == there,
        }
    }

    /// Asserts that the ring has taken one step since `before`, or none.
    pub(super) fn check_step_since(&self, before: &State) {
        let is_legal = match (&before.step, &self.step) {
            (Step::AtRest, Step::Copying { .. }) | (Step::Switched { .. }, Step::AtRest) => true,
            (Step::Copying { .. }, Step::Switched { .. } | Step::AtRest) => true,
            _ => self.has_step_of(before),
        };
        debug_assert!(is_legal, "the ring takes one step at a time");
        match (&before.step, &self.step) {
            (Step::Copying { copied, .. }, Step::Copying { copied: now, .. }) => {
                debug_assert!(copied.is_subset(now), "a copy counts until its target ends");
            }
            (Step::Copying { target, .. }, Step::Switched { before: old }) => {
                debug_assert_eq!(self.owners, *target, "a switch puts the target in force");
                debug_assert_eq!(*old, before.owners, "a switch keeps the ring before");
            }
            _ => debug_assert_eq!(self.owners, before.owners, "owners change with a switch"),
        }
    }

    /// Whether shards would see another thing than before.
    pub(super) fn is_published_unlike(&self, before: &State) -> bool {
        let members = |state: &State| state.members.values().map(|it| it.member.clone()).collect::<Vec<_>>();
        !self.has_step_of(before) || self.owners != before.owners || members(self) != members(before)
    }
}

#[cfg(test)]
impl State {
    /// The state without reports of members since the last step.
    pub(crate) fn without_reports(&self) -> State {
        let mut state = self.clone();
        state.adopted.clear();
        if let Step::Copying { copied, .. } = &mut state.step {
            copied.clear();
        }
        state
    }

    /// The reports of members that are due for the next step.
    pub(crate) fn due(&self) -> Vec<super::Command> {
        use super::Command;

        let target = match &self.step {
            Step::Copying { version, .. } => Some(*version),
            _ => None,
        };
        let copied = self.uncopied().into_iter().zip(target.into_iter().cycle());
        let copied = copied.map(|(node, target)| Command::Copied { node, target });
        let version = self.ring_version;
        copied.chain(self.unadopted().map(|node| Command::Adopted { node, version })).collect()
    }
}
