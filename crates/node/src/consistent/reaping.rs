//! Reaping of the tombstones of consistent keys.
//!
//! 1. Each store notes the last deletion of a group as it is applied, or comes in a catch-up.
//! 2. Some time later the leader proposes an entry through which tombstones are reaped (`strong`), again until one has
//!    passed the noted deletion. A voter that becomes the leader goes on with its own note.
//! 3. When the entry is applied, each store looks for its tombstones, and removes those that still stand in the same
//!    step. A note that the entry has passed goes.
//!
//! Invariants: a leader with a note has a timer; without one it proposes nothing, and may be unloaded. The entries of
//! reapings are no deletions, so reaping ends.
//!
//! Left out: notes over a start of the process. Tombstones of earlier deletions, and those of a search that a start
//! ended, go with the group's next reaping.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use base::Monotonic;
use bytes::Bytes;
use engine::fold::{ScanId, ScanPage, Visit};
use engine::{Lookup, Want, Write};
use kv::consistent::{stored_version, version_of};
use object::key;
use strong::catch_up::Item;
use strong::group::{Entry, Input, Payload, REAP_SILENCE};

use super::context::GroupContext;
use super::group::GroupKey;
use super::keys::{is_of, types_of};
use super::lookups::WaitingLookup;
use super::open_groups::OpenGroups;
use crate::shard::env::Env;

/// Tombstones looked for at once.
const REAPED_AT_ONCE: usize = 1_024;

/// Interval of a leader's reapings while keys are deleted. Reaping stays one interval behind.
const REAP_EVERY: Duration = Duration::from_mins(5);

/// Deletions of a shard's groups that no applied reaping has passed, and the timers of their leaders.
#[derive(Default)]
struct Deletions {
    /// The index of the last deletion of each group. A group keeps it while it is dormant.
    last: BTreeMap<GroupKey, u64>,
    /// When the leaders here reap next.
    due: BTreeMap<GroupKey, Monotonic>,
    /// The same, by time.
    timers: BTreeSet<(Monotonic, GroupKey)>,
}

impl Deletions {
    /// When a leader reaps next.
    fn next_timer(&self) -> Option<Monotonic> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Whether a group has a deletion that no applied reaping has passed.
    fn has(&self, key: GroupKey) -> bool {
        self.last.contains_key(&key)
    }

    /// Forgets a group that the store leaves.
    fn forget(&mut self, key: GroupKey) {
        self.last.remove(&key);
        if let Some(at) = self.due.remove(&key) {
            self.timers.remove(&(at, key));
        }
    }

    /// Notes a deletion of a group.
    fn note(&mut self, key: GroupKey, index: u64) {
        let last = self.last.entry(key).or_insert(index);
        *last = index.max(*last);
    }

    /// Notes that a reaping through an index is applied.
    fn on_reaped(&mut self, key: GroupKey, through: u64) {
        if self.last.get(&key).is_some_and(|last| *last <= through) {
            self.forget(key);
        }
    }

    /// Sets the timer of a leader with a deletion, unless it has one.
    fn set_timer(&mut self, key: GroupKey, at: Monotonic) {
        if self.last.contains_key(&key) && !self.due.contains_key(&key) {
            self.due.insert(key, at);
            self.timers.insert((at, key));
        }
    }

    /// Takes a group whose timer is due.
    fn take_due(&mut self, now: Monotonic) -> Option<GroupKey> {
        let &(at, key) = self.timers.first().filter(|(at, _)| *at <= now)?;
        self.timers.remove(&(at, key));
        self.due.remove(&key);
        Some(key)
    }

    fn invariants(&self) {
        debug_assert_eq!(self.due.len(), self.timers.len(), "each timer is kept twice");
        debug_assert!(self.due.keys().all(|key| self.last.contains_key(key)), "timers are of deletions");
    }
}

/// A search for tombstones of a group.
pub(super) struct TombstoneSearch {
    key: GroupKey,
    through: u64,
    end: Bytes,
    types: Arc<BTreeSet<Bytes>>,
}

/// The reapings of a shard.
#[derive(Default)]
pub(super) struct Reapings {
    deletions: Deletions,
    searches: BTreeMap<ScanId, TombstoneSearch>,
}

impl Reapings {
    /// When a leader reaps next.
    pub fn next_timer(&self) -> Option<Monotonic> {
        self.deletions.next_timer()
    }

    /// Lets leaders reap whose time has come.
    pub fn tick(&mut self, cx: &mut GroupContext<'_>, now: Monotonic) {
        while let Some(key) = self.deletions.take_due(now) {
            if cx.groups.leads(key) {
                cx.work.step(key, Input::Reap { silence: REAP_SILENCE });
                self.plan(cx.env, cx.groups, key);
            }
        }
    }

    /// Sets the timer of a group that is led here and has a deletion.
    pub fn plan(&mut self, env: &Env, groups: &OpenGroups, key: GroupKey) {
        if groups.leads(key) {
            self.deletions.set_timer(key, env.now() + REAP_EVERY);
        }
    }

    /// Follows applied entries.
    pub fn on_applied(&mut self, cx: &mut GroupContext<'_>, key: GroupKey, entries: &[Entry]) {
        for entry in entries {
            match &entry.payload {
                Payload::Write(write) if write.object.is_none() => self.note_deletion(cx, key, entry.index),
                Payload::Reap { through } => self.begin(cx, key, *through),
                _ => {}
            }
        }
    }

    /// Notes that a key was deleted by an entry.
    fn note_deletion(&mut self, cx: &GroupContext<'_>, key: GroupKey, index: u64) {
        self.deletions.note(key, index);
        self.plan(cx.env, cx.groups, key);
    }

    /// Notes the deletions of a part of a catch-up.
    pub fn note_part(&mut self, cx: &GroupContext<'_>, key: GroupKey, items: &[Item]) {
        let deletions = items.iter().filter(|item| item.object.is_none());
        if let Some(last) = deletions.map(|item| item.version.index()).max() {
            self.note_deletion(cx, key, last);
        }
    }

    /// Whether a group has a deletion that no applied reaping has passed.
    pub fn has_deletion(&self, key: GroupKey) -> bool {
        self.deletions.has(key)
    }

    /// Whether a search for tombstones of a group is under way.
    pub fn is_searching(&self, key: GroupKey) -> bool {
        self.searches.values().any(|search| search.key == key)
    }

    /// Forgets a group that the store leaves.
    pub fn forget(&mut self, key: GroupKey) {
        self.deletions.forget(key);
    }

    /// Forgets the deletions of all: the store leaves its groups.
    pub fn forget_all(&mut self) {
        self.deletions = Deletions::default();
    }

    /// Takes an applied entry that lets tombstones go, and looks for them.
    fn begin(&mut self, cx: &mut GroupContext<'_>, key: GroupKey, through: u64) {
        self.deletions.on_reaped(key, through);
        let types = Arc::new(types_of(cx.env, key.n_val));
        let range = key::objects_at(key.prefix);
        let search = TombstoneSearch { key, through, end: range.end.into(), types };
        self.search(cx, range.start.into(), search);
    }

    fn search(&mut self, cx: &mut GroupContext<'_>, start: Bytes, search: TombstoneSearch) {
        let (wanted, through) = (Arc::clone(&search.types), search.through);
        let visitor = move |key: &[u8], head: &[u8]| {
            if is_of(&wanted, key) && is_reaped(head, through) { Visit::Take } else { Visit::Skip }
        };
        if let Some(id) = cx.scan(search.key, start..search.end.clone(), REAPED_AT_ONCE, visitor) {
            self.searches.insert(id, search);
        }
    }

    /// Removes the tombstones that a scan has found, and looks for more. After an error the next reaping removes the
    /// rest.
    pub fn on_page(&mut self, cx: &mut GroupContext<'_>, id: ScanId, page: Result<ScanPage, engine::Error>) {
        let Some((search, page)) = self.searches.remove(&id).zip(page.ok()) else { return };
        for (key, _) in page.items.iter() {
            reap_key(cx, Bytes::copy_from_slice(key), search.through, false);
        }
        if let Some(next) = page.next {
            self.search(cx, next, search);
        }
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self) {
        self.deletions.invariants();
    }
}

/// Removes a key if it still is a tombstone. A lookup that waits for the disk is made twice at most.
pub(super) fn reap_key(cx: &mut GroupContext<'_>, key: Bytes, through: u64, is_second: bool) {
    match cx.env.store.lookup(&key, Want::Head) {
        Lookup::Done(Ok(Some(found))) if is_reaped(&found.head, through) => {
            // A store that refuses it keeps the tombstone until the next reaping.
            drop(cx.env.store.write(&[Write::Delete { key: &key }]));
        }
        Lookup::Done(_) => {}
        Lookup::NeedsIo(id) if !is_second => cx.lookups.add(id, WaitingLookup::Reap { key, through }),
        Lookup::NeedsIo(id) => cx.lookups.add(id, WaitingLookup::Nobody),
    }
}

/// Whether a head is a tombstone that a reaping through an index lets go.
fn is_reaped(head: &[u8], through: u64) -> bool {
    let is_tombstone = matches!(version_of(head), Ok(None));
    is_tombstone && stored_version(head).is_ok_and(|version| version.index() <= through)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: GroupKey = GroupKey { n_val: 3, prefix: 7 };

    #[test]
    fn a_deletion_is_reaped_until_a_reaping_has_passed_it() {
        let mut deletions = Deletions::default();
        deletions.set_timer(KEY, Monotonic(1));
        assert_eq!(deletions.next_timer(), None, "there is nothing to reap");

        deletions.note(KEY, 5);
        deletions.note(KEY, 4);
        deletions.set_timer(KEY, Monotonic(10));
        deletions.set_timer(KEY, Monotonic(20));
        assert_eq!((deletions.next_timer(), deletions.take_due(Monotonic(9))), (Some(Monotonic(10)), None));
        assert_eq!(deletions.take_due(Monotonic(10)), Some(KEY));
        assert_eq!(deletions.next_timer(), None);

        deletions.set_timer(KEY, Monotonic(30));
        deletions.on_reaped(KEY, 4);
        assert!(deletions.has(KEY), "the later deletion is not passed");
        deletions.invariants();
        deletions.on_reaped(KEY, 5);
        assert_eq!((deletions.has(KEY), deletions.next_timer()), (false, None));
        deletions.invariants();
    }
}
