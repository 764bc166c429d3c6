//! Trees that outlive a process: what is kept of them with each flush ([`engine::checkpoint`]), and what a start makes of it.
//!
//! 1. A memtable that is put aside wants to know the trees with all changes in it and none after it. Changes come in the order of
//!    their versions, so the next one that is behind the memtable's last, or the end of the turn, is the moment.
//! 2. What is told is what has changed since the memtable before: for each tree its changes, or all of it where that is less.
//! 3. A start takes what was kept as of the ledger's tables, if it is of the same partitions and numbers of replicas. A job looks up
//!    what the keys were that the journal has beyond the tables; meanwhile changes are remembered. Then the trees are whole.
//!
//! Invariants
//! * What is kept as of a memtable says what the tables will have once it is flushed, and nothing that comes later.
//! * What is not certain is not taken: then a partition's trees are made from its heads, as ever.
//!
//! Left out: waiting. Where a memtable cannot be kept in time its flush goes without, and the trees are kept anew with the next.

use crate::anti_entropy::trees::{Change, Kept, NVals, PLACE_BITS, leaves};
use crate::layout::Layout;
use crate::shard::Shard;
use ::object::key;
use engine::Seq;
use engine::fold::{FoldEnd, FoldId, KeyRange, KeySegments, Replaced, ReplacedVisitor};
use kv::BucketTable;
use kv::aae::{Checkpoint, Delta, RecordWriter, Scope, Tree, TreeId};
use ring::RingSize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Changes that are remembered until then, beyond which the trees are made from the heads.
const CHANGES_MAX: usize = 65_536;

/// Changes of trees, by the last version of the memtable that they are in.
type Deltas = BTreeMap<Seq, BTreeMap<TreeId, Delta>>;

/// What has changed beside trees themselves since they were last kept.
#[derive(Default)]
pub(crate) struct Changes {
    /// Whether all that was kept is of no use any more.
    cleared: bool,
    gone: BTreeSet<u16>,
    came: BTreeSet<u16>,
    /// Trees that are there no more since they are empty.
    pub emptied: BTreeSet<TreeId>,
}

impl Changes {
    /// A partition has no trees any more.
    pub fn gone(&mut self, first: u16) {
        self.came.remove(&first);
        self.gone.insert(first);
    }

    /// A partition has trees that were made.
    pub fn came(&mut self, first: u16) {
        self.came.insert(first);
    }

    /// Nothing is left of all partitions.
    pub fn clear(&mut self) {
        *self = Changes { cleared: true, ..Changes::default() };
    }
}

/// Trees that an earlier process has left, until what came after them is known.
pub(crate) struct Completing {
    pub fold: FoldId,
    /// The partitions that are this node's.
    pub firsts: BTreeSet<u16>,
    left: Checkpoint,
    replayed: Arc<Mutex<Deltas>>,
    /// Those of this process.
    changes: Vec<Change>,
}

impl Completing {
    /// Whether the trees of a partition are among them.
    pub fn has(&self, first: u16) -> bool {
        self.firsts.contains(&first)
    }

    /// Takes a change; `false` if they are too many.
    pub fn note(&mut self, change: Change) -> bool {
        self.changes.push(change);
        self.changes.len() <= CHANGES_MAX
    }
}

impl Shard {
    /// Begins with the trees that an earlier process has left, if they are of use.
    pub(crate) fn take_kept_trees(&mut self) {
        self.look_at_trees();
        let found = self.env.store.take_checkpoint();
        let (Some(found), true) = (found, self.trees.are_kept()) else { return };
        let Some(left) = Checkpoint::of(&found.records).filter(|left| left.scope == self.trees.scope())
        else {
            return;
        };
        let rebuilds = &mut self.trees.rebuilds;
        let firsts: BTreeSet<u16> =
            left.whole.iter().copied().filter(|first| rebuilds.spare(*first)).collect();
        let replayed: Arc<Mutex<Deltas>> = Arc::default();
        let objects = KeyRange::new(key::objects_at(0).start, key::objects_at(u16::MAX).end);
        let (layout, size) = (self.env.knobs.layout, self.env.topology.ring.size());
        let visitor = noting(self.env.props.clone(), layout, size, Arc::clone(&replayed));
        let fold = self.env.store.fold_replayed(found.replayed, objects, visitor);
        self.trees.completing = Some(Completing { fold, firsts, left, replayed, changes: Vec::new() });
    }

    /// What the journal had beyond the tables is known.
    pub(crate) fn on_completed(&mut self, end: Result<FoldEnd, engine::Error>) {
        if end.is_err() {
            return self.give_up_completing();
        }
        let Some(Completing { firsts, left, replayed, changes, .. }) = self.trees.completing.take() else {
            return;
        };
        let trees = &mut self.trees;
        left.whole.difference(&firsts).for_each(|&first| trees.changed.gone(first));
        for (id, (tree, unsure)) in left.trees.into_iter().filter(|(id, _)| firsts.contains(&id.first)) {
            trees.take_left(id, tree, unsure);
        }
        self.env.counters.trees_kept += firsts.len() as u64;
        trees.whole.extend(&firsts);
        let replayed = std::mem::take(&mut *replayed.lock().unwrap_or_else(PoisonError::into_inner));
        for (last_seq, deltas) in replayed {
            self.keep_trees_before(last_seq);
            for (id, delta) in deltas.into_iter().filter(|(id, _)| firsts.contains(&id.first)) {
                self.trees.change_many(id, delta);
            }
        }
        for change in changes.iter().filter(|change| firsts.contains(&change.tree.first)) {
            self.keep_trees_before(change.seq);
            self.trees.change(change);
        }
    }

    /// The trees are made from the heads instead.
    pub(crate) fn give_up_completing(&mut self) {
        let Some(Completing { fold, firsts, .. }) = self.trees.completing.take() else { return };
        self.env.store.cancel_fold(fold);
        firsts.into_iter().for_each(|first| self.trees.rebuilds.want_first(first));
        self.trees.changed.clear();
    }

    /// Has the trees kept as of each memtable whose last version is before this one. To be called before a change of that version
    /// is made.
    #[inline]
    pub(crate) fn keep_trees_before(&mut self, seq: Seq) {
        while let Some(wanted) = self.env.store.wants_checkpoint().filter(|wanted| wanted.seq < seq) {
            let record = self.trees.record(wanted.whole);
            self.env.store.checkpoint(record);
        }
    }

    /// The same when all changes are made. To be called at the end of a turn.
    pub(crate) fn keep_trees(&mut self) {
        if self.trees.completing.is_none() {
            self.keep_trees_before(Seq(u64::MAX));
        }
    }
}

impl super::trees::Trees {
    /// What they are of.
    pub fn scope(&self) -> Scope {
        let partitions = self.ring.as_ref().map_or(0, |ring| ring.size().partitions());
        Scope { partitions, n_vals: self.n_vals }
    }

    /// Takes a tree that an earlier process has left. One that is crowded was to be made anew when that ended.
    fn take_left(&mut self, id: TreeId, tree: Tree, unsure: bool) {
        self.last_version += 1;
        let (is_crowded, version) = (tree.is_crowded(), self.last_version);
        self.trees.insert(id, Kept { tree, version, unsure, delta: Some(Delta::default()) });
        self.fit(id, is_crowded, false);
    }

    /// What has changed since the last record, or all.
    fn record(&mut self, whole: bool) -> bytes::Bytes {
        let Changes { cleared, gone, came, emptied } = std::mem::take(&mut self.changed);
        let is_anew = whole || cleared;
        let mut out = RecordWriter::new(self.scope(), is_anew);
        if is_anew {
            self.whole.iter().for_each(|&first| out.came(first));
        } else {
            gone.into_iter().for_each(|first| out.gone(first));
            came.into_iter().for_each(|first| out.came(first));
            let empty = Tree::default();
            let emptied = emptied.into_iter().filter(|id| self.whole.contains(&id.first));
            emptied.for_each(|id| out.tree(id, &empty, false));
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

    /// Makes changes of a tree that is whole.
    fn change_many(&mut self, id: TreeId, delta: Delta) {
        self.last_version += 1;
        let new = || Kept { tree: Tree::default(), version: 0, unsure: false, delta: None };
        let kept = self.trees.entry(id).or_insert_with(new);
        kept.version = self.last_version;
        kept.unsure |= delta.is_unsure();
        delta.apply(&mut kept.tree);
        match &kept.delta {
            Some(before) if before.is_empty() => kept.delta = Some(delta),
            _ => kept.delta = None,
        }
        let (is_crowded, is_empty) = (kept.tree.is_crowded(), kept.tree.is_empty());
        self.fit(id, is_crowded, is_empty);
    }
}

/// Puts what was replayed into the changes of trees.
fn noting(table: BucketTable, layout: Layout, size: RingSize, noted: Arc<Mutex<Deltas>>) -> ReplacedVisitor {
    let mut n_vals = NVals::new(table);
    Box::new(move |item: &Replaced<'_>| {
        let Some(n_val) = n_vals.of(item.key) else { return };
        let position = layout.position(key::prefix_of(item.key));
        let first = *layout.prefixes_of(size.partition(position), size).start();
        let place = KeySegments::number_of(item.key, PLACE_BITS);
        let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
        let deltas = noted.entry(item.last_seq).or_default();
        for (day, old, new) in leaves(place, item.before, item.after) {
            deltas.entry(TreeId { first, n_val, day }).or_default().change(place, old, new, false);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anti_entropy::trees::Trees;

    const fn id(first: u16) -> TreeId {
        TreeId { first, n_val: 3, day: 0 }
    }

    fn crowded() -> Tree {
        let mut tree = Tree::default();
        while !tree.is_crowded() {
            tree.change(0, None, Some(1));
        }
        tree
    }

    /// It stayed crowded until the next write to it, beside whose repair its partition was then gone through.
    #[test]
    fn a_crowded_tree_that_was_left_is_made_anew() {
        let mut trees = Trees::default();
        trees.take_left(id(1), Tree::default(), false);
        trees.take_left(id(2), crowded(), false);
        assert_eq!(trees.rebuilds.due().collect::<Vec<_>>(), [2]);
    }

    /// So did one that had grown by more than it was made finer by.
    #[test]
    fn a_tree_that_is_crowded_when_it_is_made_is_made_once_more() {
        let mut trees = Trees::default();
        for (first, tree) in [(1, Tree::default()), (2, crowded())] {
            trees.take(first, BTreeMap::from([(id(first), tree)]), false, base::Wall(0));
        }
        assert_eq!(trees.rebuilds.due().collect::<Vec<_>>(), [2]);
    }
}
