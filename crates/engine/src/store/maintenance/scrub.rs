//! The scrub, a step at a time: which file is next, and when ([`crate::scrub`]).

use crate::journal::segment::FOLDER;
use crate::scrub::{FileScrub, Mark, STEP_BYTES, ScrubStep, StepEnd, Unit, WriteMark};
use crate::store::{Segment, Store, TABLES_DIR};
use crate::table::{Table, TableId};
use base::spawn::Outcome;
use base::{Disk, Monotonic};
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A pass is to be over when so much of its period is, in per cent: the rest is for what came in between.
const PERIOD_PERCENT: u64 = 90;

/// While clients use more of a limit than this, in thousandths, or there is no file handle, the scrub waits.
const PRESSURE_MAX: u64 = 500;

/// Keys of damaged records that are remembered until they are taken: the next pass finds the others again.
const KEYS_REMEMBERED_MAX: usize = 1024;

/// For so long.
const WAIT: Duration = Duration::from_secs(1);

/// A scrub between turns.
#[derive(Default)]
pub(in crate::store) struct ScrubState {
    mark: Mark,
    running: Option<Outcome<StepEnd>>,
    paused: Option<Box<FileScrub>>,
    /// When the next step may begin.
    due: Monotonic,
    /// Keys whose values were found damaged, for [`Store::take_damaged_keys`].
    keys: Vec<Bytes>,
}

impl ScrubState {
    /// Goes on where the last pass was, or begins one.
    pub(in crate::store) fn open(
        disk: &mut dyn Disk,
        dir: &Path,
        now_ms: u64,
        tables_end: u64,
    ) -> ScrubState {
        let mark = Mark::read(disk, dir).ok().flatten().unwrap_or(Mark::begin(now_ms, tables_end));
        ScrubState { mark, ..ScrubState::default() }
    }
}

impl Mark {
    fn begin(now_ms: u64, tables_end: u64) -> Mark {
        Mark { began_ms: now_ms, next_jsn: 0, next_table: 0, tables_end }
    }
}

impl Store {
    /// Takes the keys of records that the scrub has found damaged since the last call, for whoever can get their values
    /// elsewhere. Some may have been overwritten since their records were written.
    pub fn take_damaged_keys(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.maintenance.scrub.keys)
    }

    pub(super) fn take_scrub(&mut self, now: Monotonic) {
        let Some((file, end)) = self.maintenance.scrub.running.as_ref().and_then(Outcome::take) else {
            return;
        };
        let mut file = file;
        self.maintenance.scrub.running = None;
        self.counters.scrub_bytes += file.read;
        self.counters.scrub_damage += file.damage.len() as u64;
        self.note_damage(std::mem::take(&mut file.damage));
        if !file.lost.is_empty() {
            self.note_lost(std::mem::take(&mut file.lost));
        }
        self.maintenance.scrub.keys.extend(std::mem::take(&mut file.keys));
        self.maintenance.scrub.keys.truncate(KEYS_REMEMBERED_MAX);
        let read = file.read;
        match end {
            Ok(true) => self.pass_file(file.unit().clone()),
            Ok(false) => self.maintenance.scrub.paused = Some(file),
            // No handle for it: the file is begun once more.
            Err(_) => {
                self.maintenance.scrub.due = now + WAIT;
                return;
            }
        }
        self.maintenance.scrub.due = now + self.pause_after(read);
    }

    pub(super) fn want_scrub(&mut self, now: Monotonic) {
        let scrub = &self.maintenance.scrub;
        if self.options.scrub_period.is_zero()
            || scrub.running.is_some()
            || now < scrub.due
            || self.maintenance.closing.is_some()
        {
            return;
        }
        if self.pressure() > PRESSURE_MAX {
            self.maintenance.scrub.due = now + WAIT;
            return;
        }
        let Some(file) = self.maintenance.scrub.paused.take().or_else(|| self.next_file()) else {
            return self.end_pass(now);
        };
        let outcome = Outcome::new();
        self.spawn.spawn(Box::new(ScrubStep::new(file, outcome.clone())));
        self.maintenance.scrub.running = Some(outcome);
    }

    fn next_file(&self) -> Option<Box<FileScrub>> {
        let (mut segments, tables) = self.left();
        // Of those that begin where another does, only the last has records.
        let first = segments.next().map(|first| {
            let last = segments.take_while(|other| other.first_jsn == first.first_jsn).last();
            (Unit::Segment(Arc::clone(last.unwrap_or(first))), FOLDER)
        });
        let table = || {
            tables.min_by_key(|table| table.id()).map(|table| (Unit::Table(Arc::clone(table)), TABLES_DIR))
        };
        let (unit, folder) = first.or_else(table)?;
        Some(Box::new(FileScrub::new(unit, &self.dir.join(folder))))
    }

    /// What this pass has not gone through.
    fn left(&self) -> (impl Iterator<Item = &Arc<Segment>>, impl Iterator<Item = &Arc<Table>>) {
        let mark = self.maintenance.scrub.mark;
        let segments = self.segments.as_slice();
        let segments = segments
            .iter()
            .filter(move |segment| segment.first_jsn.0 >= mark.next_jsn && self.is_settled(segment));
        let numbers = TableId(mark.next_table)..TableId(mark.tables_end);
        let tables = self.version.tables().map(|(_, table)| table);
        (segments, tables.filter(move |table| numbers.contains(&table.id())))
    }

    /// The file is done: the next one begins behind it.
    fn pass_file(&mut self, unit: Unit) {
        let scrub = &mut self.maintenance.scrub;
        match unit {
            Unit::Segment(segment) => scrub.mark.next_jsn = segment.first_jsn.0 + 1,
            Unit::Table(table) => scrub.mark.next_table = table.id().0 + 1,
        }
        self.write_mark();
    }

    /// All is done: the next pass begins when the period is over.
    fn end_pass(&mut self, now: Monotonic) {
        let period_ms = u64::try_from(self.options.scrub_period.as_millis()).unwrap_or(u64::MAX);
        let (mark, now_ms) = (self.maintenance.scrub.mark, self.now_ms());
        if mark.next_jsn < u64::MAX {
            self.counters.scrub_passes += 1;
            self.maintenance.scrub.mark = Mark { next_jsn: u64::MAX, next_table: u64::MAX, ..mark };
        } else if now_ms.saturating_sub(mark.began_ms) >= period_ms {
            let tables_end = self.maintenance.next_table.load(Relaxed);
            self.maintenance.scrub.mark = Mark::begin(now_ms, tables_end);
        } else {
            self.maintenance.scrub.due = now + WAIT;
            return;
        }
        self.write_mark();
    }

    fn write_mark(&self) {
        let mark = self.maintenance.scrub.mark;
        self.spawn.spawn(Box::new(WriteMark { dir: self.dir.clone(), mark }));
    }

    /// How long to wait after a step: so that what is left is read in what is left of the period, and no faster than
    /// compaction may be.
    fn pause_after(&self, read: u64) -> Duration {
        let (segments, tables) = self.left();
        let in_segments: u64 = segments.map(|segment| self.accounts.of(segment.id).bytes()).sum();
        let in_tables: u64 = tables.map(|table| table.len()).sum();
        let bytes = (in_segments + in_tables).max(STEP_BYTES);
        let period_ms = u64::try_from(self.options.scrub_period.as_millis()).unwrap_or(u64::MAX);
        let ends_ms = self.maintenance.scrub.mark.began_ms.saturating_add(period_ms / 100 * PERIOD_PERCENT);
        let left_ms = ends_ms.saturating_sub(self.now_ms());
        let share = |time_ms: u64, of: u64| u128::from(time_ms) * u128::from(read) / u128::from(of.max(1));
        let pause = share(left_ms, bytes).max(share(1000, self.options.compaction_bytes_per_second));
        Duration::from_millis(u64::try_from(pause).unwrap_or(u64::MAX).min(period_ms))
    }
}
