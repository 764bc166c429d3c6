//! The choice of one copy of a group after its nodes were restored from backups.
//!
//! A restored store is another voter than before, so a group has no majority when too many of its nodes are restored.
//! One of the copies becomes the only voter, and refills the others.
//!
//! 1. A group is left alone if voters that still vote are a majority of a configuration.
//! 2. It is refused if a voter is left that was not restored: it would go on in the earlier epoch.
//! 3. Else the best copy of a restored store is chosen: of the highest epoch, then with the last entry of the highest
//!    term, then of the highest index. Equal copies are in the order of the group's list, so that leaders stay spread.
//!
//! Invariant: the chosen copy has every write that was acknowledged before the first backup began, unless the choice
//! [may lack](Chosen::may_lack_writes) some. A write is acknowledged when it is in the logs of a majority. A log whose
//! last entry is of a later term has it, because leaders of later terms have it. So does one of the same term that is
//! at least as long. Those of an earlier term, or shorter ones, are below a copy of that majority. The commit index and
//! the applied index do not decide: they may be low in the only copy with the write. A later epoch comes first, since
//! its writes were acknowledged by the voters of that epoch alone.
//!
//! Left out: the fences that keep two choices apart, which are the nodes' (`node::consistent::adopt`, and the shell).

use std::cmp::Reverse;

use crate::group::{Configuration, Progress, VoterId};
use ring::NodeId;

/// The reason why a copy cannot be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyFault {
    /// The state or an entry cannot be read.
    #[error("damaged")]
    Damaged,
    /// Entries that the store may have acknowledged are missing.
    #[error("suspect")]
    Suspect,
    /// The store lacks keys, or has some of a time that no log leads to.
    #[error("catch-up")]
    CatchUp,
    /// The store was removed from the group.
    #[error("removed")]
    Removed,
}

impl CopyFault {
    /// All of them.
    const ALL: [CopyFault; 4] =
        [CopyFault::Damaged, CopyFault::Suspect, CopyFault::CatchUp, CopyFault::Removed];

    /// The fault of that name.
    pub fn named(name: &str) -> Option<CopyFault> {
        CopyFault::ALL.into_iter().find(|fault| fault.to_string() == name)
    }
}

/// The copy of a group in one store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupCopy {
    /// The node.
    pub node: NodeId,
    /// Its place on the group's list, from 0.
    pub rank: u32,
    /// Recoveries by an operator so far.
    pub epoch: u16,
    /// Index and term of the last entry of its log.
    pub last: (u64, u64),
    /// Voters and learners, as this copy knows them. Those of the founding if the group has not begun here.
    pub configuration: Configuration,
    /// Why it cannot be chosen.
    pub fault: Option<CopyFault>,
}

impl GroupCopy {
    /// The order of copies: the best is the greatest.
    fn order(&self) -> (u16, u64, u64) {
        let (index, term) = self.last;
        if base::planted!(WorseCopyChosen) {
            return (self.epoch, u64::MAX - term, u64::MAX - index);
        }
        (self.epoch, term, index)
    }
}

/// The nodes and stores that take part in a choice.
pub trait Stores {
    /// Whether the groups of a node are held back, so that its copies may be chosen.
    fn is_held(&self, node: NodeId) -> bool;

    /// Whether a voter still votes: it is the registered store of a node that is not held back.
    fn votes(&self, voter: VoterId) -> bool;
}

/// A copy that was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The node with the copy.
    pub node: NodeId,
    /// No copy has an entry: the group begins anew.
    pub is_empty: bool,
    /// The logs of the usable copies end at different entries.
    pub differs: bool,
    /// So few copies can be used that acknowledged writes may be in none of them.
    pub may_lack_writes: bool,
}

/// Why none is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No restored store has a usable copy.
    #[error("no restored node has a usable copy")]
    NoCopy,
    /// A store that was not restored is still a voter, and would go on beside the chosen copy.
    #[error("a node that was not restored still has a vote")]
    VoterLeft(NodeId),
    /// The best copy is that of a store that was not restored.
    #[error("the best copy is at a node that was not restored")]
    BetterElsewhere(NodeId),
}

/// The judgement on a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// A majority still votes.
    Lives,
    /// This copy goes on.
    Copy(Chosen),
    /// Nothing is changed.
    Refused(Refusal),
}

/// Chooses one of the copies of a group, which is on so many nodes.
pub fn choose(copies: &[GroupCopy], nodes: usize, stores: &impl Stores) -> Choice {
    let lives = |copy: &GroupCopy| copy.configuration.is_majority(|voter| stores.votes(voter));
    // The state of a damaged copy was not read: it has no voters.
    let known = copies.iter().filter(|copy| !copy.configuration.voters.is_empty());
    if known.clone().any(lives) {
        return Choice::Lives;
    }
    let own_vote = |copy: &GroupCopy| {
        let voters = copy.configuration.voters.iter().chain(&copy.configuration.outgoing);
        voters.filter(|voter| voter.node == copy.node).any(|voter| stores.votes(*voter))
    };
    if let Some(copy) = known.clone().find(|copy| own_vote(copy)) {
        return Choice::Refused(Refusal::VoterLeft(copy.node));
    }

    let usable: Vec<&GroupCopy> = copies.iter().filter(|copy| copy.fault.is_none()).collect();
    let held = usable.iter().filter(|copy| stores.is_held(copy.node));
    let Some(best) = held.max_by_key(|copy| (copy.order(), Reverse(copy.rank))) else {
        return Choice::Refused(Refusal::NoCopy);
    };
    if let Some(better) = usable.iter().find(|copy| copy.order() > best.order()) {
        return Choice::Refused(Refusal::BetterElsewhere(better.node));
    }
    Choice::Copy(Chosen {
        node: best.node,
        is_empty: best.last == Progress::FOUNDED.applied,
        differs: usable.iter().any(|copy| copy.order() != best.order()),
        // A majority has each acknowledged write. It meets the usable copies if they are more than the rest.
        may_lack_writes: usable.len() < nodes - nodes / 2,
    })
}

#[cfg(test)]
mod tests;
