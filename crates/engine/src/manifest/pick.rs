//! Which tables to merge next.
//!
//! Each level has a size it should not exceed: level 0 a number of tables, since a lookup asks each of them, and
//! each deeper level so many bytes. The level that exceeds its size the most is merged into the next: of level 0
//! all tables, of a deeper level one, and with them the tables of the next level that they overlap. The tables of
//! a level take turns by key order, so that all of its keys sink alike.
//!
//! One merge runs at a time; flushes, which only add to level 0, may run beside it.

use super::version::{LEVELS, Version};
use crate::merge::{Run, Source};
use crate::table::{Table, TableId, TableIter};
use bytes::Bytes;
use std::sync::Arc;

/// When levels are too large.
#[derive(Clone, Copy, Debug)]
pub struct MergeOptions {
    /// So many tables in level 0 are merged.
    pub level0_tables_max: usize,
    /// The bytes that level 1 is for.
    pub level1_bytes_target: u64,
    /// How many times as large each deeper level is.
    pub level_growth: u64,
}

impl Default for MergeOptions {
    /// LevelDB's proportions: 4 tables in level 0, 64 MiB in level 1, a factor of 10.
    fn default() -> MergeOptions {
        MergeOptions { level0_tables_max: 4, level1_bytes_target: 64 << 20, level_growth: 10 }
    }
}

impl MergeOptions {
    /// The bytes that a level below 0 is for.
    pub fn level_bytes_target(&self, level: usize) -> u64 {
        let growth = self.level_growth.saturating_pow(level as u32 - 1);
        self.level1_bytes_target.saturating_mul(growth)
    }
}

/// How far the turns of each level have come. Not kept on disk: a new start begins with the first keys.
#[derive(Clone, Debug, Default)]
pub struct MergeCursors {
    /// The last key of the table that had its turn.
    after: [Bytes; LEVELS],
}

/// A merge to be done.
#[derive(Clone, Debug)]
pub struct MergePlan {
    /// The tables to merge, by the level they are in: of the upper level, then of the output level.
    pub inputs: Vec<(usize, Vec<Arc<Table>>)>,
    /// The level that gets the result.
    pub output_level: usize,
    /// Whether deletions end here: no deeper level has a table that could hold one of the keys.
    pub drop_deletions: bool,
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

    /// What goes from the version when the merge's output comes into it.
    pub fn removed(&self) -> Vec<TableId> {
        self.tables().map(|table| table.id()).collect()
    }

    /// What a [`crate::merge::MergeJob`] reads.
    pub fn sources(&self) -> Vec<Box<dyn Source>> {
        let mut sources: Vec<Box<dyn Source>> = Vec::new();
        for (level, tables) in &self.inputs {
            match level {
                0 => sources.extend(tables.iter().map(|table| {
                    let source: Box<dyn Source> = Box::new(TableIter::new(Arc::clone(table)));
                    source
                })),
                _ => sources.push(Box::new(Run::new(tables.clone()))),
            }
        }
        sources
    }
}

impl Version {
    /// The merge that is needed most; `None` if no level is too large. Moves on the turn of the level it picks.
    pub fn pick_merge(&self, options: &MergeOptions, cursors: &mut MergeCursors) -> Option<MergePlan> {
        let level = self.most_excessive_level(options)?;
        let output_level = level + 1;
        let upper = if level == 0 {
            self.level(0).to_vec()
        } else {
            vec![self.take_turn(level, &mut cursors.after[level])]
        };
        let (min, max) = key_range(&upper);
        let lower = self.overlapping(output_level, &min, &max);
        // The lower tables reach further than the upper ones, and their deletions may end here as well.
        let (min, max) = key_range(upper.iter().chain(&lower));
        let drop_deletions =
            (output_level + 1..LEVELS).all(|deeper| self.overlapping(deeper, &min, &max).is_empty());
        let inputs = [(level, upper), (output_level, lower)];
        let inputs = inputs.into_iter().filter(|(_, tables)| !tables.is_empty()).collect();
        Some(MergePlan { inputs, output_level, drop_deletions })
    }

    /// How full the fullest level is, in thousandths of its size: for refusing writes before reads suffer.
    pub fn pressure(&self, options: &MergeOptions) -> u64 {
        (0..LEVELS - 1).map(|level| self.fullness(level, options)).max().unwrap_or(0)
    }

    fn most_excessive_level(&self, options: &MergeOptions) -> Option<usize> {
        // The deepest level takes what comes. On a tie the upper level goes first: every lookup passes it.
        let fullness = |level| (self.fullness(level, options), std::cmp::Reverse(level));
        let level = (0..LEVELS - 1).max_by_key(|&level| fullness(level))?;
        (self.fullness(level, options) >= FULL).then_some(level)
    }

    fn fullness(&self, level: usize, options: &MergeOptions) -> u64 {
        let (size, target) = if level == 0 {
            (self.level(0).len() as u64, options.level0_tables_max as u64)
        } else {
            (self.level_bytes(level), options.level_bytes_target(level))
        };
        size.saturating_mul(FULL) / target.max(1)
    }

    fn take_turn(&self, level: usize, after: &mut Bytes) -> Arc<Table> {
        let tables = self.level(level);
        let next = tables.partition_point(|table| table.meta().min_key <= *after);
        // Past the last one, or before the first turn, it begins anew.
        let table = tables.get(next).filter(|_| !after.is_empty()).unwrap_or(&tables[0]);
        *after = table.meta().max_key.clone();
        Arc::clone(table)
    }
}

/// A level of exactly its size, in thousandths.
const FULL: u64 = 1000;

fn key_range<'a>(tables: impl IntoIterator<Item = &'a Arc<Table>> + Clone) -> (Bytes, Bytes) {
    let min = tables.clone().into_iter().map(|table| &table.meta().min_key).min();
    let max = tables.into_iter().map(|table| &table.meta().max_key).max();
    (min.cloned().unwrap_or_default(), max.cloned().unwrap_or_default())
}
