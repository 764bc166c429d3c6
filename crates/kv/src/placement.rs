//! Who takes part in a request for a key.
//!
//! A key's preference list names n vnodes; several may belong to one node, which holds the key once and whose one
//! reply counts for each of them. Where a primary cannot be reached, the next node of the ring that can be stands
//! in for it and keeps a hint. If there is no such node, one that takes part already does: it has no second copy,
//! but its reply counts for one more vnode, as in Riak, where a node runs several vnodes of a list.
//!
//! Invariant: the parts follow from the preference list and from who can be reached, not from who coordinates. So two
//! coordinators that see the same nodes down have quorums that meet, if their numbers add up to more than n.

use ring::{NodeId, PreflistEntry};

use crate::needs::Reply;

/// Nodes beyond those that take part which are remembered, should one of these fail meanwhile: one for each of
/// the usual number of replicas that may fail while a majority answers.
pub const SPARES_MAX: usize = 2;

/// The part of a node in one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// For how many of the request's n vnodes its reply counts.
    pub vnodes: u32,
    /// How many of these are primaries.
    pub primaries: u32,
    /// The primaries it keeps a hint for.
    pub hints: Vec<NodeId>,
}

impl Roles {
    /// Asserts that the numbers fit each other.
    pub fn invariants(&self) {
        assert!(self.primaries <= self.vnodes, "the primaries of a node are among its vnodes");
    }

    /// What its reply counts.
    pub fn reply(&self) -> Reply {
        let primaries = if base::planted!(FallbackAsPrimary) { self.vnodes } else { self.primaries };
        Reply { vnodes: self.vnodes, primaries, durable: true }
    }
}

/// Who takes part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// This node's part, if it has one.
    pub here: Option<Roles>,
    /// The other nodes' parts, in the order of the preference list.
    pub others: Vec<(NodeId, Roles)>,
    /// Nodes that may yet stand in, in order.
    pub spares: Vec<NodeId>,
}

impl Placement {
    /// This node is every one of the n vnodes.
    pub fn alone(n: u32) -> Placement {
        let here = Some(Roles { vnodes: n, primaries: n, hints: Vec::new() });
        Placement { here, ..Placement::default() }
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
        let (mut down, mut order) = (Vec::new(), Vec::new());
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
                false if !sloppy || placement.spares.len() == SPARES_MAX => break,
                false if !up => {}
                false => match down.is_empty() {
                    // This node has nobody to send to but others.
                    true if entry.node == here => {}
                    true => placement.spares.push(entry.node),
                    false => {
                        order.push(entry.node);
                        let hints = vec![down.remove(0)];
                        let roles = placement.roles_mut(entry.node, here);
                        debug_assert_eq!(roles.vnodes, 0, "a fallback has no other part in the list");
                        *roles = Roles { vnodes: 1, primaries: 0, hints };
                    }
                },
            }
        }
        for (absent, &node) in down.into_iter().zip(order.iter().cycle()) {
            let roles = placement.roles_mut(node, here);
            roles.vnodes += u32::from(sloppy);
            if !roles.hints.contains(&absent) {
                roles.hints.push(absent);
            }
        }

        if cfg!(debug_assertions) {
            placement.invariants();
        }
        placement
    }

    /// Asserts that the parts fit each other.
    pub fn invariants(&self) {
        let takes_part = |node: &NodeId| self.others.iter().any(|(other, _)| other == node);
        assert!(!self.spares.iter().any(takes_part), "a spare has no part yet");
        for roles in self.here.iter().chain(self.others.iter().map(|(_, roles)| roles)) {
            roles.invariants();
            assert!(!roles.hints.iter().any(takes_part), "a primary that takes part needs no hint");
        }
    }

    /// What all replies together would count.
    pub fn replies(&self) -> impl Iterator<Item = Reply> + Clone {
        self.here.iter().chain(self.others.iter().map(|(_, roles)| roles)).map(Roles::reply)
    }

    /// Whether this node is a primary.
    pub fn is_primary_here(&self) -> bool {
        self.here.as_ref().is_some_and(|roles| roles.primaries > 0)
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

    fn roles(vnodes: u32, primaries: u32, hints: &[u16]) -> Roles {
        Roles { vnodes, primaries, hints: hints.iter().copied().map(NodeId).collect() }
    }

    #[test]
    fn a_node_alone_is_all_vnodes() {
        assert_eq!(of(1, 3, 0, &[], true), Placement::alone(3));
    }

    #[test]
    fn each_primary_has_its_part_and_the_rest_are_spares() {
        let placement = of(5, 3, 1, &[], true);
        assert_eq!(placement.here, Some(roles(1, 1, &[])));
        assert_eq!(placement.others, [(NodeId(0), roles(1, 1, &[])), (NodeId(2), roles(1, 1, &[]))]);
        assert_eq!(placement.spares, [NodeId(3), NodeId(4)]);
        assert_eq!(
            of(5, 3, 3, &[], true).spares,
            [NodeId(4)],
            "nobody stands in for others on its own behalf"
        );
        assert_eq!(of(2, 3, 0, &[], true).here, Some(roles(2, 2, &[])));
    }

    #[test]
    fn a_fallback_stands_in_for_a_primary_that_is_down() {
        let placement = of(5, 3, 4, &[1], true);
        assert_eq!(placement.here, None);
        assert_eq!(placement.others[2], (NodeId(3), roles(1, 0, &[1])));
        assert_eq!(placement.spares, []);
        let two = of(5, 3, 4, &[1, 2], true);
        assert_eq!(two.here, Some(roles(1, 0, &[2])));
        let all = of(5, 3, 4, &[0, 1, 2], true);
        assert_eq!(all.here, Some(roles(1, 0, &[1])));
        assert_eq!(all.others, [(NodeId(3), roles(2, 0, &[0, 2]))]);
    }

    #[test]
    fn without_another_node_one_counts_again_and_keeps_the_hint() {
        assert_eq!(of(3, 3, 0, &[2], true).here, Some(roles(2, 1, &[2])));
        let elsewhere = of(3, 3, 1, &[2], true);
        assert_eq!(elsewhere.others, [(NodeId(0), roles(2, 1, &[2]))], "whoever coordinates");
        assert_eq!(elsewhere.here, Some(roles(1, 1, &[])));
        assert_eq!(of(3, 3, 0, &[1, 2], true).here, Some(roles(3, 1, &[1, 2])));
    }

    #[test]
    fn a_strict_quorum_counts_primaries_only_but_keeps_hints() {
        let placement = of(5, 3, 0, &[2], false);
        assert_eq!((placement.here.clone(), placement.others.len()), (Some(roles(1, 1, &[2])), 1));
        assert_eq!(placement.replies().map(|reply| reply.vnodes).sum::<u32>(), 2);
    }

    #[test]
    fn nobody_up_is_nobody() {
        assert_eq!(of(3, 3, 0, &[0, 1, 2], true), Placement::default());
    }
}
