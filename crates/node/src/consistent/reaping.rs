//! Reaping of the tombstones of consistent keys.
//!
//! 1. Some time after a deletion the leader proposes an entry through which tombstones are reaped (`strong`).
//! 2. When the entry is applied, each store looks for its tombstones, and removes those that still stand in the same
//!    step. A process that ends before leaves tombstones, which the next reaping removes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base::Monotonic;
use bytes::Bytes;
use engine::fold::{ScanPage, Visit};
use engine::{Lookup, Want, Write};
use kv::consistent::{stored_version, version_of};
use object::key;
use strong::group::{Input, REAP_SILENCE};

use super::catch_up::{Scan, is_of};
use super::group::GroupKey;
use super::journal::types_of;
use super::serve::WaitingLookup;
use super::{ConsistentGroups, Todo};
use crate::shard::env::Env;

/// Tombstones looked for at once.
const REAPED_AT_ONCE: usize = 1_024;

/// Interval of a leader's reapings while keys are deleted. Reaping stays one interval behind.
const REAP_EVERY: Duration = Duration::from_mins(5);

/// Leaders with tombstones, by the time of their next reaping.
#[derive(Default)]
pub(super) struct Reapers(BTreeSet<(Monotonic, GroupKey)>);

impl Reapers {
    /// When a leader reaps next.
    pub fn next_timer(&self) -> Option<Monotonic> {
        self.0.first().map(|(at, _)| *at)
    }
}

/// A search for tombstones of a group.
pub(super) struct TombstoneSearch {
    through: u64,
    end: Bytes,
    types: Arc<BTreeSet<Bytes>>,
}

impl ConsistentGroups {
    /// Lets reapings take their time.
    pub(super) fn tick_reapers(&mut self, env: &mut Env, now: Monotonic) {
        while let Some(&(at, key)) = self.reapers.0.first()
            && at <= now
        {
            self.reapers.0.remove(&(at, key));
            if let Some(held) = self.groups.get_mut(&key) {
                held.reap_at = None;
                let is_behind = held.group.leads() && held.group.reaped() < held.group.applied();
                self.todo.push_back(Todo::Step(key, Input::Reap { silence: REAP_SILENCE }));
                if is_behind {
                    self.note_deletion(env, key);
                }
            }
        }
    }

    /// Notes that a key was deleted: tombstones are reaped some time later, if this store leads then.
    pub(super) fn note_deletion(&mut self, env: &mut Env, key: GroupKey) {
        let at = env.now() + REAP_EVERY;
        let Some(held) = self.groups.get_mut(&key).filter(|held| held.reap_at.is_none()) else { return };
        held.reap_at = Some(at);
        self.reapers.0.insert((at, key));
    }

    /// Looks for the tombstones that an applied entry lets go.
    pub(super) fn begin_reap(&mut self, env: &mut Env, key: GroupKey, through: u64) {
        let types = Arc::new(types_of(env, key.n_val).into_iter().collect());
        let range = key::objects_at(key.prefix);
        let search = TombstoneSearch { through, end: range.end.into(), types };
        self.look_for_tombstones(env, range.start.into(), search);
    }

    fn look_for_tombstones(&mut self, env: &mut Env, start: Bytes, search: TombstoneSearch) {
        let (wanted, through) = (Arc::clone(&search.types), search.through);
        let visitor = move |key: &[u8], head: &[u8]| {
            if is_of(&wanted, key) && is_reaped(head, through) { Visit::Take } else { Visit::Skip }
        };
        if let Some(id) = self.scan(env, start, search.end.clone(), REAPED_AT_ONCE, visitor) {
            self.scans.insert(id, Scan::Tombstones(search));
        }
    }

    /// Removes the tombstones of a page, and looks for more.
    pub(super) fn reap_page(&mut self, env: &mut Env, search: TombstoneSearch, page: ScanPage) {
        for (key, _) in page.items.iter() {
            self.reap_key(env, Bytes::copy_from_slice(key), search.through, false);
        }
        if let Some(next) = page.next {
            self.look_for_tombstones(env, next, search);
        }
    }

    /// Removes a key if it still is a tombstone. A lookup that waits for the disk is made twice at most.
    pub(super) fn reap_key(&mut self, env: &mut Env, key: Bytes, through: u64, is_second: bool) {
        match env.store.lookup(&key, Want::Head) {
            Lookup::Done(Ok(Some(found))) if is_reaped(&found.head, through) => {
                // A store that refuses it keeps the tombstone until the next reaping.
                drop(env.store.write(&[Write::Delete { key: &key }]));
            }
            Lookup::Done(_) => {}
            Lookup::NeedsIo(id) if !is_second => {
                self.served.wait_for(id, WaitingLookup::Reap { key, through });
            }
            Lookup::NeedsIo(id) => self.served.ignore(id),
        }
    }
}

/// Whether a head is a tombstone that a reaping through an index lets go.
fn is_reaped(head: &[u8], through: u64) -> bool {
    let is_tombstone = matches!(version_of(head), Ok(None));
    is_tombstone && stored_version(head).is_ok_and(|version| version.index() <= through)
}
