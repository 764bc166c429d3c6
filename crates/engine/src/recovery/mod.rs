//! Recovery of a ledger: its tables are made again from the journal.
//!
//! The journal holds every value that is not inline, and, for each key that it knows at all, the key's newest record
//! ([`crate::compaction`]). So the newest version of each key that the journal knows is known for certain, whatever
//! became of the tables. What only tables have are inline values whose record compaction has let go of: a file in the
//! store's folder says that there is none such (`JOURNAL-IS-WHOLE`), and goes before the first of them does.
//!
//! Steps
//! 1. `survey`: which segments count, in which order, and from which on a start replays them anyway.
//! 2. `gather`, in parallel: the heads of a group of segments, sorted, become a table in the folder `rebuild`: a run.
//!    What else was found in the group is in notes beside it (`notes`). A group whose notes are there is done: so a
//!    rebuild that was killed goes on where it was.
//! 3. `join`, in parallel: the runs, and the tables that are whole, become new tables: the newest version of each key.
//! 4. The manifest that names them is written, all at once. Until then the store is what it was.
//!
//! Tables count only if a manifest names them: of others nobody knows whether they were replaced, and what they have
//! may have been deleted since. A rebuild with a manifest heals ranges of which versions were lost ([`crate::lost`]);
//! what was in such a range, and is not known for certain, goes on to be an error.
//!
//! Index entries ([`crate::index`]) are left out: their records need not be there any more, nor those of their
//! deletions. The store makes them anew from the heads once it is open.
//!
//! Invariants: memory is bounded by a group's heads for each job under way; no value is read where a segment has its
//! block of heads; deletions, range drops and ends of versions count as ever, so nothing comes back.
//!
//! Left out: a journal that has lost a whole segment without a manifest that says so cannot be told from one in which
//! compaction kept nothing of it.

mod gather;
mod join;
mod notes;
mod survey;

use crate::checkpoint;
use crate::compaction::Account;
use crate::drops::{DroppedRanges, RangeDrop};
use crate::entry::{Jsn, Seq};
use crate::error::{Damage, Error};
use crate::lost::{LostRange, LostRanges};
use crate::manifest::{self, FIRST_LEVELED, GroupsRecord, LEVELS, ManifestState, SegmentRecord};
use crate::store::{LEASE_COUNTERS, Options, TABLES_DIR, WHOLE_FILE, open_table, position};
use crate::table::{Table, TableId};
use base::disk::{self, DiskErrorKind, DiskOp};
use base::spawn::Outcome;
use base::{Disk, FastMap, Job, Progress, Rng};
use gather::Gather;
use join::{Join, Joined};
use notes::Notes;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use survey::Survey;

/// The folder of runs and notes in a store's folder.
pub(crate) const REBUILD_DIR: &str = "rebuild";

/// The new tables are made in so many parts, by key: as many as run in parallel with some use.
const PARTS: usize = 8;

/// Less than this in all is one part.
const PART_ENTRIES_MIN: u64 = 20_000;

/// Numbers of tables that a part may use.
const PART_TABLES_MAX: u64 = 1 << 20;

/// Runs jobs to their end, in parallel on disks of its own, or one after another on the one given ([`in_turn`]).
pub type RunJobs<'a> = &'a mut dyn FnMut(&mut dyn Disk, Vec<Box<dyn Job>>);

/// Makes the ledger of the store in `dir` again, which nobody has open. See [`rebuild`]. The store stays locked until
/// `disk` and its other handles are dropped.
pub fn repair_store(
    disk: &mut dyn Disk,
    dir: &Path,
    options: &Options,
    rng: &mut dyn Rng,
    run: RunJobs<'_>,
    progress: &Arc<RebuildProgress>,
) -> Result<RebuildReport, Error> {
    crate::check::lock(disk, dir)?;
    rebuild(disk, dir, options, rng, run, progress)
}

/// Runs jobs one after another on `disk`.
pub fn in_turn(disk: &mut dyn Disk, jobs: Vec<Box<dyn Job>>) {
    for mut job in jobs {
        while job.slice(disk) == Progress::More {}
    }
}

/// How far a rebuild has come; shared with whoever shows it.
#[derive(Debug, Default)]
pub struct RebuildProgress {
    /// Segments to be read.
    pub segments: AtomicU64,
    /// Segments that have been read.
    pub segments_read: AtomicU64,
    /// Entries to be joined; 0 until all segments have been read.
    pub entries: AtomicU64,
    /// Entries that have been joined.
    pub entries_joined: AtomicU64,
}

/// What a rebuild has made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RebuildReport {
    /// Segments whose heads were read, now or by a rebuild that was killed.
    pub segments: u64,
    /// Of these, segments that an earlier rebuild had read.
    pub segments_resumed: u64,
    /// Keys in the new tables.
    pub keys: u64,
    /// Places that are damaged.
    pub damage: Vec<Damage>,
    /// Ranges of which versions are lost.
    pub lost: Vec<LostRange>,
}

/// Makes the ledger of the store in `dir` again, whose lock the caller holds. `options` say how large tables are, and
/// what the store remembers for its owner if no manifest says so. Blocks.
pub fn rebuild(
    disk: &mut dyn Disk,
    dir: &Path,
    options: &Options,
    rng: &mut dyn Rng,
    run: RunJobs<'_>,
    progress: &Arc<RebuildProgress>,
) -> Result<RebuildReport, Error> {
    let mut report = RebuildReport::default();
    let state = known_state(disk, dir, &mut report)?;
    let mut rebuild = Rebuild { disk, dir, options, state, progress, report };
    let survey = Survey::of(rebuild.disk, dir, rebuild.state.as_ref())?;
    let notes = rebuild.gather(&survey, run)?;
    let (tables, before) = rebuild.whole_tables(&survey)?;
    let joined = rebuild.join(&survey, &notes, tables, &before, run)?;
    let state = rebuild.new_state(&survey, &notes, &before, joined, rng)?;
    // What somebody kept beside the old tables says nothing of the new ones.
    checkpoint::remove(rebuild.disk, dir)?;
    manifest::write(rebuild.disk, dir, &state)?;
    clean(rebuild.disk, &dir.join(REBUILD_DIR))?;
    rebuild.report.lost = state.lost;
    Ok(rebuild.report)
}

/// What the manifest says, if there is one that can be read.
fn known_state(
    disk: &mut dyn Disk,
    dir: &Path,
    report: &mut RebuildReport,
) -> Result<Option<ManifestState>, Error> {
    match manifest::find(disk, dir) {
        Ok(found) => Ok(found.map(|found| {
            report.damage.extend(found.damage);
            found.state
        })),
        Err(Error::Damaged(damage)) => {
            report.damage.push(damage);
            Ok(None)
        }
        Err(other) => Err(other),
    }
}

struct Rebuild<'a> {
    disk: &'a mut dyn Disk,
    dir: &'a Path,
    options: &'a Options,
    state: Option<ManifestState>,
    progress: &'a Arc<RebuildProgress>,
    report: RebuildReport,
}

impl Rebuild<'_> {
    /// 2. Runs and notes of all groups.
    fn gather(&mut self, survey: &Survey, run: RunJobs<'_>) -> Result<Vec<Notes>, Error> {
        let folder = self.dir.join(REBUILD_DIR);
        disk::run(self.disk, DiskOp::CreateDir { path: folder.clone() })?;
        disk::run(self.disk, DiskOp::SyncDir { path: self.dir.to_path_buf() })?;
        if !survey.is_planned(self.disk, &folder)? {
            clean(self.disk, &folder)?;
            survey.plan(self.disk, &folder)?;
        }
        let segments: usize = survey.groups.iter().map(Vec::len).sum();
        self.report.segments = segments as u64;
        self.progress.segments.store(segments as u64, Ordering::Relaxed);
        let (mut all, mut jobs): (Vec<Option<Notes>>, Vec<Box<dyn Job>>) = (Vec::new(), Vec::new());
        let mut outcomes = Vec::new();
        for (number, group) in survey.groups.iter().enumerate() {
            let known = notes::read(self.disk, &folder, number)?;
            if known.is_some() {
                self.report.segments_resumed += group.len() as u64;
                self.progress.segments_read.fetch_add(group.len() as u64, Ordering::Relaxed);
            } else {
                let outcome = Outcome::new();
                let progress = Arc::clone(self.progress);
                jobs.push(Box::new(Gather::new(self.dir, number, group.clone(), progress, outcome.clone())));
                outcomes.push((number, outcome));
            }
            all.push(known);
        }
        run(self.disk, jobs);
        for (number, outcome) in outcomes {
            all[number] = Some(outcome.take().expect("the caller runs jobs to their end")?);
        }
        let all: Vec<Notes> = all.into_iter().flatten().collect();
        all.iter().flat_map(|notes| &notes.damage).for_each(|damage| self.report.damage.push(damage.clone()));
        Ok(all)
    }

    /// The tables that the manifest names and that can be read, and what is lost with the others.
    fn whole_tables(&mut self, survey: &Survey) -> Result<(Vec<Arc<Table>>, Arc<LostRanges>), Error> {
        let Some(state) = self.state.as_ref().filter(|_| !survey.is_newer) else {
            let damage = Damage { file: TABLES_DIR.to_owned(), offset: 0, what: "no manifest names them" };
            return Ok((Vec::new(), LostRanges::new([LostRange::everything(Seq(u64::MAX), damage)])));
        };
        let (mut tables, mut lost) = (Vec::new(), state.lost.clone());
        for record in state.levels.iter().flatten() {
            match open_table(self.disk, &self.dir.join(TABLES_DIR), record)? {
                Ok(table) => tables.push(Arc::new(table)),
                Err(damage) => {
                    self.report.damage.push(damage.clone());
                    lost.push(record.lost(damage));
                }
            }
        }
        Ok((tables, LostRanges::new(lost)))
    }

    /// 3. The new tables.
    fn join(
        &mut self,
        survey: &Survey,
        notes: &[Notes],
        tables: Vec<Arc<Table>>,
        before: &Arc<LostRanges>,
        run: RunJobs<'_>,
    ) -> Result<Joined, Error> {
        let folder = self.dir.join(REBUILD_DIR);
        let mut runs = Vec::new();
        // Where a segment is missing, what an older one has may have been deleted since: then the tables alone count.
        let counts = |notes: &Notes| notes.entries > 0 && survey.missing.is_empty();
        for (number, _) in notes.iter().enumerate().filter(|(_, notes)| counts(notes)) {
            runs.push(Arc::new(Table::open(self.disk, &folder, gather::run_id(number))?));
        }
        let first_id = self.first_table_id()?;
        let dropped = DroppedRanges::with_index(self.drops(notes), self.options.indexing);
        let entries = runs.iter().chain(&tables).map(|table| table.meta().entries).sum();
        self.progress.entries.store(entries, Ordering::Relaxed);
        let fences = fences(&runs, &tables, entries);
        let (mut jobs, mut outcomes): (Vec<Box<dyn Job>>, Vec<_>) = (Vec::new(), Vec::new());
        for part in 0..=fences.len() {
            let outcome = Outcome::new();
            jobs.push(Box::new(Join::new(join::JoinRequest {
                dir: self.dir.join(TABLES_DIR),
                first_id: TableId(first_id.0 + part as u64 * PART_TABLES_MAX),
                table_bytes_target: self.options.table_bytes_target,
                runs: runs.clone(),
                tables: tables.clone(),
                from: part.checked_sub(1).map(|before| fences[before].clone()),
                to: fences.get(part).cloned(),
                dropped: Arc::clone(&dropped),
                indexing: self.options.indexing,
                lost: Arc::clone(before),
                segments: segment_starts(notes),
                progress: Arc::clone(self.progress),
                outcome: outcome.clone(),
            })));
            outcomes.push(outcome);
        }
        run(self.disk, jobs);
        let mut all = Joined::default();
        for outcome in outcomes {
            all.append(outcome.take().expect("the caller runs jobs to their end"))?;
        }
        for table in runs.iter().chain(&tables) {
            // They were only read.
            disk::run(self.disk, table.close_op()).ok();
        }
        disk::run(self.disk, DiskOp::SyncDir { path: self.dir.join(TABLES_DIR) })?;
        self.report.damage.extend(all.lost.iter().map(|lost| lost.damage.clone()));
        self.report.keys = all.keys;
        Ok(all)
    }

    /// A number above those of all tables whose files are there, whoever named them.
    fn first_table_id(&mut self) -> Result<TableId, Error> {
        let names = disk::list(self.disk, &self.dir.join(TABLES_DIR))?;
        let there = names.iter().filter_map(|name| TableId::from_file_name(name)).max();
        let known = self.state.as_ref().map_or(TableId(1), |state| state.next_table_id);
        Ok(known.max(TableId(there.map_or(0, |id| id.0) + 1)))
    }

    /// Drops that the journal has, and those that the manifest knows.
    fn drops(&self, notes: &[Notes]) -> Vec<RangeDrop> {
        let known = self.state.iter().flat_map(|state| state.drops.clone());
        let mut drops: Vec<_> = notes.iter().flat_map(|notes| notes.drops.clone()).chain(known).collect();
        drops.sort_by_key(|drop| drop.seq);
        drops.dedup_by_key(|drop| drop.seq);
        drops
    }

    /// 4. The store as it is now.
    fn new_state(
        &mut self,
        survey: &Survey,
        notes: &[Notes],
        before: &LostRanges,
        joined: Joined,
        rng: &mut dyn Rng,
    ) -> Result<ManifestState, Error> {
        let is_whole = self.is_whole()? && !survey.is_newer;
        let lost = self.still_lost(survey, notes, before, &joined, is_whole);
        let bytes: u64 = joined.tables.iter().map(|record| record.len).sum();
        let levels = self.options.levels();
        let fits = |level: &usize| bytes <= levels.level_bytes_target(*level) || level + 1 == LEVELS;
        let level = (FIRST_LEVELED..LEVELS).find(fits).unwrap_or(LEVELS - 1);
        let last_seq = notes.iter().map(Notes::last_seq).max().unwrap_or_default();
        let last_jsn = survey.end_jsn.0.saturating_sub(1);
        // Numbers of records that compaction has let go of may have been the last ones.
        let known_jsn = notes.iter().map(|notes| notes.last_jsn.0).max().unwrap_or(0);
        let old = self.state.take();
        // Entries of groups' logs are left out, and states that compaction has let go of.
        let known = old.as_ref().and_then(|old| old.groups);
        let state_tag =
            known.and_then(|known| known.state_tag).or(self.options.groups.map(|keys| keys.state_tag));
        let has_groups = known.is_some() || notes.iter().any(|notes| notes.has_groups);
        let groups = has_groups.then_some(GroupsRecord { state_tag, oldest: None, may_be_lost: true });
        // A mark gives a seq to each entry that it speaks of: no more in all than there are records.
        let by_marks = if has_groups { last_jsn } else { 0 };
        let last_seq = Seq(last_seq.0 + last_jsn.saturating_sub(known_jsn) + by_marks);
        let leased = old.as_ref().map_or(1, |old| old.dot_lease_end + 2 * LEASE_COUNTERS);
        let next_table_id = joined.tables.iter().map(|record| record.id.0 + 1).max().unwrap_or(1);
        let mut state = ManifestState {
            incarnation: old.as_ref().map_or_else(|| rng.next_u64().max(1), |old| old.incarnation),
            dot_lease_end: leased,
            // Then all of the journal that there was then was synced.
            clean: old.as_ref().and_then(|old| old.clean),
            next_table_id: TableId(next_table_id).max(self.first_table_id()?),
            next_segment_id: survey.next_segment.max(old.as_ref().map_or(1, |old| old.next_segment_id)),
            replay_jsn: survey.end_jsn,
            replay_position: position(survey.replay_from),
            last_seq: last_seq.max(old.as_ref().map_or(Seq(0), |old| old.last_seq)),
            last_jsn: Jsn(last_jsn).max(old.as_ref().map_or(Jsn(0), |old| old.last_jsn)),
            levels: vec![Vec::new(); LEVELS],
            segments: segments(survey, notes, &joined),
            metadata: old.map_or_else(|| self.options.metadata.clone(), |old| old.metadata),
            lost,
            drops: Vec::new(),
            groups,
        };
        state.levels[level] = joined.tables;
        Ok(state)
    }

    /// Whether the journal has everything that tables have.
    fn is_whole(&mut self) -> Result<bool, Error> {
        Ok(disk::list(self.disk, self.dir)?.iter().any(|name| name == WHOLE_FILE))
    }

    fn still_lost(
        &self,
        survey: &Survey,
        notes: &[Notes],
        before: &LostRanges,
        joined: &Joined,
        is_whole: bool,
    ) -> Vec<LostRange> {
        let in_journal = notes.iter().flat_map(|notes| notes.lost.clone());
        let all_there = survey.missing.is_empty();
        // What is left there is in the journal, and so the newest.
        let healed = |range: &LostRange| LostRange { below: Seq(0), ..range.clone() };
        let in_tables = before.iter().chain(&joined.lost);
        let in_tables: Vec<LostRange> = match (all_there, is_whole) {
            (true, true) => Vec::new(),
            (true, false) => in_tables.map(healed).collect(),
            (false, _) => in_tables.cloned().collect(),
        };
        LostRanges::new(in_tables.into_iter().chain(in_journal)).iter().cloned().collect()
    }
}

/// Keys that part the entries about evenly.
fn fences(runs: &[Arc<Table>], tables: &[Arc<Table>], entries: u64) -> Vec<Vec<u8>> {
    let parts = usize::try_from(entries / PART_ENTRIES_MIN).unwrap_or(PARTS).clamp(1, PARTS);
    let mut keys: Vec<Vec<u8>> = runs.iter().chain(tables).flat_map(|table| table.sample_keys()).collect();
    keys.sort_unstable();
    let mut fences: Vec<_> =
        (1..parts).filter_map(|part| keys.get(part * keys.len() / parts).cloned()).collect();
    fences.dedup();
    fences
}

/// The first number of each segment that was gathered, and the segment, ascending.
fn segment_starts(notes: &[Notes]) -> Arc<[(Jsn, u64)]> {
    let mut starts: Vec<_> =
        notes.iter().flat_map(|notes| &notes.accounts).map(|a| (a.first_jsn, a.id)).collect();
    starts.sort_unstable();
    starts.into()
}

fn segments(survey: &Survey, notes: &[Notes], joined: &Joined) -> Vec<SegmentRecord> {
    let mut accounts: FastMap<u64, Account> = FastMap::default();
    for known in notes.iter().flat_map(|notes| &notes.accounts) {
        let live = joined.live.get(&known.id).copied().unwrap_or(0);
        let dead_bytes = known.account.value_bytes.saturating_sub(live);
        accounts.insert(known.id, Account { dead_bytes, ..known.account });
    }
    let named =
        survey.groups.iter().flatten().map(|found| (found.id, found.first_jsn)).chain(survey.missing.clone());
    let mut records: Vec<SegmentRecord> = named
        .map(|(id, first_jsn)| SegmentRecord {
            id: id.0,
            first_jsn,
            last_jsn: Jsn(0),
            len: 0,
            sealed: id.is_compacted(),
            account: accounts.get(&id.0).copied().unwrap_or_default(),
        })
        .collect();
    records.sort_by_key(|record| (record.first_jsn, record.id));
    records
}

/// Removes the files of a folder.
fn clean(disk: &mut dyn Disk, folder: &Path) -> Result<(), Error> {
    let names = match disk::list(disk, folder) {
        Err(error) if error.kind == DiskErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for name in names {
        disk::run(disk, DiskOp::Remove { path: folder.join(name) })?;
    }
    disk::run(disk, DiskOp::SyncDir { path: folder.to_path_buf() })?;
    Ok(())
}
