//! Members and owners of a cluster, as one node knows them.
//!
//! A change of owners goes through epochs. The control plane publishes them, each when all members have adopted the one
//! before ([`crate::Output::Adopted`]):
//!
//! | | `before` | `ring` | `target` | reads and quorums | writes also reach |
//! |---|---|---|---|---|---|
//! | at rest | | old | | old | |
//! | copying | | old | new | old | whoever copies, through those it copies from |
//! | switched | old | new | | new | whoever has given up, through those who copied from it |
//! | at rest | | new | | new | |
//!
//! So at any moment two neighbouring rows are in force somewhere, and any two nodes' quorums meet; decision 28 has the
//! argument. *Switched* follows when every shard of every receiver says that it is complete
//! ([`crate::Output::Copied`]); a target may also be given up: then *at rest* follows with the old ring.
//!
//! For one position and one number of replicas, [`Topology::joiners`] copy from [`Topology::givers`]: from those that
//! leave the list, since what such a node has confirmed its successor must have too. Where somebody leaves whom nobody
//! can ask, or more come than go, they copy from all that stay too.
//!
//! The rings may be of different sizes: what counts is who has a *position*. A position lies in one partition of each
//! ring, and all positions of a partition of the finest one are alike in all of them. The argument is about the keys of
//! one position, so it holds whatever partitions that lies in (decision 39).
//!
//! Left out: the decision, which is `membership`'s.

use crate::layout::Layout;
use crate::members::Members;
use kv::replica::NodeId;
use ring::{MemberState, Position, Ring, RingSize};
use std::sync::Arc;

/// The number of a publication: later ones are higher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// A publication of the control plane: members and owners.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Which it is.
    pub epoch: Epoch,
    /// All members, those too that own nothing.
    pub members: Arc<Members>,
    /// The ring before this one, while some request may still go by it.
    pub before: Option<Arc<Ring>>,
    /// The ring in force.
    pub ring: Arc<Ring>,
    /// The ring that is being moved to. Each target has a version of its own, also one that names the same owners.
    pub target: Option<Arc<Ring>>,
    /// The numbers of replicas that copies are made for: those that all agree on. A shard adds those of the properties
    /// in force when it is told.
    pub n_vals: Arc<[u32]>,
    /// How much copies may take.
    pub budget: Budget,
}

/// How much of each shard copies may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Parts of copies that it sends at a time.
    pub sent_max: u32,
    /// Nodes that it receives from at a time.
    pub received_max: u32,
    /// From each of them.
    pub bytes_per_second: u64,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget {
            sent_max: TRANSFERS_DEFAULT,
            received_max: TRANSFERS_DEFAULT,
            bytes_per_second: BYTES_PER_SECOND_DEFAULT,
        }
    }
}

/// Transfers that a node sends, and that it receives, at a time without a setting: as in Riak.
const TRANSFERS_DEFAULT: u32 = 2;

/// What a copy may take of a link if nothing else is said: half of a gigabit, or as much of a slow disk.
const BYTES_PER_SECOND_DEFAULT: u64 = 64 << 20;

impl Topology {
    /// One at rest, before anything was published.
    pub fn at_rest(members: Arc<Members>, ring: Arc<Ring>) -> Topology {
        let n_vals = Arc::from([kv::BucketProps::default().n_val]);
        Topology {
            epoch: Epoch(0),
            members,
            before: None,
            ring,
            target: None,
            n_vals,
            budget: Budget::default(),
        }
    }

    /// Checks that it fits the layout of a data folder.
    ///
    /// # Panics
    /// If a ring has more partitions than keys have prefixes, or an owner that is no member.
    pub fn check(&self, layout: &Layout) {
        for ring in self.before.iter().chain([&self.ring]).chain(&self.target) {
            assert!(ring.size() <= layout.prefixes, "a partition is a range of keys");
            // A ring names none but its own members.
            let is_of_members = Arc::ptr_eq(ring.members(), self.members.of_ring());
            let has_owners = || ring.owning().iter().all(|node| self.members.has(node));
            assert!(is_of_members || has_owners(), "an owner is a member");
        }
    }

    /// Checks relations between its rings.
    pub fn invariants(&self) {
        assert!(self.before.is_none() || self.target.is_none(), "a change has switched or copies");
        let is_earlier = self.before.as_ref().is_none_or(|before| before.version() < self.ring.version());
        assert!(is_earlier, "the ring before has an earlier version");
        assert!(self.n_vals.is_sorted_by(|a, b| a < b), "each number of replicas is named once");
    }

    /// Whether some partition may move.
    pub fn is_at_rest(&self) -> bool {
        self.before.is_none() && self.target.is_none()
    }

    /// The old and the new ring, if there are two.
    pub fn change(&self) -> Option<(&Arc<Ring>, &Arc<Ring>)> {
        match (&self.before, &self.target) {
            (Some(before), _) => Some((before, &self.ring)),
            (None, Some(target)) => Some((&self.ring, target)),
            (None, None) => None,
        }
    }

    /// The nodes that come to the list of this position.
    pub fn joiners(&self, at: Position, n_val: u32) -> Vec<NodeId> {
        let Some((old, new)) = self.change() else { return Vec::new() };
        let old = nodes(old, at, n_val);
        nodes(new, at, n_val).into_iter().filter(|node| !old.contains(node)).collect()
    }

    /// Whether a node is one of those that come.
    pub fn joins(&self, node: NodeId, at: Position, n_val: u32) -> bool {
        let is_joiner = |(old, new): (&Arc<Ring>, &Arc<Ring>)| {
            lists(new, at, n_val, node) && !lists(old, at, n_val, node)
        };
        self.change().is_some_and(is_joiner)
    }

    /// The nodes that they copy from.
    pub fn givers(&self, at: Position, n_val: u32) -> Vec<NodeId> {
        let Some((old, new)) = self.change() else { return Vec::new() };
        let (had, has) = (nodes(old, at, n_val), nodes(new, at, n_val));
        let leavers = had.iter().filter(|node| !has.contains(node)).count();
        let joiners = has.iter().filter(|node| !had.contains(node)).count();
        let lives = |node: &NodeId| new.members().get(*node).is_some_and(|it| it.state != MemberState::Down);
        let all_leave_alive = had.iter().filter(|node| !has.contains(node)).all(lives);
        let only_leavers = all_leave_alive && leavers >= joiners;
        had.into_iter().filter(|node| lives(node) && !(only_leavers && has.contains(node))).collect()
    }

    /// Whether a node is to have this position, by any ring that is in force or comes.
    pub fn is_keeper(&self, node: NodeId, at: Position, n_val: u32) -> bool {
        let mut rings = self.before.iter().chain([&self.ring]).chain(&self.target);
        rings.any(|ring| lists(ring, at, n_val, node))
    }

    /// The size of the ring with the most partitions, of those that are in force or come.
    pub fn finest(&self) -> RingSize {
        let rings = self.before.iter().chain(&self.target);
        rings.map(|ring| ring.size()).fold(self.ring.size(), RingSize::max)
    }

    /// The largest number of replicas.
    pub fn n_val_max(&self) -> u32 {
        self.n_vals.iter().copied().max().unwrap_or(1)
    }
}

/// Whether a node is on a position's list.
pub(crate) fn lists(ring: &Ring, at: Position, n_val: u32, node: NodeId) -> bool {
    let n_val = usize::try_from(n_val).unwrap_or(usize::MAX);
    ring.preflist(ring.size().partition(at), n_val).any(|entry| entry.node == node)
}

/// The nodes on a position's list, each once.
pub(crate) fn nodes(ring: &Ring, at: Position, n_val: u32) -> Vec<NodeId> {
    let n_val = usize::try_from(n_val).unwrap_or(usize::MAX);
    let mut nodes: Vec<NodeId> = Vec::new();
    for entry in ring.preflist(ring.size().partition(at), n_val) {
        if !nodes.contains(&entry.node) {
            nodes.push(entry.node);
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ring::{Member, RingVersion};

    fn ring(version: u64, owners: [u16; 8], down: &[u16]) -> Arc<Ring> {
        let state = |id| if down.contains(&id) { MemberState::Down } else { MemberState::Valid };
        let member = |id: u16| Member { state: state(id), ..Member::new(NodeId(id), &format!("n{id}")) };
        let members = Arc::new(ring::Members::new((0..6).map(member)).unwrap());
        let size = RingSize::new(8).unwrap();
        Arc::new(Ring::new(RingVersion(version), size, members, owners.map(NodeId).into()).unwrap())
    }

    fn copying(old: [u16; 8], new: [u16; 8], down: &[u16]) -> Topology {
        let members = Arc::new(Members::of(NodeId(0), Arc::clone(ring(1, old, &[]).members())).unwrap());
        Topology { target: Some(ring(2, new, down)), ..Topology::at_rest(members, ring(1, old, &[])) }
    }

    const OLD: [u16; 8] = [0, 1, 2, 3, 0, 1, 2, 3];

    #[test]
    fn whoever_comes_copies_from_whoever_goes() {
        let topology = copying(OLD, [0, 1, 4, 3, 0, 1, 4, 3], &[]);
        let at = Position(0);
        assert_eq!((topology.joiners(at, 3), topology.givers(at, 3)), (vec![NodeId(4)], vec![NodeId(2)]));
        assert_eq!(topology.joiners(at, 2), []);
        assert!(topology.is_keeper(NodeId(2), at, 3) && topology.is_keeper(NodeId(4), at, 3));
        assert!(!topology.is_keeper(NodeId(3), at, 3) && !topology.is_keeper(NodeId(2), at, 2));
        let switched = Topology {
            before: Some(Arc::clone(&topology.ring)),
            ring: topology.target.clone().unwrap(),
            target: None,
            ..topology.clone()
        };
        assert_eq!((switched.joiners(at, 3), switched.givers(at, 3)), (vec![NodeId(4)], vec![NodeId(2)]));
        let rest = Topology { before: None, ..switched };
        assert!(rest.joiners(at, 3).is_empty() && rest.givers(at, 3).is_empty() && rest.is_at_rest());
    }

    #[test]
    fn those_that_stay_give_what_nobody_can_be_asked_for() {
        let topology = copying(OLD, [0, 1, 4, 3, 0, 1, 4, 3], &[2]);
        assert_eq!(topology.givers(Position(0), 3), [NodeId(0), NodeId(1)]);
    }

    #[test]
    fn where_more_come_than_go_all_give() {
        let topology = copying([0, 1, 0, 1, 0, 1, 0, 1], [0, 1, 2, 0, 1, 2, 0, 1], &[]);
        let at = Position(0);
        assert_eq!(
            (topology.joiners(at, 3), topology.givers(at, 3)),
            (vec![NodeId(2)], vec![NodeId(0), NodeId(1)])
        );
    }

    /// A ring of any size, in which as many nodes own as there are.
    fn any_ring(version: u64) -> impl Strategy<Value = Arc<Ring>> {
        let owners = (3u32..7).prop_flat_map(|bits| prop::collection::vec(0u16..6, 1usize << bits));
        owners.prop_map(move |owners| {
            let members = Arc::clone(ring(1, OLD, &[]).members());
            let owners: Box<[NodeId]> = owners.into_iter().map(NodeId).collect();
            let size = RingSize::of_owners(&owners).unwrap();
            Arc::new(Ring::new(RingVersion(version), size, members, owners).unwrap())
        })
    }

    /// The parts of a list with so many nodes.
    fn quorums(list: &[NodeId], nodes: usize) -> impl Iterator<Item = Vec<NodeId>> {
        let chosen = |bits: u32| (0..list.len()).filter(move |at| bits & 1 << at != 0).map(|at| list[at]);
        (0..1u32 << list.len())
            .map(move |bits| chosen(bits).collect::<Vec<_>>())
            .filter(move |it| it.len() == nodes)
    }

    proptest! {
        /// The argument of decision 28, at every position: what a quorum of writers has confirmed by one step a quorum
        /// of readers finds by that step or a neighbour, whatever the sizes of the two rings.
        #[test]
        fn quorums_of_neighbouring_steps_meet(old in any_ring(1), new in any_ring(2), n_val in 1u32..5) {
            let members = Arc::new(Members::of(NodeId(0), Arc::clone(old.members())).unwrap());
            let copying = Topology { target: Some(Arc::clone(&new)), ..Topology::at_rest(members, Arc::clone(&old)) };
            let switched =
                Topology { before: Some(Arc::clone(&old)), ring: Arc::clone(&new), target: None, ..copying.clone() };
            let finest = copying.finest();
            prop_assert_eq!(finest, old.size().max(new.size()));
            for partition in finest.all() {
                let at = finest.first(partition);
                let (had, has) = (nodes(&old, at, n_val), nodes(&new, at, n_val));
                // Fewer nodes than replicas are left out of the argument.
                if had.len() != has.len() {
                    continue;
                }
                let (givers, joiners) = (copying.givers(at, n_val), copying.joiners(at, n_val));
                prop_assert_eq!((&givers, &joiners), (&switched.givers(at, n_val), &switched.joiners(at, n_val)));
                for node in (0..6).map(NodeId) {
                    prop_assert_eq!(copying.joins(node, at, n_val), joiners.contains(&node));
                }
                let n = had.len();
                for w in 1..=n {
                    let r = n + 1 - w;
                    // What a list's part has confirmed, with those to whom it was passed on.
                    let confirmed = |writers: &[NodeId], pass: &[NodeId], on: &[NodeId]| {
                        let passes = writers.iter().any(|node| pass.contains(node));
                        let more = if passes { on.to_vec() } else { Vec::new() };
                        [writers.to_vec(), more].concat()
                    };
                    for writers in quorums(&had, w) {
                        let all = confirmed(&writers, &givers, &joiners);
                        for readers in quorums(&has, r) {
                            prop_assert!(readers.iter().any(|node| all.contains(node)), "{writers:?}, {readers:?}");
                        }
                    }
                    for writers in quorums(&has, w) {
                        let all = confirmed(&writers, &joiners, &givers);
                        for readers in quorums(&had, r) {
                            prop_assert!(readers.iter().any(|node| all.contains(node)), "{writers:?}, {readers:?}");
                        }
                    }
                }
                // Those of a position are those of all its neighbours in the finest partition.
                let last = *finest.range(partition).end();
                prop_assert_eq!(givers, copying.givers(last, n_val));
                prop_assert!(had.iter().chain(&has).all(|&node| switched.is_keeper(node, last, n_val)));
            }
        }
    }
}
