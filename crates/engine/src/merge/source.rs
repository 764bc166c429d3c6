//! What a merge reads from.

use crate::Seq;
use crate::drops::is_before_end;
use crate::error::Error;
use crate::key_segments::KeySegments;
use crate::lost::LostRange;
use crate::memtable::{Cursor, MemtableReader};
use crate::table::{Block, Table, TableIter};
use base::Disk;
use std::sync::Arc;

/// One version of a key, borrowed from where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// The key.
    pub key: &'a [u8],
    /// When the version became visible.
    pub seq: Seq,
    /// The ledger entry.
    pub entry: &'a [u8],
}

/// A cursor over entries in the order (key ascending, seq descending). It is past the end until it seeks, and
/// after an error.
pub trait Source: Send {
    /// Goes to the first entry whose key is `key` or after it.
    fn seek(&mut self, disk: &mut dyn Disk, key: &[u8]) -> Result<(), Error>;

    /// Goes one entry on. Panics past the end.
    fn next(&mut self, disk: &mut dyn Disk) -> Result<(), Error>;

    /// The entry it is at; `None` past the end.
    fn item(&self) -> Option<Item<'_>>;

    /// What will be asked for after the next seek ends before `key`, unless that is empty: what lies further on is not to be read. Of that
    /// versions may be left out, so what is shown there means nothing.
    fn expect_end(&mut self, _key: &[u8]) {}

    /// The block of a table that the entry is in, and its number there; `None` of what is in memory, and past the end.
    fn block(&self) -> Option<(u32, &Block)> {
        None
    }

    /// Leaves out damaged blocks from now on, where it would fail, and remembers what was in them.
    fn cut_out(&mut self) {}

    /// What was left out so far.
    fn take_lost(&mut self) -> Vec<LostRange> {
        Vec::new()
    }

    /// Whether it may have several versions of a key; most have the newest only.
    fn repeats_keys(&self) -> bool {
        false
    }
}

impl Source for TableIter {
    fn seek(&mut self, disk: &mut dyn Disk, key: &[u8]) -> Result<(), Error> {
        TableIter::seek(self, disk, key)
    }

    fn next(&mut self, disk: &mut dyn Disk) -> Result<(), Error> {
        TableIter::next(self, disk)
    }

    fn item(&self) -> Option<Item<'_>> {
        self.valid().then(|| Item { key: self.key(), seq: self.seq(), entry: self.entry() })
    }

    fn expect_end(&mut self, key: &[u8]) {
        TableIter::expect_end(self, key);
    }

    fn block(&self) -> Option<(u32, &Block)> {
        TableIter::block(self)
    }

    fn cut_out(&mut self) {
        TableIter::cut_out(self);
    }

    fn take_lost(&mut self) -> Vec<LostRange> {
        TableIter::take_lost(self)
    }
}

/// A memtable's entries, each version up to a seq.
pub struct MemtableSource {
    cursor: Cursor,
    seq_max: Seq,
}

impl MemtableSource {
    /// The versions of `memtable` that are not newer than `seq_max`: `Seq(u64::MAX)` for all of a frozen one.
    pub fn new(memtable: &MemtableReader, seq_max: Seq) -> MemtableSource {
        MemtableSource { cursor: memtable.cursor(), seq_max }
    }

    fn skip_newer(&mut self) {
        while self.cursor.valid() && self.cursor.seq() > self.seq_max.0 {
            self.cursor.next();
        }
    }
}

impl Source for MemtableSource {
    fn seek(&mut self, _disk: &mut dyn Disk, key: &[u8]) -> Result<(), Error> {
        self.cursor.seek(key);
        self.skip_newer();
        Ok(())
    }

    fn next(&mut self, _disk: &mut dyn Disk) -> Result<(), Error> {
        self.cursor.next();
        self.skip_newer();
        Ok(())
    }

    fn item(&self) -> Option<Item<'_>> {
        self.cursor.valid().then(|| Item {
            key: self.cursor.key(),
            seq: Seq(self.cursor.seq()),
            entry: self.cursor.entry(),
        })
    }

    fn repeats_keys(&self) -> bool {
        true
    }
}

/// Tables whose keys ascend from one to the next, as one source: a level below 0, or a part of it.
pub struct Run {
    tables: Vec<Arc<Table>>,
    /// The table that `iter` is in.
    at: usize,
    iter: Option<TableIter>,
    /// What was left out of tables that it has left, where damaged blocks are.
    cut_out: Option<Vec<LostRange>>,
    /// The segments whose keys are wanted, if not all are.
    segments: Option<KeySegments>,
    /// What is wanted ends before this key; empty for nowhere.
    end: Vec<u8>,
}

impl Run {
    /// The tables in their order, which must be ascending and disjoint.
    pub fn new(tables: Vec<Arc<Table>>) -> Run {
        let disjoint = tables.is_sorted_by(|a, b| a.meta().max_key < b.meta().min_key);
        assert!(disjoint, "the tables of a run overlap");
        Run { tables, at: 0, iter: None, cut_out: None, segments: None, end: Vec::new() }
    }

    /// The same, but for blocks that hold no key of `segments`; it goes forward only.
    pub fn of_segments(self, segments: KeySegments) -> Run {
        Run { segments: Some(segments), ..self }
    }

    /// Leaves tables behind whose end was reached. One that has just been opened is at an entry, is damaged, or has nothing
    /// of the segments.
    fn settle(&mut self, disk: &mut dyn Disk) -> Result<(), Error> {
        while self.iter.as_ref().is_some_and(|iter| !iter.valid()) {
            self.at += 1;
            self.enter(disk, &[])?;
        }
        Ok(())
    }

    /// Goes to the last key before `key`, or to the last of all.
    pub(super) fn seek_before(&mut self, disk: &mut dyn Disk, key: Option<&[u8]>) -> Result<(), Error> {
        let before = |table: &Arc<Table>| key.is_none_or(|key| *table.meta().min_key < *key);
        self.at = self.tables.partition_point(before);
        self.enter_before(disk, key)
    }

    /// Goes one key back. Panics before the first.
    pub(super) fn prev(&mut self, disk: &mut dyn Disk) -> Result<(), Error> {
        let Some(mut iter) = self.iter.take() else { panic!("there is nothing before the first") };
        iter.prev(disk)?;
        if iter.valid() {
            self.iter = Some(iter);
            return Ok(());
        }
        self.enter_before(disk, None)
    }

    /// Goes to the last key before `key` of the table before `at`. That table has one, as its first key is before.
    fn enter_before(&mut self, disk: &mut dyn Disk, key: Option<&[u8]>) -> Result<(), Error> {
        self.iter = None;
        let Some(at) = self.at.checked_sub(1) else { return Ok(()) };
        self.at = at;
        let mut iter = TableIter::new(Arc::clone(&self.tables[at]));
        iter.seek_before(disk, key)?;
        self.iter = Some(iter).filter(TableIter::valid);
        Ok(())
    }

    fn enter(&mut self, disk: &mut dyn Disk, key: &[u8]) -> Result<(), Error> {
        self.leave();
        let is_wanted = |table: &&Arc<Table>| is_before_end(&table.meta().min_key, &self.end);
        let Some(table) = self.tables.get(self.at).filter(is_wanted) else { return Ok(()) };
        let mut iter = match &self.segments {
            Some(segments) => TableIter::of_segments(Arc::clone(table), segments.clone()),
            None => TableIter::new(Arc::clone(table)),
        };
        iter.expect_end(&self.end);
        if self.cut_out.is_some() {
            iter.cut_out();
        }
        let sought = iter.seek(disk, key);
        self.iter = Some(iter).filter(|_| sought.is_ok());
        sought
    }

    /// Lets go of the table that it is in.
    fn leave(&mut self) {
        if let (Some(lost), Some(mut iter)) = (&mut self.cut_out, self.iter.take()) {
            lost.append(&mut iter.take_lost());
        }
        self.iter = None;
    }
}

impl Source for Run {
    fn seek(&mut self, disk: &mut dyn Disk, key: &[u8]) -> Result<(), Error> {
        self.at = self.tables.partition_point(|table| *table.meta().max_key < *key);
        self.enter(disk, key)?;
        self.settle(disk)
    }

    fn next(&mut self, disk: &mut dyn Disk) -> Result<(), Error> {
        let Some(iter) = &mut self.iter else { panic!("there is nothing after the end") };
        if let Err(error) = iter.next(disk) {
            self.iter = None;
            return Err(error);
        }
        self.settle(disk)
    }

    fn item(&self) -> Option<Item<'_>> {
        self.iter.as_ref().and_then(Source::item)
    }

    fn expect_end(&mut self, key: &[u8]) {
        self.end = key.to_vec();
    }

    fn block(&self) -> Option<(u32, &Block)> {
        self.iter.as_ref().and_then(TableIter::block)
    }

    fn cut_out(&mut self) {
        self.cut_out.get_or_insert_default();
    }

    fn take_lost(&mut self) -> Vec<LostRange> {
        self.leave();
        self.cut_out.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
