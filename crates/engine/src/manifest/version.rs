//! The tables of a store at one moment, in levels.
//!
//! Level 0 has the tables of flushes, which overlap, newest first. Each level below it is one sorted run, and what it
//! has of a key is older than what any level above it has: levels 1 to [`RUNS_MAX`] hold runs of like size, those from
//! [`FIRST_LEVELED`] on grow by a factor each.

use super::TableRecord;
use crate::table::{KeyArray, Table, TableId};
use std::sync::Arc;

/// Levels below 0 that hold runs as level 0 was merged into them, the newest first: each the work of one merge, and
/// none larger than another. Twice as many as wait to be merged on at most, so that new ones find a place meanwhile.
pub const RUNS_MAX: usize = 10;

/// The first level that is one run for as long as it lives. With 2 GiB in it and ten times as much in each deeper one,
/// the last is for 20 TB of heads.
pub const FIRST_LEVELED: usize = RUNS_MAX + 1;

/// How many levels there are.
pub const LEVELS: usize = FIRST_LEVELED + 5;

/// An immutable arrangement of tables. Shared by whoever reads; the next one is made by [`Version::apply`].
#[derive(Debug)]
pub struct Version {
    levels: [Level; LEVELS],
    /// The first level below 0 that holds a run; [`FIRST_LEVELED`] if none does.
    first_run: usize,
    /// A bit for each level below 0 that holds tables: a lookup asks no other.
    populated: u32,
}

const _: () = assert!(LEVELS <= u32::BITS as usize);

#[derive(Debug, Default)]
struct Level {
    tables: Arc<[Arc<Table>]>,
    /// The first key of each table; empty in level 0, which is not searched but walked.
    min_keys: KeyArray,
    bytes: u64,
    entries: u64,
    deletions: u64,
}

/// How far a lookup of a key has come in a version, and where in its levels the key can be: see [`Version::cursor`].
#[derive(Clone, Copy, Debug)]
pub struct TableCursor {
    level: usize,
    /// In level 0, the next table to look at.
    index: usize,
    /// In each level below 0, how many tables begin at or before the key: the last of them can hold it.
    counts: [u32; LEVELS],
}

impl TableCursor {
    /// The level of the table that [`Version::next_table`] gave last.
    pub fn level(&self) -> usize {
        // Below level 0 it stands at the level to be asked next.
        self.level.saturating_sub(1)
    }
}

impl Default for Version {
    /// A version of no tables.
    fn default() -> Version {
        Version::new(Default::default())
    }
}

impl Version {
    /// A version of these tables; runs take the lowest places for runs. Panics if they break an invariant of levels:
    /// see [`Version::invariants`].
    pub fn new(mut levels: [Vec<Arc<Table>>; LEVELS]) -> Version {
        let first_run = sink_runs(&mut levels);
        let populated =
            (1..LEVELS).filter(|&level| !levels[level].is_empty()).fold(0, |bits, level| bits | 1 << level);
        let mut number = 0;
        let version = Version {
            levels: levels.map(|tables| {
                number += 1;
                Level::new(tables, number > 1)
            }),
            first_run,
            populated,
        };
        if cfg!(debug_assertions) {
            version.invariants();
        }
        version
    }

    /// The version after `removed` have gone and `added` have come into their levels. A table that moves is in
    /// both. What is added to level 0 is newer than what is there; the first of several is the newest.
    pub fn apply(&self, added: &[(usize, Arc<Table>)], removed: &[TableId]) -> Version {
        let mut levels: [Vec<Arc<Table>>; LEVELS] = std::array::from_fn(|level| {
            let stays = |table: &&Arc<Table>| !removed.contains(&table.id());
            let new = added.iter().filter(|(to, _)| *to == level).map(|(_, table)| table);
            new.chain(self.levels[level].tables.iter().filter(stays)).map(Arc::clone).collect()
        });
        for tables in &mut levels[1..] {
            tables.sort_by(|a, b| a.meta().min_key.cmp(&b.meta().min_key));
        }
        Version::new(levels)
    }

    /// The start of a lookup of `key`. Where there are levels below 0 it tells `ahead` of the tables that will be
    /// asked, whatever they say: whoever asks for memory of all of them at once waits for it once, where one after the
    /// other are as many waits.
    #[inline]
    pub fn cursor(&self, key: &[u8], mut ahead: impl FnMut(&Table)) -> TableCursor {
        let mut cursor = TableCursor { level: 0, index: 0, counts: [0; LEVELS] };
        if self.populated == 0 {
            // What level 0 has is small, and a processor looks ahead by itself from one table to the next.
            return cursor;
        }
        self.levels[0].tables.iter().for_each(|table| ahead(table));
        for level in levels_in(self.populated) {
            let Level { tables, min_keys, .. } = &self.levels[level];
            let count = min_keys.count_at_most(key);
            cursor.counts[level] =
                u32::try_from(count).expect("a level of 2^32 tables has more keys than there are");
            if let Some(last) = count.checked_sub(1) {
                ahead(&tables[last]);
            }
        }
        cursor
    }

    /// The next table that can hold `key`, from the newest to the oldest: the first that has it has its newest
    /// version. `cursor`, which was made for this key, says where the lookup stands, and is moved on.
    #[inline]
    pub fn next_table(&self, key: &[u8], cursor: &mut TableCursor) -> Option<&Arc<Table>> {
        self.next_table_if(key, cursor, |_| true)
    }

    /// [`Version::next_table`] of those tables of which `may_hold` is true. It is asked before a table's keys are
    /// looked at, which lie elsewhere in memory: a filter says "no" sooner than they do.
    #[inline]
    pub fn next_table_if(
        &self,
        key: &[u8],
        cursor: &mut TableCursor,
        mut may_hold: impl FnMut(&Table) -> bool,
    ) -> Option<&Arc<Table>> {
        if cursor.level == 0 {
            while let Some(table) = self.levels[0].tables.get(cursor.index) {
                cursor.index += 1;
                if may_hold(table) && table.meta().covers(key) {
                    return Some(table);
                }
            }
            cursor.level = 1;
        }
        let left = self.populated.checked_shr(cursor.level as u32).unwrap_or(0);
        for level in levels_in(left).map(|level| cursor.level + level) {
            let Some(last) = cursor.counts[level].checked_sub(1) else { continue };
            let table = &self.levels[level].tables[last as usize];
            if may_hold(table) && *key <= *table.meta().max_key {
                cursor.level = level + 1;
                return Some(table);
            }
        }
        cursor.level = LEVELS;
        None
    }

    /// The tables that can hold `key`, from the newest to the oldest.
    pub fn tables_for(&self, key: &[u8]) -> impl Iterator<Item = &Arc<Table>> {
        let mut cursor = self.cursor(key, |_| ());
        std::iter::from_fn(move || self.next_table(key, &mut cursor))
    }

    /// Whether the oldest run or a leveled level may hold `key`, whose hash is given, as far as filters tell: where
    /// most of a ledger is that is more than a few memtables large. Of a smaller one all is in level 0, which is asked
    /// then.
    pub fn may_hold_deep(&self, key: &[u8], hash: u64) -> bool {
        let deep = &self.levels[RUNS_MAX..];
        if deep.iter().all(|level| level.tables.is_empty()) {
            return self.tables_for(key).any(|table| table.may_contain(hash));
        }
        deep.iter().any(|level| level.find(key).is_some_and(|table| table.may_contain(hash)))
    }

    /// The tables of a level: newest first in level 0, in key order in the others.
    pub fn level(&self, level: usize) -> &[Arc<Table>] {
        &self.levels[level].tables
    }

    /// The same, to be kept: one share for all of them.
    pub fn share_level(&self, level: usize) -> Arc<[Arc<Table>]> {
        Arc::clone(&self.levels[level].tables)
    }

    /// The levels below 0 that have tables, from the newest to the oldest.
    pub fn populated(&self) -> impl Iterator<Item = usize> {
        levels_in(self.populated)
    }

    /// The levels from 1 to [`RUNS_MAX`] that hold a run: those from the first of them on.
    pub fn runs(&self) -> std::ops::RangeInclusive<usize> {
        self.first_run..=RUNS_MAX
    }

    /// The bytes of a level's tables.
    pub fn level_bytes(&self, level: usize) -> u64 {
        self.levels[level].bytes
    }

    /// The entries of a level's tables, and how many of these are deletions.
    pub fn level_entries(&self, level: usize) -> (u64, u64) {
        (self.levels[level].entries, self.levels[level].deletions)
    }

    /// All tables with their levels, from the newest to the oldest.
    pub fn tables(&self) -> impl Iterator<Item = (usize, &Arc<Table>)> {
        self.levels
            .iter()
            .enumerate()
            .flat_map(|(level, tables)| tables.tables.iter().map(move |t| (level, t)))
    }

    /// The tables of `level` that can hold a key from `min` to `max`.
    pub fn overlapping(&self, level: usize, min: &[u8], max: &[u8]) -> Vec<Arc<Table>> {
        let tables = &self.levels[level].tables;
        // Below level 0 the tables that can overlap stand together.
        let (start, end) = if level == 0 {
            (0, tables.len())
        } else {
            (
                tables.partition_point(|table| *table.meta().max_key < *min),
                self.levels[level].min_keys.count_at_most(max),
            )
        };
        let candidates = tables.get(start..end).unwrap_or_default();
        candidates.iter().filter(|table| table.meta().overlaps(min, max)).map(Arc::clone).collect()
    }

    /// What the manifest keeps of each table, by level.
    pub fn records(&self) -> Vec<Vec<TableRecord>> {
        let record = |table: &Arc<Table>| TableRecord::of(table);
        self.levels.iter().map(|level| level.tables.iter().map(record).collect()).collect()
    }

    /// Panics if a level below 0 is out of order, if its tables overlap, or if a table is there twice.
    pub fn invariants(&self) {
        let mut ids: Vec<TableId> = self.tables().map(|(_, table)| table.id()).collect();
        ids.sort_unstable();
        assert!(ids.is_sorted_by(|a, b| a < b), "a table is in a version twice");
        for level in &self.levels[1..] {
            let disjoint = level.tables.is_sorted_by(|a, b| a.meta().max_key < b.meta().min_key);
            assert!(disjoint, "tables of one level overlap");
            assert_eq!(level.min_keys.len(), level.tables.len(), "a level's keys are those of its tables");
        }
    }
}

/// The levels that have a bit, from the newest to the oldest.
#[inline]
fn levels_in(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let level = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
        bits &= bits - 1;
        Some(level)
    })
}

/// Moves runs into the empty places below them, their order kept, so that the places above stay free for new ones; says
/// which is the first then.
fn sink_runs(levels: &mut [Vec<Arc<Table>>; LEVELS]) -> usize {
    let mut place = RUNS_MAX;
    for level in (1..=RUNS_MAX).rev() {
        if !levels[level].is_empty() {
            levels.swap(level, place);
            place -= 1;
        }
    }
    place + 1
}

impl Level {
    fn new(tables: Vec<Arc<Table>>, sorted: bool) -> Level {
        let min_keys = if sorted {
            KeyArray::new(tables.iter().map(|table| &*table.meta().min_key))
                .expect("a level's tables ascend by their first keys, whose sum is far below 4 GiB")
        } else {
            KeyArray::default()
        };
        let bytes = tables.iter().map(|table| table.len()).sum();
        let entries = tables.iter().map(|table| table.meta().entries).sum();
        let deletions = tables.iter().map(|table| table.meta().deletions).sum();
        Level { tables: tables.into(), min_keys, bytes, entries, deletions }
    }

    #[inline]
    fn find(&self, key: &[u8]) -> Option<&Arc<Table>> {
        let index = self.min_keys.count_at_most(key).checked_sub(1)?;
        let table = &self.tables[index];
        (*key <= *table.meta().max_key).then_some(table)
    }
}
