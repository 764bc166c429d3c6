//! A part of a catch-up as the sending end's store makes it.
//!
//! 1. A part is a page of heads with versions above the base. The page is read when all that was applied as the part
//!    was wanted may be acknowledged, so it shows all of that.
//! 2. The values of its keys are looked up. A key that was reaped since is left out.
//! 3. The sending end takes as many keys as fit into a message; the next part begins behind them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use engine::fold::{ScanPage, Visit};
use engine::{Found, Lookup, Seq, Want};
use kv::consistent::{join_object, stored_version, version_of};
use object::key;
use strong::catch_up::{Item, PART_BYTES_MAX, SenderInput};
use strong::group::{Input, VoterId};

use super::catch_up::{Scan, is_of};
use super::group::GroupKey;
use super::journal::types_of;
use super::serve::WaitingLookup;
use super::{ConsistentGroups, Todo};
use crate::shard::env::Env;

/// Keys of one part at most: some tens of kilobytes of them.
const PART_KEYS_MAX: usize = 256;

/// A part that waits until its page shows all that was applied.
pub(super) struct WantedPart {
    pub key: GroupKey,
    pub voter: VoterId,
    /// The number of the catch-up.
    pub number: u64,
    above: u64,
    after: Option<Bytes>,
    applied: (u64, u64),
    seq: Seq,
}

/// A part whose values are looked up.
struct Part {
    key: GroupKey,
    voter: VoterId,
    /// The number of the catch-up.
    number: u64,
    applied: (u64, u64),
    is_last: bool,
    items: BTreeMap<Bytes, Item>,
    /// Lookups that wait for the disk.
    missing: usize,
    /// A lookup failed.
    is_broken: bool,
}

/// Parts on their way to sending ends.
#[derive(Default)]
pub(super) struct OutgoingParts {
    /// Parts that wait for their page.
    wanted: Vec<WantedPart>,
    /// Parts whose values are looked up, by number.
    found: BTreeMap<u64, Part>,
    /// The number of the last one.
    last: u64,
}

impl ConsistentGroups {
    /// Has a part's page read once it shows all that is applied now.
    pub(super) fn want_page(
        &mut self,
        env: &mut Env,
        key: GroupKey,
        (voter, number): (VoterId, u64),
        above: u64,
        after: Option<Bytes>,
    ) {
        let Some(applied) = self.groups.get(&key).and_then(|held| held.group.applied_entry()) else { return };
        let seq = env.store.last_written();
        self.transfers.parts.wanted.push(WantedPart { key, voter, number, above, after, applied, seq });
        self.begin_pages(env);
    }

    pub(super) fn begin_pages(&mut self, env: &mut Env) {
        let acknowledged = env.store.acknowledged();
        for wanted in std::mem::take(&mut self.transfers.parts.wanted) {
            if wanted.seq > acknowledged {
                self.transfers.parts.wanted.push(wanted);
                continue;
            }
            let (key, of) = (wanted.key, (wanted.voter, wanted.number));
            let range = key::objects_at(key.prefix);
            let behind = |after: &Bytes| [&after[..], &[0]].concat().into();
            let start: Bytes = wanted.after.as_ref().map_or_else(|| range.start.into(), behind);
            let types: BTreeSet<Bytes> = types_of(env, key.n_val).into_iter().collect();
            if types.is_empty() {
                // This node does not know yet which keys are the group's.
                self.break_catch_up(key, of);
                continue;
            }
            let above = wanted.above;
            let visitor = move |key: &[u8], head: &[u8]| {
                let is_newer = || stored_version(head).is_ok_and(|version| version.index() > above);
                if is_of(&types, key) && is_newer() { Visit::Take } else { Visit::Skip }
            };
            match self.scan(env, key, start..range.end.into(), PART_KEYS_MAX, visitor) {
                Some(id) => drop(self.scans.insert(id, Scan::Part(wanted))),
                None => self.break_catch_up(key, of),
            }
        }
    }

    /// Breaks a catch-up off, unless another one has taken its place.
    pub(super) fn break_catch_up(&mut self, key: GroupKey, (voter, number): (VoterId, u64)) {
        let sender = self.groups.get(&key).and_then(|held| held.senders.get(&voter));
        if sender.is_some_and(|sender| sender.number() == number) {
            self.end_catch_up(key, voter);
            self.todo.push_back(Todo::Step(key, Input::CatchUpBroken { voter }));
        }
    }

    /// Looks the values of a part's keys up.
    pub(super) fn gather(&mut self, env: &mut Env, wanted: WantedPart, page: &ScanPage) {
        let mut part = Part {
            key: wanted.key,
            voter: wanted.voter,
            number: wanted.number,
            applied: wanted.applied,
            is_last: page.next.is_none(),
            items: BTreeMap::new(),
            missing: 0,
            is_broken: false,
        };
        self.transfers.parts.last += 1;
        let number = self.transfers.parts.last;
        let dropped_at = self.dropped_at(wanted.key);
        for (key, _) in page.items.iter() {
            let key = Bytes::copy_from_slice(key);
            match env.store.lookup_since(&key, Want::Value, dropped_at) {
                Lookup::Done(found) => {
                    self.note_damage(wanted.key, &found);
                    part.add(key, found);
                }
                Lookup::NeedsIo(id) => {
                    part.missing += 1;
                    self.served.wait_for(id, WaitingLookup::Part { part: number, key });
                }
            }
        }
        if part.missing == 0 {
            self.on_gathered(env, part);
        } else {
            self.transfers.parts.found.insert(number, part);
        }
    }

    /// Takes the value of a part's key.
    pub(super) fn on_part_found(
        &mut self,
        env: &mut Env,
        number: u64,
        key: Bytes,
        found: Result<Option<Found>, engine::Error>,
    ) {
        let Some(part) = self.transfers.parts.found.get_mut(&number) else { return };
        part.missing -= 1;
        let (group, is_whole) = (part.key, part.missing == 0);
        self.note_damage(group, &found);
        if let Some(part) = self.transfers.parts.found.get_mut(&number) {
            part.add(key, found);
        }
        if is_whole && let Some(part) = self.transfers.parts.found.remove(&number) {
            self.on_gathered(env, part);
        }
    }

    /// Gives a part to its sending end.
    fn on_gathered(&mut self, env: &mut Env, part: Part) {
        let (key, voter, number, applied) = (part.key, part.voter, part.number, part.applied);
        if part.is_broken {
            return self.break_catch_up(key, (voter, number));
        }
        let mut items: Vec<Item> = part.items.into_values().collect();
        let mut bytes = 0;
        let fits = items.iter().take_while(|item| {
            bytes += item.key.len() + item.object.as_ref().map_or(0, Bytes::len);
            bytes <= PART_BYTES_MAX
        });
        let count = fits.count().max(1);
        let is_last = part.is_last && count >= items.len();
        items.truncate(count);
        if items.is_empty() && !is_last {
            // All keys of the page are gone by now, which only a reaping does: the part is read again.
            return self.break_catch_up(key, (voter, number));
        }
        self.step_sender(env, key, voter, SenderInput::Folded { number, applied, items, is_last });
    }
}

impl Part {
    fn add(&mut self, key: Bytes, found: Result<Option<Found>, engine::Error>) {
        match found {
            Ok(Some(found)) => match (stored_version(&found.head), version_of(&found.head)) {
                (Ok(version), Ok(live)) => {
                    let value = found.value.unwrap_or_default();
                    let object = live.map(|_| join_object(&found.head, &value));
                    self.items.insert(key.clone(), Item { key, version, object });
                }
                _ => self.is_broken = true,
            },
            // It was reaped since.
            Ok(None) => {}
            Err(_) => self.is_broken = true,
        }
    }
}
