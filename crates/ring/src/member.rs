//! The members of the cluster and their states.
//!
//! A member has a number for life: numbers are given in the order of joining and never again, so that a number in an
//! old ring, a hint or a promise means the node that it meant then. The states and what may follow on each:
//!
//! ```text
//! joining ──> valid ──> leaving ──> exiting ──> (forgotten)
//!                └── down <──> valid, leaving
//! ```
//!
//! Left out: who can be reached. That is gossip, and comes to readers of the ring as a [`NodeSet`](crate::NodeSet).

use std::fmt;
use std::sync::Arc;

use crate::error::Error;
use crate::node_id::{NODES_MAX, NodeId};

/// What a member weighs if nothing else is said.
pub const WEIGHT_DEFAULT: u16 = 100;

/// What a member may own, and is to own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberState {
    /// Known, but part of no plan that was committed: it owns nothing yet.
    Joining,
    /// It owns partitions and takes more.
    Valid,
    /// It owns partitions, takes none, and gives up those it has.
    Leaving,
    /// It has given up everything, and goes.
    Exiting,
    /// An operator says that it will not be reached for long. It keeps what it owns; nobody waits for it.
    Down,
}

impl MemberState {
    /// Every state.
    pub const ALL: [MemberState; 5] = [
        MemberState::Joining,
        MemberState::Valid,
        MemberState::Leaving,
        MemberState::Exiting,
        MemberState::Down,
    ];

    /// Whether the next claim gives it partitions. One that is down keeps its share: it is expected back, and
    /// what it holds would otherwise move twice.
    pub fn claims(self) -> bool {
        matches!(self, MemberState::Joining | MemberState::Valid | MemberState::Down)
    }

    /// Whether a ring may name it as an owner.
    pub fn may_own(self) -> bool {
        matches!(self, MemberState::Valid | MemberState::Leaving | MemberState::Down)
    }

    /// Whether a member in this state may come to be in `next` without being forgotten in between.
    pub fn may_become(self, next: MemberState) -> bool {
        use MemberState::{Down, Exiting, Joining, Leaving, Valid};
        matches!(
            (self, next),
            (Joining, Valid | Exiting)
                | (Valid, Leaving | Down)
                | (Leaving, Exiting | Down)
                | (Down, Valid | Leaving)
        )
    }

    /// Its name, for people and for programs.
    pub fn name(self) -> &'static str {
        match self {
            MemberState::Joining => "joining",
            MemberState::Valid => "valid",
            MemberState::Leaving => "leaving",
            MemberState::Exiting => "exiting",
            MemberState::Down => "down",
        }
    }
}

impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A node that belongs to the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub id: NodeId,
    /// Its name, such as `annulet@10.0.0.1`; no two members have the same.
    pub name: Arc<str>,
    /// What may fail as a whole with it: a rack, a room. Members that say nothing (the empty name) are in one zone.
    pub zone: Arc<str>,
    /// Its share of the partitions, in proportion to the others' weights. With 0 it claims none.
    pub weight: u16,
    /// Its state.
    pub state: MemberState,
}

impl Member {
    /// A valid member in the nameless zone with the usual weight.
    pub fn new(id: NodeId, name: &str) -> Member {
        let (name, zone) = (Arc::from(name), Arc::from(""));
        Member { id, name, zone, weight: WEIGHT_DEFAULT, state: MemberState::Valid }
    }
}

/// The members, in the order of their numbers. No two have the same number or name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members(Box<[Member]>);

impl Members {
    /// These members, in any order.
    ///
    /// # Errors
    /// [`Error::Member`] if two have the same number or name, or one has a number beyond [`NODES_MAX`].
    pub fn new(members: impl IntoIterator<Item = Member>) -> Result<Members, Error> {
        let mut members: Box<[Member]> = members.into_iter().collect();
        members.sort_unstable_by_key(|member| member.id);
        if let Some(pair) = members.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return Err(Error::Member(pair[1].id));
        }
        if let Some(last) = members.last().filter(|last| u32::from(last.id.0) >= NODES_MAX) {
            return Err(Error::Member(last.id));
        }
        let mut names: Vec<(&str, NodeId)> = members.iter().map(|it| (&*it.name, it.id)).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(Error::Member(pair[1].1)),
            None => Ok(Members(members)),
        }
    }

    /// The members numbered from 0 to below `count`, named by their numbers, all valid and of one weight and zone.
    pub(crate) fn anonymous(count: u16) -> Members {
        Members((0..count).map(|id| Member::new(NodeId(id), &id.to_string())).collect())
    }

    /// The member with this number.
    pub fn get(&self, id: NodeId) -> Option<&Member> {
        let at = self.0.binary_search_by_key(&id, |member| member.id).ok()?;
        Some(&self.0[at])
    }

    /// The member of this name.
    pub fn named(&self, name: &str) -> Option<&Member> {
        self.0.iter().find(|member| &*member.name == name)
    }

    /// All, in the order of their numbers.
    pub fn iter(&self) -> std::slice::Iter<'_, Member> {
        self.0.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> IntoIterator for &'a Members {
    type Item = &'a Member;
    type IntoIter = std::slice::Iter<'a, Member>;

    fn into_iter(self) -> std::slice::Iter<'a, Member> {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_by_number_and_by_name() {
        let members = [(7, "c@h"), (2, "a@h"), (5, "b@h")].map(|(id, name)| Member::new(NodeId(id), name));
        let members = Members::new(members).unwrap();
        assert_eq!(members.iter().map(|member| member.id.0).collect::<Vec<_>>(), [2, 5, 7]);
        assert_eq!(&*members.get(NodeId(5)).unwrap().name, "b@h");
        assert_eq!(members.named("c@h").unwrap().id, NodeId(7));
        assert!(members.get(NodeId(3)).is_none() && members.named("d@h").is_none());
    }

    #[test]
    fn no_two_members_are_alike() {
        let refused = |members: &[(u16, &str)]| {
            let members = members.iter().map(|(id, name)| Member::new(NodeId(*id), name));
            Members::new(members).expect_err("alike")
        };
        assert_eq!(refused(&[(1, "a"), (1, "b")]), Error::Member(NodeId(1)));
        assert_eq!(refused(&[(3, "a"), (2, "b"), (1, "a")]), Error::Member(NodeId(3)));
        assert_eq!(refused(&[(u16::MAX, "a")]), Error::Member(NodeId(u16::MAX)));
    }

    #[test]
    fn who_owns_claims_or_gives_up() {
        use MemberState::*;
        assert_eq!(MemberState::ALL.map(MemberState::claims), [true, true, false, false, true]);
        assert_eq!(MemberState::ALL.map(MemberState::may_own), [false, true, true, false, true]);
        assert!(Joining.may_become(Valid) && Valid.may_become(Leaving) && Leaving.may_become(Exiting));
        assert!(!Exiting.may_become(Valid) && !Leaving.may_become(Valid) && !Valid.may_become(Exiting));
    }
}
