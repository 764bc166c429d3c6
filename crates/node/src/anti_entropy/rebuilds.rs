//! Trees made from the heads of a partition: when they are missing, crowded or wrong, and every so often, to find lost
//! objects.
//!
//! Writes change a tree by the heads that they replace, so it describes all that was written. Made from the heads, it
//! describes all that is there: objects that the ledger has lost differ from those of other nodes, and the next
//! exchange brings them back. With a check ([`JournalCheck`]) the values are looked for, too: keys that have lost
//! theirs stay in the tree, and are read so that other replicas heal them (`heal.rs`).
//!
//! 1. Partitions are due one after another: those without trees, those that an operator or a write wants, and those
//!    whose time has come while it is this shard's turn ([`Turns`]).
//! 2. The heads are folded over in *parts* of some milliseconds, each on a snapshot of its own. While clients are
//!    served they are shorter, with rests between them (`parts.rs`).
//! 3. Changes of keys that earlier parts have seen are made at once. While a part is under way changes are remembered
//!    with their versions. Those that its snapshot does not show are made at its end; it shows all writes before the
//!    first that is remembered. Later parts show the writes of their keys meanwhile.
//! 4. After the last part the trees replace those that there were.
//!
//! Left out: values beyond their partition. The scrub reads all of them within its period (decision 26).

use super::change::{Change, PLACE_BITS};
use super::n_vals::NVals;
use super::parts::{PartSize, Parts};
use crate::shard::env::Env;
use crate::shard::knobs::Turns;
use crate::shard::owners::FoldOwner;
use base::{Clock, Monotonic};
use bytes::Bytes;
use engine::Seq;
use engine::fold::{
    Control, FoldEnd, FoldId, FoldRequest, FoldVisitor, JournalCheck, KeySegments, Visited, What,
};
use kv::BucketTable;
use kv::aae::{BITS_MAX, Tree, TreeId, day_of, leaf};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How many bits more than the trees that there are are told apart while trees are made anew: those that have grown
/// crowded are to be twice as fine. The finest takes a chunk of its own for nearly each key.
const FINER: u32 = 2;

/// Damaged keys of a part: a quarter of those that can wait to be healed.
pub(crate) const DAMAGED_MAX: usize = 1024;

/// Changes that are remembered during a part, beyond which its partition is begun anew.
const CHANGES_MAX: usize = 65_536;

/// How long a partition waits whose heads could not be read.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// How long a turn is: some partitions' worth, and a small part of any period.
const TURN: Duration = Duration::from_secs(60);

/// Rebuilds of a shard's partitions, each named by its first prefix.
#[derive(Default)]
pub(super) struct Rebuilds {
    due: BTreeMap<u16, JournalCheck>,
    /// Those that could not be read, and are due again when the others are made and some time has passed.
    failed: BTreeMap<u16, JournalCheck>,
    again_at: Monotonic,
    making: Option<Making>,
    parts: Parts,
    /// When those that are whole are to be made anew.
    timers: BTreeSet<(Monotonic, u16)>,
}

/// A partition whose trees are made.
struct Making {
    first: u16,
    check: JournalCheck,
    made: Arc<Mutex<Made>>,
    /// What comes before this key is made.
    from: Option<Bytes>,
    /// What the part that is due, or under way, is to show.
    after: Option<Seq>,
    /// Its fold, what that shows, and when it began.
    fold: Option<(FoldId, Seq, Monotonic)>,
    /// Since there is such a part.
    changes: Vec<Change>,
    unsure: bool,
}

/// What folds have made.
struct Made {
    trees: BTreeMap<TreeId, Tree>,
    /// That the trees tell apart until it is known how many keys they have.
    bits: u32,
    /// Keys whose values the last part has found missing or damaged.
    damaged: Vec<Bytes>,
}

impl Made {
    fn change(&mut self, change: &Change) {
        self.tree(change.tree).change(change.place, change.old, change.new);
    }

    fn tree(&mut self, id: TreeId) -> &mut Tree {
        let bits = self.bits;
        self.trees.entry(id).or_insert_with(|| Tree::new(bits))
    }
}

impl Rebuilds {
    /// Has a partition made anew with at least this check.
    pub fn want(&mut self, first: u16, check: JournalCheck) {
        let due = self.due.entry(first).or_insert(check);
        *due = check.max(*due);
    }

    /// The same of one that has no trees, unless that is known.
    pub fn want_first(&mut self, first: u16) {
        let is_made = self.making.as_ref().is_some_and(|making| making.first == first);
        if !is_made && !self.failed.contains_key(&first) {
            self.want(first, JournalCheck::None);
        }
    }

    /// Forgets all partitions but these.
    pub fn retain(&mut self, firsts: &BTreeSet<u16>) {
        self.due.retain(|first, _| firsts.contains(first));
        self.failed.retain(|first, _| firsts.contains(first));
        self.making.take_if(|making| !firsts.contains(&making.first));
        self.timers.retain(|(_, first)| firsts.contains(first));
    }

    /// A partition is not to be made after all. Tells whether it was.
    pub fn spare(&mut self, first: u16) -> bool {
        self.due.remove(&first).is_some()
    }

    /// The partitions that are to be made, or made anew.
    pub fn due(&self) -> impl Iterator<Item = u16> {
        let making = self.making.iter().map(|making| making.first);
        self.due.keys().chain(self.failed.keys()).copied().chain(making)
    }

    /// Whether some that could be read are yet to get their first trees.
    pub fn are_first_due(&self, whole: &BTreeSet<u16>) -> bool {
        let making = self.making.iter().map(|making| making.first);
        self.due.keys().copied().chain(making).any(|first| !whole.contains(&first))
    }

    /// Takes a change of a partition. If that are too many since its part began, it is due again, and this is the fold
    /// to end.
    pub fn note(&mut self, first: u16, change: Change) -> Option<FoldId> {
        let making = self.making.as_mut().filter(|making| making.first == first)?;
        making.note(change);
        if making.changes.len() <= CHANGES_MAX {
            return None;
        }
        let (check, fold) = (making.check, making.fold);
        self.making = None;
        self.want(first, check);
        fold.map(|(fold, ..)| fold)
    }

    /// The partition that is to be made next.
    fn next(&mut self, now: Monotonic) -> Option<(u16, JournalCheck)> {
        if self.due.is_empty() && self.again_at <= now {
            self.due = std::mem::take(&mut self.failed);
        }
        self.due.pop_first()
    }

    /// Whether nothing is made, nor about to be.
    fn is_idle(&self) -> bool {
        self.due.is_empty() && self.making.is_none()
    }

    /// Has trees made anew that are due by their timers, if it is this shard's turn.
    pub fn look_at_timers(&mut self, env: &mut Env, whole: &BTreeSet<u16>, now: Monotonic) {
        let Some(every) = env.knobs.rebuilding.every else { return };
        self.set_timers(env, whole, every, now);
        let is_due = self.timers.first().is_some_and(|(at, _)| *at <= now);
        if is_due
            && self.is_idle()
            && is_its_turn(env)
            && env.topology.is_at_rest()
            && let Some((_, first)) = self.timers.pop_first()
        {
            self.want(first, env.knobs.rebuilding.check);
        }
    }

    /// Sets a timer for each partition that is whole and has none: no two that became so together go together.
    fn set_timers(&mut self, env: &mut Env, whole: &BTreeSet<u16>, every: Duration, now: Monotonic) {
        if self.timers.len() >= whole.len() {
            return;
        }
        let set: BTreeSet<u16> = self.timers.iter().map(|(_, first)| *first).collect();
        let nanos = u64::try_from(every.as_nanos()).unwrap_or(u64::MAX).max(1);
        for &first in whole.difference(&set) {
            let after = every / 2 + Duration::from_nanos(env.rng.next_u64() % nanos);
            self.timers.insert((now + after, first));
        }
    }

    /// Whether a partition is being made.
    pub fn is_making(&self) -> bool {
        self.making.is_some()
    }

    /// Begins the next partition, if one is due. `bits` is the fineness of its trees.
    pub fn begin_next(&mut self, now: Monotonic, bits: impl FnOnce(u16) -> Option<u32>) {
        if let Some(next) = self.next(now) {
            self.making = Some(Making::new(next, bits(next.0)));
        }
    }

    /// Begins the next part of the partition that is made, once the snapshot shows all that it must. `has_room`
    /// says whether damaged keys may wait to be healed.
    pub fn begin_part(&mut self, env: &mut Env, has_room: bool, now: Monotonic) {
        let waits = env.gauges.queued() > 0;
        let Some(making) = &mut self.making else { return };
        if making.fold.is_some() || !self.parts.may_begin(waits, now) || !has_room {
            return;
        }
        let after = *making.after.get_or_insert(env.store.last_written());
        // Values that are looked for are to be in the files.
        if env.store.readable() < after {
            return;
        }

        let (first, from, check) = (making.first, making.from.clone(), making.check);
        let made = Arc::clone(&making.made);
        let size = PartSize::of(check, env.activity.yields(now));
        let visitor = gathering(first, size, env.props.clone(), made, Arc::clone(&env.clock));
        // Objects beside lost or unreadable ones are compared, and so the rest comes back.
        let request = FoldRequest {
            past_losses: true,
            damaged_too: true,
            items_max: size.keys,
            ..FoldRequest::over(env.ownership().keys_of(first, from), What::Heads(check))
        };
        match env.store.fold_readable(request, visitor) {
            Ok((fold, shows)) => {
                env.fold_owners.note(fold, FoldOwner::TreeRebuild);
                making.fold = Some((fold, shows, now));
            }
            Err(_) => self.make_later(now),
        }
    }

    /// The partition that is made could not be read: it is due again behind the others.
    fn make_later(&mut self, now: Monotonic) {
        self.again_at = now + AGAIN_AFTER;
        if let Some(making) = self.making.take() {
            self.failed.insert(making.first, making.check);
        }
    }

    /// Takes the end of a part's fold, also of one that is not made any more. `whole` has the partitions with trees.
    pub fn on_fold(
        &mut self,
        env: &mut Env,
        whole: &BTreeSet<u16>,
        id: FoldId,
        end: Result<FoldEnd, engine::Error>,
    ) -> PartEnd {
        let making = self.making.as_mut();
        let part = making.and_then(|making| making.fold.take_if(|(fold, ..)| *fold == id).zip(Some(making)));
        let Some(((_, shows, began), making)) = part else { return PartEnd::default() };
        let now = env.now();
        let Ok(end) = end else {
            self.make_later(now);
            return PartEnd::default();
        };

        let took = now.since(began);
        let next = end.next.as_ref().map(|place| place.key.clone());
        let is_last = next.is_none();
        let first = making.first;
        let damaged = std::mem::take(&mut making.made().damaged);
        making.end_part(shows, next);

        env.counters.rebuild_keys += end.visited;
        env.counters.rebuild_micros += u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        env.counters.rebuild_damaged += damaged.len() as u64;
        self.parts.end(took, env.activity.yields(now), !whole.contains(&first), now);

        let finished = self.making.take_if(|_| is_last).map(Making::finish);
        PartEnd { damaged: Some((first, damaged)), finished }
    }

    /// The relations of its fields. `whole` has the partitions that have trees.
    pub fn invariants(&self, env: &Env, whole: &BTreeSet<u16>) {
        assert!(self.timers.len() <= whole.len(), "a timer is of a partition that is whole");
        let Some(making) = &self.making else { return };
        let is_part = making.after.is_some();
        assert!(is_part || making.fold.is_none(), "a fold is of a part that is due");
        let owner = making.fold.map(|(fold, ..)| env.fold_owners.of(fold));
        let is_owner = owner.is_none_or(|owner| owner == Some(&FoldOwner::TreeRebuild));
        assert!(is_owner, "the fold of a part is under way");
        assert!(is_part || making.changes.is_empty(), "changes are remembered during a part");
        assert!(making.changes.len() <= CHANGES_MAX, "changes are bounded");
    }
}

/// The end of a part.
#[derive(Default)]
pub(super) struct PartEnd {
    /// The partition, and its keys whose values the part has found missing or damaged; `None` if it could not be read.
    pub damaged: Option<(u16, Vec<Bytes>)>,
    /// The trees, if it was the last.
    pub finished: Option<FinishedRebuild>,
}

/// Trees that were made of a partition.
pub(super) struct FinishedRebuild {
    pub first: u16,
    pub check: JournalCheck,
    pub trees: BTreeMap<TreeId, Tree>,
    /// Whether a write that did not know the replaced head has changed them.
    pub unsure: bool,
}

impl Making {
    /// Of a partition whose trees tell so many bits apart at most, if it has any.
    fn new((first, check): (u16, JournalCheck), bits: Option<u32>) -> Making {
        let bits = bits.map_or(BITS_MAX, |bits| (bits + FINER).min(BITS_MAX));
        let made = Made { trees: BTreeMap::new(), bits, damaged: Vec::new() };
        Making {
            first,
            check,
            made: Arc::new(Mutex::new(made)),
            from: None,
            after: None,
            fold: None,
            changes: Vec::new(),
            unsure: false,
        }
    }

    fn note(&mut self, change: Change) {
        if self.after.is_some() {
            self.changes.push(change);
        } else if self.has_passed(&change.key) {
            self.unsure |= change.unsure;
            self.made().change(&change);
        }
    }

    fn has_passed(&self, key: &Bytes) -> bool {
        self.from.as_ref().is_some_and(|from| key < from)
    }

    fn made(&self) -> std::sync::MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A part has come up to `next`, on a snapshot that shows `shows`.
    fn end_part(&mut self, shows: Seq, next: Option<Bytes>) {
        for change in std::mem::take(&mut self.changes) {
            let is_passed = next.as_ref().is_none_or(|next| change.key < *next);
            if self.has_passed(&change.key) || (is_passed && change.seq > shows) {
                self.unsure |= change.unsure;
                self.made().change(&change);
            }
        }
        (self.after, self.from) = (None, next);
    }

    /// The last part has ended.
    fn finish(self) -> FinishedRebuild {
        let trees = std::mem::take(&mut self.made().trees);
        FinishedRebuild { first: self.first, check: self.check, trees, unsure: self.unsure }
    }
}

/// Whether it is this shard's turn to have trees made anew by timers.
fn is_its_turn(env: &Env) -> bool {
    let shards = u64::from(env.knobs.layout.shards);
    let (rank, nodes) = match env.knobs.rebuilding.turns {
        Turns::Node => (0, 1),
        Turns::Cluster => {
            let (members, here) = (&env.topology.members, env.peers.here());
            let rank = members.all().position(|member| member == here).unwrap_or(0);
            (rank as u64, members.count().max(1) as u64)
        }
    };
    let turn = env.clock.wall().0 / u64::try_from(TURN.as_micros()).unwrap_or(u64::MAX);
    turn % (nodes * shards) == rank * shards + u64::from(env.knobs.id.0)
}

/// Puts the keys of a part into the trees of their numbers of replicas, and of when they end.
fn gathering(
    first: u16,
    size: PartSize,
    table: BucketTable,
    made: Arc<Mutex<Made>>,
    clock: Arc<dyn Clock>,
) -> FoldVisitor {
    let mut n_vals = NVals::new(table);
    let (mut seen, mut until) = (0_u64, None);
    Box::new(move |item: &Visited<'_>| {
        let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(n_val) = n_vals.of(item.key) {
            let place = KeySegments::number_of(item.key, PLACE_BITS);
            let id = TreeId { first, n_val, day: day_of(item.head) };
            made.tree(id).change(place, None, Some(leaf(place, item.head)));
        }
        if item.is_damaged {
            made.damaged.push(Bytes::copy_from_slice(item.key));
        }
        let is_late = seen.is_multiple_of(size.look_every) && {
            let now = clock.now();
            *until.get_or_insert(now + size.time) <= now
        };
        seen += 1;
        match is_late || made.damaged.len() >= DAMAGED_MAX {
            true => Control::Stop,
            false => Control::Next,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;
    use base::rng::SplitMix64;

    const TREE: TreeId = TreeId { first: 0, n_val: 3, day: 0 };

    /// Keys that are written while parts are made, on snapshots that show some of it: at the end the tree is that of
    /// all keys.
    #[test]
    fn a_tree_that_is_made_in_parts_is_that_of_the_end() {
        for seed in 0..500 {
            let mut rng = SplitMix64::new(seed);
            let mut making = Making::new((0, JournalCheck::None), None);
            // All versions of all keys, by seq: 0 is none.
            let mut versions: Vec<(Seq, u8, u32)> = Vec::new();
            let as_of = |versions: &[(Seq, u8, u32)], key, seq| {
                let shown = versions.iter().rev().find(|(at, of, _)| *of == key && *at <= seq);
                shown.map(|(_, _, leaf)| *leaf).filter(|leaf| *leaf != 0)
            };
            let name = |key: u8| Bytes::copy_from_slice(&[key]);
            let write = |rng: &mut SplitMix64, making: &mut Making, versions: &mut Vec<_>| {
                let (seq, key) = (Seq(versions.len() as u64 + 1), rng.below(20) as u8);
                let leaf = if rng.chance(1, 4) { 0 } else { rng.next_u64() as u32 | 1 };
                let old = as_of(versions, key, seq);
                versions.push((seq, key, leaf));
                let new = Some(leaf).filter(|leaf| *leaf != 0);
                let (key, place) = (name(key), key.into());
                let change = Change { key, seq, tree: TREE, place, old, new, unsure: false };
                making.note(change);
            };
            let mut from = 0;
            loop {
                (0..rng.below(6)).for_each(|_| write(&mut rng, &mut making, &mut versions));
                let after = Seq(versions.len() as u64);
                making.after = Some(after);
                (0..rng.below(6)).for_each(|_| write(&mut rng, &mut making, &mut versions));
                let shows = Seq(after.0 + rng.below(versions.len() as u64 - after.0 + 1));
                (0..rng.below(6)).for_each(|_| write(&mut rng, &mut making, &mut versions));
                let to = from + 1 + rng.below(9) as u8;
                for key in (from..to.min(20)).rev() {
                    if let Some(leaf) = as_of(&versions, key, shows) {
                        let tree = &mut *making.made();
                        let tree = tree.trees.entry(TREE).or_insert_with(|| Tree::new(BITS_MAX));
                        tree.change(key.into(), None, Some(leaf));
                    }
                }
                (0..rng.below(3)).for_each(|_| write(&mut rng, &mut making, &mut versions));
                making.end_part(shows, (to < 20).then(|| name(to)));
                if to >= 20 {
                    break;
                }
                from = to;
            }
            let mut expected = Tree::new(BITS_MAX);
            for key in 0..20 {
                let leaf = as_of(&versions, key, Seq(u64::MAX));
                expected.change(key.into(), None, leaf);
            }
            let made = making.made().trees.remove(&TREE).unwrap_or(Tree::new(BITS_MAX));
            assert_eq!((made.root(), made.keys()), (expected.root(), expected.keys()), "seed {seed}");
            assert!((0..20).all(|key| made.group(key, BITS_MAX) == expected.group(key, BITS_MAX)));
        }
    }

    /// What could not be read was forgotten, and with it one more in each turn until it was due again.
    #[test]
    fn what_could_not_be_read_waits_behind_the_others() {
        let mut rebuilds = Rebuilds::default();
        (1..=3).for_each(|first| rebuilds.want_first(first));
        let (first, check) = rebuilds.next(Monotonic(0)).unwrap();
        rebuilds.failed.insert(first, check);
        rebuilds.again_at = Monotonic(10);
        (1..=3).for_each(|first| rebuilds.want_first(first));
        let next = |rebuilds: &mut Rebuilds, now| rebuilds.next(Monotonic(now)).map(|(first, _)| first);
        assert_eq!(
            [1, 2, 3, 11, 12].map(|now| next(&mut rebuilds, now)),
            [Some(2), Some(3), None, Some(1), None]
        );
    }

    #[test]
    fn the_most_that_was_asked_for_is_looked_for() {
        let mut rebuilds = Rebuilds::default();
        for check in [JournalCheck::Presence, JournalCheck::Checksum, JournalCheck::None] {
            rebuilds.want(7, check);
        }
        assert_eq!(rebuilds.next(Monotonic(0)), Some((7, JournalCheck::Checksum)));
    }
}
