//! Trees of hashes over what this shard holds ([`kv::aae`]), for each partition that is this node's by the ring in force.
//!
//! 1. After a start they are what an earlier process has left (`checkpoints.rs`). Where it has left none, and when a partition or other
//!    numbers of replicas come, a partition is *due*: its trees are made from its heads (`rebuilds.rs`).
//! 2. From then on they are *whole*, and each write of a head changes them ([`HeadChange`]).
//! 3. A tree that is crowded, or was found not to say what the store has, is made anew. One whose keys have all ended goes.

use crate::anti_entropy::checkpoints::{Changes, Completing};
use crate::anti_entropy::head_change::HeadChange;
use crate::anti_entropy::rebuilds::Rebuilds;
use crate::anti_entropy::status::Notes;
use crate::shard::Shard;
use crate::topology::nodes;
use ::object::key;
use base::checksum::crc32c_append;
use base::{Monotonic, Wall};
use bytes::Bytes;
use engine::Seq;
use engine::fold::{JournalCheck, KeySegments};
use kv::aae::{Delta, Tree, TreeId, day_of, leaf};
use kv::props::Resets;
use kv::{Bucket, BucketTable, PropsChange};
use ring::Ring;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The bits of a key's place in a tree.
pub(crate) const PLACE_BITS: u32 = 32;

/// How often trees are looked for whose keys have ended: they are in no one's way, and a day is long.
const OVER_EVERY: Duration = Duration::from_secs(60);

/// A tree that is whole.
pub(crate) struct Kept {
    pub tree: Tree,
    /// Unlike that of any other tree, and of this one before its last change.
    pub version: u64,
    /// Whether it was changed by a write that did not know what was there before.
    pub unsure: bool,
    /// What has changed since it was last kept on disk; `None` if it is to be kept whole.
    pub delta: Option<Delta>,
}

/// A change of a tree: what a write has replaced, and by what.
pub(crate) struct Change {
    /// The ledger key.
    pub key: Bytes,
    pub seq: Seq,
    pub tree: TreeId,
    pub place: u32,
    pub old: Option<u32>,
    pub new: Option<u32>,
    /// Whether it is not known what was there before.
    pub unsure: bool,
}

/// All trees.
#[derive(Default)]
pub(crate) struct Trees {
    pub trees: BTreeMap<TreeId, Kept>,
    /// The partitions that have theirs, by their first prefix.
    pub whole: BTreeSet<u16>,
    pub rebuilds: Rebuilds,
    pub notes: Notes,
    /// Those that an earlier process has left, until what came after them is known.
    pub completing: Option<Completing>,
    /// What else has changed since trees were last kept on disk.
    pub changed: Changes,
    pub last_version: u64,
    /// The ring by whose partitions they are.
    pub ring: Option<Arc<Ring>>,
    /// When trees are looked at next whose keys may have ended.
    over_at: Monotonic,
    /// Of the properties, and of the numbers of replicas in them.
    props: Option<u64>,
    pub n_vals: u32,
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
        let bytes = |kept: &Kept| kept.tree.bytes() + kept.delta.as_ref().map_or(0, Delta::bytes);
        let all = self.trees.values().map(|kept| (bytes(kept), kept.tree.keys()));
        all.fold((0, 0), |(bytes, keys), (more, of)| (bytes + more, keys + of))
    }

    /// Partitions whose trees are yet to be made, or completed.
    pub fn due(&self) -> usize {
        let completing = self.completing.as_ref().map_or(0, |completing| completing.firsts.len());
        self.rebuilds.due().count() + completing
    }

    /// Whether some that could be read are yet to get their first trees.
    pub fn are_first_due(&self) -> bool {
        self.completing.is_some() || self.rebuilds.are_first_due(&self.whole)
    }

    /// Has a partition's trees made anew; until then they stay as they are.
    pub fn make_anew(&mut self, first: u16) {
        if self.whole.contains(&first) {
            self.rebuilds.want(first, JournalCheck::None);
        }
    }

    /// Takes a partition's trees, which are whole from now on, in the place of those that it had. Tells whether these had other
    /// keys, or others of their heads, beside those that end about now.
    pub fn take(&mut self, first: u16, made: BTreeMap<TreeId, Tree>, unsure: bool, now: Wall) -> bool {
        let roots = |trees: &Trees| -> Vec<(TreeId, u32)> {
            let all = trees.of(first).map(|(tree, kept)| (*tree, kept.tree.root()));
            all.filter(|(tree, root)| *root != 0 && tree.is_comparable(now)).collect()
        };
        let before = self.whole.contains(&first).then(|| roots(self));
        self.forget(first);
        self.whole.insert(first);
        self.changed.came(first);
        for (id, tree) in made {
            self.last_version += 1;
            let (tree, version) = (tree.fitted(), self.last_version);
            let is_crowded = tree.is_crowded();
            self.trees.insert(id, Kept { tree, version, unsure, delta: None });
            // It was made a little finer than the one before, and may have grown by more than that meanwhile.
            self.fit(id, is_crowded, false);
        }
        before.is_some_and(|before| before != roots(self))
    }

    /// The trees of a partition.
    pub fn of(&self, first: u16) -> impl Iterator<Item = (&TreeId, &Kept)> {
        let of = |n_val, day| TreeId { first, n_val, day };
        self.trees.range(of(0, 0)..=of(u32::MAX, u32::MAX))
    }

    /// The trees of the same partition and number of replicas, whenever their keys end.
    pub fn of_all_days(&self, tree: TreeId) -> impl Iterator<Item = (&TreeId, &Kept)> {
        self.trees.range(TreeId { day: 0, ..tree }..=TreeId { day: u32::MAX, ..tree })
    }

    /// Lets trees go whose keys have all ended, once in a while.
    fn drop_over(&mut self, now: Monotonic, wall: Wall) {
        if now < self.over_at {
            return;
        }
        self.over_at = now + OVER_EVERY;
        let over: Vec<TreeId> = self.trees.keys().filter(|tree| tree.is_over(wall)).copied().collect();
        for tree in over {
            self.trees.remove(&tree);
            self.changed.emptied.insert(tree);
        }
    }

    /// Makes a change of a tree that is whole.
    pub fn change(&mut self, change: &Change) {
        let tree = change.tree;
        if change.unsure {
            // What was there before may end on another day.
            for (_, kept) in
                self.trees.range_mut(TreeId { day: 0, ..tree }..=TreeId { day: u32::MAX, ..tree })
            {
                kept.unsure = true;
                kept.delta.iter_mut().for_each(|delta| delta.change(0, None, None, true));
            }
        }
        self.last_version += 1;
        let new = || Kept { tree: Tree::default(), version: 0, unsure: false, delta: None };
        let kept = self.trees.entry(tree).or_insert_with(new);
        kept.version = self.last_version;
        kept.unsure |= change.unsure;
        kept.tree.change(change.place, change.old, change.new);
        if let Some(delta) = &mut kept.delta {
            delta.change(change.place, change.old, change.new, change.unsure);
            kept.delta.take_if(|delta| delta.len() > deltas_max(&kept.tree));
        }
        let (is_crowded, is_empty) = (kept.tree.is_crowded(), kept.tree.is_empty());
        self.fit(tree, is_crowded, is_empty);
    }

    /// A tree that has grown too large is made anew; an empty one is not there.
    pub fn fit(&mut self, tree: TreeId, is_crowded: bool, is_empty: bool) {
        if is_crowded {
            self.rebuilds.want(tree.first, JournalCheck::None);
        } else if is_empty {
            self.trees.remove(&tree);
            self.changed.emptied.insert(tree);
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
}

impl Shard {
    /// A write has replaced a head.
    pub(crate) fn on_head_changed(&mut self, head: &HeadChange) {
        let first = self.env.ownership().first_of(key::prefix_of(&head.key));
        let place = KeySegments::number_of(&head.key, PLACE_BITS);
        let HeadChange { key, seq, n_val, old, new, is_unsure } = head;
        for (day, old, new) in leaves(place, old.as_deref(), new.as_deref()) {
            let tree = TreeId { first, n_val: *n_val, day };
            let unsure = *is_unsure;
            self.take_change(Change { key: key.clone(), seq: *seq, tree, place, old, new, unsure });
        }
    }

    fn take_change(&mut self, change: Change) {
        let first = change.tree.first;
        if self.trees.whole.contains(&first) {
            self.keep_trees_before(change.seq);
            self.trees.change(&change);
        } else if let Some(completing) = self.trees.completing.as_mut().filter(|it| it.has(first)) {
            if !completing.note(change) {
                self.give_up_completing();
            }
            return;
        }
        if let Some(fold) = self.trees.rebuilds.note(first, change) {
            self.env.store.cancel_fold(fold);
        }
    }

    /// The partitions that this shard is to have trees of are those of the ring in force and of the properties as they are now.
    pub(crate) fn look_at_trees(&mut self) {
        if self.env.knobs.anti_entropy.is_none() || self.env.peers.is_alone() {
            return;
        }
        self.trees.drop_over(self.env.now(), self.env.clock.wall());
        let is_new_ring =
            self.trees.ring.as_ref().is_none_or(|ring| !Arc::ptr_eq(ring, &self.env.topology.ring));
        let is_new_table = self.trees.props != Some(self.env.props.digest(Resets::Left));
        if !is_new_ring && !is_new_table {
            return;
        }
        let n_vals = if is_new_table { n_vals_sum(&self.env.props) } else { self.trees.n_vals };
        let is_same_size =
            self.trees.ring.as_ref().is_some_and(|ring| ring.size() == self.env.topology.ring.size());
        if !is_same_size || n_vals != self.trees.n_vals {
            self.trees.trees.clear();
            self.trees.whole.clear();
            self.trees.rebuilds = Rebuilds::default();
            self.trees.notes = Notes::default();
            self.trees.completing = None;
            self.trees.changed.clear();
        }
        if self.trees.ring.is_none() {
            self.env.store.keep_checkpoints(kv::aae::join);
        }
        self.trees.props = Some(self.env.props.digest(Resets::Left));
        self.trees.n_vals = n_vals;
        self.trees.ring = Some(Arc::clone(&self.env.topology.ring));
        self.env.gauges.keeps_trees = true;
        let (ring, layout, here) = (&self.env.topology.ring, &self.env.knobs.layout, self.env.peers.here());
        let n_val = self.env.n_vals_kept().into_iter().max().unwrap_or(1);
        let firsts = ring.size().all().filter_map(|partition| {
            let first = *layout.prefixes_of(partition, ring.size()).start();
            let is_own = layout.shard_of(first) == self.env.knobs.id.0
                && nodes(ring, ring.size().first(partition), n_val).contains(&here);
            is_own.then_some(first)
        });
        let firsts: BTreeSet<u16> = firsts.collect();
        let trees = &mut self.trees;
        trees.rebuilds.retain(&firsts);
        trees.notes.retain(&firsts);
        if let Some(completing) = &mut trees.completing {
            completing.firsts.retain(|first| firsts.contains(first));
        }
        for gone in trees.whole.difference(&firsts).copied().collect::<Vec<_>>() {
            trees.forget(gone);
        }
        let is_left = |first| trees.completing.as_ref().is_some_and(|completing| completing.has(first));
        let missing = |first: &u16| !trees.whole.contains(first) && !is_left(*first);
        let missing: Vec<u16> = firsts.into_iter().filter(missing).collect();
        missing.into_iter().for_each(|first| trees.rebuilds.want_first(first));
    }
}

/// Changes of a tree that are remembered for the disk: with more it is kept whole, for about twice as many bytes.
fn deltas_max(tree: &Tree) -> usize {
    64 + usize::try_from(tree.keys() / 8).unwrap_or(usize::MAX)
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
pub(crate) struct NVals {
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

/// How trees change when one head takes the place of another: the day of each tree, and the leaf there before and after. They are two where
/// one ends on another day than the other.
pub(crate) fn leaves(
    place: u32,
    old: Option<&[u8]>,
    new: Option<&[u8]>,
) -> impl Iterator<Item = (u32, Option<u32>, Option<u32>)> {
    let of = |head: &[u8]| (day_of(head), leaf(place, head));
    let changes = match (old.map(of), new.map(of)) {
        (Some((before, old)), Some((after, new))) if before != after => {
            let left = Some((before, Some(old), None)).filter(|_| !base::planted!(DayNotLeft));
            [left, Some((after, None, Some(new)))]
        }
        (old, new) => {
            let day = new.or(old).map_or(0, |(day, _)| day);
            [Some((day, old.map(|(_, leaf)| leaf), new.map(|(_, leaf)| leaf))), None]
        }
    };
    changes.into_iter().flatten()
}

/// The place of a key in a tree, and the hash of its head there.
pub(crate) fn placed_leaf(ledger_key: &[u8], head: &[u8]) -> (u32, u32) {
    let place = KeySegments::number_of(ledger_key, PLACE_BITS);
    (place, leaf(place, head))
}
