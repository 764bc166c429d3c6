//! Trees of the partitions that are whole, and the changes of them since the last record on disk.
//!
//! Invariants
//! * Each tree belongs to a partition that is whole.
//! * No two states of trees have the same version.

use super::change::Change;
use super::checkpoints::Changes;
use base::Wall;
use kv::aae::{Delta, RecordWriter, Scope, Tree, TreeId};
use std::collections::{BTreeMap, BTreeSet};

/// A tree that is whole.
pub(crate) struct KeptTree {
    tree: Tree,
    /// Unlike that of any other tree, and of this one before its last change.
    version: u64,
    /// Whether it was changed by a write that did not know the replaced head.
    unsure: bool,
    /// Changes since it was last kept on disk; `None` if it is to be kept whole.
    delta: Option<Delta>,
}

impl KeptTree {
    fn empty() -> KeptTree {
        KeptTree { tree: Tree::default(), version: 0, unsure: false, delta: None }
    }

    /// The tree itself.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The version of this state, unlike any other.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether a write changed it without knowing the replaced head.
    pub fn is_unsure(&self) -> bool {
        self.unsure
    }
}

/// The trees of the partitions that are whole.
#[derive(Default)]
pub(crate) struct KeptTrees {
    trees: BTreeMap<TreeId, KeptTree>,
    /// The partitions that have theirs, by their first prefix.
    whole: BTreeSet<u16>,
    /// Other changes since trees were last kept on disk.
    changed: Changes,
    last_version: u64,
}

impl KeptTrees {
    /// A tree; `None` if it is empty.
    pub fn get(&self, tree: TreeId) -> Option<&KeptTree> {
        self.trees.get(&tree)
    }

    /// The hash of all keys of a tree.
    pub fn root(&self, tree: TreeId) -> u32 {
        self.trees.get(&tree).map_or(0, |kept| kept.tree.root())
    }

    /// The partitions that have their trees, by their first prefix.
    pub fn whole(&self) -> &BTreeSet<u16> {
        &self.whole
    }

    /// Whether a partition has its trees.
    pub fn is_whole(&self, first: u16) -> bool {
        self.whole.contains(&first)
    }

    /// Bytes of memory that trees take, and the keys in them.
    pub fn sizes(&self) -> (usize, u64) {
        let bytes = |kept: &KeptTree| kept.tree.bytes() + kept.delta.as_ref().map_or(0, Delta::bytes);
        let all = self.trees.values().map(|kept| (bytes(kept), kept.tree.keys()));
        all.fold((0, 0), |(bytes, keys), (more, of)| (bytes + more, keys + of))
    }

    /// The keys in the trees of a partition.
    pub fn keys(&self, first: u16) -> u64 {
        self.of(first).map(|(_, kept)| kept.tree.keys()).sum()
    }

    /// The bits that the finest tree of a partition tells apart.
    pub fn bits(&self, first: u16) -> Option<u32> {
        self.of(first).map(|(_, kept)| kept.tree.bits()).max()
    }

    /// Whether a partition has a tree that is too large.
    pub fn is_crowded(&self, first: u16) -> bool {
        self.of(first).any(|(_, kept)| kept.tree.is_crowded())
    }

    fn of(&self, first: u16) -> impl Iterator<Item = (&TreeId, &KeptTree)> {
        let of = |n_val, day| TreeId { first, n_val, day };
        self.trees.range(of(0, 0)..=of(u32::MAX, u32::MAX))
    }

    /// The trees of the same partition and number of replicas, whenever their keys end.
    pub fn of_all_days(&self, tree: TreeId) -> impl Iterator<Item = TreeId> {
        self.trees.range(TreeId { day: 0, ..tree }..=TreeId { day: u32::MAX, ..tree }).map(|(tree, _)| *tree)
    }

    /// Takes a partition's trees, which are whole from now on, in the place of those that it had. Tells whether these
    /// had other keys, or others of their heads, beside those that end about now.
    pub fn take(&mut self, first: u16, made: BTreeMap<TreeId, Tree>, unsure: bool, now: Wall) -> bool {
        let roots = |trees: &KeptTrees| -> Vec<(TreeId, u32)> {
            let all = trees.of(first).map(|(tree, kept)| (*tree, kept.tree.root()));
            all.filter(|(tree, root)| *root != 0 && tree.is_comparable(now)).collect()
        };
        let before = self.whole.contains(&first).then(|| roots(self));

        self.forget(first);
        self.whole.insert(first);
        self.changed.came(first);
        for (id, tree) in made {
            let version = self.next_version();
            self.trees.insert(id, KeptTree { tree: tree.fitted(), version, unsure, delta: None });
        }

        before.is_some_and(|before| before != roots(self))
    }

    /// Takes the trees that an earlier process has left: of these partitions, which are whole from now on.
    pub fn take_left(&mut self, firsts: &BTreeSet<u16>, left: BTreeMap<TreeId, (Tree, bool)>) {
        for (id, (tree, unsure)) in left.into_iter().filter(|(id, _)| firsts.contains(&id.first)) {
            let version = self.next_version();
            self.trees.insert(id, KeptTree { tree, version, unsure, delta: Some(Delta::default()) });
        }
        self.whole.extend(firsts);
    }

    /// Records on disk have a partition whose trees are not taken.
    pub fn note_gone(&mut self, first: u16) {
        self.changed.gone(first);
    }

    /// Records on disk are of no use any more.
    pub fn clear_records(&mut self) {
        self.changed.clear();
    }

    /// Makes a change of a tree. Tells whether it is too large then.
    pub fn change(&mut self, change: &Change) -> bool {
        let id = change.tree;
        if change.unsure {
            // The replaced version may end on another day.
            for (_, kept) in self.trees.range_mut(TreeId { day: 0, ..id }..=TreeId { day: u32::MAX, ..id }) {
                kept.unsure = true;
                kept.delta.iter_mut().for_each(|delta| delta.change(0, None, None, true));
            }
        }

        let version = self.next_version();
        let kept = self.trees.entry(id).or_insert_with(KeptTree::empty);
        kept.version = version;
        kept.unsure |= change.unsure;
        kept.tree.change(change.place, change.old, change.new);
        if let Some(delta) = &mut kept.delta {
            delta.change(change.place, change.old, change.new, change.unsure);
            kept.delta.take_if(|delta| delta.len() > deltas_max(&kept.tree));
        }

        let (is_crowded, is_empty) = (kept.tree.is_crowded(), kept.tree.is_empty());
        self.fit(id, is_crowded, is_empty)
    }

    /// Makes changes of a tree that were replayed. Tells whether it is too large then.
    pub fn change_many(&mut self, id: TreeId, delta: Delta) -> bool {
        let version = self.next_version();
        let kept = self.trees.entry(id).or_insert_with(KeptTree::empty);
        kept.version = version;
        kept.unsure |= delta.is_unsure();
        delta.apply(&mut kept.tree);
        match &kept.delta {
            Some(before) if before.is_empty() => kept.delta = Some(delta),
            _ => kept.delta = None,
        }
        let (is_crowded, is_empty) = (kept.tree.is_crowded(), kept.tree.is_empty());
        self.fit(id, is_crowded, is_empty)
    }

    /// A tree that is empty is not there. Tells whether it is too large.
    fn fit(&mut self, id: TreeId, is_crowded: bool, is_empty: bool) -> bool {
        if is_empty && !is_crowded {
            self.trees.remove(&id);
            self.changed.emptied(id);
        }
        is_crowded
    }

    /// Drops trees whose keys have all ended.
    pub fn drop_over(&mut self, wall: Wall) {
        let over: Vec<TreeId> = self.trees.keys().filter(|tree| tree.is_over(wall)).copied().collect();
        for tree in over {
            self.trees.remove(&tree);
            self.changed.emptied(tree);
        }
    }

    /// Forgets all partitions but these.
    pub fn retain(&mut self, firsts: &BTreeSet<u16>) {
        for gone in self.whole.difference(firsts).copied().collect::<Vec<_>>() {
            self.forget(gone);
        }
    }

    fn forget(&mut self, first: u16) {
        if self.whole.remove(&first) {
            self.changed.gone(first);
        }
        let gone: Vec<TreeId> = self.of(first).map(|(tree, _)| *tree).collect();
        for tree in gone {
            self.trees.remove(&tree);
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.trees.clear();
        self.whole.clear();
        self.changed.clear();
    }

    /// Changes since the last record, or all.
    pub fn record(&mut self, scope: Scope, whole: bool) -> bytes::Bytes {
        let changed = std::mem::take(&mut self.changed);
        let is_anew = whole || changed.is_cleared();
        let mut out = RecordWriter::new(scope, is_anew);
        match is_anew {
            true => self.whole.iter().for_each(|&first| out.came(first)),
            false => changed.write(&self.whole, &mut out),
        }

        for (id, kept) in &mut self.trees {
            match kept.delta.replace(Delta::default()).filter(|_| !is_anew) {
                Some(delta) if delta.is_empty() => {}
                Some(delta) => out.delta(*id, &delta),
                None => out.tree(*id, &kept.tree, kept.unsure),
            }
        }
        out.finish()
    }

    fn next_version(&mut self) -> u64 {
        self.last_version += 1;
        self.last_version
    }

    /// The relations of its fields.
    pub fn invariants(&self) {
        let ends = [self.trees.first_key_value(), self.trees.last_key_value()];
        for (id, kept) in ends.into_iter().flatten() {
            assert!(self.whole.contains(&id.first), "a tree is of a partition that is whole");
            assert!(kept.version <= self.last_version, "no version is given twice");
        }
    }
}

/// Changes of a tree that are remembered for the disk: with more it is kept whole, for about twice as many bytes.
fn deltas_max(tree: &Tree) -> usize {
    64 + usize::try_from(tree.keys() / 8).unwrap_or(usize::MAX)
}
