//! What a plan must move at least, told from the owners there are without making a claim.
//!
//! *By share*: who goes, or has more than a share rounded up, gives the rest; who has less than a share rounded down
//! gets it. Both are bounds, and the larger one holds.
//!
//! *By distance*: any `n` neighbours belong to different nodes. A partition whose owner goes (an orphan) can be given
//! without another move only to one that has room and is not among the neighbours which stay. As many as that can be
//! done for at once are found (a bipartite matching); the others need partitions to move whose owners stay, and each of
//! these helps the few orphans near it, and one more by the room that its owner has then.
//!
//! Left out: weights, which all are the same here, and zones; neighbours of which both owners go. So it may be less
//! than what must move, and is never more.

use membership::NodeId;
use std::collections::BTreeMap;

/// Owners by partition, of which some go, and the shares of those that are to own everything.
pub(super) struct Least<'a> {
    pub(super) owners: &'a [NodeId],
    pub(super) claimants: &'a [NodeId],
    /// How many neighbours are to be on different nodes; 1 if the plan does not keep that.
    pub(super) n: usize,
}

impl Least<'_> {
    /// How many partitions must move.
    pub(super) fn moves(&self) -> usize {
        let (share, rest) =
            (self.owners.len() / self.claimants.len(), self.owners.len() % self.claimants.len());
        let most = share + usize::from(rest > 0);
        let mut has: BTreeMap<NodeId, usize> = self.claimants.iter().map(|node| (*node, 0)).collect();
        for owner in self.owners {
            has.entry(*owner).and_modify(|has| *has += 1);
        }
        let orphans: Vec<usize> = (0..self.owners.len()).filter(|at| self.is_orphan(*at)).collect();
        let claiming = || self.claimants.iter().map(|node| has[node]);
        let given: usize = orphans.len() + claiming().map(|has| has.saturating_sub(most)).sum::<usize>();
        let taken: usize = claiming().map(|has| share.saturating_sub(has)).sum();
        let room = |node: NodeId| most.saturating_sub(has[&node]);
        let placed = Matching::of(&orphans, self.claimants, room, |at, node| self.is_apart(at, node));
        let near = |at: usize| orphans.iter().filter(|orphan| self.are_neighbours(at, **orphan)).count();
        let helped_by_one = (0..self.owners.len()).map(near).max().unwrap_or_default() + 1;
        given.max(taken).max(orphans.len() + (orphans.len() - placed).div_ceil(helped_by_one))
    }

    fn is_orphan(&self, at: usize) -> bool {
        !self.claimants.contains(&self.owners[at])
    }

    fn are_neighbours(&self, one: usize, other: usize) -> bool {
        let apart = one.abs_diff(other);
        apart.min(self.owners.len() - apart) < self.n
    }

    /// Whether a node owns none of the neighbours.
    fn is_apart(&self, at: usize, node: NodeId) -> bool {
        let size = self.owners.len();
        let owns = |at: usize| self.owners[at % size] == node;
        (1..self.n).all(|step| !owns(at + step) && !owns(at + size - step))
    }
}

/// Who is given what, and whom it may be given to (Kuhn's augmenting paths).
struct Matching<'a, Room, May> {
    claimants: &'a [NodeId],
    room: Room,
    may: May,
    given: BTreeMap<NodeId, Vec<usize>>,
}

impl<Room: Fn(NodeId) -> usize, May: Fn(usize, NodeId) -> bool> Matching<'_, Room, May> {
    /// How many can be given at once.
    fn of(orphans: &[usize], claimants: &[NodeId], room: Room, may: May) -> usize {
        let given = claimants.iter().map(|node| (*node, Vec::new())).collect();
        let mut matching = Matching { claimants, room, may, given };
        orphans.iter().filter(|orphan| matching.give(**orphan, &mut Vec::new())).count()
    }

    fn give(&mut self, orphan: usize, asked: &mut Vec<NodeId>) -> bool {
        for &node in self.claimants {
            if asked.contains(&node) || !(self.may)(orphan, node) {
                continue;
            }
            asked.push(node);
            if self.given[&node].len() < (self.room)(node) {
                self.given.entry(node).or_default().push(orphan);
                return true;
            }
            for at in 0..self.given[&node].len() {
                let other = self.given[&node][at];
                if self.give(other, asked) {
                    self.given.entry(node).or_default()[at] = orphan;
                    return true;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn least(owners: &[u16], claimants: &[u16], n: usize) -> usize {
        let nodes = |nodes: &[u16]| nodes.iter().copied().map(NodeId).collect::<Vec<_>>();
        Least { owners: &nodes(owners), claimants: &nodes(claimants), n }.moves()
    }

    #[test]
    fn what_goes_and_what_comes_moves() {
        let owners = [0, 1, 2, 3, 0, 1, 2, 3];
        assert_eq!(least(&owners, &[0, 1, 2, 3], 4), 0);
        assert_eq!(least(&owners, &[0, 1, 2, 3, 4], 1), 1);
        assert_eq!(least(&owners, &[0, 1, 2], 1), 2);
        assert_eq!(least(&owners, &[0, 1, 2, 4], 4), 2, "one takes the other's place");
        assert_eq!(least(&[0, 0, 0, 1], &[0, 1], 1), 1, "a share is half");
    }

    #[test]
    fn distance_costs_moves() {
        // Whoever stays is a neighbour of both partitions of the one that goes.
        assert_eq!(least(&[0, 1, 2, 3, 0, 1, 2, 3], &[0, 1, 2], 3), 3);
        assert_eq!(least(&[0, 1, 2, 3, 0, 1, 2, 4], &[0, 1, 2, 4], 2), 1);
    }
}
