//! The replicas of a request for a key.
//!
//! A key's preference list names n vnodes; several may belong to one node, which holds the key once and whose one
//! reply counts for each of them. Where a primary cannot be reached, the next node of the ring that can be stands
//! in for it and keeps a hint. If there is no such node, one that takes part already does: it has no second copy,
//! but its reply counts for one more vnode, as in Riak, where a node runs several vnodes of a list.
//!
//! Invariant: the parts follow from the preference list and from who can be reached, not from who coordinates. So two
//! coordinators that see the same nodes down have quorums that meet, if their numbers add up to more than n.
//!
//! Each request has a placement, so up to [`REPLICAS_INLINE`] replicas are placed without an allocation.

use ring::{NodeId, PreflistEntry};
use smallvec::SmallVec;

use crate::needs::Reply;
use crate::props::N_VAL_MAX;

/// Nodes beyond those that take part which are remembered, should one of these fail meanwhile: one for each of
/// the usual number of replicas that may fail while a majority answers.
pub const SPARES_MAX: usize = 2;

/// Replicas up to which a placement allocates nothing: buckets with more are rare.
pub const REPLICAS_INLINE: usize = 8;

/// Primaries that are down, up to which a placement allocates nothing: half of [`REPLICAS_INLINE`].
const HINTS_INLINE: usize = REPLICAS_INLINE / 2;

const _: () = assert!(N_VAL_MAX <= u8::MAX as u32, "the numbers of a node's part fit a byte");

/// The part of a node in one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// For how many of the request's n vnodes its reply counts.
    pub vnodes: u8,
    /// How many of these are primaries.
    pub primaries: u8,
}

impl Roles {
    /// Asserts that the numbers fit each other.
    pub fn invariants(self) {
        assert!(self.primaries <= self.vnodes, "the primaries of a node are among its vnodes");
    }

    /// What its reply counts.
    pub fn reply(self) -> Reply {
        let primaries = if base::planted!(FallbackAsPrimary) { self.vnodes } else { self.primaries };
        Reply { vnodes: self.vnodes.into(), primaries: primaries.into(), durable: true }
    }
}

/// A hint to be kept for a primary that cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The node that keeps it; `None` for this one.
    pub keeper: Option<NodeId>,
    /// The primary.
    pub absent: NodeId,
}

/// Nodes that may yet stand in, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spares([Option<NodeId>; SPARES_MAX]);

impl Spares {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0[0].is_none()
    }

    /// Whether no more of them are remembered.
    pub fn is_full(&self) -> bool {
        self.0[SPARES_MAX - 1].is_some()
    }

    /// The nodes, in order.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> {
        self.0.iter().flatten().copied()
    }

    /// Adds a node behind the others.
    ///
    /// # Panics
    /// If they are full.
    pub fn push(&mut self, node: NodeId) {
        let at = self.iter().count();
        self.0[at] = Some(node);
    }

    /// Takes the first one out.
    pub fn take_first(&mut self) -> Option<NodeId> {
        self.0.rotate_left(1);
        self.0[SPARES_MAX - 1].take()
    }
}

/// Nodes of a preference list.
type Nodes = SmallVec<[NodeId; REPLICAS_INLINE]>;

/// The parts of all nodes in one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// This node's part, if it has one.
    pub here: Option<Roles>,
    /// The other nodes' parts, in the order of the preference list.
    pub others: SmallVec<[(NodeId, Roles); REPLICAS_INLINE]>,
    /// The hints that nodes with a part keep.
    pub hints: SmallVec<[Hint; HINTS_INLINE]>,
    /// Nodes that may yet stand in, in order.
    pub spares: Spares,
}

impl Placement {
    /// This node is every one of the n vnodes.
    pub fn alone(n: u32) -> Placement {
        let n = u8::try_from(n).expect("an n_val is at most N_VAL_MAX");
        Placement { here: Some(Roles { vnodes: n, primaries: n }), ..Placement::default() }
    }

    /// From a preference list with its fallbacks, primaries first. Without `sloppy` nobody stands in, though
    /// hints are kept.
    pub fn of(
        preflist: impl Iterator<Item = PreflistEntry>,
        here: NodeId,
        sloppy: bool,
        is_up: impl Fn(NodeId) -> bool,
    ) -> Placement {
        let mut placement = Placement::default();
        let (mut down, mut order) = (Nodes::new(), Nodes::new());
        for entry in preflist {
            let up = is_up(entry.node);
            match entry.primary {
                true if up => {
                    order.push(entry.node);
                    let roles = placement.roles_mut(entry.node, here);
                    roles.vnodes += 1;
                    roles.primaries += 1;
                }
                true => down.push(entry.node),
                false if !sloppy || placement.spares.is_full() => break,
                false if !up => {}
                false => match down.is_empty() {
                    // This node has nobody to send to but others.
                    true if entry.node == here => {}
                    true => placement.spares.push(entry.node),
                    false => {
                        order.push(entry.node);
                        let roles = placement.roles_mut(entry.node, here);
                        debug_assert_eq!(roles.vnodes, 0, "a fallback has no other part in the list");
                        *roles = Roles { vnodes: 1, primaries: 0 };
                        placement.add_hint(entry.node, down.remove(0), here);
                    }
                },
            }
        }
        for (absent, &node) in down.into_iter().zip(order.iter().cycle()) {
            placement.roles_mut(node, here).vnodes += u8::from(sloppy);
            placement.add_hint(node, absent, here);
        }

        if cfg!(debug_assertions) {
            placement.invariants();
        }
        placement
    }

    /// Asserts that the parts fit each other.
    pub fn invariants(&self) {
        let takes_part = |node: NodeId| self.others.iter().any(|(other, _)| *other == node);
        assert!(!self.spares.iter().any(takes_part), "a spare has no part yet");
        self.here
            .iter()
            .chain(self.others.iter().map(|(_, roles)| roles))
            .for_each(|roles| roles.invariants());
        for hint in &self.hints {
            assert!(!takes_part(hint.absent), "a primary that takes part needs no hint");
            assert!(hint.keeper.map_or(self.here.is_some(), takes_part), "the keeper of a hint takes part");
        }
    }

    /// The primaries for which `keeper` keeps hints; `None` is this node.
    pub fn hints_of(&self, keeper: Option<NodeId>) -> impl Iterator<Item = NodeId> {
        self.hints.iter().filter(move |hint| hint.keeper == keeper).map(|hint| hint.absent)
    }

    /// What all replies together would count.
    pub fn replies(&self) -> impl Iterator<Item = Reply> + Clone {
        self.here.iter().chain(self.others.iter().map(|(_, roles)| roles)).map(|roles| roles.reply())
    }

    /// Whether this node is a primary.
    pub fn is_primary_here(&self) -> bool {
        self.here.is_some_and(|roles| roles.primaries > 0)
    }

    /// Whether no other node takes part, or may yet.
    pub fn is_only_here(&self) -> bool {
        self.others.is_empty() && self.spares.is_empty()
    }

    #[inline]
    fn roles_mut(&mut self, node: NodeId, here: NodeId) -> &mut Roles {
        if node == here {
            return self.here.get_or_insert_default();
        }
        let at = self.others.iter().position(|(other, _)| *other == node).unwrap_or_else(|| {
            self.others.push((node, Roles::default()));
            self.others.len() - 1
        });
        &mut self.others[at].1
    }

    /// A primary of several vnodes is absent from each of them, and needs one hint.
    fn add_hint(&mut self, keeper: NodeId, absent: NodeId, here: NodeId) {
        let hint = Hint { keeper: Some(keeper).filter(|keeper| *keeper != here), absent };
        if !self.hints.contains(&hint) {
            self.hints.push(hint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::{Partition, Ring, RingSize, RingVersion};

    fn of(nodes: u32, n: usize, here: u16, down: &[u16], sloppy: bool) -> Placement {
        let ring = Ring::round_robin(RingVersion(1), RingSize::new(16).unwrap(), nodes).unwrap();
        let list = ring.preflist_with_fallbacks(Partition(0), n);
        Placement::of(list, NodeId(here), sloppy, |node| !down.contains(&node.0))
    }

    /// The vnodes and the primaries of a node's part, and the primaries it keeps hints for; `None` is this node.
    fn part(placement: &Placement, node: Option<u16>) -> Option<(u8, u8, Vec<u16>)> {
        let node = node.map(NodeId);
        let roles = match node {
            None => placement.here?,
            Some(node) => placement.others.iter().find(|(other, _)| *other == node)?.1,
        };
        let hints = placement.hints_of(node).map(|absent| absent.0).collect();
        Some((roles.vnodes, roles.primaries, hints))
    }

    fn nodes(placement: &Placement) -> Vec<u16> {
        placement.others.iter().map(|(node, _)| node.0).collect()
    }

    #[test]
    fn a_node_alone_is_all_vnodes() {
        assert_eq!(of(1, 3, 0, &[], true), Placement::alone(3));
    }

    #[test]
    fn each_primary_has_its_part_and_the_rest_are_spares() {
        let placement = of(5, 3, 1, &[], true);
        assert_eq!(part(&placement, None), Some((1, 1, vec![])));
        assert_eq!(nodes(&placement), [0, 2]);
        assert_eq!(part(&placement, Some(0)), Some((1, 1, vec![])));
        assert_eq!(part(&placement, Some(2)), Some((1, 1, vec![])));
        assert_eq!(placement.spares.iter().collect::<Vec<_>>(), [NodeId(3), NodeId(4)]);
        let spares = of(5, 3, 3, &[], true).spares;
        assert_eq!(
            spares.iter().collect::<Vec<_>>(),
            [NodeId(4)],
            "nobody stands in for others on its own behalf"
        );
        assert_eq!(part(&of(2, 3, 0, &[], true), None), Some((2, 2, vec![])));
    }

    #[test]
    fn a_fallback_stands_in_for_a_primary_that_is_down() {
        let placement = of(5, 3, 4, &[1], true);
        assert_eq!(placement.here, None);
        assert_eq!(nodes(&placement), [0, 2, 3]);
        assert_eq!(part(&placement, Some(3)), Some((1, 0, vec![1])));
        assert!(placement.spares.is_empty());
        assert_eq!(part(&of(5, 3, 4, &[1, 2], true), None), Some((1, 0, vec![2])));
        let all = of(5, 3, 4, &[0, 1, 2], true);
        assert_eq!(part(&all, None), Some((1, 0, vec![1])));
        assert_eq!((nodes(&all), part(&all, Some(3))), (vec![3], Some((2, 0, vec![0, 2]))));
    }

    #[test]
    fn without_another_node_one_counts_again_and_keeps_the_hint() {
        assert_eq!(part(&of(3, 3, 0, &[2], true), None), Some((2, 1, vec![2])));
        let elsewhere = of(3, 3, 1, &[2], true);
        assert_eq!(part(&elsewhere, Some(0)), Some((2, 1, vec![2])), "whoever coordinates");
        assert_eq!((nodes(&elsewhere), part(&elsewhere, None)), (vec![0], Some((1, 1, vec![]))));
        assert_eq!(part(&of(3, 3, 0, &[1, 2], true), None), Some((3, 1, vec![1, 2])));
    }

    #[test]
    fn a_strict_quorum_counts_primaries_only_but_keeps_hints() {
        let placement = of(5, 3, 0, &[2], false);
        assert_eq!((part(&placement, None), placement.others.len()), (Some((1, 1, vec![2])), 1));
        assert_eq!(placement.replies().map(|reply| reply.vnodes).sum::<u32>(), 2);
    }

    #[test]
    fn nobody_up_is_nobody() {
        assert_eq!(of(3, 3, 0, &[0, 1, 2], true), Placement::default());
    }

    #[test]
    fn eight_replicas_are_placed_without_an_allocation() {
        let placement = of(16, REPLICAS_INLINE, 0, &[1, 3, 5, 7], true);
        assert_eq!((placement.others.len(), placement.hints.len()), (REPLICAS_INLINE - 1, HINTS_INLINE));
        assert!(!placement.others.spilled() && !placement.hints.spilled());
    }
}
