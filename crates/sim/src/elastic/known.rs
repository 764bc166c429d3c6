//! What was published under one version, as all nodes that go by it share it here.

use super::plan::REPLICAS;
use membership::NodeId;
use membership::state::{Published, State, Step};
use node::{Epoch, Members, Topology};
use ring::{Partition, Position, Ring, RingSize, RingVersion};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// [`REPLICAS`], as topologies count.
const N_VAL: u32 = REPLICAS as u32;

/// What was published.
pub(super) struct Known {
    pub(super) topology: Topology,
    /// By what stores are divided, however many partitions a ring has.
    units: RingSize,
    /// What each node is to copy, by whom from.
    wanted: BTreeMap<NodeId, BTreeMap<NodeId, Vec<Partition>>>,
}

impl Known {
    pub(super) fn of(state: &State, units: RingSize) -> Known {
        let Published { version, members, before, ring, target } = state.published();
        let first = members.iter().next().expect("a cluster has members").id;
        let members = Arc::new(Members::of(first, members).expect("it is one of them"));
        let topology =
            Topology { epoch: Epoch(version.0), before, target, ..Topology::at_rest(members, ring) };
        let mut wanted: BTreeMap<NodeId, BTreeMap<NodeId, Vec<Partition>>> = BTreeMap::new();
        if topology.target.is_some() {
            for partition in units.all() {
                let at = units.first(partition);
                for joiner in topology.joiners(at, N_VAL) {
                    for giver in topology.givers(at, N_VAL) {
                        wanted.entry(joiner).or_default().entry(giver).or_default().push(partition);
                    }
                }
            }
        }
        Known { topology, units, wanted }
    }

    pub(super) fn version(&self) -> RingVersion {
        RingVersion(self.topology.epoch.0)
    }

    /// The target that is copied for, if there is one.
    pub(super) fn target(&self) -> Option<RingVersion> {
        self.topology.target.as_ref().map(|ring| ring.version())
    }

    /// Whether this state publishes the same under this version.
    pub(super) fn is_of(&self, state: &State) -> bool {
        let Topology { before, ring, target, .. } = &self.topology;
        let is = |known: &Option<Arc<Ring>>, owners: Option<&[NodeId]>| {
            known.as_ref().map(|ring| ring.owners()) == owners
        };
        let (of_before, of_target) = match state.step() {
            Step::AtRest => (None, None),
            Step::Copying { target, .. } => (None, Some(&**target)),
            Step::Switched { before } => (Some(&**before), None),
        };
        ring.owners() == state.owners() && is(before, of_before) && is(target, of_target)
    }

    /// What a node is to copy, by whom from.
    pub(super) fn wanted_by(&self, node: NodeId) -> BTreeMap<NodeId, Vec<Partition>> {
        self.wanted.get(&node).cloned().unwrap_or_default()
    }

    /// All who are to copy something, and from whom.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (NodeId, NodeId)> {
        self.wanted.iter().flat_map(|(&joiner, givers)| givers.keys().map(move |&giver| (joiner, giver)))
    }

    /// The replicas that requests ask.
    pub(super) fn list(&self, partition: Partition) -> Vec<NodeId> {
        list(&self.topology.ring, self.units.first(partition))
    }

    /// Whether a node is to have a partition, by any ring that is in force or comes.
    pub(super) fn keeps(&self, node: NodeId, partition: Partition) -> bool {
        self.topology.is_keeper(node, self.units.first(partition), N_VAL)
    }

    /// To whom a node passes on what is written to it.
    pub(super) fn mates(&self, here: NodeId, partition: Partition) -> Vec<NodeId> {
        if self.topology.is_at_rest() {
            return Vec::new();
        }
        let at = self.units.first(partition);
        let givers = self.topology.givers(at, N_VAL);
        let joiners = self.topology.joiners(at, N_VAL);
        if givers.contains(&here) {
            joiners
        } else if joiners.contains(&here) {
            // Of clients it hears only by the new ring, whether it has heard of that itself or not.
            givers
        } else {
            Vec::new()
        }
    }
}

/// The nodes on a position's list.
pub(super) fn list(ring: &Ring, at: Position) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = Vec::new();
    for entry in ring.preflist(ring.size().partition(at), REPLICAS) {
        if !nodes.contains(&entry.node) {
            nodes.push(entry.node);
        }
    }
    nodes
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match (&self.topology.before, &self.topology.target) {
            (Some(_), _) => "switched",
            (None, Some(_)) => "copying",
            (None, None) => "at rest",
        };
        let copied: usize = self.wanted.values().flat_map(BTreeMap::values).map(Vec::len).sum();
        let members = self.topology.members.count();
        write!(f, "ring {}: {members} members, {step}, {copied} copies", self.version().0)
    }
}
