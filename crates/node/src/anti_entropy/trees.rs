//! Trees of hashes over this shard's objects ([`kv::aae`]), for each partition that is this node's by the ring in
//! force.
//!
//! 1. After a start they are those of an earlier process (`checkpoints.rs`). Without them, and when a partition or
//!    other numbers of replicas come, a partition is *due*: its trees are made from its heads (`rebuilds.rs`).
//! 2. From then on they are *whole*, and each write of a head changes them ([`HeadChange`]).
//! 3. A tree that is crowded, or that differs from the store, is made anew. A tree whose keys have all ended is
//!    dropped.

use super::change::{Change, PLACE_BITS, leaves};
use super::checkpoints::{Completed, Completing};
use super::head_change::HeadChange;
use super::kept::{KeptTree, KeptTrees};
pub(crate) use super::n_vals::NVals;
use super::rebuilds::{FinishedRebuild, Rebuilds};
use super::status::{Notes, TreesStatus};
use crate::shard::env::Env;
use crate::shard::owners::FoldOwner;
use crate::topology::lists;
use ::object::key;
use base::Monotonic;
use base::checksum::crc32c_append;
use bytes::Bytes;
use engine::Seq;
use engine::fold::{FoldEnd, FoldId, JournalCheck, KeySegments};
use kv::aae::{Scope, TreeId};
use kv::props::Resets;
use kv::{BucketTable, PropsChange};
use ring::{Partition, Ring};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How often trees are looked for whose keys have ended: they are in no one's way, and a day is long.
const OVER_EVERY: Duration = Duration::from_secs(60);

/// All trees.
#[derive(Default)]
pub(super) struct Trees {
    kept: KeptTrees,
    rebuilds: Rebuilds,
    notes: Notes,
    /// Trees that an earlier process has left, until the later changes are known.
    completing: Option<Completing>,
    /// The ring by whose partitions they are.
    ring: Option<Arc<Ring>>,
    /// When trees are looked at next whose keys may have ended.
    over_at: Monotonic,
    /// Of the properties, and of the numbers of replicas in them.
    props: Option<u64>,
    n_vals: u32,
}

impl Trees {
    /// A tree that is whole; `None` if it is empty.
    pub fn get(&self, tree: TreeId) -> Option<&KeptTree> {
        self.kept.get(tree)
    }

    /// The hash of all keys of a tree.
    pub fn root(&self, tree: TreeId) -> u32 {
        self.kept.root(tree)
    }

    /// The trees of the same partition and number of replicas, whenever their keys end.
    pub fn of_all_days(&self, tree: TreeId) -> impl Iterator<Item = TreeId> {
        self.kept.of_all_days(tree)
    }

    /// The partitions that have their trees, by their first prefix.
    pub fn whole(&self) -> &BTreeSet<u16> {
        self.kept.whole()
    }

    /// Whether a partition has its trees.
    pub fn is_whole(&self, first: u16) -> bool {
        self.kept.is_whole(first)
    }

    /// Notes on partitions' trees, for operators.
    pub fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }

    /// Bytes of memory that they take, and the keys in them.
    pub fn sizes(&self) -> (usize, u64) {
        self.kept.sizes()
    }

    /// Partitions whose trees are yet to be made, or completed.
    pub fn due(&self) -> usize {
        let completing = self.completing.as_ref().map_or(0, |completing| completing.firsts().len());
        self.rebuilds.due().count() + completing
    }

    /// Whether some that could be read are yet to get their first trees.
    pub fn are_first_due(&self) -> bool {
        self.completing.is_some() || self.rebuilds.are_first_due(self.whole())
    }

    /// How it stands with the trees of each partition, of which those of `comparing` are being compared.
    pub fn statuses(&self, env: &Env, comparing: &BTreeSet<u16>) -> Vec<TreesStatus> {
        let now = env.now();
        let due: BTreeSet<u16> = self.rebuilds.due().collect();
        let status = |&first: &u16| TreesStatus {
            is_whole: self.is_whole(first),
            is_due: due.contains(&first),
            keys: self.kept.keys(first),
            is_comparing: comparing.contains(&first),
            ..self.notes.status(first, env.ownership().partition_of(first), now)
        };
        self.whole().union(&due).map(status).collect()
    }

    /// Begins with the trees that an earlier process has left, if they are of use.
    pub fn begin(&mut self, env: &mut Env) {
        self.look_at_partitions(env);
        let Some(found) = env.store.take_checkpoint().filter(|_| self.are_kept()) else { return };
        let (scope, rebuilds) = (self.scope(), &mut self.rebuilds);
        self.completing = Completing::begin(env, found, scope, |first| rebuilds.spare(first));
    }

    /// Takes the end of the fold over the journal beyond the tables, unless it was given up.
    pub fn on_replayed(&mut self, env: &mut Env, id: FoldId, end: Result<FoldEnd, engine::Error>) {
        let Some(completing) = self.completing.take_if(|completing| completing.fold() == id) else { return };
        match end {
            Ok(_) => self.complete(env, completing.end()),
            Err(_) => self.give_up(env, &completing),
        }
    }

    /// Trees that were left are whole, once they have the later changes.
    fn complete(&mut self, env: &mut Env, completed: Completed) {
        let Completed { firsts, left, replayed, changes } = completed;
        left.whole.difference(&firsts).for_each(|&first| self.kept.note_gone(first));
        self.kept.take_left(&firsts, left.trees);
        // A tree that is crowded was to be made anew when its process ended.
        firsts.iter().for_each(|&first| self.make_crowded(first));
        env.counters.trees_kept += firsts.len() as u64;

        for (last_seq, deltas) in replayed {
            self.keep_before(env, last_seq);
            for (id, delta) in deltas.into_iter().filter(|(id, _)| firsts.contains(&id.first)) {
                if self.kept.change_many(id, delta) {
                    self.rebuilds.want(id.first, JournalCheck::None);
                }
            }
        }
        for change in changes.iter().filter(|change| firsts.contains(&change.tree.first)) {
            self.keep_before(env, change.seq);
            self.change(change);
        }
    }

    /// Trees that were left are made from the heads instead.
    fn give_up(&mut self, env: &mut Env, completing: &Completing) {
        env.store.cancel_fold(completing.fold());
        completing.firsts().iter().for_each(|&first| self.rebuilds.want_first(first));
        self.kept.clear_records();
    }

    /// Has the trees kept as of each memtable whose last version is before this one. To be called before a change of
    /// that version is made.
    #[inline]
    fn keep_before(&mut self, env: &mut Env, seq: Seq) {
        while let Some(wanted) = env.store.wants_checkpoint().filter(|wanted| wanted.seq < seq) {
            let record = self.kept.record(self.scope(), wanted.whole);
            env.store.checkpoint(record);
        }
    }

    /// The same when all changes are made. To be called at the end of a turn.
    pub fn keep(&mut self, env: &mut Env) {
        if self.completing.is_none() {
            self.keep_before(env, Seq(u64::MAX));
        }
    }

    fn are_kept(&self) -> bool {
        self.ring.is_some()
    }

    /// Their partitions and numbers of replicas.
    fn scope(&self) -> Scope {
        let partitions = self.ring.as_ref().map_or(0, |ring| ring.size().partitions());
        Scope { partitions, n_vals: self.n_vals }
    }

    /// A write has replaced a head.
    pub fn on_head_changed(&mut self, env: &mut Env, head: &HeadChange) {
        let first = env.ownership().first_of(key::prefix_of(&head.key));
        let place = KeySegments::number_of(&head.key, PLACE_BITS);
        let HeadChange { key, seq, n_val, old, new, is_unsure } = head;
        for (day, old, new) in leaves(place, old.as_deref(), new.as_deref()) {
            let tree = TreeId { first, n_val: *n_val, day };
            let unsure = *is_unsure;
            self.take_change(env, Change { key: key.clone(), seq: *seq, tree, place, old, new, unsure });
        }
    }

    fn take_change(&mut self, env: &mut Env, change: Change) {
        let first = change.tree.first;
        if self.is_whole(first) {
            self.keep_before(env, change.seq);
            self.change(&change);
        } else if let Some(completing) = self.completing.as_mut().filter(|it| it.has(first)) {
            if !completing.note(change)
                && let Some(completing) = self.completing.take()
            {
                self.give_up(env, &completing);
            }
            return;
        }
        if let Some(fold) = self.rebuilds.note(first, change) {
            env.store.cancel_fold(fold);
        }
    }

    /// Makes a change of a tree that is whole; one that has grown too large is made anew.
    fn change(&mut self, change: &Change) {
        if self.kept.change(change) {
            self.rebuilds.want(change.tree.first, JournalCheck::None);
        }
    }

    /// Has a partition made anew if it has a tree that is too large.
    fn make_crowded(&mut self, first: u16) {
        if self.kept.is_crowded(first) {
            self.rebuilds.want(first, JournalCheck::None);
        }
    }

    /// Has a partition's trees made anew; until then they stay as they are.
    pub fn make_anew(&mut self, first: u16) {
        if self.is_whole(first) {
            self.rebuilds.want(first, JournalCheck::None);
        }
    }

    /// The partitions that this shard is to have trees of are those of the ring in force and of the properties as they
    /// are now.
    pub fn look_at_partitions(&mut self, env: &mut Env) {
        if env.knobs.anti_entropy.is_none() || env.peers.is_alone() {
            return;
        }
        self.drop_over(env);
        let props = env.props.digest(Resets::Left);
        let is_new_ring = self.ring.as_ref().is_none_or(|ring| !Arc::ptr_eq(ring, &env.topology.ring));
        let is_new_table = self.props != Some(props);
        if !is_new_ring && !is_new_table {
            return;
        }

        let n_vals = if is_new_table { n_vals_sum(&env.props) } else { self.n_vals };
        let is_same_size = self.ring.as_ref().is_some_and(|ring| ring.size() == env.topology.ring.size());
        if !is_same_size || n_vals != self.n_vals {
            self.kept.clear();
            self.rebuilds = Rebuilds::default();
            self.notes = Notes::default();
            self.completing = None;
        }
        if self.ring.is_none() {
            env.store.keep_checkpoints(kv::aae::join);
        }
        self.props = Some(props);
        self.n_vals = n_vals;
        self.ring = Some(Arc::clone(&env.topology.ring));
        env.gauges.keeps_trees = true;

        let firsts = own_partitions(env);
        self.rebuilds.retain(&firsts);
        self.notes.retain(&firsts);
        self.completing.iter_mut().for_each(|completing| completing.retain(&firsts));
        self.kept.retain(&firsts);
        let is_left = |first| self.completing.as_ref().is_some_and(|completing| completing.has(first));
        let missing = firsts.into_iter().filter(|&first| !self.kept.is_whole(first) && !is_left(first));
        missing.for_each(|first| self.rebuilds.want_first(first));
    }

    /// Lets trees go whose keys have all ended, once in a while.
    fn drop_over(&mut self, env: &Env) {
        let now = env.now();
        if now >= self.over_at {
            self.over_at = now + OVER_EVERY;
            self.kept.drop_over(env.clock.wall());
        }
    }

    /// Has the trees of a partition made anew, or of all that it has: as soon as it can be. Tells how many that are.
    pub fn rebuild(&mut self, env: &Env, partition: Option<Partition>, check: JournalCheck) -> usize {
        let is_it = |first: u16| partition.is_none_or(|it| it == env.ownership().partition_of(first));
        let firsts: Vec<u16> = self.whole().iter().copied().filter(|&first| is_it(first)).collect();
        firsts.iter().for_each(|&first| self.rebuilds.want(first, check));
        firsts.len()
    }

    /// Has the trees made anew of all partitions of which merges or the scrub have found something lost: they tell of
    /// it still, and without it exchanges bring it back.
    pub fn rebuild_lost(&mut self, env: &mut Env) {
        // Trees of an earlier process describe it, too, and are not whole yet.
        if self.completing.is_some() {
            return;
        }
        let lost = env.store.take_lost();
        if lost.is_empty() {
            return;
        }
        let has_lost = |&first: &u16| {
            let keys = env.ownership().keys_of(first, None);
            lost.check_range(&keys.start, &keys.end).is_err()
        };
        let firsts: BTreeSet<u16> = self.whole().iter().copied().chain(self.rebuilds.due()).collect();
        let firsts = firsts.into_iter().filter(has_lost);
        firsts.for_each(|first| self.rebuilds.want(first, JournalCheck::None));
    }

    /// Has trees made anew that are due by their timers.
    pub fn look_at_timers(&mut self, env: &mut Env, now: Monotonic) {
        self.rebuilds.look_at_timers(env, self.kept.whole(), now);
    }

    /// Goes on with making trees: the next partition, or its next part once the snapshot shows all that it must.
    /// `has_room` says whether damaged keys may wait to be healed.
    pub fn make(&mut self, env: &mut Env, has_room: bool, now: Monotonic) {
        if !self.rebuilds.is_making() {
            // The checkpoint of a flush must not have later changes.
            if env.store.fenced().is_some() || self.completing.is_some() {
                return;
            }
            self.rebuilds.begin_next(now, |first| self.kept.bits(first));
        }
        self.rebuilds.begin_part(env, has_room, now);
    }

    /// Takes the end of a fold that makes trees: keys that it has found damaged.
    pub fn on_part(&mut self, env: &mut Env, id: FoldId, end: Result<FoldEnd, engine::Error>) -> Vec<Bytes> {
        let end = self.rebuilds.on_fold(env, self.kept.whole(), id, end);
        let Some((first, damaged)) = end.damaged else { return Vec::new() };
        self.notes.add_damaged(first, damaged.len() as u64);
        if let Some(finished) = end.finished {
            self.keep(env);
            let (check, now) = (finished.check, env.now());
            let is_other = self.take(env, finished);
            self.notes.set_made(first, check, is_other, now);
            env.counters.trees_made += 1;
        }
        damaged
    }

    /// Takes a partition's trees. Tells whether those that it had were others.
    fn take(&mut self, env: &Env, finished: FinishedRebuild) -> bool {
        let FinishedRebuild { first, trees, unsure, .. } = finished;
        let is_other = self.kept.take(first, trees, unsure, env.clock.wall());
        // A tree was made a little finer than the one before, and may have grown by more than that meanwhile.
        self.make_crowded(first);
        is_other
    }

    /// The relations of its fields, and of the gauge.
    pub fn invariants(&self, env: &Env) {
        self.kept.invariants();
        self.rebuilds.invariants(env, self.whole());
        assert!(self.are_kept() == env.gauges.keeps_trees, "the gauge says whether trees are kept");
        if let Some(completing) = &self.completing {
            completing.invariants();
            let owner = env.fold_owners.of(completing.fold());
            assert_eq!(owner, Some(&FoldOwner::TreeReplay), "the fold that completes trees is under way");
            assert!(completing.firsts().is_disjoint(self.whole()), "no tree is whole before it is complete");
            assert!(!self.rebuilds.is_making(), "nothing is made from heads until then");
        }
    }
}

/// The first prefixes of the partitions that this shard is to have trees of.
fn own_partitions(env: &Env) -> BTreeSet<u16> {
    let (ring, layout, here) = (&env.topology.ring, &env.knobs.layout, env.peers.here());
    let n_val = env.n_vals_kept().into_iter().max().unwrap_or(1);
    let firsts = ring.size().all().filter_map(|partition| {
        let first = *layout.prefixes_of(partition, ring.size()).start();
        let is_own = layout.shard_of(first) == env.knobs.id.0
            && lists(ring, ring.size().first(partition), n_val, here);
        is_own.then_some(first)
    });
    firsts.collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use kv::aae::Tree;
    use std::collections::BTreeMap;

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
        let left = BTreeMap::from([(id(1), (Tree::default(), false)), (id(2), (crowded(), false))]);
        trees.kept.take_left(&BTreeSet::from([1, 2]), left);
        [1, 2].into_iter().for_each(|first| trees.make_crowded(first));
        assert_eq!(trees.rebuilds.due().collect::<Vec<_>>(), [2]);
    }

    /// So did one that had grown by more than it was made finer by.
    #[test]
    fn a_tree_that_is_crowded_when_it_is_made_is_made_once_more() {
        let mut trees = Trees::default();
        for (first, tree) in [(1, Tree::default()), (2, crowded())] {
            trees.kept.take(first, BTreeMap::from([(id(first), tree)]), false, base::Wall(0));
            trees.make_crowded(first);
        }
        assert_eq!(trees.rebuilds.due().collect::<Vec<_>>(), [2]);
    }
}
