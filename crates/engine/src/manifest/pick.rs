//! Which tables to merge next: lazy levelling.
//!
//! A key is written once by its flush, once when the flushes of level 0 become a run, and again only where runs are
//! merged into a level that stays one run. So few merges see a key that bytes written stay near the bytes of its value,
//! and the few runs that a lookup must ask are bounded, each by a filter.
//!
//! * Level 0, when it has so many tables, becomes a run above all others. It is cut at the boundaries of the deeper
//!   level that it will be merged into, so that this later merge can be done by parts.
//! * The runs, when there are so many, are merged into the first leveled level, a part of the keys at a time: a table
//!   of the oldest run, with all that overlaps it in the other runs and in that level, and so on until nothing
//!   overlaps. Parts take turns by key order; when the turn is over those runs are gone.
//! * A leveled level over its size gives one table to the next, with those that it overlaps there, taking turns too.
//!
//! * Level 0, or the runs, go on earlier if half of what they hold are deletions, which end where nothing older is, and
//!   if they hide many dead versions (decision 21).
//!
//! * On a nearly full disk, every level is merged on whose versions may replace deeper ones. A merge frees enough for
//!   the bytes that it reads, and fits in the room ([`Version::pick_reclaiming`]).
//!
//! What is fullest beside its size goes first. One merge runs at a time; flushes, which only add to level 0, may run
//! beside it.
//!
//! Follows Dostoevsky's lazy levelling (Dayan and Idreos, SIGMOD 2018) with the guards of PebblesDB (Raju and others,
//! SOSP 2017); decision 12 has the measurements.

use super::version::{FIRST_LEVELED, LEVELS, RUNS_MAX, Version};
use crate::memtable::hash;
use crate::merge::{LedgerSource, Run};
use crate::table::{Table, TableId, TableIter};
use bytes::Bytes;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// When levels are too large.
#[derive(Clone, Copy, Debug)]
pub struct MergeOptions {
    /// So many tables in level 0 are merged.
    pub level0_tables_max: usize,
    /// So many runs are merged into the first leveled level.
    pub runs_max: usize,
    /// The bytes that the first leveled level is for.
    pub leveled_bytes_target: u64,
    /// How many times as large each deeper level is.
    pub level_growth: u64,
    /// A run is cut into parts of about so many bytes at least: each is a file, and merges have a fixed cost.
    pub part_bytes_min: u64,
    /// How many entries of level 0 and of the runs have an older version behind them, in thousandths, as far as is
    /// known.
    pub replacing_thousandths: u64,
}

impl Default for MergeOptions {
    /// By measurement (decision 12).
    fn default() -> MergeOptions {
        MergeOptions {
            level0_tables_max: 8,
            runs_max: 4,
            leveled_bytes_target: 2 << 30,
            level_growth: 10,
            part_bytes_min: 2 << 20,
            replacing_thousandths: 0,
        }
    }
}

impl MergeOptions {
    /// The bytes that a leveled level is for; none for one of runs, which takes what a merge of level 0 brings.
    pub fn level_bytes_target(&self, level: usize) -> u64 {
        let Some(deeper) = level.checked_sub(FIRST_LEVELED) else { return 0 };
        self.leveled_bytes_target.saturating_mul(self.level_growth.saturating_pow(deeper as u32))
    }
}

/// Conditions of a merge that makes room.
#[derive(Clone, Copy, Debug)]
pub struct Reclaiming {
    /// Bytes of the journal and of tables that go with a replaced entry, on average.
    pub entry_bytes: u64,
    /// Bytes that a merge may read for each byte that it frees.
    pub cost: u64,
    /// How many entries have an older version behind them, in thousandths, as far as is known.
    pub replacing_thousandths: u64,
    /// Bytes that a merge may write at most.
    pub room: u64,
}

/// How far the turns of each level have come. Not kept on disk: a new start begins with the first keys.
#[derive(Clone, Debug, Default)]
pub struct MergeCursors {
    /// The last key of the tables that had their turn.
    after: [Bytes; LEVELS],
}

/// A merge to be done.
#[derive(Clone, Debug)]
pub struct MergePlan {
    /// The tables to merge, by the level they are in, from the newest level to the oldest.
    pub inputs: Vec<(usize, Vec<Arc<Table>>)>,
    /// The level that gets the result.
    pub output_level: usize,
    /// Whether deletions end here: no deeper level has a table that could hold one of the keys.
    pub drop_deletions: bool,
    /// Keys before which a new table begins; where there are none, [`Version::fences`] says it.
    pub cuts: Vec<Bytes>,
}

impl MergePlan {
    /// Whether the one input could be put into the output level as it is. The choice is the caller's: a move
    /// drops neither deletions nor dropped ranges.
    pub fn is_move(&self) -> bool {
        self.tables().count() == 1
    }

    /// The tables to merge.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.inputs.iter().flat_map(|(_, tables)| tables)
    }

    /// Whether it only makes tables of one level anew.
    pub fn is_rewrite(&self) -> bool {
        self.inputs.iter().all(|(level, _)| *level == self.output_level)
    }

    /// Upper bound of the output's bytes: those of the inputs, and more for filters and for the ends of more tables.
    pub fn needs(&self) -> u64 {
        self.tables().map(needs).sum::<u64>() + self.cuts.len() as u64 * TABLE_FIXED_BYTES
    }

    /// What goes from the version when the merge's output comes into it.
    pub fn removed(&self) -> Vec<TableId> {
        self.tables().map(|table| table.id()).collect()
    }

    /// What a [`crate::merge::MergeJob`] reads.
    pub fn sources(&self) -> Vec<LedgerSource> {
        let mut sources: Vec<LedgerSource> = Vec::new();
        for (level, tables) in &self.inputs {
            match level {
                0 => sources.extend(tables.iter().map(|table| TableIter::new(Arc::clone(table)).into())),
                _ => sources.push(Run::new(tables.clone()).into()),
            }
        }
        sources
    }
}

/// One entry in so many may hide a dead version: half of what the journal may waste by default. Less would have each
/// entry merged with more of those below, and what they hide is taken into account when the journal's waste is.
pub(crate) const HIDDEN_SHARE: u64 = 7;

/// Runs from which merges for room take runs before level 0: the default of [`MergeOptions::runs_max`].
const RECLAIMED_RUNS_MAX: usize = 4;

/// A level of exactly its size, in thousandths.
const FULL: u64 = 1000;

impl Version {
    /// The merge that is needed most; `None` if no level is too large. Moves on the turn of the level it picks.
    pub fn pick_merge(&self, options: &MergeOptions, cursors: &mut MergeCursors) -> Option<MergePlan> {
        match self.fullest_level(options)? {
            0 => Some(self.merge_of_level0()),
            RUNS_MAX => Some(self.merge_of_runs(&mut cursors.after[RUNS_MAX])),
            level => Some(self.merge_of_level(level, &mut cursors.after[level])),
        }
    }

    /// A part of the merge that is needed most, if the whole needs more than `room`; `None` if no part fits.
    pub fn pick_part(
        &self,
        options: &MergeOptions,
        cursors: &mut MergeCursors,
        room: u64,
    ) -> Option<MergePlan> {
        match self.fullest_level(options)? {
            0 => self.level0_within(room).or_else(|| self.runs_within(&mut cursors.after[RUNS_MAX], room)),
            RUNS_MAX => self.runs_within(&mut cursors.after[RUNS_MAX], room),
            level => self.level_within(level, &mut cursors.after[level], room),
        }
    }

    /// How full the fullest level is, in thousandths of its size.
    pub fn pressure(&self, options: &MergeOptions) -> u64 {
        sized_levels().map(|level| self.fullness(level, options)).max().unwrap_or(0)
    }

    /// Bytes of the levels that are over their size: those of level 0 and of the runs, if there are so many that they
    /// are to be merged, and what leveled levels have too much.
    pub fn merge_debt(&self, options: &MergeOptions) -> u64 {
        let over = |level| (self.fullness(level, options) >= FULL).then(|| self.debt_of(level, options));
        sized_levels().filter_map(over).sum()
    }

    fn debt_of(&self, level: usize, options: &MergeOptions) -> u64 {
        match level {
            0 => self.level_bytes(0),
            RUNS_MAX => self.runs().map(|level| self.level_bytes(level)).sum(),
            _ => self.level_bytes(level).saturating_sub(options.level_bytes_target(level)),
        }
    }

    /// The keys at which a merge's output should be cut, so that merging it on can be done by parts: first keys of
    /// tables of the level that it will be merged into, as many as leave parts of the least size. None if the output is
    /// no run. Which of them is left out depends on the key alone: the parts of two runs then coincide, or the one's
    /// are parts of the other's.
    pub fn fences(&self, plan: &MergePlan, options: &MergeOptions) -> Vec<Bytes> {
        let into = [FIRST_LEVELED, RUNS_MAX].map(|level| self.level(level));
        let Some(below) = into.into_iter().find(|tables| !tables.is_empty()) else { return Vec::new() };
        if plan.output_level > RUNS_MAX {
            return Vec::new();
        }
        let bytes: u64 = plan.tables().map(|table| table.len()).sum();
        let parts = (bytes / options.part_bytes_min.max(1)).max(1);
        let left_out = (below.len() as u64).div_ceil(parts).next_power_of_two() - 1;
        let keys = below.iter().skip(1).map(|table| &table.meta().min_key);
        keys.filter(|key| hash(key) & left_out == 0).cloned().collect()
    }

    /// The next merge that frees room, whatever the sizes of levels; `None` if none gains enough, or fits.
    pub fn pick_reclaiming(&self, cursors: &mut MergeCursors, reclaiming: &Reclaiming) -> Option<MergePlan> {
        let Reclaiming { entry_bytes, cost, .. } = *reclaiming;
        let gains = |entries: u64| entries.saturating_mul(entry_bytes).saturating_mul(cost);
        if self.may_reclaim_above() {
            let [in_level0, in_runs] = self.above_leveled();
            let reads: u64 = (0..=FIRST_LEVELED).map(|level| self.level_bytes(level)).sum();
            if gains(in_level0 + in_runs) >= reads
                && let Some(plan) = self.reclaim_above(&mut cursors.after[RUNS_MAX], reclaiming.room)
            {
                return Some(plan);
            }
        }
        (FIRST_LEVELED..LEVELS - 1).find_map(|level| {
            let is_deepest = (level + 1..LEVELS).all(|deeper| self.level(deeper).is_empty());
            let (entries, deletions) = self.level_entries(level);
            let replacing = entries.saturating_mul(reclaiming.replacing_thousandths) / 1000;
            let reads = self.level_bytes(level) + self.level_bytes(level + 1);
            let is_worth = !is_deepest && entries > 0 && gains(deletions.max(replacing)) >= reads;
            if !is_worth {
                return None;
            }
            self.level_within(level, &mut cursors.after[level], reclaiming.room)
        })
    }

    /// Whether entries above the leveled levels may meet older ones, or be left out.
    fn may_reclaim_above(&self) -> bool {
        let [in_level0, in_runs] = self.above_leveled();
        let sources = self.level(0).len() + self.runs().count();
        let meets = sources > 1 || self.populated().any(|level| level >= FIRST_LEVELED);
        let has_expiring = |level| self.level(level).iter().any(|table| table.meta().expiring > 0);
        let ends = |level| self.level_entries(level).1 > 0 || has_expiring(level);
        in_level0 + in_runs > 0 && (meets || (0..=RUNS_MAX).any(ends))
    }

    /// Merges level 0 into a run, or runs into the first leveled level. If no part of the runs fits with the tables
    /// that it overlaps, tables are cut before.
    fn reclaim_above(&self, after: &mut Bytes, room: u64) -> Option<MergePlan> {
        // Each run makes the parts of the runs' merge larger.
        if self.runs().count() < RECLAIMED_RUNS_MAX {
            self.level0_within(room).or_else(|| self.runs_within(after, room))
        } else {
            self.runs_within(after, room).or_else(|| self.level0_within(room))
        }
    }

    /// A part of the runs that fits, or a table that is to be cut so that one does.
    fn runs_within(&self, after: &mut Bytes, room: u64) -> Option<MergePlan> {
        if self.level(RUNS_MAX).is_empty() {
            return None;
        }
        self.in_turn_within(RUNS_MAX, room, || self.merge_of_runs(after))
            .or_else(|| self.split(1..=FIRST_LEVELED, &[RUNS_MAX, FIRST_LEVELED], room))
    }

    /// A table of a level with all below it, if that fits, or one that is to be cut so that it does.
    fn level_within(&self, level: usize, after: &mut Bytes, room: u64) -> Option<MergePlan> {
        self.in_turn_within(level, room, || self.merge_of_level(level, after))
            .or_else(|| self.split(level..=level, &[level + 1], room))
    }

    /// The oldest tables of level 0 that fit together, if there is a place for a run.
    fn level0_within(&self, room: u64) -> Option<MergePlan> {
        if *self.runs().start() == 1 {
            return None;
        }
        let mut left = room;
        let fits = |table: &&Arc<Table>| {
            let rest = left.checked_sub(needs(table));
            left = rest.unwrap_or(0);
            rest.is_some()
        };
        let count = self.level(0).iter().rev().take_while(fits).count();
        let tables = self.level(0)[self.level(0).len() - count..].to_vec();
        let output_level = self.runs().start() - 1;
        let drop_deletions = self.is_oldest(output_level, &tables);
        (count > 0).then(|| MergePlan {
            inputs: vec![(0, tables)],
            output_level,
            drop_deletions,
            cuts: Vec::new(),
        })
    }

    /// The next of a level's merges that fits, by turns: each table of the level has one.
    fn in_turn_within(
        &self,
        level: usize,
        room: u64,
        mut next: impl FnMut() -> MergePlan,
    ) -> Option<MergePlan> {
        (0..self.level(level).len()).map(|_| next()).find(|plan| plan.needs() <= room)
    }

    /// Cuts a table of these levels at first keys of the tables of `at`, so that merges by parts become small. There
    /// are few cuts at first: a part and the tables below it fit in half of the room. More follow if that is not
    /// enough.
    fn split(&self, levels: RangeInclusive<usize>, at: &[usize], room: u64) -> Option<MergePlan> {
        let below = at.iter().flat_map(|&level| self.level(level));
        let (mut cuts, mut bytes) = (Vec::new(), 0);
        for table in below {
            cuts.push(&table.meta().min_key);
            bytes += needs(table);
        }
        cuts.sort_unstable();
        cuts.dedup();
        let each = bytes / (cuts.len() as u64).max(1);
        let together = (room / 2 / each.max(1)).clamp(1, (cuts.len() as u64).max(1));
        let steps = std::iter::successors(Some(together), |step| (*step > 1).then_some(step / 2));
        steps.into_iter().find_map(|step| {
            let some: Vec<&Bytes> = cuts.iter().step_by(usize::try_from(step).ok()?).copied().collect();
            self.split_at(levels.clone(), &some, room)
        })
    }

    /// The first table of these levels that has keys on both sides of one of the `cuts`, and fits with as many of them
    /// as possible.
    fn split_at(&self, levels: RangeInclusive<usize>, cuts: &[&Bytes], room: u64) -> Option<MergePlan> {
        let within = |table: &Arc<Table>| {
            let from = cuts.partition_point(|cut| **cut <= table.meta().min_key);
            let until = cuts.partition_point(|cut| **cut <= table.meta().max_key);
            let fit = room.saturating_sub(needs(table)) / TABLE_FIXED_BYTES;
            let some = cuts[from..until].iter().take(usize::try_from(fit).unwrap_or(usize::MAX));
            some.map(|&cut| cut.clone()).collect::<Vec<Bytes>>()
        };
        levels.into_iter().find_map(|level| {
            let mut tables = self.level(level).iter();
            let (table, cuts) =
                tables.find_map(|table| Some((table, within(table))).filter(|(_, cuts)| !cuts.is_empty()))?;
            let inputs = vec![(level, vec![Arc::clone(table)])];
            Some(MergePlan { inputs, output_level: level, drop_deletions: false, cuts })
        })
    }

    fn merge_of_level0(&self) -> MergePlan {
        let output_level = self.runs().start() - 1;
        let tables = self.level(0).to_vec();
        let drop_deletions = self.is_oldest(output_level, &tables);
        MergePlan { inputs: vec![(0, tables)], output_level, drop_deletions, cuts: Vec::new() }
    }

    fn merge_of_runs(&self, after: &mut Bytes) -> MergePlan {
        let mut inputs = vec![(RUNS_MAX, vec![self.next_in_turn(RUNS_MAX, after)])];
        let mut chosen = 1;
        loop {
            let (min, max) = key_range(inputs.iter().flat_map(|(_, tables)| tables));
            let overlapping = |level| (level, self.overlapping(level, &min, &max));
            inputs = (*self.runs().start()..=FIRST_LEVELED).map(overlapping).collect();
            let now = inputs.iter().map(|(_, tables)| tables.len()).sum();
            if now == chosen {
                *after = max;
                break;
            }
            chosen = now;
        }
        inputs.retain(|(_, tables)| !tables.is_empty());
        self.plan_into(FIRST_LEVELED, inputs)
    }

    fn merge_of_level(&self, level: usize, after: &mut Bytes) -> MergePlan {
        let upper = vec![self.next_in_turn(level, after)];
        *after = upper[0].meta().max_key.clone();
        let (min, max) = key_range(&upper);
        let lower = self.overlapping(level + 1, &min, &max);
        let inputs = [(level, upper), (level + 1, lower)];
        self.plan_into(level + 1, inputs.into_iter().filter(|(_, tables)| !tables.is_empty()).collect())
    }

    fn plan_into(&self, output_level: usize, inputs: Vec<(usize, Vec<Arc<Table>>)>) -> MergePlan {
        // The lower tables may reach further than the upper ones, and their deletions may end here as well.
        let drop_deletions = self.is_oldest(output_level, inputs.iter().flat_map(|(_, tables)| tables));
        MergePlan { inputs, output_level, drop_deletions, cuts: Vec::new() }
    }

    /// Whether no level below `level` can hold a key that is between those of the tables.
    fn is_oldest<'a>(&self, level: usize, tables: impl IntoIterator<Item = &'a Arc<Table>> + Clone) -> bool {
        let (min, max) = key_range(tables);
        (level + 1..LEVELS).all(|deeper| self.overlapping(deeper, &min, &max).is_empty())
    }

    fn fullest_level(&self, options: &MergeOptions) -> Option<usize> {
        // On a tie the upper level goes first: every lookup passes it.
        let fullness = |level| {
            let needs =
                self.fullness(level, options).max(self.deadness(level)).max(self.hiding(level, options));
            (needs, std::cmp::Reverse(level))
        };
        let level = sized_levels().max_by_key(|&level| fullness(level))?;
        if fullness(level).0 < FULL {
            return None;
        }
        // Level 0 needs a place among the runs; if there is none, the runs go first.
        Some(if level == 0 && *self.runs().start() == 1 { RUNS_MAX } else { level })
    }

    /// A level 0, or runs, of which half are deletions count as full: they are merged on until nothing needs these.
    fn deadness(&self, level: usize) -> u64 {
        let (entries, deletions) = match level {
            0 => self.level_entries(0),
            RUNS_MAX => {
                let runs = self.runs().map(|level| self.level_entries(level));
                runs.fold((0, 0), |sum, run| (sum.0 + run.0, sum.1 + run.1))
            }
            _ => return 0,
        };
        if deletions > 0 && deletions * 2 >= entries { FULL } else { 0 }
    }

    /// Level 0 or the runs, whichever hides more, count as full when both together hide too many dead versions: values
    /// that nobody knows to be dead stay in the journal, and a value is many times as large as its entry.
    fn hiding(&self, level: usize, options: &MergeOptions) -> u64 {
        let [in_level0, in_runs] = self.above_leveled();
        let hidden = (in_level0 + in_runs).saturating_mul(options.replacing_thousandths) / 1000;
        if hidden == 0 || hidden * HIDDEN_SHARE < self.entries() {
            return 0;
        }
        // What a merge would find something for.
        let from_level0 = self.level(0).len() > 1;
        let from_runs = self.runs().count() > 1 || in_runs > 0 && !self.level(FIRST_LEVELED).is_empty();
        let level0_first = from_level0 && (in_level0 >= in_runs || !from_runs);
        let is_first = match level {
            0 => level0_first,
            RUNS_MAX => from_runs && !level0_first,
            _ => false,
        };
        if is_first { FULL } else { 0 }
    }

    /// Entries that were not merged into what is older yet: of level 0, and of the runs.
    pub fn above_leveled(&self) -> [u64; 2] {
        [self.level_entries(0).0, self.runs().map(|level| self.level_entries(level).0).sum()]
    }

    /// All entries.
    pub fn entries(&self) -> u64 {
        (0..LEVELS).map(|level| self.level_entries(level).0).sum()
    }

    fn fullness(&self, level: usize, options: &MergeOptions) -> u64 {
        let (size, target) = match level {
            0 => (self.level(0).len() as u64, options.level0_tables_max as u64),
            RUNS_MAX => (self.runs().count() as u64, options.runs_max.min(RUNS_MAX) as u64),
            _ => (self.level_bytes(level), options.level_bytes_target(level)),
        };
        size.saturating_mul(FULL) / target.max(1)
    }

    /// The first table of a level behind the key where its turn has come to.
    fn next_in_turn(&self, level: usize, after: &Bytes) -> Arc<Table> {
        let tables = self.level(level);
        let next = tables.partition_point(|table| table.meta().min_key <= *after);
        // Past the last one, or before the first turn, it begins anew.
        Arc::clone(tables.get(next).filter(|_| !after.is_empty()).unwrap_or(&tables[0]))
    }
}

/// The levels that have a size: 0, the last of the runs for all of them, and the leveled ones but the deepest, which
/// takes what comes.
fn sized_levels() -> impl Iterator<Item = usize> {
    std::iter::once(0).chain(RUNS_MAX..LEVELS - 1)
}

/// Bytes of a table beside its blocks: filter, index, figures and footer.
const TABLE_FIXED_BYTES: u64 = 1 << 10;

/// Bytes that the entries of a table may take in another.
fn needs(table: &Arc<Table>) -> u64 {
    table.len() + table.len() / 8
}

fn key_range<'a>(tables: impl IntoIterator<Item = &'a Arc<Table>> + Clone) -> (Bytes, Bytes) {
    let min = tables.clone().into_iter().map(|table| &table.meta().min_key).min();
    let max = tables.into_iter().map(|table| &table.meta().max_key).max();
    (min.cloned().unwrap_or_default(), max.cloned().unwrap_or_default())
}
