//! Records of groups: batches on their way to the disk, and entries on their way to the ledger.
//!
//! 1. A batch is written to the journal's open group, and its group hears of it when it is synced.
//! 2. A batch that the store refuses is kept, and everything behind it, until the store takes it.
//! 3. Committed entries are applied: one mark in the journal, and the ledger points at their records.
//!
//! While a voter receives a catch-up, its ledger may have newer versions than an entry that its log brings. Such an
//! entry is noted as applied, and its key keeps the newer version.
//!
//! Invariant: batches of the store are written in the order in which groups hand them out.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use base::Monotonic;
use bytes::Bytes;
use engine::{AppliedRange, Contents, GroupBatch, Jsn, LogPlace, Lookup, ProposedEntry, Want};
use kv::consistent::{split_object, stored_version, tombstone};
use strong::catch_up::{Item, Place};
use strong::group::{Batch, Entry, Payload, Version};

use super::context::GroupContext;
use super::group::{GroupKey, HeldGroup};
use super::incoming_part::IncomingPart;
use super::keys::drop_keys;
use super::lookups::WaitingLookup;
use super::open_groups::OpenGroups;
use super::stored_state::place_of;
use crate::shard::env::Env;

/// Age of an unsynced batch beyond which this store's groups let others lead: many syncs of a slow disk.
const STALL_MAX: Duration = Duration::from_secs(1);

/// Something that the store writes for a group.
enum Record {
    /// A batch of the log.
    Batch(Box<Batch>),
    /// The part of a catch-up that the group receives.
    Part,
    /// The state without the record of a catch-up, which has ended.
    State,
}

/// A record that is synced.
pub(super) struct SyncedRecord {
    pub key: GroupKey,
    /// The number of the batch, and the index of its last entry, 0 without one; none for a part of a catch-up.
    pub batch: Option<(u64, u64)>,
}

/// A record that is written and not synced.
struct Syncing {
    jsn: Jsn,
    since: Monotonic,
    key: GroupKey,
    /// The number of the batch, and the index of its last entry, 0 without one; none for a part of a catch-up.
    batch: Option<(u64, u64)>,
}

/// Records of all groups.
#[derive(Default)]
pub(super) struct GroupJournal {
    syncing: VecDeque<Syncing>,
    /// Records that the store has refused, and those behind them.
    unwritten: VecDeque<(GroupKey, Record)>,
    /// Since when there are some.
    refused: Option<Monotonic>,
    /// Groups with entries that the store did not apply yet.
    unapplied: BTreeSet<GroupKey>,
}

impl GroupJournal {
    /// Writes a batch of a group's log.
    pub fn persist(&mut self, env: &mut Env, groups: &mut OpenGroups, key: GroupKey, batch: Batch) {
        self.write(env, groups, key, Record::Batch(Box::new(batch)));
    }

    /// Writes the part of a catch-up that a group receives, with the group's record of it.
    pub fn write_part(&mut self, env: &mut Env, groups: &mut OpenGroups, key: GroupKey) {
        self.write(env, groups, key, Record::Part);
    }

    /// Writes the state of a group whose catch-up has ended.
    pub fn write_state(&mut self, env: &mut Env, groups: &mut OpenGroups, key: GroupKey) {
        self.write(env, groups, key, Record::State);
    }

    fn write(&mut self, env: &mut Env, groups: &mut OpenGroups, key: GroupKey, record: Record) {
        if !self.unwritten.is_empty() {
            return self.unwritten.push_back((key, record));
        }
        if let Err(record) = self.try_write(env, groups, key, record) {
            self.unwritten.push_back((key, record));
        }
    }

    /// Writes a record; gives it back if the store refuses it.
    fn try_write(
        &mut self,
        env: &mut Env,
        groups: &mut OpenGroups,
        key: GroupKey,
        record: Record,
    ) -> Result<(), Record> {
        let Some(held) = groups.get_mut(key) else { return Ok(()) };
        let written = match &record {
            Record::Batch(batch) => write_batch(env, key, held, batch),
            Record::Part => write_part(env, key, held).inspect(|_| held.part = IncomingPart::default()),
            Record::State => write_state(env, key, held),
        };
        let Ok(jsn) = written else { return Err(record) };
        let batch = match record {
            Record::Batch(batch) => Some((batch.number, batch.entries.last().map_or(0, |last| last.index))),
            Record::Part => None,
            Record::State => return Ok(()),
        };
        self.syncing.push_back(Syncing { jsn, since: env.now(), key, batch });
        Ok(())
    }

    /// Writes the records that the store has refused before.
    pub fn write_refused(&mut self, env: &mut Env, groups: &mut OpenGroups, now: Monotonic) {
        while let Some((key, record)) = self.unwritten.pop_front() {
            if let Err(record) = self.try_write(env, groups, key, record) {
                self.unwritten.push_front((key, record));
                break;
            }
        }
        match self.unwritten.is_empty() {
            true => self.refused = None,
            false => drop(self.refused.get_or_insert(now)),
        }
    }

    /// Takes the next record before this place of the journal, up to which all is synced.
    pub fn take_synced(&mut self, synced: Jsn) -> Option<SyncedRecord> {
        let Syncing { key, batch, .. } = self.syncing.pop_front_if(|it| it.jsn < synced)?;
        Some(SyncedRecord { key, batch })
    }

    /// Takes the groups with entries that the store did not apply.
    pub fn take_unapplied(&mut self) -> BTreeSet<GroupKey> {
        std::mem::take(&mut self.unapplied)
    }

    /// Whether this store's groups are to let others lead.
    pub fn is_stalled(&self, env: &Env, groups: &OpenGroups, now: Monotonic) -> bool {
        let oldest = self.syncing.front().map(|it| it.since).into_iter().chain(self.refused);
        let is_late = oldest.min().is_some_and(|since| now.since(since) >= STALL_MAX);
        is_late || !groups.is_empty() && env.store.fenced().is_some()
    }

    /// Whether a record of a group is on its way to the disk.
    pub fn has_record_of(&self, key: GroupKey) -> bool {
        self.has_unwritten(key) || self.syncing.iter().any(|it| it.key == key)
    }

    fn has_unwritten(&self, key: GroupKey) -> bool {
        self.unwritten.iter().any(|(waiting, _)| *waiting == key)
    }

    /// Applies committed entries; false if a lookup, or the store, has to be waited for.
    pub fn apply(&mut self, cx: &mut GroupContext<'_>, key: GroupKey, entries: &[Entry]) -> bool {
        if self.has_unwritten(key) {
            // The state with a configuration comes before the mark of its entry.
            self.unapplied.insert(key);
            return false;
        }
        let Some(skipped) = newer_keys(cx, key, entries) else { return false };
        let (first, last) = (&entries[0], &entries[entries.len() - 1]);
        let range = AppliedRange {
            group: key.number(),
            after: first.index - 1,
            through: LogPlace { index: last.index, term: last.term },
            skipped: &skipped,
        };
        if cx.env.store.apply_proposals(&[range]).is_err() {
            // Tried again in the next turn.
            self.unapplied.insert(key);
            return false;
        }

        let held = cx.groups.get_mut(key).expect("its outputs are carried out");
        held.known.clear();
        held.proposed.apply(last.index);
        held.part.on_applied(entries);
        if held.group.leads() {
            entries.iter().for_each(|entry| count_replacement(cx.env, entry));
        }
        true
    }
}

/// Counts a step in the replacement of a voter, which this store leads.
fn count_replacement(env: &mut Env, entry: &Entry) {
    let Payload::Configuration(configuration) = &entry.payload else { return };
    match (configuration.learners.is_empty(), configuration.outgoing.is_empty()) {
        (false, true) => env.counters.consistent_replacements_begun += 1,
        (true, true) => env.counters.consistent_replacements_done += 1,
        _ => {}
    }
}

/// Indexes of entries whose keys have a newer version, from a catch-up; none while a lookup is under way.
fn newer_keys(cx: &mut GroupContext<'_>, key: GroupKey, entries: &[Entry]) -> Option<Vec<u64>> {
    let held = cx.groups.get_mut(key).expect("its outputs are carried out");
    let mut newer = Vec::new();
    let Some(known) = held.checkpoint.as_ref().filter(|it| it.place != Place::Begin) else {
        return Some(newer);
    };
    let through = known.snapshot.0;
    for entry in entries.iter().filter(|entry| entry.index <= through) {
        let Some(write) = entry.payload.write() else { continue };
        if !held.known.contains_key(&write.key) {
            match cx.env.store.lookup_since(&write.key, Want::Head, held.dropped_at) {
                Lookup::Done(found) => {
                    let version = found.ok().flatten().map(|found| index_of(&found.head));
                    held.known.insert(write.key.clone(), version);
                }
                Lookup::NeedsIo(id) => {
                    let lookup = WaitingLookup::Apply { group: key, key: write.key.clone() };
                    cx.lookups.add(id, lookup);
                    return None;
                }
            }
        }
        if held.known[&write.key].is_some_and(|version| version > entry.index) {
            newer.push(entry.index);
        }
    }
    Some(newer)
}

/// The index of a stored version; zero for a head of another kind, which any entry replaces.
pub(super) fn index_of(head: &[u8]) -> u64 {
    stored_version(head).map_or(0, Version::index)
}

/// The parts of an entry as the engine takes them: owned heads and values.
enum Parts {
    Put { key: Bytes, head: Bytes, value: Bytes },
    Other(Bytes),
}

fn parts_of(entry: &Entry, epoch: u16) -> Result<Parts, kv::Error> {
    Ok(match &entry.payload {
        Payload::Write(write) => {
            let (head, value) = match &write.object {
                Some(object) => split_object(object)?,
                None => (tombstone(Version::new(epoch, entry.index)), Bytes::new()),
            };
            Parts::Put { key: write.key.clone(), head, value }
        }
        other => Parts::Other(other.encode()),
    })
}

fn write_batch(env: &mut Env, key: GroupKey, held: &HeldGroup, batch: &Batch) -> Result<Jsn, engine::Error> {
    let state = batch.state.as_ref().map(|state| held.stored_state(state));
    let epoch = held.group.epoch();
    let parts: Result<Vec<Parts>, kv::Error> =
        batch.entries.iter().map(|entry| parts_of(entry, epoch)).collect();
    let parts = parts.map_err(|_| engine::Error::Malformed("the object of a log entry"))?;
    let values: Vec<&[u8]> = parts
        .iter()
        .map(|parts| match parts {
            Parts::Put { value, .. } => &value[..],
            Parts::Other(_) => &[],
        })
        .collect();
    let entries: Vec<ProposedEntry<'_>> = batch
        .entries
        .iter()
        .zip(&parts)
        .zip(&values)
        .map(|((entry, parts), value)| ProposedEntry {
            place: place_of((entry.index, entry.term)),
            contents: match parts {
                Parts::Put { key, head, .. } => {
                    Contents::Put { key, head, value: std::slice::from_ref(value) }
                }
                Parts::Other(bytes) => Contents::Other(bytes),
            },
        })
        .collect();
    env.store.propose(&GroupBatch {
        group: key.number(),
        state: state.as_deref(),
        commit: batch.commit,
        install: batch.install.map(|it| place_of((it.index, it.term))),
        entries: &entries,
    })
}

/// Writes the state of a group as it is, with the record of its catch-up.
fn write_state(env: &mut Env, key: GroupKey, held: &HeldGroup) -> Result<Jsn, engine::Error> {
    let state = held.stored_state(&held.group.state());
    env.store.propose(&GroupBatch {
        group: key.number(),
        state: Some(&state),
        // Later entries may be in batches that the store has refused so far.
        commit: held.group.applied(),
        install: None,
        entries: &[],
    })
}

/// Writes a part and the record that it is there. The record comes before a drop, too: a group whose keys are dropped
/// knows it.
///
/// A store that refuses it half-way gets all of it again.
fn write_part(env: &mut Env, key: GroupKey, held: &mut HeldGroup) -> Result<Jsn, engine::Error> {
    if held.part.drops() {
        write_state(env, key, held)?;
        held.dropped_at = drop_keys(env, key)?;
    }
    let items: Vec<&Item> = held.part.newer_items().collect();
    let objects: Vec<(Bytes, Bytes)> = items
        .iter()
        .map(|item| match &item.object {
            Some(object) => split_object(object),
            None => Ok((tombstone(item.version), Bytes::new())),
        })
        .collect::<Result<_, kv::Error>>()
        .map_err(|_| engine::Error::Malformed("an object of a catch-up"))?;
    let values: Vec<&[u8]> = objects.iter().map(|(_, value)| &value[..]).collect();
    let writes: Vec<engine::Write<'_>> = items
        .iter()
        .zip(&objects)
        .zip(&values)
        .map(|((item, (head, _)), value)| engine::Write::Put {
            key: &item.key,
            head,
            value: std::slice::from_ref(value),
        })
        .collect();
    if !writes.is_empty() {
        env.store.write(&writes)?;
    }
    write_state(env, key, held)
}
