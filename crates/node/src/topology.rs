//! Who is in the cluster and who holds what, as far as one node has been told.
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
//! For one partition and one number of replicas, [`Topology::joiners`] copy from [`Topology::givers`]: from those that leave the list,
//! since what such a node has confirmed its successor must have too. Where somebody leaves whom nobody can ask, or more
//! come than go, they copy from all that stay too.
//!
//! Left out: who decides (membership), and a change of the ring's size.

use crate::members::Members;
use kv::replica::NodeId;
use ring::{MemberState, Partition, Ring};
use std::sync::Arc;

/// The number of what was published: later ones are higher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// What was published.
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
    /// The numbers of replicas that copies are made for: those that all agree on. A shard adds those of the properties in force
    /// when it is told.
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
        let transfers = ring::TRANSFERS_DEFAULT;
        Budget { sent_max: transfers, received_max: transfers, bytes_per_second: BYTES_PER_SECOND_DEFAULT }
    }
}

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

    /// Who comes to the list of this partition.
    pub fn joiners(&self, partition: Partition, n_val: u32) -> Vec<NodeId> {
        let Some((old, new)) = self.change() else { return Vec::new() };
        let old = nodes(old, partition, n_val);
        nodes(new, partition, n_val).into_iter().filter(|node| !old.contains(node)).collect()
    }

    /// Whom they copy from.
    pub fn givers(&self, partition: Partition, n_val: u32) -> Vec<NodeId> {
        let Some((old, new)) = self.change() else { return Vec::new() };
        let (had, has) = (nodes(old, partition, n_val), nodes(new, partition, n_val));
        let leavers = had.iter().filter(|node| !has.contains(node)).count();
        let joiners = has.iter().filter(|node| !had.contains(node)).count();
        let lives = |node: &NodeId| new.members().get(*node).is_some_and(|it| it.state != MemberState::Down);
        let all_leave_alive = had.iter().filter(|node| !has.contains(node)).all(lives);
        let only_leavers = all_leave_alive && leavers >= joiners;
        had.into_iter().filter(|node| lives(node) && !(only_leavers && has.contains(node))).collect()
    }

    /// Whether a node is to have this partition, by any ring that is in force or comes.
    pub fn is_keeper(&self, node: NodeId, partition: Partition, n_val: u32) -> bool {
        let rings = self.before.iter().chain([&self.ring]).chain(&self.target);
        let lists = |ring: &Arc<Ring>| {
            let n_val = usize::try_from(n_val).unwrap_or(usize::MAX);
            ring.preflist(partition, n_val).any(|entry| entry.node == node)
        };
        rings.into_iter().any(lists)
    }

    /// The largest number of replicas.
    pub fn n_val_max(&self) -> u32 {
        self.n_vals.iter().copied().max().unwrap_or(1)
    }
}

/// The nodes on a partition's list, each once.
pub(crate) fn nodes(ring: &Ring, partition: Partition, n_val: u32) -> Vec<NodeId> {
    let n_val = usize::try_from(n_val).unwrap_or(usize::MAX);
    let mut nodes: Vec<NodeId> = Vec::new();
    for entry in ring.preflist(partition, n_val) {
        if !nodes.contains(&entry.node) {
            nodes.push(entry.node);
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::{Member, RingSize, RingVersion};

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
        let at = Partition(0);
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
        assert_eq!(topology.givers(Partition(0), 3), [NodeId(0), NodeId(1)]);
    }

    #[test]
    fn where_more_come_than_go_all_give() {
        let topology = copying([0, 1, 0, 1, 0, 1, 0, 1], [0, 1, 2, 0, 1, 2, 0, 1], &[]);
        let at = Partition(0);
        assert_eq!(
            (topology.joiners(at, 3), topology.givers(at, 3)),
            (vec![NodeId(2)], vec![NodeId(0), NodeId(1)])
        );
    }
}
