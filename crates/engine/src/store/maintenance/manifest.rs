//! A flush or merge that is done is an edit; an edit becomes the new version once the manifest that says so is
//! durable. An edit that speaks of records not yet durable waits for them. The lease of dot counters is extended
//! when half of it is used.

use crate::compaction::{Account, DeadRecord};
use crate::entry::{Jsn, Seq, WrittenAt};
use crate::error::Error;
use crate::journal::segment::Position;
use crate::lost::LostRange;
use crate::manifest::{JournalPosition, ManifestJob, ManifestState, SegmentRecord, Version};
use crate::store::proposals::LOST_ANYWHERE;
use crate::store::{Segment, Segments, Store};
use crate::table::{Table, TableId};
use base::spawn::Outcome;
use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Dot counters leased at a time: the manifest is written once in a million writes, and 64 bits allow for 10^13
/// unclean starts.
pub const LEASE_COUNTERS: u64 = 1 << 20;

/// Dead records counted in one turn: each is looked for in the segments' indexes, so this is half a millisecond.
const DEAD_COUNTED_MAX: usize = 2 << 10;

/// A change of the version that waits for its manifest.
#[derive(Default)]
pub(in crate::store) struct Edit {
    /// Tables that are new, and their levels.
    pub(in crate::store) added: Vec<(usize, Arc<Table>)>,
    /// Tables that go.
    pub(in crate::store) removed: Vec<Arc<Table>>,
    /// Whether the oldest frozen memtable is now in a table.
    pub(in crate::store) flushed: bool,
    /// The manifest may say so once this version is durable.
    pub(in crate::store) needs_durable: Seq,
    /// And once all records below this one are: some have no version.
    pub(in crate::store) needs_synced: Jsn,
    /// Where replay begins from now on, if the edit says so itself: after a sorted load.
    pub(in crate::store) replay_from: Option<(JournalPosition, Jsn, Account)>,
    /// With it, the oldest entry of a group's log that is not applied.
    pub(in crate::store) oldest_entry: Option<(JournalPosition, Jsn)>,
    /// Records whose versions the ledger has no more, in the order of their numbers, and which are not counted yet.
    pub(in crate::store) dead: Vec<DeadRecord>,
    /// What compaction has done.
    pub(in crate::store) compacted: Option<Compacted>,
}

/// Segments that go, and the one that stands in their place.
pub(in crate::store) struct Compacted {
    pub(in crate::store) inputs: Vec<Arc<Segment>>,
    pub(in crate::store) output: Option<Arc<Segment>>,
    /// Records of the inputs that died while it ran, and which are not counted in the output yet.
    pub(in crate::store) dead: Vec<DeadRecord>,
}

pub(super) struct ManifestRun {
    /// None while it waits to be tried again.
    outcome: Option<Outcome<Result<u64, Error>>>,
    state: ManifestState,
    /// The version that the manifest describes, and what to do when it is durable.
    version: Arc<Version>,
    pub(super) edit: Option<Edit>,
}

impl ManifestRun {
    /// Whether it makes a compaction count.
    pub(super) fn compacts(&self) -> bool {
        self.edit.as_ref().is_some_and(|edit| edit.compacted.is_some())
    }
}

impl Store {
    /// Gives up what was lost: from now on a key that is not found counts as never written, and the newest version that
    /// is found counts as the newest, though an older one may come back so. Tells which ranges there were. To be asked
    /// for by a person who knows that no repair brings more back; durable when the store is closed. Nothing is given up
    /// while the store takes no writes: index entries of what was lost go with it. States of groups that may be lost
    /// still count ([`Store::forget_lost_groups`]).
    pub fn accept_losses(&mut self) -> Vec<LostRange> {
        if !self.lost.is_empty() && self.drop_entries().is_err() {
            return Vec::new();
        }
        // An accepted loss is that of keys. The owner of groups has to note that it may have forgotten a promise.
        let may_be_lost = self.may_have_lost_groups(WrittenAt::default());
        if let Some(groups) = self.groups.as_mut().filter(|_| may_be_lost) {
            groups.note_lost(LOST_ANYWHERE);
        }
        let accepted = self.lost.iter().cloned().collect();
        self.lost = Arc::default();
        self.maintenance.edits.push(Edit::default());
        accepted
    }

    /// Whether the manifest on the disk, or the one on its way there, says that something may be lost. A start would
    /// find that again, and could not tell it from a later loss.
    pub fn records_lost_groups(&self) -> bool {
        let is_lost = |state: &ManifestState| state.groups.as_ref().is_some_and(|it| it.may_be_lost);
        is_lost(&self.manifest) || self.maintenance.manifest.as_ref().is_some_and(|run| is_lost(&run.state))
    }

    pub(super) fn want_manifest(&mut self) {
        if self.maintenance.manifest.is_some() {
            return self.write_manifest_again();
        }
        let (durable, synced) = (self.writer.durable(), self.writer.durable_jsn());
        let is_kept = self.frozen.front().is_none_or(|oldest| self.has_checkpoint(oldest.end_jsn));
        let may = |edit: &Edit| {
            edit.needs_durable <= durable && edit.needs_synced <= synced && (is_kept || !edit.flushed)
        };
        let ready = self.maintenance.edits.iter().position(may);
        if ready.is_some_and(|index| !self.count_some_dead(index)) {
            return;
        }
        let edit = ready.map(|index| self.maintenance.edits.remove(index));
        if edit.is_none() && self.manifest.dot_lease_end - self.next_counter > LEASE_COUNTERS / 2 {
            return;
        }
        let version = match &edit {
            Some(edit) => {
                let removed: Vec<TableId> = edit.removed.iter().map(|table| table.id()).collect();
                Arc::new(self.version.apply(&edit.added, &removed))
            }
            None => Arc::clone(&self.version),
        };
        let mut state = self.manifest.clone();
        state.dot_lease_end = state.dot_lease_end.max(self.next_counter + LEASE_COUNTERS);
        if edit.as_ref().is_some_and(|edit| edit.flushed) {
            let flushed = self.frozen.front().expect("a flush has its memtable");
            state.replay_position = position(flushed.end);
            state.replay_jsn = flushed.end_jsn;
            set_oldest(&mut state, flushed.oldest_entry);
            self.replay_account = flushed.end_account;
        }
        if let Some(edit) = &edit
            && let Some((at, jsn, account)) = edit.replay_from
        {
            (state.replay_position, state.replay_jsn) = (at, jsn);
            set_oldest(&mut state, edit.oldest_entry);
            self.replay_account = account;
        }
        let compacted = edit.as_ref().and_then(|edit| edit.compacted.as_ref());
        let segments = self.segments_after(compacted);
        self.describe(&mut state, &version, &segments);
        self.write_manifest(state, version, edit);
    }

    /// Counts some of an edit's dead records; `true` when all are counted. A large merge, or what died during a long
    /// compaction, has more of them than fit a turn.
    fn count_some_dead(&mut self, edit: usize) -> bool {
        let edit = &mut self.maintenance.edits[edit];
        let some = take_some(&mut edit.dead);
        let mut is_counted = edit.dead.is_empty();
        if let Some(Compacted { output: Some(output), dead, .. }) = &mut edit.compacted {
            let bytes_there = |record: &DeadRecord| output.bytes_of(record.jsn, record.bytes);
            let bytes: u64 = take_some(dead).iter().filter_map(bytes_there).map(u64::from).sum();
            self.accounts.add_dead(output.id, bytes);
            is_counted &= dead.is_empty();
        }
        self.count_dead(&some);
        is_counted
    }

    /// Fills in what the manifest says of tables and segments.
    pub(in crate::store) fn describe(
        &self,
        state: &mut ManifestState,
        version: &Version,
        segments: &Segments,
    ) {
        state.next_table_id = TableId(self.maintenance.next_table.load(Relaxed));
        state.next_segment_id = self.maintenance.next_segment;
        state.last_seq = self.writer.last_seq();
        state.last_jsn = Jsn(self.writer.next_jsn().0 - 1);
        state.levels = version.records();
        state.segments = segments.iter().map(|segment| self.segment_record(segment, state)).collect();
        state.drops = self.drops.until(self.writer.durable()).iter().cloned().collect();
        state.lost = self.lost.iter().cloned().collect();
        if let Some(groups) = &self.groups {
            groups.describe(&mut state.groups);
        }
    }

    /// What the manifest says of a segment: enough to notice its loss, and its account up to the replay position.
    fn segment_record(&self, segment: &Segment, state: &ManifestState) -> SegmentRecord {
        let known = self.accounts.of(segment.id);
        let replay_from = state.replay_position.segment;
        let account = match segment.id.0.cmp(&replay_from) {
            _ if segment.id.is_compacted() => known,
            Ordering::Less => known,
            Ordering::Equal => Account { dead_bytes: known.dead_bytes, ..self.replay_account },
            Ordering::Greater => Account { dead_bytes: known.dead_bytes, ..Account::default() },
        };
        let (id, first_jsn, sealed) = (segment.id.0, segment.first_jsn, segment.id.is_compacted());
        SegmentRecord { id, first_jsn, last_jsn: Jsn(0), len: 0, sealed, account }
    }

    /// The segments once `compacted` counts.
    fn segments_after(&self, compacted: Option<&Compacted>) -> Arc<Segments> {
        match compacted {
            Some(Compacted { inputs, output, .. }) => {
                Arc::new(self.segments.replace(inputs, output.as_ref()))
            }
            None => Arc::clone(&self.segments),
        }
    }

    fn write_manifest(&mut self, state: ManifestState, version: Arc<Version>, edit: Option<Edit>) {
        self.maintenance.manifest = Some(ManifestRun { outcome: None, state, version, edit });
        self.write_manifest_again();
    }

    /// Writes the manifest that is made up, if that is not under way.
    fn write_manifest_again(&mut self) {
        let Some(run) = self.maintenance.manifest.as_mut().filter(|run| run.outcome.is_none()) else {
            return;
        };
        let outcome = Outcome::new();
        run.outcome = Some(outcome.clone());
        let job = ManifestJob::new(self.dir.clone(), run.state.clone(), outcome);
        self.spawn.spawn(Box::new(job));
    }

    pub(super) fn take_manifest(&mut self) {
        let Some(run) = &mut self.maintenance.manifest else { return };
        let Some(done) = run.outcome.as_ref().and_then(Outcome::take) else { return };
        run.outcome = None;
        if let Err(error @ Error::Exhausted(_)) = done {
            return self.on_failure(error);
        }
        let run = self.maintenance.manifest.take().expect("just looked");
        match done {
            Ok(bytes) => self.room.note_manifest(bytes),
            Err(error) => {
                self.writer.fence(error);
                return;
            }
        }
        self.counters.manifests += 1;
        self.manifest = run.state;
        self.version = run.version;
        if let Some(edit) = run.edit {
            if edit.flushed {
                let flushed = self.frozen.pop_front().expect("a flush has its memtable");
                self.flushed = flushed.last_seq;
                self.maintenance.compaction.note_flush();
            }
            self.maintenance.obsolete.extend(edit.removed);
            if let Some(compacted) = edit.compacted {
                // A segment may have been added since the manifest was made up.
                self.segments = self.segments_after(Some(&compacted));
                self.compacted(compacted);
            }
        }
    }
}

/// Names the oldest entry of a group's log that tables do not have.
pub(in crate::store) fn set_oldest(state: &mut ManifestState, oldest: Option<(JournalPosition, Jsn)>) {
    if oldest.is_some() || state.groups.is_some() {
        state.groups.get_or_insert_default().oldest = oldest;
    }
}

/// A journal position as the manifest has it.
pub(crate) fn position(at: Position) -> JournalPosition {
    JournalPosition { segment: at.segment.0, offset: at.offset }
}

/// The last of them, as many as are counted in one turn.
pub(super) fn take_some(dead: &mut Vec<DeadRecord>) -> Vec<DeadRecord> {
    dead.split_off(dead.len().saturating_sub(DEAD_COUNTED_MAX))
}
