//! The plan of a scan over all partitions: a node for each prefix, in few parts.

use ring::{NodeId, Partition, Ring, RingSize};
use std::collections::{BTreeMap, BTreeSet};

use crate::error::Error;
use crate::planted;

/// A source of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A shard of this node, by its number.
    Here(u16),
    /// Another node.
    Node(NodeId),
}

/// The state that a plan depends on, at a moment.
pub struct Plan<'a> {
    /// The owners of partitions.
    pub ring: &'a Ring,
    /// Replicas of each object.
    pub n_val: u32,
    /// How many prefixes keys are ordered by: at least as many as the ring has partitions.
    pub prefixes: RingSize,
    /// This node.
    pub here: NodeId,
    /// The shard of this node that has the keys with a prefix.
    pub shard_of: &'a dyn Fn(u16) -> u16,
    /// Whether a node can be reached.
    pub is_up: &'a dyn Fn(NodeId) -> bool,
}

impl Plan<'_> {
    /// All prefixes that keys are ordered by.
    pub fn all_prefixes(&self) -> Vec<u16> {
        let all = self.prefixes.all();
        all.map(|prefix| u16::try_from(prefix.0).expect("a prefix has at most 16 bits")).collect()
    }

    /// A node for each of these prefixes, in few parts.
    ///
    /// # Errors
    /// [`Error::NotCovered`] if there is none for some.
    pub fn cover(
        &self,
        prefixes: impl IntoIterator<Item = u16>,
        left_out: &BTreeSet<NodeId>,
    ) -> Result<Vec<(Source, Vec<u16>)>, Error> {
        let n_val = usize::try_from(self.n_val).unwrap_or(usize::MAX);
        let usable = |_: Partition, node: NodeId| {
            !left_out.contains(&node) && (node == self.here || (self.is_up)(node))
        };
        let mut asked: BTreeMap<Partition, Vec<u16>> = BTreeMap::new();
        for prefix in prefixes {
            let partition = self.ring.size().convert(Partition(prefix.into()), self.prefixes);
            asked.entry(partition).or_default().push(prefix);
        }
        let partitions = asked.keys().copied();
        let mut cover =
            self.ring.cover(partitions, n_val, Some(self.here), usable).map_err(|_| Error::NotCovered)?;
        if base::planted!(ListedByTwo) {
            planted::cover_twice(&mut cover, self.ring, n_val, self.here, usable);
        }
        let mut parts = BTreeMap::new();
        for (node, partitions) in cover {
            for &prefix in partitions.iter().filter_map(|partition| asked.get(partition)).flatten() {
                let source = match node == self.here {
                    true => Source::Here((self.shard_of)(prefix)),
                    false => Source::Node(node),
                };
                parts.entry(source).or_insert_with(Vec::new).push(prefix);
            }
        }
        Ok(parts.into_iter().collect())
    }
}
