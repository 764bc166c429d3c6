//! For each partition the first different nodes clockwise from it, so that a preference list is one cache line.
//!
//! Where the next [`ROW_LEN`] owners differ, they are the row. Elsewhere it follows from the row of the next partition:
//! its own owner comes first, and then the others in the order they had. So the rows of a ring are made in one walk
//! against the clock. What a row does not hold is found by walking on: a partition's gap tells in one load whether its
//! owner came up before.

use crate::node_id::NodeId;
use crate::nodes::NodeSet;
use crate::partition::Partition;

/// Most nodes in a row: what a cache line holds. A primary or a fallback beyond it is looked for on the ring.
pub(crate) const ROW_LEN: usize = 16;

/// A node, and the first of its partitions clockwise from where the row begins: the partition in the lower half.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place(u32);

impl Place {
    fn new(partition: usize, node: NodeId) -> Place {
        Place(u32::from(node.0) << u16::BITS | u32::from(narrow(partition)))
    }

    #[inline]
    pub(crate) fn partition(self) -> Partition {
        Partition(self.0 & u32::from(u16::MAX))
    }

    #[inline]
    pub(crate) fn node(self) -> NodeId {
        NodeId((self.0 >> u16::BITS) as u16)
    }
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
struct Row([Place; ROW_LEN]);

impl Row {
    /// The partitions from `first` on, each with another owner.
    fn fill(&mut self, first: usize, owners: &[NodeId]) {
        let first = u32::from(narrow(first));
        for ((place, steps), owner) in self.0.iter_mut().zip(0..).zip(owners) {
            *place = Place((u32::from(owner.0) << u16::BITS) + first + steps);
        }
    }

    /// Makes it that of the partition before: its owner comes first, the others move up, as far as where it was or the
    /// last.
    fn prepend(&mut self, partition: usize, owner: NodeId, len: usize) {
        let mut moved = Place::new(partition, owner);
        for place in &mut self.0[..len] {
            std::mem::swap(place, &mut moved);
            if moved.node() == owner {
                break;
            }
        }
    }
}

const _: () = assert!(size_of::<Row>() == 64, "a row is a cache line");

/// All rows of a ring.
#[derive(Debug)]
pub(crate) struct Rows {
    rows: Box<[Row]>,
    /// Places in each: all nodes there are, if a row holds as many.
    len: usize,
    /// By partition, steps back to the one before with the same owner, less one: all around if it has no other.
    gaps: Box<[u16]>,
    /// By node, the lowest of its partitions; 0 for a node that has none.
    lowest: Box<[u16]>,
}

impl Rows {
    /// The rows of a ring with these owners, which are so many different ones.
    pub(crate) fn of(owners: &[NodeId], nodes: usize) -> Rows {
        let (gaps, lowest) = gaps(owners);
        let len = nodes.min(ROW_LEN);
        let mut rows = vec![Row::default(); owners.len()];
        // The owners behind the last partition.
        rows[0] = first_row(owners, len);

        for partition in (0..owners.len()).rev() {
            let ahead = partition..partition + ROW_LEN;
            match gaps.get(ahead.clone()) {
                // As nearly everywhere after a claim. It needs no other row.
                Some(gaps) if differ(gaps) => rows[partition].fill(partition, &owners[ahead]),
                _ => {
                    let mut row = rows[(partition + 1) % owners.len()];
                    row.prepend(partition, owners[partition], len);
                    rows[partition] = row;
                }
            }
        }
        Rows { rows: rows.into(), len, gaps, lowest }
    }

    /// Whether, of the `steps` partitions before this one, one has the same owner.
    #[inline]
    pub(crate) fn came_up(&self, partition: Partition, steps: u32) -> bool {
        u32::from(self.gaps[partition.0 as usize]) < steps
    }

    /// The lowest partition of a node that has one.
    pub(crate) fn lowest_of(&self, node: NodeId) -> Partition {
        Partition(u32::from(self.lowest[node.index()]))
    }

    /// The row of a partition.
    #[inline]
    pub(crate) fn of_partition(&self, partition: Partition) -> &[Place] {
        &self.rows[partition.0 as usize].0[..self.len]
    }
}

/// Whether partitions with these gaps, one after the other, have owners that differ from each other.
fn differ(gaps: &[u16]) -> bool {
    // Without an early end, all gaps are compared at once.
    gaps.iter().zip(0..).fold(true, |all, (&gap, steps)| all & (gap >= steps))
}

/// The row of partition 0, found by walking.
fn first_row(owners: &[NodeId], len: usize) -> Row {
    let (mut row, mut seen, mut found) = (Row::default(), NodeSet::new(), 0);
    for (partition, &owner) in owners.iter().enumerate() {
        if found == len {
            break;
        }
        if seen.insert(owner) {
            row.0[found] = Place::new(partition, owner);
            found += 1;
        }
    }
    row
}

/// The gap of each partition, and each node's lowest partition.
fn gaps(owners: &[NodeId]) -> (Box<[u16]>, Box<[u16]>) {
    let nodes = owners.iter().map(|owner| owner.index() + 1).max().unwrap_or(0);
    let mut last = vec![usize::MAX; nodes];
    let mut lowest = vec![0; nodes];
    for (partition, owner) in owners.iter().enumerate().rev() {
        if last[owner.index()] == usize::MAX {
            last[owner.index()] = partition;
        }
        lowest[owner.index()] = narrow(partition);
    }
    let gap = |(partition, owner): (usize, &NodeId)| {
        let before = std::mem::replace(&mut last[owner.index()], partition);
        // What is before the start is at the end; an only one is a whole ring before itself. The size is a power of
        // two.
        narrow((partition + owners.len() - before - 1) & (owners.len() - 1))
    };
    (owners.iter().enumerate().map(gap).collect(), lowest.into())
}

fn narrow(partition: usize) -> u16 {
    u16::try_from(partition).expect("a ring has at most 65,536 partitions")
}
