//! Trees that outlive a process: a checkpoint of them with each flush ([`engine::checkpoint`]), and its use by a start.
//!
//! 1. A memtable that is put aside asks for the trees with all its changes and no later one. Changes come in the order
//!    of their versions: the moment is the next change behind the memtable's last, or the end of the turn.
//! 2. The record has the changes since the memtable before: for each tree its changes, or the whole tree where that is
//!    less.
//! 3. A start takes the checkpoint of the ledger's tables, if it is of the same partitions and numbers of replicas. A
//!    job looks up the replaced heads of all keys that the journal has beyond the tables; meanwhile changes are
//!    remembered. Then the trees are whole.
//!
//! Invariants
//! * The checkpoint of a memtable describes the tables as they are once it is flushed, and nothing later.
//! * An uncertain checkpoint is not taken: then a partition's trees are made from its heads.
//!
//! Left out: waiting. Where a memtable cannot be kept in time its flush goes without, and the trees are kept anew with
//! the next.

use super::change::{Change, PLACE_BITS, leaves};
use super::n_vals::NVals;
use crate::layout::Layout;
use crate::shard::env::Env;
use crate::shard::owners::FoldOwner;
use ::object::key;
use engine::Seq;
use engine::checkpoint::FoundCheckpoint;
use engine::fold::{FoldId, KeyRange, KeySegments, Replaced, ReplacedVisitor};
use kv::BucketTable;
use kv::aae::{Checkpoint, Delta, RecordWriter, Scope, Tree, TreeId};
use ring::RingSize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Changes that are remembered until then, beyond which the trees are made from the heads.
const CHANGES_MAX: usize = 65_536;

/// Changes of trees, by the last version of the memtable that they are in.
pub(super) type Deltas = BTreeMap<Seq, BTreeMap<TreeId, Delta>>;

/// Changes beside trees themselves since they were last kept.
#[derive(Default)]
pub(super) struct Changes {
    /// Whether all that was kept is of no use any more.
    cleared: bool,
    gone: BTreeSet<u16>,
    came: BTreeSet<u16>,
    /// Trees that are there no more since they are empty.
    emptied: BTreeSet<TreeId>,
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

    /// A tree is there no more.
    pub fn emptied(&mut self, tree: TreeId) {
        self.emptied.insert(tree);
    }

    /// Nothing is left of all partitions.
    pub fn clear(&mut self) {
        *self = Changes { cleared: true, ..Changes::default() };
    }

    /// Whether all that was kept is of no use any more.
    pub fn is_cleared(&self) -> bool {
        self.cleared
    }

    /// Writes these changes to a record; the partitions that are whole have their trees.
    pub fn write(self, whole: &BTreeSet<u16>, out: &mut RecordWriter) {
        self.gone.into_iter().for_each(|first| out.gone(first));
        self.came.into_iter().for_each(|first| out.came(first));
        let empty = Tree::default();
        let emptied = self.emptied.into_iter().filter(|id| whole.contains(&id.first));
        emptied.for_each(|id| out.tree(id, &empty, false));
    }
}

/// Trees that an earlier process has left, until the later changes are known.
pub(super) struct Completing {
    fold: FoldId,
    /// The partitions that are this node's.
    firsts: BTreeSet<u16>,
    left: Checkpoint,
    replayed: Arc<Mutex<Deltas>>,
    /// Changes of this process.
    changes: Vec<Change>,
}

/// The parts of trees that can be completed now.
pub(super) struct Completed {
    /// The partitions that are this node's.
    pub firsts: BTreeSet<u16>,
    /// The trees as of the ledger's tables.
    pub left: Checkpoint,
    /// Changes that the journal has beyond them.
    pub replayed: Deltas,
    /// Changes of this process.
    pub changes: Vec<Change>,
}

impl Completing {
    /// Begins with the trees of an earlier process, if they are of this scope. `takes` says which partitions are taken.
    pub fn begin(
        env: &mut Env,
        found: FoundCheckpoint,
        scope: Scope,
        mut takes: impl FnMut(u16) -> bool,
    ) -> Option<Completing> {
        let left = Checkpoint::of(&found.records).filter(|left| left.scope == scope)?;
        let firsts: BTreeSet<u16> = left.whole.iter().copied().filter(|first| takes(*first)).collect();
        let replayed: Arc<Mutex<Deltas>> = Arc::default();

        let objects = KeyRange::new(key::objects_at(0).start, key::objects_at(u16::MAX).end);
        let (layout, size) = (env.knobs.layout, env.topology.ring.size());
        let visitor = noting(env.props.clone(), layout, size, Arc::clone(&replayed));
        let fold = env.store.fold_replayed(found.replayed, objects, visitor);
        env.fold_owners.note(fold, FoldOwner::TreeReplay);
        Some(Completing { fold, firsts, left, replayed, changes: Vec::new() })
    }

    /// The fold over the journal beyond the tables.
    pub fn fold(&self) -> FoldId {
        self.fold
    }

    /// The partitions whose trees are among them.
    pub fn firsts(&self) -> &BTreeSet<u16> {
        &self.firsts
    }

    /// Whether the trees of a partition are among them.
    pub fn has(&self, first: u16) -> bool {
        self.firsts.contains(&first)
    }

    /// Forgets all partitions but these.
    pub fn retain(&mut self, firsts: &BTreeSet<u16>) {
        self.firsts.retain(|first| firsts.contains(first));
    }

    /// Takes a change; `false` if they are too many.
    pub fn note(&mut self, change: Change) -> bool {
        self.changes.push(change);
        self.changes.len() <= CHANGES_MAX
    }

    /// The changes of the journal beyond the tables are known.
    pub fn end(self) -> Completed {
        let Completing { firsts, left, replayed, changes, .. } = self;
        let replayed = std::mem::take(&mut *replayed.lock().unwrap_or_else(PoisonError::into_inner));
        Completed { firsts, left, replayed, changes }
    }

    /// The relations of its fields.
    pub fn invariants(&self) {
        assert!(self.changes.len() <= CHANGES_MAX, "changes are bounded");
        assert!(self.firsts.is_subset(&self.left.whole), "only trees that were left are completed");
    }
}

/// Puts replayed entries into the changes of trees.
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
