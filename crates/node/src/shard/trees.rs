//! Trees of hashes over what this shard holds ([`kv::aae`]), for each partition that is this node's by the ring in force.
//!
//! 1. After a start, and when a partition or other numbers of replicas come, a partition is *due*: one at a time its trees are made
//!    by a fold over its heads, beside everything else.
//! 2. From then on they are *whole*, and each write of a head changes them ([`Shard::note_written`]).
//! 3. A tree that is crowded, or was found not to say what the store has, is made anew.
//!
//! While a partition's trees are made its changes are remembered with their versions; those that the fold's snapshot does not show are made
//! when it is done. The snapshot shows all that was written before the first that is remembered.
//!
//! Left out: trees on disk. At a start they are made from the heads, and until then nothing is compared.

use super::Shard;
use super::work::{Coordinator, Prior, Work};
use crate::topology::nodes;
use ::object::key;
use base::Monotonic;
use base::checksum::crc32c_append;
use bytes::Bytes;
use engine::Seq;
use engine::fold::{
    Control, FoldEnd, FoldId, FoldRequest, FoldVisitor, JournalCheck, KeyRange, KeySegments, What,
};
use kv::aae::{BITS_MAX, Tree, TreeId, leaf};
use kv::{Bucket, BucketTable, PropsChange};
use ring::Ring;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Changes that are remembered while a partition's trees are made, beyond which that begins anew.
const CHANGES_MAX: usize = 65_536;

/// How long a partition waits whose heads could not be read.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// The bits of a key's place in a tree.
const PLACE_BITS: u32 = 32;

/// A tree that is whole.
pub(super) struct Kept {
    pub tree: Tree,
    /// Unlike that of any other tree, and of this one before its last change.
    pub version: u64,
    /// Whether it was changed by a write that did not know what was there before.
    pub unsure: bool,
}

/// A change that is yet to be made.
struct Change {
    seq: Seq,
    n_val: u32,
    place: u32,
    old: Option<u32>,
    new: Option<u32>,
    unsure: bool,
}

/// A partition whose trees are made.
struct Making {
    first: u16,
    /// What the snapshot is to show.
    after: Seq,
    /// The fold, and what its snapshot shows.
    fold: Option<(FoldId, Seq)>,
    made: Arc<Mutex<BTreeMap<u32, Tree>>>,
    changes: Vec<Change>,
}

/// All trees.
#[derive(Default)]
pub(super) struct Trees {
    trees: BTreeMap<TreeId, Kept>,
    /// The partitions that have theirs, by their first prefix.
    pub whole: BTreeSet<u16>,
    due: BTreeSet<u16>,
    /// Those that could not be read, and are due again when the others are made and some time has passed.
    failed: BTreeSet<u16>,
    making: Option<Making>,
    again_at: Monotonic,
    last_version: u64,
    /// The ring by whose partitions they are.
    ring: Option<Arc<Ring>>,
    /// Of the properties, and of the numbers of replicas in them.
    props: Option<u64>,
    n_vals: u32,
}

impl Trees {
    /// Whether any are kept.
    pub fn are_kept(&self) -> bool {
        self.ring.is_some()
    }

    /// A tree that is whole, or an empty one.
    pub fn get(&self, tree: TreeId) -> Option<&Kept> {
        self.trees.get(&tree)
    }

    /// The hash of all keys of a tree.
    pub fn root(&self, tree: TreeId) -> u32 {
        self.trees.get(&tree).map_or(0, |kept| kept.tree.root())
    }

    /// Bytes of memory that they take, and the keys in them.
    pub fn sizes(&self) -> (usize, u64) {
        let all = self.trees.values().map(|kept| (kept.tree.bytes(), kept.tree.keys()));
        all.fold((0, 0), |(bytes, keys), (more, of)| (bytes + more, keys + of))
    }

    /// Partitions whose trees are yet to be made.
    pub fn due(&self) -> usize {
        self.due.len() + self.failed.len() + usize::from(self.making.is_some())
    }

    /// Whether some are about to be made.
    pub fn are_due(&self) -> bool {
        !self.due.is_empty() || self.making.is_some()
    }

    /// The partition that is to be made next.
    fn next(&mut self, now: Monotonic) -> Option<u16> {
        if self.due.is_empty() && self.again_at <= now {
            self.due = std::mem::take(&mut self.failed);
        }
        self.due.pop_first()
    }

    /// Has a partition's trees made anew; until then they stay as they are.
    pub fn make_anew(&mut self, first: u16) {
        if self.whole.contains(&first) {
            self.due.insert(first);
        }
    }

    fn change(&mut self, tree: TreeId, change: &Change) {
        self.last_version += 1;
        let new = || Kept { tree: Tree::default(), version: 0, unsure: false };
        let kept = self.trees.entry(tree).or_insert_with(new);
        kept.version = self.last_version;
        kept.unsure |= change.unsure;
        kept.tree.change(change.place, change.old, change.new);
        if kept.tree.is_crowded() {
            self.due.insert(tree.first);
        } else if kept.tree.keys() == 0 && kept.tree.root() == 0 {
            self.trees.remove(&tree);
        }
    }

    fn forget(&mut self, first: u16) {
        self.whole.remove(&first);
        let of = |n_val| TreeId { first, n_val };
        let gone: Vec<TreeId> = self.trees.range(of(0)..=of(u32::MAX)).map(|(tree, _)| *tree).collect();
        for tree in gone {
            self.trees.remove(&tree);
        }
    }
}

impl Shard {
    /// The first prefix of the partition that a key is in.
    fn first_of(&self, prefix: u16) -> u16 {
        let (layout, size) = (&self.config.layout, self.config.ring.size());
        *layout.prefixes_of(size.partition(layout.position(prefix)), size).start()
    }

    /// The keys of a partition, from one of them on.
    pub(super) fn keys_of(&self, first: u16, from: Option<Bytes>) -> KeyRange {
        let (layout, size) = (&self.config.layout, self.config.ring.size());
        let last = *layout.prefixes_of(size.partition(layout.position(first)), size).end();
        KeyRange::new(from.unwrap_or_else(|| key::objects_at(first).start.into()), key::objects_at(last).end)
    }

    /// The head that was under the work's key as of its last read was replaced by this one.
    #[inline]
    pub(super) fn note_written(
        &mut self,
        work: &Work,
        new: Option<&[u8]>,
        written: &Result<Seq, engine::Error>,
    ) {
        if let Ok(seq) = written
            && self.trees.are_kept()
        {
            self.note_change(work, new, *seq);
        }
    }

    fn note_change(&mut self, work: &Work, new: Option<&[u8]>, seq: Seq) {
        let is_repair =
            matches!(&work.coordinator, Coordinator::Merge(merge) if merge.reason() == kv::Reason::Repair);
        if is_repair && base::planted!(TreeNotUpdatedOnRepair) {
            return;
        }
        let first = self.first_of(key::prefix_of(&work.key));
        let place = KeySegments::number_of(&work.key, PLACE_BITS);
        let trees = &mut self.trees;
        let old = match &work.prior {
            Prior::Plain { head } => head.as_ref(),
            Prior::Indexed { head, .. } => Some(head),
            // What goes is not known. If something does, the next exchange finds that the tree is wrong.
            Prior::Unread | Prior::Damaged => None,
        };
        let change = Change {
            seq,
            n_val: work.props.n_val,
            place,
            old: old.map(|head| leaf(place, head)),
            new: new.map(|head| leaf(place, head)),
            unsure: matches!(work.prior, Prior::Unread | Prior::Damaged),
        };
        if trees.whole.contains(&first) {
            trees.change(TreeId { first, n_val: change.n_val }, &change);
        }
        if let Some(making) = trees.making.as_mut().filter(|making| making.first == first) {
            making.changes.push(change);
            if making.changes.len() > CHANGES_MAX {
                let fold = making.fold.map(|(fold, _)| fold);
                trees.due.insert(first);
                trees.making = None;
                fold.into_iter().for_each(|fold| self.store.cancel_fold(fold));
            }
        }
    }

    /// The partitions that this shard is to have trees of are those of the ring in force and of the properties as they are now.
    pub(super) fn look_at_trees(&mut self) {
        if self.config.anti_entropy.is_none() || self.peers.is_alone() {
            return;
        }
        let is_new_ring = self.trees.ring.as_ref().is_none_or(|ring| !Arc::ptr_eq(ring, &self.config.ring));
        let is_new_table = self.trees.props != Some(self.table.digest());
        if !is_new_ring && !is_new_table {
            return;
        }
        let n_vals = if is_new_table { n_vals_sum(&self.table) } else { self.trees.n_vals };
        let is_same_size =
            self.trees.ring.as_ref().is_some_and(|ring| ring.size() == self.config.ring.size());
        if !is_same_size || n_vals != self.trees.n_vals {
            self.trees.trees.clear();
            self.trees.whole.clear();
            self.trees.due.clear();
            self.trees.failed.clear();
            self.trees.making = None;
        }
        self.trees.props = Some(self.table.digest());
        self.trees.n_vals = n_vals;
        self.trees.ring = Some(Arc::clone(&self.config.ring));
        let (ring, layout, here) = (&self.config.ring, &self.config.layout, self.peers.here());
        let n_val = self.n_vals_kept().into_iter().max().unwrap_or(1);
        let firsts = ring.size().all().filter_map(|partition| {
            let first = *layout.prefixes_of(partition, ring.size()).start();
            let is_own = layout.shard_of(first) == self.config.id.0
                && nodes(ring, ring.size().first(partition), n_val).contains(&here);
            is_own.then_some(first)
        });
        let firsts: BTreeSet<u16> = firsts.collect();
        let trees = &mut self.trees;
        trees.due.retain(|first| firsts.contains(first));
        trees.failed.retain(|first| firsts.contains(first));
        trees.making.take_if(|making| !firsts.contains(&making.first));
        for gone in trees.whole.difference(&firsts).copied().collect::<Vec<_>>() {
            trees.forget(gone);
        }
        let making = trees.making.as_ref().map(|making| making.first);
        let is_new = |first: &u16| {
            !trees.whole.contains(first) && !trees.failed.contains(first) && making != Some(*first)
        };
        let new: Vec<u16> = firsts.into_iter().filter(is_new).collect();
        trees.due.extend(new);
    }

    /// The numbers of replicas that trees are kept for.
    pub(super) fn n_vals_kept(&self) -> BTreeSet<u32> {
        let agreed = self.moves.topology.n_vals.iter().copied();
        self.table.n_vals().into_iter().chain(agreed).collect()
    }

    /// Goes on with making trees: the next partition, or its fold once the snapshot shows what it must.
    pub(super) fn make_trees(&mut self, now: Monotonic) {
        if self.trees.making.is_none() {
            if self.store.fenced().is_some() {
                return;
            }
            let Some(first) = self.trees.next(now) else { return };
            let (after, made) = (self.store.last_written(), Arc::default());
            self.trees.making = Some(Making { first, after, fold: None, made, changes: Vec::new() });
        }
        let Some(making) = &self.trees.making else { return };
        if making.fold.is_some() || self.store.acknowledged() < making.after {
            return;
        }
        // What is left where something was lost is compared, and so the rest comes back.
        let request = FoldRequest {
            past_losses: true,
            ..FoldRequest::over(self.keys_of(making.first, None), What::Heads(JournalCheck::None))
        };
        let snapshot = self.store.snapshot();
        let shows = snapshot.seq();
        let visitor = gathering(self.table.clone(), Arc::clone(&making.made));
        let fold = self.store.fold_at(request, snapshot, visitor);
        let Some(making) = &mut self.trees.making else { return };
        match fold {
            Ok(fold) => making.fold = Some((fold, shows)),
            Err(_) => self.make_later(now),
        }
    }

    fn make_later(&mut self, now: Monotonic) {
        let trees = &mut self.trees;
        trees.again_at = now + AGAIN_AFTER;
        if let Some(making) = trees.making.take() {
            trees.failed.insert(making.first);
        }
    }

    /// Takes the end of a fold, if it was one that makes trees.
    pub(super) fn on_trees_fold(
        &mut self,
        id: FoldId,
        end: Result<FoldEnd, engine::Error>,
    ) -> Result<(), Result<FoldEnd, engine::Error>> {
        let is_ours = |making: &&mut Making| making.fold.is_some_and(|(fold, _)| fold == id);
        if self.trees.making.as_mut().filter(is_ours).is_none() {
            return Err(end);
        }
        let now = self.config.clock.now();
        match end {
            Ok(end) if end.next.is_none() => self.take_made(),
            _ => self.make_later(now),
        }
        self.make_trees(now);
        Ok(())
    }

    fn take_made(&mut self) {
        let trees = &mut self.trees;
        let Some(Making { first, fold: Some((_, shows)), made, changes, .. }) = trees.making.take() else {
            return;
        };
        trees.forget(first);
        trees.whole.insert(first);
        let made = std::mem::take(&mut *made.lock().unwrap_or_else(PoisonError::into_inner));
        for (n_val, tree) in made {
            trees.last_version += 1;
            let kept = Kept { tree: tree.fitted(), version: trees.last_version, unsure: false };
            trees.trees.insert(TreeId { first, n_val }, kept);
        }
        for change in changes.iter().filter(|change| change.seq > shows) {
            trees.change(TreeId { first, n_val: change.n_val }, change);
        }
        self.counters.trees_made += 1;
    }
}

/// A sum over the numbers of replicas of all buckets and bucket types.
fn n_vals_sum(table: &BucketTable) -> u32 {
    table.changes().fold(0, |sum, change| {
        let n_val = match &change {
            PropsChange::Bucket(_, stamped) => stamped.props.as_ref().map(|props| props.n_val),
            PropsChange::Type(_, stamped) => Some(stamped.props.n_val),
        };
        let sum = crc32c_append(sum, &change.ledger_key());
        crc32c_append(sum, &n_val.unwrap_or_default().to_le_bytes())
    })
}

/// Finds the number of replicas of a ledger key; those of a bucket stand together.
pub(super) struct NVals {
    table: BucketTable,
    /// All before the key's own name, and the number there, if its bucket is known.
    last: Option<(Box<[u8]>, Option<u32>)>,
}

impl NVals {
    pub fn new(table: BucketTable) -> NVals {
        NVals { table, last: None }
    }

    pub fn of(&mut self, ledger_key: &[u8]) -> Option<u32> {
        if let Some((names, n_val)) = &self.last
            && ledger_key.starts_with(names)
        {
            return *n_val;
        }
        let parts = key::decode_object_key(ledger_key).ok()?;
        let names = ledger_key[..ledger_key.len() - parts.key.len()].into();
        let bucket = Bucket {
            bucket_type: Bytes::copy_from_slice(&parts.bucket_type),
            name: Bytes::copy_from_slice(&parts.bucket),
        };
        let n_val = self.table.get_as_replica(&bucket).ok().map(|props| props.n_val);
        self.last = Some((names, n_val));
        n_val
    }
}

/// Puts all keys into the trees of their numbers of replicas.
fn gathering(table: BucketTable, made: Arc<Mutex<BTreeMap<u32, Tree>>>) -> FoldVisitor {
    let mut n_vals = NVals::new(table);
    Box::new(move |item| {
        if let Some(n_val) = n_vals.of(item.key) {
            let place = KeySegments::number_of(item.key, PLACE_BITS);
            let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
            let tree = made.entry(n_val).or_insert_with(|| Tree::new(BITS_MAX));
            tree.change(place, None, Some(leaf(place, item.head)));
        }
        Control::Next
    })
}

/// The place of a key in a tree, and the hash of its head there.
pub(super) fn placed_leaf(ledger_key: &[u8], head: &[u8]) -> (u32, u32) {
    let place = KeySegments::number_of(ledger_key, PLACE_BITS);
    (place, leaf(place, head))
}
