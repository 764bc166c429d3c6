//! A preview of the staged changes.
//!
//! A plan starts from where partitions are on their way to, not from where they are, so that a second plan does not
//! send back what the first one moves; and from the newcomer where one takes a member's place, so that nothing else
//! moves for that; and, if the ring is to grow, from the larger ring whose lists are those that there are
//! ([`ring::grown`]). From there the ring's claim decides.
//!
//! A ring that has grown keeps the distance that it has ([`DISTANCE_GROWN`]): another one would move half of the data.

use std::collections::BTreeMap;

use ring::{Claimed, DISTANCE_GROWN, MemberState, Members, Moved, NodeId, RingSize, Shortfall, grown, moved};

use super::State;
use super::command::{Change, Command};

/// The number of replicas that a plan tells of, since nearly all buckets have it.
const N_VAL_USUAL: usize = 3;

/// What a commit would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The version of the state that it was made for: if that is another by now, the plan is refused.
    pub expected: u64,
    /// How many partitions there are to be.
    pub size: RingSize,
    /// The owner of each partition to be.
    pub owners: Vec<NodeId>,
    /// How many partitions get another owner than they have; of a ring that grows, than the lists that there are would
    /// give them.
    pub moved: usize,
    /// What that moves of buckets with the usual number of replicas.
    pub copies: Moved,
    /// Where copies will be closer together than asked for.
    pub shortfalls: Vec<Shortfall>,
    /// Each member's part, before and after: those who go, and those who come, too.
    pub parts: BTreeMap<NodeId, Part>,
}

/// One member's part in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// What is to become of it, if anything was staged.
    pub change: Option<Change>,
    /// Its state afterwards; none if it is forgotten.
    pub state: Option<MemberState>,
    /// How many partitions it owns.
    pub owns: usize,
    /// How many it will own, when all have moved.
    pub will_own: usize,
}

impl Plan {
    /// The command that carries it out.
    pub fn command(&self) -> Command {
        Command::Commit { expected: self.expected, owners: self.owners.clone() }
    }
}

impl State {
    /// What a commit of what is staged would do, with copies of a key on `target_n` neighbours kept apart.
    ///
    /// # Errors
    /// The claim's: there are more members than partitions, or `target_n` is out of bounds.
    pub fn plan(&self, target_n: usize) -> Result<Plan, ring::Error> {
        let size = self.staged_size.unwrap_or(self.heading_size());
        let is_growing = size > self.heading_size();
        let target_n = if is_growing || self.is_grown() { target_n.min(DISTANCE_GROWN) } else { target_n };
        let after: BTreeMap<NodeId, _> =
            self.after_commit().into_iter().map(|member| (member.id, member)).collect();
        let members = Members::new(after.values().cloned())?;
        let replaced = |owner: &NodeId| self.staged.get(owner).and_then(Change::by).unwrap_or(*owner);
        let heading: Vec<NodeId> = self.heading().iter().map(replaced).collect();
        let heading = grown(&heading, size)?;
        let claimed = Claimed { size, members: &members, owners: Some(&heading), target_n };
        let claim = if is_growing { claimed.claim_in_place()? } else { claimed.claim()? };
        let before = grown(&self.owners, size)?;
        let count = |owners: &[NodeId], node: NodeId| owners.iter().filter(|owner| **owner == node).count();
        let part = |&node: &NodeId| {
            let (change, state) =
                (self.staged.get(&node).copied(), after.get(&node).map(|member| member.state));
            (
                node,
                Part { change, state, owns: count(&self.owners, node), will_own: count(&claim.owners, node) },
            )
        };
        let parts: BTreeMap<NodeId, Part> = self.members.keys().map(part).collect();
        debug_assert_eq!(
            parts.values().map(|part| part.owns).sum::<usize>(),
            self.owners.len(),
            "members own all partitions before a plan"
        );
        debug_assert_eq!(
            parts.values().map(|part| part.will_own).sum::<usize>(),
            claim.owners.len(),
            "members own all partitions after a plan"
        );

        Ok(Plan {
            expected: self.version,
            parts,
            size,
            moved: before.iter().zip(&claim.owners).filter(|(before, after)| before != after).count(),
            copies: moved(&self.owners, &claim.owners, N_VAL_USUAL),
            owners: claim.owners.into_vec(),
            shortfalls: claim.shortfalls,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClusterId;
    use ring::{RingSize, TARGET_N_DEFAULT};

    fn admit(state: &mut State, name: &str) -> NodeId {
        let (address, zone) = ("h:1".to_owned(), String::new());
        let admitted =
            Command::Admit { expected: state.version(), name: name.into(), address, zone, weight: 100 };
        state.apply(&admitted).unwrap();
        *state.members().last_key_value().unwrap().0
    }

    fn stage(state: &mut State, node: NodeId, change: Change) {
        state.apply(&Command::Stage { expected: state.version(), node, change }).unwrap();
    }

    fn carry_out(state: &mut State) -> Plan {
        let plan = state.plan(TARGET_N_DEFAULT).unwrap();
        state.apply(&plan.command()).unwrap();
        plan
    }

    fn finish(state: &mut State) {
        while !state.is_settled() {
            state.due().iter().for_each(|report| state.apply(report).unwrap());
        }
    }

    fn cluster(nodes: u16) -> State {
        let mut state = State::found(ClusterId(7), RingSize::new(64).unwrap(), "n0@h", "h:1", "").unwrap();
        for node in 1..nodes {
            admit(&mut state, &format!("n{node}@h"));
        }
        carry_out(&mut state);
        finish(&mut state);
        state
    }

    #[test]
    fn a_plan_shows_what_its_commit_does() {
        let mut state = cluster(5);
        let newcomer = admit(&mut state, "new@h");
        let plan = state.plan(TARGET_N_DEFAULT).unwrap();
        assert_eq!((plan.parts[&newcomer].owns, plan.parts[&newcomer].will_own), (0, plan.moved));
        assert_eq!(plan.parts[&newcomer].state, Some(MemberState::Valid));
        assert!((10..=11).contains(&plan.moved), "{} move", plan.moved);
        state.apply(&plan.command()).unwrap();
        assert_eq!(state.heading(), plan.owners);
        assert_ne!(state.ring().owners(), plan.owners);
        finish(&mut state);
        assert_eq!(state.owners(), plan.owners);
        assert!(state.apply(&plan.command()).is_err(), "a plan is carried out once");
    }

    #[test]
    fn a_replacement_moves_what_the_member_owned_and_nothing_else() {
        let mut state = cluster(5);
        let before = state.owners().to_vec();
        let newcomer = admit(&mut state, "new@h");
        stage(&mut state, NodeId(2), Change::Replace(newcomer));
        let plan = carry_out(&mut state);
        let expected: Vec<NodeId> =
            before.iter().map(|&owner| if owner == NodeId(2) { newcomer } else { owner }).collect();
        assert_eq!(plan.owners, expected);
        assert_eq!(plan.parts[&NodeId(2)].state, Some(MemberState::Leaving));
        finish(&mut state);
        assert_eq!(state.members()[&NodeId(2)].member.state, MemberState::Exiting);
    }

    #[test]
    fn a_second_plan_goes_on_from_the_first() {
        let mut state = cluster(4);
        admit(&mut state, "five@h");
        let first = carry_out(&mut state);
        // Nothing has moved yet.
        admit(&mut state, "six@h");
        let second = carry_out(&mut state);
        let turned =
            first.owners.iter().zip(&second.owners).filter(|(before, after)| before != after).count();
        assert!(turned <= 12, "{turned} partitions have another target than the first plan gave them");
        finish(&mut state);
        assert_eq!(state.owners(), second.owners);
    }

    #[test]
    fn those_who_leave_are_left_with_nothing() {
        let mut state = cluster(7);
        stage(&mut state, NodeId(3), Change::Leave);
        stage(&mut state, NodeId(5), Change::ForceRemove);
        let plan = carry_out(&mut state);
        assert_eq!(plan.parts[&NodeId(3)].will_own, 0);
        assert_eq!(plan.parts[&NodeId(5)].state, None);
        assert!(state.owners().contains(&NodeId(5)), "those who stay hand over for it first");
        finish(&mut state);
        assert_eq!(state.members()[&NodeId(3)].member.state, MemberState::Exiting);
        assert!(!state.members().contains_key(&NodeId(5)));
        assert!(state.plan(TARGET_N_DEFAULT).unwrap().moved == 0, "nothing is left to do");
    }
}
