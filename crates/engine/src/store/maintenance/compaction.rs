//! Journal compaction, one at a time: when it begins, how fast it goes, and what comes of it.
//!
//! It is paced by what clients write, so that it takes a share of the disk that they determine, and by the clock
//! where they write little. A compaction that fails changes nothing; the store waits before it tries again.

use super::lag::Lag;
use super::manifest::{Compacted, Edit, take_some};
use crate::compaction::{
    Account, Choice, Compaction, CompactionEnd, CompactionError, CompactionRequest, CountDead, DeadRecord,
    Newest, Pace, Run, WASTE_OUTPUTS_MIN, choose,
};
use crate::compression::Compressor;
use crate::entry::{Jsn, Seq};
use crate::error::Damage;
use crate::journal::segment::SegmentId;
use crate::manifest::HIDDEN_SHARE;
use crate::store::disk_room::Claim;
use crate::store::options::CompactionSchedule;
use crate::store::pressure::{FULL, SLOW_FROM, SPACE_FULL};
use crate::store::room::LOOK_EVERY;
use crate::store::{Segment, Store};
use crate::table::Table;
use base::spawn::Outcome;
use base::{FastMap, Monotonic};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Compaction may read and write so many times what clients write.
const BYTES_PER_USER_BYTE: u64 = 2;

/// A compaction that was asked for may do so much in each turn.
const THOROUGH_BYTES: u64 = 4 << 20;

/// After a failure of the disk it is left alone for so long.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(30);

/// So much of what is of use may the journal be above its target, or by as much as waste always may, before writes wait
/// as at a limit: with the default target it is at most twice as large as what lives, where compaction can keep up with
/// a thousand writes a second.
const SPACE_BEHIND_PERCENT: u64 = 75;

/// On a disk that is nearly full all waste is too much.
const TARGET_WHEN_LOW_PERCENT: u64 = 100;

/// The record of a deletion is taken to have so many bytes: a head of 32, a short key and its type.
const DELETION_BYTES: u64 = 64;

/// Records that were needed are judged anew when this part of them may be needed no more.
const PINNED_SHARE: u64 = 8;

const DAY: Duration = Duration::from_secs(86_400);

/// Damage found by compactions that is remembered for [`Store::take_damage`].
const DAMAGE_REMEMBERED_MAX: usize = 1024;

/// What is known of compaction between turns.
#[derive(Default)]
pub(in crate::store) struct CompactionState {
    /// Seals that are being written: their segments are not read yet.
    pub(in crate::store) sealing: Vec<(SegmentId, Outcome<()>)>,
    pub(super) running: Option<Running>,
    pub(super) pace: Arc<Pace>,
    /// Segments that cannot be read as a whole.
    quarantined: BTreeSet<SegmentId>,
    /// Bytes that are log only and were found to be needed, by segment.
    pinned: FastMap<SegmentId, u64>,
    /// Segments of which too little can go, with their dead bytes as of when that was found: until more are dead they
    /// are left alone.
    not_worth: FastMap<SegmentId, u64>,
    /// Deletions that merges have left out since `pinned` was made up: their records may not be needed any more.
    deletions_left_out: u64,
    /// Segments that are in no list any more, the oldest first; their files are still there.
    pub(in crate::store) obsolete: Vec<Arc<Segment>>,
    /// When the first of them came.
    pub(in crate::store) obsolete_since: Option<Monotonic>,
    /// A file did not go: when it is tried again, and those behind it.
    pub(super) removal_retry_at: Option<Monotonic>,
    /// Segments that are kept aside, as of the last look, and when that was.
    pub(in crate::store) waste: Option<(usize, Monotonic)>,
    /// Damage that was found, for whoever asks.
    damage: Vec<Damage>,
    /// Tables that were removed whole, whose records are still to be counted as dead.
    uncounted: VecDeque<Arc<Table>>,
    counting: Option<Outcome<Vec<DeadRecord>>>,
    /// What such a table had that is not counted yet.
    dead_left: Vec<DeadRecord>,
    /// Accounts, or what may be compacted, have changed since the last choice.
    stirred: bool,
    /// Up to which record a thorough compaction has come.
    thorough: Option<Jsn>,
    begun_at: Option<Monotonic>,
    retry_at: Option<Monotonic>,
    /// Why the last compaction failed, if it did.
    failure: Option<crate::Error>,
    written_at: Monotonic,
    user_bytes: u64,
    granted_at: Monotonic,
    lag: Lag,
}

/// A compaction under way.
pub(super) struct Running {
    inputs: Vec<Arc<Segment>>,
    outcome: Outcome<CompactionEnd>,
    paused: Option<Box<Compaction>>,
    /// Records that died since it looked at the ledger.
    dead: Vec<DeadRecord>,
    /// The room that it may take.
    _claim: Claim,
}

impl CompactionState {
    /// More of the journal is in tables: what is a log only can go, though nothing died.
    pub(super) fn note_flush(&mut self) {
        self.stirred = true;
    }

    /// A merge has left deletions out.
    pub(super) fn note_deletions_left_out(&mut self, count: u64) {
        self.deletions_left_out += count;
    }

    /// Where merges have left out enough deletions, or will leave out no more, records that were needed are judged
    /// anew. Each is read for that.
    fn judge_pinned_again(&mut self, is_last: bool) {
        let pinned: u64 = self.pinned.values().sum();
        let freed = self.deletions_left_out.saturating_mul(DELETION_BYTES);
        if pinned > 0 && freed > 0 && (is_last || freed >= pinned / PINNED_SHARE) {
            self.pinned.clear();
            self.not_worth.clear();
            (self.deletions_left_out, self.stirred) = (0, true);
        }
    }

    /// There may be more room than there was.
    pub(in crate::store) fn note_room(&mut self) {
        self.stirred = true;
    }

    /// Files of segments have gone, the oldest first, each with its first record: what others were kept for may have
    /// gone with them. A compaction that has ended meanwhile may have put segments before them.
    pub(super) fn note_removed(&mut self, removed: &[(SegmentId, Jsn)], segments: &[Arc<Segment>]) {
        let Some(&(_, oldest)) = removed.first() else { return };
        self.obsolete.retain(|segment| removed.iter().all(|(id, _)| *id != segment.id));
        for segment in segments.iter().filter(|segment| segment.first_jsn > oldest) {
            self.pinned.remove(&segment.id);
            self.not_worth.remove(&segment.id);
        }
        self.stirred = true;
    }
}

impl Store {
    /// Compacts all of the journal that gains by it, whatever the target and the schedule; turns carry it out.
    /// [`Store::is_compacting`] tells when it is done.
    pub fn compact(&mut self) {
        if !self.memtable.is_empty() && self.frozen.is_empty() {
            self.freeze();
        }
        self.compact_journal();
    }

    /// [`Store::compact`] of what is in tables.
    pub(in crate::store) fn compact_journal(&mut self) {
        let compaction = &mut self.maintenance.compaction;
        compaction.judge_pinned_again(true);
        (compaction.thorough, compaction.stirred, compaction.retry_at) = (Some(Jsn(0)), true, None);
    }

    /// Whether a compaction is under way, or [`Store::compact`] is not done.
    pub fn is_compacting(&self) -> bool {
        let compaction = &self.maintenance.compaction;
        compaction.running.is_some() || compaction.thorough.is_some()
    }

    /// Why the last compaction failed, if it did: nothing was changed, and it is tried again.
    pub fn compaction_failure(&self) -> Option<&crate::Error> {
        self.maintenance.compaction.failure.as_ref()
    }

    /// Takes what background work has found damaged since the last call, for a log or a repair.
    pub fn take_damage(&mut self) -> Vec<Damage> {
        std::mem::take(&mut self.maintenance.compaction.damage)
    }

    pub(in crate::store) fn note_damage(&mut self, damage: impl IntoIterator<Item = Damage>) {
        let known = &mut self.maintenance.compaction.damage;
        let room = DAMAGE_REMEMBERED_MAX.saturating_sub(known.len());
        known.extend(damage.into_iter().take(room));
    }

    /// Counts records as dead, for the running compaction's output, too.
    pub(super) fn count_dead(&mut self, dead: &[DeadRecord]) {
        if dead.is_empty() {
            return;
        }
        self.accounts.bury(&self.segments, dead);
        let compaction = &mut self.maintenance.compaction;
        compaction.stirred = true;
        if let Some(running) = &mut compaction.running {
            let is_input = |record: &&DeadRecord| {
                self.segments
                    .find(record.jsn)
                    .is_some_and(|segment| running.inputs.iter().any(|input| input.id == segment.id))
            };
            running.dead.extend(dead.iter().filter(is_input).copied());
        }
        self.count_dead_in_waiting(dead);
    }

    /// The same for an output whose manifest is not durable yet: readers still find the inputs.
    fn count_dead_in_waiting(&mut self, dead: &[DeadRecord]) {
        let written = self.maintenance.manifest.as_ref().and_then(|run| run.edit.as_ref());
        let waiting = self.maintenance.edits.iter().chain(written).filter_map(|edit| edit.compacted.as_ref());
        for Compacted { inputs, output, .. } in waiting {
            let Some(output) = output else { continue };
            let moved = |record: &DeadRecord| {
                let segment = self.segments.find(record.jsn);
                let is_input =
                    segment.is_some_and(|segment| inputs.iter().any(|input| input.id == segment.id));
                output.bytes_of(record.jsn, record.bytes).filter(|_| is_input)
            };
            let bytes: u64 = dead.iter().filter_map(moved).map(u64::from).sum();
            self.accounts.add_dead(output.id, bytes);
        }
    }

    /// Counts the records of tables that were removed whole, without a merge that would have read them. It is not in
    /// the manifest that removes them, so a crash may leave some uncounted: then a compaction finds them by and by.
    pub(super) fn count_dead_of(&mut self, tables: &[Arc<Table>]) {
        self.maintenance.compaction.uncounted.extend(tables.iter().cloned());
    }

    fn step_counting(&mut self) {
        if let Some(counting) = &self.maintenance.compaction.counting {
            let Some(dead) = counting.take() else { return };
            self.maintenance.compaction.counting = None;
            self.maintenance.compaction.dead_left = dead;
        }
        if !self.maintenance.compaction.dead_left.is_empty() {
            let some = take_some(&mut self.maintenance.compaction.dead_left);
            return self.count_dead(&some);
        }
        if let Some(table) = self.maintenance.compaction.uncounted.pop_front() {
            let outcome = Outcome::new();
            self.spawn.spawn(Box::new(CountDead::new(table, outcome.clone())));
            self.maintenance.compaction.counting = Some(outcome);
        }
    }

    pub(super) fn take_compaction(&mut self, now: Monotonic) {
        self.maintenance.compaction.sealing.retain(|(_, ended)| ended.take().is_none());
        self.step_counting();
        self.grant(now);
        let Some(running) = &mut self.maintenance.compaction.running else { return };
        match running.outcome.take() {
            Some(CompactionEnd::Paused(compaction)) => running.paused = Some(compaction),
            Some(CompactionEnd::Done(result, traffic)) => {
                let running = self.maintenance.compaction.running.take().expect("just looked");
                self.counters.compaction_bytes_read += traffic.read;
                self.counters.compaction_bytes_written += traffic.written;
                self.end_compaction(now, running, result);
            }
            None => {}
        }
    }

    pub(super) fn want_compaction(&mut self, now: Monotonic) {
        let closing = self.maintenance.closing.is_some();
        let compaction = &mut self.maintenance.compaction;
        if closing {
            compaction.pace.cancel();
        }
        if let Some(running) = &mut compaction.running {
            if (closing || !compaction.pace.is_spent())
                && let Some(paused) = running.paused.take()
            {
                self.spawn.spawn(Box::new(Run::new(paused, running.outcome.clone())));
            }
            return;
        }
        let edit_waits = self.maintenance.edits.iter().any(|edit| edit.compacted.is_some())
            || self.maintenance.manifest.as_ref().is_some_and(|run| run.compacts());
        if !closing && !edit_waits && self.may_compact(now) {
            self.begin_compaction(now);
        }
    }

    /// Grants what clients have written, or what the clock allows, whichever is more.
    fn grant(&mut self, now: Monotonic) {
        let found = self.unreclaimed();
        let is_awaited = found > SLOW_FROM || self.is_nearly_low();
        let written = self.writer.counters().bytes;
        let compaction = &mut self.maintenance.compaction;
        // Nothing is found where nothing is under way, as between one compaction and the next.
        if found > 0 {
            compaction.lag.follow(found, written, self.options.segment_bytes_target);
        }
        let by_clock = u64::try_from(
            u128::from(self.options.compaction_bytes_per_second)
                * now.since(compaction.granted_at).as_nanos()
                / 1_000_000_000,
        )
        .unwrap_or(u64::MAX);
        let by_writes = (written - compaction.user_bytes).saturating_mul(BYTES_PER_USER_BYTE);
        // What writes wait for has nothing to wait for itself.
        let asked_for = if compaction.thorough.is_some() || is_awaited { THOROUGH_BYTES } else { 0 };
        let granted = by_clock.max(by_writes).max(asked_for);
        if granted == 0 {
            return;
        }
        compaction.pace.grant(granted);
        if written > compaction.user_bytes {
            compaction.written_at = now;
        }
        (compaction.user_bytes, compaction.granted_at) = (written, now);
    }

    fn is_idle(&self, now: Monotonic) -> bool {
        now.since(self.maintenance.compaction.written_at) >= self.options.compaction_idle_after
    }

    fn may_compact(&mut self, now: Monotonic) -> bool {
        let (idle, low, now_ms) = (self.is_idle(now), self.is_nearly_low(), self.now_ms());
        if low {
            let merges_rest = self.finds_no_merge();
            self.maintenance.compaction.judge_pinned_again(merges_rest);
        }
        let compaction = &mut self.maintenance.compaction;
        if compaction.retry_at.is_some_and(|at| now < at) {
            return false;
        }
        if compaction.thorough.is_some() {
            // All that was in memory when it was asked for is to be compacted, too; and what is about to go may be what
            // others are kept for.
            return self.frozen.is_empty() && !self.is_removing();
        }
        let allowed = match &self.options.compaction {
            CompactionSchedule::Continuous => true,
            CompactionSchedule::TimesADay(times) => {
                let pause = DAY.checked_div(*times).unwrap_or(Duration::MAX);
                compaction.begun_at.is_none_or(|at| now.since(at) >= pause)
            }
            CompactionSchedule::Windows(windows) => windows.iter().any(|window| window.contains(now_ms)),
            CompactionSchedule::Never => false,
        };
        (allowed || low) && (compaction.stirred || idle)
    }

    fn begin_compaction(&mut self, now: Monotonic) {
        let output_bytes_max = self.options.segment_bytes_target;
        let (percent, waste_min) = match (self.is_nearly_low(), self.is_idle(now)) {
            (true, _) => (TARGET_WHEN_LOW_PERCENT, 0),
            (_, true) => (self.options.space_target_idle_percent, 0),
            _ => (self.options.space_target_percent, WASTE_OUTPUTS_MIN * output_bytes_max),
        };
        let unknown_from = self.unknown_from();
        let choice = |segment: &Arc<Segment>| self.choice(segment, unknown_from);
        let choices: Vec<Choice> = self.segments.as_slice().iter().map(choice).collect();
        let useful: u64 =
            choices.iter().map(|choice| choice.account.bytes().saturating_sub(choice.waste())).sum();
        // Of what is in tables, as much as merges leave there at most: what is beyond that they are about to find.
        let [in_memory, in_tables] = self.hidden_bytes(useful);
        let hidden = in_memory + in_tables.min(useful / HIDDEN_SHARE);
        let room = self.room_for_jobs();
        let compaction = &mut self.maintenance.compaction;
        compaction.stirred = false;
        let run = if let Some(from) = compaction.thorough {
            let next = self.segments.as_slice().iter().zip(&choices).position(|(segment, choice)| {
                let is_any = choice.eligible && choice.account.bytes() > 0;
                segment.first_jsn >= from && is_any && choice.needs() <= room
            });
            let Some(next) = next else {
                compaction.thorough = None;
                return;
            };
            let after = self.segments.as_slice().get(next + 1).map(|segment| segment.first_jsn);
            compaction.thorough = Some(after.unwrap_or(Jsn(u64::MAX)));
            next..next + 1
        } else {
            let Some(run) = choose(&choices, (hidden, percent, waste_min), output_bytes_max, room) else {
                return;
            };
            run
        };
        let needs = choices[run.clone()].iter().map(Choice::needs).sum();
        // What others have claimed meanwhile may be free after the next look.
        let Some(claim) = self.claim_room(needs) else { return };
        let compaction = &mut self.maintenance.compaction;
        compaction.begun_at = Some(now);
        let (before, rest) = self.segments.as_slice().split_at(run.start);
        let (inputs, after) = rest.split_at(run.len());
        let first_jsn = inputs[0].first_jsn;
        let end_jsn = after.first().map_or(self.writer.next_jsn(), |segment| segment.first_jsn);
        let known = unknown_from.is_none_or(|unknown| unknown >= end_jsn);
        let id = SegmentId::compacted(self.maintenance.next_segment);
        self.maintenance.next_segment += 1;
        self.memtable.link();
        let frozen = self.frozen.iter().rev().map(|frozen| frozen.reader.clone());
        let memtables = std::iter::once(self.memtable.reader()).chain(frozen).collect();
        let request = CompactionRequest {
            folder: self.dir.join(crate::store::open::JOURNAL_DIR),
            id,
            incarnation: self.manifest.incarnation,
            inputs: inputs.to_vec(),
            stands_for: (first_jsn, end_jsn),
            older: known.then(|| before.to_vec()),
            older_bytes: choices[..run.start].iter().map(|choice| choice.account.bytes()).sum(),
            newest: Newest::new(
                self.writer.durable(),
                memtables,
                Arc::clone(&self.version),
                Arc::clone(&self.lost),
            ),
            in_tables: if self.lost.is_empty() { self.flushed } else { Seq(0) },
            indexing: self.options.indexing,
            pace: Arc::clone(&compaction.pace),
            compressor: Compressor::new(&self.options),
            room: room.max(needs),
        };
        let inputs = request.inputs.clone();
        let outcome = Outcome::new();
        self.spawn.spawn(Box::new(Run::new(Box::new(Compaction::new(request)), outcome.clone())));
        self.maintenance.compaction.running =
            Some(Running { inputs, outcome, paused: None, dead: Vec::new(), _claim: claim });
    }

    /// Bytes of values that newer ones have replaced whose entries did not meet yet, by estimate: in memory, and in
    /// tables. `useful` bytes are not known to be of no use.
    fn hidden_bytes(&self, useful: u64) -> [u64; 2] {
        let frozen: usize = self.frozen.iter().map(|frozen| frozen.reader.len()).sum();
        let in_memory = (self.memtable.len() + frozen) as u64;
        let in_tables: u64 = self.version.above_leveled().iter().sum();
        let record = useful / (in_memory + self.version.entries()).max(1);
        let replacing = self.maintenance.replacing.thousandths();
        [in_memory, in_tables].map(|entries| entries.saturating_mul(replacing) / 1000 * record)
    }

    /// How far the journal is on the way from its target to [`SPACE_BEHIND_PERCENT`] above it, in thousandths; zero
    /// where nothing is under way that frees space, or finds what can be freed: what a schedule or damage keeps is not
    /// to be waited for.
    pub(in crate::store) fn unreclaimed(&self) -> u64 {
        let at_work = &self.maintenance;
        let is_under_way =
            at_work.compaction.running.is_some() || at_work.merge.is_some() || at_work.flush.is_some();
        if !is_under_way || self.options.compaction != CompactionSchedule::Continuous {
            return 0;
        }
        let total = self.accounts.total();
        let known = total.bytes().saturating_sub(total.dead_bytes);
        let hidden: u64 = self.hidden_bytes(known).iter().sum();
        let useful = known.saturating_sub(hidden);
        let waste_min = WASTE_OUTPUTS_MIN * self.options.segment_bytes_target;
        let percent = |percent: u64| (useful / 100 * percent).max(waste_min);
        let allowed = percent(self.options.space_target_percent.saturating_sub(100));
        let over = (total.dead_bytes + hidden).saturating_sub(allowed);
        over.saturating_mul(FULL) / percent(SPACE_BEHIND_PERCENT).max(1)
    }

    /// What of that writes are slowed by: where they may wait no longer all of it, else what a step of it has come to
    /// ([`Lag`]).
    pub(in crate::store) fn lag(&self) -> u64 {
        let found = self.unreclaimed();
        let level = self.maintenance.compaction.lag.level();
        if found < SPACE_FULL { found.min(level) } else { found }
    }

    /// From which record on nobody can say what the journal has: a segment is lost, or is in no list any more and its
    /// file is still there, so that a crash may bring it back.
    fn unknown_from(&self) -> Option<Jsn> {
        let obsolete = self.maintenance.compaction.obsolete.first();
        let missing = self.segments.as_slice().iter().find(|segment| segment.is_missing());
        obsolete.into_iter().chain(missing).map(|segment| segment.first_jsn).min()
    }

    /// What is known of a segment. All of its records must be in tables, and nobody may write it. Where older records
    /// are unknown, what is a log only is needed, as it may cover one.
    fn choice(&self, segment: &Segment, unknown_from: Option<Jsn>) -> Choice {
        let compaction = &self.maintenance.compaction;
        let account = self.accounts.of(segment.id);
        let is_worth = compaction.not_worth.get(&segment.id).is_none_or(|&dead| account.dead_bytes > dead);
        let is_unknown = unknown_from.is_some_and(|unknown| unknown <= segment.first_jsn);
        let pinned = compaction.pinned.get(&segment.id).copied().unwrap_or(0);
        Choice {
            account,
            pinned_bytes: if is_unknown { account.log_bytes } else { pinned },
            eligible: self.is_settled(segment)
                && !self.has_open_entries(segment)
                && !compaction.quarantined.contains(&segment.id)
                && is_worth,
        }
    }

    /// Whether a segment is there, all of its records are in tables, and nobody writes to it.
    pub(super) fn is_settled(&self, segment: &Segment) -> bool {
        let flushed = segment.id.is_compacted() || segment.id.0 < self.manifest.replay_position.segment;
        let sealing = self.maintenance.compaction.sealing.iter().any(|(id, _)| *id == segment.id);
        flushed && !sealing && !segment.is_missing()
    }

    /// Whether a segment may have entries of groups' logs that tables do not have: a start reads all from the oldest of
    /// them on.
    fn has_open_entries(&self, segment: &Segment) -> bool {
        let oldest = self.manifest.groups.and_then(|groups| groups.oldest);
        let first = oldest.and_then(|(_, jsn)| self.segments.find(jsn)).map(|first| first.first_jsn);
        first.is_some_and(|first| segment.first_jsn >= first) && !base::planted!(ProposalCompacted)
    }

    fn end_compaction(
        &mut self,
        now: Monotonic,
        running: Running,
        result: Result<crate::compaction::CompactionOutput, CompactionError>,
    ) {
        self.room.look_soon();
        let compaction = &mut self.maintenance.compaction;
        compaction.stirred = true;
        match result {
            Ok(output) => {
                compaction.failure = None;
                self.counters.values_quarantined += output.damaged.len() as u64;
                self.counters.compressed.add(&output.compressed);
                self.note_damage(output.damaged);
                if let Some(segment) = &output.segment {
                    self.accounts.set(segment.id, Account { dead_bytes: 0, ..output.account });
                    let pinned = output.account.log_bytes;
                    self.maintenance.compaction.pinned.insert(segment.id, pinned);
                }
                let Running { inputs, dead, .. } = running;
                let compacted = Some(Compacted { inputs, output: output.segment, dead });
                self.maintenance.edits.push(Edit { compacted, ..Edit::default() });
            }
            Err(CompactionError::NotWorth) => {
                for input in &running.inputs {
                    let account = self.accounts.of(input.id);
                    compaction.pinned.insert(input.id, account.log_bytes);
                    compaction.not_worth.insert(input.id, account.dead_bytes);
                }
            }
            Err(CompactionError::NoRoom(kept)) => {
                for (input, kept) in running.inputs.iter().zip(kept) {
                    let Account { value_bytes, log_bytes, dead_bytes } = self.accounts.of(input.id);
                    let needed = kept.saturating_sub(value_bytes.saturating_sub(dead_bytes));
                    compaction.pinned.insert(input.id, needed.min(log_bytes));
                }
            }
            Err(CompactionError::Cancelled) => {}
            Err(CompactionError::Unreadable(id, error)) => {
                if compaction.quarantined.insert(id) {
                    self.counters.segments_quarantined += 1;
                }
                if let crate::Error::Damaged(damage) = error {
                    self.note_damage([damage]);
                }
            }
            Err(CompactionError::Failed(error)) => {
                let is_room = matches!(error, crate::Error::Exhausted(_));
                compaction.failure = Some(error);
                compaction.thorough = None;
                compaction.retry_at = Some(now + if is_room { LOOK_EVERY } else { RETRY_AFTER });
                if is_room {
                    self.room.note_shortage(now);
                }
            }
        }
    }

    /// The manifest says so: the inputs go when nobody holds them.
    pub(super) fn compacted(&mut self, compacted: Compacted) {
        self.counters.compactions += 1;
        let compaction = &mut self.maintenance.compaction;
        for input in &compacted.inputs {
            self.accounts.remove(input.id);
            compaction.pinned.remove(&input.id);
            compaction.not_worth.remove(&input.id);
        }
        compaction.obsolete_since.get_or_insert(self.clock.now());
        compaction.obsolete.extend(compacted.inputs);
        compaction.obsolete.sort_by_key(|segment| segment.first_jsn);
        compaction.stirred = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::disk::FileId;

    #[test]
    fn what_became_obsolete_meanwhile_is_not_taken_for_what_was_removed() {
        let segment = |id: u64, jsn| {
            Arc::new(Segment { id: SegmentId(id), file: FileId(0), first_jsn: Jsn(jsn), index: None })
        };
        let (older, removed, newer) = (segment(1, 5), segment(2, 9), segment(3, 12));
        let mut state = CompactionState { obsolete: vec![Arc::clone(&older), removed], ..Default::default() };
        state.pinned = [(older.id, 1), (newer.id, 1)].into_iter().collect();
        state.note_removed(&[(SegmentId(2), Jsn(9))], &[Arc::clone(&older), newer]);
        assert_eq!(state.obsolete.iter().map(|segment| segment.id).collect::<Vec<_>>(), [older.id]);
        assert_eq!(state.pinned.keys().collect::<Vec<_>>(), [&older.id], "what is newer is looked at again");
        assert!(state.stirred);
    }
}
