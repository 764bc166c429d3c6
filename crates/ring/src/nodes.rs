//! A set of nodes as a bitmap, for those that are down: one load tells.

use crate::node_id::NodeId;

const WORD_BITS: usize = u64::BITS as usize;

/// A set of nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeSet {
    words: Vec<u64>,
}

impl NodeSet {
    /// The set of no nodes.
    pub fn new() -> NodeSet {
        NodeSet::default()
    }

    /// Adds a node; says whether it is new.
    pub fn insert(&mut self, node: NodeId) -> bool {
        let (word, bit) = place(node);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let is_new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        is_new
    }

    /// Whether a node is in it.
    #[inline]
    pub fn contains(&self, node: NodeId) -> bool {
        let (word, bit) = place(node);
        self.words.get(word).is_some_and(|bits| bits & bit != 0)
    }

    /// How many nodes are in it.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether no node is in it.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The nodes in it, by number.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        let mut from = Some(NodeId(0));
        std::iter::from_fn(move || {
            let next = self.next_from(from?)?;
            from = next.0.checked_add(1).map(NodeId);
            Some(next)
        })
    }

    /// The first node in it whose number is not below that of `from`.
    pub(crate) fn next_from(&self, from: NodeId) -> Option<NodeId> {
        let (first, bit) = place(from);
        // The bits of the first word that are below `from` do not count.
        let mut kept = !(bit - 1);
        for (word, bits) in self.words.iter().enumerate().skip(first) {
            let bits = bits & kept;
            if bits != 0 {
                let number = word * WORD_BITS + bits.trailing_zeros() as usize;
                return Some(NodeId(u16::try_from(number).expect("only nodes are inserted")));
            }
            kept = u64::MAX;
        }
        None
    }
}

impl FromIterator<NodeId> for NodeSet {
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> NodeSet {
        let mut set = NodeSet::new();
        nodes.into_iter().for_each(|node| {
            set.insert(node);
        });
        set
    }
}

fn place(node: NodeId) -> (usize, u64) {
    (node.index() / WORD_BITS, 1 << (node.index() % WORD_BITS))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(nodes in prop::collection::vec(prop_oneof![0..200u16, any::<u16>()], 0..200)) {
            let (mut set, mut model) = (NodeSet::new(), BTreeSet::new());
            for node in nodes.into_iter().map(NodeId) {
                prop_assert_eq!(set.contains(node), model.contains(&node));
                prop_assert_eq!(set.insert(node), model.insert(node));
                prop_assert!(set.contains(node));
                prop_assert_eq!(set.next_from(node), model.range(node..).next().copied());
            }
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), model.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!((set.len(), set.is_empty()), (model.len(), model.is_empty()));
            prop_assert_eq!(model.into_iter().collect::<NodeSet>().iter().collect::<Vec<_>>(), set.iter().collect::<Vec<_>>());
        }
    }
}
