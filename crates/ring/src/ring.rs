//! The owners of all partitions: one immutable version.

use std::sync::Arc;

use crate::error::Error;
use crate::member::Members;
use crate::node_id::{NODES_MAX, NodeId};
use crate::nodes::NodeSet;
use crate::partition::Partition;
use crate::position::Position;
use crate::preflist::Preflist;
use crate::rows::Rows;
use crate::size::RingSize;

/// Numbers the rings of a cluster; a later ring has a higher one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RingVersion(pub u64);

/// The members, the owner of each partition, and what is precomputed to name the owners of a key at once.
///
/// Invariant: every partition has an owner, which is a member whose state lets it own.
#[derive(Debug, Clone)]
pub struct Ring {
    version: RingVersion,
    size: RingSize,
    members: Arc<Members>,
    /// Shared by rings of the same owners.
    ownership: Arc<Ownership>,
}

/// The owner of each partition, and all that follows from these alone.
#[derive(Debug)]
struct Ownership {
    /// By partition.
    owners: Box<[NodeId]>,
    /// Who owns a partition.
    owning: NodeSet,
    /// How many these are.
    nodes: u16,
    rows: Rows,
}

impl Ring {
    /// The ring in which `owners` says, by partition, which of the `members` owns it.
    ///
    /// # Errors
    /// [`Error::Owners`] if there is not one owner for each partition, [`Error::Owner`] if one is no member or in a
    /// state in which it owns nothing.
    pub fn new(
        version: RingVersion,
        size: RingSize,
        members: Arc<Members>,
        owners: Box<[NodeId]>,
    ) -> Result<Ring, Error> {
        if owners.len() != size.all().len() {
            return Err(Error::Owners { owners: owners.len(), partitions: size.partitions() });
        }
        let owning: NodeSet = owners.iter().copied().collect();
        check_owning(&owning, &members)?;
        let nodes = u16::try_from(owning.len()).expect("members are numbered by sixteen bits");
        let rows = Rows::of(&owners, usize::from(nodes));
        let ownership = Arc::new(Ownership { owners, owning, nodes, rows });
        Ok(Ring { version, size, members, ownership })
    }

    /// A ring of the same owners, under another version and among members with other addresses or states.
    ///
    /// # Errors
    /// [`Error::Owner`] if an owner is no member or in a state in which it owns nothing.
    pub fn with_members(&self, version: RingVersion, members: Arc<Members>) -> Result<Ring, Error> {
        check_owning(self.owning(), &members)?;
        Ok(Ring { version, size: self.size, members, ownership: Arc::clone(&self.ownership) })
    }

    /// A ring whose only node owns everything.
    pub fn of_one_node(version: RingVersion, size: RingSize) -> Ring {
        Ring::round_robin(version, size, 1).expect("one node takes a ring of any size")
    }

    /// A ring that all members own in turn: partition `p` goes to the one at place `p mod members`, so that neighbours
    /// differ and no node owns two partitions more than another. What members weigh and where they stand is not looked
    /// at.
    ///
    /// # Errors
    /// [`Error::Nodes`] unless there are members and a partition for each, [`Error::Owner`] if one may own nothing.
    pub fn in_turn(version: RingVersion, size: RingSize, members: Arc<Members>) -> Result<Ring, Error> {
        let nodes = u32::try_from(members.len()).expect("members are numbered by sixteen bits");
        if nodes == 0 || nodes > size.partitions() {
            return Err(Error::Nodes { nodes, partitions: size.partitions() });
        }
        let owners = members.iter().map(|member| member.id).cycle().take(size.all().len()).collect();
        Ring::new(version, size, members, owners)
    }

    /// The same of so many `nodes`, which are named by their numbers.
    ///
    /// # Errors
    /// [`Error::Nodes`] unless there are 1 to [`NODES_MAX`] nodes and a partition for each.
    pub fn round_robin(version: RingVersion, size: RingSize, nodes: u32) -> Result<Ring, Error> {
        let refused = Error::Nodes { nodes, partitions: size.partitions() };
        let fits = nodes > 0 && nodes <= size.partitions() && nodes <= NODES_MAX;
        let Some(count) = u16::try_from(nodes).ok().filter(|_| fits) else { return Err(refused) };
        Ring::in_turn(version, size, Arc::new(Members::anonymous(count)))
    }

    /// Which ring of the cluster this is.
    pub fn version(&self) -> RingVersion {
        self.version
    }

    /// How many partitions it has.
    pub fn size(&self) -> RingSize {
        self.size
    }

    /// The members, those that own nothing too.
    pub fn members(&self) -> &Arc<Members> {
        &self.members
    }

    /// How many nodes own partitions.
    pub fn nodes(&self) -> u16 {
        self.ownership.nodes
    }

    /// Which nodes own partitions.
    pub fn owning(&self) -> &NodeSet {
        &self.ownership.owning
    }

    /// The owners, by partition.
    pub fn owners(&self) -> &[NodeId] {
        &self.ownership.owners
    }

    /// The owner of `partition`.
    ///
    /// # Panics
    /// If the ring has no such partition.
    #[inline]
    pub fn owner(&self, partition: Partition) -> NodeId {
        self.ownership.owners[partition.0 as usize]
    }

    /// The partitions that `node` owns, clockwise.
    pub fn partitions_of(&self, node: NodeId) -> impl Iterator<Item = Partition> + '_ {
        self.size.all().filter(move |&partition| self.owner(partition) == node)
    }

    /// The primaries of `partition`: clockwise from it, the partitions of the first `n_val` different nodes.
    ///
    /// With an even claim those are the next `n_val` partitions. Where the claim could not keep copies apart a node
    /// comes up again too early; its second partition is skipped, as in Dynamo, so that `n_val` copies are on
    /// `n_val` nodes whenever there are as many. With fewer nodes, the partitions that were skipped follow, clockwise:
    /// one node holds several of the list's partitions.
    ///
    /// # Panics
    /// If the ring has no such partition.
    #[inline]
    pub fn preflist(&self, partition: Partition, n_val: usize) -> Preflist<'_> {
        Preflist::new(self, partition, n_val, n_val)
    }

    /// The primaries of `partition`, then every other node, in the order in which they stand in for primaries
    /// that are down.
    ///
    /// # Panics
    /// If the ring has no such partition.
    #[inline]
    pub fn preflist_with_fallbacks(&self, partition: Partition, n_val: usize) -> Preflist<'_> {
        Preflist::new(self, partition, n_val, n_val.max(usize::from(self.nodes())))
    }

    /// The primaries of an object.
    pub fn preflist_of_key(
        &self,
        bucket_type: &[u8],
        bucket: &[u8],
        key: &[u8],
        n_val: usize,
    ) -> Preflist<'_> {
        self.preflist(self.size.partition(Position::of_key(bucket_type, bucket, key)), n_val)
    }

    /// The partition `steps` clockwise from `start`.
    #[inline]
    pub(crate) fn after(&self, start: Partition, steps: u32) -> Partition {
        // The size is a power of two.
        Partition(start.0.wrapping_add(steps) & (self.size.partitions() - 1))
    }

    #[inline]
    pub(crate) fn rows(&self) -> &Rows {
        &self.ownership.rows
    }
}

/// Checks that those that own partitions may.
fn check_owning(owning: &NodeSet, members: &Members) -> Result<(), Error> {
    // Both are in the order of their numbers.
    let mut members = members.iter();
    let mut may_own = |node: NodeId| {
        let member = members.find(|member| member.id >= node);
        member.is_some_and(|member| member.id == node && member.state.may_own())
    };
    match owning.iter().find(|&node| !may_own(node)) {
        Some(node) => Err(Error::Owner(node)),
        None => Ok(()),
    }
}

/// Two rings are equal if they say the same; the rest follows from that.
impl PartialEq for Ring {
    fn eq(&self, other: &Ring) -> bool {
        let told = |ring: &Ring| (ring.version, ring.size);
        told(self) == told(other) && self.owners() == other.owners() && self.members == other.members
    }
}

impl Eq for Ring {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::{Member, MemberState};

    fn members(states: &[(u16, MemberState)]) -> Arc<Members> {
        let member = |&(id, state)| Member { state, ..Member::new(NodeId(id), &id.to_string()) };
        Arc::new(Members::new(states.iter().map(member)).unwrap())
    }

    #[test]
    fn each_node_needs_a_partition() {
        let size = RingSize::new(8).unwrap();
        for nodes in [0, 9, 70_000] {
            let error = Ring::round_robin(RingVersion(1), size, nodes).expect_err("no such ring");
            assert_eq!(error.to_string(), format!("a ring of 8 partitions takes 1 to 8 nodes, not {nodes}"));
        }
        let large = RingSize::new(65_536).unwrap();
        assert!(Ring::round_robin(RingVersion(1), large, NODES_MAX).is_ok());
        assert!(Ring::round_robin(RingVersion(1), large, NODES_MAX + 1).is_err());
    }

    #[test]
    fn only_members_that_may_own_do() {
        use MemberState::{Down, Exiting, Joining, Leaving, Valid};
        let size = RingSize::new(8).unwrap();
        let states = [(1, Valid), (4, Leaving), (9, Down), (11, Joining), (12, Exiting)];
        let ring =
            |owners: [u16; 8]| Ring::new(RingVersion(3), size, members(&states), owners.map(NodeId).into());
        let good = ring([1, 4, 9, 1, 4, 9, 1, 4]).unwrap();
        assert_eq!((good.nodes(), good.owner(Partition(2))), (3, NodeId(9)));
        assert_eq!(good.partitions_of(NodeId(9)).collect::<Vec<_>>(), [Partition(2), Partition(5)]);
        for (stranger, at) in [(2, 0), (11, 3), (12, 7)] {
            let mut owners = [1; 8];
            owners[at] = stranger;
            let error = ring(owners).expect_err("no owner").to_string();
            assert_eq!(error, format!("node {stranger} is no member that may own a partition"));
        }
        let later = good.with_members(RingVersion(4), members(&states[..3])).unwrap();
        assert_eq!((later.version(), later.owners()), (RingVersion(4), good.owners()));
        let exited = good.with_members(RingVersion(4), members(&[(1, Valid), (4, Exiting), (9, Down)]));
        assert_eq!(exited, Err(Error::Owner(NodeId(4))));
        let short = Ring::new(RingVersion(3), size, members(&states), [NodeId(1); 7].into());
        assert_eq!(short.expect_err("short").to_string(), "7 owners are told for 8 partitions");
    }
}
